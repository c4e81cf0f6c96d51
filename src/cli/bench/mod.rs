//! `tidemill bench`: the workloads of `bench/README.md` on this build, each beside its yardstick in
//! the same run on the same cores.
//!
//! Absolute times drift between machines and runs; what counts is the ratio of a row. Each
//! workload prints one line of a Markdown table. Workloads that measure the process (idle cost,
//! restart, memory) start the real server as a process of its own.

mod footprint;
mod freshness;
mod json;
mod keyed;
mod nexmark;
mod process;
mod serving;

use std::time::Duration;

use crate::clock::ClockRef;
use crate::database::{Database, DatabaseOptions};
use crate::error::{Error, Result, sqlstate};

/// Workloads by name, in the order in which `all` runs them.
pub const WORKLOADS: [&str; 8] = [
    "keyed",
    "json",
    "freshness",
    "idle",
    "restart",
    "memory",
    "change",
    "serving",
];

/// Workloads with a table of their own, which `all` leaves out: `tidemill bench nexmark q4 q9`.
const NEXMARK: [&str; 2] = ["nexmark", "nexmark-memory"];

/// A row of the table.
pub(super) struct Measured {
    pub workload: String,
    pub figure: String,
    pub yardstick: String,
    pub ratio: String,
    pub bar: &'static str,
    pub met: bool,
}

/// Runs the named workloads (none: all) and prints their rows.
pub async fn run(names: &[String], clock: &ClockRef) -> Result<()> {
    let names: Vec<&str> = if names.is_empty() {
        WORKLOADS.to_vec()
    } else {
        names.iter().map(String::as_str).collect()
    };
    if let [workload, queries @ ..] = &names[..]
        && NEXMARK.contains(workload)
    {
        return match *workload {
            "nexmark" => nexmark::run(queries, clock).await,
            _ => nexmark::run_in_little_memory(queries, clock).await,
        };
    }
    print("| workload | Tidemill | yardstick in the same run | ratio | bar | met |");
    print("|---|---|---|---|---|---|");
    for name in names {
        let measured = match name {
            "keyed" => keyed::run(clock).await?,
            "json" => json::run(clock).await?,
            "freshness" => freshness::run(clock).await?,
            "idle" => footprint::idle(clock).await?,
            "restart" => footprint::restart(clock).await?,
            "memory" => footprint::memory(clock).await?,
            "change" => nexmark::change::run(clock).await?,
            "serving" => serving::run(clock).await?,
            other => {
                return Err(Error::new(
                    sqlstate::INVALID_PARAMETER_VALUE,
                    format!("there is no workload \"{other}\""),
                )
                .hint(format!(
                    "Use one of: {}, {}.",
                    WORKLOADS.join(", "),
                    NEXMARK.join(", ")
                )));
            }
        };
        for m in measured {
            let met = if m.met { "yes" } else { "no" };
            print(&format!(
                "| {} | {} | {} | {} | {} | {met} |",
                m.workload, m.figure, m.yardstick, m.ratio, m.bar
            ));
        }
    }
    Ok(())
}

#[allow(clippy::print_stdout)]
fn print(line: &str) {
    println!("{line}");
}

/// An embedded database over a new folder, which is deleted with the guard.
pub(super) async fn embedded() -> Result<(tempfile::TempDir, Database)> {
    let dir = tempfile::tempdir()?;
    let database = Database::open(dir.path(), DatabaseOptions::default()).await?;
    Ok((dir, database))
}

/// The median of some durations.
pub(super) fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// Rows per second in words.
pub(super) fn rate(rows: u64, time: Duration) -> String {
    format!("{:.2} M rows/s", rows as f64 / time.as_secs_f64() / 1e6)
}
