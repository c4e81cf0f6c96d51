//! `SELECT upper(t) AS t FROM a ORDER BY a.t`: an output column under the name of the column that
//! rows are ordered by. The engine computes both side by side and cannot tell them apart, so the
//! output takes another name until the rows are in order:
//!
//! ```text
//! SELECT "t'" AS t FROM (SELECT upper(t) AS "t'" FROM a ORDER BY a.t) ordered
//! ```
//! The client is shown a name without its suffix, so that the outermost query needs none around it.

use datafusion::sql::sqlparser::ast::{Expr, Ident, OrderByKind, Query, SelectItem, SetExpr};

use super::names::{SUFFIX, figure};
use super::sets::finds;
use super::trees::{derived, set_relation, table_alias, take, template};
use crate::sql::data_types::folded;

/// Renames such columns of the outermost query.
pub(super) fn rename_at_top(query: &mut Query) {
    renamed(query);
}

/// Renames such columns, with a query around that gives them their names back.
pub(super) fn rename(query: &mut Query) {
    let Some(outputs) = renamed(query) else {
        return;
    };
    let projection = outputs
        .into_iter()
        .map(|(inner, name)| SelectItem::ExprWithAlias {
            expr: Expr::Identifier(inner),
            alias: name,
        })
        .collect();
    let inner = std::mem::replace(query, template("SELECT 1 FROM input"));
    set_relation(
        query,
        derived(inner, table_alias(Ident::new("ordered"), vec![])),
    );
    if let SetExpr::Select(select) = query.body.as_mut() {
        select.projection = projection;
    }
}

/// Gives conflicting outputs another name; all outputs' names now and before, if there was one.
fn renamed(query: &mut Query) -> Option<Vec<(Ident, Ident)>> {
    let OrderByKind::Expressions(orders) = &query.order_by.as_ref()?.kind else {
        return None;
    };
    let ordered_by = |name: &str| {
        orders.iter().any(|order| {
            finds(&order.expr, |e| match e {
                Expr::CompoundIdentifier(parts) => parts.last().is_some_and(|p| folded(p) == name),
                _ => false,
            })
        })
    };
    let SetExpr::Select(select) = query.body.as_mut() else {
        return None;
    };
    let mut outputs = Vec::new();
    let mut conflicts = Vec::new();
    for (place, item) in select.projection.iter().enumerate() {
        let (expression, name) = match item {
            SelectItem::UnnamedExpr(e) => (e, figure(e)),
            SelectItem::ExprWithAlias { expr, alias } => (expr, folded(alias)),
            _ => return None,
        };
        // The column itself is no second one of its name.
        let is_it = match expression {
            Expr::Identifier(column) => folded(column) == name,
            Expr::CompoundIdentifier(parts) => {
                let has_name = parts.last().is_some_and(|part| folded(part) == name);
                let mut orders = orders.iter();
                has_name && orders.any(|order| finds(&order.expr, |e| e == expression))
            }
            _ => false,
        };
        if !is_it && ordered_by(&name) {
            conflicts.push(place);
        }
        outputs.push(name);
    }
    let mut once = outputs.clone();
    once.sort();
    once.dedup();
    if conflicts.is_empty() || once.len() < outputs.len() {
        return None;
    }
    let quoted = |name: String| Ident::with_quote('"', name);
    let mut names = Vec::new();
    for (place, (item, name)) in select.projection.iter_mut().zip(outputs).enumerate() {
        let inner = match conflicts.contains(&place) {
            true => format!("{name}{SUFFIX}ordered"),
            false => name.clone(),
        };
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            *item = SelectItem::ExprWithAlias {
                expr: take(expr),
                alias: quoted(inner.clone()),
            };
        }
        names.push((quoted(inner), quoted(name)));
    }
    // An order by the output's own name means the output.
    let renamed = |e: &Expr| match e {
        Expr::Identifier(i) => names.iter().find(|(_, name)| name.value == folded(i)),
        _ => None,
    };
    if let Some(OrderByKind::Expressions(orders)) = query.order_by.as_mut().map(|o| &mut o.kind) {
        for order in orders {
            if let Some((inner, _)) = renamed(&order.expr) {
                order.expr = Expr::Identifier(inner.clone());
            }
        }
    }
    Some(names)
}
