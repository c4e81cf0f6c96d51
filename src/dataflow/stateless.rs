//! Operators that keep nothing: input, filter, projection, union all.
//!
//! Each works on the change as it comes, vectorised, weights untouched.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::physical_expr::PhysicalExpr;

use super::batch_numbers::BatchNumbers;
use super::change::ChangeBatch;
use super::expression::as_condition;
use super::operator::{BatchContext, Operator, OperatorDescription, OperatorStatistics};
use super::row_errors::{OnRowError, RowErrors};
use super::rows::rebatch;
use crate::error::Result;

/// Does one thing to every change.
pub trait Transform: Send {
    /// What is computed of every row before [`Self::apply`].
    fn expressions(&self) -> &[Arc<dyn PhysicalExpr>] {
        &[]
    }

    /// The change that goes on; may be empty. `columns` are the values of [`Self::expressions`].
    fn apply(&self, change: ChangeBatch, columns: Vec<ArrayRef>) -> Result<ChangeBatch>;
}

/// A stateless operator: a transform and what is said of it.
pub struct Stateless<T> {
    transform: T,
    kind: &'static str,
    detail: String,
    numbers: BatchNumbers,
    errors: RowErrors,
}

impl<T: Transform> Stateless<T> {
    /// An operator of `kind`, described to people by `detail`.
    pub fn new(kind: &'static str, detail: String, transform: T) -> Self {
        Self {
            transform,
            kind,
            detail,
            numbers: BatchNumbers::default(),
            errors: RowErrors::default(),
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

    fn set_on_row_error(&mut self, policy: OnRowError) {
        self.errors.set_policy(policy);
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
        let (change, columns) = self.errors.evaluate(self.transform.expressions(), change)?;
        let result = self.transform.apply(change, columns)?;
        numbers.output_rows += result.num_rows() as u64;
        if !result.is_empty() {
            out.push(result);
        }
        Ok(())
    }

    fn finish(&mut self, context: &BatchContext, _out: &mut Vec<ChangeBatch>) -> Result<()> {
        self.numbers.of(context);
        self.errors.settle()
    }

    fn reset(&mut self) {
        self.numbers = BatchNumbers::default();
        self.errors.reset();
    }

    fn statistics(&self) -> OperatorStatistics {
        let mut statistics = self.numbers.get();
        self.errors.add_statistics(&mut statistics);
        statistics
    }
}

/// Keeps the rows for which a condition is true.
pub struct Filter {
    /// The condition, of type boolean.
    pub condition: Arc<dyn PhysicalExpr>,
}

impl Transform for Filter {
    fn expressions(&self) -> &[Arc<dyn PhysicalExpr>] {
        std::slice::from_ref(&self.condition)
    }

    fn apply(&self, change: ChangeBatch, columns: Vec<ArrayRef>) -> Result<ChangeBatch> {
        let mask = as_condition(&columns[0])?;
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
    fn expressions(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.expressions
    }

    fn apply(&self, change: ChangeBatch, columns: Vec<ArrayRef>) -> Result<ChangeBatch> {
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
    fn apply(&self, change: ChangeBatch, _columns: Vec<ArrayRef>) -> Result<ChangeBatch> {
        super::consolidate::under_schema(change, &self.schema)
    }
}
