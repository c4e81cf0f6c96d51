//! Recovery of a checkpoint by an operator's word: look at it, mend it, begin it anew.
//!
//! ```text
//!   store ──► survey (every file judged by itself) ──┬─► diagnose: a row per part
//!                                                    └─► plan: findings and what mends each ──► apply: move aside, then write
//! ```
//!
//! What to do is decided by pure functions over a [`Survey`], and whether a checkpoint can be opened
//! by the same [`super::decide::resume`] that opens it. Nothing is ever deleted: what is in the way
//! moves to `<location>.archive/<time>/`. Each change is made so that a kill in the middle leaves
//! what the same statement can be run on again. Absent: repairing anything unasked.

mod apply;
mod copies;
mod diagnose;
mod input;
mod plan;
mod rebuild;
mod reset;
mod rewind;
mod source_logs;
mod statement;
mod survey;

#[cfg(test)]
mod tests;

pub use apply::{Held, Repaired, repair};
pub use copies::{Backup, back_up, identity_at, not_empty};
pub use diagnose::{PartReport, diagnose, guide_json};
pub use input::{copy_input, filling_entry};
pub use plan::{Finding, Hand, Mend, plan};
pub use rebuild::{Rebuild, plan_rebuild};
pub use reset::{Archived, begin_again};
pub use rewind::{Restorable, restorable};
pub use statement::mending_statement;
pub use survey::{Depth, Entry, Survey};
