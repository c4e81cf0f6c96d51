//! `FETCH FIRST n ROWS WITH TIES`: the rows that are equal in ORDER BY to the last one of the first n come too.
//!
//! ```text
//! SELECT a FROM t ORDER BY b OFFSET m FETCH FIRST n ROWS WITH TIES
//!   →  SELECT a FROM t QUALIFY rank() OVER (ORDER BY b) <= n + m ORDER BY b OFFSET m
//! ```
//! So it is a top-N by rank in a view. Absent: groups of all rows that are set operations or DISTINCT, whose rows have
//! no rank before they are put together.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Distinct, Expr, Function, LimitClause, OrderBy, OrderByExpr, OrderByKind,
    Query, Select, SelectItem, SetExpr, Value, WindowSpec, WindowType,
};

use super::trees::{binary, call};
use crate::error::{Error, Result, sqlstate};
use crate::sql::data_types::folded;

/// Keeps the first `count` rows of a query, and those that equal the last of them.
pub(super) fn keep(query: &mut Query, count: Expr) -> Result<()> {
    let order = order_of(query.order_by.as_ref())?;
    let offset = match &query.limit_clause {
        None => None,
        Some(LimitClause::LimitOffset {
            limit: None,
            offset,
            ..
        }) => offset.as_ref().map(|offset| offset.value.clone()),
        Some(_) => {
            return Err(Error::new(
                sqlstate::SYNTAX_ERROR,
                "multiple LIMIT clauses not allowed",
            ));
        }
    };
    let SetExpr::Select(select) = query.body.as_mut() else {
        return Err(not_of_groups());
    };
    let is_plain =
        matches!(select.distinct, None | Some(Distinct::All)) && select.qualify.is_none();
    if !is_plain {
        return Err(not_of_groups());
    }
    let order_by = order.iter().map(|by| OrderByExpr {
        expr: written(select, &by.expr),
        ..by.clone()
    });
    let order_by = order_by.collect();
    let last = match offset {
        Some(offset) => binary(count, BinaryOperator::Plus, offset),
        None => count,
    };
    select.qualify = Some(binary(rank(order_by), BinaryOperator::LtEq, last));
    Ok(())
}

fn order_of(order: Option<&OrderBy>) -> Result<Vec<OrderByExpr>> {
    match order.map(|order| &order.kind) {
        Some(OrderByKind::Expressions(expressions)) if !expressions.is_empty() => {
            Ok(expressions.clone())
        }
        _ => Err(Error::new(
            sqlstate::SYNTAX_ERROR,
            "WITH TIES cannot be specified without ORDER BY clause",
        )),
    }
}

fn not_of_groups() -> Error {
    Error::unsupported("WITH TIES over a set operation or DISTINCT is not supported")
        .hint("Put it into FROM: SELECT * FROM (…) AS rows ORDER BY … FETCH FIRST … WITH TIES.")
}

/// What an expression of ORDER BY stands for: an output by its place or its name, or itself.
fn written(select: &Select, by: &Expr) -> Expr {
    let output = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            Some(expr.clone())
        }
        _ => None,
    };
    let found = match by {
        Expr::Value(value) => match &value.value {
            Value::Number(place, _) => {
                let place = place.parse::<usize>().ok().and_then(|p| p.checked_sub(1));
                place
                    .and_then(|place| select.projection.get(place))
                    .and_then(output)
            }
            _ => None,
        },
        Expr::Identifier(name) => {
            let is_named = |item: &&SelectItem| matches!(item, SelectItem::ExprWithAlias { alias, .. } if folded(alias) == folded(name));
            select.projection.iter().find(is_named).and_then(output)
        }
        _ => None,
    };
    found.unwrap_or_else(|| by.clone())
}

fn rank(order_by: Vec<OrderByExpr>) -> Expr {
    let over = WindowType::WindowSpec(WindowSpec {
        window_name: None,
        partition_by: Vec::new(),
        order_by,
        window_frame: None,
    });
    match call("rank", Vec::new()) {
        Expr::Function(function) => Expr::Function(Function {
            over: Some(over),
            ..function
        }),
        other => other,
    }
}
