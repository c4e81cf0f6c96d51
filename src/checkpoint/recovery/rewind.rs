//! Going back to a batch, in place or to a copy: which batch can be gone back to, and which files
//! make it up.

use std::collections::BTreeSet;

use super::apply::Held;
use super::rebuild::first_batch;
use super::reset::{Archived, rank};
use super::survey::{Entry, Survey, source_batch};
use crate::checkpoint::decide::Decision;
use crate::checkpoint::format::{CommitFile, Metadata};
use crate::error::Result;

/// What can be gone back to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restorable {
    /// Committed batch.
    pub batch_id: u64,
    /// The batch whose state is there; those after it, up to `batch_id`, run again.
    pub state_batch_id: u64,
}

/// The newest state that leads to `batch_id` by the offset log; `None`: it is not restorable.
pub fn restorable(survey: &Survey, batch_id: u64) -> Option<Restorable> {
    survey.commits.get(&batch_id)?.whole()?;
    let stands = |commit: &CommitFile| {
        let at = commit.entry.batch_id;
        let is_own = commit.state.is_some_and(|state| state.batch_id == at);
        let is_whole = matches!(survey.state_of(commit), Entry::Whole(()));
        let leads_on = (at + 1..=batch_id).all(|n| {
            let entry = survey.offsets.get(&n);
            entry.is_some_and(|entry| entry.whole().is_some())
        });
        is_own && is_whole && leads_on
    };
    survey
        .commits
        .range(..=batch_id)
        .rev()
        .filter_map(|(_, entry)| entry.whole())
        .find(|commit| stands(commit))
        .map(|commit| Restorable {
            batch_id,
            state_batch_id: commit.entry.batch_id,
        })
}

impl Survey {
    /// The newest batch that ran at or before a time and that can be gone back to.
    pub fn restorable_before(&self, at_us: i64) -> Option<u64> {
        self.commits.keys().rev().copied().find(|&batch_id| {
            let planned = self.offsets.get(&batch_id).and_then(Entry::whole);
            planned.is_some_and(|file| file.entry.batch_at_us <= at_us)
                && restorable(self, batch_id).is_some()
        })
    }

    /// The first batch after `batch_id` up to `last` whose offset entry cannot be read.
    pub fn offset_gap(&self, batch_id: u64, last: u64) -> Option<u64> {
        (batch_id + 1..=last).find(|n| self.offsets.get(n).and_then(Entry::whole).is_none())
    }

    /// The checkpoint as it would be at `batch_id`, with nothing of later batches.
    pub fn at(&self, batch_id: u64) -> Survey {
        let files: BTreeSet<String> = self.files_at(batch_id).into_iter().collect();
        let is_kept = |path: String| files.contains(&path);
        let mut cut = self.clone();
        cut.catalog_batch = None;
        cut.offsets.retain(|n, _| *n <= batch_id);
        cut.commits.retain(|n, _| is_kept(format!("commits/{n}")));
        let manifests = &mut cut.manifests;
        manifests.retain(|n, _| is_kept(format!("state/{n}.manifest")));
        cut.sources.retain(|path, _| files.contains(path));
        let files = &files;
        cut.files
            .retain(|path, _| files.contains(path) || !path.contains('/'));
        cut
    }

    /// Why the checkpoint as it is at `batch_id` would not open, or could not go on; `None`: it would.
    pub fn why_unusable_at(&self, batch_id: u64) -> Option<String> {
        let Some(target) = restorable(self, batch_id) else {
            return Some(format!("batch {batch_id} cannot be gone back to"));
        };
        let cut = self.at(batch_id);
        match cut.verdict() {
            Decision::Resume(_) => cut.source_log_gap(target.state_batch_id),
            Decision::Stop(stop) => {
                let name = &self.identity.pipeline_name;
                let error = stop.to_error(name, &self.location);
                Some(error.primary().to_owned())
            }
            Decision::Fresh | Decision::Read(_) => Some("it holds no batch".to_owned()),
        }
    }

    /// The newest batch as of which the checkpoint would open.
    pub fn newest_usable(&self) -> Option<u64> {
        let mut newest_first = self.commits.keys().rev().copied();
        newest_first.find(|&batch_id| self.why_unusable_at(batch_id).is_none())
    }

    /// All batches that can be gone back to.
    pub fn restorable_batches(&self) -> Vec<u64> {
        let batches = self.commits.keys().copied();
        batches
            .filter(|&batch_id| restorable(self, batch_id).is_some())
            .collect()
    }

    /// The files of the checkpoint as it was at `batch_id`, without `metadata` and without those that
    /// are not sound.
    pub fn files_at(&self, batch_id: u64) -> Vec<String> {
        let kept: Vec<&CommitFile> = self
            .commits
            .range(..=batch_id)
            .filter_map(|(_, entry)| entry.whole())
            .collect();
        let manifests: BTreeSet<u64> = kept
            .iter()
            .filter_map(|commit| commit.state?.manifest_batch_id)
            .collect();
        let mut files: BTreeSet<String> = manifests
            .iter()
            .filter_map(|n| self.manifests.get(n)?.whole())
            .flat_map(|(manifest, _)| &manifest.runs)
            .filter(|run| !self.damaged_runs.contains_key(&run.file))
            .map(|run| format!("state/{}", run.file))
            .collect();
        let is_sound = |n: &&u64| self.manifests.get(*n).is_some_and(|m| m.whole().is_some());
        let sound = manifests.iter().filter(is_sound);
        files.extend(sound.map(|n| format!("state/{n}.manifest")));
        files.extend(
            kept.iter()
                .map(|commit| format!("commits/{}", commit.entry.batch_id)),
        );
        files.extend(
            self.offsets
                .range(..=batch_id)
                .filter(|(_, entry)| entry.whole().is_some())
                .map(|(n, _)| format!("offsets/{n}")),
        );
        let sources = self.sources.iter();
        let sources = sources.filter(|(_, entry)| entry.whole().is_some());
        let is_old = |path: &&String| source_batch(path) <= Some(batch_id);
        files.extend(sources.map(|(path, _)| path).filter(is_old).cloned());
        files.retain(|path| self.files.contains_key(path));
        files.into_iter().collect()
    }
}

impl Held {
    /// Accepts the checkpoint as it was at `batch_id`: whatever is of a later batch moves aside.
    pub async fn cut_after(&self, survey: &Survey, batch_id: u64) -> Result<Archived> {
        let kept: BTreeSet<String> = survey.files_at(batch_id).into_iter().collect();
        let mut paths: Vec<String> = survey
            .files
            .keys()
            .filter(|path| path.contains('/') && !kept.contains(*path))
            .cloned()
            .collect();
        paths.sort_by_key(|path| rank(path));
        self.archive_files(survey, paths).await
    }

    /// Writes `metadata` as that of a copy whose files are all there.
    pub async fn write_metadata(&self, copy: &Survey, now_us: i64) -> Result<()> {
        let identity = &self.shared.identity;
        let metadata = Metadata::of(identity, now_us, first_batch(copy));
        self.write("metadata", metadata.encode().into()).await
    }

    /// Goes back in place: commits and state after `batch_id` move aside. The offset log stays, so that
    /// the batches after it run again exactly as they were, and a sink gets each again under its number.
    pub async fn rewind(&self, survey: &Survey, batch_id: u64) -> Result<Archived> {
        let kept: BTreeSet<String> = survey.files_at(batch_id).into_iter().collect();
        let paths = survey.files.keys().filter(|path| {
            let is_of_state = path.starts_with("state/") || path.starts_with("commits/");
            is_of_state && !kept.contains(*path)
        });
        let mut paths: Vec<String> = paths.cloned().collect();
        self.note_sinks(survey, Some(batch_id)).await?;
        // The newest commit first: until it is gone nothing has happened.
        paths.sort_by_key(|path| {
            let commit = path
                .strip_prefix("commits/")
                .and_then(super::survey::batch_of);
            std::cmp::Reverse(commit)
        });
        self.archive_files(survey, paths).await
    }
}
