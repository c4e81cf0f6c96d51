//! Reading a system table in a query.
//!
//! The metrics of one view lie by batch, for days: the newest come first, and with a limit no others are read, so
//! that `ORDER BY batch_id DESC LIMIT 100` costs a hundred rows however long the view has run. A table is made when
//! the query runs, on a thread for blocking work, since history is read from files.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, UInt32Array};
use datafusion::arrow::compute::{SortOptions, take_record_batch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
    ReplaceChildrenOptions,
};
use futures::stream;

use super::{Definition, SystemFacts};
use crate::catalog::history::HistoryFilter;

/// What is read of a table.
#[derive(Clone)]
pub(super) struct SystemRead {
    pub table: &'static Definition,
    pub facts: SystemFacts,
    pub filter: HistoryFilter,
    pub projection: Option<Vec<usize>>,
    /// Rows are those of one name, and come from the newest batch on.
    pub newest_first: bool,
}

/// The reading, as a plan.
pub(super) struct SystemScan {
    read: SystemRead,
    schema: SchemaRef,
    properties: Arc<PlanProperties>,
}

impl fmt::Debug for SystemScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SystemScan({})", self.read.table.name)
    }
}

impl SystemScan {
    /// `schema` is that of the read columns.
    pub fn new(read: SystemRead, schema: SchemaRef) -> Self {
        let batch = schema.index_of(BATCH_COLUMN).ok();
        let order = batch.filter(|_| read.newest_first).map(|index| {
            let column: Arc<dyn PhysicalExpr> = Arc::new(Column::new(BATCH_COLUMN, index));
            let options = SortOptions {
                descending: true,
                nulls_first: true,
            };
            vec![PhysicalSortExpr::new(column, options)]
        });
        let equivalences = EquivalenceProperties::new_with_orderings(Arc::clone(&schema), order);
        let properties = PlanProperties::new(
            equivalences,
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self {
            read,
            schema,
            properties: Arc::new(properties),
        }
    }
}

/// The column by which the rows of a name lie.
const BATCH_COLUMN: &str = "batch_id";

impl DisplayAs for SystemScan {
    fn fmt_as(&self, _kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SystemScan: {}", self.read.table.name)?;
        if let Some(name) = &self.read.filter.name {
            write!(f, ", {}={name}", self.read.table.name_column)?;
        }
        if self.read.newest_first {
            write!(f, ", newest first")?;
        }
        match self.read.filter.limit {
            Some(limit) => write!(f, ", fetch={limit}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for SystemScan {
    fn name(&self) -> &'static str {
        "SystemScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _visit: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn fetch(&self) -> Option<usize> {
        self.read.filter.limit
    }

    /// Of other tables all rows are made in any case.
    fn with_fetch(&self, fetch: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        if !self.read.newest_first {
            return None;
        }
        let mut read = self.read.clone();
        read.filter.limit = fetch;
        Some(Arc::new(Self::new(read, Arc::clone(&self.schema))))
    }

    fn execute(
        &self,
        _partition: usize,
        _context: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let read = self.read.clone();
        let rows = stream::once(async move {
            let made = tokio::task::spawn_blocking(move || rows(&read)).await;
            made.map_err(|e| DataFusionError::External(Box::new(e)))?
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            rows,
        )))
    }
}

fn rows(read: &SystemRead) -> PlanResult<RecordBatch> {
    let made = (read.table.build)(Some(&read.facts), &read.filter);
    let mut rows = made.map_err(|e| DataFusionError::External(Box::new(e)))?;
    if let Some(projection) = &read.projection {
        rows = rows.project(projection)?;
    }
    if read.newest_first {
        let count = rows.num_rows() as u32;
        let backwards = UInt32Array::from_iter_values((0..count).rev());
        rows = match rows.num_columns() {
            0 => rows,
            _ => take_record_batch(&rows, &backwards)?,
        };
    }
    Ok(rows)
}
