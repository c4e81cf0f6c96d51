//! Definitions, persisted; and the history tables' storage.
//!
//! ```text
//!   session transaction ──changes──► CatalogTransaction ──commit──► catalog.json (whole file, synced)
//!                                                            │
//!                                                            ▼
//!                                             Arc<CatalogSnapshot> for all readers
//! ```
//!
//! Readers take an immutable snapshot and never wait. A commit applies all changes of a transaction
//! to the newest snapshot, or none: what another session changed meanwhile is found here and
//! refused. A transaction that changes rows too is coupled with the durable log: the file first
//! says what is pending and under which marker, the log's commit frame carries the marker, and
//! after a crash the marker in the log decides. Absent: SQL text, pipelines, files of others.

pub mod access;
pub mod changes;
pub mod definition;
mod file;
pub mod function;
pub mod history;
pub mod pg_catalog;
pub mod renaming;
#[cfg(test)]
pub(crate) mod samples;
pub mod schedule;
mod secrets;
pub mod shape;
pub mod snapshot;
pub mod system_tables;
pub mod temporary;

#[cfg(test)]
mod tests;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;

use self::changes::CatalogTransaction;
use self::definition::{OptionValue, Options};
use self::file::{CatalogFile, FileBody, Pending};
use self::secrets::SecretCipher;
use self::snapshot::{CatalogSnapshot, SecretRecord};
use crate::clock::ClockRef;
use crate::error::{Error, Result, sqlstate};

/// Object identifiers below this one belong to PostgreSQL's own catalog.
pub const FIRST_OID: u32 = 16384;

/// The catalog of a database: its definitions and secrets.
pub struct Catalog {
    file: CatalogFile,
    cipher: SecretCipher,
    clock: ClockRef,
    current: RwLock<Arc<CatalogSnapshot>>,
    unresolved: parking_lot::Mutex<Option<Pending>>,
    next_oid: AtomicU32,
    /// Queue of committers. An asynchronous one, because a coupled commit waits for the log in it.
    commits: tokio::sync::Mutex<()>,
}

impl Catalog {
    /// Opens or creates the catalog in `dir` (`<data>/catalog`). Call [`Self::resolve_pending`]
    /// before the first use. A missing file beside data that it must describe is an error of kind
    /// `Damaged`, never an empty catalog.
    pub fn open(dir: &Path, clock: ClockRef) -> Result<Arc<Self>> {
        let (file, body) = CatalogFile::open(dir)?;
        let cipher = SecretCipher::open(dir, !body.contents.secrets_is_empty())?;
        let next_oid = AtomicU32::new(body.contents.next_oid());
        Ok(Arc::new(Self {
            file,
            cipher,
            clock,
            current: RwLock::new(Arc::new(body.contents)),
            unresolved: parking_lot::Mutex::new(body.pending),
            next_oid,
            commits: tokio::sync::Mutex::new(()),
        }))
    }

    /// Settles a coupled commit that a crash cut short: `is_committed` says whether the log has a
    /// commit frame with that marker. Without a pending commit it does nothing.
    pub fn resolve_pending(&self, is_committed: impl FnOnce(&str) -> bool) -> Result<()> {
        let Some(pending) = self.unresolved.lock().take() else {
            return Ok(());
        };
        let contents = if is_committed(&pending.marker) {
            pending.contents
        } else {
            CatalogSnapshot::clone(&self.snapshot())
        };
        self.file.write(&FileBody {
            contents: contents.clone(),
            pending: None,
        })?;
        self.next_oid
            .fetch_max(contents.next_oid(), Ordering::SeqCst);
        *self.current.write() = Arc::new(contents);
        Ok(())
    }

    /// The newest committed definitions.
    pub fn snapshot(&self) -> Arc<CatalogSnapshot> {
        self.current.read().clone()
    }

    /// A fresh object identifier; never given again, even if its transaction rolls back.
    pub fn allocate_oid(&self) -> u32 {
        self.next_oid.fetch_add(1, Ordering::SeqCst)
    }

    /// The clock that creation times come from.
    pub fn clock(&self) -> &ClockRef {
        &self.clock
    }

    /// Starts a transaction over the newest definitions.
    pub fn begin(&self) -> CatalogTransaction {
        CatalogTransaction::new(self.snapshot())
    }

    /// Applies all changes of `transaction` or, with an error, none. Durable when it returns.
    pub async fn commit(
        self: &Arc<Self>,
        transaction: CatalogTransaction,
    ) -> Result<Arc<CatalogSnapshot>> {
        let catalog = self.clone();
        // In a task of its own: a client that goes away must not tear a commit in two.
        join(tokio::spawn(async move {
            let _queue = catalog.commits.lock().await;
            let contents = catalog.next_contents(&transaction)?;
            catalog.write(contents.clone(), None).await?;
            Ok(catalog.publish(contents))
        }))
        .await
    }

    /// As [`Self::commit`], as one with a commit of the durable log: `log_commit` must write the
    /// frame that carries `marker`. Fails with the log's error, both unchanged.
    pub async fn commit_with_log<F>(
        self: &Arc<Self>,
        transaction: CatalogTransaction,
        marker: &str,
        log_commit: F,
    ) -> Result<Arc<CatalogSnapshot>>
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        let catalog = self.clone();
        let marker = marker.to_owned();
        join(tokio::spawn(async move {
            let _queue = catalog.commits.lock().await;
            let contents = catalog.next_contents(&transaction)?;
            let before = CatalogSnapshot::clone(&catalog.snapshot());
            let pending = Pending {
                marker,
                contents: contents.clone(),
            };
            catalog.write(before.clone(), Some(pending)).await?;
            if let Err(error) = log_commit.await {
                catalog.write(before, None).await?;
                return Err(error);
            }
            catalog.write(contents.clone(), None).await?;
            Ok(catalog.publish(contents))
        }))
        .await
    }

    fn next_contents(&self, transaction: &CatalogTransaction) -> Result<CatalogSnapshot> {
        let mut contents = transaction.applied_to(&self.snapshot())?;
        contents.set_next_oid(self.next_oid.load(Ordering::SeqCst));
        Ok(contents)
    }

    async fn write(
        self: &Arc<Self>,
        contents: CatalogSnapshot,
        pending: Option<Pending>,
    ) -> Result<()> {
        let catalog = self.clone();
        let body = FileBody { contents, pending };
        join(tokio::task::spawn_blocking(move || {
            catalog.file.write(&body)
        }))
        .await
    }

    fn publish(&self, contents: CatalogSnapshot) -> Arc<CatalogSnapshot> {
        let contents = Arc::new(contents);
        *self.current.write() = contents.clone();
        contents
    }

    /// The salt that a user who does not exist is told, the same at every try as a real one's.
    pub fn mock_salt(&self, user: &str) -> [u8; access::password::SALT_BYTES] {
        self.cipher.mock_salt(user)
    }

    /// Encrypts a secret's value for [`changes::CatalogChange::PutSecret`].
    pub fn seal_secret(&self, name: &str, value: &str) -> Result<SecretRecord> {
        self.cipher.seal(name, value)
    }

    /// A secret's value, for a connector. Never for a table, a log line or an error.
    pub fn reveal_secret(&self, name: &str) -> Result<String> {
        let snapshot = self.snapshot();
        let record = snapshot.secret(name).ok_or_else(|| {
            Error::new(
                sqlstate::UNDEFINED_OBJECT,
                format!("secret \"{name}\" does not exist"),
            )
            .hint(format!("Create it with CREATE SECRET {name} AS '…'."))
        })?;
        self.cipher.open_record(name, record)
    }

    /// Options as plain text, secrets resolved; for a connector.
    pub fn reveal_options(
        &self,
        options: &Options,
    ) -> Result<std::collections::BTreeMap<String, String>> {
        options
            .iter()
            .map(|(name, value)| {
                Ok((
                    name.clone(),
                    match value {
                        OptionValue::Text(text) => text.clone(),
                        OptionValue::Secret(secret) => self.reveal_secret(secret)?,
                    },
                ))
            })
            .collect()
    }
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog").finish_non_exhaustive()
    }
}

async fn join<T>(task: tokio::task::JoinHandle<Result<T>>) -> Result<T> {
    match task.await {
        Ok(result) => result,
        Err(failure) if failure.is_panic() => std::panic::resume_unwind(failure.into_panic()),
        Err(_) => Err(Error::with_kind(
            crate::error::ErrorKind::Cancelled,
            sqlstate::ADMIN_SHUTDOWN,
            "the database is shutting down",
        )),
    }
}
