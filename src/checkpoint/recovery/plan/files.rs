//! Files beside the two logs: the sources' own logs, runs, and what nothing names.

use super::{Mend, Plan};
use crate::checkpoint::decide::state_batch;
use crate::checkpoint::recovery::survey::{batch_of, source_batch};

impl Plan<'_> {
    /// Entries of the sources' logs that are damaged or missing. What no position stands on moves aside;
    /// the others are proven by nothing else.
    pub(super) fn source_logs(&mut self) {
        let damaged: Vec<(String, String)> = self
            .survey
            .sources
            .iter()
            .filter_map(|(path, entry)| Some((path.clone(), entry.damage()?.to_owned())))
            .collect();
        for (path, why) in damaged {
            let entry = self.survey.to_mut().sources.remove(&path);
            let positions = self.survey.newest_positions();
            let needs = self.survey.lost_source_entries(&positions);
            // Under a damaged compacted entry the single ones may still be there.
            let stem = path.trim_end_matches(".compact");
            if needs.contains_key(stem) {
                self.survey
                    .to_mut()
                    .sources
                    .extend(entry.map(|e| (path, e)));
                continue;
            }
            let finding = format!("{path}: {why}.");
            let aside = vec![path];
            let action = "It is moved aside: no batch needs it.";
            self.found("sources", finding, action, Mend { aside, write: None });
        }
        let positions = self.survey.newest_positions();
        for (path, why) in self.survey.lost_source_entries(&positions) {
            let action = "It cannot be mended: only this file tells which files the batch read.";
            let statement = Some(self.reset_statement());
            let finding = format!("{path}: {why}.");
            self.told("sources", finding, action.to_owned(), statement);
        }
    }

    /// Runs and manifests that cannot be used and that the next start does not need.
    pub(super) fn lost_runs(&mut self) {
        let newest = self.survey.newest_commit();
        let is_whole = newest.is_none_or(|commit| self.survey.state_of(commit).whole().is_some());
        if !is_whole {
            return;
        }
        let action = "It is left as it is: no restart needs it, the batches that stand on it cannot be gone \
                      back to, and retention takes it with them.";
        let runs = self.survey.damaged_runs.clone().into_iter();
        let manifests = self.survey.manifests.iter();
        let manifests: Vec<(String, String)> = manifests
            .filter_map(|(n, entry)| Some((format!("{n}.manifest"), entry.damage()?.to_owned())))
            .collect();
        for (file, why) in runs.chain(manifests) {
            let finding = format!("state/{file}: {why}.");
            self.told("state", finding, action.to_owned(), None);
        }
    }

    /// Files that no part of the checkpoint is made of. Runs that no manifest names are not among them:
    /// the pipeline itself writes them ahead of the manifest, and retention takes what a crash left.
    pub(super) fn strays(&mut self) {
        let strays: Vec<String> = self
            .survey
            .files
            .keys()
            .filter(|path| match path.split_once('/') {
                None => !matches!(path.as_str(), "metadata" | "lease"),
                Some(("offsets" | "commits", name)) => batch_of(name).is_none(),
                Some(("sources", _)) => source_batch(path).is_none(),
                Some(("state", name)) => match name.rsplit_once('.') {
                    Some((stem, "manifest")) => batch_of(stem).is_none(),
                    Some((_, "run")) => state_batch(path).is_none(),
                    _ => true,
                },
                Some(_) => true,
            })
            .cloned()
            .collect();
        for path in strays {
            let part = match path.split_once('/') {
                Some(("offsets", _)) => "offsets",
                Some(("commits", _)) => "commits",
                Some(("state", _)) => "state",
                Some(("sources", _)) => "sources",
                _ => "disk",
            };
            let finding = format!("{path}: nothing names this file.");
            let aside = vec![path];
            let action = "It is moved aside.";
            self.found(part, finding, action, Mend { aside, write: None });
        }
    }
}
