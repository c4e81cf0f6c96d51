//! Faults of rows that are inserted: kills between them, expectations that they break, rows that come too late.

use super::bench::InputFault;
use super::feed::{FeedKind, Row};

pub(super) fn faults() -> Vec<InputFault> {
    vec![
        InputFault::new("INSERT: killed between rows", FeedKind::Insert, |b| {
            Box::pin(async move {
                for _ in 0..3 {
                    let rows = b.rows(2);
                    b.deliver(&rows).await;
                    b.server.kill();
                    b.server.restart();
                }
            })
        }),
        InputFault::new("INSERT: rows that break an expectation are dropped", FeedKind::Insert, |b| {
            Box::pin(async move {
                break_expectation(b).await;
                b.server.kill();
                b.server.restart();
                b.send().await;
                let dropped = "SELECT sum(num_expectation_failed_rows)::bigint FROM streaming_metrics_log WHERE stream_name = '{view}'";
                b.wait_each(dropped, "2").await;
            })
        })
        .constrained(", CONSTRAINT positive EXPECT (v >= 0 OR v IS NULL) ON VIOLATION DROP ROW")
        .of_the_few(),
        InputFault::new("INSERT: rows that break an expectation are refused", FeedKind::Insert, |b| {
            Box::pin(async move {
                let error = b.server.connect().await;
                let insert = "INSERT INTO windowed_s VALUES (1, 2, NULL), (1, -4, NULL)";
                let error = error.simple_query(insert).await.expect_err("it is refused");
                assert_eq!(error.code().map(|code| code.code()), Some("23514"), "{error:?}");
                b.server.kill();
                b.server.restart();
            })
        })
        .constrained(", CONSTRAINT positive EXPECT (v >= 0 OR v IS NULL) ON VIOLATION FAIL UPDATE"),
        InputFault::new("INSERT: rows that come too late", FeedKind::Insert, |b| {
            Box::pin(async move {
                let ahead = Row { k: 1, v: Some(2), minutes: Some(9 * 1440) };
                b.deliver(&[ahead]).await;
                b.wait_equal().await;
                b.send().await;
                let late = Row { k: 2, v: Some(8), minutes: Some(5) };
                b.deliver(&[late, late]).await;
                b.server.execute("FLUSH").await;
                b.server.kill();
                b.server.restart();
                let late = "SELECT count(*) >= 2 FROM streaming_late_rows WHERE stream_name = 'windowed'";
                b.server.wait_for_value(late, "t", crate::recovery::WITHIN).await;
            })
        }),
    ]
}

/// Two rows that break it, which are not expected.
async fn break_expectation(b: &mut super::bench::Bench) {
    let broken = |k| Row {
        k,
        v: Some(-4),
        minutes: Some(3),
    };
    b.arrive(&[broken(1), broken(2)]).await;
}
