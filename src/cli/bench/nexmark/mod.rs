//! Nexmark, query by query: events of the streams that a query reads, per second of CPU time and
//! per second, with a checkpoint every batch.
//!
//! Each query runs as a stored view, and again with a sink that takes its changes and forgets them.
//! CPU time is the whole process's, so the generator, the checkpoint and the local state's own
//! threads are in it, and "per core" does not hang on what else runs on the machine. `nexmark-memory`
//! runs the queries with a fifth of the memory that their state takes. What a small batch costs on
//! much state is in [`change`].

pub(super) mod change;
mod queries;

use std::time::Duration;

use self::queries::{EVENTS_PER_EPOCH, Query, SIDE_INPUT, STREAMS, queries, streams};
use super::keyed::number_of;
use super::print;
use super::process::own_cpu_time;
use crate::clock::ClockRef;
use crate::database::{Database, DatabaseOptions};
use crate::error::{Error, Result, sqlstate};

/// Events of all kinds; a query over the rare ones alone reads more, so that it takes long enough
/// to be measured.
const EVENTS: u64 = 10_000_000;
const EVENTS_OF_RARE: u64 = 100_000_000;
/// Events a batch, of the kinds that a query reads.
const ROWS_PER_BATCH: u64 = 500_000;
/// State smaller than this is in memory whatever the limit.
const STATE_BYTES_MIN: u64 = 64 << 20;

/// Million rows a second and core that a query is to reach.
fn bar(query: &str) -> Option<f64> {
    match query {
        "q0" | "q1" | "q2" | "q14" | "q21" | "q22" => Some(2.0),
        "q3" | "q8" | "q13" | "q17" => Some(1.0),
        "q5" | "q12" | "q15" | "q18" | "q19" => Some(0.4),
        "q4" | "q7" | "q9" | "q11" | "q16" | "q20" => Some(0.2),
        _ => None,
    }
}

/// What takes a view's changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taker {
    Nobody,
    Sink,
}

/// One run of one query.
struct Taken {
    rows: u64,
    wall: Duration,
    cpu: Duration,
    state_bytes: u64,
}

impl Taken {
    fn per_core(&self) -> f64 {
        self.rows as f64 / self.cpu.as_secs_f64().max(1e-3) / 1e6
    }

    fn per_second(&self) -> f64 {
        self.rows as f64 / self.wall.as_secs_f64().max(1e-3) / 1e6
    }
}

/// Runs the named queries (none: all).
pub(super) async fn run(names: &[&str], clock: &ClockRef) -> Result<()> {
    print(
        "| query | what it asks | rows read | stored view: M rows/s per core | M rows/s | with a sink: M rows/s per core | M rows/s | bar per core | met |",
    );
    print("|---|---|---|---|---|---|---|---|---|");
    for query in chosen(names)? {
        let stored = once(&query, Taker::Nobody, None, clock).await?;
        let sunk = once(&query, Taker::Sink, None, clock).await?;
        let bar = bar(query.name);
        let met = match bar {
            Some(bar) if stored.per_core().min(sunk.per_core()) >= bar => "yes",
            Some(_) => "no",
            None => "",
        };
        print(&format!(
            "| {} | {} | {:.1} M | {:.2} | {:.2} | {:.2} | {:.2} | {} | {met} |",
            query.name,
            query.asks,
            stored.rows as f64 / 1e6,
            stored.per_core(),
            stored.per_second(),
            sunk.per_core(),
            sunk.per_second(),
            bar.map(|bar| format!("≥ {bar}")).unwrap_or_default(),
        ));
    }
    Ok(())
}

/// Runs the named queries (none: all) with enough memory and with a fifth of their state.
pub(super) async fn run_in_little_memory(names: &[&str], clock: &ClockRef) -> Result<()> {
    print(
        "| query | state | memory limit | M rows/s per core | with enough memory | ratio | bar | met |",
    );
    print("|---|---|---|---|---|---|---|---|");
    for query in chosen(names)? {
        let enough = once(&query, Taker::Nobody, None, clock).await?;
        if enough.state_bytes < STATE_BYTES_MIN {
            continue;
        }
        let limit = enough.state_bytes / 5;
        let little = once(&query, Taker::Nobody, Some(limit), clock).await?;
        let met = bar(query.name).map(|bar| little.per_core() >= bar / 4.0);
        print(&format!(
            "| {} | {} MB | {} MB | {:.2} | {:.2} | {:.2} | {} | {} |",
            query.name,
            little.state_bytes / 1_000_000,
            limit / 1_000_000,
            little.per_core(),
            enough.per_core(),
            little.per_core() / enough.per_core(),
            bar(query.name)
                .map(|bar| format!("≥ {}", bar / 4.0))
                .unwrap_or_default(),
            met.map_or("", |met| if met { "yes" } else { "no" }),
        ));
    }
    Ok(())
}

fn chosen(names: &[&str]) -> Result<Vec<Query>> {
    let all = queries();
    if let Some(unknown) = names
        .iter()
        .find(|name| !all.iter().any(|query| query.name == **name))
    {
        return Err(Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("there is no Nexmark query \"{unknown}\""),
        ));
    }
    let is_chosen = |query: &Query| names.is_empty() || names.contains(&query.name);
    Ok(all.into_iter().filter(is_chosen).collect())
}

/// Events to generate for a query, events a batch, and rows of its streams among all.
fn sizes(query: &Query) -> (u64, u64, u64) {
    let shares = STREAMS.iter().filter(|(stream, _, _)| query.reads(stream));
    let share: u64 = shares.map(|(_, share, _)| share).sum();
    let events = match query.reads("bid") {
        true => EVENTS,
        false => EVENTS_OF_RARE,
    };
    let of_streams = |events: u64| events * share / EVENTS_PER_EPOCH;
    (
        events,
        ROWS_PER_BATCH * EVENTS_PER_EPOCH / share,
        of_streams(events),
    )
}

async fn once(
    query: &Query,
    taker: Taker,
    memory_bytes: Option<u64>,
    clock: &ClockRef,
) -> Result<Taken> {
    let dir = tempfile::tempdir()?;
    let mut options = DatabaseOptions::default();
    if let Some(bytes) = memory_bytes {
        options.memory_limit_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    }
    let database = Database::open(dir.path(), options).await?;
    let (events, events_per_batch, rows) = sizes(query);
    database
        .execute(&streams(events, events_per_batch, ""))
        .await?;
    if query.select.contains("side_input") {
        database.execute(SIDE_INPUT).await?;
    }
    let sink = match taker {
        Taker::Nobody => "",
        Taker::Sink => "CREATE SINK k FROM v WITH (connector = 'blackhole');",
    };
    // The sink is there before the first batch, as the view is stopped until then.
    let start = clock.monotonic();
    let cpu = own_cpu_time()?;
    database
        .execute(&format!(
            "BEGIN; CREATE MATERIALIZED VIEW v WITH (trigger = 'continuous') AS {}; {sink} COMMIT;
             REFRESH MATERIALIZED VIEW v",
            query.select
        ))
        .await?;
    let wall = clock.monotonic() - start;
    let cpu = own_cpu_time()?.saturating_sub(cpu);
    let bytes =
        "SELECT (state_memory_bytes + state_disk_bytes)::bigint AS bytes FROM streaming_pipelines";
    let state_bytes = number_of(&database.query(bytes).await?).unwrap_or(0);
    database.close().await?;
    Ok(Taken {
        rows,
        wall,
        cpu,
        state_bytes,
    })
}
