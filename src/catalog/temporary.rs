//! Temporary tables and views: definitions of one session, over those that all sessions see.
//!
//! They are in no file and in no snapshot but those of their session, whose names they come before.
//! Their identifiers are a range of their own, so that whoever meets one knows what it is; their rows
//! are the session's too (`session/temporary.rs`), never the log's. A view names what it reads of them with their
//! schema (`pg_temp.t`), so that it never means a namesake.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::changes::CatalogChange;
use super::definition::{CatalogObject, Definition};

/// The schema of a session's temporary tables, as its statements name it.
pub const TEMPORARY_SCHEMA: &str = "pg_temp";

/// The name that the schema has in the catalog's tables. Other sessions' are never shown, so that all
/// can have one.
pub const TEMPORARY_SCHEMA_SHOWN: &str = "pg_temp_1";

/// A schema's name that means the session's temporary tables.
pub fn is_temporary_schema(name: &str) -> bool {
    [TEMPORARY_SCHEMA, TEMPORARY_SCHEMA_SHOWN].contains(&name)
}

/// Identifiers of temporary tables. Those of a table's index and constraint in `pg_class` are made of
/// its own by an offset, and stay apart from those of all others.
const OIDS: Range<u32> = 1 << 28..1 << 29;

/// The name of a temporary table that a definition refers to; `None`: it is none.
pub fn temporary_name(reference: &str) -> Option<&str> {
    match reference.split_once('.')? {
        (TEMPORARY_SCHEMA, name) => Some(name),
        _ => None,
    }
}

/// Definitions of temporary tables and views, by name.
pub type TemporaryTables = BTreeMap<String, Arc<CatalogObject>>;

/// What becomes of a temporary table's rows at the end of each transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnCommit {
    /// they stay until the session ends
    #[default]
    PreserveRows,
    /// the table stays, without rows
    DeleteRows,
    /// the table goes with them
    Drop,
}

/// It is a temporary table's identifier.
pub fn is_temporary(oid: u32) -> bool {
    OIDS.contains(&oid)
}

/// A fresh identifier. They begin anew with the process, since nothing of a temporary table outlives
/// it, and after all have been given out.
pub fn allocate_oid() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = OIDS.end - OIDS.start;
    OIDS.start + NEXT.fetch_add(1, Ordering::Relaxed) % count
}

impl CatalogObject {
    /// It is a temporary table.
    pub fn is_temporary(&self) -> bool {
        is_temporary(self.oid)
    }

    /// What definitions name it by.
    pub fn reference(&self) -> String {
        match self.is_temporary() {
            true => format!("{TEMPORARY_SCHEMA}.{}", self.name),
            false => self.name.clone(),
        }
    }

    /// Of a temporary table: what `ON COMMIT` was said.
    pub fn on_commit(&self) -> OnCommit {
        match &self.definition {
            Definition::Table(table) => table.on_commit,
            _ => OnCommit::default(),
        }
    }

    /// The schema that it is in.
    pub fn schema_name(&self) -> &'static str {
        match self.is_temporary() {
            true => TEMPORARY_SCHEMA,
            false => super::pg_catalog::PUBLIC_SCHEMA,
        }
    }
}

impl CatalogChange {
    /// It concerns a temporary table, and so nobody but its session.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Create(object) | Self::Replace { object, .. } => object.is_temporary(),
            Self::Drop { oid, .. } => is_temporary(*oid),
            _ => false,
        }
    }
}
