//! What the shards of an aggregate have in common: what they read, and what each gives for a batch.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, Int64Array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;

use super::EventTimeGroup;
use super::keys::{BatchKeys, KeyFormat};
use super::output::FailedGroups;
use super::plan::AggregatePlan;
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::entries::Entries;
use crate::dataflow::row_errors::OnRowError;
use crate::error::{Error, Result};
use crate::state::TableId;

/// What all shards of an operator read.
#[derive(Debug)]
pub struct Shared {
    /// The operator's name, for errors.
    pub name: String,
    /// Cells, multisets, outputs.
    pub plan: AggregatePlan,
    /// Group keys.
    pub format: KeyFormat,
    /// Group expressions.
    pub group: Vec<Arc<dyn PhysicalExpr>>,
    /// Group columns, then aggregates.
    pub output_schema: SchemaRef,
    /// The group column that holds event time.
    pub event_time: Option<EventTimeGroup>,
    /// Nothing is emitted but closed groups.
    pub emit_on_close: bool,
    /// Table of the groups.
    pub groups_table: TableId,
    /// What becomes of a group whose result cannot be computed.
    pub on_row_error: OnRowError,
    /// No weight of the input is ever negative.
    pub append_only_input: bool,
    /// Nobody takes the changes of this batch.
    pub nobody_takes: bool,
}

/// Groups that the watermark closes, ascending by key.
#[derive(Debug)]
pub struct Closing {
    /// Their keys, as a batch.
    pub keys: BatchKeys,
    /// Their keys, stored form.
    pub stored: Vec<Vec<u8>>,
}

/// What a shard gives for a batch.
#[derive(Debug, Default)]
pub struct ShardOutput {
    /// Changes of the output.
    pub changes: Vec<ChangeBatch>,
    /// Rows of changes that were not made because nobody takes them.
    pub unmade_rows: u64,
    /// Entries of the groups' table: touched groups, closed groups.
    pub groups: Vec<Entries>,
    /// Entries of each multiset's table.
    pub multisets: Vec<Vec<Entries>>,
    /// (end, key) of groups that appeared (true) or vanished by deletes (false).
    pub ends: BTreeSet<(i64, Vec<u8>, bool)>,
    /// Entries that say again what older ones said, of groups that the batch did not change.
    pub as_before_rows: u64,
    /// By how many the state's rows grew.
    pub growth: i64,
    /// Groups whose result cannot be computed, and the first error.
    pub failed: (u64, Option<Error>),
}

/// When groups close, by rank; nothing is known of groups that no watermark closes.
#[derive(Debug, Default)]
pub struct Ends {
    /// When each group closes; null: never.
    pub times: Option<Int64Array>,
    /// What ends at or before this is shown by this batch and need not be kept for the next.
    pub closed_until: Option<i64>,
}

impl Ends {
    /// A group that appears is to be closed at this time.
    pub fn get(&self, rank: usize) -> Option<i64> {
        let times = self.times.as_ref()?;
        times.is_valid(rank).then(|| times.value(rank))
    }

    /// The next batch would close the group, and no row can come to it any more.
    pub fn is_closing(&self, rank: usize) -> bool {
        self.closed_until
            .is_some_and(|until| self.get(rank).is_some_and(|end| end <= until))
    }
}

impl ShardOutput {
    /// Counts the groups whose result cannot be computed; an error where they must not be.
    pub fn fail(&mut self, shared: &Shared, failed: FailedGroups) -> Result<()> {
        match failed.first {
            Some(error) if shared.on_row_error == OnRowError::Fail => Err(error),
            first => {
                self.failed.0 += failed.places.len() as u64;
                self.failed.1 = self.failed.1.take().or(first);
                Ok(())
            }
        }
    }
}

impl Shared {
    /// No changes are made.
    pub fn is_quiet(&self) -> bool {
        self.nobody_takes && !self.emit_on_close
    }

    /// The state before a batch is needed: for the changes, or to know a group that is as it was.
    pub fn keeps_old(&self) -> bool {
        !(self.is_quiet() && self.append_only_input)
    }

    /// When groups of these key columns close. What is shown only when its window has closed waits
    /// for the batch that applies the watermark.
    pub fn ends(&self, columns: &[ArrayRef], next_watermark: Option<i64>) -> Result<Ends> {
        let Some(event_time) = &self.event_time else {
            return Ok(Ends::default());
        };
        Ok(Ends {
            times: Some(event_time.ends(&columns[event_time.group_index])?),
            closed_until: next_watermark.filter(|_| !self.emit_on_close),
        })
    }

    /// The groups that are shown: those whose result cannot be computed only with NULL for it.
    pub fn shown(&self, mut there: Vec<bool>, failed: &FailedGroups) -> Vec<bool> {
        if self.on_row_error != OnRowError::Null {
            failed.places.iter().for_each(|&place| there[place] = false);
        }
        there
    }
}
