//! Decisions of a pipeline, as pure functions of facts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::connectors::ReadLimits;
use crate::connectors::evolution::SchemaEvolution;
use crate::dataflow::row_errors::OnRowError;
use crate::error::{Error, ErrorKind, sqlstate};
use crate::sql::names::quote_identifier;

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

/// Whoever is let in by other words needs them in a connection of its own: a source or sink that was refused is
/// opened anew at the next try, with the secrets as they are then.
pub fn opens_anew(error: &Error) -> bool {
    error.sqlstate() == sqlstate::INVALID_AUTHORIZATION
}

/// What a pipeline cannot get on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blamed {
    /// A source or sink does not answer.
    Connector,
    /// The checkpoint's location, or the disk.
    Checkpoint,
}

/// What a pipeline that waits for another try is called.
pub fn retry_status(error: &Error, blamed: Blamed) -> &'static str {
    match blamed {
        Blamed::Checkpoint => "stalled",
        Blamed::Connector if error.sqlstate() == sqlstate::DISK_FULL => "stalled",
        Blamed::Connector => "waiting for source",
    }
}

/// Whether a pipeline that should be getting on has not for longer than it may. One that waits for
/// its trigger, its source or a user is silent by right.
pub fn is_stalled(status: &str, silent_us: i64, stall_timeout_us: i64) -> bool {
    matches!(status, "running" | "catching up") && silent_us > stall_timeout_us
}

/// How much (rows or bytes) the next batch may take so that it ends within `target`, given what
/// the last one took in what time; `None`: as much as there is. It shrinks at once and at most
/// doubles, and grows only after a batch that used what it was given: a good part of it where only
/// one of `sources` had anything.
pub fn pace(
    cap: Option<u64>,
    took: u64,
    duration: Duration,
    target: Duration,
    sources: usize,
) -> Option<u64> {
    if took == 0 {
        return cap;
    }
    let fitting = took as f64 * target.as_secs_f64() / duration.as_secs_f64().max(1e-6);
    let fitting = (fitting as u64).max(1);
    match cap {
        _ if duration > target => Some(cap.map_or(fitting, |cap| fitting.min(cap))),
        Some(cap) if took >= cap / (2 * sources.max(1) as u64) => {
            Some(fitting.clamp(cap, cap.saturating_mul(2)))
        }
        cap => cap,
    }
}

/// Facts about a source that a batch may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingSource {
    /// A watermark follows its rows.
    pub watermarked: bool,
    /// Rows that wait, where the source can tell.
    pub rows: Option<u64>,
}

/// The part of each source in what a batch may take. Those that a watermark follows share by what
/// waits in them, so that they come to their ends, and on the way to about the same event times,
/// together: what one is ahead of another waits in the state until the other has come. Where it is
/// not known what waits, and for all other sources, the parts are equal.
pub fn shares(sources: &[WaitingSource]) -> Vec<f64> {
    let equal = 1.0 / sources.len().max(1) as f64;
    let watermarked = sources.iter().filter(|source| source.watermarked);
    let count = watermarked.clone().count();
    let waiting: Option<u64> = watermarked.map(|source| source.rows).sum();
    let Some(waiting) = waiting.filter(|&waiting| waiting > 0) else {
        return vec![equal; sources.len()];
    };
    let share = |source: &WaitingSource| match source.rows {
        Some(rows) if source.watermarked => rows as f64 / waiting as f64 * equal * count as f64,
        _ => equal,
    };
    sources.iter().map(share).collect()
}

/// A source's part of what a batch may take of rows and bytes, and never nothing.
pub fn part_of(whole: ReadLimits, share: f64) -> ReadLimits {
    let part = |whole: u64| ((whole as f64 * share).ceil() as u64).max(1);
    ReadLimits {
        max_rows: whole.max_rows.map(part),
        max_files: whole.max_files,
        max_bytes: whole.max_bytes.map(part),
    }
}

/// An error with what helps, where its origin could not know.
pub fn with_advice(error: Error, pipeline: &str) -> Error {
    if error.hint_text().is_some() {
        return error;
    }
    match (error.sqlstate(), error.kind()) {
        (sqlstate::DISK_FULL, _) => {
            error.hint("Make room on the disk; the pipeline goes on by itself.")
        }
        // What is stored does not fit what is read: only a new beginning makes both fit.
        (_, ErrorKind::Damaged) => error.hint(format!(
            "RESET CHECKPOINT OF {} FROM EARLIEST;",
            quote_identifier(pipeline)
        )),
        _ => error,
    }
}

/// A planned batch that failed may be planned anew: nothing of it went out, since a row failed it
/// before any sink had its changes, and no batch after it builds on it. So the change that mends
/// the row can come into it.
pub fn may_plan_anew(
    error: &Error,
    batch_id: u64,
    newest_commit: Option<u64>,
    planned_batches: usize,
) -> bool {
    error.is_of_value() && Some(batch_id) > newest_commit && planned_batches <= 1
}

/// Whether new fields of a batch's records stop it until their stream has columns for them. A batch that
/// committed once is run again as it was, whatever was asked for since.
pub fn stops_for_fields(
    evolution: SchemaEvolution,
    batch_id: u64,
    newest_commit: Option<u64>,
) -> bool {
    evolution.wants_fields() && Some(batch_id) > newest_commit
}

/// Whether a view's policy for failing rows may become another over the state that it has. Under
/// `null` the state holds what failing rows brought, which only `null` takes back; under the
/// others it holds nothing of them.
pub fn may_change_row_policy(from: OnRowError, to: OnRowError) -> bool {
    match (from, to) {
        (OnRowError::Fail, _) | (OnRowError::Skip, OnRowError::Fail) => true,
        (OnRowError::Null | OnRowError::Skip, _) => from == to,
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

/// Where a view stands that is behind its pipeline's watermark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewWatermark {
    /// It applies this one.
    Behind(Option<i64>),
    /// It applies the pipeline's from now on.
    CaughtUp,
}

/// The next watermark of a view that was behind: its inputs came into the pipeline when the pipeline's
/// watermark had gone further, so that their rows would all be late by it. Until they have reached it,
/// the view goes by what they alone say; it never moves back. Where the fastest input decides, rows of
/// slower ones are late, and no view is behind.
pub fn view_watermark(
    before: Option<i64>,
    pipeline: Option<i64>,
    inputs: &[WatermarkInput],
    policy: WatermarkPolicy,
) -> ViewWatermark {
    let nothing_holds = inputs.iter().all(|input| input.idle);
    if nothing_holds || policy == WatermarkPolicy::Maximum {
        return ViewWatermark::CaughtUp;
    }
    let own = next_watermark(before, inputs, policy);
    match own < pipeline {
        true => ViewWatermark::Behind(own),
        false => ViewWatermark::CaughtUp,
    }
}

/// An event time that lies more than `max_future_skew` after the batch's wall time does not move
/// the watermark: one absurd time must not make all that follows late. In microseconds.
pub fn moves_watermark(
    event_time_us: i64,
    batch_at_us: i64,
    max_future_skew_us: Option<i64>,
) -> bool {
    max_future_skew_us.is_none_or(|skew| event_time_us <= batch_at_us.saturating_add(skew))
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

/// Between the identity of a view and the fingerprint of its plan, in a commit.
const IDENTITY_MARK: char = ':';

/// What a commit says of a view: who it is, and what its plan is.
pub fn known_by(oid: u32, fingerprint: &str) -> String {
    format!("{oid}{IDENTITY_MARK}{fingerprint}")
}

/// Compares what a view is known by with the last commit's. Another view of the name replaced the
/// one whose state is there; commits of old hold fingerprints only.
pub fn view_state(
    committed: &BTreeMap<String, String>,
    name: &str,
    fingerprint: &str,
) -> ViewState {
    match committed.get(name) {
        None => ViewState::Unfilled,
        Some(f) if f == fingerprint => ViewState::Filled,
        Some(f) => match (
            f.split_once(IDENTITY_MARK),
            fingerprint.split_once(IDENTITY_MARK),
        ) {
            (Some((one, _)), Some((other, _))) if one != other => ViewState::Unfilled,
            (None, Some((_, plan))) if f == plan => ViewState::Filled,
            _ => ViewState::Changed,
        },
    }
}

/// Bytes of the state's memory budget for each row that a batch may take: a row passes through
/// its source's form, the operators' and the run's before it is only state.
const BUDGET_BYTES_PER_ROW: usize = 1024;
/// Batches are never held below this.
const BATCH_ROWS_MIN: u64 = 16 << 10;
const BATCH_BYTES_MIN: u64 = 4 << 20;

/// Rows of a pipeline's first batch at most: what a row becomes is not known yet.
const FIRST_BATCH_ROWS: u64 = 128 << 10;
/// The part of the budget that a batch's run may be, as a divisor: the rows on their way, the
/// operators' new state, the run and its file form are each as large, and the commit before is
/// still being written.
const RUN_DIVISOR: usize = 24;
/// Whatever a row becomes, a batch may take this many.
const WIDE_ROWS_MIN: u64 = 256;

/// What one batch may take for each source whatever the options say, so that what a batch holds on
/// its way stays well below the memory that state may have. `written_bytes` is what the batches
/// before wrote to the state for each row that they took.
pub fn limits_of_memory(budget_bytes: usize, written_bytes: Option<u64>) -> ReadLimits {
    let by_form = ((budget_bytes / BUDGET_BYTES_PER_ROW) as u64).max(BATCH_ROWS_MIN);
    let by_state = match written_bytes {
        None => FIRST_BATCH_ROWS,
        Some(bytes) => ((budget_bytes / RUN_DIVISOR) as u64 / bytes.max(1)).max(WIDE_ROWS_MIN),
    };
    ReadLimits {
        max_rows: Some(by_form.min(by_state)),
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
    fn a_view_is_known_by_its_identity_and_its_plan() {
        let of = |committed: &str, now: &str| {
            let committed = BTreeMap::from([("v".to_owned(), committed.to_owned())]);
            view_state(&committed, "v", now)
        };
        let now = known_by(7, "abc");
        assert_eq!(of(&now, &now), ViewState::Filled);
        assert_eq!(of(&known_by(7, "def"), &now), ViewState::Changed);
        // Another view of the name was replaced, with or without another plan.
        assert_eq!(of(&known_by(6, "def"), &now), ViewState::Unfilled);
        assert_eq!(of(&known_by(6, "abc"), &now), ViewState::Unfilled);
        // As commits of old had it.
        assert_eq!(of("abc", &now), ViewState::Filled);
        assert_eq!(of("def", &now), ViewState::Changed);
        assert_eq!(view_state(&BTreeMap::new(), "v", &now), ViewState::Unfilled);
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
    fn a_view_is_behind_until_its_own_inputs_have_caught_up() {
        let next = |before, pipeline, inputs: &[WatermarkInput]| {
            view_watermark(before, pipeline, inputs, WatermarkPolicy::Minimum)
        };
        let behind = ViewWatermark::Behind;
        let caught_up = ViewWatermark::CaughtUp;
        assert_eq!(
            next(None, Some(100), &[input(None, 0, false)]),
            behind(None)
        );
        let slow = [input(Some(60), 10, false)];
        assert_eq!(next(None, Some(100), &slow), behind(Some(50)));
        assert_eq!(next(Some(70), Some(100), &slow), behind(Some(70)));
        assert_eq!(next(Some(70), Some(50), &slow), caught_up);
        let both = [input(Some(60), 10, false), input(Some(200), 10, false)];
        assert_eq!(next(None, Some(100), &both), behind(Some(50)));
        let idle = [input(Some(60), 10, true), input(Some(200), 10, false)];
        assert_eq!(next(None, Some(100), &idle), caught_up);
        assert_eq!(next(None, Some(100), &[input(None, 0, true)]), caught_up);
        assert_eq!(next(None, Some(100), &[]), caught_up);
        let fastest = WatermarkPolicy::Maximum;
        assert_eq!(view_watermark(None, Some(100), &slow, fastest), caught_up);
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
    fn one_absurd_timestamp_does_not_move_the_watermark() {
        assert!(!moves_watermark(10_000, 100, Some(50)));
        assert!(moves_watermark(150, 100, Some(50)));
        assert!(moves_watermark(10_000, 100, None));
    }

    #[test]
    fn batches_are_bounded_by_memory_but_never_tiny() {
        let limits = limits_of_memory(512 << 20, Some(10));
        assert_eq!(
            (limits.max_rows, limits.max_bytes),
            (Some(512 << 10), Some(64 << 20))
        );
        let rows = |written| limits_of_memory(512 << 20, written).max_rows;
        assert_eq!(rows(None), Some(128 << 10));
        assert_eq!(rows(Some(400)), Some((512 << 20) / 24 / 400));
        assert_eq!(rows(Some(1 << 20)), Some(256));
        let limits = limits_of_memory(1 << 20, Some(1));
        assert_eq!(
            (limits.max_rows, limits.max_bytes),
            (Some(16 << 10), Some(4 << 20))
        );
    }

    #[test]
    fn what_was_refused_is_opened_with_other_secrets() {
        let refused = Error::transient(sqlstate::INVALID_AUTHORIZATION, "authentication failed");
        assert!(opens_anew(&refused.context("source \"s\"")));
        assert!(!opens_anew(&Error::transient(
            sqlstate::CONNECTION_FAILURE,
            "away"
        )));
    }

    #[test]
    fn backoff_doubles_to_a_bound_and_jitter_takes_at_most_half() {
        assert_eq!(backoff(1, 0.0), Duration::from_millis(100));
        assert_eq!(backoff(3, 0.0), Duration::from_millis(400));
        assert_eq!(backoff(60, 0.0), Duration::from_secs(30));
        assert_eq!(backoff(1, 1.0), Duration::from_millis(50));
    }

    #[test]
    fn batches_are_cut_to_their_time_and_grow_again() {
        let (ms, target) = (Duration::from_millis, Duration::from_millis(100));
        let pace = |cap, took, duration| pace(cap, took, duration, target, 1);
        assert_eq!(pace(None, 1_000, ms(50)), None);
        assert_eq!(pace(None, 1_000, ms(400)), Some(250));
        assert_eq!(pace(Some(250), 250, ms(200)), Some(125));
        assert_eq!(pace(Some(250), 250, ms(50)), Some(500));
        // What it was not given does not say that it could not.
        assert_eq!(pace(Some(250), 10, ms(1)), Some(250));
        assert_eq!(pace(Some(1), 1, ms(900)), Some(1));
        // Where one of three sources has rows, a third is all that a batch can use.
        let of_three = |took| super::pace(Some(250), took, ms(10), target, 3);
        assert_eq!(of_three(83), Some(500));
        assert_eq!(of_three(20), Some(250));
    }

    #[test]
    fn sources_of_event_time_come_to_their_ends_together() {
        let source = |watermarked, rows| WaitingSource { watermarked, rows };
        let shares = |sources: &[WaitingSource]| -> Vec<u64> {
            let shares = super::shares(sources).into_iter();
            shares
                .map(|share| (share * 1200.0).round() as u64)
                .collect()
        };
        let [few, many] = [source(true, Some(10)), source(true, Some(30))];
        assert_eq!(shares(&[few, many]), [300, 900]);
        // A table's rows do not wait for a stream's.
        assert_eq!(
            shares(&[few, source(false, Some(2)), many]),
            [200, 400, 600]
        );
        assert_eq!(shares(&[few, source(true, None)]), [600, 600]);
        let nothing = source(true, Some(0));
        assert_eq!(shares(&[nothing, nothing]), [600, 600]);
        assert_eq!(shares(&[nothing, many]), [0, 1200]);
        assert!(shares(&[]).is_empty());
        let whole = ReadLimits {
            max_rows: Some(100),
            max_files: Some(7),
            max_bytes: None,
        };
        let part = part_of(whole, 0.25);
        assert_eq!((part.max_rows, part.max_files), (Some(25), Some(7)));
        assert_eq!(part_of(whole, 0.0).max_rows, Some(1));
    }

    #[test]
    fn only_a_batch_that_nothing_builds_on_is_planned_anew() {
        let row = Error::new("22012", "division by zero");
        assert!(may_plan_anew(&row, 5, Some(4), 1));
        assert!(may_plan_anew(&row, 0, None, 0));
        assert!(!may_plan_anew(&row, 5, Some(5), 1));
        assert!(!may_plan_anew(&row, 5, Some(4), 2));
        assert!(!may_plan_anew(&Error::damaged("x"), 5, Some(4), 1));
    }

    #[test]
    fn a_row_policy_changes_only_where_the_state_holds_nothing_of_failing_rows() {
        use OnRowError::{Fail, Null, Skip};
        let allowed = [(Fail, Skip), (Fail, Null), (Skip, Fail), (Null, Null)];
        assert!(allowed.iter().all(|(a, b)| may_change_row_policy(*a, *b)));
        let refused = [(Null, Skip), (Null, Fail), (Skip, Null)];
        assert!(!refused.iter().any(|(a, b)| may_change_row_policy(*a, *b)));
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
