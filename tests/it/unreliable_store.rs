//! A checkpoint on a store that cuts, delays, repeats, throttles and refuses requests: no row is lost or doubled, no
//! lease is given up for one's own request, and the pipeline says why it does not get on.

use std::time::Duration;

use crate::harness::{Server, run};
use crate::proxy::{Proxy, Trouble};
use crate::s3::{environment, start_store};

const WITHIN: Duration = Duration::from_secs(60);

struct Bench {
    server: Server,
    proxy: Proxy,
    next: u64,
}

impl Bench {
    async fn start(endpoint: &str) -> Self {
        let port = endpoint.rsplit(':').next().and_then(|p| p.parse().ok());
        let proxy = Proxy::start(port.expect("a port")).await;
        let server = Server::start_with(&[], &environment(&proxy.endpoint));
        server
            .execute(
                "CREATE STREAM s (k BIGINT, v BIGINT);
                 CREATE MATERIALIZED VIEW sums WITH (trigger = '20 milliseconds', checkpoint_location = 's3://tidemill/unreliable') AS
                   SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k;
                 CREATE SINK out FROM sums WITH (connector = 'files', location = 'out', format = 'json', mode = 'changelog')",
            )
            .await;
        Self {
            server,
            proxy,
            next: 0,
        }
    }

    async fn insert(&mut self, batches: u64) {
        for _ in 0..batches {
            let from = self.next * 100;
            self.next += 1;
            let to = from + 99;
            let sql = format!(
                "INSERT INTO s SELECT i % 10, i FROM generate_series({from}, {to}) AS g(i)"
            );
            self.server.execute(&sql).await;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    async fn assert_caught_up(&self, trouble: Trouble) {
        let rows = (self.next * 100).to_string();
        let taken = "SELECT coalesce(sum(n), 0)::bigint FROM sums";
        self.server.wait_for_value(taken, &rows, WITHIN).await;
        let expected = "SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k ORDER BY k";
        assert_eq!(
            self.server.rows("SELECT * FROM sums ORDER BY k").await,
            self.server.rows(expected).await,
            "{trouble:?}"
        );
        let told = "SELECT count(*) FROM streaming_events WHERE event IN ('fenced', 'failed')";
        assert_eq!(
            self.server.value(told).await,
            "0",
            "{trouble:?}; log:\n{}",
            self.server.log()
        );
    }

    /// What the sink has, added up by key, is the view.
    async fn assert_delivered(&self) {
        self.server.execute("FLUSH").await;
        let mut sums = std::collections::BTreeMap::<(i64, i64, i64), i64>::new();
        for entry in std::fs::read_dir(self.server.dir().join("out")).expect("the sink's folder") {
            let path = entry.expect("readable").path();
            if path.extension().is_none_or(|e| e != "json") {
                continue;
            }
            for line in std::fs::read_to_string(path).expect("readable").lines() {
                let row: serde_json::Value = serde_json::from_str(line).expect("JSON");
                let number = |name: &str| {
                    row[name]
                        .to_string()
                        .trim_matches('"')
                        .parse::<i64>()
                        .expect("a number")
                };
                let is_there =
                    matches!(row["change_kind"].as_str(), Some("insert" | "update_after"));
                *sums
                    .entry((number("k"), number("n"), number("total")))
                    .or_default() += if is_there { 1 } else { -1 };
            }
        }
        sums.retain(|_, count| *count != 0);
        let delivered: Vec<Vec<String>> = sums
            .into_iter()
            .map(|((k, n, total), count)| {
                assert_eq!(count, 1, "{k}");
                [k, n, total].map(|v| v.to_string()).to_vec()
            })
            .collect();
        assert_eq!(
            delivered,
            self.server.rows("SELECT * FROM sums ORDER BY k").await
        );
    }
}

#[test]
fn an_unreliable_store_loses_and_doubles_nothing() {
    let Some((_store, endpoint)) = start_store() else {
        return;
    };
    run(async {
        let mut bench = Bench::start(&endpoint).await;
        for trouble in [
            Trouble::CutsAnswers(3),
            Trouble::CutsRequests(3),
            Trouble::Repeats(2),
            Trouble::Refuses(2, 503),
            Trouble::Refuses(3, 429),
            Trouble::Refuses(3, 500),
            Trouble::Delays(Duration::from_millis(80)),
            Trouble::Throttles(40_000),
        ] {
            let before = bench.proxy.counts();
            bench.proxy.set(trouble);
            bench.insert(10).await;
            // With the local state gone all of it comes through the same trouble.
            bench.server.kill();
            std::fs::remove_dir_all(bench.server.data_dir().join("pipelines")).expect("deleted");
            bench.server.restart();
            bench.insert(5).await;
            bench.assert_caught_up(trouble).await;
            let after = bench.proxy.counts();
            println!(
                "{trouble:?}: {} requests, {} in trouble",
                after.0 - before.0,
                after.1 - before.1
            );
            assert!(after.1 > before.1, "{trouble:?} fell on no request");
            bench.proxy.set(Trouble::None);
        }
        bench.assert_delivered().await;
    });
}

#[test]
fn a_store_that_is_down_is_told_and_waited_for() {
    let Some((_store, endpoint)) = start_store() else {
        return;
    };
    run(async {
        let mut bench = Bench::start(&endpoint).await;
        bench.insert(3).await;
        bench.assert_caught_up(Trouble::None).await;
        bench.proxy.set(Trouble::Down);
        bench.insert(3).await;
        let status = "SELECT status FROM streaming_queries WHERE stream_name = 'sums'";
        bench
            .server
            .wait_for_value(status, "stalled", Duration::from_secs(20))
            .await;
        let why = bench
            .server
            .value("SELECT exception FROM streaming_queries WHERE stream_name = 'sums'")
            .await;
        assert!(why.contains("s3://tidemill/unreliable"), "{why}");
        // Readers get the last batch, others go on.
        assert_eq!(
            bench.server.value("SELECT sum(n)::bigint FROM sums").await,
            "300"
        );
        bench
            .server
            .execute("CREATE MATERIALIZED VIEW other AS SELECT count(*) AS n FROM s")
            .await;
        bench
            .server
            .wait_for_value("SELECT n FROM other", "600", WITHIN)
            .await;
        bench.proxy.set(Trouble::None);
        bench.assert_caught_up(Trouble::Down).await;
        bench
            .server
            .wait_for_value(status, "waiting for data", WITHIN)
            .await;
        bench.assert_delivered().await;
    });
}
