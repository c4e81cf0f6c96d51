//! `IN` and `EXISTS` subqueries whose value counts, not only whether it is true.
//!
//! The engine plans them as joins of a filter, where an unknown value is as good as false. As
//! values (in a select list, under NOT, IS NULL or CASE) they become comparisons of counts, which
//! the engine turns into joins by itself:
//!
//! ```text
//! EXISTS (q)    →  (SELECT count(*) FROM q) > 0
//! x IN (q)      →  CASE WHEN (SELECT count(*) FROM q WHERE column = x) > 0 THEN true
//!                       WHEN x IS NULL AND (SELECT count(*) FROM q) > 0
//!                         OR (SELECT count(*) FROM q WHERE column IS NULL) > 0 THEN NULL
//!                       ELSE false END
//! x op ANY (q) as IN with another comparison, x op ALL (q) as NOT x negated-op ANY (q)
//! ```
//! Runs after type coercion, so both sides of `column = x` have one type.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result as DataFusionResult, ScalarValue};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::expr::{Exists, InSubquery, SetQuantifier};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{COUNT_STAR_EXPANSION, merge_schema};
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator,
    Projection, Subquery, lit, scalar_subquery, when,
};
use datafusion::optimizer::AnalyzerRule;

use super::correlated::{holds_subquery, is_simple_relation};
use crate::error::Error;

/// What the counts are called: by the engine's name, `count(*)` of the query outside would be meant
/// as well.
const ROWS: &str = "\u{1}rows";

/// The rule.
#[derive(Debug, Default)]
pub(crate) struct SubqueryValues;

impl AnalyzerRule for SubqueryValues {
    fn name(&self) -> &str {
        "subquery_values"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        plan.transform_up_with_subqueries(rewrite_plan)
            .map(|t| t.data)
    }
}

fn rewrite_plan(plan: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
    match plan {
        LogicalPlan::Filter(filter) => {
            let schema = Arc::clone(filter.input.schema());
            let predicate = as_condition(filter.predicate, &schema, true)?;
            let changed = predicate.transformed;
            let filter = Filter::try_new(predicate.data, filter.input)?;
            let plan = LogicalPlan::Filter(filter);
            Ok(match changed {
                true => Transformed::yes(plan),
                false => Transformed::no(plan),
            })
        }
        LogicalPlan::Projection(_) | LogicalPlan::Aggregate(_) => {
            let schema = merge_schema(&plan.inputs());
            let names = NamePreserver::new(&plan);
            plan.map_expressions(|expression| {
                let name = names.save(&expression);
                Ok(as_value(expression, &schema)?.update_data(|e| name.restore(e)))
            })?
            .map_data(LogicalPlan::recompute_schema)
        }
        other => Ok(Transformed::no(other)),
    }
}

/// A condition of which only the truth counts: what the engine's joins do right stays. `is_whole`:
/// it is a condition of its own, not a branch of OR.
fn as_condition(
    condition: Expr,
    schema: &DFSchema,
    is_whole: bool,
) -> DataFusionResult<Transformed<Expr>> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if matches!(op, Operator::And | Operator::Or) =>
        {
            let is_whole = is_whole && op == Operator::And;
            let left = as_condition(*left, schema, is_whole)?;
            let right = as_condition(*right, schema, is_whole)?;
            let changed = left.transformed || right.transformed;
            let (left, right) = (Box::new(left.data), Box::new(right.data));
            let both = Expr::BinaryExpr(BinaryExpr { left, op, right });
            Ok(Transformed::new(both, changed, TreeNodeRecursion::Continue))
        }
        Expr::Exists(test) => {
            let bare = of_rows(test)?;
            match is_joinable(&bare.data.subquery) {
                true => Ok(bare.update_data(Expr::Exists)),
                false => as_value(Expr::Exists(bare.data), schema),
            }
        }
        Expr::Not(inner) => match *inner {
            Expr::Exists(test) => {
                let bare = of_rows(test)?;
                match is_joinable(&bare.data.subquery) {
                    true => Ok(bare.update_data(|test| Expr::Not(Box::new(Expr::Exists(test))))),
                    false => as_value(Expr::Not(Box::new(Expr::Exists(bare.data))), schema),
                }
            }
            other => as_value(Expr::Not(Box::new(other)), schema),
        },
        Expr::InSubquery(test) => {
            let named = named_value(test)?;
            let test = &named.data;
            match !test.negated && is_joinable(&test.subquery) || is_whole && knows_nulls(test) {
                true => Ok(named.update_data(Expr::InSubquery)),
                false => as_value(Expr::InSubquery(named.data), schema),
            }
        }
        other => as_value(other, schema),
    }
}

/// EXISTS without what its subquery shows: only rows count, and the engine would take what is shown
/// for what is compared under the same name.
fn of_rows(mut test: Exists) -> DataFusionResult<Transformed<Exists>> {
    let LogicalPlan::Projection(projection) = test.subquery.subquery.as_ref() else {
        return Ok(Transformed::no(test));
    };
    if test.subquery.outer_ref_columns.is_empty() || projection.expr.len() == 1 {
        return Ok(Transformed::no(test));
    }
    let row = lit(true).alias("\u{1}exists");
    let plan = Projection::try_new(vec![row], Arc::clone(&projection.input))?;
    test.subquery.subquery = Arc::new(LogicalPlan::Projection(plan));
    Ok(Transformed::yes(test))
}

/// What the subquery of an IN computes, under a name of its own: the engine carries what its conditions
/// compare up beside it, and a column of that name would be there twice.
fn named_value(mut test: InSubquery) -> DataFusionResult<Transformed<InSubquery>> {
    let LogicalPlan::Projection(projection) = test.subquery.subquery.as_ref() else {
        return Ok(Transformed::no(test));
    };
    let [computed] = projection.expr.as_slice() else {
        return Ok(Transformed::no(test));
    };
    if matches!(computed, Expr::Column(_)) {
        return Ok(Transformed::no(test));
    }
    let named = computed.clone().unalias().alias("\u{1}in");
    let plan = Projection::try_new(vec![named], Arc::clone(&projection.input))?;
    test.subquery.subquery = Arc::new(LogicalPlan::Projection(plan));
    Ok(Transformed::yes(test))
}

/// A subquery of a shape that the engine makes a join of.
fn is_joinable(subquery: &Subquery) -> bool {
    subquery.outer_ref_columns.is_empty() || is_simple_relation(&subquery.subquery)
}

/// `column NOT IN (q)` without references to the query outside: the engine's join knows NULLs.
fn knows_nulls(test: &InSubquery) -> bool {
    let is_column = match test.expr.as_ref() {
        Expr::Column(_) => true,
        Expr::Cast(Cast { expr, .. }) => matches!(expr.as_ref(), Expr::Column(_)),
        _ => false,
    };
    is_column && test.subquery.outer_ref_columns.is_empty()
}

/// All such subqueries in an expression as values.
fn as_value(expression: Expr, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
    expression.transform_up(|inner| match inner {
        Expr::Exists(Exists { subquery, negated }) => {
            let exists = has_rows(subquery.subquery.as_ref().clone())?;
            Ok(Transformed::yes(negated_if(negated, exists)))
        }
        Expr::InSubquery(test) => {
            match any_matches(&test.expr, Operator::Eq, &test.subquery, schema)? {
                Some(value) => Ok(Transformed::yes(negated_if(test.negated, value))),
                None => Ok(Transformed::no(Expr::InSubquery(test))),
            }
        }
        Expr::SetComparison(test) => {
            let is_all = matches!(test.quantifier, SetQuantifier::All);
            let op = match is_all {
                true => test.op.negate(),
                false => Some(test.op),
            };
            let value = match op {
                Some(op) => any_matches(&test.expr, op, &test.subquery, schema)?,
                None => None,
            };
            match value {
                Some(value) => Ok(Transformed::yes(negated_if(is_all, value))),
                None => Ok(Transformed::no(Expr::SetComparison(test))),
            }
        }
        other => Ok(Transformed::no(other)),
    })
}

fn negated_if(negated: bool, value: Expr) -> Expr {
    match negated {
        true => Expr::Not(Box::new(value)),
        false => value,
    }
}

/// `(SELECT count(*) FROM plan) > 0`
fn has_rows(plan: LogicalPlan) -> DataFusionResult<Expr> {
    let counted = LogicalPlanBuilder::from(plan)
        .aggregate(
            Vec::<Expr>::new(),
            vec![count(Expr::Literal(COUNT_STAR_EXPANSION, None)).alias(ROWS)],
        )?
        .build()?;
    Ok(scalar_subquery(Arc::new(counted)).gt(lit(0_i64)))
}

/// `x op ANY (q)` with its three values; `None` where `x` holds a subquery itself.
fn any_matches(
    operand: &Expr,
    op: Operator,
    subquery: &Subquery,
    schema: &DFSchema,
) -> DataFusionResult<Option<Expr>> {
    if holds_subquery(operand) {
        return Ok(None);
    }
    let plan = subquery.subquery.as_ref();
    let column = plan
        .schema()
        .columns()
        .into_iter()
        .next()
        .ok_or_else(|| Error::internal("a subquery gives a column"))?;
    let column_may_be_null = plan.schema().field(0).is_nullable();
    let column = Expr::Column(column);
    let operand = operand.clone();
    let outer = seen_from_inside(operand.clone(), schema)?;
    let filtered = |condition: Expr| {
        LogicalPlanBuilder::from(plan.clone())
            .filter(condition)?
            .build()
    };
    let matches = BinaryExpr::new(Box::new(outer), op, Box::new(column.clone()));
    let found = has_rows(filtered(Expr::BinaryExpr(matches))?)?;
    let mut unknown = Vec::new();
    if operand.nullable(schema).unwrap_or(true) {
        unknown.push(operand.is_null().and(has_rows(plan.clone())?));
    }
    if column_may_be_null {
        unknown.push(has_rows(filtered(column.is_null())?)?);
    }
    let Some(unknown) = unknown.into_iter().reduce(Expr::or) else {
        return Ok(Some(found));
    };
    let value = when(found, lit(true))
        .when(unknown, lit(ScalarValue::Boolean(None)))
        .otherwise(lit(false))?;
    Ok(Some(value))
}

/// An expression of the query outside, as the subquery refers to it.
fn seen_from_inside(expression: Expr, schema: &DFSchema) -> DataFusionResult<Expr> {
    let seen = expression.transform_up(|inner| match inner {
        Expr::Column(column) => {
            let (_, field) = Expr::Column(column.clone()).to_field(schema)?;
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(seen.data)
}
