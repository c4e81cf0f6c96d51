//! `tidemill demo`: the main job in under a minute, on generated data, checked by itself.
//!
//! ```text
//!   start a server ─► streams, a table, views ─► the view as it changes ─► kill -9 in mid-batch
//!        ─► restart, time to recover ─► compare with a batch run ─► the dashboard query ─► what to type next
//! ```
//!
//! It drives the real binary as a process of its own over the Postgres wire, as a user would; it
//! has no other way in.

mod server;
mod table;

use std::time::Duration;

use tokio_postgres::Client;

use crate::cli::sql::wire_error;
use crate::clock::ClockRef;
use crate::error::{Error, Result};
use server::DemoServer;
use table::{print_rows, rows};

/// Orders that the generator makes in all.
const ORDERS: u64 = 3_000_000;

const DEFINITIONS: &str = "\
CREATE STREAM orders (
  id BIGINT, customer BIGINT, amount BIGINT, ordered_at TIMESTAMPTZ,
  WATERMARK FOR ordered_at AS ordered_at - INTERVAL '1 minute'
) WITH (connector = 'generator', kind = 'sequence', rows = 3000000, rows_per_second = 400000);

CREATE TABLE customers (id BIGINT PRIMARY KEY, region TEXT NOT NULL);

CREATE MATERIALIZED VIEW sales_by_region AS
  SELECT c.region, count(*) AS orders, sum(o.amount) AS amount
  FROM orders o JOIN customers c ON c.id = o.customer % 12
  GROUP BY c.region;

CREATE MATERIALIZED VIEW sales_by_customer AS
  SELECT customer, count(*) AS orders, sum(amount) AS amount, max(amount) AS largest
  FROM orders GROUP BY customer;";

const CUSTOMERS: &str = "\
INSERT INTO customers VALUES
  (0, 'north'), (1, 'north'), (2, 'north'), (3, 'east'), (4, 'east'), (5, 'south'),
  (6, 'south'), (7, 'south'), (8, 'south'), (9, 'west'), (10, 'west'), (11, 'west');";

/// The tuning guide's dashboard query; `${stream_name}` is what a dashboard fills in.
const DASHBOARD_QUERY: &str = "\
SELECT
    batch_id,
    trigger_execution_ms,
    add_batch_ms,
    num_input_rows,
    ROUND(num_input_rows / (add_batch_ms / 1000.0), 0) AS rows_per_second
FROM streaming_metrics_log
WHERE stream_name = '${stream_name}'
ORDER BY batch_id DESC
LIMIT 100;";

/// What the two views must hold once all orders are in: the same query, run by batch.
const CHECKS: [(&str, &str); 2] = [
    (
        "sales_by_region",
        "SELECT c.region, count(*) AS orders, sum(o.amount) AS amount
         FROM orders o JOIN customers c ON c.id = o.customer % 12 GROUP BY c.region",
    ),
    (
        "sales_by_customer",
        "SELECT customer, count(*) AS orders, sum(amount) AS amount, max(amount) AS largest
         FROM orders GROUP BY customer",
    ),
];

/// Runs the demo; an error means that something it checked did not hold.
pub async fn run(clock: &ClockRef) -> Result<()> {
    say(
        "tidemill demo: streams, views, a kill -9, the recovery and the dashboard query, on generated data",
    );
    let mut server = DemoServer::start(clock).await?;
    say(&format!(
        "\n1. A server, ready in {} ms at {}",
        server.ready_ms(),
        server.process().address()
    ));
    let client = server.process().connect().await?;

    say("\n2. A stream of orders, a table of customers, two views kept up to date:\n");
    say(&indent(DEFINITIONS));
    run_sql(&client, DEFINITIONS).await?;
    run_sql(&client, CUSTOMERS).await?;

    say("\n3. The view as it changes:\n");
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(700)).await;
        print_rows(&client, "SELECT * FROM sales_by_region ORDER BY region").await?;
    }
    say("   A customer moves from west to east; both regions follow at once:\n");
    run_sql(
        &client,
        "UPDATE customers SET region = 'east' WHERE id = 11; FLUSH",
    )
    .await?;
    print_rows(&client, "SELECT * FROM sales_by_region ORDER BY region").await?;

    say("4. kill -9 while batches run");
    let before = committed_batch(&client).await?;
    server.kill_in_mid_batch(&client).await?;
    drop(client);

    server.restart().await?;
    let client = server.process().connect().await?;
    let recovered_ms = wait_for_batch_after(&server, &client, before).await?;
    say(&format!(
        "   restarted: ready in {} ms; first new batch {recovered_ms} ms after the start (batch {before} was the last before the kill)",
        server.ready_ms()
    ));

    say("\n5. All orders, then the views against a batch run over the same rows");
    wait_for_all(&client).await?;
    for (view, query) in CHECKS {
        check(&client, view, query).await?;
    }

    say("\n6. The dashboard query:\n");
    let query = DASHBOARD_QUERY
        .replace("${stream_name}", "sales_by_customer")
        .replace("LIMIT 100", "LIMIT 5");
    say(&indent(&query));
    say("");
    print_rows(&client, &query).await?;
    server.stop().await?;
    say(NEXT);
    Ok(())
}

const NEXT: &str = "\
Everything held. What to type next:

  tidemill serve                                  start a server on ./tidemill-data
  psql -h 127.0.0.1 -p 5433 -U tidemill           then, for example:

    CREATE STREAM clicks (user_id BIGINT, url TEXT);
    CREATE MATERIALIZED VIEW per_user AS SELECT user_id, count(*) AS clicks FROM clicks GROUP BY user_id;
    INSERT INTO clicks VALUES (1, '/'), (1, '/pricing'), (2, '/');
    FLUSH; SELECT * FROM per_user;
    SELECT * FROM streaming_queries;
";

#[allow(clippy::print_stdout)]
fn say(text: &str) {
    println!("{text}");
}

fn indent(text: &str) -> String {
    text.lines()
        .map(|line| format!("     {line}"))
        .collect::<Vec<_>>()
        .join("\n")
}

async fn run_sql(client: &Client, sql: &str) -> Result<()> {
    client.batch_execute(sql).await.map_err(|e| wire_error(&e))
}

async fn value(client: &Client, sql: &str) -> Result<Option<String>> {
    let (_, rows) = rows(client, sql).await?;
    Ok(rows
        .into_iter()
        .next()
        .and_then(|row| row.into_iter().next())
        .flatten())
}

async fn committed_batch(client: &Client) -> Result<u64> {
    let last = value(
        client,
        "SELECT last_batch_id FROM streaming_queries WHERE stream_name = 'sales_by_customer'",
    )
    .await?;
    last.and_then(|n| n.parse().ok())
        .ok_or_else(|| broken("no batch was committed before the kill"))
}

/// Milliseconds from the process's start to the first batch that the killed server had not committed.
async fn wait_for_batch_after(server: &DemoServer, client: &Client, before: u64) -> Result<u128> {
    while committed_batch(client).await.unwrap_or(0) <= before {
        if server.since_start() > Duration::from_secs(20) {
            return Err(broken("no new batch within 20 seconds of the restart"));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(server.since_start().as_millis())
}

async fn wait_for_all(client: &Client) -> Result<()> {
    for _ in 0..600 {
        let taken = value(client, "SELECT sum(orders)::bigint FROM sales_by_customer").await?;
        if taken.as_deref() == Some(&ORDERS.to_string()) {
            return run_sql(client, "FLUSH").await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(broken(
        "the views did not take in all orders within 30 seconds",
    ))
}

async fn check(client: &Client, view: &str, query: &str) -> Result<()> {
    let (_, mut kept) = rows(client, &format!("SELECT * FROM {view}")).await?;
    let (_, mut batch) = rows(client, query).await?;
    kept.sort();
    batch.sort();
    if kept != batch {
        return Err(broken(&format!(
            "{view} differs from a batch run: {} rows against {}",
            kept.len(),
            batch.len()
        )));
    }
    say(&format!(
        "   {view}: {} rows, equal to the batch run over {ORDERS} orders: nothing lost, nothing doubled",
        kept.len()
    ));
    Ok(())
}

fn broken(what: &str) -> Error {
    Error::internal(what)
}
