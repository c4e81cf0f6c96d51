//! What `DIAGNOSE` and `CHECK` say: pure functions from a pipeline's status and figures to rows.
//!
//! `DIAGNOSE` walks the decision tree of a pipeline that fails or does not get on, and ends in the one
//! statement to run next. `CHECK` goes through the tuning checklist, each item with its evidence.

use std::cmp::Ordering;

use crate::catalog::definition::Options;
use crate::catalog::history::rows::MetricsRow;
use crate::dataflow::operator::StateBound;
use crate::engine::CheckpointDiagnosis;
use crate::engine::status::EngineStatus;
use crate::error::Error;
use crate::sql::hints::statement_in;
use crate::sql::names::quote_identifier;
use crate::sql::options;

/// Newest batches of each view that `CHECK` looks at.
pub(super) const BATCHES: usize = 100;

/// A row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advice {
    pub check: &'static str,
    /// `ok`, `warn` or `fail`.
    pub status: &'static str,
    pub detail: String,
    pub statement: Option<String>,
}

fn row(
    check: &'static str,
    status: &'static str,
    detail: impl Into<String>,
    statement: Option<String>,
) -> Advice {
    Advice {
        check,
        status,
        detail: detail.into(),
        statement,
    }
}

/// The decision tree: is it running, is its checkpoint sound, do its sources answer, does it get on, do
/// its sinks take what they are given; and last what to do.
pub(super) fn diagnose(
    status: &EngineStatus,
    pipeline: &str,
    checkpoint: Result<&CheckpointDiagnosis, &Error>,
) -> Vec<Advice> {
    let mut rows = vec![
        life(status, pipeline),
        checkpoint_row(checkpoint),
        sources(status, pipeline, checkpoint),
        progress(status, pipeline, checkpoint),
        sinks(status, pipeline),
    ];
    rows.push(verdict(&rows));
    rows
}

/// What to do: a damaged checkpoint or a lost source comes before a failed pipeline, which is only
/// what they look like.
fn verdict(rows: &[Advice]) -> Advice {
    const CAUSES_FIRST: [&str; 5] = ["checkpoint", "sources", "sinks", "pipeline", "progress"];
    let causes = || {
        CAUSES_FIRST
            .iter()
            .filter_map(|check| rows.iter().find(|row| row.check == *check))
    };
    for wanted in ["fail", "warn"] {
        // What nothing can be done about (a disk that is nearly full) does not hide what can be.
        let helped = causes().find(|row| row.status == wanted && row.statement.is_some());
        if let Some(cause) = helped.or_else(|| causes().find(|row| row.status == wanted)) {
            let detail = format!("{}: {}", cause.check, cause.detail);
            return row("verdict", cause.status, detail, cause.statement.clone());
        }
    }
    row("verdict", "ok", "Nothing is wrong.", None)
}

fn life(status: &EngineStatus, pipeline: &str) -> Advice {
    let name = quote_identifier(pipeline);
    let found = status.pipelines.iter().find(|p| p.pipeline == pipeline);
    let Some(found) = found else {
        return row("pipeline", "warn", "It has not started yet.", None);
    };
    let exception = status
        .queries
        .iter()
        .find(|q| q.pipeline == pipeline && q.exception.is_some());
    let why = exception.map_or_else(String::new, |query| {
        let why = query.exception.clone().unwrap_or_default();
        let hint = query.hint.clone().unwrap_or_default();
        format!(": {why}. {hint}").trim_end().to_owned()
    });
    let start = || Some(format!("START PIPELINE {name};"));
    let hinted = || exception?.hint.as_deref().and_then(statement_in);
    let restarts = format!("{} restarts.", found.restarts);
    let now = found.status;
    match now {
        // What it failed of is there still: only what the error itself names leads on.
        "failed" => row(
            "pipeline",
            "fail",
            format!("{now}{why}"),
            hinted().or_else(start),
        ),
        "stopped" => row("pipeline", "warn", now, start()),
        "stalled" if exception.is_none() => {
            let detail = format!("{now}: no sign of life while data waits. {restarts}");
            row("pipeline", "fail", detail, start())
        }
        _ if exception.is_some() => {
            let status = if now == "stalled" { "fail" } else { "warn" };
            row(
                "pipeline",
                status,
                format!("{now}{why} {restarts}"),
                hinted(),
            )
        }
        _ => row("pipeline", "ok", format!("{now}. {restarts}"), None),
    }
}

fn checkpoint_row(checkpoint: Result<&CheckpointDiagnosis, &Error>) -> Advice {
    let diagnosis = match checkpoint {
        Ok(diagnosis) => diagnosis,
        Err(error) => {
            let statement = error.hint_text().and_then(statement_in);
            return row("checkpoint", "fail", error.primary(), statement);
        }
    };
    let mut worst = row("checkpoint", "ok", "All parts are sound.", None);
    for part in &diagnosis.parts {
        let status = match part.status {
            "damaged" | "missing" | "foreign" => "fail",
            // What a source says of itself is not the checkpoint's.
            "warning" if part.part != "sources" => "warn",
            _ => "ok",
        };
        let is_worse = (status == "fail" && worst.status != "fail")
            || (status == "warn" && worst.status == "ok");
        if is_worse {
            let detail = format!("{} {}: {}", part.part, part.status, part.detail);
            worst = row("checkpoint", status, detail, part.repair.clone());
        }
    }
    worst
}

/// A source that does not answer, or that has lost what comes next.
fn sources(
    status: &EngineStatus,
    pipeline: &str,
    checkpoint: Result<&CheckpointDiagnosis, &Error>,
) -> Advice {
    let mut all = status.sources.iter().filter(|s| s.pipeline == pipeline);
    let count = all.clone().count();
    let asked = checkpoint.ok().and_then(|diagnosis| {
        let mut parts = diagnosis.parts.iter();
        parts.find(|part| part.part == "sources" && part.status == "warning")
    });
    let statement = asked.and_then(|part| part.repair.clone());
    match (all.find(|source| source.last_error.is_some()), asked) {
        (Some(source), _) => {
            let why = source.last_error.clone().unwrap_or_default();
            let detail = format!("{} ({}): {why}", source.source_name, source.description);
            row("sources", "fail", detail, statement)
        }
        (None, Some(part)) => row("sources", "warn", part.detail.clone(), statement),
        (None, None) => row("sources", "ok", answering(count as u64), None),
    }
}

fn answering(count: u64) -> String {
    match count {
        0 => "It has no open sources.".to_owned(),
        1 => "1 source answers.".to_owned(),
        _ => format!("{count} sources answer."),
    }
}

fn progress(
    status: &EngineStatus,
    pipeline: &str,
    checkpoint: Result<&CheckpointDiagnosis, &Error>,
) -> Advice {
    let found = status.pipelines.iter().find(|p| p.pipeline == pipeline);
    let batch = found.and_then(|p| p.last_batch_id);
    let mine = || status.sources.iter().filter(|s| s.pipeline == pipeline);
    let backlog: u64 = mine().filter_map(|s| s.backlog_rows).sum();
    let rates = mine().filter_map(|s| s.processed_rows_per_second);
    let rate = rates.fold(0.0, |sum, rate| sum + rate);
    let last = batch.map_or("No batch yet.".to_owned(), |batch| {
        format!("Batch {batch}.")
    });
    let detail =
        format!("{last} {backlog} rows wait; the last batch took {rate:.0} rows a second.");
    let runs = found.is_some_and(|p| !matches!(p.status, "failed" | "stopped"));
    let name = quote_identifier(pipeline);
    if let Some(planned) = planned_batches(checkpoint).filter(|_| !runs) {
        // Until they have run, readers see an older batch.
        let detail = format!("{detail} {planned}");
        return row(
            "progress",
            "warn",
            detail,
            Some(format!("START PIPELINE {name};")),
        );
    }
    // A rate that is not known yet says nothing.
    let is_behind = runs && rate > 0.0 && backlog as f64 > 60.0 * rate.max(1.0);
    let statement = is_behind.then(|| format!("CHECK {name};"));
    row(
        "progress",
        if is_behind { "warn" } else { "ok" },
        detail,
        statement,
    )
}

/// Batches whose input is fixed and that have yet to run, as a sentence.
fn planned_batches(checkpoint: Result<&CheckpointDiagnosis, &Error>) -> Option<String> {
    let parts = &checkpoint.ok()?.parts;
    let of = |name: &str| parts.iter().find(|part| part.part == name);
    let last = of("offsets")?.last?;
    let commits = of("commits")?;
    let first = match commits.last {
        Some(committed) => committed + 1,
        None => of("offsets")?.first?,
    };
    match first.cmp(&last) {
        Ordering::Less => Some(format!(
            "Batches {first} to {last} are planned and run when it is started."
        )),
        Ordering::Equal => Some(format!(
            "Batch {last} is planned and runs when it is started."
        )),
        Ordering::Greater => None,
    }
}

fn sinks(status: &EngineStatus, pipeline: &str) -> Advice {
    let mut all = status.sinks.iter().filter(|s| s.pipeline == pipeline);
    let count = all.clone().count();
    match all.find(|sink| sink.last_error.is_some()) {
        Some(sink) => {
            let why = sink.last_error.clone().unwrap_or_default();
            row("sinks", "fail", format!("{}: {why}", sink.sink_name), None)
        }
        None => row(
            "sinks",
            "ok",
            match count {
                0 => "It has no sinks.".to_owned(),
                1 => "1 sink takes what it gets.".to_owned(),
                _ => format!("{count} sinks take what they get."),
            },
            None,
        ),
    }
}

/// What `CHECK` looks at.
#[derive(Clone, Copy)]
pub(super) struct CheckFacts<'a> {
    pub pipeline: &'a str,
    pub status: &'a EngineStatus,
    pub options: &'a Options,
    /// The streams that it reads.
    pub streams: &'a [String],
    /// Those of them that have a time and no watermark yet.
    pub timed: &'a [String],
    /// Of the newest batches of its views.
    pub metrics: &'a [MetricsRow],
}

/// The tuning checklist.
pub(super) fn check(facts: &CheckFacts<'_>) -> Vec<Advice> {
    vec![
        trigger_interval(facts),
        batch_size_limit(facts),
        watermark(facts),
        headroom(facts),
        state_memory(facts),
        checkpoint_location(facts),
        row(
            "metrics",
            if facts.metrics.is_empty() {
                "warn"
            } else {
                "ok"
            },
            format!("{} rows of streaming_metrics_log.", facts.metrics.len()),
            None,
        ),
    ]
}

fn alter(facts: &CheckFacts<'_>, setting: &str) -> Option<String> {
    let name = quote_identifier(facts.pipeline);
    Some(format!("ALTER PIPELINE {name} SET ({setting});"))
}

/// Trigger interval at least the average batch's duration.
fn trigger_interval(facts: &CheckFacts<'_>) -> Advice {
    let worked = facts.metrics.iter().filter(|m| m.num_input_rows > 0);
    let (total_us, batches) = worked.fold((0i64, 0i64), |(us, n), m| {
        (us + m.trigger_execution_ms.us, n + 1)
    });
    if batches == 0 {
        return row("trigger interval", "ok", "No batch with rows yet.", None);
    }
    let average_ms = total_us as f64 / batches as f64 / 1000.0;
    let interval_ms = match options::trigger_of(facts.options) {
        Ok(Some(options::Trigger::Every(interval))) => interval.as_secs_f64() * 1000.0,
        Ok(None) => 100.0,
        _ => {
            let detail =
                format!("Batches take {average_ms:.0} ms on average and follow one another.");
            return row("trigger interval", "ok", detail, None);
        }
    };
    let detail = format!("Batches take {average_ms:.0} ms on average, every {interval_ms:.0} ms.");
    match average_ms > interval_ms {
        false => row("trigger interval", "ok", detail, None),
        true => {
            let wanted = (average_ms * 1.5 / 100.0).ceil() * 100.0;
            let setting = format!("trigger = '{wanted:.0} milliseconds'");
            row("trigger interval", "warn", detail, alter(facts, &setting))
        }
    }
}

/// A limit of what one batch takes.
fn batch_size_limit(facts: &CheckFacts<'_>) -> Advice {
    const LIMITS: [&str; 4] = [
        "max_offsets_per_trigger",
        "max_files_per_trigger",
        "max_bytes_per_trigger",
        "max_batch_duration",
    ];
    let set: Vec<&str> = LIMITS
        .into_iter()
        .filter(|limit| facts.options.contains_key(*limit))
        .collect();
    match set.is_empty() {
        false => row(
            "batch size limit",
            "ok",
            format!("{} is set.", set.join(", ")),
            None,
        ),
        true => row(
            "batch size limit",
            "warn",
            "Only memory limits a batch: a burst makes a long one.",
            alter(facts, "max_batch_duration = '10 seconds'"),
        ),
    }
}

/// State that time bounds. Of rows that come from tables alone it is bounded by the tables.
fn watermark(facts: &CheckFacts<'_>) -> Advice {
    let mine = facts.status.state_operators.iter();
    let unbounded: Vec<&str> = mine
        .filter(|o| o.pipeline == facts.pipeline && o.bound == Some(StateBound::Input))
        .map(|o| o.operator_name.as_str())
        .collect();
    if facts.streams.is_empty() || unbounded.is_empty() {
        let detail = "Time bounds all state that streams fill, or there is none.";
        return row("watermark", "ok", detail, None);
    }
    let detail = format!(
        "State is kept as long as the rows of {}, which nobody deletes: {}.",
        facts.streams.join(", "),
        unbounded.join(", ")
    );
    // Of a stream without a time nothing can be suggested, and one with a watermark wants another query.
    let suggest = |stream: &String| format!("SUGGEST WATERMARK FOR {};", quote_identifier(stream));
    row(
        "watermark",
        "warn",
        detail,
        facts.timed.first().map(suggest),
    )
}

/// Room for twice the rows that came.
fn headroom(facts: &CheckFacts<'_>) -> Advice {
    let rates: Vec<(f64, f64)> = facts
        .metrics
        .iter()
        .filter_map(|m| Some((m.input_rows_per_second?, m.processed_rows_per_second?)))
        .filter(|(input, _)| *input > 0.0)
        .collect();
    if rates.is_empty() {
        return row("headroom", "ok", "No rates yet.", None);
    }
    let (input, processed) = rates
        .iter()
        .fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
    let ratio = processed / input;
    let detail = format!("Rows are processed {ratio:.1} times as fast as they came.");
    match ratio {
        ratio if ratio < 1.0 => row("headroom", "fail", detail, None),
        ratio if ratio < 2.0 => row("headroom", "warn", detail, None),
        _ => row("headroom", "ok", detail, None),
    }
}

fn state_memory(facts: &CheckFacts<'_>) -> Advice {
    let mut found = facts.status.pipelines.iter();
    let found = found.find(|p| p.pipeline == facts.pipeline);
    let (memory, disk) = found.map_or((0, 0), |p| (p.state_memory_bytes, p.state_disk_bytes));
    let detail = format!("{memory} bytes of state in memory, {disk} in RocksDB on disk.");
    row("state store", "ok", detail, None)
}

/// A checkpoint that outlives the machine.
fn checkpoint_location(facts: &CheckFacts<'_>) -> Advice {
    let mut found = facts.status.pipelines.iter();
    let location = found
        .find(|p| p.pipeline == facts.pipeline)
        .map_or("", |p| p.checkpoint_location.as_str());
    let is_local = !location.contains("://") || location.starts_with("file://");
    match is_local {
        false => row("checkpoint location", "ok", location, None),
        true => row(
            "checkpoint location",
            "warn",
            format!("{location} is on this machine's disk and goes with it."),
            alter(facts, "checkpoint_location = 's3://bucket/folder'"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::recovery::PartReport;
    use crate::engine::status::{PipelineStatus, QueryStatus, SourceStatus, StateOperatorStatus};

    fn status(of: &'static str) -> EngineStatus {
        EngineStatus {
            pipelines: vec![PipelineStatus {
                pipeline: "p".into(),
                status: of,
                checkpoint_location: "/var/lib/c".into(),
                ..PipelineStatus::default()
            }],
            queries: vec![QueryStatus {
                pipeline: "p".into(),
                exception: (of == "failed").then(|| "boom".to_owned()),
                hint: Some("Run REPAIR CHECKPOINT OF p.".into()),
                ..QueryStatus::default()
            }],
            sources: vec![SourceStatus {
                pipeline: "p".into(),
                source_name: "s".into(),
                ..SourceStatus::default()
            }],
            ..EngineStatus::default()
        }
    }

    fn checkpoint(part_status: &'static str) -> CheckpointDiagnosis {
        let repair = (part_status != "ok").then(|| "REPAIR CHECKPOINT OF p;".to_owned());
        CheckpointDiagnosis {
            parts: vec![PartReport {
                part: "metadata",
                status: part_status,
                repair,
                ..PartReport::default()
            }],
            guide: serde_json::Value::Null,
        }
    }

    #[test]
    fn the_verdict_names_the_cause_not_what_it_looks_like() {
        let sound = checkpoint("ok");
        let verdict = |status: &EngineStatus, checkpoint: &CheckpointDiagnosis| {
            diagnose(status, "p", Ok(checkpoint)).pop().unwrap()
        };
        assert_eq!(verdict(&status("running"), &sound).status, "ok");
        let failed = verdict(&status("failed"), &checkpoint("damaged"));
        assert_eq!(failed.statement.as_deref(), Some("REPAIR CHECKPOINT OF p;"));
        assert_eq!(failed.status, "fail");
        // What it failed of is still there: the error's own statement leads on, another start does not.
        let failed = verdict(&status("failed"), &sound);
        assert_eq!(failed.statement.as_deref(), Some("REPAIR CHECKPOINT OF p;"));
        assert!(failed.detail.contains("boom"), "{failed:?}");
        let mut unhinted = status("failed");
        unhinted.queries[0].hint = Some("Create the topic.".into());
        let failed = verdict(&unhinted, &sound);
        assert_eq!(failed.statement.as_deref(), Some("START PIPELINE p;"));
        let mut away = status("waiting for source");
        away.sources[0].last_error = Some("connection refused".into());
        let away = verdict(&away, &sound);
        assert!(away.detail.starts_with("sources: s"), "{away:?}");
        let stopped = verdict(&status("stopped"), &sound);
        assert_eq!(stopped.status, "warn");
        // A warning without a statement does not hide the statement of another.
        let mut full = checkpoint("warning");
        full.parts[0].repair = None;
        let stopped = verdict(&status("stopped"), &full);
        assert_eq!(stopped.statement.as_deref(), Some("START PIPELINE p;"));
        let mut behind = status("running");
        behind.sources[0].backlog_rows = Some(100_000);
        behind.sources[0].processed_rows_per_second = Some(10.0);
        let behind = verdict(&behind, &sound);
        assert_eq!(behind.statement.as_deref(), Some("CHECK p;"));
    }

    #[test]
    fn the_checklist_has_evidence_and_a_statement_for_what_is_amiss() {
        let mut status = status("running");
        let operator = |name: &str, bound| StateOperatorStatus {
            pipeline: "p".into(),
            operator_name: name.into(),
            retention: "in words".into(),
            bound: Some(bound),
            ..StateOperatorStatus::default()
        };
        let freed = operator("window", StateBound::Time);
        status.state_operators.push(freed);
        let metrics: Vec<MetricsRow> = (0..4)
            .map(|batch_id| MetricsRow {
                batch_id,
                num_input_rows: 10,
                trigger_execution_ms: crate::catalog::history::rows::Milliseconds { us: 400_000 },
                input_rows_per_second: Some(100.0),
                processed_rows_per_second: Some(150.0),
                ..MetricsRow::default()
            })
            .collect();
        let facts = CheckFacts {
            pipeline: "p",
            status: &status,
            options: &Options::default(),
            streams: &["s".to_owned()],
            timed: &["s".to_owned()],
            metrics: &metrics,
        };
        let rows = check(&facts);
        let of = |name: &str| rows.iter().find(|row| row.check == name).unwrap();
        let trigger = of("trigger interval");
        assert_eq!(trigger.status, "warn");
        let expected = "ALTER PIPELINE p SET (trigger = '600 milliseconds');";
        assert_eq!(trigger.statement.as_deref(), Some(expected));
        assert_eq!(of("headroom").status, "warn");
        assert_eq!(of("checkpoint location").status, "warn");
        assert_eq!(of("batch size limit").status, "warn");
        assert_eq!(of("watermark").status, "ok");
        let mut kept = status.clone();
        let groups = operator("groups", StateBound::Input);
        kept.state_operators.push(groups);
        let of_tables = CheckFacts {
            streams: &[],
            status: &kept,
            ..facts
        };
        let watermark = |facts: &CheckFacts<'_>| watermark(facts);
        assert_eq!(watermark(&of_tables).status, "ok");
        let warned = watermark(&CheckFacts {
            status: &kept,
            ..facts
        });
        assert_eq!(warned.status, "warn");
        assert!(
            warned.detail.contains("groups") && !warned.detail.contains("window"),
            "{warned:?}"
        );
        assert_eq!(
            warned.statement.as_deref(),
            Some("SUGGEST WATERMARK FOR s;")
        );
        let timeless = watermark(&CheckFacts {
            status: &kept,
            timed: &[],
            ..facts
        });
        assert_eq!((timeless.status, timeless.statement), ("warn", None));
        for statement in rows.iter().filter_map(|row| row.statement.as_deref()) {
            crate::sql::parse(statement).unwrap_or_else(|e| panic!("{statement}: {e}"));
        }
    }
}
