//! Correlated subqueries of any shape, as joins.
//!
//! The engine turns subqueries that hang on the query outside by plain equalities into joins. All
//! others (inequalities, LIMIT, set operations, lateral functions, references from two levels up)
//! are evaluated here for every distinct combination of the outer columns that they use:
//!
//! ```text
//! π[(q(a)) AS s](p)   →   π[v AS s](p ⟕ (q evaluated over δ(π[a](p))) ON a IS NOT DISTINCT FROM a')
//! p, LATERAL q(a)     →   p ⋈ (q evaluated over δ(π[a](p))) ON a IS NOT DISTINCT FROM a'  ([`lateral`])
//! ```
//! (Neumann, Kemper: Unnesting Arbitrary Queries, BTW 2015.) [`dependent`] carries the outer
//! columns through the subquery's plan. Runs last among the analyzer's rules, when types are
//! settled and `IN` and `EXISTS` as values are scalar subqueries. Absent: subqueries in join
//! conditions, DISTINCT ON inside a correlated subquery.

mod dependent;
mod lateral;
mod simple;

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, DFSchema, JoinConstraint, JoinType, NullEquality, Result as DataFusionResult,
};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, Join, LogicalPlan, LogicalPlanBuilder, Projection,
};
use datafusion::optimizer::AnalyzerRule;

use crate::sql::functions::only_value::only_value;
use crate::sql::text_constants::with_new_schema;
use dependent::Dependent;
pub(super) use simple::{gives_one_row, holds_subquery, is_simple_relation};

/// The rule.
#[derive(Debug, Default)]
pub(crate) struct CorrelatedSubqueries;

impl AnalyzerRule for CorrelatedSubqueries {
    fn name(&self) -> &str {
        "correlated_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        let names = Names::after(&plan)?;
        let first = names.next.get();
        let plan = rewrite_tree(plan, &names)?;
        if names.next.get() == first {
            return Ok(plan);
        }
        // What an outer join gives may be NULL, and so may what is made of it above.
        plan.transform_up_with_subqueries(|plan| Ok(Transformed::yes(with_new_schema(plan)?)))
            .map(|t| t.data)
    }
}

/// From the outermost query inwards: a subquery that is carried out at its own level may hold
/// others, which then refer to that level.
fn rewrite_tree(plan: LogicalPlan, names: &Names) -> DataFusionResult<LogicalPlan> {
    let plan = rewrite_node(plan, names)?;
    let plan = plan
        .map_children(|child| Ok(Transformed::yes(rewrite_tree(child, names)?)))?
        .data;
    let plan = plan
        .map_subqueries(|inner| Ok(Transformed::yes(rewrite_tree(inner, names)?)))?
        .data;
    Ok(plan)
}

fn rewrite_node(plan: LogicalPlan, fresh: &Names) -> DataFusionResult<LogicalPlan> {
    match plan {
        LogicalPlan::Projection(projection) => {
            let names: Vec<Column> = projection.schema.columns();
            let Some((input, expressions)) =
                joined(&projection.input, &projection.expr, Engine::Joins, fresh)?
            else {
                return Ok(LogicalPlan::Projection(projection));
            };
            let expressions = expressions
                .into_iter()
                .zip(names)
                .map(|(e, name)| match &e {
                    Expr::Column(column) if *column == name => e,
                    Expr::Alias(alias) if alias.name == name.name => e,
                    _ => e.alias_qualified(name.relation, name.name),
                })
                .collect();
            Projection::try_new(expressions, Arc::new(input)).map(LogicalPlan::Projection)
        }
        LogicalPlan::Filter(filter) => {
            let outputs = filter.input.schema().columns();
            let predicate = std::slice::from_ref(&filter.predicate);
            let Some((input, mut predicates)) =
                joined(&filter.input, predicate, Engine::Joins, fresh)?
            else {
                return Ok(LogicalPlan::Filter(filter));
            };
            let predicate = predicates.pop().unwrap_or(filter.predicate);
            let filtered = LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?);
            LogicalPlanBuilder::from(filtered)
                .project(outputs.into_iter().map(Expr::Column))?
                .build()
        }
        LogicalPlan::Aggregate(aggregate) => rewrite_aggregate(aggregate, fresh),
        LogicalPlan::Join(join) => lateral::rewrite(join, fresh),
        other => Ok(other),
    }
}

fn rewrite_aggregate(aggregate: Aggregate, fresh: &Names) -> DataFusionResult<LogicalPlan> {
    let count = aggregate.group_expr.len();
    let all: Vec<Expr> = aggregate
        .group_expr
        .iter()
        .chain(&aggregate.aggr_expr)
        .cloned()
        .collect();
    let Some((input, mut groups)) = joined(&aggregate.input, &all, Engine::DoesNot, fresh)? else {
        return Ok(LogicalPlan::Aggregate(aggregate));
    };
    // Names stay as they are, for what is above refers to them.
    let names = NamePreserver::new(&LogicalPlan::Aggregate(aggregate));
    for (expression, original) in groups.iter_mut().zip(&all) {
        let name = names.save(original);
        *expression = name.restore(std::mem::take(expression));
    }
    let aggregates = groups.split_off(count);
    Aggregate::try_new(Arc::new(input), groups, aggregates).map(LogicalPlan::Aggregate)
}

/// Whether the engine joins simple subqueries of a node by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Engine {
    Joins,
    DoesNot,
}

/// The input joined with every subquery of `expressions` that is ours, and the expressions with
/// columns in their place; `None` where there is none.
fn joined(
    input: &Arc<LogicalPlan>,
    expressions: &[Expr],
    engine: Engine,
    fresh: &Names,
) -> DataFusionResult<Option<(LogicalPlan, Vec<Expr>)>> {
    let mut plan = Arc::unwrap_or_clone(Arc::clone(input));
    let mut changed = false;
    let mut rewritten = Vec::with_capacity(expressions.len());
    for expression in expressions {
        let expression = expression.clone().transform_down(|e| {
            let Expr::ScalarSubquery(subquery) = &e else {
                return Ok(Transformed::no(e));
            };
            let columns = outer_columns(&subquery.subquery, plan.schema())?;
            let is_simple = engine == Engine::Joins && simple::is_simple_value(&subquery.subquery);
            if columns.is_empty() || is_simple {
                return Ok(Transformed::no(e));
            }
            let outer = std::mem::take(&mut plan);
            let (with_value, value) = join_value(outer, columns, &subquery.subquery, fresh)?;
            plan = with_value;
            changed = true;
            Ok(Transformed::new(value, true, TreeNodeRecursion::Jump))
        })?;
        rewritten.push(expression.data);
    }
    Ok(changed.then_some((plan, rewritten)))
}

/// Left join of the plan with a subquery's value for each combination of the outer columns.
fn join_value(
    plan: LogicalPlan,
    columns: Vec<Column>,
    subquery: &LogicalPlan,
    fresh: &Names,
) -> DataFusionResult<(LogicalPlan, Expr)> {
    let dependent = Dependent::new(&plan, columns, fresh)?;
    let evaluated = dependent.evaluate(subquery)?;
    let value_column = subquery
        .schema()
        .columns()
        .into_iter()
        .next()
        .map(Expr::Column)
        .ok_or_else(|| crate::error::Error::internal("a subquery gives a column"))?;
    let name = fresh.fresh("value");
    let keys: Vec<Expr> = dependent.carried().map(Expr::Column).collect();
    let valued = if simple::gives_one_row(subquery) {
        let mut outputs = keys;
        outputs.push(value_column.alias(&name));
        LogicalPlanBuilder::from(evaluated)
            .project(outputs)?
            .build()?
    } else {
        let value = only_value().call(vec![value_column]).alias(&name);
        LogicalPlanBuilder::from(evaluated)
            .aggregate(keys, vec![value])?
            .build()?
    };
    let joined = dependent.join(plan, valued, JoinType::Left, None)?;
    Ok((joined, Expr::Column(Column::new_unqualified(name))))
}

/// Columns of `schema` that a subquery uses, at any depth; a column that a subquery in between has
/// too is that one's.
fn outer_columns(plan: &LogicalPlan, schema: &DFSchema) -> DataFusionResult<Vec<Column>> {
    let mut found = Vec::new();
    dependent::for_each_outer(plan, &mut |column| {
        if schema.has_column(column) && !found.contains(column) {
            found.push(column.clone());
        }
    })?;
    Ok(found)
}

/// Names that no other column of a plan has. They are the same whenever the plan is, since the
/// state of a view is known by its plan.
#[derive(Debug)]
struct Names {
    next: Cell<usize>,
}

impl Names {
    const WORDS: &str = " of subquery ";

    /// Those after the ones that a plan has from an earlier run.
    fn after(plan: &LogicalPlan) -> DataFusionResult<Self> {
        let mut next = 0;
        plan.apply_with_subqueries(|node| {
            for field in node.schema().fields() {
                let number = field
                    .name()
                    .rsplit_once(Self::WORDS)
                    .map(|(_, n)| n.parse());
                if let Some(Ok::<usize, _>(number)) = number {
                    next = next.max(number + 1);
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(Self {
            next: Cell::new(next),
        })
    }

    fn fresh(&self, what: &str) -> String {
        let number = self.next.get();
        self.next.set(number + 1);
        format!("{what}{}{number}", Self::WORDS)
    }
}

/// A join whose keys may be NULL on both sides.
fn join_with_nulls(
    left: LogicalPlan,
    right: LogicalPlan,
    on: Vec<(Expr, Expr)>,
    join_type: JoinType,
    filter: Option<Expr>,
) -> DataFusionResult<LogicalPlan> {
    let joined = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        filter,
        join_type,
        JoinConstraint::On,
        NullEquality::NullEqualsNull,
        false,
    )?;
    Ok(LogicalPlan::Join(joined))
}
