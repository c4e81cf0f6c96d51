//! A view that was given another query, and a kill before the batch that fills it.

use crate::harness::{Server, run};

#[test]
fn a_replaced_view_is_never_read_empty_after_a_kill() {
    run(async {
        for point in ["after_offsets", "after_state"] {
            let mut server = Server::start();
            let rows: Vec<String> = (0..2000).map(|i| format!("({}, {i})", i % 7)).collect();
            server
                .execute(&format!(
                    "CREATE STREAM s (k BIGINT, v BIGINT);
                     CREATE MATERIALIZED VIEW v WITH (trigger = 'continuous') AS SELECT k, count(*) AS n FROM s GROUP BY k;
                     INSERT INTO s VALUES {}; FLUSH;",
                    rows.join(", ")
                ))
                .await;
            server.terminate();
            server.set_environment("TIDEMILL_CRASH_AT", Some(point));
            server.restart();
            let client = server.connect().await;
            let replace = "CREATE OR REPLACE MATERIALIZED VIEW v WITH (reset_state = true, trigger = 'continuous') AS
                           SELECT k, sum(v) AS total FROM s GROUP BY k";
            // It dies in the batch that fills the view, before or after it has answered.
            client.simple_query(replace).await.ok();
            client.simple_query("FLUSH").await.expect_err("it dies");
            server.reap();
            server.set_environment("TIDEMILL_CRASH_AT", None);
            server.restart();
            let read = server.rows("SELECT k, total FROM v ORDER BY k").await;
            assert_eq!(read.len(), 7, "{point}: {read:?}");
            server.execute("FLUSH").await;
            assert_eq!(server.rows("SELECT k, total FROM v ORDER BY k").await, read);
        }
    });
}
