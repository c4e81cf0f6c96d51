//! The schemas of relations as DataFusion's planner sees them: `public`, the session's temporary
//! tables, the system tables, and what a name without a schema means. That is as PostgreSQL's search
//! path would find it: temporary tables, then relations of the catalog, the system tables,
//! `pg_catalog`.
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
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::RwLock;

use super::access::guard::{as_owner, guarded};
use super::lookup::Orders;
use super::planning;
use super::rows::SharedRows;
use super::scope::StatementScope;
use super::versions;
use super::view_scan::{ViewRead, ViewScan};
use crate::catalog::definition::{CatalogObject, Definition};
use crate::catalog::system_tables;
use crate::database::DatabaseParts;
use crate::dataflow::view_storage::KeyOrder;
use crate::engine::{Engine, ReadContext};
use crate::error::{Error, ErrorKind, sqlstate};

/// Where names are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// the schema `public`
    Public,
    /// the schema `pg_temp`
    Temporary,
    /// the schema of the system tables
    System,
    /// where names without a schema are looked for
    SearchPath,
}

/// A schema of one session. Weak in the database: the engine keeps plans that came from
/// here, and must not keep itself alive by them.
pub(super) struct SessionSchema {
    place: Place,
    parts: Weak<DatabaseParts>,
    scope: Arc<StatementScope>,
    rows: SharedRows,
    state: OnceLock<Weak<RwLock<SessionState>>>,
}

impl std::fmt::Debug for SessionSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionSchema").finish_non_exhaustive()
    }
}

impl SessionSchema {
    pub fn new(
        place: Place,
        parts: &Arc<DatabaseParts>,
        scope: Arc<StatementScope>,
        rows: SharedRows,
    ) -> Self {
        Self {
            place,
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

    fn has_system_tables(&self) -> bool {
        matches!(self.place, Place::System | Place::SearchPath)
    }

    /// The definition that a name means here.
    fn object(&self, name: &str) -> Option<Arc<CatalogObject>> {
        match self.place {
            Place::Temporary => self.scope.catalog().temporary().get(name).cloned(),
            Place::System => None,
            Place::SearchPath => self.scope.meant(name),
            Place::Public => self.scope.meant_in_public(name),
        }
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
                view_scope: Some(self.scope.clone()),
                parts: self.parts.clone(),
                orders: match versions::is_binding() {
                    true => OnceLock::from(Vec::new()),
                    false => OnceLock::new(),
                },
            })),
            Definition::Stream(_) => Ok(Arc::new(Relation {
                object: object.clone(),
                view_scope: None,
                parts: self.parts.clone(),
                orders: OnceLock::new(),
            })),
            Definition::Index(_) => Err(planning::external(
                Error::new(
                    sqlstate::WRONG_OBJECT_TYPE,
                    format!("cannot open relation \"{}\"", object.name),
                )
                .detail("This operation is not supported for indexes."),
            )),
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
        let shown = reads.shown(object.kept_name(), object.oid);
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
        let catalog = self.scope.catalog();
        let planned = planning::plan_view_query(&state, query, view);
        let plan = match view.is_temporary() {
            // The session itself is its owner.
            true => Box::pin(planned).await,
            false => Box::pin(as_owner(catalog.access(), view, planned)).await,
        };
        let plan = plan.map_err(planning::external)?;
        Ok(Arc::new(ViewTable::new(plan, Some(query.to_owned()))))
    }

    fn is_committed(&self, object: &CatalogObject) -> PlanResult<bool> {
        let committed = alive(&self.parts)?.catalog.snapshot();
        let found = committed.object(&object.name);
        // Or under another name: this very transaction renamed it.
        Ok(found.is_some_and(|o| o.oid == object.oid)
            || committed.object_by_oid(object.oid).is_some())
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
impl SchemaProvider for SessionSchema {
    fn table_names(&self) -> Vec<String> {
        let catalog = self.scope.catalog();
        let wanted: Vec<_> = match self.place {
            Place::System => return system_tables::names().map(str::to_owned).collect(),
            Place::Temporary => catalog.temporary().values().collect(),
            Place::Public | Place::SearchPath => catalog.objects().collect(),
        };
        wanted
            .into_iter()
            .filter(|o| !matches!(o.definition, Definition::Sink(_) | Definition::Index(_)))
            .map(|o| o.name.clone())
            .collect()
    }

    async fn table(&self, name: &str) -> PlanResult<Option<Arc<dyn TableProvider>>> {
        let catalog = self.scope.catalog();
        if let Some(object) = self.object(name) {
            let relation = self.relation(&object).await?;
            // A pipeline reads for its views, whose creation was checked.
            return Ok(Some(
                match versions::is_binding() || object.is_temporary() {
                    true => relation,
                    false => guarded(catalog.access(), &self.scope.subject(), &object, relation),
                },
            ));
        }
        if !self.has_system_tables() {
            return Ok(None);
        }
        let facts = alive(&self.parts)?.system_facts(self.scope.subject());
        if let Some(table) = system_tables::provider(name, &facts) {
            return Ok(Some(table));
        }
        match self.place {
            Place::SearchPath => self.pg_catalog_table(name).await,
            _ => Ok(None),
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        self.object(name).is_some()
            || self.has_system_tables() && system_tables::schema_of(name).is_some()
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

/// A materialized view or stream.
pub(super) struct Relation {
    object: Arc<CatalogObject>,
    /// The scope in which a view is read; `None`: a stream.
    view_scope: Option<Arc<StatementScope>>,
    parts: Weak<DatabaseParts>,
    /// Orders in which a view's rows lie, as they were when they were first asked for. None for a
    /// pipeline, whose plan must be the same whatever there is to find rows by.
    orders: OnceLock<Vec<KeyOrder>>,
}

impl Relation {
    /// The relation, and the version of its columns that it shows.
    pub fn shown(&self) -> versions::Shown {
        versions::Shown {
            oid: self.object.oid,
            kept_name: self.object.kept_name().to_owned(),
            version: self.object.shown_version(),
        }
    }

    /// The view that it is; `None`: a stream.
    pub fn view(&self) -> Option<&CatalogObject> {
        self.view_scope.as_ref().map(|_| self.object.as_ref())
    }

    /// The orders by which conditions may find rows.
    fn orders(&self) -> PlanResult<&[KeyOrder]> {
        let Some(scope) = &self.view_scope else {
            return Ok(&[]);
        };
        let parts = alive(&self.parts)?;
        let orders = self.orders.get_or_init(|| {
            let orders = scope.reads(parts.engine()).present_orders(&self.object);
            orders.into_iter().map(|order| order.order).collect()
        });
        Ok(orders)
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

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        let schema = self.schema();
        let orders = Orders {
            schema: &schema,
            orders: self.orders()?.to_vec(),
        };
        Ok(orders.push_down(filters))
    }

    async fn scan(
        &self,
        session: &dyn PlanningSession,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let whole = self.schema();
        let columns: Vec<usize> = match projection {
            Some(columns) => columns.clone(),
            None => (0..whole.fields().len()).collect(),
        };
        let schema = Arc::new(whole.project(&columns)?);
        let parts = alive(&self.parts)?;
        if let Some(scope) = &self.view_scope {
            let reads = scope.reads(parts.engine());
            reads
                .wait_until_readable(&self.object)
                .await
                .map_err(planning::external)?;
            let mut read = view_read(reads, &self.object, &whole, columns, filters);
            let index = read.order.index.as_deref();
            read.index_shown = index.map(|kept| scope.catalog().shown_name(kept).to_owned());
            let parts_max = session.config().target_partitions();
            return Ok(Arc::new(ViewScan::new(read, schema, limit, parts_max)));
        }
        let partition: Arc<dyn PartitionStream> = Arc::new(StreamRows {
            object: Arc::clone(&self.object),
            columns,
            schema: schema.clone(),
            engine: parts.engine().clone(),
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

/// What is read of a view, and by which of its orders.
fn view_read(
    context: ReadContext,
    view: &Arc<CatalogObject>,
    schema: &SchemaRef,
    columns: Vec<usize>,
    filters: &[Expr],
) -> ViewRead {
    let mut orders = context.orders(view);
    let chosen = Orders {
        schema,
        orders: orders.iter().map(|order| order.order.clone()).collect(),
    }
    .choose(filters);
    ViewRead {
        order: orders.swap_remove(chosen.order),
        index_shown: None,
        context,
        view: Arc::clone(view),
        wanted: chosen.wanted,
        by: chosen.by,
        columns,
    }
}

/// The one partition of a stream's scan.
struct StreamRows {
    object: Arc<CatalogObject>,
    columns: Vec<usize>,
    schema: SchemaRef,
    engine: Engine,
}

impl std::fmt::Debug for StreamRows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StreamRows({})", self.object.name)
    }
}

impl PartitionStream for StreamRows {
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
        let stored = columns.iter().map(|c| self.object.stored_index(*c));
        let stored = stored.collect();
        let rows = stream_rows(self.engine.clone(), Arc::clone(&self.object), stored);
        let schema = self.schema.clone();
        let rows = rows.map(move |batch| {
            let batch = batch?;
            if is_count_only {
                return Ok(batch.project(&[])?);
            }
            Ok(RecordBatch::try_new(
                schema.clone(),
                batch.columns().to_vec(),
            )?)
        });
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), rows))
    }
}

type BatchStream = stream::BoxStream<'static, PlanResult<RecordBatch>>;

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
