//! Reading committed views: one batch per pipeline and statement.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use super::kept_rows::{Reading, ShownBatch, WholeRows};
use super::shared::{PipelineShared, ViewReader};
use crate::catalog::definition::{CatalogObject, Definition};
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::view_storage::{KeyOrder, ViewRows};
use crate::error::{Error, Result, sqlstate};
use crate::state::{StateSnapshot, WantedKeys};

/// Rows per batch of a scan.
const SCAN_BATCH_ROWS: usize = 8192;

/// How long a reader waits for a pipeline that is being opened.
const OPENING_WAIT: std::time::Duration = std::time::Duration::from_secs(10);

/// All pipelines by name, and the pipeline of each view.
#[derive(Default)]
pub(super) struct Directory {
    pub pipelines: RwLock<HashMap<String, Arc<PipelineShared>>>,
    pub views: RwLock<HashMap<String, String>>,
}

impl Directory {
    /// All pipelines as they are now.
    pub fn all(&self) -> Vec<Arc<PipelineShared>> {
        self.pipelines.read().values().cloned().collect()
    }

    /// The pipeline that a view runs in.
    pub fn pipeline_of(&self, view: &str) -> Result<Arc<PipelineShared>> {
        let views = self.views.read();
        let pipelines = self.pipelines.read();
        views
            .get(view)
            .and_then(|p| pipelines.get(p))
            .cloned()
            .ok_or_else(|| super::planning::unknown(view))
    }
}

struct Pinned {
    snapshot: Option<StateSnapshot>,
    batch_id: Option<u64>,
    shown: Option<ShownBatch>,
    filled: std::collections::BTreeSet<String>,
    /// how its views are read at that batch
    readers: HashMap<String, ViewReader>,
    status: &'static str,
}

/// An order in which a view's rows can be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadOrder {
    /// The index that has it; `None`: the view itself.
    pub index: Option<String>,
    /// The order.
    pub order: KeyOrder,
}

fn orders(
    readers: &HashMap<String, ViewReader>,
    view: &CatalogObject,
    is_filled: impl Fn(&str) -> bool,
) -> Vec<ReadOrder> {
    let own = readers.get(view.kept_name());
    let own = own.filter(|r| r.object.oid == view.oid);
    let own = ReadOrder {
        index: None,
        order: own.map(ViewReader::key_order).unwrap_or_default(),
    };
    let is_of = |reader: &&ViewReader| match &reader.object.definition {
        Definition::Index(index) => index.of == view.oid && is_filled(&reader.object.name),
        _ => false,
    };
    let mut indexes: Vec<&ViewReader> = readers.values().filter(is_of).collect();
    indexes.sort_by_key(|reader| reader.object.oid);
    let indexes = indexes.into_iter().map(|reader| ReadOrder {
        index: Some(reader.object.name.clone()),
        order: reader.key_order(),
    });
    std::iter::once(own).chain(indexes).collect()
}

/// Views pinned for one statement: every view of a pipeline is read at the same batch.
#[derive(Clone)]
pub struct ReadContext {
    directory: Arc<Directory>,
    pinned: Arc<Mutex<HashMap<String, Arc<Pinned>>>>,
}

impl ReadContext {
    pub(super) fn new(directory: Arc<Directory>) -> Self {
        Self {
            directory,
            pinned: Arc::default(),
        }
    }

    fn pin(&self, pipeline: &PipelineShared) -> Arc<Pinned> {
        let mut pinned = self.pinned.lock();
        let entry = pinned.entry(pipeline.name.clone()).or_insert_with(|| {
            let status = pipeline.board.lock().pipeline.status;
            let publication = pipeline.publication.lock();
            Arc::new(Pinned {
                snapshot: publication.snapshot.clone(),
                batch_id: publication.batch_id,
                shown: publication.shown_batch(),
                filled: publication.filled.clone(),
                readers: pipeline.readers.read().clone(),
                status,
            })
        });
        Arc::clone(entry)
    }

    /// Waits until a view's pipeline is open after a start, for a bounded time: a restart takes
    /// milliseconds, a restore from far away may take minutes, and then the reader is told so.
    pub async fn wait_until_readable(&self, view: &CatalogObject) -> Result<()> {
        let pipeline = self.directory.pipeline_of(view.kept_name())?;
        let mut status = pipeline.status.subscribe();
        let readable = async {
            let opened = status.wait_for(|s| !matches!(*s, "starting" | "restoring"));
            // Without a sender the pipeline has ended: what is there is read.
            drop(opened.await);
            pipeline.wait_until_filled(view.kept_name()).await;
        };
        let waited = tokio::time::timeout(OPENING_WAIT, readable).await;
        waited.map_err(|_| restoring(&view.name))
    }

    /// The definition under which a view is read, where that is not the one of the identifier
    /// `oid`: a replaced view shows what it held until the new rows are there.
    pub fn shown(&self, view: &str, oid: u32) -> Option<Arc<CatalogObject>> {
        let pipeline = self.directory.pipeline_of(view).ok()?;
        let is_other = |reader: &ViewReader| reader.object.oid != oid;
        if !pipeline.readers.read().get(view).is_some_and(is_other) {
            return None;
        }
        let pinned = self.pin(&pipeline);
        let reader = pinned.readers.get(view).filter(|reader| is_other(reader))?;
        Some(Arc::clone(&reader.object))
    }

    /// The orders in which a view's rows can be read at the pinned batch; its own comes first.
    pub fn orders(&self, view: &CatalogObject) -> Vec<ReadOrder> {
        match self.directory.pipeline_of(view.kept_name()) {
            Ok(pipeline) => {
                let pinned = self.pin(&pipeline);
                orders(&pinned.readers, view, |index| pinned.filled.contains(index))
            }
            Err(_) => vec![ReadOrder::default()],
        }
    }

    /// As [`Self::orders`], of the batch that is shown now: nothing is pinned.
    pub fn present_orders(&self, view: &CatalogObject) -> Vec<ReadOrder> {
        match self.directory.pipeline_of(view.kept_name()) {
            Ok(pipeline) => orders(&pipeline.readers.read(), view, |_| true),
            Err(_) => vec![ReadOrder::default()],
        }
    }

    /// The rows of a materialized view at the pinned batch whose keys, in one of its orders, are
    /// wanted; projected, in batches of some thousand rows, or of `batch_rows_max`.
    /// Synchronous and lazy: call `next` off the async threads.
    pub fn scan(
        &self,
        view: &CatalogObject,
        order: &ReadOrder,
        wanted: &WantedKeys,
        projection: &[usize],
        batch_rows_max: Option<usize>,
    ) -> Result<ViewRows> {
        let oid = view.oid;
        let (shown, view) = (view.name.as_str(), view.kept_name());
        let pipeline = self.directory.pipeline_of(view)?;
        let pinned = self.pin(&pipeline);
        let Some(snapshot) = pinned
            .snapshot
            .as_ref()
            .filter(|_| pinned.filled.contains(view))
        else {
            // Before its first batch a view is empty; before its state is open it cannot be read.
            if pinned.snapshot.is_some() {
                return Ok(Box::new(std::iter::empty()));
            }
            let query = pipeline
                .board
                .lock()
                .queries
                .get(view)
                .cloned()
                .unwrap_or_default();
            return match (pinned.status, query.exception) {
                ("starting" | "restoring", _) => Err(restoring(shown)),
                (_, Some(why)) => Err(unreadable(shown, why, query.hint)),
                _ => Ok(Box::new(std::iter::empty())),
            };
        };
        let reader = pinned.readers.get(view);
        let reader = reader.ok_or_else(|| super::planning::unknown(view))?;
        if reader.object.oid != oid {
            return Err(replaced(shown));
        }
        let reader = match &order.index {
            None => reader,
            Some(index) => pinned.readers.get(index).ok_or_else(|| replaced(shown))?,
        };
        let whole = whole_reading(reader, wanted, projection)
            .filter(|_| batch_rows_max.is_none())
            .zip(pinned.shown);
        let rows_max = match wanted {
            WantedKeys::Keys(keys) => batch_rows_max.unwrap_or(usize::MAX).min(keys.len()),
            _ => batch_rows_max.unwrap_or(usize::MAX),
        };
        let batch_rows = rows_max.clamp(1, SCAN_BATCH_ROWS);
        let rows = reader.rows(snapshot, wanted, projection, batch_rows)?;
        Ok(match whole {
            Some((reading, shown)) => pipeline.kept_rows.watched(shown, reading, rows),
            None => rows,
        })
    }

    /// The rows of [`Self::scan`], where others read them whole at the pinned batch before.
    pub fn kept(
        &self,
        view: &CatalogObject,
        order: &ReadOrder,
        wanted: &WantedKeys,
        projection: &[usize],
    ) -> Option<WholeRows> {
        let view_name = view.kept_name();
        let pipeline = self.directory.pipeline_of(view_name).ok()?;
        let pinned = self.pin(&pipeline);
        let name = order.index.as_deref().unwrap_or(view_name);
        let own = pinned.readers.get(view_name)?;
        let reader = pinned.readers.get(name)?;
        if own.object.oid != view.oid || !pinned.filled.contains(view_name) {
            return None;
        }
        let reading = whole_reading(reader, wanted, projection)?;
        pipeline.kept_rows.rows(pinned.shown?, &reading)
    }

    /// The batch a view's pipeline is pinned at; `None` before its first.
    pub fn batch_id(&self, view: &str) -> Result<Option<u64>> {
        let pipeline = self.directory.pipeline_of(view)?;
        Ok(self.pin(&pipeline).batch_id)
    }
}

/// All rows of some columns.
fn whole_reading(
    reader: &ViewReader,
    wanted: &WantedKeys,
    projection: &[usize],
) -> Option<Reading> {
    matches!(wanted, WantedKeys::All).then(|| Reading {
        state_name: reader.state_name.clone(),
        projection: projection.to_vec(),
    })
}

fn replaced(view: &str) -> Error {
    Error::new(
        sqlstate::SERIALIZATION_FAILURE,
        format!("materialized view \"{view}\" was replaced meanwhile"),
    )
    .hint("Run the query again.")
}

fn unreadable(view: &str, why: String, hint: Option<String>) -> Error {
    let error = Error::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("materialized view \"{view}\" cannot be read: its pipeline could not start"),
    )
    .detail(why);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

fn restoring(view: &str) -> Error {
    Error::transient(
        sqlstate::CANNOT_CONNECT_NOW,
        format!("materialized view \"{view}\" is being restored"),
    )
    .hint("SELECT * FROM streaming_queries; shows how far it is.")
}

impl PipelineShared {
    /// The stored rows of a view in a state, as inserts.
    pub(super) fn stored_rows(
        &self,
        view: &str,
        snapshot: &StateSnapshot,
    ) -> Result<Vec<ChangeBatch>> {
        let Some(reader) = self.readers.read().get(view).cloned() else {
            return Ok(Vec::new());
        };
        reader
            .all_rows(snapshot, SCAN_BATCH_ROWS)?
            .map(|batch| batch.map(ChangeBatch::inserts))
            .collect()
    }
}
