//! Rows that fail in a recomputed plan.
//!
//! The plan's filters and projections are made careful once it is planned: what cannot be computed
//! is met row by row, by the policy that the operator is told before each batch. Under `skip` a
//! filter below a projection takes the row out. A plan runs over all rows of its partitions, so
//! the rows counted are those that it met in the batch, new or not.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use parking_lot::Mutex;

use crate::dataflow::operator::OperatorStatistics;
use crate::dataflow::row_errors::{FailedRows, OnRowError, evaluate_each, place_of};
use crate::error::{Error, Result};
use crate::sql::guards::guarded;

/// The policy and the count, shared by an operator and its plan.
#[derive(Debug, Clone, Default)]
pub struct PlanErrors(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    policy: OnRowError,
    rows: u64,
    first: Option<Error>,
}

impl PlanErrors {
    /// What rows that fail meet from now on.
    pub fn set_policy(&self, policy: OnRowError) {
        self.0.lock().policy = policy;
    }

    fn policy(&self) -> OnRowError {
        self.0.lock().policy
    }

    /// A batch begins: nothing is counted.
    pub fn begin(&self) {
        let mut state = self.0.lock();
        state.rows = 0;
        state.first = None;
    }

    fn count(&self, failed: &FailedRows) {
        let Some((_, error)) = failed.first() else {
            return;
        };
        let mut state = self.0.lock();
        state.rows += failed.len() as u64;
        state.first.get_or_insert_with(|| error.clone());
    }

    /// Adds what was counted in the batch.
    pub fn add_statistics(&self, statistics: &mut OperatorStatistics) {
        let state = self.0.lock();
        statistics.error_rows += state.rows;
        if statistics.first_row_error.is_none() {
            statistics.first_row_error.clone_from(&state.first);
        }
    }
}

/// The plan with careful filters and projections.
pub fn careful(
    plan: Arc<dyn ExecutionPlan>,
    errors: &PlanErrors,
) -> PlanResult<Arc<dyn ExecutionPlan>> {
    let plan = plan.transform_up(|node| {
        if let Some(filter) = node.downcast_ref::<FilterExec>() {
            let predicate = careful_expression(filter.predicate(), errors)?;
            let filter = FilterExecBuilder::from(filter).with_predicate(predicate);
            return Ok(Transformed::yes(
                Arc::new(filter.build()?) as Arc<dyn ExecutionPlan>
            ));
        }
        let Some(projection) = node.downcast_ref::<ProjectionExec>() else {
            return Ok(Transformed::no(node));
        };
        let computed: Vec<_> = projection
            .expr()
            .iter()
            .map(|column| &column.expr)
            .filter(|expression| !is_given(expression))
            .cloned()
            .collect();
        if computed.is_empty() {
            return Ok(Transformed::no(node));
        }
        let sieve = Careful::new(Asks::Computable(computed), errors);
        let input = FilterExecBuilder::new(Arc::new(sieve), Arc::clone(projection.input()));
        let columns = projection
            .expr()
            .iter()
            .map(|column| {
                Ok(ProjectionExpr {
                    expr: careful_expression(&column.expr, errors)?,
                    alias: column.alias.clone(),
                })
            })
            .collect::<PlanResult<Vec<_>>>()?;
        let projection = ProjectionExec::try_new(columns, Arc::new(input.build()?))?;
        Ok(Transformed::yes(
            Arc::new(projection) as Arc<dyn ExecutionPlan>
        ))
    })?;
    Ok(plan.data)
}

fn is_given(expression: &Arc<dyn PhysicalExpr>) -> bool {
    expression.is::<Column>() || expression.is::<Literal>()
}

fn careful_expression(
    expression: &Arc<dyn PhysicalExpr>,
    errors: &PlanErrors,
) -> Result<Arc<dyn PhysicalExpr>> {
    if is_given(expression) {
        return Ok(Arc::clone(expression));
    }
    let expression = guarded(Arc::clone(expression))?.data;
    Ok(Arc::new(Careful::new(Asks::Value(expression), errors)))
}

/// What a careful expression answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Asks {
    /// The value of the expression.
    Value(Arc<dyn PhysicalExpr>),
    /// Whether the row shall go on, given what will be computed of it.
    Computable(Vec<Arc<dyn PhysicalExpr>>),
}

#[derive(Debug, Clone)]
struct Careful {
    asks: Asks,
    errors: PlanErrors,
}

impl Careful {
    fn new(asks: Asks, errors: &PlanErrors) -> Self {
        Self {
            asks,
            errors: errors.clone(),
        }
    }

    fn value(
        &self,
        expression: &Arc<dyn PhysicalExpr>,
        batch: &RecordBatch,
    ) -> Result<ColumnarValue> {
        match expression.evaluate(batch).map_err(Error::from) {
            Err(error) if error.is_of_value() => {}
            other => return other,
        }
        let mut failed = FailedRows::default();
        let values = evaluate_each(expression, batch, &mut failed)?;
        if let Some((row, error)) = failed.first()
            && self.errors.policy() == OnRowError::Fail
        {
            return Err(error.clone().at(place_of(batch, row, expression)?));
        }
        self.errors.count(&failed);
        Ok(ColumnarValue::Array(values))
    }

    fn computable(
        &self,
        expressions: &[Arc<dyn PhysicalExpr>],
        batch: &RecordBatch,
    ) -> Result<ColumnarValue> {
        let yes = ColumnarValue::Scalar(ScalarValue::Boolean(Some(true)));
        if self.errors.policy() != OnRowError::Skip {
            return Ok(yes);
        }
        let mut failed = FailedRows::default();
        for expression in expressions {
            evaluate_each(expression, batch, &mut failed)?;
        }
        if failed.is_empty() {
            return Ok(yes);
        }
        self.errors.count(&failed);
        Ok(ColumnarValue::Array(Arc::new(
            failed.good_rows(batch.num_rows()),
        )))
    }
}

impl PhysicalExpr for Careful {
    fn data_type(&self, input_schema: &Schema) -> PlanResult<DataType> {
        match &self.asks {
            Asks::Value(expression) => expression.data_type(input_schema),
            Asks::Computable(_) => Ok(DataType::Boolean),
        }
    }

    fn nullable(&self, input_schema: &Schema) -> PlanResult<bool> {
        match &self.asks {
            Asks::Value(expression) => Ok(
                self.errors.policy() == OnRowError::Null || expression.nullable(input_schema)?
            ),
            Asks::Computable(_) => Ok(false),
        }
    }

    fn evaluate(&self, batch: &RecordBatch) -> PlanResult<ColumnarValue> {
        Ok(match &self.asks {
            Asks::Value(expression) => self.value(expression, batch)?,
            Asks::Computable(expressions) => self.computable(expressions, batch)?,
        })
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        match &self.asks {
            Asks::Value(expression) => vec![expression],
            Asks::Computable(expressions) => expressions.iter().collect(),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> PlanResult<Arc<dyn PhysicalExpr>> {
        let asks = match &self.asks {
            Asks::Value(_) => Asks::Value(children.swap_remove(0)),
            Asks::Computable(_) => Asks::Computable(children),
        };
        Ok(Arc::new(Self::new(asks, &self.errors)))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Careful {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.asks {
            Asks::Value(expression) => expression.fmt(f),
            Asks::Computable(_) => f.write_str("the row can be computed"),
        }
    }
}

impl PartialEq for Careful {
    fn eq(&self, other: &Self) -> bool {
        self.asks == other.asks
    }
}

impl Eq for Careful {}

impl Hash for Careful {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.asks.hash(state);
    }
}
