//! Words of the clock as times: `date 'today'`, `timestamp 'now'`, `'tomorrow'::date`.
//!
//! ```text
//! date 'tomorrow'     →  (current_date + 1)::date
//! timestamptz 'now'   →  now()::timestamptz
//! ```
//! PostgreSQL reads them once, when the statement is; so a materialized view would keep the day of its
//! making, and is refused here as any other that reads the clock. Absent: texts that are no constants.

use datafusion::sql::sqlparser::ast::{BinaryOperator, DataType, Expr, TimezoneInfo};

use super::postgres::string_constant;
use super::trees::{binary, call, cast_to, number};

/// Rewrites a cast of such a word, and a typed string that is one.
pub(super) fn rewrite(expression: &mut Expr) {
    let (text, data_type) = match expression {
        Expr::Cast {
            expr, data_type, ..
        } => (string_constant(expr), data_type),
        Expr::TypedString(typed) => (
            typed.value.value.clone().into_string(),
            &mut typed.data_type,
        ),
        _ => return,
    };
    let has_days = matches!(data_type, DataType::Date | DataType::Timestamp(..));
    let has_time = matches!(
        data_type,
        DataType::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone)
    );
    if !has_days && !has_time {
        return;
    }
    let word = text.map(|text| text.trim().to_ascii_lowercase());
    let today = || call("current_date", vec![]);
    let day = || cast_to(number(1), DataType::Int(None));
    let moment = match word.as_deref() {
        // The time of a moment is that of the session's zone.
        Some("now") if has_time => cast_to(
            call("now", vec![]),
            DataType::Timestamp(None, TimezoneInfo::None),
        ),
        Some("now") => call("now", vec![]),
        Some("today") if has_days => today(),
        Some("tomorrow") if has_days => binary(today(), BinaryOperator::Plus, day()),
        Some("yesterday") if has_days => binary(today(), BinaryOperator::Minus, day()),
        _ => return,
    };
    let data_type = data_type.clone();
    *expression = cast_to(moment, data_type);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::rewrite::trees::string;

    #[test]
    fn words() {
        let rewritten = |text: &str, data_type: DataType| {
            let mut cast = cast_to(string(text), data_type);
            rewrite(&mut cast);
            cast.to_string()
        };
        assert_eq!(
            rewritten(" Tomorrow", DataType::Date),
            "(current_date() + 1::INT)::DATE"
        );
        assert_eq!(
            rewritten("now", DataType::Timestamp(None, TimezoneInfo::Tz)),
            "now()::TIMESTAMPTZ"
        );
        assert_eq!(
            rewritten("today", DataType::Time(None, TimezoneInfo::None)),
            "'today'::TIME"
        );
        assert_eq!(rewritten("today", DataType::Text), "'today'::TEXT");
    }
}
