//! What an operator is told of a checkpoint: a row per part, and the statement that mends it.
//!
//! Pure functions of a survey. Which statement helps is what opening itself would name.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::plan::{Finding, Hand, plan, refusal};
use super::statement::mending_statement;
use super::survey::{Depth, Entry, Survey};
use crate::checkpoint::decide::{Decision, MetadataFact, Stop};
use crate::error::counted;
use crate::sql::names::quote_identifier;

/// A row of `DIAGNOSE CHECKPOINT`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartReport {
    /// `metadata`, `offsets`, `commits`, `state`, `sources`, `lease`, `disk`.
    pub part: &'static str,
    /// `ok`, `warning`, `missing`, `damaged`, `foreign`, `empty`, `held`, `free`.
    pub status: &'static str,
    /// Files (or entries) of the part.
    pub count: Option<u64>,
    /// Oldest batch.
    pub first: Option<u64>,
    /// Newest batch.
    pub last: Option<u64>,
    /// Sentences.
    pub detail: String,
    /// The statement that mends it.
    pub repair: Option<String>,
}

/// The part that a stop is about.
fn part_of(stop: &Stop) -> &'static str {
    match stop {
        Stop::Missing { .. }
        | Stop::Foreign { .. }
        | Stop::MetadataMissing
        | Stop::MetadataDamaged(_)
        | Stop::NewerFormat(_) => "metadata",
        Stop::OffsetsDamaged { .. } => "offsets",
        Stop::Older { .. } | Stop::CommitsLost { .. } => "commits",
        Stop::StateLost { .. } => "state",
    }
}

/// The rows, one per part; the engine adds what the sources themselves say. What is wrong and what
/// mends it is what `REPAIR` finds: so a statement that is named is one that does something.
pub fn diagnose(survey: &Survey, depth: Depth, now_us: i64) -> Vec<PartReport> {
    let mut parts = vec![
        metadata(survey),
        log_part("offsets", survey, &survey.offsets),
        commits(survey),
        state(survey, depth),
        sources(survey),
        lease(survey, now_us),
        disk(survey),
    ];
    if let Some(stop) = refusal(survey) {
        // Nothing of it may be touched.
        tell_stop(survey, &stop, &mut parts);
        return parts;
    }
    let hand = Hand { epoch: 0, now_us };
    let findings = plan(survey, hand).unwrap_or_default();
    let stops = matches!(survey.verdict(), Decision::Stop(_));
    if let Decision::Resume(resume) = survey.verdict()
        && survey.commits.is_empty()
    {
        tell_beginning(&mut parts, &resume.replay);
    }
    for part in &mut parts {
        let mine: Vec<&Finding> = findings.iter().filter(|f| f.part == part.part).collect();
        tell_findings(survey, part, &mine, stops);
    }
    if let Decision::Stop(stop) = survey.verdict()
        && let Some(part) = parts.iter_mut().find(|part| part.part == part_of(&stop))
        && part.repair.is_none()
    {
        tell_stop(survey, &stop, &mut parts);
    }
    parts
}

/// Batches are planned and none has committed: so it is after a statement that made it begin anew, until
/// the pipeline runs.
fn tell_beginning(parts: &mut [PartReport], replay: &[u64]) {
    let commits = parts.iter_mut().find(|part| part.part == "commits");
    if let (Some(part), Some((first, last))) = (commits, replay.first().zip(replay.last())) {
        part.status = "empty";
        let sentence = match first == last {
            true => format!("Batch {first} is planned and has yet to run."),
            false => format!("Batches {first} to {last} are planned and have yet to run."),
        };
        add(&mut part.detail, &sentence);
    }
}

/// The stop that opening would make, in the row that it is about.
fn tell_stop(survey: &Survey, stop: &Stop, parts: &mut [PartReport]) {
    let Some(part) = parts.iter_mut().find(|part| part.part == part_of(stop)) else {
        return;
    };
    if matches!(part.status, "ok" | "empty" | "warning") {
        part.status = "damaged";
    }
    let error = stop.to_error(&survey.identity.pipeline_name, &survey.location);
    add(&mut part.detail, &format!("{}.", upper(error.primary())));
    let statement = mending_statement(stop, survey);
    part.repair = Some(statement).filter(|statement| !statement.is_empty());
}

/// What `REPAIR` finds in a part, each with what becomes of it; at most a few.
fn tell_findings(survey: &Survey, part: &mut PartReport, findings: &[&Finding], stops: bool) {
    const TOLD: usize = 5;
    for finding in findings.iter().take(TOLD) {
        let text = format!("{} {}", finding.finding, finding.action);
        add(&mut part.detail, &text);
    }
    if let Some(more) = findings.len().checked_sub(TOLD).filter(|more| *more > 0) {
        add(&mut part.detail, &format!("And {more} more."));
    }
    if findings.iter().any(|finding| finding.mend.is_some()) {
        let name = quote_identifier(&survey.identity.pipeline_name);
        part.repair = Some(format!("REPAIR CHECKPOINT OF {name};"));
    } else {
        part.repair = findings.iter().find_map(|f| f.statement.clone());
    }
    let is_harmless = part.repair.is_none();
    part.status = match part.status {
        "ok" | "empty" if !findings.is_empty() && is_harmless => "warning",
        "damaged" | "missing" if !findings.is_empty() && is_harmless => "warning",
        "ok" | "empty" | "warning" if findings.iter().any(|f| f.statement.is_some()) => "damaged",
        // Where the pipeline stops, what REPAIR mends comes before what it does not.
        "ok" | "empty" | "warning" if !is_harmless && stops => "damaged",
        "ok" if !is_harmless => "warning",
        status => status,
    };
}

fn add(detail: &mut String, sentence: &str) {
    if !detail.is_empty() {
        detail.push(' ');
    }
    detail.push_str(sentence);
}

fn upper(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}

fn metadata(survey: &Survey) -> PartReport {
    let (status, detail) = match &survey.metadata {
        MetadataFact::Whole(metadata) if metadata.id != survey.identity.pipeline_id => (
            "foreign",
            format!(
                "It is of pipeline \"{}\" with id {}.",
                metadata.pipeline, metadata.id
            ),
        ),
        MetadataFact::Whole(metadata) => (
            "ok",
            format!(
                "Id {}, format version {}.",
                metadata.id, metadata.format_version
            ),
        ),
        MetadataFact::Unreadable(_) => ("damaged", String::new()),
        MetadataFact::Missing if survey.newest_batch().is_none() => {
            ("empty", "No batch ever ran.".to_owned())
        }
        MetadataFact::Missing => ("missing", String::new()),
    };
    PartReport {
        part: "metadata",
        status,
        count: Some(u64::from(survey.files.contains_key("metadata"))),
        detail,
        ..PartReport::default()
    }
}

fn log_part<T>(
    part: &'static str,
    survey: &Survey,
    entries: &BTreeMap<u64, Entry<T>>,
) -> PartReport {
    let first = entries.keys().next().copied();
    let last = entries.keys().next_back().copied();
    let is_damaged = entries.values().any(|entry| entry.damage().is_some());
    let has_gap = first
        .zip(last)
        .is_some_and(|(first, last)| last - first + 1 != entries.len() as u64);
    let status = match () {
        () if entries.is_empty() && survey.newest_batch().is_none() => "empty",
        () if entries.is_empty() => "missing",
        () if is_damaged => "damaged",
        () if has_gap => "warning",
        () => "ok",
    };
    PartReport {
        part,
        status,
        count: Some(entries.len() as u64),
        first,
        last,
        ..PartReport::default()
    }
}

fn commits(survey: &Survey) -> PartReport {
    let mut part = log_part("commits", survey, &survey.commits);
    if let Some(known) = survey.catalog_batch {
        add(
            &mut part.detail,
            &format!("The catalog knows batch {known}."),
        );
    }
    // The first batch, between planning and commit.
    if part.status == "missing" && survey.catalog_batch.is_none() {
        part.status = "empty";
    }
    part
}

fn state(survey: &Survey, depth: Depth) -> PartReport {
    let runs = survey.named_runs();
    let bytes: u64 = runs.iter().map(|run| run.bytes).sum();
    let newest = survey.newest_commit();
    let is_damaged = newest.is_some_and(|commit| survey.state_of(commit).damage().is_some());
    let mut detail = format!("{} of {bytes} bytes.", counted(runs.len() as u64, "run"));
    if depth == Depth::Quick && survey.checked_bytes < bytes && survey.damaged_runs.is_empty() {
        let sentence = format!("Checksums of {} bytes were read.", survey.checked_bytes);
        add(&mut detail, &sentence);
    }
    let is_empty = survey.manifests.is_empty() && runs.is_empty();
    PartReport {
        part: "state",
        status: match () {
            () if is_damaged => "damaged",
            () if is_empty => "empty",
            () => "ok",
        },
        count: Some(runs.len() as u64),
        first: runs.iter().map(|run| run.first_batch_id).min(),
        last: runs.iter().map(|run| run.last_batch_id).max(),
        detail,
        repair: None,
    }
}

fn sources(survey: &Survey) -> PartReport {
    let batches: Vec<u64> = survey
        .sources
        .keys()
        .filter_map(|path| super::survey::source_batch(path))
        .collect();
    PartReport {
        part: "sources",
        status: "ok",
        count: Some(survey.sources.len() as u64),
        first: batches.iter().copied().min(),
        last: batches.iter().copied().max(),
        ..PartReport::default()
    }
}

fn lease(survey: &Survey, now_us: i64) -> PartReport {
    let (status, detail) = match &survey.lease {
        None => ("free", "Nobody has it.".to_owned()),
        Some(Entry::Damaged(why)) => (
            "damaged",
            format!("{}. The next opening writes it anew.", upper(why)),
        ),
        Some(Entry::Whole(lease)) => {
            let status = if lease.expires_at_us > now_us {
                "held"
            } else {
                "free"
            };
            (
                status,
                format!(
                    "Taken last by {}, epoch {}.",
                    crate::checkpoint::lease::describe(lease),
                    lease.epoch
                ),
            )
        }
    };
    PartReport {
        part: "lease",
        status,
        count: Some(u64::from(survey.lease.is_some())),
        detail,
        ..PartReport::default()
    }
}

fn disk(survey: &Survey) -> PartReport {
    let bytes: u64 = survey.files.values().sum();
    PartReport {
        part: "disk",
        status: "ok",
        count: Some(survey.files.len() as u64),
        detail: format!("{bytes} bytes at \"{}\".", survey.location),
        ..PartReport::default()
    }
}

/// The shape of the guide's `diagnose_checkpoint()`.
pub fn guide_json(survey: &Survey) -> Value {
    const HEAD_BYTES: usize = 1024;
    let metadata = match (&survey.metadata, &survey.metadata_text) {
        (MetadataFact::Whole(_), Some(text)) => text.chars().take(HEAD_BYTES).collect(),
        _ => "MISSING_OR_CORRUPT".to_owned(),
    };
    let is_known = survey.newest_batch().is_some();
    let log = |batches: Vec<u64>| match (batches.first(), batches.last()) {
        (Some(first), Some(last)) => {
            json!({ "count": batches.len(), "range": format!("{first}-{last}") })
        }
        _ if is_known => json!("MISSING"),
        _ => json!({ "count": 0, "range": "empty" }),
    };
    json!({
        "metadata": metadata,
        "offsets": log(survey.offsets.keys().copied().collect()),
        "commits": log(survey.commits.keys().copied().collect()),
        "state": state_json(survey),
        "sources": sources_json(survey),
    })
}

/// Runs that the newest commit stands on.
fn state_json(survey: &Survey) -> Value {
    let Some(commit) = survey.newest_commit() else {
        return match survey.newest_batch() {
            Some(_) => json!("MISSING"),
            None => json!({ "count": 0, "range": "empty" }),
        };
    };
    if survey.state_of(commit).damage().is_some() {
        return json!("MISSING_OR_CORRUPT");
    }
    let manifest = commit.state.and_then(|state| state.manifest_batch_id);
    let manifest = manifest.and_then(|n| survey.manifests.get(&n)?.whole());
    let runs = manifest.map_or(&[][..], |(manifest, _)| &manifest.runs);
    let first = runs.iter().map(|run| run.first_batch_id).min();
    let last = runs.iter().map(|run| run.last_batch_id).max();
    let range = match first.zip(last) {
        Some((first, last)) => format!("{first}-{last}"),
        None => "empty".to_owned(),
    };
    let bytes: u64 = runs.iter().map(|run| run.bytes).sum();
    json!({ "count": runs.len(), "range": range, "bytes": bytes })
}

/// Where each source stands after the newest commit, and the entries of its own log, if it keeps one.
fn sources_json(survey: &Survey) -> Value {
    let newest = survey.newest_commit();
    let positions = newest.into_iter().flat_map(|c| &c.entry.source_offsets);
    let of_each = positions.map(|(source, position)| {
        let folder = crate::checkpoint::source_log::folder_of(source);
        let in_folder = |path: &&String| path.starts_with(&folder);
        let entries = survey.sources.keys().filter(in_folder).count();
        let lost = survey.lost_source_entries(&[(source, position)]);
        let log = match (entries, lost.is_empty()) {
            (_, false) => json!("MISSING_OR_CORRUPT"),
            (0, true) => Value::Null,
            (entries, true) => json!({ "count": entries }),
        };
        let of_source = json!({ "end_offset": position.0, "log": log });
        (source.clone(), of_source)
    });
    Value::Object(of_each.collect())
}
