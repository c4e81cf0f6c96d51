//! What a database consists of, put together once at open.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{GreedyMemoryPool, TrackConsumersPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use parking_lot::Mutex;

use super::DatabaseOptions;
use super::lock::DirectoryLock;
use super::seams::{CatalogDefinitions, SessionBinder, tell_untold_columns};
use crate::catalog::Catalog;
use crate::catalog::access::Subject;
use crate::catalog::definition::{CatalogObject, Definition, PipelineDefinition};
use crate::catalog::history::{History, METRICS_RETENTION_US};
use crate::catalog::pg_catalog::backends::Backends;
use crate::catalog::snapshot::{CatalogSnapshot, pipeline_of};
use crate::catalog::system_tables::SystemFacts;
use crate::checkpoint::leftover::archive_leftovers;
use crate::clock::ClockRef;
use crate::connectors::paths::PathRule;
use crate::engine::Engine;
use crate::engine::parts::EngineParts;
use crate::error::Result;
use crate::log::DurableLog;
use crate::log::tables::TableStore;
use crate::session::threads::Threads;
use crate::sql::context::{ContextOptions, new_session_context};
use crate::sql::host_functions::{HostFunction, HostFunctions};
use crate::sql::{options, rewrite};
use crate::state::MemoryBudget;

/// Of the memory limit, the part that queries may use; the rest is for state and for what no
/// account sees (the process itself, buffers of the network and of the log).
const QUERY_SHARE: f64 = 0.25;
const STATE_SHARE: f64 = 0.5;
/// Names in a "memory exhausted" error.
const CONSUMERS_TOLD: std::num::NonZeroUsize = match std::num::NonZeroUsize::new(3) {
    Some(count) => count,
    None => unreachable!(),
};
const RETENTION_EVERY: Duration = Duration::from_secs(600);

/// Everything that sessions share.
pub(crate) struct DatabaseParts {
    pub catalog: Arc<Catalog>,
    pub history: Arc<History>,
    pub log: Arc<DurableLog>,
    pub tables: Arc<TableStore>,
    pub clock: ClockRef,
    pub backends: Arc<Backends>,
    /// When the database was opened, microseconds since the epoch.
    pub started_at_us: i64,
    /// What queries compute on.
    pub query_threads: Arc<Threads>,
    /// What connections are served on, once there is a server.
    pub connection_threads: OnceLock<Arc<Threads>>,
    /// Local paths that connectors may reach.
    pub paths: PathRule,
    /// Memory and spill files of all queries.
    pub runtime: Arc<RuntimeEnv>,
    /// Set once at open; see [`Self::engine`].
    engine: OnceLock<Engine>,
    lock: Mutex<Option<DirectoryLock>>,
    /// functions of the program that embeds the database
    pub host_functions: HostFunctions,
    housekeeping: Mutex<Option<tokio::task::JoinHandle<()>>>,
    schedules: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl DatabaseParts {
    pub async fn open(dir: &Path, options: &DatabaseOptions) -> Result<Arc<Self>> {
        let lock = DirectoryLock::take(dir)?;
        let clock = options.clock.clone();
        let catalog = Catalog::open(&dir.join("catalog"), clock.clone())?;
        let history = History::open(&dir.join("catalog").join("history"), clock.clone())?;
        let log = DurableLog::open_noted(&dir.join("log"), &dir.join("catalog").join("log_end"))?;
        // A commit that a crash cut short is in the log, or it never was.
        catalog.resolve_pending(|marker| log.has_marker(marker))?;
        let limit = options.memory_limit_bytes as f64;
        let budget = MemoryBudget::new((limit * STATE_SHARE) as usize);
        let tables = open_tables(dir, &catalog, &log, &budget)?;
        let paths = {
            let catalog = catalog.clone();
            let has_users = move || catalog.snapshot().access().requires_authentication();
            PathRule::new(options.allowed_paths.clone(), Arc::new(has_users))
        };
        let backends = Backends::new(clock.clone());
        history.tell_events_to(&backends);
        let parts = Arc::new(Self {
            paths,
            catalog,
            history,
            log,
            tables,
            backends,
            started_at_us: clock.now_us(),
            runtime: query_runtime(dir, (limit * QUERY_SHARE) as usize)?,
            query_threads: Threads::of_queries()?,
            connection_threads: OnceLock::new(),
            clock,
            engine: OnceLock::new(),
            host_functions: host_functions(&options.functions)?,
            lock: Mutex::new(Some(lock)),
            housekeeping: Mutex::new(None),
            schedules: Mutex::new(None),
        });
        parts.archive_leftovers(dir);
        tell_untold_columns(&parts.catalog, &parts.history);
        let engine = start_engine(&parts, dir, budget, options).await?;
        parts
            .engine
            .set(engine)
            .map_err(|_| ())
            .expect("the engine is set once, here");
        parts.start_housekeeping();
        if options.start_pipelines {
            let catalog = parts.catalog.clone();
            let schedules = super::schedules::run(catalog, Arc::downgrade(&parts));
            *parts.schedules.lock() = Some(tokio::spawn(schedules));
        }
        Ok(parts)
    }

    /// What a crash in the middle of a DROP left: it must not keep the name from being used again.
    fn archive_leftovers(&self, dir: &Path) {
        let definitions = self.catalog.snapshot();
        // Those that are to be taken over lie under their own names until they have been.
        let ids = |p: &PipelineDefinition| {
            let merged: Vec<_> = p.merges.iter().map(|merged| merged.id).collect();
            merged.into_iter().chain([p.id])
        };
        let pipelines = definitions.pipelines().flat_map(|(_, p)| ids(p)).collect();
        let archived = archive_leftovers(&dir.join("checkpoints"), &pipelines, &self.clock);
        let told = archived.and_then(|archived| {
            archived.iter().try_for_each(|to| {
                let note = "The checkpoint of a pipeline that no longer exists was archived.";
                let detail = serde_json::json!({"note": note, "archive": to.to_string_lossy()});
                self.history
                    .record_event("recovered", "checkpoints", None, detail)
            })
        });
        if let Err(error) = told {
            tracing::warn!(%error, "could not archive the checkpoints of dropped pipelines");
        }
    }

    /// The running engine.
    pub fn engine(&self) -> &Engine {
        self.engine
            .get()
            .expect("the database is given out after its engine started")
    }

    /// What the system tables tell of.
    pub fn system_facts(self: &Arc<Self>, subject: Arc<Subject>) -> SystemFacts {
        SystemFacts {
            subject,
            history: self.history.clone(),
            catalog: self.catalog.clone(),
            status: {
                let parts = Arc::downgrade(self);
                Arc::new(move || {
                    let parts = parts.upgrade();
                    parts.map(|p| p.engine().status()).unwrap_or_default()
                })
            },
            files: {
                let parts = Arc::downgrade(self);
                Arc::new(move |stream| {
                    let parts = parts.upgrade();
                    let files = parts.map(|p| p.engine().known_files(stream));
                    files.unwrap_or_default()
                })
            },
        }
    }

    /// Ends what a dropped object ran and kept. Its events stay.
    pub async fn forget(&self, object: &CatalogObject) -> Result<()> {
        self.engine().drop_object(object).await?;
        if let Definition::Table(_) = object.definition {
            self.tables.drop_table(object.oid);
        }
        self.history.forget(object.kept_name())
    }

    /// Old history goes now and then, first some time after the start.
    fn start_housekeeping(&self) {
        let history = Arc::downgrade(&self.history);
        let catalog = self.catalog.clone();
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(RETENTION_EVERY);
            ticks.tick().await;
            loop {
                ticks.tick().await;
                let Some(history) = history.upgrade() else {
                    return;
                };
                let definitions = catalog.snapshot();
                let swept = tokio::task::spawn_blocking(move || {
                    history.apply_retention(|view| metrics_retention_us(&definitions, view))
                });
                match swept.await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::warn!(%error, "could not delete old metrics"),
                    Err(error) => tracing::error!(%error, "deleting old metrics failed"),
                }
            }
        });
        *self.housekeeping.lock() = Some(task);
    }

    pub async fn close(&self) -> Result<()> {
        let tasks = [
            self.housekeeping.lock().take(),
            self.schedules.lock().take(),
        ];
        for task in tasks.into_iter().flatten() {
            task.abort();
            // It holds the history until it has ended; that it was cancelled is what was asked.
            task.await.ok();
        }
        self.engine().shutdown().await?;
        self.lock.lock().take();
        Ok(())
    }
}

impl Drop for DatabaseParts {
    fn drop(&mut self) {
        for task in [&mut self.housekeeping, &mut self.schedules] {
            if let Some(task) = task.get_mut().take() {
                task.abort();
            }
        }
    }
}

impl std::fmt::Debug for DatabaseParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatabaseParts").finish_non_exhaustive()
    }
}

/// How long the metrics that lie under a view's kept name stay: its pipeline's option, or the default.
fn metrics_retention_us(definitions: &CatalogSnapshot, view: &str) -> i64 {
    let asked = definitions
        .by_kept_name(view)
        .and_then(|object| pipeline_of(&object.definition))
        .and_then(|name| definitions.pipeline(name))
        .and_then(|pipeline| {
            // The option was checked when it was set.
            options::duration(&pipeline.options, "metrics_retention")
                .ok()
                .flatten()
        });
    asked.map_or(METRICS_RETENTION_US, |kept| {
        i64::try_from(kept.as_micros()).unwrap_or(i64::MAX / 2)
    })
}

fn open_tables(
    dir: &Path,
    catalog: &Catalog,
    log: &Arc<DurableLog>,
    budget: &Arc<MemoryBudget>,
) -> Result<Arc<TableStore>> {
    let objects: Vec<_> = catalog
        .snapshot()
        .objects()
        .filter(|o| matches!(o.definition, Definition::Table(_)))
        .cloned()
        .collect();
    TableStore::open(&dir.join("log").join("tables"), log, budget, &objects)
}

/// Memory and spill space of queries: a sort or aggregate that does not fit goes to disk, what
/// cannot is refused with 53200.
fn query_runtime(dir: &Path, memory_bytes: usize) -> Result<Arc<RuntimeEnv>> {
    let temporary = dir.join("temporary");
    match std::fs::remove_dir_all(&temporary) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    std::fs::create_dir_all(&temporary)?;
    let pool = TrackConsumersPool::new(GreedyMemoryPool::new(memory_bytes), CONSUMERS_TOLD);
    let disk =
        DiskManagerBuilder::default().with_mode(DiskManagerMode::Directories(vec![temporary]));
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(pool))
        .with_disk_manager_builder(disk)
        .build_arc()?;
    Ok(runtime)
}

/// Errors: 42723 a function of the system's name.
fn host_functions(functions: &[HostFunction]) -> Result<HostFunctions> {
    if functions.is_empty() {
        return Ok(HostFunctions::default());
    }
    let context = new_session_context(ContextOptions::default())?;
    let state = context.state();
    HostFunctions::new(functions, |name| {
        state.scalar_functions().contains_key(name)
            || state.aggregate_functions().contains_key(name)
            || state.window_functions().contains_key(name)
            || rewrite::is_function(name)
    })
}

/// The one place where the engine is built.
async fn start_engine(
    parts: &Arc<DatabaseParts>,
    dir: &Path,
    budget: Arc<MemoryBudget>,
    options: &DatabaseOptions,
) -> Result<Engine> {
    let data_dir: PathBuf = std::fs::canonicalize(dir)?;
    Engine::open(EngineParts {
        data_dir,
        clock: parts.clock.clone(),
        budget,
        log: parts.log.clone(),
        definitions: Arc::new(CatalogDefinitions::new(
            parts.catalog.clone(),
            parts.history.clone(),
        )),
        binder: Arc::new(SessionBinder::new(parts)),
        history: parts.history.clone(),
        paths: parts.paths.clone(),
        run_pipelines: options.start_pipelines,
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::super::Database;
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn metrics_of_a_renamed_view_are_kept_as_long_as_its_pipeline_says() {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::open(dir.path(), DatabaseOptions::default())
            .await
            .unwrap();
        database
            .execute(
                "CREATE STREAM s (k BIGINT);
                 CREATE MATERIALIZED VIEW v WITH (metrics_retention = '1 hour') AS SELECT k FROM s;
                 ALTER MATERIALIZED VIEW v RENAME TO w;
                 CREATE MATERIALIZED VIEW v WITH (metrics_retention = '2 hours') AS SELECT k FROM s",
            )
            .await
            .unwrap();
        let definitions = database.parts.catalog.snapshot();
        let kept = |view: &str| {
            let name = definitions.object(view).unwrap().kept_name();
            metrics_retention_us(&definitions, name) / 3_600_000_000
        };
        assert_eq!((kept("w"), kept("v")), (1, 2));
        drop(definitions);
        database.close().await.unwrap();
    }
}
