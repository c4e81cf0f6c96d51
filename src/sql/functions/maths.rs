//! Mathematical functions that the engine lacks, or that fail in PostgreSQL where the engine's give
//! NaN or infinity.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;

use super::plain::{Form, Type, double, plain, text, whole};
use crate::error::{Error, Result, sqlstate};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    const fn of_double(compute: super::plain::Compute) -> Form {
        Form {
            takes: &[Type::Double],
            gives: Type::Double,
            compute,
        }
    }
    vec![
        plain(
            "div",
            &[
                Form {
                    takes: &[Type::BigInt, Type::BigInt],
                    gives: Type::BigInt,
                    compute: whole_quotient,
                },
                Form {
                    takes: &[Type::Numeric, Type::Numeric],
                    gives: Type::Numeric,
                    compute: numeric_quotient,
                },
            ],
        ),
        plain(
            "sign",
            const {
                &[of_double(|a| {
                    let value = double(&a[0])?;
                    let sign = if value == 0.0 { 0.0 } else { value.signum() };
                    Ok(ScalarValue::Float64(Some(sign)))
                })]
            },
        ),
        plain(
            "ln",
            const { &[of_double(|a| logarithm(double(&a[0])?, f64::ln))] },
        ),
        plain(
            "log10",
            const { &[of_double(|a| logarithm(double(&a[0])?, f64::log10))] },
        ),
        plain(
            "log",
            const {
                &[
                    of_double(|a| logarithm(double(&a[0])?, f64::log10)),
                    Form {
                        takes: &[Type::Double, Type::Double],
                        gives: Type::Double,
                        compute: |a| {
                            let base = positive(double(&a[0])?)?;
                            logarithm(double(&a[1])?, |v| v.log(base))
                        },
                    },
                ]
            },
        ),
        plain(
            "width_bucket",
            &[Form {
                takes: &[Type::Double, Type::Double, Type::Double, Type::Integer],
                gives: Type::Integer,
                compute: width_bucket,
            }],
        ),
        plain(
            "to_number",
            &[Form {
                takes: &[Type::Text, Type::Text],
                gives: Type::Numeric,
                compute: to_number,
            }],
        ),
    ]
}

fn division_by_zero() -> Error {
    Error::new(sqlstate::DIVISION_BY_ZERO, "division by zero")
}

fn whole_quotient(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let (left, right) = (whole(&arguments[0])?, whole(&arguments[1])?);
    if right == 0 {
        return Err(division_by_zero());
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
        return Err(division_by_zero());
    }
    let quotient = (left / right)
        .checked_mul(10i128.pow(u32::from(scale.unsigned_abs())))
        .ok_or_else(|| {
            Error::new(
                sqlstate::NUMERIC_OUT_OF_RANGE,
                "value overflows numeric format",
            )
        })?;
    Ok(ScalarValue::Decimal128(Some(quotient), 38, scale))
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
    if count <= 0 {
        return Err(Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            "count must be greater than zero",
        ));
    }
    if low == high {
        return Err(Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            "lower bound cannot equal upper bound",
        ));
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
    let scale = 16;
    let padded: String = fraction
        .chars()
        .chain("0".repeat(scale).chars())
        .take(scale)
        .collect();
    let value: i128 = format!("{whole_digits}{padded}").parse().map_err(|_| {
        Error::new(
            sqlstate::NUMERIC_OUT_OF_RANGE,
            "value overflows numeric format",
        )
    })?;
    let value = if negative { -value } else { value };
    Ok(ScalarValue::Decimal128(Some(value), 38, 16))
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
