//! What the engine's own rules make joins of, and what a plan promises about its rows.

use datafusion::common::Column;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};

/// A subquery of EXISTS or IN in a condition, or in FROM: references only in filters.
pub(in crate::sql) fn is_simple_relation(plan: &LogicalPlan) -> bool {
    is_simple(plan, 0, |predicate| !holds_subquery(predicate)) && !compares_namesakes(plan)
}

/// Whether what is compared with columns outside has a namesake of another relation, compared as
/// well or shown: the engine carries all up under one alias, and takes one for the other.
fn compares_namesakes(plan: &LogicalPlan) -> bool {
    let Some((compared, shown)) = compared_and_shown(plan) else {
        return true;
    };
    let is_namesake = |one: &Column| {
        let mut others = compared.iter().chain(&shown);
        others.any(|other| other.name == one.name && other.relation != one.relation)
    };
    compared.iter().any(is_namesake)
}

/// The columns in conditions that name columns outside, and those that are shown on the way up;
/// `None` where they cannot be told.
fn compared_and_shown(plan: &LogicalPlan) -> Option<(Vec<Column>, Vec<Column>)> {
    let mut compared: Vec<Column> = Vec::new();
    let mut shown = plan.schema().columns();
    let walked = plan.apply(|node| {
        match node {
            LogicalPlan::Filter(filter) => {
                for part in split_conjunction(&filter.predicate) {
                    if part.contains_outer() {
                        compared.extend(part.column_refs().into_iter().cloned());
                    }
                }
            }
            LogicalPlan::Projection(projection) => shown.extend(projection.schema.columns()),
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    });
    walked.is_ok().then_some((compared, shown))
}

/// A scalar subquery: one aggregate without groups over filters that are equalities.
pub(super) fn is_simple_value(plan: &LogicalPlan) -> bool {
    is_simple(plan, 1, only_equalities) && !compares_namesakes(plan)
}

/// Whether all references are in filters that `filter` admits, under so many aggregates.
fn is_simple(plan: &LogicalPlan, aggregates: usize, filter: fn(&Expr) -> bool) -> bool {
    let mut aggregate_count = 0;
    // What the engine carries up through the alias of a query, it looks for under its old name.
    let mut is_within_alias = false;
    let mut node = plan;
    loop {
        let refers = refers_outside(node);
        if refers && is_within_alias && aggregates > 0 {
            return false;
        }
        is_within_alias |= matches!(node, LogicalPlan::SubqueryAlias(_));
        node = match node {
            LogicalPlan::Projection(p) if !refers => &p.input,
            LogicalPlan::SubqueryAlias(a) => &a.input,
            LogicalPlan::Filter(f) if !refers || filter(&f.predicate) => &f.input,
            LogicalPlan::Filter(_) => return false,
            LogicalPlan::Aggregate(a) if !refers && a.group_expr.is_empty() => {
                aggregate_count += 1;
                &a.input
            }
            other => {
                // Below, nothing may refer outside.
                let refers = other.exists(|p| Ok(refers_outside(p))).unwrap_or(true);
                return !refers && aggregate_count == aggregates;
            }
        };
    }
}

/// The node's own expressions, with the subqueries in them.
fn refers_outside(node: &LogicalPlan) -> bool {
    let mut refers = false;
    let walked = node.apply_expressions(|expression| {
        expression.apply(|e| {
            refers |= match e {
                Expr::OuterReferenceColumn(..) => true,
                Expr::ScalarSubquery(s) => !s.outer_ref_columns.is_empty(),
                Expr::Exists(e) => !e.subquery.outer_ref_columns.is_empty(),
                Expr::InSubquery(i) => !i.subquery.outer_ref_columns.is_empty(),
                _ => false,
            };
            Ok(TreeNodeRecursion::Continue)
        })
    });
    refers || walked.is_err()
}

/// Whether an expression has a subquery in it.
pub(in crate::sql) fn holds_subquery(expression: &Expr) -> bool {
    let found = expression.exists(|e| {
        Ok(matches!(
            e,
            Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_)
        ))
    });
    found.unwrap_or(true)
}

/// Every part of a condition that refers outside is `column = outer value`. Anything but a column is
/// computed under its own name, which an output may have.
fn only_equalities(predicate: &Expr) -> bool {
    if holds_subquery(predicate) {
        return false;
    }
    split_conjunction(predicate).into_iter().all(|part| {
        let Expr::BinaryExpr(BinaryExpr { left, op, right }) = part else {
            return !part.contains_outer();
        };
        if !part.contains_outer() {
            return true;
        }
        let is_outer = |e: &Expr| e.contains_outer() && e.column_refs().is_empty();
        let is_inner = |e: &Expr| matches!(e, Expr::Column(_));
        *op == Operator::Eq
            && (is_outer(left) && is_inner(right) || is_inner(left) && is_outer(right))
    })
}

/// Whether there is at most one row for every combination of outer columns.
pub(in crate::sql) fn gives_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(p) => gives_one_row(&p.input),
        LogicalPlan::SubqueryAlias(a) => gives_one_row(&a.input),
        LogicalPlan::Filter(f) => gives_one_row(&f.input),
        LogicalPlan::Sort(s) => gives_one_row(&s.input),
        LogicalPlan::Aggregate(a) => a.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(e) => e.produce_one_row,
        LogicalPlan::Limit(limit) => super::dependent::constant(limit.fetch.as_deref()) == Some(1),
        _ => false,
    }
}
