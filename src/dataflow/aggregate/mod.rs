//! Incremental `GROUP BY`.
//!
//! ```text
//!            ┌ shard 0: resident groups ┐
//!   change ─►│ shard 1: …               │─► −old/+new of each touched group whose result changed
//!            └ shard n                  ┘─► one state entry of each touched group
//! ```
//!
//! Groups are split over shards by the hash of their key. A shard holds the state of the groups it
//! met lately in columns; the state store holds all. `count`, `sum`, `avg`, `bool_and`, `bool_or`
//! take negative weights; `min`, `max`, variance and float sums have a fast form for append-only
//! input; all else is derived from a multiset of the arguments ([`multiset`]).
//!
//! State tables, by the operator's name: `…/groups` (key → row count and columns), `…/rows_i`
//! (group and row → weight, one for each call that needs it), `…/ends` (window end and key, when
//! a watermark frees state), `…/statistics` (number of rows in all of them).
//!
//! A batch that touches most groups writes all of them and drops the table's older entries, so that
//! neither the store nor the checkpoint ever merges these with the new ones.
//!
//! Absent: grouping sets (the planner expands them) and sessions (another operator).

mod cells;
mod columns;
mod contents;
mod input;
mod integer_keys;
mod keys;
mod multiset;
mod multiset_plan;
mod operator;
mod output;
mod plan;
mod shard;
mod shared;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

use crate::catalog::definition::EmitMode;
use crate::error::Result;

pub use contents::{GroupContents, GroupReader};
pub use operator::AggregateOperator;
pub(crate) use output::mark_different;
use plan::AggregatePlan;

/// One aggregate call.
#[derive(Debug, Clone)]
pub struct AggregateCall {
    /// DataFusion's form of it, without the filter.
    pub expr: Arc<AggregateFunctionExpr>,
    /// Arguments over the input.
    pub arguments: Vec<Arc<dyn PhysicalExpr>>,
    /// `FILTER (WHERE …)` over the input.
    pub filter: Option<Arc<dyn PhysicalExpr>>,
    /// `DISTINCT`.
    pub distinct: bool,
    /// As a user would write it.
    pub name: String,
    /// Output field.
    pub field: FieldRef,
}

/// The group column that holds event time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTimeGroup {
    /// Index among the group columns.
    pub group_index: usize,
    /// A group closes at its value plus this (microseconds, or the integer time's unit); it is
    /// late and closed when that is at or below the watermark.
    pub end_offset: i64,
}

/// What to aggregate.
#[derive(Debug, Clone)]
pub struct AggregateRequest {
    /// Stable path of the operator, from which its state tables' ids derive.
    pub name: String,
    /// Input rows.
    pub input_schema: SchemaRef,
    /// Group expressions over the input with their output fields; empty: one group of all rows.
    pub group: Vec<(Arc<dyn PhysicalExpr>, FieldRef)>,
    /// Aggregates.
    pub aggregates: Vec<AggregateCall>,
    /// Group columns, then aggregates.
    pub output_schema: SchemaRef,
    /// No weight of the input is ever negative.
    pub append_only_input: bool,
    /// What a watermark closes; `None`: nothing.
    pub event_time: Option<EventTimeGroup>,
    /// When results show.
    pub emit: EmitMode,
}

impl AggregateRequest {
    /// What a group's entry is made of, in words: it hangs on more than the query says, such as whether an
    /// argument can be NULL.
    pub fn state_form(&self) -> Result<String> {
        let plan = AggregatePlan::try_new(self)?;
        let seen = plan.seen();
        Ok(match seen.is_empty() {
            true => format!("{:?}", plan.columns),
            false => format!("{:?} seen {seen:?}", plan.columns),
        })
    }
}
