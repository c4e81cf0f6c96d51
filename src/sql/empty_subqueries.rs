//! A subquery used as a value is NULL when it gives no row, whatever its column may be.
//!
//! The engine takes the value's nullability from the subquery's column, so that over a primary key
//! `(SELECT id FROM t WHERE false) IS NULL` would be false. Here the value becomes that of an
//! aggregate, which may be NULL. A function around it would not do: over a constant the optimizer
//! works it out, and the value is never NULL again. Correlated subqueries become outer joins
//! elsewhere, which know; an aggregate without groups always gives a row.

use std::sync::Arc;

use datafusion::common::Result as DataFusionResult;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery};
use datafusion::optimizer::AnalyzerRule;

use crate::sql::functions::only_value::only_value;
use crate::sql::text_constants::with_new_schema;

/// The rule.
#[derive(Debug, Default)]
pub(crate) struct EmptySubqueries;

impl AnalyzerRule for EmptySubqueries {
    fn name(&self) -> &str {
        "empty_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        let mut is_changed = false;
        plan.transform_up_with_subqueries(|plan| {
            let rewritten = rewrite_plan(plan)?;
            is_changed |= rewritten.transformed;
            // What is above has the value too.
            match is_changed {
                true => rewritten.map_data(with_new_schema),
                false => Ok(rewritten),
            }
        })
        .map(|t| t.data)
    }
}

fn rewrite_plan(plan: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expression| {
        let name = names.save(&expression);
        let rewritten = expression.transform_up(|inner| match inner {
            Expr::ScalarSubquery(subquery) if claims_a_value(&subquery) => {
                Ok(Transformed::yes(Expr::ScalarSubquery(or_null(subquery)?)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(rewritten.update_data(|e| name.restore(e)))
    })
}

fn claims_a_value(subquery: &Subquery) -> bool {
    let field = subquery.subquery.schema().field(0);
    subquery.outer_ref_columns.is_empty()
        && !field.is_nullable()
        && !always_gives_a_row(&subquery.subquery)
}

fn always_gives_a_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => always_gives_a_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => always_gives_a_row(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        _ => false,
    }
}

fn or_null(subquery: Subquery) -> DataFusionResult<Subquery> {
    let plan = subquery.subquery;
    let (qualifier, field) = plan.schema().qualified_field(0);
    let column = Expr::Column((qualifier, field).into());
    let value = only_value()
        .call(vec![column])
        .alias_qualified(qualifier.cloned(), field.name());
    let plan = LogicalPlanBuilder::from(Arc::clone(&plan))
        .aggregate(Vec::<Expr>::new(), vec![value])?
        .build()?;
    Ok(Subquery {
        subquery: Arc::new(plan),
        ..subquery
    })
}
