//! Logical nodes of our own: what must come through DataFusion's optimizer as one piece.
//!
//! - [`SetOperationNode`]: EXCEPT and INTERSECT, which DataFusion plans as joins
//! - [`SingleRowNode`]: a subquery used as a value
//! - [`TemporalFilterNode`]: a condition on `now()`
//!
//! The optimizer works on what is below them and lets no filter past them.

use std::fmt;
use std::sync::Arc;

use datafusion::common::{DFSchema, DFSchemaRef, Result as PlanResult};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};

use crate::dataflow::set_operation::SetOperationKind;
use crate::dataflow::temporal::Bound;

/// A set operation of two inputs with equal types; the left gives the names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd)]
pub struct SetOperationNode {
    /// Which rows remain.
    pub kind: SetOperationKind,
    /// Left rows.
    pub left: LogicalPlan,
    /// Right rows.
    pub right: LogicalPlan,
}

/// Exactly one row: the input's, or NULLs when it has none.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SingleRowNode {
    /// The subquery.
    pub input: LogicalPlan,
    /// Its columns, all nullable.
    pub schema: DFSchemaRef,
}

/// Rows whose bounds the batch's time lies within.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd)]
pub struct TemporalFilterNode {
    /// The rows.
    pub input: LogicalPlan,
    /// A time per row and how `now()` must lie to it; all must hold.
    pub bounds: Vec<(Bound, Expr)>,
    /// The condition as it was written.
    pub detail: String,
}

impl PartialOrd for SingleRowNode {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl SingleRowNode {
    /// The node as a plan.
    pub fn plan(input: LogicalPlan) -> PlanResult<LogicalPlan> {
        Ok(extension(Self {
            schema: all_nullable(input.schema())?,
            input,
        }))
    }
}

/// The schema with a NULL allowed in every column.
pub fn all_nullable(schema: &DFSchema) -> PlanResult<DFSchemaRef> {
    let fields = schema.iter().map(|(qualifier, field)| {
        let field = field.as_ref().clone().with_nullable(true);
        (qualifier.cloned(), Arc::new(field))
    });
    let metadata = schema.metadata().clone();
    DFSchema::new_with_metadata(fields.collect(), metadata).map(Arc::new)
}

/// A node of ours as a plan.
pub fn extension(node: impl UserDefinedLogicalNodeCore) -> LogicalPlan {
    LogicalPlan::Extension(Extension {
        node: Arc::new(node),
    })
}

fn only<const N: usize>(inputs: Vec<LogicalPlan>) -> PlanResult<[LogicalPlan; N]> {
    inputs
        .try_into()
        .map_err(|_| DataFusionError::Internal(format!("{N} inputs are wanted")))
}

impl UserDefinedLogicalNodeCore for SetOperationNode {
    fn name(&self) -> &str {
        "SetOperation"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.left, &self.right]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.left.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.kind.words())
    }

    fn with_exprs_and_inputs(
        &self,
        _exprs: Vec<Expr>,
        inputs: Vec<LogicalPlan>,
    ) -> PlanResult<Self> {
        let [left, right] = only(inputs)?;
        Ok(Self {
            kind: self.kind,
            left,
            right,
        })
    }
}

impl UserDefinedLogicalNodeCore for SingleRowNode {
    fn name(&self) -> &str {
        "SingleRow"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("single row")
    }

    fn with_exprs_and_inputs(
        &self,
        _exprs: Vec<Expr>,
        inputs: Vec<LogicalPlan>,
    ) -> PlanResult<Self> {
        let [input] = only(inputs)?;
        Ok(Self {
            input,
            schema: self.schema.clone(),
        })
    }
}

impl UserDefinedLogicalNodeCore for TemporalFilterNode {
    fn name(&self) -> &str {
        "TemporalFilter"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        self.bounds.iter().map(|(_, time)| time.clone()).collect()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.detail)
    }

    fn with_exprs_and_inputs(
        &self,
        exprs: Vec<Expr>,
        inputs: Vec<LogicalPlan>,
    ) -> PlanResult<Self> {
        let [input] = only(inputs)?;
        let bounds = self.bounds.iter().map(|(bound, _)| *bound).zip(exprs);
        Ok(Self {
            input,
            bounds: bounds.collect(),
            detail: self.detail.clone(),
        })
    }
}
