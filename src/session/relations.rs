//! The schema `public` as DataFusion's planner sees it: relations of the catalog, then the system
//! tables, then `pg_catalog`, as PostgreSQL's search path would find them.
//!
//! A materialized view is read at the statement's batch, a stream as far as it goes now, a table
//! at the newest commit and the transaction's own changes, a view is its planned query.

use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::view::ViewTable;
use datafusion::catalog::{SchemaProvider, Session as PlanningSession, TableProvider};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SendableRecordBatchStream, SessionState, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::RwLock;

use super::planning;
use super::rows::SharedRows;
use super::scope::StatementScope;
use super::versions;
use crate::catalog::definition::{CatalogObject, Definition};
use crate::catalog::system_tables;
use crate::database::DatabaseParts;
use crate::engine::{Engine, ReadContext};
use crate::error::{Error, ErrorKind, sqlstate};

/// Batches of a view that wait between the reading thread and the query.
const READ_AHEAD_BATCHES: usize = 2;

/// The schema `public` of one session. Weak in the database: the engine keeps plans that came from
/// here, and must not keep itself alive by them.
pub(super) struct PublicSchema {
    parts: Weak<DatabaseParts>,
    scope: Arc<StatementScope>,
    rows: SharedRows,
    state: OnceLock<Weak<RwLock<SessionState>>>,
}

impl std::fmt::Debug for PublicSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PublicSchema").finish_non_exhaustive()
    }
}

impl PublicSchema {
    pub fn new(parts: &Arc<DatabaseParts>, scope: Arc<StatementScope>, rows: SharedRows) -> Self {
        Self {
            parts: Arc::downgrade(parts),
            scope,
            rows,
            state: OnceLock::new(),
        }
    }

    /// The context that this schema belongs to; a view's query is planned in it. Weak: the context
    /// owns the schema.
    pub fn attach(&self, state: Weak<RwLock<SessionState>>) {
        self.state
            .set(state)
            .expect("a schema belongs to one context");
    }

    fn session_state(&self) -> PlanResult<SessionState> {
        self.state
            .get()
            .and_then(Weak::upgrade)
            .map(|state| state.read().clone())
            .ok_or_else(closed)
    }

    async fn relation(&self, object: &Arc<CatalogObject>) -> PlanResult<Arc<dyn TableProvider>> {
        let object = &versions::meant(object);
        match &object.definition {
            Definition::Table(_) => {
                let parts = alive(&self.parts)?;
                self.rows
                    .table_provider(&parts, object)
                    .map_err(planning::external)
            }
            Definition::View(view) => self.computed(object, &view.query).await,
            // Created by this very transaction, it has no rows yet: what it will hold is computed.
            Definition::MaterializedView(view)
                if !versions::is_binding() && !self.is_committed(object)? =>
            {
                self.computed(object, &view.query).await
            }
            Definition::MaterializedView(_) => Ok(Arc::new(Relation {
                object: self.shown(object)?,
                contents: Contents::View(self.scope.clone()),
                parts: self.parts.clone(),
            })),
            Definition::Stream(_) => Ok(Arc::new(Relation {
                object: object.clone(),
                contents: Contents::Stream,
                parts: self.parts.clone(),
            })),
            Definition::Sink(_) => Err(planning::external(Error::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("cannot read sink \"{}\"", object.name),
            ))),
        }
    }

    /// A view under the definition of the rows that are there; a pipeline reads the newest.
    fn shown(&self, object: &Arc<CatalogObject>) -> PlanResult<Arc<CatalogObject>> {
        if versions::is_binding() {
            return Ok(Arc::clone(object));
        }
        let parts = alive(&self.parts)?;
        let reads = self.scope.reads(parts.engine());
        let shown = reads.shown(&object.name, object.oid);
        Ok(shown.unwrap_or_else(|| Arc::clone(object)))
    }

    /// A view whose rows are computed when they are read.
    async fn computed(
        &self,
        view: &CatalogObject,
        query: &str,
    ) -> PlanResult<Arc<dyn TableProvider>> {
        let state = self.session_state()?;
        // Boxed: a view may read a view, and so on.
        let plan = Box::pin(planning::plan_view_query(&state, query, view))
            .await
            .map_err(planning::external)?;
        Ok(Arc::new(ViewTable::new(plan, Some(query.to_owned()))))
    }

    fn is_committed(&self, object: &CatalogObject) -> PlanResult<bool> {
        let committed = alive(&self.parts)?.catalog.snapshot();
        let found = committed.object(&object.name);
        Ok(found.is_some_and(|o| o.oid == object.oid))
    }

    async fn pg_catalog_table(&self, name: &str) -> PlanResult<Option<Arc<dyn TableProvider>>> {
        if !name.starts_with("pg_") {
            return Ok(None);
        }
        let state = self.session_state()?;
        let catalog_name = state.config_options().catalog.default_catalog.clone();
        let schema = state
            .catalog_list()
            .catalog(&catalog_name)
            .and_then(|catalog| catalog.schema("pg_catalog"));
        match schema {
            Some(schema) => schema.table(name).await,
            None => Ok(None),
        }
    }
}

#[async_trait]
impl SchemaProvider for PublicSchema {
    fn table_names(&self) -> Vec<String> {
        let catalog = self.scope.catalog();
        catalog
            .objects()
            .filter(|o| !matches!(o.definition, Definition::Sink(_)))
            .map(|o| o.name.clone())
            .collect()
    }

    async fn table(&self, name: &str) -> PlanResult<Option<Arc<dyn TableProvider>>> {
        let catalog = self.scope.catalog();
        if let Some(object) = catalog.object(name) {
            return self.relation(object).await.map(Some);
        }
        if let Some(table) = system_tables::provider(name, &alive(&self.parts)?.system_facts()) {
            return Ok(Some(table));
        }
        self.pg_catalog_table(name).await
    }

    fn table_exist(&self, name: &str) -> bool {
        self.scope.catalog().object(name).is_some() || system_tables::schema_of(name).is_some()
    }
}

fn alive(parts: &Weak<DatabaseParts>) -> PlanResult<Arc<DatabaseParts>> {
    parts.upgrade().ok_or_else(closed)
}

fn closed() -> DataFusionError {
    planning::external(Error::with_kind(
        ErrorKind::Cancelled,
        sqlstate::ADMIN_SHUTDOWN,
        "the database is closed",
    ))
}

/// Where a relation's rows come from.
#[derive(Clone)]
enum Contents {
    View(Arc<StatementScope>),
    Stream,
}

/// A materialized view or stream.
pub(super) struct Relation {
    object: Arc<CatalogObject>,
    contents: Contents,
    parts: Weak<DatabaseParts>,
}

impl Relation {
    /// The relation's identifier, and the version of its columns that it shows.
    pub fn shown(&self) -> (u32, usize) {
        (self.object.oid, self.object.shown_version())
    }
}

impl std::fmt::Debug for Relation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Relation({})", self.object.name)
    }
}

#[async_trait]
impl TableProvider for Relation {
    fn schema(&self) -> SchemaRef {
        self.object.schema()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _session: &dyn PlanningSession,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let whole = self.schema();
        let columns: Vec<usize> = match projection {
            Some(columns) => columns.clone(),
            None => (0..whole.fields().len()).collect(),
        };
        let schema = Arc::new(whole.project(&columns)?);
        let parts = alive(&self.parts)?;
        let reader = match &self.contents {
            Contents::View(scope) => {
                let reads = scope.reads(parts.engine());
                reads
                    .wait_until_readable(&self.object.name)
                    .await
                    .map_err(planning::external)?;
                Reader::View(reads)
            }
            Contents::Stream => Reader::Stream(parts.engine().clone()),
        };
        let partition: Arc<dyn PartitionStream> = Arc::new(RelationStream {
            object: Arc::clone(&self.object),
            columns,
            schema: schema.clone(),
            reader,
        });
        Ok(Arc::new(StreamingTableExec::try_new(
            schema,
            vec![partition],
            None,
            Vec::new(),
            false,
            limit,
        )?))
    }
}

#[derive(Clone)]
enum Reader {
    View(ReadContext),
    Stream(Engine),
}

/// The one partition of a scan.
struct RelationStream {
    object: Arc<CatalogObject>,
    columns: Vec<usize>,
    schema: SchemaRef,
    reader: Reader,
}

impl std::fmt::Debug for RelationStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RelationStream({})", self.object.name)
    }
}

impl PartitionStream for RelationStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        // A read of no columns still has a number of rows: read the first column, then drop it.
        let is_count_only = self.columns.is_empty();
        let columns = if is_count_only {
            vec![0]
        } else {
            self.columns.clone()
        };
        let rows = match &self.reader {
            Reader::View(context) => view_rows(context.clone(), self.object.clone(), columns),
            Reader::Stream(engine) => {
                let stored = columns.iter().map(|c| self.object.stored_index(*c));
                stream_rows(engine.clone(), Arc::clone(&self.object), stored.collect())
            }
        };
        let schema = self.schema.clone();
        let rows = rows.map(move |batch| {
            let batch = batch?;
            if is_count_only {
                return Ok(batch.project(&[])?);
            }
            // The definition's schema, whose fields carry the SQL types. What the plan may call
            // nullable need not hold any null, which is checked here.
            Ok(RecordBatch::try_new(
                schema.clone(),
                batch.columns().to_vec(),
            )?)
        });
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), rows))
    }
}

type BatchStream = stream::BoxStream<'static, PlanResult<RecordBatch>>;

/// Reads a view on a thread for blocking work; a dropped stream ends the reading.
fn view_rows(context: ReadContext, view: Arc<CatalogObject>, columns: Vec<usize>) -> BatchStream {
    let (sender, receiver) = tokio::sync::mpsc::channel(READ_AHEAD_BATCHES);
    let reading = tokio::task::spawn_blocking(move || {
        let batches = match context.scan(&view, &columns) {
            Ok(batches) => batches,
            Err(error) => {
                // Without a receiver nobody asks for the error either.
                sender.blocking_send(Err(error)).ok();
                return;
            }
        };
        for batch in batches {
            let is_last = batch.is_err();
            if sender.blocking_send(batch).is_err() || is_last {
                return;
            }
        }
    });
    let rows = stream::unfold(
        (receiver, Some(reading)),
        |(mut receiver, mut reading)| async {
            if let Some(batch) = receiver.recv().await {
                return Some((batch.map_err(planning::external), (receiver, reading)));
            }
            // The sender is gone: at the end, or because the reading broke down.
            match reading.take()?.await {
                Ok(()) => None,
                Err(failure) => Some((
                    Err(DataFusionError::External(Box::new(failure))),
                    (receiver, None),
                )),
            }
        },
    );
    rows.boxed()
}

fn stream_rows(engine: Engine, object: Arc<CatalogObject>, columns: Vec<usize>) -> BatchStream {
    stream::once(async move {
        engine
            .scan_stream(&object, &columns)
            .await
            .map(|rows| rows.map_err(planning::external))
            .map_err(planning::external)
    })
    .try_flatten()
    .boxed()
}
