//! `jsonb_set_lax`, whose last argument says what a NULL does:
//!
//! ```text
//! jsonb_set_lax(j, path, x)                          →  jsonb_set(j, path, coalesce(x::jsonb, 'null'), true)
//! jsonb_set_lax(j, path, x, true, 'delete_key')      →  CASE WHEN x IS NULL THEN j #- path ELSE jsonb_set(…) END
//! jsonb_set_lax(j, path, x, true, 'return_target')   →  CASE WHEN x IS NULL THEN j ELSE jsonb_set(…) END
//! ```
//! Absent: `raise_exception`, and what is no constant.

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{BinaryOperator, CaseWhen, DataType, Expr, Value};

use super::postgres::string_constant;
use super::trees::{binary, call, cast_to, listed_arguments, string};
use crate::sql::data_types::last_part;

/// Rewrites such a call; one that is not understood stays, and is refused under its name.
pub(super) fn set_lax(expression: &mut Expr) {
    let Expr::Function(function) = &*expression else {
        return;
    };
    if last_part(&function.name) != "jsonb_set_lax" {
        return;
    }
    let arguments = listed_arguments(&function.args).unwrap_or_default();
    let (target, path, new, options) = match arguments.as_slice() {
        [target, path, new, options @ ..] if options.len() <= 2 => (target, path, new, options),
        _ => return,
    };
    let creates = options.first().cloned();
    let creates = creates.unwrap_or_else(|| Expr::value(Value::Boolean(true)));
    let treatment = match options.get(1) {
        None => Some("use_json_null".to_owned()),
        Some(treatment) => string_constant(treatment),
    };
    let jsonb = |e: &Expr| cast_to(e.clone(), DataType::JSONB);
    let set = |new: Expr| {
        call(
            "jsonb_set",
            vec![target.clone(), path.clone(), new, creates],
        )
    };
    let of_null = match treatment.as_deref() {
        Some("use_json_null") => {
            let null = cast_to(string("null"), DataType::JSONB);
            *expression = set(call("coalesce", vec![jsonb(new), null]));
            return;
        }
        Some("return_target") => jsonb(target),
        Some("delete_key") => binary(jsonb(target), BinaryOperator::HashMinus, path.clone()),
        _ => return,
    };
    *expression = Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen {
            condition: Expr::IsNull(Box::new(new.clone())),
            result: of_null,
        }],
        else_result: Some(Box::new(set(jsonb(new)))),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::rewrite::trees::number;

    #[test]
    fn what_a_null_does() {
        let rewritten = |treatment: Option<&str>| {
            let mut arguments = vec![string("{}"), string("{a}"), number(1)];
            if let Some(treatment) = treatment {
                arguments.extend([Expr::value(Value::Boolean(false)), string(treatment)]);
            }
            let mut lax = call("jsonb_set_lax", arguments);
            set_lax(&mut lax);
            lax.to_string()
        };
        assert_eq!(
            rewritten(None),
            "jsonb_set('{}', '{a}', coalesce(1::JSONB, 'null'::JSONB), true)"
        );
        assert_eq!(
            rewritten(Some("return_target")),
            "CASE WHEN 1 IS NULL THEN '{}'::JSONB ELSE jsonb_set('{}', '{a}', 1::JSONB, false) END"
        );
        assert!(rewritten(Some("delete_key")).contains("#-"));
        assert!(rewritten(Some("other")).starts_with("jsonb_set_lax"));
    }
}
