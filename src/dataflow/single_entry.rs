//! Tables of one entry, under the empty key: a number of rows, the row that was sent.

use datafusion::arrow::array::{Array, BinaryArray};

use super::entries::RunWriter;
use super::number::{read_integer, write_signed};
use super::operator::OperatorStatistics;
use crate::error::Result;
use crate::state::{Run, StateSnapshot, TableId};

/// The entry's value; `None`: there is none.
pub fn read(snapshot: &StateSnapshot, table: TableId) -> Result<Option<Vec<u8>>> {
    let found = snapshot.get_many(table, &BinaryArray::from_iter_values([b""]))?;
    Ok(found.is_valid(0).then(|| found.value(0).to_vec()))
}

/// The run that writes the entry.
pub fn write(table: TableId, value: &[u8]) -> (TableId, Run) {
    let mut writer = RunWriter::new(table, 1, 0, value.len());
    writer.put(&[], value);
    (table, writer.finish())
}

/// The number in the entry; 0 when there is none.
pub fn read_number(snapshot: &StateSnapshot, table: TableId) -> Result<i64> {
    match read(snapshot, table)? {
        Some(value) => read_integer(&mut &value[..]),
        None => Ok(0),
    }
}

/// The run that writes a number.
pub fn write_number(table: TableId, number: i64) -> (TableId, Run) {
    let mut value = Vec::new();
    write_signed(number.into(), &mut value);
    write(table, &value)
}

/// How many rows another table holds, since counting them is a scan, and what the last batch did
/// to them.
#[derive(Debug)]
pub struct RowCount {
    table: TableId,
    /// As of the last drained batch; `None`: not read yet.
    rows: Option<i64>,
    updated: u64,
    removed: u64,
}

impl RowCount {
    /// The count of the rows that are kept under a stable name.
    pub fn new(name: &str) -> Self {
        Self {
            table: TableId::from_name(&format!("{name}/count")),
            rows: None,
            updated: 0,
            removed: 0,
        }
    }

    /// The table it is kept in.
    pub fn table(&self) -> TableId {
        self.table
    }

    /// Rows before the batch.
    pub fn before(&self, snapshot: &StateSnapshot) -> Result<i64> {
        match self.rows {
            Some(rows) => Ok(rows),
            None => read_number(snapshot, self.table),
        }
    }

    /// The batch wrote and removed so many entries, which changes the number by `growth`; the run
    /// of the new number, if it is another.
    pub fn drain(
        &mut self,
        snapshot: &StateSnapshot,
        growth: i64,
        updated: u64,
        removed: u64,
    ) -> Result<Option<(TableId, Run)>> {
        let rows = self.before(snapshot)? + growth;
        self.rows = Some(rows);
        (self.updated, self.removed) = (updated, removed);
        Ok((growth != 0).then(|| write_number(self.table, rows)))
    }

    /// The batch failed: back to what is stored.
    pub fn reset(&mut self) {
        self.rows = None;
        (self.updated, self.removed) = (0, 0);
    }

    /// Adds its numbers to an operator's.
    pub fn add_statistics(&self, statistics: &mut OperatorStatistics) {
        statistics.state_rows += self.rows.unwrap_or(0).max(0) as u64;
        statistics.state_rows_updated += self.updated;
        statistics.state_rows_removed += self.removed;
    }
}
