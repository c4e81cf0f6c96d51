//! `VALUES (date '2024-01-01'), ('2024-02-01')`: a text constant is of the type that another row gives
//! the column. The engine asks for one type in all rows, and of days and times takes another one than
//! PostgreSQL: a day beside a moment is the moment of its midnight in the session's time zone.

use datafusion::sql::sqlparser::ast::{DataType, Expr, SetExpr, TimezoneInfo, Value};

use super::postgres::string_constant;
use super::trees::{cast_to, take};

/// Casts such constants, as long as nothing else of the expressions has changed.
pub(super) fn type_constants(body: &mut SetExpr) {
    match body {
        SetExpr::Values(values) => {
            let width = values.rows.first().map_or(0, |row| row.content.len());
            for column in 0..width {
                let cells = values.rows.iter().filter_map(|row| row.content.get(column));
                let Some(wanted) = common(cells.filter_map(written_type)) else {
                    continue;
                };
                let is_other_time = |cell: &Expr| {
                    let place = written_type(cell).as_ref().and_then(place_of_time);
                    place.is_some_and(|place| place_of_time(&wanted) > Some(place))
                };
                for row in &mut values.rows {
                    if let Some(cell) = row.content.get_mut(column)
                        && (string_constant(cell).is_some() || is_null(cell) || is_other_time(cell))
                    {
                        *cell = cast_to(take(cell), wanted.clone());
                    }
                }
            }
        }
        SetExpr::SetOperation { left, right, .. } => {
            type_constants(left);
            type_constants(right);
        }
        _ => {}
    }
}

/// The first of the types, or of days and times the one that all others become.
fn common(mut types: impl Iterator<Item = DataType>) -> Option<DataType> {
    let first = types.next()?;
    Some(types.fold(first, |wanted, other| {
        match (place_of_time(&wanted), place_of_time(&other)) {
            (Some(wanted), Some(place)) if place > wanted => other,
            _ => wanted,
        }
    }))
}

/// Days become times, and times become moments.
fn place_of_time(data_type: &DataType) -> Option<u8> {
    match data_type {
        DataType::Date => Some(0),
        DataType::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => Some(1),
        DataType::Timestamp(_, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => Some(2),
        _ => None,
    }
}

fn is_null(cell: &Expr) -> bool {
    matches!(cell, Expr::Value(value) if value.value == Value::Null)
}

/// The type that an expression says it is of.
fn written_type(expression: &Expr) -> Option<DataType> {
    match expression {
        Expr::Cast { data_type, .. } => Some(data_type.clone()),
        Expr::TypedString(typed) => Some(typed.data_type.clone()),
        Expr::Interval(_) => Some(DataType::Interval {
            fields: None,
            precision: None,
        }),
        Expr::Value(value) => match value.value {
            Value::Boolean(_) => Some(DataType::Boolean),
            _ => None,
        },
        Expr::Nested(inner) => written_type(inner),
        Expr::Function(function) => clock_type(&function.name.to_string().to_lowercase()),
        _ => None,
    }
}

/// The type of a function that reads the clock.
fn clock_type(function: &str) -> Option<DataType> {
    match function {
        "current_date" => Some(DataType::Date),
        "localtimestamp" => Some(DataType::Timestamp(None, TimezoneInfo::None)),
        "now"
        | "current_timestamp"
        | "transaction_timestamp"
        | "statement_timestamp"
        | "clock_timestamp" => Some(DataType::Timestamp(None, TimezoneInfo::Tz)),
        _ => None,
    }
}
