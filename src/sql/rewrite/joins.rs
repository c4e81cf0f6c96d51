//! Joins by time: `ASOF JOIN`, and `JOIN t FOR SYSTEM_TIME AS OF`.

use datafusion::sql::sqlparser::ast::{
    self, Expr, JoinConstraint, JoinOperator, Select, TableFactor, TableVersion,
};

use super::trees::call;
use crate::error::{Error, Result};
use crate::sql::asof;
use crate::sql::temporal_join;

/// `ASOF JOIN` becomes a left join whose condition is marked, for the rule that plans it.
pub(super) fn mark_asof(select: &mut Select) -> Result<()> {
    for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
        let JoinOperator::AsOf {
            match_condition,
            constraint,
        } = &join.join_operator
        else {
            continue;
        };
        let marked = call(asof::MARK, vec![match_condition.clone()]);
        let condition = match constraint {
            JoinConstraint::On(condition) => Expr::BinaryOp {
                left: Box::new(Expr::Nested(Box::new(condition.clone()))),
                op: ast::BinaryOperator::And,
                right: Box::new(marked),
            },
            JoinConstraint::None => marked,
            JoinConstraint::Using(_) | JoinConstraint::Natural => {
                return Err(Error::unsupported("an ASOF JOIN takes ON, not USING")
                    .hint("Write ON l.key = r.key."));
            }
        };
        join.join_operator = JoinOperator::LeftOuter(JoinConstraint::On(condition));
    }
    Ok(())
}

/// `JOIN t FOR SYSTEM_TIME AS OF time ON condition` becomes a join whose condition is marked, for
/// the planner of views.
pub(super) fn mark_system_time(select: &mut Select) -> Result<()> {
    for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
        let TableFactor::Table { version, .. } = &mut join.relation else {
            continue;
        };
        let Some(TableVersion::ForSystemTimeAsOf(time)) = version else {
            continue;
        };
        let (JoinOperator::Join(JoinConstraint::On(condition))
        | JoinOperator::Inner(JoinConstraint::On(condition))
        | JoinOperator::Left(JoinConstraint::On(condition))
        | JoinOperator::LeftOuter(JoinConstraint::On(condition))) = &mut join.join_operator
        else {
            return Err(no_versions());
        };
        *condition = Expr::BinaryOp {
            left: Box::new(Expr::Nested(Box::new(condition.clone()))),
            op: ast::BinaryOperator::And,
            right: Box::new(call(temporal_join::MARK, vec![time.clone()])),
        };
        *version = None;
    }
    Ok(())
}

/// A relation as of a time stands nowhere else.
pub(super) fn refuse_versions(factor: &TableFactor) -> Result<()> {
    match factor {
        TableFactor::Table {
            version: Some(_), ..
        } => Err(no_versions()),
        _ => Ok(()),
    }
}

fn no_versions() -> Error {
    Error::unsupported("FOR SYSTEM_TIME AS OF is not supported here")
        .detail("It stands at the right side of an inner or left join with ON.")
        .hint("Write s JOIN t FOR SYSTEM_TIME AS OF s.time ON s.key = t.key.")
}
