//! What Describe tells of a statement before it runs.
//!
//! A parameter that stands alone as a column's new value has that column's type; those inside
//! expressions are found by planning the query behind the statement.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::ast::{self, Expr};

use super::DmlContext;
use super::insert::{insert_target, plain_values};
use super::returning::Returning;
use super::rewrite::{delete_query, rows_query, update_others, update_query};
use super::target::{Target, plain_name};
use crate::error::{Error, Result};
use crate::session::placeholder;
use crate::types::SqlType;

/// What a statement's parameters and results are.
#[derive(Debug)]
pub struct DmlDescription {
    /// 0-based parameters whose type a column gives
    pub parameters: Vec<(usize, SqlType)>,
    /// queries behind the statement; further parameters are in them
    pub queries: Vec<ast::Query>,
    /// columns of RETURNING; parameters in it must have values in the context
    pub returning: Option<SchemaRef>,
}

/// Describes an INSERT, UPDATE or DELETE. Of the context only definitions and planner are used.
pub async fn describe(dml: DmlContext<'_>, statement: &ast::Statement) -> Result<DmlDescription> {
    let mut parameters = Vec::new();
    let mut queries = Vec::new();
    let (target, schema, returning) = match statement {
        ast::Statement::Insert(insert) => {
            let target = insert_target(&dml, insert)?;
            describe_insert(&target, insert, &mut parameters, &mut queries)?;
            let schema = Arc::clone(&target.schema);
            (target, schema, insert.returning.clone())
        }
        ast::Statement::Update(update) => {
            let described = update_query(&dml, update)?;
            let target = described.target;
            for assigned in &described.assigned {
                note(&target, assigned.column, &assigned.expr, &mut parameters);
            }
            queries.push(described.query);
            let others = update_others(update);
            let returning = described.returning;
            let schema = rows_schema(&dml, &target, &update.table, others, &returning).await?;
            (target, schema, returning.items)
        }
        ast::Statement::Delete(delete) => {
            let (target, query, returning) = delete_query(&dml, delete)?;
            queries.push(query);
            let (ast::FromTable::WithFromKeyword(from) | ast::FromTable::WithoutKeyword(from)) =
                &delete.from;
            let others = delete.using.as_deref().unwrap_or_default();
            let schema = rows_schema(&dml, &target, &from[0], others, &returning).await?;
            (target, schema, returning.items)
        }
        _ => return Err(Error::internal("only a change of rows is described here")),
    };
    let returning = match returning {
        None => None,
        Some(items) => {
            let planning = dml.planning();
            let columns = planning.columns_over(&target.alias, &schema, items);
            Some(columns.await?)
        }
    };
    Ok(DmlDescription {
        parameters,
        queries,
        returning,
    })
}

/// What RETURNING sees: the target's columns, and those of other relations that it names.
async fn rows_schema(
    dml: &DmlContext<'_>,
    target: &Target,
    table: &ast::TableWithJoins,
    others: &[ast::TableWithJoins],
    returning: &Returning,
) -> Result<SchemaRef> {
    let items = returning.query_items();
    if items.is_empty() {
        return Ok(Arc::clone(&target.schema));
    }
    let query = rows_query(table, others, items, None)?;
    let columns = dml.planning().columns(query).await?;
    Ok(returning.schema(target, &columns))
}

fn describe_insert(
    target: &Target,
    insert: &ast::Insert,
    parameters: &mut Vec<(usize, SqlType)>,
    queries: &mut Vec<ast::Query>,
) -> Result<()> {
    let names = insert
        .columns
        .iter()
        .map(plain_name)
        .collect::<Result<Vec<_>>>()?;
    let listed = target.listed(&names)?;
    let Some(query) = insert.source.as_deref() else {
        return Ok(());
    };
    let Some(values) = plain_values(query) else {
        queries.push(query.clone());
        return Ok(());
    };
    let mut other = Vec::new();
    for row in &values.rows {
        for (expr, column) in row.content.iter().zip(&listed) {
            if !note(target, *column, expr, parameters) {
                other.push(expr.clone());
            }
        }
    }
    if let Some(query) = query_of(other)? {
        queries.push(query);
    }
    Ok(())
}

/// A query that computes expressions with parameters inside.
fn query_of(expressions: Vec<Expr>) -> Result<Option<ast::Query>> {
    let items: Vec<ast::SelectItem> = expressions
        .into_iter()
        .filter(|expr| expr.to_string().contains('$'))
        .enumerate()
        .map(|(i, expr)| super::plan::item(expr, &format!("value {i}")))
        .collect();
    if items.is_empty() {
        return Ok(None);
    }
    let mut query = super::plan::template("SELECT 1")?;
    super::plan::select_of(&mut query)?.projection = items;
    Ok(Some(query))
}

/// Notes the type of a parameter that stands alone; false for any other expression.
fn note(
    target: &Target,
    column: usize,
    expr: &Expr,
    parameters: &mut Vec<(usize, SqlType)>,
) -> bool {
    match expr {
        Expr::Nested(inner) => note(target, column, inner, parameters),
        Expr::Value(_) => {
            if let Some(index) = placeholder(expr)
                && !parameters.iter().any(|(i, _)| *i == index)
            {
                let sql_type = target.columns()[column].sql_type.clone();
                parameters.push((index, sql_type));
            }
            true
        }
        _ => false,
    }
}
