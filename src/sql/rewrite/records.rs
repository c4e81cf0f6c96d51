//! JSON objects as rows, of the columns that the alias says:
//!
//! ```text
//! FROM jsonb_to_recordset(x) AS r (a int, b jsonb)
//!   →  FROM LATERAL (SELECT (object.value ->> 'a')::int AS a, object.value -> 'b' AS b
//!                    FROM jsonb_array_elements(x) AS object) AS r
//! FROM jsonb_to_record(x) AS r (…)   the same over the one object
//! ```
//! Absent: columns of arrays and rows, which are no text of their own in JSON.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, Expr, Ident, Query, SelectItem, SetExpr, TableAliasColumnDef,
    TableFactor, TableFunctionArgs,
};

use super::sets::refers_to_columns;
use super::trees::{
    call, cast_to, derived, plain_arguments, set_relation, string, table_alias, template,
};
use crate::error::{Error, Result, sqlstate};
use crate::sql::data_types::{folded, last_part};

/// Functions of an array of objects and of one object, with what gives the elements of an array.
const FUNCTIONS: &[(&str, &str, Option<&str>)] = &[
    ("json_to_record", "json", None),
    ("json_to_recordset", "json", Some("json_array_elements")),
    ("jsonb_to_record", "jsonb", None),
    ("jsonb_to_recordset", "jsonb", Some("jsonb_array_elements")),
];

/// Rewrites a function of records in FROM. Errors: 42601 without the columns, 0A000 columns that are arrays.
pub(super) fn rewrite_in_from(factor: &mut TableFactor) -> Result<()> {
    let TableFactor::Table {
        name,
        alias,
        args: Some(TableFunctionArgs { args, .. }),
        with_ordinality: false,
        ..
    } = factor
    else {
        return Ok(());
    };
    let function = last_part(name);
    let Some((_, kind, elements)) = FUNCTIONS.iter().find(|(name, ..)| *name == function) else {
        return Ok(());
    };
    let Some([argument]) = plain_arguments(args).and_then(|args| <[Expr; 1]>::try_from(args).ok())
    else {
        return Ok(());
    };
    let columns = alias.as_ref().map_or(&[][..], |alias| &alias.columns);
    if columns.is_empty() || columns.iter().any(|column| column.data_type.is_none()) {
        return Err(Error::new(
            sqlstate::SYNTAX_ERROR,
            "a column definition list is required for functions returning \"record\"",
        ));
    }
    let items = columns.iter().map(item).collect::<Result<Vec<_>>>()?;
    let is_lateral = refers_to_columns(std::slice::from_ref(&argument));
    let mut subquery = objects(argument, kind, *elements);
    if let SetExpr::Select(select) = subquery.body.as_mut() {
        select.projection = items;
    }
    let alias = alias
        .take()
        .map(|alias| table_alias(alias.name, Vec::new()));
    *factor = TableFactor::Derived {
        lateral: is_lateral,
        subquery: Box::new(subquery),
        alias,
        sample: None,
    };
    Ok(())
}

/// `SELECT 1` from the objects, as `object.value`.
fn objects(argument: Expr, kind: &str, elements: Option<&str>) -> Query {
    if let Some(elements) = elements {
        let mut query = template(&format!("SELECT 1 FROM {elements}(NULL) AS object"));
        if let SetExpr::Select(select) = query.body.as_mut()
            && let Some(first) = select.from.first_mut()
            && let TableFactor::Table {
                args: Some(args), ..
            } = &mut first.relation
            && let Expr::Function(function) = call(elements, vec![argument])
            && let datafusion::sql::sqlparser::ast::FunctionArguments::List(list) = function.args
        {
            args.args = list.args;
        }
        return query;
    }
    let mut one = template("SELECT 1");
    if let SetExpr::Select(select) = one.body.as_mut() {
        let data_type = match kind {
            "jsonb" => DataType::JSONB,
            _ => DataType::JSON,
        };
        select.projection = vec![SelectItem::ExprWithAlias {
            expr: cast_to(Expr::Nested(Box::new(argument)), data_type),
            alias: Ident::new("value"),
        }];
    }
    let mut query = template("SELECT 1 FROM input");
    let alias = table_alias(Ident::new("object"), Vec::new());
    set_relation(&mut query, derived(one, alias));
    query
}

/// A column of the rows: the member of its name in its type.
fn item(column: &TableAliasColumnDef) -> Result<SelectItem> {
    let data_type = column.data_type.clone().unwrap_or(DataType::Text);
    if matches!(data_type, DataType::Array(_)) {
        return Err(Error::unsupported(format!(
            "column \"{}\" of a record is an array",
            folded(&column.name)
        ))
        .hint("Say jsonb, and take it apart with jsonb_array_elements."));
    }
    let is_json = matches!(data_type, DataType::JSON | DataType::JSONB);
    let value = ["object", "value"].map(Ident::new);
    let member = Expr::Nested(Box::new(Expr::BinaryOp {
        left: Box::new(Expr::CompoundIdentifier(value.to_vec())),
        op: match is_json {
            true => BinaryOperator::Arrow,
            false => BinaryOperator::LongArrow,
        },
        right: Box::new(string(folded(&column.name))),
    }));
    Ok(SelectItem::ExprWithAlias {
        expr: cast_to(member, data_type),
        alias: column.name.clone(),
    })
}
