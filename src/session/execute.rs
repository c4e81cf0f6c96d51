//! One place that says which part of the session runs which statement.

use super::access::identity::{ROLE, SESSION_AUTHORIZATION};
use super::rowset::{done, text_rows};
use super::{Parameter, Session, StatementResult};
use crate::catalog::pg_catalog::notifications::ChannelAction;
use crate::error::{Error, Result};
use crate::sql::statement::{Discarded, Statement};

impl Session {
    /// The names of this statement: its transaction's definitions, a fresh reading context.
    pub(super) fn enter_scope(&mut self) {
        let newest = self.newest_definitions();
        let snapshot = match &mut self.work {
            Some(work) => {
                work.catalog.refresh(newest);
                work.catalog.snapshot()
            }
            None => newest,
        };
        self.scope.enter(snapshot);
        self.enter_subject();
        self.rows.enter();
    }

    /// Runs a statement inside the open transaction, and keeps what is of the audit trail.
    pub(super) async fn dispatch(
        &mut self,
        statement: &Statement,
        parameters: &[Parameter],
    ) -> Result<StatementResult> {
        self.enter_scope();
        let settled = self.settle_names(statement);
        let statement = settled.as_ref().unwrap_or(statement);
        // Boxed, as what plans and runs queries is.
        let result = Box::pin(self.dispatch_unheard(statement, parameters)).await;
        self.record_statement(statement, result.as_ref().err());
        result
    }

    async fn dispatch_unheard(
        &mut self,
        statement: &Statement,
        parameters: &[Parameter],
    ) -> Result<StatementResult> {
        if let Some(what) = writes(statement) {
            self.check_writable(&what).or_else(|refused| {
                match self.changes_temporary(statement) {
                    true => Ok(()),
                    false => Err(refused),
                }
            })?;
        }
        self.authorize(statement)?;
        // Boxed: what plans and runs queries is large, and all of it would be in one frame.
        match statement {
            Statement::Query(query) => Box::pin(self.query(query, parameters)).await,
            Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Truncate(_) => Box::pin(self.change(statement, parameters)).await,
            Statement::Copy(copy) => self.copy(copy).await,
            Statement::Explain(explained) => self.explain(explained, parameters).await,
            Statement::Subscribe(subscribe) => self.subscribe(subscribe).await,
            Statement::DeclareCursor { .. } => {
                Box::pin(self.declare_cursor(statement, parameters)).await
            }
            Statement::Execute { name, arguments } => {
                Box::pin(self.execute_prepared(name, arguments)).await
            }
            _ => Box::pin(self.dispatch_command(statement)).await,
        }
    }

    /// The statements without parameters.
    async fn dispatch_command(&mut self, statement: &Statement) -> Result<StatementResult> {
        match statement {
            Statement::CreateStream(create) => self.create_stream(create),
            Statement::CreateTable(create) => self.create_table(create).await,
            Statement::CreateMaterializedView(create) => {
                self.create_materialized_view(create).await
            }
            Statement::CreateView(create) => self.create_view(create).await,
            Statement::CreateSink(create) => self.create_sink(create),
            Statement::CreateIndex(create) => self.create_index(create).await,
            Statement::CreateFunction(create) => self.create_function(create).await,
            Statement::DropFunction {
                functions,
                if_exists,
                cascade,
            } => self.drop_functions(functions, *if_exists, *cascade),
            Statement::CreateAggregate(create) => self.create_aggregate(create).await,
            Statement::DropAggregate {
                aggregates,
                if_exists,
                cascade,
            } => self.drop_aggregates(aggregates, *if_exists, *cascade),
            Statement::CreateSecret {
                name,
                value,
                if_not_exists,
            } => self.create_secret(name, value, *if_not_exists),
            Statement::AlterSecret { name, value } => self.alter_secret(name, value),
            Statement::CreateRecoverySchedule(create) => self.create_schedule(create),
            Statement::DropRecoverySchedule { names, if_exists } => {
                self.drop_schedules(names, *if_exists)
            }
            Statement::Drop {
                kind,
                names,
                if_exists,
                cascade,
            } => self.drop_objects(*kind, names, *if_exists, *cascade),
            Statement::AlterOptions {
                kind,
                name,
                set,
                reset,
            } => self.alter_options(*kind, name, set, reset).await,
            Statement::Rename {
                kind,
                name,
                new_name,
                if_exists,
            } => self.rename(*kind, name, new_name, *if_exists),
            Statement::Comment {
                kind,
                name,
                column,
                comment,
            } => self.comment(*kind, name, column.as_deref(), comment.as_deref()),
            Statement::AlterRelation {
                kind,
                name,
                if_exists,
                actions,
            } => self.alter_relation(*kind, name, *if_exists, actions).await,
            Statement::Start(target, within) => self.start_running(target.as_ref(), *within).await,
            Statement::Stop(target, within) => self.stop_running(target.as_ref(), *within).await,
            Statement::Refresh(view) => self.refresh(view).await,
            Statement::Flush => self.flush().await,
            Statement::Wait(view, within) => self.wait_for(view, *within).await,
            Statement::Access(access) => self.change_access(access).await,
            Statement::Recovery(recovery) => Box::pin(self.recover(recovery)).await,
            Statement::ExplainReplace(create) => {
                self.check_readable(&create.query).await?;
                self.explain_replace(create).await
            }
            Statement::ExplainMaterializedView { name, analyze } => {
                self.explain_view(name, *analyze).await
            }
            _ => self.dispatch_session_command(statement).await,
        }
    }

    /// The statements about the session itself.
    async fn dispatch_session_command(&mut self, statement: &Statement) -> Result<StatementResult> {
        match statement {
            Statement::ShowObjects(kind) => Ok(self.show_objects(*kind)),
            Statement::ShowCreate(kind, name) => self.show_create(*kind, name),
            Statement::ShowFunctions => Ok(self.show_functions()),
            Statement::ShowCreateFunction(wanted) => self.show_create_function(wanted),
            Statement::ShowOptions(name) => self.show_options(name),
            Statement::Describe(name) => self.describe_relation(name),
            Statement::ShowParameter(name) => self.show_parameter(name),
            Statement::SetParameter { name, value, local } => {
                if *local && !self.block.is_explicit() {
                    self.warn("25P01", "SET LOCAL can only be used in transaction blocks");
                }
                self.check_role_change(name, value.as_deref())?;
                if name == SESSION_AUTHORIZATION {
                    // Another user begins as himself.
                    self.settings.set(ROLE, None, *local)?;
                }
                self.settings.set(name, value.as_deref(), *local)?;
                Ok(done("SET"))
            }
            Statement::ResetParameter(name) if name.eq_ignore_ascii_case("all") => {
                self.settings.reset_all();
                Ok(done("RESET"))
            }
            Statement::ResetParameter(name) => {
                self.settings.reset(name)?;
                Ok(done("RESET"))
            }
            Statement::Prepare { name, statement } => self.prepare(name, statement),
            Statement::Deallocate(name) => self.deallocate(name.as_deref()),
            Statement::Fetch { name, direction } => self.fetch(name, *direction).await,
            Statement::Move { name, direction } => self.move_cursor(name, *direction).await,
            Statement::CloseCursor(name) => self.close_cursor(name.as_deref()),
            Statement::Discard(Discarded::All) => self.discard(),
            Statement::Discard(Discarded::Temporary) => self.discard_temporary(),
            Statement::SetTransaction { modes, is_session } => {
                self.set_transaction(*modes, *is_session)
            }
            Statement::Listen(channel) => {
                self.outbox.say(ChannelAction::Listen(channel.clone()));
                Ok(done("LISTEN"))
            }
            Statement::Unlisten(channel) => {
                self.outbox.say(ChannelAction::Unlisten(channel.clone()));
                Ok(done("UNLISTEN"))
            }
            Statement::Notify { channel, payload } => {
                self.outbox.notify(channel, payload)?;
                Ok(done("NOTIFY"))
            }
            Statement::NoOperation(tag) => Ok(done(*tag)),
            _ => Err(Error::internal("a statement without a place that runs it")),
        }
    }

    fn show_parameter(&self, name: &str) -> Result<StatementResult> {
        if name.eq_ignore_ascii_case("all") {
            let rows = self
                .settings
                .all()
                .into_iter()
                .map(|s| vec![Some(s.name), Some(s.value), Some(s.description.to_owned())]);
            return Ok(text_rows(&["name", "setting", "description"], rows, "SHOW"));
        }
        let value = self.settings.require(name)?;
        let column = self.settings.spelling(name);
        Ok(text_rows(&[&column], [vec![Some(value)]], "SHOW"))
    }

    fn discard(&mut self) -> Result<StatementResult> {
        if self.block.is_explicit() {
            return Err(Error::new(
                crate::error::sqlstate::ACTIVE_TRANSACTION,
                "DISCARD ALL cannot run inside a transaction block",
            ));
        }
        self.forget_settings();
        self.discard_temporary()?;
        Ok(done("DISCARD ALL"))
    }

    /// Back to a new session, outside any transaction.
    pub(crate) fn forget_everything(&mut self) {
        self.forget_settings();
        self.forget_temporary();
    }

    /// Parameters, prepared statements, cursors, notices.
    fn forget_settings(&mut self) {
        self.settings.reset_all();
        self.prepared.clear();
        self.cursors.get_mut().clear();
        self.notices.clear();
        self.backend.mailbox().unlisten(None);
        let locks = self.parts.backends.advisory_locks();
        locks.release_session(self.backend.pid());
    }
}

/// The name of a statement that changes rows or definitions.
fn writes(statement: &Statement) -> Option<String> {
    Some(match statement {
        Statement::Insert(_) => "INSERT".to_owned(),
        Statement::Update(_) => "UPDATE".to_owned(),
        Statement::Delete(_) => "DELETE".to_owned(),
        Statement::Truncate(_) => "TRUNCATE TABLE".to_owned(),
        Statement::Copy(copy) if copy.from_stdin => "COPY FROM".to_owned(),
        Statement::CreateStream(_) => "CREATE STREAM".to_owned(),
        Statement::CreateTable(_) => "CREATE TABLE".to_owned(),
        Statement::CreateMaterializedView(_) => "CREATE MATERIALIZED VIEW".to_owned(),
        Statement::CreateView(_) => "CREATE VIEW".to_owned(),
        Statement::CreateSink(_) => "CREATE SINK".to_owned(),
        Statement::CreateFunction(_) => "CREATE FUNCTION".to_owned(),
        Statement::DropFunction { .. } => "DROP FUNCTION".to_owned(),
        Statement::CreateSecret { .. } => "CREATE SECRET".to_owned(),
        Statement::CreateRecoverySchedule(_) => "CREATE RECOVERY SCHEDULE".to_owned(),
        Statement::DropRecoverySchedule { .. } => "DROP RECOVERY SCHEDULE".to_owned(),
        Statement::AlterSecret { .. } => "ALTER SECRET".to_owned(),
        Statement::Drop { .. } => "DROP".to_owned(),
        Statement::AlterOptions { .. }
        | Statement::AlterRelation { .. }
        | Statement::Rename { .. } => "ALTER".to_owned(),
        Statement::Comment { .. } => "COMMENT".to_owned(),
        Statement::CreateIndex(_) => "CREATE INDEX".to_owned(),
        Statement::CreateAggregate(_) => "CREATE AGGREGATE".to_owned(),
        Statement::DropAggregate { .. } => "DROP AGGREGATE".to_owned(),
        Statement::Access(access) => access.tag(),
        Statement::Recovery(recovery) if recovery.changes() => recovery.tag().to_owned(),
        _ => return None,
    })
}
