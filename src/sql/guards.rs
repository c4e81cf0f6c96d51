//! Conditions that guard what stands after them, as in PostgreSQL.
//!
//! In `b <> 1 AND a / (b - 1) > 0` the quotient of a row with `b = 1` is never asked for.
//! Vectorised evaluation computes it all the same, so when that fails the right side is computed
//! again on the rows that the left side leaves open; without an error nothing is done twice. Where the
//! right side calls functions and the left side decides many rows, only the others are computed.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions,
};
use datafusion::arrow::compute;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::ScalarFunctionExpr;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, Column, IsNotNullExpr, IsNullExpr, Literal, NotExpr,
};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

use crate::error::Error;

/// The expression with every AND and OR in it as a guard of its right side.
pub fn guarded(
    expression: Arc<dyn PhysicalExpr>,
) -> PlanResult<Transformed<Arc<dyn PhysicalExpr>>> {
    expression.transform_up(|node| {
        let is_guard = node.downcast_ref::<BinaryExpr>().is_some_and(|binary| {
            matches!(binary.op(), Operator::And | Operator::Or) && may_fail(binary.right())
        });
        Ok(if is_guard {
            Transformed::yes(Arc::new(Guard::new(node)) as Arc<dyn PhysicalExpr>)
        } else {
            Transformed::no(node)
        })
    })
}

/// Some value of the row may give an error: all but comparisons of columns and literals.
fn may_fail(expression: &Arc<dyn PhysicalExpr>) -> bool {
    let is_safe = match expression.downcast_ref::<BinaryExpr>() {
        Some(binary) => {
            let op = binary.op();
            use Operator::{
                And, Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq, Or,
            };
            let compares = matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq);
            compares || matches!(op, And | Or | IsDistinctFrom | IsNotDistinctFrom)
        }
        None => {
            expression.is::<Column>()
                || expression.is::<Literal>()
                || expression.is::<IsNullExpr>()
                || expression.is::<IsNotNullExpr>()
                || expression.is::<NotExpr>()
        }
    };
    !is_safe || expression.children().into_iter().any(may_fail)
}

/// Some part of it works on every row by itself.
fn is_costly(expression: &Arc<dyn PhysicalExpr>) -> bool {
    expression.is::<ScalarFunctionExpr>()
        || expression.is::<CaseExpr>()
        || expression.children().into_iter().any(is_costly)
}

/// Makes the conditions of filters and projections guard; the last rule, since it hides what
/// others look into.
#[derive(Debug)]
pub struct GuardConditions;

impl PhysicalOptimizerRule for GuardConditions {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let plan = plan.transform_up(|node| {
            if let Some(filter) = node.downcast_ref::<FilterExec>() {
                let predicate = guarded(Arc::clone(filter.predicate()))?;
                if !predicate.transformed {
                    return Ok(Transformed::no(node));
                }
                let filter = FilterExecBuilder::from(filter).with_predicate(predicate.data);
                return Ok(Transformed::yes(
                    Arc::new(filter.build()?) as Arc<dyn ExecutionPlan>
                ));
            }
            let Some(projection) = node.downcast_ref::<ProjectionExec>() else {
                return Ok(Transformed::no(node));
            };
            let mut is_changed = false;
            let columns = projection.expr().iter().map(|column| {
                let expr = guarded(Arc::clone(&column.expr))?;
                is_changed |= expr.transformed;
                Ok(ProjectionExpr {
                    expr: expr.data,
                    alias: column.alias.clone(),
                })
            });
            let columns = columns.collect::<PlanResult<Vec<_>>>()?;
            if !is_changed {
                return Ok(Transformed::no(node));
            }
            let input = Arc::clone(projection.input());
            let projection = ProjectionExec::try_new(columns, input)?;
            Ok(Transformed::yes(
                Arc::new(projection) as Arc<dyn ExecutionPlan>
            ))
        })?;
        Ok(plan.data)
    }

    fn name(&self) -> &str {
        "guard_conditions"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// `left AND right` or `left OR right`, of which the right side is computed only where the left
/// side does not decide.
#[derive(Debug, Clone)]
struct Guard {
    /// A [`BinaryExpr`] of AND or OR.
    condition: Arc<dyn PhysicalExpr>,
    /// The right side costs more than to pick the rows that it is asked for.
    is_right_costly: bool,
}

impl Guard {
    fn new(condition: Arc<dyn PhysicalExpr>) -> Self {
        let binary = condition.downcast_ref::<BinaryExpr>();
        Self {
            is_right_costly: binary.is_some_and(|binary| is_costly(binary.right())),
            condition,
        }
    }

    fn binary(&self) -> &BinaryExpr {
        self.condition
            .downcast_ref::<BinaryExpr>()
            .expect("a guard is made of AND or OR")
    }

    /// The right side of the rows that the left side leaves open, in their places.
    fn right_of_open(&self, batch: &RecordBatch, left: &BooleanArray) -> PlanResult<ArrayRef> {
        let right = self.binary().right();
        let is_open: BooleanArray = left.iter().map(|v| Some(self.leaves_open(v))).collect();
        let open_rows = is_open.true_count();
        let needed = collect_columns(right);
        let columns = batch.columns().iter().enumerate().map(|(index, column)| {
            match needed.iter().any(|needed| needed.index() == index) {
                true => Ok(compute::filter(column, &is_open)?),
                // Nobody looks at it.
                false => Ok(column.slice(0, open_rows)),
            }
        });
        let columns = columns.collect::<PlanResult<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(open_rows));
        let open = RecordBatch::try_new_with_options(batch.schema(), columns, &options)?;
        let right = right.evaluate(&open)?.into_array(open_rows)?;
        let mut right = right.as_boolean().iter();
        let whole = is_open.values().iter().map(|is_open| match is_open {
            true => right.next().flatten(),
            false => None,
        });
        Ok(Arc::new(whole.collect::<BooleanArray>()))
    }

    /// A row of which the left side is `left` hangs on the right side.
    fn leaves_open(&self, left: Option<bool>) -> bool {
        left != Some(*self.binary().op() == Operator::Or)
    }
}

impl PhysicalExpr for Guard {
    fn data_type(&self, input_schema: &Schema) -> PlanResult<DataType> {
        self.condition.data_type(input_schema)
    }

    fn nullable(&self, input_schema: &Schema) -> PlanResult<bool> {
        self.condition.nullable(input_schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> PlanResult<ColumnarValue> {
        let (rows, binary) = (batch.num_rows(), self.binary());
        let left = binary.left().evaluate(batch)?.into_array(rows)?;
        let left = left.as_boolean();
        let open_rows = left.iter().filter(|left| self.leaves_open(*left)).count();
        if open_rows == 0 {
            return Ok(ColumnarValue::Array(Arc::new(left.clone())));
        }
        let is_spared = match self.is_right_costly {
            true => open_rows * 4 < rows * 3,
            false => open_rows * 5 < rows,
        };
        let right = match is_spared {
            true => self.right_of_open(batch, left)?,
            false => {
                let whole = binary.right().evaluate(batch);
                match whole.and_then(|right| right.into_array(rows)) {
                    Ok(right) => right,
                    Err(error) => match Error::from(error) {
                        error if error.is_of_value() => self.right_of_open(batch, left)?,
                        error => return Err(error.into()),
                    },
                }
            }
        };
        let whole = match binary.op() {
            Operator::And => compute::and_kleene(left, right.as_boolean())?,
            _ => compute::or_kleene(left, right.as_boolean())?,
        };
        Ok(ColumnarValue::Array(Arc::new(whole)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.condition]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> PlanResult<Arc<dyn PhysicalExpr>> {
        let condition = Arc::clone(&children[0]);
        Ok(match condition.downcast_ref::<BinaryExpr>() {
            Some(_) => Arc::new(Self::new(condition)),
            None => condition,
        })
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt_sql(f)
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.condition.fmt(f)
    }
}

impl PartialEq for Guard {
    fn eq(&self, other: &Self) -> bool {
        self.condition.eq(&other.condition)
    }
}

impl Eq for Guard {}

impl Hash for Guard {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.condition.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;
    use datafusion::arrow::datatypes::Field;
    use datafusion::physical_expr::expressions::{binary, col, lit};

    use super::*;

    #[test]
    fn a_condition_guards_what_stands_after_it() {
        let schema = Arc::new(Schema::new(vec![Field::new("b", DataType::Int64, true)]));
        let b: Int64Array = [Some(0), Some(5), None, Some(20), Some(-3)]
            .into_iter()
            .collect();
        let rows = RecordBatch::try_new(schema.clone(), vec![Arc::new(b)]).unwrap();
        let compare = |left, op, right| binary(left, op, lit(right), &schema).unwrap();
        let column = || col("b", &schema).unwrap();
        let quotient = || binary(lit(10i64), Operator::Divide, column(), &schema).unwrap();
        let test = |left, op| {
            let right = compare(quotient(), Operator::Gt, 0i64);
            let whole = binary(left, op, right, &schema).unwrap();
            let plain = whole.evaluate(&rows);
            let value = guarded(whole).unwrap().data.evaluate(&rows).unwrap();
            let value = value.into_array(5).unwrap();
            (
                plain.is_err(),
                value.as_boolean().iter().collect::<Vec<_>>(),
            )
        };
        let (t, f) = (Some(true), Some(false));
        let and = test(compare(column(), Operator::NotEq, 0), Operator::And);
        assert_eq!(and, (true, vec![f, t, None, f, f]));
        let or = test(compare(column(), Operator::Eq, 0), Operator::Or);
        assert_eq!(or, (true, vec![t, t, None, f, f]));
    }

    #[test]
    fn what_is_computed_of_some_rows_is_the_same() {
        let fields = ["l", "r"].map(|name| Field::new(name, DataType::Boolean, true));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let values = [Some(true), Some(false), None];
        let left: BooleanArray = (0..9).map(|i| values[i / 3]).collect();
        let right: BooleanArray = (0..9).map(|i| values[i % 3]).collect();
        let rows = RecordBatch::try_new(schema.clone(), vec![Arc::new(left), Arc::new(right)]);
        let rows = rows.unwrap();
        for op in [Operator::And, Operator::Or] {
            let sides = ["l", "r"].map(|name| col(name, &schema).unwrap());
            let [left, right] = sides;
            let condition = binary(left, op, right, &schema).unwrap();
            let values = |expression: &dyn PhysicalExpr| {
                let value = expression.evaluate(&rows).unwrap().into_array(9).unwrap();
                value.as_boolean().iter().collect::<Vec<_>>()
            };
            let guard = Guard {
                is_right_costly: true,
                condition: condition.clone(),
            };
            assert_eq!(values(&guard), values(condition.as_ref()), "{op}");
        }
    }
}
