//! The three layouts against a plain multiset of rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};

use super::*;
use crate::state::{MemoryBudget, StateStore, StateStoreOptions, WantedKeys};

type Row = (i64, Option<String>, i64);

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("a", DataType::Int64, false),
        Field::new("s", DataType::Utf8, true),
        Field::new("b", DataType::Int64, false),
    ]))
}

fn row(a: i64, s: &str, b: i64) -> Row {
    (a, (s != "-").then(|| s.to_owned()), b)
}

fn change(rows: &[(Row, i64)]) -> ChangeBatch {
    let batch = RecordBatch::try_new(
        schema(),
        vec![
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|(r, _)| r.0))),
            Arc::new(
                rows.iter()
                    .map(|(r, _)| r.1.as_deref())
                    .collect::<StringArray>(),
            ),
            Arc::new(Int64Array::from_iter_values(rows.iter().map(|(r, _)| r.2))),
        ],
    )
    .unwrap();
    if rows.iter().all(|(_, w)| *w == 1) {
        return ChangeBatch::inserts(batch);
    }
    let weights = Int64Array::from_iter_values(rows.iter().map(|(_, w)| *w));
    ChangeBatch::weighted(batch, weights)
}

struct Bench {
    view: ViewStorage,
    store: StateStore,
    budget: Arc<MemoryBudget>,
    batch_id: u64,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new(layout: ViewLayout, spill_bytes: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let budget = MemoryBudget::new(1 << 30);
        let options = StateStoreOptions {
            budget: Arc::clone(&budget),
            spill_bytes,
        };
        Self {
            view: ViewStorage::new("v", schema(), layout)
                .unwrap()
                .with_store_check(),
            store: StateStore::open(dir.path(), uuid::Uuid::nil(), options).unwrap(),
            budget,
            batch_id: 0,
            _dir: dir,
        }
    }

    fn try_batch(&mut self, changes: &[ChangeBatch]) -> Result<Vec<ChangeBatch>> {
        let context = BatchContext {
            batch_id: self.batch_id,
            snapshot: self.store.snapshot(),
            watermark: None,
            next_watermark: None,
            now_us: 0,
            budget: Arc::clone(&self.budget),
        };
        changes.iter().for_each(|c| self.view.push(c));
        let runs = self.view.finish(&context)?;
        let taken = self.view.take_changes()?;
        let run = Run::concat(runs.into_iter().map(|(_, run)| run).collect());
        self.store.apply(self.batch_id, Arc::new(run))?;
        self.batch_id += 1;
        self.view.committed();
        Ok(taken)
    }

    fn batch(&mut self, rows: &[(Row, i64)]) -> Vec<(Row, i64)> {
        let half = rows.len() / 2;
        let taken = self
            .try_batch(&[change(&rows[..half]), change(&rows[half..])])
            .unwrap();
        taken
            .iter()
            .flat_map(|c| (0..c.num_rows()).map(|i| (row_at(c.rows(), i), c.weight(i))))
            .collect()
    }

    fn read(&self, projection: &[usize], batch_size: usize) -> Vec<RecordBatch> {
        let snapshot = self.store.snapshot();
        let reader = read_view(
            &snapshot,
            "v",
            schema(),
            self.view.layout(),
            &WantedKeys::All,
            projection,
            batch_size,
        );
        reader.unwrap().collect::<Result<_>>().unwrap()
    }

    fn contents(&self) -> Vec<Row> {
        let batches = self.read(&[0, 1, 2], 3);
        let mut rows: Vec<Row> = batches
            .iter()
            .flat_map(|b| (0..b.num_rows()).map(|i| row_at(b, i)))
            .collect();
        rows.sort();
        assert_eq!(self.view.row_count(), rows.len() as u64);
        assert_eq!(
            read_row_count(&self.store.snapshot(), "v").unwrap(),
            rows.len() as u64
        );
        // A projection in another order shows the same values.
        let some: Vec<RecordBatch> = self.read(&[2, 1], 5);
        let mut pairs: Vec<(i64, Option<String>)> = some
            .iter()
            .flat_map(|b| {
                let (numbers, texts) = (
                    b.column(0).as_primitive::<Int64Type>(),
                    b.column(1).as_string::<i32>(),
                );
                (0..b.num_rows()).map(|i| {
                    (
                        numbers.value(i),
                        texts.is_valid(i).then(|| texts.value(i).to_owned()),
                    )
                })
            })
            .collect();
        pairs.sort();
        let mut wanted: Vec<_> = rows.iter().map(|r| (r.2, r.1.clone())).collect();
        wanted.sort();
        assert_eq!(pairs, wanted);
        let counted: usize = self.read(&[], 4).iter().map(RecordBatch::num_rows).sum();
        assert_eq!(counted, rows.len());
        rows
    }
}

fn row_at(batch: &RecordBatch, i: usize) -> Row {
    let texts = batch.column(1).as_string::<i32>();
    (
        batch.column(0).as_primitive::<Int64Type>().value(i),
        texts.is_valid(i).then(|| texts.value(i).to_owned()),
        batch.column(2).as_primitive::<Int64Type>().value(i),
    )
}

#[test]
fn the_layout_follows_key_and_changes() {
    assert_eq!(ViewLayout::choose(true, None), ViewLayout::Append);
    assert_eq!(ViewLayout::choose(false, None), ViewLayout::Bag);
    assert_eq!(
        ViewLayout::choose(false, Some(&[1])),
        ViewLayout::Keyed(vec![1])
    );
    assert_eq!(
        ViewLayout::choose(true, Some(&[])),
        ViewLayout::Keyed(vec![])
    );
}

#[test]
fn a_bag_holds_what_random_changes_leave() {
    for seed in 1..20u64 {
        let mut state = seed * 0x9e37_79b9;
        let mut random = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut bench = Bench::new(ViewLayout::Bag, [1, 1 << 20][(seed % 2) as usize]);
        let mut live: BTreeMap<Row, i64> = BTreeMap::new();
        for _ in 0..12 {
            let mut changes = Vec::new();
            let mut net: BTreeMap<Row, i64> = BTreeMap::new();
            for _ in 0..random(12) {
                let row = row(
                    random(3) as i64,
                    ["-", "", "x"][random(3) as usize],
                    random(2) as i64,
                );
                let weight = if random(2) == 0 {
                    1 + random(3) as i64
                } else {
                    -(random(1 + live.get(&row).copied().unwrap_or(0) as u64) as i64)
                };
                *live.entry(row.clone()).or_default() += weight;
                *net.entry(row.clone()).or_default() += weight;
                changes.push((row, weight));
            }
            live.retain(|_, weight| *weight != 0);
            net.retain(|_, weight| *weight != 0);
            let mut taken = bench.batch(&changes);
            taken.sort();
            assert_eq!(taken, net.into_iter().collect::<Vec<_>>());
            let wanted: Vec<Row> = live
                .iter()
                .flat_map(|(row, &weight)| std::iter::repeat_n(row.clone(), weight as usize))
                .collect();
            assert_eq!(bench.contents(), wanted, "seed {seed}");
            if random(4) == 0 {
                bench.view.reset();
            }
        }
    }
}

#[test]
fn a_key_keeps_its_last_row() {
    let mut bench = Bench::new(ViewLayout::Keyed(vec![2, 0]), 1);
    bench.batch(&[
        (row(1, "x", 1), 1),
        (row(2, "-", 1), 1),
        (row(1, "y", 2), 1),
    ]);
    // An update, a deletion, a row that comes and goes, one that changes three times.
    let taken = bench.batch(&[
        (row(1, "x", 1), -1),
        (row(2, "-", 1), -1),
        (row(1, "z", 1), 1),
        (row(9, "q", 9), 1),
        (row(1, "y", 2), -1),
        (row(1, "m", 2), 1),
        (row(9, "q", 9), -1),
        (row(1, "m", 2), -1),
        (row(1, "n", 2), 1),
    ]);
    assert_eq!(bench.contents(), [row(1, "n", 2), row(1, "z", 1)]);
    // By key, which is b before a; deletions first.
    assert_eq!(
        taken,
        [
            (row(1, "x", 1), -1),
            (row(1, "z", 1), 1),
            (row(2, "-", 1), -1),
            (row(1, "y", 2), -1),
            (row(1, "n", 2), 1),
        ]
    );
    // A row that goes and comes back is no change.
    let taken = bench.batch(&[
        (row(1, "n", 2), -1),
        (row(1, "k", 2), 1),
        (row(1, "k", 2), -1),
        (row(1, "n", 2), 1),
    ]);
    assert!(taken.is_empty());
    assert_eq!(bench.contents(), [row(1, "n", 2), row(1, "z", 1)]);
}

#[test]
fn a_view_without_key_columns_has_one_row() {
    let mut bench = Bench::new(ViewLayout::Keyed(vec![]), 1 << 20);
    bench.batch(&[(row(1, "x", 1), 1)]);
    bench.batch(&[(row(1, "x", 1), -1), (row(2, "y", 2), 1)]);
    assert_eq!(bench.contents(), [row(2, "y", 2)]);
}

#[test]
fn broken_changes_are_errors_that_name_the_view() {
    let two = [(row(1, "x", 1), 1), (row(1, "y", 1), 1)];
    let gone = [(row(1, "x", 1), -1)];
    let cases: [(ViewLayout, &[(Row, i64)]); 5] = [
        (ViewLayout::Keyed(vec![0]), &two),
        (ViewLayout::Keyed(vec![0]), &[(row(1, "x", 1), 2)]),
        (ViewLayout::Keyed(vec![0]), &gone),
        (ViewLayout::Bag, &gone),
        (ViewLayout::Append, &gone),
    ];
    for (layout, rows) in cases {
        let error = Bench::new(layout, 1 << 20)
            .try_batch(&[change(rows)])
            .unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Internal);
        assert!(error.primary().contains("view \"v\""), "{error}");
    }
    // What is stored counts too.
    let mut bench = Bench::new(ViewLayout::Keyed(vec![0]), 1 << 20);
    bench.batch(&[(row(1, "x", 1), 1)]);
    assert!(bench.try_batch(&[change(&[(row(1, "y", 1), 1)])]).is_err());
}

#[test]
fn appended_rows_come_back_in_order_and_in_chunks() {
    let mut bench = Bench::new(ViewLayout::Append, 1);
    bench.batch(&[(row(1, "-", 1), 1), (row(2, "x", 1), 3), (row(1, "", 1), 1)]);
    let many: Vec<_> = (0..20_000)
        .map(|i| (row(i, if i % 3 == 0 { "-" } else { "text" }, -i), 1))
        .collect();
    bench.batch(&many);
    bench.batch(&[(row(5, "end", 5), 1)]);
    let mut wanted: Vec<Row> = many.into_iter().map(|(r, _)| r).collect();
    wanted.extend([
        row(1, "-", 1),
        row(2, "x", 1),
        row(2, "x", 1),
        row(2, "x", 1),
        row(1, "", 1),
        row(5, "end", 5),
    ]);
    wanted.sort();
    assert_eq!(bench.contents(), wanted);
    let batches = bench.read(&[0], 1);
    assert_eq!(batches.len(), 1 + 3 + 1);
    assert!(batches.iter().all(|b| b.num_rows() <= 8192));
    assert_eq!(row_at(&bench.read(&[0, 1, 2], 1)[0], 1), row(2, "x", 1));
}
