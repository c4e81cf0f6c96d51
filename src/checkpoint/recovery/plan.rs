//! What `REPAIR CHECKPOINT` finds, and what mends each finding: a pure function of a survey.
//!
//! The plan is made on a copy of the survey that takes over each mend as it is found, so that what
//! was mended first proves what comes after, and so that the plan can say at its end whether the
//! pipeline will open. State is not mended here: what an older state and the offset log give, opening
//! finds by itself, and the rest is `REBUILD STATE`.

mod entries;
mod files;

use std::borrow::Cow;

use bytes::Bytes;

use self::entries::Gap;
use super::rebuild;
use super::statement::mending_statement;
use super::survey::{Entry, Survey};
use crate::checkpoint::decide::{Decision, MetadataFact, Plan as ResumePlan, Stop};
use crate::checkpoint::format::{Metadata, Unreadable};
use crate::error::{Result, counted};
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
    if let Some(stop) = refusal(survey) {
        return Err(stop.to_error(&survey.identity.pipeline_name, &survey.location));
    }
    let mut plan = Plan {
        survey: Cow::Borrowed(survey),
        hand,
        findings: Vec::new(),
        gaps: Vec::new(),
    };
    if survey.newest_batch().is_some() || !survey.files.is_empty() {
        // First what may stand in the place of a file or folder that is to be written.
        plan.strays();
        plan.metadata();
        plan.torn_tail();
        plan.old_offsets();
        plan.entries();
        plan.source_logs();
        plan.lost_runs();
        plan.verdict();
    }
    Ok(plan.findings)
}

/// Why nothing may be touched: the checkpoint is another's, or a newer build wrote it.
pub fn refusal(survey: &Survey) -> Option<Stop> {
    let identity = &survey.identity;
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
    stop.or_else(|| survey.newer_version.clone().map(Stop::NewerFormat))
}

struct Plan<'a> {
    /// As it will be after the findings so far; a copy only once there is one.
    survey: Cow<'a, Survey>,
    hand: Hand,
    findings: Vec<Finding>,
    /// Entries of the offset log that nothing proves; whether they are needed shows at the end.
    gaps: Vec<Gap>,
}

impl Plan<'_> {
    fn found(&mut self, part: &'static str, finding: String, action: &str, mend: Mend) {
        for path in &mend.aside {
            self.survey.to_mut().files.remove(path);
        }
        if let Some((path, bytes)) = &mend.write {
            self.survey
                .to_mut()
                .files
                .insert(path.clone(), bytes.len() as u64);
        }
        self.findings.push(Finding {
            part,
            finding,
            action: action.to_owned(),
            mend: Some(mend),
            statement: None,
        });
    }

    /// Something that stays as it is; with a statement, if it keeps the pipeline from running.
    fn told(
        &mut self,
        part: &'static str,
        finding: String,
        action: String,
        statement: Option<String>,
    ) {
        self.findings.push(Finding {
            part,
            finding,
            action,
            mend: None,
            statement,
        });
    }

    fn reset_statement(&self) -> String {
        let name = quote_identifier(&self.survey.identity.pipeline_name);
        format!("RESET CHECKPOINT OF {name};")
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
        self.survey.to_mut().metadata = MetadataFact::Whole(metadata);
        self.found(
            "metadata",
            format!("metadata: {why}."),
            "It is written anew with the pipeline's own id.",
            Mend { aside, write },
        );
    }

    /// What the next opening will do.
    fn verdict(&mut self) {
        let verdict = self.survey.verdict();
        let opens = !matches!(verdict, Decision::Stop(_));
        self.settle_gaps(opens);
        match verdict {
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
        // It starts only if all else is sound: what keeps it from that comes first.
        let other = self.findings.iter().find_map(|f| f.statement.clone());
        let gap = plan
            .start
            .and_then(|start| self.survey.source_log_gap(start));
        if other.is_some() || gap.is_some() {
            let reason = gap.map_or_else(String::new, |gap| format!(": {gap}"));
            let action = format!(
                "REPAIR cannot mend it, since the pipeline cannot start from {from}{reason}."
            );
            let statement = other.unwrap_or_else(|| self.reset_statement());
            return self.told("state", format!("{why}."), action, Some(statement));
        }
        let batches = counted(plan.replay.len() as u64, "batch");
        let action = format!("The pipeline starts from {from} and runs {batches} again.");
        self.found("state", format!("{why}."), &action, Mend::default());
    }

    fn stopped(&mut self, stop: &Stop) {
        let is_told = self.findings.iter().any(|f| f.statement.is_some());
        let is_state = matches!(stop, Stop::StateLost { .. });
        if is_told && !is_state {
            return;
        }
        let identity = &self.survey.identity;
        let error = stop.to_error(&identity.pipeline_name, &self.survey.location);
        let statement = mending_statement(stop, &self.survey);
        // What REPAIR itself leaves is not for REPAIR.
        let statement = match statement.starts_with("REPAIR") {
            true => self.reset_statement(),
            false => statement,
        };
        let part = match stop {
            Stop::StateLost { .. } => "state",
            Stop::CommitsLost { .. } | Stop::Older { .. } => "commits",
            Stop::OffsetsDamaged { .. } => "offsets",
            _ => "metadata",
        };
        self.told(
            part,
            format!("{}.", error.primary()),
            "REPAIR cannot mend it.".to_owned(),
            Some(statement).filter(|statement| !statement.is_empty()),
        );
    }
}
