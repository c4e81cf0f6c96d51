//! What no incremental view can hold: functions whose value changes by itself.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};

use crate::error::{Error, Result};

/// 0A000, naming the function, if the plan calls a volatile function, or a stable one whose value
/// does not come from the row (`now()`, `current_date`).
pub fn no_volatile_functions(plan: &LogicalPlan) -> Result<()> {
    let mut found: Option<String> = None;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                if let Expr::ScalarFunction(call) = part
                    && changes_by_itself(call.func.signature().volatility, &call.args)
                {
                    found = Some(call.name().to_owned());
                    return Ok(TreeNodeRecursion::Stop);
                }
                // Of an aggregate it is that of the functions it is made of.
                if let Expr::AggregateFunction(call) = part
                    && call.func.signature().volatility != Volatility::Immutable
                {
                    found = Some(call.func.name().to_owned());
                    return Ok(TreeNodeRecursion::Stop);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    match found {
        None => Ok(()),
        Some(function) => Err(refusal(&function)),
    }
}

fn changes_by_itself(volatility: Volatility, arguments: &[Expr]) -> bool {
    match volatility {
        Volatility::Immutable => false,
        Volatility::Stable => arguments
            .iter()
            .all(|argument| matches!(argument, Expr::Literal(..))),
        Volatility::Volatile => true,
    }
}

fn refusal(function: &str) -> Error {
    Error::unsupported(format!(
        "function {function}() cannot be used in a materialized view"
    ))
    .detail("Its value changes without a change of the rows, so that the view could not be kept up to date.")
    .hint(match function {
        "now" | "current_timestamp" | "current_date" | "current_time" | "today" => {
            "Use a time column of the stream, or apply the function where the view is read: SELECT … FROM view WHERE column > now() - INTERVAL '…'."
        }
        _ => "Compute the value before the row is inserted, or where the view is read.",
    })
}
