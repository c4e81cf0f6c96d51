//! What an operator is told of a checkpoint: a row per part, and the statement that mends it.
//!
//! Pure functions of a survey. Which statement helps is what opening itself would name.

use serde_json::{Value, json};

use super::survey::{Depth, Entry, Survey};
use crate::checkpoint::decide::{Decision, MetadataFact, Stop};
use crate::sql::names::{quote_identifier, quote_literal};

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

/// The statement that mends what made a pipeline stop.
pub fn mending_statement(stop: &Stop, pipeline: &str, location: &str) -> String {
    let name = quote_identifier(pipeline);
    match stop {
        Stop::Older {
            newest_batch: Some(newest),
            ..
        } => format!(
            "RESTORE CHECKPOINT OF {name} FROM {} AT BATCH {newest};",
            quote_literal(location)
        ),
        Stop::Missing { .. } | Stop::Older { .. } => format!("RESET CHECKPOINT OF {name};"),
        Stop::Foreign { .. } => {
            let own = quote_literal(&format!("{location}.new"));
            format!("ALTER PIPELINE {name} SET (checkpoint_location = {own});")
        }
        Stop::NewerFormat(_) => String::new(),
        Stop::MetadataMissing
        | Stop::MetadataDamaged(_)
        | Stop::OffsetsDamaged { .. }
        | Stop::CommitsLost { .. } => format!("REPAIR CHECKPOINT OF {name};"),
        Stop::StateLost { .. } => format!("REBUILD STATE OF {name};"),
    }
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

/// The rows, one per part; the engine adds what the sources themselves say.
pub fn diagnose(survey: &Survey, depth: Depth, now_us: i64) -> Vec<PartReport> {
    let mut parts = vec![
        metadata(survey),
        offsets(survey),
        commits(survey),
        state(survey, depth),
        sources(survey),
        lease(survey, now_us),
        disk(survey),
    ];
    match survey.verdict() {
        Decision::Stop(stop) => {
            let statement =
                mending_statement(&stop, &survey.identity.pipeline_name, &survey.location);
            let error = stop.to_error(&survey.identity.pipeline_name, &survey.location);
            if matches!(stop, Stop::Foreign { .. } | Stop::NewerFormat(_)) {
                // Nothing of it may be touched.
                parts.iter_mut().for_each(|part| part.repair = None);
            }
            if let Some(part) = parts.iter_mut().find(|part| part.part == part_of(&stop)) {
                if matches!(part.status, "ok" | "empty" | "warning") {
                    part.status = "damaged";
                }
                add(&mut part.detail, &format!("{}.", upper(error.primary())));
                part.repair = Some(statement).filter(|statement| !statement.is_empty());
            }
        }
        Decision::Resume(plan) => {
            let newest = survey.newest_commit().map(|commit| commit.entry.batch_id);
            if plan.start < newest
                && let Some(part) = parts.iter_mut().find(|part| part.part == "state")
            {
                add(
                    &mut part.detail,
                    &format!("{} batches run again at the next start.", plan.replay.len()),
                );
            }
        }
        Decision::Fresh | Decision::Read(_) => {}
    }
    parts
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

fn repair(survey: &Survey) -> Option<String> {
    let name = quote_identifier(&survey.identity.pipeline_name);
    Some(format!("REPAIR CHECKPOINT OF {name};"))
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
        MetadataFact::Unreadable(why) => ("damaged", format!("{}.", upper(&why.to_string()))),
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

/// Batches of damaged entries, as a sentence each; at most a few.
fn damages<'a, T: 'a>(entries: impl Iterator<Item = (String, &'a Entry<T>)>) -> Vec<String> {
    const TOLD: usize = 5;
    let all: Vec<String> = entries
        .filter_map(|(name, entry)| Some(format!("{name}: {}.", entry.damage()?)))
        .collect();
    let more = all.len().saturating_sub(TOLD);
    let mut told: Vec<String> = all.into_iter().take(TOLD).collect();
    if more > 0 {
        told.push(format!("And {more} more."));
    }
    told
}

/// Batches between the first and the last that are not there, as ranges.
fn gaps<T>(entries: &std::collections::BTreeMap<u64, T>) -> Vec<String> {
    let batches: Vec<u64> = entries.keys().copied().collect();
    batches
        .windows(2)
        .filter(|pair| pair[1] > pair[0] + 1)
        .map(|pair| match (pair[0] + 1, pair[1] - 1) {
            (first, last) if first == last => format!("Batch {first} is missing."),
            (first, last) => format!("Batches {first} to {last} are missing."),
        })
        .collect()
}

fn log_part<T>(
    part: &'static str,
    survey: &Survey,
    entries: &std::collections::BTreeMap<u64, Entry<T>>,
) -> PartReport {
    let damaged = damages(
        entries
            .iter()
            .map(|(batch_id, entry)| (format!("{part}/{batch_id}"), entry)),
    );
    let gaps = gaps(entries);
    let status = match (entries.is_empty(), damaged.is_empty(), gaps.is_empty()) {
        (true, _, _) if survey.newest_batch().is_none() => "empty",
        (true, _, _) => "missing",
        (_, false, _) => "damaged",
        (_, _, false) => "warning",
        _ => "ok",
    };
    let mends = matches!(status, "damaged" | "warning");
    PartReport {
        part,
        status,
        count: Some(entries.len() as u64),
        first: entries.keys().next().copied(),
        last: entries.keys().next_back().copied(),
        detail: damaged
            .into_iter()
            .chain(gaps)
            .collect::<Vec<_>>()
            .join(" "),
        repair: repair(survey).filter(|_| mends),
    }
}

fn offsets(survey: &Survey) -> PartReport {
    log_part("offsets", survey, &survey.offsets)
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
    let damage = newest.and_then(|commit| match survey.state_of(commit) {
        Entry::Whole(()) => None,
        Entry::Damaged(why) => Some(why),
    });
    let mut detail = format!("{} runs of {bytes} bytes.", runs.len());
    if depth == Depth::Quick && survey.checked_bytes < bytes && survey.damaged_runs.is_empty() {
        add(
            &mut detail,
            &format!("Checksums of {} bytes were read.", survey.checked_bytes),
        );
    }
    if let Some(why) = &damage {
        add(&mut detail, &format!("{why}."));
    }
    let older = damages(
        survey
            .manifests
            .iter()
            .map(|(batch_id, entry)| (format!("state/{batch_id}.manifest"), entry)),
    );
    if damage.is_none() {
        for why in &older {
            add(&mut detail, why);
        }
    }
    let is_empty = survey.manifests.is_empty() && runs.is_empty();
    let status = match () {
        () if damage.is_some() => "damaged",
        () if !older.is_empty() || !survey.damaged_runs.is_empty() => "warning",
        () if is_empty => "empty",
        () => "ok",
    };
    PartReport {
        part: "state",
        status,
        count: Some(runs.len() as u64),
        first: runs.iter().map(|run| run.first_batch_id).min(),
        last: runs.iter().map(|run| run.last_batch_id).max(),
        detail,
        repair: repair(survey).filter(|_| status == "damaged"),
    }
}

fn sources(survey: &Survey) -> PartReport {
    let damaged = damages(
        survey
            .sources
            .iter()
            .map(|(path, entry)| (path.clone(), entry)),
    );
    let batches: Vec<u64> = survey
        .sources
        .keys()
        .filter_map(|path| super::survey::source_batch(path))
        .collect();
    PartReport {
        part: "sources",
        status: if damaged.is_empty() { "ok" } else { "damaged" },
        count: Some(survey.sources.len() as u64),
        first: batches.iter().copied().min(),
        last: batches.iter().copied().max(),
        repair: repair(survey).filter(|_| !damaged.is_empty()),
        detail: damaged.join(" "),
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
    })
}
