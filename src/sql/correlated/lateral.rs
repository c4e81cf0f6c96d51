//! `LATERAL` subqueries, which are the right sides of joins.
//!
//! ```text
//! p, LATERAL (SELECT x FROM q WHERE q.k = p.k)   →   p ⋈ (SELECT x, k AS k' FROM q) ON k' = p.k
//! any other                                      →   evaluated for every combination of outer columns
//! ```
//! The engine's own rule for the first is not used: it takes conditions that are never true, and
//! what stands above such a join, for something else.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, Result as DataFusionResult, TableReference};
use datafusion::logical_expr::utils::{conjunction, merge_schema, split_conjunction_owned};
use datafusion::logical_expr::{
    Expr, Filter, Join, LogicalPlan, LogicalPlanBuilder, Projection, SubqueryAlias,
};

use super::dependent::Dependent;
use super::{Names, simple};

pub(super) fn rewrite(join: Join, fresh: &Names) -> DataFusionResult<LogicalPlan> {
    if !matches!(join.join_type, JoinType::Inner | JoinType::Left) {
        return Ok(LogicalPlan::Join(join));
    }
    let (inner, alias) = lateral_of(&join.right);
    let mut columns = Vec::new();
    for column in unanswered(&inner)? {
        if join.left.schema().has_column(&column) && !columns.contains(&column) {
            columns.push(column);
        }
    }
    if columns.is_empty() {
        return Ok(LogicalPlan::Join(join));
    }
    let outputs = join.schema.columns();
    let conditions = join
        .on
        .iter()
        .map(|(left, right)| left.clone().eq(right.clone()))
        .chain(join.filter.clone());
    let joined = match simple::is_simple_relation(&inner) {
        true => {
            let pulled = pull_up(&inner, &columns, fresh)?;
            let right = named(pulled.plan, &inner, alias, &pulled.carried)?;
            let conditions = conditions.chain(pulled.conditions);
            LogicalPlanBuilder::from(Arc::unwrap_or_clone(join.left))
                .join_on(right, join.join_type, conditions)?
                .build()?
        }
        false => {
            let dependent = Dependent::new(&join.left, columns, fresh)?;
            let carried: Vec<Column> = dependent.carried().collect();
            let right = named(dependent.evaluate(&inner)?, &inner, alias, &carried)?;
            let left = Arc::unwrap_or_clone(join.left);
            dependent.join(left, right, join.join_type, conjunction(conditions))?
        }
    };
    LogicalPlanBuilder::from(joined)
        .project(outputs.into_iter().map(Expr::Column))?
        .build()
}

/// The plan with its columns under the alias of the subquery, and the carried ones.
fn named(
    plan: LogicalPlan,
    inner: &LogicalPlan,
    alias: Option<TableReference>,
    carried: &[Column],
) -> DataFusionResult<LogicalPlan> {
    let own = inner.schema().columns().into_iter();
    let named = own.map(|column| {
        let expression = Expr::Column(column.clone());
        match &alias {
            Some(alias) => expression.alias_qualified(Some(alias.clone()), column.name),
            None => expression,
        }
    });
    let outputs: Vec<Expr> = named
        .chain(carried.iter().cloned().map(Expr::Column))
        .collect();
    LogicalPlanBuilder::from(plan).project(outputs)?.build()
}

/// A relation without its conditions on columns outside.
struct Pulled {
    plan: LogicalPlan,
    /// The conditions, over its columns and those outside.
    conditions: Vec<Expr>,
    /// Its columns that only the conditions need, behind its own.
    carried: Vec<Column>,
}

/// Takes the conditions on the columns `of` the left side out of a relation that has such references
/// in filters only.
fn pull_up(plan: &LogicalPlan, of: &[Column], fresh: &Names) -> DataFusionResult<Pulled> {
    match plan {
        LogicalPlan::Filter(filter) => {
            let mut pulled = pull_up(&filter.input, of, fresh)?;
            let mut rest = Vec::new();
            for part in split_conjunction_owned(filter.predicate.clone()) {
                let answered = part.transform_up(|e| match e {
                    Expr::OuterReferenceColumn(_, column) if of.contains(&column) => {
                        Ok(Transformed::yes(Expr::Column(column)))
                    }
                    other => Ok(Transformed::no(other)),
                })?;
                match answered.transformed {
                    true => pulled.conditions.push(answered.data),
                    false => rest.push(answered.data),
                }
            }
            if let Some(rest) = conjunction(rest) {
                let filter = Filter::try_new(rest, Arc::new(pulled.plan))?;
                pulled.plan = LogicalPlan::Filter(filter);
            }
            Ok(pulled)
        }
        LogicalPlan::Projection(projection) => {
            let pulled = pull_up(&projection.input, of, fresh)?;
            let outputs = projection.expr.clone();
            carried_up(pulled, &projection.input, outputs, fresh)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let pulled = pull_up(&alias.input, of, fresh)?;
            let columns = alias.input.schema().columns().into_iter();
            let outputs = columns.zip(alias.schema.columns()).map(|(column, name)| {
                Expr::Column(column).alias_qualified(name.relation, name.name)
            });
            carried_up(pulled, &alias.input, outputs.collect(), fresh)
        }
        other => Ok(Pulled {
            plan: other.clone(),
            conditions: Vec::new(),
            carried: Vec::new(),
        }),
    }
}

/// A projection that hands on what conditions need of its input.
fn carried_up(
    pulled: Pulled,
    input: &LogicalPlan,
    mut outputs: Vec<Expr>,
    fresh: &Names,
) -> DataFusionResult<Pulled> {
    let mut carried: Vec<(Column, Column)> = Vec::new();
    let of_input =
        |column: &Column| pulled.carried.contains(column) || input.schema().has_column(column);
    let mut conditions = Vec::with_capacity(pulled.conditions.len());
    for condition in pulled.conditions {
        let above = condition.transform_up(|e| match e {
            Expr::Column(column) if of_input(&column) => {
                let known = carried.iter().find(|(below, _)| *below == column);
                let name = match known {
                    Some((_, name)) => name.clone(),
                    None => {
                        let name = Column::new_unqualified(fresh.fresh("compared column"));
                        carried.push((column, name.clone()));
                        name
                    }
                };
                Ok(Transformed::yes(Expr::Column(name)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        conditions.push(above.data);
    }
    let added = carried.iter();
    outputs.extend(added.map(|(below, name)| Expr::Column(below.clone()).alias(&name.name)));
    let plan = Projection::try_new(outputs, Arc::new(pulled.plan))?;
    Ok(Pulled {
        plan: LogicalPlan::Projection(plan),
        conditions,
        carried: carried.into_iter().map(|(_, name)| name).collect(),
    })
}

/// The plan of a lateral subquery, and its alias. The planner marks it as one only where it refers
/// outside itself, and not where a subquery within does.
fn lateral_of(plan: &Arc<LogicalPlan>) -> (Arc<LogicalPlan>, Option<TableReference>) {
    match plan.as_ref() {
        LogicalPlan::Subquery(subquery) => (Arc::clone(&subquery.subquery), None),
        LogicalPlan::SubqueryAlias(SubqueryAlias { input, alias, .. }) => {
            let inner = match input.as_ref() {
                LogicalPlan::Subquery(subquery) => &subquery.subquery,
                _ => input,
            };
            (Arc::clone(inner), Some(alias.clone()))
        }
        _ => (Arc::clone(plan), None),
    }
}

/// References to columns outside that no part of the plan has.
fn unanswered(plan: &LogicalPlan) -> DataFusionResult<Vec<Column>> {
    let inputs = plan.inputs();
    let around = merge_schema(&inputs);
    let mut found = Vec::new();
    plan.apply_expressions(|expression| {
        expression.apply(|e| {
            let subquery = match e {
                Expr::OuterReferenceColumn(_, column) => {
                    found.push(column.clone());
                    None
                }
                Expr::ScalarSubquery(subquery) => Some(subquery),
                Expr::Exists(test) => Some(&test.subquery),
                Expr::InSubquery(test) => Some(&test.subquery),
                Expr::SetComparison(test) => Some(&test.subquery),
                _ => None,
            };
            if let Some(subquery) = subquery {
                let mut inner = unanswered(&subquery.subquery)?;
                inner.retain(|column| !around.has_column(column));
                found.extend(inner);
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    for (place, input) in inputs.iter().enumerate() {
        let mut below = unanswered(input)?;
        if let (LogicalPlan::Join(join), 1) = (plan, place) {
            // A lateral one looks at the relations left of it.
            below.retain(|column| !join.left.schema().has_column(column));
        }
        found.extend(below);
    }
    Ok(found)
}
