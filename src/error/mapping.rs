//! Libraries' errors to PostgreSQL's SQLSTATEs and words.
//!
//! DataFusion and Arrow give most of their reasons as text, so this is the one place that reads
//! their texts; what it does not know keeps its words, without type names and prefixes of the
//! libraries. An [`Error`] of ours that went through a library inside `External` comes out again
//! as it went in.

mod words;

use std::io;

use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::sql::sqlparser::parser::ParserError;

use super::{Error, ErrorKind, sqlstate};
use crate::types::SqlType;
use words::{between, plain, sentence, words_to_sql};

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        Self::External(Box::new(error))
    }
}

impl From<Error> for ArrowError {
    fn from(error: Error) -> Self {
        Self::ExternalError(Box::new(error))
    }
}

impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Self {
        match error {
            ArrowError::ExternalError(inner) => external(inner),
            ArrowError::DivideByZero => division_by_zero(),
            ArrowError::ArithmeticOverflow(text) => overflow(&text),
            ArrowError::CastError(text)
            | ArrowError::ParseError(text)
            | ArrowError::InvalidArgumentError(text)
            | ArrowError::ComputeError(text) => from_value_text(&text),
            ArrowError::NotYetImplemented(text) => Self::unsupported(plain(&text)),
            ArrowError::IoError(text, source) => io_error(&source, &text),
            ArrowError::CsvError(text) | ArrowError::JsonError(text) => {
                Self::new(sqlstate::INVALID_TEXT, plain(&text))
            }
            ArrowError::MemoryError(text) => {
                Self::transient(sqlstate::OUT_OF_MEMORY, "out of memory").detail(sentence(&text))
            }
            ArrowError::IpcError(text) | ArrowError::ParquetError(text) => {
                Self::damaged(plain(&text))
            }
            ArrowError::OffsetOverflowError(_)
            | ArrowError::DictionaryKeyOverflowError
            | ArrowError::RunEndIndexOverflowError => Self::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                "a column of one batch is too large",
            ),
            ArrowError::SchemaError(text)
            | ArrowError::AvroError(text)
            | ArrowError::CDataInterface(text) => Self::internal(plain(&text)),
        }
    }
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        match error {
            DataFusionError::ArrowError(inner, _) => (*inner).into(),
            DataFusionError::ParquetError(inner) => parquet(*inner),
            DataFusionError::ObjectStore(inner) => (*inner).into(),
            DataFusionError::IoError(inner) => inner.into(),
            DataFusionError::SQL(inner, _) => (*inner).into(),
            DataFusionError::NotImplemented(text) => not_implemented(&text),
            DataFusionError::Internal(text) => Self::internal(plain(&text)),
            DataFusionError::Plan(text) => from_plan_text(&text),
            DataFusionError::Configuration(text) => {
                Self::new(sqlstate::INVALID_PARAMETER_VALUE, plain(&text))
            }
            DataFusionError::SchemaError(inner, _) => schema(&inner),
            DataFusionError::Execution(text) => from_execution_text(&text),
            DataFusionError::ExecutionJoin(inner) => {
                if inner.is_cancelled() {
                    Self::with_kind(
                        ErrorKind::Cancelled,
                        sqlstate::QUERY_CANCELED,
                        "canceling statement due to user request",
                    )
                } else {
                    Self::internal("a task of the query ended unexpectedly")
                }
            }
            DataFusionError::ResourcesExhausted(text) => Self::transient(
                sqlstate::OUT_OF_MEMORY,
                "out of memory",
            )
            .detail(sentence(&text))
            .hint("Give the server more memory with --memory-limit, or let the query read less."),
            DataFusionError::External(inner) => external(inner),
            DataFusionError::Context(_, inner) => (*inner).into(),
            DataFusionError::Diagnostic(_, inner) => (*inner).into(),
            DataFusionError::Collection(mut errors) => {
                if errors.is_empty() {
                    Self::internal("a query failed without a reason")
                } else {
                    errors.swap_remove(0).into()
                }
            }
            DataFusionError::Shared(inner) => shared(&inner),
            DataFusionError::Substrait(text) | DataFusionError::Ffi(text) => {
                Self::internal(plain(&text))
            }
        }
    }
}

/// An error that several readers got: it cannot be taken apart, so it is read again.
fn shared(error: &DataFusionError) -> Error {
    match error {
        DataFusionError::External(inner) => external_ref(inner.as_ref()),
        DataFusionError::Context(_, inner) => shared(inner),
        DataFusionError::Diagnostic(_, inner) => shared(inner),
        DataFusionError::Shared(inner) => shared(inner),
        DataFusionError::Collection(errors) => errors.first().map_or_else(
            || Error::internal("a query failed without a reason"),
            shared,
        ),
        DataFusionError::ArrowError(inner, _) => match inner.as_ref() {
            ArrowError::ExternalError(inner) => external_ref(inner.as_ref()),
            ArrowError::DivideByZero => division_by_zero(),
            ArrowError::ArithmeticOverflow(text) => overflow(text),
            other => from_value_text(&other.to_string()),
        },
        DataFusionError::Plan(text) => from_plan_text(text),
        DataFusionError::Execution(text) => from_execution_text(text),
        DataFusionError::NotImplemented(text) => not_implemented(text),
        DataFusionError::SchemaError(inner, _) => schema(inner),
        DataFusionError::IoError(inner) => io_error(inner, &inner.to_string()),
        DataFusionError::ResourcesExhausted(text) => {
            Error::transient(sqlstate::OUT_OF_MEMORY, "out of memory").detail(sentence(text))
        }
        DataFusionError::ObjectStore(inner) => object_store(inner),
        other => Error::internal(plain(&other.to_string())),
    }
}

/// What the engine cannot plan. Its texts may hold a whole tree, which tells a user nothing.
fn not_implemented(text: &str) -> Error {
    if text.contains("ScalarSubquery") || text.contains("OuterReferenceColumn") {
        return Error::unsupported("this form of correlated subquery is not supported")
            .hint("Write it as a join.");
    }
    if text.contains("InSubquery(") || text.contains("Exists(") {
        return Error::unsupported("a subquery is not supported in this place")
            .hint("Write it as a join, or in a subquery in FROM.");
    }
    match text.split_once("Unsupported ast node") {
        Some(_) => Error::unsupported("this form of expression is not supported"),
        None => Error::unsupported(plain(text)),
    }
}

type Boxed = Box<dyn std::error::Error + Send + Sync>;

fn external(inner: Boxed) -> Error {
    let inner = match inner.downcast::<Error>() {
        Ok(ours) => return *ours,
        Err(other) => other,
    };
    let inner = match inner.downcast::<DataFusionError>() {
        Ok(error) => return (*error).into(),
        Err(other) => other,
    };
    let inner = match inner.downcast::<ArrowError>() {
        Ok(error) => return (*error).into(),
        Err(other) => other,
    };
    external_ref(inner.as_ref())
}

fn external_ref(inner: &(dyn std::error::Error + Send + Sync + 'static)) -> Error {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(inner);
    while let Some(error) = next {
        if let Some(ours) = error.downcast_ref::<Error>() {
            return ours.clone();
        }
        if let Some(error) = error.downcast_ref::<DataFusionError>() {
            return shared(error);
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return io_error(error, &error.to_string());
        }
        if let Some(error) = error.downcast_ref::<::object_store::Error>() {
            return object_store(error);
        }
        next = error.source();
    }
    let text = inner.to_string();
    invalid_regex(&text).unwrap_or_else(|| Error::internal(plain(&text)))
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(ours) => ours,
            Err(error) => io_error(&error, &error.to_string()),
        }
    }
}

fn io_error(error: &io::Error, text: &str) -> Error {
    use io::ErrorKind as Io;
    let text = plain(text);
    match error.kind() {
        Io::NotFound => Error::new(sqlstate::UNDEFINED_FILE, text),
        Io::PermissionDenied => Error::new(sqlstate::INSUFFICIENT_PRIVILEGE, text),
        Io::StorageFull | Io::QuotaExceeded => Error::transient(sqlstate::DISK_FULL, text),
        Io::ConnectionRefused | Io::ConnectionReset | Io::ConnectionAborted | Io::NotConnected => {
            Error::transient(sqlstate::CONNECTION_FAILURE, text)
        }
        Io::OutOfMemory => Error::transient(sqlstate::OUT_OF_MEMORY, text),
        _ => Error::transient(sqlstate::IO_ERROR, text),
    }
}

impl From<::object_store::Error> for Error {
    fn from(error: ::object_store::Error) -> Self {
        object_store(&error)
    }
}

fn object_store(error: &::object_store::Error) -> Error {
    use ::object_store::Error as Store;
    let text = plain(&error.to_string());
    match error {
        Store::NotFound { .. } => Error::new(sqlstate::UNDEFINED_FILE, text),
        Store::PermissionDenied { .. } | Store::Unauthenticated { .. } => {
            Error::new(sqlstate::INSUFFICIENT_PRIVILEGE, text)
        }
        Store::NotSupported { .. } | Store::NotImplemented { .. } => Error::unsupported(text),
        Store::InvalidPath { .. } => Error::new(sqlstate::INVALID_PARAMETER_VALUE, text),
        _ => Error::transient(sqlstate::IO_ERROR, text),
    }
}

fn parquet(error: datafusion::parquet::errors::ParquetError) -> Error {
    use datafusion::parquet::errors::ParquetError as Parquet;
    match error {
        Parquet::External(inner) => external(inner),
        Parquet::NYI(text) => Error::unsupported(plain(&text)),
        other => Error::damaged(plain(&other.to_string())),
    }
}

impl From<ParserError> for Error {
    fn from(error: ParserError) -> Self {
        match error {
            ParserError::RecursionLimitExceeded => {
                Self::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "statement is too complex")
            }
            ParserError::TokenizerError(text) | ParserError::ParserError(text) => {
                let found = between(&text, "found: ", " at Line").unwrap_or_default();
                match found {
                    "" | "EOF" => Self::new(sqlstate::SYNTAX_ERROR, "syntax error at end of input"),
                    token => Self::new(
                        sqlstate::SYNTAX_ERROR,
                        format!("syntax error at or near \"{token}\""),
                    ),
                }
            }
        }
    }
}

fn schema(error: &SchemaError) -> Error {
    match error {
        SchemaError::FieldNotFound {
            field,
            valid_fields,
        } => {
            let is_known = |relation: &datafusion::common::TableReference| {
                let mut tables = valid_fields.iter().filter_map(|c| c.relation.as_ref());
                tables.any(|r| r.table() == relation.table())
            };
            let name = match &field.relation {
                Some(relation) if !is_known(relation) => {
                    return Error::new(
                        sqlstate::UNDEFINED_TABLE,
                        format!(
                            "missing FROM-clause entry for table \"{}\"",
                            relation.table()
                        ),
                    );
                }
                Some(relation) => format!("{}.{}", relation.table(), field.name),
                None => format!("\"{}\"", field.name),
            };
            let error = Error::new(
                sqlstate::UNDEFINED_COLUMN,
                format!("column {name} does not exist"),
            );
            let candidates = valid_fields.iter().map(|c| c.name.as_str());
            match crate::sql::names::nearest(&field.name, candidates) {
                Some(near) => {
                    let owner = valid_fields
                        .iter()
                        .find(|c| c.name == near)
                        .and_then(|c| c.relation.as_ref());
                    let near = owner.map_or_else(
                        || near.to_owned(),
                        |relation| format!("{}.{near}", relation.table()),
                    );
                    error.hint(format!(
                        "Perhaps you meant to reference the column \"{near}\"."
                    ))
                }
                None => error,
            }
        }
        SchemaError::AmbiguousReference { field } => Error::new(
            sqlstate::AMBIGUOUS_COLUMN,
            format!("column reference \"{}\" is ambiguous", field.name),
        ),
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => Error::new(
            sqlstate::DUPLICATE_COLUMN,
            format!("column \"{name}\" specified more than once"),
        ),
    }
}

fn division_by_zero() -> Error {
    Error::new(sqlstate::DIVISION_BY_ZERO, "division by zero")
}

/// `bigint out of range`, as far as the text tells the type.
fn overflow(text: &str) -> Error {
    if text.contains("ivide by zero") {
        return division_by_zero();
    }
    let primary = if text.contains("ecimal") {
        "numeric field overflow"
    } else {
        "value out of range"
    };
    Error::new(sqlstate::NUMERIC_OUT_OF_RANGE, primary)
}

/// What a client reads for a type of the engine.
pub fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Null => "unknown".to_owned(),
        other => SqlType::from_arrow(other)
            .map_or_else(|| "unknown".to_owned(), |sql_type| sql_type.to_string()),
    }
}

/// What the engine's regular expressions say of one that they cannot read.
fn invalid_regex(text: &str) -> Option<Error> {
    if !text.contains("regex parse error") {
        return None;
    }
    let reason = match text.rsplit_once("error: ") {
        Some((_, reason)) if reason.contains("unclosed group") => {
            "parentheses () not balanced".to_owned()
        }
        Some((_, reason)) if reason.contains("unclosed character class") => {
            "brackets [] not balanced".to_owned()
        }
        Some((_, reason)) if reason.contains("repetition") => {
            "quantifier operand invalid".to_owned()
        }
        Some((_, reason)) => reason.trim().to_owned(),
        None => "invalid escape or class".to_owned(),
    };
    Some(Error::new(
        sqlstate::INVALID_REGULAR_EXPRESSION,
        format!("invalid regular expression: {reason}"),
    ))
}

/// Failed conversions of values, in Arrow's words.
fn from_value_text(text: &str) -> Error {
    let invalid = |type_name: &str, value: &str| {
        let state = match type_name {
            "date" | "interval" => sqlstate::INVALID_DATETIME,
            t if t.starts_with("time") => sqlstate::INVALID_DATETIME,
            _ => sqlstate::INVALID_TEXT,
        };
        Error::new(
            state,
            format!("invalid input syntax for type {type_name}: \"{value}\""),
        )
    };
    let out_of_range = |type_name: &str| {
        Error::new(
            sqlstate::NUMERIC_OUT_OF_RANGE,
            format!("{type_name} out of range"),
        )
    };
    let target = |after: &str| between(text, after, " type").or_else(|| between(text, after, "\n"));
    if text.contains("ivide by zero") {
        return division_by_zero();
    }
    if text.contains("square root of a negative number") {
        return Error::new(
            sqlstate::INVALID_POWER_ARGUMENT,
            "cannot take square root of a negative number",
        );
    }
    if let Some(invalid) = invalid_regex(text) {
        return invalid;
    }
    if let Some(value) = between(text, "Cannot cast string '", "' to value of") {
        return invalid(&words_to_sql(target("to value of ").unwrap_or("")), value);
    }
    if let Some(value) = between(text, "Cannot cast value '", "' to value of") {
        return invalid(&words_to_sql(target("to value of ").unwrap_or("")), value);
    }
    if text.contains("Can't cast value ") {
        let to = text.rsplit(" to type ").next().unwrap_or("");
        return out_of_range(&words_to_sql(to));
    }
    if text.contains("Cannot cast to Decimal")
        || text.contains("too large to store in a Decimal")
        || text.contains("too small to store in a Decimal")
    {
        return Error::new(sqlstate::NUMERIC_OUT_OF_RANGE, "numeric field overflow")
            .detail(sentence(text));
    }
    if let Some(value) = between(text, "Error parsing timestamp from '", "':") {
        return if text.contains("out of range") {
            datetime_out_of_range(value)
        } else {
            invalid("timestamp", value)
        };
    }
    if let Some(value) = between(text, "Invalid input syntax for type interval: \"", "\"") {
        return invalid("interval", value);
    }
    if let Some(zone) = between(text, "Invalid timezone \"", "\"") {
        return Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("time zone \"{zone}\" not recognized"),
        );
    }
    if text.contains("verflow") {
        return overflow(text);
    }
    if text.contains("not supported") && text.starts_with("Casting from ") {
        let from = between(text, "Casting from ", " to ").unwrap_or("");
        let to = between(text, " to ", " not supported").unwrap_or("");
        return Error::new(
            sqlstate::CANNOT_COERCE,
            format!(
                "cannot cast type {} to {}",
                words_to_sql(from),
                words_to_sql(to)
            ),
        );
    }
    Error::new(sqlstate::INVALID_PARAMETER_VALUE, plain(text))
}

fn datetime_out_of_range(value: &str) -> Error {
    Error::new(
        sqlstate::DATETIME_OVERFLOW,
        format!("date/time field value out of range: \"{value}\""),
    )
}

/// Failures at run time that the engine tells in text only.
fn from_execution_text(text: &str) -> Error {
    if text.contains("more than one row") {
        return Error::new(
            sqlstate::CARDINALITY_VIOLATION,
            "more than one row returned by a subquery used as an expression",
        );
    }
    if text.contains("negative count not allowed") {
        return Error::new(
            sqlstate::SUBSTRING_ERROR,
            "negative substring length not allowed",
        );
    }
    if let Some(name) = between(text, "Prepared statement '", "' does not exist") {
        return Error::new(
            sqlstate::INVALID_STATEMENT_NAME,
            format!("prepared statement \"{name}\" does not exist"),
        );
    }
    if let Some(parameter) = between(text, "Placeholder ", " was not provided") {
        return Error::new(
            sqlstate::UNDEFINED_PARAMETER,
            format!("there is no parameter {}", parameter.trim_matches('\'')),
        );
    }
    from_value_text(text)
}

/// Refusals of the planner.
fn from_plan_text(text: &str) -> Error {
    undefined_object(text)
        .or_else(|| wrong_types(text))
        .or_else(|| wrong_structure(text))
        .unwrap_or_else(|| Error::new(sqlstate::SYNTAX_ERROR, plain(text)))
}

fn undefined_object(text: &str) -> Option<Error> {
    if let Some(name) = between(text, "table '", "' not found") {
        return Some(undefined_table(name));
    }
    if let Some(name) = text.strip_prefix("Table not found: ") {
        return Some(undefined_table(name));
    }
    if let Some(name) = between(text, "table function '", "' not found")
        .or_else(|| between(text, "Table function '", "' not found"))
        .or_else(|| between(text, "Invalid function '", "'"))
    {
        let error = Error::new(
            sqlstate::UNDEFINED_FUNCTION,
            format!("function {name} does not exist"),
        );
        return Some(match between(text, "Did you mean '", "'") {
            Some(near) => error.hint(format!("Perhaps you meant the function {near}.")),
            None => error,
        });
    }
    if let Some(name) = text.strip_prefix("failed to resolve schema: ") {
        return Some(Error::new(
            sqlstate::INVALID_SCHEMA_NAME,
            format!("schema \"{}\" does not exist", name.trim()),
        ));
    }
    if let Some(name) = text.strip_prefix("failed to resolve catalog: ") {
        return Some(Error::new(
            sqlstate::INVALID_CATALOG_NAME,
            format!("database \"{}\" does not exist", name.trim()),
        ));
    }
    None
}

fn undefined_table(name: &str) -> Error {
    let name = name
        .strip_prefix("tidemill.search path.")
        .or_else(|| name.strip_prefix("tidemill.public."))
        .or_else(|| name.strip_prefix("public."))
        .or_else(|| name.strip_prefix("tidemill."))
        .unwrap_or(name)
        .replace('"', "");
    Error::new(
        sqlstate::UNDEFINED_TABLE,
        format!("relation \"{name}\" does not exist"),
    )
}

fn wrong_types(text: &str) -> Option<Error> {
    if let Some(call) = between(text, "argument types '", "'.")
        .or_else(|| between(text, "No function matches '", "'"))
    {
        return Some(
            Error::new(
                sqlstate::UNDEFINED_FUNCTION,
                format!("function {} does not exist", words_to_sql(call)),
            )
            .hint("No function matches the given name and argument types. You might need to add explicit type casts."),
        );
    }
    if text.starts_with("Cannot coerce arithmetic expression ")
        || text.starts_with("Cannot infer common argument type for ")
        || text.starts_with("Cannot get result type for ")
    {
        let operation = between(text, "expression ", " to valid types")
            .or_else(|| between(text, "operation ", "\n"))
            .unwrap_or(text);
        return Some(
            Error::new(
                sqlstate::UNDEFINED_FUNCTION,
                format!("operator does not exist: {}", words_to_sql(operation.trim())),
            )
            .hint("No operator matches the given name and argument types. You might need to add explicit type casts."),
        );
    }
    if text.contains("nsupported CAST from ") || text.contains("Cannot automatically convert ") {
        let from = between(text, "CAST from ", " to ")
            .or_else(|| between(text, "convert ", " to "))
            .unwrap_or("");
        let to = text.rsplit(" to ").next().unwrap_or("");
        return Some(Error::new(
            sqlstate::CANNOT_COERCE,
            format!(
                "cannot cast type {} to {}",
                words_to_sql(from),
                words_to_sql(to)
            ),
        ));
    }
    if text.contains("laceholder") && (text.contains("type") || text.contains("infer")) {
        let parameter = text
            .split(|c: char| !(c.is_ascii_digit() || c == '$'))
            .find(|word| word.starts_with('$') && word.len() > 1);
        return Some(Error::new(
            sqlstate::INDETERMINATE_DATATYPE,
            format!(
                "could not determine data type of parameter {}",
                parameter.unwrap_or("$1")
            ),
        ));
    }
    if text.contains("predicate must return") || text.contains("non-boolean") {
        return Some(Error::new(
            sqlstate::DATATYPE_MISMATCH,
            "argument of WHERE must be type boolean",
        ));
    }
    None
}

fn wrong_structure(text: &str) -> Option<Error> {
    if text.contains("must appear in the GROUP BY clause") || text.contains("must be in GROUP BY") {
        let column = between(text, "column \"", "\"")
            .or_else(|| between(text, "Expression ", " could not be"))
            .unwrap_or("?");
        return Some(Error::new(
            sqlstate::GROUPING_ERROR,
            format!(
                "column \"{column}\" must appear in the GROUP BY clause or be used in an aggregate function"
            ),
        ));
    }
    if text.contains("Aggregate functions are not allowed in the WHERE") {
        return Some(Error::new(
            sqlstate::GROUPING_ERROR,
            "aggregate functions are not allowed in WHERE",
        ));
    }
    if text.contains("calls cannot be nested") {
        return Some(Error::new(
            sqlstate::GROUPING_ERROR,
            "aggregate function calls cannot be nested",
        ));
    }
    if let Some(position) = between(text, "Order by column out of bounds, specified: ", ",") {
        return Some(no_such_position("ORDER BY", position));
    }
    if let Some(position) = between(text, "Cannot find column with position ", " in SELECT") {
        return Some(no_such_position("GROUP BY", position));
    }
    if text.contains("LIMIT must be >= 0") {
        return Some(Error::new(
            sqlstate::INVALID_ROW_COUNT_IN_LIMIT,
            "LIMIT must not be negative",
        ));
    }
    if text.contains("require unique expression names") {
        return Some(Error::new(
            sqlstate::DUPLICATE_COLUMN,
            format!(
                "column \"{}\" specified more than once",
                between(text, "expression \"", "\"").unwrap_or("?")
            ),
        ));
    }
    if text.contains("must have the same number of columns")
        || text.contains("number of columns") && text.contains("nion")
    {
        return Some(Error::new(
            sqlstate::SYNTAX_ERROR,
            "each UNION query must have the same number of columns",
        ));
    }
    if text.contains("more than one row") {
        return Some(from_execution_text(text));
    }
    if let Some(name) = between(text, "WITH query name \"", "\"") {
        return Some(Error::new(
            sqlstate::DUPLICATE_OBJECT,
            format!("WITH query name \"{name}\" specified more than once"),
        ));
    }
    None
}

fn no_such_position(clause: &str, position: &str) -> Error {
    Error::new(
        sqlstate::INVALID_COLUMN_REFERENCE,
        format!("{clause} position {position} is not in select list"),
    )
}

#[cfg(test)]
mod tests;
