//! Decisions of a pipeline, as pure functions of facts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::connectors::ReadLimits;
use crate::error::{Error, ErrorKind, sqlstate};

/// When a pipeline starts its next batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// As soon as a row is there.
    Continuous,
    /// At most once per interval, counted from the start of the last batch.
    Interval(Duration),
    /// Run what is there, then stop.
    AvailableNow,
}

/// The default of `trigger`.
pub const DEFAULT_TRIGGER: Trigger = Trigger::Interval(Duration::from_millis(100));

/// What follows an error of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterError {
    /// Wait and try the same again.
    RetryAfter(Duration),
    /// Stay failed until someone says START.
    Fail,
}

/// Back-off before try `attempt` (1-based): doubles from 100 ms to 30 s; `jitter` in 0..1 takes
/// off up to half, so that many pipelines do not knock at the same moment.
pub fn backoff(attempt: u32, jitter: f64) -> Duration {
    let full_ms = 100u64
        .saturating_mul(1 << attempt.saturating_sub(1).min(10))
        .min(30_000);
    Duration::from_millis(full_ms - (full_ms as f64 / 2.0 * jitter.clamp(0.0, 1.0)) as u64)
}

/// Only what may go away by itself is tried again.
pub fn after_error(error: &Error, attempt: u32, jitter: f64) -> AfterError {
    match error.kind() {
        ErrorKind::Transient => AfterError::RetryAfter(backoff(attempt, jitter)),
        ErrorKind::User
        | ErrorKind::Damaged
        | ErrorKind::Fenced
        | ErrorKind::Cancelled
        | ErrorKind::Internal => AfterError::Fail,
    }
}

/// What a pipeline that waits for another try is called: it is the source's fault unless the disk
/// is full.
pub fn retry_status(error: &Error) -> &'static str {
    if error.sqlstate() == sqlstate::DISK_FULL {
        "stalled"
    } else {
        "waiting for source"
    }
}

/// An error with what helps, where its origin could not know.
pub fn with_advice(error: Error) -> Error {
    if error.hint_text().is_some() {
        return error;
    }
    match error.sqlstate() {
        sqlstate::DISK_FULL => error.hint("Make room on the disk; the pipeline goes on by itself."),
        // Class 22: a row that an expression cannot be computed for.
        state if state.starts_with("22") => error.hint(
            "Guard the expression, for example with nullif or CASE: \
             CREATE OR REPLACE MATERIALIZED VIEW … WITH (reset_state = true) AS …",
        ),
        _ => error,
    }
}

/// How several inputs' watermarks become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatermarkPolicy {
    /// The slowest input decides.
    Minimum,
    /// The fastest input decides.
    Maximum,
}

/// Facts about one watermarked input at a batch border.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatermarkInput {
    /// Largest event time seen in committed batches; `None`: no row yet.
    pub event_time_max: Option<i64>,
    /// Declared delay, in the unit of the event time.
    pub delay: i64,
    /// No row for longer than `idle_timeout`.
    pub idle: bool,
}

/// The watermark that the next batch applies. It never moves back; an input without rows holds it,
/// unless it is idle; when all are idle it stays.
pub fn next_watermark(
    current: Option<i64>,
    inputs: &[WatermarkInput],
    policy: WatermarkPolicy,
) -> Option<i64> {
    let active: Vec<Option<i64>> = inputs
        .iter()
        .filter(|i| !i.idle)
        .map(|i| i.event_time_max.map(|t| t.saturating_sub(i.delay)))
        .collect();
    let candidate = match policy {
        WatermarkPolicy::Minimum => {
            if active.iter().any(Option::is_none) {
                None
            } else {
                active.into_iter().flatten().min()
            }
        }
        WatermarkPolicy::Maximum => active.into_iter().flatten().max(),
    };
    match (current, candidate) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

/// An event time that lies more than `max_future_skew` after the batch's wall time does not move
/// the watermark beyond that bound. Both in microseconds.
pub fn clamp_event_time(
    event_time_us: i64,
    batch_at_us: i64,
    max_future_skew_us: Option<i64>,
) -> i64 {
    match max_future_skew_us {
        Some(skew) => event_time_us.min(batch_at_us.saturating_add(skew)),
        None => event_time_us,
    }
}

/// What the views of the last commit and the views of the catalog say about each view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewState {
    /// Its state is there.
    Filled,
    /// It has no state yet: fill it from its inputs' beginning in the next batch.
    Unfilled,
    /// Its state was made by another query.
    Changed,
}

/// Compares a view's fingerprint with the last commit's.
pub fn view_state(
    committed: &BTreeMap<String, String>,
    name: &str,
    fingerprint: &str,
) -> ViewState {
    match committed.get(name) {
        None => ViewState::Unfilled,
        Some(f) if f == fingerprint => ViewState::Filled,
        Some(_) => ViewState::Changed,
    }
}

/// Bytes of the state's memory budget for each row that a batch may take: a row passes through
/// its source's form, the operators' and the run's before it is only state.
const BUDGET_BYTES_PER_ROW: usize = 1024;
/// Batches are never held below this.
const BATCH_ROWS_MIN: u64 = 16 << 10;
const BATCH_BYTES_MIN: u64 = 4 << 20;

/// What one batch may take from a source whatever its options say, so that what a batch holds on
/// its way stays well below the memory that state may have.
pub fn limits_of_memory(budget_bytes: usize) -> ReadLimits {
    ReadLimits {
        max_rows: Some(((budget_bytes / BUDGET_BYTES_PER_ROW) as u64).max(BATCH_ROWS_MIN)),
        max_files: None,
        max_bytes: Some((budget_bytes as u64 / 8).max(BATCH_BYTES_MIN)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(max: Option<i64>, delay: i64, idle: bool) -> WatermarkInput {
        WatermarkInput {
            event_time_max: max,
            delay,
            idle,
        }
    }

    #[test]
    fn watermark_is_the_slowest_inputs_and_never_moves_back() {
        let min = WatermarkPolicy::Minimum;
        assert_eq!(
            next_watermark(None, &[input(Some(100), 10, false)], min),
            Some(90)
        );
        assert_eq!(
            next_watermark(Some(95), &[input(Some(100), 10, false)], min),
            Some(95)
        );
        let two = [input(Some(100), 10, false), input(Some(50), 0, false)];
        assert_eq!(next_watermark(None, &two, min), Some(50));
        assert_eq!(
            next_watermark(None, &two, WatermarkPolicy::Maximum),
            Some(90)
        );
    }

    #[test]
    fn an_input_without_rows_holds_the_watermark_unless_idle() {
        let min = WatermarkPolicy::Minimum;
        let silent = [input(Some(100), 10, false), input(None, 0, false)];
        assert_eq!(next_watermark(None, &silent, min), None);
        let idle = [input(Some(100), 10, false), input(None, 0, true)];
        assert_eq!(next_watermark(None, &idle, min), Some(90));
        assert_eq!(
            next_watermark(Some(7), &[input(Some(100), 10, true)], min),
            Some(7)
        );
    }

    #[test]
    fn one_absurd_timestamp_is_clamped() {
        assert_eq!(clamp_event_time(10_000, 100, Some(50)), 150);
        assert_eq!(clamp_event_time(120, 100, Some(50)), 120);
        assert_eq!(clamp_event_time(10_000, 100, None), 10_000);
    }

    #[test]
    fn batches_are_bounded_by_memory_but_never_tiny() {
        let limits = limits_of_memory(512 << 20);
        assert_eq!(
            (limits.max_rows, limits.max_bytes),
            (Some(512 << 10), Some(64 << 20))
        );
        let limits = limits_of_memory(1 << 20);
        assert_eq!(
            (limits.max_rows, limits.max_bytes),
            (Some(16 << 10), Some(4 << 20))
        );
    }

    #[test]
    fn backoff_doubles_to_a_bound_and_jitter_takes_at_most_half() {
        assert_eq!(backoff(1, 0.0), Duration::from_millis(100));
        assert_eq!(backoff(3, 0.0), Duration::from_millis(400));
        assert_eq!(backoff(60, 0.0), Duration::from_secs(30));
        assert_eq!(backoff(1, 1.0), Duration::from_millis(50));
    }

    #[test]
    fn only_transient_errors_are_retried() {
        let e = Error::transient("58030", "could not reach the broker");
        assert!(matches!(after_error(&e, 1, 0.0), AfterError::RetryAfter(_)));
        assert_eq!(after_error(&Error::damaged("x"), 1, 0.0), AfterError::Fail);
        assert_eq!(
            after_error(&Error::new("22012", "division by zero"), 1, 0.0),
            AfterError::Fail
        );
    }
}
