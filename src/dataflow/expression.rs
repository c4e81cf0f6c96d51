//! Evaluation of scalar expressions over a batch.
//!
//! Expressions are made once, at planning; here they only run. An error of a value (division by
//! zero, a failed cast) keeps its SQLSTATE; who calls adds the view's name.
//!
//! A condition guards what stands after it: in `b <> 1 AND a / (b - 1) > 0` the quotient of a row
//! with `b = 1` is never asked for. Vectorised evaluation computes it all the same, so when that
//! fails the right side is computed again on the rows that the left side leaves open.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::compute;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{ColumnarValue, Operator};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::BinaryExpr;

use super::row_errors::is_row_error;
use crate::error::{Error, Result};

/// The values of an expression, one per row.
pub fn evaluate(expression: &Arc<dyn PhysicalExpr>, rows: &RecordBatch) -> Result<ArrayRef> {
    Ok(expression.evaluate(rows)?.into_array(rows.num_rows())?)
}

/// The values of several expressions.
pub fn evaluate_all(
    expressions: &[Arc<dyn PhysicalExpr>],
    rows: &RecordBatch,
) -> Result<Vec<ArrayRef>> {
    expressions.iter().map(|e| evaluate(e, rows)).collect()
}

/// Where a condition is true, of its values; NULL stays NULL, which a filter takes for false.
pub fn as_condition(mask: &ArrayRef) -> Result<BooleanArray> {
    if mask.data_type() != &DataType::Boolean {
        return Err(Error::internal(format!(
            "a condition gave {} instead of boolean",
            mask.data_type()
        )));
    }
    Ok(mask.as_boolean().clone())
}

/// The expression with every AND and OR in it as a guard of its right side.
pub fn guarded(expression: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    let guarded = expression.transform_up(|node| {
        let is_guard = node
            .downcast_ref::<BinaryExpr>()
            .is_some_and(|binary| matches!(binary.op(), Operator::And | Operator::Or));
        Ok(if is_guard {
            Transformed::yes(Arc::new(Guard { condition: node }) as Arc<dyn PhysicalExpr>)
        } else {
            Transformed::no(node)
        })
    })?;
    Ok(guarded.data)
}

/// `left AND right` or `left OR right`, of which the right side is computed only where the left
/// side does not decide.
#[derive(Debug, Clone)]
struct Guard {
    /// A [`BinaryExpr`] of AND or OR.
    condition: Arc<dyn PhysicalExpr>,
}

impl Guard {
    fn binary(&self) -> &BinaryExpr {
        self.condition
            .downcast_ref::<BinaryExpr>()
            .expect("a guard is made of AND or OR")
    }

    /// The left side first, then the right side of the rows that it leaves open.
    fn evaluate_in_order(&self, batch: &RecordBatch) -> PlanResult<ColumnarValue> {
        let binary = self.binary();
        let is_and = *binary.op() == Operator::And;
        let rows = batch.num_rows();
        let left = binary.left().evaluate(batch)?.into_array(rows)?;
        let left = left.as_boolean();
        let is_open: BooleanArray = left.iter().map(|v| Some(v != Some(!is_and))).collect();
        let open = compute::filter_record_batch(batch, &is_open)?;
        let right = binary
            .right()
            .evaluate(&open)?
            .into_array(open.num_rows())?;
        let mut right = right.as_boolean().iter();
        let whole: BooleanArray = left
            .iter()
            .map(|left| {
                if left == Some(!is_and) {
                    return left;
                }
                match (left, right.next().flatten()) {
                    (Some(_), right) => right,
                    // NULL, unless the right side decides.
                    (None, right) => right.filter(|right| *right != is_and),
                }
            })
            .collect();
        Ok(ColumnarValue::Array(Arc::new(whole)))
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
        match self.condition.evaluate(batch).map_err(Error::from) {
            Ok(value) => Ok(value),
            Err(error) if is_row_error(&error) => self.evaluate_in_order(batch),
            Err(error) => Err(error.into()),
        }
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
            Some(_) => Arc::new(Self { condition }),
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
            let plain = evaluate(&whole, &rows);
            let value = evaluate(&guarded(whole).unwrap(), &rows).unwrap();
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
}
