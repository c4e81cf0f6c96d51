//! Texts of durations: `10 seconds`, `100ms`, `1 day 02:03:04.5`, `1h30m`.
//!
//! Windows, watermarks and options need an exact length, so months and years, whose length
//! depends on the calendar, are no durations here; DataFusion reads intervals of queries itself.

use std::time::Duration;

use datafusion::sql::sqlparser::ast::{self, DateTimeField, Expr, Value};

const SECOND_US: i64 = 1_000_000;

/// Microseconds of a duration's text; `None` if it is none, or does not fit.
pub fn parse_us(text: &str) -> Option<i64> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let mut total: i64 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-' | ':')))
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        if number.contains(':') {
            total = total.checked_add(clock_us(number)?)?;
            rest = after.trim_start();
            continue;
        }
        let after = after.trim_start();
        let end = after
            .find(|c: char| !c.is_alphabetic())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        total = total.checked_add(scaled_us(number, unit_us(unit)?)?)?;
        rest = after.trim_start();
    }
    Some(total)
}

/// As [`parse_us`], for what cannot be negative.
pub fn parse_duration(text: &str) -> Option<Duration> {
    parse_us(text).and_then(|us| u64::try_from(us).ok().map(Duration::from_micros))
}

/// Microseconds of `INTERVAL '…' [unit]`, or of a string literal.
pub fn expression_us(expression: &Expr) -> Option<i64> {
    match expression {
        Expr::Interval(interval) => interval_us(interval),
        Expr::Nested(inner) => expression_us(inner),
        Expr::Cast {
            expr,
            data_type: ast::DataType::Interval { .. },
            ..
        } => expression_us(expr),
        Expr::TypedString(typed) if matches!(typed.data_type, ast::DataType::Interval { .. }) => {
            parse_us(&typed.value.clone().into_string()?)
        }
        Expr::Value(value) => parse_us(&value.value.clone().into_string()?),
        _ => None,
    }
}

fn interval_us(interval: &ast::Interval) -> Option<i64> {
    let text = match interval.value.as_ref() {
        Expr::Value(v) => match &v.value {
            Value::Number(n, _) => n.to_string(),
            other => other.clone().into_string()?,
        },
        Expr::UnaryOp {
            op: ast::UnaryOperator::Minus,
            expr,
        } => match expr.as_ref() {
            Expr::Value(v) => format!("-{}", v.value),
            _ => return None,
        },
        _ => return None,
    };
    match &interval.leading_field {
        None => parse_us(&text),
        Some(field) => scaled_us(text.trim(), field_us(field)?),
    }
}

/// `hours:minutes[:seconds]`.
fn clock_us(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut parts = digits.split(':');
    let hours: i64 = parts.next()?.parse().ok()?;
    let minutes: i64 = parts.next()?.parse().ok()?;
    let seconds = scaled_us(parts.next().unwrap_or("0"), SECOND_US)?;
    if parts.next().is_some() {
        return None;
    }
    let total = hours
        .checked_mul(3_600 * SECOND_US)?
        .checked_add(minutes.checked_mul(60 * SECOND_US)?)?
        .checked_add(seconds)?;
    Some(if negative { -total } else { total })
}

/// A decimal number times a unit, exact to the microsecond.
fn scaled_us(number: &str, unit_us: i64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let negative = whole.starts_with('-');
    let whole: i64 = match whole {
        "" | "-" | "+" if !fraction.is_empty() => 0,
        w => w.parse().ok()?,
    };
    let mut total = whole.checked_mul(unit_us)?;
    if !fraction.is_empty() {
        let digits = fraction.get(..fraction.len().min(12))?;
        let value: i128 = digits.parse().ok()?;
        let part = value * i128::from(unit_us) / 10i128.pow(u32::try_from(digits.len()).ok()?);
        let part = i64::try_from(part).ok()?;
        total = total.checked_add(if negative { -part } else { part })?;
    }
    Some(total)
}

fn unit_us(unit: &str) -> Option<i64> {
    Some(match unit.to_lowercase().as_str() {
        "us" | "µs" | "usec" | "usecs" | "microsecond" | "microseconds" | "microsec" => 1,
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" | "millis" => 1_000,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND_US,
        "m" | "min" | "mins" | "minute" | "minutes" => 60 * SECOND_US,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600 * SECOND_US,
        "d" | "day" | "days" => 86_400 * SECOND_US,
        "w" | "week" | "weeks" => 7 * 86_400 * SECOND_US,
        _ => return None,
    })
}

fn field_us(field: &DateTimeField) -> Option<i64> {
    Some(match field {
        DateTimeField::Microsecond | DateTimeField::Microseconds => 1,
        DateTimeField::Millisecond | DateTimeField::Milliseconds => 1_000,
        DateTimeField::Second | DateTimeField::Seconds => SECOND_US,
        DateTimeField::Minute | DateTimeField::Minutes => 60 * SECOND_US,
        DateTimeField::Hour | DateTimeField::Hours => 3_600 * SECOND_US,
        DateTimeField::Day | DateTimeField::Days => 86_400 * SECOND_US,
        DateTimeField::Week(None) | DateTimeField::Weeks => 7 * 86_400 * SECOND_US,
        _ => return None,
    })
}

/// A duration as we write it back: the largest unit that divides it.
pub fn format_us(us: i64) -> String {
    for (unit, name) in [
        (86_400 * SECOND_US, "day"),
        (3_600 * SECOND_US, "hour"),
        (60 * SECOND_US, "minute"),
        (SECOND_US, "second"),
        (1_000, "millisecond"),
    ] {
        if us % unit == 0 && us != 0 {
            let count = us / unit;
            let plural = if count == 1 { "" } else { "s" };
            return format!("{count} {name}{plural}");
        }
    }
    if us == 0 {
        "0 seconds".to_owned()
    } else {
        format!("{us} microseconds")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        for (text, us) in [
            ("10 seconds", Some(10 * SECOND_US)),
            ("100 milliseconds", Some(100_000)),
            ("100ms", Some(100_000)),
            ("1h30m", Some(5_400 * SECOND_US)),
            (
                "1 day 02:03:04.5",
                Some((86_400 + 7_384) * SECOND_US + 500_000),
            ),
            ("-1 hour", Some(-3_600 * SECOND_US)),
            ("1.5 minutes", Some(90 * SECOND_US)),
            ("-0.5 s", Some(-500_000)),
            ("1 month", None),
            ("10", None),
            ("", None),
            ("soon", None),
            ("9999999999999 days", None),
        ] {
            assert_eq!(parse_us(text), us, "{text}");
        }
        assert_eq!(parse_duration("-1 s"), None);
    }

    #[test]
    fn round_trip() {
        for us in [0, 1, 1_000, 90 * SECOND_US, 3_600 * SECOND_US, -SECOND_US] {
            assert_eq!(parse_us(&format_us(us)), Some(us));
        }
    }
}
