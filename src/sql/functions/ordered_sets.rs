//! What `percentile_cont`, `percentile_disc` and `mode` choose of a group's values, which
//! [`crate::sql::rewrite`] gathers into an array in their order, and `num_nulls`.
//!
//! ```text
//! percentile_disc(p)   the first value with a share p of all at or before it
//! percentile_cont(p)   between the two values around p (n - 1), as far as it lies between them
//! mode()               the value that comes most often, of several the first
//! ```
//! An array of shares gives an array of values.

use std::sync::Arc;

use datafusion::arrow::array::types::IntervalMonthDayNano;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int32Array, IntervalMonthDayNanoArray, ListArray,
    UInt32Array, make_comparator,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{SortOptions, cast, take};
use datafusion::arrow::datatypes::{
    DataType, Field, FieldRef, Float64Type, IntervalMonthDayNanoType,
};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};

use super::intervals::{INTERVAL, length_us, times};
use super::{arrays, no_function, result, udf};
use crate::error::{Error, Result, sqlstate};

/// `percentile_cont_of(values, share)`, `percentile_disc_of(values, share)`, `mode_of(values)`,
/// `num_nulls(…)`, `num_nonnulls(…)`.
pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let chosen = [Chosen::Between, Chosen::AtOrAfter, Chosen::MostFrequent];
    let of_arrays = chosen.into_iter().map(|chosen| {
        udf(OfSorted {
            chosen,
            signature: Signature::any(chosen.arguments(), Volatility::Immutable),
        })
    });
    let counts = [true, false].into_iter().map(|nulls| {
        udf(CountOfNulls {
            nulls,
            signature: Signature::one_of(vec![TypeSignature::VariadicAny], Volatility::Immutable),
        })
    });
    of_arrays.chain(counts).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Chosen {
    /// `percentile_cont`
    Between,
    /// `percentile_disc`
    AtOrAfter,
    /// `mode`
    MostFrequent,
}

impl Chosen {
    fn arguments(self) -> usize {
        match self {
            Self::Between | Self::AtOrAfter => 2,
            Self::MostFrequent => 1,
        }
    }

    /// What it is called in PostgreSQL.
    fn aggregate(self) -> &'static str {
        match self {
            Self::Between => "percentile_cont",
            Self::AtOrAfter => "percentile_disc",
            Self::MostFrequent => "mode",
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OfSorted {
    chosen: Chosen,
    signature: Signature,
}

impl OfSorted {
    /// The field of one value; `None` for values that have nothing between them.
    fn value_field(&self, item: &FieldRef) -> Option<FieldRef> {
        if self.chosen != Chosen::Between {
            return Some(Arc::new(item.as_ref().clone().with_nullable(true)));
        }
        let data_type = match item.data_type() {
            DataType::Interval(_) => INTERVAL,
            number if number.is_numeric() || number.is_null() => DataType::Float64,
            _ => return None,
        };
        Some(Arc::new(Field::new(item.name(), data_type, true)))
    }
}

impl ScalarUDFImpl for OfSorted {
    fn name(&self) -> &str {
        match self.chosen {
            Chosen::Between => "percentile_cont_of",
            Chosen::AtOrAfter => "percentile_disc_of",
            Chosen::MostFrequent => "mode_of",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Err(Error::internal("what is chosen of an array has a field, not a type").into())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let share = args.arg_fields.get(1).map(|field| field.data_type());
        let values = args.arg_fields.first().map(|field| field.data_type());
        let Some(DataType::List(item)) = values else {
            return Err(Error::internal("values are gathered into an array").into());
        };
        let Some(value) = self.value_field(item) else {
            let share = match share {
                Some(DataType::List(_)) => DataType::new_list(DataType::Float64, true),
                _ => DataType::Float64,
            };
            let types = [share, item.data_type().clone()];
            return Err(no_function(self.chosen.aggregate(), &types).into());
        };
        Ok(match share {
            Some(DataType::List(_)) => {
                Arc::new(Field::new(self.name(), DataType::List(value), true))
            }
            _ => Arc::new(value.as_ref().clone().with_name(self.name())),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let lists = columns[0].as_list::<i32>();
        let Some(shares) = columns.get(1) else {
            let places = (0..lists.len()).map(|row| most_frequent(lists, row));
            let places = places.collect::<DataFusionResult<UInt32Array>>()?;
            return result(take(lists.values(), &places, None)?, constant);
        };
        let wanted = Wanted::of(lists, shares)?;
        let values = match self.chosen {
            Chosen::AtOrAfter => wanted.at_or_after(lists)?,
            _ => wanted.between(lists)?,
        };
        let DataType::List(item) = args.return_field.data_type() else {
            return result(values, constant);
        };
        if !matches!(shares.data_type(), DataType::List(_)) {
            return result(values, constant);
        }
        let item = Arc::clone(item);
        let arrays = ListArray::try_new(item, wanted.offsets, values, wanted.nulls)?;
        result(Arc::new(arrays), constant)
    }
}

/// The shares that are asked for, flat: of which row, and which share of its values.
struct Wanted {
    shares: Vec<Option<(usize, f64)>>,
    /// Where those of each row lie, and which rows have none.
    offsets: OffsetBuffer<i32>,
    nulls: Option<NullBuffer>,
}

impl Wanted {
    fn of(lists: &ListArray, shares: &ArrayRef) -> Result<Self> {
        let mut flat = Vec::new();
        let mut lengths = Vec::with_capacity(lists.len());
        let mut is_there = Vec::with_capacity(lists.len());
        let share = |row: usize, share: Option<f64>| match share {
            Some(share) if !(0.0..=1.0).contains(&share) => Err(not_a_share(share)),
            Some(share) if has_values(lists, row) => Ok(Some((row, share))),
            _ => Ok(None),
        };
        match shares.as_list_opt::<i32>() {
            Some(several) => {
                let numbers = cast(several.values(), &DataType::Float64)?;
                let numbers = numbers.as_primitive::<Float64Type>();
                for row in 0..lists.len() {
                    let given = several.is_valid(row) && has_values(lists, row);
                    let places = match given {
                        true => range_of(several, row),
                        false => 0..0,
                    };
                    lengths.push(places.len());
                    is_there.push(given);
                    for place in places {
                        let number = numbers.is_valid(place).then(|| numbers.value(place));
                        flat.push(share(row, number)?);
                    }
                }
            }
            None => {
                let numbers = cast(shares, &DataType::Float64)?;
                for (row, number) in numbers.as_primitive::<Float64Type>().iter().enumerate() {
                    flat.push(share(row, number)?);
                    lengths.push(1);
                    is_there.push(true);
                }
            }
        }
        Ok(Self {
            shares: flat,
            offsets: OffsetBuffer::from_lengths(lengths),
            nulls: Some(NullBuffer::from(is_there)),
        })
    }

    fn at_or_after(&self, lists: &ListArray) -> Result<ArrayRef> {
        let places = self.shares.iter().map(|wanted| {
            let (row, share) = (*wanted)?;
            let places = range_of(lists, row);
            let place = (share * places.len() as f64).ceil().max(1.0) as usize - 1;
            u32::try_from(places.start + place).ok()
        });
        let places: UInt32Array = places.collect();
        Ok(take(lists.values(), &places, None)?)
    }

    fn between(&self, lists: &ListArray) -> Result<ArrayRef> {
        // The values before and after, and how far between them.
        let around = |wanted: &Option<(usize, f64)>| {
            let (row, share) = (*wanted)?;
            let places = range_of(lists, row);
            let place = share * (places.len() - 1) as f64;
            let (before, after) = (place.floor(), place.ceil());
            let at = |place: f64| places.start + place as usize;
            Some((at(before), at(after), place - before))
        };
        let around = self.shares.iter().map(around);
        if let DataType::Interval(_) = lists.value_type() {
            let values = lists.values().as_primitive::<IntervalMonthDayNanoType>();
            let between = around.map(|around| match around {
                None => Ok(None),
                Some((before, after, part)) => {
                    interval_between(values.value(before), values.value(after), part).map(Some)
                }
            });
            let between = between.collect::<Result<IntervalMonthDayNanoArray>>()?;
            return Ok(Arc::new(between));
        }
        let values = cast(lists.values(), &DataType::Float64)?;
        let values = values.as_primitive::<Float64Type>();
        let between: Float64Array = around
            .map(|around| {
                let (before, after, part) = around?;
                let (first, second) = (values.value(before), values.value(after));
                Some(match before == after {
                    true => first,
                    false => first + part * (second - first),
                })
            })
            .collect();
        Ok(Arc::new(between))
    }
}

fn interval_between(
    first: IntervalMonthDayNano,
    second: IntervalMonthDayNano,
    part: f64,
) -> Result<IntervalMonthDayNano> {
    let out_of_range = super::intervals::out_of_range;
    let distance = IntervalMonthDayNano::new(
        second
            .months
            .checked_sub(first.months)
            .ok_or_else(out_of_range)?,
        second
            .days
            .checked_sub(first.days)
            .ok_or_else(out_of_range)?,
        second
            .nanoseconds
            .checked_sub(first.nanoseconds)
            .ok_or_else(out_of_range)?,
    );
    let part = times(distance, part)?;
    Ok(IntervalMonthDayNano::new(
        first
            .months
            .checked_add(part.months)
            .ok_or_else(out_of_range)?,
        first.days.checked_add(part.days).ok_or_else(out_of_range)?,
        first
            .nanoseconds
            .checked_add(part.nanoseconds)
            .ok_or_else(out_of_range)?,
    ))
}

/// Where the values of a row lie.
fn range_of(lists: &ListArray, row: usize) -> std::ops::Range<usize> {
    let offsets = lists.value_offsets();
    offsets[row] as usize..offsets[row + 1] as usize
}

fn has_values(lists: &ListArray, row: usize) -> bool {
    lists.is_valid(row) && !range_of(lists, row).is_empty()
}

/// Where the value of a row lies that comes most often.
fn most_frequent(lists: &ListArray, row: usize) -> DataFusionResult<Option<u32>> {
    if !has_values(lists, row) {
        return Ok(None);
    }
    let places = range_of(lists, row);
    let values = lists.values();
    let lengths = values.as_primitive_opt::<IntervalMonthDayNanoType>();
    let compared = make_comparator(values, values, SortOptions::default())?;
    let equal = |one: usize, other: usize| match lengths {
        Some(values) => length_us(values.value(one)) == length_us(values.value(other)),
        None => compared(one, other).is_eq(),
    };
    let (mut best, mut most) = (places.start, 0);
    let mut first = places.start;
    for place in places.clone() {
        if !equal(first, place) {
            first = place;
        }
        if place - first + 1 > most {
            (best, most) = (first, place - first + 1);
        }
    }
    Ok(u32::try_from(best).ok())
}

fn not_a_share(share: f64) -> Error {
    Error::new(
        sqlstate::NUMERIC_OUT_OF_RANGE,
        format!("percentile value {share} is not between 0 and 1"),
    )
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CountOfNulls {
    /// Those that are NULL, or those that are not.
    nulls: bool,
    signature: Signature,
}

impl ScalarUDFImpl for CountOfNulls {
    fn name(&self) -> &str {
        match self.nulls {
            true => "num_nulls",
            false => "num_nonnulls",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Int32)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let nulls: Vec<_> = columns.iter().map(|c| c.logical_nulls()).collect();
        let rows = columns.first().map_or(0, |column| column.len());
        let counts: Int32Array = (0..rows)
            .map(|row| {
                let is_null =
                    |n: &&Option<NullBuffer>| n.as_ref().is_some_and(|nulls| nulls.is_null(row));
                let count = nulls.iter().filter(|n| is_null(n) == self.nulls).count();
                i32::try_from(count).unwrap_or(i32::MAX)
            })
            .collect();
        result(Arc::new(counts), constant)
    }
}
