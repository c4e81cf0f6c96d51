//! What `REPAIR CHECKPOINT` finds, and what mends each finding: a pure function of a survey.
//!
//! The plan is made on a copy of the survey that takes over each mend as it is found, so that what
//! was mended first proves what comes after, and so that the plan can say at its end whether the
//! pipeline will open. State is not mended here: what an older state and the offset log give, opening
//! finds by itself, and the rest is `REBUILD STATE`.

use bytes::Bytes;

use super::diagnose::mending_statement;
use super::rebuild;
use super::survey::{Entry, Survey, batch_of, source_batch};
use crate::checkpoint::decide::{Decision, MetadataFact, Plan as ResumePlan, Stop, state_batch};
use crate::checkpoint::format::{self, Metadata, OffsetFile, Unreadable};
use crate::error::Result;
use crate::sql::names::quote_identifier;

/// Something that is wrong, and what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// `metadata`, `offsets`, `commits`, `state`, `sources`, `other`.
    pub part: &'static str,
    /// What is wrong, as a sentence.
    pub finding: String,
    /// What is done about it, as a sentence; what else helps, if nothing can be done here.
    pub action: String,
    /// The files that change; `None`: nothing is done here.
    pub mend: Option<Mend>,
    /// A statement that helps where nothing can be done here.
    pub statement: Option<String>,
}

/// A change of files: moved aside first, then written. Neither: opening again is what mends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mend {
    /// Files that move to the archive.
    pub aside: Vec<String>,
    /// A file that is written then.
    pub write: Option<(String, Bytes)>,
}

/// Under what the mended files are written.
#[derive(Debug, Clone, Copy)]
pub struct Hand {
    /// The lease's epoch.
    pub epoch: u64,
    /// Microseconds since the epoch.
    pub now_us: i64,
}

/// The findings, in the order in which they are mended. An error where nothing may be touched: the
/// checkpoint is another's, or a newer build wrote it.
pub fn plan(survey: &Survey, hand: Hand) -> Result<Vec<Finding>> {
    let mut plan = Plan {
        survey: survey.clone(),
        hand,
        findings: Vec::new(),
    };
    plan.refuse_foreign()?;
    if survey.newest_batch().is_some() || !survey.files.is_empty() {
        plan.metadata();
        plan.torn_tail();
        plan.old_offsets();
        plan.entries();
        plan.source_logs();
        plan.strays();
        plan.verdict();
    }
    Ok(plan.findings)
}

struct Plan {
    /// As it will be after the findings so far.
    survey: Survey,
    hand: Hand,
    findings: Vec<Finding>,
}

impl Plan {
    fn refuse_foreign(&self) -> Result<()> {
        let (survey, identity) = (&self.survey, &self.survey.identity);
        let stop = match &survey.metadata {
            MetadataFact::Whole(metadata) if metadata.id != identity.pipeline_id => {
                Some(Stop::Foreign {
                    id: metadata.id,
                    pipeline: metadata.pipeline.clone(),
                })
            }
            MetadataFact::Unreadable(Unreadable::NewerVersion(version)) => {
                Some(Stop::NewerFormat(version.clone()))
            }
            MetadataFact::Whole(_) => None,
            _ => survey.foreign_ids.first().map(|&id| Stop::Foreign {
                id,
                pipeline: "unknown".into(),
            }),
        };
        let newer = survey.newer_version.clone().map(Stop::NewerFormat);
        match stop.or(newer) {
            Some(stop) => Err(stop.to_error(&identity.pipeline_name, &survey.location)),
            None => Ok(()),
        }
    }

    fn found(&mut self, part: &'static str, finding: String, action: &str, mend: Mend) {
        for path in &mend.aside {
            self.survey.files.remove(path);
        }
        if let Some((path, bytes)) = &mend.write {
            self.survey.files.insert(path.clone(), bytes.len() as u64);
        }
        self.findings.push(Finding {
            part,
            finding,
            action: action.to_owned(),
            mend: Some(mend),
            statement: None,
        });
    }

    fn cannot(&mut self, part: &'static str, finding: String, why: &str, verb: &str) {
        let name = quote_identifier(&self.survey.identity.pipeline_name);
        self.findings.push(Finding {
            part,
            finding,
            action: format!("It cannot be mended: {why}."),
            mend: None,
            statement: Some(format!("{verb} OF {name};")),
        });
    }

    fn metadata(&mut self) {
        let why = match &self.survey.metadata {
            MetadataFact::Whole(_) => return,
            MetadataFact::Missing => "the file is missing".to_owned(),
            MetadataFact::Unreadable(why) => why.to_string(),
        };
        let has_entries = !self.survey.offsets.is_empty() || !self.survey.commits.is_empty();
        if !has_entries {
            // Nothing that it could be the metadata of: opening says what is missing.
            return;
        }
        let identity = &self.survey.identity;
        let metadata = Metadata::of(
            identity,
            self.hand.now_us,
            rebuild::first_batch(&self.survey),
        );
        let aside = match self.survey.metadata {
            MetadataFact::Missing => Vec::new(),
            _ => vec!["metadata".to_owned()],
        };
        let write = Some(("metadata".to_owned(), metadata.encode().into()));
        self.survey.metadata = MetadataFact::Whole(metadata);
        self.found(
            "metadata",
            format!("metadata: {why}."),
            "It is written anew with the pipeline's own id.",
            Mend { aside, write },
        );
    }

    /// A damaged entry of a batch that never committed is planned anew.
    fn torn_tail(&mut self) {
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
        self.survey.offsets.remove(&batch_id);
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
    fn old_offsets(&mut self) {
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
            self.survey.offsets.remove(&batch_id);
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
    fn entries(&mut self) {
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
            Err(unproven) => return self.cannot("offsets", finding, &unproven, "RESET CHECKPOINT"),
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
        self.survey.offsets.insert(batch_id, Entry::Whole(file));
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
        self.survey.commits.insert(batch_id, Entry::Whole(file));
        let action = "It is written anew from the batches beside it.";
        self.found("commits", finding, action, mend);
    }

    /// Nobody restarts from a commit that cannot be told, so the pipeline runs on without it.
    fn unproven_commit(&mut self, path: String, finding: String, unproven: &str) {
        let aside = self.aside(&path);
        let action = format!("It is left out, since {unproven}; no restart needs it.");
        if aside.is_empty() {
            self.findings.push(Finding {
                part: "commits",
                finding,
                action,
                mend: None,
                statement: None,
            });
            return;
        }
        if let Some(batch_id) = path.strip_prefix("commits/").and_then(batch_of) {
            self.survey.commits.remove(&batch_id);
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
            self.survey.commits.remove(&batch_id);
            let aside = vec![format!("commits/{batch_id}")];
            self.found(
                "commits",
                format!("commits/{batch_id}: {why}."),
                "It is moved aside; the batch runs again exactly as it was planned.",
                Mend { aside, write: None },
            );
        }
    }

    fn aside(&self, path: &str) -> Vec<String> {
        let is_there = self.survey.files.contains_key(path);
        is_there.then(|| path.to_owned()).into_iter().collect()
    }

    fn source_logs(&mut self) {
        let damaged: Vec<(String, String)> = self
            .survey
            .sources
            .iter()
            .filter_map(|(path, entry)| Some((path.clone(), entry.damage()?.to_owned())))
            .collect();
        let newest = self.survey.offsets.keys().next_back().copied();
        for (path, why) in damaged {
            let finding = format!("{path}: {why}.");
            let batch_id = source_batch(&path);
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let is_compacted = self.survey.sources.iter().any(|(other, entry)| {
                other.starts_with(folder)
                    && other.ends_with(".compact")
                    && entry.whole().is_some()
                    && source_batch(other) >= batch_id
            });
            if is_compacted || batch_id > newest {
                self.survey.sources.remove(&path);
                let aside = vec![path];
                let action = "It is moved aside: no batch needs it.";
                self.found("sources", finding, action, Mend { aside, write: None });
            } else {
                let why = "only this file tells which files the batch read";
                self.cannot("sources", finding, why, "RESET CHECKPOINT");
            }
        }
    }

    /// Files that no part of the checkpoint is made of. Runs that no manifest names are not among them:
    /// the pipeline itself writes them ahead of the manifest, and retention takes what a crash left.
    fn strays(&mut self) {
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
                _ => "other",
            };
            let finding = format!("{path}: nothing names this file.");
            let aside = vec![path];
            self.found(
                part,
                finding,
                "It is moved aside.",
                Mend { aside, write: None },
            );
        }
    }

    /// What the next opening will do.
    fn verdict(&mut self) {
        match self.survey.verdict() {
            Decision::Resume(plan) => self.falls_back(&plan),
            Decision::Stop(stop) => self.stopped(&stop),
            Decision::Fresh | Decision::Read(_) => {}
        }
    }

    /// The newest state cannot be used and an older one leads on: opening again mends it, since the
    /// batches that run again write it anew.
    fn falls_back(&mut self, plan: &ResumePlan) {
        let newest = self.survey.newest_commit();
        let Some(Entry::Damaged(why)) = newest.map(|commit| self.survey.state_of(commit)) else {
            return;
        };
        let from = plan.start.map_or_else(
            || "the beginning".to_owned(),
            |start| format!("the state of batch {start}"),
        );
        let batches = plan.replay.len();
        let action = format!("The pipeline starts from {from} and runs {batches} batches again.");
        self.found("state", format!("{why}."), &action, Mend::default());
    }

    fn stopped(&mut self, stop: &Stop) {
        let identity = &self.survey.identity;
        let statement = mending_statement(stop, &identity.pipeline_name, &self.survey.location);
        let is_told = self.findings.iter().any(|finding| finding.mend.is_none());
        let is_state = matches!(stop, Stop::StateLost { .. });
        if is_told && !is_state {
            return;
        }
        let error = stop.to_error(&identity.pipeline_name, &self.survey.location);
        let name = quote_identifier(&identity.pipeline_name);
        // What REPAIR itself leaves is not for REPAIR.
        let statement = match statement.starts_with("REPAIR") {
            true => format!("RESET CHECKPOINT OF {name};"),
            false => statement,
        };
        self.findings.push(Finding {
            part: if is_state { "state" } else { "other" },
            finding: format!("{}.", error.primary()),
            action: "REPAIR cannot mend it.".to_owned(),
            mend: None,
            statement: Some(statement).filter(|statement| !statement.is_empty()),
        });
    }
}
