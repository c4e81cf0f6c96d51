//! Rewrites of query trees before DataFusion's planner: what PostgreSQL means, in words that
//! DataFusion knows. Pure: no catalog, no types; what needs a type is done by the analyzer rules of
//! [`crate::sql::context`].
//!
//! - [`names`]: output columns are called as PostgreSQL calls them, and duplicates are kept apart
//! - [`windows`]: `TUMBLE`, `HOP` and `SESSION` in FROM become subqueries over functions
//! - [`group_windows`]: Spark's `window(…)` and `session_window(…)` in GROUP BY
//! - [`groups`]: groups by nothing, and sets that name something twice
//! - [`joins`]: joins by time
//! - [`using`], [`merged_names`]: the merged columns of joins with USING, before all else
//! - [`arrays`]: array literals, and arrays of subqueries
//! - [`calls`]: calls of functions under PostgreSQL's names
//! - [`clock_words`]: `'today'` and the like as times
//! - [`json_calls`]: `jsonb_set_lax`
//! - [`numbers`]: types of number literals
//! - [`ordered_sets`]: aggregates WITHIN GROUP
//! - [`order`]: outputs under the name of a column that orders
//! - [`postgres`]: operators, casts and literals
//! - [`quantified`]: comparisons with ANY and ALL
//! - [`records`]: JSON objects as rows
//! - [`rows`]: comparisons of rows, member by member
//! - [`sets`]: functions that give rows, and aggregates that give JSON
//! - [`ties`]: FETCH FIRST … WITH TIES
//! - [`trees`]: what the others build with
//! - [`values`]: constants in VALUES
//! - [`whole_rows`]: names of relations as values, before the names of joins
//!
//! Two output columns may have one name in PostgreSQL and not in DataFusion, so the second and
//! later ones carry an invisible suffix in the plan; [`display_name`] takes it off.

mod arrays;
mod calls;
mod clock_words;
mod group_windows;
mod groups;
mod joins;
mod json_calls;
pub(crate) mod merged_names;
mod names;
mod numbers;
mod order;
mod ordered_sets;
mod postgres;
mod quantified;
mod records;
mod rows;
mod sets;
mod ties;
mod trees;
pub(crate) mod using;
mod values;
pub(crate) mod whole_rows;
mod windows;

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, Query, Select, SelectItem, Statement, TableFactor, VisitMut, VisitorMut,
};

use crate::error::{Error, Result, sqlstate};

pub use names::display_name;
pub(in crate::sql) use postgres::string_constant;
pub(crate) use postgres::table_as_select;
pub(in crate::sql) use sets::refers_to_columns;
pub(in crate::sql) use trees::{call, cast_to, set_relation, table_alias, template};

/// Functions that stand in FROM and GROUP BY only.
const WINDOW_FUNCTIONS: &[&str] = &["tumble", "hop", "session", "window", "session_window"];

/// Arguments that a function whose call is rewritten takes at most.
const ARGUMENTS_MAX: usize = 3;

/// Whether a name is one of the functions that rewriting puts others in the place of.
pub fn is_function(name: &str) -> bool {
    let is_rewritten = |count: usize| {
        let argument = Expr::Identifier(Ident::new("x"));
        let written = call(name, vec![argument; count]);
        rewrite_expression(written.clone()).map_or(true, |rewritten| rewritten != written)
    };
    WINDOW_FUNCTIONS.contains(&name) || (0..=ARGUMENTS_MAX).any(is_rewritten)
}

/// Rewrites a query for planning. Its output columns are to be shown under
/// [`display_name`] of the plan's field names.
pub fn rewrite_query(mut query: Query) -> Result<Query> {
    names::name_top_level(&mut query);
    apply(&mut query)?;
    Ok(query)
}

/// Rewrites a statement that holds queries and expressions (`INSERT`, `UPDATE`, `DELETE`,
/// `EXPLAIN`); the columns of `RETURNING` are named as a query's.
pub fn rewrite_statement(mut statement: Statement) -> Result<Statement> {
    if let Some(items) = returning(&mut statement) {
        names::name_items(items, names::Level::Top);
    }
    if let Statement::Explain { statement, .. } = &mut statement
        && let Statement::Query(query) = statement.as_mut()
    {
        names::name_top_level(query);
    }
    apply(&mut statement)?;
    Ok(statement)
}

/// Rewrites an expression: a default, a condition, an argument of `EXECUTE`.
pub fn rewrite_expression(mut expression: Expr) -> Result<Expr> {
    apply(&mut expression)?;
    Ok(expression)
}

fn returning(statement: &mut Statement) -> Option<&mut Vec<SelectItem>> {
    match statement {
        Statement::Insert(insert) => insert.returning.as_mut(),
        Statement::Update(update) => update.returning.as_mut(),
        Statement::Delete(delete) => delete.returning.as_mut(),
        _ => None,
    }
}

fn apply<T: VisitMut>(tree: &mut T) -> Result<()> {
    match tree.visit(&mut Rewriter::default()) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// Subqueries within each other's expressions. The planner checks each of them once for every one
/// around it, and again for every one around that.
const SUBQUERY_DEPTH_MAX: usize = 12;

#[derive(Default)]
struct Rewriter {
    subquery_depth: usize,
}

impl Rewriter {
    fn enter(&mut self, expression: &Expr) -> Result<()> {
        self.subquery_depth += usize::from(holds_query(expression));
        if self.subquery_depth > SUBQUERY_DEPTH_MAX {
            return Err(
                Error::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "statement is too complex")
                    .detail(format!(
                        "Subqueries in expressions may nest {SUBQUERY_DEPTH_MAX} levels."
                    ))
                    .hint("Put the inner ones into WITH."),
            );
        }
        Ok(())
    }

    fn leave(&mut self, expression: &Expr) {
        self.subquery_depth -= usize::from(holds_query(expression));
    }
}

fn holds_query(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. }
    )
}

impl VisitorMut for Rewriter {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        postgres::table_as_select(&mut query.body);
        values::type_constants(&mut query.body);
        names::keep_order_of_distinct(query);
        order::rename(query);
        into_flow(postgres::fetch_as_limit(query))
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        // Named before the expressions change, since the names come from what the user wrote.
        names::name_items(&mut select.projection, names::Level::Inner);
        let rewritten = joins::mark_asof(select)
            .and_then(|()| joins::mark_system_time(select))
            .and_then(|()| group_windows::rewrite(select));
        into_flow(rewritten)
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        if let Err(error) = joins::refuse_versions(factor) {
            return ControlFlow::Break(error);
        }
        if let Err(error) = records::rewrite_in_from(factor) {
            return ControlFlow::Break(error);
        }
        sets::rewrite_in_from(factor);
        into_flow(windows::rewrite_table_factor(factor))
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        numbers::bare_in_query(query);
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        numbers::bare_in_select(select);
        groups::rewrite(select);
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        match factor {
            TableFactor::Table {
                args: Some(arguments),
                ..
            } => numbers::bare_table_function(&mut arguments.args),
            TableFactor::Function { args, .. } => numbers::bare_table_function(args),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Error> {
        if let Err(error) = self.enter(expression) {
            return ControlFlow::Break(error);
        }
        into_flow(postgres::before_children(expression))
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Error> {
        self.leave(expression);
        numbers::type_number(expression);
        sets::rewrite_call(expression);
        ordered_sets::rewrite(expression);
        rows::compare_members(expression);
        into_flow(postgres::after_children(expression))
    }
}

fn into_flow(result: Result<()>) -> ControlFlow<Error> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

#[cfg(test)]
mod tests;
