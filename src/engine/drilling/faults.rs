//! The faults of a drill: what each does to the files of a copy, or to the pipeline over it.
//!
//! A file is taken away and written anew, never changed in place: production has links to it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::outage::Outage;
use crate::checkpoint::Identity;
use crate::checkpoint::format::{CommitFile, encode_one};
use crate::checkpoint::recovery::{Entry, Survey};
use crate::engine::pipeline::Pipeline;
use crate::error::{Error, Result, counted, sqlstate};
use crate::sql::names::quote_identifier;
use crate::state::MemoryBudget;

/// Batches that run again where a fault is about running.
const BATCHES_AGAIN: u64 = 3;
/// State that `out_of_memory` leaves in memory.
const LITTLE_BYTES: usize = 64 << 10;
/// Times that `source_outage` says no.
const OUTAGE_CALLS: u32 = 3;
/// What makes a fingerprint that of another query.
const OTHER_QUERY: &str = "+drill";

/// A fault that a drill makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A commit entry in the middle, and the newest, are gone.
    MissingCommit,
    /// Two entries of the offset log are garbled.
    CorruptOffsets,
    /// `metadata` is garbled.
    CorruptMetadata,
    /// A byte of the newest run is flipped.
    CorruptState,
    /// All of the state is gone.
    LostState,
    /// All but where the sources stood is gone.
    FullReset,
    /// The sources do not answer for a while.
    SourceOutage,
    /// A batch is given up in its middle.
    Kill,
    /// Hardly any memory is left for state.
    OutOfMemory,
    /// The state was made by other queries than those that the views have.
    SchemaChange,
}

/// What became of making a fault.
pub(super) enum Made {
    /// What was done, as a sentence.
    Done(String),
    /// Why there is nothing to make it on, as a clause.
    Nothing(&'static str),
}

impl Fault {
    /// All faults.
    pub const ALL: [Self; 10] = [
        Self::MissingCommit,
        Self::CorruptOffsets,
        Self::CorruptMetadata,
        Self::CorruptState,
        Self::LostState,
        Self::FullReset,
        Self::SourceOutage,
        Self::Kill,
        Self::OutOfMemory,
        Self::SchemaChange,
    ];

    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::MissingCommit => "missing_commit",
            Self::CorruptOffsets => "corrupt_offsets",
            Self::CorruptMetadata => "corrupt_metadata",
            Self::CorruptState => "corrupt_state",
            Self::LostState => "lost_state",
            Self::FullReset => "full_reset",
            Self::SourceOutage => "source_outage",
            Self::Kill => "kill",
            Self::OutOfMemory => "out_of_memory",
            Self::SchemaChange => "schema_change",
        }
    }

    /// The faults of a list of names with commas between; without names all.
    pub fn named(names: Option<&str>) -> Result<Vec<Self>> {
        let Some(names) = names else {
            return Ok(Self::ALL.to_vec());
        };
        let one = |name: &str| {
            let name = name.trim();
            let fault = Self::ALL.into_iter().find(|fault| fault.name() == name);
            fault.ok_or_else(|| {
                Error::new(
                    sqlstate::INVALID_PARAMETER_VALUE,
                    format!("fault \"{name}\" is not known"),
                )
                .hint(format!(
                    "Faults are {}.",
                    Self::ALL.map(Self::name).join(", ")
                ))
            })
        };
        names.split(',').map(one).collect()
    }

    /// Changes the pipeline before it opens.
    pub(super) fn prepare(self, twin: &mut Pipeline) {
        if self == Self::OutOfMemory {
            twin.parts.budget = MemoryBudget::new(LITTLE_BYTES);
        }
    }

    /// The statement that mends what the files do not show: the others are those that `DIAGNOSE` names.
    pub(super) fn statement(self, identity: &Identity) -> Option<String> {
        let name = quote_identifier(&identity.pipeline_name);
        (self == Self::SchemaChange).then(|| format!("REBUILD STATE OF {name};"))
    }

    /// Damages the files.
    pub(super) fn make(self, copy: &Path, survey: &Survey, batch_id: u64) -> Result<Made> {
        let path = |name: String| copy.join(name);
        let middle = survey.commits.keys().nth(survey.commits.len() / 2).copied();
        let middle = middle.unwrap_or(batch_id);
        let done = match self {
            Self::MissingCommit => {
                remove(&path(format!("commits/{middle}")))?;
                remove(&path(format!("commits/{batch_id}")))?;
                format!("Commits {middle} and {batch_id} were taken away.")
            }
            Self::CorruptOffsets => {
                garble(&path(format!("offsets/{batch_id}")))?;
                garble(&path(format!("offsets/{middle}")))?;
                format!("The offsets of batches {middle} and {batch_id} were garbled.")
            }
            Self::CorruptMetadata => {
                garble(&path("metadata".to_owned()))?;
                "metadata was garbled.".to_owned()
            }
            Self::CorruptState => match newest_run(survey) {
                Some(run) => {
                    garble(&path(format!("state/{run}")))?;
                    format!("A byte of state/{run} was flipped.")
                }
                None => return Ok(Made::Nothing("no state was written that could be damaged")),
            },
            Self::LostState if newest_run(survey).is_none() => {
                return Ok(Made::Nothing("no state was written that could be lost"));
            }
            Self::LostState => {
                remove_all(&path("state".to_owned()))?;
                "The state was taken away.".to_owned()
            }
            Self::FullReset => {
                remove_all(&path("state".to_owned()))?;
                for n in survey.offsets.keys().filter(|n| **n < batch_id) {
                    remove(&path(format!("offsets/{n}")))?;
                }
                for n in survey.commits.keys().filter(|n| **n < batch_id) {
                    remove(&path(format!("commits/{n}")))?;
                }
                let sinks = leave_out_sinks(copy, survey, batch_id)?;
                format!(
                    "All but the positions of the sources after batch {batch_id} was taken away.{sinks}"
                )
            }
            Self::SourceOutage | Self::Kill | Self::OutOfMemory => {
                let again = survey.commits.keys().rev().take(BATCHES_AGAIN as usize);
                // The oldest of all stays: without any commit there is nothing to go on from.
                let again: Vec<u64> = again
                    .copied()
                    .filter(|n| Some(n) != survey.commits.keys().next())
                    .collect();
                if again.is_empty() {
                    return Ok(Made::Nothing(
                        "it takes two batches, of which the second runs again",
                    ));
                }
                for n in &again {
                    remove(&path(format!("commits/{n}")))?;
                }
                let how = match self {
                    Self::SourceOutage => "while the sources did not answer",
                    Self::Kill => "and were given up in the middle",
                    _ => "with little memory",
                };
                format!("{} ran again, {how}.", counted(again.len() as u64, "batch"))
            }
            Self::SchemaChange => {
                for commit in survey.commits.values().filter_map(Entry::whole) {
                    claim_other_queries(copy, commit)?;
                }
                "The commits were made those of other queries.".to_owned()
            }
        };
        Ok(Made::Done(done))
    }

    /// Opens and runs what is planned, under the fault.
    pub(super) async fn run(self, twin: &mut Pipeline, tries: usize) -> Result<()> {
        if tries == 0 && matches!(self, Self::SourceOutage | Self::Kill) {
            twin.open().await?;
            if self == Self::Kill {
                let has_batch = twin.opened.as_ref().is_some_and(|o| !o.replay.is_empty());
                if has_batch {
                    twin.run_batch().await?;
                }
                // Neither waited for nor closed: as a process leaves it that is no more.
                twin.abandon_commit().await;
                twin.let_go();
                twin.state = None;
            } else if let Some(opened) = &mut twin.opened {
                for slot in &mut opened.slots {
                    slot.source = Arc::new(Outage::new(Arc::clone(&slot.source), OUTAGE_CALLS));
                }
                return twin.run_rest().await;
            }
        }
        match self {
            Self::SourceOutage => twin.run_rest().await,
            _ => twin.run_planned().await,
        }
    }
}

/// A sink would get every row again, and so keeps a state from being read anew; a copy has none. What was
/// left out, as a sentence.
fn leave_out_sinks(copy: &Path, survey: &Survey, batch_id: u64) -> Result<&'static str> {
    let commit = survey.commits.get(&batch_id).and_then(Entry::whole);
    let Some(commit) = commit.filter(|commit| !commit.entry.sinks.is_empty()) else {
        return Ok("");
    };
    let mut commit = commit.clone();
    commit.entry.sinks.clear();
    let path = copy.join(format!("commits/{batch_id}"));
    remove(&path)?;
    fs::write(&path, encode_one(&commit)).map_err(|e| failed(&path, &e))?;
    Ok(" Its sinks, which would get every row again, were left out.")
}

/// Writes a commit anew whose views were computed by another query than theirs.
fn claim_other_queries(copy: &Path, commit: &CommitFile) -> Result<()> {
    let mut commit = commit.clone();
    for fingerprint in commit.entry.views.values_mut() {
        fingerprint.push_str(OTHER_QUERY);
    }
    let path = copy.join(format!("commits/{}", commit.entry.batch_id));
    remove(&path)?;
    fs::write(&path, encode_one(&commit)).map_err(|e| failed(&path, &e))
}

fn newest_run(survey: &Survey) -> Option<String> {
    let commit = survey.newest_commit()?;
    let manifest = commit.state?.manifest_batch_id?;
    let (manifest, _) = survey.manifests.get(&manifest)?.whole()?;
    manifest.runs.last().map(|run| run.file.clone())
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::transient(
        sqlstate::IO_ERROR,
        format!("could not access \"{}\": {error}", path.display()),
    )
}

fn remove(path: &PathBuf) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(path, &e)),
        _ => Ok(()),
    }
}

fn remove_all(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed(path, &e)),
        _ => Ok(()),
    }
}

fn garble(path: &PathBuf) -> Result<()> {
    let mut bytes = fs::read(path).map_err(|e| failed(path, &e))?;
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 0x10;
    }
    remove(path)?;
    fs::write(path, bytes).map_err(|e| failed(path, &e))
}
