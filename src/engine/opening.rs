//! Opening a pipeline: plans, checkpoint, state, sources; and the facts of the last commit.
//!
//! What is opened is all that a running pipeline holds. It is dropped whole and opened again after
//! an error that leaves in doubt what is on disk, so that there is one way to recover: this one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

use super::committing::Unpersisted;
use super::decide::{ViewState, view_state};
use super::evolving::FoundFields;
use super::file_names::file_name;
use super::filling::Filling;
use super::intake::{SourceSlot, compile_expectations};
use super::pace::Pace;
use super::parts::EngineParts;
use super::pipeline::{Pipeline, ViewEntry};
use super::planning::{changed_query, plan_object, sink_query, state_name, unknown};
use super::settings::{PipelineSettings, read_limits, text};
use super::shared::ViewReader;
use crate::catalog::definition::{CatalogObject, Definition};
use crate::checkpoint::load::RunLoader;
use crate::checkpoint::relocate::relocate;
use crate::checkpoint::{
    Checkpoint, CheckpointLocation, CommitEntry, Expectation, Identity, OffsetEntry, Resume,
    ResumePoint,
};
use crate::connectors::evolution::{SchemaEvolution, keeps_rescued};
use crate::connectors::{self, SourceOffset, SourceRef};
use crate::dataflow::graph::Dataflow;
use crate::dataflow::plan::ViewPlan;
use crate::error::{Error, Result};
use crate::state::{StateStore, StateStoreOptions};

/// Bytes of state in memory after which it goes to disk even under budget: they are read back from
/// the checkpoint at a restart, at about 500 MB/s.
const SPILL_BYTES: usize = 128 << 20;

/// How often the lease is renewed; a third of the time after which it would count as given up.
const LEASE_RENEWAL: std::time::Duration = std::time::Duration::from_secs(5);

/// An input of a view that has yet to be filled.
#[derive(Clone)]
pub(super) enum FillInput {
    /// A view of the same pipeline: its stored rows.
    Stored { name: String, reader: ViewReader },
    /// A source: its rows up to the position of the last commit.
    Source { name: String },
}

/// All that a running pipeline holds.
pub(super) struct Opened {
    /// `None` while a batch runs on its own thread, and after that thread was lost.
    pub dataflow: Option<Mutex<Dataflow>>,
    pub checkpoint: Arc<Checkpoint>,
    pub state: Arc<StateStore>,
    pub slots: Vec<SourceSlot>,
    pub last_commit: Option<u64>,
    /// The number of the checkpoint's first batch.
    pub first_batch: u64,
    /// Planned batches that are to run exactly so: one that did not commit, and after a fall-back to
    /// an older state all since.
    pub replay: VecDeque<OffsetEntry>,
    /// The newest batch that ever committed: what is replayed up to it was delivered before.
    pub newest_commit: Option<u64>,
    /// Watermark that the last batch applied.
    pub watermark: Option<i64>,
    /// What the last batch has closed already of what the next watermark closes.
    pub closed_until: Option<i64>,
    /// Of the views that are behind it.
    pub view_watermarks: BTreeMap<String, Option<i64>>,
    pub event_time_max: BTreeMap<String, i64>,
    pub unfilled: BTreeSet<String>,
    pub fills: Vec<(String, FillInput)>,
    /// How far the views without state are filled; `None`: not begun.
    pub filling: Option<Mutex<Filling>>,
    /// Batches since it began that left more to come.
    pub filled_parts: u64,
    pub opened_at_us: i64,
    pub last_batch_at_us: Option<i64>,
    /// The next batch may close windows at the watermark of the last one: after opening, and after
    /// a view was filled, which is done as without a watermark.
    pub may_close_at_same_watermark: bool,
    /// Something of the current batch may be on disk beyond its offsets: reopen after an error.
    pub commit_started: bool,
    pub unpersisted: Unpersisted,
    /// How much a batch takes at most, so that it ends in time.
    pub pace: Pace,
    /// What the last try to run a batch found: see [`Pipeline::evolve`].
    pub new_fields: Option<FoundFields>,
    /// What the batch of this number was given columns for.
    pub evolved: Option<(u64, FoundFields)>,
    /// The last batch failed on a row: the next one takes all that came meanwhile, since the
    /// change that mends the row may be among it.
    pub failed_on_row: bool,
}

impl Opened {
    pub fn next_batch_id(&self) -> u64 {
        self.last_commit.map_or(self.first_batch, |n| n + 1)
    }

    /// Every source's position once `entry` is committed.
    pub fn positions_after(&self, entry: &OffsetEntry) -> BTreeMap<String, SourceOffset> {
        self.slots
            .iter()
            .map(|slot| {
                let position = entry
                    .sources
                    .get(&slot.relation)
                    .map_or(&slot.position, |r| &r.end);
                (slot.relation.clone(), position.clone())
            })
            .collect()
    }

    pub fn initial_offsets(&self) -> BTreeMap<String, SourceOffset> {
        self.slots
            .iter()
            .map(|s| (s.relation.clone(), s.initial.clone()))
            .collect()
    }

    /// Moves on to the state after a commit; `is_partial`: views without state are not filled yet.
    pub fn accept(
        &mut self,
        commit: &CommitEntry,
        entry: &OffsetEntry,
        rows: &BTreeMap<String, u64>,
        now_us: i64,
        is_partial: bool,
    ) {
        self.last_commit = Some(commit.batch_id);
        self.replay.pop_front();
        self.newest_commit = self.newest_commit.max(Some(commit.batch_id));
        self.watermark = entry.watermark;
        self.closed_until = commit.closed_until;
        self.view_watermarks.clone_from(&commit.view_watermarks);
        self.event_time_max = commit.event_time_max_us.clone();
        self.may_close_at_same_watermark = !self.unfilled.is_empty();
        if is_partial {
            self.filled_parts += 1;
        } else {
            self.unfilled.clear();
            self.fills.clear();
            self.filling = None;
            self.filled_parts = 0;
        }
        self.failed_on_row = false;
        let since_us = self
            .last_batch_at_us
            .map(|t| (entry.batch_at_us - t).max(1));
        self.last_batch_at_us = Some(entry.batch_at_us);
        for slot in &mut self.slots {
            if let Some(range) = entry.sources.get(&slot.relation) {
                slot.position = range.end.clone();
            }
            let rows = rows.get(&slot.relation).copied().unwrap_or(0);
            slot.last_rows = rows;
            slot.rows_per_second = since_us.map(|us| rows as f64 * 1e6 / us as f64);
            if rows > 0 {
                slot.last_data_at_us = Some(now_us);
            }
            if let Some(latest) = &slot.latest {
                slot.backlog = slot.source.backlog(&slot.position, latest);
            }
        }
    }
}

impl Pipeline {
    /// Opens everything; on success the views are readable at their last batch.
    pub(super) async fn open(&mut self) -> Result<()> {
        self.is_at_checkpoint = false;
        self.abandon_commit().await;
        self.let_go();
        if let Some(checkpoint) = self.closing.take() {
            Checkpoint::clone(&checkpoint).close().await;
        }
        self.switching.clear();
        let mut dataflow = Dataflow::new().with_clock(self.parts.clock.clone());
        let mut views = Vec::new();
        for object in self.objects.clone() {
            let defined = self.parts.definitions.object(&object.name);
            let Some(object) = defined.filter(|o| o.oid == object.oid) else {
                // Dropped a moment ago: the command that takes it out of here is on its way.
                continue;
            };
            let plan = self.plan(&object).await?;
            let entry = ViewEntry::new(object, &plan);
            self.remember(&entry, &plan)?;
            dataflow.add_view(plan)?;
            views.push(entry);
        }
        self.finish_move().await?;
        self.is_at_checkpoint = true;
        let tables = |view: &ViewEntry| {
            let name = &view.object.name;
            (name.clone(), dataflow.tables_of(name))
        };
        let tables = views.iter().map(tables).collect();
        self.finish_merges(&views, &tables).await?;
        let (checkpoint, state, resume) = self.open_checkpoint(&views).await?;
        self.is_at_checkpoint = false;
        for note in &resume.notes {
            self.event("recovered", serde_json::json!({ "note": note }));
        }
        let last = resume.last_commit;
        let committed = last.as_ref().map(|c| c.views.clone()).unwrap_or_default();
        let mut unfilled = BTreeSet::new();
        for view in &views {
            match view_state(&committed, &view.object.name, &view.fingerprint) {
                ViewState::Filled => {}
                ViewState::Unfilled => {
                    unfilled.insert(view.object.name.clone());
                }
                ViewState::Changed => return Err(changed_query(&view.object.name)),
            }
        }
        if last.is_some() {
            self.require_merged_state(&unfilled)?;
        }
        let filled_before: BTreeSet<String> = committed
            .keys()
            .filter(|name| views.iter().any(|v| v.object.name == **name))
            .filter(|name| !unfilled.contains(*name))
            .cloned()
            .collect();
        self.shared.publication.lock().refilling = committed
            .keys()
            .filter(|name| unfilled.contains(*name))
            .cloned()
            .collect();
        self.views = views;
        self.opened = Some(Opened {
            dataflow: Some(Mutex::new(dataflow)),
            first_batch: checkpoint.first_batch_id(),
            checkpoint,
            state: Arc::clone(&state),
            slots: Vec::new(),
            last_commit: last.as_ref().map(|c| c.batch_id),
            replay: resume.replay.into(),
            newest_commit: resume.newest_commit,
            watermark: last.as_ref().and_then(|c| c.watermark),
            closed_until: last.as_ref().and_then(|c| c.closed_until),
            view_watermarks: last
                .as_ref()
                .map(|c| c.view_watermarks.clone())
                .unwrap_or_default(),
            event_time_max: last
                .as_ref()
                .map(|c| c.event_time_max_us.clone())
                .unwrap_or_default(),
            unfilled,
            fills: Vec::new(),
            filling: None,
            filled_parts: 0,
            opened_at_us: self.parts.clock.now_us(),
            last_batch_at_us: None,
            may_close_at_same_watermark: true,
            commit_started: false,
            failed_on_row: false,
            new_fields: None,
            evolved: None,
            pace: Pace::default(),
            unpersisted: Unpersisted::default(),
        });
        if let Some(batch_id) = last.as_ref().map(|c| c.batch_id)
            && self.shows(batch_id)
        {
            self.shared.publish(
                state.snapshot(),
                batch_id,
                BTreeMap::new(),
                filled_before,
                BTreeMap::new(),
            );
        }
        self.tell_missed_metrics().await?;
        self.open_sources(last.as_ref()).await?;
        self.open_sinks(last.as_ref())?;
        self.plan_fills();
        Ok(())
    }

    /// Drops all that is open; the checkpoint is closed before it is opened again.
    pub(super) fn let_go(&mut self) {
        self.shared.give_up_batches();
        if let Some(opened) = self.opened.take() {
            self.closing = Some(opened.checkpoint);
        }
    }

    /// Plans a view's query, or the query that feeds a sink over no materialized view.
    pub(super) async fn plan(&self, object: &CatalogObject) -> Result<ViewPlan> {
        let query = match &object.definition {
            Definition::MaterializedView(view) => view.query.clone(),
            Definition::Sink(sink) => sink_query(&sink.from),
            Definition::Index(index) => sink_query(&index.view),
            _ => return Err(Error::internal(format!("\"{}\" is no view", object.name))),
        };
        // What its names mean changes while it runs, where relations are renamed.
        let defined = self.parts.definitions.object(&object.name);
        let defined = defined.filter(|defined| defined.oid == object.oid);
        let kept = defined.as_ref().unwrap_or(object).kept_names();
        let bound = self.parts.binder.bind(&query, &kept).await?;
        plan_object(&self.parts, &self.registry, object, &bound)
    }

    /// Makes a planned view known to readers and to views over it.
    pub(super) fn remember(&self, entry: &ViewEntry, plan: &ViewPlan) -> Result<()> {
        if entry.is_stored() {
            self.registry.insert(&entry.object.name, plan);
            let reader = reader_of(&entry.object, plan)?;
            let mut readers = self.shared.readers.write();
            readers.insert(entry.object.name.clone(), reader);
        }
        Ok(())
    }

    /// Where this pipeline's checkpoint lies.
    pub(super) fn location(&self) -> String {
        location_of(&self.parts, &self.shared.name, &self.settings)
    }

    /// A move of the checkpoint that a crash cut short is brought to its end.
    async fn finish_move(&self) -> Result<()> {
        let definition = self.parts.definitions.pipeline(&self.shared.name);
        let to = self.location();
        match definition.and_then(|d| d.previous_location) {
            Some(from) if from != to => {
                relocate(&from, &to, self.shared.id, &self.parts.clock).await
            }
            _ => Ok(()),
        }
    }

    /// Opens the checkpoint and the local state, and brings the state to the last commit. The local
    /// files are only a cache: when they do not fit the checkpoint they are made anew from it.
    async fn open_checkpoint(
        &mut self,
        views: &[ViewEntry],
    ) -> Result<(Arc<Checkpoint>, Arc<StateStore>, ResumePoint)> {
        self.state = None;
        let dir = self
            .parts
            .data_dir
            .join("pipelines")
            .join(file_name(&self.shared.name));
        let mut state = self.open_state(&dir)?;
        let identity = self.identity_of(views);
        let expectation = Expectation {
            catalog_batch: self
                .parts
                .history
                .known_batch(&self.shared.name, self.shared.id),
            cold_batch: state.cold_batch(),
        };
        let (checkpoint, resume) = CheckpointLocation::open(
            &self.location(),
            identity,
            expectation,
            self.parts.clock.clone(),
            &BTreeMap::new(),
        )
        .await?;
        let checkpoint = Arc::new(checkpoint);
        keep_lease(&checkpoint);
        let resume = match resume {
            Resume::Fresh => ResumePoint {
                last_commit: None,
                newest_commit: None,
                replay: Vec::new(),
                notes: Vec::new(),
            },
            Resume::At(point) => *point,
        };
        match &resume.last_commit {
            Some(last) => {
                let mut loader = checkpoint.load_runs_after(state.cold_batch(), last.batch_id);
                if loader.discard_cold() {
                    state = self.remake_state(state, &dir)?;
                }
                self.load_runs(&state, &mut loader).await?;
            }
            None if state.cold_batch().is_some() => state = self.remake_state(state, &dir)?,
            None => {}
        }
        let state = Arc::new(state);
        self.state = Some(Arc::clone(&state));
        Ok((checkpoint, state, resume))
    }

    /// Whose checkpoint it is.
    pub(super) fn identity_of(&self, views: &[ViewEntry]) -> Identity {
        let fingerprints: Vec<&str> = views.iter().map(|v| v.fingerprint.as_str()).collect();
        Identity {
            pipeline_id: self.shared.id,
            pipeline_name: self.shared.name.clone(),
            fingerprint: fingerprints.join(" "),
        }
    }

    async fn load_runs(&self, state: &StateStore, loader: &mut RunLoader) -> Result<()> {
        let tell = |done: u64, total: u64| {
            let mut board = self.shared.board.lock();
            for query in board.queries.values_mut() {
                query.message = format!("restoring state: {done} of {total} bytes");
                query.progress_percent = (total > 0).then(|| done as f64 * 100.0 / total as f64);
            }
        };
        loader.load_into(state, tell).await
    }

    fn open_state(&self, dir: &Path) -> Result<StateStore> {
        let options = StateStoreOptions {
            budget: Arc::clone(&self.parts.budget),
            spill_bytes: SPILL_BYTES,
        };
        StateStore::open(dir, self.shared.id, options.clone()).or_else(|e| {
            tracing::warn!(pipeline = %self.shared.name, error = %e, "local state is made anew from the checkpoint");
            StateStore::destroy(dir)?;
            StateStore::open(dir, self.shared.id, options)
        })
    }

    fn remake_state(&self, state: StateStore, dir: &Path) -> Result<StateStore> {
        drop(state);
        StateStore::destroy(dir)?;
        self.open_state(dir)
    }

    /// Puts commits that the metrics log missed, after a crash, into it.
    async fn tell_missed_metrics(&self) -> Result<()> {
        let opened = self.opened.as_ref().expect("called while opening");
        let Some(last) = opened.last_commit else {
            return Ok(());
        };
        let known = self.parts.history.last_metrics_batch(&self.shared.name);
        let first = known
            .map_or(0, |n| n + 1)
            .max(last.saturating_sub(self.settings.min_batches_to_retain));
        for batch_id in first..=last {
            if let Some(commit) = opened.checkpoint.read_commit(batch_id).await? {
                self.parts
                    .history
                    .record_metrics(&self.shared.name, batch_id, &commit.metrics);
            }
        }
        self.parts
            .history
            .record_known_batch(&self.shared.name, self.shared.id, last);
        Ok(())
    }

    /// Opens a slot for every source relation that the dataflow reads and has none yet; fixes the
    /// columns of all.
    pub(super) async fn open_sources(&mut self, last: Option<&CommitEntry>) -> Result<()> {
        let retain_batches = self.settings.min_batches_to_retain as usize;
        let opened = self.opened.as_mut().expect("called while open");
        let dataflow = opened
            .dataflow
            .as_ref()
            .ok_or_else(|| Error::internal("the dataflow is gone"))?;
        let inputs = dataflow.lock().inputs();
        opened
            .slots
            .retain(|slot| inputs.iter().any(|i| i.relation == slot.relation));
        for input in &inputs {
            let Some(object) = self.parts.definitions.object(&input.relation) else {
                continue;
            };
            let place = opened
                .slots
                .iter()
                .position(|s| s.relation == input.relation);
            // Another pipeline may have given the stream columns since this one opened it.
            let stored = object.stored_columns().len();
            let is_narrow = |at: usize| opened.slots[at].schema.fields().len() < stored;
            if place.is_none_or(is_narrow) {
                let slot = open_slot(
                    &self.parts,
                    &opened.checkpoint,
                    opened.replay.front(),
                    &input.relation,
                    last,
                    retain_batches,
                )
                .await?;
                match place {
                    Some(at) => opened.slots[at] = slot.in_place_of(&opened.slots[at]),
                    None => opened.slots.push(slot),
                }
            }
            if let Some(slot) = opened
                .slots
                .iter_mut()
                .find(|s| s.relation == input.relation)
            {
                slot.project(&input.projection);
            }
        }
        opened.slots.sort_by(|a, b| a.relation.cmp(&b.relation));
        self.tell_open_sources();
        Ok(())
    }

    /// Lists what the unfilled views still need from before the next batch.
    pub(super) fn plan_fills(&mut self) {
        let readers = self.shared.readers.read().clone();
        let opened = self.opened.as_mut().expect("called while open");
        opened.fills.clear();
        opened.filling = None;
        opened.filled_parts = 0;
        for view in self
            .views
            .iter()
            .filter(|v| opened.unfilled.contains(&v.object.name))
        {
            for input in &view.inputs {
                let own = self.views.iter().find(|v| v.object.name == *input);
                let fill = match own {
                    // An unfilled view's rows come through the dataflow itself.
                    Some(v) if opened.unfilled.contains(&v.object.name) => continue,
                    Some(v) => match readers.get(&v.object.name) {
                        Some(reader) => FillInput::Stored {
                            name: input.clone(),
                            reader: reader.clone(),
                        },
                        None => continue,
                    },
                    None => FillInput::Source {
                        name: input.clone(),
                    },
                };
                opened.fills.push((view.object.name.clone(), fill));
            }
        }
    }
}

/// How a view's rows are read.
pub(super) fn reader_of(object: &CatalogObject, plan: &ViewPlan) -> Result<ViewReader> {
    Ok(ViewReader {
        object: Arc::new(object.clone()),
        state_name: state_name(object),
        schema: plan.schema.clone(),
        key: plan.key.clone(),
        contents: plan.contents()?,
    })
}

/// Renews the lease every few seconds for as long as the checkpoint is open.
fn keep_lease(checkpoint: &Arc<Checkpoint>) {
    let checkpoint = Arc::downgrade(checkpoint);
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(LEASE_RENEWAL).await;
            let Some(checkpoint) = checkpoint.upgrade() else {
                return;
            };
            if let Err(e) = checkpoint.renew_lease().await {
                // A lost lease shows itself at the next commit, which is refused.
                tracing::warn!(location = %checkpoint.location(), error = %e, "could not renew the lease");
            }
        }
    });
}

/// Opens a source at the position of the last commit, or of the batch to replay, or at its start.
pub(super) async fn open_slot(
    parts: &EngineParts,
    checkpoint: &Arc<Checkpoint>,
    pending: Option<&OffsetEntry>,
    relation: &str,
    last: Option<&CommitEntry>,
    retain_batches: usize,
) -> Result<SourceSlot> {
    let object = parts
        .definitions
        .object(relation)
        .ok_or_else(|| unknown(relation))?;
    let (source, reads_log) = open_relation(
        parts,
        &object,
        Some(checkpoint.pipeline_id()),
        Some(checkpoint),
        retain_batches,
    )?;
    let object = object.with_stored_columns();
    let (watermark, expectations, options) = match &object.definition {
        Definition::Stream(s) => (
            s.watermark.clone(),
            s.expectations.clone(),
            s.options.clone(),
        ),
        Definition::Table(t) => (None, Vec::new(), t.options.clone()),
        _ => return Err(Error::internal(format!("\"{relation}\" is no source"))),
    };
    let schema = object.schema();
    let expectations =
        compile_expectations(&parts.binder.state(), relation, &schema, &expectations)?;
    let committed = last.and_then(|c| c.source_offsets.get(relation));
    let planned = pending
        .and_then(|p| p.sources.get(relation))
        .map(|r| &r.start);
    let position = match committed.or(planned) {
        Some(offset) => offset.clone(),
        None => source
            .initial_offset()
            .await
            .map_err(|e| e.context(format!("source \"{relation}\"")))?,
    };
    source
        .check_position(&position)
        .await
        .map_err(|e| e.context(format!("source \"{relation}\"")))?;
    let initial = last
        .and_then(|c| c.initial_offsets.get(relation))
        .cloned()
        .unwrap_or_else(|| position.clone());
    let in_us = |name| -> Result<Option<i64>> {
        let duration = crate::sql::options::duration(&options, name)?;
        Ok(duration.map(|d| d.as_micros() as i64))
    };
    let mut slot = SourceSlot::new(
        relation.to_owned(),
        source,
        schema,
        reads_log,
        decodes_text(&object),
        watermark,
        expectations,
        read_limits(&options)?,
        initial,
        position,
    );
    slot.evolution = SchemaEvolution::of(&options);
    slot.idle_timeout_us = in_us("idle_timeout")?;
    slot.max_future_skew_us = in_us("max_future_skew")?;
    Ok(slot)
}

/// Opens a relation's source, for a pipeline or for nobody; the flag says that it lies in the durable log.
pub(super) fn open_relation(
    parts: &EngineParts,
    object: &CatalogObject,
    pipeline_id: Option<uuid::Uuid>,
    checkpoint: Option<&Arc<Checkpoint>>,
    retain_batches: usize,
) -> Result<(SourceRef, bool)> {
    let source_log = checkpoint.map(|c| c.source_log(&object.name));
    let mut environment = parts.connector_environment(source_log, retain_batches);
    environment.pipeline = checkpoint.map(|c| c.pipeline_name().to_owned());
    environment.pipeline_id = pipeline_id;
    let source = connectors::open_source(object, &environment)?;
    let reads_log = match &object.definition {
        Definition::Stream(s) => matches!(s.connector.as_deref(), None | Some("socket")),
        Definition::Table(_) => true,
        _ => false,
    };
    Ok((source, reads_log))
}

/// The relation's records must be decoded whole to know whether they are rows, and which.
pub(super) fn decodes_text(object: &CatalogObject) -> bool {
    let Definition::Stream(stream) = &object.definition else {
        return false;
    };
    let has_payload = matches!(stream.connector.as_deref(), Some("files" | "kafka"));
    let is_columnar = text(&stream.options, "format") == Some("parquet");
    // What does not fit goes into the column of what is rescued, whoever reads that.
    let rescues = stream.columns.iter().any(keeps_rescued);
    has_payload && (!is_columnar || rescues)
}

/// Where the checkpoint of a pipeline with these settings lies.
pub(super) fn location_of(
    parts: &EngineParts,
    pipeline: &str,
    settings: &PipelineSettings,
) -> String {
    settings.checkpoint_location.clone().unwrap_or_else(|| {
        let dir = parts.data_dir.join("checkpoints").join(file_name(pipeline));
        dir.to_string_lossy().into_owned()
    })
}
