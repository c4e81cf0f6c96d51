//! Calls and operators of PostgreSQL as calls of functions that there are.

use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, DataType, Expr, FunctionArguments, Ident, ObjectName,
};

use super::postgres::string_constant;
use super::trees::{binary, call, cast_to, listed_arguments, number, string, take};
use crate::error::Result;
use crate::sql::data_types::last_part;
use crate::sql::functions::patterns;

/// Functions that give an integer in PostgreSQL, or an array of them.
const WHOLE_RESULTS: &[&str] = &[
    "array_length",
    "array_ndims",
    "array_position",
    "array_positions",
    "cardinality",
];

/// `mod(a, b)` is `a % b`.
pub(super) fn modulo(expression: &mut Expr) {
    let Expr::Function(function) = expression else {
        return;
    };
    let operands = listed_arguments(&function.args).unwrap_or_default();
    if let ("mod", [left, right]) = (last_part(&function.name).as_str(), operands.as_slice()) {
        let nested = |operand: &Expr| Expr::Nested(Box::new(operand.clone()));
        *expression = binary(nested(left), BinaryOperator::Modulo, nested(right));
    }
}

/// `EXTRACT(field FROM time)`.
pub(super) fn extract(expression: &mut Expr) {
    if let Expr::Extract { field, expr, .. } = expression {
        let name = field.to_string();
        let name = name.trim_matches('\'').to_ascii_lowercase();
        *expression = call("extract_field", vec![string(name), take(expr)]);
    }
}

/// `a ^ b` is a power.
pub(super) fn power(expression: &mut Expr) {
    if let Expr::BinaryOp {
        left,
        op: BinaryOperator::PGExp,
        right,
    } = expression
    {
        *expression = call("power", vec![take(left), take(right)]);
    }
}

/// `substring(x FROM start FOR length)` as a plain call, `substring(x FROM 'pattern' FOR 'escape')`
/// as one with a regular expression. Errors: 2200C, 22025 such a pattern that is none.
pub(super) fn substring(expression: &mut Expr) -> Result<()> {
    let Expr::Substring {
        expr,
        substring_from,
        substring_for,
        ..
    } = expression
    else {
        return Ok(());
    };
    let start = substring_from.take().map_or_else(|| number(1), |e| *e);
    let length = substring_for.take().map(|length| *length);
    let escape = length.as_ref().and_then(string_constant);
    let mut arguments = vec![take(expr)];
    match (string_constant(&start), escape) {
        (Some(pattern), Some(escape)) => {
            arguments.push(string(patterns::substring_regex(&pattern, &escape)?));
        }
        _ => {
            arguments.push(start);
            arguments.extend(length);
        }
    }
    *expression = call("substr", arguments);
    Ok(())
}

/// `position(x IN y)`, `overlay(x PLACING y FROM start FOR length)` as plain calls.
pub(super) fn of_parts(expression: &mut Expr) {
    *expression = match expression {
        Expr::Position { expr, r#in } => call("strpos", vec![take(r#in), take(expr)]),
        Expr::Overlay {
            expr,
            overlay_what,
            overlay_from,
            overlay_for,
        } => {
            let mut arguments = vec![take(expr), take(overlay_what), take(overlay_from)];
            arguments.extend(overlay_for.take().map(|length| *length));
            call("overlay", arguments)
        }
        _ => return,
    };
}

/// `x ~ 'a.b'`: a dot is a line break too, which the engine wants to be told.
pub(super) fn dot_of_lines(op: &BinaryOperator, pattern: &mut Expr) {
    let is_match = matches!(
        op,
        BinaryOperator::PGRegexMatch
            | BinaryOperator::PGRegexIMatch
            | BinaryOperator::PGRegexNotMatch
            | BinaryOperator::PGRegexNotIMatch
    );
    if !is_match {
        return;
    }
    const DOT_IS_ALL: &str = "(?s)";
    match string_constant(pattern) {
        Some(text) if text.contains('.') => *pattern = string(format!("{DOT_IS_ALL}{text}")),
        Some(_) => {}
        None => {
            let computed = take(pattern);
            *pattern = binary(string(DOT_IS_ALL), BinaryOperator::StringConcat, computed);
        }
    }
}

/// Square and cube roots, absolute values.
pub(super) fn sign_operator(expression: &mut Expr) {
    let Expr::UnaryOp { op, expr } = expression else {
        return;
    };
    if matches!(op, ast::UnaryOperator::BitwiseNot) {
        // All bits of a whole number turned are -1 less the number, which is in the range of its type.
        let minus_one = cast_to(number(-1), DataType::SmallInt(None));
        *expression = binary(minus_one, ast::BinaryOperator::Minus, take(expr));
        return;
    }
    let function = match op {
        ast::UnaryOperator::PGSquareRoot => "sqrt",
        ast::UnaryOperator::PGCubeRoot => "cbrt",
        ast::UnaryOperator::PGAbs => "abs",
        _ => return,
    };
    *expression = call(function, vec![take(expr)]);
}

/// `x IS [NOT] DISTINCT FROM 'text'` as an operator, which the planner reads the constant for.
pub(super) fn distinct(expression: &mut Expr) {
    let is_constant = |e: &Expr| super::postgres::string_constant(e).is_some();
    let (Expr::IsDistinctFrom(left, right) | Expr::IsNotDistinctFrom(left, right)) = &*expression
    else {
        return;
    };
    if is_constant(left) == is_constant(right) {
        return;
    }
    let same = binary(
        left.as_ref().clone(),
        ast::BinaryOperator::Spaceship,
        right.as_ref().clone(),
    );
    *expression = match expression {
        Expr::IsNotDistinctFrom(..) => same,
        _ => Expr::UnaryOp {
            op: ast::UnaryOperator::Not,
            expr: Box::new(same),
        },
    };
}

/// `x ^@ y`
pub(super) fn starts_with(expression: &mut Expr) {
    if let Expr::BinaryOp {
        left,
        op: ast::BinaryOperator::PGStartsWith,
        right,
    } = expression
    {
        *expression = call("starts_with", vec![take(left), take(right)]);
    }
}

/// `count(DISTINCT (a + 1, b))`: the engine takes rows of names and literals only.
pub(super) fn rows_as_values(function: &mut ast::Function) {
    let FunctionArguments::List(list) = &mut function.args else {
        return;
    };
    for argument in &mut list.args {
        if let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(argument)) = argument
            && let Expr::Tuple(members) = argument
        {
            *argument = call("struct", std::mem::take(members));
        }
    }
}

/// Functions whose results the engine counts without a sign, and NULL for the length of nothing.
pub(super) fn whole_result(expression: &mut Expr) {
    let Expr::Function(function) = expression else {
        return;
    };
    let name = last_part(&function.name);
    if !WHOLE_RESULTS.contains(&name.as_str()) {
        return;
    }
    let counted = take(expression);
    *expression = match name.as_str() {
        "array_length" => length_or_null(counted),
        "array_positions" => {
            let integer = Box::new(DataType::Int(None));
            let integers = ast::ArrayElemTypeDef::SquareBracket(integer, None);
            cast_to(counted, DataType::Array(integers))
        }
        _ => cast_to(counted, DataType::Int(None)),
    };
}

fn length_or_null(length: Expr) -> Expr {
    let nothing = cast_to(number(0), DataType::Int(None));
    call(
        "nullif",
        vec![cast_to(length, DataType::Int(None)), nothing],
    )
}

/// `array_dims(a)`, `array_fill(x, ARRAY[n])`: arrays have one dimension, whose first place is 1.
pub(super) fn array_function(expression: &mut Expr) {
    let Expr::Function(function) = expression else {
        return;
    };
    let arguments = listed_arguments(&function.args).unwrap_or_default();
    let changed = match (last_part(&function.name).as_str(), arguments.as_slice()) {
        ("array_dims", [array]) => {
            let length = call("array_length", vec![array.clone(), number(1)]);
            let concatenated = |left, right| binary(left, BinaryOperator::StringConcat, right);
            let length = cast_to(length_or_null(length), DataType::Text);
            concatenated(concatenated(string("[1:"), length), string("]"))
        }
        ("array_fill", [value, Expr::Array(lengths)]) => match lengths.elem.as_slice() {
            [length] => call("array_repeat", vec![value.clone(), length.clone()]),
            _ => return,
        },
        _ => return,
    };
    *expression = changed;
}

/// `x IS NFD NORMALIZED`, and the form in `normalize(x, NFD)`, which is a word.
pub(super) fn normalization(expression: &mut Expr) {
    match expression {
        Expr::IsNormalized {
            expr,
            form,
            negated,
        } => {
            let form = form.map_or_else(|| "NFC".to_owned(), |form| form.to_string());
            let is_normal = call("is_normalized", vec![take(expr), string(form)]);
            *expression = match negated {
                true => Expr::UnaryOp {
                    op: ast::UnaryOperator::Not,
                    expr: Box::new(is_normal),
                },
                false => is_normal,
            };
        }
        Expr::Function(function) if last_part(&function.name) == "normalize" => {
            let arguments = listed_arguments(&function.args).unwrap_or_default();
            if let [text, Expr::Identifier(form)] = arguments.as_slice() {
                *expression = call("normalize", vec![text.clone(), string(&form.value)]);
            }
        }
        _ => {}
    }
}

/// `date_part('year', t)`, `age(t)`, `localtimestamp`, `localtime`, `timeofday()`.
pub(super) fn time_function(expression: &mut Expr) {
    let Expr::Function(function) = expression else {
        return;
    };
    let name = last_part(&function.name);
    let now = || call("now", vec![]);
    let of_clock = match name.as_str() {
        "localtimestamp" => Some(local_timestamp(now())),
        "localtime" => Some(cast_to(
            local_timestamp(now()),
            DataType::Time(None, ast::TimezoneInfo::None),
        )),
        "timeofday" => {
            let template = string("Dy Mon DD HH24:MI:SS.US YYYY TZ");
            Some(call("to_char", vec![now(), template]))
        }
        _ => None,
    };
    if let Some(of_clock) = of_clock {
        *expression = of_clock;
        return;
    }
    let FunctionArguments::List(list) = &mut function.args else {
        return;
    };
    match (name.as_str(), list.args.len()) {
        ("date_part" | "datepart", 2) => {
            function.name = ObjectName::from(vec![Ident::new("extract_field")]);
            *expression = cast_to(take(expression), DataType::DoublePrecision);
        }
        // Of a transaction: how many there have been since.
        ("age", 1) if is_transaction(&list.args[0]) => {
            if let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(transaction)) =
                list.args.remove(0)
            {
                let since = Expr::BinaryOp {
                    left: Box::new(call("txid_current", vec![])),
                    op: ast::BinaryOperator::Minus,
                    right: Box::new(transaction),
                };
                *expression = cast_to(Expr::Nested(Box::new(since)), DataType::Int(None));
            }
        }
        ("age", 1) => {
            let today = ast::FunctionArgExpr::Expr(call("current_date", vec![]));
            list.args.insert(0, ast::FunctionArg::Unnamed(today));
        }
        ("date_trunc", 3) => truncated_in_zone(expression),
        _ => {}
    }
}

fn local_timestamp(moment: Expr) -> Expr {
    cast_to(moment, DataType::Timestamp(None, ast::TimezoneInfo::None))
}

/// Whether an argument is a column of transaction numbers.
fn is_transaction(argument: &ast::FunctionArg) -> bool {
    let ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(column)) = argument else {
        return false;
    };
    let name = super::postgres::last_name(column);
    name.is_some_and(|name| {
        ["xmin", "xmax", "datfrozenxid", "relfrozenxid"].contains(&name.as_str())
    })
}

/// `date_trunc(unit, time, zone)`: by the clocks of the zone.
fn truncated_in_zone(expression: &mut Expr) {
    let Expr::Function(function) = expression else {
        return;
    };
    if let Some(arguments) = listed_arguments(&function.args) {
        *expression = call(crate::sql::functions::zoned::TRUNCATED, arguments);
    }
}

/// Parameters of `make_interval` in their order.
const INTERVAL_PARAMETERS: [&str; 7] =
    ["years", "months", "weeks", "days", "hours", "mins", "secs"];

/// `make_interval(days => 3, hours => 4)`: all arguments in their places, and none for the others.
pub(super) fn made_interval(expression: &mut Expr) {
    let Expr::Function(function) = expression else {
        return;
    };
    if last_part(&function.name) != "make_interval" {
        return;
    }
    let FunctionArguments::List(list) = &function.args else {
        return;
    };
    let mut values: [Option<Expr>; 7] = Default::default();
    for (at, argument) in list.args.iter().enumerate() {
        let (place, value) = match argument {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(value)) => (Some(at), value),
            ast::FunctionArg::Named {
                name,
                arg: ast::FunctionArgExpr::Expr(value),
                ..
            } => {
                let name = crate::sql::data_types::folded(name);
                let place = INTERVAL_PARAMETERS.iter().position(|p| *p == name);
                (place, value)
            }
            _ => return,
        };
        match place.and_then(|place| values.get_mut(place)) {
            Some(slot @ None) => *slot = Some(value.clone()),
            // Too many, twice the same, or none that there is: refused under its own name.
            _ => return,
        }
    }
    let nothing = || cast_to(number(0), DataType::Int(None));
    let values = values.into_iter().map(|v| v.unwrap_or_else(nothing));
    *expression = call("make_interval", values.collect());
}

/// A ranking window function in PostgreSQL's type; the engine counts without a sign.
pub(super) fn rank(expression: &mut Expr) {
    let Expr::Function(function) = expression else {
        return;
    };
    if function.over.is_none() {
        return;
    }
    let wanted = match last_part(&function.name).as_str() {
        "row_number" | "rank" | "dense_rank" => DataType::BigInt(None),
        "ntile" => DataType::Integer(None),
        _ => return,
    };
    *expression = cast_to(take(expression), wanted);
}
