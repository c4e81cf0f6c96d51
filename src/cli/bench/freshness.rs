//! Freshness: from the acknowledgement of a one-row `INSERT` to the moment the view shows it, with
//! trigger 'continuous' and a local checkpoint. The view is watched by SUBSCRIBE, so no polling
//! interval is in the figure.

use futures::StreamExt;

use super::{Measured, embedded};
use crate::clock::ClockRef;
use crate::error::{Error, Result};

const INSERTS: usize = 2000;

pub(super) async fn run(clock: &ClockRef) -> Result<Vec<Measured>> {
    let (_dir, database) = embedded().await?;
    database
        .execute(
            "CREATE STREAM s (k BIGINT, v BIGINT);
             CREATE MATERIALIZED VIEW v WITH (trigger = 'continuous') AS SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k;
             FLUSH",
        )
        .await?;
    let (_, mut changes) = database.subscribe("v", false).await?;
    let mut fresh = Vec::with_capacity(INSERTS);
    let mut acknowledged = Vec::with_capacity(INSERTS);
    for i in 0..INSERTS {
        let sent = clock.monotonic();
        database
            .execute(&format!("INSERT INTO s VALUES ({}, {i})", i % 100))
            .await?;
        let answered = clock.monotonic();
        changes
            .next()
            .await
            .ok_or_else(|| Error::internal("the subscription ended"))??;
        let visible = clock.monotonic();
        acknowledged.push(answered - sent);
        fresh.push(visible.saturating_sub(answered));
    }
    database.close().await?;
    fresh.sort();
    acknowledged.sort();
    let ms = |all: &[std::time::Duration], q: f64| {
        all[((all.len() - 1) as f64 * q) as usize].as_secs_f64() * 1000.0
    };
    let p99 = ms(&fresh, 0.99);
    Ok(vec![Measured {
        workload: "INSERT of one row acknowledged to visible, trigger 'continuous'".to_owned(),
        figure: format!(
            "p50 {:.2} ms, p99 {p99:.2} ms, p99.9 {:.2} ms",
            ms(&fresh, 0.5),
            ms(&fresh, 0.999)
        ),
        yardstick: format!(
            "the INSERT itself: p50 {:.2} ms, p99 {:.2} ms",
            ms(&acknowledged, 0.5),
            ms(&acknowledged, 0.99)
        ),
        ratio: String::new(),
        bar: "p99 < 5 ms",
        met: p99 < 5.0,
    }])
}
