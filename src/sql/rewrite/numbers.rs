//! Number literals with PostgreSQL's types: `1` is an integer, `3000000000` a bigint, `1.50` a
//! numeric of scale 2, and whole numbers beyond bigint are numeric.
//!
//! The engine reads every whole number as 64 bits, so one that fits an integer gets a cast. A few
//! places want a bare number: ordinals, LIMIT, window frames, places in JSON arrays, and functions
//! whose result has a type that hangs on the number ([`WANTS_LITERALS`]). A number of more digits
//! than a numeric has here is a double precision.

use datafusion::arrow::datatypes::DECIMAL128_MAX_PRECISION;
use datafusion::sql::sqlparser::ast::{
    self, DataType, ExactNumberInfo, Expr, FunctionArg, FunctionArgExpr, FunctionArguments,
    GroupByExpr, Query, Select, Value, WindowFrameBound, WindowType,
};

use super::trees::{call, cast_to, string, take};
use crate::sql::data_types::last_part;
use crate::values::numeric::plain_digits;

/// Functions that look at the number itself when the query is planned.
const WANTS_LITERALS: &[&str] = &[
    "round",
    "trunc",
    "lag",
    "lead",
    "ntile",
    "nth_value",
    "generate_series",
    "range",
    "tumble_start",
    "tumble_end",
    "hop_starts",
];

/// Gives a number its type.
pub(super) fn type_number(expression: &mut Expr) {
    let Expr::Value(value) = &*expression else {
        return;
    };
    let Value::Number(text, _) = &value.value else {
        return;
    };
    if text.parse::<i32>().is_ok() {
        *expression = cast_to(take(expression), DataType::Int(None));
    } else if text.parse::<i64>().is_err() {
        *expression = decimal(text);
    }
}

/// `-2147483648`, the least integer, whose digits alone are a bigint; so for the least bigint.
pub(super) fn least_of_type(expression: &mut Expr) {
    let Expr::UnaryOp {
        op: ast::UnaryOperator::Minus,
        expr,
    } = &*expression
    else {
        return;
    };
    let Expr::Value(value) = expr.as_ref() else {
        return;
    };
    let data_type = match &value.value {
        Value::Number(text, _) if text == "2147483648" => DataType::Int(None),
        Value::Number(text, _) if text == "9223372036854775808" => DataType::BigInt(None),
        _ => return,
    };
    *expression = cast_to(string(format!("-{}", value.value)), data_type);
}

/// A number with a fraction, an exponent, or too many digits for a bigint.
fn decimal(text: &str) -> Expr {
    match Digits::parse(text).filter(|digits| digits.fits()) {
        Some(digits) => {
            let data_type = DataType::Numeric(digits.type_info());
            cast_to(string(digits.plain_text()), data_type)
        }
        None => cast_to(string(text), DataType::DoublePrecision),
    }
}

/// `'1.50'::numeric`: a text constant as the numeric it says, with its own scale; `None` where it
/// does not say one, or one with too many digits.
fn numeric_of_text(text: &str) -> Option<Expr> {
    let trimmed = text.trim();
    let (sign, unsigned) = match trimmed.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", trimmed.strip_prefix('+').unwrap_or(trimmed)),
    };
    let digits = Digits::parse(unsigned).filter(|digits| digits.fits())?;
    let data_type = DataType::Numeric(digits.type_info());
    let plain = format!("{sign}{}", digits.plain_text());
    Some(cast_to(string(plain), data_type))
}

/// `x::numeric`, without precision: the value as it is, with the scale that it has.
pub(super) fn bare_numeric(expression: &mut Expr) {
    not_finite(expression);
    match expression {
        Expr::Cast {
            expr, data_type, ..
        } if is_bare_numeric(data_type) => {
            let operand = take(expr);
            let exact =
                super::postgres::string_constant(&operand).and_then(|text| numeric_of_text(&text));
            *expression = exact.unwrap_or_else(|| call("to_bare_numeric", vec![operand]));
        }
        Expr::TypedString(typed) if is_bare_numeric(&typed.data_type) => {
            let text = typed.value.value.clone().into_string();
            if let Some(exact) = text.and_then(|text| numeric_of_text(&text)) {
                *expression = exact;
            }
        }
        _ => {}
    }
}

/// `'NaN'::numeric` is double precision, as what has more digits than a numeric is.
fn not_finite(expression: &mut Expr) {
    let (text, data_type) = match expression {
        Expr::Cast {
            expr, data_type, ..
        } => (super::postgres::string_constant(expr), data_type),
        Expr::TypedString(typed) => (
            typed.value.value.clone().into_string(),
            &mut typed.data_type,
        ),
        _ => return,
    };
    let is_numeric = matches!(
        data_type,
        DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_)
    );
    const NAMES: [&str; 7] = [
        "nan",
        "infinity",
        "+infinity",
        "-infinity",
        "inf",
        "+inf",
        "-inf",
    ];
    let is_no_number = |text: String| NAMES.contains(&text.trim().to_ascii_lowercase().as_str());
    if is_numeric && text.is_some_and(is_no_number) {
        *data_type = DataType::DoublePrecision;
    }
}

fn is_bare_numeric(data_type: &DataType) -> bool {
    match data_type {
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => {
            *info == ExactNumberInfo::None
        }
        DataType::Custom(name, modifiers) => {
            modifiers.is_empty() && matches!(last_part(name).as_str(), "numeric" | "decimal")
        }
        _ => false,
    }
}

/// A function that wants bare numbers gets them back, and so do window frames.
pub(super) fn bare_arguments(function: &mut ast::Function) {
    let name = last_part(&function.name);
    if let (true, FunctionArguments::List(list)) =
        (WANTS_LITERALS.contains(&name.as_str()), &mut function.args)
    {
        for argument in &mut list.args {
            if let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument {
                bare(argument);
            }
        }
    }
    if let Some(WindowType::WindowSpec(spec)) = &mut function.over
        && let Some(frame) = &mut spec.window_frame
    {
        bare_bound(&mut frame.start_bound);
        frame.end_bound.iter_mut().for_each(bare_bound);
    }
}

fn bare_bound(bound: &mut WindowFrameBound) {
    if let WindowFrameBound::Preceding(Some(distance))
    | WindowFrameBound::Following(Some(distance)) = bound
    {
        bare(distance);
    }
}

/// Arguments of a function in FROM.
pub(super) fn bare_table_function(arguments: &mut [FunctionArg]) {
    for argument in arguments {
        if let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument {
            bare(argument);
        }
    }
}

/// `ORDER BY 1`, `LIMIT 10`.
pub(super) fn bare_in_query(query: &mut Query) {
    if let Some(order_by) = &mut query.order_by
        && let ast::OrderByKind::Expressions(orders) = &mut order_by.kind
    {
        for order in orders {
            bare(&mut order.expr);
        }
    }
    match &mut query.limit_clause {
        Some(ast::LimitClause::LimitOffset { limit, offset, .. }) => {
            limit.iter_mut().for_each(bare);
            offset.iter_mut().for_each(|offset| bare(&mut offset.value));
        }
        Some(ast::LimitClause::OffsetCommaLimit { offset, limit }) => {
            bare(offset);
            bare(limit);
        }
        None => {}
    }
}

/// `GROUP BY 1`, also within ROLLUP, CUBE and GROUPING SETS.
pub(super) fn bare_in_select(select: &mut Select) {
    let GroupByExpr::Expressions(groups, _) = &mut select.group_by else {
        return;
    };
    for group in groups {
        match group {
            Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => {
                sets.iter_mut().flatten().for_each(bare);
            }
            Expr::Tuple(members) => members.iter_mut().for_each(bare),
            other => bare(other),
        }
    }
}

/// Takes the cast of [`type_number`] off.
pub(super) fn bare(expression: &mut Expr) {
    match expression {
        Expr::Cast {
            expr,
            data_type: DataType::Int(None),
            ..
        } if matches!(expr.as_ref(), Expr::Value(v) if matches!(v.value, Value::Number(..))) => {
            *expression = take(expr);
        }
        Expr::UnaryOp { expr, .. } | Expr::Nested(expr) => bare(expr),
        _ => {}
    }
}

/// An unsigned decimal number, taken apart.
struct Digits {
    /// without leading zeros
    whole: String,
    fraction: String,
}

impl Digits {
    /// Reads `12`, `1.50`, `.5`, `1e5`; `None` for anything else.
    fn parse(text: &str) -> Option<Self> {
        const EXPONENT_MAX: u32 = 100;
        let (whole, fraction) = plain_digits(&text.replace('_', ""), EXPONENT_MAX)?;
        Some(Self { whole, fraction })
    }

    fn fits(&self) -> bool {
        self.whole.len() + self.fraction.len() <= usize::from(DECIMAL128_MAX_PRECISION)
    }

    fn type_info(&self) -> ExactNumberInfo {
        let precision = (self.whole.len() + self.fraction.len()).max(1);
        ExactNumberInfo::PrecisionAndScale(precision as u64, self.fraction.len() as i64)
    }

    fn plain_text(&self) -> String {
        let whole = match self.whole.as_str() {
            "" => "0",
            digits => digits,
        };
        match self.fraction.as_str() {
            "" => whole.to_owned(),
            fraction => format!("{whole}.{fraction}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_keep_their_scale() {
        for (text, plain, precision, scale) in [
            ("1.50", "1.50", 3, 2),
            (".5", "0.5", 1, 1),
            ("5.", "5", 1, 0),
            ("0.0", "0.0", 1, 1),
            ("1e5", "100000", 6, 0),
            ("1.25e1", "12.5", 3, 1),
            ("12e-3", "0.012", 3, 3),
            ("18446744073709551616", "18446744073709551616", 20, 0),
            ("1_000.5", "1000.5", 5, 1),
        ] {
            let digits = Digits::parse(text).unwrap();
            assert_eq!(digits.plain_text(), plain, "{text}");
            assert_eq!(
                digits.type_info(),
                ExactNumberInfo::PrecisionAndScale(precision, scale),
                "{text}"
            );
        }
        assert!(!Digits::parse("1e50").unwrap().fits());
        assert!(Digits::parse("1e300").is_none());
        assert!(Digits::parse("abc").is_none());
        assert!(Digits::parse(".").is_none());
    }
}
