//! Casts of `jsonb` to booleans and numbers: the value must be one, and not its text.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, new_empty_array};
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, FieldRef};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::{arrays, result, udf};
use crate::error::{Error, Result, sqlstate};
use crate::types::SqlType;
use crate::values::float::{parse_double, parse_real};
use crate::values::jsonb::Json;
use crate::values::numeric;

/// `jsonb::sql_type`; `None` where PostgreSQL has no such cast.
pub(super) fn jsonb_as(sql_type: &SqlType) -> Option<Arc<ScalarUDF>> {
    let is_scalar = *sql_type == SqlType::Boolean || sql_type.is_number();
    is_scalar.then(|| {
        udf(JsonbAs {
            sql_type: sql_type.clone(),
            signature: Signature::any(1, Volatility::Immutable),
        })
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonbAs {
    sql_type: SqlType,
    signature: Signature,
}

/// Errors: 22023 another kind of value, 22003 a number out of range.
fn scalar(text: &str, sql_type: &SqlType) -> Result<ScalarValue> {
    let value = Json::parse(text)?;
    let number = match (&value, sql_type) {
        (Json::Bool(value), SqlType::Boolean) => return Ok(ScalarValue::Boolean(Some(*value))),
        (Json::Number(number), wanted) if *wanted != SqlType::Boolean => number,
        _ => {
            let name = match sql_type {
                SqlType::Numeric { .. } => "numeric".to_owned(),
                other => other.to_string(),
            };
            let kind = match value {
                Json::Number(_) => "numeric",
                ref other => other.type_name(),
            };
            return Err(Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("cannot cast jsonb {kind} to type {name}"),
            ));
        }
    };
    // Rounded half away from zero, as a numeric is.
    let whole = || numeric::parse_text(number, DECIMAL128_MAX_PRECISION, 0);
    let out_of_range = || {
        Error::new(
            sqlstate::NUMERIC_OUT_OF_RANGE,
            format!("{sql_type} out of range"),
        )
    };
    Ok(match sql_type {
        SqlType::SmallInt => {
            ScalarValue::Int16(Some(i16::try_from(whole()?).map_err(|_| out_of_range())?))
        }
        SqlType::Integer => {
            ScalarValue::Int32(Some(i32::try_from(whole()?).map_err(|_| out_of_range())?))
        }
        SqlType::BigInt => {
            ScalarValue::Int64(Some(i64::try_from(whole()?).map_err(|_| out_of_range())?))
        }
        SqlType::Real => ScalarValue::Float32(Some(parse_real(number)?)),
        SqlType::Double => ScalarValue::Float64(Some(parse_double(number)?)),
        SqlType::Numeric { precision, scale } => {
            let value = numeric::parse_text(number, *precision, *scale)?;
            ScalarValue::Decimal128(Some(value), *precision, *scale)
        }
        _ => return Err(Error::internal("jsonb is cast to a scalar")),
    })
}

impl ScalarUDFImpl for JsonbAs {
    fn name(&self) -> &str {
        "jsonb_as"
    }

    fn display_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        Ok(match args {
            [operand] => format!("CAST({operand} AS {})", self.sql_type),
            _ => self.name().to_owned(),
        })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(self.sql_type.to_arrow())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let nullable = args.arg_fields.iter().any(|f| f.is_nullable());
        Ok(Arc::new(self.sql_type.to_field(self.name(), nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let data_type = self.sql_type.to_arrow();
        let values = columns[0].as_string::<i32>().iter().map(|text| match text {
            Some(text) => Ok(scalar(text, &self.sql_type)?),
            None => ScalarValue::try_from(&data_type),
        });
        let values = values.collect::<DataFusionResult<Vec<_>>>()?;
        let array: ArrayRef = match values.is_empty() {
            true => new_empty_array(&data_type),
            false => ScalarValue::iter_to_array(values)?,
        };
        result(array, constant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_their_kind() {
        let as_integer = |text| scalar(text, &SqlType::Integer);
        assert_eq!(as_integer("5").unwrap(), ScalarValue::Int32(Some(5)));
        assert_eq!(as_integer("2.5").unwrap(), ScalarValue::Int32(Some(3)));
        assert_eq!(as_integer("\"5\"").unwrap_err().sqlstate(), "22023");
        assert_eq!(as_integer("null").unwrap_err().sqlstate(), "22023");
        assert_eq!(as_integer("3000000000").unwrap_err().sqlstate(), "22003");
        let as_boolean = |text| scalar(text, &SqlType::Boolean);
        assert_eq!(
            as_boolean("true").unwrap(),
            ScalarValue::Boolean(Some(true))
        );
        assert_eq!(as_boolean("1").unwrap_err().sqlstate(), "22023");
    }
}
