//! Statements' trees to DataFusion's plans, and the columns that plans give.
//!
//! Absent: values of `$n`, which `parameters.rs` puts into plans.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast;

use super::{functions, versions};
use crate::catalog::definition::{CatalogObject, ColumnDefinition};
use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::Statement;
use crate::types::{SqlType, TextType};

/// Our error through DataFusion's interfaces; `error::mapping` takes it out again unchanged.
pub(super) fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// A query as a statement tree.
pub(super) fn query_statement(query: &ast::Query) -> ast::Statement {
    ast::Statement::Query(Box::new(query.clone()))
}

/// PostgreSQL's words in DataFusion's.
pub(super) fn rewritten(mut statement: ast::Statement) -> Result<ast::Statement> {
    crate::catalog::pg_catalog::without_unreachable(&mut statement);
    crate::catalog::pg_catalog::with_exact_information(&mut statement);
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
    Ok(functions::plan(state, statement, Vec::new()).await?.plan)
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
            nullable: field.is_nullable(),
            text_type: TextType::from_field(field).filter(|_| field.data_type() == &DataType::Utf8),
            ..ColumnDefinition::new(name, sql_type)
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
    let mut kept = object.kept_names();
    kept.functions = functions::present(state, &kept.functions);
    let plan = versions::meaning(&kept, planned)
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

/// The relations that a statement reads, without `WITH` names.
#[derive(Debug, Default)]
pub(super) struct RelationsRead {
    /// All of them; those of another schema than `public` come with it: `pg_catalog.pg_class`.
    pub names: BTreeSet<String>,
    /// Those that are written without a schema, so that a temporary table or view can be meant.
    pub bare: BTreeSet<String>,
}

/// Finds what a statement reads.
pub(super) fn relations_read(
    state: &SessionState,
    mut statement: ast::Statement,
) -> Result<RelationsRead> {
    functions::marked(state, &mut statement)?;
    let statement = rewritten(statement)?;
    let references =
        state.resolve_table_references(&ParsedStatement::Statement(Box::new(statement)))?;
    let mut read = RelationsRead::default();
    for reference in references {
        let table = reference.table();
        match reference.schema() {
            None => {
                read.bare.insert(table.to_owned());
                read.names.insert(table.to_owned());
            }
            Some("public") => {
                read.names.insert(table.to_owned());
            }
            Some(schema) => {
                read.names.insert(format!("{schema}.{table}"));
            }
        }
    }
    Ok(read)
}
