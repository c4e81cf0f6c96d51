//! What the connection loop needs of a session.
//!
//! [`Session`] is the one implementation of the running server; the trait lets the protocol be
//! tested over an in-memory socket with a scripted session.

use std::future::Future;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;

use crate::catalog::pg_catalog::backends::Backend;
use crate::error::Result;
use crate::session::{
    Notice, Parameter, Session, StatementDescription, StatementResult, TransactionStatus,
};
use crate::sql::statement::Statement;
use crate::types::SqlType;

/// See the methods of the same names of [`Session`].
#[allow(missing_docs)]
pub(super) trait SessionPort: Send {
    fn parse(&self, sql: &str) -> Result<Vec<(Statement, String)>>;
    fn describe(
        &mut self,
        statement: &Statement,
        declared: &[Option<SqlType>],
    ) -> impl Future<Output = Result<StatementDescription>> + Send;
    fn execute(
        &mut self,
        statement: &Statement,
        parameters: &[Parameter],
    ) -> impl Future<Output = Result<StatementResult>> + Send;
    fn announce(&mut self, text: &str);
    fn definitions_version(&self) -> u64;
    fn know_prepared(&mut self, name: &str, statement: &Statement);
    fn forget_prepared(&mut self, name: Option<&str>);
    fn cursor_columns(&mut self, name: &str) -> Option<SchemaRef>;
    fn close_portal(&mut self, cursor: &str);
    fn begin_implicit(&mut self);
    fn end_implicit(&mut self, failed: bool) -> impl Future<Output = Result<()>> + Send;
    fn fail_transaction(&mut self);
    fn rows_were_read(&mut self);
    fn transaction_status(&self) -> TransactionStatus;
    fn take_notices(&mut self) -> Vec<Notice>;
    fn take_parameter_changes(&mut self) -> Vec<(String, String)>;
    fn set_startup_parameter(&mut self, name: &str, value: &str) -> Result<()>;
    fn parameter(&self, name: &str) -> Option<String>;
    fn backend(&self) -> &Arc<Backend>;
}

impl SessionPort for Session {
    fn parse(&self, sql: &str) -> Result<Vec<(Statement, String)>> {
        Session::parse(self, sql)
    }

    async fn describe(
        &mut self,
        statement: &Statement,
        declared: &[Option<SqlType>],
    ) -> Result<StatementDescription> {
        Session::describe(self, statement, declared).await
    }

    async fn execute(
        &mut self,
        statement: &Statement,
        parameters: &[Parameter],
    ) -> Result<StatementResult> {
        Session::execute(self, statement, parameters).await
    }

    fn announce(&mut self, text: &str) {
        Session::announce(self, text);
    }

    fn definitions_version(&self) -> u64 {
        Session::definitions_version(self)
    }

    fn know_prepared(&mut self, name: &str, statement: &Statement) {
        Session::know_prepared(self, name, statement);
    }

    fn forget_prepared(&mut self, name: Option<&str>) {
        Session::forget_prepared(self, name);
    }

    fn cursor_columns(&mut self, name: &str) -> Option<SchemaRef> {
        Session::cursor_columns(self, name)
    }

    fn close_portal(&mut self, cursor: &str) {
        Session::close_portal(self, cursor);
    }

    fn begin_implicit(&mut self) {
        Session::begin_implicit(self);
    }

    async fn end_implicit(&mut self, failed: bool) -> Result<()> {
        Session::end_implicit(self, failed).await
    }

    fn fail_transaction(&mut self) {
        Session::fail_transaction(self);
    }

    fn rows_were_read(&mut self) {
        Session::rows_were_read(self);
    }

    fn transaction_status(&self) -> TransactionStatus {
        Session::transaction_status(self)
    }

    fn take_notices(&mut self) -> Vec<Notice> {
        Session::take_notices(self)
    }

    fn take_parameter_changes(&mut self) -> Vec<(String, String)> {
        Session::take_parameter_changes(self)
    }

    fn set_startup_parameter(&mut self, name: &str, value: &str) -> Result<()> {
        Session::set_startup_parameter(self, name, value)
    }

    fn parameter(&self, name: &str) -> Option<String> {
        Session::parameter(self, name)
    }

    fn backend(&self) -> &Arc<Backend> {
        Session::backend(self)
    }
}
