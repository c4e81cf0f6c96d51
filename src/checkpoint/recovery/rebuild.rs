//! Entries made again from what their neighbours prove.
//!
//! ```text
//!   offsets/M = (positions after M-1, positions after M)     positions and times: of a commit, or on from one
//!   commits/M = commits/M-1 moved on by offsets/M            before, or back from one after, by what was planned
//! ```
//!
//! What the neighbours do not prove is not made up: it is told, and the operator chooses.

use std::collections::{BTreeMap, BTreeSet};

use super::survey::{Entry, Survey};
use crate::checkpoint::decide::MetadataFact;
use crate::checkpoint::format::{CommitFile, OffsetFile, StateReference};
use crate::checkpoint::{CommitEntry, OffsetEntry, SINKS_SETTING};
use crate::connectors::{SourceOffset, SourceRange};

/// Why an entry cannot be made again, as a clause.
pub type Unproven = String;

type Positions = BTreeMap<String, SourceOffset>;

/// The first batch of the checkpoint, as far as anything tells it.
pub fn first_batch(survey: &Survey) -> u64 {
    if let MetadataFact::Whole(metadata) = &survey.metadata {
        return metadata.first_batch_id;
    }
    if let Some(commit) = survey.newest_commit() {
        return commit.first_batch_id;
    }
    let has_state = survey.files.keys().any(|path| path.starts_with("state/"));
    match survey.offsets.keys().next() {
        // A checkpoint that begins anew: its first batch is planned and has not committed.
        Some(&first) if survey.offsets.len() == 1 && !has_state => first,
        _ => 0,
    }
}

fn commit(survey: &Survey, batch_id: u64) -> Option<&CommitFile> {
    survey.commits.get(&batch_id).and_then(Entry::whole)
}

fn planned(survey: &Survey, batch_id: u64) -> Option<&OffsetEntry> {
    let file = survey.offsets.get(&batch_id).and_then(Entry::whole)?;
    Some(&file.entry)
}

/// The newest sound commit before a batch.
fn commit_before(survey: &Survey, batch_id: u64) -> Option<&CommitFile> {
    let before = survey.commits.range(..batch_id).rev();
    before.filter_map(|(_, entry)| entry.whole()).next()
}

/// Positions of all sources after a batch: of its commit, or on from a commit before it, or back from
/// one after it, by the planned ranges between.
fn positions_after(survey: &Survey, batch_id: u64) -> Result<Positions, Unproven> {
    if let Some(commit) = commit(survey, batch_id) {
        return Ok(commit.entry.source_offsets.clone());
    }
    positions_onward(survey, batch_id)
        .or_else(|| positions_back(survey, batch_id))
        .ok_or_else(|| format!("nothing tells the positions after batch {batch_id}"))
}

fn positions_onward(survey: &Survey, batch_id: u64) -> Option<Positions> {
    let before = commit_before(survey, batch_id)?;
    let mut positions = before.entry.source_offsets.clone();
    for next in before.entry.batch_id + 1..=batch_id {
        for (source, range) in &planned(survey, next)?.sources {
            positions.insert(source.clone(), range.end.clone());
        }
    }
    Some(positions)
}

fn positions_back(survey: &Survey, batch_id: u64) -> Option<Positions> {
    let mut positions = Positions::new();
    for next in batch_id + 1.. {
        for (source, range) in &planned(survey, next)?.sources {
            let start = range.start.clone();
            positions.entry(source.clone()).or_insert(start);
        }
        if let Some(commit) = commit(survey, next) {
            for (source, after) in &commit.entry.source_offsets {
                let after = after.clone();
                positions.entry(source.clone()).or_insert(after);
            }
            return Some(positions);
        }
    }
    None
}

/// The largest event times after a batch: told by its commit and by the entry planned next, and where
/// both are gone, if nothing moved between the commits around it.
fn event_times_after(survey: &Survey, batch_id: u64) -> Result<BTreeMap<String, i64>, Unproven> {
    if let Some(commit) = commit(survey, batch_id) {
        return Ok(commit.entry.event_time_max_us.clone());
    }
    if let Some(next) = planned(survey, batch_id + 1) {
        return Ok(next.watermarks_us.clone());
    }
    let mut later = survey.commits.range(batch_id + 1..);
    let later = later.find_map(|(_, entry)| entry.whole());
    match (commit_before(survey, batch_id), later) {
        (Some(a), Some(b)) if a.entry.event_time_max_us == b.entry.event_time_max_us => {
            Ok(a.entry.event_time_max_us.clone())
        }
        _ => Err(format!(
            "nothing tells the event times after batch {batch_id}"
        )),
    }
}

/// When a batch ran: its metrics tell it.
fn batch_at_us(commit: &CommitEntry) -> Option<i64> {
    commit.metrics.first()?.get("batch_started_at")?.as_i64()
}

/// The entry of the offset log of a batch.
pub fn offsets(survey: &Survey, batch_id: u64) -> Result<OffsetEntry, Unproven> {
    let this = commit(survey, batch_id);
    let before = batch_id
        .checked_sub(1)
        .filter(|_| batch_id > first_batch(survey));
    let (starts, watermarks_us) = match (before, this) {
        (Some(before), _) => (
            positions_after(survey, before)?,
            event_times_after(survey, before)?,
        ),
        (None, Some(this)) => (this.entry.initial_offsets.clone(), BTreeMap::new()),
        (None, None) => return Err("it is the first batch, and its commit cannot be read".into()),
    };
    let mut sources = BTreeMap::new();
    for (source, end) in positions_after(survey, batch_id)? {
        let start = starts
            .get(&source)
            .ok_or_else(|| format!("source \"{source}\" was not read before this batch"))?;
        if *start != end {
            let start = start.clone();
            sources.insert(source, SourceRange { start, end });
        }
    }
    let after = planned(survey, batch_id + 1);
    let earlier = batch_id.checked_sub(1).and_then(|n| planned(survey, n));
    let settings = |entry: &OffsetEntry| {
        let mut settings = entry.settings.clone();
        settings.remove(SINKS_SETTING);
        settings
    };
    let settings = match (earlier.map(settings), after.map(settings)) {
        (Some(a), Some(b)) if a != b => {
            return Err("its neighbours ran under different settings".into());
        }
        (Some(settings), _) | (None, Some(settings)) => settings,
        (None, None) => BTreeMap::new(),
    };
    let (watermark, view_watermarks) = match (this, earlier, after) {
        // A view that joined with this batch was computed as without one.
        (Some(this), _, _) => (this.entry.watermark, &this.entry.view_watermarks),
        (None, Some(earlier), Some(after))
            if earlier.watermark == after.watermark
                && earlier.view_watermarks == after.view_watermarks =>
        {
            (after.watermark, &after.view_watermarks)
        }
        _ => return Err("the watermark that it applied is not known".into()),
    };
    let at_us = this.and_then(|this| batch_at_us(&this.entry));
    let between = || Some(i64::midpoint(earlier?.batch_at_us, after?.batch_at_us));
    Ok(OffsetEntry {
        batch_id,
        batch_at_us: at_us
            .or_else(between)
            .ok_or("the time at which it ran is not known")?,
        watermarks_us,
        watermark,
        view_watermarks: view_watermarks.clone(),
        settings,
        sources,
    })
}

/// The commit entry of a batch that later ones prove to have happened.
pub fn commit_entry(survey: &Survey, batch_id: u64, epoch: u64) -> Result<CommitFile, Unproven> {
    let before = batch_id
        .checked_sub(1)
        .and_then(|before| commit(survey, before))
        .ok_or("the commit before it cannot be read")?;
    let next = survey
        .commits
        .range(batch_id + 1..)
        .find_map(|(_, entry)| entry.whole())
        .ok_or("no later commit proves that it happened")?;
    let this = planned(survey, batch_id).ok_or("its offset entry cannot be read")?;
    if before.entry.views != next.entry.views || before.entry.sinks != next.entry.sinks {
        return Err("views or sinks joined or left in the meantime".into());
    }
    let mut source_offsets = before.entry.source_offsets.clone();
    for (source, range) in &this.sources {
        source_offsets.insert(source.clone(), range.end.clone());
    }
    let event_time_max_us = event_times_after(survey, batch_id)?;
    // Its delay is what lies between the two, by input.
    let next_watermarks_us = event_time_max_us
        .iter()
        .filter_map(|(relation, time)| {
            let known = before.entry.event_time_max_us.get(relation)?;
            let delayed = before.entry.next_watermarks_us.get(relation)?;
            Some((relation.clone(), time - (known - delayed)))
        })
        .collect();
    Ok(CommitFile {
        pipeline_id: survey.identity.pipeline_id,
        epoch,
        first_batch_id: next.first_batch_id,
        state: state_at(survey, batch_id).or(before.state),
        entry: CommitEntry {
            batch_id,
            next_watermarks_us,
            watermark: this.watermark,
            closed_until: planned(survey, batch_id + 1).and_then(|next| next.watermark),
            view_watermarks: this.view_watermarks.clone(),
            event_time_max_us,
            source_offsets,
            initial_offsets: before.entry.initial_offsets.clone(),
            sinks: before.entry.sinks.clone(),
            views: before.entry.views.clone(),
            metrics: Vec::new(),
        },
    })
}

/// The state that a batch persisted, where its manifest is still there; without one an older state
/// is as right, since the batches after it can be run again.
fn state_at(survey: &Survey, batch_id: u64) -> Option<StateReference> {
    let (_, crc) = survey.manifests.get(&batch_id)?.whole()?;
    Some(StateReference {
        batch_id,
        manifest_batch_id: Some(batch_id),
        manifest_crc32c: *crc,
    })
}

/// How state that is lost can be computed again.
#[derive(Debug, Clone, PartialEq)]
pub enum Rebuild {
    /// All batches from the first run again, each exactly as it was.
    Replay {
        /// First batch.
        first: u64,
        /// Last batch.
        last: u64,
    },
    /// The offset log does not reach back to the first batch: the sources are read again from where
    /// they were begun up to where the newest commit stands, as one batch.
    Fill(Box<CommitFile>),
}

/// Chooses how to compute the state again; why it cannot be, as a clause.
pub fn plan_rebuild(survey: &Survey) -> Result<Rebuild, Unproven> {
    let first = first_batch(survey);
    let newest = survey.offsets.keys().next_back().copied();
    let newest_commit = survey.newest_commit();
    if let Some(last) = newest
        && (first..=last).all(|batch_id| planned(survey, batch_id).is_some())
    {
        return Ok(Rebuild::Replay { first, last });
    }
    let Some(commit) = newest_commit else {
        return Err("no commit entry can be read, and the offset log is not whole".into());
    };
    if commit.entry.initial_offsets.is_empty() {
        return Err(format!(
            "commits/{} does not tell where its sources were begun",
            commit.entry.batch_id
        ));
    }
    Ok(Rebuild::Fill(Box::new(commit.clone())))
}

/// The newest commit as one whose views are all still to be filled from the sources.
pub fn unfilled(commit: &CommitFile, epoch: u64) -> CommitFile {
    let batch_id = commit.entry.batch_id;
    CommitFile {
        epoch,
        state: Some(StateReference {
            batch_id,
            manifest_batch_id: None,
            manifest_crc32c: 0,
        }),
        entry: CommitEntry {
            views: BTreeMap::new(),
            ..commit.entry.clone()
        },
        ..commit.clone()
    }
}

/// The entries of committed batches after `from` that do not say yet which sinks they went to, with that
/// said; why it cannot be, as a clause. The commits tell it, which are about to give way.
pub fn with_sinks(survey: &Survey, from: Option<u64>) -> Result<Vec<OffsetFile>, Unproven> {
    let Some(newest) = survey.newest_commit().map(|commit| commit.entry.batch_id) else {
        return Ok(Vec::new());
    };
    let mut changed = Vec::new();
    for (&batch_id, entry) in survey.offsets.range(..=newest) {
        let Some(file) = entry.whole().filter(|_| Some(batch_id) > from) else {
            continue;
        };
        if file.entry.settings.contains_key(SINKS_SETTING) {
            continue;
        }
        let sinks: Vec<&String> = sinks_at(survey, batch_id)
            .ok_or_else(|| format!("nothing tells which sinks batch {batch_id} went to"))?
            .iter()
            .collect();
        let mut file = file.clone();
        let json = serde_json::json!(sinks).to_string();
        file.entry.settings.insert(SINKS_SETTING.to_owned(), json);
        changed.push(file);
    }
    Ok(changed)
}

/// The sinks at a batch: those of its commit, or where it is gone, those that the commits around it agree
/// on.
fn sinks_at(survey: &Survey, batch_id: u64) -> Option<&BTreeSet<String>> {
    if let Some(commit) = commit(survey, batch_id) {
        return Some(&commit.entry.sinks);
    }
    let mut later = survey.commits.range(batch_id + 1..);
    let later = &later.find_map(|(_, entry)| entry.whole())?.entry.sinks;
    let agree = match commit_before(survey, batch_id) {
        Some(before) => before.entry.sinks == *later,
        None => later.is_empty(),
    };
    agree.then_some(later)
}
