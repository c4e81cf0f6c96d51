//! Output columns from state columns.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int64Array, UInt64Array,
    new_null_array,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::{cast, concat, kernels::cmp};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, DecimalType, i256};

use super::columns::StateColumn;
use super::keys::from_integers;
use super::plan::{CountSource, Output, OutputKind};
use crate::error::{Error, Result, sqlstate};
use crate::values::float::one_nan;

/// State of some groups: their row counts and columns, indexed alike.
#[derive(Clone, Copy)]
pub struct GroupState<'a> {
    /// Row counts.
    pub rows: &'a [i64],
    /// Columns, in plan order.
    pub columns: &'a [StateColumn],
}

impl GroupState<'_> {
    fn counts(&self, source: CountSource) -> &[i64] {
        match source {
            CountSource::Rows => self.rows,
            CountSource::Column(column) => self.columns[column].integers(),
        }
    }

    /// Which of `indexes` have a count above 0; `None`: all.
    fn present(&self, source: CountSource, indexes: &[u32]) -> Option<NullBuffer> {
        let counts = self.counts(source);
        if indexes.iter().all(|&i| counts[i as usize] > 0) {
            return None;
        }
        Some(indexes.iter().map(|&i| counts[i as usize] > 0).collect())
    }
}

/// Groups whose result cannot be computed, such as a sum that does not fit its type.
#[derive(Debug, Default)]
pub struct FailedGroups {
    /// Places among the groups that were asked for.
    pub places: BTreeSet<usize>,
    /// The first error.
    pub first: Option<Error>,
}

impl FailedGroups {
    fn add(&mut self, place: usize, error: Error) {
        self.places.insert(place);
        self.first.get_or_insert(error);
    }
}

/// The output columns for the groups at `indexes`, NULL where a result cannot be computed.
pub fn outputs(
    outputs: &[Output],
    state: GroupState<'_>,
    indexes: &[u32],
) -> Result<(Vec<ArrayRef>, FailedGroups)> {
    let mut failed = FailedGroups::default();
    let columns = outputs
        .iter()
        .map(|of| match output(of, state, indexes) {
            Err(error) if error.is_of_value() => output_each(of, state, indexes, &mut failed),
            other => other,
        })
        .collect::<Result<Vec<_>>>()?;
    Ok((columns, failed))
}

fn output_each(
    of: &Output,
    state: GroupState<'_>,
    indexes: &[u32],
    failed: &mut FailedGroups,
) -> Result<ArrayRef> {
    let mut parts = Vec::with_capacity(indexes.len());
    for (place, index) in indexes.iter().enumerate() {
        parts.push(match output(of, state, std::slice::from_ref(index)) {
            Err(error) if error.is_of_value() => {
                failed.add(place, error);
                new_null_array(&of.data_type, 1)
            }
            other => other?,
        });
    }
    let parts: Vec<_> = parts.iter().map(AsRef::as_ref).collect();
    Ok(concat(&parts)?)
}

/// The output column for the groups at `indexes`.
fn output(output: &Output, state: GroupState<'_>, indexes: &[u32]) -> Result<ArrayRef> {
    let data_type = &output.data_type;
    let at = |i: &u32| *i as usize;
    Ok(match &output.kind {
        OutputKind::Count(source) => {
            let counts = state.counts(*source);
            let counts = Int64Array::from_iter_values(indexes.iter().map(|i| counts[at(i)]));
            from_integers(counts, data_type)?
        }
        OutputKind::Sum { sum, count } => {
            let sums = state.columns[*sum].wides();
            let sums = indexes.iter().map(|i| sums[at(i)]).collect();
            wide_array(sums, state.present(*count, indexes), data_type)?
        }
        OutputKind::ExtremeInteger { value, count } => {
            let present = state.present(*count, indexes);
            let values = state.columns[*value].wides();
            let values = indexes.iter().enumerate().map(|(n, i)| {
                if present.as_ref().is_none_or(|p| p.is_valid(n)) {
                    values[at(i)]
                } else {
                    0
                }
            });
            wide_array(values.collect(), present.clone(), data_type)?
        }
        OutputKind::SumFloat { sum: value, count } | OutputKind::ExtremeFloat { value, count } => {
            let values = state.columns[*value].floats();
            let values: Vec<f64> = indexes.iter().map(|i| values[at(i)]).collect();
            float_array(values, state.present(*count, indexes), data_type)?
        }
        OutputKind::AverageFloat { sum, count } => {
            let (sums, counts) = (state.columns[*sum].floats(), state.counts(*count));
            let values = indexes.iter().map(|i| sums[at(i)] / counts[at(i)] as f64);
            float_array(values.collect(), state.present(*count, indexes), data_type)?
        }
        OutputKind::AverageDecimal {
            sum,
            count,
            multiplier,
        } => {
            let (sums, counts) = (state.columns[*sum].wides(), state.counts(*count));
            let values = indexes
                .iter()
                .map(|i| average_decimal(sums[at(i)], counts[at(i)], *multiplier))
                .collect::<Result<_>>()?;
            wide_array(values, state.present(*count, indexes), data_type)?
        }
        OutputKind::Boolean {
            decisive,
            decisive_value,
            count,
        } => {
            let decisive = state.counts(*decisive);
            let values = indexes
                .iter()
                .map(|i| (decisive[at(i)] > 0) == *decisive_value);
            Arc::new(BooleanArray::new(
                values.collect(),
                state.present(*count, indexes),
            ))
        }
        OutputKind::Variance {
            moments,
            population,
            root,
        } => {
            let (counts, squares) = (
                state.columns[*moments].floats(),
                state.columns[*moments + 2].floats(),
            );
            let values = indexes
                .iter()
                .map(|i| variance(counts[at(i)], squares[at(i)], *population));
            let values: Float64Array = values
                .map(|v| if *root { v.map(f64::sqrt) } else { v })
                .collect();
            one_nan(Arc::new(values))
        }
        OutputKind::Stored { value, converter } => {
            let values = state.columns[*value].bytes();
            let parser = converter.parser();
            let null = null_row(converter, data_type)?;
            let rows = indexes.iter().map(|i| match &values[at(i)] {
                Some(bytes) => parser.parse(bytes),
                None => parser.parse(&null),
            });
            converter.convert_rows(rows)?.swap_remove(0)
        }
    })
}

/// The groups for which [`outputs`] would fail, without making the columns: a result that is not
/// shown in this batch must not fail whoever reads it later.
pub fn check(outputs: &[Output], state: GroupState<'_>, indexes: &[u32]) -> Result<FailedGroups> {
    let mut failed = FailedGroups::default();
    for column in outputs {
        match check_column(column, state, indexes) {
            Err(error) if error.is_of_value() => {}
            other => {
                other?;
                continue;
            }
        }
        for (place, index) in indexes.iter().enumerate() {
            match check_column(column, state, std::slice::from_ref(index)) {
                Err(error) if error.is_of_value() => failed.add(place, error),
                other => other?,
            }
        }
    }
    Ok(failed)
}

fn check_column(output_column: &Output, state: GroupState<'_>, indexes: &[u32]) -> Result<()> {
    let data_type = &output_column.data_type;
    match &output_column.kind {
        OutputKind::Sum { sum, count } => {
            let (sums, counts) = (state.columns[*sum].wides(), state.counts(*count));
            let (least, greatest): (i128, i128) = match data_type {
                DataType::Decimal128(precision, _) => {
                    let bound = 10i128.pow(u32::from(*precision)) - 1;
                    (-bound, bound)
                }
                DataType::UInt64 => (0, u64::MAX.into()),
                _ => (i64::MIN.into(), i64::MAX.into()),
            };
            let is_out = |&i: &u32| {
                let i = i as usize;
                counts[i] > 0 && !(least..=greatest).contains(&sums[i])
            };
            if indexes.iter().any(is_out) {
                return Err(out_of_range(data_type));
            }
            Ok(())
        }
        OutputKind::AverageDecimal {
            sum, multiplier, ..
        } => {
            let precision = match data_type {
                DataType::Decimal128(precision, _) => u32::from(*precision),
                _ => 0,
            };
            // A sum that fits without being divided fits by any count.
            let fits = (10i128.pow(precision) / multiplier).unsigned_abs();
            let sums = state.columns[*sum].wides();
            let is_large = |&i: &u32| sums[i as usize].unsigned_abs() >= fits;
            let large: Vec<u32> = indexes.iter().copied().filter(is_large).collect();
            output(output_column, state, &large).map(|_| ())
        }
        // A count, an extreme, a float or a stored value always fits.
        _ => Ok(()),
    }
}

/// The row form of NULL, for groups whose value was never set.
fn null_row(
    converter: &datafusion::arrow::row::RowConverter,
    data_type: &DataType,
) -> Result<Vec<u8>> {
    let null = datafusion::arrow::array::new_null_array(data_type, 1);
    Ok(converter.convert_columns(&[null])?.row(0).data().to_vec())
}

fn out_of_range(data_type: &DataType) -> Error {
    let name = match data_type {
        DataType::Int64 | DataType::UInt64 => "bigint",
        _ => "numeric",
    };
    Error::new(
        sqlstate::NUMERIC_OUT_OF_RANGE,
        format!("{name} out of range"),
    )
    .detail("The result of an aggregate does not fit its type.")
    .hint("Cast the argument to a wider type, such as sum(column::numeric).")
}

fn wide_array(
    values: Vec<i128>,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let is_null = |n: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(n));
    match data_type {
        DataType::Decimal128(precision, scale) => {
            for (n, value) in values.iter().enumerate() {
                if !is_null(n)
                    && Decimal128Type::validate_decimal_precision(*value, *precision, *scale)
                        .is_err()
                {
                    return Err(out_of_range(data_type));
                }
            }
            let array = Decimal128Array::new(values.into(), nulls);
            Ok(Arc::new(
                array.with_precision_and_scale(*precision, *scale)?,
            ))
        }
        DataType::UInt64 => {
            let values = narrow::<u64>(&values, data_type)?;
            Ok(Arc::new(UInt64Array::new(values.into(), nulls)))
        }
        _ => {
            let values = narrow::<i64>(&values, data_type)?;
            from_integers(Int64Array::new(values.into(), nulls), data_type)
        }
    }
}

fn narrow<T: TryFrom<i128>>(values: &[i128], data_type: &DataType) -> Result<Vec<T>> {
    let narrowed: std::result::Result<_, _> = values.iter().map(|&v| T::try_from(v)).collect();
    narrowed.map_err(|_| out_of_range(data_type))
}

fn float_array(
    values: Vec<f64>,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let array = one_nan(Arc::new(Float64Array::new(values.into(), nulls)));
    if *data_type == DataType::Float64 {
        Ok(array)
    } else {
        Ok(cast(&array, data_type)?)
    }
}

fn average_decimal(sum: i128, count: i64, multiplier: i128) -> Result<i128> {
    if count == 0 {
        return Ok(0);
    }
    if let Some(scaled) = sum.checked_mul(multiplier) {
        return Ok(scaled / i128::from(count));
    }
    let scaled = i256::from_i128(sum).wrapping_mul(i256::from_i128(multiplier));
    scaled
        .wrapping_div(i256::from_i128(count.into()))
        .to_i128()
        .ok_or_else(|| out_of_range(&DataType::Decimal128(38, 0)))
}

fn variance(count: f64, squares: f64, population: bool) -> Option<f64> {
    let divisor = if population { count } else { count - 1.0 };
    (divisor > 0.0).then(|| squares / divisor)
}

/// Marks the rows at which two columns differ; equal nulls are equal, floats by total order.
pub fn mark_different(old: &ArrayRef, new: &ArrayRef, different: &mut [bool]) -> Result<()> {
    if old.data_type().is_nested() {
        let compare = datafusion::arrow::array::make_comparator(old, new, Default::default())?;
        for (index, mark) in different.iter_mut().enumerate() {
            *mark |= compare(index, index).is_ne();
        }
        return Ok(());
    }
    let distinct = cmp::distinct(old, new)?;
    for (mark, value) in different.iter_mut().zip(distinct.values()) {
        *mark |= value;
    }
    Ok(())
}
