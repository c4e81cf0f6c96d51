//! Views as they were last read whole, in Arrow: what many ask of one batch is decoded for the first of them.
//!
//! ```text
//!   first reading of a batch   ─► decoded from the state, noted
//!   second                     ─► decoded, and kept as it goes by
//!   all others, until a batch  ─► handed out as they are
//! ```
//! Rows lie in the state as bytes in key order; to make columns of a million of them takes longer than to aggregate
//! these. They are copies: they are kept while memory leaves room, and given back when it is short. A view that changes
//! before it is read twice costs a note. Deliberately absent: rows that a batch changes in place.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use datafusion::arrow::array::RecordBatch;
use parking_lot::Mutex;

use crate::dataflow::view_storage::ViewRows;
use crate::error::Result;
use crate::state::{GivesBack, MemoryBudget, MemoryCharge};

/// Readings, by view and columns, that are known of a batch.
const READINGS_MAX: usize = 64;

/// What is read whole: of which table, which columns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Reading {
    pub state_name: String,
    pub projection: Vec<usize>,
}

/// A batch as readers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ShownBatch {
    /// Raised by each REWIND and the like, after which batches run again under their numbers.
    pub run: u64,
    pub batch_id: u64,
}

/// The rows of a view.
pub(crate) type WholeRows = Arc<Vec<RecordBatch>>;

#[derive(Debug)]
struct Kept {
    rows: WholeRows,
    _charge: MemoryCharge,
}

#[derive(Debug, Default)]
struct OfBatch {
    batch: Option<ShownBatch>,
    readings: HashMap<Reading, Option<Kept>>,
}

/// The rows of a pipeline's views at the batch that is shown.
#[derive(Debug)]
pub(super) struct KeptRows {
    budget: Arc<MemoryBudget>,
    of_batch: Mutex<OfBatch>,
}

impl GivesBack for KeptRows {
    fn give_back(&self) {
        let readings = std::mem::take(&mut self.of_batch.lock().readings);
        drop(readings);
    }
}

impl KeptRows {
    pub fn new(budget: &Arc<MemoryBudget>) -> Arc<Self> {
        let kept = Arc::new(Self {
            budget: Arc::clone(budget),
            of_batch: Mutex::default(),
        });
        let holder: Weak<Self> = Arc::downgrade(&kept);
        budget.may_ask(holder);
        kept
    }

    /// Another batch is shown.
    pub fn forget(&self) {
        self.give_back();
    }

    /// What was kept of a reading at a batch.
    pub fn rows(&self, batch: ShownBatch, reading: &Reading) -> Option<WholeRows> {
        let of_batch = self.of_batch.lock();
        if of_batch.batch != Some(batch) {
            return None;
        }
        let kept = of_batch.readings.get(reading)?.as_ref()?;
        Some(Arc::clone(&kept.rows))
    }

    /// Rows that are read now, and kept on their way if they were read before.
    pub fn watched(
        self: &Arc<Self>,
        batch: ShownBatch,
        reading: Reading,
        rows: ViewRows,
    ) -> ViewRows {
        let is_known = {
            let mut of_batch = self.of_batch.lock();
            if of_batch.batch < Some(batch) {
                *of_batch = OfBatch {
                    batch: Some(batch),
                    readings: HashMap::new(),
                };
            }
            let is_shown = of_batch.batch == Some(batch);
            let is_known = of_batch.readings.contains_key(&reading);
            if is_shown && !is_known && of_batch.readings.len() < READINGS_MAX {
                of_batch.readings.insert(reading.clone(), None);
            }
            is_shown && is_known
        };
        if !is_known {
            return rows;
        }
        Box::new(Keeping {
            kept: Arc::clone(self),
            batch,
            reading,
            rows,
            charge: Some(MemoryCharge::new(&self.budget, 0)),
            seen: Vec::new(),
        })
    }

    fn keep(&self, batch: ShownBatch, reading: &Reading, kept: Kept) {
        let mut of_batch = self.of_batch.lock();
        if of_batch.batch == Some(batch)
            && let Some(place) = of_batch.readings.get_mut(reading)
        {
            *place = Some(kept);
        }
    }
}

/// Rows on their way to a reader.
struct Keeping {
    kept: Arc<KeptRows>,
    batch: ShownBatch,
    reading: Reading,
    rows: ViewRows,
    /// `None`: they were too many.
    charge: Option<MemoryCharge>,
    seen: Vec<RecordBatch>,
}

impl Iterator for Keeping {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.rows.next() {
            Some(Ok(batch)) => {
                self.see(&batch);
                Some(Ok(batch))
            }
            Some(Err(error)) => {
                self.charge = None;
                self.seen.clear();
                Some(Err(error))
            }
            None => {
                if let Some(charge) = self.charge.take() {
                    let rows = Arc::new(std::mem::take(&mut self.seen));
                    let kept = Kept {
                        rows,
                        _charge: charge,
                    };
                    self.kept.keep(self.batch, &self.reading, kept);
                }
                None
            }
        }
    }
}

impl Keeping {
    fn see(&mut self, batch: &RecordBatch) {
        let Some(charge) = &mut self.charge else {
            return;
        };
        let bytes = batch.get_array_memory_size();
        if self.kept.budget.has_room(bytes) {
            charge.grow(bytes);
            self.seen.push(batch.clone());
        } else {
            self.charge = None;
            self.seen = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;
    use datafusion::arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    fn rows(batches: i64) -> ViewRows {
        let schema = Arc::new(Schema::new(vec![Field::new("k", DataType::Int64, true)]));
        Box::new((0..batches).map(move |value| {
            let column = Int64Array::from(vec![value; 100]);
            Ok(RecordBatch::try_new(
                Arc::clone(&schema),
                vec![Arc::new(column)],
            )?)
        }))
    }

    fn reading(column: usize) -> Reading {
        Reading {
            state_name: "v#1".to_owned(),
            projection: vec![column],
        }
    }

    fn batch(batch_id: u64) -> ShownBatch {
        ShownBatch { run: 0, batch_id }
    }

    fn read(kept: &Arc<KeptRows>, batch_id: u64, batches: i64) -> usize {
        kept.watched(batch(batch_id), reading(0), rows(batches))
            .count()
    }

    #[test]
    fn what_is_read_twice_of_a_batch_is_kept() {
        let budget = MemoryBudget::new(1 << 20);
        let kept = KeptRows::new(&budget);
        assert_eq!(read(&kept, 7, 3), 3);
        assert!(kept.rows(batch(7), &reading(0)).is_none());
        // One that is not read to its end leaves nothing.
        assert!(kept.watched(batch(7), reading(0), rows(3)).next().is_some());
        assert!(kept.rows(batch(7), &reading(0)).is_none());
        assert_eq!(read(&kept, 7, 3), 3);
        assert_eq!(kept.rows(batch(7), &reading(0)).unwrap().len(), 3);
        assert!(budget.used_bytes() >= 2400);
        // Other columns and other batches are other rows.
        assert!(kept.rows(batch(7), &reading(1)).is_none());
        assert!(kept.rows(batch(8), &reading(0)).is_none());
        read(&kept, 8, 3);
        assert!(kept.rows(batch(7), &reading(0)).is_none());
        assert_eq!(budget.used_bytes(), 0);
        // Who still reads an older one takes nothing away.
        read(&kept, 8, 3);
        read(&kept, 7, 3);
        read(&kept, 7, 3);
        assert!(kept.rows(batch(7), &reading(0)).is_none());
        assert!(kept.rows(batch(8), &reading(0)).is_some());
    }

    #[test]
    fn a_batch_that_runs_again_is_another() {
        let kept = KeptRows::new(&MemoryBudget::new(1 << 20));
        let again = ShownBatch {
            run: 1,
            batch_id: 7,
        };
        read(&kept, 9, 1);
        let before = kept.watched(batch(7), reading(0), rows(1));
        assert_eq!(kept.watched(again, reading(0), rows(2)).count(), 2);
        assert_eq!(before.count(), 1);
        assert!(kept.rows(again, &reading(0)).is_none());
        assert_eq!(kept.watched(again, reading(0), rows(2)).count(), 2);
        assert_eq!(kept.rows(again, &reading(0)).unwrap().len(), 2);
        assert!(kept.rows(batch(7), &reading(0)).is_none());
    }

    #[test]
    fn rows_are_kept_while_there_is_room() {
        let budget = MemoryBudget::new(1 << 20);
        let kept = KeptRows::new(&budget);
        read(&kept, 1, 3);
        read(&kept, 1, 10_000);
        assert!(kept.rows(batch(1), &reading(0)).is_none());
        assert_eq!(budget.used_bytes(), 0);
        read(&kept, 1, 3);
        assert!(kept.rows(batch(1), &reading(0)).is_some());
        budget.account(2 << 20);
        budget.make_room();
        assert!(kept.rows(batch(1), &reading(0)).is_none());
        assert_eq!(budget.used_bytes(), 2 << 20);
    }
}
