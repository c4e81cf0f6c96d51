//! Comparisons with ANY and ALL.
//!
//! ```text
//! x op ANY (ARRAY(SELECT …))     →  x op ANY (SELECT …)
//! x op ANY ('{a,b}')             →  x op ANY (ARRAY['a', 'b'])
//! x LIKE ANY (ARRAY[p, q])       →  x LIKE p OR x LIKE q
//! x NOT LIKE ALL (ARRAY[p, q])   →  x NOT LIKE p AND x NOT LIKE q
//! ```
//! Absent: LIKE with an array that is computed.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, FunctionArguments, Value};

use super::arrays;
use super::postgres::string_constant;
use super::trees::{binary, listed_arguments, take};
use crate::error::{Error, Result};
use crate::sql::data_types::last_part;

/// Rewrites such a comparison; its parts are still as they were written.
pub(super) fn rewrite(expression: &mut Expr) -> Result<()> {
    match expression {
        Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } => {
            if let Some(text) = string_constant(right)
                && text.trim_start().starts_with('{')
            {
                **right = arrays::array(&text)?;
            }
            while let Expr::Nested(inner) = right.as_mut() {
                **right = take(inner);
            }
            if let Expr::Function(function) = right.as_mut()
                && last_part(&function.name) == "array"
                && let FunctionArguments::Subquery(query) = &mut function.args
            {
                **right = Expr::Subquery(query.clone());
            }
        }
        Expr::Like { .. } | Expr::ILike { .. } => {
            if let Some(compared) = like(expression)? {
                *expression = Expr::Nested(Box::new(compared));
            }
        }
        _ => {}
    }
    Ok(())
}

fn like(expression: &Expr) -> Result<Option<Expr>> {
    let (Expr::Like { any, pattern, .. } | Expr::ILike { any, pattern, .. }) = expression else {
        return Ok(None);
    };
    let patterns = match any {
        true => pattern.as_ref().clone(),
        false => match all_of(pattern) {
            Some(patterns) => patterns,
            None => return Ok(None),
        },
    };
    let elements = match (string_constant(&patterns), unnested(patterns)) {
        (Some(text), _) => arrays::array(&text)?,
        (None, patterns) => patterns,
    };
    let Expr::Array(elements) = elements else {
        return Err(
            Error::unsupported("LIKE ANY and LIKE ALL take an array that is written out")
                .hint("Write EXISTS (SELECT 1 FROM unnest(…) AS p(p) WHERE x LIKE p)."),
        );
    };
    let operator = if *any {
        BinaryOperator::Or
    } else {
        BinaryOperator::And
    };
    let compared = elements
        .elem
        .into_iter()
        .map(|pattern| with_pattern(expression, pattern));
    let empty = || Expr::value(Value::Boolean(!any));
    let all = compared.reduce(|one, other| binary(one, operator.clone(), other));
    Ok(Some(all.unwrap_or_else(empty)))
}

fn unnested(expression: Expr) -> Expr {
    match expression {
        Expr::Nested(inner) => unnested(*inner),
        other => other,
    }
}

/// What stands in `ALL (…)`, which the parser takes for a call.
fn all_of(pattern: &Expr) -> Option<Expr> {
    let Expr::Function(function) = pattern else {
        return None;
    };
    let is_all = function.name.to_string().eq_ignore_ascii_case("all");
    match listed_arguments(&function.args)?.as_slice() {
        [patterns] if is_all => Some(patterns.clone()),
        _ => None,
    }
}

fn with_pattern(like: &Expr, wanted: Expr) -> Expr {
    let mut like = like.clone();
    if let Expr::Like { any, pattern, .. } | Expr::ILike { any, pattern, .. } = &mut like {
        *any = false;
        **pattern = wanted;
    }
    like
}
