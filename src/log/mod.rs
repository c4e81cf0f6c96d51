//! The durable log: the only copy of the rows of tables and of streams without a connector.
//!
//! All relations share one log, so that a transaction over several of them is one commit frame.
//! Appends are grouped: one `fdatasync` answers every transaction that waited.

use std::path::Path;
use std::sync::Arc;

use crate::dataflow::change::ChangeBatch;
use crate::error::Result;

/// Position in the log: number of commits that lie before it. 0 is the beginning.
pub type LogPosition = u64;

/// The log of a database.
#[derive(Debug)]
pub struct DurableLog {}

/// One committed change to one relation.
#[derive(Debug, Clone)]
pub struct LogEntry {
    /// Commit that it belongs to; readable positions are `> commit`.
    pub commit: LogPosition,
    /// Rows, in the relation's schema at that time.
    pub changes: ChangeBatch,
}

/// Rows of an open transaction on their way into the log. Dropped without commit: as if never.
#[derive(Debug)]
pub struct LogTransaction {}

impl DurableLog {
    /// Opens the log in `dir`, drops a torn tail, and indexes the frames by relation.
    pub fn open(dir: &Path) -> Result<Arc<Self>> {
        let _ = dir;
        unimplemented!()
    }

    /// Starts a transaction.
    pub fn begin(self: &Arc<Self>) -> LogTransaction {
        unimplemented!()
    }

    /// The position after the last durable commit.
    pub fn end(&self) -> LogPosition {
        unimplemented!()
    }

    /// The position after the last durable commit that touched `relation` (an oid).
    pub fn end_of(&self, relation: u32) -> LogPosition {
        let _ = relation;
        unimplemented!()
    }

    /// Rows and bytes of `relation` in commits `from..to`.
    pub fn size_between(&self, relation: u32, from: LogPosition, to: LogPosition) -> (u64, u64) {
        let _ = (relation, from, to);
        unimplemented!()
    }

    /// The greatest position `to <= limit` such that commits `from..to` of `relation` hold at most
    /// `max_rows` rows, but at least one commit (a commit is never split).
    pub fn cut(
        &self,
        relation: u32,
        from: LogPosition,
        limit: LogPosition,
        max_rows: u64,
    ) -> LogPosition {
        let _ = (relation, from, limit, max_rows);
        unimplemented!()
    }

    /// Reads the entries of `relation` in commits `from..to`, in order, lazily.
    pub fn read(
        self: &Arc<Self>,
        relation: u32,
        from: LogPosition,
        to: LogPosition,
    ) -> Box<dyn Iterator<Item = Result<LogEntry>> + Send> {
        let _ = (relation, from, to);
        unimplemented!()
    }

    /// Resolves when `end_of(relation)` passes `from`.
    pub async fn wait_beyond(&self, relation: u32, from: LogPosition) {
        let _ = (relation, from);
        unimplemented!()
    }

    /// Forgets a dropped relation's frames; their segments are deleted when nothing else lives in them.
    pub fn forget(&self, relation: u32) -> Result<()> {
        let _ = relation;
        unimplemented!()
    }
}

impl LogTransaction {
    /// Writes rows of `relation` (bounded memory: they go to disk now, visible only after commit).
    pub async fn append(&mut self, relation: u32, changes: &ChangeBatch) -> Result<()> {
        let _ = (relation, changes);
        unimplemented!()
    }

    /// Makes all appended rows durable and visible as one commit; returns the position after it.
    pub async fn commit(self) -> Result<LogPosition> {
        unimplemented!()
    }
}
