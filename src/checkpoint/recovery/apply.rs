//! Carrying a repair out, and the hold on a location that every change of it needs.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use parking_lot::Mutex;

use super::plan::{Finding, Hand, Mend, plan};
use super::survey::{Depth, Survey};
use crate::checkpoint::blob::{BlobStore, PutOutcome};
use crate::checkpoint::lease::HeldLease;
use crate::checkpoint::location::{Checkpoint, Identity, LocationState, Shared, archive_label};
use crate::clock::ClockRef;
use crate::crash_point::crash_point;
use crate::error::Result;

/// A location whose lease is held for an operator's statement.
pub struct Held {
    pub(super) shared: Arc<Shared>,
}

/// What a repair found and did.
#[derive(Debug, Clone)]
pub struct Repaired {
    /// Findings, in the order in which they were mended.
    pub findings: Vec<Finding>,
    /// Where to the replaced files went, if any did.
    pub archive: Option<String>,
}

impl Held {
    /// Takes the lease; 55006 where a living process has it.
    pub async fn acquire(
        store: Arc<dyn BlobStore>,
        identity: Identity,
        clock: ClockRef,
    ) -> Result<Self> {
        let lease = HeldLease::acquire(Arc::clone(&store), Arc::clone(&clock)).await?;
        Ok(Self {
            shared: Arc::new(Shared {
                store,
                lease,
                identity,
                clock,
                state: Mutex::new(LocationState::default()),
                merging: AtomicBool::new(false),
                retaining: AtomicBool::new(false),
                beside: AtomicBool::new(false),
            }),
        })
    }

    /// Reads what is there.
    pub async fn survey(&self, catalog_batch: Option<u64>, depth: Depth) -> Result<Survey> {
        let Shared {
            store, identity, ..
        } = &*self.shared;
        Survey::take(store, identity, catalog_batch, depth).await
    }

    /// A handle through which sources write their logs at this location.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            shared: Arc::clone(&self.shared),
        }
    }

    /// A new place in the archive.
    pub(super) fn label(&self) -> String {
        archive_label(&self.shared.clock)
    }

    /// Where files go under a label, for people.
    pub(super) fn archive_path(&self, label: &str) -> String {
        let location = self.shared.store.describe();
        format!("{}.archive/{label}", location.trim_end_matches('/'))
    }

    /// Moves files aside, in their order.
    pub(super) async fn set_aside(&self, paths: &[String], label: &str) -> Result<()> {
        if paths.is_empty() {
            return Ok(());
        }
        self.shared.lease.check().await?;
        self.shared.store.archive(paths, label).await
    }

    /// Writes a file that is not there.
    pub(super) async fn write(&self, path: &str, bytes: Bytes) -> Result<()> {
        self.shared.lease.check().await?;
        match self.shared.store.put_if_absent(path, bytes.clone()).await? {
            PutOutcome::Written(_) => Ok(()),
            // A try before this one wrote it and did not learn so.
            PutOutcome::Lost => self.shared.store.put_all(vec![(path.into(), bytes)]).await,
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        self.shared.lease.epoch()
    }
}

/// Mends what can be mended. Each file is moved aside before another is written in its place: after
/// a kill in between it is one that is missing, and the next repair writes it from the same proof.
pub async fn repair(held: &Held, catalog_batch: Option<u64>) -> Result<Repaired> {
    let survey = held.survey(catalog_batch, Depth::Full).await?;
    let hand = Hand {
        epoch: held.epoch(),
        now_us: held.shared.clock.now_us(),
    };
    let findings = plan(&survey, hand)?;
    let label = held.label();
    let mut archive = None;
    for Mend { aside, write } in findings.iter().filter_map(|finding| finding.mend.as_ref()) {
        if !aside.is_empty() {
            held.set_aside(aside, &label).await?;
            archive = Some(held.archive_path(&label));
        }
        crash_point("repair_set_aside");
        if let Some((path, bytes)) = write {
            held.write(path, bytes.clone()).await?;
        }
        crash_point("repair_mended");
    }
    Ok(Repaired { findings, archive })
}
