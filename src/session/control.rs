//! `BEGIN`, `COMMIT`, `ROLLBACK` and savepoints.

use super::block::{Begin, End};
use super::rowset::done;
use super::{Session, StatementResult};
use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::Statement;

/// Statements that are taken in a failed block too, and never start a transaction by themselves.
pub(super) fn is_transaction_control(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Begin { .. }
            | Statement::Commit { .. }
            | Statement::Rollback { .. }
            | Statement::Savepoint(_)
            | Statement::ReleaseSavepoint(_)
            | Statement::RollbackToSavepoint(_)
    )
}

impl Session {
    pub(super) async fn control_transaction(
        &mut self,
        statement: &Statement,
    ) -> Result<StatementResult> {
        match statement {
            Statement::Begin { read_only } => self.begin(*read_only),
            Statement::Commit { chain } => {
                let chained = self.chained(*chain)?;
                let result = self.commit().await?;
                self.begin_chained(chained)?;
                Ok(result)
            }
            Statement::Rollback { chain } => {
                let chained = self.chained(*chain)?;
                let result = self.rollback();
                self.begin_chained(chained)?;
                Ok(result)
            }
            Statement::Savepoint(name) => {
                self.block.savepoint(name)?;
                self.settings.mark();
                self.mark_work()?;
                Ok(done("SAVEPOINT"))
            }
            Statement::ReleaseSavepoint(name) => {
                let depth = self.block.release(name)?;
                self.settings.release_marks(depth + 1);
                self.release_work(depth);
                Ok(done("RELEASE"))
            }
            Statement::RollbackToSavepoint(name) => {
                let depth = self.block.rollback_to(name)?;
                self.settings.rollback_to_mark(depth + 1);
                self.rollback_work_to(depth)?;
                Ok(done("ROLLBACK"))
            }
            _ => Err(Error::internal("not a transaction statement")),
        }
    }

    fn begin(&mut self, read_only: bool) -> Result<StatementResult> {
        self.block.check_usable()?;
        let read_only = read_only || self.settings.is_on("default_transaction_read_only");
        match self.block.begin() {
            Begin::Start => {
                self.begin_work();
                self.tell_read_only(read_only)?;
            }
            Begin::Adopt => self.tell_read_only(read_only)?,
            Begin::AlreadyOpen => self.warn(
                sqlstate::ACTIVE_TRANSACTION,
                "there is already a transaction in progress",
            ),
        }
        Ok(done("BEGIN"))
    }

    /// `SHOW transaction_read_only` says it, until the transaction ends.
    fn tell_read_only(&self, read_only: bool) -> Result<()> {
        if read_only {
            self.settings
                .set("transaction_read_only", Some("on"), true)?;
        }
        Ok(())
    }

    async fn commit(&mut self) -> Result<StatementResult> {
        match self.block.commit() {
            End::Commit => {
                self.commit_work().await?;
                Ok(done("COMMIT"))
            }
            End::Rollback => {
                self.rollback_work();
                Ok(done("ROLLBACK"))
            }
            End::NotOpen => {
                self.warn_not_open();
                Ok(done("COMMIT"))
            }
        }
    }

    /// For `AND CHAIN`: whether the next transaction is read-only, as the present one is.
    fn chained(&self, chain: bool) -> Result<Option<bool>> {
        if !chain {
            return Ok(None);
        }
        if !self.block.is_explicit() {
            return Err(Error::new(
                sqlstate::NO_ACTIVE_TRANSACTION,
                "AND CHAIN can only be used in transaction blocks",
            ));
        }
        Ok(Some(self.settings.is_on("transaction_read_only")))
    }

    fn begin_chained(&mut self, read_only: Option<bool>) -> Result<()> {
        match read_only {
            Some(read_only) => self.begin(read_only).map(drop),
            None => Ok(()),
        }
    }

    fn rollback(&mut self) -> StatementResult {
        match self.block.rollback() {
            End::NotOpen => self.warn_not_open(),
            End::Commit | End::Rollback => self.rollback_work(),
        }
        done("ROLLBACK")
    }

    fn warn_not_open(&mut self) {
        self.warn(
            sqlstate::NO_ACTIVE_TRANSACTION,
            "there is no transaction in progress",
        );
    }

    /// 25006 in a read-only transaction.
    pub(super) fn check_writable(&self, what: &str) -> Result<()> {
        // A statement outside a block begins its transaction with the default.
        let is_read_only = self.settings.is_on("transaction_read_only")
            || !self.block.is_explicit() && self.settings.is_on("default_transaction_read_only");
        if !is_read_only {
            return Ok(());
        }
        Err(Error::new(
            "25006",
            format!("cannot execute {what} in a read-only transaction"),
        ))
    }
}
