//! What a batch of 1,000 rows costs on much and on little state: it is to grow with the change, not
//! with what is kept.

use std::time::Duration;

use crate::cli::bench::keyed::{expect_rows, number_of};
use crate::cli::bench::process::own_cpu_time;
use crate::cli::bench::{Measured, embedded, median};
use crate::clock::ClockRef;
use crate::error::{Error, Result};

const ROWS_MUCH: u64 = 10_000_000;
const ROWS_LITTLE: u64 = 100_000;
const ROWS_PER_KEY: u64 = 10;
const CHANGED_ROWS: u64 = 1_000;
const BATCHES: u64 = 15;
const REST_MAX: Duration = Duration::from_secs(60);

/// The operators, each with a query over `s`, which holds the state, and `more`, where changes come.
const QUERIES: [(&str, &str); 4] = [
    (
        "aggregate",
        "SELECT key, count(*) AS n, sum(v) AS total FROM s_and_more GROUP BY key",
    ),
    (
        "join",
        "SELECT m.key, m.v, s.v AS other FROM more m JOIN s ON m.key = s.key",
    ),
    (
        "top-N",
        "SELECT key, v, n FROM (SELECT key, v, row_number() OVER (PARTITION BY key ORDER BY v DESC) AS n FROM s_and_more) x WHERE n <= 3",
    ),
    (
        "window",
        "SELECT key, v, lag(v) OVER (PARTITION BY key ORDER BY v) AS before FROM s_and_more",
    ),
];

pub(in crate::cli::bench) async fn run(clock: &ClockRef) -> Result<Vec<Measured>> {
    let mut all = Vec::new();
    for (operator, query) in QUERIES {
        let (little_wall, little) = batch_cost(query, ROWS_LITTLE, clock).await?;
        let (much_wall, much) = batch_cost(query, ROWS_MUCH, clock).await?;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let ratio = ms(much) / ms(little).max(0.1);
        all.push(Measured {
            workload: format!(
                "{operator}: a batch of 1,000 rows on 10 M rows of state, CPU (and time)"
            ),
            figure: format!("{:.1} ms ({:.1} ms)", ms(much), ms(much_wall)),
            yardstick: format!(
                "{:.1} ms ({:.1} ms) on 100 k rows",
                ms(little),
                ms(little_wall)
            ),
            ratio: format!("{ratio:.1}"),
            bar: "≤ 3",
            met: ratio <= 3.0,
        });
    }
    Ok(all)
}

/// Waits until the process has come to rest: what filling the state left to merge is not the cost of the
/// batches after it.
async fn rest(clock: &ClockRef) -> Result<()> {
    // Longer than a store waits before it copies what is on disk into memory.
    const SAMPLE: Duration = Duration::from_secs(4);
    let end = clock.monotonic() + REST_MAX;
    loop {
        let cpu = own_cpu_time()?;
        tokio::time::sleep(SAMPLE).await;
        let used = own_cpu_time()?.saturating_sub(cpu);
        if used < SAMPLE / 20 || clock.monotonic() > end {
            return Ok(());
        }
    }
}

/// Median time and CPU time of a batch of [`CHANGED_ROWS`] on `rows` of state.
async fn batch_cost(query: &str, rows: u64, clock: &ClockRef) -> Result<(Duration, Duration)> {
    let (_dir, database) = embedded().await?;
    let keys = rows / ROWS_PER_KEY;
    database
        .execute(&format!(
            "CREATE STREAM s (key BIGINT, v BIGINT) WITH (connector = 'generator', kind = 'sequence', rows = {rows}, \
               keys = {keys}, max_offsets_per_trigger = 500000);
             CREATE STREAM more (key BIGINT, v BIGINT);
             CREATE VIEW s_and_more AS SELECT key, v FROM s UNION ALL SELECT key, v FROM more;
             CREATE MATERIALIZED VIEW v WITH (trigger = 'continuous') AS {query};
             REFRESH MATERIALIZED VIEW v"
        ))
        .await?;
    rest(clock).await?;
    let (mut walls, mut cpus) = (Vec::new(), Vec::new());
    for batch in 0..BATCHES {
        // Far apart, so that they meet keys all over the state.
        let insert = format!(
            "INSERT INTO more SELECT (i * 7919 + {batch} * 104729) % {keys}, i FROM generate_series(1, {CHANGED_ROWS}) AS g(i); FLUSH"
        );
        let (start, cpu) = (clock.monotonic(), own_cpu_time()?);
        database.execute(&insert).await?;
        walls.push(clock.monotonic() - start);
        cpus.push(own_cpu_time()?.saturating_sub(cpu));
    }
    let taken = database.query("SELECT count(*) AS n FROM more").await?;
    expect_rows(&taken, BATCHES * CHANGED_ROWS)?;
    let held = number_of(&database.query("SELECT count(*) AS n FROM v").await?);
    if held.is_none_or(|held| held == 0) {
        return Err(Error::internal("the view holds nothing"));
    }
    database.close().await?;
    Ok((median(walls), median(cpus)))
}
