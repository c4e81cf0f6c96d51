//! `to_number(text, template)`: the template says where digits may stand, and how many of them
//! follow the point. What stands elsewhere is skipped. By a template that is no literal a number
//! has [`NUMERIC_SCALE`] fractional digits, since a numeric has its scale in its type.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Decimal128Array};
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Field, FieldRef};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::plain::{NUMERIC_SCALE, Type};
use super::{arrays, no_function, numeric_overflow, result, udf};
use crate::error::{Error, Result, sqlstate};

pub(super) fn to_number() -> Arc<ScalarUDF> {
    udf(ToNumber {
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ToNumber {
    signature: Signature,
}

/// Digits that a template has behind the point.
fn fraction_digits(template: &str) -> i8 {
    let fraction = template.split_once(['.', 'D', 'd']).map_or("", |(_, f)| f);
    let digits = fraction.bytes().filter(|b| matches!(b, b'9' | b'0'));
    i8::try_from(digits.count()).map_or(NUMERIC_SCALE, |count| count.min(NUMERIC_SCALE))
}

/// Digits, the point and the sign of a text. Errors: 22P02 none, 22003 too many.
fn number(given: &str, scale: i8) -> Result<i128> {
    let negative = given.contains('-') || given.trim_start().starts_with('<');
    let kept: String = given
        .chars()
        .filter(|c| c.is_ascii_digit() || *c == '.')
        .collect();
    let (whole_digits, fraction) = kept.split_once('.').unwrap_or((&kept, ""));
    if whole_digits.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(Error::new(
            sqlstate::INVALID_TEXT,
            format!("invalid input syntax for type numeric: \"{given}\""),
        ));
    }
    let scale = usize::from(scale.unsigned_abs());
    let fraction = format!("{fraction:0<scale$.scale$}");
    let value: i128 = format!("0{whole_digits}{fraction}")
        .parse()
        .map_err(|_| numeric_overflow())?;
    Ok(if negative { -value } else { value })
}

impl ScalarUDFImpl for ToNumber {
    fn name(&self) -> &str {
        "to_number"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        match types.len() == 2 && types.iter().all(|given| takes_text(given)) {
            true => Ok(vec![DataType::Utf8; 2]),
            false => Err(no_function(self.name(), types).into()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Err(Error::internal("to_number has a field, not a type").into())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let template = args.scalar_arguments.get(1).copied().flatten();
        let template = template.and_then(|t: &ScalarValue| t.try_as_str().flatten());
        let scale = template.map_or(NUMERIC_SCALE, fraction_digits);
        let data_type = DataType::Decimal128(DECIMAL128_MAX_PRECISION, scale);
        Ok(Arc::new(Field::new(self.name(), data_type, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let DataType::Decimal128(precision, scale) = *args.return_field.data_type() else {
            return Err(Error::internal("to_number gives a numeric").into());
        };
        let (texts, templates) = (columns[0].as_string::<i32>(), columns[1].as_string::<i32>());
        let mut numbers = Vec::with_capacity(texts.len());
        for row in 0..texts.len() {
            numbers.push(match texts.is_valid(row) && templates.is_valid(row) {
                true => Some(number(texts.value(row), scale)?),
                false => None,
            });
        }
        let numbers = Decimal128Array::from(numbers).with_precision_and_scale(precision, scale)?;
        result(Arc::new(numbers), constant)
    }
}

fn takes_text(given: &DataType) -> bool {
    Type::Text.takes(given)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_texts() {
        for (text, template, expected, scale) in [
            ("12,454.8-", "99G999D9S", -124_548, 1),
            ("$1,234", "L9,999", 1_234, 0),
            ("-12.5", "S99.9", -125, 1),
            ("12.345", "99.9", 123, 1),
            (".5", "9.99", 50, 2),
        ] {
            assert_eq!(fraction_digits(template), scale, "{template}");
            assert_eq!(number(text, scale).unwrap(), expected, "{text}");
        }
        assert_eq!(number("abc", 0).unwrap_err().sqlstate(), "22P02");
    }
}
