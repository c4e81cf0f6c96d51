//! Recovery statements at a pipeline's batch border: what needs the checkpoint to itself.
//!
//! ```text
//!   settle ─► let go of checkpoint and state ─► hold the lease, look, change files ─► open again (unless it was stopped)
//! ```
//!
//! Until the first file moves, everything that could make the statement fail has been asked: sources,
//! the lease, whose the location is. What was published stays readable throughout. The changes of
//! files are the checkpoint's own matter ([`crate::checkpoint::recovery`]); here is the life of the
//! pipeline around them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::pipeline::{Phase, Pipeline};
use crate::checkpoint::blob::BlobStore;
use crate::checkpoint::recovery::{Depth, Finding, Hand, Held, Survey, plan, repair};
use crate::checkpoint::{CheckpointLocation, Identity};
use crate::error::{Result, counted, sqlstate};
use crate::sql::recovery::{RecoveryStatement, ResetFrom, RewindTo};

/// Tries at a lease that the pipeline itself has just let go of.
const LEASE_TRIES: u32 = 20;
const LEASE_PAUSE: Duration = Duration::from_millis(100);

/// What a statement asks of a pipeline's checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub enum Recovery {
    /// `REPAIR CHECKPOINT OF p [DRY RUN]`
    Repair {
        /// Only say what would be done.
        dry_run: bool,
    },
    /// `RESET CHECKPOINT OF p [FROM …]`
    Reset(ResetFrom),
    /// `REBUILD STATE OF p`
    RebuildState,
    /// `REWIND p …`
    Rewind(RewindTo),
    /// `RESTORE CHECKPOINT OF p FROM 'location' [AT BATCH n]`
    Restore {
        /// Where the backup lies.
        from: String,
        /// `None`: its newest batch.
        batch_id: Option<u64>,
    },
}

/// What was done, step by step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// `archived`, `starts`, `runs again`, ….
    pub step: &'static str,
    /// What it is about: a location, a source, a batch.
    pub object: String,
    /// The rest.
    pub detail: String,
}

impl Step {
    pub(super) fn new(
        step: &'static str,
        object: impl ToString,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            step,
            object: object.to_string(),
            detail: detail.into(),
        }
    }
}

/// What a statement answers.
#[derive(Debug, Clone)]
pub enum Recovered {
    /// Of `REPAIR`: the findings, and where replaced files went.
    Findings(Vec<Finding>, Option<String>),
    /// Of the others.
    Steps(Vec<Step>),
}

impl Recovery {
    /// What a statement asks of a checkpoint; `None`: nothing is to be done to it.
    pub fn of(statement: &RecoveryStatement) -> Option<Self> {
        Some(match statement {
            RecoveryStatement::RepairCheckpoint { dry_run, .. } => {
                Self::Repair { dry_run: *dry_run }
            }
            RecoveryStatement::ResetCheckpoint { from, .. } => Self::Reset(from.clone()),
            RecoveryStatement::RebuildState { .. } => Self::RebuildState,
            RecoveryStatement::RestoreCheckpoint { from, batch_id, .. } => Self::Restore {
                from: from.clone(),
                batch_id: *batch_id,
            },
            RecoveryStatement::Rewind { to, .. } => Self::Rewind(*to),
            _ => return None,
        })
    }

    /// It looks and changes nothing.
    pub(super) fn only_looks(&self) -> bool {
        matches!(self, Recovery::Repair { dry_run: true })
    }
}

impl Pipeline {
    /// Runs a recovery statement. Whatever comes of it, a pipeline that ran goes on.
    pub(super) async fn recover(
        &mut self,
        work: &Recovery,
        phase: &mut Phase,
    ) -> Result<Recovered> {
        if let Recovery::Repair { dry_run } = work {
            let findings = self.look_for_repairs().await?;
            let changes = findings.iter().any(|finding| finding.mend.is_some());
            if *dry_run || !changes {
                return Ok(Recovered::Findings(findings, None));
            }
        }
        let had_failed = matches!(phase, Phase::Failed);
        self.abandon_commit().await;
        self.let_go();
        self.let_go_of_store(false).await?;
        self.state = None;
        self.shown = None;
        let recovered = self.recover_closed(work).await;
        let stays = matches!(phase, Phase::Stopped) || (had_failed && recovered.is_err());
        if !stays {
            self.attempt = 0;
            self.error = None;
            *phase = Phase::Opening;
            self.tell("starting");
        }
        if recovered.is_ok() && !matches!(work, Recovery::Repair { .. }) {
            let mut publication = self.shared.publication.lock();
            publication.superseded = publication.batch_id.is_some();
            drop(publication);
            // What they have seen is not what the next batch builds on.
            for object in &self.objects {
                self.shared.end_subscriptions(&object.name);
            }
        }
        recovered
    }

    /// Readers keep what they see until the batches that run again have come to `last`, or to what they see.
    pub(super) fn keep_shown(&mut self, last: u64) {
        let shown = self.shared.publication.lock().batch_id;
        self.shown = shown.map(|shown| shown.min(last));
    }

    /// Readers keep what they see until batch `batch_id` has come.
    pub(super) fn keep_shown_until(&mut self, batch_id: u64) {
        let shown = self.shared.publication.lock().batch_id;
        self.shown = shown.map(|_| batch_id);
    }

    async fn recover_closed(&mut self, work: &Recovery) -> Result<Recovered> {
        match work {
            Recovery::Repair { .. } => self.repair().await,
            Recovery::Reset(from) => self.reset(from).await,
            Recovery::RebuildState => self.rebuild_state().await,
            Recovery::Rewind(to) => self.rewind(*to).await,
            Recovery::Restore { from, batch_id } => self.restore(from, *batch_id).await,
        }
    }

    pub(super) fn store(&self) -> Result<Arc<dyn BlobStore>> {
        CheckpointLocation::store(&self.location(), &BTreeMap::new())
    }

    pub(super) fn known_batch(&self) -> Option<u64> {
        let history = &self.parts.history;
        history.known_batch(&self.shared.name, self.shared.id)
    }

    /// Whose checkpoint it is; a view that cannot be planned leaves its part of the fingerprint out.
    pub(super) async fn identity(&self) -> Identity {
        let mut fingerprints = Vec::new();
        for object in &self.objects {
            if let Ok(plan) = self.plan(object).await {
                fingerprints.push(plan.fingerprint);
            }
        }
        Identity {
            pipeline_id: self.shared.id,
            pipeline_name: self.shared.name.clone(),
            fingerprint: fingerprints.join(" "),
        }
    }

    /// Takes the lease, waiting a little for what still lets go of it.
    pub(super) async fn hold(&self) -> Result<Held> {
        let identity = self.identity().await;
        let mut tries = 0;
        loop {
            let clock = Arc::clone(&self.parts.clock);
            match Held::acquire(self.store()?, identity.clone(), clock).await {
                Err(error)
                    if error.sqlstate() == sqlstate::OBJECT_IN_USE && tries < LEASE_TRIES =>
                {
                    tries += 1;
                    tokio::time::sleep(LEASE_PAUSE).await;
                }
                held => return held,
            }
        }
    }

    async fn look_for_repairs(&self) -> Result<Vec<Finding>> {
        // Batches wait for it: a large state is read whole only where none runs.
        let depth = match &self.opened {
            Some(opened) => {
                opened.checkpoint.wait_until_idle().await;
                Depth::Quick
            }
            None => Depth::Full,
        };
        let identity = self.identity().await;
        let survey = Survey::take(&self.store()?, &identity, self.known_batch(), depth).await?;
        let hand = Hand {
            epoch: 0,
            now_us: self.parts.clock.now_us(),
        };
        plan(&survey, hand)
    }

    async fn repair(&mut self) -> Result<Recovered> {
        let repaired = repair(&self.hold().await?, self.known_batch()).await?;
        self.keep_shown(u64::MAX);
        let mended = repaired.findings.iter().filter(|f| f.mend.is_some());
        let mended: Vec<&str> = mended.map(|f| f.finding.as_str()).collect();
        self.event(
            "repaired",
            json!({ "mended": mended, "archive": repaired.archive }),
        );
        Ok(Recovered::Findings(repaired.findings, repaired.archive))
    }
}

pub(super) fn archived_step(
    location: &str,
    archived: &crate::checkpoint::recovery::Archived,
) -> Step {
    let detail = match archived.files {
        0 => "nothing was there to move".to_owned(),
        files => format!(
            "{} of {} bytes moved to {}",
            counted(files, "file"),
            archived.bytes,
            archived.location
        ),
    };
    Step::new("archived", location, detail)
}

pub(super) fn steps_json(steps: &[Step]) -> Value {
    let steps = steps
        .iter()
        .map(|step| json!({ "step": step.step, "object": step.object, "detail": step.detail }));
    json!({ "steps": steps.collect::<Vec<_>>() })
}
