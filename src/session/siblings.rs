//! Types of parameters that follow from what stands beside them: `coalesce($1, x)`, results of CASE,
//! conditions, subscripts, columns of VALUES.
//!
//! The planner infers a parameter's type from comparisons only. So for the inference `$1` beside `x`
//! becomes `CASE WHEN x = $1 THEN x END`, which is of the type of `x`; what is then planned with
//! values is the statement as it was.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    self, AccessExpr, BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments,
    SetExpr, Subscript, Visit, Visitor,
};

use super::placeholder;
use crate::sql::data_types::{last_part, sql_type};
use crate::types::SqlType;

/// Functions whose arguments and result are of one type.
const OF_ONE_TYPE: [&str; 4] = ["coalesce", "nullif", "greatest", "least"];

/// Types that need no planning: conditions are boolean, subscripts integers, and a column of VALUES is of
/// the type that one of its rows is cast to.
pub(super) fn take_plain_types(statement: &ast::Statement, types: &mut [Option<SqlType>]) {
    struct Plain<'a>(&'a mut [Option<SqlType>]);
    impl Plain<'_> {
        fn set(&mut self, expr: &Expr, sql_type: &SqlType) {
            if let Some(index) = placeholder(expr)
                && let Some(slot @ None) = self.0.get_mut(index)
            {
                *slot = Some(sql_type.clone());
            }
        }
    }
    impl Visitor for Plain<'_> {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Case {
                    operand: None,
                    conditions,
                    ..
                } => conditions
                    .iter()
                    .for_each(|when| self.set(&when.condition, &SqlType::Boolean)),
                Expr::CompoundFieldAccess { access_chain, .. } => {
                    for access in access_chain {
                        if let AccessExpr::Subscript(Subscript::Index { index }) = access {
                            self.set(index, &SqlType::Integer);
                        }
                    }
                }
                _ => {}
            }
            ControlFlow::Continue(())
        }

        fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
            let SetExpr::Values(values) = query.body.as_ref() else {
                return ControlFlow::Continue(());
            };
            let width = values.rows.iter().map(|row| row.len()).max();
            for column in 0..width.unwrap_or(0) {
                let cells = || values.rows.iter().filter_map(|row| row.get(column));
                let cast = cells().find_map(|cell| match cell {
                    Expr::Cast { data_type, .. } => sql_type(data_type).ok(),
                    _ => None,
                });
                if let Some(cast) = cast {
                    cells().for_each(|cell| self.set(cell, &cast));
                }
            }
            ControlFlow::Continue(())
        }
    }
    let walked = statement.visit(&mut Plain(types));
    assert!(walked.is_continue(), "the search never stops early");
}

/// Makes parameters without a type comparisons with what they stand beside. True: there were some.
pub(super) fn compare_siblings(statement: &mut ast::Statement, types: &[Option<SqlType>]) -> bool {
    let mut found = false;
    let walked = ast::visit_expressions_mut(statement, |expr| {
        match expr {
            Expr::Function(function)
                if OF_ONE_TYPE.contains(&last_part(&function.name).as_str()) =>
            {
                if let FunctionArguments::List(list) = &mut function.args {
                    let arguments = list.args.iter_mut().filter_map(|argument| match argument {
                        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
                        _ => None,
                    });
                    found |= compare(arguments.collect(), types);
                }
            }
            Expr::Case {
                operand,
                conditions,
                else_result,
                ..
            } => {
                let (mut compared, mut results) = (Vec::new(), Vec::new());
                for when in conditions.iter_mut() {
                    compared.push(&mut when.condition);
                    results.push(&mut when.result);
                }
                results.extend(else_result.as_deref_mut());
                found |= compare(results, types);
                if let Some(operand) = operand {
                    compared.push(operand);
                    found |= compare(compared, types);
                }
            }
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
    assert!(walked.is_continue(), "the search never stops early");
    found
}

fn compare(mut members: Vec<&mut Expr>, types: &[Option<SqlType>]) -> bool {
    let untyped =
        |expr: &Expr| placeholder(expr).is_some_and(|index| matches!(types.get(index), Some(None)));
    let is_null = |expr: &Expr| matches!(expr, Expr::Value(v) if v.value == ast::Value::Null);
    let sibling = members.iter().find(|m| !untyped(m) && !is_null(m));
    let Some(sibling) = sibling.map(|m| (**m).clone()) else {
        return false;
    };
    let mut found = false;
    for member in members.iter_mut().filter(|m| untyped(m)) {
        let parameter = (**member).clone();
        **member = Expr::Case {
            case_token: ast::helpers::attached_token::AttachedToken::empty(),
            end_token: ast::helpers::attached_token::AttachedToken::empty(),
            operand: None,
            conditions: vec![ast::CaseWhen {
                condition: Expr::BinaryOp {
                    left: Box::new(sibling.clone()),
                    op: BinaryOperator::Eq,
                    right: Box::new(parameter),
                },
                result: sibling.clone(),
            }],
            else_result: None,
        };
        found = true;
    }
    found
}
