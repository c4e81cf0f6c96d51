//! Groups that a watermark closes.

use super::*;

fn windowed(emit: EmitMode) -> AggregateRequest {
    let sql = "SELECT t, k, count(*), count(DISTINCT v) FROM r GROUP BY t, k";
    let event_time = Some(EventTimeGroup {
        group_index: 0,
        end_offset: 10,
    });
    AggregateRequest {
        event_time,
        emit,
        ..request(sql, true)
    }
}

fn starts(lines: &[String]) -> Vec<String> {
    let cells = |line: &String| {
        let cells: Vec<_> = line.split(" | ").collect();
        format!(
            "{} k{} n{} d{}",
            &cells[0][cells[0].len() - 2..],
            cells[1],
            cells[2],
            cells[3]
        )
    };
    lines.iter().map(cells).collect()
}

#[test]
fn a_watermark_drops_late_rows_and_frees_closed_groups() {
    for shards in [1, 3] {
        let mut bench = Bench::new(windowed(EmitMode::OnUpdate), shards, 1, true);
        bench
            .try_batch(
                &[to_change(&[
                    (row(1, 1, 10), 1),
                    (row(1, 2, 10), 1),
                    (row(2, 1, 30), 1),
                ])],
                None,
            )
            .unwrap();
        let before = bench.operator.statistics().state_rows;
        // The window of 10 ends at 20: late at 20, in time at 19.
        bench
            .try_batch(&[to_change(&[(row(1, 2, 10), 1)])], Some(19))
            .unwrap();
        assert_eq!(bench.operator.statistics().late_rows, 0);
        bench.restart();
        let out = bench
            .try_batch(
                &[to_change(&[(row(1, 9, 10), 1), (row(2, 1, 30), 1)])],
                Some(20),
            )
            .unwrap();
        assert_eq!(out.iter().map(ChangeBatch::num_rows).sum::<usize>(), 2);
        let statistics = bench.operator.statistics();
        assert_eq!((statistics.late_rows, statistics.input_rows), (1, 2));
        assert_eq!((before, statistics.state_rows), (5, 2));
        assert_eq!(bench.contents().len(), 2, "removing state emits nothing");
        bench.try_batch(&[], Some(100)).unwrap();
        assert_eq!(bench.operator.statistics().state_rows, 0);
        let snapshot = bench.store.snapshot();
        let tables = bench.operator.tables();
        let left: Vec<_> = ["groups", "ends", "seen_1"]
            .map(|name| crate::state::TableId::from_name(&format!("v/aggregate_0/{name}")))
            .into();
        for table in left {
            assert!(tables.contains(&table));
            assert!(!snapshot.scan(table, None, None).unwrap().advance().unwrap());
        }
    }
}

#[test]
fn a_closed_window_is_emitted_once() {
    for shards in [1, 3] {
        let mut bench = Bench::new(windowed(EmitMode::OnWindowClose), shards, 1, true);
        assert!(
            bench.operator.wants_batch_at(0),
            "nothing is known before the first batch"
        );
        let rows = [
            (row(1, 1, 10), 1),
            (row(1, 1, 10), 2),
            (row(2, 1, 12), 1),
            (row(3, 1, 40), 1),
        ];
        assert!(
            bench
                .try_batch(&[to_change(&rows)], Some(5))
                .unwrap()
                .is_empty()
        );
        assert!(!bench.operator.wants_batch_at(19));
        assert!(bench.operator.wants_batch_at(20));
        bench.restart();
        assert!(bench.operator.wants_batch_at(20));
        bench.try_batch(&[], Some(22)).unwrap();
        assert_eq!(starts(&bench.contents()), ["10 k1 n3 d1", "12 k2 n1 d1"]);
        assert!(!bench.operator.wants_batch_at(49) && bench.operator.wants_batch_at(50));
        bench
            .try_batch(&[to_change(&[(row(1, 1, 12), 1)])], Some(22))
            .unwrap();
        assert_eq!(bench.operator.statistics().late_rows, 1);
        bench.operator.shed_memory();
        bench
            .try_batch(&[to_change(&[(row(3, 2, 40), 1)])], Some(30))
            .unwrap();
        bench.try_batch(&[], Some(50)).unwrap();
        bench.try_batch(&[], Some(60)).unwrap();
        assert_eq!(
            starts(&bench.contents()),
            ["10 k1 n3 d1", "12 k2 n1 d1", "40 k3 n2 d2"]
        );
        assert!(!bench.operator.wants_batch_at(i64::MAX));
    }
}

#[test]
fn window_close_needs_a_window() {
    let request = AggregateRequest {
        event_time: None,
        ..windowed(EmitMode::OnWindowClose)
    };
    let error = AggregateOperator::try_new(request).unwrap_err();
    assert_eq!(error.sqlstate(), sqlstate::FEATURE_NOT_SUPPORTED);
}
