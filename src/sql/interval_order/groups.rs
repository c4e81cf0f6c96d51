//! Groups of intervals: by length, and shown as the interval of the group whose key is the least.
//!
//! ```text
//! SELECT i, max(j) … GROUP BY i
//!   →  SELECT of_key(min(key(i))), of_key(max(key(j))) … GROUP BY length(i)
//! ```

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result as DataFusionResult};
use datafusion::functions_aggregate::expr_fn::min;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{Aggregate, Distinct, Expr, LogicalPlan, LogicalPlanBuilder};

use super::{is_interval, key_of, length_of, of_key};

/// `SELECT DISTINCT` over intervals.
pub(super) fn distinct(input: Arc<LogicalPlan>) -> DataFusionResult<Transformed<LogicalPlan>> {
    let columns = input.schema().columns().into_iter().map(Expr::Column);
    let columns: Vec<Expr> = columns.collect();
    if !columns.iter().any(|c| is_interval(c, input.schema())) {
        return Ok(Transformed::no(LogicalPlan::Distinct(Distinct::All(input))));
    }
    aggregate(Aggregate::try_new(input, columns, vec![])?)
}

/// Groups, `min`, `max` and `count(DISTINCT …)` of intervals.
pub(super) fn aggregate(aggregate: Aggregate) -> DataFusionResult<Transformed<LogicalPlan>> {
    let input = Arc::clone(&aggregate.input);
    let schema = input.schema();
    let groups = grouping_set_to_exprlist(&aggregate.group_expr)?;
    let groups: Vec<Expr> = groups.into_iter().cloned().collect();
    let is_set = matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)]);
    // The columns of grouping sets stay what they are.
    let is_by_length = |g: &Expr| !is_set && is_interval(g, schema);
    let of_intervals: Vec<bool> = groups.iter().map(is_by_length).collect();
    let any_group = of_intervals.contains(&true);
    let mut aggregates = Vec::with_capacity(aggregate.aggr_expr.len());
    let mut are_keys = Vec::with_capacity(aggregate.aggr_expr.len());
    let mut changed = any_group;
    for expression in &aggregate.aggr_expr {
        let of_keys = over_keys(expression, schema);
        changed |= of_keys.is_some();
        let (expression, is_key) = of_keys.unwrap_or_else(|| (expression.clone(), false));
        aggregates.push(expression);
        are_keys.push(is_key);
    }
    if !changed {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let shown = groups.iter().zip(&of_intervals).filter(|(_, is)| **is);
    aggregates.extend(shown.map(|(group, _)| min(key_of(group.clone()))));
    let group_expr = aggregate.group_expr.iter().map(|g| match is_by_length(g) {
        true => length_of(g.clone()),
        false => g.clone(),
    });
    let new = Aggregate::try_new(input.clone(), group_expr.collect(), aggregates)?;
    let outputs = outputs(&aggregate, &new, &of_intervals, &are_keys);
    let plan = LogicalPlanBuilder::from(LogicalPlan::Aggregate(new))
        .project(outputs)?
        .build()?;
    Ok(Transformed::yes(plan))
}

/// An aggregate over keys or lengths, and whether its result is a key.
fn over_keys(expression: &Expr, schema: &DFSchema) -> Option<(Expr, bool)> {
    match expression {
        Expr::Alias(alias) => {
            let (inner, is_key) = over_keys(&alias.expr, schema)?;
            let renamed = inner.alias_qualified(alias.relation.clone(), &alias.name);
            Some((renamed, is_key))
        }
        Expr::AggregateFunction(function) => {
            let [argument] = function.params.args.as_slice() else {
                return None;
            };
            if !is_interval(argument, schema) {
                return None;
            }
            let is_key = matches!(function.func.name(), "min" | "max");
            let counts = function.func.name() == "count" && function.params.distinct;
            let argument = match (is_key, counts) {
                (true, _) => key_of(argument.clone()),
                (_, true) => length_of(argument.clone()),
                _ => return None,
            };
            let mut params = function.params.clone();
            params.args = vec![argument];
            let over = AggregateFunction {
                func: Arc::clone(&function.func),
                params,
            };
            Some((Expr::AggregateFunction(over), is_key))
        }
        _ => None,
    }
}

/// The outputs of the former node, of those of the new one: groups, what groupings add, aggregates,
/// and at the end the keys that stand for groups.
fn outputs(
    former: &Aggregate,
    new: &Aggregate,
    of_intervals: &[bool],
    are_keys: &[bool],
) -> Vec<Expr> {
    let column = |place: usize| Expr::Column(Column::from(new.schema.qualified_field(place)));
    let width = former.schema.fields().len();
    let first_aggregate = width - are_keys.len();
    let mut next_key = width;
    let mut outputs = Vec::with_capacity(width);
    for (place, (qualifier, field)) in former.schema.iter().enumerate() {
        // Only the node itself knows it, and no query asks for it.
        if field.name() == Aggregate::INTERNAL_GROUPING_ID {
            continue;
        }
        let value = if of_intervals.get(place) == Some(&true) {
            next_key += 1;
            of_key(column(next_key - 1))
        } else if place >= first_aggregate && are_keys[place - first_aggregate] {
            of_key(column(place))
        } else {
            column(place)
        };
        outputs.push(value.alias_qualified(qualifier.cloned(), field.name()));
    }
    outputs
}
