//! Contents of all tables: a state store fed from the log.
//!
//! ```text
//!   transaction ─► log commit ─hook, in commit order─► queue ─publish─► StateStore (batch id = log position)
//! ```
//!
//! The store is a cache of the log: what it lacks after a restart is replayed, and it can be
//! deleted. What statements change is locked until the transaction ends ([`locks`]); commits check
//! at the end all the same whether another one changed their keys meanwhile, since COPY and rows without
//! a key take no locks. Keys of commits on their way to the disk are reserved, so that the sync of
//! one commit does not hold up the others.

pub mod codec;
pub mod layout;
pub mod locks;
pub mod overlay;
mod replay;
pub mod view;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{Array, BinaryArray, Int64Array};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{DurableLog, LogPosition, LogTransaction};
use crate::catalog::definition::CatalogObject;
use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, ErrorKind, Result, sqlstate};
use crate::state::{
    MemoryBudget, Run, RunBuilder, StateSnapshot, StateStore, StateStoreOptions, StateStoreStats,
    TableId,
};
use layout::{TableLayout, decode_count};
use locks::RowLocks;
use overlay::Layer;

/// Bytes of the memory tier at which it spills.
const SPILL_BYTES: usize = 64 << 20;
/// Rows of one batch on its way to the log.
const LOG_ROWS: usize = 8192;

/// Contents of all tables of a database.
#[derive(Debug)]
pub struct TableStore {
    log: Arc<DurableLog>,
    store: StateStore,
    /// durable commits that are not in the store yet, in order
    queue: Arc<Mutex<VecDeque<Durable>>>,
    /// serialises whoever moves commits from the queue to the store
    publishing: Mutex<()>,
    reservations: Arc<Reservations>,
    locks: Arc<RowLocks>,
}

#[derive(Debug)]
struct Durable {
    position: LogPosition,
    run: Arc<Run>,
    reservation: Reservation,
}

/// The net changes of a transaction to one table.
#[derive(Debug, Clone)]
pub struct TableChanges {
    /// the table
    pub layout: Arc<TableLayout>,
    /// version of the table that the changes were made for; `None`: the newest, since the
    /// transaction itself alters it
    pub known_version: Option<usize>,
    /// changes by key, none of them without effect
    pub changes: Arc<Layer>,
}

#[derive(Debug)]
struct Reservations {
    state: Mutex<ReservationState>,
    released: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct ReservationState {
    next: u64,
    held: BTreeMap<u64, Vec<TableChanges>>,
    last_change: HashMap<u32, LogPosition>,
    dropped: Vec<TableId>,
    /// Tables that were altered or dropped: changes made for an earlier version come too late.
    oldest_version: HashMap<u32, usize>,
}

/// Keys of a commit on its way; given back when dropped.
#[derive(Debug)]
struct Reservation {
    id: u64,
    reservations: Arc<Reservations>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.reservations.state.lock().held.remove(&self.id);
        self.reservations.released.send_modify(|n| *n += 1);
    }
}

impl TableStore {
    /// Opens the contents in `dir` (`log/tables`) and replays what they lack. `tables` are the
    /// definitions of all tables.
    pub fn open(
        dir: &Path,
        log: &Arc<DurableLog>,
        budget: &Arc<MemoryBudget>,
        tables: &[Arc<CatalogObject>],
    ) -> Result<Arc<Self>> {
        let options = StateStoreOptions {
            budget: Arc::clone(budget),
            spill_bytes: SPILL_BYTES,
        };
        let layouts = tables
            .iter()
            .map(|object| TableLayout::of(object))
            .collect::<Result<Vec<_>>>()?;
        let store = Self::open_store(dir, log, &options)?;
        replay::replay(log, &store, &layouts)?;
        let (released, _) = watch::channel(0);
        Ok(Arc::new(Self {
            log: Arc::clone(log),
            store,
            queue: Arc::default(),
            publishing: Mutex::new(()),
            reservations: Arc::new(Reservations {
                state: Mutex::default(),
                released,
            }),
            locks: Arc::default(),
        }))
    }

    /// Another log's contents, damaged ones, or some newer than the log are thrown away: the log
    /// has everything.
    fn open_store(dir: &Path, log: &DurableLog, options: &StateStoreOptions) -> Result<StateStore> {
        match StateStore::open(dir, log.identity(), options.clone()) {
            Ok(store) if store.cold_batch().unwrap_or(0) <= log.end() => return Ok(store),
            Ok(store) => drop(store),
            Err(error) if error.kind() == ErrorKind::Damaged => {
                tracing::warn!(%error, "contents of the tables are rebuilt from the log");
            }
            Err(error) => return Err(error),
        }
        StateStore::destroy(dir)?;
        StateStore::open(dir, log.identity(), options.clone())
    }

    /// The log behind it.
    pub fn log(&self) -> &Arc<DurableLog> {
        &self.log
    }

    /// What open transactions hold.
    pub fn locks(&self) -> &Arc<RowLocks> {
        &self.locks
    }

    /// Whether a key of `changes` was committed with another value after `base`.
    pub fn is_outdated(
        &self,
        layout: &TableLayout,
        changes: &Layer,
        base: LogPosition,
    ) -> Result<bool> {
        self.publish()?;
        let last_change = {
            let state = self.reservations.state.lock();
            state.last_change.get(&layout.oid()).copied()
        };
        match last_change.is_some_and(|position| position > base) {
            true => is_changed(&self.store.snapshot(), layout, changes),
            false => Ok(false),
        }
    }

    /// Committed contents, with every commit that was acknowledged before this call.
    pub fn snapshot(&self) -> Result<StateSnapshot> {
        self.publish()?;
        Ok(self.store.snapshot())
    }

    /// Numbers for the system tables.
    pub fn stats(&self) -> StateStoreStats {
        self.store.stats()
    }

    /// Frees a dropped table's contents; the log's part is [`DurableLog::forget`].
    pub fn drop_table(&self, oid: u32) {
        let mut state = self.reservations.state.lock();
        state.last_change.remove(&oid);
        state.dropped.push(TableId(u64::from(oid)));
    }

    /// Commits changes to tables, with what `transaction` already holds, as one. `base` is the
    /// position of the oldest snapshot the changes rely on. 40001 if another transaction changed
    /// one of the keys meanwhile. Returns the position after the commit; the rows are visible then.
    pub async fn commit(
        self: &Arc<Self>,
        mut transaction: LogTransaction,
        changes: Vec<TableChanges>,
        base: LogPosition,
    ) -> Result<LogPosition> {
        if changes.is_empty() {
            return transaction.commit().await;
        }
        let reservation = self.reserve(&changes, base).await?;
        for table in &changes {
            append_changes(&mut transaction, table).await?;
        }
        let run = Arc::new(build_run(&changes));
        let queue = Arc::clone(&self.queue);
        let position = transaction
            .commit_with(move |position| {
                queue.lock().push_back(Durable {
                    position,
                    run,
                    reservation,
                });
            })
            .await?;
        if let Err(error) = self.publish() {
            // The commit stands. Whoever reads next tries again, or learns of the error.
            tracing::warn!(%error, "a commit is durable but not yet visible");
        }
        Ok(position)
    }

    /// From now on changes to a table that were made for a version before `version` are refused.
    /// The version that counted before. For those on their way see [`Self::settle`].
    pub fn refuse_before(&self, oid: u32, version: usize) -> Option<usize> {
        let mut state = self.reservations.state.lock();
        state.oldest_version.insert(oid, version)
    }

    /// Resolves once the changes to a table that are on their way have arrived.
    pub async fn settle(&self, oid: u32) -> Result<()> {
        let mut released = self.reservations.released.subscribe();
        loop {
            released.borrow_and_update();
            self.publish()?;
            let is_busy = {
                let state = self.reservations.state.lock();
                let mut held = state.held.values().flatten();
                held.any(|table| table.layout.oid() == oid)
            };
            if !is_busy {
                return Ok(());
            }
            if released.changed().await.is_err() {
                return Err(Error::internal("the tables outlive their commits"));
            }
        }
    }

    /// Takes back [`Self::refuse_before`], with what it returned.
    pub fn accept_again(&self, oid: u32, before: Option<usize>) {
        let mut state = self.reservations.state.lock();
        match before {
            Some(version) => state.oldest_version.insert(oid, version),
            None => state.oldest_version.remove(&oid),
        };
    }

    async fn reserve(&self, changes: &[TableChanges], base: LogPosition) -> Result<Reservation> {
        let mut released = self.reservations.released.subscribe();
        loop {
            released.borrow_and_update();
            self.publish()?;
            if let Some(reservation) = self.try_reserve(changes, base)? {
                return Ok(reservation);
            }
            if released.changed().await.is_err() {
                return Err(Error::internal("the tables outlive their commits"));
            }
        }
    }

    /// `None`: a commit on its way has one of the keys.
    fn try_reserve(
        &self,
        changes: &[TableChanges],
        base: LogPosition,
    ) -> Result<Option<Reservation>> {
        let mut state = self.reservations.state.lock();
        for table in changes {
            let oldest = state.oldest_version.get(&table.layout.oid());
            if let (Some(oldest), Some(known)) = (oldest, table.known_version)
                && known < *oldest
            {
                return Err(altered_meanwhile(table.layout.name()));
            }
        }
        let is_busy = changes.iter().any(|table| {
            let same = |held: &&TableChanges| held.layout.oid() == table.layout.oid();
            let mut held = state.held.values().flatten().filter(same);
            held.any(|held| share_a_key(&held.changes, &table.changes))
        });
        if is_busy {
            return Ok(None);
        }
        let snapshot = self.store.snapshot();
        for table in changes {
            let last_change = state.last_change.get(&table.layout.oid());
            if last_change.is_some_and(|position| *position > base)
                && is_changed(&snapshot, &table.layout, &table.changes)?
            {
                return Err(changed_meanwhile(table.layout.name()));
            }
        }
        state.next += 1;
        let id = state.next;
        state.held.insert(id, changes.to_vec());
        Ok(Some(Reservation {
            id,
            reservations: Arc::clone(&self.reservations),
        }))
    }

    /// Moves durable commits into the store, in order.
    fn publish(&self) -> Result<()> {
        if self.queue.lock().is_empty() {
            return Ok(());
        }
        let _publishing = self.publishing.lock();
        loop {
            let next = self
                .queue
                .lock()
                .front()
                .map(|d| (d.position, Arc::clone(&d.run)));
            let Some((position, mut run)) = next else {
                return Ok(());
            };
            let dropped = self.reservations.state.lock().dropped.clone();
            if !dropped.is_empty() {
                let mut with_drops = Run::merge(&[&run], false);
                with_drops.drop_tables(&dropped);
                run = Arc::new(with_drops);
            }
            self.store.apply(position, run)?;
            let durable = self.queue.lock().pop_front();
            if let Some(durable) = durable {
                let mut state = self.reservations.state.lock();
                state.dropped.retain(|table| !dropped.contains(table));
                if let Some(tables) = state.held.get(&durable.reservation.id) {
                    let oids: Vec<u32> = tables.iter().map(|t| t.layout.oid()).collect();
                    for oid in oids {
                        state.last_change.insert(oid, position);
                    }
                }
                drop(state);
                drop(durable);
            }
        }
    }
}

fn share_a_key(a: &Layer, b: &Layer) -> bool {
    let (small, large) = if a.len() < b.len() { (a, b) } else { (b, a) };
    small.keys().any(|key| large.contains_key(key))
}

fn altered_meanwhile(table: &str) -> Error {
    Error::new(
        sqlstate::SERIALIZATION_FAILURE,
        "could not serialize access due to a concurrent change of the table's definition",
    )
    .detail(format!(
        "Another transaction altered or dropped table \"{table}\", whose rows this one changes."
    ))
    .hint("Run the transaction again.")
}

/// A key has no longer the value that the transaction saw.
fn is_changed(snapshot: &StateSnapshot, layout: &TableLayout, changes: &Layer) -> Result<bool> {
    let keys: BinaryArray = changes.keys().map(|key| Some(key.as_slice())).collect();
    let values = snapshot.get_many(layout.table_id(), &keys)?;
    Ok(changes.values().enumerate().any(|(i, entry)| {
        let now = values.is_valid(i).then(|| values.value(i));
        now != entry.before.as_deref()
    }))
}

/// Two transactions changed one key.
pub fn changed_meanwhile(table: &str) -> Error {
    Error::new(
        sqlstate::SERIALIZATION_FAILURE,
        "could not serialize access due to concurrent update",
    )
    .detail(format!(
        "Another transaction changed rows of table \"{table}\" that this one changes too."
    ))
    .hint("Run the transaction again.")
}

fn build_run(changes: &[TableChanges]) -> Run {
    let mut tables: Vec<&TableChanges> = changes.iter().collect();
    tables.sort_by_key(|table| table.layout.oid());
    let mut builder = RunBuilder::new();
    let mut key = Vec::new();
    for table in tables {
        for (suffix, entry) in table.changes.iter() {
            key.clear();
            key.extend_from_slice(&table.layout.table_id().0.to_be_bytes());
            key.extend_from_slice(suffix);
            builder.push(&key, entry.after.as_deref());
        }
    }
    builder.finish()
}

/// Logs the old rows with weight -1, then the new ones with +1; a bag's by the change of count.
async fn append_changes(transaction: &mut LogTransaction, table: &TableChanges) -> Result<()> {
    let layout = &table.layout;
    let projection: Vec<usize> = (0..layout.schema().fields().len()).collect();
    for is_new in [false, true] {
        let mut pending = PendingRows::default();
        for (key, entry) in table.changes.iter() {
            let (this, other) = match is_new {
                true => (&entry.after, &entry.before),
                false => (&entry.before, &entry.after),
            };
            let Some(value) = this else { continue };
            let count = match layout.is_bag() {
                false => 1,
                true => {
                    let other = other.as_deref().map_or(Ok(0), decode_count)?;
                    decode_count(value)?.saturating_sub(other)
                }
            };
            if count > 0 {
                pending.keys.push(key.as_slice());
                pending.values.push(value.as_slice());
                let sign = if is_new { 1 } else { -1 };
                pending.weights.push(sign * count as i64);
            }
            if pending.keys.len() == LOG_ROWS {
                let batch = std::mem::take(&mut pending).changes(layout, &projection)?;
                let batch = layout.writer().stored(&batch)?;
                transaction.append(layout.oid(), &batch).await?;
            }
        }
        if !pending.keys.is_empty() {
            let batch = pending.changes(layout, &projection)?;
            let batch = layout.writer().stored(&batch)?;
            transaction.append(layout.oid(), &batch).await?;
        }
    }
    Ok(())
}

#[derive(Default)]
struct PendingRows<'a> {
    keys: Vec<&'a [u8]>,
    values: Vec<&'a [u8]>,
    weights: Vec<i64>,
}

impl PendingRows<'_> {
    fn changes(self, layout: &TableLayout, projection: &[usize]) -> Result<ChangeBatch> {
        let rows = layout.decode(&self.keys, &self.values, projection)?;
        if self.weights.iter().all(|w| *w == 1) {
            return Ok(ChangeBatch::inserts(rows));
        }
        Ok(ChangeBatch::weighted(rows, Int64Array::from(self.weights)))
    }
}
