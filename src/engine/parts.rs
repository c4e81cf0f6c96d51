//! What the engine is given: the seams to the catalog, to planning and to history.
//!
//! The engine knows no SQL text and no catalog file; it asks through these traits, so that a
//! simulation can stand in for all of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;

use crate::catalog::definition::{CatalogObject, ColumnDefinition, KeptNames, PipelineDefinition};
use crate::catalog::history::HandedOver;
use crate::catalog::shape::Evolved;
use crate::clock::ClockRef;
use crate::connectors::paths::PathRule;
use crate::connectors::{ConnectorEnvironment, DataGap, DeadLetter};
use crate::error::Result;
use crate::log::DurableLog;
use crate::state::MemoryBudget;

/// Looks definitions up; always answers from memory. A relation has the name that it is kept under, whatever users
/// know it by. A pipeline changes one thing of them by itself.
#[async_trait]
pub trait Definitions: Send + Sync {
    /// An object by the name that it is kept under.
    fn object(&self, name: &str) -> Option<CatalogObject>;
    /// All objects, in the order of their creation.
    fn objects(&self) -> Vec<CatalogObject>;
    /// An object of a session, under the name that it is kept under.
    fn kept(&self, object: &CatalogObject) -> CatalogObject;
    /// The names that users know, by those that objects are kept under, where they differ.
    fn shown_names(&self) -> BTreeMap<String, String>;
    /// Pipelines whose names mean others in statements, each with a view or sink that means it.
    fn hidden_pipelines(&self) -> BTreeMap<String, String>;
    /// A pipeline's settings.
    fn pipeline(&self, name: &str) -> Option<PipelineDefinition>;
    /// A secret's value, for connectors only.
    fn secret(&self, name: &str) -> Option<String>;
    /// Gives a stream, by the name that it is kept under, columns that its records have fields for, and tells so in
    /// an event; those of names that it has already stay as they are. Durable when it returns.
    async fn add_columns(
        &self,
        stream: &str,
        columns: &[(ColumnDefinition, Evolved)],
    ) -> Result<()>;
}

/// Turns the text of a stored query into a bound plan.
#[async_trait]
pub trait Binder: Send + Sync {
    /// Binds and analyzes a query over the catalog's relations; not optimized. `kept`: what
    /// the names of altered relations and of functions mean in it.
    async fn bind(&self, query: &str, kept: &KeptNames) -> Result<LogicalPlan>;
    /// The planning session's state: optimizer rules and functions.
    fn state(&self) -> SessionState;
}

/// Keeps history. Writes are idempotent by their keys, so that a replayed batch tells the same.
pub trait History: Send + Sync {
    /// Rows of `streaming_metrics_log` of one batch of one pipeline.
    fn record_metrics(&self, pipeline: &str, batch_id: u64, rows: &[serde_json::Value]);
    /// The newest batch of a pipeline that the metrics log holds.
    fn last_metrics_batch(&self, pipeline: &str) -> Option<u64>;
    /// A row of `streaming_events`.
    fn record_event(&self, event: Event);
    /// Rows of `streaming_dead_letters` of one batch; numbered by their order in the batch.
    fn record_dead_letters(&self, stream: &str, pipeline: &str, batch_id: u64, rows: &[DeadLetter]);
    /// A batch is about to be read: letters that an earlier reading of it left are told anew.
    fn forget_batch_letters(&self, stream: &str, pipeline: &str, batch_id: u64);
    /// Letters of a pipeline that becomes part of another one are that one's from now on.
    fn hand_over_letters(&self, stream: &str, handed: &HandedOver<'_>);
    /// Rows of `streaming_late_rows` of one batch of a view; numbered by their order.
    fn record_late_rows(&self, place: &BatchPlace<'_>, watermark: Option<i64>, rows: &[LateRow]);
    /// Rows of `streaming_expectations_log` of one batch of a stream.
    fn record_expectations(
        &self,
        place: &BatchPlace<'_>,
        batch_at_us: i64,
        counts: &[ExpectationCount],
    );
    /// Rows of `streaming_data_gaps`: the sentence and the gap.
    fn record_data_gaps(&self, place: &BatchPlace<'_>, gaps: &[(String, DataGap)]);
    /// The newest batch of a pipeline that the catalog knows to be committed, `None` if none.
    fn known_batch(&self, pipeline: &str, pipeline_id: uuid::Uuid) -> Option<u64>;
    /// Remembers a committed batch; need not be synced.
    fn record_known_batch(&self, pipeline: &str, pipeline_id: uuid::Uuid, batch_id: u64);
}

/// What rows of a batch belong to.
#[derive(Debug, Clone, Copy)]
pub struct BatchPlace<'a> {
    /// The view or stream.
    pub name: &'a str,
    /// The pipeline.
    pub pipeline: &'a str,
    /// The batch.
    pub batch_id: u64,
}

/// A row that came too late.
#[derive(Debug, Clone)]
pub struct LateRow {
    /// Its event time, in the watermark's unit.
    pub event_time: Option<i64>,
    /// The row as JSON.
    pub row: String,
}

/// What an expectation came to in one batch.
#[derive(Debug, Clone)]
pub struct ExpectationCount {
    /// Its name.
    pub name: String,
    /// Rows that met it.
    pub passed: u64,
    /// Rows that did not.
    pub failed: u64,
    /// Rows of these that it dropped.
    pub dropped: u64,
}

/// A row of `streaming_events`.
#[derive(Debug, Clone)]
pub struct Event {
    /// Microseconds since the epoch.
    pub at_us: i64,
    /// `created`, `started`, `stopped`, `failed`, `retried`, `recovered`, ….
    pub kind: &'static str,
    /// The object it happened to.
    pub object: String,
    /// Its pipeline, if any.
    pub pipeline: Option<String>,
    /// The batch, if any.
    pub batch_id: Option<u64>,
    /// Details.
    pub detail: serde_json::Value,
}

impl EngineParts {
    /// What connectors get from the engine.
    pub(super) fn connector_environment(
        &self,
        source_log: Option<Arc<dyn crate::connectors::SourceLog>>,
        retain_batches: usize,
    ) -> ConnectorEnvironment {
        let definitions = Arc::clone(&self.definitions);
        let history = Arc::clone(&self.history);
        ConnectorEnvironment {
            source_log,
            dead_letters: Some(Arc::new(move |stream, commit, letters| {
                history.record_dead_letters(stream, "", commit, letters);
            })),
            secrets: Arc::new(move |name| definitions.secret(name)),
            paths: self.paths.clone(),
            retain_batches,
            ..ConnectorEnvironment::new(Some(Arc::clone(&self.log)), self.clock.clone())
        }
    }
}

/// Everything an engine is built from.
#[derive(Clone)]
pub struct EngineParts {
    /// The database's directory.
    pub data_dir: PathBuf,
    /// Where time comes from.
    pub clock: ClockRef,
    /// Shared budget for state.
    pub budget: Arc<MemoryBudget>,
    /// The durable log.
    pub log: Arc<DurableLog>,
    /// Definitions.
    pub definitions: Arc<dyn Definitions>,
    /// Planning.
    pub binder: Arc<dyn Binder>,
    /// History.
    pub history: Arc<dyn History>,
    /// Local paths that connectors may reach.
    pub paths: PathRule,
    /// Pipelines run; false: they are opened for reading and stay stopped.
    pub run_pipelines: bool,
}
