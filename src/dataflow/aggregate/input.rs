//! A pushed change, evaluated: keys, arguments, masks and weights, each once per batch.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Float64Type, UInt64Type};
use datafusion::arrow::row::Rows;
use datafusion::physical_expr::PhysicalExpr;

use super::keys::{BatchKeys, KeyFormat, to_integers};
use super::plan::{AggregatePlan, Argument, ArgumentForm, Mask};
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::expression::evaluate;
use crate::dataflow::row_errors::{FailedRows, evaluate_each};
use crate::error::{Error, Result};

/// An argument's values in the form its cells need.
#[derive(Debug)]
pub enum ArgumentValues {
    /// Not needed.
    Presence,
    /// 64-bit integers.
    Integer(ScalarBuffer<i64>),
    /// 128-bit integers.
    Wide(Vec<i128>),
    /// Floats.
    Float(ScalarBuffer<f64>),
    /// Booleans.
    Boolean(BooleanBuffer),
    /// Arrow-row bytes.
    Encoded(Rows),
}

/// What the shards read; shared by them.
#[derive(Debug)]
pub struct BatchInput {
    /// Number of rows.
    pub rows: usize,
    /// Group keys.
    pub keys: BatchKeys,
    /// Arguments, in plan order.
    pub arguments: Vec<ArgumentValues>,
    /// Masks, in plan order; `None` takes all.
    pub masks: Vec<Option<NullBuffer>>,
    /// Weights; `None`: all 1.
    pub weights: Option<ScalarBuffer<i64>>,
    /// Rows of each multiset.
    pub multisets: Vec<Rows>,
}

/// Computes an expression over a change; the function says on which rows the value is used.
type Evaluate<'a> =
    dyn FnMut(&Arc<dyn PhysicalExpr>, &dyn Fn(usize) -> bool) -> Result<ArrayRef> + 'a;

impl BatchInput {
    /// Evaluates a change.
    pub fn evaluate(
        plan: &AggregatePlan,
        format: &KeyFormat,
        group: &[Arc<dyn PhysicalExpr>],
        change: &ChangeBatch,
    ) -> Result<Self> {
        let evaluate =
            &mut |e: &Arc<dyn PhysicalExpr>, _: &dyn Fn(usize) -> bool| evaluate(e, change.rows());
        Self::build(plan, format, group, change, evaluate)
    }

    /// As [`Self::evaluate`] where some rows fail: NULL for what cannot be computed. The failing
    /// rows go to `failed`, but for those on which a FILTER passes the value over.
    pub fn evaluate_each(
        plan: &AggregatePlan,
        format: &KeyFormat,
        group: &[Arc<dyn PhysicalExpr>],
        change: &ChangeBatch,
        failed: &mut FailedRows,
    ) -> Result<Self> {
        let evaluate = &mut |e: &Arc<dyn PhysicalExpr>, is_used: &dyn Fn(usize) -> bool| {
            let mut failed_here = FailedRows::default();
            let values = evaluate_each(e, change.rows(), &mut failed_here)?;
            failed.add_where(failed_here, is_used);
            Ok(values)
        };
        Self::build(plan, format, group, change, evaluate)
    }

    fn build(
        plan: &AggregatePlan,
        format: &KeyFormat,
        group: &[Arc<dyn PhysicalExpr>],
        change: &ChangeBatch,
        evaluate: &mut Evaluate<'_>,
    ) -> Result<Self> {
        let rows = change.num_rows();
        let always = |_: usize| true;
        let group: Vec<_> = group
            .iter()
            .map(|e| evaluate(e, &always))
            .collect::<Result<_>>()?;
        let keys = format.batch_keys(&group, rows)?;
        let filters: Vec<NullBuffer> = plan
            .filters
            .iter()
            .map(|filter| {
                let array = evaluate(filter, &always)?;
                let array = array.as_boolean_opt().ok_or_else(|| {
                    Error::internal("the condition of an aggregate's filter is not boolean")
                })?;
                Ok(NullBuffer::new(match array.nulls() {
                    None => array.values().clone(),
                    Some(nulls) => array.values() & nulls.inner(),
                }))
            })
            .collect::<Result<_>>()?;
        let passes = |mask: usize, row: usize| {
            let filter = plan.masks[mask].filter;
            filter.is_none_or(|filter| filters[filter].is_valid(row))
        };
        let mut arguments = Vec::with_capacity(plan.arguments.len());
        let mut nulls = Vec::with_capacity(plan.arguments.len());
        for (index, argument) in plan.arguments.iter().enumerate() {
            let masks: Vec<usize> = plan.masks_of(index).collect();
            let is_used = |row: usize| masks.iter().any(|&mask| passes(mask, row));
            let array = evaluate(&argument.expression, &is_used)?;
            nulls.push(array.logical_nulls().filter(|n| n.null_count() > 0));
            arguments.push(argument_values(argument, &array)?);
        }
        let masks = plan
            .masks
            .iter()
            .map(|m| combine(m, &nulls, &filters, &arguments))
            .collect();
        let multisets = plan
            .multisets
            .iter()
            .map(|multiset| {
                let is_used = |row: usize| multiset.calls.iter().any(|call| passes(call.mask, row));
                let columns: Vec<_> = multiset
                    .expressions
                    .iter()
                    .map(|e| evaluate(e, &is_used))
                    .collect::<Result<_>>()?;
                Ok(multiset.converter.convert_columns(&columns)?)
            })
            .collect::<Result<_>>()?;
        let weights = change.weights().map(|w| w.values().clone());
        Ok(Self {
            rows,
            keys,
            arguments,
            masks,
            weights,
            multisets,
        })
    }
}

fn argument_values(argument: &Argument, array: &ArrayRef) -> Result<ArgumentValues> {
    Ok(match argument.form {
        ArgumentForm::Presence => ArgumentValues::Presence,
        ArgumentForm::Integer => match array.data_type() {
            DataType::Decimal128(_, _) => {
                ArgumentValues::Wide(array.as_primitive::<Decimal128Type>().values().to_vec())
            }
            DataType::UInt64 => {
                let values = array.as_primitive::<UInt64Type>().values();
                ArgumentValues::Wide(values.iter().map(|&v| v.into()).collect())
            }
            _ => ArgumentValues::Integer(to_integers(array)?.values().clone()),
        },
        ArgumentForm::Float => {
            let array = cast(array, &DataType::Float64)?;
            ArgumentValues::Float(array.as_primitive::<Float64Type>().values().clone())
        }
        ArgumentForm::Boolean => ArgumentValues::Boolean(array.as_boolean().values().clone()),
        ArgumentForm::Encoded { .. } => {
            let converter = argument
                .converter
                .as_ref()
                .expect("an encoded argument has its converter");
            ArgumentValues::Encoded(converter.convert_columns(std::slice::from_ref(array))?)
        }
    })
}

fn combine(
    mask: &Mask,
    nulls: &[Option<NullBuffer>],
    filters: &[NullBuffer],
    arguments: &[ArgumentValues],
) -> Option<NullBuffer> {
    let mut result = mask.filter.map(|filter| filters[filter].clone());
    for &argument in &mask.arguments {
        result = NullBuffer::union(result.as_ref(), nulls[argument].as_ref());
    }
    if let Some((argument, value)) = mask.truth {
        let ArgumentValues::Boolean(values) = &arguments[argument] else {
            unreachable!("a truth mask names a boolean argument");
        };
        let wanted = NullBuffer::new(if value { values.clone() } else { !values });
        result = NullBuffer::union(result.as_ref(), Some(&wanted));
    }
    result
}
