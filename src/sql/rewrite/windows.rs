//! `TUMBLE(rel, time, size)`, `HOP(rel, time, slide, size)` and `SESSION(rel, time, gap, key…)` in
//! FROM.
//!
//! ```text
//! TUMBLE(r, t, s)     (SELECT *, tumble_start(t, s) AS window_start, tumble_end(t, s) AS window_end
//!                      FROM r WHERE t IS NOT NULL) AS tumble
//! HOP(r, t, d, s)     (SELECT *, window_start + s AS window_end
//!                      FROM (SELECT *, unnest(hop_starts(t, d, s)) AS window_start
//!                            FROM r WHERE t IS NOT NULL) AS hop) AS hop
//! SESSION(r, t, g, k) (SELECT *, session_start(t, g) OVER w AS window_start,
//!                      session_end(t, g) OVER w AS window_end
//!                      FROM r WHERE t IS NOT NULL WINDOW w AS (PARTITION BY k ORDER BY t)) AS session
//! ```
//! A row without a time is in no window, as in Spark.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, Ident, Query, TableAlias, TableAliasColumnDef, TableFactor,
    TableFunctionArgs, Value, visit_expressions_mut,
};

use super::trees::{
    derived, plain_arguments, relation as named_relation, set_relation, string, table_alias,
    template,
};
use crate::error::{Error, Result, sqlstate};
use crate::sql::data_types::last_part;
use crate::sql::interval;

/// Rewrites a window function in FROM; other table functions get PostgreSQL's column names.
pub(super) fn rewrite_table_factor(factor: &mut TableFactor) -> Result<()> {
    let TableFactor::Table {
        name,
        alias,
        args: Some(TableFunctionArgs { args, .. }),
        ..
    } = factor
    else {
        return Ok(());
    };
    let function = last_part(name);
    let subquery = match function.as_str() {
        "tumble" => tumble(std::mem::take(args))?,
        "hop" => hop(std::mem::take(args))?,
        "session" => session(std::mem::take(args))?,
        "generate_series" => {
            name_series(name, alias);
            return Ok(());
        }
        _ => {
            drop_catalog_prefix(name);
            return Ok(());
        }
    };
    let alias = alias
        .take()
        .unwrap_or_else(|| table_alias(Ident::new(&*function), vec![]));
    *factor = derived(subquery, alias);
    Ok(())
}

/// `pg_catalog.f(…)` is `f(…)`.
fn drop_catalog_prefix(name: &mut datafusion::sql::sqlparser::ast::ObjectName) {
    if name.0.len() == 2 && name.0[0].to_string().eq_ignore_ascii_case("pg_catalog") {
        name.0.remove(0);
    }
}

/// A function that gives one column calls it by the alias: `generate_series(1, 3) AS i` is `i(i)`.
fn name_series(
    name: &mut datafusion::sql::sqlparser::ast::ObjectName,
    alias: &mut Option<TableAlias>,
) {
    drop_catalog_prefix(name);
    let alias = alias.get_or_insert_with(|| table_alias(Ident::new("generate_series"), vec![]));
    if alias.columns.is_empty() {
        alias.columns.push(TableAliasColumnDef {
            name: alias.name.clone(),
            data_type: None,
        });
    }
}

pub(super) fn tumble(arguments: Vec<FunctionArg>) -> Result<Query> {
    let [relation, time, size] =
        exactly("tumble", "TUMBLE(relation, time_column, size)", arguments)?;
    let relation = relation_of("tumble", relation)?;
    let time = time_of("tumble", time)?;
    let size = length_of("tumble", "size", size)?;
    let mut query = template(
        "SELECT *, tumble_start($1, $2) AS window_start, tumble_end($1, $2) AS window_end \
         FROM input WHERE $1 IS NOT NULL",
    );
    fill(&mut query, &[time, size]);
    set_relation(&mut query, relation);
    Ok(query)
}

pub(super) fn hop(arguments: Vec<FunctionArg>) -> Result<Query> {
    let [relation, time, slide, size] =
        exactly("hop", "HOP(relation, time_column, slide, size)", arguments)?;
    let relation = relation_of("hop", relation)?;
    let time = time_of("hop", time)?;
    let slide = length_of("hop", "slide", slide)?;
    let size = length_of("hop", "size", size)?;
    let mut inner = template(
        "SELECT *, unnest(hop_starts($1, $2, $3)) AS window_start \
         FROM input WHERE $1 IS NOT NULL",
    );
    fill(&mut inner, &[time, slide, size.clone()]);
    set_relation(&mut inner, relation);
    let mut outer = template("SELECT *, window_start + $1 AS window_end FROM input");
    fill(&mut outer, &[size]);
    set_relation(
        &mut outer,
        derived(inner, table_alias(Ident::new("hop"), vec![])),
    );
    Ok(outer)
}

pub(super) fn session(mut arguments: Vec<FunctionArg>) -> Result<Query> {
    const USAGE: &str = "SESSION(relation, time_column, gap, key, …)";
    let keys = arguments.split_off(arguments.len().min(3));
    let [relation, time, gap] = exactly("session", USAGE, arguments)?;
    let relation = relation_of("session", relation)?;
    let time = time_of("session", time)?;
    let gap = length_of("session", "gap", gap)?;
    let mut values = vec![time, gap];
    for key in keys {
        let [key] = exactly("session", USAGE, vec![key])?;
        values.push(key);
    }
    let keys: Vec<String> = (3..=values.len())
        .map(|index| format!("${index}"))
        .collect();
    let partition = match keys.is_empty() {
        true => String::new(),
        false => format!("PARTITION BY {} ", keys.join(", ")),
    };
    let mut query = template(&format!(
        "SELECT *, session_start($1, $2) OVER ({partition}ORDER BY $1) AS window_start, \
         session_end($1, $2) OVER ({partition}ORDER BY $1) AS window_end \
         FROM input WHERE $1 IS NOT NULL"
    ));
    fill(&mut query, &values);
    set_relation(&mut query, relation);
    Ok(query)
}

/// Puts expressions in place of `$1`, `$2`, ….
fn fill(query: &mut Query, values: &[Expr]) {
    let done: ControlFlow<()> = visit_expressions_mut(query, |expression| {
        if let Expr::Value(value) = expression
            && let Value::Placeholder(name) = &value.value
        {
            let index = name.trim_start_matches('$').parse::<usize>().unwrap_or(0);
            if let Some(value) = index.checked_sub(1).and_then(|i| values.get(i)) {
                *expression = value.clone();
            }
        }
        ControlFlow::Continue(())
    });
    debug_assert!(done.is_continue());
}

/// The arguments' expressions, in the number that the function takes.
fn exactly<const N: usize>(
    function: &str,
    usage: &str,
    arguments: Vec<FunctionArg>,
) -> Result<[Expr; N]> {
    let count = arguments.len();
    plain_arguments(&arguments)
        .and_then(|e| <[Expr; N]>::try_from(e).ok())
        .ok_or_else(|| {
            Error::new(
                sqlstate::UNDEFINED_FUNCTION,
                format!("{function} takes {N} arguments, not {count}"),
            )
            .hint(format!("Write {usage}."))
        })
}

/// The relation that a window function reads: a name or a subquery in parentheses.
fn relation_of(function: &str, argument: Expr) -> Result<TableFactor> {
    let name = match argument {
        Expr::Subquery(query) => {
            return Ok(derived(*query, table_alias(Ident::new("input"), vec![])));
        }
        Expr::Identifier(ident) => vec![ident],
        Expr::CompoundIdentifier(parts) => parts,
        other => {
            return Err(Error::new(
                sqlstate::UNDEFINED_FUNCTION,
                format!("the first argument of {function} must be a relation, not {other}"),
            )
            .hint("Give a name, or a query in parentheses."));
        }
    };
    Ok(named_relation(name))
}

fn time_of(function: &str, argument: Expr) -> Result<Expr> {
    match argument {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => Ok(argument),
        other => Err(Error::new(
            sqlstate::UNDEFINED_FUNCTION,
            format!("the second argument of {function} must be a column, not {other}"),
        )),
    }
}

/// A constant length: an interval without months, or a number for integer times.
fn length_of(function: &str, what: &str, argument: Expr) -> Result<Expr> {
    let wrong = |reason: &str| {
        Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("{what} of {function} {reason}"),
        )
        .hint("Give a constant such as INTERVAL '10 minutes', or a number for a bigint column.")
    };
    if let Expr::Value(value) = &argument
        && let Value::Number(number, _) = &value.value
    {
        return match number.to_string().parse::<i64>() {
            Ok(n) if n > 0 => Ok(argument),
            _ => Err(wrong("must be a whole number greater than zero")),
        };
    }
    match interval::expression_us(&argument) {
        Some(us) if us > 0 => match argument {
            // Spark writes plain strings.
            Expr::Value(_) => Ok(interval_literal(us)),
            other => Ok(other),
        },
        Some(_) => Err(wrong("must be greater than zero")),
        None if matches!(argument, Expr::UnaryOp { .. }) => Err(wrong("must be greater than zero")),
        None => Err(wrong("must be a constant of fixed length")),
    }
}

fn interval_literal(us: i64) -> Expr {
    Expr::Interval(datafusion::sql::sqlparser::ast::Interval {
        value: Box::new(string(interval::format_us(us))),
        leading_field: None,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    })
}
