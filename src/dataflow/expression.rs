//! Evaluation of scalar expressions over a batch.
//!
//! Expressions are made once, at planning; here they only run. An error of a value (division by
//! zero, a failed cast) keeps its SQLSTATE; who calls adds the view's name.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::datatypes::DataType;
use datafusion::physical_expr::PhysicalExpr;

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
