//! `sum` of whole numbers that fails where it does not fit, instead of going on from the other end.
//!
//! Floats are added by [`super::float_totals`], all else by the engine. PostgreSQL's sum of bigint is numeric; ours stays bigint, so that a
//! sum over a stream is one machine word. Absent: `sum(DISTINCT …)`, which is the engine's.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array};
use datafusion::arrow::compute::{and, is_not_null, not, nullif, prep_null_mask_filter};
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, Expr, GroupsAccumulator, Operator,
    ReversedUDAF, SetMonotonicity, Signature, TypeSignature, Volatility,
};

use super::float_totals;
use super::interval_totals::{self, Outcome};
use super::intervals::INTERVAL;
use crate::error::{Error, sqlstate};

/// `sum`
pub(crate) fn sum() -> Arc<AggregateUDF> {
    let inner = Sum::new();
    let signature = Signature::one_of(
        vec![
            TypeSignature::Exact(vec![INTERVAL]),
            inner.signature().type_signature.clone(),
        ],
        Volatility::Immutable,
    );
    Arc::new(AggregateUDF::new_from_impl(CheckedSum { inner, signature }))
}

fn out_of_range() -> Error {
    Error::new(sqlstate::NUMERIC_OUT_OF_RANGE, "bigint out of range")
        .detail("The sum of bigint values is a bigint.")
        .hint("Sum the values as numeric: sum(x::numeric).")
}

fn is_ours(args: &AccumulatorArgs<'_>) -> bool {
    !args.is_distinct && args.return_field.data_type() == &DataType::Int64
}

/// The accumulator of one sum that is not the engine's.
fn own_accumulator(args: &AccumulatorArgs<'_>) -> Option<Box<dyn Accumulator>> {
    match is_ours(args) {
        true => Some(Box::new(Total::default())),
        false => interval_totals::accumulator(&args.return_field, Outcome::Sum),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedSum {
    inner: Sum,
    signature: Signature,
}

impl AggregateUDFImpl for CheckedSum {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        match types {
            [DataType::Interval(_)] => Ok(INTERVAL),
            _ => self.inner.return_type(types),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DataFusionResult<Box<dyn Accumulator>> {
        match own_accumulator(&args) {
            Some(total) => Ok(total),
            None => {
                let result = Arc::clone(&args.return_field);
                Ok(float_totals::of_one(&result, self.inner.accumulator(args)?))
            }
        }
    }

    fn state_fields(&self, args: StateFieldsArgs) -> DataFusionResult<Vec<FieldRef>> {
        match interval_totals::state_fields(&args.return_field) {
            Some(fields) => Ok(fields),
            None => self.inner.state_fields(args),
        }
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        !interval_totals::is_interval(&args.return_field)
            && self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> DataFusionResult<Box<dyn GroupsAccumulator>> {
        match is_ours(&args) {
            true => Ok(Box::new(Totals::default())),
            false => {
                let result = Arc::clone(&args.return_field);
                let inner = self.inner.create_groups_accumulator(args)?;
                Ok(float_totals::of_groups(&result, inner))
            }
        }
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> DataFusionResult<Box<dyn Accumulator>> {
        let own = own_accumulator(&args).or_else(|| float_totals::sliding(&args, Outcome::Sum));
        match own {
            Some(total) => Ok(total),
            None => self.inner.create_sliding_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_expr()
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn set_monotonicity(&self, data_type: &DataType) -> SetMonotonicity {
        self.inner.set_monotonicity(data_type)
    }

    fn simplify_expr_op_literal(
        &self,
        function: &AggregateFunction,
        argument: &Expr,
        operator: Operator,
        literal: &Expr,
        argument_is_left: bool,
    ) -> DataFusionResult<Option<Expr>> {
        self.inner
            .simplify_expr_op_literal(function, argument, operator, literal, argument_is_left)
    }
}

/// One sum, exact in between; values may leave it again, as a window's frame moves on.
#[derive(Debug, Default)]
struct Total {
    sum: i128,
    count: u64,
}

impl Total {
    fn value(&self) -> DataFusionResult<ScalarValue> {
        if self.count == 0 {
            return Ok(ScalarValue::Int64(None));
        }
        let sum = i64::try_from(self.sum).map_err(|_| out_of_range())?;
        Ok(ScalarValue::Int64(Some(sum)))
    }
}

impl Accumulator for Total {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        let values = values[0].as_primitive::<Int64Type>();
        self.sum += values.iter().flatten().map(i128::from).sum::<i128>();
        self.count += (values.len() - values.null_count()) as u64;
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        let values = values[0].as_primitive::<Int64Type>();
        self.sum -= values.iter().flatten().map(i128::from).sum::<i128>();
        self.count -= (values.len() - values.null_count()) as u64;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        self.value()
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        Ok(vec![self.value()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        self.update_batch(states)
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }
}

/// Sums of many groups.
#[derive(Debug, Default)]
struct Totals {
    sums: Vec<Option<i64>>,
}

impl GroupsAccumulator for Totals {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        group_count: usize,
    ) -> DataFusionResult<()> {
        self.sums.resize(group_count, None);
        let values = values[0].as_primitive::<Int64Type>();
        let all = values.null_count() == 0 && filter.is_none();
        for (row, group) in groups.iter().enumerate() {
            let counts = all
                || values.is_valid(row) && filter.is_none_or(|f| f.is_valid(row) && f.value(row));
            if counts {
                let sum = &mut self.sums[*group];
                let added = sum.unwrap_or(0).checked_add(values.value(row));
                *sum = Some(added.ok_or_else(out_of_range)?);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> DataFusionResult<ArrayRef> {
        let sums = emit_to.take_needed(&mut self.sums);
        Ok(Arc::new(Int64Array::from(sums)))
    }

    fn state(&mut self, emit_to: EmitTo) -> DataFusionResult<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn merge_batch(
        &mut self,
        states: &[ArrayRef],
        groups: &[usize],
        group_count: usize,
    ) -> DataFusionResult<()> {
        self.update_batch(states, groups, None, group_count)
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        filter: Option<&BooleanArray>,
    ) -> DataFusionResult<Vec<ArrayRef>> {
        let Some(filter) = filter else {
            return Ok(vec![Arc::clone(&values[0])]);
        };
        let counts = match filter.null_count() {
            0 => filter.clone(),
            _ => prep_null_mask_filter(filter),
        };
        let counts = and(&counts, &is_not_null(&values[0])?)?;
        Ok(vec![nullif(&values[0], &not(&counts)?)?])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<Option<i64>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_fail_where_a_sum_does_not_fit() {
        let mut totals = Totals::default();
        let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(i64::MAX), Some(2), None]));
        let filter = BooleanArray::from(vec![Some(true), Some(true), None]);
        totals
            .update_batch(&[Arc::clone(&values)], &[0, 1, 2], Some(&filter), 3)
            .unwrap();
        assert!(totals.update_batch(&[values], &[1, 0, 2], None, 3).is_err());
        let mut totals = Totals::default();
        let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(-3)]));
        totals.update_batch(&[values], &[0, 1, 0], None, 2).unwrap();
        let sums = totals.evaluate(EmitTo::All).unwrap();
        assert_eq!(
            sums.as_primitive::<Int64Type>(),
            &Int64Array::from(vec![Some(-2), None])
        );
    }

    #[test]
    fn a_total_may_pass_through_what_does_not_fit() {
        let mut total = Total::default();
        let large: ArrayRef = Arc::new(Int64Array::from(vec![i64::MAX, 1]));
        total.update_batch(&[large]).unwrap();
        assert!(total.evaluate().is_err());
        let one: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        total.retract_batch(&[one]).unwrap();
        assert_eq!(
            total.evaluate().unwrap(),
            ScalarValue::Int64(Some(i64::MAX))
        );
    }
}
