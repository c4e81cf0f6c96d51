//! What an operator is.
//!
//! ```text
//!   push(port, change)*  ──►  finish()  ──►  drain_state()  ──►  committed()
//!        │ emits                 │ emits          │ sorted runs       (or reset(), if the batch failed)
//!        ▼                       ▼                ▼
//!     downstream              downstream       the batch's run
//! ```
//!
//! One batch is any number of pushes and one finish. A stateful operator gathers in `push` and
//! emits once per touched key in `finish`, so that it reads, writes and emits each key once per
//! batch. What it holds in memory beyond a batch is a cache of the state store, never the only copy.

use std::sync::Arc;

use crate::dataflow::change::ChangeBatch;
use crate::dataflow::late::LateBatch;
use crate::dataflow::row_errors::OnRowError;
use crate::error::{Error, Result};
use crate::state::{MemoryBudget, Run, StateSnapshot, TableId};

/// What is fixed for one batch.
#[derive(Debug, Clone)]
pub struct BatchContext {
    /// Batch.
    pub batch_id: u64,
    /// State before this batch.
    pub snapshot: StateSnapshot,
    /// Event time (microseconds, or the generator's integer unit) at or below which a window is
    /// closed; `None`: no watermark, or a back-fill, which drops nothing.
    pub watermark: Option<i64>,
    /// What the next batch applies at least, known once all rows of this one are in: what it closes
    /// is of no use to any later batch. `None`: not known, or nothing may be let go of.
    pub next_watermark: Option<i64>,
    /// Wall time of the batch from the offset log, microseconds since the epoch.
    pub now_us: i64,
    /// Shared budget, for what an operator keeps resident.
    pub budget: Arc<MemoryBudget>,
}

/// Numbers an operator gives after a batch; totals are as of the batch, the others of this batch.
#[derive(Debug, Clone, Default)]
pub struct OperatorStatistics {
    /// Rows kept in state.
    pub state_rows: u64,
    /// Rows written in this batch.
    pub state_rows_updated: u64,
    /// Rows removed in this batch.
    pub state_rows_removed: u64,
    /// Bytes resident in memory.
    pub memory_bytes: u64,
    /// Rows dropped as late in this batch, in input rows.
    pub late_rows: u64,
    /// Rows on which an expression failed in this batch, and that did not fail the batch.
    pub error_rows: u64,
    /// The error of the first of them.
    pub first_row_error: Option<Error>,
    /// Rows that came in, in this batch.
    pub input_rows: u64,
    /// Rows that went out, in this batch.
    pub output_rows: u64,
    /// Time spent in it, in this batch, microseconds (filled by the graph).
    pub busy_us: u64,
}

/// For `EXPLAIN` and `streaming_state_operators`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorDescription {
    /// Kind: `aggregate`, `join`, `recompute`, ….
    pub kind: &'static str,
    /// One line: keys, conditions, aggregates, in SQL words.
    pub detail: String,
    /// Incremental, or recomputed and compared.
    pub incremental: bool,
    /// What state it keeps and its key; `None`: stateless.
    pub state: Option<String>,
    /// When state is freed, or why it never is; `None`: stateless.
    pub retention: Option<Retention>,
}

/// How long state is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// What ends it.
    pub bound: StateBound,
    /// The same for people.
    pub words: String,
}

/// What bounds an operator's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateBound {
    /// Time: the watermark, or `now()`, frees it.
    Time,
    /// Only its input: it grows with rows that nobody deletes.
    Input,
}

impl Retention {
    /// Freed by the watermark or the clock.
    pub fn by_time(words: &str) -> Self {
        Self {
            bound: StateBound::Time,
            words: words.to_owned(),
        }
    }

    /// Kept as long as the rows of the input.
    pub fn by_input(words: &str) -> Self {
        Self {
            bound: StateBound::Input,
            words: words.to_owned(),
        }
    }
}

/// A node of the dataflow graph.
pub trait Operator: Send {
    /// For people.
    fn describe(&self) -> OperatorDescription;

    /// What a row meets on which one of its expressions cannot be computed; told between batches.
    fn set_on_row_error(&mut self, policy: OnRowError) {
        let _ = policy;
    }

    /// Takes one change on an input port (0-based); appends what it can already emit to `out`.
    fn push(
        &mut self,
        port: usize,
        change: ChangeBatch,
        context: &BatchContext,
        out: &mut Vec<ChangeBatch>,
    ) -> Result<()>;

    /// All changes of the batch are in: emits the rest.
    fn finish(&mut self, context: &BatchContext, out: &mut Vec<ChangeBatch>) -> Result<()>;

    /// Entries to write for this batch: per state table one run with full keys (table prefix
    /// included), tables ascending. Called once after `finish`; empty for a stateless operator.
    fn drain_state(&mut self, context: &BatchContext) -> Result<Vec<(TableId, Run)>> {
        let _ = context;
        Ok(Vec::new())
    }

    /// All state tables it may write, so that they can be dropped with it.
    fn tables(&self) -> Vec<TableId> {
        Vec::new()
    }

    /// The batch is durable and applied: caches now agree with the store.
    fn committed(&mut self) {}

    /// The batch failed: forgets all in memory, back to the store's last committed state.
    fn reset(&mut self) {}

    /// From the next batch on nobody takes the changes: an operator that can work without making
    /// them need not; it still counts them.
    fn set_quiet(&mut self, quiet: bool) {
        let _ = quiet;
    }

    /// The budget is over: lets go of resident state that the store can give again.
    fn shed_memory(&mut self) {}

    /// The windows that a moved watermark would close wait for a batch, even one without rows.
    fn wants_batch_at(&self, watermark: i64) -> bool {
        let _ = watermark;
        false
    }

    /// From this time on (microseconds since the epoch) a batch would let rows in or out by the
    /// clock, even one without rows; `None`: never.
    fn due_us(&self) -> Option<i64> {
        None
    }

    /// Rows of this batch that came too late, as far as they are kept; each is given once.
    fn take_late_rows(&mut self) -> Vec<LateBatch> {
        Vec::new()
    }

    /// Numbers of the last batch.
    fn statistics(&self) -> OperatorStatistics;
}

/// A boxed operator.
pub type BoxOperator = Box<dyn Operator>;
