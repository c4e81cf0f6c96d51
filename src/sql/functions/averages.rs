//! `avg` with PostgreSQL's types: numeric over whole numbers and numerics, with 16 fractional
//! digits at least, and double precision over floats. The computing is the engine's, which gives a
//! numeric four digits more than its argument has: the argument gets the digits that are missing.
//! Intervals are averaged by [`super::interval_totals`], and see [`super::float_totals`].

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result as DataFusionResult;
use datafusion::functions_aggregate::average::Avg;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
    Volatility,
};

use super::float_totals;
use super::interval_totals::{self, Outcome};
use super::intervals::INTERVAL;
use super::no_function;

/// Fractional digits of the argument, at least; the result has four more.
const ARGUMENT_SCALE: i8 = 12;

/// `avg`
pub(crate) fn avg() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(Average {
        inner: Avg::new(),
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

/// The type in which an argument is averaged.
fn argument_type(given: &DataType) -> Option<DataType> {
    let scale = ARGUMENT_SCALE;
    let digits = scale.unsigned_abs();
    Some(match given {
        DataType::Int8 | DataType::Int16 => DataType::Decimal128(5 + digits, scale),
        DataType::UInt8 | DataType::UInt16 | DataType::Int32 => {
            DataType::Decimal128(10 + digits, scale)
        }
        DataType::UInt32 | DataType::Int64 | DataType::UInt64 => {
            DataType::Decimal128(20 + digits, scale)
        }
        DataType::Decimal128(precision, own) if *own < scale => {
            let more = scale.abs_diff(*own);
            DataType::Decimal128(precision.saturating_add(more).min(38), scale)
        }
        DataType::Decimal128(..) => given.clone(),
        float if float.is_floating() => DataType::Float64,
        DataType::Null => DataType::Float64,
        DataType::Interval(_) | DataType::Duration(_) => INTERVAL,
        _ => return None,
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Average {
    inner: Avg,
    signature: Signature,
}

impl AggregateUDFImpl for Average {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        match types {
            [given] => match argument_type(given) {
                Some(argument) => Ok(vec![argument]),
                None => Err(no_function("avg", types).into()),
            },
            _ => Err(no_function("avg", types).into()),
        }
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        match types {
            [DataType::Interval(_)] => Ok(INTERVAL),
            _ => self.inner.return_type(types),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DataFusionResult<Box<dyn Accumulator>> {
        match interval_totals::accumulator(&args.return_field, Outcome::Average) {
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
        let result = Arc::clone(&args.return_field);
        let inner = self.inner.create_groups_accumulator(args)?;
        Ok(float_totals::of_groups(&result, inner))
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> DataFusionResult<Box<dyn Accumulator>> {
        let own = interval_totals::accumulator(&args.return_field, Outcome::Average)
            .or_else(|| float_totals::sliding(&args, Outcome::Average));
        match own {
            Some(total) => Ok(total),
            None => self.inner.create_sliding_accumulator(args),
        }
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        self.inner.reverse_expr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_digits_enough() {
        for (given, expected) in [
            (DataType::Int64, DataType::Decimal128(32, 12)),
            (DataType::Decimal128(10, 2), DataType::Decimal128(20, 12)),
            (DataType::Decimal128(38, 9), DataType::Decimal128(38, 12)),
            (DataType::Decimal128(38, 20), DataType::Decimal128(38, 20)),
            (DataType::Float32, DataType::Float64),
        ] {
            assert_eq!(argument_type(&given), Some(expected));
        }
        assert_eq!(argument_type(&DataType::Utf8), None);
    }
}
