//! Schedules of recovery drills: what a user said, and when the next drill is due. Pure.
//!
//! A schedule holds the pipeline that it drills, so that it goes on when views are renamed; when pipelines become
//! one, it is that one's. What was missed while the database was down is made up for once, at the next start.

use chrono::{DateTime, Months};
use serde::{Deserialize, Serialize};

use crate::values::interval::Interval;

/// Drills come no more often than this.
const EVERY_MIN_US: i64 = 60_000_000;

/// `CREATE RECOVERY SCHEDULE`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduleDefinition {
    /// A pipeline; in older catalogs also a view or sink in it.
    pub target: String,
    /// Names of faults with commas between; `None`: all.
    pub faults: Option<String>,
    /// The interval, as it was written.
    pub every: String,
    /// Microseconds since the epoch.
    pub created_at_us: i64,
}

impl ScheduleDefinition {
    /// When the next drill is due, the last one having begun at `last_us`.
    pub fn next_us(&self, last_us: Option<i64>) -> i64 {
        // A namesake may have run before this one was made.
        let from_us = last_us.unwrap_or(i64::MIN).max(self.created_at_us);
        later(from_us, &self.every).unwrap_or(i64::MAX)
    }
}

/// A text is an interval at which drills can be made.
pub fn is_interval(every: &str) -> bool {
    later(0, every).is_some_and(|next_us| next_us >= EVERY_MIN_US)
}

/// The moment an interval after another; months are those of the calendar. `None` beyond the calendar.
fn later(from_us: i64, every: &str) -> Option<i64> {
    let every = Interval::parse(every).ok()?;
    let months = u32::try_from(every.months).ok()?;
    let at = DateTime::from_timestamp_micros(from_us)?.checked_add_months(Months::new(months))?;
    let days_us = i64::from(every.days).checked_mul(86_400_000_000)?;
    let rest_us = days_us.checked_add(every.us)?;
    at.timestamp_micros().checked_add(rest_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(text: &str) -> i64 {
        text.parse::<DateTime<chrono::Utc>>()
            .unwrap()
            .timestamp_micros()
    }

    #[test]
    fn months_are_those_of_the_calendar() {
        let schedule = ScheduleDefinition {
            target: "v".into(),
            faults: None,
            every: "1 month".into(),
            created_at_us: us("2024-01-31T12:00:00Z"),
        };
        assert_eq!(schedule.next_us(None), us("2024-02-29T12:00:00Z"));
        let last = Some(us("2024-02-29T12:00:03Z"));
        assert_eq!(schedule.next_us(last), us("2024-03-29T12:00:03Z"));
        let often = ScheduleDefinition {
            every: "1 day 02:30".into(),
            ..schedule
        };
        assert_eq!(often.next_us(None), us("2024-02-01T14:30:00Z"));
    }

    #[test]
    fn intervals_that_are_none_or_too_short_are_refused() {
        for every in ["1 month", "90 minutes", "P1W", "1 year 2 days"] {
            assert!(is_interval(every), "{every}");
        }
        for every in ["", "soon", "10 seconds", "-1 month", "0"] {
            assert!(!is_interval(every), "{every}");
        }
    }
}
