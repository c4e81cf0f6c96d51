//! Mathematical functions that the engine lacks, or that fail in PostgreSQL where the engine's give
//! NaN or infinity.

use std::sync::Arc;

use datafusion::arrow::datatypes::DECIMAL128_MAX_PRECISION;
use datafusion::arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;

use super::numeric_overflow;
use super::plain::{NUMERIC_SCALE, double, form, plain, text, whole};
use crate::error::{Error, Result, sqlstate};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        plain(
            "div",
            &[
                form!([BigInt, BigInt] -> BigInt, whole_quotient),
                form!([Numeric, Numeric] -> Numeric, numeric_quotient),
            ],
        ),
        plain("sign", &[form!([Double] -> Double, sign)]),
        plain(
            "ln",
            &[form!([Double] -> Double, |a| logarithm(double(&a[0])?, f64::ln))],
        ),
        plain("log10", &[form!([Double] -> Double, common_logarithm)]),
        plain(
            "log",
            &[
                form!([Double] -> Double, common_logarithm),
                form!([Double, Double] -> Double, |a| {
                    let base = positive(double(&a[0])?)?;
                    logarithm(double(&a[1])?, |v| v.log(base))
                }),
            ],
        ),
        plain(
            "width_bucket",
            &[form!([Double, Double, Double, Integer] -> Integer, width_bucket)],
        ),
        plain("power", &[form!([Double, Double] -> Double, power)]),
        plain(
            "to_hex",
            &[
                form!([Integer] -> Text, |a| {
                    let number = whole(&a[0])?;
                    Ok(ScalarValue::Utf8(i32::try_from(number).ok().map(|n| format!("{n:x}"))))
                }),
                form!([BigInt] -> Text, |a| {
                    Ok(ScalarValue::Utf8(Some(format!("{:x}", whole(&a[0])?))))
                }),
            ],
        ),
        plain("to_number", &[form!([Text, Text] -> Numeric, to_number)]),
    ]
}

/// Errors: 2201F what is no real number, 22003 what is out of range.
fn power(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let (base, exponent) = (double(&arguments[0])?, double(&arguments[1])?);
    let refused = |what| Err(Error::new(sqlstate::INVALID_POWER_ARGUMENT, what));
    if base == 0.0 && exponent < 0.0 {
        return refused("zero raised to a negative power is undefined");
    }
    if base < 0.0 && exponent.is_finite() && exponent.fract() != 0.0 {
        return refused("a negative number raised to a non-integer power yields a complex result");
    }
    let value = base.powf(exponent);
    let is_exact = base.is_infinite() || exponent.is_infinite();
    let out_of_range = |what| Err(Error::new(sqlstate::NUMERIC_OUT_OF_RANGE, what));
    if value.is_infinite() && !is_exact {
        return out_of_range("value out of range: overflow");
    }
    if value == 0.0 && base != 0.0 && !is_exact {
        return out_of_range("value out of range: underflow");
    }
    Ok(ScalarValue::Float64(Some(value)))
}

fn sign(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let value = double(&arguments[0])?;
    let sign = match value == 0.0 || value.is_nan() {
        true => 0.0,
        false => value.signum(),
    };
    Ok(ScalarValue::Float64(Some(sign)))
}

fn common_logarithm(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    logarithm(double(&arguments[0])?, f64::log10)
}

fn whole_quotient(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let (left, right) = (whole(&arguments[0])?, whole(&arguments[1])?);
    if right == 0 {
        return Err(ArrowError::DivideByZero.into());
    }
    let quotient = left
        .checked_div(right)
        .ok_or_else(|| Error::new(sqlstate::NUMERIC_OUT_OF_RANGE, "bigint out of range"))?;
    Ok(ScalarValue::Int64(Some(quotient)))
}

fn unscaled(value: &ScalarValue) -> Result<(i128, i8)> {
    match value {
        ScalarValue::Decimal128(Some(value), _, scale) => Ok((*value, *scale)),
        _ => Err(Error::internal("a form's argument is a numeric")),
    }
}

/// Cut towards zero. Both have the form's scale.
fn numeric_quotient(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let ((left, scale), (right, _)) = (unscaled(&arguments[0])?, unscaled(&arguments[1])?);
    if right == 0 {
        return Err(ArrowError::DivideByZero.into());
    }
    let quotient = (left / right)
        .checked_mul(10i128.pow(u32::from(scale.unsigned_abs())))
        .ok_or_else(numeric_overflow)?;
    Ok(ScalarValue::Decimal128(
        Some(quotient),
        DECIMAL128_MAX_PRECISION,
        scale,
    ))
}

fn positive(value: f64) -> Result<f64> {
    let invalid = |what: &str| {
        Err(Error::new(
            sqlstate::INVALID_LOGARITHM_ARGUMENT,
            format!("cannot take logarithm of {what}"),
        ))
    };
    if value == 0.0 {
        invalid("zero")
    } else if value < 0.0 {
        invalid("a negative number")
    } else {
        Ok(value)
    }
}

fn logarithm(value: f64, function: impl Fn(f64) -> f64) -> Result<ScalarValue> {
    Ok(ScalarValue::Float64(Some(function(positive(value)?))))
}

/// The number of the bucket of equal width, 0 below the first and one more than all above the last.
fn width_bucket(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let (value, low, high) = (
        double(&arguments[0])?,
        double(&arguments[1])?,
        double(&arguments[2])?,
    );
    let count = whole(&arguments[3])?;
    let refused = |what| Err(Error::new(sqlstate::INVALID_WIDTH_BUCKET_ARGUMENT, what));
    if count <= 0 {
        return refused("count must be greater than zero");
    }
    if value.is_nan() || low.is_nan() || high.is_nan() {
        return refused("operand, lower bound, and upper bound cannot be NaN");
    }
    if low.is_infinite() || high.is_infinite() {
        return refused("lower and upper bounds must be finite");
    }
    if low == high {
        return refused("lower bound cannot equal upper bound");
    }
    let share = (value - low) / (high - low);
    let bucket = (share * count as f64).floor() as i64 + 1;
    Ok(ScalarValue::Int32(
        i32::try_from(bucket.clamp(0, count + 1)).ok(),
    ))
}

/// Digits, the point and the sign of a text; the template says only where they may stand, and what
/// stands elsewhere is skipped.
fn to_number(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let given = text(&arguments[0])?;
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
    let scale = usize::from(NUMERIC_SCALE.unsigned_abs());
    let fraction = format!("{fraction:0<scale$.scale$}");
    let value: i128 = format!("{whole_digits}{fraction}")
        .parse()
        .map_err(|_| numeric_overflow())?;
    let value = if negative { -value } else { value };
    Ok(ScalarValue::Decimal128(
        Some(value),
        DECIMAL128_MAX_PRECISION,
        NUMERIC_SCALE,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets() {
        let bucket = |value| {
            let arguments = [
                ScalarValue::Float64(Some(value)),
                ScalarValue::Float64(Some(0.0)),
                ScalarValue::Float64(Some(10.0)),
                ScalarValue::Int32(Some(5)),
            ];
            width_bucket(&arguments).unwrap()
        };
        for (value, expected) in [(-1.0, 0), (0.0, 1), (5.35, 3), (10.0, 6), (99.0, 6)] {
            assert_eq!(bucket(value), ScalarValue::Int32(Some(expected)));
        }
    }

    #[test]
    fn numbers_of_texts() {
        let number = |given: &str| {
            let arguments = [given, "9"].map(|t| ScalarValue::Utf8(Some(t.to_owned())));
            to_number(&arguments).map(|value| match value {
                ScalarValue::Decimal128(value, ..) => value,
                other => panic!("{other}"),
            })
        };
        assert_eq!(number("1,234.5").unwrap(), Some(12_345 * 10i128.pow(15)));
        assert_eq!(number("-12").unwrap(), Some(-12 * 10i128.pow(16)));
        assert!(number("abc").is_err());
    }
}
