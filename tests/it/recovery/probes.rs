//! `TEST SOURCE`, `TEST SINK`, `SUGGEST WATERMARK`.

use super::error_of;
use super::sources::Files;
use crate::harness::{Server, run};

fn checks(rows: &[Vec<String>]) -> Vec<(&str, &str)> {
    let rows = rows.iter();
    rows.map(|row| (row[0].as_str(), row[1].as_str())).collect()
}

#[test]
fn a_source_and_a_sink_are_tried_step_by_step() {
    run(async {
        let files = Files::start().await;
        let before = files.delivered();
        let rows = files.server.rows("TEST SOURCE f").await;
        let all_ok = [
            ("definition", "ok"),
            ("position", "ok"),
            ("read", "ok"),
            ("schema", "ok"),
        ];
        assert_eq!(checks(&rows), all_ok, "{rows:?}");
        let rows = files.server.rows("TEST SINK out").await;
        assert_eq!(
            checks(&rows),
            [("definition", "ok"), ("write", "ok")],
            "{rows:?}"
        );
        assert_eq!(files.delivered(), before, "nothing was delivered");
        // What fails is the last row, with the reason.
        files
            .server
            .execute(
                "CREATE STREAM away (k BIGINT) WITH (connector = 'files', location = 'nowhere', format = 'json');
                 CREATE STREAM far (k BIGINT) WITH (connector = 'kafka', brokers = '127.0.0.1:1', topic = 't', format = 'json');
                 CREATE STREAM odd (k BIGINT, missing TEXT) WITH (connector = 'files', location = 'in', format = 'json');",
            )
            .await;
        let rows = files.server.rows("TEST SOURCE away").await;
        let last = rows.last().expect("a row");
        assert_eq!(
            (last[0].as_str(), last[1].as_str()),
            ("position", "fail"),
            "{rows:?}"
        );
        assert!(last[2].contains("nowhere"), "{last:?}");
        let rows = files.server.rows("TEST SOURCE far").await;
        let last = rows.last().expect("a row");
        assert_eq!(
            (last[0].as_str(), last[1].as_str()),
            ("connection", "fail"),
            "{rows:?}"
        );
        let rows = files.server.rows("TEST SOURCE odd").await;
        let last = rows.last().expect("a row");
        assert_eq!(
            (last[0].as_str(), last[1].as_str()),
            ("schema", "warn"),
            "{rows:?}"
        );
        assert!(last[2].contains("missing"), "{last:?}");
        let client = files.server.connect().await;
        let error = error_of(&client, "TEST SOURCE sums").await;
        assert_eq!(error.code().code(), "42809");
        assert_eq!(
            error_of(&client, "TEST SINK nothing").await.code().code(),
            "42704"
        );
    });
}

#[test]
fn a_watermark_is_suggested_from_the_rows_that_came() {
    run(async {
        let server = Server::start();
        server
            .execute("CREATE STREAM e (at TIMESTAMP, k BIGINT); CREATE STREAM plain (k BIGINT);")
            .await;
        let mut values = Vec::new();
        for i in 0..100 {
            let late = if i % 10 == 9 { 30 } else { 0 };
            values.push(format!(
                "(TIMESTAMP '2024-01-01' + INTERVAL '{} seconds', {i})",
                10 * i - late
            ));
        }
        server
            .execute(&format!("INSERT INTO e VALUES {}", values.join(", ")))
            .await;
        let rows = server.rows("SUGGEST WATERMARK FOR e").await;
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert_eq!(
            (rows[0][1].as_str(), rows[0][2].as_str()),
            ("0 seconds", "10")
        );
        assert_eq!(
            (rows[1][1].as_str(), rows[1][2].as_str()),
            ("20 seconds", "0")
        );
        // The statement that is named is one.
        server.execute(&rows[1][4]).await;
        let rows = server.rows("SUGGEST WATERMARK FOR e").await;
        assert!(
            rows[1][4].starts_with("ALTER STREAM e ALTER WATERMARK"),
            "{rows:?}"
        );
        server.execute(&rows[1][4]).await;
        let client = server.connect().await;
        let error = error_of(&client, "SUGGEST WATERMARK FOR plain").await;
        assert_eq!(error.code().code(), "42703");
    });
}
