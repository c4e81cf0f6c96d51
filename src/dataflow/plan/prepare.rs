//! Rewrites between analysis and optimization: parts of a plan that get operators of their own
//! are set apart before the optimizer turns them into something else.
//!
//! ```text
//!   semi or anti join with equal NULLs over all columns  →  SetOperation
//!   f(x, (SELECT …))                                     →  f(x, value) over x × SingleRow(SELECT …)
//!   WHERE t > now() - INTERVAL '1 hour'                  →  TemporalFilter
//!   the mark of a join FOR SYSTEM_TIME AS OF             →  a mark that stays in its join
//! ```

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, JoinType, NullEquality, Result as PlanResult};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Distinct, Expr, ExprSchemable, Join, LogicalPlan, LogicalPlanBuilder, SubqueryAlias,
};

use super::nodes::{SetOperationNode, SingleRowNode, extension};
use super::temporal;
use crate::dataflow::set_operation::SetOperationKind;
use crate::error::{Error, Result, sqlstate};
use crate::sql::temporal_join;

/// The analyzed plan with our own nodes in it.
pub fn prepare(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut values = 0;
    let prepared = plan.transform_up_with_subqueries(|node| {
        let node = match node {
            LogicalPlan::Filter(filter) => temporal::split(filter)?,
            LogicalPlan::Join(join) => LogicalPlan::Join(with_both_sides(join)?),
            other => other,
        };
        if let LogicalPlan::Join(join) = &node
            && let Some(operation) = set_operation(join)?
        {
            return Ok(Transformed::yes(operation));
        }
        Ok(Transformed::yes(without_scalar_subqueries(
            node,
            &mut values,
        )?))
    })?;
    Ok(prepared.data)
}

/// The mark of `FOR SYSTEM_TIME AS OF` holds a time, which is the batch's whatever it says. With a
/// column of each side in its place no rule takes the mark out of the join.
fn with_both_sides(mut join: Join) -> PlanResult<Join> {
    let first = |side: &LogicalPlan| side.schema().columns().into_iter().next();
    let (Some(left), Some(right)) = (first(&join.left), first(&join.right)) else {
        return Ok(join);
    };
    let filter = join.filter.take().map(|filter| {
        filter.transform_up(|part| match part {
            Expr::ScalarFunction(mut mark) if mark.name() == temporal_join::MARK => {
                if let [time] = mark.args.as_slice() {
                    require_time(&time.get_type(&join.schema)?)?;
                }
                mark.args = vec![Expr::Column(left.clone()), Expr::Column(right.clone())];
                Ok(Transformed::yes(Expr::ScalarFunction(mark)))
            }
            other => Ok(Transformed::no(other)),
        })
    });
    join.filter = filter.transpose()?.map(|f| f.data);
    Ok(join)
}

fn require_time(data_type: &DataType) -> Result<()> {
    if matches!(data_type, DataType::Timestamp(..) | DataType::Int64) {
        return Ok(());
    }
    Err(Error::new(
        sqlstate::DATATYPE_MISMATCH,
        format!(
            "FOR SYSTEM_TIME AS OF takes a time, not type {}",
            crate::error::mapping::type_name(data_type)
        ),
    ))
}

/// EXCEPT and INTERSECT: before a plan is optimized only they join with equal NULLs. Without ALL
/// their left side is distinct.
fn set_operation(join: &Join) -> PlanResult<Option<LogicalPlan>> {
    let left_columns = join.left.schema().columns();
    let in_order = join.on.len() == left_columns.len()
        && join
            .on
            .iter()
            .zip(&left_columns)
            .all(|((left, _), column)| matches!(left, Expr::Column(c) if c == column));
    let is_set_operation = matches!(join.join_type, JoinType::LeftAnti | JoinType::LeftSemi)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none()
        && in_order;
    if !is_set_operation {
        return Ok(None);
    }
    let (left, distinct) = match join.left.as_ref() {
        LogicalPlan::Distinct(Distinct::All(input)) => (input.as_ref(), true),
        other => (other, false),
    };
    let kind = match (join.join_type, distinct) {
        (JoinType::LeftAnti, true) => SetOperationKind::Except,
        (JoinType::LeftAnti, false) => SetOperationKind::ExceptAll,
        (_, true) => SetOperationKind::Intersect,
        (_, false) => SetOperationKind::IntersectAll,
    };
    let right = LogicalPlanBuilder::from(join.right.as_ref().clone())
        .project(
            join.on
                .iter()
                .enumerate()
                .map(|(index, (_, right))| right.clone().alias(format!("column {index}"))),
        )?
        .build()?;
    Ok(Some(extension(SetOperationNode {
        kind,
        left: left.clone(),
        right,
    })))
}

/// Turns the uncorrelated subqueries that a node's expressions use as values into columns of a
/// cross join below it, on the left side of a join.
fn without_scalar_subqueries(plan: LogicalPlan, values: &mut usize) -> PlanResult<LogicalPlan> {
    if !matches!(
        plan,
        LogicalPlan::Filter(_)
            | LogicalPlan::Projection(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Join(_)
    ) {
        return Ok(plan);
    }
    let mut subqueries: Vec<(LogicalPlan, Column)> = Vec::new();
    let names = NamePreserver::new(&plan);
    let expressions = plan
        .expressions()
        .into_iter()
        .map(|expression| {
            let name = names.save(&expression);
            let replaced = expression.transform_up(|part| {
                let Expr::ScalarSubquery(subquery) = &part else {
                    return Ok(Transformed::no(part));
                };
                if !subquery.outer_ref_columns.is_empty() {
                    return Ok(Transformed::no(part));
                }
                let found = subqueries
                    .iter()
                    .find(|(plan, _)| plan == subquery.subquery.as_ref());
                let column = match found {
                    Some((_, column)) => column.clone(),
                    None => {
                        *values += 1;
                        let relation = format!("value {values}");
                        let field = subquery.subquery.schema().field(0).name().clone();
                        let column = Column::new(Some(relation), field);
                        let plan = subquery.subquery.as_ref().clone();
                        subqueries.push((plan, column.clone()));
                        column
                    }
                };
                Ok(Transformed::yes(Expr::Column(column)))
            })?;
            Ok(replaced.update_data(|e| name.restore(e)))
        })
        .collect::<PlanResult<Vec<Transformed<Expr>>>>()?;
    if subqueries.is_empty() {
        return Ok(plan);
    }
    let expressions = expressions.into_iter().map(|e| e.data).collect();
    let outputs = plan.schema().columns();
    let keeps_columns = matches!(plan, LogicalPlan::Filter(_) | LogicalPlan::Join(_));
    let mut inputs: Vec<LogicalPlan> = plan.inputs().into_iter().cloned().collect();
    let mut input = inputs.remove(0);
    for (subquery, column) in subqueries {
        let alias = column.relation.clone().unwrap_or_else(|| "value".into());
        let single = SingleRowNode::plan(subquery)?;
        let single = SubqueryAlias::try_new(Arc::new(single), alias)?;
        input = LogicalPlanBuilder::from(input)
            .cross_join(LogicalPlan::SubqueryAlias(single))?
            .build()?;
    }
    inputs.insert(0, input);
    let plan = plan.with_new_exprs(expressions, inputs)?;
    if !keeps_columns {
        return Ok(plan);
    }
    LogicalPlanBuilder::from(plan)
        .project(outputs.into_iter().map(Expr::Column))?
        .build()
}

/// An expression holds a call of one of these functions.
pub(super) fn calls(expression: &Expr, names: &[&str]) -> PlanResult<bool> {
    let mut found = false;
    expression.apply(|part| {
        if let Expr::ScalarFunction(call) = part {
            found |= names.contains(&call.name());
        }
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}
