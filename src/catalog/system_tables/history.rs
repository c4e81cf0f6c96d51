//! The tables of what happened: metrics, events, dead letters, late rows, expectations.

use std::collections::BTreeMap;

use datafusion::arrow::array::RecordBatch;

use super::SystemFacts;
use super::columns::Columns;
use crate::catalog::access::acl::Privileges;
use crate::catalog::access::{ObjectKey, Subject};
use crate::catalog::definition::{Definition, OnViolation};
use crate::catalog::history::rows::{
    DataGapRow, DeadLetterRow, EventRow, ExpectationRow, LateRow, MetricsRow,
};
use crate::catalog::history::{History, HistoryFilter};
use crate::catalog::schedule::ScheduleDefinition;
use crate::error::Result;

fn read<T>(
    facts: Option<&SystemFacts>,
    rows: impl FnOnce(&History) -> Result<Vec<T>>,
) -> Result<Vec<T>> {
    match facts {
        Some(facts) => rows(&facts.history),
        None => Ok(Vec::new()),
    }
}

/// Rows with the names that users know, of those of theirs that history keeps.
pub(super) fn shown<T>(
    facts: Option<&SystemFacts>,
    mut rows: Vec<T>,
    name: impl Fn(&mut T) -> &mut String,
) -> Vec<T> {
    let names = facts.map(|facts| facts.catalog.snapshot().shown_names());
    let names = names.filter(|names| !names.is_empty());
    let Some(names) = names else {
        return rows;
    };
    for row in &mut rows {
        let name = name(row);
        if let Some(shown) = names.get(name) {
            name.clone_from(shown);
        }
    }
    rows
}

pub(super) fn metrics_log(
    facts: Option<&SystemFacts>,
    filter: &HistoryFilter,
) -> Result<RecordBatch> {
    let rows: Vec<MetricsRow> = read(facts, |h| h.metrics(filter))?;
    let rows = shown(facts, rows, |row| &mut row.stream_name);
    let times = Columns::of(&rows)
        .text("stream_name", |r| r.stream_name.as_str())
        .text("pipeline", |r| r.pipeline.as_str())
        .count("batch_id", |r| r.batch_id)
        .text("run_id", |r| r.run_id.as_str())
        .time("batch_started_at", |r| r.batch_started_at)
        .milliseconds("trigger_execution_ms", |r| r.trigger_execution_ms)
        .milliseconds("latest_offset_ms", |r| r.latest_offset_ms)
        .milliseconds("get_batch_ms", |r| r.get_batch_ms)
        .milliseconds("query_planning_ms", |r| r.query_planning_ms)
        .milliseconds("wal_commit_ms", |r| r.wal_commit_ms)
        .milliseconds("add_batch_ms", |r| r.add_batch_ms)
        .milliseconds("state_commit_ms", |r| r.state_commit_ms)
        .milliseconds("commit_offsets_ms", |r| r.commit_offsets_ms);
    times
        .count("num_input_rows", |r| r.num_input_rows)
        .count("num_output_rows", |r| r.num_output_rows)
        .number("input_rows_per_second", |r| r.input_rows_per_second)
        .number("processed_rows_per_second", |r| r.processed_rows_per_second)
        .count("num_late_rows", |r| r.num_late_rows)
        .count("num_expectation_failed_rows", |r| {
            r.num_expectation_failed_rows
        })
        .count("num_dead_letter_rows", |r| r.num_dead_letter_rows)
        .count("num_error_rows", |r| r.num_error_rows)
        .count("state_rows_total", |r| r.state_rows_total)
        .count("state_rows_updated", |r| r.state_rows_updated)
        .count("state_rows_removed", |r| r.state_rows_removed)
        .count("state_memory_bytes", |r| r.state_memory_bytes)
        .count("state_disk_bytes", |r| r.state_disk_bytes)
        .count("checkpoint_bytes", |r| r.checkpoint_bytes)
        .time("watermark_at", |r| r.watermark_at)
        .time("event_time_min_at", |r| r.event_time_min_at)
        .time("event_time_max_at", |r| r.event_time_max_at)
        .count("backlog_rows", |r| r.backlog_rows)
        .count("backlog_bytes", |r| r.backlog_bytes)
        .flag("replayed", |r| r.replayed)
        .text("error_code", |r| r.error_code.as_deref())
        .text("error", |r| r.error.as_deref())
        .count("num_rows_unknown_fields", |r| r.num_rows_unknown_fields)
        .count("num_rows_rescued", |r| r.num_rows_rescued)
        .finish()
}

/// The audit trail's part of the events: what somebody said.
pub const STATEMENT_EVENT: &str = "statement";

/// What others said is for those who may see statements of others.
fn without_statements_of_others(rows: &mut [EventRow], subject: &Subject) {
    if subject.reads_statistics() {
        return;
    }
    for row in rows.iter_mut().filter(|r| r.kind == STATEMENT_EVENT) {
        let is_own = row.detail.get("user").and_then(|u| u.as_str()) == Some(&subject.name);
        if let Some(detail) = row.detail.as_object_mut().filter(|_| !is_own) {
            detail.retain(|name, _| name == "user");
            detail.insert("statement".to_owned(), "<insufficient privilege>".into());
        }
    }
}

/// Rows of a relation are for those who may read it.
pub(super) fn is_readable<'a>(facts: Option<&'a SystemFacts>) -> impl Fn(&str) -> bool + 'a {
    let snapshot = facts.map(|facts| (facts.catalog.snapshot(), &facts.subject));
    move |relation| {
        snapshot.as_ref().is_none_or(|(catalog, subject)| {
            subject.is_superuser
                || catalog.object(relation).is_some_and(|object| {
                    let key = ObjectKey::Relation(object.oid);
                    catalog.access().allows(subject, &key, Privileges::SELECT)
                })
        })
    }
}

pub(super) fn events(facts: Option<&SystemFacts>, filter: &HistoryFilter) -> Result<RecordBatch> {
    let rows: Vec<EventRow> = read(facts, |h| h.events(filter))?;
    let mut rows = shown(facts, rows, |row| &mut row.object_name);
    if let Some(facts) = facts {
        without_statements_of_others(&mut rows, &facts.subject);
    }
    Columns::of(&rows)
        .time("event_at", |r| r.event_at)
        .text("event", |r| r.kind.as_str())
        .text("object_name", |r| r.object_name.as_str())
        .text("pipeline", |r| r.pipeline.as_deref())
        .count("batch_id", |r| r.batch_id)
        .json("detail", |r| Some(r.detail.to_string()))
        .finish()
}

pub(super) fn dead_letters(
    facts: Option<&SystemFacts>,
    filter: &HistoryFilter,
) -> Result<RecordBatch> {
    let rows: Vec<DeadLetterRow> = read(facts, |h| h.dead_letters(filter))?;
    let mut rows = shown(facts, rows, |row| &mut row.stream_name);
    let is_readable = is_readable(facts);
    rows.retain(|row| is_readable(&row.stream_name));
    Columns::of(&rows)
        .text("stream_name", |r| r.stream_name.as_str())
        .text("pipeline", |r| r.pipeline.as_str())
        .count("batch_id", |r| r.batch_id)
        .time("recorded_at", |r| r.recorded_at)
        .text("origin", |r| r.origin.as_str())
        .bytes("raw", |r| r.raw.as_slice())
        .text("error", |r| r.error.as_str())
        .finish()
}

pub(super) fn late_rows(
    facts: Option<&SystemFacts>,
    filter: &HistoryFilter,
) -> Result<RecordBatch> {
    let rows: Vec<LateRow> = read(facts, |h| h.late_rows(filter))?;
    let mut rows = shown(facts, rows, |row| &mut row.stream_name);
    let is_readable = is_readable(facts);
    rows.retain(|row| is_readable(&row.stream_name));
    Columns::of(&rows)
        .text("stream_name", |r| r.stream_name.as_str())
        .text("pipeline", |r| r.pipeline.as_str())
        .count("batch_id", |r| r.batch_id)
        .time("event_time_at", |r| r.event_time_at)
        .time("watermark_at", |r| r.watermark_at)
        .json("row", |r| Some(r.row.clone()))
        .finish()
}

pub(super) fn data_gaps(
    facts: Option<&SystemFacts>,
    filter: &HistoryFilter,
) -> Result<RecordBatch> {
    let rows: Vec<DataGapRow> = read(facts, |h| h.data_gaps(filter))?;
    let rows = shown(facts, rows, |row| &mut row.stream_name);
    Columns::of(&rows)
        .text("stream_name", |r| r.stream_name.as_str())
        .text("pipeline", |r| r.pipeline.as_str())
        .count("batch_id", |r| r.batch_id)
        .time("recorded_at", |r| r.recorded_at)
        .text("partition", |r| r.partition.as_str())
        .text("from_position", |r| r.from_position.as_deref())
        .text("to_position", |r| r.to_position.as_deref())
        .count("num_rows", |r| r.num_rows)
        .count("num_bytes", |r| r.num_bytes)
        .text("cause", |r| r.cause.as_str())
        .text("accepted_by", |r| r.accepted_by.as_str())
        .finish()
}

/// An expectation of a stream; counts are `None` until a batch gave some.
struct Expectation {
    stream_name: String,
    name: String,
    condition: String,
    on_violation: &'static str,
    counts: Option<Counts>,
}

#[derive(Default, Clone, Copy)]
struct Counts {
    passed: u64,
    failed: u64,
    dropped: u64,
}

pub(super) fn expectations(
    facts: Option<&SystemFacts>,
    filter: &HistoryFilter,
) -> Result<RecordBatch> {
    let log: Vec<ExpectationRow> = read(facts, |h| h.expectations(filter))?;
    let log = shown(facts, log, |row| &mut row.stream_name);
    let mut by_pipeline: BTreeMap<(String, String, String), Counts> = BTreeMap::new();
    for row in log {
        let sum = by_pipeline
            .entry((row.stream_name, row.expectation_name, row.pipeline))
            .or_default();
        sum.passed += row.num_passed_rows;
        sum.failed += row.num_failed_rows;
        sum.dropped += row.num_dropped_rows;
    }
    // Each pipeline that reads a stream checks all its rows: the one that saw the most counts.
    let mut counts: BTreeMap<(String, String), Counts> = BTreeMap::new();
    for ((stream, expectation, _), sum) in by_pipeline {
        let most = counts.entry((stream, expectation)).or_default();
        if sum.passed + sum.failed > most.passed + most.failed {
            *most = sum;
        }
    }
    let mut rows = Vec::new();
    if let Some(facts) = facts {
        for object in facts.catalog.snapshot().objects() {
            let Definition::Stream(stream) = &object.definition else {
                continue;
            };
            rows.extend(stream.expectations.iter().map(|e| Expectation {
                stream_name: object.name.clone(),
                name: e.name.clone(),
                condition: e.condition.clone(),
                on_violation: match e.on_violation {
                    OnViolation::Keep => "keep",
                    OnViolation::DropRow => "drop row",
                    OnViolation::FailUpdate => "fail update",
                },
                counts: counts.get(&(object.name.clone(), e.name.clone())).copied(),
            }));
        }
    }
    Columns::of(&rows)
        .text("stream_name", |r| r.stream_name.as_str())
        .text("expectation_name", |r| r.name.as_str())
        .text("condition", |r| r.condition.as_str())
        .text("on_violation", |r| r.on_violation)
        .count("num_passed_rows", |r| r.counts.map(|c| c.passed))
        .count("num_failed_rows", |r| r.counts.map(|c| c.failed))
        .count("num_dropped_rows", |r| r.counts.map(|c| c.dropped))
        .finish()
}

pub(super) fn expectations_log(
    facts: Option<&SystemFacts>,
    filter: &HistoryFilter,
) -> Result<RecordBatch> {
    let rows: Vec<ExpectationRow> = read(facts, |h| h.expectations(filter))?;
    let rows = shown(facts, rows, |row| &mut row.stream_name);
    Columns::of(&rows)
        .text("stream_name", |r| r.stream_name.as_str())
        .text("expectation_name", |r| r.expectation_name.as_str())
        .text("pipeline", |r| r.pipeline.as_str())
        .count("batch_id", |r| r.batch_id)
        .time("batch_started_at", |r| r.batch_started_at)
        .count("num_passed_rows", |r| r.num_passed_rows)
        .count("num_failed_rows", |r| r.num_failed_rows)
        .count("num_dropped_rows", |r| r.num_dropped_rows)
        .finish()
}

/// A text of an event's detail.
fn text_of<'a>(event: &'a EventRow, name: &str) -> Option<&'a str> {
    event.detail.get(name)?.as_str()
}

/// A number of an event's detail.
fn count_of(event: &EventRow, name: &str) -> Option<u64> {
    event.detail.get(name)?.as_u64()
}

/// Backups are told by their events.
pub(super) fn backups(facts: Option<&SystemFacts>, filter: &HistoryFilter) -> Result<RecordBatch> {
    let mut events: Vec<EventRow> = read(facts, |h| h.events(filter))?;
    events.retain(|event| event.kind == "backed up");
    Columns::of(&events)
        .text("id", |e| text_of(e, "id"))
        .text("pipeline", |e| e.object_name.as_str())
        .time("backed_up_at", |e| e.event_at)
        .text("location", |e| text_of(e, "location"))
        .count("batch_id", |e| count_of(e, "batch_id"))
        .count("bytes", |e| count_of(e, "bytes"))
        .count("files", |e| count_of(e, "files"))
        .text("checksum", |e| text_of(e, "checksum"))
        .finish()
}

/// Schedules of drills, with when each ran last and is due next.
pub(super) fn schedules(facts: Option<&SystemFacts>, _: &HistoryFilter) -> Result<RecordBatch> {
    struct Row {
        name: String,
        pipeline: Option<String>,
        definition: ScheduleDefinition,
        last_us: Option<i64>,
    }
    let mut rows = Vec::new();
    if let Some(facts) = facts {
        let definitions = facts.catalog.snapshot();
        for (name, definition) in definitions.schedules() {
            let last_us = facts.history.schedule_run(name)?;
            rows.push(Row {
                name: name.clone(),
                pipeline: definitions
                    .scheduled_pipeline(definition)
                    .map(str::to_owned),
                // A namesake may have run before this one was made.
                last_us: last_us.filter(|at_us| *at_us >= definition.created_at_us),
                definition: definition.clone(),
            });
        }
    }
    Columns::of(&rows)
        .text("schedule_name", |r| r.name.as_str())
        .text("pipeline", |r| r.pipeline.as_deref())
        .text("target", |r| r.definition.target.as_str())
        .text("faults", |r| r.definition.faults.as_deref())
        .text("every", |r| r.definition.every.as_str())
        .time("created_at", |r| r.definition.created_at_us)
        .time("last_run_at", |r| r.last_us)
        .time("next_run_at", |r| r.definition.next_us(r.last_us))
        .finish()
}

/// So are drills.
pub(super) fn drills(facts: Option<&SystemFacts>, filter: &HistoryFilter) -> Result<RecordBatch> {
    let mut events: Vec<EventRow> = read(facts, |h| h.events(filter))?;
    events.retain(|event| event.kind == "drilled");
    Columns::of(&events)
        .text("id", |e| text_of(e, "id"))
        .text("pipeline", |e| e.object_name.as_str())
        .time("drilled_at", |e| e.event_at)
        .text("fault", |e| text_of(e, "fault"))
        .text("schedule_name", |e| text_of(e, "schedule"))
        .text("verdict", |e| text_of(e, "verdict"))
        .count("batch_id", |e| count_of(e, "batch_id"))
        .text("statements", |e| text_of(e, "statements"))
        .count("duration_ms", |e| count_of(e, "duration_ms"))
        .count("rows", |e| count_of(e, "rows"))
        .count("missing_rows", |e| count_of(e, "missing_rows"))
        .count("unexpected_rows", |e| count_of(e, "unexpected_rows"))
        .text("detail", |e| text_of(e, "detail"))
        .finish()
}
