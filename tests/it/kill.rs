//! `kill -9` at random instants under load: nothing is lost, nothing is doubled.

use std::time::Duration;

use crate::harness::{Server, rows, run};
use crate::random::Random;

/// The number of kills: twenty-five is the bar of the main job; a soak does more.
fn kills() -> u64 {
    let seeds = crate::soak::seeds(0..25);
    seeds.end - seeds.start
}

#[test]
fn random_kills_under_load_lose_and_double_nothing() {
    run(async {
        let seed = crate::soak::seeds(20_261_129..20_261_130).start;
        let mut random = Random::new(seed);
        let mut server = Server::start();
        server
            .execute(
                "CREATE TABLE accounts (id BIGINT PRIMARY KEY, region TEXT, balance BIGINT);
                 CREATE STREAM clicks (user_id BIGINT, amount BIGINT);
                 CREATE STREAM ticks (id BIGINT, k BIGINT, v BIGINT)
                   WITH (connector = 'generator', kind = 'sequence', rows_per_second = 20000);
                 CREATE MATERIALIZED VIEW per_user WITH (trigger = 'continuous') AS
                   SELECT user_id, count(*) AS n, sum(amount) AS total, min(amount) AS low FROM clicks GROUP BY user_id;
                 CREATE MATERIALIZED VIEW per_region WITH (trigger = '10 milliseconds') AS
                   SELECT region, count(*) AS n, sum(balance) AS balance, max(balance) AS high FROM accounts GROUP BY region;
                 CREATE MATERIALIZED VIEW joined AS
                   SELECT a.region, c.user_id, c.amount FROM clicks c LEFT JOIN accounts a ON a.id = c.user_id;
                 CREATE MATERIALIZED VIEW ticked WITH (trigger = '20 milliseconds') AS
                   SELECT id % 7 AS bucket, count(*) AS n, sum(id) AS total FROM ticks GROUP BY id % 7;",
            )
            .await;
        let mut acknowledged_clicks = 0u64;
        let mut uncertain_clicks = 0u64;
        for round in 0..kills() {
            let client = server.connect().await;
            let until = tokio::time::Instant::now() + Duration::from_millis(30 + random.below(250));
            let kill_at = tokio::time::sleep_until(until);
            tokio::pin!(kill_at);
            loop {
                let n = 1 + random.below(20);
                let values: Vec<String> = (0..n)
                    .map(|_| format!("({}, {})", random.below(50), random.below(1000)))
                    .collect();
                let insert = format!("INSERT INTO clicks VALUES {}", values.join(", "));
                let id = random.below(50);
                let dml = match random.below(4) {
                    0 => format!("DELETE FROM accounts WHERE id = {id}"),
                    1 => format!(
                        "UPDATE accounts SET balance = balance + 1 WHERE id % 5 = {}",
                        id % 5
                    ),
                    _ => format!(
                        "INSERT INTO accounts VALUES ({id}, 'r{}', {}) ON CONFLICT (id) DO UPDATE SET balance = excluded.balance, region = excluded.region",
                        random.below(4),
                        random.below(10_000)
                    ),
                };
                let work = async {
                    client.batch_execute(&insert).await?;
                    client.batch_execute(&dml).await
                };
                tokio::select! {
                    done = work => {
                        done.unwrap_or_else(|e| panic!("round {round}: {e}; log:\n{}", server.log()));
                        acknowledged_clicks += n;
                    }
                    () = &mut kill_at => {
                        uncertain_clicks += n;
                        break;
                    }
                }
            }
            server.kill();
            server.restart();
        }
        server.execute("FLUSH").await;
        let total: u64 = server
            .value("SELECT count(*) FROM clicks")
            .await
            .parse()
            .expect("a count");
        assert!(
            total >= acknowledged_clicks && total <= acknowledged_clicks + uncertain_clicks,
            "{total} rows, {acknowledged_clicks} acknowledged, {uncertain_clicks} in flight at the kills"
        );
        server.execute("STOP MATERIALIZED VIEW ticked").await;
        let client = server.connect().await;
        for (view, query) in [
            (
                "per_user",
                "SELECT user_id, count(*) AS n, sum(amount) AS total, min(amount) AS low FROM clicks GROUP BY user_id",
            ),
            (
                "per_region",
                "SELECT region, count(*) AS n, sum(balance) AS balance, max(balance) AS high FROM accounts GROUP BY region",
            ),
            (
                "joined",
                "SELECT a.region, c.user_id, c.amount FROM clicks c LEFT JOIN accounts a ON a.id = c.user_id",
            ),
        ] {
            let mut view_rows = rows(&client, &format!("SELECT * FROM {view}"))
                .await
                .expect("readable");
            let mut batch_rows = rows(&client, query).await.expect("readable");
            view_rows.sort();
            batch_rows.sort();
            assert_eq!(view_rows, batch_rows, "{view} after {} kills", kills());
        }
        // The generator numbers its rows 0, 1, 2, …: a view over it holds a whole prefix exactly.
        let taken = rows(&client, "SELECT sum(n), sum(total) FROM ticked")
            .await
            .expect("readable");
        let n: i128 = taken[0][0].parse().expect("a count");
        let sum: i128 = taken[0][1].parse().expect("a sum");
        assert!(n > 0);
        assert_eq!(
            sum,
            n * (n - 1) / 2,
            "a row of the generator is lost or doubled"
        );
        // The metrics log tells of exactly the committed batches, each once.
        let doubled = rows(
            &client,
            "SELECT stream_name, batch_id FROM streaming_metrics_log GROUP BY stream_name, batch_id HAVING count(*) > 1",
        )
        .await
        .expect("readable");
        assert!(doubled.is_empty(), "{doubled:?}");
        let told = rows(
            &client,
            "SELECT sum(num_input_rows) FROM streaming_metrics_log WHERE stream_name = 'per_user'",
        )
        .await
        .expect("readable");
        assert_eq!(
            told[0][0],
            total.to_string(),
            "rows told by the metrics log"
        );
    });
}
