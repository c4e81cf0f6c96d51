//! Groups of intervals: by length, and shown as the interval of the group whose key is the least.
//!
//! ```text
//! SELECT i, max(j) … GROUP BY i
//!   →  SELECT of_key(min(key(i))), of_key(max(key(j))) … GROUP BY length(i)
//! ```
//! In grouping sets an interval is shown where its length is: in the sets that have it.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result as DataFusionResult};
use datafusion::functions_aggregate::expr_fn::min;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, GroupingSet, LogicalPlan, LogicalPlanBuilder, when,
};

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
    let schema = aggregate.input.schema();
    let groups = grouping_set_to_exprlist(&aggregate.group_expr)?;
    let groups: Vec<Expr> = groups.into_iter().cloned().collect();
    let is_set = matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)]);
    let of_intervals: Vec<bool> = groups.iter().map(|g| is_interval(g, schema)).collect();
    let any_group = of_intervals.contains(&true);
    let lengths = Lengths::of(&groups, &of_intervals, is_set);
    let mut aggregates = Vec::with_capacity(aggregate.aggr_expr.len());
    let mut are_keys = Vec::with_capacity(aggregate.aggr_expr.len());
    let mut changed = any_group;
    for expression in &aggregate.aggr_expr {
        let of_keys = over_keys(expression, schema, &lengths);
        changed |= of_keys.is_some();
        let (expression, is_key) = of_keys.unwrap_or_else(|| (expression.clone(), false));
        aggregates.push(expression);
        are_keys.push(is_key);
    }
    if !changed {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let shown = groups.iter().zip(&of_intervals).filter(|(_, is)| **is);
    // Under names of their own: the query may ask for the least of a group itself.
    aggregates.extend(shown.enumerate().map(|(place, (group, _))| {
        min(key_of(group.clone())).alias(format!("\u{1}shown {place}"))
    }));
    let group_expr = aggregate.group_expr.iter().map(|g| lengths.in_place(g));
    let input = lengths.beside(&aggregate.input)?;
    let new = Aggregate::try_new(input, group_expr.collect(), aggregates)?;
    let outputs = outputs(&aggregate, &new, &of_intervals, &are_keys, is_set)?;
    let plan = LogicalPlanBuilder::from(LogicalPlan::Aggregate(new))
        .project(outputs)?
        .build()?;
    Ok(Transformed::yes(plan))
}

/// What stands for groups that are intervals. The members of sets are columns, since a plan may be
/// looked at twice.
struct Lengths {
    groups: Vec<(Expr, Expr)>,
    are_columns: bool,
}

impl Lengths {
    fn of(groups: &[Expr], of_intervals: &[bool], are_columns: bool) -> Self {
        let intervals = groups.iter().zip(of_intervals).enumerate();
        let groups = intervals.filter(|(_, (_, is))| **is);
        let length = |(place, (group, _)): (usize, (&Expr, &bool))| {
            let length = match are_columns {
                true => Expr::Column(Column::from_name(format!("\u{1}length {place}"))),
                false => length_of(group.clone()),
            };
            (group.clone(), length)
        };
        Self {
            groups: groups.map(length).collect(),
            are_columns,
        }
    }

    /// The input of an aggregate with the columns that it groups by.
    fn beside(&self, input: &Arc<LogicalPlan>) -> DataFusionResult<Arc<LogicalPlan>> {
        if !self.are_columns || self.groups.is_empty() {
            return Ok(Arc::clone(input));
        }
        let columns = input.schema().columns().into_iter().map(Expr::Column);
        let lengths = self.groups.iter().map(|(group, column)| {
            length_of(group.clone()).alias(column.schema_name().to_string())
        });
        let plan = LogicalPlanBuilder::from(Arc::clone(input))
            .project(columns.chain(lengths))?
            .build()?;
        Ok(Arc::new(plan))
    }

    /// A group, or all groups of a set, with lengths for intervals.
    fn in_place(&self, group: &Expr) -> Expr {
        let all = |list: &[Expr]| list.iter().map(|g| self.in_place(g)).collect();
        match group {
            Expr::GroupingSet(set) => Expr::GroupingSet(match set {
                GroupingSet::Rollup(list) => GroupingSet::Rollup(all(list)),
                GroupingSet::Cube(list) => GroupingSet::Cube(all(list)),
                GroupingSet::GroupingSets(sets) => {
                    GroupingSet::GroupingSets(sets.iter().map(|set| all(set)).collect())
                }
            }),
            group => match self.groups.iter().find(|(of, _)| of == group) {
                Some((_, length)) => length.clone(),
                None => group.clone(),
            },
        }
    }
}

/// An aggregate over keys or lengths, and whether its result is a key.
fn over_keys(expression: &Expr, schema: &DFSchema, lengths: &Lengths) -> Option<(Expr, bool)> {
    match expression {
        Expr::Alias(alias) => {
            let (inner, is_key) = over_keys(&alias.expr, schema, lengths)?;
            let renamed = inner.alias_qualified(alias.relation.clone(), &alias.name);
            Some((renamed, is_key))
        }
        // It names groups.
        Expr::AggregateFunction(function) if function.func.name() == "grouping" => {
            let args = &function.params.args;
            if !args.iter().any(|a| is_interval(a, schema)) {
                return None;
            }
            let mut over = function.clone();
            over.params.args = args.iter().map(|a| lengths.in_place(a)).collect();
            Some((Expr::AggregateFunction(over), false))
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
    is_set: bool,
) -> DataFusionResult<Vec<Expr>> {
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
            let shown = of_key(column(next_key - 1));
            match is_set {
                true => when(column(place).is_not_null(), shown).end()?,
                false => shown,
            }
        } else if place >= first_aggregate && are_keys[place - first_aggregate] {
            of_key(column(place))
        } else {
            column(place)
        };
        outputs.push(value.alias_qualified(qualifier.cloned(), field.name()));
    }
    Ok(outputs)
}
