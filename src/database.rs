//! The database as a library: open a directory, run SQL, read Arrow batches.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;

use crate::catalog::pg_catalog::backends::Backends;
use crate::clock::ClockRef;
use crate::engine::status::EngineStatus;
use crate::error::Result;
use crate::session::Session;

/// How a database is opened.
#[derive(Debug, Clone)]
pub struct DatabaseOptions {
    /// Bytes of memory for state and queries.
    pub memory_limit_bytes: usize,
    /// Where time comes from.
    pub clock: ClockRef,
    /// Pipelines start running at open (`serve`); false for offline work.
    pub start_pipelines: bool,
}

/// An open database. Cheap to clone; the last clone or `close` ends it.
#[derive(Clone)]
pub struct Database {
    _inner: Arc<()>,
}

impl Database {
    /// Opens or creates the database in `dir`; refuses when another process holds it.
    pub async fn open(dir: &Path, options: DatabaseOptions) -> Result<Self> {
        let _ = (dir, options);
        unimplemented!()
    }

    /// A new session for user `user`.
    pub fn session(&self, user: &str) -> Session {
        let _ = user;
        unimplemented!()
    }

    /// Who is connected.
    pub fn backends(&self) -> &Arc<Backends> {
        unimplemented!()
    }

    /// State of everything that runs; never blocks on a pipeline.
    pub fn engine_status(&self) -> EngineStatus {
        unimplemented!()
    }

    /// Runs statements, discarding rows.
    pub async fn execute(&self, sql: &str) -> Result<()> {
        let _ = sql;
        unimplemented!()
    }

    /// Runs one query; all its rows.
    pub async fn query(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        let _ = sql;
        unimplemented!()
    }

    /// Stops: current batches commit, state is persisted.
    pub async fn close(&self) -> Result<()> {
        unimplemented!()
    }
}
