//! Numbers for the rows of an append-only side: two equal rows are kept under different ones.
//!
//! With its weight alone a row that comes in would have to be looked up, since an equal one may be
//! there. Most often it is not, and the look-up reads a block of the store for nothing. The next
//! number is part of the state, so that a batch that runs again gives the same ones.

use crate::dataflow::single_entry::{read_number, write_number};
use crate::error::Result;
use crate::state::{Run, StateSnapshot, TableId};

/// Bytes of a number behind a row.
pub(super) const NUMBER_BYTES: usize = 8;

/// Gives every row of a side a number.
#[derive(Debug)]
pub(super) struct RowNumbers {
    table: TableId,
    /// The next one; `None`: not read yet.
    next: Option<i64>,
    is_changed: bool,
}

impl RowNumbers {
    /// Numbers that are kept under a stable name.
    pub(super) fn new(name: &str) -> Self {
        Self {
            table: TableId::from_name(name),
            next: None,
            is_changed: false,
        }
    }

    /// The table of the next number.
    pub(super) fn table(&self) -> TableId {
        self.table
    }

    /// A number that no row has, in bytes that ascend as the numbers do.
    pub(super) fn next(&mut self, snapshot: &StateSnapshot) -> Result<[u8; NUMBER_BYTES]> {
        let next = match self.next {
            Some(next) => next,
            None => read_number(snapshot, self.table)?,
        };
        self.next = Some(next + 1);
        self.is_changed = true;
        Ok(next.to_be_bytes())
    }

    /// The run of the next number, if the batch took any.
    pub(super) fn drain(&mut self) -> Option<(TableId, Run)> {
        let next = self.next?;
        std::mem::take(&mut self.is_changed).then(|| write_number(self.table, next))
    }

    /// The batch failed: back to what is stored.
    pub(super) fn reset(&mut self) {
        self.next = None;
        self.is_changed = false;
    }
}
