//! What floats come to in arithmetic, as in PostgreSQL: finite numbers give no infinity, and there is
//! one NaN ([`crate::values::float`]).

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray, Datum};
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{arrays, result, udf};
use crate::error::Error;
use crate::values::float::one_nan;

/// `-x` of a float.
pub(super) fn negate() -> Arc<ScalarUDF> {
    udf(NegateFunction {
        signature: Signature::any(1, Volatility::Immutable),
    })
}

/// Floats as they were computed, with one NaN; an infinity that comes of finite numbers is none.
pub(super) fn finite<T: ArrowPrimitiveType>(
    computed: ArrayRef,
    left: &dyn Datum,
    right: &dyn Datum,
    is_finite: impl Fn(T::Native) -> bool,
) -> std::result::Result<ArrayRef, ArrowError>
where
    T::Native: PartialEq,
{
    let results = computed.as_primitive::<T>();
    let all_finite = results
        .values()
        .iter()
        .fold(true, |all, v| all & is_finite(*v));
    if all_finite {
        return Ok(computed);
    }
    let is_nan = |value: T::Native| value.ne(&value);
    let given_finite = |operand: &dyn Datum, row: usize| {
        let (values, is_one) = operand.get();
        is_finite(
            values
                .as_primitive::<T>()
                .value(if is_one { 0 } else { row }),
        )
    };
    for (row, value) in results.iter().enumerate() {
        if let Some(value) = value
            && !is_finite(value)
            && !is_nan(value)
            && given_finite(left, row)
            && given_finite(right, row)
        {
            let text = "value out of range: overflow".to_owned();
            return Err(ArrowError::ArithmeticOverflow(text));
        }
    }
    Ok(one_nan(computed))
}

/// `-x` of a float: what is no number has no sign.
#[derive(Debug, PartialEq, Eq, Hash)]
struct NegateFunction {
    signature: Signature,
}

impl ScalarUDFImpl for NegateFunction {
    fn name(&self) -> &str {
        "negate"
    }

    fn display_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        Ok(args.first().map(|e| format!("(- {e})")).unwrap_or_default())
    }

    fn schema_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        let name = args.first().map(|e| format!("(- {})", e.schema_name()));
        Ok(name.unwrap_or_default())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        let operand = types.first().cloned();
        operand.ok_or_else(|| Error::internal("a sign without an operand").into())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        result(one_nan(numeric::neg_wrapping(&columns[0])?), constant)
    }
}
