//! Text constants beside values of another type, which PostgreSQL reads as values of that type:
//! `flag = 't'`, `span IN ('24 hours')`, `CASE flag WHEN 'no' THEN …`.
//!
//! Intervals are compared by their length there ([`intervals::interval_length`]), constants or not.
//! The engine does so for numbers and times. Operators are settled by [`crate::sql::planner`], which
//! asks here; the rule does the same for what the planner has no say in, before the engine looks for
//! common types: results of CASE, `coalesce` and its like, and the branches of set operations
//! ([`branches`]). What is neither a constant nor of one kind with the others is refused there.
//! Absent: arguments of other functions.

mod branches;
mod results;

use std::sync::Arc;

use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::expr::{Between, InList, InSubquery, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, ScalarUDF, Union,
    cast,
};
use datafusion::optimizer::AnalyzerRule;

use crate::sql::functions::{intervals, texts, uuids};
use crate::sql::typed_expressions;
use crate::types::SqlType;

pub(crate) use results::{settle_array, with_case_settled};

/// Whether an expression is a text of no type yet.
pub(crate) fn is_text_constant(expression: &Expr) -> bool {
    matches!(expression, Expr::Literal(ScalarValue::Utf8(Some(_)), _))
}

/// A text constant as a value of a type; as it is where the engine reads it.
pub(crate) fn as_value_of(constant: Expr, wanted: &SqlType) -> Expr {
    match wanted {
        SqlType::Boolean | SqlType::Interval | SqlType::Array(_) => {
            cast(constant, wanted.to_arrow())
        }
        // What is no number in 38 digits is one to a float.
        SqlType::Numeric { .. } if is_not_finite(&constant) => {
            cast(constant, SqlType::Double.to_arrow())
        }
        SqlType::Numeric { .. } => {
            let own = own_digits(&constant).unwrap_or_else(|| wanted.to_arrow());
            cast(constant, own)
        }
        number if number.is_number() => cast(constant, number.to_arrow()),
        SqlType::Uuid => call(uuids::to_uuid(), constant),
        SqlType::Jsonb => call(texts::read_text(SqlType::Jsonb, None), constant),
        _ => constant,
    }
}

/// `'NaN'`, `'Infinity'`.
fn is_not_finite(constant: &Expr) -> bool {
    match constant {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => {
            text.trim().parse::<f64>().is_ok_and(|v| !v.is_finite())
                && !text.bytes().any(|b| b.is_ascii_digit())
        }
        _ => false,
    }
}

/// The type of a numeric that is written out, with the digits that it has.
fn own_digits(constant: &Expr) -> Option<DataType> {
    let Expr::Literal(ScalarValue::Utf8(Some(text)), _) = constant else {
        return None;
    };
    let unsigned = text.trim().trim_start_matches(['+', '-']);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let are_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let precision = u8::try_from(whole.len() + fraction.len()).ok()?;
    let fits = (1..=DECIMAL128_MAX_PRECISION).contains(&precision);
    (fits && are_digits(whole) && are_digits(fraction))
        .then(|| DataType::Decimal128(precision, i8::try_from(fraction.len()).unwrap_or_default()))
}

/// The planner's, or of a pass before.
fn is_length(member: &Expr) -> bool {
    matches!(member, Expr::ScalarFunction(f) if f.func.name() == intervals::LENGTH)
}

fn call(function: Arc<ScalarUDF>, argument: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(function, vec![argument]))
}

/// The rule.
#[derive(Debug, Default)]
pub(crate) struct TextConstants;

impl AnalyzerRule for TextConstants {
    fn name(&self) -> &str {
        "text_constants"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        let mut is_changed = false;
        plan.transform_up_with_subqueries(|plan| {
            let rewritten = rewrite_plan(plan)?;
            is_changed |= rewritten.transformed;
            match is_changed {
                // A column may be of another type now, here or below.
                true => rewritten.map_data(with_new_schema),
                false => Ok(rewritten),
            }
        })
        .map(|t| t.data)
    }
}

/// The plan with the schema that its inputs and expressions have now.
pub(super) fn with_new_schema(plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
    match plan {
        LogicalPlan::Union(union) => Ok(LogicalPlan::Union(Union::try_new_with_loose_types(
            union.inputs,
        )?)),
        other => other.recompute_schema(),
    }
}

fn rewrite_plan(plan: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
    let plan = match plan {
        LogicalPlan::Union(union) => return branches::settle_union(union),
        LogicalPlan::Join(join) => return branches::settle_join(join)?.transform_data(of_inputs),
        other => other,
    };
    of_inputs(plan)
}

/// The plan with the constants of its own expressions read.
fn of_inputs(plan: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
    typed_expressions::rewrite(plan, rewrite_expression)
}

/// `interval IN (q)`
fn of_lengths(mut test: InSubquery, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
    let is_interval = |t: &DataType| matches!(t, DataType::Interval(_));
    let plan = Arc::unwrap_or_clone(Arc::clone(&test.subquery.subquery));
    let columns = plan.schema().columns();
    let types = (test.expr.get_type(schema), plan.schema().fields().first());
    let (Ok(left), Some(right), [column]) = (types.0, types.1, columns.as_slice()) else {
        return Ok(Transformed::no(Expr::InSubquery(test)));
    };
    if !is_interval(&left) || !is_interval(right.data_type()) {
        return Ok(Transformed::no(Expr::InSubquery(test)));
    }
    let length = |interval| call(intervals::interval_length(), interval);
    let of_rows = length(Expr::Column(column.clone())).alias("\u{1}length");
    let plan = LogicalPlanBuilder::from(plan)
        .project(vec![of_rows])?
        .build()?;
    test.subquery.subquery = Arc::new(plan);
    test.expr = Box::new(length(*test.expr));
    Ok(Transformed::yes(Expr::InSubquery(test)))
}

fn rewrite_expression(
    mut expression: Expr,
    schema: &DFSchema,
) -> DataFusionResult<Transformed<Expr>> {
    let changed = match &mut expression {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::IsDistinctFrom | Operator::IsNotDistinctFrom,
            right,
        }) => settle([left.as_mut(), right.as_mut()], schema),
        Expr::Between(Between {
            expr, low, high, ..
        }) => settle([expr.as_mut(), low.as_mut(), high.as_mut()], schema),
        Expr::InList(InList { expr, list, .. }) => {
            settle(std::iter::once(expr.as_mut()).chain(list), schema)
        }
        Expr::Case(case) => {
            let of_results = results::settle_case(case, schema)?;
            let of_operand = match &mut case.expr {
                Some(operand) => {
                    let whens = case
                        .when_then_expr
                        .iter_mut()
                        .map(|(when, _)| when.as_mut());
                    settle(std::iter::once(operand.as_mut()).chain(whens), schema)
                }
                None => false,
            };
            of_operand || of_results
        }
        Expr::ScalarFunction(function) => results::settle_function(function, schema)?,
        Expr::InSubquery(test) => return of_lengths(test.clone(), schema),
        _ => false,
    };
    Ok(match changed {
        true => Transformed::yes(expression),
        false => Transformed::no(expression),
    })
}

/// Casts dates beside moments to moments: the engine takes both as times without a zone.
pub(crate) fn dates_as_moments<'a>(
    members: impl IntoIterator<Item = &'a mut Expr>,
    schema: &DFSchema,
) -> bool {
    let typed = |member: &Expr| member.get_type(schema).ok();
    let members: Vec<&mut Expr> = members.into_iter().collect();
    let moment = members.iter().find_map(|member| match typed(member)? {
        moment @ DataType::Timestamp(_, Some(_)) => Some(moment),
        _ => None,
    });
    let Some(moment) = moment else { return false };
    let mut changed = false;
    for member in members {
        if typed(member) == Some(DataType::Date32) {
            *member = cast(std::mem::take(member), moment.clone());
            changed = true;
        }
    }
    changed
}

/// Reads the constants among what is compared as values of the type of the first of the others, and
/// has intervals compared as such.
fn settle<'a>(members: impl IntoIterator<Item = &'a mut Expr>, schema: &DFSchema) -> bool {
    let mut members: Vec<&mut Expr> = members.into_iter().collect();
    let mut changed = dates_as_moments(members.iter_mut().map(|m| &mut **m), schema);
    let typed = members.iter().find(|member| !is_text_constant(member));
    let wanted = typed
        .and_then(|member| member.to_field(schema).ok())
        .and_then(|(_, field)| SqlType::from_field(&field));
    let Some(wanted) = wanted else { return false };
    for member in members {
        if is_text_constant(member) {
            let read = as_value_of(member.clone(), &wanted);
            changed |= read != *member;
            *member = read;
        }
        if wanted == SqlType::Interval && !is_length(member) {
            *member = call(intervals::interval_length(), std::mem::take(member));
            changed = true;
        }
    }
    changed
}
