//! Which join conditions bound the distance of two event times, and so the life of the state.
//!
//! Of `r.t` in `[l.t - before, l.t + after]` a left row can be matched until no right row in time
//! lies at or below `l.t + after`, and a right row until none lies at or above … likewise.

use datafusion::common::DFSchema;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, Join, Operator};

use super::PlanNode;
use super::event_time::{EventTime, size_of};
use crate::dataflow::join::SideTime;

/// What a join's condition says of one time column of each side.
struct Distance {
    left: usize,
    right: usize,
    /// The right time is at least the left one minus this.
    before: Option<i64>,
    /// The right time is at most the left one plus this.
    after: Option<i64>,
}

/// The event times of both sides, when the condition bounds their distance at least one way.
pub fn side_times(join: &Join, left: &PlanNode, right: &PlanNode) -> Option<[SideTime; 2]> {
    let distance = distance(join, left, right)?;
    let late = [
        left.event_time[distance.left]?.closes_after,
        right.event_time[distance.right]?.closes_after,
    ];
    // A left row at l is matched by right rows up to l + after, which are late once
    // l + after + late[1] is at or below the watermark; and the other way round.
    let free =
        |reach: Option<i64>, own: usize| Some(reach?.checked_add(late[1 - own])?.max(late[own]));
    let times = [
        SideTime {
            column: distance.left,
            late_after: late[0],
            free_after: free(distance.after, 0),
        },
        SideTime {
            column: distance.right,
            late_after: late[1],
            free_after: free(distance.before, 1),
        },
    ];
    times
        .iter()
        .any(|time| time.free_after.is_some())
        .then_some(times)
}

/// How long pairs with a value of a side's time column can still go out.
pub fn lineage_of_pairs(own: EventTime, time: SideTime) -> EventTime {
    EventTime {
        closes_after: time
            .free_after
            .unwrap_or(own.closes_after)
            .max(own.closes_after),
        ..own
    }
}

fn distance(join: &Join, left: &PlanNode, right: &PlanNode) -> Option<Distance> {
    let mut found: Option<Distance> = None;
    let conditions = join.filter.iter().flat_map(split_conjunction);
    let comparisons = conditions.filter_map(|condition| match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            Some((left.as_ref(), *op, right.as_ref()))
        }
        _ => None,
    });
    let equal = join
        .on
        .iter()
        .map(|(left, right)| (left, Operator::Eq, right));
    for (first, op, second) in equal.chain(comparisons) {
        let (Some(l), Some(r)) = (
            time_on(first, join, left, right),
            time_on(second, join, left, right),
        ) else {
            continue;
        };
        // l + p op r + q, with the left side first.
        let (l, op, r) = match (l.side, r.side) {
            (0, 1) => (l, op, r),
            (1, 0) => match op.swap() {
                Some(op) => (r, op, l),
                None => continue,
            },
            _ => continue,
        };
        let Some(shift) = l.offset.checked_sub(r.offset) else {
            continue;
        };
        let (before, after) = match op {
            Operator::Eq => (shift.checked_neg(), Some(shift)),
            Operator::Lt | Operator::LtEq => (shift.checked_neg(), None),
            Operator::Gt | Operator::GtEq => (None, Some(shift)),
            _ => continue,
        };
        let distance = found.get_or_insert(Distance {
            left: l.column,
            right: r.column,
            before: None,
            after: None,
        });
        if (distance.left, distance.right) == (l.column, r.column) {
            let least = |a: Option<i64>, b: Option<i64>| a.into_iter().chain(b).min();
            distance.before = least(distance.before, before);
            distance.after = least(distance.after, after);
        }
    }
    found
}

/// A time column of a side plus a constant.
struct TimeOn {
    side: usize,
    column: usize,
    offset: i64,
}

fn time_on(expression: &Expr, join: &Join, left: &PlanNode, right: &PlanNode) -> Option<TimeOn> {
    let with = |time: &Expr, size: &Expr, sign: i64| {
        let time = time_on(time, join, left, right)?;
        Some(TimeOn {
            offset: time.offset.checked_add(size_of(size)?.checked_mul(sign)?)?,
            ..time
        })
    };
    let column_of = |schema: &DFSchema, node: &PlanNode, side: usize| {
        let Expr::Column(column) = expression else {
            return None;
        };
        let column = schema.maybe_index_of_column(column)?;
        node.event_time[column].filter(|time| !time.list)?;
        Some(TimeOn {
            side,
            column,
            offset: 0,
        })
    };
    match expression {
        Expr::Column(_) => column_of(join.left.schema(), left, 0)
            .or_else(|| column_of(join.right.schema(), right, 1)),
        Expr::Alias(alias) => time_on(&alias.expr, join, left, right),
        Expr::BinaryExpr(BinaryExpr {
            left: a,
            op,
            right: b,
        }) => match op {
            Operator::Plus => with(a, b, 1).or_else(|| with(b, a, 1)),
            Operator::Minus => with(a, b, -1),
            _ => None,
        },
        Expr::ScalarFunction(call) => {
            let [a, b] = call.args.as_slice() else {
                return None;
            };
            match call.name() {
                "checked_add" => with(a, b, 1).or_else(|| with(b, a, 1)),
                "checked_subtract" => with(a, b, -1),
                _ => None,
            }
        }
        _ => None,
    }
}
