//! The offset log and the commit log: what is written anew, and what is left out.

use super::{Mend, Plan};
use crate::checkpoint::format::{self, OffsetFile};
use crate::checkpoint::recovery::rebuild;
use crate::checkpoint::recovery::survey::{Entry, batch_of};

/// An entry of the offset log that its neighbours do not prove.
pub(super) struct Gap {
    batch_id: u64,
    /// What is wrong with it, as a sentence.
    finding: String,
    /// Why it cannot be written anew, as a clause.
    unproven: String,
}

impl Plan<'_> {
    /// A damaged entry of a batch that never committed is planned anew.
    pub(super) fn torn_tail(&mut self) {
        let Some((&batch_id, Entry::Damaged(why))) = self.survey.offsets.last_key_value() else {
            return;
        };
        let was_committed = self.survey.commits.contains_key(&batch_id)
            || self
                .survey
                .catalog_batch
                .is_some_and(|known| batch_id <= known)
            || self.survey.commits.is_empty();
        if was_committed {
            return;
        }
        let finding = format!("offsets/{batch_id}: {why}; the batch never committed.");
        self.survey.to_mut().offsets.remove(&batch_id);
        let aside = vec![format!("offsets/{batch_id}")];
        let mend = Mend { aside, write: None };
        self.found(
            "offsets",
            finding,
            "It is moved aside; the batch is planned anew.",
            mend,
        );
    }

    /// Damaged entries from before everything that can still be restarted from.
    pub(super) fn old_offsets(&mut self) {
        let Some(oldest) = self.survey.commits.keys().next().copied() else {
            return;
        };
        let newest = self.survey.commits.keys().next_back().copied();
        let old: Vec<(u64, String)> = self
            .survey
            .offsets
            .range(..=oldest)
            .filter(|(batch_id, _)| Some(**batch_id) != newest)
            .filter_map(|(&batch_id, entry)| Some((batch_id, entry.damage()?.to_owned())))
            .collect();
        for (batch_id, why) in old {
            self.survey.to_mut().offsets.remove(&batch_id);
            let aside = vec![format!("offsets/{batch_id}")];
            self.found(
                "offsets",
                format!("offsets/{batch_id}: {why}; no restart needs it."),
                "It is moved aside.",
                Mend { aside, write: None },
            );
        }
    }

    /// Entries that are missing or damaged, oldest first, so that each proves the next.
    pub(super) fn entries(&mut self) {
        let survey = &self.survey;
        let Some(newest_commit) = survey.newest_commit().map(|commit| commit.entry.batch_id) else {
            return;
        };
        let first = survey.commits.keys().next().copied().unwrap_or_default();
        for batch_id in first..=newest_commit {
            if batch_id > first || batch_id == newest_commit {
                self.offsets_entry(batch_id);
            }
            if batch_id < newest_commit {
                self.commit_entry(batch_id);
            }
        }
        let newest = self.survey.offsets.keys().next_back().copied();
        for batch_id in newest_commit + 1..newest.unwrap_or_default() {
            self.offsets_entry(batch_id);
        }
        self.damaged_tail(newest_commit);
    }

    fn offsets_entry(&mut self, batch_id: u64) {
        let why = match self.survey.offsets.get(&batch_id) {
            Some(Entry::Whole(_)) => return,
            Some(Entry::Damaged(why)) => why.clone(),
            None => "the file is missing".to_owned(),
        };
        let path = format!("offsets/{batch_id}");
        let finding = format!("{path}: {why}.");
        let entry = match rebuild::offsets(&self.survey, batch_id) {
            Ok(entry) => entry,
            Err(unproven) => {
                self.gaps.push(Gap {
                    batch_id,
                    finding,
                    unproven,
                });
                return;
            }
        };
        let file = OffsetFile {
            pipeline_id: self.survey.identity.pipeline_id,
            epoch: self.hand.epoch,
            entry,
        };
        let mend = Mend {
            aside: self.aside(&path),
            write: Some((path, file.encode().into())),
        };
        self.survey
            .to_mut()
            .offsets
            .insert(batch_id, Entry::Whole(file));
        let action = "It is written anew from the positions of the batches beside it.";
        self.found("offsets", finding, action, mend);
    }

    fn commit_entry(&mut self, batch_id: u64) {
        let why = match self.survey.commits.get(&batch_id) {
            Some(Entry::Whole(_)) => return,
            Some(Entry::Damaged(why)) => why.clone(),
            None => "the file is missing".to_owned(),
        };
        let path = format!("commits/{batch_id}");
        let finding = format!("{path}: {why}; later batches prove that it happened.");
        let file = match rebuild::commit_entry(&self.survey, batch_id, self.hand.epoch) {
            Ok(file) => file,
            Err(unproven) => return self.unproven_commit(path, finding, &unproven),
        };
        let mend = Mend {
            aside: self.aside(&path),
            write: Some((path, format::encode_one(&file).into())),
        };
        self.survey
            .to_mut()
            .commits
            .insert(batch_id, Entry::Whole(file));
        let action = "It is written anew from the batches beside it.";
        self.found("commits", finding, action, mend);
    }

    /// Nobody restarts from a commit that cannot be told, so the pipeline runs on without it.
    fn unproven_commit(&mut self, path: String, finding: String, unproven: &str) {
        let aside = self.aside(&path);
        let action = format!("It is left out, since {unproven}; no restart needs it.");
        if aside.is_empty() {
            self.told("commits", finding, action, None);
            return;
        }
        if let Some(batch_id) = path.strip_prefix("commits/").and_then(batch_of) {
            self.survey.to_mut().commits.remove(&batch_id);
        }
        self.found("commits", finding, &action, Mend { aside, write: None });
    }

    /// Damaged commits beyond the newest sound one: their batches run again.
    fn damaged_tail(&mut self, newest_commit: u64) {
        let tail: Vec<(u64, String)> = self
            .survey
            .commits
            .range(newest_commit + 1..)
            .filter_map(|(&batch_id, entry)| Some((batch_id, entry.damage()?.to_owned())))
            .collect();
        for (batch_id, why) in tail {
            self.survey.to_mut().commits.remove(&batch_id);
            let aside = vec![format!("commits/{batch_id}")];
            self.found(
                "commits",
                format!("commits/{batch_id}: {why}."),
                "It is moved aside; the batch runs again exactly as it was planned.",
                Mend { aside, write: None },
            );
        }
    }

    /// Entries that nothing proves are left out where the pipeline opens without them.
    pub(super) fn settle_gaps(&mut self, opens: bool) {
        for gap in std::mem::take(&mut self.gaps) {
            let Gap {
                batch_id,
                finding,
                unproven,
            } = gap;
            if !opens {
                let statement = Some(self.reset_statement());
                let action = format!("It cannot be mended: {unproven}.");
                self.told("offsets", finding, action, statement);
                continue;
            }
            let action = format!("It is left out, since {unproven}; no restart needs it.");
            let aside = self.aside(&format!("offsets/{batch_id}"));
            match aside.is_empty() {
                true => self.told("offsets", finding, action, None),
                false => {
                    self.survey.to_mut().offsets.remove(&batch_id);
                    self.found("offsets", finding, &action, Mend { aside, write: None });
                }
            }
        }
    }

    fn aside(&self, path: &str) -> Vec<String> {
        let is_there = self.survey.files.contains_key(path);
        is_there.then(|| path.to_owned()).into_iter().collect()
    }
}
