//! Spark's `window(…)` and `session_window(…)` in GROUP BY.
//!
//! ```text
//! SELECT window.start, k, count(*) FROM r GROUP BY window(t, '10 minutes', '5 minutes'), k
//!   →  SELECT window_start AS start, k, count(*) FROM HOP(r, t, …) AS r GROUP BY window_start, window_end, k
//! … GROUP BY session_window(t, '5 minutes'), k
//!   →  … FROM SESSION(r, t, '5 minutes', k) AS r GROUP BY window_start, window_end, k
//! ```
//! The relation keeps its name, so that qualified columns still find it. The window as a whole, a
//! struct in Spark, is not here: its two ends are columns.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, Select,
    SelectItem, TableAlias, TableFactor, VisitMut, visit_expressions_mut,
};

use super::trees::{derived, table_alias};
use super::windows;
use crate::error::{Error, Result};
use crate::sql::data_types::last_part;

const NAMES: [&str; 2] = ["window", "session_window"];

/// Rewrites a select whose GROUP BY calls one of them.
pub(super) fn rewrite(select: &mut Select) -> Result<()> {
    let GroupByExpr::Expressions(groups, _) = &mut select.group_by else {
        return Ok(());
    };
    let Some(place) = groups.iter().position(|e| call_of(e).is_some()) else {
        return Ok(());
    };
    let Some(call) = call_of(&groups[place]).cloned() else {
        return Ok(());
    };
    let name = last_part(&call.name);
    let arguments = arguments_of(&call);
    let column = |name: &str| Expr::Identifier(Ident::new(name));
    groups.splice(
        place..=place,
        [column("window_start"), column("window_end")],
    );
    let others: Vec<Expr> = groups
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != place && *index != place + 1)
        .map(|(_, group)| group.clone())
        .collect();
    if others.iter().any(|group| call_of(group).is_some()) {
        return Err(Error::unsupported("only one window can be grouped by"));
    }
    replace_relation(select, &name, arguments, others)?;
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expression) = item
            && let Some((_, end)) = end_of(expression)
        {
            *item = SelectItem::ExprWithAlias {
                expr: column(end.0),
                alias: Ident::new(end.1),
            };
        }
    }
    replace_ends(&mut select.projection)?;
    replace_ends(&mut select.having)
}

/// A call of `window` or `session_window`.
fn call_of(expression: &Expr) -> Option<&Function> {
    match expression {
        Expr::Function(call) if call.over.is_none() => NAMES
            .contains(&last_part(&call.name).as_str())
            .then_some(call),
        _ => None,
    }
}

fn arguments_of(call: &Function) -> Vec<FunctionArg> {
    match &call.args {
        FunctionArguments::List(list) => list.args.clone(),
        _ => Vec::new(),
    }
}

/// `window.start` or `window.end`: which column it is, and what it is called.
fn end_of(expression: &Expr) -> Option<(&str, (&'static str, &'static str))> {
    let Expr::CompoundIdentifier(parts) = expression else {
        return None;
    };
    let [window, end] = parts.as_slice() else {
        return None;
    };
    if !NAMES.contains(&window.value.to_ascii_lowercase().as_str()) {
        return None;
    }
    let end = match end.value.to_ascii_lowercase().as_str() {
        "start" => ("window_start", "start"),
        "end" => ("window_end", "end"),
        _ => return None,
    };
    Some((&window.value, end))
}

/// The ends of the window by the names of their columns; the window as a whole is refused.
fn replace_ends<T: VisitMut>(tree: &mut T) -> Result<()> {
    let visited = visit_expressions_mut(tree, |expression| {
        if let Some((_, end)) = end_of(expression) {
            *expression = Expr::Identifier(Ident::new(end.0));
        } else if call_of(expression).is_some() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    match visited {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::unsupported("a window cannot be selected as a whole")
            .hint("Select window.start and window.end.")),
    }
}

/// The relation under TUMBLE, HOP or SESSION, by its own name.
fn replace_relation(
    select: &mut Select,
    function: &str,
    arguments: Vec<FunctionArg>,
    keys: Vec<Expr>,
) -> Result<()> {
    let refused = || {
        Error::unsupported(format!("{function} in GROUP BY needs one relation in FROM")).hint(
            "Write TUMBLE(relation, column, size), HOP(…) or SESSION(…) in FROM, and group by window_start, window_end.",
        )
    };
    let [from] = select.from.as_mut_slice() else {
        return Err(refused());
    };
    if !from.joins.is_empty() {
        return Err(refused());
    }
    let (relation, alias) = match &from.relation {
        TableFactor::Table {
            name,
            alias,
            args: None,
            ..
        } => {
            let parts = name.0.iter().filter_map(|part| part.as_ident().cloned());
            let parts: Vec<Ident> = parts.collect();
            let last = parts.last().cloned().ok_or_else(refused)?;
            let alias = alias
                .clone()
                .unwrap_or_else(|| table_alias(Ident::new(&*last.value), vec![]));
            (Expr::CompoundIdentifier(parts), alias)
        }
        TableFactor::Derived {
            lateral: false,
            subquery,
            alias: Some(alias),
            ..
        } => (Expr::Subquery(subquery.clone()), alias.clone()),
        _ => return Err(refused()),
    };
    from.relation = windowed(function, relation, alias, arguments, keys)?;
    Ok(())
}

fn windowed(
    function: &str,
    relation: Expr,
    alias: TableAlias,
    arguments: Vec<FunctionArg>,
    keys: Vec<Expr>,
) -> Result<TableFactor> {
    let argument = |e: Expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(e));
    let mut given = arguments.into_iter();
    let mut all = vec![argument(relation)];
    all.extend(given.next().map(without_qualifiers));
    let query = if function == "session_window" {
        all.extend(given);
        for key in keys {
            all.push(without_qualifiers(argument(key)));
        }
        windows::session(all)?
    } else {
        let size = given.next();
        // Spark names the size first, HOP the slide.
        let slide = given.next();
        let is_hop = slide.is_some();
        all.extend(slide);
        all.extend(size);
        all.extend(given);
        match is_hop {
            true => windows::hop(all)?,
            false => windows::tumble(all)?,
        }
    };
    Ok(derived(query, alias))
}

/// Inside the window function the relation has no alias yet.
fn without_qualifiers(mut argument: FunctionArg) -> FunctionArg {
    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(expression)) = &mut argument {
        let visited: ControlFlow<()> = visit_expressions_mut(expression, |part| {
            if let Expr::CompoundIdentifier(parts) = part
                && let Some(last) = parts.pop()
            {
                *part = Expr::Identifier(last);
            }
            ControlFlow::Continue(())
        });
        debug_assert!(visited.is_continue());
    }
    argument
}
