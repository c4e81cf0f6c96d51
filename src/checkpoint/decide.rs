//! What to do with a checkpoint: pure functions from facts to closed answers.
//!
//! `resume` is asked again and again: it answers with what it still needs to read until it can
//! tell where to resume, or why not. So it reads little of a sound checkpoint and much of a
//! damaged one, and a test states facts instead of files. The rules are those of the fault table:
//! a missing, foreign, older or damaged checkpoint is never a fresh start.

use std::collections::BTreeMap;
use std::ops::Range;

use uuid::Uuid;

use super::format::{CommitFile, FORMAT_VERSION, Metadata, RunInfo, Unreadable};
use super::merge::is_same_run;
use crate::error::{Error, ErrorKind, sqlstate};
use crate::sql::names::{quote_identifier, quote_literal};

/// What is wrong with a file that is not there.
const MISSING: &str = "the file is missing";

/// A file of the listing.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact<T> {
    /// Listed, not read yet.
    Unread,
    /// Read and sound.
    Whole(T),
    /// Read and not sound: why, as a clause.
    Damaged(String),
}

/// What is known of `metadata`.
#[derive(Debug, Clone, PartialEq)]
pub enum MetadataFact {
    /// There is no such file.
    Missing,
    /// It cannot be read.
    Unreadable(Unreadable),
    /// It is sound.
    Whole(Metadata),
}

/// All that [`resume`] knows.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The id that the checkpoint must have.
    pub pipeline_id: Uuid,
    /// Newest batch that the catalog knows of this pipeline.
    pub catalog_batch: Option<u64>,
    /// `metadata`.
    pub metadata: MetadataFact,
    /// `offsets/N`, by batch; whole ones need no content here.
    pub offsets: BTreeMap<u64, Fact<()>>,
    /// `commits/N`, by batch.
    pub commits: BTreeMap<u64, Fact<CommitFile>>,
    /// Whether the manifest and the runs that commit N stands on are whole, by commit.
    pub states: BTreeMap<u64, Fact<()>>,
    /// There are files other than `metadata`, the logs and the lease.
    pub has_other_files: bool,
    /// Newest batch that a run or a manifest names.
    pub newest_state: Option<u64>,
}

impl Facts {
    /// The number of the checkpoint's first batch; not 0 where it was begun anew.
    fn first_batch(&self) -> u64 {
        match &self.metadata {
            MetadataFact::Whole(metadata) => metadata.first_batch_id,
            MetadataFact::Missing | MetadataFact::Unreadable(_) => 0,
        }
    }
}

/// A part that must be read before there is an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// `offsets/N`
    Offsets(u64),
    /// `commits/N`
    Commit(u64),
    /// The manifest and runs of commit N.
    State(u64),
}

/// Where to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The commit at whose state to start; `None`: at the empty state before the first batch.
    pub start: Option<u64>,
    /// Batches to run again, ascending.
    pub replay: Vec<u64>,
    /// Damaged files of batches that never committed, and of commits that are made again; moved to
    /// the archive.
    pub set_aside: Vec<Part>,
    /// What an operator may want to know, as sentences.
    pub notes: Vec<String>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Not yet known: read these parts and ask again.
    Read(Vec<Part>),
    /// Nothing was ever here, nor does the catalog know of anything.
    Fresh,
    /// Go on there.
    Resume(Plan),
    /// Touch nothing.
    Stop(Stop),
}

/// Why a pipeline must stop.
#[derive(Debug, Clone, PartialEq)]
pub enum Stop {
    /// The catalog knows a batch, the location is empty.
    Missing { catalog_batch: u64 },
    /// Its newest batch is older than the one the catalog knows.
    Older {
        newest_batch: Option<u64>,
        catalog_batch: u64,
    },
    /// It belongs to another pipeline or database.
    Foreign { id: Uuid, pipeline: String },
    /// `metadata` is gone while other files are there.
    MetadataMissing,
    /// `metadata` cannot be read.
    MetadataDamaged(String),
    /// Written by a newer build.
    NewerFormat(String),
    /// The input of a committed batch is not known any more.
    OffsetsDamaged { batch_id: u64, why: String },
    /// There were commits, none is left, and the offset log does not begin with the first batch.
    CommitsLost {
        first_batch: u64,
        oldest_offsets: Option<u64>,
        newest_state: Option<u64>,
    },
    /// No batch has a whole state from which the offset log leads on.
    StateLost { newest_commit: u64, why: String },
}

/// The last batch that a file of the state is of: `state/N.run`, `state/N1-N2.run` (each with what
/// may follow the number), `state/N.manifest`.
pub fn state_batch(path: &str) -> Option<u64> {
    let name = path.strip_prefix("state/")?;
    let stem = name.split('.').next()?;
    stem.rsplit('-').next()?.parse().ok()
}

/// Decides where to resume.
pub fn resume(facts: &Facts) -> Decision {
    if let Some(stop) = check_identity(facts) {
        return Decision::Stop(stop);
    }
    if let Some(stop) = check_commits(facts) {
        return Decision::Stop(stop);
    }
    let newest_batch = newest(&facts.offsets).max(newest(&facts.commits));
    match (newest_batch, facts.catalog_batch) {
        (None, None) => return Decision::Fresh,
        (newest_batch, Some(catalog_batch)) if newest_batch < Some(catalog_batch) => {
            return Decision::Stop(Stop::Older {
                newest_batch,
                catalog_batch,
            });
        }
        _ => {}
    }
    match settle_newest(facts) {
        Ok(tail) => find_start(facts, tail),
        Err(decision) => decision,
    }
}

fn newest<T>(files: &BTreeMap<u64, T>) -> Option<u64> {
    files.keys().next_back().copied()
}

fn check_identity(facts: &Facts) -> Option<Stop> {
    match &facts.metadata {
        MetadataFact::Whole(metadata) => {
            (metadata.id != facts.pipeline_id).then(|| Stop::Foreign {
                id: metadata.id,
                pipeline: metadata.pipeline.clone(),
            })
        }
        MetadataFact::Unreadable(Unreadable::NewerVersion(version)) => {
            Some(Stop::NewerFormat(version.clone()))
        }
        MetadataFact::Unreadable(Unreadable::Damaged(why)) => {
            Some(Stop::MetadataDamaged(why.clone()))
        }
        MetadataFact::Missing => {
            let is_empty =
                facts.offsets.is_empty() && facts.commits.is_empty() && !facts.has_other_files;
            match (is_empty, facts.catalog_batch) {
                (true, None) => None,
                (true, Some(catalog_batch)) => Some(Stop::Missing { catalog_batch }),
                (false, _) => Some(Stop::MetadataMissing),
            }
        }
    }
}

/// Without any commit entry the pipeline begins with the empty state. That is right only if the
/// offset log tells every batch from the first on: a batch is planned and its state written only
/// after the one before it committed, so a later batch proves that commits were lost.
fn check_commits(facts: &Facts) -> Option<Stop> {
    if !facts.commits.is_empty() {
        return None;
    }
    let first_batch = facts.first_batch();
    let oldest_offsets = facts.offsets.keys().next().copied();
    let is_from_first = oldest_offsets.is_none_or(|oldest| oldest == first_batch);
    let is_state_told = facts
        .newest_state
        .is_none_or(|state| state == first_batch || Some(state) <= newest(&facts.offsets));
    (!(is_from_first && is_state_told)).then_some(Stop::CommitsLost {
        first_batch,
        oldest_offsets,
        newest_state: facts.newest_state,
    })
}

/// The newest sound commit, and what lies beyond it.
struct Tail {
    newest_commit: Option<u64>,
    set_aside: Vec<Part>,
    notes: Vec<String>,
}

/// Finds the newest sound commit. A damaged commit beyond it is made again by replay; a damaged
/// offset entry beyond it never ran and is planned anew, if it is the newest.
fn settle_newest(facts: &Facts) -> Result<Tail, Decision> {
    let mut tail = Tail {
        newest_commit: None,
        set_aside: Vec::new(),
        notes: Vec::new(),
    };
    for (&batch_id, commit) in facts.commits.iter().rev() {
        match commit {
            Fact::Unread => return Err(Decision::Read(vec![Part::Commit(batch_id)])),
            Fact::Whole(_) => {
                tail.newest_commit = Some(batch_id);
                break;
            }
            Fact::Damaged(why) => {
                tail.set_aside.push(Part::Commit(batch_id));
                tail.notes.push(format!(
                    "The commit entry of batch {batch_id} is damaged ({why}); the batch runs again."
                ));
            }
        }
    }
    // The newest commit's own offset entry too: without it the batch could not be told again.
    let from = tail.newest_commit.unwrap_or(0);
    if let Some(newest_commit) = tail.newest_commit
        && !facts.offsets.contains_key(&newest_commit)
    {
        return Err(offsets_damaged(newest_commit, MISSING));
    }
    let unread: Vec<Part> = facts
        .offsets
        .range(from..)
        .filter(|(_, fact)| **fact == Fact::Unread)
        .map(|(&batch_id, _)| Part::Offsets(batch_id))
        .collect();
    if !unread.is_empty() {
        return Err(Decision::Read(unread));
    }
    let newest_offsets = newest(&facts.offsets);
    let first_batch = facts.first_batch();
    for (&batch_id, fact) in facts.offsets.range(from..) {
        let Fact::Damaged(why) = fact else { continue };
        let was_committed = facts.commits.contains_key(&batch_id)
            || facts.catalog_batch.is_some_and(|known| batch_id <= known)
            // With all commits lost nobody knows any more; and where a checkpoint was begun anew, only
            // its first entry tells the positions to begin at.
            || (facts.commits.is_empty() && (batch_id > first_batch || first_batch > 0));
        if was_committed || Some(batch_id) != newest_offsets {
            return Err(Decision::Stop(Stop::OffsetsDamaged {
                batch_id,
                why: why.clone(),
            }));
        }
        tail.set_aside.push(Part::Offsets(batch_id));
        tail.notes.push(format!(
            "The offset entry of batch {batch_id} is damaged ({why}); the batch never committed \
             and is planned anew."
        ));
    }
    check_gaps(facts, &mut tail);
    Ok(tail)
}

fn check_gaps(facts: &Facts, tail: &mut Tail) {
    let Some(newest_commit) = tail.newest_commit else {
        return;
    };
    let Some(first) = facts.commits.keys().next().copied() else {
        return;
    };
    let missing = (first..newest_commit)
        .filter(|batch_id| !facts.commits.contains_key(batch_id))
        .count();
    if missing > 0 {
        tail.notes.push(format!(
            "{missing} commit entries before batch {newest_commit} are missing."
        ));
    }
}

/// Goes back from the newest commit to one whose state is whole and from which all offset entries
/// up to the newest are there.
fn find_start(facts: &Facts, mut tail: Tail) -> Decision {
    let mut lost: Option<String> = None;
    let first_batch = match tail.newest_commit.and_then(|n| facts.commits.get(&n)) {
        Some(Fact::Whole(commit)) => commit.first_batch_id,
        _ => facts.first_batch(),
    };
    let candidates = tail.newest_commit.into_iter().chain(
        facts
            .commits
            .range(..tail.newest_commit.unwrap_or(0))
            .rev()
            .map(|(&batch_id, _)| batch_id),
    );
    for batch_id in candidates {
        let commit = match &facts.commits[&batch_id] {
            Fact::Unread => return Decision::Read(vec![Part::Commit(batch_id)]),
            Fact::Damaged(_) => continue,
            Fact::Whole(commit) => commit,
        };
        // State older than its commit: the commit it is of comes later in the walk.
        if commit.state.is_none_or(|state| state.batch_id != batch_id) {
            continue;
        }
        match replay_after(facts, &tail, Some(batch_id), first_batch) {
            // Older candidates need this entry as well: what is wrong is the newer state.
            Err(Decision::Stop(_)) if lost.is_some() => break,
            Err(decision) => return decision,
            Ok(replay) => match facts.states.get(&batch_id) {
                None | Some(Fact::Unread) => return Decision::Read(vec![Part::State(batch_id)]),
                Some(Fact::Whole(())) => {
                    if let Some(why) = lost {
                        tail.notes.push(format!(
                            "State of newer batches is damaged ({why}); {} batches run again from \
                             batch {batch_id}.",
                            replay.len()
                        ));
                    }
                    return resume_at(Some(batch_id), replay, tail);
                }
                Some(Fact::Damaged(why)) => {
                    lost.get_or_insert_with(|| why.clone());
                }
            },
        }
    }
    // No commit is sound: only where the single one is of the first batch is that the beginning.
    if tail.newest_commit.is_none()
        && let Some(newest_commit) = newest(&facts.commits)
        && (facts.commits.len() > 1
            || newest_commit != facts.first_batch()
            || !facts.offsets.contains_key(&newest_commit))
    {
        return Decision::Stop(Stop::StateLost {
            newest_commit,
            why: "no commit entry can be read".into(),
        });
    }
    // Nothing persisted is whole. From the very beginning, if nothing was ever persisted.
    let newest_state = tail.newest_commit.and_then(|n| match &facts.commits[&n] {
        Fact::Whole(commit) => commit.state,
        _ => None,
    });
    match (lost, newest_state, tail.newest_commit) {
        (None, None, _) => match replay_after(facts, &tail, None, first_batch) {
            Ok(replay) => {
                if facts.commits.is_empty() && replay.len() > 1 {
                    tail.notes.push(format!(
                        "All commit entries are missing; {} batches run again from the first.",
                        replay.len()
                    ));
                }
                resume_at(None, replay, tail)
            }
            Err(decision) => decision,
        },
        (lost, _, newest_commit) => Decision::Stop(Stop::StateLost {
            newest_commit: newest_commit.unwrap_or_default(),
            why: lost.unwrap_or_else(|| "the commit entry of its batch is gone".into()),
        }),
    }
}

fn resume_at(start: Option<u64>, replay: Vec<u64>, tail: Tail) -> Decision {
    Decision::Resume(Plan {
        start,
        replay,
        set_aside: tail.set_aside,
        notes: tail.notes,
    })
}

/// The batches from after `start` to the newest planned one; all their offset entries must be
/// whole.
fn replay_after(
    facts: &Facts,
    tail: &Tail,
    start: Option<u64>,
    first_batch: u64,
) -> Result<Vec<u64>, Decision> {
    let from = start.map_or(first_batch, |start| start + 1);
    let newest = newest(&facts.offsets)
        .max(tail.newest_commit)
        .unwrap_or_default();
    let mut replay = Vec::new();
    let mut unread = Vec::new();
    for batch_id in from..=newest {
        match facts.offsets.get(&batch_id) {
            _ if tail.set_aside.contains(&Part::Offsets(batch_id)) => {}
            Some(Fact::Whole(())) => replay.push(batch_id),
            Some(Fact::Unread) => unread.push(Part::Offsets(batch_id)),
            Some(Fact::Damaged(why)) => return Err(offsets_damaged(batch_id, why)),
            None => return Err(offsets_damaged(batch_id, MISSING)),
        }
    }
    if unread.is_empty() {
        Ok(replay)
    } else {
        Err(Decision::Read(unread))
    }
}

fn offsets_damaged(batch_id: u64, why: &str) -> Decision {
    Decision::Stop(Stop::OffsetsDamaged {
        batch_id,
        why: why.into(),
    })
}

impl Stop {
    /// The error that the pipeline shows, with the statement that mends it.
    pub fn to_error(&self, pipeline: &str, location: &str) -> Error {
        let name = quote_identifier(pipeline);
        let restore = format!(
            "Run RESTORE CHECKPOINT OF {name} FROM '…' with a backup, or RESET CHECKPOINT OF \
             {name} to start again."
        );
        match self {
            Stop::Missing { catalog_batch } => {
                Error::damaged(format!("checkpoint of pipeline \"{pipeline}\" is missing"))
                    .detail(format!(
                        "The catalog knows batch {catalog_batch}, but nothing is at \"{location}\"."
                    ))
                    .hint(restore)
            }
            Stop::Older {
                newest_batch,
                catalog_batch,
            } => Error::damaged(format!(
                "checkpoint of pipeline \"{pipeline}\" is older than the catalog"
            ))
            .detail(match newest_batch {
                Some(newest) => format!(
                    "The catalog knows batch {catalog_batch}, the newest at \"{location}\" is \
                     batch {newest}."
                ),
                None => {
                    format!("The catalog knows batch {catalog_batch}, \"{location}\" has no batch.")
                }
            })
            .hint(match newest_batch {
                Some(newest) => format!(
                    "Run RESTORE CHECKPOINT OF {name} FROM {} AT BATCH {newest} to accept it, or \
                     RESET CHECKPOINT OF {name} to start again.",
                    quote_literal(location)
                ),
                None => restore,
            }),
            Stop::Foreign {
                id,
                pipeline: other,
            } => Error::damaged(format!(
                "checkpoint location \"{location}\" belongs to another pipeline"
            ))
            .detail(format!("It is of pipeline \"{other}\" with id {id}."))
            .hint(format!(
                "Give it a location of its own with ALTER PIPELINE {name} SET \
                 (checkpoint_location = '{location}.new'), then run RESET CHECKPOINT OF {name}."
            )),
            Stop::MetadataMissing => Error::damaged(format!(
                "checkpoint of pipeline \"{pipeline}\" cannot be used: \"{location}/metadata\": the \
                 file is missing"
            ))
            .detail("Other files of the checkpoint are there.")
            .hint(format!("Run REPAIR CHECKPOINT OF {name}.")),
            Stop::MetadataDamaged(why) => Error::damaged(format!(
                "checkpoint of pipeline \"{pipeline}\" cannot be used: \"{location}/metadata\": {why}"
            ))
            .detail("The other files of the checkpoint were not read.")
            .hint(format!("Run REPAIR CHECKPOINT OF {name}.")),
            Stop::NewerFormat(version) => newer_format(location, version),
            Stop::OffsetsDamaged { batch_id, why } => Error::damaged(format!(
                "offset entry of batch {batch_id} of pipeline \"{pipeline}\" cannot be used: \
                 \"{location}/offsets/{batch_id}\": {why}"
            ))
            .detail("It is what says which rows the batch took in.")
            .hint(format!("Run REPAIR CHECKPOINT OF {name}.")),
            Stop::CommitsLost {
                first_batch,
                oldest_offsets,
                newest_state,
            } => Error::damaged(format!(
                "commit entries of pipeline \"{pipeline}\" are missing: \"{location}/commits\" is empty"
            ))
            .detail(match (oldest_offsets, newest_state) {
                (Some(oldest), _) if oldest > first_batch => format!(
                    "The oldest entry of \"{location}/offsets\" is of batch {oldest}: batches \
                     before it were committed, and cannot be run again."
                ),
                (_, Some(state)) => format!(
                    "\"{location}/state\" holds batch {state}, which the offset log does not tell of."
                ),
                _ => "Batches were committed before.".to_owned(),
            })
            .hint(format!("Run REPAIR CHECKPOINT OF {name}. If that does not help: {restore}")),
            Stop::StateLost { newest_commit, why } => Error::damaged(format!(
                "state of pipeline \"{pipeline}\" at batch {newest_commit} cannot be used: {why}"
            ))
            .detail(format!(
                "The checkpoint lies at \"{location}\". The offset log does not lead on from an \
                 older batch."
            ))
            .hint(format!("Run REBUILD STATE OF {name}.")),
        }
    }
}

/// A file that a newer build wrote.
pub fn newer_format(location: &str, version: &str) -> Error {
    Error::with_kind(
        ErrorKind::Damaged,
        sqlstate::FEATURE_NOT_SUPPORTED,
        format!("checkpoint at \"{location}\" was written by a newer version"),
    )
    .detail(format!(
        "It has format version {version}, this build reads up to version {FORMAT_VERSION}."
    ))
    .hint("Start the version of Tidemill that wrote it, or a newer one.")
}

/// Runs of one tier that are merged into one.
const MERGED_RUNS: usize = 8;
/// Runs up to this size are of the lowest tier; each tier holds eight times as much.
const TIER_BYTES: u64 = 64 << 10;

fn tier_of(bytes: u64) -> u32 {
    let mut tier = 0;
    let mut limit = TIER_BYTES;
    while bytes > limit {
        tier += 1;
        limit = limit.saturating_mul(MERGED_RUNS as u64);
    }
    tier
}

/// The adjacent runs (oldest first; parts of one run follow one another) to merge next: at least
/// eight neighbours of which none is larger than the tier of the newest. A byte is so rewritten
/// once per tier.
pub fn plan_run_merge(oldest_first: &[RunInfo]) -> Option<Range<usize>> {
    let mut starts = Vec::new();
    let mut tiers = Vec::new();
    let mut start = 0;
    for parts in oldest_first.chunk_by(is_same_run) {
        starts.push(start);
        tiers.push(tier_of(parts.iter().map(|part| part.bytes).sum()));
        start += parts.len();
    }
    starts.push(start);
    let mut end = tiers.len();
    while end >= MERGED_RUNS {
        let tier = tiers[end - 1];
        let first = tiers[..end]
            .iter()
            .rposition(|&other| other > tier)
            .map_or(0, |larger| larger + 1);
        if end - first >= MERGED_RUNS {
            return Some(starts[first]..starts[end]);
        }
        end = first;
    }
    None
}

/// The oldest batch to retain, so that `min_batches` commits stay and everything that a restart
/// needs: the batches after the persisted state.
pub fn retention_cutoff(
    newest_commit: Option<u64>,
    persisted: Option<u64>,
    min_batches: u64,
) -> u64 {
    let (Some(newest_commit), Some(persisted)) = (newest_commit, persisted) else {
        return 0;
    };
    (newest_commit + 1)
        .saturating_sub(min_batches.max(1))
        .min(persisted)
}

#[cfg(test)]
mod tests;
