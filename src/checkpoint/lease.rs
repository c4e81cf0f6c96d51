//! Who writes to a location: taking, keeping and losing its lease.
//!
//! On a local disk an OS lock decides, and a killed process lets go of it at once. On an object
//! store the lease has an expiry; who takes it over raises its epoch by a conditional update, and
//! the one before finds that out at its next renewal, which it must make before it writes anything
//! after its lease ran out. A lease whose process is known dead (same host, no such process) is
//! taken over without waiting.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use uuid::Uuid;

use super::blob::{BlobStore, BlobVersion, OsLock, PutOutcome};
use super::format::{self, Lease};
use super::location::archive_label;
use crate::clock::ClockRef;
use crate::error::{Error, ErrorKind, Result, sqlstate};

const LEASE_FILE: &str = "lease";
/// How long a lease lasts without renewal.
pub const LEASE_US: i64 = 30_000_000;
/// A writer stops trusting its lease this long before it runs out.
const MARGIN_US: i64 = 5_000_000;

/// Holders in this process: a process id alone cannot tell two of them apart.
static LIVE_HOLDERS: Mutex<Option<HashSet<Uuid>>> = Mutex::new(None);

/// A lease that this process holds.
#[derive(Debug)]
pub struct HeldLease {
    store: Arc<dyn BlobStore>,
    clock: ClockRef,
    state: tokio::sync::Mutex<(Lease, BlobVersion)>,
    epoch: u64,
    os_lock: OsLock,
}

impl HeldLease {
    /// Takes the lease, or says who has it (55006, `Transient`).
    pub async fn acquire(store: Arc<dyn BlobStore>, clock: ClockRef) -> Result<Self> {
        let os_lock = store.lock().await?;
        let current = match store.get(LEASE_FILE).await {
            // Something else has its name, such as a folder.
            Err(error) if error.kind() == ErrorKind::Damaged => {
                let label = archive_label(&clock);
                store.archive(&[LEASE_FILE.to_owned()], &label).await?;
                None
            }
            current => current?,
        };
        let previous: Option<Lease> = match &current {
            None => None,
            Some(blob) => match format::decode_one(&blob.bytes) {
                Ok(lease) => Some(lease),
                Err(format::Unreadable::NewerVersion(version)) => {
                    return Err(super::decide::newer_format(&store.describe(), &version));
                }
                Err(format::Unreadable::Damaged(why)) => {
                    tracing::warn!(location = store.describe(), why, "lease is damaged");
                    None
                }
            },
        };
        let now_us = clock.now_us();
        let is_free = match os_lock {
            OsLock::Held(_) => true,
            OsLock::Busy => false,
            OsLock::Unsupported => previous
                .as_ref()
                .is_none_or(|lease| lease.expires_at_us <= now_us || is_dead(lease)),
        };
        if !is_free {
            return Err(in_use(&store.describe(), previous.as_ref()));
        }
        let lease = Lease {
            holder: Uuid::new_v4(),
            // The first epoch is the time, so that a lost lease does not begin again below the
            // epochs that entries carry.
            epoch: previous
                .as_ref()
                .map_or(now_us.max(1) as u64, |lease| lease.epoch + 1),
            host: host_name(),
            pid: std::process::id(),
            acquired_at_us: now_us,
            expires_at_us: now_us + LEASE_US,
        };
        let bytes = format::encode_one(&lease).into();
        let outcome = match &current {
            None => store.put_if_absent(LEASE_FILE, bytes).await?,
            Some(blob) => store.put_if_match(LEASE_FILE, bytes, &blob.version).await?,
        };
        let PutOutcome::Written(version) = outcome else {
            // Another took it at this very moment.
            let taken = store.get(LEASE_FILE).await?;
            let taken: Option<Lease> = taken.and_then(|b| format::decode_one(&b.bytes).ok());
            return Err(in_use(&store.describe(), taken.as_ref()));
        };
        LIVE_HOLDERS
            .lock()
            .get_or_insert_default()
            .insert(lease.holder);
        Ok(Self {
            store,
            clock,
            epoch: lease.epoch,
            state: tokio::sync::Mutex::new((lease, version)),
            os_lock,
        })
    }

    /// Grows with every holder; entries carry it.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Extends the lease; an error of kind `Fenced` if another has taken over. An OS lock needs no
    /// extending: there it is only checked.
    pub async fn renew(&self) -> Result<()> {
        if matches!(self.os_lock, OsLock::Held(_)) {
            return self.check().await;
        }
        self.extend().await
    }

    async fn extend(&self) -> Result<()> {
        let mut state = self.state.lock().await;
        let mut lease = state.0.clone();
        lease.expires_at_us = self.clock.now_us() + LEASE_US;
        let bytes: bytes::Bytes = format::encode_one(&lease).into();
        match self.store.put_if_match(LEASE_FILE, bytes, &state.1).await? {
            PutOutcome::Written(version) => {
                *state = (lease, version);
                Ok(())
            }
            PutOutcome::Lost => {
                // An earlier renewal may have arrived though its answer did not.
                let current = self.store.get(LEASE_FILE).await?;
                let found: Option<Lease> = current
                    .as_ref()
                    .and_then(|blob| format::decode_one(&blob.bytes).ok());
                match (current, found) {
                    (Some(blob), Some(found)) if found.holder == lease.holder => {
                        *state = (found, blob.version);
                        Ok(())
                    }
                    (None, _) => Err(self.gone()),
                    (Some(_), found) => Err(self.fenced(found.as_ref())),
                }
            }
        }
    }

    /// Before a write: the lease must be ours. With an OS lock the file is read again (someone may
    /// have taken the folder away and given another); otherwise an unexpired lease is ours, and
    /// one that is near its end is renewed first.
    pub async fn check(&self) -> Result<()> {
        if matches!(self.os_lock, OsLock::Held(_)) {
            let Some(current) = self.store.get(LEASE_FILE).await? else {
                return Err(self.gone());
            };
            let found: Option<Lease> = format::decode_one(&current.bytes).ok();
            let holder = self.state.lock().await.0.holder;
            return match found {
                Some(found) if found.holder == holder => Ok(()),
                found => Err(self.fenced(found.as_ref())),
            };
        }
        let expires_at_us = self.state.lock().await.0.expires_at_us;
        if self.clock.now_us() < expires_at_us - MARGIN_US {
            return Ok(());
        }
        self.extend().await
    }

    /// The error of a writer whose lease was deleted, mostly with the whole location.
    fn gone(&self) -> Error {
        let location = self.store.describe();
        Error::with_kind(
            ErrorKind::Fenced,
            sqlstate::OBJECT_IN_USE,
            format!(
                "checkpoint at \"{location}\" was deleted or moved away while its pipeline ran: \
                 \"{location}/{LEASE_FILE}\": the file is missing"
            ),
        )
        .hint(
            "Put the folder back and start the pipeline. Without it, DIAGNOSE tells which statement \
             helps.",
        )
    }

    /// The error of a writer that lost its lease.
    pub fn fenced(&self, by: Option<&Lease>) -> Error {
        let location = self.store.describe();
        Error::with_kind(
            ErrorKind::Fenced,
            sqlstate::OBJECT_IN_USE,
            format!("another process took over the checkpoint location \"{location}\""),
        )
        .detail(by.map_or_else(
            || "Its lease is gone.".to_owned(),
            |lease| format!("It is held by {}.", describe(lease)),
        ))
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        let holder = self.state.get_mut().0.holder;
        if let Some(holders) = LIVE_HOLDERS.lock().as_mut() {
            holders.remove(&holder);
        }
    }
}

/// Who holds it, and since when.
pub(super) fn describe(lease: &Lease) -> String {
    let since = chrono::DateTime::from_timestamp_micros(lease.acquired_at_us)
        .map_or_else(String::new, |at| {
            format!(" since {}", at.format("%Y-%m-%d %H:%M:%S UTC"))
        });
    format!("process {} on {}{since}", lease.pid, lease.host)
}

fn in_use(location: &str, lease: Option<&Lease>) -> Error {
    let holder = lease.map_or_else(|| "another process".to_owned(), describe);
    Error::transient(
        sqlstate::OBJECT_IN_USE,
        format!("checkpoint location \"{location}\" is in use by {holder}"),
    )
    .hint(
        "Stop that server or its pipeline, or give this one a location of its own with ALTER … SET \
         (checkpoint_location = '…').",
    )
}

fn is_dead(lease: &Lease) -> bool {
    if lease.host != host_name() {
        return false;
    }
    if lease.pid == std::process::id() {
        // This process, or one before it that had the same id.
        let holders = LIVE_HOLDERS.lock();
        return !holders
            .as_ref()
            .is_some_and(|holders| holders.contains(&lease.holder));
    }
    let Ok(pid) = i32::try_from(lease.pid) else {
        return false;
    };
    // SAFETY: signal 0 only asks whether the process exists.
    let result = unsafe { libc::kill(pid, 0) };
    result == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// The host's name, and where processes are numbered per container, that numbering.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let namespace = std::fs::read_link("/proc/self/ns/pid")
        .map(|link| link.to_string_lossy().into_owned())
        .unwrap_or_default();
    let name = name.trim();
    let name = if name.is_empty() { "unknown" } else { name };
    format!("{name} {namespace}").trim_end().to_owned()
}
