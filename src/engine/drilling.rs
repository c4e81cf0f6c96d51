//! `RUN RECOVERY DRILL`: a fault made on a copy of a checkpoint, mended there by the statements that
//! `DIAGNOSE` names, and the outcome compared with what readers see.
//!
//! ```text
//!   checkpoint ──hard links──► copy ──fault──► a pipeline of its own over it, without sinks
//!                                                 │ fails ─► diagnose ─► run the statement ─┐
//!                                                 ◄─────────────────────────────────────────┘
//!   published snapshot at batch N  ══multiset══  its contents at batch N
//! ```
//!
//! Nothing of production is touched: a file of the copy is never changed in place, and the copy goes with
//! its folder. The second pipeline takes in nothing beyond batch N.

mod faults;
mod outage;

use std::path::Path;
use std::sync::Arc;

pub use self::faults::Fault;
use self::faults::Made;

use super::Engine;
use super::pipeline::{Phase, Pipeline};
use super::recovery::Recovery;
use super::shared::PipelineShared;
use super::verifying::{
    Folder, Published, Side, compare_on_thread, new_folder, told_of, wait_until_opened,
};
use crate::checkpoint::blob::BlobStore;
use crate::checkpoint::recovery::{Depth, Survey, diagnose, filling_entry};
use crate::checkpoint::{CheckpointLocation, Identity};
use crate::error::{Error, ErrorKind, Result, sqlstate};
use crate::sql::names::quote_identifier;
use crate::sql::statement::Statement;

/// Copies that are begun before one gives up: a file may go while others are linked.
const COPIES_MAX: usize = 5;
/// Statements that a drill runs at most.
const STATEMENTS_MAX: usize = 6;
/// Tries of a batch whose source does not answer.
const TRIES_MAX: usize = 20;

/// What came of a drill.
#[derive(Debug, Clone)]
pub struct Drill {
    /// The fault that was made.
    pub fault: Fault,
    /// The batch that was compared.
    pub batch_id: u64,
    /// How it ended.
    pub verdict: Verdict,
    /// What was run, in this order.
    pub statements: Vec<String>,
    /// From the fault to the last batch.
    pub duration_us: i64,
    /// Rows that were compared.
    pub rows: u64,
    /// Rows that the copy has not.
    pub missing_rows: u64,
    /// Rows that only the copy has.
    pub unexpected_rows: u64,
    /// Sentences.
    pub detail: String,
}

/// How a drill ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The pipeline came back, and every view of it equals what readers see.
    Passed,
    /// It did not come back, or with other rows.
    Failed,
    /// The checkpoint has nothing that the fault could be made on.
    Skipped,
}

impl Verdict {
    /// As `streaming_recovery_drills` shows it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// A copy of a checkpoint as of one batch, and what readers see at it.
struct Copy {
    folder: Folder,
    location: String,
    batch_id: u64,
    views: Vec<(String, Published)>,
}

impl Engine {
    /// Makes a fault on a copy of a pipeline's checkpoint and recovers from it.
    pub async fn drill(&self, pipeline: &str, fault: Fault) -> Result<Drill> {
        let shared = self.pipeline_named(pipeline)?;
        let (_, identity) = self.place_of(pipeline)?;
        let copy = self.copy_for_drill(&shared, &identity).await?;
        let store = CheckpointLocation::store(&copy.location, &Default::default())?;
        let mut twin = self.twin(
            &shared,
            copy.folder.path(),
            &copy.location,
            Some(copy.batch_id),
        )?;
        fault.prepare(&mut twin);
        let survey = Survey::take(&store, &identity, None, Depth::Quick).await?;
        let clock = &self.inner.parts.clock;
        let begun_us = clock.now_us();
        let made = fault.make(Path::new(&copy.location), &survey, copy.batch_id)?;
        let mut drill = Drill {
            fault,
            batch_id: copy.batch_id,
            verdict: Verdict::Failed,
            statements: Vec::new(),
            duration_us: 0,
            rows: 0,
            missing_rows: 0,
            unexpected_rows: 0,
            detail: String::new(),
        };
        drill.detail = match made {
            Made::Done(what) => what,
            Made::Nothing(why) => {
                drill.verdict = Verdict::Skipped;
                drill.detail = format!("Nothing was tried: {why}.");
                return Ok(drill);
            }
        };
        let statements = &mut drill.statements;
        let recovered = recover(&mut twin, &store, &identity, fault, statements).await;
        drill.duration_us = clock.now_us() - begun_us;
        match recovered {
            Ok(()) => drill.compare(&twin, &copy).await?,
            Err(error) => {
                let error = told_of(error, pipeline);
                drill.detail = format!(
                    "{} It did not come back: {}.",
                    drill.detail,
                    error.primary()
                );
            }
        }
        // Nothing writes to its folder any more when that goes.
        twin.end(false).await?;
        Ok(drill)
    }

    /// Links the files of the checkpoint as of the batch that readers see.
    async fn copy_for_drill(
        &self,
        shared: &Arc<PipelineShared>,
        identity: &Identity,
    ) -> Result<Copy> {
        let (store, _) = self.place_of(&shared.name)?;
        let _copying = shared.copying();
        wait_until_opened(shared).await;
        let mut reason = None;
        for _ in 0..COPIES_MAX {
            let names: Vec<String> = shared.readers.read().keys().cloned().collect();
            let mut views = Vec::new();
            for name in names {
                let published = self.current(shared, &name).await?;
                views.push((name, published));
            }
            // One batch after the other is published: those of one batch belong together.
            let mut batches = views.iter().map(|(_, published)| published.batch_id);
            let Some(batch_id) = batches.next() else {
                return Err(nothing_to_drill(&shared.name));
            };
            if !batches.all(|other| other == batch_id) {
                continue;
            }
            let survey = Survey::take(&store, identity, None, Depth::Quick).await?;
            survey.require_own()?;
            reason = survey.why_unusable_at(batch_id);
            if reason.is_some() {
                continue;
            }
            let folder = new_folder(&self.inner.parts);
            let location = folder.path().join("checkpoint");
            if link(&store, &survey, batch_id, &location).await? {
                return Ok(Copy {
                    location: location.to_string_lossy().into_owned(),
                    folder,
                    batch_id,
                    views,
                });
            }
        }
        if let Some(why) = reason {
            return Err(not_sound(&shared.name, &why));
        }
        Err(Error::transient(
            sqlstate::IO_ERROR,
            format!(
                "could not copy the checkpoint of pipeline \"{}\": its files go faster than they are copied",
                shared.name
            ),
        )
        .hint(format!(
            "ALTER PIPELINE {} SET (min_batches_to_retain = 100);",
            quote_identifier(&shared.name)
        )))
    }
}

/// A drill shows nothing where the checkpoint itself would not open.
fn not_sound(pipeline: &str, why: &str) -> Error {
    Error::damaged(format!(
        "checkpoint of pipeline \"{pipeline}\" cannot be drilled: {why}"
    ))
    .detail("It would not open as it is. Nothing was copied.")
    .hint(format!("DIAGNOSE {};", quote_identifier(pipeline)))
}

fn nothing_to_drill(pipeline: &str) -> Error {
    Error::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("pipeline \"{pipeline}\" has no materialized view to compare"),
    )
    .detail("A drill compares what a recovered copy holds with what readers see.")
}

/// Gives the copy the files of a batch: links of them, where both lie on one disk. False: one went.
async fn link(
    store: &Arc<dyn BlobStore>,
    survey: &Survey,
    batch_id: u64,
    location: &Path,
) -> Result<bool> {
    let from = store.describe();
    let is_local = !from.contains("://");
    for path in survey
        .files_at(batch_id)
        .into_iter()
        .chain(["metadata".to_owned()])
    {
        let target = location.join(&path);
        let failed = |e: std::io::Error| {
            let shown = target.display();
            Error::transient(
                sqlstate::IO_ERROR,
                format!("could not write \"{shown}\": {e}"),
            )
        };
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        if is_local && std::fs::hard_link(Path::new(&from).join(&path), &target).is_ok() {
            continue;
        }
        match store.get(&path).await? {
            Some(blob) => std::fs::write(&target, &blob.bytes).map_err(failed)?,
            None => return Ok(false),
        }
    }
    Ok(true)
}

/// Opens the copy and runs what it has planned; what stops it is diagnosed, and the statement run.
async fn recover(
    twin: &mut Pipeline,
    store: &Arc<dyn BlobStore>,
    identity: &Identity,
    fault: Fault,
    statements: &mut Vec<String>,
) -> Result<()> {
    let known = twin.known_batch();
    let mut tries = 0;
    loop {
        let ran = fault.run(twin, tries).await;
        tries += 1;
        if tries == 1 && ran.is_ok() && fault == Fault::SchemaChange {
            return Err(Error::damaged("it went on with the state of another query"));
        }
        match &ran {
            Err(error) if error.kind() == ErrorKind::Transient && tries < TRIES_MAX => continue,
            Err(error) if error.kind() == ErrorKind::Transient => return Err(error.clone()),
            _ => {}
        }
        let survey = Survey::take(store, identity, known, Depth::Full).await?;
        let parts = diagnose(&survey, Depth::Full, twin.parts.clock.now_us());
        let named = parts.into_iter().find_map(|part| part.repair);
        let statement = named.or_else(|| fault.statement(identity).filter(|_| ran.is_err()));
        let is_new = statement
            .as_ref()
            .is_some_and(|s| statements.last() != Some(s));
        let Some(statement) = statement.filter(|_| is_new && statements.len() < STATEMENTS_MAX)
        else {
            return ran;
        };
        let work = work_of(&statement)?;
        statements.push(statement);
        twin.recover(&work, &mut Phase::Failed).await?;
        plan_filling(store, identity, known).await?;
    }
}

/// A state that is read from the sources as one batch is filled by a batch that takes in nothing else: the
/// one that the pipeline would plan itself would go on beyond the batch that is compared.
async fn plan_filling(
    store: &Arc<dyn BlobStore>,
    identity: &Identity,
    known: Option<u64>,
) -> Result<()> {
    let survey = Survey::take(store, identity, known, Depth::Quick).await?;
    let newest = survey.newest_commit();
    let Some(commit) = newest.filter(|commit| commit.entry.views.is_empty()) else {
        return Ok(());
    };
    match filling_entry(&survey, commit.entry.batch_id) {
        Ok(entry) => store.put_all(vec![entry]).await,
        Err(why) => Err(Error::damaged(format!(
            "the state cannot be read anew: {why}"
        ))),
    }
}

/// What a statement asks of a checkpoint.
fn work_of(statement: &str) -> Result<Recovery> {
    let parsed = crate::sql::parse(statement)?.pop();
    let work = parsed.and_then(|(parsed, _)| match parsed {
        Statement::Recovery(parsed) => Recovery::of(&parsed),
        _ => None,
    });
    work.ok_or_else(|| Error::unsupported(format!("a drill cannot run {statement}")))
}

impl Drill {
    /// How long it took, in whole milliseconds.
    pub fn duration_ms(&self) -> u64 {
        u64::try_from(self.duration_us / 1000).unwrap_or(0)
    }

    async fn compare(&mut self, twin: &Pipeline, copy: &Copy) -> Result<()> {
        let mut differing = Vec::new();
        for (name, published) in &copy.views {
            let again = twin.shared.readers.read().get(name).cloned();
            let snapshot = twin.shared.publication.lock().snapshot.clone();
            let again = Side::Stored(again.zip(snapshot));
            let compared = compare_on_thread(published.clone(), again, None).await?;
            self.rows += compared.rows;
            self.missing_rows += compared.missing_rows;
            self.unexpected_rows += compared.unexpected_rows;
            if compared.differs() {
                differing.push(format!("{name}: {}", compared.examples.join(", ")));
            }
        }
        if differing.is_empty() {
            self.verdict = Verdict::Passed;
        }
        let outcome = match differing.is_empty() {
            true => "Its views equal what readers see.".to_owned(),
            false => format!("Rows differ: {}.", differing.join("; ")),
        };
        self.detail = format!("{} {outcome}", self.detail);
        Ok(())
    }
}
