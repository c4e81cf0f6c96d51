//! The figures of one batch: where its time went, and the rows of `streaming_metrics_log`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::clock::ClockRef;
use crate::error::Error;

/// Splits a batch's time into phases without a gap: what one lap ends, the next begins, so the
/// phases add up to the whole.
pub(super) struct Stopwatch {
    clock: ClockRef,
    last: Duration,
    pub phases: Phases,
}

/// Time per phase of a batch.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Phases {
    pub latest_offset: Duration,
    pub query_planning: Duration,
    pub wal_commit: Duration,
    pub get_batch: Duration,
    pub add_batch: Duration,
    pub state_commit: Duration,
    pub commit_offsets: Duration,
}

impl Phases {
    /// The whole of it: the sum of the phases as they are told, so that they add up exactly.
    pub fn total(&self) -> Duration {
        [
            self.latest_offset,
            self.query_planning,
            self.wal_commit,
            self.get_batch,
            self.add_batch,
            self.state_commit,
            self.commit_offsets,
        ]
        .into_iter()
        .map(told)
        .sum()
    }
}

impl Stopwatch {
    pub fn start(clock: &ClockRef) -> Self {
        Self {
            clock: clock.clone(),
            last: clock.monotonic(),
            phases: Phases::default(),
        }
    }

    /// Books the time since the last lap to a phase.
    pub fn lap(&mut self, phase: fn(&mut Phases) -> &mut Duration) {
        let now = self.clock.monotonic();
        *phase(&mut self.phases) += now.saturating_sub(self.last);
        self.last = now;
    }
}

/// Figures of one view in one batch.
#[derive(Debug, Clone, Default)]
pub(super) struct ViewFigures {
    pub input_rows: u64,
    pub output_rows: u64,
    pub late_rows: u64,
    /// Rows on which an expression failed, and the error of the first.
    pub error_rows: u64,
    pub error: Option<Error>,
    pub state_rows: u64,
    pub state_rows_updated: u64,
    pub state_rows_removed: u64,
    pub state_memory_bytes: u64,
}

/// Figures that all views of a batch share.
#[derive(Debug, Clone)]
pub(super) struct BatchFigures {
    pub pipeline: String,
    pub run_id: String,
    pub batch_id: u64,
    pub batch_started_at_us: i64,
    pub since_last_start: Option<Duration>,
    pub expectation_failed_rows: u64,
    pub dead_letter_rows: u64,
    /// Rows with fields that no column takes.
    pub unknown_field_rows: u64,
    /// Rows of which something went into `_rescued_data`.
    pub rescued_rows: u64,
    pub state_disk_bytes: u64,
    pub checkpoint_bytes: u64,
    pub watermark: Option<i64>,
    /// Of views that are behind it.
    pub view_watermarks: BTreeMap<String, Option<i64>>,
    pub event_time_min: Option<i64>,
    pub event_time_max: Option<i64>,
    pub backlog_rows: Option<u64>,
    pub backlog_bytes: Option<u64>,
    pub replayed: bool,
}

/// A phase as it is told: whole microseconds, at least one.
fn told(duration: Duration) -> Duration {
    Duration::from_micros((duration.as_micros() as u64).max(1))
}

/// Milliseconds with three digits, and never 0 for work that was done: dashboards divide by it.
fn milliseconds(duration: Duration) -> Value {
    let us = told(duration).as_micros();
    json!(format!("{}.{:03}", us / 1000, us % 1000))
}

fn per_second(rows: u64, duration: Duration) -> Value {
    let seconds = duration.as_secs_f64();
    if seconds > 0.0 {
        json!((rows as f64 / seconds * 10.0).round() / 10.0)
    } else {
        Value::Null
    }
}

/// The rows of `streaming_metrics_log` of one batch: one JSON object per view, keys as columns;
/// `*_ms` are decimal texts, `*_at` microseconds since the epoch.
pub(super) fn metrics_rows(
    batch: &BatchFigures,
    phases: &Phases,
    views: &BTreeMap<String, ViewFigures>,
) -> Vec<Value> {
    views
        .iter()
        .map(|(name, view)| {
            json!({
                "stream_name": name,
                "pipeline": batch.pipeline,
                "batch_id": batch.batch_id,
                "run_id": batch.run_id,
                "batch_started_at": batch.batch_started_at_us,
                "trigger_execution_ms": milliseconds(phases.total()),
                "latest_offset_ms": milliseconds(phases.latest_offset),
                "get_batch_ms": milliseconds(phases.get_batch),
                "query_planning_ms": milliseconds(phases.query_planning),
                "wal_commit_ms": milliseconds(phases.wal_commit),
                "add_batch_ms": milliseconds(phases.add_batch),
                "state_commit_ms": milliseconds(phases.state_commit),
                "commit_offsets_ms": milliseconds(phases.commit_offsets),
                "num_input_rows": view.input_rows,
                "num_output_rows": view.output_rows,
                "input_rows_per_second": batch.since_last_start.map_or(Value::Null, |d| per_second(view.input_rows, d)),
                "processed_rows_per_second": per_second(view.input_rows, phases.total()),
                "num_late_rows": view.late_rows,
                "num_expectation_failed_rows": batch.expectation_failed_rows,
                "num_dead_letter_rows": batch.dead_letter_rows,
                "num_error_rows": view.error_rows,
                "state_rows_total": view.state_rows,
                "state_rows_updated": view.state_rows_updated,
                "state_rows_removed": view.state_rows_removed,
                "state_memory_bytes": view.state_memory_bytes,
                "state_disk_bytes": batch.state_disk_bytes,
                "checkpoint_bytes": batch.checkpoint_bytes,
                "watermark_at": batch.view_watermarks.get(name).unwrap_or(&batch.watermark),
                "event_time_min_at": batch.event_time_min,
                "event_time_max_at": batch.event_time_max,
                "backlog_rows": batch.backlog_rows,
                "backlog_bytes": batch.backlog_bytes,
                "replayed": batch.replayed,
                "error_code": view.error.as_ref().map(Error::sqlstate),
                "error": view.error.as_ref().map(Error::primary),
                "num_rows_unknown_fields": batch.unknown_field_rows,
                "num_rows_rescued": batch.rescued_rows,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn phases_add_up_and_no_phase_of_a_row_is_zero() {
        let clock = ManualClock::at(0);
        let shared: ClockRef = clock.clone();
        let mut watch = Stopwatch::start(&shared);
        clock.advance_us(1500);
        watch.lap(|p| &mut p.latest_offset);
        clock.advance_us(2500);
        watch.lap(|p| &mut p.add_batch);
        // Five phases without time count one microsecond each.
        assert_eq!(watch.phases.total(), Duration::from_micros(4005));
        assert_eq!(milliseconds(watch.phases.latest_offset), json!("1.500"));
        assert_eq!(milliseconds(Duration::ZERO), json!("0.001"));
    }

    #[test]
    fn rates_round_to_a_tenth_and_miss_without_time() {
        assert_eq!(per_second(10, Duration::from_secs(3)), json!(3.3));
        assert_eq!(per_second(10, Duration::ZERO), Value::Null);
    }
}
