//! Retention, and merging runs at the location: what keeps a checkpoint small.
//!
//! Both may run beside the next batches. Retention deletes what no retained commit needs; it reads
//! the manifests it does not know (after a restart) before it deletes any run. A merged run takes
//! its inputs' place in the next manifest; the inputs go when the last manifest that lists them
//! does.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use super::decide::{plan_run_merge, retention_cutoff};
use super::format::{self, CommitFile, Manifest};
use super::location::{Checkpoint, LocationState};
use super::merge::{self, MergeLimits};
use crate::error::Result;

/// Batches that may be over `min_batches` before deleting begins, as its divisor: fewer, larger
/// deletions.
const SLACK_DIVISOR: u64 = 8;
const SLACK_BATCHES_MAX: u64 = 64;
/// Merges after which what is too old is deleted.
const MERGES_AT_ONCE: usize = 8;

/// The right to do what only one may do at a time; also a cancelled call gives it back.
struct Turn<'a>(&'a AtomicBool);

impl<'a> Turn<'a> {
    fn take(flag: &'a AtomicBool) -> Option<Self> {
        (!flag.swap(true, Ordering::AcqRel)).then_some(Self(flag))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Checkpoint {
    /// Deletes what the newest `min_batches` commits do not need, and merges runs where many of
    /// one size are. Call it after commits, beside the next batch. `cold_batch` is the local cold
    /// tier's: only below it may a merge leave out tombstones. Nothing is deleted while `is_copied` says
    /// so. Returns the files deleted; does nothing while an earlier call is still at it.
    pub async fn retain(
        &self,
        min_batches: u64,
        cold_batch: Option<u64>,
        is_copied: impl Fn() -> bool,
    ) -> Result<u64> {
        let Some(_turn) = Turn::take(&self.shared.retaining) else {
            return Ok(0);
        };
        self.shared.state.lock().cold_batch = cold_batch;
        let mut forgotten = 0;
        loop {
            // What many batches left is merged now, while nothing comes, and not beside those that come.
            let mut is_merged = false;
            for _ in 0..MERGES_AT_ONCE {
                is_merged = !self.merge_runs().await?;
                if is_merged {
                    break;
                }
            }
            // Where batches come as fast as runs are merged, there is always something to merge.
            if !is_copied() {
                forgotten += self.forget_old(min_batches).await?;
            }
            if is_merged {
                return Ok(forgotten);
            }
        }
    }

    /// Deletes what is too old, once that is enough to be worth it. Returns the files deleted.
    async fn forget_old(&self, min_batches: u64) -> Result<u64> {
        let cutoff = {
            let state = self.shared.state.lock();
            let newest = state.last_commit.as_ref().map(|commit| commit.batch_id);
            let persisted = state.persisted.map(|persisted| persisted.batch_id);
            retention_cutoff(newest, persisted, min_batches)
        };
        let slack = (min_batches / SLACK_DIVISOR).clamp(1, SLACK_BATCHES_MAX);
        let oldest = {
            let state = self.shared.state.lock();
            state.commits.keys().next().copied().unwrap_or(cutoff)
        };
        if oldest + slack > cutoff {
            return Ok(0);
        }
        self.forget_before(cutoff).await
    }

    /// Deletes what no batch from `cutoff` on needs. Returns the files deleted.
    pub(super) async fn forget_before(&self, cutoff: u64) -> Result<u64> {
        self.read_unknown_manifests(cutoff).await?;
        let doomed = self.shared.state.lock().doomed_files(cutoff);
        self.shared.lease.check().await?;
        // Entries first, runs last: what is listed is there.
        self.shared.delete(&doomed).await?;
        Ok(doomed.len() as u64)
    }

    /// [`Self::retain`] in a task of its own, so that no batch waits for it. What fails is logged
    /// and tried again at the next call; a call while one is still at it does nothing.
    pub fn retain_beside(
        &self,
        min_batches: u64,
        cold_batch: Option<u64>,
        is_copied: impl Fn() -> bool + Send + 'static,
    ) {
        if self.shared.beside.swap(true, Ordering::AcqRel) {
            return;
        }
        let checkpoint = self.clone();
        tokio::spawn(async move {
            let _turn = Turn(&checkpoint.shared.beside);
            if let Err(error) = checkpoint.retain(min_batches, cold_batch, is_copied).await {
                tracing::warn!(location = checkpoint.location(), %error, "could not clean the checkpoint");
            }
        });
    }

    /// After a restart the manifests of older commits are not known.
    async fn read_unknown_manifests(&self, cutoff: u64) -> Result<()> {
        let unknown: Vec<u64> = {
            let state = self.shared.state.lock();
            let commits = state.commits.range(cutoff..);
            commits
                .filter(|(_, stands_on)| stands_on.is_none())
                .map(|(&batch_id, _)| batch_id)
                .collect()
        };
        for batch_id in unknown {
            let path = format!("commits/{batch_id}");
            let blob = self.shared.store.get(&path).await?;
            let commit: Option<CommitFile> =
                blob.and_then(|blob| format::decode_one(&blob.bytes).ok());
            // A damaged commit stands on nothing that a restart could use.
            let stands_on = commit
                .and_then(|commit| commit.state)
                .and_then(|state| state.manifest_batch_id);
            let mut state = self.shared.state.lock();
            state.commits.insert(batch_id, Some(stands_on));
        }
        let unread: HashSet<u64> = {
            let state = self.shared.state.lock();
            let named = state
                .commits
                .range(cutoff..)
                .filter_map(|(_, s)| s.flatten());
            named
                .filter(|manifest| !state.manifests.contains_key(manifest))
                .collect()
        };
        for manifest_batch in unread {
            let path = format!("state/{manifest_batch}.manifest");
            let blob = self.shared.store.get(&path).await?;
            let runs = blob
                .and_then(|blob| Manifest::decode(&blob.bytes).ok())
                .map_or_else(Vec::new, |manifest| manifest.runs);
            let files = runs.into_iter().map(|run| run.file).collect();
            self.shared
                .state
                .lock()
                .manifests
                .insert(manifest_batch, files);
        }
        Ok(())
    }

    /// Merges eight or more neighbouring runs of one size into one, if there are such. Returns
    /// whether it did. Only one merge runs at a time.
    pub async fn merge_runs(&self) -> Result<bool> {
        self.merge_runs_within(MergeLimits::default()).await
    }

    pub(super) async fn merge_runs_within(&self, limits: MergeLimits) -> Result<bool> {
        let Some(_turn) = Turn::take(&self.shared.merging) else {
            return Ok(false);
        };
        self.merge_planned(limits).await
    }

    async fn merge_planned(&self, limits: MergeLimits) -> Result<bool> {
        let shared = &self.shared;
        let (inputs, drop_through) = {
            let state = shared.state.lock();
            let Some(range) = plan_run_merge(&state.runs) else {
                return Ok(false);
            };
            let inputs = state.runs[range.clone()].to_vec();
            let last = inputs.last().map(|run| run.last_batch_id);
            let is_oldest = range.start == 0;
            // A cold tier that is older would need the tombstones.
            let may_drop = is_oldest && state.cold_batch.is_none_or(|cold| last <= Some(cold));
            (inputs, last.filter(|_| may_drop))
        };
        let merged = merge::merge(shared, &inputs, drop_through, limits).await?;
        let mut state = shared.state.lock();
        for part in &merged {
            state.in_flight.remove(&part.file);
        }
        // A batch that ran again meanwhile may have taken an input away.
        let at = state.runs.iter().position(|run| *run == inputs[0]);
        if let Some(start) = at
            && state.runs.get(start..start + inputs.len()) == Some(&inputs[..])
        {
            state.runs.splice(start..start + inputs.len(), merged);
        }
        Ok(true)
    }
}

impl LocationState {
    /// Files that nothing at or after `cutoff` needs; forgets them.
    fn doomed_files(&mut self, cutoff: u64) -> Vec<String> {
        let mut doomed = Vec::new();
        let kept_offsets = self.offsets.split_off(&cutoff);
        for batch_id in std::mem::replace(&mut self.offsets, kept_offsets) {
            doomed.push(format!("offsets/{batch_id}"));
        }
        let kept_commits = self.commits.split_off(&cutoff);
        for (batch_id, _) in std::mem::replace(&mut self.commits, kept_commits) {
            doomed.push(format!("commits/{batch_id}"));
        }
        let mut named: HashSet<u64> = self.commits.values().filter_map(|s| s.flatten()).collect();
        named.extend(
            self.persisted
                .and_then(|persisted| persisted.manifest_batch_id),
        );
        let newest = self.manifests.keys().next_back().copied();
        self.manifests
            .retain(|batch_id, _| named.contains(batch_id) || Some(*batch_id) == newest);
        let mut runs: HashSet<&str> = self
            .manifests
            .values()
            .flatten()
            .map(String::as_str)
            .collect();
        runs.extend(self.runs.iter().map(|run| run.file.as_str()));
        runs.extend(self.in_flight.iter().map(String::as_str));
        let mut doomed_runs = Vec::new();
        for path in self.files.keys() {
            let Some(file) = path.strip_prefix("state/") else {
                continue;
            };
            match file.strip_suffix(".manifest").map(str::parse::<u64>) {
                // A manifest at or after the cutoff may be of a batch that is about to commit.
                Some(Ok(batch_id))
                    if batch_id < cutoff && !self.manifests.contains_key(&batch_id) =>
                {
                    doomed.push(path.clone());
                }
                None if file.ends_with(".run") && !runs.contains(file) => {
                    doomed_runs.push(path.clone());
                }
                _ => {}
            }
        }
        doomed.sort_unstable();
        doomed.extend(doomed_runs);
        doomed
    }
}
