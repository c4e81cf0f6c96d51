//! Subscriptions: a view's snapshot, then every committed batch's changes, without a gap; and the
//! changes of a stream or table, which no pipeline need read.
//!
//! Snapshot and receiver are taken under one lock with publishing, so the first change is that of
//! the batch after the snapshot's. A subscriber that falls too far behind is ended with an error;
//! it never holds the pipeline back.

use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::datatypes::SchemaRef;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::CommittedChanges;
use super::opening::open_relation;
use super::parts::EngineParts;
use super::shared::PipelineShared;
use crate::catalog::definition::CatalogObject;
use crate::connectors::{ReadLimits, SourceOffset, SourceRef};
use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, Result, sqlstate};

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
    let (state, batch_id, receiver) = shared.subscribe(view).await;
    if let Some(after) = after_batch.filter(|after| batch_id != Some(*after)) {
        return Err(Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("changes of \"{view}\" after batch {after} are not kept"),
        )
        .detail(format!(
            "The last committed batch is {}.",
            batch_id.map_or("none".to_owned(), |b| b.to_string())
        ))
        .hint(format!("SUBSCRIBE TO {view} WITH (SNAPSHOT);")));
    }
    let schema = Arc::clone(&reader.schema);
    let key = reader.key.clone();
    let live = live(receiver, view.to_owned(), progress);
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
        SubscribeFrom::After(commit) if reads_log => {
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
    source.check_position(&position).await?;
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
    Ok(changes.boxed())
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

fn live(
    receiver: Receiver<Arc<CommittedChanges>>,
    view: String,
    progress: bool,
) -> BoxStream<'static, Result<CommittedChanges>> {
    futures::stream::unfold(Some(receiver), move |receiver| {
        let view = view.clone();
        async move {
            let mut receiver = receiver?;
            loop {
                match receiver.recv().await {
                    Ok(message) if message.changes.is_empty() && !progress => {}
                    Ok(message) => return Some((Ok(message.as_ref().clone()), Some(receiver))),
                    Err(RecvError::Lagged(batches)) => {
                        return Some((Err(lagged(&view, batches)), None));
                    }
                    Err(RecvError::Closed) => return None,
                }
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
    .hint(format!("SUBSCRIBE TO {view} WITH (SNAPSHOT);"))
}
