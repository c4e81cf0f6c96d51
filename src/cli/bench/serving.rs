//! Serving: what dashboards and applications ask of views, over the wire of a server of its own.
//!
//! ```text
//!   look-ups    prepared statement, one key a time, one connection          µs a look-up
//!   scans       a million rows aggregated, beside DataFusion's MemTable     ratio of times
//!   dashboards  200 connections, ten queries in five seconds each,          batch time with and
//!               while a batch of a hundred thousand rows comes every second without them
//! ```
//!
//! Scans are measured embedded, so that both sides have the same cores and no wire. The clients of the other
//! two run in this process, on the cores of the server: what they take counts against it.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use tokio_postgres::Client;

use super::process::value;
use super::{Measured, embedded, median};
use crate::cli::server_process::ServerProcess;
use crate::cli::sql::wire_error;
use crate::clock::ClockRef;
use crate::database::Database;
use crate::error::{Error, Result};

/// Rows of the views that are read.
const ROWS: u64 = 1_000_000;

/// Look-ups that are measured, and those before them.
const LOOK_UPS: u64 = 20_000;
const WARM_UP: u64 = 1_000;
/// Steps from key to key that come to every key, in no order: an odd number far from a part of the rows.
const STRIDE: u64 = 617_411;

/// Scans that are measured of each form; their median counts.
const SCANS: usize = 7;

const CONNECTIONS: usize = 200;
const QUERIES_PER_ROUND: u32 = 10;
const ROUND: Duration = Duration::from_secs(5);
/// How long batches are watched, with and without dashboards.
const WATCHED: Duration = Duration::from_secs(30);
/// Rows that come in a second while dashboards are watched.
const ROWS_PER_SECOND: u64 = 100_000;

pub(super) async fn run(clock: &ClockRef) -> Result<Vec<Measured>> {
    let mut measured = vec![look_ups(clock).await?];
    measured.extend(scans(clock).await?);
    measured.push(dashboards(clock).await?);
    Ok(measured)
}

/// A stream of a million rows, and views over it that hold as many: by a key, and as they came.
fn views() -> String {
    format!(
        "CREATE STREAM s (id BIGINT, key BIGINT, v BIGINT) WITH (connector = 'generator', kind = 'sequence', rows = {ROWS}, keys = 1000);
         CREATE MATERIALIZED VIEW by_id WITH (trigger = 'continuous') AS
           SELECT id, max(key) AS key, sum(v) AS total FROM s GROUP BY id;
         CREATE MATERIALIZED VIEW as_it_came WITH (trigger = 'continuous') AS SELECT id, key, v AS total FROM s;
         REFRESH MATERIALIZED VIEW by_id; REFRESH MATERIALIZED VIEW as_it_came"
    )
}

async fn look_ups(clock: &ClockRef) -> Result<Measured> {
    let dir = tempfile::tempdir()?;
    let server = ServerProcess::start(&dir.path().join("data"), &[]).await?;
    let client = server.connect().await?;
    execute(&client, &views()).await?;
    let first: u64 = number(&value(&client, "SELECT min(id)::text FROM by_id").await?)?;
    let prepared = client
        .prepare("SELECT key, total FROM by_id WHERE id = $1")
        .await
        .map_err(|e| wire_error(&e))?;
    let mut times = Vec::with_capacity(LOOK_UPS as usize);
    for turn in 0..WARM_UP + LOOK_UPS {
        let id = (first + turn * STRIDE % ROWS) as i64;
        let start = clock.monotonic();
        let rows = client.query(&prepared, &[&id]).await;
        let time = clock.monotonic() - start;
        if rows.map_err(|e| wire_error(&e))?.len() != 1 {
            return Err(Error::internal(format!("key {id} is not one row")));
        }
        if turn >= WARM_UP {
            times.push(time);
        }
    }
    times.sort();
    let p99 = quantile(&times, 0.99);
    Ok(Measured {
        workload: "look-up of one key of a view of 1 M rows, prepared, over the wire".to_owned(),
        figure: format!(
            "p50 {} µs, p99 {} µs, p99.9 {} µs",
            quantile(&times, 0.5).as_micros(),
            p99.as_micros(),
            quantile(&times, 0.999).as_micros()
        ),
        yardstick: String::new(),
        ratio: String::new(),
        bar: "p99 < 1 ms",
        met: p99 < Duration::from_millis(1),
    })
}

/// What is computed of every row, and of every row in groups.
const AGGREGATED: [(&str, &str); 2] = [
    (
        "aggregated",
        "SELECT count(*)::bigint, sum(total)::bigint, max(id), min(key) FROM",
    ),
    (
        "grouped by 1000 keys",
        "SELECT key, count(*) AS n, sum(total) AS total FROM",
    ),
];

async fn scans(clock: &ClockRef) -> Result<Vec<Measured>> {
    let (_dir, database) = embedded().await?;
    database.execute(&views()).await?;
    let mut measured = Vec::new();
    for (view, layout) in [
        ("by_id", "by a key"),
        ("as_it_came", "of an append-only query"),
    ] {
        let rows = database.query(&format!("SELECT * FROM {view}")).await?;
        let table = in_memory(view, &rows)?;
        for (what, select) in AGGREGATED {
            let group = if what == "aggregated" {
                ""
            } else {
                " GROUP BY key"
            };
            let query = format!("{select} {view}{group}");
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..SCANS {
                ours.push(ours_once(&database, &query, clock).await?);
                theirs.push(theirs_once(&table, &query, clock).await?);
            }
            measured.push(compared(layout, what, median(ours), median(theirs)));
        }
    }
    database.close().await?;
    Ok(measured)
}

fn compared(layout: &str, what: &str, ours: Duration, theirs: Duration) -> Measured {
    let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1000.0);
    Measured {
        workload: format!("view of 1 M rows {layout}, scanned and {what}"),
        figure: ms(ours),
        yardstick: format!(
            "{} (DataFusion over the same rows in a MemTable)",
            ms(theirs)
        ),
        ratio: format!("{ratio:.2}"),
        bar: "≥ 0.7",
        met: ratio >= 0.7,
    }
}

/// The rows as DataFusion holds them, in as many parts as there are cores.
fn in_memory(name: &str, rows: &[RecordBatch]) -> Result<SessionContext> {
    let cores = std::thread::available_parallelism()?.get();
    let config = SessionConfig::new().with_target_partitions(cores);
    let context = SessionContext::new_with_config(config);
    let schema = rows
        .first()
        .ok_or_else(|| Error::internal("the view has no rows"))?
        .schema();
    let parts = rows
        .chunks(rows.len().div_ceil(cores))
        .map(<[_]>::to_vec)
        .collect();
    context.register_table(name, Arc::new(MemTable::try_new(schema, parts)?))?;
    Ok(context)
}

async fn ours_once(database: &Database, query: &str, clock: &ClockRef) -> Result<Duration> {
    let start = clock.monotonic();
    database.query(query).await?;
    Ok(clock.monotonic() - start)
}

async fn theirs_once(table: &SessionContext, query: &str, clock: &ClockRef) -> Result<Duration> {
    let start = clock.monotonic();
    table.sql(query).await?.collect().await?;
    Ok(clock.monotonic() - start)
}

/// The batches of a while.
struct Batches {
    count: u64,
    /// Of one batch, on average.
    time_ms: f64,
    rows_per_second: f64,
}

async fn dashboards(clock: &ClockRef) -> Result<Measured> {
    let dir = tempfile::tempdir()?;
    let server = ServerProcess::start(&dir.path().join("data"), &[]).await?;
    let client = server.connect().await?;
    execute(
        &client,
        &format!(
            "CREATE STREAM s (id BIGINT, key BIGINT, v BIGINT) WITH (connector = 'generator', kind = 'sequence', rows_per_second = {ROWS_PER_SECOND}, keys = 10000);
             CREATE MATERIALIZED VIEW totals WITH (trigger = '1 second') AS
               SELECT key, count(*) AS n, sum(v) AS total, max(id) AS last FROM s GROUP BY key"
        ),
    )
    .await?;
    tokio::time::sleep(ROUND).await;
    let before = watch(&client).await?;
    let readers = Readers::start(&server, clock).await?;
    tokio::time::sleep(ROUND).await;
    let with = watch(&client).await?;
    let mut latencies = readers.stop().await?;
    tokio::time::sleep(ROUND).await;
    let after = watch(&client).await?;
    let alone_ms = (before.time_ms + after.time_ms) / 2.0;
    let ratio = with.time_ms / alone_ms;
    latencies.sort();
    Ok(Measured {
        workload: format!(
            "{CONNECTIONS} dashboards, {QUERIES_PER_ROUND} queries in {} s each, beside a batch of {ROWS_PER_SECOND} rows every second",
            ROUND.as_secs()
        ),
        figure: format!(
            "batch {:.1} ms, {:.0} rows/s in {} batches; {} queries, p50 {:.1} ms, p99 {:.1} ms",
            with.time_ms,
            with.rows_per_second,
            with.count,
            latencies.len(),
            quantile(&latencies, 0.5).as_secs_f64() * 1000.0,
            quantile(&latencies, 0.99).as_secs_f64() * 1000.0
        ),
        yardstick: format!(
            "without them before and after: batch {:.1} and {:.1} ms, {:.0} rows/s",
            before.time_ms, after.time_ms, before.rows_per_second
        ),
        ratio: format!("{ratio:.2}"),
        bar: "≤ 1.10",
        met: ratio <= 1.1,
    })
}

/// The batches that end while this waits.
async fn watch(client: &Client) -> Result<Batches> {
    let last = "SELECT coalesce(max(batch_id), 0)::text FROM streaming_metrics_log WHERE stream_name = 'totals'";
    let first: u64 = number(&value(client, last).await?)?;
    tokio::time::sleep(WATCHED).await;
    let figures = format!(
        "SELECT count(*) || ' ' || coalesce(avg(trigger_execution_ms), 0) || ' ' || coalesce(sum(num_input_rows), 0)
         FROM streaming_metrics_log WHERE stream_name = 'totals' AND batch_id > {first}"
    );
    let figures = value(client, &figures).await?;
    let mut figures = figures.split(' ').map(|figure| {
        let parsed = figure.parse::<f64>();
        parsed.map_err(|_| Error::internal(format!("{figure:?} is no figure of batches")))
    });
    let mut next = || figures.next().unwrap_or(Ok(0.0));
    Ok(Batches {
        count: next()? as u64,
        time_ms: next()?,
        rows_per_second: next()? / WATCHED.as_secs_f64(),
    })
}

/// What the panels of a dashboard ask, in turn.
fn panel(connection: usize, turn: u32) -> String {
    let key = (connection as u32 * 37 + turn * 101) % 10_000;
    match turn % 5 {
        0 => format!("SELECT key, n, total FROM totals WHERE key = {key}"),
        1 => format!("SELECT count(*), sum(n), sum(total) FROM totals WHERE key < {key}"),
        2 => "SELECT batch_id, trigger_execution_ms, add_batch_ms, num_input_rows, \
              ROUND(num_input_rows / (add_batch_ms / 1000.0), 0) AS rows_per_second \
              FROM streaming_metrics_log WHERE stream_name = 'totals' ORDER BY batch_id DESC LIMIT 100"
            .to_owned(),
        3 => "SELECT key, total FROM totals ORDER BY total DESC LIMIT 10".to_owned(),
        _ => "SELECT stream_name, status, last_batch_id FROM streaming_queries".to_owned(),
    }
}

/// The connections that ask.
struct Readers {
    tasks: Vec<tokio::task::JoinHandle<Result<Vec<Duration>>>>,
    stop: tokio::sync::watch::Sender<bool>,
}

impl Readers {
    async fn start(server: &ServerProcess, clock: &ClockRef) -> Result<Self> {
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let mut tasks = Vec::with_capacity(CONNECTIONS);
        for connection in 0..CONNECTIONS {
            let client = server.connect().await?;
            let (stopped, clock) = (stopped.clone(), clock.clone());
            tasks.push(tokio::spawn(reader(client, connection, stopped, clock)));
        }
        Ok(Self { tasks, stop })
    }

    /// The times of all queries.
    async fn stop(self) -> Result<Vec<Duration>> {
        self.stop.send_replace(true);
        let mut all = Vec::new();
        for task in self.tasks {
            let times = task.await.map_err(|e| Error::internal(e.to_string()))?;
            all.extend(times?);
        }
        Ok(all)
    }
}

async fn reader(
    client: Client,
    connection: usize,
    mut stopped: tokio::sync::watch::Receiver<bool>,
    clock: ClockRef,
) -> Result<Vec<Duration>> {
    let pause = ROUND / QUERIES_PER_ROUND;
    let mut due = tokio::time::interval(pause);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // Not all at the same instant.
    tokio::time::sleep(pause * connection as u32 / CONNECTIONS as u32).await;
    let mut times = Vec::new();
    for turn in 0.. {
        tokio::select! {
            _ = due.tick() => {}
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
        let start = clock.monotonic();
        let asked = client.simple_query(&panel(connection, turn)).await;
        asked.map_err(|e| wire_error(&e))?;
        times.push(clock.monotonic() - start);
    }
    Ok(times)
}

async fn execute(client: &Client, sql: &str) -> Result<()> {
    client.batch_execute(sql).await.map_err(|e| wire_error(&e))
}

fn number(text: &str) -> Result<u64> {
    let parsed = text.parse();
    parsed.map_err(|_| Error::internal(format!("{text:?} is no number")))
}

/// Of ascending times, the one that a part of them does not exceed.
fn quantile(times: &[Duration], part: f64) -> Duration {
    let at = (times.len().saturating_sub(1) as f64 * part) as usize;
    times.get(at).copied().unwrap_or_default()
}
