//! Comparisons of rows, member by member: `(a, b) = (1, 2)` is `a = 1 AND b = 2`, so that an
//! unknown member makes the comparison unknown unless another decides it. The engine would compare
//! structs, for which NULL is a value.

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, DataType, Expr, Ident, Query, SetExpr, UnaryOperator, Value,
};

use super::trees::{binary, call, derived, listed_arguments, set_relation, table_alias, template};
use crate::sql::data_types::last_part;

/// Rewrites one expression whose operands are rows.
pub(super) fn compare_members(expression: &mut Expr) {
    let compared = match expression {
        Expr::BinaryOp {
            left,
            op: BinaryOperator::Overlaps,
            right,
        } => match (members(left).as_deref(), members(right).as_deref()) {
            (Some([a, b]), Some([c, d])) => Some(overlap([a, b], [c, d])),
            _ => None,
        },
        Expr::BinaryOp { left, op, right } => match (members(left), members(right)) {
            (Some(left), Some(right)) if left.len() == right.len() => compared(&left, op, &right),
            _ => None,
        },
        Expr::IsNull(row) => all_members(row, Expr::IsNull),
        Expr::IsNotNull(row) => all_members(row, Expr::IsNotNull),
        Expr::InList {
            expr,
            list,
            negated,
        } => in_list(expr, list, *negated),
        Expr::InSubquery {
            expr,
            subquery,
            negated,
        } => in_query(expr, subquery, *negated),
        _ => None,
    };
    if let Some(compared) = compared {
        *expression = Expr::Nested(Box::new(compared));
    }
}

/// `(a, b) OVERLAPS (c, d)` of two periods that do not hold their ends, or are one moment.
fn overlap([a, b]: [&Expr; 2], [c, d]: [&Expr; 2]) -> Expr {
    let (b, d) = (&end_of_period(a, b), &end_of_period(c, d));
    let least = |x: &Expr, y: &Expr| call("least", vec![x.clone(), y.clone()]);
    let greatest = |x: &Expr, y: &Expr| call("greatest", vec![x.clone(), y.clone()]);
    let both = binary(
        binary(least(a, b), BinaryOperator::Lt, greatest(c, d)),
        BinaryOperator::And,
        binary(least(c, d), BinaryOperator::Lt, greatest(a, b)),
    );
    let same_start = binary(least(a, b), BinaryOperator::Eq, least(c, d));
    binary(both, BinaryOperator::Or, same_start)
}

/// A period is told by its start and its end, or by an interval that says how long it is.
fn end_of_period(start: &Expr, end: &Expr) -> Expr {
    let is_interval = match end {
        Expr::Interval(_) => true,
        Expr::Cast { data_type, .. } => matches!(data_type, DataType::Interval { .. }),
        _ => false,
    };
    match is_interval {
        true => binary(start.clone(), BinaryOperator::Plus, end.clone()),
        false => end.clone(),
    }
}

/// Members of `(a, b)` or `ROW(a, b)`.
fn members(expression: &Expr) -> Option<Vec<Expr>> {
    match expression {
        Expr::Tuple(members) => Some(members.clone()),
        Expr::Nested(inner) => members(inner),
        Expr::Function(function) if last_part(&function.name) == "row" => {
            listed_arguments(&function.args)
        }
        _ => None,
    }
}

fn all_members(row: &Expr, test: fn(Box<Expr>) -> Expr) -> Option<Expr> {
    let tests = members(row)?
        .into_iter()
        .map(|member| test(Box::new(member)));
    Some(all(tests))
}

fn compared(left: &[Expr], op: &BinaryOperator, right: &[Expr]) -> Option<Expr> {
    use BinaryOperator as Op;
    let (strict, at_end) = match op {
        Op::Eq => return Some(equal(left, right)),
        Op::NotEq => return Some(not(equal(left, right))),
        Op::Lt => (Op::Lt, Op::Lt),
        Op::LtEq => (Op::Lt, Op::LtEq),
        Op::Gt => (Op::Gt, Op::Gt),
        Op::GtEq => (Op::Gt, Op::GtEq),
        _ => return None,
    };
    ordered(left, &strict, &at_end, right)
}

/// The first members that differ decide.
fn ordered(
    left: &[Expr],
    strict: &BinaryOperator,
    at_end: &BinaryOperator,
    right: &[Expr],
) -> Option<Expr> {
    let ((first, left), (other, right)) = (left.split_first()?, right.split_first()?);
    if left.is_empty() {
        return Some(binary(first.clone(), at_end.clone(), other.clone()));
    }
    let rest = binary(
        binary(first.clone(), BinaryOperator::Eq, other.clone()),
        BinaryOperator::And,
        ordered(left, strict, at_end, right)?,
    );
    let decided = binary(first.clone(), strict.clone(), other.clone());
    Some(binary(decided, BinaryOperator::Or, rest))
}

fn in_list(row: &Expr, list: &[Expr], negated: bool) -> Option<Expr> {
    let left = members(row)?;
    let any = list
        .iter()
        .map(|other| {
            let right = members(other).filter(|right| right.len() == left.len())?;
            Some(equal(&left, &right))
        })
        .collect::<Option<Vec<_>>>()?
        .into_iter()
        .reduce(|a, b| binary(a, BinaryOperator::Or, b))?;
    Some(if negated { not(any) } else { any })
}

/// `(a, b) IN (q)` with its three values:
///
/// ```text
/// CASE WHEN EXISTS (SELECT 1 FROM (q) AS m (m1, m2) WHERE a = m1 AND b = m2) THEN true
///      WHEN EXISTS (… WHERE (a = m1 AND b = m2) IS NULL) THEN NULL ELSE false END
/// ```
fn in_query(row: &Expr, query: &Query, negated: bool) -> Option<Expr> {
    let left = members(row)?;
    let names: Vec<Ident> = (1..=left.len())
        .map(|n| Ident::with_quote('"', format!("member {n}")))
        .collect();
    let right: Vec<Expr> = names.iter().cloned().map(Expr::Identifier).collect();
    let matches = equal(&left, &right);
    let some = |condition: Expr| {
        let mut found = template("SELECT 1 FROM input");
        if let SetExpr::Select(select) = found.body.as_mut() {
            select.selection = Some(condition);
        }
        let alias = table_alias(Ident::new("members"), names.clone());
        set_relation(&mut found, derived(query.clone(), alias));
        Expr::Exists {
            subquery: Box::new(found),
            negated: false,
        }
    };
    let when = |condition: Expr, result: Value| CaseWhen {
        condition,
        result: Expr::value(result),
    };
    let value = Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![
            when(some(matches.clone()), Value::Boolean(true)),
            when(some(Expr::IsNull(Box::new(matches))), Value::Null),
        ],
        else_result: Some(Box::new(Expr::value(Value::Boolean(false)))),
    };
    Some(if negated { not(value) } else { value })
}

fn equal(left: &[Expr], right: &[Expr]) -> Expr {
    let pairs = left.iter().zip(right);
    all(pairs.map(|(a, b)| binary(a.clone(), BinaryOperator::Eq, b.clone())))
}

fn all(conditions: impl Iterator<Item = Expr>) -> Expr {
    conditions
        .reduce(|a, b| binary(a, BinaryOperator::And, b))
        .unwrap_or_else(|| Expr::value(Value::Boolean(true)))
}

fn not(condition: Expr) -> Expr {
    Expr::UnaryOp {
        op: UnaryOperator::Not,
        expr: Box::new(condition),
    }
}
