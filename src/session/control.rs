//! `BEGIN`, `COMMIT`, `ROLLBACK` and savepoints.

use super::block::{Begin, End};
use super::rowset::done;
use super::settings::ISOLATION_LEVELS;
use super::{Session, StatementResult};
use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::{Statement, TransactionModes};

/// Statements that are taken in a failed block too, and never start a transaction by themselves.
pub(super) fn is_transaction_control(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Begin(_)
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
            Statement::Begin(modes) => self.begin(*modes),
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

    fn begin(&mut self, mut modes: TransactionModes) -> Result<StatementResult> {
        self.block.check_usable()?;
        if modes.read_only.is_none() && self.settings.is_on("default_transaction_read_only") {
            modes.read_only = Some(true);
        }
        match self.block.begin() {
            Begin::Start => {
                self.begin_work();
                self.tell_modes(modes, "transaction_", true)?;
            }
            Begin::Adopt => self.tell_modes(modes, "transaction_", true)?,
            Begin::AlreadyOpen => self.warn(
                sqlstate::ACTIVE_TRANSACTION,
                "there is already a transaction in progress",
            ),
        }
        Ok(done("BEGIN"))
    }

    /// `SET TRANSACTION` and `SET SESSION CHARACTERISTICS`.
    pub(super) fn set_transaction(
        &mut self,
        modes: TransactionModes,
        is_session: bool,
    ) -> Result<StatementResult> {
        if is_session {
            self.tell_modes(modes, "default_transaction_", false)?;
        } else if self.block.is_explicit() {
            self.tell_modes(modes, "transaction_", true)?;
        } else {
            self.warn(
                sqlstate::NO_ACTIVE_TRANSACTION,
                "SET TRANSACTION can only be used in transaction blocks",
            );
        }
        Ok(done("SET"))
    }

    /// The parameters say it: `SHOW transaction_read_only`, until the transaction ends.
    fn tell_modes(&self, modes: TransactionModes, prefix: &str, is_local: bool) -> Result<()> {
        let on = |is_on: bool| if is_on { "on" } else { "off" };
        for (name, value) in [
            ("isolation", modes.isolation),
            ("read_only", modes.read_only.map(on)),
            ("deferrable", modes.deferrable.map(on)),
        ] {
            if value.is_some() {
                let name = format!("{prefix}{name}");
                self.settings.set(&name, value, is_local)?;
            }
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

    /// For `AND CHAIN`: the modes of the next transaction are those of the present one.
    fn chained(&self, chain: bool) -> Result<Option<TransactionModes>> {
        if !chain {
            return Ok(None);
        }
        if !self.block.is_explicit() {
            return Err(Error::new(
                sqlstate::NO_ACTIVE_TRANSACTION,
                "AND CHAIN can only be used in transaction blocks",
            ));
        }
        let isolation = self.settings.get("transaction_isolation");
        let mut levels = ISOLATION_LEVELS.iter().copied();
        Ok(Some(TransactionModes {
            isolation: levels.find(|level| isolation.as_deref() == Some(level)),
            read_only: Some(self.settings.is_on("transaction_read_only")),
            deferrable: Some(self.settings.is_on("transaction_deferrable")),
        }))
    }

    fn begin_chained(&mut self, modes: Option<TransactionModes>) -> Result<()> {
        match modes {
            Some(modes) => self.begin(modes).map(drop),
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
