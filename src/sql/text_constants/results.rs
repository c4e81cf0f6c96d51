//! Members of which one becomes the result: they have one type, which is that of those that are no
//! text constants. Types of different kinds are refused in PostgreSQL's words (42804).

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::expr::{Case, ScalarFunction};
use datafusion::logical_expr::{Expr, ExprSchemable};

use super::{as_value_of, dates_as_moments, is_text_constant};
use crate::error::{Error, Result, sqlstate};
use crate::types::SqlType;

/// Functions whose result is one of their arguments, and what PostgreSQL calls them in errors.
const CHOICES: [(&str, &str); 4] = [
    ("coalesce", "COALESCE"),
    ("greatest", "GREATEST"),
    ("least", "LEAST"),
    ("make_array", "ARRAY"),
];

/// The results of a CASE. Errors: 42804 different kinds of them.
pub(super) fn settle_case(case: &mut Case, schema: &DFSchema) -> Result<bool> {
    // PostgreSQL looks at ELSE first.
    let otherwise = case.else_expr.as_deref_mut();
    let results = case
        .when_then_expr
        .iter_mut()
        .map(|(_, then)| then.as_mut());
    settle_results("CASE", otherwise.into_iter().chain(results), schema)
}

/// The arguments of `coalesce` and its like. Errors: 42804 as above, 42883 of `nullif`.
pub(super) fn settle_function(function: &mut ScalarFunction, schema: &DFSchema) -> Result<bool> {
    let name = function.func.name();
    if let Some((_, words)) = CHOICES.iter().find(|(choice, _)| *choice == name) {
        return settle_results(words, &mut function.args, schema);
    }
    if name != "nullif" {
        return Ok(false);
    }
    settle_results("NULLIF", &mut function.args, schema).map_err(|_| {
        let types = function.args.iter().filter_map(|a| type_of(a, schema));
        let types: Vec<String> = types.map(|t| t.to_string()).collect();
        Error::new(
            sqlstate::UNDEFINED_FUNCTION,
            format!("operator does not exist: {}", types.join(" = ")),
        )
        .hint("No operator matches the given name and argument types. You might need to add explicit type casts.")
    })
}

/// The elements of an array that is written out.
pub(crate) fn settle_array(elements: &mut [Expr], schema: &DFSchema) -> Result<bool> {
    settle_results("ARRAY", elements, schema)
}

/// An operand of an operator, which hangs on its type: with the results of its CASE settled.
pub(crate) fn with_case_settled(mut operand: Expr, schema: &DFSchema) -> DataFusionResult<Expr> {
    if let Expr::Case(case) = &mut operand {
        settle_case(case, schema)?;
    }
    Ok(operand)
}

fn settle_results<'a>(
    words: &str,
    members: impl IntoIterator<Item = &'a mut Expr>,
    schema: &DFSchema,
) -> Result<bool> {
    let mut members: Vec<&mut Expr> = members.into_iter().collect();
    let mut changed = dates_as_moments(members.iter_mut().map(|m| &mut **m), schema);
    let typed = members.iter().filter(|m| !is_text_constant(m));
    let types: Vec<SqlType> = typed.filter_map(|m| type_of(m, schema)).collect();
    let Some(wanted) = common_type(words, &types)? else {
        return Ok(false);
    };
    for member in members {
        if is_text_constant(member) {
            let read = as_value_of(member.clone(), &wanted);
            changed |= read != *member;
            *member = read;
        }
    }
    Ok(changed)
}

/// The type that text constants take among such types; `None` where there are no others.
pub(super) fn common_type(words: &str, types: &[SqlType]) -> Result<Option<SqlType>> {
    let Some(first) = types.first() else {
        return Ok(None);
    };
    // What is held alike may have lost its name on the way.
    let is_other = |t: &&SqlType| kind(t) != kind(first) && t.to_arrow() != first.to_arrow();
    if let Some(other) = types.iter().find(is_other) {
        return Err(Error::new(
            sqlstate::DATATYPE_MISMATCH,
            format!("{words} types {first} and {other} cannot be matched"),
        ));
    }
    let is_float = |t: &&SqlType| matches!(t, SqlType::Real | SqlType::Double);
    let is_numeric = |t: &&SqlType| matches!(t, SqlType::Numeric { .. });
    let widest = types
        .iter()
        .find(is_float)
        .or_else(|| types.iter().find(is_numeric))
        .or_else(|| types.iter().find(|t| **t == SqlType::TimestampTz));
    Ok(Some(widest.unwrap_or(first).clone()))
}

/// Types of one kind have a common one.
fn kind(sql_type: &SqlType) -> u8 {
    match sql_type {
        number if number.is_number() => 0,
        SqlType::Text => 1,
        SqlType::Boolean => 2,
        SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz => 3,
        SqlType::Time => 4,
        SqlType::Interval => 5,
        SqlType::Bytea => 6,
        SqlType::Uuid => 7,
        SqlType::Json => 8,
        SqlType::Jsonb => 9,
        SqlType::Array(item) => 16 + kind(item) % 16,
        _ => 10,
    }
}

/// `None`: NULL, which is of any type, also when the engine has cast it.
pub(super) fn type_of(expression: &Expr, schema: &DFSchema) -> Option<SqlType> {
    match expression {
        Expr::Literal(value, _) if value.is_null() => return None,
        Expr::Cast(cast) if matches!(cast.expr.as_ref(), Expr::Literal(v, _) if v.is_null()) => {
            return None;
        }
        _ => {}
    }
    let (_, field) = expression.to_field(schema).ok()?;
    match field.data_type() {
        DataType::Null => None,
        _ => SqlType::from_field(&field),
    }
}
