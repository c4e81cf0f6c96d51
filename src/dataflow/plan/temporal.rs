//! Conditions on `now()`: which of them say from when and until when a row is in.
//!
//! `t > now() - INTERVAL '1 hour'` is solved for `now()`: the row is in while `now() < t + 1 hour`.
//! The interval must be of fixed length, since months cannot be taken to the other side. What
//! cannot be solved stays where it is and is refused with all other uses of `now()`.

use std::collections::VecDeque;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::{Result as PlanResult, ScalarValue};
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Expr, ExprSchemable, Filter, LogicalPlan, Operator};

use super::event_time::size_of;
use super::nodes::{TemporalFilterNode, extension};
use super::prepare::calls;
use crate::dataflow::temporal::Bound;

/// The functions whose value is the batch's time.
const NOW: [&str; 4] = [
    "now",
    "current_timestamp",
    "transaction_timestamp",
    "statement_timestamp",
];

/// Sets the conditions on `now()` apart from a filter.
pub fn split(filter: Filter) -> PlanResult<LogicalPlan> {
    if !calls(&filter.predicate, &NOW)? {
        return Ok(LogicalPlan::Filter(filter));
    }
    let schema = filter.input.schema().clone();
    let mut rest = Vec::new();
    let mut bounds = Vec::new();
    let mut detail = Vec::new();
    let mut waiting: VecDeque<Expr> = split_conjunction_owned(filter.predicate).into();
    while let Some(condition) = waiting.pop_front() {
        if let Expr::Between(between) = &condition
            && !between.negated
            && calls(&condition, &NOW)?
        {
            let part = |op, side: &Expr| {
                let (left, right) = (between.expr.clone(), Box::new(side.clone()));
                Expr::BinaryExpr(BinaryExpr { left, op, right })
            };
            waiting.push_front(part(Operator::LtEq, &between.high));
            waiting.push_front(part(Operator::GtEq, &between.low));
            continue;
        }
        match solve(&condition)? {
            Some((bound, time)) => {
                let microseconds = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
                bounds.push((bound, time.cast_to(&microseconds, &schema)?));
                detail.push(condition.to_string());
            }
            None => rest.push(condition),
        }
    }
    let input = match conjunction(rest) {
        Some(predicate) => LogicalPlan::Filter(Filter::try_new(predicate, filter.input)?),
        None => filter.input.as_ref().clone(),
    };
    if bounds.is_empty() {
        return Ok(input);
    }
    Ok(extension(TemporalFilterNode {
        input,
        bounds,
        detail: detail.join(" AND "),
    }))
}

/// `now()` beside a time of the row; `None` where it cannot be solved.
fn solve(condition: &Expr) -> PlanResult<Option<(Bound, Expr)>> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else {
        return Ok(None);
    };
    let (now, op, row) = match (calls(left, &NOW)?, calls(right, &NOW)?) {
        (true, false) => (left, *op, right),
        (false, true) => {
            let Some(swapped) = op.swap() else {
                return Ok(None);
            };
            (right, swapped, left)
        }
        _ => return Ok(None),
    };
    let Some(offset_us) = offset_of(now) else {
        return Ok(None);
    };
    // now + offset op time
    let bound = match op {
        Operator::Lt => Bound::Below { offset_us },
        Operator::LtEq => Bound::UpTo { offset_us },
        Operator::Gt => Bound::Above { offset_us },
        Operator::GtEq => Bound::From { offset_us },
        _ => return Ok(None),
    };
    Ok(Some((bound, row.as_ref().clone())))
}

/// Microseconds that are added to `now()`; `None` when it is something else.
fn offset_of(expression: &Expr) -> Option<i64> {
    let with = |time: &Expr, size: &Expr, negated: bool| {
        let size = fixed_size(size)?;
        let size = if negated { size.checked_neg()? } else { size };
        offset_of(time)?.checked_add(size)
    };
    match expression {
        Expr::ScalarFunction(call) if NOW.contains(&call.name()) => Some(0),
        Expr::ScalarFunction(call) => {
            let [time, size] = call.args.as_slice() else {
                return None;
            };
            match call.name() {
                "checked_add" => with(time, size, false).or_else(|| with(size, time, false)),
                "checked_subtract" => with(time, size, true),
                _ => None,
            }
        }
        Expr::Alias(alias) => offset_of(&alias.expr),
        Expr::Cast(cast) => matches!(cast.field.data_type(), DataType::Timestamp(_, Some(_)))
            .then(|| offset_of(&cast.expr))
            .flatten(),
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
            Operator::Plus => with(left, right, false).or_else(|| with(right, left, false)),
            Operator::Minus => with(left, right, true),
            _ => None,
        },
        _ => None,
    }
}

/// Microseconds of a constant interval without months.
fn fixed_size(expression: &Expr) -> Option<i64> {
    match expression {
        Expr::Literal(ScalarValue::Int64(_) | ScalarValue::Int32(_), _) => None,
        other => size_of(other),
    }
}
