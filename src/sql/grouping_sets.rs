//! Expressions in GROUPING SETS, ROLLUP and CUBE as columns of the input.
//!
//! The engine's rules settle types within an expression and so change what it is called; a group
//! gets its old name back by an alias, which cannot stand in a grouping set, so that whoever reads
//! the group finds no column. Constants among them are taken out by a rule that knows no sets.
//!
//! ```text
//! Aggregate (ROLLUP (upper(t), 7), …)  →  Projection "group 0" AS "upper(t)", "group 1" AS "7", …
//!   input                                  Aggregate (ROLLUP ("group 0", "group 1"), …)
//!                                          Projection input.*, upper(t) AS "group 0", 7 AS "group 1"
//! ```
//! Runs first, before any rule looks at types or at `grouping(…)`.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result as DataFusionResult, TableReference};
use datafusion::logical_expr::{Aggregate, Expr, GroupingSet, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;

/// The relation that a group seems to be of whose name is another's with that one's relation: the cast
/// of a column beside the column.
const COMPUTED: &str = "\u{1}computed";

/// The rule.
#[derive(Debug, Default)]
pub(crate) struct GroupingColumns;

impl AnalyzerRule for GroupingColumns {
    fn name(&self) -> &str {
        "grouping_columns"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Aggregate(aggregate) if !computed(&aggregate).is_empty() => {
                Ok(Transformed::yes(over_columns(aggregate)?))
            }
            other => Ok(Transformed::no(other)),
        })
        .map(|t| t.data)
    }
}

/// The members of grouping sets that are no columns, each once.
fn computed(aggregate: &Aggregate) -> Vec<Expr> {
    let mut found: Vec<Expr> = Vec::new();
    if !aggregate
        .group_expr
        .iter()
        .any(|e| matches!(e, Expr::GroupingSet(_)))
    {
        return found;
    }
    let members = aggregate.group_expr.iter().flat_map(|group| match group {
        Expr::GroupingSet(set) => set.distinct_expr(),
        other => vec![other],
    });
    for member in members {
        if !matches!(member, Expr::Column(_)) && !found.contains(member) {
            found.push(member.clone());
        }
    }
    found
}

fn over_columns(aggregate: Aggregate) -> DataFusionResult<LogicalPlan> {
    let computed = computed(&aggregate);
    // Not by what they are called: a cast is called as what it is of.
    let names: Vec<String> = (0..computed.len())
        .map(|place| format!("\u{1}group {place}"))
        .collect();
    let column = |expression: Expr| match computed.iter().position(|e| *e == expression) {
        Some(place) => Expr::Column(Column::from_name(&names[place])),
        None => expression,
    };
    let columns = |list: Vec<Expr>| list.into_iter().map(column).collect::<Vec<_>>();
    let Aggregate {
        input,
        group_expr,
        aggr_expr,
        schema,
        ..
    } = aggregate;
    let groups: Vec<Expr> = group_expr
        .into_iter()
        .map(|group| match group {
            Expr::GroupingSet(GroupingSet::Rollup(list)) => {
                Expr::GroupingSet(GroupingSet::Rollup(columns(list)))
            }
            Expr::GroupingSet(GroupingSet::Cube(list)) => {
                Expr::GroupingSet(GroupingSet::Cube(columns(list)))
            }
            Expr::GroupingSet(GroupingSet::GroupingSets(sets)) => Expr::GroupingSet(
                GroupingSet::GroupingSets(sets.into_iter().map(columns).collect()),
            ),
            other => column(other),
        })
        .collect();
    let calls = aggr_expr
        .into_iter()
        .map(|call| {
            call.transform_up(|e| match e {
                Expr::AggregateFunction(mut function) if function.func.name() == "grouping" => {
                    function.params.args = columns(function.params.args);
                    Ok(Transformed::yes(Expr::AggregateFunction(function)))
                }
                other => Ok(Transformed::no(other)),
            })
            .map(|t| t.data)
        })
        .collect::<DataFusionResult<Vec<_>>>()?;
    let mut list: Vec<Expr> = input
        .schema()
        .columns()
        .into_iter()
        .map(Expr::Column)
        .collect();
    list.extend(
        computed
            .iter()
            .cloned()
            .zip(&names)
            .map(|(e, name)| e.alias(name)),
    );
    let plan = LogicalPlanBuilder::from(Arc::unwrap_or_clone(input))
        .project(list)?
        .aggregate(groups, calls)?
        .build()?;
    let all = schema.columns();
    let is_whole_name = |name: &str| {
        let mut others = all.iter().filter(|column| column.relation.is_some());
        others.any(|column| column.flat_name() == name)
    };
    // Whoever reads the groups knows them by the names that they had.
    let outputs = plan.schema().columns().into_iter().zip(schema.columns());
    let outputs: Vec<Expr> = outputs
        // The number of the set is for the rule that resolves `grouping(…)`, below.
        .filter(|(column, _)| column.name != Aggregate::INTERNAL_GROUPING_ID)
        .map(|(column, old)| match column == old {
            true => Expr::Column(column),
            false if is_whole_name(&old.name) => {
                let relation = Some(TableReference::bare(COMPUTED));
                Expr::Column(column).alias_qualified(relation, old.name)
            }
            false => Expr::Column(column).alias_qualified(old.relation, old.name),
        })
        .collect();
    LogicalPlanBuilder::from(plan).project(outputs)?.build()
}
