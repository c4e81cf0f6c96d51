//! Functions in SQL: what a user created with `CREATE FUNCTION`, as the catalog keeps it.
//!
//! A function is known by its name and the types of its parameters, so that several may share a
//! name. Its body is text, and what the names in it mean is settled when a query that calls it is
//! planned; a view keeps the definitions that it was planned with. Absent: planning, which is the
//! session's work, and languages other than SQL.

use serde::{Deserialize, Serialize};

use super::definition::ColumnDefinition;
use crate::types::SqlType;

/// A parameter of a function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionParameter {
    /// Name, folded; without one it is known by its number only.
    pub name: Option<String>,
    /// Type.
    pub sql_type: SqlType,
    /// `DEFAULT` expression, as SQL text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
}

/// What a call gives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FunctionResult {
    /// `RETURNS type`: the first row's value
    Value(SqlType),
    /// `RETURNS SETOF type`: a relation of one column, named as the function
    Set(SqlType),
    /// `RETURNS TABLE (…)`: a relation
    Table(Vec<ColumnDefinition>),
}

/// What is promised of a function's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum FunctionVolatility {
    /// they hang on the arguments alone
    Immutable,
    /// they stay the same within a statement
    Stable,
    /// nothing
    #[default]
    Volatile,
}

/// How a body was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FunctionBody {
    /// `AS 'SELECT …'`
    Query(String),
    /// `RETURN expression`
    Expression(String),
    /// `CREATE AGGREGATE`: no body of its own
    Aggregate(AggregateBody),
}

/// What an aggregate is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AggregateBody {
    /// `SFUNC`: takes the state and the arguments, gives the next state
    pub transition: String,
    /// `STYPE`
    pub state: SqlType,
    /// `INITCOND`, the state of no rows, as text; NULL without it
    pub initial: Option<String>,
    /// `FINALFUNC`: takes the last state
    pub last: Option<String>,
}

/// `CREATE FUNCTION`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionDefinition {
    /// Name, folded.
    pub name: String,
    /// Stable over restarts and replacements.
    pub oid: u32,
    /// When it was created, microseconds since the epoch.
    pub created_at_us: i64,
    /// Parameters in order.
    pub parameters: Vec<FunctionParameter>,
    /// Result.
    pub result: FunctionResult,
    /// `IMMUTABLE`, `STABLE` or `VOLATILE`.
    pub volatility: FunctionVolatility,
    /// `STRICT`: a NULL argument gives NULL, or no rows.
    pub is_strict: bool,
    /// What it computes.
    pub body: FunctionBody,
}

impl FunctionDefinition {
    /// What tells it from others: `name(type, type)`.
    pub fn signature(&self) -> String {
        let types = self.parameters.iter().map(|p| &p.sql_type);
        signature(&self.name, types)
    }

    /// The name under which a body and a caller know a parameter.
    pub fn parameter_name(&self, index: usize) -> String {
        let parameter = self.parameters.get(index);
        let name = parameter.and_then(|p| p.name.clone());
        name.unwrap_or_else(|| format!("${}", index + 1))
    }

    /// Parameters that a call may leave out; they are the last ones.
    pub fn defaults_count(&self) -> usize {
        self.parameters
            .iter()
            .filter(|p| p.default.is_some())
            .count()
    }

    /// The columns of what a table function gives; `None` for a value.
    pub fn columns(&self) -> Option<Vec<ColumnDefinition>> {
        match &self.result {
            FunctionResult::Value(_) => None,
            FunctionResult::Set(sql_type) => Some(vec![ColumnDefinition::new(
                self.name.clone(),
                sql_type.clone(),
            )]),
            FunctionResult::Table(columns) => Some(columns.clone()),
        }
    }

    /// The body as the text of a query; an aggregate has none.
    pub fn query_text(&self) -> Option<String> {
        match &self.body {
            FunctionBody::Query(text) => Some(text.clone()),
            FunctionBody::Expression(text) => Some(format!("SELECT {text}")),
            FunctionBody::Aggregate(_) => None,
        }
    }

    /// The body as `RETURN expression`, if it was given so.
    pub fn return_text(&self) -> Option<String> {
        match &self.body {
            FunctionBody::Expression(text) => Some(format!("RETURN {text}")),
            _ => None,
        }
    }

    /// The body as `AS $$ … $$` gave it; PostgreSQL calls it the source.
    pub fn source_text(&self) -> &str {
        match &self.body {
            FunctionBody::Query(text) => text,
            FunctionBody::Expression(_) => "",
            FunctionBody::Aggregate(_) => "aggregate_dummy",
        }
    }

    /// What it is made of, if it is an aggregate.
    pub fn aggregate(&self) -> Option<&AggregateBody> {
        match &self.body {
            FunctionBody::Aggregate(body) => Some(body),
            _ => None,
        }
    }

    /// It is called over the rows of a group.
    pub fn is_aggregate(&self) -> bool {
        self.aggregate().is_some()
    }

    /// The signatures of the functions that an aggregate is made of.
    pub fn parts(&self) -> Vec<String> {
        let Some(body) = self.aggregate() else {
            return Vec::new();
        };
        let arguments = self.parameters.iter().map(|p| &p.sql_type);
        let types = std::iter::once(&body.state).chain(arguments);
        let last = body.last.iter().map(|name| signature(name, [&body.state]));
        std::iter::once(signature(&body.transition, types))
            .chain(last)
            .collect()
    }
}

/// A type as signatures and messages about functions name it: without digits of a numeric.
pub fn bare_type(sql_type: &SqlType) -> String {
    match sql_type {
        SqlType::Numeric { .. } => "numeric".to_owned(),
        SqlType::Array(item) => format!("{}[]", bare_type(item)),
        other => other.to_string(),
    }
}

/// `name(type, type)`.
pub fn signature<'a>(name: &str, types: impl IntoIterator<Item = &'a SqlType>) -> String {
    let types: Vec<_> = types.into_iter().map(bare_type).collect();
    format!("{name}({})", types.join(", "))
}
