//! Array literals, and `ARRAY(SELECT …)`.

use datafusion::sql::sqlparser::ast::{
    self, AccessExpr, Expr, FunctionArguments, Ident, Query, SelectItem, SetExpr, Subscript, Value,
};

use super::trees::{call, derived, number, set_relation, string, table_alias, template};
use crate::error::{Error, Result, sqlstate};
use crate::sql::data_types::last_part;
use crate::values::list::{Element, parse_elements};

/// `'{a,"b c",NULL}'`, one dimension, as `ARRAY['a', 'b c', NULL]`. Errors: 22P02 a text that is
/// none.
pub(super) fn array(text: &str) -> Result<Expr> {
    let element = |element| match element {
        Element::Null => Ok(Expr::value(Value::Null)),
        Element::Text(text) => Ok(string(text)),
        Element::Nested(_) => Err(Error::new(
            sqlstate::INVALID_TEXT,
            format!("malformed array literal: \"{text}\""),
        )
        .detail("The array must have one dimension.")),
    };
    let elem = parse_elements(text)?.into_iter().map(element);
    let elem = elem.collect::<Result<Vec<_>>>()?;
    Ok(Expr::Array(ast::Array { elem, named: true }))
}

/// `a[:2]`, `a[2:]`: slices from the first element, or to the last.
pub(super) fn open_slices(access_chain: &mut [AccessExpr]) {
    for access in access_chain {
        if let AccessExpr::Subscript(Subscript::Slice {
            lower_bound,
            upper_bound,
            ..
        }) = access
        {
            lower_bound.get_or_insert_with(|| number(1));
            // More than there are is as many as there are.
            upper_bound.get_or_insert_with(|| number(i32::MAX));
        }
    }
}

/// `ARRAY(SELECT …)`. The subquery's ORDER BY becomes the aggregate's, since a relation has no
/// order of its own:
///
/// ```text
/// ARRAY(SELECT x FROM t ORDER BY y DESC)
///   → (SELECT array_agg(element ORDER BY order_1 DESC)
///      FROM (SELECT x, y AS order_1 FROM t ORDER BY y DESC) AS elements (element, order_1))
/// ```
pub(super) fn array_of_subquery(expression: &mut Expr) -> Result<()> {
    let Expr::Function(function) = expression else {
        return Ok(());
    };
    if last_part(&function.name) != "array" {
        return Err(Error::new(
            sqlstate::SYNTAX_ERROR,
            format!(
                "a query as the argument of {} needs parentheses of its own",
                function.name
            ),
        ));
    }
    let FunctionArguments::Subquery(mut query) =
        std::mem::replace(&mut function.args, FunctionArguments::None)
    else {
        return Ok(());
    };
    let orders = order_columns(&mut query);
    let mut element = call("array_agg", vec![Expr::Identifier(Ident::new("element"))]);
    if let Expr::Function(aggregate) = &mut element
        && let FunctionArguments::List(list) = &mut aggregate.args
        && !orders.is_empty()
    {
        list.clauses
            .push(ast::FunctionArgumentClause::OrderBy(orders.clone()));
    }
    let mut columns = vec![Ident::new("element")];
    columns.extend(orders.iter().filter_map(|order| match &order.expr {
        Expr::Identifier(ident) if ident.value != "element" => Some(ident.clone()),
        _ => None,
    }));
    let mut aggregate: Query = template("SELECT element FROM input");
    if let SetExpr::Select(select) = aggregate.body.as_mut() {
        let element = call("array_or_empty", vec![element]);
        select.projection = vec![SelectItem::UnnamedExpr(element)];
    }
    set_relation(
        &mut aggregate,
        derived(*query, table_alias(Ident::new("elements"), columns)),
    );
    *expression = Expr::Subquery(Box::new(aggregate));
    Ok(())
}

/// The order of a subquery of one column as an order over its columns; an order by something
/// else than the column adds that as a column. Empty where the query's form does not allow it.
fn order_columns(query: &mut Query) -> Vec<ast::OrderByExpr> {
    let Some(ast::OrderByKind::Expressions(orders)) = query.order_by.as_ref().map(|o| &o.kind)
    else {
        return Vec::new();
    };
    let mut orders = orders.clone();
    let SetExpr::Select(select) = query.body.as_mut() else {
        return Vec::new();
    };
    let [SelectItem::UnnamedExpr(output) | SelectItem::ExprWithAlias { expr: output, .. }] =
        select.projection.as_slice()
    else {
        return Vec::new();
    };
    let output = output.clone();
    let output_name = match &select.projection[0] {
        SelectItem::ExprWithAlias { alias, .. } => Some(Expr::Identifier(alias.clone())),
        _ => None,
    };
    for (index, order) in orders.iter_mut().enumerate() {
        let is_first = matches!(&order.expr, Expr::Value(v)
            if matches!(&v.value, Value::Number(n, _) if *n == "1"));
        let is_output =
            is_first || order.expr == output || output_name.as_ref() == Some(&order.expr);
        let name = if is_output {
            Ident::new("element")
        } else if select.distinct.is_some() {
            return Vec::new();
        } else {
            let name = Ident::new(format!("order_{}", index + 1));
            select.projection.push(SelectItem::ExprWithAlias {
                expr: order.expr.clone(),
                alias: name.clone(),
            });
            name
        };
        order.expr = Expr::Identifier(name);
    }
    orders
}
