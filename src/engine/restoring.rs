//! Backups of a checkpoint, and going back: `BACKUP`, `RESTORE`, `REWIND`.
//!
//! A backup is taken beside the running pipeline without its lease: what a commit stands on never
//! changes, it can only go by retention, and then the copy is begun again with a newer batch. A backup
//! is a checkpoint like any other, so that a checkpoint's own older copy restores as well.

use std::sync::Arc;

use bytes::Bytes;

use super::pipeline::Pipeline;
use super::recovery::{Recovered, Step, archived_step, steps_json};
use crate::checkpoint::blob::BlobStore;
use crate::checkpoint::recovery::{Depth, Held, Survey, restorable};
use crate::checkpoint::{CheckpointLocation, Identity};
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;
use crate::sql::recovery::RewindTo;

/// Bytes that are copied at a time, about.
const COPY_BYTES: usize = 64 << 20;
/// Copies that are begun before one gives up.
const COPIES_MAX: usize = 5;

/// A backup that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// Where it lies.
    pub location: String,
    /// The batch that it is of.
    pub batch_id: u64,
    /// Bytes.
    pub bytes: u64,
    /// Files.
    pub files: u64,
    /// CRC-32C over the names and contents of its files, in the order of the names.
    pub crc32c: u32,
}

/// Copies the newest batch that can be gone back to.
pub(super) async fn back_up(
    from: &Arc<dyn BlobStore>,
    to: &Arc<dyn BlobStore>,
    identity: &Identity,
) -> Result<Backup> {
    if !to.list("").await?.is_empty() {
        return Err(Error::new(
            sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("backup location \"{}\" is not empty", to.describe()),
        )
        .hint("Choose another folder: a backup never replaces one."));
    }
    for _ in 0..COPIES_MAX {
        let survey = Survey::take(from, identity, None, Depth::Quick).await?;
        survey.require_own()?;
        let Some(&batch_id) = survey.restorable_batches().last() else {
            return Err(Error::damaged(format!(
                "checkpoint of pipeline \"{}\" has no batch that can be restored",
                identity.pipeline_name
            ))
            .hint(format!(
                "Run DIAGNOSE CHECKPOINT OF {}.",
                quote_identifier(&identity.pipeline_name)
            )));
        };
        if let Some(backup) = copy_batch(from, to, &survey, batch_id).await? {
            return Ok(backup);
        }
        // The next copy is of another batch, and holds nothing of this one.
        let begun = to.list("").await?.into_iter().map(|blob| blob.path);
        to.delete(&begun.collect::<Vec<_>>()).await?;
    }
    Err(Error::transient(
        sqlstate::IO_ERROR,
        format!(
            "could not copy the checkpoint at \"{}\": its files go faster than they are copied",
            from.describe()
        ),
    )
    .hint("Retain more batches with ALTER PIPELINE … SET (min_batches_to_retain = …)."))
}

/// Copies a batch; `None`: a file went meanwhile.
async fn copy_batch(
    from: &Arc<dyn BlobStore>,
    to: &Arc<dyn BlobStore>,
    survey: &Survey,
    batch_id: u64,
) -> Result<Option<Backup>> {
    let mut backup = Backup {
        location: to.describe(),
        batch_id,
        bytes: 0,
        files: 0,
        crc32c: 0,
    };
    let mut group: Vec<(String, Bytes)> = Vec::new();
    let mut group_bytes = 0;
    // What says that it is a checkpoint goes last.
    let paths = survey.files_at(batch_id).into_iter();
    for path in paths.chain(["metadata".to_owned()]) {
        let Some(blob) = from.get(&path).await? else {
            return Ok(None);
        };
        backup.crc32c = crc32c::crc32c_append(backup.crc32c, path.as_bytes());
        backup.crc32c = crc32c::crc32c_append(backup.crc32c, &blob.bytes);
        backup.bytes += blob.bytes.len() as u64;
        backup.files += 1;
        if path == "metadata" {
            to.put_all(std::mem::take(&mut group)).await?;
        }
        group_bytes += blob.bytes.len();
        group.push((path, blob.bytes));
        if group_bytes >= COPY_BYTES {
            to.put_all(std::mem::take(&mut group)).await?;
            group_bytes = 0;
        }
    }
    to.put_all(group).await?;
    Ok(Some(backup))
}

impl Pipeline {
    fn not_restorable(&self, survey: &Survey, what: &str) -> Error {
        let batches = survey.restorable_batches();
        let error = Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!(
                "pipeline \"{}\" cannot go back to {what} at \"{}\"",
                self.shared.name, survey.location
            ),
        );
        match (batches.first(), batches.last()) {
            (Some(first), Some(last)) => error.detail(format!(
                "{} batches from {first} to {last} can be gone back to.",
                batches.len()
            )),
            _ => error.detail("No batch there can be gone back to."),
        }
    }

    fn cannot_run_again(&self, batch_id: u64) -> Error {
        let name = &self.shared.name;
        Error::damaged(format!(
            "pipeline \"{name}\" cannot go back before batch {batch_id}: its offset entry cannot be read"
        ))
        .detail("What that batch took in is told by nothing else, and it would have to run again.")
        .hint(format!(
            "REPAIR CHECKPOINT OF {}; writes the entry anew where its neighbours prove it.",
            quote_identifier(name)
        ))
    }

    pub(super) async fn rewind(&self, to: RewindTo) -> Result<Recovered> {
        let held = self.hold().await?;
        let survey = held.survey(self.known_batch(), Depth::Quick).await?;
        survey.require_own()?;
        let target = match to {
            RewindTo::Batch(batch_id) => restorable(&survey, batch_id)
                .ok_or_else(|| self.not_restorable(&survey, &format!("batch {batch_id}")))?,
            RewindTo::Before(at_us) => survey
                .restorable_before(at_us)
                .and_then(|batch_id| restorable(&survey, batch_id))
                .ok_or_else(|| self.not_restorable(&survey, "a batch before this time"))?,
        };
        let last = survey.offsets.keys().next_back().copied();
        if let Some(gap) = last.and_then(|last| survey.offset_gap(target.state_batch_id, last)) {
            return Err(self.cannot_run_again(gap));
        }
        let archived = held.rewind(&survey, target.batch_id).await?;
        let mut steps = vec![
            archived_step(&self.location(), &archived),
            Step::new("goes back", format!("batch {}", target.batch_id), ""),
        ];
        if let Some(last) = last.filter(|last| *last > target.state_batch_id) {
            steps.push(Step::new(
                "runs again",
                format!("batches {} to {last}", target.state_batch_id + 1),
                "Each batch takes in exactly what it took in before.",
            ));
        }
        for sink in &self.sink_objects {
            let detail = "It gets these batches again, each under its number.";
            steps.push(Step::new("delivers again", &sink.name, detail));
        }
        self.event("rewound", steps_json(&steps));
        Ok(Recovered::Steps(steps))
    }

    /// Puts a copy in the place of the checkpoint. The copy may be the checkpoint itself, older than
    /// the catalog knows it: then it is only accepted as it is.
    pub(super) async fn restore(&self, from: &str, batch_id: Option<u64>) -> Result<Recovered> {
        let held = self.hold().await?;
        let own = held.survey(self.known_batch(), Depth::Quick).await?;
        let source = CheckpointLocation::store(from, &Default::default())?;
        let is_own = source.describe() == own.location;
        let identity = self.identity().await;
        let copy = match is_own {
            true => own.clone(),
            false => Survey::take(&source, &identity, None, Depth::Full).await?,
        };
        copy.require_own()?;
        let newest = copy.restorable_batches().last().copied();
        let target = batch_id
            .or(newest)
            .and_then(|batch_id| restorable(&copy, batch_id))
            .ok_or_else(|| {
                let what = batch_id.map_or("any batch".to_owned(), |n| format!("batch {n}"));
                self.not_restorable(&copy, &what)
            })?;
        let batch_id = target.batch_id;
        let archived = match is_own {
            true => held.cut_after(&own, batch_id).await?,
            false => {
                let archived = held.archive_all(&own).await?;
                self.copy_back(&held, &source, &copy, batch_id).await?;
                archived
            }
        };
        // From here on the older batch is the newest that is known.
        let history = &self.parts.history;
        history.record_known_batch(&self.shared.name, self.shared.id, batch_id);
        let mut steps = vec![
            archived_step(&self.location(), &archived),
            Step::new(
                "restored",
                format!("batch {batch_id}"),
                format!("from {from}"),
            ),
        ];
        for sink in &self.sink_objects {
            let detail =
                format!("It gets the batches after {batch_id} anew, under the same numbers.");
            steps.push(Step::new("delivers again", &sink.name, detail));
        }
        self.event("restored", steps_json(&steps));
        Ok(Recovered::Steps(steps))
    }

    async fn copy_back(
        &self,
        held: &Held,
        source: &Arc<dyn BlobStore>,
        copy: &Survey,
        batch_id: u64,
    ) -> Result<()> {
        let target = self.store()?;
        let mut group = Vec::new();
        let mut bytes = 0;
        for path in copy.files_at(batch_id) {
            let blob = source.get(&path).await?.ok_or_else(|| {
                Error::damaged(format!(
                    "{path} of the backup at \"{}\" vanished while it was copied",
                    copy.location
                ))
            })?;
            bytes += blob.bytes.len();
            group.push((path, blob.bytes));
            if bytes >= COPY_BYTES {
                target.put_all(std::mem::take(&mut group)).await?;
                bytes = 0;
            }
        }
        target.put_all(group).await?;
        held.write_metadata(copy, self.parts.clock.now_us()).await
    }
}
