//! The incremental planner and its operators.
//!
//! ```text
//!   LogicalPlan ──plan──► ViewPlan ──graph──► Dataflow: operators of all views of a pipeline
//!                                               inputs ─► stateless ─► join, aggregate, … ─► view storage
//! ```
//!
//! Operators are synchronous over Arrow batches; they never read a clock, never do network I/O and
//! know nothing of checkpoints. State is read from a snapshot and
//! written as sorted runs, one per table and batch.

pub mod aggregate;
pub mod bag;
pub mod batch_numbers;
pub mod byte_rows;
pub mod change;
pub mod consolidate;
pub mod distinct;
pub mod entries;
pub mod expression;
pub mod graph;
pub mod join;
pub mod keyed;
pub mod late;
pub mod measure;
pub mod not_in;
pub mod number;
pub mod operator;
pub mod ordered;
mod parallel;
pub mod plan;
pub mod recompute;
pub mod row_errors;
pub mod rows;
pub mod session;
pub mod set_operation;
pub mod single_entry;
pub mod single_row;
pub mod stateless;
pub mod temporal;
pub mod top;
pub mod unnest;
pub mod view_storage;
pub mod window;

#[cfg(test)]
pub mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_operators;
#[cfg(test)]
mod tests_row_errors;
#[cfg(test)]
mod tests_time;
#[cfg(test)]
mod tests_windows;
