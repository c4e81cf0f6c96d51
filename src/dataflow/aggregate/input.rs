//! A pushed change, evaluated: keys, arguments, masks and weights, each once per batch.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Float64Type, UInt64Type};
use datafusion::arrow::row::Rows;
use datafusion::physical_expr::PhysicalExpr;

use super::keys::{BatchKeys, KeyFormat, to_integers};
use super::plan::{AggregatePlan, Argument, ArgumentForm, Mask};
use crate::dataflow::change::ChangeBatch;
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
    /// Hash of each row's key.
    pub hashes: Vec<u64>,
    /// Arguments, in plan order.
    pub arguments: Vec<ArgumentValues>,
    /// Masks, in plan order; `None` takes all.
    pub masks: Vec<Option<NullBuffer>>,
    /// Weights; `None`: all 1.
    pub weights: Option<ScalarBuffer<i64>>,
    /// Rows of each multiset.
    pub multisets: Vec<Rows>,
}

impl BatchInput {
    /// Evaluates a change.
    pub fn evaluate(
        plan: &AggregatePlan,
        format: &KeyFormat,
        group: &[Arc<dyn PhysicalExpr>],
        change: &ChangeBatch,
    ) -> Result<Self> {
        let batch = change.rows();
        let rows = batch.num_rows();
        let group: Vec<_> = group
            .iter()
            .map(|e| evaluate(e, batch))
            .collect::<Result<_>>()?;
        let (keys, hashes) = format.batch_keys(&group, rows)?;
        let mut arguments = Vec::with_capacity(plan.arguments.len());
        let mut nulls = Vec::with_capacity(plan.arguments.len());
        for argument in &plan.arguments {
            let array = evaluate(&argument.expression, batch)?;
            nulls.push(array.logical_nulls().filter(|n| n.null_count() > 0));
            arguments.push(argument_values(argument, &array)?);
        }
        let filters: Vec<NullBuffer> = plan
            .filters
            .iter()
            .map(|filter| {
                let array = evaluate(filter, batch)?;
                let array = array.as_boolean_opt().ok_or_else(|| {
                    Error::internal("the condition of an aggregate's filter is not boolean")
                })?;
                Ok(NullBuffer::new(match array.nulls() {
                    None => array.values().clone(),
                    Some(nulls) => array.values() & nulls.inner(),
                }))
            })
            .collect::<Result<_>>()?;
        let masks = plan
            .masks
            .iter()
            .map(|m| combine(m, &nulls, &filters, &arguments))
            .collect();
        let multisets = plan
            .multisets
            .iter()
            .map(|multiset| {
                let columns: Vec<_> = multiset
                    .expressions
                    .iter()
                    .map(|e| evaluate(e, batch))
                    .collect::<Result<_>>()?;
                Ok(multiset.converter.convert_columns(&columns)?)
            })
            .collect::<Result<_>>()?;
        let weights = change.weights().map(|w| w.values().clone());
        Ok(Self {
            rows,
            keys,
            hashes,
            arguments,
            masks,
            weights,
            multisets,
        })
    }
}

/// An expression's values over a batch, a scalar repeated.
pub fn evaluate(expression: &Arc<dyn PhysicalExpr>, batch: &RecordBatch) -> Result<ArrayRef> {
    Ok(expression.evaluate(batch)?.into_array(batch.num_rows())?)
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
