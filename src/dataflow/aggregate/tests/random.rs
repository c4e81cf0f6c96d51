//! Random changes, the view compared with DataFusion's answer after each batch.

use datafusion::arrow::compute::concat_batches;

use super::*;

/// Random signed batches through the operator, the view compared with DataFusion after each.
fn compare(sql: &str, append_only: bool, seed: u64) {
    let mut random = Random(seed * 0x9e37_79b9 + 1);
    let shards = [1, 3][random.next(2) as usize];
    let spill_bytes = [1, 1 << 24][random.next(2) as usize];
    let keyed = random.next(2) == 0;
    let mut bench = Bench::new(request(sql, append_only), shards, spill_bytes, keyed);
    bench.quiet = random.next(3) == 0;
    let mut live: Vec<Row> = Vec::new();
    for step in 0..14 {
        match random.next(7) {
            0 => bench.operator.shed_memory(),
            1 => bench.restart(),
            2 => {
                // A batch that fails after its pushes leaves no trace.
                let junk: Vec<_> = (0..5).map(|_| (random_row(&mut random), 1)).collect();
                let context = bench.context(None);
                bench
                    .operator
                    .push(0, to_change(&junk), &context, &mut Vec::new())
                    .unwrap();
                bench.operator.finish(&context, &mut Vec::new()).unwrap();
                bench.operator.reset();
            }
            _ => {}
        }
        let mut changes: Vec<(Row, i64)> = Vec::new();
        for _ in 0..random.next(12) {
            let row = random_row(&mut random);
            let weight = 1 + random.next(2) as i64;
            (0..weight).for_each(|_| live.push(row.clone()));
            changes.push((row, weight));
        }
        if !append_only {
            let deletes = if step % 6 == 5 {
                live.len() as u64
            } else {
                random.next(8).min(live.len() as u64)
            };
            for _ in 0..deletes {
                let index = random.next(live.len() as u64) as usize;
                changes.push((live.swap_remove(index), -1));
            }
            for index in (1..changes.len()).rev() {
                changes.swap(index, random.next(index as u64 + 1) as usize);
            }
        }
        let cut = random.next(changes.len() as u64 + 1) as usize;
        let pushes = [to_change(&changes[..cut]), to_change(&changes[cut..])];
        bench.batch(&pushes);
        assert_eq!(
            bench.contents(),
            expected(sql, &live),
            "{sql}, seed {seed}, step {step}"
        );
    }
}

const LINEAR: &[&str] = &[
    "SELECT k, count(*), count(v), sum(v), avg(v) FROM r GROUP BY k",
    "SELECT s, k, sum(d), avg(d), count(s) FROM r GROUP BY s, k",
    "SELECT s, bool_and(b), bool_or(b), count(*) FILTER (WHERE v > 0), sum(v) FILTER (WHERE b) FROM r GROUP BY s",
    "SELECT count(*), sum(v), avg(d), bool_and(b) FROM r",
    "SELECT f, count(*) FROM r GROUP BY f",
    "SELECT b, t, k FROM r GROUP BY b, t, k",
];

const GENERAL: &[&str] = &[
    "SELECT k, count(DISTINCT v), count(DISTINCT v) FILTER (WHERE v > 3), count(DISTINCT s), count(DISTINCT v) FILTER (WHERE s <> 'a'), sum(v) FROM r GROUP BY k",
    "SELECT k, min(v), max(v), min(s), max(s), min(f), max(f), min(t), max(d) FROM r GROUP BY k",
    "SELECT s, count(DISTINCT v), sum(DISTINCT v), count(DISTINCT s), count(*) FROM r GROUP BY s",
    "SELECT k, array_agg(v ORDER BY v), string_agg(s, ',' ORDER BY s DESC, v) FROM r GROUP BY k",
    "SELECT k, sum(f), avg(f), median(v), first_value(s ORDER BY v DESC, s) FROM r GROUP BY k",
    "SELECT min(v), max(s), count(DISTINCT k), sum(f), var_pop(f), min(v) FILTER (WHERE b) FROM r",
    "SELECT b, array_agg(DISTINCT v ORDER BY v), stddev(f), min(b), max(b) FROM r GROUP BY b",
];

#[test]
fn linear_aggregates_follow_inserts_and_deletes() {
    for sql in LINEAR {
        (0..6).for_each(|seed| compare(sql, false, seed));
    }
}

#[test]
fn other_aggregates_follow_inserts_and_deletes() {
    for sql in GENERAL {
        (10..16).for_each(|seed| compare(sql, false, seed));
    }
}

#[test]
fn append_only_forms_give_the_same() {
    for sql in LINEAR.iter().chain(GENERAL) {
        (20..23).for_each(|seed| compare(sql, true, seed));
    }
}

#[test]
fn parallel_batches_give_what_sequential_ones_give() {
    let sql = "SELECT k, s, count(*), sum(v), max(v), count(DISTINCT v) FROM r GROUP BY k, s";
    let mut random = Random(77);
    let rows: Vec<Row> = (0..30_000)
        .map(|_| Row {
            k: Some(random.next(900) as i64),
            ..random_row(&mut random)
        })
        .collect();
    let mut bench = Bench::new(request(sql, true), 4, 1 << 24, true);
    for part in rows.chunks(10_000) {
        bench.batch(&[ChangeBatch::inserts(to_batch(part))]);
    }
    assert_eq!(bench.contents(), expected(sql, &rows));
    let whole = concat_batches(&schema(), &[to_batch(&rows)]).unwrap();
    assert_eq!(whole.num_rows(), rows.len());
}
