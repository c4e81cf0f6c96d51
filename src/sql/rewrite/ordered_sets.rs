//! Aggregates WITHIN GROUP: the values of a group in their order, and what is chosen of them.
//!
//! ```text
//! percentile_disc(p) WITHIN GROUP (ORDER BY x) FILTER (WHERE c)
//!   →  percentile_disc_of(array_agg(x ORDER BY x) FILTER (WHERE x IS NOT NULL AND (c)), p)
//! mode() WITHIN GROUP (ORDER BY x)
//!   →  mode_of(array_agg(x ORDER BY x) FILTER (WHERE x IS NOT NULL))
//! ```
//! So the group's rows are kept, and a group that is touched is chosen from anew. Absent: the
//! aggregates of a hypothetical row.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArgumentClause, FunctionArguments,
};

use super::trees::{binary, call, listed_arguments, take};
use crate::sql::data_types::last_part;

/// An aggregate, the function of ours, and how many arguments stand before WITHIN GROUP.
const AGGREGATES: [(&str, &str, usize); 3] = [
    ("percentile_cont", "percentile_cont_of", 1),
    ("percentile_disc", "percentile_disc_of", 1),
    ("mode", "mode_of", 0),
];

/// Rewrites such a call.
pub(super) fn rewrite(expression: &mut Expr) {
    let Expr::Function(function) = expression else {
        return;
    };
    if let Some(chosen) = rewritten(function) {
        *expression = chosen;
    }
}

fn rewritten(function: &mut Function) -> Option<Expr> {
    let name = last_part(&function.name);
    let (_, chosen, count) = AGGREGATES.iter().find(|(known, ..)| *known == name)?;
    let arguments = listed_arguments(&function.args)?;
    let [order] = function.within_group.as_slice() else {
        return None;
    };
    if arguments.len() != *count || function.over.is_some() {
        return None;
    }
    let value = order.expr.clone();
    let is_there = Expr::IsNotNull(Box::new(Expr::Nested(Box::new(value.clone()))));
    let mut gathered = call("array_agg", vec![value]);
    if let Expr::Function(gathering) = &mut gathered {
        if let FunctionArguments::List(list) = &mut gathering.args {
            let order = vec![order.clone()];
            list.clauses.push(FunctionArgumentClause::OrderBy(order));
        }
        gathering.filter = Some(Box::new(match &mut function.filter {
            None => is_there,
            Some(filter) => {
                let filter = Expr::Nested(Box::new(take(filter)));
                binary(is_there, BinaryOperator::And, filter)
            }
        }));
    }
    let mut all = vec![gathered];
    all.extend(arguments);
    Some(call(chosen, all))
}
