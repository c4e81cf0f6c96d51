//! Rows that are written out: `VALUES`, `DEFAULT VALUES`, `SET column = value`.
//!
//! Literals and parameters go straight into columns, without a plan: that is what makes a one-row
//! INSERT cheap, and a literal's exact text reaches the column's own input function. All other
//! expressions of the statement are evaluated together as one row of one query.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, StringArray, new_null_array};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{Field, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, Expr, UnaryOperator, Value};

use super::assign::{Origin, assign};
use super::plan::{Planning, item, parse_expression, select_of, template};
use super::text::parse_text;
use crate::catalog::definition::ColumnDefinition;
use crate::error::{Error, Result, sqlstate};
use crate::session::Parameter;
use crate::session::parameters::{parameter_index, undefined_parameter};
use crate::types::SqlType;
use crate::values::OutputSettings;

/// Expressions that one query evaluates.
const EXPRESSIONS_AT_ONCE: usize = 256;

/// One value of a row.
#[derive(Debug, Clone)]
pub(super) enum Cell {
    /// `DEFAULT`, or a column that is not listed
    Default,
    /// `NULL`
    Null,
    /// `'text'`
    Text(String),
    /// `-1.50`
    Number(String),
    /// `true`
    Boolean(bool),
    /// `$1`
    Parameter(Parameter),
    /// anything that needs evaluation
    Expression(Box<Expr>),
}

impl Cell {
    /// What an expression is.
    pub fn of(expr: &Expr, parameters: &[Parameter]) -> Result<Self> {
        Ok(match expr {
            Expr::Nested(inner) => Self::of(inner, parameters)?,
            Expr::Identifier(name)
                if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default") =>
            {
                Self::Default
            }
            Expr::Value(value) => match &value.value {
                Value::Null => Self::Null,
                Value::Boolean(value) => Self::Boolean(*value),
                Value::Number(text, _) => Self::Number(text.clone()),
                Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => {
                    Self::Text(text.clone())
                }
                Value::DollarQuotedString(text) => Self::Text(text.value.clone()),
                Value::Placeholder(id) => Self::Parameter(parameter(id, parameters)?),
                _ => Self::Expression(Box::new(expr.clone())),
            },
            Expr::UnaryOp {
                op: UnaryOperator::Minus,
                expr: inner,
            } => match Self::of(inner, parameters)? {
                Self::Number(text) if !text.starts_with('-') => Self::Number(format!("-{text}")),
                _ => Self::Expression(Box::new(expr.clone())),
            },
            _ => Self::Expression(Box::new(expr.clone())),
        })
    }

    /// A column's default takes the place of `DEFAULT`.
    fn resolved(self, column: &ColumnDefinition) -> Result<Self> {
        match (self, &column.default) {
            (Self::Default, Some(text)) => Self::of(&parse_expression(text)?, &[]),
            (Self::Default, None) => Ok(Self::Null),
            (cell, _) => Ok(cell),
        }
    }
}

fn parameter(id: &str, parameters: &[Parameter]) -> Result<Parameter> {
    let parameter = parameters.get(parameter_index(id)?);
    parameter.cloned().ok_or_else(|| undefined_parameter(id))
}

/// Columns of cells as arrays of the columns' types. `cells` has one list per column, all of the
/// same length.
pub(super) async fn cells_to_arrays(
    planning: &Planning<'_>,
    columns: &[&ColumnDefinition],
    cells: Vec<Vec<Cell>>,
) -> Result<Vec<ArrayRef>> {
    let mut resolved = Vec::with_capacity(cells.len());
    let mut expressions = Vec::new();
    for (column, cells) in columns.iter().zip(cells) {
        let cells = cells
            .into_iter()
            .map(|cell| cell.resolved(column))
            .collect::<Result<Vec<_>>>()?;
        for cell in &cells {
            if let Cell::Expression(expr) = cell {
                expressions.push(expr.as_ref().clone());
            }
        }
        resolved.push(cells);
    }
    let settings = planning.settings();
    let mut evaluated = evaluate(planning, expressions).await?.into_iter();
    columns
        .iter()
        .zip(resolved)
        .map(|(column, cells)| column_of(column, &cells, &mut evaluated, &settings))
        .collect()
}

/// Evaluates expressions without a row.
async fn evaluate(
    planning: &Planning<'_>,
    expressions: Vec<Expr>,
) -> Result<Vec<(ArrayRef, FieldRef)>> {
    let mut results = Vec::with_capacity(expressions.len());
    for chunk in expressions.chunks(EXPRESSIONS_AT_ONCE) {
        let mut query = template("SELECT 1")?;
        select_of(&mut query)?.projection = chunk
            .iter()
            .enumerate()
            .map(|(i, expr)| item(expr.clone(), &format!("value {i}")))
            .collect::<Vec<ast::SelectItem>>();
        let stream = planning.start(query).await?;
        let schema = stream.schema();
        let batches = datafusion::physical_plan::common::collect(stream).await?;
        let batch = batches
            .iter()
            .find(|batch| batch.num_rows() == 1)
            .ok_or_else(|| Error::internal("a row of expressions gave no row"))?;
        results.extend(
            batch
                .columns()
                .iter()
                .cloned()
                .zip(schema.fields().iter().cloned()),
        );
    }
    Ok(results)
}

fn column_of(
    column: &ColumnDefinition,
    cells: &[Cell],
    evaluated: &mut impl Iterator<Item = (ArrayRef, FieldRef)>,
    settings: &OutputSettings,
) -> Result<ArrayRef> {
    let is_written = |cell: &Cell| matches!(cell, Cell::Text(_) | Cell::Number(_) | Cell::Null);
    if cells.iter().all(is_written) {
        return written_column(column, cells, settings);
    }
    let parts = cells
        .iter()
        .map(|cell| match cell {
            Cell::Parameter(parameter) => {
                let field = Arc::new(parameter.sql_type.to_field("value", true));
                assign(
                    &parameter.value.to_array()?,
                    &field,
                    column,
                    Origin::Literal,
                    settings,
                )
            }
            Cell::Expression(expr) => {
                let (value, field) = evaluated
                    .next()
                    .ok_or_else(|| Error::internal("an expression was not evaluated"))?;
                assign(&value, &field, column, origin_of(expr), settings)
            }
            Cell::Boolean(value) => {
                let value = ScalarValue::Boolean(Some(*value));
                let field = Arc::new(Field::new("value", value.data_type(), true));
                assign(&value.to_array()?, &field, column, Origin::Typed, settings)
            }
            _ => written_column(column, std::slice::from_ref(cell), settings),
        })
        .collect::<Result<Vec<_>>>()?;
    let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
    Ok(concat(&parts)?)
}

/// `'…'` in parentheses or alone has no type yet.
pub(super) fn origin_of(expr: &Expr) -> Origin {
    match Cell::of(expr, &[]) {
        Ok(Cell::Text(_)) => Origin::Literal,
        _ => Origin::Typed,
    }
}

/// Literal texts and numbers.
fn written_column(
    column: &ColumnDefinition,
    cells: &[Cell],
    settings: &OutputSettings,
) -> Result<ArrayRef> {
    if cells.iter().all(|cell| matches!(cell, Cell::Null)) {
        return Ok(new_null_array(&column.sql_type.to_arrow(), cells.len()));
    }
    let is_whole = matches!(
        column.sql_type,
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt
    );
    let texts = cells
        .iter()
        .map(|cell| match cell {
            Cell::Text(text) => Ok(Some(text.clone())),
            Cell::Number(text) if !takes_numbers(&column.sql_type) => {
                Err(number_mismatch(column, text))
            }
            Cell::Number(text) if is_whole => whole(text, &column.sql_type).map(Some),
            Cell::Number(text) => Ok(Some(text.clone())),
            _ => Ok(None),
        })
        .collect::<Result<StringArray>>()?;
    parse_text(&texts, &column.sql_type, settings)
}

fn takes_numbers(sql_type: &SqlType) -> bool {
    matches!(
        sql_type,
        SqlType::SmallInt
            | SqlType::Integer
            | SqlType::BigInt
            | SqlType::Real
            | SqlType::Double
            | SqlType::Numeric { .. }
            | SqlType::Text
    )
}

fn number_mismatch(column: &ColumnDefinition, text: &str) -> Error {
    let from = if text.contains(['.', 'e', 'E']) {
        "numeric"
    } else {
        "integer"
    };
    Error::new(
        sqlstate::DATATYPE_MISMATCH,
        format!(
            "column \"{}\" is of type {} but expression is of type {from}",
            column.name, column.sql_type
        ),
    )
    .hint("You will need to rewrite or cast the expression.")
}

/// A number literal for a whole column: rounded away from zero, as a numeric is.
fn whole(text: &str, sql_type: &SqlType) -> Result<String> {
    let out_of_range = || {
        Error::new(
            sqlstate::NUMERIC_OUT_OF_RANGE,
            format!("{sql_type} out of range"),
        )
    };
    let text = match text.contains(['.', 'e', 'E']) {
        false => text.to_owned(),
        true => {
            let value: f64 = text.parse().map_err(|_| out_of_range())?;
            // Beyond 2^53 a float has no fraction to round.
            format!("{:.0}", value.round())
        }
    };
    let value: i64 = text.parse().map_err(|_| out_of_range())?;
    let fits = match sql_type {
        SqlType::SmallInt => i16::try_from(value).is_ok(),
        SqlType::Integer => i32::try_from(value).is_ok(),
        _ => true,
    };
    if fits { Ok(text) } else { Err(out_of_range()) }
}
