//! Parse, Bind, Describe, Execute and Close.
//!
//! A prepared statement keeps the parsed statement and what Describe tells of it. A portal keeps
//! its bound parameters and, once executed, the rest of its rows, so that Execute with a row limit
//! can go on. Executes that are not directly followed by Sync share one implicit transaction, which
//! Sync commits; the common case of one Execute and Sync is left to the session's own autocommit.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::sql::sqlparser::ast;
use pgwire::messages::PgWireBackendMessage as Message;
use pgwire::messages::data::{NoData, ParameterDescription};
use pgwire::messages::extendedquery::{
    BindComplete, CloseComplete, ParseComplete, PortalSuspended,
};
use pgwire::messages::response::EmptyQueryResponse;
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::Connection;
use super::frontend::{Bind, Target};
use super::port::SessionPort;
use super::rows::{RowSource, check_types, row_description};
use super::wire::WireResult;
use crate::error::{Error, Result, sqlstate};
use crate::session::{Parameter, StatementResult, TransactionStatus, placeholder};
use crate::sql::places::located;
use crate::sql::statement::{Direction, Statement};
use crate::types::SqlType;
use crate::values::types::WireType;
use crate::values::{Format, decode_parameter};

/// A statement that Parse made.
#[derive(Debug)]
pub(super) struct Prepared {
    /// `None`: the empty statement
    statement: Option<Statement>,
    text: String,
    parameter_oids: Vec<u32>,
    parameter_types: Vec<SqlType>,
    columns: Option<SchemaRef>,
    column_types: Vec<WireType>,
    /// What the client declared, to plan it anew.
    declared: Vec<Option<SqlType>>,
    /// Of the definitions that it was planned with.
    version: u64,
}

/// A statement with its parameters, and where its rows stand.
pub(super) struct Portal {
    prepared: Arc<Prepared>,
    parameters: Vec<Parameter>,
    formats: Vec<Format>,
    progress: Progress,
}

enum Progress {
    Bound,
    Rows(RowSource),
    Done,
}

impl<R, W, P> Connection<R, W, P>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
    P: SessionPort,
{
    pub(super) async fn prepare(
        &mut self,
        name: String,
        sql: String,
        type_oids: Vec<u32>,
    ) -> WireResult<()> {
        if name.is_empty() {
            self.statements.remove("");
        } else if self.statements.contains_key(&name) {
            return Err(Error::new(
                sqlstate::DUPLICATE_PREPARED_STATEMENT,
                format!("prepared statement \"{name}\" already exists"),
            )
            .into());
        }
        self.statement_starts(&sql);
        let version = self.session.definitions_version();
        let mut parsed = self
            .wire
            .guard(async { self.session.parse(&sql) })
            .await??;
        if parsed.len() > 1 {
            return Err(Error::new(
                sqlstate::SYNTAX_ERROR,
                "cannot insert multiple commands into a prepared statement",
            )
            .into());
        }
        let statement = parsed.pop().map(|(statement, _)| statement);
        if let Some(statement) = &statement {
            self.refuse_in_failed_transaction(statement)?;
        }
        let declared = declared_types(&type_oids)?;
        let (mut parameter_types, columns) = match &statement {
            None => (Vec::new(), None),
            Some(statement) => {
                let description = self
                    .wire
                    .guard(self.session.describe(statement, &declared))
                    .await?
                    .map_err(|error| located(error, &sql))?;
                (description.parameters, description.columns)
            }
        };
        // Declared beyond what the statement uses: still part of Bind.
        for unused in declared.iter().skip(parameter_types.len()) {
            parameter_types.push(unused.clone().unwrap_or(SqlType::Text));
        }
        let casts = statement.as_ref().map(cast_oids).unwrap_or_default();
        let prepared = Prepared {
            statement,
            text: sql,
            parameter_oids: wire_oids(&type_oids, &parameter_types, &casts),
            parameter_types,
            column_types: match &columns {
                Some(schema) => WireType::of_schema(schema)?,
                None => Vec::new(),
            },
            columns,
            declared,
            version,
        };
        if let Some(statement) = prepared.statement.as_ref().filter(|_| !name.is_empty()) {
            self.session.know_prepared(&name, statement);
        }
        self.statements.insert(name, Arc::new(prepared));
        self.wire.put(Message::ParseComplete(ParseComplete::new()))
    }

    pub(super) async fn bind(&mut self, bind: Bind) -> WireResult<()> {
        let prepared = self.prepared(&bind.statement)?.clone();
        if let Some(statement) = &prepared.statement {
            self.refuse_in_failed_transaction(statement)?;
            self.revalidate(&prepared, statement).await?;
        }
        if bind.portal.is_empty() {
            self.portals.remove("");
        } else if self.portals.contains_key(&bind.portal) {
            return Err(Error::new(
                sqlstate::DUPLICATE_CURSOR,
                format!("cursor \"{}\" already exists", bind.portal),
            )
            .into());
        }
        let parameters = bound_parameters(&prepared, &bind)?;
        let columns = prepared.column_types.len();
        let formats = formats(&bind.result_formats, columns).map_err(|given| {
            protocol_error(format!(
                "bind message has {given} result formats but query has {columns} columns"
            ))
        })??;
        let portal = Portal {
            prepared,
            parameters,
            formats,
            progress: Progress::Bound,
        };
        self.portals.insert(bind.portal, portal);
        self.wire.put(Message::BindComplete(BindComplete::new()))
    }

    /// Before a statement does anything, it must still give what its client was told it would.
    async fn revalidate(&mut self, prepared: &Prepared, statement: &Statement) -> WireResult<()> {
        let Some(told) = &prepared.columns else {
            return Ok(());
        };
        if self.session.definitions_version() == prepared.version {
            return Ok(());
        }
        let description = self
            .wire
            .guard(self.session.describe(statement, &prepared.declared))
            .await??;
        let now = description
            .columns
            .unwrap_or_else(|| Arc::new(Schema::empty()));
        let names = |schema: &SchemaRef| -> Vec<String> {
            schema.fields().iter().map(|f| f.name().clone()).collect()
        };
        if names(told) != names(&now) {
            check_types(&[], &prepared.column_types)?;
        }
        Ok(check_types(
            &WireType::of_schema(&now)?,
            &prepared.column_types,
        )?)
    }

    /// FETCH, MOVE and CLOSE know the portals of the protocol too.
    pub fn concerns_portal(&self, statement: &Statement) -> bool {
        let (Statement::Fetch { name, .. }
        | Statement::Move { name, .. }
        | Statement::CloseCursor(Some(name))) = statement
        else {
            return false;
        };
        self.portals.contains_key(name)
    }

    /// FETCH, MOVE or CLOSE of a portal of the protocol; it reads forward.
    pub async fn run_on_portal(&mut self, statement: &Statement) -> WireResult<()> {
        let (Statement::Fetch { name, direction } | Statement::Move { name, direction }) =
            statement
        else {
            if let Statement::CloseCursor(Some(name)) = statement {
                self.portals.remove(name);
            }
            return self.complete("CLOSE CURSOR".to_owned());
        };
        let Direction::Forward(limit) = *direction else {
            return Err(Error::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "cursor can only scan forward",
            )
            .into());
        };
        let Some(mut portal) = self.portals.remove(name) else {
            return Err(no_portal(name).into());
        };
        if matches!(portal.progress, Progress::Bound) {
            self.start_portal(&mut portal).await?;
        }
        let Progress::Rows(source) = &mut portal.progress else {
            return Err(not_runnable(name).into());
        };
        let tag = if matches!(statement, Statement::Move { .. }) {
            format!("MOVE {}", source.skip(&mut self.wire, limit).await?)
        } else {
            self.wire.put(source.description(&[]))?;
            let settings = self.output_settings();
            let source = match &mut portal.progress {
                Progress::Rows(source) => source,
                Progress::Bound | Progress::Done => return Err(not_runnable(name).into()),
            };
            let sent = source
                .send(&mut self.wire, &[Format::Text], &settings, limit)
                .await?;
            format!("FETCH {}", sent.rows)
        };
        self.portals.insert(name.clone(), portal);
        self.complete(tag)
    }

    pub(super) fn describe(&mut self, target: Target, name: &str) -> WireResult<()> {
        let answer = match target {
            Target::Statement => {
                let prepared = self.prepared(name)?.clone();
                self.wire
                    .put(Message::ParameterDescription(ParameterDescription::new(
                        prepared.parameter_oids.clone(),
                    )))?;
                description(&prepared, &[])
            }
            Target::Portal => match self.portals.get(name) {
                Some(portal) => description(&portal.prepared, &portal.formats),
                // A cursor of DECLARE is a portal too.
                None => {
                    let columns = self.session.cursor_columns(name);
                    let schema = columns.ok_or_else(|| no_portal(name))?;
                    row_description(&schema, &WireType::of_schema(&schema)?, &[])
                }
            },
        };
        self.wire.put(answer)
    }

    pub(super) async fn execute_portal(&mut self, name: &str, row_limit: usize) -> WireResult<()> {
        // Taken out while it runs: a portal that fails is gone.
        let Some(mut portal) = self.portals.remove(name) else {
            return self.execute_cursor(name, row_limit).await;
        };
        if portal.prepared.statement.is_none() {
            self.portals.insert(name.to_owned(), portal);
            return self
                .wire
                .put(Message::EmptyQueryResponse(EmptyQueryResponse::new()));
        }
        self.statement_starts(&portal.prepared.text);
        match portal.progress {
            Progress::Done => return Err(not_runnable(name).into()),
            Progress::Rows(_) => {}
            Progress::Bound => self.start_portal(&mut portal).await?,
        }
        if let Progress::Rows(source) = &mut portal.progress {
            let settings = self.output_settings();
            let limit = (row_limit > 0).then_some(row_limit as u64);
            let sent = source
                .send(&mut self.wire, &portal.formats, &settings, limit)
                .await?;
            if sent.suspended {
                self.send_notices()?;
                self.wire
                    .put(Message::PortalSuspended(PortalSuspended::new()))?;
            } else {
                let tag = source.tag(sent.rows);
                self.complete(tag)?;
            }
        }
        self.portals.insert(name.to_owned(), portal);
        Ok(())
    }

    /// Begins the portal's statement; one without rows runs to its end.
    async fn start_portal(&mut self, portal: &mut Portal) -> WireResult<()> {
        let prepared = portal.prepared.clone();
        let Some(statement) = &prepared.statement else {
            return Ok(());
        };
        portal.progress = Progress::Done;
        if self.drops_prepared(statement) {
            return self.complete("DEALLOCATE".to_owned());
        }
        self.open_implicit(statement);
        self.session.announce(&prepared.text);
        if self.concerns_portal(statement) && !matches!(statement, Statement::Fetch { .. }) {
            return Box::pin(self.run_on_portal(statement)).await;
        }
        let result = self
            .wire
            .guard(self.session.execute(statement, &portal.parameters))
            .await??;
        match result {
            StatementResult::Rows {
                schema,
                stream,
                tag,
                tag_has_count,
            } => {
                let source = RowSource::new(schema, stream, tag, tag_has_count)?;
                source.check_types(&prepared.column_types)?;
                portal.progress = Progress::Rows(source);
                Ok(())
            }
            StatementResult::Command { tag } => self.complete(tag),
            StatementResult::CopyIn(copy) => self.copy_in(copy).await,
            StatementResult::CopyOut {
                statement,
                schema,
                stream,
            } => self.copy_out(&statement, schema, stream).await,
        }
    }

    /// Execute of a cursor that DECLARE opened: as FETCH.
    async fn execute_cursor(&mut self, name: &str, row_limit: usize) -> WireResult<()> {
        if self.session.cursor_columns(name).is_none() {
            return Err(no_portal(name).into());
        }
        let fetch = Statement::Fetch {
            name: name.to_owned(),
            direction: Direction::Forward((row_limit > 0).then_some(row_limit as u64)),
        };
        self.statement_starts("FETCH");
        self.run_described(&fetch, false).await
    }

    pub(super) fn close(&mut self, target: Target, name: &str) -> WireResult<()> {
        match target {
            Target::Statement => {
                self.session.forget_prepared(Some(name));
                self.statements.remove(name);
            }
            Target::Portal => {
                if self.portals.remove(name).is_none() {
                    self.session.close_portal(name);
                }
            }
        }
        self.wire.put(Message::CloseComplete(CloseComplete::new()))
    }

    fn prepared(&self, name: &str) -> Result<&Arc<Prepared>> {
        self.statements.get(name).ok_or_else(|| {
            let shown = match name {
                "" => "unnamed prepared statement does not exist".to_owned(),
                name => format!("prepared statement \"{name}\" does not exist"),
            };
            Error::new(sqlstate::INVALID_STATEMENT_NAME, shown)
        })
    }

    fn open_implicit(&mut self, statement: &Statement) {
        let opens_block = matches!(statement, Statement::Begin(_));
        if !self.implicit_open
            && !opens_block
            && self.session.transaction_status() == TransactionStatus::Idle
            && !self.wire.sync_is_next()
        {
            self.session.begin_implicit();
            self.implicit_open = true;
        }
    }

    fn refuse_in_failed_transaction(&self, statement: &Statement) -> Result<()> {
        let ends = matches!(
            statement,
            Statement::Commit { .. }
                | Statement::Rollback { .. }
                | Statement::RollbackToSavepoint(_)
        );
        if self.session.transaction_status() == TransactionStatus::Failed && !ends {
            return Err(Error::new(
                sqlstate::IN_FAILED_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            ));
        }
        Ok(())
    }
}

fn no_portal(name: &str) -> Error {
    Error::new(
        sqlstate::INVALID_CURSOR_NAME,
        format!("portal \"{name}\" does not exist"),
    )
}

fn not_runnable(name: &str) -> Error {
    Error::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("portal \"{name}\" cannot be run"),
    )
}

fn protocol_error(text: String) -> Error {
    Error::new(sqlstate::PROTOCOL_VIOLATION, text)
}

fn description(prepared: &Prepared, formats: &[Format]) -> Message {
    match &prepared.columns {
        Some(schema) => row_description(schema, &prepared.column_types, formats),
        None => Message::NoData(NoData::new()),
    }
}

/// `unknown`: a client that leaves the type to the server.
const UNKNOWN: u32 = 705;
/// `oid`, held as `bigint`.
const OID: u32 = 26;
/// `oid[]`, held as `bigint[]`.
const OID_ARRAY: u32 = 1028;

/// Types that a client declared; `None` where it left the choice to the server.
fn declared_types(oids: &[u32]) -> Result<Vec<Option<SqlType>>> {
    oids.iter()
        .map(|oid| match *oid {
            0 | UNKNOWN => Ok(None),
            OID_ARRAY => Ok(Some(SqlType::Array(Box::new(SqlType::BigInt)))),
            oid => SqlType::from_pg_oid(oid).map(Some).ok_or_else(|| {
                Error::new(
                    sqlstate::UNDEFINED_OBJECT,
                    format!("type with OID {oid} cannot be used for a parameter"),
                )
            }),
        })
        .collect()
}

/// The OIDs of ParameterDescription: a declared one is told back as it was declared, then a cast
/// to a catalog type where the parameter stands (`casts`, by index), then its SQL type's.
fn wire_oids(declared: &[u32], types: &[SqlType], casts: &BTreeMap<usize, u32>) -> Vec<u32> {
    types
        .iter()
        .enumerate()
        .map(|(i, sql_type)| match (declared.get(i), casts.get(&i)) {
            (Some(oid), _) if !matches!(*oid, 0 | UNKNOWN) => *oid,
            (_, Some(oid)) => *oid,
            _ => sql_type.pg_oid(),
        })
        .collect()
}

/// Parameters that are cast to `oid` or `oid[]`: drivers send these in their own binary form,
/// though they are held as `bigint`.
fn cast_oids(statement: &Statement) -> BTreeMap<usize, u32> {
    let mut casts = BTreeMap::new();
    let mut note = |expr: &ast::Expr| {
        if let ast::Expr::Cast {
            expr, data_type, ..
        } = expr
            && let Some(index) = placeholder(expr)
        {
            match data_type.to_string().to_lowercase().as_str() {
                "oid" | "pg_catalog.oid" => casts.insert(index, OID),
                "oid[]" | "pg_catalog.oid[]" => casts.insert(index, OID_ARRAY),
                _ => None,
            };
        }
        ControlFlow::<()>::Continue(())
    };
    let walked = match statement {
        Statement::Query(query) => ast::visit_expressions(query, &mut note),
        Statement::Insert(insert) => ast::visit_expressions(insert, &mut note),
        Statement::Update(update) => ast::visit_expressions(update, &mut note),
        Statement::Delete(delete) => ast::visit_expressions(delete, &mut note),
        _ => ControlFlow::Continue(()),
    };
    assert!(walked.is_continue(), "the search never stops early");
    casts
}

fn bound_parameters(prepared: &Prepared, bind: &Bind) -> Result<Vec<Parameter>> {
    let (needed, given) = (prepared.parameter_types.len(), bind.parameters.len());
    let formats = formats(&bind.parameter_formats, given).map_err(|count| {
        protocol_error(format!(
            "bind message has {count} parameter formats but {given} parameters"
        ))
    })??;
    if needed != given {
        return Err(protocol_error(format!(
            "bind message supplies {given} parameters, but prepared statement \"{}\" requires {needed}",
            bind.statement
        )));
    }
    let mut values = Vec::with_capacity(given);
    for (i, value) in bind.parameters.iter().enumerate() {
        let sql_type = &prepared.parameter_types[i];
        let oid = prepared.parameter_oids[i];
        let value = decode_parameter(i + 1, sql_type, oid, formats[i], value.as_deref())?;
        values.push(Parameter::new(value, sql_type.clone()));
    }
    Ok(values)
}

/// One format per value from the message's list: none means text, one means all. The outer error
/// is a list of the wrong length.
fn formats(codes: &[i16], count: usize) -> std::result::Result<Result<Vec<Format>>, usize> {
    let expand = |code: i16| Format::from_code(code);
    match codes {
        [] => Ok(Ok(vec![Format::Text; count])),
        [code] => Ok(expand(*code).map(|format| vec![format; count])),
        codes if codes.len() == count => Ok(codes.iter().map(|code| expand(*code)).collect()),
        codes => Err(codes.len()),
    }
}
