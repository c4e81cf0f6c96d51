//! Subscriptions: a view's snapshot, then every committed batch's changes, without a gap.
//!
//! Snapshot and receiver are taken under one lock with publishing, so the first change is that of
//! the batch after the snapshot's. A subscriber that falls too far behind is ended with an error;
//! it never holds the pipeline back.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use futures::StreamExt;
use futures::stream::BoxStream;
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::CommittedChanges;
use super::shared::PipelineShared;
use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, Result, sqlstate};

/// Rows per message of a snapshot.
const SNAPSHOT_BATCH_ROWS: usize = 8192;

pub(super) async fn subscribe(
    shared: &Arc<PipelineShared>,
    view: &str,
    snapshot: bool,
    progress: bool,
    after_batch: Option<u64>,
) -> Result<(SchemaRef, BoxStream<'static, Result<CommittedChanges>>)> {
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
    let live = live(receiver, view.to_owned(), progress);
    let (Some(state), Some(batch_id), true) = (state, batch_id, snapshot) else {
        return Ok((schema, live));
    };
    let rows = reader.all_rows(&state, SNAPSHOT_BATCH_ROWS)?;
    let first = rows.map(move |batch| {
        Ok(CommittedChanges {
            batch_id,
            snapshot: true,
            changes: vec![ChangeBatch::inserts(batch?)],
        })
    });
    Ok((schema, futures::stream::iter(first).chain(live).boxed()))
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
