//! The incremental planner and its operators.
//!
//! Operators are synchronous over Arrow batches; they never read a clock, never do network I/O and
//! know nothing of checkpoints. State goes through [`operator::OperatorState`].

pub mod aggregate;
pub mod change;
pub mod entries;
pub mod measure;
pub mod number;
pub mod operator;
pub mod view_storage;
