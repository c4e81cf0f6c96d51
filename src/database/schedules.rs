//! Recovery drills by schedule: `CREATE RECOVERY SCHEDULE`.
//!
//! One task looks every second, by the database's clock, which schedules are due, and runs their drills one
//! after the other; a drill is as if a user had said `RUN RECOVERY DRILL`. That it began is remembered before
//! it runs: a drill that brings the process down is not tried again at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::DatabaseParts;
use crate::catalog::Catalog;
use crate::catalog::schedule::ScheduleDefinition;
use crate::catalog::snapshot::CatalogSnapshot;
use crate::engine::drilling::Fault;
use crate::error::{Error, Result};
use crate::session::trials::{record_failed_drill, run_drills};

/// How often it is looked whether a drill is due.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs what is due until the database is gone.
pub(super) async fn run(catalog: Arc<Catalog>, parts: Weak<DatabaseParts>) {
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if parts.strong_count() == 0 {
            return;
        }
        // Nothing is held while nobody asks for drills: the database is to be gone when its last user is.
        let definitions = catalog.snapshot();
        if definitions.schedules().next().is_none() {
            continue;
        }
        let Some(parts) = parts.upgrade() else {
            return;
        };
        for name in due_now(&parts, &definitions) {
            if let Some(schedule) = definitions.schedule(&name) {
                drill(&parts, &definitions, &name, schedule).await;
            }
        }
    }
}

fn due_now(parts: &DatabaseParts, definitions: &CatalogSnapshot) -> Vec<String> {
    let mut last_us = BTreeMap::new();
    for (name, _) in definitions.schedules() {
        match parts.history.schedule_run(name) {
            Ok(at_us) => last_us.insert(name.clone(), at_us),
            Err(error) => {
                tracing::error!(schedule = %name, %error, "could not read when a drill last ran");
                return Vec::new();
            }
        };
    }
    let last_of = |name: &str| last_us.get(name).copied().flatten();
    due(definitions.schedules(), last_of, parts.clock.now_us())
}

/// The schedules whose time has come, the one that waits longest first.
fn due<'a>(
    schedules: impl Iterator<Item = (&'a String, &'a ScheduleDefinition)>,
    last_us: impl Fn(&str) -> Option<i64>,
    now_us: i64,
) -> Vec<String> {
    let mut due: Vec<(i64, &String)> = schedules
        .map(|(name, schedule)| (schedule.next_us(last_us(name)), name))
        .filter(|(next_us, _)| *next_us <= now_us)
        .collect();
    due.sort();
    due.into_iter().map(|(_, name)| name.clone()).collect()
}

/// Runs a schedule's drills. One that cannot be run is a failed drill: nobody reads an error here.
async fn drill(
    parts: &Arc<DatabaseParts>,
    definitions: &CatalogSnapshot,
    name: &str,
    schedule: &ScheduleDefinition,
) {
    let now_us = parts.clock.now_us();
    if let Err(error) = parts.history.put_schedule_run(name, now_us) {
        tracing::error!(schedule = %name, %error, "could not remember that a drill ran");
        return;
    }
    let pipeline = definitions.scheduled_pipeline(schedule);
    let pipeline = pipeline.unwrap_or(&schedule.target).to_owned();
    match drills_of(parts, &pipeline, schedule, name).await {
        Ok(drills) => tracing::info!(schedule = %name, pipeline, drills, "recovery drills ran"),
        Err(error) => {
            tracing::warn!(schedule = %name, pipeline, %error, "a recovery drill could not be run");
            record_failed_drill(parts, &pipeline, name, &error);
        }
    }
}

async fn drills_of(
    parts: &Arc<DatabaseParts>,
    pipeline: &str,
    schedule: &ScheduleDefinition,
    name: &str,
) -> Result<usize, Error> {
    let faults = Fault::named(schedule.faults.as_deref())?;
    let drills = run_drills(parts, pipeline, &faults, Some(name)).await?;
    Ok(drills.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_in_the_order_in_which_it_became_so() {
        const DAY_US: i64 = 86_400_000_000;
        let every = |days: i64, created_at_us: i64| ScheduleDefinition {
            target: "v".into(),
            faults: None,
            every: format!("{days} days"),
            created_at_us,
        };
        let schedules = BTreeMap::from([
            ("a".to_owned(), every(7, 0)),
            ("b".to_owned(), every(2, 0)),
            ("c".to_owned(), every(30, 0)),
            ("d".to_owned(), every(1, 0)),
        ]);
        let last = |name: &str| (name == "d").then_some(8 * DAY_US);
        let at = |now_us: i64| due(schedules.iter(), last, now_us);
        assert!(at(DAY_US).is_empty());
        assert_eq!(at(8 * DAY_US), ["b", "a"]);
        assert_eq!(at(9 * DAY_US), ["b", "a", "d"]);
        // One made again under its old name does not inherit when that one ran.
        let again = every(7, 20 * DAY_US);
        assert_eq!(again.next_us(Some(9 * DAY_US)), 27 * DAY_US);
    }
}
