//! Temporary tables and views: the session's side.
//!
//! ```text
//!   committed definitions ──┐
//!   temporary definitions ──┴─► what a transaction sees ──commit──► temporary definitions, rows
//! ```
//!
//! Their definitions lie over those of the catalog, their rows are the changes of a transaction that
//! no commit takes along: statements, savepoints and rollbacks know no difference, and what is only
//! in memory is gone with the session, however it ends. Rows are counted against the memory of
//! queries between transactions.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};

use super::Session;
use super::StatementResult;
use super::dml::transaction::Overlays;
use super::rowset::done;
use crate::catalog::changes::{CatalogChange, CatalogTransaction};
use crate::catalog::definition::CatalogObject;
use crate::catalog::renaming::follow_all;
use crate::catalog::snapshot::{CatalogSnapshot, depends_on, kind_name, kind_of};
use crate::catalog::temporary::{OnCommit, TEMPORARY_SCHEMA, TemporaryTables, temporary_name};
use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::{CopyTarget, Statement};

/// A session's temporary tables between two transactions; their rows are in the session's rows.
pub(super) struct Temporary {
    definitions: TemporaryTables,
    /// The permanent relations that they read, which others may rename: names and identifiers.
    read: BTreeMap<String, u32>,
    /// Counts changes of the definitions.
    version: u64,
    /// The committed definitions that were looked at last, and with the session's own over them.
    seen: Option<(Arc<CatalogSnapshot>, Arc<CatalogSnapshot>)>,
    memory: MemoryReservation,
}

/// What a commit leaves of temporary tables.
pub(super) struct KeptTemporary {
    definitions: TemporaryTables,
    read: BTreeMap<String, u32>,
    rows: Arc<Overlays>,
}

impl Temporary {
    pub fn new(pool: &Arc<dyn MemoryPool>) -> Self {
        Self {
            definitions: TemporaryTables::new(),
            read: BTreeMap::new(),
            version: 0,
            seen: None,
            memory: MemoryConsumer::new("temporary tables").register(pool),
        }
    }

    /// Grows with every change of the definitions.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The committed definitions as the session sees them.
    fn over(&mut self, committed: Arc<CatalogSnapshot>) -> Arc<CatalogSnapshot> {
        if self.definitions.is_empty() {
            return committed;
        }
        if let Some((known, seen)) = &self.seen
            && Arc::ptr_eq(known, &committed)
        {
            return Arc::clone(seen);
        }
        self.follow_renamed(&committed);
        let seen = Arc::new(committed.with_temporary(self.definitions.clone()));
        self.seen = Some((committed, Arc::clone(&seen)));
        seen
    }

    /// Views go on over relations that have other names since they were looked at last.
    fn follow_renamed(&mut self, committed: &CatalogSnapshot) {
        let is_same = |(name, oid): (&String, &u32)| {
            let found = committed.permanent(name);
            found.is_some_and(|object| object.oid == *oid)
        };
        if self.read.iter().all(is_same) {
            return;
        }
        let renamed: Vec<(String, String)> = self
            .read
            .iter()
            .filter_map(|(name, oid)| {
                let object = committed.object_by_oid(*oid)?;
                (object.name != *name).then(|| (name.clone(), object.name.clone()))
            })
            .collect();
        // By a name that none has, since two relations may have exchanged theirs.
        let aside = |name: &str| format!("renamed.{name}");
        for (name, _) in &renamed {
            follow_all(&mut self.definitions, name, &aside(name));
        }
        for (name, new_name) in &renamed {
            follow_all(&mut self.definitions, &aside(name), new_name);
        }
        self.read = permanent_reads(&self.definitions, committed);
        if !renamed.is_empty() {
            self.version += 1;
        }
    }
}

/// The permanent relations that temporary views read, as far as they are there.
fn permanent_reads(
    definitions: &TemporaryTables,
    catalog: &CatalogSnapshot,
) -> BTreeMap<String, u32> {
    let views = definitions.values();
    let read = views.flat_map(|view| depends_on(&view.definition));
    let found = read.filter_map(|name| Some((name.clone(), catalog.permanent(name)?.oid)));
    found.collect()
}

impl Session {
    /// The newest committed definitions, with the session's temporary tables.
    pub(super) fn newest_definitions(&mut self) -> Arc<CatalogSnapshot> {
        self.temporary.over(self.parts.catalog.snapshot())
    }

    /// What a commit leaves of temporary tables, by what `ON COMMIT` said. 53200 if their rows are
    /// too many to keep. `rows`: as the transaction leaves them; `None`: as they were.
    pub(super) fn kept_by_commit(
        &mut self,
        catalog: &mut CatalogTransaction,
        rows: Option<Arc<Overlays>>,
    ) -> Result<KeptTemporary> {
        let mut definitions = catalog.take_temporary();
        definitions.retain(|_, table| table.on_commit() != OnCommit::Drop);
        drop_views_without_tables(&mut definitions);
        let read = permanent_reads(&definitions, &catalog.snapshot());
        let keeps_rows: HashMap<u32, bool> = definitions
            .values()
            .map(|table| (table.oid, table.on_commit() == OnCommit::PreserveRows))
            .collect();
        let keeps = |oid: &u32| keeps_rows.get(oid).copied().unwrap_or(false);
        let mut rows = rows.unwrap_or_else(|| self.rows.temporary());
        if !rows.keys().all(keeps) {
            Arc::make_mut(&mut rows).retain(|oid, _| keeps(oid));
        }
        let bytes = rows.values().map(|table| table.bytes()).sum();
        self.temporary.memory.try_resize(bytes)?;
        Ok(KeptTemporary {
            definitions,
            read,
            rows,
        })
    }

    /// The commit worked.
    pub(super) fn keep_temporary(&mut self, kept: KeptTemporary) {
        self.rows.keep_temporary(kept.rows);
        if kept.definitions != self.temporary.definitions {
            self.temporary.definitions = kept.definitions;
            self.temporary.read = kept.read;
            self.temporary.version += 1;
            self.temporary.seen = None;
        }
    }

    /// `DISCARD TEMP`
    pub(super) fn discard_temporary(&mut self) -> Result<StatementResult> {
        let tables = self.definitions().temporary().clone();
        for (name, table) in tables {
            let oid = table.oid;
            self.stage(CatalogChange::Drop { name, oid }, None)?;
        }
        Ok(done("DISCARD TEMP"))
    }

    /// All of them go at once, outside any transaction.
    pub(super) fn forget_temporary(&mut self) {
        self.keep_temporary(KeptTemporary {
            definitions: TemporaryTables::new(),
            read: BTreeMap::new(),
            rows: Arc::default(),
        });
        self.temporary.memory.free();
    }

    /// Statements of ours name relations without a schema from here on: one that said `public` means
    /// what is permanent.
    pub(super) fn settle_names(&self, statement: &Statement) -> Option<Statement> {
        if matches!(statement, Statement::Query(_)) {
            return None;
        }
        let catalog = self.definitions();
        let mut settled = statement.clone();
        let mut is_changed = false;
        for name in target_names(&mut settled)? {
            // An object may have such a name itself.
            let is_own = catalog.permanent(name).is_some();
            let Some((schema, bare)) = name.split_once('.').filter(|_| !is_own) else {
                continue;
            };
            match schema {
                TEMPORARY_SCHEMA if catalog.temporary().contains_key(bare) => {}
                crate::catalog::pg_catalog::PUBLIC_SCHEMA => {
                    if catalog.temporary().contains_key(bare) {
                        self.scope.leave_out_temporary();
                    }
                }
                _ => continue,
            }
            *name = bare.to_owned();
            is_changed = true;
        }
        is_changed.then_some(settled)
    }
}

/// The relations that a statement of ours is about, where these may be temporary tables.
fn target_names(statement: &mut Statement) -> Option<Vec<&mut String>> {
    Some(match statement {
        Statement::Drop { names, .. } | Statement::Truncate(names) => names.iter_mut().collect(),
        Statement::AlterRelation { name, .. }
        | Statement::AlterOptions { name, .. }
        | Statement::Rename { name, .. }
        | Statement::Comment { name, .. }
        | Statement::ShowCreate(_, name)
        | Statement::Describe(name) => vec![name],
        Statement::Copy(copy) => match &mut copy.target {
            CopyTarget::Relation(name, _) => vec![name],
            CopyTarget::Query(_) => return None,
        },
        _ => return None,
    })
}

/// Views over tables that a commit dropped go along.
fn drop_views_without_tables(definitions: &mut TemporaryTables) {
    loop {
        let names: BTreeSet<String> = definitions.keys().cloned().collect();
        let before = definitions.len();
        definitions.retain(|_, object| {
            let mut reads = depends_on(&object.definition).filter_map(|read| temporary_name(read));
            reads.all(|read| names.contains(read))
        });
        if definitions.len() == before {
            return;
        }
    }
}

/// What lasts cannot be made of a temporary table.
pub(super) fn refuse_temporary(object: &CatalogObject, what: &str) -> Result<()> {
    match object.is_temporary() {
        false => Ok(()),
        true => Err(Error::new(
            sqlstate::WRONG_OBJECT_TYPE,
            format!(
                "cannot {what} temporary {} \"{}\"",
                kind_name(kind_of(&object.definition)),
                object.name
            ),
        )
        .hint("Create a table that stays: CREATE TABLE … .")),
    }
}
