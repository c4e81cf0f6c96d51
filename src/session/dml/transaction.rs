//! A transaction's rows: what it sees of the tables, what it changed, and how it commits.
//!
//! Each statement sees what was committed when it began, and the transaction's own changes, as
//! READ COMMITTED in PostgreSQL. The keys that its statements change are locked until it ends; where
//! none are taken (COPY, rows without a key), a commit fails with 40001 if another one changed the same
//! keys meanwhile. Changes to tables wait in memory as sorted layers; rows of
//! streams go to the log as they come and count only with the commit.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::catalog::definition::CatalogObject;
use crate::catalog::temporary::is_temporary;
use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, Result, sqlstate};
use crate::log::stored::StoredWriter;
use crate::log::tables::layout::TableLayout;
use crate::log::tables::locks::{Conflict, LockHolder, LockStrength};
use crate::log::tables::overlay::{Layer, Overlay};
use crate::log::tables::view::TablesView;
use crate::log::tables::{TableChanges, TableStore, changed_meanwhile};
use crate::log::{LogMark, LogPosition, LogTransaction};

/// Bytes of uncommitted changes to tables that one transaction may hold. Tests have little to change.
const CHANGES_BYTES_MAX: usize = if cfg!(test) { 8 << 20 } else { 1 << 30 };

/// Changes to tables, by identifier.
pub type Overlays = HashMap<u32, Overlay>;

/// The rows of an open transaction. Dropped without commit: as if never.
///
/// The rows of temporary tables are changes that no commit takes along: under them there is nothing,
/// and they go from one transaction of the session to the next.
#[derive(Debug)]
pub struct Transaction {
    store: Arc<TableStore>,
    log: LogTransaction,
    view: TablesView,
    overlays: Arc<Overlays>,
    /// As each table was when its first change was made.
    layouts: HashMap<u32, Arc<TableLayout>>,
    /// As each stream was when its last rows came, and how they are named for the log.
    streams: HashMap<u32, (Arc<CatalogObject>, StoredWriter)>,
    base: Option<LogPosition>,
    locks: Option<LockHolder>,
    /// Why the present statement cannot go on.
    conflict: Option<Conflict>,
}

/// A place in a transaction to go back to.
#[derive(Debug, Clone)]
pub struct TransactionMark {
    overlays: Arc<Overlays>,
    log: LogMark,
    /// locks that were held
    locked: usize,
}

impl Transaction {
    /// A transaction that sees what is committed now.
    pub fn begin(store: &Arc<TableStore>) -> Result<Self> {
        Self::begin_over(store, Arc::default())
    }

    /// As [`Self::begin`], in a session with these rows of temporary tables.
    pub fn begin_over(store: &Arc<TableStore>, temporary: Arc<Overlays>) -> Result<Self> {
        let overlays = temporary;
        Ok(Self {
            store: Arc::clone(store),
            log: store.log().begin(),
            view: TablesView::new(store.snapshot()?, Arc::clone(&overlays)),
            overlays,
            layouts: HashMap::new(),
            streams: HashMap::new(),
            base: None,
            locks: None,
            conflict: None,
        })
    }

    /// The next statement sees what is committed now. Call it before each statement.
    pub fn begin_statement(&mut self) -> Result<()> {
        self.view = TablesView::new(self.store.snapshot()?, Arc::clone(&self.overlays));
        Ok(())
    }

    /// What the present statement sees.
    pub fn view(&self) -> &TablesView {
        &self.view
    }

    /// Nothing was changed that a commit must keep.
    pub fn is_empty(&self) -> bool {
        self.overlays.keys().all(|oid| is_temporary(*oid)) && self.log.is_empty()
    }

    /// Takes the rows of temporary tables out.
    pub fn take_temporary(&mut self) -> Arc<Overlays> {
        // The view shares what is taken.
        self.view = TablesView::new(self.view.snapshot().clone(), Arc::default());
        if self.overlays.keys().all(|oid| is_temporary(*oid)) {
            return std::mem::take(&mut self.overlays);
        }
        let overlays = Arc::make_mut(&mut self.overlays);
        let temporary: Overlays = overlays.extract_if(|oid, _| is_temporary(*oid)).collect();
        Arc::new(temporary)
    }

    /// A place to go back to.
    pub fn mark(&self) -> TransactionMark {
        TransactionMark {
            overlays: Arc::clone(&self.overlays),
            log: self.log.mark(),
            locked: self.locks.as_ref().map_or(0, LockHolder::count),
        }
    }

    /// Takes back what was changed after `mark`.
    pub fn rollback_to(&mut self, mark: &TransactionMark) -> Result<()> {
        self.overlays = Arc::clone(&mark.overlays);
        self.log.rollback_to(mark.log);
        if let Some(locks) = &self.locks {
            locks.release_after(mark.locked);
        }
        self.begin_statement()
    }

    /// Ties the commit to a change kept elsewhere; see [`LogTransaction::set_marker`].
    pub fn set_marker(&mut self, marker: &str) {
        self.log.set_marker(marker);
    }

    /// As [`Self::add`], with locks on the keys. 40001 where another transaction has them, or has changed them since:
    /// the statement is to run again after [`Self::take_conflict`] is over.
    pub(super) fn add_locked(
        &mut self,
        layout: &Arc<TableLayout>,
        layer: Layer,
        base: LogPosition,
    ) -> Result<()> {
        self.conflict = self.lock(layout, &layer, base, LockStrength::Exclusive)?;
        if self.conflict.is_some() {
            return Err(changed_meanwhile(layout.name()));
        }
        self.add(layout, layer, base);
        Ok(())
    }

    /// Locks the keys of rows as a view at `base` shows them; `Some`: another transaction has them, or has changed
    /// them since.
    pub(super) fn lock(
        &mut self,
        layout: &TableLayout,
        layer: &Layer,
        base: LogPosition,
        strength: LockStrength,
    ) -> Result<Option<Conflict>> {
        if layer.is_empty() || is_temporary(layout.oid()) {
            return Ok(None);
        }
        let holder = self
            .locks
            .get_or_insert_with(|| self.store.locks().holder());
        let conflict = holder.lock(layout.oid(), layer, strength)?;
        if conflict.is_some() || !self.store.is_outdated(layout, layer, base)? {
            return Ok(conflict);
        }
        Ok(Some(holder.outdated()))
    }

    /// Which keys other transactions hold so that this one cannot lock them.
    pub(super) fn unavailable<'a>(
        &mut self,
        layout: &TableLayout,
        keys: impl Iterator<Item = &'a [u8]>,
        strength: LockStrength,
    ) -> Vec<bool> {
        let holder = self
            .locks
            .get_or_insert_with(|| self.store.locks().holder());
        holder.unavailable(layout.oid(), keys, strength)
    }

    /// Why the statement that has just failed is to run again; `None`: it is not.
    pub(super) fn take_conflict(&mut self) -> Option<Conflict> {
        self.conflict.take()
    }

    /// Adds a statement's changes to a table; `base` is the position of the oldest view that they
    /// rely on.
    pub(super) fn add(&mut self, layout: &Arc<TableLayout>, layer: Layer, base: LogPosition) {
        if layer.is_empty() {
            return;
        }
        self.base = Some(self.base.map_or(base, |earlier| earlier.min(base)));
        self.layouts
            .entry(layout.oid())
            .or_insert_with(|| Arc::clone(layout));
        let overlays = Arc::make_mut(&mut self.overlays);
        overlays.entry(layout.oid()).or_default().push(layer);
    }

    /// Fails when a statement's changes with those before are too many to hold.
    pub(super) fn check_room(&self, statement_bytes: usize) -> Result<()> {
        let bytes: usize = self.overlays.values().map(Overlay::bytes).sum();
        if bytes + statement_bytes <= CHANGES_BYTES_MAX {
            return Ok(());
        }
        Err(Error::new(
            sqlstate::OUT_OF_MEMORY,
            "the transaction changes more rows of tables than fit in memory",
        )
        .detail(format!(
            "Uncommitted changes to tables, and the rows of temporary ones, may take {} MiB.",
            CHANGES_BYTES_MAX >> 20
        ))
        .hint(
            "Change the rows in several transactions: COPY a large file in parts, such as those of split -C 256m FILE. \
             A stream takes any number of rows.",
        ))
    }

    /// Adds rows to a stream; they go to disk as they come.
    pub(super) async fn append(
        &mut self,
        stream: &Arc<CatalogObject>,
        rows: &ChangeBatch,
    ) -> Result<()> {
        let (known, writer) = self
            .streams
            .entry(stream.oid)
            .or_insert_with(|| (Arc::clone(stream), StoredWriter::new(stream)));
        if !Arc::ptr_eq(known, stream) {
            *known = Arc::clone(stream);
            *writer = StoredWriter::new(stream);
        }
        self.log.append(stream.oid, &writer.stored(rows)?).await
    }

    /// Makes all changes durable and visible as one; the position after it. 40001 if another
    /// transaction changed the same rows: a single statement may then simply be run again.
    pub async fn commit(self) -> Result<LogPosition> {
        self.commit_over(&BTreeMap::new()).await
    }

    /// Forgets the changes to a table, which is dropped.
    pub fn forget(&mut self, table: u32) {
        Arc::make_mut(&mut self.overlays).remove(&table);
    }

    /// Identifiers of the tables and streams with changes.
    pub fn relations(&self) -> impl Iterator<Item = u32> {
        self.overlays.keys().chain(self.streams.keys()).copied()
    }

    /// As [`Self::commit`]; `altered` are the tables that the transaction itself altered, as they
    /// are then, by identifier. 40001 if another one altered or dropped a table meanwhile.
    pub async fn commit_over(
        self,
        altered: &BTreeMap<u32, Arc<TableLayout>>,
    ) -> Result<LogPosition> {
        let base = self.base.unwrap_or_default();
        // Until all of it is visible.
        let _locked = self.locks;
        // The view shares the layers: without it, they are merged in place.
        drop(self.view);
        let overlays = Arc::unwrap_or_clone(self.overlays);
        let mut changes: Vec<TableChanges> = overlays
            .into_iter()
            .filter_map(|(oid, overlay)| {
                let layer = overlay.flatten();
                let known = Arc::clone(self.layouts.get(&oid)?);
                let own = altered.get(&oid).cloned();
                (!layer.is_empty()).then(|| TableChanges {
                    known_version: own.is_none().then(|| known.version()),
                    layout: own.unwrap_or(known),
                    changes: Arc::new(layer),
                })
            })
            .collect();
        changes.sort_by_key(|table| table.layout.oid());
        self.store.commit(self.log, changes, base).await
    }
}
