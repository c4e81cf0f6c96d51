//! A pipeline's life: plan a batch, run it, commit it, retry with back-off, stop, tell.
//!
//! One task per pipeline ([`pipeline`]), one way to run a batch ([`batch`]), one way to recover
//! ([`opening`]). Decisions (watermark, retry, what state a view is in) are pure functions in
//! [`decide`]; I/O sits at the edge. Absent: SQL text (the session binds it) and operators (the
//! dataflow runs them).

mod backups;
mod batch;
mod board;
mod changes;
mod closing;
mod committing;
mod compute;
mod controlling;
pub mod decide;
mod diagnosing;
pub mod drilling;
mod evolving;
mod feeding;
mod file_names;
mod filling;
mod intake;
mod interrupt;
mod kept_rows;
mod known_files;
pub mod lateness;
mod merging;
mod metrics;
mod opening;
mod pace;
pub mod parts;
mod pipeline;
mod planning;
pub mod probing;
mod read;
mod receivers;
pub mod recovery;
pub mod replaying;
mod resetting;
mod restoring;
pub mod sampling;
mod settings;
mod shared;
mod sinks;
mod stall;
pub mod status;
mod subscribe;
mod taking_over;
mod telling;
pub mod verifying;
mod watermarks;

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::logical_expr::LogicalPlan;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::catalog::definition::{CatalogObject, Definition, Options, PipelineDefinition};
use crate::catalog::renaming::KeptName;
use crate::connectors::replayed::letters_relation;
use crate::connectors::{SocketReceiver, SourceRange};
use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::ObjectKind;
use status::in_shown_names;
pub use status::naming_members;

pub use crate::checkpoint::recovery::Backup;
use crate::dataflow::plan::ViewPlan;
pub use backups::Usable;
pub use diagnosing::CheckpointDiagnosis;
pub(crate) use file_names::file_name;
pub(crate) use kept_rows::WholeRows;
use parts::{Definitions, EngineParts};
use pipeline::Pipeline;
pub use planning::row_policy;
use planning::{ViewRegistry, know_views, plan_object, unknown};
pub(crate) use planning::{sink_query, versioned_name};
pub use read::{ReadContext, ReadOrder};
use receivers::Receivers;
use settings::PipelineSettings;
use shared::{AddView, Command, PipelineShared};
pub use subscribe::{SubscribeFrom, Subscription};
pub use verifying::Verification;

/// All pipelines of a database. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<EngineInner>,
}

struct EngineInner {
    parts: EngineParts,
    directory: Arc<read::Directory>,
    registry: Arc<ViewRegistry>,
    receivers: Arc<Receivers>,
    /// where pipelines run, whoever creates them
    threads: Handle,
}

/// A committed batch's changes, as a subscriber gets them.
#[derive(Debug, Clone)]
pub struct CommittedChanges {
    /// Batch; for the snapshot, the batch it shows.
    pub batch_id: u64,
    /// Part of the snapshot that precedes the changes.
    pub snapshot: bool,
    /// Consolidated changes; empty for a progress message.
    pub changes: Vec<ChangeBatch>,
}

impl Engine {
    /// Opens every pipeline of the catalog; each restores and runs on its own task. Returns at
    /// once: a pipeline that cannot start says so in its status.
    pub async fn open(parts: EngineParts) -> Result<Self> {
        let engine = Self {
            inner: Arc::new(EngineInner {
                directory: Arc::default(),
                registry: Arc::default(),
                receivers: Arc::default(),
                threads: Handle::current(),
                parts,
            }),
        };
        verifying::clean(&engine.inner.parts);
        let mut pipelines = BTreeSet::new();
        for object in engine.inner.parts.definitions.objects() {
            match &object.definition {
                Definition::MaterializedView(view) => pipelines.extend([view.pipeline.clone()]),
                Definition::Index(index) => pipelines.extend([index.pipeline.clone()]),
                Definition::Sink(sink) => pipelines.extend([sink.pipeline.clone()]),
                Definition::Stream(_) => engine.create_stream(&object).await?,
                Definition::Table(_) | Definition::View(_) => {}
            }
        }
        for name in pipelines {
            let (views, sinks) = engine.members_of(&name);
            let Some(definition) = engine.inner.parts.definitions.pipeline(&name) else {
                return Err(Error::damaged(format!(
                    "the catalog has no settings of pipeline \"{name}\""
                )));
            };
            engine.spawn(&name, &definition, views, sinks)?;
        }
        tokio::spawn(stall::watch(
            Arc::downgrade(&engine.inner.directory),
            Arc::downgrade(&engine.inner.parts.history),
            engine.inner.parts.clock.clone(),
        ));
        Ok(engine)
    }

    fn is_materialized_view(&self, name: &str) -> bool {
        self.inner
            .parts
            .definitions
            .object(name)
            .is_some_and(|o| matches!(o.definition, Definition::MaterializedView(_)))
    }

    /// Starts a pipeline's task.
    fn spawn(
        &self,
        name: &str,
        definition: &PipelineDefinition,
        views: Vec<CatalogObject>,
        sinks: Vec<CatalogObject>,
    ) -> Result<Arc<PipelineShared>> {
        let (commands, received) = mpsc::unbounded_channel();
        let shared = Arc::new(PipelineShared::new(
            name.to_owned(),
            definition.id,
            commands,
            &self.inner.parts.budget,
        ));
        let mut pipeline = Pipeline::new(
            self.inner.parts.clone(),
            Arc::clone(&shared),
            Arc::clone(&self.inner.registry),
            Arc::clone(&self.inner.receivers),
            PipelineSettings::read(&definition.options)?,
            definition.stopped,
        );
        for object in &views {
            self.inner
                .directory
                .views
                .write()
                .insert(object.name.clone(), name.to_owned());
        }
        pipeline.objects = views;
        pipeline.sink_objects = sinks;
        pipeline.refresh_board();
        self.inner
            .directory
            .pipelines
            .write()
            .insert(name.to_owned(), Arc::clone(&shared));
        self.inner.threads.spawn(pipeline.run(received));
        Ok(shared)
    }

    fn pipeline(&self, name: &str) -> Option<Arc<PipelineShared>> {
        self.inner.directory.pipelines.read().get(name).cloned()
    }

    /// Starts (or extends) the pipeline of a new materialized view. `plan` is the bound, analyzed,
    /// not yet optimized plan of its query. Fails, leaving nothing, when the plan cannot be a view.
    pub async fn create_materialized_view(
        &self,
        object: &CatalogObject,
        pipeline: (&str, &PipelineDefinition),
        plan: &LogicalPlan,
    ) -> Result<()> {
        let planned = self.planned(object, plan, None).await?;
        let object = &self.kept(object);
        let (name, definition) = pipeline;
        match self.pipeline(name) {
            Some(shared) => {
                let add = Box::new(AddView {
                    object: object.clone(),
                    plan: planned,
                });
                shared.ask(|reply| Command::AddView(add, reply)).await?;
                self.inner
                    .directory
                    .views
                    .write()
                    .insert(object.name.clone(), name.to_owned());
            }
            None => {
                let shared = self.spawn(name, definition, vec![object.clone()], Vec::new())?;
                self.opened(&shared, object).await?;
            }
        }
        Ok(())
    }

    /// Gives a materialized view another query, bound and analyzed: it is filled at the next batch,
    /// and read as it was until then. Fails, changing nothing, when the plan cannot be a view.
    pub async fn replace_materialized_view(
        &self,
        object: &CatalogObject,
        pipeline: &str,
        plan: &LogicalPlan,
    ) -> Result<()> {
        let planned = self.planned(object, plan, None).await?;
        let object = &self.kept(object);
        let shared = self
            .pipeline(pipeline)
            .ok_or_else(|| unknown(&object.name))?;
        let replace = Box::new(AddView {
            object: object.clone(),
            plan: planned,
        });
        shared
            .ask(|reply| Command::ReplaceView(replace, reply))
            .await
    }

    /// Waits until a new pipeline is open, so that its errors are its creator's.
    async fn opened(&self, shared: &Arc<PipelineShared>, object: &CatalogObject) -> Result<()> {
        let mut status = shared.status.subscribe();
        let opened = status
            .wait_for(|s| !matches!(*s, "starting" | "restoring"))
            .await;
        if !opened.is_ok_and(|s| *s == "failed") {
            return Ok(());
        }
        let error = shared.failure();
        self.end_pipeline(shared).await?;
        self.inner.directory.views.write().remove(&object.name);
        Err(error)
    }

    /// The plan of a view's operators, as it would run; `definitions` instead of the committed ones.
    pub async fn planned(
        &self,
        object: &CatalogObject,
        plan: &LogicalPlan,
        definitions: Option<Arc<dyn Definitions>>,
    ) -> Result<ViewPlan> {
        let mut parts = self.inner.parts.clone();
        if let Some(definitions) = definitions {
            parts.definitions = definitions;
        }
        know_views(&self.inner.parts, &self.inner.registry).await;
        let object = parts.definitions.kept(object);
        plan_object(&parts, &self.inner.registry, &object, plan)
    }

    /// An object of a session as it is kept.
    fn kept(&self, object: &CatalogObject) -> CatalogObject {
        self.inner.parts.definitions.kept(object)
    }

    /// An error in the names that users know.
    fn shown(&self, error: Error) -> Error {
        let definitions = &self.inner.parts.definitions;
        let (names, members) = (definitions.shown_names(), definitions.hidden_pipelines());
        error.with_texts(|text| naming_members(&in_shown_names(text, &names), &members))
    }

    /// A relation's columns, watermark or expectations were altered: a receiver starts over with
    /// them, and so do the pipelines that read it, at a batch border.
    pub async fn alter_relation(&self, object: &CatalogObject) -> Result<()> {
        let object = &self.kept(object);
        if self.inner.receivers.contains(&object.name) {
            self.inner.receivers.stop(&object.name).await;
            self.create_stream(object).await?;
        }
        for shared in self.affected(&object.name) {
            shared.ask(Command::Reopen).await?;
        }
        Ok(())
    }

    /// Checks that a pipeline could read a relation, as far as its definition says.
    pub fn check_source(&self, object: &CatalogObject) -> Result<()> {
        opening::open_relation(&self.inner.parts, object, None, None, 0).map(drop)
    }

    /// Checks that a plan can run as a view and describes its operators, without starting it:
    /// columns operator, detail, mode, state, retention (all text).
    pub async fn explain(&self, object: &CatalogObject, plan: &LogicalPlan) -> Result<RecordBatch> {
        let rows = self.planned(object, plan, None).await?.explain();
        let column = |f: &dyn Fn(&crate::dataflow::plan::ExplainRow) -> Option<String>| {
            Arc::new(rows.iter().map(f).collect::<StringArray>()) as _
        };
        let mode = |incremental| {
            if incremental {
                "incremental"
            } else {
                "recomputed"
            }
        };
        let schema = Arc::new(Schema::new(
            ["operator", "detail", "mode", "state", "retention"]
                .map(|name| Field::new(name, DataType::Utf8, true))
                .to_vec(),
        ));
        Ok(RecordBatch::try_new(
            schema,
            vec![
                column(&|r| Some(format!("{}{}", "  ".repeat(r.depth), r.operator_name))),
                column(&|r| Some(r.description.detail.clone())),
                column(&|r| Some(mode(r.description.incremental).to_owned())),
                column(&|r| r.description.state.clone()),
                column(&|r| {
                    r.description
                        .retention
                        .as_ref()
                        .map(|kept| kept.words.clone())
                }),
            ],
        )?)
    }

    /// Starts delivering a view's (or stream's, table's, plain view's) changes.
    pub async fn create_sink(
        &self,
        object: &CatalogObject,
        pipeline: (&str, &PipelineDefinition),
    ) -> Result<()> {
        let object = &self.kept(object);
        let Definition::Sink(sink) = &object.definition else {
            return Err(Error::internal(format!("\"{}\" is no sink", object.name)));
        };
        let (name, definition) = pipeline;
        match self.pipeline(name) {
            Some(shared) => {
                shared
                    .ask(|reply| Command::AddSink(Box::new(object.clone()), reply))
                    .await
            }
            None if self.is_materialized_view(&sink.from) => Err(unknown(&sink.from)),
            None => {
                let shared =
                    self.spawn(name, definition, vec![object.clone()], vec![object.clone()])?;
                self.opened(&shared, object).await
            }
        }
    }

    /// Makes a new stream known; a `socket` stream starts receiving.
    pub async fn create_stream(&self, object: &CatalogObject) -> Result<()> {
        let Definition::Stream(stream) = &object.definition else {
            return Ok(());
        };
        if stream.connector.as_deref() == Some("socket") && self.inner.parts.run_pipelines {
            let environment = self.inner.parts.connector_environment(None, 0);
            let object = self.kept(object);
            let receiver = SocketReceiver::start(&object, &environment)?;
            self.inner.receivers.insert(&object.name, receiver);
        }
        Ok(())
    }

    /// Stops and forgets an object (no dependents left); its checkpoint moves to the archive.
    pub async fn drop_object(&self, object: &CatalogObject) -> Result<()> {
        let object = &self.kept(object);
        match &object.definition {
            Definition::Stream(_) | Definition::Table(_) => {
                self.inner.receivers.stop(&object.name).await;
                let log = &self.inner.parts.log;
                log.forget(letters_relation(object.oid))?;
                log.forget(object.oid)
            }
            Definition::MaterializedView(view) => {
                self.leave(&object.name, &view.pipeline, false).await
            }
            Definition::Index(index) => self.leave(&object.name, &index.pipeline, false).await,
            Definition::Sink(sink) => self.leave(&object.name, &sink.pipeline, true).await,
            Definition::View(_) => Ok(()),
        }
    }

    /// Takes a view or sink out of its pipeline; the last one ends the pipeline.
    async fn leave(&self, name: &str, pipeline: &str, is_sink: bool) -> Result<()> {
        self.inner.directory.views.write().remove(name);
        let Some(shared) = self.pipeline(pipeline) else {
            return Ok(());
        };
        let is_last = {
            let board = shared.board.lock();
            board.queries.keys().all(|k| k == name)
                && board.sinks.iter().all(|s| s.sink_name == name)
        };
        if is_last {
            self.end_pipeline(&shared).await?;
            self.inner.registry.remove(name);
            return Ok(());
        }
        if is_sink {
            shared
                .ask(|reply| Command::RemoveSink(name.to_owned(), reply))
                .await?;
        }
        shared
            .ask(|reply| Command::RemoveView(name.to_owned(), reply))
            .await
    }

    /// Ends a pipeline's task, deletes its local state and archives its checkpoint.
    async fn end_pipeline(&self, shared: &Arc<PipelineShared>) -> Result<()> {
        shared.ask(|reply| Command::Shutdown(true, reply)).await?;
        self.inner.directory.pipelines.write().remove(&shared.name);
        Ok(())
    }

    /// The checkpoint location that a pipeline has by these options.
    pub fn checkpoint_location(&self, pipeline: &str, options: &Options) -> Result<String> {
        let settings = PipelineSettings::read(options)?;
        let parts = &self.inner.parts;
        Ok(opening::location_of(parts, pipeline, &settings))
    }

    /// Changed options take effect at the next batch. `options` are the object's whole options.
    pub async fn alter_options(
        &self,
        kind: ObjectKind,
        name: &KeptName,
        options: &Options,
    ) -> Result<()> {
        let name = name.as_str();
        match kind {
            ObjectKind::Pipeline => {
                let shared = self.pipeline_by(kind, name)?;
                shared
                    .ask(|reply| Command::SetOptions(options.clone(), reply))
                    .await
            }
            // Views, sources and sinks read their own options when they open.
            ObjectKind::MaterializedView => {
                self.pipeline_by(kind, name)?.ask(Command::Reopen).await
            }
            _ => {
                for shared in self.affected(name) {
                    shared.ask(Command::Reopen).await?;
                }
                Ok(())
            }
        }
    }

    /// Pipelines that read a stream or table, or hold a sink, by its name.
    fn affected(&self, name: &str) -> Vec<Arc<PipelineShared>> {
        let objects = self.inner.parts.definitions.objects();
        let readers: std::collections::HashSet<&str> = objects
            .iter()
            .filter_map(|o| match &o.definition {
                Definition::MaterializedView(v) if v.depends_on.iter().any(|d| d == name) => {
                    Some(v.pipeline.as_str())
                }
                _ => None,
            })
            .collect();
        let uses = |shared: &&Arc<PipelineShared>| {
            let board = shared.board.lock();
            readers.contains(shared.name.as_str())
                || board.sources.iter().any(|s| s.source_name == name)
                || board.sinks.iter().any(|s| s.sink_name == name)
        };
        self.inner
            .directory
            .pipelines
            .read()
            .values()
            .filter(uses)
            .cloned()
            .collect()
    }

    fn pipeline_by(&self, kind: ObjectKind, name: &str) -> Result<Arc<PipelineShared>> {
        let not_there = || {
            Error::new(
                sqlstate::UNDEFINED_OBJECT,
                format!("pipeline \"{name}\" does not exist"),
            )
            .hint("SHOW PIPELINES;")
        };
        match kind {
            ObjectKind::Pipeline => self.pipeline(name).ok_or_else(not_there),
            ObjectKind::Sink => {
                let object = self
                    .inner
                    .parts
                    .definitions
                    .object(name)
                    .ok_or_else(|| unknown(name))?;
                match &object.definition {
                    Definition::Sink(sink) => self.pipeline(&sink.pipeline).ok_or_else(not_there),
                    _ => Err(unknown(name)),
                }
            }
            _ => self.inner.directory.pipeline_of(name),
        }
    }

    /// A reading context for one statement.
    pub fn read_context(&self) -> ReadContext {
        ReadContext::new(Arc::clone(&self.inner.directory))
    }

    /// Reads a stream's rows by batch, everything that is there now (for `SELECT` on a stream).
    /// `projection` counts its stored columns.
    pub async fn scan_stream(
        &self,
        object: &CatalogObject,
        projection: &[usize],
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let (source, _) = opening::open_relation(&self.inner.parts, object, None, None, 0)?;
        let start = source.initial_offset().await?;
        let latest = source.latest_offset().await?;
        let range = source
            .plan_range(0, &start, &latest, &Default::default())
            .await?;
        let Some(SourceRange { start, end }) = range else {
            return Ok(futures::stream::empty().boxed());
        };
        let all: Vec<usize> = (0..object.stored_columns().len()).collect();
        let decodes_text = opening::decodes_text(object);
        let read = if decodes_text { &all } else { projection };
        let chunks = source
            .read_range(0, &SourceRange { start, end }, read)
            .await?;
        let projection = projection.to_vec();
        let rows = chunks.map(move |chunk| {
            let rows = chunk?.changes.rows().clone();
            Ok(if decodes_text {
                rows.project(&projection)?
            } else {
                rows
            })
        });
        Ok(rows.boxed())
    }

    /// State of everything, for the system tables; never blocks on a pipeline.
    pub fn status(&self) -> status::EngineStatus {
        let mut all = status::EngineStatus::default();
        let objects = self.inner.parts.definitions.objects().into_iter();
        let indexes = objects.filter(|o| matches!(o.definition, Definition::Index(_)));
        let indexes: BTreeSet<String> = indexes.map(|o| o.name).collect();
        let mut pipelines = self.inner.directory.all();
        pipelines.sort_by(|a, b| a.name.cmp(&b.name));
        for shared in pipelines {
            let board = shared.board.lock().clone();
            all.pipelines.push(board.pipeline);
            // An index is a part of its view, and says nothing by itself.
            let queries = board.queries.into_iter();
            let queries = queries.filter(|(name, _)| !indexes.contains(name));
            all.queries.extend(queries.map(|(_, query)| query));
            all.sources.extend(board.sources);
            all.sinks.extend(board.sinks);
            all.state_operators.extend(board.state_operators);
            all.checkpoints.push(board.checkpoint);
        }
        let names = self.inner.parts.definitions.shown_names();
        if !names.is_empty() {
            all.show_names(&names);
            all.name_members(&self.inner.parts.definitions.hidden_pipelines());
        }
        all
    }

    /// Commits current batches, persists state, stops all.
    pub async fn shutdown(&self) -> Result<()> {
        self.inner.receivers.stop_all().await;
        let pipelines: Vec<_> = self
            .inner
            .directory
            .pipelines
            .write()
            .drain()
            .map(|(_, p)| p)
            .collect();
        let asked = pipelines
            .iter()
            .map(|shared| shared.ask(|reply| Command::Shutdown(false, reply)));
        for answer in futures::future::join_all(asked).await {
            answer?;
        }
        Ok(())
    }

    /// Changes of a view from now on, or after its snapshot. Ends with an error when the subscriber
    /// lags too far or the view is dropped.
    pub async fn subscribe(
        &self,
        name: &KeptName,
        snapshot: bool,
        progress: bool,
        after_batch: Option<u64>,
    ) -> Result<Subscription> {
        let name = name.as_str();
        let subscribed = async {
            let shared = self.inner.directory.pipeline_of(name)?;
            subscribe::subscribe(&shared, name, snapshot, progress, after_batch).await
        };
        subscribed.await.map_err(|error| self.shown(error))
    }

    /// Changes of a stream or table, as its source gives them. What lies in the durable log is
    /// numbered by its commits; what comes from a connector is counted from 0.
    pub async fn subscribe_to_source(
        &self,
        object: &CatalogObject,
        from: SubscribeFrom,
    ) -> Result<BoxStream<'static, Result<CommittedChanges>>> {
        subscribe::subscribe_to_source(&self.inner.parts, object, from).await
    }
}
