//! Which entries of the sources' own logs (`sources/S/N`) a checkpoint stands on.
//!
//! ```text
//!   position of S after batch N ──► sources/S/L ──previous──► sources/S/K ──► … ──► sources/S/C.compact, or the first
//! ```
//!
//! Only these entries say which files the batches read, and each says which one came before it. So what is
//! missing is found by walking back from a position; an entry on no such chain is needed by nobody.

use std::collections::{BTreeMap, BTreeSet};

use super::survey::{Entry, Survey};
use crate::checkpoint::source_log::folder_of;
use crate::connectors::{SourceOffset, logged_at};

impl Survey {
    /// Where the sources stand at the newest commit, and after each batch that is planned beyond it.
    pub fn newest_positions(&self) -> Vec<(&String, &SourceOffset)> {
        let newest = self.newest_commit();
        let from = newest.map_or(0, |commit| commit.entry.batch_id);
        self.positions_from(from)
    }

    /// Where the sources stand at commit `batch_id`, and after each batch that is planned from it on.
    pub fn positions_from(&self, batch_id: u64) -> Vec<(&String, &SourceOffset)> {
        let commit = self.commits.get(&batch_id).and_then(Entry::whole);
        let committed = commit.into_iter().flat_map(|c| &c.entry.source_offsets);
        let planned = self.offsets.range(batch_id..);
        let planned = planned
            .filter_map(|(_, entry)| entry.whole())
            .flat_map(|file| &file.entry.sources);
        committed
            .chain(planned.map(|(source, range)| (source, &range.end)))
            .collect()
    }

    /// The entries that these positions stand on and that cannot be used: what is wrong with each, as a
    /// clause, by path.
    pub fn lost_source_entries(
        &self,
        positions: &[(&String, &SourceOffset)],
    ) -> BTreeMap<String, String> {
        let mut lost = BTreeMap::new();
        // Chains join: what one has walked, the next does not walk again.
        let mut walked = BTreeSet::new();
        for (source, position) in positions {
            let folder = folder_of(source);
            let mut next = logged_at(position);
            while let Some(batch_id) = next.filter(|n| walked.insert((*source, *n))) {
                let compact = format!("{folder}{batch_id}.compact");
                let single = format!("{folder}{batch_id}");
                let path = match self.sources.contains_key(&compact) {
                    true => compact,
                    false => single,
                };
                next = match self.sources.get(&path) {
                    Some(Entry::Whole(previous)) => previous.filter(|n| *n < batch_id),
                    Some(Entry::Damaged(why)) => {
                        lost.insert(path, why.clone());
                        None
                    }
                    None => {
                        lost.insert(path, "the file is missing".to_owned());
                        None
                    }
                };
            }
        }
        lost
    }

    /// The first of the entries that are lost for what runs from batch `batch_id` on, as a clause.
    pub fn source_log_gap(&self, batch_id: u64) -> Option<String> {
        let lost = self.lost_source_entries(&self.positions_from(batch_id));
        let (path, why) = lost.into_iter().next()?;
        Some(format!("{path}: {why}"))
    }
}
