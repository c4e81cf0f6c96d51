//! `tidemill checkpoint`: looking at a checkpoint, and mending it, without a server.
//!
//! What the statements of the same names do, for when no server starts. The lease is taken as by a server,
//! so a running pipeline is never touched. Absent: what only a catalog or a pipeline knows (how far it had
//! come, its sources and sinks), and so `REBUILD` and `REWIND`.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Subcommand;

use super::print::{self, Table};
use crate::checkpoint::blob::BlobStore;
use crate::checkpoint::recovery::{
    Depth, Held, Survey, back_up, begin_again, diagnose, identity_at, repair,
};
use crate::checkpoint::{CheckpointLocation, Identity};
use crate::clock::ClockRef;
use crate::error::{Error, Result, sqlstate};

/// What to do with the checkpoint at a location: a path, or an URL of an object store.
#[derive(Debug, Subcommand)]
pub(super) enum CheckpointCommand {
    /// Tell what is there and what is wrong, a row per part
    Diagnose {
        /// Path or URL
        location: String,
    },
    /// Copy its newest batch to an empty location
    Backup {
        /// Path or URL
        location: String,
        /// Path or URL of the copy
        to: String,
    },
    /// Put a copy in its place; what was there is moved aside
    Restore {
        /// Path or URL
        location: String,
        /// Path or URL of the copy
        from: String,
        /// Go back to this batch [default: the newest of the copy]
        #[arg(long, value_name = "BATCH")]
        at_batch: Option<u64>,
    },
    /// Mend what the files beside prove
    Repair {
        /// Path or URL
        location: String,
        /// Only tell what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Move it aside and begin anew: the sources begin where their options say
    Reset {
        /// Path or URL
        location: String,
    },
}

/// A location, and whose checkpoint lies there.
struct Place {
    store: Arc<dyn BlobStore>,
    identity: Identity,
    clock: ClockRef,
}

impl Place {
    async fn at(location: &str, clock: &ClockRef) -> Result<Self> {
        let store = CheckpointLocation::store(location, &BTreeMap::new())?;
        let identity = identity_at(&store).await?;
        Ok(Self {
            store,
            identity,
            clock: Arc::clone(clock),
        })
    }

    async fn hold(&self) -> Result<Held> {
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        Held::acquire(store, self.identity.clone(), clock).await
    }

    async fn survey(&self) -> Result<Survey> {
        Survey::take(&self.store, &self.identity, None, Depth::Full).await
    }
}

/// Carries a command out; false: something is wrong with the checkpoint.
pub(super) async fn run(command: CheckpointCommand, clock: &ClockRef) -> Result<bool> {
    match command {
        CheckpointCommand::Diagnose { location } => tell(&Place::at(&location, clock).await?).await,
        CheckpointCommand::Backup { location, to } => {
            let place = Place::at(&location, clock).await?;
            let to = CheckpointLocation::store(&to, &BTreeMap::new())?;
            let backup = back_up(&place.store, &to, &place.identity).await?;
            print::line(&format!(
                "batch {} of pipeline \"{}\": {} files of {} bytes at {}, crc32c:{:08x}",
                backup.batch_id,
                place.identity.pipeline_name,
                backup.files,
                backup.bytes,
                backup.location,
                backup.crc32c
            ))?;
            Ok(true)
        }
        CheckpointCommand::Restore {
            location,
            from,
            at_batch,
        } => restore(&location, &from, at_batch, clock).await,
        CheckpointCommand::Repair { location, dry_run } => {
            let place = Place::at(&location, clock).await?;
            mend(&place, dry_run).await
        }
        CheckpointCommand::Reset { location } => {
            let place = Place::at(&location, clock).await?;
            let held = place.hold().await?;
            let survey = held.survey(None, Depth::Quick).await?;
            survey.require_own()?;
            let first_batch = survey.next_first_batch();
            let archived = held.archive_all(&survey).await?;
            begin_again(&held, first_batch, BTreeMap::new()).await?;
            print::line(&format!(
                "{} files moved to {}; the next batch is {first_batch}",
                archived.files, archived.location
            ))?;
            Ok(true)
        }
    }
}

async fn tell(place: &Place) -> Result<bool> {
    let survey = place.survey().await?;
    let columns = [
        "part", "status", "count", "first", "last", "detail", "repair",
    ];
    let mut table = Table::new(columns.map(str::to_owned).to_vec());
    let mut is_sound = true;
    for part in diagnose(&survey, Depth::Full, place.clock.now_us()) {
        is_sound &= part.repair.is_none();
        let number = |number: Option<u64>| number.map(|n| n.to_string());
        table.push(vec![
            Some(part.part.to_owned()),
            Some(part.status.to_owned()),
            number(part.count),
            number(part.first),
            number(part.last),
            Some(part.detail),
            part.repair,
        ])?;
    }
    table.finish()?;
    Ok(is_sound)
}

async fn mend(place: &Place, dry_run: bool) -> Result<bool> {
    use crate::checkpoint::recovery::{Hand, plan};
    let findings = match dry_run {
        true => {
            let hand = Hand {
                epoch: 0,
                now_us: place.clock.now_us(),
            };
            plan(&place.survey().await?, hand)?
        }
        false => repair(&place.hold().await?, None).await?.findings,
    };
    let columns = ["part", "finding", "action", "statement"];
    let mut table = Table::new(columns.map(str::to_owned).to_vec());
    let mut is_mended = true;
    for finding in findings {
        is_mended &= finding.statement.is_none();
        table.push(vec![
            Some(finding.part.to_owned()),
            Some(finding.finding),
            Some(finding.action),
            finding.statement,
        ])?;
    }
    table.finish()?;
    Ok(is_mended)
}

/// The copy tells whose it is: of what is at the location nothing may be left.
async fn restore(
    location: &str,
    from: &str,
    at_batch: Option<u64>,
    clock: &ClockRef,
) -> Result<bool> {
    let source = Place::at(from, clock).await?;
    let target = Place {
        store: CheckpointLocation::store(location, &BTreeMap::new())?,
        identity: source.identity.clone(),
        clock: Arc::clone(clock),
    };
    let copy = source.survey().await?;
    copy.require_own()?;
    let newest = copy.newest_usable();
    let batch_id = at_batch.or(newest).ok_or_else(|| {
        let text = format!("no batch of the checkpoint at \"{from}\" can be restored");
        Error::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, text)
            .hint(format!("tidemill checkpoint diagnose {from}"))
    })?;
    if let Some(why) = copy.why_unusable_at(batch_id) {
        let text =
            format!("checkpoint at \"{from}\" cannot be restored as of batch {batch_id}: {why}");
        return Err(Error::damaged(text).detail("Nothing was changed."));
    }
    let held = target.hold().await?;
    let own = held.survey(None, Depth::Quick).await?;
    own.require_own()?;
    let archived = held.archive_all(&own).await?;
    held.copy_back(&source.store, &copy, batch_id, clock.now_us())
        .await?;
    print::line(&format!(
        "{} files moved to {}; restored batch {batch_id} of pipeline \"{}\"",
        archived.files, archived.location, target.identity.pipeline_name
    ))?;
    print::line(
        "If the pipeline then says that its checkpoint is older, DIAGNOSE names the statement that accepts it.",
    )?;
    Ok(true)
}
