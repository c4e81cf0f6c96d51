//! Keyed aggregation: count, sum and average of 20 M rows over 100 k keys, 500 k rows a batch,
//! state and view committed and checkpointed every batch; beside it DataFusion's own one-shot
//! `GROUP BY` over the same Arrow batches on the same cores.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};

use super::{Measured, embedded, median, rate};
use crate::clock::ClockRef;
use crate::error::{Error, Result};

const ROWS: u64 = 20_000_000;
const RUNS: usize = 3;

fn stream() -> String {
    format!(
        "CREATE STREAM s (key BIGINT, v BIGINT) WITH (connector = 'generator', kind = 'sequence', rows = {ROWS}, \
         keys = 100000, max_offsets_per_trigger = 500000)"
    )
}

const QUERY: &str =
    "SELECT key, count(*) AS n, sum(v) AS total, avg(v) AS mean FROM s GROUP BY key";

pub(super) async fn run(clock: &ClockRef) -> Result<Vec<Measured>> {
    let (_dir, source) = embedded().await?;
    source.execute(&stream()).await?;
    let batches = source.query("SELECT * FROM s").await?;
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    for _ in 0..RUNS {
        ours.push(tidemill_once(clock).await?);
        theirs.push(datafusion_once(clock, &batches).await?);
    }
    let (ours, theirs) = (median(ours), median(theirs));
    let ratio = theirs.as_secs_f64() / ours.as_secs_f64();
    Ok(vec![Measured {
        workload: "keyed aggregation, 20 M rows, 100 k keys, checkpoint every 500 k".to_owned(),
        figure: rate(ROWS, ours),
        yardstick: format!("{} (one-shot GROUP BY)", rate(ROWS, theirs)),
        ratio: format!("{ratio:.2}"),
        bar: "≥ 0.33",
        met: ratio >= 1.0 / 3.0,
    }])
}

async fn tidemill_once(clock: &ClockRef) -> Result<std::time::Duration> {
    let (_dir, database) = embedded().await?;
    database.execute(&stream()).await?;
    let start = clock.monotonic();
    database
        .execute(&format!("CREATE MATERIALIZED VIEW v WITH (trigger = 'continuous') AS {QUERY}; REFRESH MATERIALIZED VIEW v"))
        .await?;
    let time = clock.monotonic() - start;
    let taken = database.query("SELECT sum(n)::bigint AS n FROM v").await?;
    expect_rows(&taken, ROWS)?;
    database.close().await?;
    Ok(time)
}

async fn datafusion_once(clock: &ClockRef, batches: &[RecordBatch]) -> Result<std::time::Duration> {
    let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(2));
    let schema = batches
        .first()
        .ok_or_else(|| Error::internal("the generator gave no rows"))?
        .schema();
    let half = batches.len() / 2;
    let parts = vec![batches[..half].to_vec(), batches[half..].to_vec()];
    context.register_table("s", Arc::new(MemTable::try_new(schema, parts)?))?;
    let start = clock.monotonic();
    context.sql(QUERY).await?.collect().await?;
    Ok(clock.monotonic() - start)
}

/// The only value of a result, compared with what it must be.
pub(super) fn expect_rows(result: &[RecordBatch], expected: u64) -> Result<()> {
    let got = number_of(result);
    if got == Some(expected) {
        Ok(())
    } else {
        Err(Error::internal(format!(
            "the view holds {got:?} rows, not {expected}"
        )))
    }
}

/// The only value of a result, a BIGINT.
pub(super) fn number_of(result: &[RecordBatch]) -> Option<u64> {
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::Int64Type;
    let batch = result.iter().find(|b| b.num_rows() > 0)?;
    Some(batch.column(0).as_primitive::<Int64Type>().value(0) as u64)
}
