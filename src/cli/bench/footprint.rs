//! What the process costs: idle, at a restart with 1 GB of state, and with state four times the
//! memory limit.

use std::time::Duration;

use tokio_postgres::Client;

use super::Measured;
use super::process::{cpu_time, memory_bytes, value};
use crate::cli::server_process::ServerProcess;
use crate::cli::sql::wire_error;
use crate::clock::ClockRef;
use crate::error::{Error, Result};

/// Groups of the state at a restart, and of that in little memory.
const RESTART_KEYS: u64 = 2_500_000;
const MEMORY_KEYS: u64 = 10_000_000;

/// What every measured server may use.
const OPTIONS: [&str; 2] = ["--memory-limit", "1GiB"];

async fn execute(client: &Client, sql: &str) -> Result<()> {
    client.batch_execute(sql).await.map_err(|e| wire_error(&e))
}

/// A server with ten views and nothing to do; and its start.
pub(super) async fn idle(clock: &ClockRef) -> Result<Vec<Measured>> {
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let mut server = ServerProcess::start(&data, &OPTIONS).await?;
    let client = server.connect().await?;
    execute(
        &client,
        "CREATE STREAM s (k BIGINT, v BIGINT); CREATE TABLE t (k BIGINT PRIMARY KEY, v BIGINT)",
    )
    .await?;
    for i in 0..10 {
        execute(&client, &format!("CREATE MATERIALIZED VIEW v{i} AS SELECT s.k, count(*) AS n, sum(t.v) AS total FROM s JOIN t ON s.k = t.k GROUP BY s.k")).await?;
    }
    execute(&client, "INSERT INTO s SELECT i % 100, i FROM generate_series(1, 10000) AS g(i); INSERT INTO t SELECT i, i FROM generate_series(0, 99) AS g(i); FLUSH").await?;
    drop(client);
    server.kill().await?;
    let start = clock.monotonic();
    let server = ServerProcess::start(&data, &OPTIONS).await?;
    let ready = clock.monotonic() - start;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = cpu_time(&server)?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let core = (cpu_time(&server)? - before).as_secs_f64() / 10.0 * 100.0;
    let resident = memory_bytes(&server, "VmRSS")? as f64 / 1e6;
    let row = |workload: &str, figure: String, bar, met| Measured {
        workload: workload.to_owned(),
        figure,
        yardstick: String::new(),
        ratio: String::new(),
        bar,
        met,
    };
    Ok(vec![
        row(
            "idle with ten views: resident",
            format!("{resident:.0} MB"),
            "< 100 MB",
            resident < 100.0,
        ),
        row(
            "idle with ten views: CPU",
            format!("{core:.2} % of a core"),
            "< 1 %",
            core < 1.0,
        ),
        row(
            "start to ready, ten views",
            format!("{} ms", ready.as_millis()),
            "< 300 ms",
            ready < Duration::from_millis(300),
        ),
    ])
}

/// Digests in the text of a group: nothing that a fast compression could make smaller.
const DIGESTS: u64 = 6;

/// Fills one view with `keys` groups: each takes about 230 bytes as a group and as many as a row of
/// the view.
async fn fill(client: &Client, keys: u64) -> Result<()> {
    let digests = (0..DIGESTS).map(|i| format!("md5((id + {i}000000000)::text)"));
    let text = digests.collect::<Vec<_>>().join(" || ");
    execute(
        client,
        &format!(
            "CREATE STREAM g (id BIGINT) WITH (connector = 'generator', kind = 'sequence', rows = {keys}, max_offsets_per_trigger = 500000);
             CREATE STREAM more (id BIGINT);
             CREATE MATERIALIZED VIEW big WITH (trigger = 'continuous') AS
               SELECT id, count(*) AS n, sum(id) AS total, max(text) AS text
               FROM (SELECT id, {text} AS text FROM g
                     UNION ALL SELECT id, 'more' AS text FROM more) x
               GROUP BY id"
        ),
    )
    .await?;
    loop {
        let taken = value(
            client,
            "SELECT backlog_rows FROM streaming_sources WHERE source_name = 'g'",
        )
        .await?;
        if taken == "0" {
            return execute(client, "FLUSH").await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Bytes of the only pipeline's state in memory and on disk.
async fn state_bytes(client: &Client) -> Result<f64> {
    let sql = "SELECT (state_memory_bytes + state_disk_bytes)::text FROM streaming_pipelines";
    let bytes = value(client, sql).await?;
    bytes
        .parse()
        .map_err(|_| Error::internal(format!("the state has {bytes:?} bytes")))
}

/// `kill -9` with 1 GB of state; the time to the first new batch.
pub(super) async fn restart(clock: &ClockRef) -> Result<Vec<Measured>> {
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let mut server = ServerProcess::start(&data, &OPTIONS).await?;
    let client = server.connect().await?;
    fill(&client, RESTART_KEYS).await?;
    let bytes = state_bytes(&client).await?;
    drop(client);
    server.kill().await?;
    let start = clock.monotonic();
    let server = ServerProcess::start(&data, &OPTIONS).await?;
    let client = server.connect().await?;
    execute(&client, "INSERT INTO more VALUES (17); WAIT FOR big").await?;
    let time = clock.monotonic() - start;
    let n = value(&client, "SELECT n::text FROM big WHERE id = 17").await?;
    if n != "2" {
        return Err(Error::internal(format!(
            "the row has n = {n:?} after the restart, not 2"
        )));
    }
    Ok(vec![Measured {
        workload: format!(
            "restart after kill -9 to the first new batch, {:.1} GB of state",
            bytes / 1e9
        ),
        figure: format!("{} ms", time.as_millis()),
        yardstick: String::new(),
        ratio: String::new(),
        bar: "< 1 s",
        met: time < Duration::from_secs(1),
    }])
}

/// State of 4 GB under a limit of 1 GiB.
pub(super) async fn memory(clock: &ClockRef) -> Result<Vec<Measured>> {
    let dir = tempfile::tempdir()?;
    let data = dir.path().join("data");
    let server = ServerProcess::start(&data, &OPTIONS).await?;
    let client = server.connect().await?;
    let start = clock.monotonic();
    fill(&client, MEMORY_KEYS).await?;
    let time = clock.monotonic() - start;
    let sum = value(
        &client,
        "SELECT count(*)::text || ' ' || sum(total)::text FROM big",
    )
    .await?;
    let expected = format!(
        "{MEMORY_KEYS} {}",
        u128::from(MEMORY_KEYS) * (u128::from(MEMORY_KEYS) - 1) / 2
    );
    let peak = memory_bytes(&server, "VmHWM")? as f64 / (1u64 << 30) as f64;
    let bytes = state_bytes(&client).await?;
    Ok(vec![Measured {
        workload: format!("state of {:.1} GB under --memory-limit 1GiB", bytes / 1e9),
        figure: format!(
            "peak {peak:.2} GiB resident; answer {}; {:.0} s",
            if sum == expected { "right" } else { "wrong" },
            time.as_secs_f64()
        ),
        yardstick: String::new(),
        ratio: String::new(),
        bar: "≤ 1.2 GiB, right answers",
        met: peak <= 1.2 && sum == expected,
    }])
}
