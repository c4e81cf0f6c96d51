//! Functions as SQL text, for `SHOW CREATE FUNCTION`, `pg_get_functiondef` and psql's `\df`. What
//! is printed parses to the same function again.

use crate::catalog::function::{
    AggregateBody, FunctionBody, FunctionDefinition, FunctionResult, FunctionVolatility,
};
use crate::sql::names::{quote_identifier, quote_literal};
use crate::types::{DEFAULT_NUMERIC, SqlType};

/// The `CREATE OR REPLACE` statement of a function, as PostgreSQL writes it.
pub fn create_statement(function: &FunctionDefinition) -> String {
    if let Some(body) = function.aggregate() {
        return create_aggregate(function, body);
    }
    format!(
        "{};",
        definition(&quote_identifier(&function.name), function)
    )
}

/// As [`create_statement`], as `pg_get_functiondef` gives it: the name with its schema, a line's end
/// for a semicolon. PostgreSQL has none for aggregates.
pub fn catalog_definition(function: &FunctionDefinition) -> String {
    let name = format!("public.{}", quote_identifier(&function.name));
    format!("{}\n", definition(&name, function))
}

fn definition(name: &str, function: &FunctionDefinition) -> String {
    let mut lines = vec![
        format!("CREATE OR REPLACE FUNCTION {name}({})", arguments(function)),
        format!(" RETURNS {}", result(function)),
        " LANGUAGE sql".to_owned(),
    ];
    let strict = function.is_strict.then_some("STRICT");
    let stable = Some(volatility(function)).filter(|word| *word != "VOLATILE");
    let words: Vec<&str> = stable.into_iter().chain(strict).collect();
    if !words.is_empty() {
        lines.push(format!(" {}", words.join(" ")));
    }
    lines.push(match &function.body {
        FunctionBody::Query(text) => {
            let quotes = dollar_quotes(text);
            format!("AS {quotes}{text}{quotes}")
        }
        FunctionBody::Expression(text) => format!("RETURN {text}"),
        FunctionBody::Aggregate(_) => String::new(),
    });
    lines.join("\n")
}

fn create_aggregate(function: &FunctionDefinition, body: &AggregateBody) -> String {
    let mut options = vec![
        format!("SFUNC = {}", quote_identifier(&body.transition)),
        format!("STYPE = {}", type_name(&body.state)),
    ];
    let last = body.last.as_ref();
    options.extend(last.map(|name| format!("FINALFUNC = {}", quote_identifier(name))));
    let initial = body.initial.as_ref();
    options.extend(initial.map(|text| format!("INITCOND = {}", quote_literal(text))));
    format!(
        "CREATE OR REPLACE AGGREGATE {}({}) (\n  {}\n);",
        quote_identifier(&function.name),
        arguments(function),
        options.join(",\n  ")
    )
}

/// Dollar quotes that the text does not hold.
fn dollar_quotes(text: &str) -> String {
    let mut quotes = "$function$".to_owned();
    while text.contains(&quotes) {
        quotes.insert(1, 'x');
    }
    quotes
}

/// Names, types and defaults of the parameters.
pub fn arguments(function: &FunctionDefinition) -> String {
    let shown = function.parameters.iter().map(|parameter| {
        let default = parameter.default.as_ref();
        let default = default.map_or_else(String::new, |d| format!(" DEFAULT {d}"));
        format!(
            "{}{default}",
            named_type(parameter.name.as_deref(), &parameter.sql_type)
        )
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// As [`arguments`], without the defaults.
pub fn identity_arguments(function: &FunctionDefinition) -> String {
    let shown = function
        .parameters
        .iter()
        .map(|p| named_type(p.name.as_deref(), &p.sql_type));
    shown.collect::<Vec<_>>().join(", ")
}

/// What it gives.
pub fn result(function: &FunctionDefinition) -> String {
    match &function.result {
        FunctionResult::Value(sql_type) => type_name(sql_type),
        FunctionResult::Set(sql_type) => format!("SETOF {}", type_name(sql_type)),
        FunctionResult::Table(columns) => {
            let columns = columns
                .iter()
                .map(|c| named_type(Some(&c.name), &c.sql_type));
            format!("TABLE({})", columns.collect::<Vec<_>>().join(", "))
        }
    }
}

/// `IMMUTABLE`, `STABLE` or `VOLATILE`.
pub fn volatility(function: &FunctionDefinition) -> &'static str {
    match function.volatility {
        FunctionVolatility::Immutable => "IMMUTABLE",
        FunctionVolatility::Stable => "STABLE",
        FunctionVolatility::Volatile => "VOLATILE",
    }
}

/// A numeric as it was written, where it was without digits.
fn type_name(sql_type: &SqlType) -> String {
    let (precision, scale) = DEFAULT_NUMERIC;
    match sql_type {
        t if *t == (SqlType::Numeric { precision, scale }) => "numeric".to_owned(),
        other => other.to_string(),
    }
}

fn named_type(name: Option<&str>, sql_type: &SqlType) -> String {
    let sql_type = type_name(sql_type);
    match name {
        Some(name) => format!("{} {sql_type}", quote_identifier(name)),
        None => sql_type,
    }
}
