//! A pipeline's life: plan a batch, run it, commit it, retry with back-off, stop, tell.
//!
//! One task per pipeline. Decisions (what to read, when to retry, what a status is called) are pure
//! functions in [`decide`](self); I/O sits at the edge. Absent: SQL text (the session binds it)
//! and operators (the dataflow runs them).

pub mod parts;
pub mod status;

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::logical_expr::LogicalPlan;
use futures::stream::BoxStream;

use crate::catalog::definition::{CatalogObject, Options, PipelineDefinition};
use crate::dataflow::change::ChangeBatch;
use crate::error::Result;
use crate::sql::statement::ObjectKind;

/// All pipelines of a database. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    _inner: Arc<()>,
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

/// Views pinned for one statement: every view of a pipeline is read at the same batch.
/// Make one per statement with [`Engine::read_context`]; the first read of a pipeline pins it.
#[derive(Clone)]
pub struct ReadContext {
    _inner: Arc<()>,
}

impl ReadContext {
    /// Contents of a materialized view at the pinned batch, projected, in batches of some
    /// thousand rows. Synchronous and lazy: call `next` off the async threads.
    pub fn scan(
        &self,
        view: &str,
        projection: &[usize],
    ) -> Result<Box<dyn Iterator<Item = Result<RecordBatch>> + Send>> {
        let _ = (view, projection);
        unimplemented!()
    }

    /// The batch a view's pipeline is pinned at; `None` before its first.
    pub fn batch_id(&self, view: &str) -> Result<Option<u64>> {
        let _ = view;
        unimplemented!()
    }
}

impl Engine {
    /// Opens every pipeline of the catalog; each restores and runs on its own task. Returns at
    /// once: a pipeline that cannot start says so in its status. `parts::EngineParts` lists the
    /// seams (Definitions, Binder, History) that the caller implements.
    pub async fn start(parts: parts::EngineParts) -> Result<Self> {
        let _ = parts;
        unimplemented!()
    }

    /// Starts (or extends) the pipeline of a new materialized view. `plan` is the bound, analyzed,
    /// not yet optimized plan of its query. Fails, leaving nothing, when the plan cannot be a view.
    pub async fn create_materialized_view(
        &self,
        object: &CatalogObject,
        pipeline: (&str, &PipelineDefinition),
        plan: &LogicalPlan,
    ) -> Result<()> {
        let _ = (object, pipeline, plan);
        unimplemented!()
    }

    /// Checks that a plan can run as a view and describes its operators, without starting it:
    /// columns operator, detail, mode, state, retention (all text).
    pub fn explain(&self, object: &CatalogObject, plan: &LogicalPlan) -> Result<RecordBatch> {
        let _ = (object, plan);
        unimplemented!()
    }

    /// Starts delivering a view's changes.
    pub async fn create_sink(
        &self,
        object: &CatalogObject,
        pipeline: (&str, &PipelineDefinition),
    ) -> Result<()> {
        let _ = (object, pipeline);
        unimplemented!()
    }

    /// Makes a new stream known; a `socket` stream starts receiving.
    pub async fn create_stream(&self, object: &CatalogObject) -> Result<()> {
        let _ = object;
        unimplemented!()
    }

    /// Stops and forgets an object (no dependents left); its checkpoint moves to the archive.
    pub async fn drop_object(&self, object: &CatalogObject) -> Result<()> {
        let _ = object;
        unimplemented!()
    }

    /// Changed options take effect at the next batch. `options` are the object's whole options.
    pub async fn alter_options(
        &self,
        kind: ObjectKind,
        name: &str,
        options: &Options,
    ) -> Result<()> {
        let _ = (kind, name, options);
        unimplemented!()
    }

    /// Starts a stopped or failed object (view, sink, stream, pipeline by name).
    pub async fn start(&self, kind: ObjectKind, name: &str) -> Result<()> {
        let _ = (kind, name);
        unimplemented!()
    }

    /// Stops it at a batch border, within `within`.
    pub async fn stop(&self, kind: ObjectKind, name: &str, within: Duration) -> Result<()> {
        let _ = (kind, name, within);
        unimplemented!()
    }

    /// Runs what is available, then returns.
    pub async fn refresh(&self, view: &str) -> Result<()> {
        let _ = view;
        unimplemented!()
    }

    /// Returns when every running view took in all that was committed before the call.
    pub async fn flush(&self) -> Result<()> {
        unimplemented!()
    }

    /// As [`Self::flush`] for one view.
    pub async fn wait_for(&self, view: &str, within: Option<Duration>) -> Result<()> {
        let _ = (view, within);
        unimplemented!()
    }

    /// Changes of a view (or connector-less stream) from now on, or after its snapshot, or after a
    /// batch. Ends with an error when the subscriber lags too far or the view is dropped.
    pub async fn subscribe(
        &self,
        name: &str,
        snapshot: bool,
        progress: bool,
        after_batch: Option<u64>,
    ) -> Result<(SchemaRef, BoxStream<'static, Result<CommittedChanges>>)> {
        let _ = (name, snapshot, progress, after_batch);
        unimplemented!()
    }

    /// A reading context for one statement.
    pub fn read_context(&self) -> ReadContext {
        unimplemented!()
    }

    /// Reads a stream's rows by batch, everything that is there now (for `SELECT` on a stream).
    pub async fn scan_stream(
        &self,
        name: &str,
        projection: &[usize],
    ) -> Result<BoxStream<'static, Result<RecordBatch>>> {
        let _ = (name, projection);
        unimplemented!()
    }

    /// State of everything, for the system tables; never blocks on a pipeline.
    pub fn status(&self) -> status::EngineStatus {
        unimplemented!()
    }

    /// Commits current batches, persists state, stops all.
    pub async fn shutdown(&self) -> Result<()> {
        unimplemented!()
    }
}
