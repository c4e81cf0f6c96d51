//! Statements' trees to DataFusion's plans, with `$n` parameters.
//!
//! A parameter whose type is known (declared by the client, or that of the value at hand) is
//! planned as `CAST($n AS type)`, so that overloaded functions and operators resolve as they would
//! for a column of that type; the value takes its place afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::common::metadata::ScalarAndMetadata;
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast::{self, Visit, VisitMut, Visitor, VisitorMut};

use super::versions;
use crate::catalog::definition::{CatalogObject, ColumnDefinition};
use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::Statement;
use crate::types::SqlType;

/// Our error through DataFusion's interfaces; `error::mapping` takes it out again unchanged.
pub(super) fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// A query as a statement tree.
pub(super) fn query_statement(query: &ast::Query) -> ast::Statement {
    ast::Statement::Query(Box::new(query.clone()))
}

/// PostgreSQL's words in DataFusion's.
fn rewritten(mut statement: ast::Statement) -> Result<ast::Statement> {
    crate::catalog::pg_catalog::without_unreachable(&mut statement);
    match statement {
        ast::Statement::Query(query) => {
            let query = crate::sql::rewrite::rewrite_query(*query)?;
            Ok(ast::Statement::Query(Box::new(query)))
        }
        other => crate::sql::rewrite::rewrite_statement(other),
    }
}

/// The plan after the analyzer (types settled), before the optimizer.
pub(super) fn analyzed(state: &SessionState, plan: LogicalPlan) -> Result<LogicalPlan> {
    let options = state.config_options();
    Ok(state
        .analyzer()
        .execute_and_check(plan, options, |_, _| {})?)
}

/// Plans a statement tree, unoptimized, as it stands: parameters stay placeholders.
pub(super) async fn plan_statement(
    state: &SessionState,
    statement: ast::Statement,
) -> Result<LogicalPlan> {
    let statement = rewritten(statement)?;
    let plan = state
        .statement_to_plan(ParsedStatement::Statement(Box::new(statement)))
        .await?;
    Ok(plan)
}

/// Plans a query with its parameters' values in place.
pub(super) async fn plan_with_values(
    state: &SessionState,
    mut statement: ast::Statement,
    parameters: &[ScalarValue],
) -> Result<LogicalPlan> {
    let used = placeholders(&statement)?;
    let most = used.iter().max().copied().unwrap_or(0);
    if most > parameters.len() {
        return Err(undefined_parameter(parameters.len() + 1));
    }
    let types = parameters
        .iter()
        .map(|value| SqlType::from_arrow(&value.data_type()))
        .collect::<Vec<_>>();
    cast_placeholders(&mut statement, &types);
    let plan = plan_statement(state, statement).await?;
    bind_values(plan, parameters)
}

/// Puts values in the place of `$1…`.
pub(super) fn bind_values(plan: LogicalPlan, parameters: &[ScalarValue]) -> Result<LogicalPlan> {
    if parameters.is_empty() {
        return Ok(plan);
    }
    let values = parameters
        .iter()
        .cloned()
        .map(ScalarAndMetadata::from)
        .collect();
    Ok(plan.with_param_values(ParamValues::List(values))?)
}

/// What a query's parameters and columns are. Declared types win over inferred ones; what nothing
/// tells is text, as PostgreSQL decides.
pub(super) async fn describe_query(
    state: &SessionState,
    statement: ast::Statement,
    declared: &[Option<SqlType>],
) -> Result<(Vec<SqlType>, SchemaRef)> {
    let count = placeholders(&statement)?
        .into_iter()
        .max()
        .unwrap_or(0)
        .max(declared.len());
    let mut types: Vec<Option<SqlType>> = declared.to_vec();
    types.resize(count, None);
    take_cast_types(&statement, &mut types);
    let mut typed = statement.clone();
    cast_placeholders(&mut typed, &types);
    let plan = match plan_statement(state, typed).await {
        Ok(plan) => plan,
        Err(error) if types.iter().all(Option::is_some) => return Err(error),
        Err(error) => {
            // A function may refuse a parameter without a type: as text it may be taken.
            let guessed = texts_for_unknown(&types);
            let mut typed = statement;
            cast_placeholders(&mut typed, &guessed);
            types = guessed;
            plan_statement(state, typed).await.map_err(|_| error)?
        }
    };
    for (id, field) in plan.get_parameter_fields()? {
        let index = parameter_index(&id)?;
        if let (Some(slot @ None), Some(field)) = (types.get_mut(index), field) {
            *slot = SqlType::from_field(&field);
        }
    }
    let types: Vec<SqlType> = texts_for_unknown(&types).into_iter().flatten().collect();
    let nulls = types
        .iter()
        .map(|t| ScalarValue::try_from(&t.to_arrow()))
        .collect::<Result<Vec<_>, _>>()?;
    let plan = analyzed(state, bind_values(plan, &nulls)?)?;
    Ok((types, output_schema(&plan)))
}

/// A parameter that is cast where it stands, as in `$1::bigint`, has that type.
fn take_cast_types(statement: &ast::Statement, types: &mut [Option<SqlType>]) {
    struct Casts<'a>(&'a mut [Option<SqlType>]);
    impl Visitor for Casts<'_> {
        type Break = ();
        fn pre_visit_expr(&mut self, expr: &ast::Expr) -> ControlFlow<()> {
            if let ast::Expr::Cast {
                expr, data_type, ..
            } = expr
                && let ast::Expr::Value(value) = expr.as_ref()
                && let ast::Value::Placeholder(id) = &value.value
                && let Ok(index) = parameter_index(id)
                && let Some(slot @ None) = self.0.get_mut(index)
            {
                // Types of the catalog (regclass, …) say nothing of the value: text is taken.
                *slot = crate::sql::data_types::sql_type(data_type).ok();
            }
            ControlFlow::Continue(())
        }
    }
    let walked = statement.visit(&mut Casts(types));
    assert!(walked.is_continue(), "the casts' visitor never stops early");
}

fn texts_for_unknown(types: &[Option<SqlType>]) -> Vec<Option<SqlType>> {
    types
        .iter()
        .map(|t| Some(t.clone().unwrap_or(SqlType::Text)))
        .collect()
}

/// The columns of a plan's rows.
pub(super) fn output_schema(plan: &LogicalPlan) -> SchemaRef {
    let fields: Vec<_> = plan
        .schema()
        .fields()
        .iter()
        .map(|field| {
            // Two columns may have one name here; the plan keeps them apart by a suffix.
            let name = crate::sql::rewrite::display_name(field.name());
            field.as_ref().clone().with_name(name)
        })
        .collect();
    Arc::new(Schema::new(fields))
}

/// A plan's columns as definitions, named by `names` as far as these go.
pub(super) fn columns_of(plan: &LogicalPlan, names: &[String]) -> Result<Vec<ColumnDefinition>> {
    let schema = output_schema(plan);
    if names.len() > schema.fields().len() {
        return Err(Error::new(
            sqlstate::SYNTAX_ERROR,
            "CREATE VIEW specifies more column names than columns",
        ));
    }
    let mut seen = BTreeSet::new();
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (index, field) in schema.fields().iter().enumerate() {
        let name = names.get(index).unwrap_or(field.name()).clone();
        if !seen.insert(name.clone()) {
            return Err(Error::new(
                sqlstate::DUPLICATE_COLUMN,
                format!("column \"{name}\" specified more than once"),
            )
            .hint("Give one of them another name with AS."));
        }
        let sql_type = SqlType::from_field(field).ok_or_else(|| {
            Error::unsupported(format!(
                "column \"{name}\" has a type that cannot be stored"
            ))
            .hint("Cast it to a type that can, such as text.")
        })?;
        columns.push(ColumnDefinition {
            name,
            sql_type,
            nullable: field.is_nullable(),
            default: None,
            metadata_from: None,
            comment: None,
        });
    }
    Ok(columns)
}

/// Gives a plan the names and types of `columns`, in their order.
pub(super) fn with_columns(plan: LogicalPlan, columns: &[ColumnDefinition]) -> Result<LogicalPlan> {
    let schema = plan.schema().clone();
    let is_same = schema.fields().len() == columns.len()
        && schema
            .fields()
            .iter()
            .zip(columns)
            .all(|(f, c)| f.name() == &c.name && f.data_type() == &c.sql_type.to_arrow());
    if is_same {
        return Ok(plan);
    }
    let projection = schema
        .iter()
        .zip(columns)
        .map(|((qualifier, field), column)| {
            let source = Expr::Column((qualifier, field).into());
            let wanted = column.sql_type.to_arrow();
            let value = if field.data_type() == &wanted {
                source
            } else {
                datafusion::logical_expr::cast(source, wanted)
            };
            value.alias(&column.name)
        })
        .collect::<Vec<_>>();
    Ok(LogicalPlanBuilder::from(plan)
        .project(projection)?
        .build()?)
}

/// Plans the stored query of a view, with the columns it had when it was created.
pub(super) async fn plan_view_query(
    state: &SessionState,
    text: &str,
    object: &CatalogObject,
) -> Result<LogicalPlan> {
    let query = parse_query(text)?;
    let planned = plan_statement(state, query_statement(&query));
    let plan = versions::meaning(&versions::kept(object), planned)
        .await
        .map_err(|e| e.context(format!("view \"{}\"", object.name)))?;
    with_columns(plan, object.columns())
}

/// Parses the text of one query.
pub(super) fn parse_query(text: &str) -> Result<Box<ast::Query>> {
    let mut statements = crate::sql::parse(text)?;
    match (statements.pop(), statements.is_empty()) {
        (Some((Statement::Query(query), _)), true) => Ok(query),
        _ => Err(Error::damaged("a stored query is not one SELECT statement")),
    }
}

/// Names of the relations that a statement reads, without `WITH` names; those of another schema
/// than `public` come with it: `pg_catalog.pg_class`.
pub(super) fn relations_read(
    state: &SessionState,
    statement: ast::Statement,
) -> Result<Vec<String>> {
    let statement = rewritten(statement)?;
    let references =
        state.resolve_table_references(&ParsedStatement::Statement(Box::new(statement)))?;
    let names: BTreeSet<String> = references
        .into_iter()
        .map(|reference| match reference.schema() {
            None | Some("public") => reference.table().to_owned(),
            Some(schema) => format!("{schema}.{}", reference.table()),
        })
        .collect();
    Ok(names.into_iter().collect())
}

/// Numbers of the parameters that a statement uses.
pub(super) fn placeholders(statement: &impl Visit) -> Result<BTreeSet<usize>> {
    struct Finder(BTreeSet<usize>);
    impl Visitor for Finder {
        type Break = Error;
        fn pre_visit_value(&mut self, value: &ast::ValueWithSpan) -> ControlFlow<Error> {
            if let ast::Value::Placeholder(id) = &value.value {
                match parameter_index(id) {
                    Ok(index) => {
                        self.0.insert(index + 1);
                    }
                    Err(error) => return ControlFlow::Break(error),
                }
            }
            ControlFlow::Continue(())
        }
    }
    let mut finder = Finder(BTreeSet::new());
    match statement.visit(&mut finder) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(finder.0),
    }
}

/// `$n` to its 0-based index.
fn parameter_index(id: &str) -> Result<usize> {
    id.strip_prefix('$')
        .and_then(|digits| digits.parse::<usize>().ok())
        .and_then(|number| number.checked_sub(1))
        .ok_or_else(|| {
            Error::new(
                sqlstate::UNDEFINED_PARAMETER,
                format!("there is no parameter {id}"),
            )
        })
}

fn undefined_parameter(number: usize) -> Error {
    Error::new(
        sqlstate::UNDEFINED_PARAMETER,
        format!("there is no parameter ${number}"),
    )
}

/// Wraps parameters of known type as `CAST($n AS type)`.
pub(super) fn cast_placeholders(statement: &mut impl VisitMut, types: &[Option<SqlType>]) {
    struct Caster(BTreeMap<String, ast::DataType>);
    impl VisitorMut for Caster {
        type Break = ();
        fn post_visit_expr(&mut self, expr: &mut ast::Expr) -> ControlFlow<()> {
            let wanted = match expr {
                ast::Expr::Value(value) => match &value.value {
                    ast::Value::Placeholder(id) => self.0.get(id).cloned(),
                    _ => None,
                },
                _ => None,
            };
            if let Some(data_type) = wanted {
                let inner = expr.clone();
                *expr = ast::Expr::Cast {
                    kind: ast::CastKind::Cast,
                    expr: Box::new(inner),
                    data_type,
                    array: false,
                    format: None,
                };
            }
            ControlFlow::Continue(())
        }
    }
    let casts = types
        .iter()
        .enumerate()
        .filter_map(|(i, t)| Some((format!("${}", i + 1), syntax_of(t.as_ref()?)?)))
        .collect::<BTreeMap<_, _>>();
    if casts.is_empty() {
        return;
    }
    let walked = statement.visit(&mut Caster(casts));
    assert!(walked.is_continue(), "the caster never stops early");
}

/// A type as the parser writes it; `None` where a cast would say less than the value itself.
fn syntax_of(sql_type: &SqlType) -> Option<ast::DataType> {
    use ast::{DataType as T, ExactNumberInfo, TimezoneInfo};
    Some(match sql_type {
        SqlType::Boolean => T::Boolean,
        SqlType::SmallInt => T::SmallInt(None),
        SqlType::Integer => T::Integer(None),
        SqlType::BigInt => T::BigInt(None),
        SqlType::Real => T::Real,
        SqlType::Double => T::DoublePrecision,
        SqlType::Numeric { precision, scale } => T::Numeric(ExactNumberInfo::PrecisionAndScale(
            u64::from(*precision),
            i64::from(*scale),
        )),
        SqlType::Text => T::Text,
        SqlType::Bytea => T::Bytea,
        SqlType::Date => T::Date,
        SqlType::Timestamp => T::Timestamp(Some(6), TimezoneInfo::None),
        SqlType::TimestampTz => T::Timestamp(Some(6), TimezoneInfo::WithTimeZone),
        _ => return None,
    })
}

/// Casts values to the types that a statement's description gave.
pub(super) fn cast_values(values: &[ScalarValue], types: &[SqlType]) -> Result<Vec<ScalarValue>> {
    values
        .iter()
        .zip(types)
        .map(|(value, sql_type)| {
            let wanted: DataType = sql_type.to_arrow();
            if value.data_type() == wanted {
                return Ok(value.clone());
            }
            Ok(value.cast_to(&wanted)?)
        })
        .collect()
}
