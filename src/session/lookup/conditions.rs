//! What a condition says of a column.

use datafusion::common::{Column, ScalarValue};
use datafusion::logical_expr::expr::{Between, InList, Like};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};

use super::encoding::{ColumnEncoding, is_widening};
use super::intervals::Intervals;

/// The values of column `name` for which a condition may hold; `None`: it says nothing of it.
pub fn intervals(condition: &Expr, name: &str, encoding: &ColumnEncoding) -> Option<Intervals> {
    let of = |part: &Expr| intervals(part, name, encoding);
    match condition {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::And,
            right,
        }) => match (of(left), of(right)) {
            (Some(left), Some(right)) => Some(left.intersection(&right)),
            (left, right) => left.or(right),
        },
        Expr::BinaryExpr(BinaryExpr {
            op: Operator::Or, ..
        }) => {
            let sets: Option<Vec<Intervals>> = alternatives(condition).map(of).collect();
            sets.map(Intervals::union)
        }
        Expr::BinaryExpr(comparison) => compared(comparison, name, encoding),
        Expr::Between(Between {
            expr,
            negated: false,
            low,
            high,
        }) => {
            let from = compared_with(expr, Operator::GtEq, low, name, encoding);
            let to = compared_with(expr, Operator::LtEq, high, name, encoding);
            match (from, to) {
                (Some(from), Some(to)) => Some(from.intersection(&to)),
                (from, to) => from.or(to),
            }
        }
        Expr::InList(InList {
            expr,
            list,
            negated: false,
        }) => {
            let one = |value| compared_with(expr, Operator::Eq, value, name, encoding);
            let sets: Option<Vec<Intervals>> = list.iter().map(one).collect();
            sets.map(Intervals::union)
        }
        Expr::Like(like) => begins_with(like, name, encoding),
        Expr::IsNull(inner) => is_column(inner, name).then(|| encoding.null()),
        Expr::IsNotNull(inner) => is_column(inner, name).then(|| encoding.not_null()),
        Expr::Column(_) | Expr::IsTrue(_) | Expr::Not(_) | Expr::IsFalse(_) => {
            truth(condition, name, encoding)
        }
        _ => None,
    }
}

/// A condition says something of one of these columns, or may.
pub fn mentions_any(condition: &Expr, names: &[&str]) -> bool {
    condition
        .column_refs()
        .iter()
        .any(|column| names.contains(&column.name.as_str()))
}

/// The parts of a chain of ORs, however it is nested.
fn alternatives(condition: &Expr) -> impl Iterator<Item = &Expr> {
    let mut open = vec![condition];
    std::iter::from_fn(move || {
        while let Some(next) = open.pop() {
            match next {
                Expr::BinaryExpr(BinaryExpr {
                    left,
                    op: Operator::Or,
                    right,
                }) => open.extend([right.as_ref(), left.as_ref()]),
                other => return Some(other),
            }
        }
        None
    })
}

fn is_column(expression: &Expr, name: &str) -> bool {
    matches!(expression, Expr::Column(Column { name: found, .. }) if found == name)
}

/// The column, as it is or made wider for a comparison.
fn is_compared_column(expression: &Expr, name: &str, encoding: &ColumnEncoding) -> bool {
    match expression {
        Expr::Cast(cast) => {
            is_column(&cast.expr, name) && is_widening(encoding.data_type(), cast.field.data_type())
        }
        other => is_column(other, name),
    }
}

fn compared(comparison: &BinaryExpr, name: &str, encoding: &ColumnEncoding) -> Option<Intervals> {
    let BinaryExpr { left, op, right } = comparison;
    match op {
        Operator::IsNotDistinctFrom => {
            let value = match (is_column(left, name), is_column(right, name)) {
                (true, _) => right,
                (_, true) => left,
                _ => return None,
            };
            match value.as_ref() {
                Expr::Literal(value, _) if value.is_null() => Some(encoding.null()),
                Expr::Literal(value, _) => encoding.compared(Operator::Eq, value),
                _ => None,
            }
        }
        _ => compared_with(left, *op, right, name, encoding)
            .or_else(|| compared_with(right, op.swap()?, left, name, encoding)),
    }
}

fn compared_with(
    column: &Expr,
    operator: Operator,
    value: &Expr,
    name: &str,
    encoding: &ColumnEncoding,
) -> Option<Intervals> {
    match value {
        Expr::Literal(value, _) if is_compared_column(column, name, encoding) => {
            encoding.compared(operator, value)
        }
        _ => None,
    }
}

/// `column`, `NOT column` and their like, of a column of truth values.
fn truth(condition: &Expr, name: &str, encoding: &ColumnEncoding) -> Option<Intervals> {
    let (inner, wanted) = match condition {
        Expr::IsTrue(inner) => (inner.as_ref(), true),
        Expr::Not(inner) | Expr::IsFalse(inner) => (inner.as_ref(), false),
        other => (other, true),
    };
    match is_column(inner, name) {
        true => encoding.compared(Operator::Eq, &ScalarValue::Boolean(Some(wanted))),
        false => None,
    }
}

/// `column LIKE 'abc%'`: from `abc` on, and before `abd`.
fn begins_with(like: &Like, name: &str, encoding: &ColumnEncoding) -> Option<Intervals> {
    let Expr::Literal(ScalarValue::Utf8(Some(pattern)), _) = like.pattern.as_ref() else {
        return None;
    };
    if like.negated || like.case_insensitive || like.escape_char.is_some() {
        return None;
    }
    let end = pattern.find(['%', '_', '\\'])?;
    let beginning = &pattern[..end];
    if beginning.is_empty() || !is_column(&like.expr, name) {
        return None;
    }
    let text = |text: String| ScalarValue::Utf8(Some(text));
    let from = encoding.compared(Operator::GtEq, &text(beginning.to_owned()))?;
    let Some(after) = text_after(beginning) else {
        return Some(from);
    };
    let to = encoding.compared(Operator::Lt, &text(after))?;
    Some(from.intersection(&to))
}

/// The least text, in the order of bytes, after all that begin so.
fn text_after(beginning: &str) -> Option<String> {
    let (at, last) = beginning.char_indices().next_back()?;
    let next = match last {
        '\u{d7ff}' => '\u{e000}',
        other => char::from_u32(u32::from(other) + 1)?,
    };
    Some(format!("{}{next}", &beginning[..at]))
}
