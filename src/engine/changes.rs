//! The channel of a view's changes: who listens gets every batch, and who was cut off finds the last ones kept.
//!
//! ```text
//!   publish ──► kept: batches after `after`, up to the last one     ◄── SUBSCRIBE … AFTER BATCH n, Last-Event-ID
//!          └──► sender: those that listen now
//! ```
//!
//! A batch without changes of the view is told too, so that whoever listens knows how far he is. What is kept
//! is in memory, counts in its budget, and is bounded three ways: bytes, batches, and the time since the last listener left, after which the
//! view's changes are not made any more ([`ChangeChannel::is_wanted`]). Deliberately absent: changes on disk. They follow
//! from the input, so that a reader who was away for longer, or over a restart, begins with a snapshot.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::broadcast;

use super::CommittedChanges;
use crate::dataflow::change::ChangeBatch;
use crate::state::{MemoryBudget, MemoryCharge};

/// Batches that a subscriber may lag behind before it is ended, and that are kept.
const BATCHES_MAX: usize = 1024;
/// Bytes of changes of one view that are kept.
const KEPT_BYTES_MAX: usize = 32 << 20;
/// How long changes are made for one who was cut off and comes again.
const KEPT_FOR_US: i64 = 600 * 1_000_000;

/// What is kept after a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kept<T> {
    /// All of it, oldest first.
    Changes(Vec<T>),
    /// It is gone, or was never made.
    Gone,
    /// There is no such batch yet.
    Ahead,
}

/// Changes of one view.
#[derive(Debug)]
pub(super) struct ChangeChannel {
    sender: broadcast::Sender<Arc<CommittedChanges>>,
    kept: VecDeque<(Arc<CommittedChanges>, MemoryCharge)>,
    kept_bytes: usize,
    /// All changes after this batch are kept; `None`: no batch came yet.
    after: Option<u64>,
    /// When someone last listened, as far as is known.
    heard_at_us: Option<i64>,
    /// The last batch that began had to make the changes.
    was_wanted: bool,
    budget: Arc<MemoryBudget>,
}

impl ChangeChannel {
    /// What is kept counts in the `budget`.
    pub fn new(budget: &Arc<MemoryBudget>) -> Self {
        Self {
            sender: broadcast::channel(BATCHES_MAX).0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            after: None,
            heard_at_us: None,
            was_wanted: false,
            budget: Arc::clone(budget),
        }
    }

    /// Changes from the next batch on.
    pub fn listen(&self) -> broadcast::Receiver<Arc<CommittedChanges>> {
        self.sender.subscribe()
    }

    /// Whether a batch that begins now has to make the changes.
    pub fn is_wanted(&mut self, now_us: i64) -> bool {
        if self.sender.receiver_count() > 0 {
            self.heard_at_us = Some(now_us);
        }
        let heard = self.heard_at_us;
        self.was_wanted = heard.is_some_and(|at| now_us < at.saturating_add(KEPT_FOR_US));
        self.was_wanted
    }

    /// Someone listens, or may come again: also changes that were made in any case are kept only then.
    pub fn is_heard(&self) -> bool {
        self.was_wanted || self.sender.receiver_count() > 0
    }

    /// A batch that made the changes; none: nothing changed.
    pub fn publish(&mut self, batch_id: u64, changes: Vec<ChangeBatch>) {
        let bytes: usize = changes.iter().map(bytes_of).sum();
        let message = Arc::new(CommittedChanges {
            batch_id,
            snapshot: false,
            changes,
        });
        self.after.get_or_insert(batch_id.saturating_sub(1));
        let charge = MemoryCharge::new(&self.budget, bytes);
        self.kept.push_back((Arc::clone(&message), charge));
        self.kept_bytes += bytes;
        while self.kept.len() > BATCHES_MAX || self.kept_bytes > KEPT_BYTES_MAX {
            let Some((oldest, charge)) = self.kept.pop_front() else {
                break;
            };
            self.kept_bytes -= charge.bytes();
            // Without changes there is nothing to miss.
            if !oldest.changes.is_empty() {
                self.after = Some(oldest.batch_id);
            }
        }
        // An error only says that nobody listens.
        self.sender.send(message).ok();
    }

    /// A batch that did not make them.
    pub fn pass_over(&mut self, batch_id: u64) {
        self.kept.clear();
        self.kept_bytes = 0;
        self.after = Some(batch_id);
    }

    /// What came after a batch, up to the last one.
    pub fn since(&self, batch_id: u64) -> Kept<Arc<CommittedChanges>> {
        if self.after.is_none_or(|after| batch_id < after) {
            return Kept::Gone;
        }
        let kept = self.kept.iter().map(|(changes, _)| Arc::clone(changes));
        Kept::Changes(kept.filter(|c| c.batch_id > batch_id).collect())
    }
}

fn bytes_of(changes: &ChangeBatch) -> usize {
    let weights = changes.weights().map_or(0, |w| 8 * w.len());
    changes.rows().get_array_memory_size() + weights
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{Int64Array, RecordBatch};
    use datafusion::arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn rows(count: i64) -> Vec<ChangeBatch> {
        let schema = Schema::new(vec![Field::new("k", DataType::Int64, true)]);
        let values = Int64Array::from_iter_values(0..count);
        let rows = RecordBatch::try_new(Arc::new(schema), vec![Arc::new(values)]).unwrap();
        vec![ChangeBatch::inserts(rows)]
    }

    fn numbers(channel: &ChangeChannel, after: u64) -> Option<Vec<u64>> {
        match channel.since(after) {
            Kept::Changes(kept) => Some(kept.iter().map(|c| c.batch_id).collect()),
            _ => None,
        }
    }

    #[test]
    fn what_came_after_a_batch_is_kept() {
        let mut channel = ChangeChannel::new(&MemoryBudget::new(1 << 30));
        assert_eq!(numbers(&channel, 0), None);
        for batch_id in 5..8 {
            channel.publish(batch_id, rows(1));
        }
        assert_eq!(numbers(&channel, 4), Some(vec![5, 6, 7]));
        assert_eq!(numbers(&channel, 6), Some(vec![7]));
        assert_eq!(numbers(&channel, 7), Some(vec![]));
        assert_eq!(numbers(&channel, 3), None);
        // A batch without its changes leaves a gap before it, never within.
        channel.pass_over(8);
        channel.publish(9, Vec::new());
        assert_eq!(numbers(&channel, 7), None);
        assert_eq!(numbers(&channel, 8), Some(vec![9]));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut channel = ChangeChannel::new(&MemoryBudget::new(1 << 30));
        for batch_id in 0..2000 {
            channel.publish(batch_id, rows(1));
        }
        assert_eq!(numbers(&channel, 2000 - BATCHES_MAX as u64 - 2), None);
        let kept = numbers(&channel, 2000 - BATCHES_MAX as u64 - 1);
        assert_eq!(kept.map(|kept| kept.len()), Some(BATCHES_MAX));
        // One batch of more than is kept goes itself.
        channel.publish(2000, rows(5 << 20));
        assert_eq!(numbers(&channel, 1999), None);
        assert_eq!(numbers(&channel, 2000), Some(vec![]));
        assert_eq!(channel.kept_bytes, 0);
        // Batches without changes take nothing away from those that have some.
        for batch_id in 2001..4000 {
            channel.publish(batch_id, Vec::new());
        }
        channel.publish(4000, rows(1));
        assert!(numbers(&channel, 2000).is_some());
    }

    #[test]
    fn changes_are_made_for_a_while_after_the_last_listener() {
        let mut channel = ChangeChannel::new(&MemoryBudget::new(1 << 30));
        assert!(!channel.is_wanted(0));
        assert!(!channel.is_heard());
        let listener = channel.listen();
        assert!(channel.is_wanted(1_000));
        drop(listener);
        assert!(channel.is_wanted(KEPT_FOR_US));
        assert!(channel.is_heard());
        assert!(!channel.is_wanted(KEPT_FOR_US + 1_000));
        assert!(!channel.is_heard());
        // One who comes while a batch is on its way gets the next ones.
        let _listener = channel.listen();
        assert!(channel.is_heard());
    }
}
