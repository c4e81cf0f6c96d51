//! Operators that keep nothing: input, filter, projection, union all.
//!
//! Each works on the change as it comes, vectorised, weights untouched.

use std::sync::Arc;

use datafusion::arrow::array::Array;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;

use super::batch_numbers::BatchNumbers;
use super::change::ChangeBatch;
use super::expression::{evaluate_all, evaluate_condition};
use super::operator::{BatchContext, Operator, OperatorDescription, OperatorStatistics};
use super::rows::rebatch;
use crate::error::Result;

/// Does one thing to every change.
pub trait Transform: Send {
    /// The change that goes on; may be empty.
    fn apply(&self, change: ChangeBatch) -> Result<ChangeBatch>;
}

/// A stateless operator: a transform and what is said of it.
pub struct Stateless<T> {
    transform: T,
    kind: &'static str,
    detail: String,
    numbers: BatchNumbers,
}

impl<T: Transform> Stateless<T> {
    /// An operator of `kind`, described to people by `detail`.
    pub fn new(kind: &'static str, detail: String, transform: T) -> Self {
        Self {
            transform,
            kind,
            detail,
            numbers: BatchNumbers::default(),
        }
    }
}

impl<T: Transform> Operator for Stateless<T> {
    fn describe(&self) -> OperatorDescription {
        OperatorDescription {
            kind: self.kind,
            detail: self.detail.clone(),
            incremental: true,
            state: None,
            retention: None,
        }
    }

    fn push(
        &mut self,
        _port: usize,
        change: ChangeBatch,
        context: &BatchContext,
        out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        let numbers = self.numbers.of(context);
        numbers.input_rows += change.num_rows() as u64;
        let result = self.transform.apply(change)?;
        numbers.output_rows += result.num_rows() as u64;
        if !result.is_empty() {
            out.push(result);
        }
        Ok(())
    }

    fn finish(&mut self, context: &BatchContext, _out: &mut Vec<ChangeBatch>) -> Result<()> {
        self.numbers.of(context);
        Ok(())
    }

    fn reset(&mut self) {
        self.numbers = BatchNumbers::default();
    }

    fn statistics(&self) -> OperatorStatistics {
        self.numbers.get()
    }
}

/// Keeps the rows for which a condition is true.
pub struct Filter {
    /// The condition, of type boolean.
    pub condition: Arc<dyn PhysicalExpr>,
}

impl Transform for Filter {
    fn apply(&self, change: ChangeBatch) -> Result<ChangeBatch> {
        let mask = evaluate_condition(&self.condition, change.rows())?;
        if mask.null_count() == 0 && mask.true_count() == change.num_rows() {
            return Ok(change);
        }
        change.filter(&mask)
    }
}

/// Computes columns.
pub struct Project {
    /// One expression per output column.
    pub expressions: Vec<Arc<dyn PhysicalExpr>>,
    /// Output schema.
    pub schema: SchemaRef,
}

impl Transform for Project {
    fn apply(&self, change: ChangeBatch) -> Result<ChangeBatch> {
        let columns = evaluate_all(&self.expressions, change.rows())?;
        let rows = rebatch(&self.schema, columns, change.num_rows())?;
        Ok(change.with_rows(rows))
    }
}

/// Passes rows on under the operator's own schema: the input of a view, and every arm of a
/// UNION ALL.
pub struct Pass {
    /// Output schema; same columns, other names.
    pub schema: SchemaRef,
}

impl Transform for Pass {
    fn apply(&self, change: ChangeBatch) -> Result<ChangeBatch> {
        super::consolidate::under_schema(change, &self.schema)
    }
}
