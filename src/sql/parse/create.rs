//! `CREATE …`: streams, tables, views, sinks, secrets. Their `WITH (…)` list is `option_list.rs`.

use datafusion::sql::sqlparser::ast::{self, BinaryOperator, Expr};
use datafusion::sql::sqlparser::parser::Parser;
use datafusion::sql::sqlparser::tokenizer::Token;

use super::option_list::{checked, effective, take_connector, with_options};
use super::{
    aggregates, functions, if_not_exists, indexes, recovery, roles, skip_rest, unsupported,
    view_query,
};
use crate::catalog::definition::{
    ColumnDefinition, ExpectationDefinition, OnViolation, WatermarkDefinition,
};
use crate::catalog::temporary::{OnCommit, TEMPORARY_SCHEMA};
use crate::error::{Error, Result, sqlstate};
use crate::sql::cursor::Cursor;
use crate::sql::data_types::{folded, sql_type, text_type};
use crate::sql::interval;
use crate::sql::options::Targets;
use crate::sql::rewrite;
use crate::sql::statement::{
    CreateMaterializedView, CreateSink, CreateStream, CreateTable, CreateView, DelayUnit, Statement,
};
use crate::types::{SqlType, TextType};
use crate::values::OutputSettings;
use crate::values::input::ColumnBuilder;

/// Binding strength of `IS`: a DEFAULT ends before a following `NOT NULL`.
pub(super) const DEFAULT_PRECEDENCE: u8 = 40;

/// What a table's definition begins with. LOCAL and GLOBAL say nothing; UNLOGGED allows rows to be lost, and none are.
const TABLE_WORDS: [&str; 8] = [
    "TABLE",
    "TEMPORARY TABLE",
    "TEMP TABLE",
    "LOCAL TEMPORARY TABLE",
    "LOCAL TEMP TABLE",
    "GLOBAL TEMPORARY TABLE",
    "GLOBAL TEMP TABLE",
    "UNLOGGED TABLE",
];

/// As above, of a view.
const VIEW_WORDS: [&str; 5] = [
    "VIEW",
    "TEMPORARY VIEW",
    "TEMP VIEW",
    "LOCAL TEMPORARY VIEW",
    "LOCAL TEMP VIEW",
];

/// Reads a `CREATE` statement.
pub(super) fn create(cursor: &mut Cursor) -> Result<Statement> {
    cursor.expect("CREATE")?;
    let at = cursor.position();
    let or_replace = cursor.accept("OR REPLACE");
    let statement = if cursor.accept("STREAM") {
        stream(cursor, or_replace)?
    } else if cursor.accept("MATERIALIZED VIEW") {
        materialized_view(cursor, or_replace)?
    } else if let Some(words) = cursor.accept_one(&VIEW_WORDS) {
        view(cursor, or_replace, words.contains("TEMP"))?
    } else if cursor.accept("FUNCTION") {
        functions::create(cursor, or_replace)?
    } else if cursor.accept("AGGREGATE") {
        aggregates::create(cursor, or_replace)?
    } else if !or_replace && (cursor.sees("INDEX") || cursor.sees("UNIQUE INDEX")) {
        indexes::create(cursor)?
    } else if or_replace {
        return Err(cursor.expected("STREAM, MATERIALIZED VIEW, VIEW, FUNCTION or AGGREGATE"));
    } else if let Some(words) = cursor.accept_one(&TABLE_WORDS) {
        table(cursor, words.contains("TEMP"))?
    } else if cursor.accept("SINK") {
        sink(cursor)?
    } else if cursor.accept("SECRET") {
        let if_not_exists = if_not_exists(cursor);
        let name = cursor.identifier()?;
        cursor.expect("AS")?;
        Statement::CreateSecret {
            name,
            value: cursor.string()?,
            if_not_exists,
        }
    } else if cursor.accept("RECOVERY SCHEDULE") {
        recovery::create_schedule(cursor)?
    } else if let Some(word) = roles::accept_role_word(cursor) {
        roles::create(cursor, word)?
    } else if cursor.accept("SCHEMA IF NOT EXISTS") {
        let name = cursor.identifier()?;
        if name != "public" {
            return Err(Error::unsupported("CREATE SCHEMA is not supported")
                .hint("All objects are in the schema public.")
                .position(at));
        }
        skip_rest(cursor);
        Statement::NoOperation("CREATE SCHEMA")
    } else {
        return Err(unknown_kind(cursor));
    };
    Ok(statement)
}

/// What PostgreSQL can create and we cannot is told apart from what nobody can.
fn unknown_kind(cursor: &Cursor) -> Error {
    const KNOWN: &[&str] = &[
        "USER MAPPING",
        "SCHEMA",
        "DATABASE",
        "EXTENSION",
        "PROCEDURE",
        "TRIGGER",
        "TYPE",
        "DOMAIN",
        "SEQUENCE",
        "UNLOGGED TABLE",
        "FOREIGN TABLE",
        "RECURSIVE VIEW",
        "PUBLICATION",
        "SUBSCRIPTION",
        "RULE",
        "POLICY",
        "SERVER",
        "OPERATOR",
        "CAST",
        "COLLATION",
        "STATISTICS",
        "TABLESPACE",
    ];
    match KNOWN.iter().find(|words| cursor.sees(words)) {
        Some(words) => unsupported(cursor, &format!("CREATE {words}")),
        None => cursor.expected(
            "STREAM, TABLE, MATERIALIZED VIEW, VIEW, INDEX, SINK, FUNCTION, AGGREGATE, SECRET, USER or ROLE",
        ),
    }
}

/// What a parenthesised list of a stream or table holds.
#[derive(Default)]
struct Body {
    columns: Vec<ColumnDefinition>,
    watermark: Option<(WatermarkDefinition, DelayUnit)>,
    expectations: Vec<ExpectationDefinition>,
    primary_key: Vec<String>,
}

fn stream(cursor: &mut Cursor, or_replace: bool) -> Result<Statement> {
    let if_not_exists = if_not_exists(cursor);
    let name = cursor.object_name()?;
    let position = cursor.position();
    let body = body(cursor)?;
    if !body.primary_key.is_empty() {
        return Err(Error::new(
            sqlstate::INVALID_OBJECT_DEFINITION,
            format!("stream \"{name}\" cannot have a primary key"),
        )
        .hint("Use CREATE TABLE for rows that are updated by key.")
        .position(position));
    }
    let mut given = with_options(cursor)?;
    let connector = take_connector(&mut given);
    let target = Targets::stream(connector.as_deref())?;
    Ok(Statement::CreateStream(CreateStream {
        name,
        if_not_exists,
        or_replace,
        columns: body.columns,
        watermark: body.watermark.map(|(watermark, _)| watermark),
        expectations: body.expectations,
        connector,
        options: checked(target, given)?,
    }))
}

fn table(cursor: &mut Cursor, is_temporary: bool) -> Result<Statement> {
    let if_not_exists = if_not_exists(cursor);
    let position = cursor.position();
    let (name, is_temporary) = table_name(cursor.target_name()?, is_temporary)
        .map_err(|error| error.position(position))?;
    let position = cursor.position();
    let column_names = match sees_column_names(cursor) {
        true => cursor.column_names()?,
        false => Vec::new(),
    };
    let body = if column_names.is_empty() && cursor.peek() == &Token::LParen {
        body(cursor)?
    } else {
        Body::default()
    };
    if body.watermark.is_some() || !body.expectations.is_empty() {
        return Err(
            Error::unsupported("tables have no watermark and no expectations")
                .hint("Use CREATE STREAM for rows with an event time.")
                .position(position),
        );
    }
    let mut given = with_options(cursor)?;
    if take_connector(&mut given).is_some() {
        return Err(
            Error::unsupported("tables with a connector are not supported")
                .hint("Use CREATE STREAM … WITH (connector = …) and a materialized view over it.")
                .position(position),
        );
    }
    let on_commit = on_commit(cursor, is_temporary)?;
    let query = if cursor.accept("AS") {
        Some(cursor.query()?.0)
    } else {
        None
    };
    let with_data = query.is_none() || !cursor.accept("WITH NO DATA");
    if query.is_some() {
        cursor.accept("WITH DATA");
    }
    if query.is_none() && body.columns.is_empty() {
        return Err(cursor.expected("a list of columns or AS and a query"));
    }
    Ok(Statement::CreateTable(CreateTable {
        name,
        if_not_exists,
        columns: body.columns,
        column_names,
        primary_key: body.primary_key,
        temporary: is_temporary.then_some(on_commit),
        options: checked(Targets::TABLE, effective(Targets::TABLE, given))?,
        query,
        with_data,
    }))
}

/// `(a, b)` as in `CREATE TABLE t (a, b) AS …`: names without types.
fn sees_column_names(cursor: &Cursor) -> bool {
    cursor.peek() == &Token::LParen
        && matches!(cursor.peek_at(1), Token::Word(_))
        && matches!(cursor.peek_at(2), Token::Comma | Token::RParen)
}

/// A table or view in the schema `pg_temp` is temporary without the word, and one with the word in no other.
fn table_name(name: String, is_temporary: bool) -> Result<(String, bool)> {
    match name.split_once('.') {
        Some((TEMPORARY_SCHEMA, name)) => Ok((name.to_owned(), true)),
        Some(("public", _)) if is_temporary => Err(Error::new(
            sqlstate::INVALID_TABLE_DEFINITION,
            "cannot create temporary relation in non-temporary schema",
        )),
        Some(("public", name)) => Ok((name.to_owned(), false)),
        _ => Ok((name, is_temporary)),
    }
}

/// `ON COMMIT { PRESERVE ROWS | DELETE ROWS | DROP }`
fn on_commit(cursor: &mut Cursor, is_temporary: bool) -> Result<OnCommit> {
    let position = cursor.position();
    if !cursor.accept("ON COMMIT") {
        return Ok(OnCommit::default());
    }
    let action = match cursor.accept_one(&["PRESERVE ROWS", "DELETE ROWS", "DROP"]) {
        Some("PRESERVE ROWS") => OnCommit::PreserveRows,
        Some("DELETE ROWS") => OnCommit::DeleteRows,
        Some(_) => OnCommit::Drop,
        None => return Err(cursor.expected("PRESERVE ROWS, DELETE ROWS or DROP")),
    };
    match is_temporary {
        true => Ok(action),
        false => Err(Error::new(
            sqlstate::INVALID_TABLE_DEFINITION,
            "ON COMMIT can only be used on temporary tables",
        )
        .position(position)),
    }
}

/// `CREATE OR REPLACE MATERIALIZED VIEW` was read.
pub(super) fn replaced_view(cursor: &mut Cursor) -> Result<CreateMaterializedView> {
    view_definition(cursor, true)
}

fn materialized_view(cursor: &mut Cursor, or_replace: bool) -> Result<Statement> {
    view_definition(cursor, or_replace).map(Statement::CreateMaterializedView)
}

fn view_definition(cursor: &mut Cursor, or_replace: bool) -> Result<CreateMaterializedView> {
    let if_not_exists = if_not_exists(cursor);
    let name = cursor.object_name()?;
    let column_names = optional_column_names(cursor)?;
    let given = with_options(cursor)?;
    cursor.expect("AS")?;
    let (query, query_text) = view_query(cursor)?;
    if cursor.sees("WITH NO DATA") {
        return Err(unsupported(cursor, "WITH NO DATA"));
    }
    cursor.accept("WITH DATA");
    let emit = cursor.take_emit().unwrap_or_default();
    Ok(CreateMaterializedView {
        name,
        if_not_exists,
        or_replace,
        column_names,
        options: checked(Targets::VIEW, given)?,
        query,
        query_text,
        emit,
    })
}

fn view(cursor: &mut Cursor, or_replace: bool, is_temporary: bool) -> Result<Statement> {
    let if_not_exists = if_not_exists(cursor);
    let position = cursor.position();
    let (name, is_temporary) = table_name(cursor.target_name()?, is_temporary)
        .map_err(|error| error.position(position))?;
    let column_names = optional_column_names(cursor)?;
    cursor.expect("AS")?;
    let (query, query_text) = view_query(cursor)?;
    if cursor.sees("WITH") {
        return Err(unsupported(cursor, "WITH CHECK OPTION"));
    }
    Ok(Statement::CreateView(CreateView {
        name,
        if_not_exists,
        or_replace,
        is_temporary,
        column_names,
        query,
        query_text,
    }))
}

fn sink(cursor: &mut Cursor) -> Result<Statement> {
    let if_not_exists = if_not_exists(cursor);
    let name = cursor.object_name()?;
    cursor.expect("FROM")?;
    let from = cursor.object_name()?;
    let mut given = with_options(cursor)?;
    let connector = take_connector(&mut given).ok_or_else(|| {
        Error::new(
            sqlstate::INVALID_OBJECT_DEFINITION,
            format!("sink \"{name}\" has no connector"),
        )
        .hint("Add WITH (connector = 'files', location = '…').")
    })?;
    let target = Targets::sink(&connector)?;
    Ok(Statement::CreateSink(CreateSink {
        name,
        if_not_exists,
        from,
        connector,
        options: checked(target, given)?,
    }))
}

fn optional_column_names(cursor: &mut Cursor) -> Result<Vec<String>> {
    if cursor.peek() == &Token::LParen {
        cursor.column_names()
    } else {
        Ok(Vec::new())
    }
}

/// `( column | WATERMARK … | CONSTRAINT … | PRIMARY KEY (…), … )`
fn body(cursor: &mut Cursor) -> Result<Body> {
    let mut body = Body::default();
    cursor.expect_token(&Token::LParen)?;
    cursor.comma_separated(|cursor| element(cursor, &mut body))?;
    cursor.expect_token(&Token::RParen)?;
    check_body(cursor, body)
}

fn element(cursor: &mut Cursor, body: &mut Body) -> Result<()> {
    if cursor.sees("WATERMARK FOR") {
        if body.watermark.is_some() {
            return Err(cursor
                .unexpected()
                .detail("There is one watermark at most."));
        }
        body.watermark = Some(watermark(cursor)?);
        return Ok(());
    }
    if cursor.sees("PRIMARY KEY") {
        return primary_key(cursor, body);
    }
    if cursor.accept("CONSTRAINT") {
        let name = cursor.identifier()?;
        if cursor.sees("PRIMARY KEY") {
            return primary_key(cursor, body);
        }
        if !cursor.sees("EXPECT") {
            return Err(unsupported_constraint(cursor)
                .unwrap_or_else(|| cursor.expected("EXPECT or PRIMARY KEY")));
        }
        body.expectations.push(expectation(cursor, name)?);
        return Ok(());
    }
    if let Some(error) = unsupported_constraint(cursor) {
        return Err(error);
    }
    column(cursor, body)
}

fn unsupported_constraint(cursor: &Cursor) -> Option<Error> {
    [
        "UNIQUE",
        "CHECK",
        "FOREIGN KEY",
        "EXCLUDE",
        "LIKE",
        "REFERENCES",
        "GENERATED",
    ]
    .iter()
    .find(|words| cursor.sees(words))
    .map(|words| unsupported(cursor, words))
}

fn primary_key(cursor: &mut Cursor, body: &mut Body) -> Result<()> {
    if !body.primary_key.is_empty() {
        return Err(two_keys(cursor));
    }
    cursor.expect("PRIMARY KEY")?;
    body.primary_key = cursor.column_names()?;
    Ok(())
}

fn two_keys(cursor: &Cursor) -> Error {
    Error::new(
        sqlstate::INVALID_TABLE_DEFINITION,
        "multiple primary keys are not allowed",
    )
    .position(cursor.position())
}

fn column(cursor: &mut Cursor, body: &mut Body) -> Result<()> {
    let name = cursor.identifier()?;
    let (sql_type, text_type) = declared_type(cursor)?;
    let mut column = ColumnDefinition {
        sql_type,
        name,
        nullable: true,
        default: None,
        metadata_from: None,
        comment: None,
        text_type,
    };
    loop {
        if cursor.accept("NOT NULL") {
            column.nullable = false;
        } else if cursor.accept("NULL") {
            column.nullable = true;
        } else if cursor.accept("DEFAULT") {
            let (start, position) = (cursor.offset(), cursor.position());
            let default = cursor.run(|p| p.parse_subexpr(DEFAULT_PRECEDENCE))?;
            check_default(&default, &column.sql_type).map_err(|e| e.position(position))?;
            column.default = Some(cursor.text_from(start));
        } else if cursor.sees("PRIMARY KEY") {
            if !body.primary_key.is_empty() {
                return Err(two_keys(cursor));
            }
            cursor.expect("PRIMARY KEY")?;
            body.primary_key = vec![column.name.clone()];
        } else if cursor.accept("METADATA") {
            column.metadata_from = Some(if cursor.accept("FROM") {
                cursor.string()?
            } else {
                column.name.clone()
            });
        } else if cursor.accept("COMMENT") {
            column.comment = Some(cursor.string()?);
        } else if let Some(error) = unsupported_constraint(cursor) {
            return Err(error);
        } else {
            break;
        }
    }
    body.columns.push(column);
    Ok(())
}

/// A text constant is read as a value of the column's type, now as whenever it is used.
fn check_default(default: &Expr, sql_type: &SqlType) -> Result<()> {
    match rewrite::string_constant(default) {
        Some(text) => ColumnBuilder::new(sql_type, &OutputSettings::default()).append_text(&text),
        None => Ok(()),
    }
}

/// The column of `ADD COLUMN`.
pub(super) fn added_column(cursor: &mut Cursor) -> Result<ColumnDefinition> {
    let position = cursor.position();
    let mut body = Body::default();
    column(cursor, &mut body)?;
    if !body.primary_key.is_empty() {
        return Err(
            Error::unsupported("a primary key cannot be added to a table")
                .hint("Create a new table with the key, and INSERT the rows into it.")
                .position(position),
        );
    }
    body.columns
        .pop()
        .ok_or_else(|| Error::internal("a column that is none"))
}

/// A type; `STRUCT<…>` is ours, the rest sqlparser's.
pub(super) fn data_type(cursor: &mut Cursor) -> Result<SqlType> {
    declared_type(cursor).map(|(sql_type, _)| sql_type)
}

/// As [`data_type`], with what else a text column's declaration says.
pub(super) fn declared_type(cursor: &mut Cursor) -> Result<(SqlType, Option<TextType>)> {
    let position = cursor.position();
    let mut declared = None;
    let mut result = if cursor.accept("STRUCT") {
        cursor.expect_token(&Token::Lt)?;
        let fields = cursor.comma_separated(|c| {
            let name = c.identifier()?;
            c.accept_token(&Token::Colon);
            Ok((name, data_type(c)?))
        })?;
        cursor.expect_token(&Token::Gt)?;
        SqlType::Struct(fields)
    } else {
        let parsed = cursor.run(Parser::parse_data_type)?;
        declared = text_type(&parsed).map_err(|e| e.position(position))?;
        sql_type(&parsed).map_err(|e| e.position(position))?
    };
    // `STRUCT<…>[]`; sqlparser takes the brackets of its own types.
    while cursor.accept_token(&Token::LBracket) {
        cursor.expect_token(&Token::RBracket)?;
        result = SqlType::Array(Box::new(result));
        declared = None;
    }
    Ok((result, declared))
}

/// `WATERMARK FOR column AS column [- delay]`
pub(super) fn watermark(cursor: &mut Cursor) -> Result<(WatermarkDefinition, DelayUnit)> {
    cursor.expect("WATERMARK FOR")?;
    let column = cursor.identifier()?;
    cursor.expect("AS")?;
    let position = cursor.position();
    let expression = cursor.expression()?;
    let (delay_us, unit) = watermark_delay(&column, &expression).ok_or_else(|| {
        Error::new(
            sqlstate::INVALID_OBJECT_DEFINITION,
            format!("watermark for \"{column}\" must be the column less a constant delay"),
        )
        .hint(format!(
            "Write WATERMARK FOR {column} AS {column} - INTERVAL '1 minute'."
        ))
        .position(position)
    })?;
    Ok((WatermarkDefinition { column, delay_us }, unit))
}

fn watermark_delay(column: &str, expression: &Expr) -> Option<(i64, DelayUnit)> {
    let is_column = |e: &Expr| matches!(e, Expr::Identifier(i) if folded(i) == column);
    let (delay, unit) = match expression {
        e if is_column(e) => (0, DelayUnit::None),
        Expr::Nested(inner) => return watermark_delay(column, inner),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::Minus,
            right,
        } if is_column(left) => match right.as_ref() {
            // Event times that are integers have a delay in their own unit.
            Expr::Value(v) => match &v.value {
                ast::Value::Number(n, _) => (n.to_string().parse().ok()?, DelayUnit::Number),
                _ => (interval::expression_us(right)?, DelayUnit::Interval),
            },
            other => (interval::expression_us(other)?, DelayUnit::Interval),
        },
        _ => return None,
    };
    (delay >= 0).then_some((delay, unit))
}

/// `EXPECT (condition) [ON VIOLATION DROP ROW | FAIL UPDATE | KEEP ROW]`
pub(super) fn expectation(cursor: &mut Cursor, name: String) -> Result<ExpectationDefinition> {
    cursor.expect("EXPECT")?;
    cursor.expect_token(&Token::LParen)?;
    let start = cursor.offset();
    cursor.expression()?;
    let condition = cursor.text_from(start);
    cursor.expect_token(&Token::RParen)?;
    let on_violation = if cursor.accept("ON VIOLATION") {
        match cursor.accept_one(&["DROP ROW", "FAIL UPDATE", "KEEP ROW", "KEEP"]) {
            Some("DROP ROW") => OnViolation::DropRow,
            Some("FAIL UPDATE") => OnViolation::FailUpdate,
            Some(_) => OnViolation::Keep,
            None => return Err(cursor.expected("DROP ROW or FAIL UPDATE")),
        }
    } else {
        OnViolation::Keep
    };
    Ok(ExpectationDefinition {
        name,
        condition,
        on_violation,
    })
}

/// Checks between the elements of a list.
fn check_body(cursor: &Cursor, mut body: Body) -> Result<Body> {
    let position = cursor.position();
    for (i, column) in body.columns.iter().enumerate() {
        if body.columns[..i].iter().any(|c| c.name == column.name) {
            return Err(duplicate_column(&column.name));
        }
    }
    for (i, key) in body.primary_key.iter().enumerate() {
        if body.primary_key[..i].contains(key) {
            return Err(duplicate_column(key));
        }
        let column = body
            .columns
            .iter_mut()
            .find(|c| c.name == *key)
            .ok_or_else(|| {
                Error::new(
                    sqlstate::UNDEFINED_COLUMN,
                    format!("column \"{key}\" named in key does not exist"),
                )
                .position(position)
            })?;
        column.nullable = false;
    }
    if let Some((watermark, unit)) = &body.watermark {
        check_watermark(&body.columns, watermark, *unit)?;
    }
    Ok(body)
}

fn duplicate_column(name: &str) -> Error {
    Error::new(
        sqlstate::DUPLICATE_COLUMN,
        format!("column \"{name}\" specified more than once"),
    )
}

fn check_watermark(
    columns: &[ColumnDefinition],
    watermark: &WatermarkDefinition,
    unit: DelayUnit,
) -> Result<()> {
    let name = &watermark.column;
    let column = columns.iter().find(|c| c.name == *name).ok_or_else(|| {
        Error::new(
            sqlstate::UNDEFINED_COLUMN,
            format!("column \"{name}\" does not exist"),
        )
    })?;
    match column.sql_type {
        SqlType::Timestamp | SqlType::TimestampTz | SqlType::Integer | SqlType::BigInt => {
            unit.check(column)
        }
        ref other => Err(Error::new(
            sqlstate::DATATYPE_MISMATCH,
            format!("watermark column \"{name}\" is of type {other}"),
        )
        .hint("Event time is a timestamp, a timestamptz or a bigint.")),
    }
}
