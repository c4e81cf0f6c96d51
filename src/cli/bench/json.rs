//! Filter and projection of JSON lines, beside what arrow-json alone decodes from the same bytes
//! on one thread and on all cores.

use std::io::{BufReader, Write};
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::json::ReaderBuilder;

use super::keyed::expect_rows;
use super::{Measured, embedded, median, rate};
use crate::clock::ClockRef;
use crate::error::Result;

const ROWS: u64 = 2_000_000;
const FILES: u64 = 8;
const RUNS: usize = 3;

pub(super) async fn run(clock: &ClockRef) -> Result<Vec<Measured>> {
    let input = tempfile::tempdir()?;
    for file in 0..FILES {
        write_file(&input.path().join(format!("{file}.json")), file)?;
    }
    let mut ours = Vec::new();
    let mut alone = Vec::new();
    let mut parallel = Vec::new();
    for _ in 0..RUNS {
        ours.push(tidemill_once(clock, input.path()).await?);
        alone.push(decode_once(clock, input.path(), 1)?);
        parallel.push(decode_once(clock, input.path(), 2)?);
    }
    let (ours, alone, parallel) = (median(ours), median(alone), median(parallel));
    let row = |yardstick: Duration, what: &str| {
        let ratio = yardstick.as_secs_f64() / ours.as_secs_f64();
        Measured {
            workload: format!("filter and projection of JSON lines, {ROWS} rows, stored view"),
            figure: rate(ROWS, ours),
            yardstick: format!("{} (arrow-json alone, {what})", rate(ROWS, yardstick)),
            ratio: format!("{ratio:.2}"),
            bar: "≥ 0.8",
            met: ratio >= 0.8,
        }
    };
    Ok(vec![row(alone, "one thread"), row(parallel, "two threads")])
}

fn write_file(path: &std::path::Path, file: u64) -> Result<()> {
    let mut out = std::io::BufWriter::new(std::fs::File::create(path)?);
    let rows = ROWS / FILES;
    for i in file * rows..(file + 1) * rows {
        writeln!(
            out,
            "{{\"id\": {i}, \"user_id\": {}, \"url\": \"/page/{}\", \"amount\": {}.5, \"at\": \"2026-01-01T00:{:02}:{:02}Z\"}}",
            i % 10_007,
            i % 317,
            i % 1000,
            i / 60 % 60,
            i % 60
        )?;
    }
    out.flush()?;
    Ok(())
}

async fn tidemill_once(clock: &ClockRef, input: &std::path::Path) -> Result<Duration> {
    let (_dir, database) = embedded().await?;
    database
        .execute(&format!(
            "CREATE STREAM e (id BIGINT, user_id BIGINT, url TEXT, amount DOUBLE PRECISION, at TIMESTAMPTZ)
             WITH (connector = 'files', location = '{}', format = 'json')",
            input.display()
        ))
        .await?;
    let start = clock.monotonic();
    database
        .execute(
            "CREATE MATERIALIZED VIEW v WITH (trigger = 'continuous') AS
               SELECT id, user_id, url, amount * 2 AS double_amount, at FROM e WHERE amount > 100;
             REFRESH MATERIALIZED VIEW v",
        )
        .await?;
    let time = clock.monotonic() - start;
    let kept = (0..ROWS).filter(|i| i % 1000 >= 100).count() as u64;
    expect_rows(&database.query("SELECT count(*) AS n FROM v").await?, kept)?;
    database.close().await?;
    Ok(time)
}

fn decode_once(clock: &ClockRef, input: &std::path::Path, threads: u64) -> Result<Duration> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, true),
        Field::new("user_id", DataType::Int64, true),
        Field::new("url", DataType::Utf8, true),
        Field::new("amount", DataType::Float64, true),
        Field::new("at", crate::types::SqlType::TimestampTz.to_arrow(), true),
    ]));
    let start = clock.monotonic();
    let share = |thread: u64| -> Result<()> {
        for file in (thread..FILES).step_by(threads as usize) {
            let reader = BufReader::with_capacity(
                1 << 20,
                std::fs::File::open(input.join(format!("{file}.json")))?,
            );
            for batch in ReaderBuilder::new(Arc::clone(&schema))
                .with_batch_size(8192)
                .build(reader)?
            {
                std::hint::black_box(batch?);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let share = &share;
        let workers: Vec<_> = (0..threads)
            .map(|t| scope.spawn(move || share(t)))
            .collect();
        workers.into_iter().try_for_each(|w| {
            w.join()
                .map_err(|_| crate::error::Error::internal("a decoding thread panicked"))?
        })
    })?;
    Ok(clock.monotonic() - start)
}
