//! Subscriptions: a view's snapshot, then every committed batch's changes, without a gap; and the
//! changes of a stream or table, which no pipeline need read.
//!
//! Snapshot and receiver are taken under one lock with publishing, so the first change is that of
//! the batch after the snapshot's; so are the changes that are kept of before. A subscriber that falls too far
//! behind is ended with an error; it never holds the pipeline back.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::datatypes::SchemaRef;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::CommittedChanges;
use super::changes::Kept;
use super::opening::open_relation;
use super::parts::EngineParts;
use super::shared::{PipelineShared, Subscribed};
use crate::catalog::definition::CatalogObject;
use crate::connectors::{ReadLimits, SourceOffset, SourceRef};
use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;

/// How often a source that cannot say when it has something is asked.
const SOURCE_POLL: Duration = Duration::from_millis(200);

/// A running subscription to a view.
pub struct Subscription {
    /// the view's columns
    pub schema: SchemaRef,
    /// columns by which its rows are unique; `None`: not known
    pub key: Option<Vec<usize>>,
    /// batch by batch
    pub changes: BoxStream<'static, Result<CommittedChanges>>,
}

/// Rows per message of a snapshot.
const SNAPSHOT_BATCH_ROWS: usize = 8192;

pub(super) async fn subscribe(
    shared: &Arc<PipelineShared>,
    view: &str,
    snapshot: bool,
    progress: bool,
    after_batch: Option<u64>,
) -> Result<Subscription> {
    let reader = shared
        .readers
        .read()
        .get(view)
        .cloned()
        .ok_or_else(|| super::planning::unknown(view))?;
    let Subscribed {
        snapshot: state,
        batch_id,
        kept,
        live: receiver,
    } = shared.subscribe(view, after_batch).await;
    // Before all changes: where they begin.
    let kept = match (kept, after_batch) {
        (Some(kept), Some(after)) => kept_after(kept, view, after, batch_id)?,
        _ => batch_id.map(beginning).into_iter().collect(),
    };
    let schema = Arc::clone(&reader.schema);
    let key = reader.key.clone();
    let kept = kept.into_iter().map(|changes| Ok(changes.as_ref().clone()));
    let live = futures::stream::iter(kept)
        .chain(live(receiver, view.to_owned()))
        .filter(move |told: &Result<CommittedChanges>| {
            let is_told = progress || told.as_ref().map_or(true, |c| !c.changes.is_empty());
            std::future::ready(is_told)
        })
        .boxed();
    let (Some(state), Some(batch_id), true) = (state, batch_id, snapshot) else {
        return Ok(Subscription {
            schema,
            key,
            changes: live,
        });
    };
    let rows = reader.all_rows(&state, SNAPSHOT_BATCH_ROWS)?;
    let first = rows.map(move |batch| {
        Ok(CommittedChanges {
            batch_id,
            snapshot: true,
            changes: vec![ChangeBatch::inserts(batch?)],
        })
    });
    Ok(Subscription {
        schema,
        key,
        changes: futures::stream::iter(first).chain(live).boxed(),
    })
}

/// Where the changes of a stream or table begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscribeFrom {
    /// with the first row that is there
    Beginning,
    /// with what comes next
    Now,
    /// after this commit of the durable log
    After(u64),
}

/// A source that is being followed.
struct Followed {
    source: SourceRef,
    reads_log: bool,
    position: SourceOffset,
    number: u64,
    /// all stored columns
    read: Vec<usize>,
    /// the columns that are shown
    shown: Vec<usize>,
}

pub(super) async fn subscribe_to_source(
    parts: &EngineParts,
    object: &CatalogObject,
    from: SubscribeFrom,
) -> Result<BoxStream<'static, Result<CommittedChanges>>> {
    let (source, reads_log) = open_relation(parts, object, None, None, 0)?;
    let position = match from {
        SubscribeFrom::Beginning => source.initial_offset().await?,
        SubscribeFrom::Now => source.latest_offset().await?,
        // Told by a client, so not asked of the log: what a pipeline has taken in and the log lacks is lost.
        SubscribeFrom::After(commit) if reads_log => {
            let last = parts.log.end();
            if commit > last {
                return Err(ahead(&object.name, commit, Some(last)));
            }
            SourceOffset(serde_json::json!({ "commit": commit }))
        }
        SubscribeFrom::After(_) => {
            return Err(Error::unsupported(format!(
                "the batches of \"{}\" are not kept: AFTER BATCH is not supported",
                object.name
            ))
            .hint(format!("SUBSCRIBE TO {} WITH (SNAPSHOT);", object.name)));
        }
    };
    let commit = position.0.get("commit").and_then(|n| n.as_u64());
    let resumes = matches!(from, SubscribeFrom::After(_));
    let begins = commit.filter(|_| reads_log && !resumes).map(beginning);
    let begins = begins.map(|begins| Ok(begins.as_ref().clone()));
    let columns = 0..object.columns().len();
    let followed = Followed {
        source,
        reads_log,
        position,
        number: 0,
        read: (0..object.stored_columns().len()).collect(),
        shown: columns.map(|column| object.stored_index(column)).collect(),
    };
    let changes = futures::stream::unfold(Some(followed), |followed| async {
        let mut followed = followed?;
        match followed.next().await {
            Ok(committed) => Some((Ok(committed), Some(followed))),
            Err(error) => Some((Err(error), None)),
        }
    });
    Ok(futures::stream::iter(begins).chain(changes).boxed())
}

impl Followed {
    /// Waits for rows and reads them.
    async fn next(&mut self) -> Result<CommittedChanges> {
        // A table's commits are told one by one: each holds the net change of its keys.
        let rows_max = match self.source.is_append_only() {
            true => SNAPSHOT_BATCH_ROWS as u64,
            false => 1,
        };
        let limits = ReadLimits {
            max_rows: Some(rows_max),
            ..ReadLimits::default()
        };
        loop {
            let latest = self.source.latest_offset().await?;
            let range = self
                .source
                .plan_range(self.number, &self.position, &latest, &limits)
                .await?;
            let Some(range) = range else {
                tokio::select! {
                    () = self.source.wait_for_data(&self.position) => {}
                    () = tokio::time::sleep(SOURCE_POLL) => {}
                }
                continue;
            };
            let mut chunks = self
                .source
                .read_range(self.number, &range, &self.read)
                .await?;
            let mut changes = Vec::new();
            while let Some(chunk) = chunks.next().await {
                let chunk = chunk?.changes;
                changes.push(chunk.with_rows(chunk.rows().project(&self.shown)?));
            }
            let commit = range.end.0.get("commit").and_then(|n| n.as_u64());
            let batch_id = commit.filter(|_| self.reads_log).unwrap_or(self.number);
            self.position = range.end;
            self.number += 1;
            if changes.iter().any(|c| !c.is_empty()) {
                return Ok(CommittedChanges {
                    batch_id,
                    snapshot: false,
                    changes,
                });
            }
        }
    }
}

/// Says that changes after a batch follow.
fn beginning(batch_id: u64) -> Arc<CommittedChanges> {
    Arc::new(CommittedChanges {
        batch_id,
        snapshot: false,
        changes: Vec::new(),
    })
}

/// What is kept after a batch, or why it is not there.
fn kept_after(
    kept: Kept<Arc<CommittedChanges>>,
    view: &str,
    after: u64,
    last: Option<u64>,
) -> Result<Vec<Arc<CommittedChanges>>> {
    match kept {
        Kept::Changes(kept) => Ok(kept),
        Kept::Gone => Err(Error::new(
            sqlstate::SNAPSHOT_TOO_OLD,
            format!("changes of \"{view}\" after batch {after} are not kept any more"),
        )
        .detail(format!(
            "{} Changes are kept while the server runs, from the first subscription on to ten minutes \
             after the last, up to 1024 batches and 32 MiB of a view.",
            last_batch(last)
        ))
        .hint(from_snapshot(view))),
        Kept::Ahead => Err(ahead(view, after, last)),
    }
}

fn ahead(relation: &str, after: u64, last: Option<u64>) -> Error {
    Error::new(
        sqlstate::INVALID_PARAMETER_VALUE,
        format!("\"{relation}\" has no batch {after} yet"),
    )
    .detail(last_batch(last))
    .hint(from_snapshot(relation))
}

fn last_batch(last: Option<u64>) -> String {
    let last = last.map_or("none".to_owned(), |b| b.to_string());
    format!("The last committed batch is {last}.")
}

fn from_snapshot(relation: &str) -> String {
    let relation = quote_identifier(relation);
    format!("SUBSCRIBE TO {relation} WITH (SNAPSHOT);")
}

fn live(
    receiver: Receiver<Arc<CommittedChanges>>,
    view: String,
) -> BoxStream<'static, Result<CommittedChanges>> {
    futures::stream::unfold(Some(receiver), move |receiver| {
        let view = view.clone();
        async move {
            let mut receiver = receiver?;
            match receiver.recv().await {
                Ok(message) => Some((Ok(message.as_ref().clone()), Some(receiver))),
                Err(RecvError::Lagged(batches)) => Some((Err(lagged(&view, batches)), None)),
                Err(RecvError::Closed) => None,
            }
        }
    })
    .boxed()
}

fn lagged(view: &str, batches: u64) -> Error {
    Error::new(
        sqlstate::PROGRAM_LIMIT_EXCEEDED,
        format!("the subscription to \"{view}\" fell {batches} batches behind"),
    )
    .hint(from_snapshot(view))
}
