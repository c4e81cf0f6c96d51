//! A copy of what fixes the input of some batches, for a computation beside the original.
//!
//! It is a checkpoint whose batches have all been planned and none has committed. Where the offset log
//! does not reach back to the first batch, it is one that stands at the newest batch with nothing in its
//! views, and whose next batch is planned to fill them and to take in nothing else.

use std::sync::Arc;

use bytes::Bytes;

use super::rebuild::{Unproven, first_batch, unfilled};
use super::survey::{Entry, Survey, source_batch};
use crate::checkpoint::OffsetEntry;
use crate::checkpoint::blob::BlobStore;
use crate::checkpoint::format::{self, Metadata, OffsetFile};
use crate::error::Result;

/// Copies the input of the batches up to `batch_id`. True: batch by batch; false: as one batch; an error
/// inside: why it cannot be, as a clause.
pub async fn copy_input(
    from: &Arc<dyn BlobStore>,
    to: &Arc<dyn BlobStore>,
    survey: &Survey,
    batch_id: u64,
    now_us: i64,
) -> Result<Result<bool, Unproven>> {
    let first = first_batch(survey);
    let planned = |n: u64| survey.offsets.get(&n).and_then(Entry::whole);
    let is_whole = (first..=batch_id).all(|n| planned(n).is_some());
    let mut files: Vec<(String, Bytes)> = Vec::new();
    if is_whole {
        files.extend((first..=batch_id).filter_map(|n| {
            let file = planned(n)?;
            Some((format!("offsets/{n}"), file.encode().into()))
        }));
    } else {
        match filling(survey, batch_id) {
            Ok(filling) => files.extend(filling),
            Err(why) => return Ok(Err(why)),
        }
    }
    for path in survey.sources.keys() {
        if source_batch(path) <= Some(batch_id)
            && let Some(blob) = from.get(path).await?
        {
            files.push((path.clone(), blob.bytes));
        }
    }
    to.put_all(files).await?;
    let identity = &survey.identity;
    let metadata = Metadata::of(identity, now_us, first);
    let metadata = vec![("metadata".to_owned(), metadata.encode().into())];
    to.put_all(metadata).await?;
    Ok(Ok(is_whole))
}

/// The entry of a batch after `batch_id` that only fills the views, by its path; why it cannot be, as a clause.
pub fn filling_entry(survey: &Survey, batch_id: u64) -> Result<(String, Bytes), Unproven> {
    let next = format!("offsets/{}", batch_id + 1);
    let files = filling(survey, batch_id)?.into_iter();
    let mut entry = files.filter(|(path, _)| *path == next);
    entry.next().ok_or_else(|| format!("{next} was not made"))
}

/// The batch as one whose views are empty, and a next one that only fills them.
fn filling(survey: &Survey, batch_id: u64) -> Result<Vec<(String, Bytes)>, Unproven> {
    let commit = survey.commits.get(&batch_id).and_then(Entry::whole);
    let commit = commit.ok_or_else(|| format!("commits/{batch_id} cannot be read"))?;
    let this = survey.offsets.get(&batch_id).and_then(Entry::whole);
    let this = this.ok_or_else(|| format!("offsets/{batch_id} cannot be read"))?;
    let next = OffsetFile {
        pipeline_id: survey.identity.pipeline_id,
        epoch: this.epoch,
        entry: OffsetEntry {
            batch_id: batch_id + 1,
            batch_at_us: this.entry.batch_at_us,
            watermarks_us: commit.entry.event_time_max_us.clone(),
            watermark: commit.entry.watermark,
            view_watermarks: commit.entry.view_watermarks.clone(),
            settings: this.entry.settings.clone(),
            sources: Default::default(),
        },
    };
    let empty = unfilled(commit, this.epoch);
    Ok(vec![
        (format!("offsets/{batch_id}"), this.encode().into()),
        (
            format!("commits/{batch_id}"),
            format::encode_one(&empty).into(),
        ),
        (format!("offsets/{}", batch_id + 1), next.encode().into()),
    ])
}
