//! The relation that a statement changes, and whole rows for it.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StringArray,
};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::sql::sqlparser::ast::{self, ObjectName, TableFactor};

use crate::catalog::definition::{CatalogObject, ColumnDefinition, Definition};
use crate::catalog::pg_catalog::PUBLIC_SCHEMA;
use crate::catalog::temporary::{TEMPORARY_SCHEMA, is_temporary_schema};
use crate::error::{Error, Result, Subject, sqlstate};
use crate::log::tables::layout::TableLayout;
use crate::sql::functions::texts::write_column;
use crate::types::{SqlType, TextType};
use crate::values::OutputSettings;

/// Characters of a row's value in a message.
const VALUE_CHARACTERS_MAX: usize = 64;

/// Definitions by name, as the transaction sees them.
pub type CatalogLookup<'a> = &'a (dyn Fn(&str) -> Option<Arc<CatalogObject>> + Send + Sync);

/// What is done to a relation, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Insert,
    Update,
    Delete,
    Truncate,
    Lock,
}

impl Verb {
    fn phrase(self) -> &'static str {
        match self {
            Self::Insert => "insert into",
            Self::Update => "update",
            Self::Delete => "delete from",
            Self::Truncate => "truncate",
            Self::Lock => "lock rows in",
        }
    }
}

/// The relation that a statement changes.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub object: Arc<CatalogObject>,
    pub schema: SchemaRef,
    /// the name that the statement's expressions use for it
    pub alias: String,
    /// `None`: a stream
    pub layout: Option<Arc<TableLayout>>,
}

impl Target {
    /// Finds a relation by name and checks that `verb` may be done to it.
    pub fn find(
        catalog: CatalogLookup<'_>,
        name: &str,
        alias: Option<&str>,
        verb: Verb,
    ) -> Result<Self> {
        let object = catalog(name).ok_or_else(|| {
            Error::new(
                sqlstate::UNDEFINED_TABLE,
                format!("relation \"{name}\" does not exist"),
            )
        })?;
        let layout = match &object.definition {
            Definition::Table(_) => Some(TableLayout::of(&object)?),
            Definition::Stream(stream) if verb == Verb::Insert && stream.connector.is_none() => {
                None
            }
            _ => return Err(refused(&object, verb)),
        };
        Ok(Self {
            schema: object.schema(),
            alias: alias.unwrap_or(&object.name).to_owned(),
            layout,
            object,
        })
    }

    /// Its columns.
    pub fn columns(&self) -> &[ColumnDefinition] {
        self.object.columns()
    }

    /// The number of a column.
    pub fn column(&self, name: &str) -> Result<usize> {
        self.columns()
            .iter()
            .position(|c| c.name == name)
            .ok_or_else(|| {
                Error::new(
                    sqlstate::UNDEFINED_COLUMN,
                    format!(
                        "column \"{name}\" of relation \"{}\" does not exist",
                        self.object.name
                    ),
                )
            })
    }

    /// Numbers of listed columns; all of them for an empty list.
    pub fn listed(&self, names: &[String]) -> Result<Vec<usize>> {
        if names.is_empty() {
            return Ok((0..self.columns().len()).collect());
        }
        let mut listed = Vec::with_capacity(names.len());
        for name in names {
            let column = self.column(name)?;
            if listed.contains(&column) {
                return Err(Error::new(
                    sqlstate::DUPLICATE_COLUMN,
                    format!("column \"{name}\" specified more than once"),
                ));
            }
            listed.push(column);
        }
        Ok(listed)
    }

    /// Whole rows from a column each, after the NOT NULL checks.
    pub fn rows(&self, mut columns: Vec<ArrayRef>, count: usize) -> Result<RecordBatch> {
        for (values, definition) in columns.iter_mut().zip(self.columns()) {
            if let Some(text_type) = definition.text_type {
                fit_text(values, text_type)?;
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let nulls = columns.iter().enumerate().find_map(|(i, values)| {
            let row = (values.null_count() > 0 && !self.is_nullable(i))
                .then(|| (0..count).find(|&row| values.is_null(row)))?;
            Some((i, row?))
        });
        if let Some((column, row)) = nulls {
            return Err(self.null_violation(column, &columns, row));
        }
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.schema),
            columns,
            &options,
        )?)
    }

    fn is_nullable(&self, column: usize) -> bool {
        let is_key = self
            .layout
            .as_ref()
            .is_some_and(|l| !l.is_bag() && l.key_columns().contains(&column));
        self.columns()[column].nullable && !is_key
    }

    fn null_violation(&self, column: usize, columns: &[ArrayRef], row: usize) -> Error {
        let error = Error::new(
            sqlstate::NOT_NULL_VIOLATION,
            format!(
                "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
                self.columns()[column].name,
                self.object.name
            ),
        )
        .about(Subject::column(
            &self.object.name,
            &self.columns()[column].name,
        ));
        match self.row_text(columns, row) {
            Ok(text) => error.detail(format!("Failing row contains ({text}).")),
            Err(_) => error,
        }
    }

    /// `duplicate key value violates unique constraint "t_pkey"`.
    pub fn unique_violation(&self, rows: &RecordBatch, row: usize) -> Error {
        let constraint = format!("{}_pkey", self.object.name);
        let error = Error::new(
            sqlstate::UNIQUE_VIOLATION,
            format!("duplicate key value violates unique constraint \"{constraint}\""),
        )
        .about(Subject::constraint(&self.object.name, &constraint));
        let Some(layout) = &self.layout else {
            return error;
        };
        let names: Vec<&str> = layout
            .key_columns()
            .iter()
            .map(|&c| self.columns()[c].name.as_str())
            .collect();
        let values = layout
            .key_columns()
            .iter()
            .map(|&c| value_text(rows.column(c), row, &self.columns()[c].sql_type))
            .collect::<Result<Vec<_>>>();
        match values {
            Ok(values) => error.detail(format!(
                "Key ({})=({}) already exists.",
                names.join(", "),
                values.join(", ")
            )),
            Err(_) => error,
        }
    }

    /// A row's values, for messages.
    pub fn row_text(&self, columns: &[ArrayRef], row: usize) -> Result<String> {
        let values = columns
            .iter()
            .zip(self.columns())
            .map(|(values, column)| value_text(values, row, &column.sql_type))
            .collect::<Result<Vec<_>>>()?;
        Ok(values.join(", "))
    }
}

/// Texts that are longer than their column allows: spaces at the end go, anything else is refused.
fn fit_text(values: &mut ArrayRef, text_type: TextType) -> Result<()> {
    let Some(limit) = text_type.limit() else {
        return Ok(());
    };
    let limit = limit as usize;
    let texts = values.as_string::<i32>();
    let is_long = |text: &str| text.len() > limit && text.chars().nth(limit).is_some();
    if !texts.iter().flatten().any(is_long) {
        return Ok(());
    }
    let fitted = texts.iter().map(|text| {
        let Some((end, _)) = text.and_then(|text| text.char_indices().nth(limit)) else {
            return Ok(text);
        };
        match text {
            Some(text) if text[end..].chars().all(|c| c == ' ') => Ok(Some(&text[..end])),
            _ => Err(Error::new(
                sqlstate::STRING_TOO_LONG,
                format!("value too long for type {text_type}"),
            )),
        }
    });
    *values = Arc::new(fitted.collect::<Result<StringArray>>()?);
    Ok(())
}

fn value_text(values: &ArrayRef, row: usize, sql_type: &SqlType) -> Result<String> {
    let field = Arc::new(sql_type.to_field("value", true));
    let text = write_column(&values.slice(row, 1), &field, &OutputSettings::default())?;
    let text = text.as_string::<i32>();
    if text.is_null(0) {
        return Ok("null".to_owned());
    }
    let text = text.value(0);
    Ok(match text.char_indices().nth(VALUE_CHARACTERS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    })
}

fn refused(object: &CatalogObject, verb: Verb) -> Error {
    let (kind, hint) = match &object.definition {
        Definition::Stream(stream) if stream.connector.is_some() => (
            "stream",
            format!(
                "Stream \"{}\" reads from a connector; its rows come from there.",
                object.name
            ),
        ),
        Definition::Stream(_) => (
            "stream",
            "A stream only grows. Keep rows that change in a table: CREATE TABLE … (…, PRIMARY KEY (…)).".to_owned(),
        ),
        Definition::MaterializedView(_) => (
            "materialized view",
            "It follows from its query. Change the rows of the relations that it reads.".to_owned(),
        ),
        Definition::View(_) => (
            "view",
            "Change the rows of the relations that it reads.".to_owned(),
        ),
        Definition::Sink(_) => ("sink", "A sink holds no rows.".to_owned()),
        Definition::Index(_) => ("index", "An index follows its view.".to_owned()),
        Definition::Table(_) => ("table", String::new()),
    };
    Error::new(
        sqlstate::WRONG_OBJECT_TYPE,
        format!("cannot {} {kind} \"{}\"", verb.phrase(), object.name),
    )
    .hint(match verb {
        Verb::Lock => "Rows of tables are locked: name one that is in FROM with OF.".to_owned(),
        _ => hint,
    })
}

/// A name that has no schema in front of it, such as a column's.
pub(super) fn plain_name(name: &ObjectName) -> Result<String> {
    match name.0.as_slice() {
        [ast::ObjectNamePart::Identifier(name)] => Ok(folded(name)),
        _ => relation_name(name),
    }
}

/// A name without what stands in front of it.
pub(super) fn last_name(name: &ObjectName) -> Option<String> {
    let last = name.0.last().and_then(ast::ObjectNamePart::as_ident);
    last.map(folded)
}

/// A relation's name, with its schema where that was said: `t`, `public.t`, `pg_temp.t`.
pub(super) fn relation_name(name: &ObjectName) -> Result<String> {
    let parts: Vec<&ast::Ident> = name
        .0
        .iter()
        .filter_map(ast::ObjectNamePart::as_ident)
        .collect();
    let schema_at = parts.len().checked_sub(2);
    match (parts.last(), schema_at.map(|at| folded(parts[at]))) {
        (Some(last), None) => Ok(folded(last)),
        (Some(last), Some(schema)) if schema == PUBLIC_SCHEMA => {
            Ok(format!("{PUBLIC_SCHEMA}.{}", folded(last)))
        }
        (Some(last), Some(schema)) if is_temporary_schema(&schema) => {
            Ok(format!("{TEMPORARY_SCHEMA}.{}", folded(last)))
        }
        (_, Some(schema)) => Err(Error::new(
            sqlstate::INVALID_SCHEMA_NAME,
            format!("schema \"{schema}\" does not exist"),
        )),
        (None, None) => Err(Error::new(
            sqlstate::SYNTAX_ERROR,
            "a relation's name is missing",
        )),
    }
}

/// A name as PostgreSQL folds it.
pub(super) fn folded(name: &ast::Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

/// Name and alias of the relation in a `FROM` item.
pub(super) fn named_relation(factor: &TableFactor) -> Result<(String, Option<String>)> {
    match factor {
        TableFactor::Table { name, alias, .. } => Ok((
            relation_name(name)?,
            alias.as_ref().map(|a| folded(&a.name)),
        )),
        _ => Err(Error::new(
            sqlstate::SYNTAX_ERROR,
            "rows of a query cannot be changed: name a table",
        )),
    }
}
