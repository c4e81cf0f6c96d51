//! A transaction's rows: what it sees of the tables, what it changed, and how it commits.
//!
//! Each statement sees what was committed when it began, and the transaction's own changes, as
//! READ COMMITTED in PostgreSQL. Nothing is locked: a commit fails with 40001 if another one
//! changed the same keys meanwhile. Changes to tables wait in memory as sorted layers; rows of
//! streams go to the log as they come and count only with the commit.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::catalog::definition::CatalogObject;
use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, Result, sqlstate};
use crate::log::stored::StoredWriter;
use crate::log::tables::layout::TableLayout;
use crate::log::tables::overlay::{Layer, Overlay};
use crate::log::tables::view::TablesView;
use crate::log::tables::{TableChanges, TableStore};
use crate::log::{LogMark, LogPosition, LogTransaction};

/// Bytes of uncommitted changes to tables that one transaction may hold.
const CHANGES_BYTES_MAX: usize = 1 << 30;

/// The rows of an open transaction. Dropped without commit: as if never.
#[derive(Debug)]
pub struct Transaction {
    store: Arc<TableStore>,
    log: LogTransaction,
    view: TablesView,
    overlays: Arc<HashMap<u32, Overlay>>,
    /// As each table was when its first change was made.
    layouts: HashMap<u32, Arc<TableLayout>>,
    /// As each stream was when its last rows came, and how they are named for the log.
    streams: HashMap<u32, (Arc<CatalogObject>, StoredWriter)>,
    base: Option<LogPosition>,
    bytes: usize,
}

/// A place in a transaction to go back to.
#[derive(Debug, Clone)]
pub struct TransactionMark {
    overlays: Arc<HashMap<u32, Overlay>>,
    bytes: usize,
    log: LogMark,
}

impl Transaction {
    /// A transaction that sees what is committed now.
    pub fn begin(store: &Arc<TableStore>) -> Result<Self> {
        let overlays: Arc<HashMap<u32, Overlay>> = Arc::default();
        Ok(Self {
            store: Arc::clone(store),
            log: store.log().begin(),
            view: TablesView::new(store.snapshot()?, Arc::clone(&overlays)),
            overlays,
            layouts: HashMap::new(),
            streams: HashMap::new(),
            base: None,
            bytes: 0,
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

    /// Nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.overlays.is_empty() && self.log.is_empty()
    }

    /// A place to go back to.
    pub fn mark(&self) -> TransactionMark {
        TransactionMark {
            overlays: Arc::clone(&self.overlays),
            bytes: self.bytes,
            log: self.log.mark(),
        }
    }

    /// Takes back what was changed after `mark`.
    pub fn rollback_to(&mut self, mark: &TransactionMark) -> Result<()> {
        self.overlays = Arc::clone(&mark.overlays);
        self.bytes = mark.bytes;
        self.log.rollback_to(mark.log);
        self.begin_statement()
    }

    /// Ties the commit to a change kept elsewhere; see [`LogTransaction::set_marker`].
    pub fn set_marker(&mut self, marker: &str) {
        self.log.set_marker(marker);
    }

    /// Adds a statement's changes to a table; `base` is the position of the oldest view that they
    /// rely on.
    pub(super) fn add(&mut self, layout: &Arc<TableLayout>, layer: Layer, base: LogPosition) {
        if layer.is_empty() {
            return;
        }
        self.base = Some(self.base.map_or(base, |earlier| earlier.min(base)));
        self.bytes += layer_bytes(&layer);
        self.layouts
            .entry(layout.oid())
            .or_insert_with(|| Arc::clone(layout));
        let overlays = Arc::make_mut(&mut self.overlays);
        overlays.entry(layout.oid()).or_default().push(layer);
    }

    /// Fails when a statement's changes with those before are too many to hold.
    pub(super) fn check_room(&self, statement_bytes: usize) -> Result<()> {
        if self.bytes + statement_bytes <= CHANGES_BYTES_MAX {
            return Ok(());
        }
        Err(Error::new(
            sqlstate::OUT_OF_MEMORY,
            "the transaction changes more rows of tables than fit in memory",
        )
        .detail(format!(
            "Uncommitted changes to tables may take {} MiB.",
            CHANGES_BYTES_MAX >> 20
        ))
        .hint("Change the rows in several transactions, or INSERT into a stream, which has no such limit."))
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

/// Bytes that an entry takes beside its key and values, about.
pub(super) const ENTRY_BYTES: usize = 96;

fn layer_bytes(layer: &Layer) -> usize {
    layer
        .iter()
        .map(|(key, entry)| {
            let value = |v: &Option<Vec<u8>>| v.as_ref().map_or(0, Vec::len);
            ENTRY_BYTES + key.len() + value(&entry.before) + value(&entry.after)
        })
        .sum()
}
