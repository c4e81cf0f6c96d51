//! The transaction block as a state machine: pure, knows no rows and no definitions.
//!
//! ```text
//!            BEGIN                 error                 ROLLBACK TO
//!   Idle ───────────► Explicit ───────────► failed ───────────────► Explicit
//!     │ begin_implicit   ▲ COMMIT/ROLLBACK ─► Idle
//!     └──────► Implicit ─┘ BEGIN
//! ```
//!
//! An implicit block is what several statements of one simple-query message run in.

use crate::error::{Error, Result, sqlstate};
use crate::session::TransactionStatus;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Idle,
    Implicit,
    Explicit,
}

/// Where a session stands.
#[derive(Debug)]
pub(super) struct Block {
    kind: Kind,
    is_failed: bool,
    savepoints: Vec<String>,
}

/// What `BEGIN` means here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// a block opens; a transaction starts
    Start,
    /// the implicit block's transaction goes on as an explicit one
    Adopt,
    /// a block is open already: a warning
    AlreadyOpen,
}

/// What `COMMIT` or `ROLLBACK` means here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// apply
    Commit,
    /// take back
    Rollback,
    /// no block is open: a warning
    NotOpen,
}

impl Block {
    pub fn new() -> Self {
        Self {
            kind: Kind::Idle,
            is_failed: false,
            savepoints: Vec::new(),
        }
    }

    pub fn status(&self) -> TransactionStatus {
        match (self.kind, self.is_failed) {
            (Kind::Explicit, true) => TransactionStatus::Failed,
            (Kind::Explicit, false) => TransactionStatus::Open,
            _ => TransactionStatus::Idle,
        }
    }

    pub fn is_idle(&self) -> bool {
        self.kind == Kind::Idle
    }

    pub fn is_explicit(&self) -> bool {
        self.kind == Kind::Explicit
    }

    /// 25P02 in a failed block.
    pub fn check_usable(&self) -> Result<()> {
        if !self.is_failed {
            return Ok(());
        }
        Err(Error::new(
            sqlstate::IN_FAILED_TRANSACTION,
            "current transaction is aborted, commands ignored until end of transaction block",
        )
        .hint("Say ROLLBACK, or ROLLBACK TO a savepoint."))
    }

    pub fn begin(&mut self) -> Begin {
        let outcome = match self.kind {
            Kind::Idle => Begin::Start,
            Kind::Implicit => Begin::Adopt,
            Kind::Explicit => return Begin::AlreadyOpen,
        };
        self.kind = Kind::Explicit;
        outcome
    }

    /// Returns whether a block was opened: inside an explicit block it is not.
    pub fn begin_implicit(&mut self) -> bool {
        if self.kind == Kind::Idle {
            self.kind = Kind::Implicit;
            return true;
        }
        false
    }

    pub fn end_implicit(&mut self, is_failed: bool) -> End {
        if self.kind != Kind::Implicit {
            return End::NotOpen;
        }
        let is_rolled_back = is_failed || self.is_failed;
        *self = Self::new();
        if is_rolled_back {
            End::Rollback
        } else {
            End::Commit
        }
    }

    /// `COMMIT`; in a failed block it rolls back.
    pub fn commit(&mut self) -> End {
        let outcome = match (self.kind, self.is_failed) {
            (Kind::Idle, _) => End::NotOpen,
            (_, true) => End::Rollback,
            (_, false) => End::Commit,
        };
        *self = Self::new();
        outcome
    }

    pub fn rollback(&mut self) -> End {
        let outcome = match self.kind {
            Kind::Idle => End::NotOpen,
            _ => End::Rollback,
        };
        *self = Self::new();
        outcome
    }

    /// A statement of the block failed.
    pub fn fail(&mut self) {
        if self.kind != Kind::Idle {
            self.is_failed = true;
        }
    }

    /// Opens a savepoint; returns its depth, from 0.
    pub fn savepoint(&mut self, name: &str) -> Result<usize> {
        self.require_explicit("SAVEPOINT")?;
        self.check_usable()?;
        self.savepoints.push(name.to_owned());
        Ok(self.savepoints.len() - 1)
    }

    /// Forgets a savepoint and those after it; returns its depth.
    pub fn release(&mut self, name: &str) -> Result<usize> {
        self.require_explicit("RELEASE SAVEPOINT")?;
        self.check_usable()?;
        let depth = self.depth_of(name)?;
        self.savepoints.truncate(depth);
        Ok(depth)
    }

    /// Goes back to a savepoint, which stays; mends a failed block. Returns its depth.
    pub fn rollback_to(&mut self, name: &str) -> Result<usize> {
        self.require_explicit("ROLLBACK TO SAVEPOINT")?;
        let depth = self.depth_of(name)?;
        self.savepoints.truncate(depth + 1);
        self.is_failed = false;
        Ok(depth)
    }

    fn require_explicit(&self, what: &str) -> Result<()> {
        if self.is_explicit() {
            return Ok(());
        }
        Err(Error::new(
            sqlstate::NO_ACTIVE_TRANSACTION,
            format!("{what} can only be used in transaction blocks"),
        ))
    }

    fn depth_of(&self, name: &str) -> Result<usize> {
        self.savepoints
            .iter()
            .rposition(|s| s == name)
            .ok_or_else(|| Error::new("3B001", format!("savepoint \"{name}\" does not exist")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_opens_fails_and_ends() {
        let mut block = Block::new();
        assert_eq!(block.commit(), End::NotOpen);
        assert_eq!(block.begin(), Begin::Start);
        assert_eq!(block.begin(), Begin::AlreadyOpen);
        assert_eq!(block.status(), TransactionStatus::Open);
        block.fail();
        assert_eq!(block.status(), TransactionStatus::Failed);
        let error = block.check_usable().unwrap_err();
        assert_eq!(error.sqlstate(), "25P02");
        assert_eq!(block.commit(), End::Rollback);
        assert_eq!(block.status(), TransactionStatus::Idle);
        assert!(block.check_usable().is_ok());
    }

    #[test]
    fn a_failure_outside_a_block_leaves_nothing() {
        let mut block = Block::new();
        block.fail();
        assert!(block.check_usable().is_ok());
        assert_eq!(block.status(), TransactionStatus::Idle);
    }

    #[test]
    fn an_implicit_block_can_become_explicit() {
        let mut block = Block::new();
        assert!(block.begin_implicit());
        assert_eq!(block.status(), TransactionStatus::Idle);
        assert_eq!(block.begin(), Begin::Adopt);
        assert_eq!(block.end_implicit(false), End::NotOpen);
        assert!(!block.begin_implicit());
        assert_eq!(block.commit(), End::Commit);
        block.begin_implicit();
        assert_eq!(block.end_implicit(true), End::Rollback);
        block.begin_implicit();
        assert_eq!(block.end_implicit(false), End::Commit);
    }

    #[test]
    fn savepoints_nest_shadow_and_mend() {
        let mut block = Block::new();
        assert_eq!(block.savepoint("a").unwrap_err().sqlstate(), "25P01");
        block.begin();
        assert_eq!(block.savepoint("a").unwrap(), 0);
        assert_eq!(block.savepoint("b").unwrap(), 1);
        assert_eq!(block.savepoint("a").unwrap(), 2);
        block.fail();
        assert!(block.savepoint("c").is_err());
        assert_eq!(block.rollback_to("a").unwrap(), 2);
        assert_eq!(block.status(), TransactionStatus::Open);
        assert_eq!(block.release("a").unwrap(), 2);
        assert_eq!(block.rollback_to("a").unwrap(), 0);
        assert_eq!(block.rollback_to("b").unwrap_err().sqlstate(), "3B001");
    }
}
