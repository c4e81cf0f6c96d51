//! `round`: the engine's, with a type that is settled when a query is planned.
//!
//! The number of digits decides the scale of a rounded numeric. The engine's function wants it as
//! an integer of 32 bits, so that a literal is a cast first and a literal again once constants are
//! folded: the type of `round(x, 3)` would change in between, and comparisons with it fail.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, FieldRef, Float64Type};
use datafusion::common::Result as DataFusionResult;
use datafusion::functions::math::round::RoundFunc;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::{no_function, udf};
use crate::error::Error;

/// `round(number)`, `round(number, digits)`
pub(crate) fn round() -> Arc<ScalarUDF> {
    udf(Round {
        inner: RoundFunc::new(),
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Round {
    inner: RoundFunc,
    signature: Signature,
}

impl ScalarUDFImpl for Round {
    fn name(&self) -> &str {
        "round"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let (number, digits) = match types {
            [number] => (number, None),
            [number, digits] if digits.is_integer() => (number, Some(digits.clone())),
            [number, DataType::Null] => (number, Some(DataType::Int32)),
            _ => return Err(no_function("round", types).into()),
        };
        let number = match number {
            t if t.is_numeric() => t.clone(),
            DataType::Utf8 | DataType::Null => DataType::Float64,
            _ => return Err(no_function("round", types).into()),
        };
        Ok(std::iter::once(number).chain(digits).collect())
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Err(Error::internal("round has a field, not a type").into())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        self.inner.return_field_from_args(args)
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        match args.args.as_mut_slice() {
            [_, digits] => *digits = digits.cast_to(&DataType::Int32, None)?,
            // A float's half goes to the even number.
            [number] if number.data_type() == DataType::Float64 => {
                let rounded = |values: &ArrayRef| -> ArrayRef {
                    let values = values.as_primitive::<Float64Type>();
                    Arc::new(values.unary::<_, Float64Type>(f64::round_ties_even))
                };
                return Ok(match number {
                    ColumnarValue::Array(values) => ColumnarValue::Array(rounded(values)),
                    ColumnarValue::Scalar(value) => {
                        super::result(rounded(&value.to_array()?), true)?
                    }
                });
            }
            _ => {}
        }
        self.inner.invoke_with_args(args)
    }
}
