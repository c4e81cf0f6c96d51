//! A table as DataFusion's planner sees it: committed rows and the transaction's own.
//!
//! A scan reads key order, lazily. A condition that gives every column of the primary key one value
//! becomes a look-up; the condition itself stays in the plan, so that this only narrows the scan.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{
    BinaryExpr, Expr, Operator, TableProviderFilterPushDown, TableType,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::stream;

use crate::catalog::definition::CatalogObject;
use crate::error::{Error, Result};
use crate::log::tables::layout::TableLayout;
use crate::log::tables::view::TablesView;

/// A table at one statement's view.
#[derive(Debug)]
pub struct TableRelation {
    layout: Arc<TableLayout>,
    version: usize,
    view: TablesView,
}

impl TableRelation {
    /// The rows of a table in `view`.
    pub fn new(object: &CatalogObject, view: TablesView) -> Result<Self> {
        Ok(Self {
            layout: TableLayout::of(object)?,
            version: object.shown_version(),
            view,
        })
    }

    /// The table's identifier, and the version of its columns that it shows.
    pub fn shown(&self) -> (u32, usize) {
        (self.layout.oid(), self.version)
    }

    /// The value that a condition gives a key column: `(position in the key, value)`.
    fn key_value(&self, filter: &Expr) -> Option<(usize, ScalarValue)> {
        let Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::Eq,
            right,
        }) = filter
        else {
            return None;
        };
        let (column, value) = match (left.as_ref(), right.as_ref()) {
            (Expr::Column(c), Expr::Literal(v, _)) | (Expr::Literal(v, _), Expr::Column(c)) => {
                (c, v)
            }
            _ => return None,
        };
        let schema = self.layout.schema();
        let at = self
            .layout
            .key_columns()
            .iter()
            .position(|c| schema.field(*c).name() == &column.name)?;
        let data_type = schema.field(self.layout.key_columns()[at]).data_type();
        (&value.data_type() == data_type && !value.is_null()).then(|| (at, value.clone()))
    }

    /// The one key that conditions leave, if they name all its columns.
    fn key_of(&self, filters: &[Expr]) -> Result<Option<Vec<u8>>> {
        if self.layout.is_bag() {
            return Ok(None);
        }
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.layout.key_columns().len()];
        for filter in filters {
            if let Some((at, value)) = self.key_value(filter) {
                columns[at] = Some(value.to_array()?);
            }
        }
        let Some(columns) = columns.into_iter().collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let keys = self.layout.keys_of_columns(&columns)?;
        Ok(Some(keys.row(0).data().to_vec()))
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
        Ok(filters
            .iter()
            .map(|filter| match self.key_value(filter) {
                Some(_) => TableProviderFilterPushDown::Inexact,
                None => TableProviderFilterPushDown::Unsupported,
            })
            .collect())
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
            key: self.key_of(filters).map_err(external)?,
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

#[derive(Debug)]
struct TablePartition {
    schema: SchemaRef,
    layout: Arc<TableLayout>,
    view: TablesView,
    projection: Vec<usize>,
    key: Option<Vec<u8>>,
}

impl PartitionStream for TablePartition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        if let Some(key) = &self.key {
            let rows = self.view.rows_of(&self.layout, &[key], &self.projection);
            let rows = stream::iter([rows.map_err(external)]);
            return Box::pin(RecordBatchStreamAdapter::new(schema, rows));
        }
        match self.view.scan(&self.layout, &self.projection) {
            Ok(scan) => {
                let rows = stream::iter(scan.map(|batch| batch.map_err(external)));
                Box::pin(RecordBatchStreamAdapter::new(schema, rows))
            }
            Err(error) => {
                let failed = stream::iter([Err(external(error))]);
                Box::pin(RecordBatchStreamAdapter::new(schema, failed))
            }
        }
    }
}

/// Our error through DataFusion's interfaces.
pub(super) fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}
