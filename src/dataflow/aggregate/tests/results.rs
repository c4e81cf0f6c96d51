//! What is emitted, counted and refused.

use std::collections::BTreeMap;

use super::super::contents::groups_table;
use super::*;

#[test]
fn an_aggregate_without_groups_has_a_row_from_the_first_batch() {
    let mut bench = Bench::new(
        request("SELECT count(*), sum(v) FROM r", false),
        2,
        1 << 20,
        true,
    );
    assert_eq!(bench.batch(&[]).len(), 1);
    assert_eq!(bench.contents(), ["0 | NULL"]);
    assert!(bench.batch(&[]).is_empty());
    bench.restart();
    assert!(bench.batch(&[]).is_empty());
    bench.batch(&[to_change(&[(row(1, 5, 0), 2)])]);
    assert_eq!(bench.contents(), ["2 | 10"]);
    bench.batch(&[to_change(&[(row(1, 5, 0), -2)])]);
    assert_eq!(bench.contents(), ["0 | NULL"]);
}

#[test]
fn changes_that_nobody_takes_are_counted_and_checked_but_not_made() {
    let request = request("SELECT k, sum(v) FROM r GROUP BY k", false);
    let mut bench = Bench::new(request, 2, 1 << 20, true);
    bench.quiet = true;
    let batch = [to_change(&[(row(1, 5, 0), 1), (row(2, 5, 0), 1)])];
    assert!(bench.batch(&batch).is_empty());
    assert_eq!(bench.operator.statistics().output_rows, 2);
    // One group changes, one comes, one goes, one gets back what it lost.
    let rows = [
        (row(1, 1, 0), 1),
        (row(3, 1, 0), 1),
        (row(2, 5, 0), -1),
        (row(2, 5, 0), 1),
    ];
    assert!(bench.batch(&[to_change(&rows)]).is_empty());
    assert_eq!(bench.operator.statistics().output_rows, 3);
    assert_eq!(bench.operator.statistics().state_rows_updated, 2);
    assert_eq!(bench.contents(), ["1 | 6", "2 | 5", "3 | 1"]);
    let overflow = [to_change(&[(row(1, i64::MAX, 0), 1)])];
    let error = bench.try_batch(&overflow, None).unwrap_err();
    assert_eq!(error.sqlstate(), "22003", "{error}");
}

#[test]
fn a_batch_that_changes_no_result_emits_nothing() {
    let mut bench = Bench::new(
        request("SELECT k, max(v) FROM r GROUP BY k", true),
        2,
        1 << 20,
        true,
    );
    bench.batch(&[to_change(&[(row(1, 5, 0), 1), (row(2, 5, 0), 1)])]);
    assert!(
        bench
            .batch(&[to_change(&[(row(1, 4, 0), 1), (row(2, 5, 0), 3)])])
            .is_empty()
    );
    let out = bench.batch(&[to_change(&[(row(1, 6, 0), 1), (row(2, 1, 0), 1)])]);
    assert_eq!(out.iter().map(ChangeBatch::num_rows).sum::<usize>(), 2);
}

#[test]
fn an_overflow_is_an_error_and_a_sum_that_comes_back_is_not() {
    let mut bench = Bench::new(
        request("SELECT k, sum(v) FROM r GROUP BY k", false),
        1,
        1 << 20,
        true,
    );
    let large = i64::MAX;
    bench.batch(&[to_change(&[
        (row(1, large, 0), 1),
        (row(1, large, 0), 1),
        (row(1, large, 0), -1),
    ])]);
    assert_eq!(bench.contents(), [format!("1 | {large}")]);
    let error = bench
        .try_batch(&[to_change(&[(row(1, 1, 0), 1)])], None)
        .unwrap_err();
    assert_eq!(error.sqlstate(), sqlstate::NUMERIC_OUT_OF_RANGE);
    bench.operator.reset();
    bench.view.reset();
    bench.batch(&[to_change(&[(row(1, -1, 0), 1)])]);
    assert_eq!(bench.contents(), [format!("1 | {}", large - 1)]);
}

#[test]
fn deleting_what_is_not_there_is_an_error() {
    for sql in [
        "SELECT k, count(*) FROM r GROUP BY k",
        "SELECT k, min(v) FROM r GROUP BY k",
    ] {
        let mut bench = Bench::new(request(sql, false), 1, 1 << 20, true);
        bench.batch(&[to_change(&[(row(1, 1, 0), 1)])]);
        assert!(
            bench
                .try_batch(&[to_change(&[(row(2, 1, 0), -1)])], None)
                .is_err()
        );
    }
}

#[test]
fn zeros_are_one_group() {
    let zero = |f| Row {
        f: Some(f),
        ..row(1, 1, 0)
    };
    let sql = "SELECT f, count(*) FROM r GROUP BY f";
    let mut bench = Bench::new(request(sql, false), 2, 1 << 20, true);
    bench.batch(&[to_change(&[
        (zero(0.0), 1),
        (zero(-0.0), 1),
        (zero(f64::NAN), 2),
    ])]);
    assert_eq!(bench.contents().len(), 2);
}

#[test]
fn a_budget_that_is_over_keeps_nothing_but_what_was_touched() {
    let mut bench = Bench::new(
        request("SELECT k, sum(v) FROM r GROUP BY k", false),
        2,
        1,
        true,
    );
    let rows: Vec<_> = (0..3000).map(|k| (row(k, k, 0), 1)).collect();
    bench.batch(&[to_change(&rows)]);
    let whole = bench.told_bytes;
    assert!(whole > 3000 * 16, "{whole} bytes are resident");
    bench.budget.account(1 << 31);
    bench.batch(&[to_change(&rows[..10])]);
    let small = bench.operator.statistics().memory_bytes;
    assert!(small < 64 * 1024, "{small} bytes are resident");
    bench.batch(&[to_change(&rows)]);
    let contents = bench.contents();
    assert_eq!(contents.len(), 3000);
    assert!(contents.contains(&"9 | 27".to_owned()) && contents.contains(&"10 | 20".to_owned()));
}

#[test]
fn a_batch_that_touches_most_groups_writes_all_of_them() {
    for (quiet, append_only) in [(false, false), (true, false), (true, true)] {
        let sql = "SELECT k, count(*), sum(v) FROM r GROUP BY k";
        let mut bench = Bench::new(request(sql, append_only), 2, 1 << 20, true);
        bench.quiet = quiet;
        let groups = groups_table(&bench.request.name);
        let mut expected: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
        let mut batch = |bench: &mut Bench, keys: &mut dyn Iterator<Item = i64>, weight: i64| {
            let rows: Vec<_> = keys.map(|k| (row(k, 3, 0), weight)).collect();
            for (row, weight) in &rows {
                let group = expected.entry(row.k.unwrap()).or_default();
                *group = (group.0 + weight, group.1 + 3 * weight);
            }
            expected.retain(|_, (count, _)| *count > 0);
            bench.batch(&[to_change(&rows)]);
            let expected = expected
                .iter()
                .map(|(k, (n, sum))| format!("{k} | {n} | {sum}"));
            let (mut expected, mut contents) = (expected.collect::<Vec<_>>(), bench.contents());
            expected.sort();
            contents.sort();
            assert_eq!(contents, expected);
            let range = bench.last_run.table_range(groups);
            (bench.last_run.drops_table(groups), range.len())
        };
        assert_eq!(batch(&mut bench, &mut (0..6000).rev(), 1), (true, 6000));
        assert_eq!(batch(&mut bench, &mut (0..5000), 2), (true, 6000));
        // New groups between those that are in order.
        assert_eq!(batch(&mut bench, &mut (-900..5900), 1), (true, 6900));
        assert_eq!(batch(&mut bench, &mut (0..100), 1), (false, 100));
        if !append_only {
            // Rows that go and come again leave most groups as they were.
            let same = (0..5900).flat_map(|k| [(row(k, 3, 0), 1), (row(k, 3, 0), -1)]);
            let rows: Vec<_> = same.chain([(row(-900, 3, 0), 0)]).collect();
            let before = bench.contents();
            bench.batch(&[to_change(&rows)]);
            assert!(bench.last_run.drops_table(groups));
            assert_eq!(bench.contents(), before);
            assert!(batch(&mut bench, &mut (-900..6000), -1).0);
            assert!(batch(&mut bench, &mut (5000..5010), 1).1 == 10);
        }
        bench.restart();
        // What is not resident stays as it is.
        assert!(!batch(&mut bench, &mut (0..5000), 1).0);
    }
}
