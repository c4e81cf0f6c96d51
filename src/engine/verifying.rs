//! `VERIFY MATERIALIZED VIEW`: the view computed once more beside its pipeline, and compared.
//!
//! ```text
//!   offsets/first..N ──► a pipeline of its own in a folder of its own, without sinks ──► contents at N
//!                                                                                          ║ multiset
//!   the published snapshot at N ───────────────────────────────────────────────────────────╝
//! ```
//!
//! The second pipeline takes in exactly what the batches up to the published one took in, by the same
//! offset log, so late rows, `now()` and policies are those of the original. Where retention took the
//! log's beginning, the sources are read as one batch up to where the published batch stood. It tells
//! no history, and its folder goes with it.
//!
//! Before that the view's query is tried over all rows at once ([`by_batch`]): the second pipeline has the
//! operators of the first, and would repeat a fault of theirs.

mod by_batch;
mod comparing;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use uuid::Uuid;

pub(super) use self::comparing::{Published, Side, compare_on_thread};
use super::Engine;
use super::parts::{BatchPlace, EngineParts, Event, ExpectationCount, History, LateRow};
use super::pipeline::Pipeline;
use super::settings::PipelineSettings;
use super::shared::PipelineShared;
use crate::catalog::definition::Definition;
use crate::catalog::history::HandedOver;
use crate::catalog::renaming::KeptName;
use crate::checkpoint::recovery::{Depth, Entry, Survey, copy_input};
use crate::connectors::{DataGap, DeadLetter};
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;

/// The folder of verifications below the data directory; emptied when the engine opens.
const FOLDER: &str = "verification";
/// How long a view that is computed anew is waited for.
const CURRENT_PATIENCE: Duration = Duration::from_secs(60);
/// State is persisted this seldom: nobody opens it again.
const PERSIST_INTERVAL: Duration = Duration::from_secs(3600);

/// What came of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verification {
    /// The pipeline.
    pub pipeline: String,
    /// The batch that was compared.
    pub batch_id: u64,
    /// Rows of the view.
    pub rows: u64,
    /// Rows that the view should have and has not.
    pub missing_rows: u64,
    /// Rows that it has and should not have.
    pub unexpected_rows: u64,
    /// Some of them.
    pub examples: Vec<String>,
    /// Rows of the view that were compared; fewer than `rows` in a sample.
    pub compared_rows: u64,
    /// How it was computed again.
    pub method: Method,
    /// Why not as one query, as a clause.
    pub why_not_one_query: Option<String>,
    /// No batch took in anything yet: there was nothing to compute.
    pub took_in_nothing: bool,
}

/// How a view was computed again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Method {
    /// Its query over all rows that were taken in, by none of a pipeline's operators.
    OneQuery,
    /// All batches ran again, each with its own rows and watermark.
    #[default]
    Batches,
    /// The sources were read as one batch: the offset log does not reach back to the first.
    OneBatch,
}

impl Verification {
    /// Some row is missing or unexpected.
    pub fn differs(&self) -> bool {
        self.missing_rows + self.unexpected_rows > 0
    }
}

/// A folder that goes with its owner.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// A new folder for a pipeline beside another.
pub(super) fn new_folder(parts: &EngineParts) -> Folder {
    let folder = parts.data_dir.join(FOLDER);
    Folder(folder.join(Uuid::new_v4().to_string()))
}

impl Drop for Folder {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn remove(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(folder = %folder.display(), %error, "could not remove a folder of verification");
    }
}

/// Removes what a crash left of verifications.
pub(super) fn clean(parts: &EngineParts) {
    remove(&parts.data_dir.join(FOLDER));
}

/// Waits until a pipeline knows its views after a start; one that takes longer is told by what it
/// has not.
pub(super) async fn wait_until_opened(shared: &PipelineShared) {
    let mut status = shared.status.subscribe();
    let opened = status.wait_for(|status| !matches!(*status, "starting" | "restoring"));
    tokio::time::timeout(CURRENT_PATIENCE, opened).await.ok();
}

impl Engine {
    /// Computes a view again from its retained input and compares it with what readers see: as one query
    /// first, which shares no operator with the pipeline, and where that proves nothing by its batches.
    pub async fn verify(&self, view: &KeptName, sample: Option<u64>) -> Result<Verification> {
        let verified = self.verify_kept(view.as_str(), sample).await;
        verified.map_err(|error| self.shown(error))
    }

    async fn verify_kept(&self, view: &str, sample: Option<u64>) -> Result<Verification> {
        let shared = self.inner.directory.pipeline_of(view)?;
        let published = self.current(&shared, view).await?;
        let (store, identity) = self.place_of(&shared.name)?;
        let survey = Survey::take(&store, &identity, None, Depth::Quick).await?;
        survey.require_own()?;
        let batch_id = published.batch_id;
        let took_in_nothing = took_in_nothing(&survey, batch_id);
        let by_batch = self.compute_by_batch(&shared, view, &survey, batch_id);
        let why_not = match by_batch.await {
            Ok(found) => {
                let again = Side::Computed(found.rows);
                let compared = compare_on_thread(published.clone(), again, sample).await?;
                match found.undecided {
                    Some(why) if compared.differs() => why.to_owned(),
                    _ => {
                        return Ok(Verification {
                            pipeline: shared.name.clone(),
                            method: Method::OneQuery,
                            took_in_nothing,
                            ..compared
                        });
                    }
                }
            }
            Err(unfit) => unfit,
        };
        let by_batches = self.verify_by_batches(&shared, view, published, &survey, sample);
        let mut found = by_batches
            .await
            .map_err(|error| told_of(error, &shared.name))?;
        found.why_not_one_query = Some(why_not);
        found.took_in_nothing = took_in_nothing;
        Ok(found)
    }

    /// What readers see, once that is of the checkpoint that is there: after a start, or a statement that made
    /// the pipeline begin anew or batches run again, it is waited for.
    pub(super) async fn current(&self, shared: &PipelineShared, view: &str) -> Result<Published> {
        wait_until_opened(shared).await;
        let mut status = shared.status.subscribe();
        let rests = status.wait_for(|status| matches!(*status, "stopped" | "failed"));
        tokio::select! {
            biased;
            () = shared.wait_until_current() => {}
            // Without a sender the pipeline has ended, and nothing more comes.
            _ = rests => {}
            () = tokio::time::sleep(CURRENT_PATIENCE) => {}
        }
        if !shared.publication.lock().superseded {
            return self.published(shared, view);
        }
        let (pipeline, name) = (quote_identifier(&shared.name), quote_identifier(view));
        let hint = match *shared.status.borrow() {
            "stopped" => format!("START PIPELINE {pipeline};"),
            "failed" => format!("DIAGNOSE {pipeline};"),
            _ => format!("WAIT FOR {name};"),
        };
        Err(Error::new(
            sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("materialized view \"{view}\" is yet to be computed anew"),
        )
        .detail("Readers see its last batch from before its checkpoint was reset, rebuilt or gone back.")
        .hint(hint))
    }

    pub(super) fn published(&self, shared: &PipelineShared, view: &str) -> Result<Published> {
        let reader = shared.readers.read().get(view).cloned();
        let reader = reader.ok_or_else(|| super::planning::unknown(view))?;
        let publication = shared.publication.lock();
        match publication.snapshot.clone().zip(publication.batch_id) {
            Some((snapshot, batch_id)) => Ok(Published {
                reader,
                snapshot,
                batch_id,
            }),
            None => Err(Error::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("materialized view \"{view}\" has no batch yet"),
            )
            .hint(format!("WAIT FOR {};", quote_identifier(view)))),
        }
    }

    /// Runs the batches again in a pipeline of their own.
    async fn verify_by_batches(
        &self,
        shared: &PipelineShared,
        view: &str,
        published: Published,
        survey: &Survey,
        sample: Option<u64>,
    ) -> Result<Verification> {
        let folder = new_folder(&self.inner.parts);
        let location = folder.0.join("checkpoint").to_string_lossy().into_owned();
        let batch_id = published.batch_id;
        let is_exact = self.copy_input(survey, batch_id, &location).await?;
        let mut twin = self.twin(shared, folder.path(), &location, None)?;
        let ran = twin.run_planned().await;
        let again = {
            let again = &twin.shared;
            let reader = again.readers.read().get(view).cloned();
            let snapshot = again.publication.lock().snapshot.clone();
            reader.zip(snapshot)
        };
        // Nothing writes to its folder any more when that goes.
        twin.end(false).await?;
        ran?;
        let again = Side::Stored(again);
        let compared = compare_on_thread(published, again, sample).await?;
        Ok(Verification {
            pipeline: shared.name.clone(),
            method: match is_exact {
                true => Method::Batches,
                false => Method::OneBatch,
            },
            ..compared
        })
    }

    /// Copies what fixes the input of the batches up to `batch_id`; whether batch by batch.
    async fn copy_input(&self, survey: &Survey, batch_id: u64, location: &str) -> Result<bool> {
        let pipeline = &survey.identity.pipeline_name;
        let (store, _) = self.place_of(pipeline)?;
        let target = crate::checkpoint::CheckpointLocation::store(location, &Default::default())?;
        let now_us = self.inner.parts.clock.now_us();
        copy_input(&store, &target, survey, batch_id, now_us)
            .await?
            .map_err(|why| {
                Error::new(
                    sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    format!("pipeline \"{pipeline}\" cannot be computed again: {why}"),
                )
                .hint(format!(
                    "DIAGNOSE CHECKPOINT OF {};",
                    quote_identifier(pipeline)
                ))
            })
    }

    /// A pipeline of the same views, without sinks, over a copy of the input.
    pub(super) fn twin(
        &self,
        shared: &PipelineShared,
        folder: &Path,
        location: &str,
        known_batch: Option<u64>,
    ) -> Result<Pipeline> {
        let mut parts = self.inner.parts.clone();
        let definition = parts.definitions.pipeline(&shared.name);
        let options = definition.map(|d| d.options).unwrap_or_default();
        let mut settings = PipelineSettings::read(&options)?;
        settings.checkpoint_location = Some(location.to_owned());
        settings.checkpoint_interval = Some(PERSIST_INTERVAL);
        parts.data_dir = folder.to_owned();
        parts.history = Arc::new(Silence { known_batch });
        let objects = parts.definitions.objects().into_iter().filter(|object| {
            matches!(&object.definition, Definition::MaterializedView(v) if v.pipeline == shared.name)
        });
        let objects = objects.collect();
        let (commands, _) = mpsc::unbounded_channel();
        let name = twin_name(&shared.name);
        let twin = Arc::new(PipelineShared::new(
            name,
            shared.id,
            commands,
            &parts.budget,
        ));
        let (registry, receivers) = (Arc::default(), Arc::default());
        let mut pipeline = Pipeline::new(parts, twin, registry, receivers, settings, true);
        pipeline.objects = objects;
        Ok(pipeline)
    }
}

/// All sources stand where they were begun.
fn took_in_nothing(survey: &Survey, batch_id: u64) -> bool {
    let commit = survey.commits.get(&batch_id).and_then(Entry::whole);
    commit.is_some_and(|commit| commit.entry.source_offsets == commit.entry.initial_offsets)
}

impl Pipeline {
    /// Opens, and runs what the offset log has planned; nothing more.
    pub(super) async fn run_planned(&mut self) -> Result<()> {
        self.open().await?;
        self.run_rest().await
    }

    /// Runs what is still planned.
    pub(super) async fn run_rest(&mut self) -> Result<()> {
        while self.opened.as_ref().is_some_and(|o| !o.replay.is_empty()) {
            self.run_batch().await?;
        }
        self.settle().await
    }
}

/// The name of a pipeline that computes another again: one that no statement can reach.
fn twin_name(pipeline: &str) -> String {
    format!("{pipeline}\u{1}verification")
}

/// An error of the second pipeline, told of the first: that is the one to do something about.
pub(super) fn told_of(error: Error, pipeline: &str) -> Error {
    let twin = twin_name(pipeline);
    let error = error.with_texts(|text| {
        text.replace(&quote_identifier(&twin), &quote_identifier(pipeline))
            .replace(&twin, pipeline)
    });
    super::decide::with_advice(error, pipeline)
}

/// A history that keeps nothing: the original's is the one that counts.
struct Silence {
    /// The newest batch that it knows.
    known_batch: Option<u64>,
}

impl History for Silence {
    fn record_metrics(&self, _: &str, _: u64, _: &[Value]) {}
    fn last_metrics_batch(&self, _: &str) -> Option<u64> {
        None
    }
    fn record_event(&self, _: Event) {}
    fn record_dead_letters(&self, _: &str, _: &str, _: u64, _: &[DeadLetter]) {}
    fn forget_batch_letters(&self, _: &str, _: &str, _: u64) {}
    fn hand_over_letters(&self, _: &str, _: &HandedOver<'_>) {}
    fn record_late_rows(&self, _: &BatchPlace<'_>, _: Option<i64>, _: &[LateRow]) {}
    fn record_expectations(&self, _: &BatchPlace<'_>, _: i64, _: &[ExpectationCount]) {}
    fn record_data_gaps(&self, _: &BatchPlace<'_>, _: &[(String, DataGap)]) {}
    fn known_batch(&self, _: &str, _: Uuid) -> Option<u64> {
        self.known_batch
    }
    fn record_known_batch(&self, _: &str, _: Uuid, _: u64) {}
}
