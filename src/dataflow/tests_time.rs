//! What hangs on time: sessions, conditions on `now()`, state that a watermark frees.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, Int64Array, RecordBatch, TimestampMicrosecondArray};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};

use super::change::ChangeBatch;
use super::consolidate::change_of;
use super::operator::StateBound;
use super::plan::InputProperties;
use super::testing::{Harness, Random};
use crate::catalog::definition::EmitMode;
use crate::error::sqlstate;

const SECOND: i64 = 1_000_000;

fn schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("at", time, true),
        Field::new("tick", DataType::Int64, true),
    ]))
}

/// A relation `e` whose rows come and go, and streams `i` and `j` whose watermark follows `tick`.
fn harness() -> Harness {
    let mut harness = Harness::new();
    for (name, append_only) in [("e", false), ("i", true), ("j", true)] {
        harness.relation(
            name,
            InputProperties {
                schema: schema(),
                append_only,
                watermark_column: append_only.then_some(2),
                primary_key: None,
                event_time: Vec::new(),
            },
        );
    }
    harness
}

/// (key, time in seconds) with weights.
fn change(rows: &[((i64, Option<i64>), i64)]) -> ChangeBatch {
    let keys: Int64Array = rows.iter().map(|((k, _), _)| Some(*k)).collect();
    let ticks: Int64Array = rows.iter().map(|((_, at), _)| *at).collect();
    let times = rows.iter().map(|((_, at), _)| at.map(|at| at * SECOND));
    let times: TimestampMicrosecondArray = times.collect();
    let batch = RecordBatch::try_new(
        schema(),
        vec![
            Arc::new(keys),
            Arc::new(times.with_timezone("UTC")),
            Arc::new(ticks),
        ],
    )
    .unwrap();
    change_of(batch, rows.iter().map(|(_, weight)| *weight))
}

/// Rows of a view of BIGINT columns, sorted; NULL is the least number.
fn numbers(harness: &Harness, view: &str) -> Vec<Vec<i64>> {
    let mut all = Vec::new();
    for batch in harness.rows(view) {
        let columns: Vec<&Int64Array> = batch
            .columns()
            .iter()
            .map(|column| column.as_primitive::<Int64Type>())
            .collect();
        for row in 0..batch.num_rows() {
            all.push(columns.iter().map(|c| c.value(row)).collect());
        }
    }
    all.sort();
    all
}

/// Random rows that come and go.
struct Events {
    rows: Vec<(i64, Option<i64>)>,
}

impl Events {
    fn change(&mut self, random: &mut Random, deletes: bool) -> ChangeBatch {
        let mut entries = Vec::new();
        for _ in 0..random.below(8) {
            if deletes && !self.rows.is_empty() && random.one_in(3) {
                let at = random.below(self.rows.len() as u64) as usize;
                entries.push((self.rows.swap_remove(at), -1));
                continue;
            }
            let time = (!random.one_in(9)).then(|| random.below(60) as i64);
            let row = (random.below(3) as i64, time);
            self.rows.push(row);
            entries.push((row, 1));
        }
        change(&entries)
    }
}

#[test]
fn sessions_equal_their_batch_answer() {
    for seed in 0..6 {
        let mut harness = harness();
        for (index, sql) in [
            "SELECT k, tick, window_start, window_end FROM SESSION(e, tick, 3, k)",
            "SELECT k, window_start, window_end, count(*) AS n FROM \
             SESSION(e, at, INTERVAL '4 seconds', k) GROUP BY k, window_start, window_end",
            "SELECT window_end, sum(k) AS n FROM SESSION((SELECT * FROM e WHERE k > 0), tick, 2) GROUP BY 1",
        ]
        .into_iter()
        .enumerate()
        {
            harness.view(&format!("view_{index}"), sql);
        }
        let mut random = Random::new(seed);
        let mut events = Events { rows: Vec::new() };
        for batch in 0..10 {
            harness.batch(vec![("e", events.change(&mut random, true))]);
            harness.check();
            if batch == 5 {
                harness.restart();
            }
        }
    }
}

#[test]
fn sessions_merge_and_split() {
    let mut harness = harness();
    harness.view(
        "v",
        "SELECT tick, window_start, window_end FROM SESSION(e, tick, 5)",
    );
    harness.batch(vec![(
        "e",
        change(&[((1, Some(0)), 1), ((1, Some(10)), 2)]),
    )]);
    let apart = vec![vec![0, 0, 5], vec![10, 10, 15], vec![10, 10, 15]];
    assert_eq!(numbers(&harness, "v"), apart);
    harness.batch(vec![("e", change(&[((2, Some(5)), 1)]))]);
    let merged = vec![
        vec![0, 0, 15],
        vec![5, 0, 15],
        vec![10, 0, 15],
        vec![10, 0, 15],
    ];
    assert_eq!(numbers(&harness, "v"), merged);
    harness.batch(vec![("e", change(&[((2, Some(5)), -1)]))]);
    assert_eq!(numbers(&harness, "v"), apart);
}

#[test]
fn closed_sessions_leave_the_state_and_keep_their_answer() {
    let mut harness = harness();
    let sql = "SELECT k, window_start, window_end, count(*) AS n FROM SESSION(i, tick, 5, k) \
               GROUP BY k, window_start, window_end";
    harness.view("v", sql);
    let closing = harness
        .plan("closed", sql, EmitMode::OnWindowClose)
        .unwrap();
    harness.add("closed", sql, closing);
    let rows = |rows: &[(i64, i64)]| {
        change(
            &rows
                .iter()
                .map(|(k, at)| ((*k, Some(*at)), 1))
                .collect::<Vec<_>>(),
        )
    };
    harness.batch(vec![("i", rows(&[(1, 1), (1, 4), (2, 3), (1, 20)]))]);
    // The first sessions end at 9 and 8; a row at 6 is still in time.
    harness.watermark = Some(10);
    harness.batch(vec![("i", rows(&[(1, 7), (2, 6)]))]);
    assert_eq!(
        numbers(&harness, "v"),
        vec![vec![1, 1, 12, 3], vec![1, 20, 25, 1], vec![2, 3, 11, 2]]
    );
    assert!(numbers(&harness, "closed").is_empty());
    harness.watermark = Some(17);
    let result = harness.batch(vec![("i", rows(&[(1, 12), (3, 13)]))]);
    assert!(result.late_rows["v"] >= 1);
    let kept = numbers(&harness, "v");
    assert!(kept.contains(&vec![1, 1, 12, 3]), "{kept:?}");
    assert!(kept.contains(&vec![3, 13, 18, 1]), "{kept:?}");
    let closed = numbers(&harness, "closed");
    assert_eq!(closed, vec![vec![1, 1, 12, 3], vec![2, 3, 11, 2]]);
    let session_rows: u64 = harness
        .dataflow
        .statistics()
        .into_iter()
        .filter(|(view, _, what, _)| view == "v" && what.kind == "session")
        .map(|(_, _, _, numbers)| numbers.state_rows)
        .sum();
    assert_eq!(session_rows, 2, "the open sessions at 13 and 20");
}

/// A condition in SQL, and whether it holds for a row's time and the batch's, in seconds.
type Condition = (&'static str, fn(i64, i64) -> bool);

#[test]
fn rows_come_and_go_by_the_clock() {
    let conditions: [Condition; 5] = [
        ("at > now() - INTERVAL '10 seconds'", |at, now| {
            at > now - 10
        }),
        ("at <= now()", |at, now| at <= now),
        (
            "now() < at + INTERVAL '7 seconds' AND at <= now()",
            |at, now| now < at + 7 && at <= now,
        ),
        (
            "at BETWEEN now() - INTERVAL '20 seconds' AND now() + INTERVAL '5 seconds'",
            |at, now| at >= now - 20 && at <= now + 5,
        ),
        ("now() - INTERVAL '3 seconds' >= at AND k > 0", |at, now| {
            now - 3 >= at
        }),
    ];
    for seed in 0..4 {
        let mut harness = harness();
        for (index, (condition, _)) in conditions.iter().enumerate() {
            harness.view(
                &format!("v{index}"),
                &format!("SELECT k, tick FROM e WHERE {condition}"),
            );
        }
        let mut random = Random::new(seed);
        let mut events = Events { rows: Vec::new() };
        let mut now = 0;
        for batch in 0..16 {
            harness.now_us = now * SECOND;
            harness.batch(vec![("e", events.change(&mut random, true))]);
            for (index, (condition, holds)) in conditions.iter().enumerate() {
                let mut expected: Vec<Vec<i64>> = events
                    .rows
                    .iter()
                    .filter(|(k, _)| index != 4 || *k > 0)
                    .filter_map(|(k, at)| at.filter(|at| holds(*at, now)).map(|at| vec![*k, at]))
                    .collect();
                expected.sort();
                let found = numbers(&harness, &format!("v{index}"));
                assert_eq!(found, expected, "seed {seed}, now {now}: {condition}");
            }
            let due = harness.dataflow.due_us();
            assert!(due.is_none_or(|due| due > harness.now_us), "{due:?}");
            now += random.below(9) as i64;
            if batch == 7 {
                harness.restart();
            }
        }
    }
}

#[test]
fn a_bound_says_when_a_batch_is_due() {
    let mut harness = harness();
    harness.view(
        "v",
        "SELECT k FROM e WHERE at > now() - INTERVAL '10 seconds' AND at <= now()",
    );
    harness.batch(vec![("e", change(&[((1, Some(3)), 1), ((2, Some(8)), 1)]))]);
    assert_eq!(harness.dataflow.due_us(), Some(3 * SECOND));
    harness.now_us = 9 * SECOND;
    harness.batch(vec![]);
    assert_eq!(numbers(&harness, "v"), vec![vec![1], vec![2]]);
    assert_eq!(harness.dataflow.due_us(), Some(13 * SECOND));
    harness.now_us = 30 * SECOND;
    harness.batch(vec![]);
    assert!(numbers(&harness, "v").is_empty());
    assert_eq!(harness.dataflow.due_us(), None);
    let statistics = harness.dataflow.statistics();
    assert!(
        statistics
            .iter()
            .all(|(_, _, _, numbers)| numbers.state_rows == 0)
    );
}

#[test]
fn other_uses_of_now_are_refused() {
    let harness = harness();
    for sql in [
        "SELECT now() AS n FROM e",
        "SELECT k FROM e WHERE at > now() - INTERVAL '1 month'",
        "SELECT k FROM e WHERE at = now()",
        "SELECT k FROM e WHERE at > now() OR k = 1",
    ] {
        let error = harness.plan("v", sql, EmitMode::OnUpdate).unwrap_err();
        assert_eq!(
            error.sqlstate(),
            sqlstate::FEATURE_NOT_SUPPORTED,
            "{sql}: {error}"
        );
    }
}

#[test]
fn groups_of_closed_windows_leave_the_state() {
    let mut harness = harness();
    for (name, sql) in [
        (
            "top",
            "SELECT window_end, k, tick FROM (SELECT *, row_number() OVER \
             (PARTITION BY window_end ORDER BY tick DESC, k) AS n FROM TUMBLE(i, tick, 10)) x WHERE n <= 2",
        ),
        (
            "running",
            "SELECT window_end, k, tick, count(*) OVER (PARTITION BY k, window_end ORDER BY tick) AS n \
             FROM TUMBLE(i, tick, 10)",
        ),
    ] {
        harness.view(name, sql);
    }
    let rows: Vec<_> = (0..30).map(|tick| ((tick % 3, Some(tick)), 1)).collect();
    harness.batch(vec![("i", change(&rows))]);
    harness.check();
    let before = (numbers(&harness, "top"), numbers(&harness, "running"));
    harness.watermark = Some(20);
    let late = harness.batch(vec![("i", change(&[((1, Some(5)), 1)]))]);
    assert_eq!(late.late_rows["top"], 1);
    assert_eq!(
        before,
        (numbers(&harness, "top"), numbers(&harness, "running"))
    );
    for (view, _, what, numbers) in harness.dataflow.statistics() {
        let expected = match what.kind {
            "top" => 2,
            "window" => 10,
            _ => continue,
        };
        assert_eq!(numbers.state_rows, expected, "{view}");
    }
}

/// Joins whose condition bounds how far the times of both sides lie apart.
const TIMED_JOINS: [&str; 5] = [
    "SELECT i.k, i.tick AS a, j.tick AS b FROM i JOIN j ON i.k = j.k AND j.tick BETWEEN i.tick AND i.tick + 4",
    "SELECT i.k, i.tick AS a, j.tick AS b FROM i LEFT JOIN j \
     ON i.k = j.k AND i.tick - 2 <= j.tick AND i.tick + 1 >= j.tick",
    "SELECT i.k, i.tick AS a, j.k AS l, j.tick AS b FROM i FULL JOIN j ON i.k = j.k AND i.tick = j.tick",
    "SELECT i.k, i.tick FROM i WHERE NOT EXISTS \
     (SELECT 1 FROM j WHERE j.k = i.k AND j.tick >= i.tick - 3 AND j.tick < i.tick)",
    "SELECT a.k, a.n, b.n AS m FROM (SELECT window_end, k, count(*) AS n FROM TUMBLE(i, tick, 5) GROUP BY 1, 2) a \
     JOIN (SELECT window_end, k, count(*) AS n FROM TUMBLE(j, tick, 5) GROUP BY 1, 2) b \
     ON a.window_end = b.window_end AND a.k = b.k",
];

#[test]
fn joins_within_a_time_free_their_state() {
    for seed in 0..3 {
        let mut harness = harness();
        for (index, sql) in TIMED_JOINS.iter().enumerate() {
            harness.view(&format!("view_{index}"), sql);
        }
        let mut random = Random::new(seed);
        let mut watermark = 0;
        for batch in 0..24 {
            let mut changes = Vec::new();
            for relation in ["i", "j"] {
                let rows: Vec<_> = (0..random.below(6))
                    .map(|_| {
                        let tick = watermark + 6 + random.below(8) as i64;
                        (
                            (random.below(2) as i64, Some(tick)),
                            1 + random.below(2) as i64,
                        )
                    })
                    .collect();
                changes.push((relation, change(&rows)));
            }
            harness.batch(changes);
            harness.check();
            watermark += random.below(5) as i64;
            harness.watermark = Some(watermark);
            if batch == 11 {
                harness.restart();
            }
        }
        for (view, _, what, numbers) in harness.dataflow.statistics() {
            if what.kind == "join" {
                assert!(numbers.state_rows < 60, "{view}: {}", numbers.state_rows);
                assert!(what.retention.unwrap().bound == StateBound::Time, "{view}");
            }
        }
    }
}

#[test]
fn what_the_next_watermark_closes_is_answered_for_and_not_kept() {
    for seed in 0..6 {
        let mut harness = harness();
        for (index, sql) in [
            "SELECT window_end, k, count(*) AS n, min(tick) AS a, count(DISTINCT tick) AS b, array_length(array_agg(tick)) AS c \
             FROM TUMBLE(i, tick, 5) GROUP BY 1, 2",
            "SELECT DISTINCT window_start, k FROM HOP(i, tick, 3, 6)",
        ]
        .iter()
        .chain(&TIMED_JOINS)
        .enumerate()
        {
            harness.view(&format!("view_{index}"), sql);
        }
        let mut random = Random::new(seed);
        let (mut watermark, mut rows_most) = (0, 0);
        for batch in 0..24 {
            let mut changes = Vec::new();
            for relation in ["i", "j"] {
                let row = |random: &mut Random| {
                    let tick = watermark + 1 + random.below(14) as i64;
                    (random.below(2) as i64, Some(tick))
                };
                let rows =
                    (0..random.below(9)).map(|_| (row(&mut random), 1 + random.below(2) as i64));
                changes.push((relation, change(&rows.collect::<Vec<_>>())));
            }
            let next = watermark + random.below(16) as i64;
            harness.next_watermark = Some(next);
            harness.batch(changes);
            harness.check();
            let statistics = harness.dataflow.statistics();
            rows_most = statistics
                .iter()
                .map(|(_, _, _, n)| n.state_rows)
                .max()
                .max(Some(rows_most))
                .unwrap();
            watermark = next;
            harness.watermark = Some(watermark);
            if batch == 11 {
                harness.restart();
            }
        }
        assert!(rows_most > 0, "some rows wait for later batches");
        // Nothing is left that no later row can touch.
        harness.watermark = Some(watermark + 100);
        harness.batch(vec![("i", change(&[((1, Some(watermark + 200)), 1)]))]);
        for (view, _, what, numbers) in harness.dataflow.statistics() {
            if matches!(what.kind, "aggregate" | "join") {
                assert!(
                    numbers.state_rows <= 4,
                    "{view}, {}: {}",
                    what.kind,
                    numbers.state_rows
                );
            }
        }
    }
}

#[test]
fn what_comes_and_is_closed_in_one_batch_is_never_written() {
    let mut harness = harness();
    for (name, sql) in [
        (
            "n",
            "SELECT window_end, k, count(DISTINCT tick) AS n FROM TUMBLE(i, tick, 10) GROUP BY 1, 2",
        ),
        (
            "both",
            "SELECT i.k, i.tick FROM i JOIN j ON i.k = j.k AND i.tick = j.tick",
        ),
    ] {
        harness.view(name, sql);
    }
    let rows = change(&[((1, Some(3)), 1), ((2, Some(14)), 1), ((2, Some(33)), 1)]);
    harness.next_watermark = Some(25);
    harness.batch(vec![("i", rows.clone()), ("j", rows)]);
    assert_eq!(
        numbers(&harness, "n"),
        vec![vec![10, 1, 1], vec![20, 2, 1], vec![40, 2, 1]]
    );
    assert_eq!(
        numbers(&harness, "both"),
        vec![vec![1, 3], vec![2, 14], vec![2, 33]]
    );
    for (view, _, what, numbers) in harness.dataflow.statistics() {
        let expected = match what.kind {
            "aggregate" => 1,
            // A row of either side, and when it is due.
            "join" => 2,
            _ => continue,
        };
        assert_eq!(numbers.state_rows, expected, "{view}");
        assert_eq!(numbers.state_rows_removed, 0, "{view}");
    }
}

#[test]
fn rows_behind_the_watermark_are_left_out_of_a_join_and_counted() {
    let mut harness = harness();
    harness.view(
        "v",
        "SELECT i.tick, j.tick AS u FROM i LEFT JOIN j ON i.k = j.k AND j.tick >= i.tick AND j.tick <= i.tick + 5",
    );
    let row = |tick| change(&[((1, Some(tick)), 1)]);
    harness.batch(vec![("i", row(3)), ("j", row(4))]);
    harness.watermark = Some(9);
    let result = harness.batch(vec![("i", row(2)), ("j", row(8))]);
    assert_eq!(result.late_rows["v"], 2);
    harness.batch(vec![("i", row(10)), ("j", row(12))]);
    assert_eq!(numbers(&harness, "v"), vec![vec![3, 4], vec![10, 12]]);
}

#[test]
fn windows_in_order_of_time_free_what_nothing_looks_back_to() {
    for seed in 0..3 {
        let mut harness = harness();
        for (name, sql) in [
            (
                "near",
                "SELECT k, tick, lag(tick, 2) OVER (PARTITION BY k ORDER BY tick) AS a, \
              count(*) OVER (PARTITION BY k ORDER BY tick ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS b FROM i",
            ),
            (
                "running",
                "SELECT k, tick, sum(tick) OVER (PARTITION BY k ORDER BY tick) AS a FROM i",
            ),
            (
                "limit",
                "SELECT k, tick FROM i ORDER BY tick DESC, k LIMIT 70",
            ),
        ] {
            harness.view(name, sql);
        }
        let mut random = Random::new(seed);
        let mut watermark = 0;
        for batch in 0..20 {
            let rows: Vec<_> = (0..8)
                .map(|_| {
                    let tick = watermark + 1 + random.below(7) as i64;
                    (
                        (random.below(2) as i64, Some(tick)),
                        1 + random.below(2) as i64,
                    )
                })
                .collect();
            harness.batch(vec![("i", change(&rows))]);
            harness.check();
            watermark += random.below(5) as i64;
            harness.watermark = Some(watermark);
            if batch == 9 {
                harness.restart();
            }
        }
        for (view, _, what, numbers) in harness.dataflow.statistics() {
            match (view.as_str(), what.kind) {
                ("near", "window") => assert!(numbers.state_rows < 60, "{}", numbers.state_rows),
                ("running", "window") => assert!(numbers.state_rows > 60),
                ("limit", "top") => assert!(numbers.state_rows <= 70, "{}", numbers.state_rows),
                _ => {}
            }
        }
    }
}

#[test]
fn what_sends_old_rows_back_closes_nothing_above_it() {
    let mut harness = harness();
    for (name, sql) in [
        (
            "recent",
            "SELECT window_end, count(*) AS n FROM TUMBLE((SELECT * FROM i WHERE at > now() - INTERVAL '20 seconds'), tick, 10) GROUP BY 1",
        ),
        (
            "above",
            "SELECT window_end, count(*) AS n FROM TUMBLE(i, tick, 10) WHERE tick >= (SELECT avg(tick) FROM i) GROUP BY 1",
        ),
        (
            "last",
            "SELECT window_end, count(*) AS n FROM TUMBLE((SELECT * FROM i ORDER BY tick DESC LIMIT 2), tick, 10) GROUP BY 1",
        ),
    ] {
        harness.view(name, sql);
    }
    let rows = |ticks: &[i64]| {
        change(
            &ticks
                .iter()
                .map(|tick| ((1, Some(*tick)), 1))
                .collect::<Vec<_>>(),
        )
    };
    harness.now_us = 5 * SECOND;
    harness.batch(vec![("i", rows(&[1, 2, 9, 15]))]);
    harness.watermark = Some(40);
    harness.now_us = 45 * SECOND;
    harness.batch(vec![("i", rows(&[44, 45]))]);
    assert_eq!(numbers(&harness, "recent"), vec![vec![50, 2]]);
    assert_eq!(numbers(&harness, "above"), vec![vec![50, 2]]);
    assert_eq!(numbers(&harness, "last"), vec![vec![50, 2]]);
}
