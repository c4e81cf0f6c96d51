//! Functions in SQL: put into the query that calls them, before it is analyzed.
//!
//! ```text
//! tree   f(x, b => 1)            ──calls──►   f(x, 1)
//!        FROM t(x) AS r          ──calls──►   FROM LATERAL (SELECT NULL AS c WHERE "rows of t"(x)) AS r
//! plan   call of f or "rows of t", typed   ──inline──►   the planned body, arguments in it
//! ```
//! So a view over a function is incremental as if its body had been written in its place. A body is
//! planned once per statement, over a relation of its parameters; the argument types choose among
//! functions of one name. Absent: the catalog and the planning of bodies, which is the session's.

mod aggregates;
mod calls;
mod fold;
mod inline;
mod own_names;

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, Volatility,
};

use crate::catalog::function::{FunctionDefinition, bare_type};
use crate::error::{Error, Result, sqlstate};
use crate::types::SqlType;

pub(crate) use aggregates::{PlannedAggregate, Step, aggregate, mark_aggregates};
pub(crate) use calls::{Calls, mark_calls, parameters_as_columns};
pub(crate) use inline::{first_row, in_type, inlined, subquery_of};
pub(crate) use own_names::with_own_names;

/// A function whose body is planned.
#[derive(Debug)]
pub(crate) struct PlannedFunction {
    /// what the user created
    pub definition: Arc<FunctionDefinition>,
    /// the relation under whose name the body knows the parameters
    pub alias: String,
    /// the body
    pub body: PlannedBody,
    /// identifiers of the functions that the body calls, at any depth
    pub calls: Vec<Arc<FunctionDefinition>>,
}

/// A body over the parameters.
#[derive(Debug)]
pub(crate) enum PlannedBody {
    /// a value of the result's type
    Value(Expr),
    /// rows of the result's columns
    Rows(Arc<LogicalPlan>),
    /// the body is being planned: the function would be part of itself
    Unfinished,
}

/// Whether a call stands for a value or, in FROM, for rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CallKind {
    /// in an expression
    Value,
    /// in FROM
    Rows,
}

/// The name under which the planner knows calls in FROM.
fn rows_name(name: &str) -> String {
    format!("rows of {name}")
}

/// All functions of one name, as the planner calls them until they are put in.
#[derive(Debug)]
pub(super) struct CalledFunction {
    kind: CallKind,
    name: String,
    signature: Signature,
    overloads: Vec<Arc<PlannedFunction>>,
}

/// The functions of one name for the planner.
pub(crate) fn callable(
    kind: CallKind,
    name: &str,
    overloads: Vec<Arc<PlannedFunction>>,
) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(CalledFunction {
        kind,
        name: match kind {
            CallKind::Value => name.to_owned(),
            CallKind::Rows => rows_name(name),
        },
        // Types are settled when the body is put in; until then every argument will do.
        signature: Signature::user_defined(Volatility::Immutable),
        overloads,
    }))
}

impl CalledFunction {
    /// The function that arguments of these types mean.
    fn chosen(&self, arguments: &[FieldRef]) -> Result<&Arc<PlannedFunction>> {
        let costs = self.overloads.iter().filter_map(|overload| {
            let cost = cost(&overload.definition, arguments)?;
            Some((cost, overload))
        });
        let mut costs: Vec<_> = costs.collect();
        costs.sort_by_key(|(cost, _)| *cost);
        match costs.as_slice() {
            [] => Err(self.undefined(arguments)),
            [(first, _), (second, _), ..] if first == second => Err(self.ambiguous(arguments)),
            [(_, chosen), ..] => Ok(chosen),
        }
    }

    fn call_text(&self, arguments: &[FieldRef]) -> String {
        let name = self.overloads.first().map(|o| o.definition.name.as_str());
        let types: Vec<String> = arguments
            .iter()
            .map(|field| match field.data_type() {
                DataType::Null => "unknown".to_owned(),
                _ => SqlType::from_field(field)
                    .map_or_else(|| "unknown".to_owned(), |t| bare_type(&t)),
            })
            .collect();
        format!("{}({})", name.unwrap_or(&self.name), types.join(", "))
    }

    fn undefined(&self, arguments: &[FieldRef]) -> Error {
        Error::new(
            sqlstate::UNDEFINED_FUNCTION,
            format!("function {} does not exist", self.call_text(arguments)),
        )
        .hint("No function matches the given name and argument types. You might need to add explicit type casts.")
    }

    fn ambiguous(&self, arguments: &[FieldRef]) -> Error {
        Error::new(
            sqlstate::AMBIGUOUS_FUNCTION,
            format!("function {} is not unique", self.call_text(arguments)),
        )
        .hint("Could not choose a best candidate function. You might need to add explicit type casts.")
    }
}

/// How far arguments are from a function's parameters; `None` if it cannot be meant.
fn cost(definition: &FunctionDefinition, arguments: &[FieldRef]) -> Option<u32> {
    if definition.parameters.len() != arguments.len() {
        return None;
    }
    let distances = definition.parameters.iter().zip(arguments);
    distances
        .map(|(parameter, argument)| distance(argument, &parameter.sql_type))
        .sum()
}

/// Conversions that are made without being written: 0 for the same type, more for a farther one.
fn distance(argument: &FieldRef, to: &SqlType) -> Option<u32> {
    if argument.data_type() == &DataType::Null {
        return Some(1);
    }
    let from = SqlType::from_field(argument)?;
    let number = |t: &SqlType| {
        let order = [
            "smallint",
            "integer",
            "bigint",
            "numeric",
            "real",
            "double precision",
        ];
        let name = bare_type(t);
        order.iter().position(|o| *o == name)
    };
    let time = |t: &SqlType| match t {
        SqlType::Date => Some(0),
        SqlType::Timestamp => Some(1),
        SqlType::TimestampTz => Some(2),
        _ => None,
    };
    let widened = |from: Option<usize>, to: Option<usize>| match (from, to) {
        (Some(from), Some(to)) => u32::try_from(to.checked_sub(from)?).ok(),
        _ => None,
    };
    match (&from, to) {
        _ if bare_type(&from) == bare_type(to) => Some(0),
        // A text may be a literal, which has no type yet; `inline` sees whether it is one.
        (SqlType::Text, _) => Some(10),
        _ => widened(number(&from), number(to)).or_else(|| widened(time(&from), time(to))),
    }
}

impl PartialEq for CalledFunction {
    fn eq(&self, other: &Self) -> bool {
        let oids =
            |f: &Self| -> Vec<u32> { f.overloads.iter().map(|o| o.definition.oid).collect() };
        self.name == other.name && oids(self) == oids(other)
    }
}

impl Eq for CalledFunction {}

impl Hash for CalledFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for CalledFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Err(Error::internal("a function in SQL has a field, not a type").into())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let chosen = self.chosen(args.arg_fields)?;
        Ok(Arc::new(match (self.kind, &chosen.definition.result) {
            (CallKind::Value, crate::catalog::function::FunctionResult::Value(sql_type)) => {
                sql_type.to_field(&self.name, true)
            }
            _ => Field::new(&self.name, DataType::Boolean, true),
        }))
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        Ok(types.to_vec())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        Err(Error::unsupported(format!("function {} cannot be called here", self.name)).into())
    }
}
