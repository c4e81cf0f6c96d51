//! Taking over the state of another pipeline's checkpoint.
//!
//! ```text
//!   theirs: run, run, …       ours: batch N drops their tables │ N+1 … N+k: a run of theirs each │ the last commit knows their views
//! ```
//!
//! Runs are copied as they are, oldest first and one a batch, so that a state of any size takes the
//! memory of one run. Only the last of these commits knows the views whose state came: cut short, all
//! of it is done again, from dropped tables on. Entries before that commit go then, since a batch
//! before it has one pipeline's half of what runs here from now on.

use super::load::read_run_bytes;
use super::location::{Checkpoint, PendingState};
use super::{CommitEntry, OffsetEntry};
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::state::{Run, TableId};

/// What stands in the logs for the batches of a take-over.
pub struct TakeOver {
    /// Input and commit of the last of them; those before it are made of it.
    pub entry: OffsetEntry,
    /// See `entry`.
    pub commit: CommitEntry,
    /// The commit that it goes on from, whatever its number.
    pub before: CommitEntry,
    /// Tables of the views that come.
    pub tables: Vec<TableId>,
}

impl TakeOver {
    fn planned(&self, batch_id: u64, is_last: bool) -> OffsetEntry {
        let mut entry = self.entry.clone();
        entry.batch_id = batch_id;
        if !is_last {
            entry.sources.clear();
        }
        entry
    }

    fn committed(&self, batch_id: u64, is_last: bool) -> CommitEntry {
        let mut commit = if is_last { &self.commit } else { &self.before }.clone();
        commit.batch_id = batch_id;
        commit.metrics.clear();
        commit
    }
}

impl Checkpoint {
    /// The number of batches that taking this state over needs.
    pub fn batches_to_take_over(&self) -> u64 {
        1 + self.shared.state.lock().runs.len() as u64
    }

    /// Takes the state of `theirs` over, in batches from `first_batch` on.
    pub async fn take_over(
        &self,
        theirs: &Checkpoint,
        first_batch: u64,
        work: &TakeOver,
    ) -> Result<()> {
        let runs = theirs.shared.state.lock().runs.clone();
        let last_batch = first_batch + runs.len() as u64;
        let mut dropping = Run::default();
        dropping.drop_tables(&work.tables);
        for batch_id in first_batch..=last_batch {
            let pending = match batch_id.checked_sub(first_batch + 1) {
                None => PendingState::encode(batch_id, &dropping),
                Some(index) => {
                    let info = &runs[index as usize];
                    PendingState::of_file(
                        batch_id,
                        read_run_bytes(&theirs.shared, info).await?,
                        info,
                    )
                }
            };
            let is_last = batch_id == last_batch;
            self.write_offsets(&work.planned(batch_id, is_last)).await?;
            crash_point("merge_planned");
            self.commit_batch(Some(&pending), &work.committed(batch_id, is_last))
                .await?;
            crash_point("merge_committed");
        }
        Ok(())
    }

    /// Ends a take-over: what is older than the newest commit goes, and the checkpoint whose state
    /// came moves to its archive.
    pub async fn end_take_over(&self, theirs: Checkpoint) -> Result<()> {
        if let Some(last) = self.last_commit() {
            self.forget_before(last.batch_id).await?;
        }
        crash_point("merge_forgotten");
        theirs.archive().await.map(drop)
    }
}
