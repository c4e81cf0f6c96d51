//! Comparisons with ANY and ALL.
//!
//! ```text
//! x op ANY (ARRAY(SELECT …))     →  x op ANY (SELECT …)
//! x op ANY ('{a,b}')             →  x op ANY (ARRAY['a', 'b'])
//! x LIKE ANY (ARRAY[p, q])       →  x LIKE p OR x LIKE q
//! x NOT LIKE ALL (ARRAY[p, q])   →  x NOT LIKE p AND x NOT LIKE q
//! x ~ ANY (patterns)             →  pattern_any(x, patterns, '~')
//! ```
//! Absent: LIKE with the rows of a query, and with an array and an ESCAPE.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, FunctionArguments, Value};

use super::arrays;
use super::postgres::string_constant;
use super::trees::{binary, call, listed_arguments, string, take};
use crate::error::{Error, Result};
use crate::sql::data_types::last_part;
use crate::sql::functions::quantified_patterns;

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
            by_operator(expression);
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
        let computed = with_computed(expression, elements, !any);
        return computed.map(Some).ok_or_else(|| {
            Error::unsupported("LIKE ANY and LIKE ALL take an array, and no ESCAPE beside one")
                .hint("Write EXISTS (SELECT 1 FROM (…) AS p(p) WHERE x LIKE p).")
        });
    };
    let compared = elements
        .elem
        .into_iter()
        .map(|pattern| with_pattern(expression, pattern));
    Ok(Some(together(compared, !any)))
}

/// Comparisons of which all must hold, or any.
fn together(compared: impl Iterator<Item = Expr>, is_all: bool) -> Expr {
    let operator = match is_all {
        true => BinaryOperator::And,
        false => BinaryOperator::Or,
    };
    let all = compared.reduce(|one, other| binary(one, operator.clone(), other));
    all.unwrap_or_else(|| Expr::value(Value::Boolean(is_all)))
}

/// A call of the function for patterns in an array that is computed.
fn pattern_call(text: Expr, patterns: Expr, operator: &str, is_all: bool) -> Expr {
    let name = match is_all {
        true => quantified_patterns::ALL,
        false => quantified_patterns::ANY,
    };
    call(name, vec![text, patterns, string(operator)])
}

/// `x LIKE ANY (patterns)`; `None` for what the function does not take.
fn with_computed(like: &Expr, patterns: Expr, is_all: bool) -> Option<Expr> {
    let (text, negated, escape, operator) = match like {
        Expr::Like {
            expr,
            negated,
            escape_char,
            ..
        } => (expr, negated, escape_char, ["~~", "!~~"]),
        Expr::ILike {
            expr,
            negated,
            escape_char,
            ..
        } => (expr, negated, escape_char, ["~~*", "!~~*"]),
        _ => return None,
    };
    let is_array = escape.is_none() && !matches!(patterns, Expr::Subquery(_));
    let operator = operator[usize::from(*negated)];
    is_array.then(|| pattern_call(text.as_ref().clone(), patterns, operator, is_all))
}

/// `x ~ ANY (patterns)`, which the planner takes for no comparison.
fn by_operator(expression: &mut Expr) {
    let is_all = matches!(expression, Expr::AllOp { .. });
    let (Expr::AnyOp {
        left,
        compare_op,
        right,
        ..
    }
    | Expr::AllOp {
        left,
        compare_op,
        right,
    }) = &*expression
    else {
        return;
    };
    let symbol = match compare_op {
        BinaryOperator::PGRegexMatch => "~",
        BinaryOperator::PGRegexIMatch => "~*",
        BinaryOperator::PGRegexNotMatch => "!~",
        BinaryOperator::PGRegexNotIMatch => "!~*",
        BinaryOperator::PGLikeMatch => "~~",
        BinaryOperator::PGILikeMatch => "~~*",
        BinaryOperator::PGNotLikeMatch => "!~~",
        BinaryOperator::PGNotILikeMatch => "!~~*",
        _ => return,
    };
    *expression = match right.as_ref() {
        Expr::Subquery(_) => return,
        Expr::Array(patterns) => {
            let compared = patterns.elem.iter().map(|pattern| Expr::BinaryOp {
                left: left.clone(),
                op: compare_op.clone(),
                right: Box::new(pattern.clone()),
            });
            Expr::Nested(Box::new(together(compared, is_all)))
        }
        computed => pattern_call(left.as_ref().clone(), computed.clone(), symbol, is_all),
    };
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
