//! `VALUES (date '2024-01-01'), ('2024-02-01')`: a text constant is of the type that another row gives
//! the column. The engine asks for one type in all rows.

use datafusion::sql::sqlparser::ast::{DataType, Expr, SetExpr, Value};

use super::postgres::string_constant;
use super::trees::{cast_to, take};

/// Casts such constants, as long as nothing else of the expressions has changed.
pub(super) fn type_constants(body: &mut SetExpr) {
    match body {
        SetExpr::Values(values) => {
            let width = values.rows.first().map_or(0, |row| row.content.len());
            for column in 0..width {
                let mut cells = values.rows.iter().filter_map(|row| row.content.get(column));
                let Some(wanted) = cells.find_map(written_type) else {
                    continue;
                };
                for row in &mut values.rows {
                    if let Some(cell) = row.content.get_mut(column)
                        && (string_constant(cell).is_some() || is_null(cell))
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
        _ => None,
    }
}
