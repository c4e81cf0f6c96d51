//! Event-time lineage: which columns follow a stream's watermark, and when a value is closed.
//!
//! A column has lineage when each of its values says up to which event time rows can still carry
//! it: the watermark column itself, `tumble_start`, `tumble_end`, unnested `hop_starts`,
//! `date_bin` and `date_trunc` of it (in a zone too), and these plus or minus a constant. A value `v` is closed
//! once `v + closes_after <= watermark`.

use std::cmp::Ordering;

use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::{Expr, Operator};

use crate::sql::functions::zoned::TRUNCATED;
use crate::values::datetime::DAY_US;
use crate::values::zones;

/// How the values of a column relate to the watermark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTime {
    /// Added to a value it gives the time from which on no row in time can carry it; microseconds
    /// for timestamps, the column's own unit for integers.
    pub closes_after: i64,
    /// The value is a bound of a window rather than a raw event time.
    pub window: bool,
    /// The column is a list of such values (`hop_starts`), to be unnested.
    pub list: bool,
}

impl EventTime {
    /// The watermark column of a stream.
    pub const RAW: Self = Self {
        closes_after: 0,
        window: false,
        list: false,
    };

    fn shifted(self, by: i64) -> Option<Self> {
        Some(Self {
            closes_after: self.closes_after.checked_add(by)?,
            ..self
        })
    }
}

/// Microseconds of the longest instance of a calendar unit: a window of it is closed at the
/// latest that long after its start.
fn unit_us(unit: &str) -> Option<i64> {
    const SECOND: i64 = 1_000_000;
    const DAY: i64 = 86_400 * SECOND;
    Some(match unit.to_ascii_lowercase().as_str() {
        "microsecond" | "microseconds" => 1,
        "millisecond" | "milliseconds" => 1_000,
        "second" => SECOND,
        "minute" => 60 * SECOND,
        "hour" => 3_600 * SECOND,
        "day" => DAY,
        "week" => 7 * DAY,
        "month" => 31 * DAY,
        "quarter" => 92 * DAY,
        "year" => 366 * DAY,
        _ => return None,
    })
}

/// Lineage of an expression's values, given that of the input's columns.
pub fn of_expression(
    expression: &Expr,
    schema: &DFSchema,
    input: &[Option<EventTime>],
) -> Option<EventTime> {
    let of = |e: &Expr| of_expression(e, schema, input);
    match expression {
        Expr::Column(column) => input[schema.maybe_index_of_column(column)?],
        Expr::Alias(alias) => of(&alias.expr),
        Expr::Cast(cast) => is_followed(cast.field.data_type())
            .then(|| of(&cast.expr))
            .flatten(),
        Expr::BinaryExpr(binary) => match binary.op {
            Operator::Plus => sum(&of, &binary.left, &binary.right),
            Operator::Minus => of(&binary.left)?.shifted(size_of(&binary.right)?),
            _ => None,
        },
        Expr::ScalarFunction(call) => {
            let argument = |index: usize| call.args.get(index);
            let window = |time: EventTime, size: i64, list: bool| {
                Some(EventTime {
                    window: true,
                    list,
                    ..time.shifted(size)?
                })
            };
            match call.name() {
                // What the arithmetic that checks for overflow is called.
                "checked_add" => sum(&of, argument(0)?, argument(1)?),
                "checked_subtract" => of(argument(0)?)?.shifted(size_of(argument(1)?)?),
                "tumble_start" => window(of(argument(0)?)?, size_of(argument(1)?)?, false),
                "tumble_end" => window(of(argument(0)?)?, 0, false),
                "hop_starts" => window(of(argument(0)?)?, size_of(argument(2)?)?, true),
                "date_bin" => window(of(argument(1)?)?, size_of(argument(0)?)?, false),
                "date_trunc" => {
                    let Expr::Literal(unit, _) = argument(0)? else {
                        return None;
                    };
                    let unit = unit.try_as_str()??;
                    window(of(argument(1)?)?, unit_us(unit)?, false)
                }
                TRUNCATED => {
                    let text = |at: usize| match argument(at)? {
                        Expr::Literal(value, _) => value.try_as_str()?,
                        _ => None,
                    };
                    let length_us = unit_in_zone_us(text(0)?, zones::parse(text(2)?)?)?;
                    window(of(argument(1)?)?, length_us, false)
                }
                _ => None,
            }
        }
        _ => None,
    }
}

/// The longest that a unit lasts on the clocks of a zone: those of days are set back once in a day,
/// and twice in longer ones. Hours and less are as long as elsewhere.
fn unit_in_zone_us(unit: &str, zone: Tz) -> Option<i64> {
    let length_us = unit_us(unit)?;
    let set_backs = match length_us.cmp(&DAY_US) {
        Ordering::Less => return Some(length_us),
        Ordering::Equal => 1,
        Ordering::Greater => 2,
    };
    Some(length_us + set_backs * zones::longest_set_back_us(zone))
}

/// Lineage of a time plus a constant: the later value of the same window closes as much sooner
/// after it.
fn sum(of: &impl Fn(&Expr) -> Option<EventTime>, left: &Expr, right: &Expr) -> Option<EventTime> {
    match (of(left), of(right)) {
        (Some(time), None) => time.shifted(size_of(right)?.checked_neg()?),
        (None, Some(time)) => time.shifted(size_of(left)?.checked_neg()?),
        _ => None,
    }
}

/// Types whose unit is the watermark's.
pub fn is_followed(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Timestamp(TimeUnit::Microsecond, _) | DataType::Int64
    )
}

/// A constant size: microseconds of an interval without months, or an integer.
pub(super) fn size_of(expression: &Expr) -> Option<i64> {
    let value = match expression {
        Expr::Literal(value, _) => value,
        Expr::Cast(cast) => return size_of(&cast.expr),
        Expr::Alias(alias) => return size_of(&alias.expr),
        _ => return None,
    };
    match value {
        ScalarValue::Int64(Some(size)) => Some(*size),
        ScalarValue::Int32(Some(size)) => Some(i64::from(*size)),
        ScalarValue::IntervalMonthDayNano(Some(interval)) if interval.months == 0 => {
            i64::from(interval.days)
                .checked_mul(86_400_000_000)?
                .checked_add(interval.nanoseconds / 1_000)
        }
        ScalarValue::IntervalDayTime(Some(interval)) => i64::from(interval.days)
            .checked_mul(86_400_000_000)?
            .checked_add(i64::from(interval.milliseconds) * 1_000),
        ScalarValue::DurationMicrosecond(Some(size)) => Some(*size),
        _ => None,
    }
}
