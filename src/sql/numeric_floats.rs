//! Numerics beside floats become double precision, as in PostgreSQL: in CASE, `coalesce`, lists,
//! BETWEEN and the branches of UNION. (Operators are settled by [`crate::sql::planner`].)
//!
//! The engine goes the other way: it takes floats for numerics of 15 fractional digits, which
//! large doubles do not fit. So this rule runs before its type coercion.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::expr::{Between, Case, InList, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Union, cast,
};
use datafusion::optimizer::AnalyzerRule;

use crate::sql::typed_expressions;

/// The rule.
#[derive(Debug, Default)]
pub(crate) struct NumericsBesideFloats;

impl AnalyzerRule for NumericsBesideFloats {
    fn name(&self) -> &str {
        "numerics_beside_floats"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        plan.transform_up_with_subqueries(rewrite_plan)
            .map(|t| t.data)
    }
}

fn rewrite_plan(plan: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
    if let LogicalPlan::Union(union) = plan {
        return rewrite_union(union);
    }
    let rewritten =
        typed_expressions::rewrite(plan, |e, schema| Ok(rewrite_expression(e, schema)))?;
    match rewritten.transformed {
        true => rewritten.map_data(LogicalPlan::recompute_schema),
        false => Ok(rewritten),
    }
}

/// The members that are settled together, in each kind of expression.
fn rewrite_expression(mut expression: Expr, schema: &DFSchema) -> Transformed<Expr> {
    let changed = match &mut expression {
        Expr::BinaryExpr(BinaryExpr { left, right, op })
            if op.is_numerical_operators() || op.supports_propagation() =>
        {
            settle([left.as_mut(), right.as_mut()], schema)
        }
        Expr::Between(Between {
            expr, low, high, ..
        }) => settle([expr.as_mut(), low.as_mut(), high.as_mut()], schema),
        Expr::InList(InList { expr, list, .. }) => {
            settle(std::iter::once(expr.as_mut()).chain(list), schema)
        }
        Expr::Case(case) => settle_case(case, schema),
        Expr::ScalarFunction(ScalarFunction { args, .. }) => settle(args, schema),
        _ => false,
    };
    match changed {
        true => Transformed::yes(expression),
        false => Transformed::no(expression),
    }
}

fn settle_case(case: &mut Case, schema: &DFSchema) -> bool {
    let mut compared: Vec<&mut Expr> = Vec::new();
    let mut results: Vec<&mut Expr> = Vec::new();
    let has_operand = case.expr.is_some();
    compared.extend(case.expr.as_deref_mut());
    for (when, then) in &mut case.when_then_expr {
        if has_operand {
            compared.push(when);
        }
        results.push(then);
    }
    results.extend(case.else_expr.as_deref_mut());
    let of_compared = settle(compared, schema);
    settle(results, schema) || of_compared
}

fn is_decimal(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Decimal128(..))
}

/// Casts numerics to double precision if one member is a float.
fn settle<'a>(members: impl IntoIterator<Item = &'a mut Expr>, schema: &DFSchema) -> bool {
    let members: Vec<(&mut Expr, Option<DataType>)> = members
        .into_iter()
        .map(|member| {
            let data_type = member.get_type(schema).ok();
            (member, data_type)
        })
        .collect();
    let is_float = |t: &DataType| t.is_floating();
    if !members
        .iter()
        .any(|(_, t)| t.as_ref().is_some_and(is_float))
    {
        return false;
    }
    let mut changed = false;
    for (member, data_type) in members {
        if data_type.as_ref().is_some_and(is_decimal) {
            let numeric = std::mem::take(member);
            *member = cast(numeric, DataType::Float64);
            changed = true;
        }
    }
    changed
}

fn rewrite_union(union: Union) -> DataFusionResult<Transformed<LogicalPlan>> {
    let count = union.schema.fields().len();
    let of = |input: &LogicalPlan, column: usize| input.schema().field(column).data_type().clone();
    let mixed: Vec<bool> = (0..count)
        .map(|column| {
            let any = |test: fn(&DataType) -> bool| {
                union.inputs.iter().any(|input| test(&of(input, column)))
            };
            any(DataType::is_floating) && any(is_decimal)
        })
        .collect();
    if !mixed.contains(&true) {
        return Ok(Transformed::no(LogicalPlan::Union(union)));
    }
    let inputs = union
        .inputs
        .into_iter()
        .map(|input| as_doubles(input, &mixed))
        .collect::<DataFusionResult<Vec<_>>>()?;
    Ok(Transformed::yes(LogicalPlan::Union(Union {
        inputs,
        schema: union.schema,
    })))
}

/// The plan with its numerics in the columns of `mixed` as double precision.
fn as_doubles(plan: Arc<LogicalPlan>, mixed: &[bool]) -> DataFusionResult<Arc<LogicalPlan>> {
    let outputs: Vec<Expr> = plan
        .schema()
        .iter()
        .zip(mixed)
        .map(|((qualifier, field), mixed)| {
            let column = Expr::Column((qualifier, field).into());
            match *mixed && is_decimal(field.data_type()) {
                true => cast(column, DataType::Float64)
                    .alias_qualified(qualifier.cloned(), field.name()),
                false => column,
            }
        })
        .collect();
    let plan = LogicalPlanBuilder::from(Arc::unwrap_or_clone(plan))
        .project(outputs)?
        .build()?;
    Ok(Arc::new(plan))
}
