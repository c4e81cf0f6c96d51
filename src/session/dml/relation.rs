//! A table as DataFusion's planner sees it: committed rows and the transaction's own.
//!
//! A scan reads key order, lazily. Conditions on the primary key narrow it to keys or ranges of keys,
//! as those on a view's key do ([`Orders`]).

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::stream::BoxStream;
use futures::{StreamExt, stream};

use crate::catalog::definition::CatalogObject;
use crate::dataflow::view_storage::KeyOrder;
use crate::error::{Error, Result};
use crate::log::tables::layout::TableLayout;
use crate::log::tables::view::TablesView;
use crate::session::lookup::Orders;
use crate::session::versions;
use crate::state::{KeyRange, WantedKeys};

/// A table at one statement's view.
#[derive(Debug)]
pub struct TableRelation {
    layout: Arc<TableLayout>,
    kept_name: String,
    version: usize,
    view: TablesView,
    /// Read by a pipeline, whose plan must be the same whatever there is to find rows by.
    is_fed: bool,
}

impl TableRelation {
    /// The rows of a table in `view`.
    pub fn new(object: &CatalogObject, view: TablesView) -> Result<Self> {
        Ok(Self {
            layout: TableLayout::of(object)?,
            kept_name: object.kept_name().to_owned(),
            version: object.shown_version(),
            view,
            is_fed: versions::is_binding(),
        })
    }

    /// The table, and the version of its columns that it shows.
    pub(in crate::session) fn shown(&self) -> versions::Shown {
        versions::Shown {
            oid: self.layout.oid(),
            kept_name: self.kept_name.clone(),
            version: self.version,
        }
    }

    /// The order of the stored rows, for conditions to find rows by.
    fn orders(&self) -> Orders<'_> {
        let order = match self.layout.is_bag() || self.is_fed {
            true => KeyOrder::default(),
            false => KeyOrder::ascending(self.layout.key_columns().iter().copied(), true),
        };
        Orders {
            schema: self.layout.schema(),
            orders: vec![order],
        }
    }
}

#[async_trait]
impl TableProvider for TableRelation {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.layout.schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        Ok(self.orders().push_down(filters))
    }

    async fn scan(
        &self,
        _state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.layout.schema().fields().len()).collect();
        let projection = projection.unwrap_or(&all);
        let partition = TablePartition {
            schema: Arc::new(self.layout.schema().project(projection)?),
            layout: Arc::clone(&self.layout),
            view: self.view.clone(),
            projection: projection.clone(),
            wanted: self.orders().choose(filters).wanted,
        };
        Ok(Arc::new(StreamingTableExec::try_new(
            Arc::clone(&partition.schema),
            vec![Arc::new(partition)],
            None,
            [],
            false,
            limit,
        )?))
    }
}

#[derive(Debug, Clone)]
struct TablePartition {
    schema: SchemaRef,
    layout: Arc<TableLayout>,
    view: TablesView,
    projection: Vec<usize>,
    wanted: WantedKeys,
}

impl PartitionStream for TablePartition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let rows: BoxStream<'static, _> = match &self.wanted {
            WantedKeys::All => self.range(None),
            WantedKeys::Keys(keys) => {
                let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                let rows = self.view.rows_of(&self.layout, &keys, &self.projection);
                stream::iter([rows.map_err(external)]).boxed()
            }
            WantedKeys::Ranges(ranges) => {
                let (partition, numbers) = (self.clone(), 0..ranges.len());
                let ranges = Arc::clone(ranges);
                let range = move |number: usize| partition.range(Some(&ranges[number]));
                stream::iter(numbers).flat_map(range).boxed()
            }
        };
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }
}

impl TablePartition {
    /// The rows whose keys are in a range.
    fn range(&self, range: Option<&KeyRange>) -> BoxStream<'static, PlanResult<RecordBatch>> {
        match self.view.scan(&self.layout, range, &self.projection) {
            Ok(scan) => stream::iter(scan.map(|batch| batch.map_err(external))).boxed(),
            Err(error) => stream::iter([Err(external(error))]).boxed(),
        }
    }
}

/// Our error through DataFusion's interfaces.
pub(super) fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
