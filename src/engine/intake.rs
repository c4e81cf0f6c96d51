//! Intake: what happens to a source's chunk between the connector and the dataflow.
//!
//! ```text
//!   chunk ──► expectations (count, drop, fail) ──► event-time range ──► projection ──► dataflow
//! ```
//!
//! One slot per source relation of a pipeline; it holds the position, the limits and the numbers
//! that `streaming_sources` shows. Vectorised: a chunk at a time, never a row.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use datafusion::arrow::compute;
use datafusion::arrow::datatypes::{DataType, Int64Type, Schema, SchemaRef, TimeUnit};
use datafusion::common::DFSchema;
use datafusion::execution::SessionState;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;

use super::decide::moves_watermark;
use crate::catalog::definition::{ExpectationDefinition, OnViolation, WatermarkDefinition};
use crate::connectors::evolution::SchemaEvolution;
use crate::connectors::{Backlog, ReadLimits, SourceOffset, SourceRef};
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::rows::all_nullable;
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;

/// An expectation compiled over the relation's schema.
pub(super) struct Expectation {
    name: String,
    on_violation: OnViolation,
    condition: Arc<dyn PhysicalExpr>,
}

/// One source relation of a pipeline.
pub(super) struct SourceSlot {
    pub relation: String,
    pub source: SourceRef,
    pub schema: SchemaRef,
    /// The relation's rows lie in the durable log: its positions are commits of the whole database.
    pub reads_log: bool,
    /// Every column is decoded, whatever is asked for: which records are rows must not depend on
    /// the columns that a view reads.
    pub decodes_text: bool,
    pub watermark: Option<WatermarkDefinition>,
    /// What fields without a column do.
    pub evolution: SchemaEvolution,
    pub limits: ReadLimits,
    pub initial: SourceOffset,
    pub position: SourceOffset,
    pub latest: Option<SourceOffset>,
    pub backlog: Backlog,
    pub last_data_at_us: Option<i64>,
    pub last_error: Option<Error>,
    /// An event said that it cannot be reached.
    pub told_down: bool,
    pub last_rows: u64,
    pub rows_per_second: Option<f64>,
    /// The stream's own settings, before the pipeline's.
    pub idle_timeout_us: Option<i64>,
    pub max_future_skew_us: Option<i64>,
    expectations: Vec<Expectation>,
    /// Columns asked of the connector.
    read: Vec<usize>,
    /// Positions in `read` of the columns that the dataflow wants.
    feed: Vec<usize>,
}

/// What one chunk came to.
#[derive(Debug, Default)]
pub(super) struct IntakeCounts {
    pub rows: u64,
    pub expectations: BTreeMap<String, ExpectationCounts>,
    pub dropped_rows: u64,
    /// Rows whose event time lies too far ahead of the clock to move the watermark.
    pub skewed_rows: u64,
    pub event_time_min: Option<i64>,
    pub event_time_max: Option<i64>,
}

/// What one expectation came to.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ExpectationCounts {
    pub passed: u64,
    pub failed: u64,
    pub dropped: u64,
}

impl IntakeCounts {
    pub fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.dropped_rows += other.dropped_rows;
        self.skewed_rows += other.skewed_rows;
        for (name, counts) in other.expectations {
            let sum = self.expectations.entry(name).or_default();
            sum.passed += counts.passed;
            sum.failed += counts.failed;
            sum.dropped += counts.dropped;
        }
        self.event_time_min = [self.event_time_min, other.event_time_min]
            .into_iter()
            .flatten()
            .min();
        self.event_time_max = self.event_time_max.max(other.event_time_max);
    }
}

/// Compiles a relation's expectations over its schema.
pub(super) fn compile_expectations(
    state: &SessionState,
    relation: &str,
    schema: &Schema,
    definitions: &[ExpectationDefinition],
) -> Result<Vec<Expectation>> {
    let df_schema = DFSchema::try_from(schema.clone())?;
    definitions
        .iter()
        .map(|d| {
            let bound = state
                .create_logical_expr(&d.condition, &df_schema)
                .and_then(|e| state.create_physical_expr(e, &df_schema));
            let condition = bound.map_err(|e| {
                Error::from(e).context(format!("constraint {} of {relation}", d.name))
            })?;
            Ok(Expectation {
                name: d.name.clone(),
                on_violation: d.on_violation,
                condition,
            })
        })
        .collect()
}

impl SourceSlot {
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        relation: String,
        source: SourceRef,
        schema: SchemaRef,
        reads_log: bool,
        decodes_text: bool,
        watermark: Option<WatermarkDefinition>,
        expectations: Vec<Expectation>,
        limits: ReadLimits,
        initial: SourceOffset,
        position: SourceOffset,
    ) -> Self {
        Self {
            relation,
            source,
            schema,
            reads_log,
            decodes_text,
            watermark,
            evolution: SchemaEvolution::None,
            limits,
            initial,
            position,
            latest: None,
            backlog: Backlog::default(),
            last_data_at_us: None,
            last_error: None,
            told_down: false,
            last_rows: 0,
            rows_per_second: None,
            idle_timeout_us: None,
            max_future_skew_us: None,
            expectations,
            read: Vec::new(),
            feed: Vec::new(),
        }
    }

    /// Goes on where the slot of the same relation stood, with another source.
    pub fn in_place_of(mut self, other: &Self) -> Self {
        self.initial.clone_from(&other.initial);
        self.position.clone_from(&other.position);
        self.latest.clone_from(&other.latest);
        self.backlog = other.backlog;
        self.last_data_at_us = other.last_data_at_us;
        self.last_rows = other.last_rows;
        self.rows_per_second = other.rows_per_second;
        self
    }

    /// Index of the event-time column in the relation's schema.
    pub fn watermark_column(&self) -> Option<usize> {
        let watermark = self.watermark.as_ref()?;
        self.schema.index_of(&watermark.column).ok()
    }

    /// Fixes which columns are read: those the dataflow wants, the event time, and what the
    /// expectations look at. At least one, so that a batch's row count is never lost.
    pub fn project(&mut self, wanted: &[usize]) {
        let mut read: Vec<usize> = wanted.to_vec();
        if self.decodes_text {
            read.extend(0..self.schema.fields().len());
        }
        read.extend(self.watermark_column());
        for expectation in &self.expectations {
            read.extend(
                collect_columns(&expectation.condition)
                    .iter()
                    .map(|c| c.index()),
            );
        }
        if read.is_empty() && !self.schema.fields().is_empty() {
            read.push(0);
        }
        read.sort_unstable();
        read.dedup();
        self.feed = wanted
            .iter()
            .map(|w| {
                read.binary_search(w)
                    .expect("read holds every wanted column")
            })
            .collect();
        self.read = read;
    }

    /// The columns to ask of the connector.
    pub fn read_columns(&self) -> &[usize] {
        &self.read
    }

    /// Applies expectations and projects a chunk (columns as [`Self::read_columns`]) to what the
    /// dataflow wants. `batch_at_us` and `max_future_skew_us` bound the event time that counts.
    pub fn take_in(
        &self,
        chunk: ChangeBatch,
        batch_at_us: i64,
        max_future_skew_us: Option<i64>,
    ) -> Result<(ChangeBatch, IntakeCounts)> {
        let mut counts = IntakeCounts {
            rows: chunk.num_rows() as u64,
            ..IntakeCounts::default()
        };
        let chunk = self.apply_expectations(chunk, &mut counts)?;
        if let Some(column) = self.watermark_column() {
            let index = self
                .read
                .binary_search(&column)
                .expect("the event time is read");
            let times = event_times(chunk.rows().column(index))?;
            counts.event_time_min = compute::min(&times);
            counts.event_time_max = compute::max(&times);
            let is_skewed = |time: i64| !moves_watermark(time, batch_at_us, max_future_skew_us);
            if is_timestamp(self.schema.field(column).data_type())
                && counts.event_time_max.is_some_and(is_skewed)
            {
                let (skewed, sound): (Vec<i64>, Vec<i64>) =
                    times.iter().flatten().partition(|time| is_skewed(*time));
                counts.skewed_rows = skewed.len() as u64;
                counts.event_time_max = sound.into_iter().max();
            }
        }
        let rows = chunk.rows().project(&self.feed)?;
        Ok((chunk.with_rows(rows), counts))
    }

    /// Rows of all columns from before a view came, without those that an expectation drops: they were
    /// counted when they came.
    pub fn drop_violating(&self, history: ChangeBatch) -> Result<ChangeBatch> {
        let mut dropping = self
            .expectations
            .iter()
            .filter(|expectation| expectation.on_violation == OnViolation::DropRow)
            .peekable();
        if dropping.peek().is_none() || history.is_empty() {
            return Ok(history);
        }
        let mut keep = BooleanArray::from(vec![true; history.num_rows()]);
        for expectation in dropping {
            let value = expectation.condition.evaluate(history.rows())?;
            let value = value.into_array(history.num_rows())?;
            let passed = value.as_boolean().iter().map(|v| Some(v != Some(false)));
            keep = compute::and(&keep, &passed.collect())?;
        }
        history.filter(&keep)
    }

    fn apply_expectations(
        &self,
        chunk: ChangeBatch,
        counts: &mut IntakeCounts,
    ) -> Result<ChangeBatch> {
        if self.expectations.is_empty() || chunk.is_empty() {
            return Ok(chunk);
        }
        let wide = widen(&chunk, &self.schema, &self.read)?;
        let mut keep: Option<BooleanArray> = None;
        for expectation in &self.expectations {
            let value = expectation
                .condition
                .evaluate(&wide)?
                .into_array(wide.num_rows())?;
            let passed = value.as_boolean();
            // As in a CHECK constraint, NULL passes: only a definite false fails.
            let failed: BooleanArray = passed.iter().map(|v| Some(v == Some(false))).collect();
            let number = failed.true_count() as u64;
            let sum = counts
                .expectations
                .entry(expectation.name.clone())
                .or_default();
            sum.passed += chunk.num_rows() as u64 - number;
            sum.failed += number;
            if expectation.on_violation == OnViolation::DropRow {
                sum.dropped += number;
            }
            if number == 0 {
                continue;
            }
            match expectation.on_violation {
                OnViolation::Keep => {}
                OnViolation::DropRow => {
                    let ok = compute::not(&failed)?;
                    keep = Some(match keep {
                        Some(k) => compute::and(&k, &ok)?,
                        None => ok,
                    });
                }
                OnViolation::FailUpdate => {
                    return Err(Error::new(
                        sqlstate::CHECK_VIOLATION,
                        format!(
                            "{number} rows of \"{}\" violate constraint \"{}\"",
                            self.relation, expectation.name
                        ),
                    )
                    .hint(format!(
                        "Mend the rows at the source, or ALTER STREAM {} DROP CONSTRAINT {}.",
                        quote_identifier(&self.relation),
                        quote_identifier(&expectation.name)
                    )));
                }
            }
        }
        match keep {
            None => Ok(chunk),
            Some(mask) => {
                counts.dropped_rows += (mask.len() - mask.true_count()) as u64;
                chunk.filter(&mask)
            }
        }
    }
}

/// The chunk's columns at their places in the relation's schema, the unread ones null, so that
/// conditions compiled over the whole schema can be evaluated.
fn widen(
    chunk: &ChangeBatch,
    schema: &SchemaRef,
    read: &[usize],
) -> Result<datafusion::arrow::array::RecordBatch> {
    let rows = chunk.num_rows();
    let mut columns: Vec<Option<ArrayRef>> = vec![None; schema.fields().len()];
    for (place, &column) in read.iter().enumerate() {
        columns[column] = Some(Arc::clone(chunk.rows().column(place)));
    }
    let nullable = all_nullable(schema);
    let arrays = columns
        .into_iter()
        .zip(nullable.fields())
        .map(|(c, f)| {
            c.unwrap_or_else(|| datafusion::arrow::array::new_null_array(f.data_type(), rows))
        })
        .collect();
    Ok(datafusion::arrow::array::RecordBatch::try_new(
        nullable, arrays,
    )?)
}

fn is_timestamp(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(..) | DataType::Date32)
}

/// Event times as Int64: microseconds for timestamps and dates, the number itself for integers.
fn event_times(column: &ArrayRef) -> Result<Int64Array> {
    let microseconds = match column.data_type() {
        DataType::Date32 => {
            compute::cast(column, &DataType::Timestamp(TimeUnit::Microsecond, None))?
        }
        _ => Arc::clone(column),
    };
    let cast = compute::cast(&microseconds, &DataType::Int64)?;
    Ok(cast.as_primitive::<Int64Type>().clone())
}
