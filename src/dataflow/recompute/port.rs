//! Ports: where a recomputed plan reads the rows that the operator keeps.
//!
//! In the logical plan a port is a leaf with the schema (and qualifiers) of the plan it stands
//! for; in the physical plan a leaf that streams what lies in its slot when it is executed. So
//! the plan is made once and executed again and again over new contents.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DFSchemaRef, Result as PlanResult};
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use parking_lot::Mutex;

use crate::error::Result;

/// Rows in batches.
pub type RowIterator = Box<dyn Iterator<Item = Result<RecordBatch>> + Send>;

/// Makes an iterator over a port's rows; a plan may read a port more than once.
pub type PortContents = Arc<dyn Fn() -> Result<RowIterator> + Send + Sync>;

/// Holds a port's contents while the plan is executed.
#[derive(Default)]
pub struct PortSlot(Mutex<Option<PortContents>>);

impl PortSlot {
    /// Sets or takes away the contents.
    pub fn set(&self, contents: Option<PortContents>) {
        *self.0.lock() = contents;
    }
}

impl fmt::Debug for PortSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PortSlot")
    }
}

/// The logical leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortScan {
    /// Which port of the operator.
    pub port: usize,
    /// Schema with qualifiers.
    pub schema: DFSchemaRef,
}

impl Hash for PortScan {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.port.hash(state);
    }
}

impl PartialOrd for PortScan {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other)
            .then_some(Ordering::Equal)
            .or_else(|| Some(self.port.cmp(&other.port)).filter(|order| order.is_ne()))
    }
}

impl UserDefinedLogicalNodeCore for PortScan {
    fn name(&self) -> &str {
        "PortScan"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        Vec::new()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "input {}", self.port)
    }

    fn with_exprs_and_inputs(
        &self,
        _exprs: Vec<Expr>,
        _inputs: Vec<LogicalPlan>,
    ) -> PlanResult<Self> {
        Ok(self.clone())
    }
}

/// The physical leaf.
#[derive(Debug)]
struct PortExec {
    port: usize,
    slot: Arc<PortSlot>,
    properties: Arc<PlanProperties>,
}

impl DisplayAs for PortExec {
    fn fmt_as(&self, _t: DisplayFormatType, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "PortExec: {}", self.port)
    }
}

impl ExecutionPlan for PortExec {
    fn name(&self) -> &str {
        "PortExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> PlanResult<TreeNodeRecursion>,
    ) -> PlanResult<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        _partition: usize,
        _context: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let contents = self.slot.0.lock().clone().ok_or_else(|| {
            DataFusionError::Internal(format!("port {} has no contents", self.port))
        })?;
        let external = |e| DataFusionError::External(Box::new(e));
        let rows = contents().map_err(external)?;
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema(),
            futures::stream::iter(rows.map(move |batch| batch.map_err(external))),
        )))
    }
}

/// Turns [`PortScan`] into [`PortExec`].
pub struct PortPlanner {
    /// A slot per port.
    pub slots: Vec<Arc<PortSlot>>,
}

#[async_trait]
impl ExtensionPlanner for PortPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        _physical_inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn Session,
        _planning_ctx: &PhysicalPlanningContext,
    ) -> PlanResult<Option<Arc<dyn ExecutionPlan>>> {
        let node: &dyn Any = node.as_any();
        Ok(node.downcast_ref::<PortScan>().map(|scan| {
            let schema = Arc::clone(scan.schema.inner());
            Arc::new(PortExec {
                port: scan.port,
                slot: self.slots[scan.port].clone(),
                properties: Arc::new(PlanProperties::new(
                    EquivalenceProperties::new(schema),
                    Partitioning::UnknownPartitioning(1),
                    EmissionType::Incremental,
                    Boundedness::Bounded,
                )),
            }) as Arc<dyn ExecutionPlan>
        }))
    }
}
