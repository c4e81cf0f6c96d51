//! `VERIFY MATERIALIZED VIEW`: the view computed once more beside its pipeline, and compared.
//!
//! ```text
//!   offsets/first..N ──► a pipeline of its own in a folder of its own, without sinks ──► contents at N
//!                                                                                          ║ multiset
//!   the published snapshot at N ───────────────────────────────────────────────────────────╝
//! ```
//!
//! The second pipeline takes in exactly what the batches up to the published one took in, by the same
//! offset log, so late rows, `now()` and policies are those of the original. Where retention took the
//! log's beginning, the sources are read as one batch up to where the published batch stood. It tells
//! no history, and its folder goes with it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use serde_json::Value;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::Engine;
use super::parts::{BatchPlace, EngineParts, Event, ExpectationCount, History, LateRow};
use super::pipeline::Pipeline;
use super::settings::PipelineSettings;
use super::shared::{PipelineShared, ViewReader};
use crate::catalog::definition::Definition;
use crate::checkpoint::recovery::{Depth, Survey, copy_input};
use crate::connectors::{DataGap, DeadLetter};
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;
use crate::state::StateSnapshot;

/// The folder of verifications below the data directory; emptied when the engine opens.
const FOLDER: &str = "verification";
/// State is persisted this seldom: nobody opens it again.
const PERSIST_INTERVAL: Duration = Duration::from_secs(3600);
/// Rows that are compared at a time.
const BATCH_ROWS: usize = 8192;
/// Rows that differ and are told.
const ROWS_TOLD: usize = 3;

/// What came of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verification {
    /// The pipeline.
    pub pipeline: String,
    /// The batch that was compared.
    pub batch_id: u64,
    /// Rows of the view.
    pub rows: u64,
    /// Rows that the view should have and has not.
    pub missing_rows: u64,
    /// Rows that it has and should not have.
    pub unexpected_rows: u64,
    /// Some of them.
    pub examples: Vec<String>,
    /// The batches ran again one by one; false: the sources were read as one batch.
    pub is_exact: bool,
}

/// A folder that goes with its owner.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

fn remove(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(folder = %folder.display(), %error, "could not remove a folder of verification");
    }
}

/// Removes what a crash left of verifications.
pub(super) fn clean(parts: &EngineParts) {
    remove(&parts.data_dir.join(FOLDER));
}

impl Engine {
    /// Computes a view again from its retained input and compares it with what readers see.
    pub async fn verify(&self, view: &str) -> Result<Verification> {
        let shared = self.inner.directory.pipeline_of(view)?;
        let unknown = || super::planning::unknown(view);
        let reader = shared
            .readers
            .read()
            .get(view)
            .cloned()
            .ok_or_else(unknown)?;
        let published = {
            let publication = shared.publication.lock();
            publication.snapshot.clone().zip(publication.batch_id)
        };
        let Some((snapshot, batch_id)) = published else {
            return Err(Error::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("materialized view \"{view}\" has no batch yet"),
            )
            .hint(format!("WAIT FOR {};", quote_identifier(view))));
        };
        let folder = Folder(
            self.inner
                .parts
                .data_dir
                .join(FOLDER)
                .join(Uuid::new_v4().to_string()),
        );
        let location = folder.0.join("checkpoint").to_string_lossy().into_owned();
        let is_exact = self.copy_input(&shared.name, batch_id, &location).await?;
        let mut twin = self.twin(&shared, &folder.0, &location)?;
        twin.run_planned().await?;
        let again = {
            let again = &twin.shared;
            let reader = again
                .readers
                .read()
                .get(view)
                .cloned()
                .ok_or_else(unknown)?;
            let snapshot = again.publication.lock().snapshot.clone();
            snapshot.map(|snapshot| (reader, snapshot))
        };
        // Nothing writes to its folder any more when that goes.
        twin.end(false).await?;
        let compared = tokio::task::spawn_blocking(move || compare((&reader, &snapshot), again))
            .await
            .map_err(|e| Error::internal(format!("comparing rows ended: {e}")))??;
        Ok(Verification {
            pipeline: shared.name.clone(),
            batch_id,
            is_exact,
            ..compared
        })
    }

    /// Copies what fixes the input of the batches up to `batch_id`; whether batch by batch.
    async fn copy_input(&self, pipeline: &str, batch_id: u64, location: &str) -> Result<bool> {
        let (store, identity) = self.place_of(pipeline)?;
        let target = crate::checkpoint::CheckpointLocation::store(location, &Default::default())?;
        let survey = Survey::take(&store, &identity, None, Depth::Quick).await?;
        survey.require_own()?;
        let now_us = self.inner.parts.clock.now_us();
        copy_input(&store, &target, &survey, batch_id, now_us)
            .await?
            .map_err(|why| {
                Error::new(
                    sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    format!("pipeline \"{pipeline}\" cannot be computed again: {why}"),
                )
                .hint(format!(
                    "Run DIAGNOSE CHECKPOINT OF {}.",
                    quote_identifier(pipeline)
                ))
            })
    }

    /// A pipeline of the same views, without sinks, over a copy of the input.
    fn twin(&self, shared: &PipelineShared, folder: &Path, location: &str) -> Result<Pipeline> {
        let mut parts = self.inner.parts.clone();
        let definition = parts.definitions.pipeline(&shared.name);
        let options = definition.map(|d| d.options).unwrap_or_default();
        let mut settings = PipelineSettings::read(&options)?;
        settings.checkpoint_location = Some(location.to_owned());
        settings.checkpoint_interval = Some(PERSIST_INTERVAL);
        parts.data_dir = folder.to_owned();
        parts.history = Arc::new(Silence);
        let objects = parts.definitions.objects().into_iter().filter(|object| {
            matches!(&object.definition, Definition::MaterializedView(v) if v.pipeline == shared.name)
        });
        let objects = objects.collect();
        let (commands, _) = mpsc::unbounded_channel();
        // A name that no statement can reach.
        let name = format!("{}\u{1}verification", shared.name);
        let twin = Arc::new(PipelineShared::new(name, shared.id, commands));
        let (registry, receivers) = (Arc::default(), Arc::default());
        let mut pipeline = Pipeline::new(parts, twin, registry, receivers, settings, true);
        pipeline.objects = objects;
        Ok(pipeline)
    }
}

impl Pipeline {
    /// Opens, and runs what the offset log has planned; nothing more.
    async fn run_planned(&mut self) -> Result<()> {
        self.open().await?;
        while self.opened.as_ref().is_some_and(|o| !o.replay.is_empty()) {
            self.run_batch().await?;
        }
        self.settle().await
    }
}

type Contents<'a> = (&'a ViewReader, &'a StateSnapshot);

/// Compares as multisets: what is there more often on one side than on the other.
fn compare(view: Contents<'_>, again: Option<(ViewReader, StateSnapshot)>) -> Result<Verification> {
    let schema = Arc::clone(&view.0.schema);
    let fields = schema.fields().iter();
    let fields = fields.map(|field| SortField::new(field.data_type().clone()));
    let converter = RowConverter::new(fields.collect())?;
    let mut counts: HashMap<OwnedRow, i64> = HashMap::new();
    let mut add = |(reader, snapshot): Contents<'_>, weight: i64| -> Result<u64> {
        let mut rows = 0;
        for batch in reader.all_rows(snapshot, BATCH_ROWS)? {
            let batch = batch?;
            rows += batch.num_rows() as u64;
            for row in &converter.convert_columns(batch.columns())? {
                *counts.entry(row.owned()).or_default() += weight;
            }
        }
        Ok(rows)
    };
    let rows = add(view, 1)?;
    if let Some((reader, snapshot)) = &again {
        add((reader, snapshot), -1)?;
    }
    counts.retain(|_, count| *count != 0);
    let sum = |side: fn(i64) -> i64| {
        counts
            .values()
            .map(|count| side(*count).max(0) as u64)
            .sum()
    };
    let mut differing: Vec<(&OwnedRow, i64)> = counts.iter().map(|(row, n)| (row, *n)).collect();
    differing.sort_by(|a, b| a.0.cmp(b.0));
    differing.truncate(ROWS_TOLD);
    Ok(Verification {
        rows,
        missing_rows: sum(|count| -count),
        unexpected_rows: sum(|count| count),
        examples: examples(&converter, &schema, &differing)?,
        ..Verification::default()
    })
}

fn examples(
    converter: &RowConverter,
    schema: &SchemaRef,
    rows: &[(&OwnedRow, i64)],
) -> Result<Vec<String>> {
    let columns = converter.convert_rows(rows.iter().map(|(row, _)| row.row()))?;
    let options = FormatOptions::default().with_null("NULL");
    let formatters = columns
        .iter()
        .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
        .collect::<Result<Vec<_>, _>>()?;
    let example = |(index, (_, count)): (usize, &(&OwnedRow, i64))| {
        let values = schema.fields().iter().zip(&formatters);
        let values = values.map(|(field, f)| format!("{} = {}", field.name(), f.value(index)));
        let side = if *count > 0 { "unexpected" } else { "missing" };
        format!("{side}: {}", values.collect::<Vec<_>>().join(", "))
    };
    Ok(rows.iter().enumerate().map(example).collect())
}

/// A history that keeps nothing: the original's is the one that counts.
struct Silence;

impl History for Silence {
    fn record_metrics(&self, _: &str, _: u64, _: &[Value]) {}
    fn last_metrics_batch(&self, _: &str) -> Option<u64> {
        None
    }
    fn record_event(&self, _: Event) {}
    fn record_dead_letters(&self, _: &str, _: &str, _: u64, _: &[DeadLetter]) {}
    fn record_late_rows(&self, _: &BatchPlace<'_>, _: Option<i64>, _: &[LateRow]) {}
    fn record_expectations(&self, _: &BatchPlace<'_>, _: i64, _: &[ExpectationCount]) {}
    fn record_data_gaps(&self, _: &BatchPlace<'_>, _: &[(String, DataGap)]) {}
    fn known_batch(&self, _: &str, _: Uuid) -> Option<u64> {
        None
    }
    fn record_known_batch(&self, _: &str, _: Uuid, _: u64) {}
}
