//! Text constants in the branches of UNION, INTERSECT and EXCEPT: of the type of the other branch.
//! As in PostgreSQL two branches settle their types before a third one is looked at.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{JoinType, NullEquality, Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{Distinct, Expr, Join, LogicalPlan, Projection, Union, cast};

use super::results::common_type;
use super::{as_value_of, is_text_constant};
use crate::types::SqlType;

/// Errors: 42804 branches of different kinds.
pub(super) fn settle_union(mut union: Union) -> DataFusionResult<Transformed<LogicalPlan>> {
    let changed = settle("UNION", &mut union.inputs)?;
    Ok(match changed {
        true => Transformed::yes(LogicalPlan::Union(union)),
        false => Transformed::no(LogicalPlan::Union(union)),
    })
}

/// INTERSECT and EXCEPT, which are joins with equal NULLs over all columns.
pub(super) fn settle_join(mut join: Join) -> DataFusionResult<Transformed<LogicalPlan>> {
    let is_set_operation = matches!(join.join_type, JoinType::LeftAnti | JoinType::LeftSemi)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none()
        && join.on.len() == join.left.schema().fields().len();
    if !is_set_operation {
        return Ok(Transformed::no(LogicalPlan::Join(join)));
    }
    let words = match join.join_type {
        JoinType::LeftAnti => "EXCEPT",
        _ => "INTERSECT",
    };
    let mut sides = [Arc::clone(&join.left), Arc::clone(&join.right)];
    let changed = settle(words, &mut sides)?;
    [join.left, join.right] = sides;
    Ok(match changed {
        true => Transformed::yes(LogicalPlan::Join(join)),
        false => Transformed::no(LogicalPlan::Join(join)),
    })
}

fn settle(words: &str, branches: &mut [Arc<LogicalPlan>]) -> DataFusionResult<bool> {
    let width = branches.first().map_or(0, |b| b.schema().fields().len());
    let mut changed = false;
    for column in 0..width {
        let types: Vec<SqlType> = branches
            .iter()
            .filter(|branch| !is_constant(branch, column))
            .filter_map(|branch| branch_type(branch, column))
            .collect();
        let Some(wanted) = common_type(words, &types)? else {
            continue;
        };
        if wanted == SqlType::Text {
            continue;
        }
        let is_moment = wanted == SqlType::TimestampTz;
        for branch in branches.iter_mut() {
            if is_moment && branch_type(branch, column) == Some(SqlType::Date) {
                *branch = Arc::new(with_moments(branch, column)?);
                changed = true;
            }
            if is_constant(branch, column) {
                *branch = Arc::new(with_constant(branch, column, &wanted)?);
                changed = true;
            }
        }
    }
    Ok(changed)
}

/// The branch with a column of dates as one of moments, which the engine would not make of it.
fn with_moments(branch: &Arc<LogicalPlan>, column: usize) -> DataFusionResult<LogicalPlan> {
    let outputs = branch.schema().iter().enumerate();
    let outputs = outputs.map(|(at, (qualifier, field))| {
        let output = Expr::Column((qualifier, field).into());
        match at == column {
            true => cast(output, SqlType::TimestampTz.to_arrow())
                .alias_qualified(qualifier.cloned(), field.name()),
            false => output,
        }
    });
    let outputs = outputs.collect();
    Ok(LogicalPlan::Projection(Projection::try_new(
        outputs,
        Arc::clone(branch),
    )?))
}

fn branch_type(branch: &LogicalPlan, column: usize) -> Option<SqlType> {
    let field = branch.schema().fields().get(column)?;
    match field.data_type() {
        DataType::Null => None,
        _ if is_null(branch, column) => None,
        _ => SqlType::from_field(field),
    }
}

fn output(branch: &LogicalPlan, column: usize) -> Option<&Expr> {
    match branch {
        LogicalPlan::Projection(projection) => {
            let mut expression = projection.expr.get(column)?;
            while let Expr::Alias(alias) = expression {
                expression = &alias.expr;
            }
            Some(expression)
        }
        LogicalPlan::Distinct(Distinct::All(input)) => output(input, column),
        LogicalPlan::SubqueryAlias(alias) => output(&alias.input, column),
        _ => None,
    }
}

fn is_constant(branch: &LogicalPlan, column: usize) -> bool {
    output(branch, column).is_some_and(is_text_constant)
}

fn is_null(branch: &LogicalPlan, column: usize) -> bool {
    matches!(
        output(branch, column),
        Some(Expr::Literal(ScalarValue::Null, _))
    )
}

/// The branch with such a constant read as a value of a type.
fn with_constant(
    branch: &LogicalPlan,
    column: usize,
    wanted: &SqlType,
) -> DataFusionResult<LogicalPlan> {
    match branch {
        LogicalPlan::Projection(projection) => {
            let mut outputs = projection.expr.clone();
            let (qualifier, field) = projection.schema.qualified_field(column);
            if let Some(constant) = output(branch, column) {
                let value = match as_value_of(constant.clone(), wanted) {
                    // The engine would read it where it compares, but the branch has a type.
                    text if is_text_constant(&text) => cast(text, wanted.to_arrow()),
                    value => value,
                };
                outputs[column] = value.alias_qualified(qualifier.cloned(), field.name());
            }
            let input = Arc::clone(&projection.input);
            Ok(LogicalPlan::Projection(Projection::try_new(
                outputs, input,
            )?))
        }
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let input = with_constant(input, column, wanted)?;
            Ok(LogicalPlan::Distinct(Distinct::All(Arc::new(input))))
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let input = with_constant(&alias.input, column, wanted)?;
            let name = alias.alias.clone();
            let alias = datafusion::logical_expr::SubqueryAlias::try_new(Arc::new(input), name)?;
            Ok(LogicalPlan::SubqueryAlias(alias))
        }
        other => Ok(other.clone()),
    }
}
