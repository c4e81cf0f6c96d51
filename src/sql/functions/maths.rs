//! Mathematical functions that the engine lacks, or that fail in PostgreSQL where the engine's give
//! NaN or infinity.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType};
use datafusion::arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use datafusion::functions::math;
use datafusion::logical_expr::ScalarUDF;

use super::angles::whole_degrees;
use super::beside::beside;
use super::numeric_overflow;
use super::plain::{Form, double, form, plain, whole};
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
        plain(
            "atan2d",
            &[form!([Double, Double] -> Double, |a| {
                let angle = double(&a[0])?.atan2(double(&a[1])?);
                Ok(ScalarValue::Float64(Some(whole_degrees(angle.to_degrees()))))
            })],
        ),
        beside(
            math::gcd(),
            &of_integers("gcd_of_integers", DIVISORS),
            are_integers,
        ),
        beside(
            math::lcm(),
            &of_integers("lcm_of_integers", MULTIPLES),
            are_integers,
        ),
    ]
}

/// `sign(number)` of doubles
pub(super) fn sign() -> Arc<ScalarUDF> {
    plain("sign", &[form!([Double] -> Double, sign_of)])
}

const DIVISORS: &[Form] = &[
    form!([Integer, Integer] -> Integer, |a| common(a, divisor_of)),
    form!([BigInt, BigInt] -> BigInt, |a| common(a, divisor_of)),
];

const MULTIPLES: &[Form] = &[
    form!([Integer, Integer] -> Integer, |a| common(a, multiple_of)),
    form!([BigInt, BigInt] -> BigInt, |a| common(a, multiple_of)),
];

fn of_integers(name: &'static str, forms: &'static [Form]) -> Arc<ScalarUDF> {
    plain(name, forms)
}

fn are_integers(types: &[DataType]) -> bool {
    types
        .iter()
        .all(|given| given.is_integer() || given.is_null())
}

/// A divisor or a multiple of two numbers in their type. Errors: 22003 beyond it.
fn common(arguments: &[ScalarValue], function: fn(u64, u64) -> Option<u64>) -> Result<ScalarValue> {
    let (left, right) = (whole(&arguments[0])?, whole(&arguments[1])?);
    let found = function(left.unsigned_abs(), right.unsigned_abs());
    let out_of_range = |name| {
        Error::new(
            sqlstate::NUMERIC_OUT_OF_RANGE,
            format!("{name} out of range"),
        )
    };
    Ok(match &arguments[0] {
        ScalarValue::Int32(_) => {
            let found = found.and_then(|n| i32::try_from(n).ok());
            ScalarValue::Int32(Some(found.ok_or_else(|| out_of_range("integer"))?))
        }
        _ => {
            let found = found.and_then(|n| i64::try_from(n).ok());
            ScalarValue::Int64(Some(found.ok_or_else(|| out_of_range("bigint"))?))
        }
    })
}

fn divisor_of(mut left: u64, mut right: u64) -> Option<u64> {
    while right != 0 {
        (left, right) = (right, left % right);
    }
    Some(left)
}

fn multiple_of(left: u64, right: u64) -> Option<u64> {
    match divisor_of(left, right)? {
        0 => Some(0),
        divisor => (left / divisor).checked_mul(right),
    }
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

fn sign_of(arguments: &[ScalarValue]) -> Result<ScalarValue> {
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
    fn divisors_and_multiples() {
        let pair = |a, b| [a, b].map(|n| ScalarValue::Int32(Some(n)));
        let divisor = |a, b| common(&pair(a, b), divisor_of).unwrap();
        assert_eq!(divisor(1071, 462), ScalarValue::Int32(Some(21)));
        assert_eq!(divisor(-4, 6), ScalarValue::Int32(Some(2)));
        assert_eq!(divisor(0, 0), ScalarValue::Int32(Some(0)));
        let multiple = |a, b| common(&pair(a, b), multiple_of);
        assert_eq!(
            multiple(1071, 462).unwrap(),
            ScalarValue::Int32(Some(23_562))
        );
        assert_eq!(multiple(0, 5).unwrap(), ScalarValue::Int32(Some(0)));
        assert!(multiple(i32::MAX, i32::MAX - 1).is_err());
    }
}
