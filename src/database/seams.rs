//! What the engine asks of the catalog, of planning and of history, answered by ours.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use serde_json::json;

use super::DatabaseParts;
use crate::catalog::Catalog;
use crate::catalog::changes::CatalogChange;
use crate::catalog::definition::{
    CatalogObject, ColumnDefinition, Definition, KeptNames, PipelineDefinition,
};
use crate::catalog::history::rows::{DataGapRow, DeadLetterRow, EventRow, ExpectationRow, LateRow};
use crate::catalog::history::{HandedOver, History};
use crate::catalog::shape::{Evolved, StoredColumn};
use crate::catalog::snapshot::undefined;
use crate::connectors::evolution::COLUMNS_MAX;
use crate::connectors::{DataGap, DeadLetter};
use crate::crash_point::crash_point;
use crate::engine::parts::{self, BatchPlace, Binder, Definitions, Event, ExpectationCount};
use crate::error::{Error, Result, sqlstate};
use crate::session::binding::ViewBinder;
use crate::sql::names::quote_identifier;
use crate::sql::statement::ObjectKind;

/// The catalog's definitions.
pub(super) struct CatalogDefinitions {
    catalog: Arc<Catalog>,
    history: Arc<History>,
}

impl CatalogDefinitions {
    pub fn new(catalog: Arc<Catalog>, history: Arc<History>) -> Self {
        Self { catalog, history }
    }
}

#[async_trait]
impl Definitions for CatalogDefinitions {
    fn object(&self, name: &str) -> Option<CatalogObject> {
        let snapshot = self.catalog.snapshot();
        snapshot.by_kept_name(name).map(|o| snapshot.as_kept(o))
    }

    fn objects(&self) -> Vec<CatalogObject> {
        let snapshot = self.catalog.snapshot();
        let objects = snapshot.in_dependency_order();
        objects.iter().map(|o| snapshot.as_kept(o)).collect()
    }

    fn kept(&self, object: &CatalogObject) -> CatalogObject {
        self.catalog.snapshot().as_kept(object)
    }

    fn shown_names(&self) -> BTreeMap<String, String> {
        self.catalog.snapshot().shown_names()
    }

    fn hidden_pipelines(&self) -> BTreeMap<String, String> {
        self.catalog.snapshot().hidden_pipelines()
    }

    fn pipeline(&self, name: &str) -> Option<PipelineDefinition> {
        self.catalog.snapshot().pipeline(name).cloned()
    }

    fn secret(&self, name: &str) -> Option<String> {
        match self.catalog.reveal_secret(name) {
            Ok(value) => Some(value),
            Err(error) => {
                tracing::warn!(secret = name, %error, "a secret cannot be used");
                None
            }
        }
    }

    async fn add_columns(
        &self,
        stream: &str,
        columns: &[(ColumnDefinition, Evolved)],
    ) -> Result<()> {
        loop {
            let mut change = self.catalog.begin();
            let snapshot = change.snapshot();
            let object = snapshot.by_kept_name(stream);
            let object = object.ok_or_else(|| undefined(ObjectKind::Stream, stream))?;
            let wider = Arc::new(with_columns(object, columns)?);
            if wider.version() == object.version() {
                return Ok(());
            }
            crash_point("before_new_columns");
            change.stage(CatalogChange::Replace {
                name: object.name.clone(),
                object: Arc::clone(&wider),
            })?;
            match self.catalog.commit(change).await {
                Ok(_) => {
                    crash_point("after_new_columns");
                    tell_newest_columns(&self.history, &wider);
                    return Ok(());
                }
                // Someone altered or renamed the stream in this moment, or another pipeline found the same fields: what is missing is looked up anew.
                Err(error) if error.sqlstate() == sqlstate::SERIALIZATION_FAILURE => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A stream with those of the columns that it does not have.
fn with_columns(
    object: &CatalogObject,
    columns: &[(ColumnDefinition, Evolved)],
) -> Result<CatalogObject> {
    let mut missing = columns.to_vec();
    missing.retain(|(column, _)| object.column_named(&column.name).is_err());
    let room = COLUMNS_MAX.saturating_sub(object.stored_columns().len());
    if let Some((column, _)) = missing.get(room) {
        return Err(too_many_columns(object, column));
    }
    let mut wider = object.clone();
    if !missing.is_empty() {
        wider.evolve_columns(missing)?;
    }
    Ok(wider)
}

fn too_many_columns(object: &CatalogObject, column: &ColumnDefinition) -> Error {
    // A pipeline fails with it, which tells names as they are kept.
    let stream = object.kept_name();
    Error::new(
        sqlstate::TOO_MANY_COLUMNS,
        format!("stream \"{stream}\" cannot have more than {COLUMNS_MAX} columns"),
    )
    .detail(format!(
        "Its records have a new field \"{}\"; columns that were dropped count.",
        column.name
    ))
    .hint(format!(
        "Keep further fields in one column: ALTER STREAM {} SET (schema_evolution = 'rescue');",
        quote_identifier(stream)
    ))
}

/// The event of the columns that came last by themselves: the same row each time.
fn tell_newest_columns(history: &History, stream: &CatalogObject) {
    let stored = stream.stored_columns();
    let evolved = |column: &StoredColumn| column.evolved.clone();
    let Some(newest) = stored.iter().filter_map(evolved).max_by_key(|e| e.at_us) else {
        return;
    };
    let is_newest = |column: &&StoredColumn| {
        let evolved = column.evolved.as_ref();
        evolved.is_some_and(|e| e.at_us == newest.at_us && e.pipeline == newest.pipeline)
    };
    let column = |column: &StoredColumn| {
        json!({
            "name": column.definition.name,
            "type": column.definition.type_name(),
            "first_in": column.evolved.as_ref().map(|e| &e.first_in),
        })
    };
    let added: Vec<_> = stored.iter().filter(is_newest).map(column).collect();
    let row = EventRow {
        event_at: newest.at_us,
        kind: "schema changed".to_owned(),
        object_name: newest.stream,
        pipeline: Some(newest.pipeline),
        batch_id: Some(newest.batch_id),
        detail: json!({ "added": added }),
    };
    logged("an event", history.put_event(&row));
}

/// Tells of columns that came by themselves right before a crash; of others once more, as the same row.
pub(super) fn tell_untold_columns(catalog: &Catalog, history: &History) {
    for object in catalog.snapshot().objects() {
        if matches!(object.definition, Definition::Stream(_)) {
            tell_newest_columns(history, object);
        }
    }
}

/// Planning, in a context of its own.
pub(super) struct SessionBinder {
    binder: ViewBinder,
}

impl SessionBinder {
    pub fn new(parts: &Arc<DatabaseParts>) -> Self {
        Self {
            binder: ViewBinder::new(parts),
        }
    }
}

#[async_trait]
impl Binder for SessionBinder {
    async fn bind(&self, query: &str, kept: &KeptNames) -> Result<LogicalPlan> {
        self.binder.bind(query, kept).await
    }

    fn state(&self) -> SessionState {
        self.binder.state()
    }
}

/// History tells of what happened; that it cannot be written stops nothing, and is logged.
fn logged(what: &str, result: Result<()>) {
    if let Err(error) = result {
        tracing::error!(%error, "could not keep {what}");
    }
}

impl parts::History for History {
    fn record_metrics(&self, pipeline: &str, batch_id: u64, rows: &[serde_json::Value]) {
        let kept = self.record_metrics_json(rows);
        logged(
            "metrics",
            kept.and_then(|()| self.put_last_metrics_batch(pipeline, batch_id)),
        );
    }

    fn last_metrics_batch(&self, pipeline: &str) -> Option<u64> {
        History::last_metrics_batch(self, pipeline).unwrap_or_else(|error| {
            tracing::error!(%error, "could not read the newest batch of the metrics");
            None
        })
    }

    fn record_event(&self, event: Event) {
        let row = EventRow {
            event_at: event.at_us,
            kind: event.kind.to_owned(),
            object_name: event.object,
            pipeline: event.pipeline,
            batch_id: event.batch_id,
            detail: event.detail,
        };
        logged("an event", self.put_event(&row));
    }

    fn record_dead_letters(
        &self,
        stream: &str,
        pipeline: &str,
        batch_id: u64,
        rows: &[DeadLetter],
    ) {
        let rows: Vec<_> = rows
            .iter()
            .map(|letter| DeadLetterRow {
                stream_name: stream.to_owned(),
                pipeline: pipeline.to_owned(),
                batch_id,
                recorded_at: self.clock().now_us(),
                origin: letter.origin.clone(),
                raw: letter.raw.clone(),
                error: letter.error.clone(),
            })
            .collect();
        logged("dead letters", History::record_dead_letters(self, &rows));
    }

    fn forget_batch_letters(&self, stream: &str, pipeline: &str, batch_id: u64) {
        let forgotten = History::forget_batch_letters(self, stream, pipeline, batch_id);
        logged("dead letters", forgotten);
    }

    fn hand_over_letters(&self, stream: &str, handed: &HandedOver<'_>) {
        logged(
            "dead letters",
            History::hand_over_letters(self, stream, handed),
        );
    }

    fn record_late_rows(
        &self,
        place: &BatchPlace<'_>,
        watermark: Option<i64>,
        rows: &[parts::LateRow],
    ) {
        let numbered = (0..).zip(rows);
        let rows: Vec<_> = numbered
            .map(|(row_number, late)| LateRow {
                stream_name: place.name.to_owned(),
                pipeline: place.pipeline.to_owned(),
                batch_id: place.batch_id,
                row_number,
                event_time_at: late.event_time,
                watermark_at: watermark,
                row: late.row.clone(),
            })
            .collect();
        logged("late rows", History::record_late_rows(self, &rows));
    }

    fn record_expectations(
        &self,
        place: &BatchPlace<'_>,
        batch_at_us: i64,
        counts: &[ExpectationCount],
    ) {
        let rows: Vec<_> = counts
            .iter()
            .map(|count| ExpectationRow {
                stream_name: place.name.to_owned(),
                expectation_name: count.name.clone(),
                pipeline: place.pipeline.to_owned(),
                batch_id: place.batch_id,
                batch_started_at: batch_at_us,
                num_passed_rows: count.passed,
                num_failed_rows: count.failed,
                num_dropped_rows: count.dropped,
            })
            .collect();
        logged("expectations", History::record_expectations(self, &rows));
    }

    fn record_data_gaps(&self, place: &BatchPlace<'_>, gaps: &[(String, DataGap)]) {
        let rows: Vec<_> = gaps
            .iter()
            .map(|(cause, gap)| DataGapRow {
                stream_name: place.name.to_owned(),
                pipeline: place.pipeline.to_owned(),
                batch_id: place.batch_id,
                recorded_at: self.clock().now_us(),
                partition: gap.partition.clone(),
                from_position: gap.from.clone(),
                to_position: gap.to.clone(),
                num_rows: gap.rows,
                num_bytes: gap.bytes,
                cause: cause.clone(),
                accepted_by: gap.accepted_by.to_owned(),
            })
            .collect();
        logged("data gaps", History::record_data_gaps(self, &rows));
    }

    fn known_batch(&self, pipeline: &str, pipeline_id: uuid::Uuid) -> Option<u64> {
        History::known_batch(self, pipeline, pipeline_id).unwrap_or_else(|error| {
            tracing::error!(%error, "could not read the newest batch of a pipeline");
            None
        })
    }

    fn record_known_batch(&self, pipeline: &str, pipeline_id: uuid::Uuid, batch_id: u64) {
        logged(
            "a batch number",
            self.put_known_batch(pipeline, pipeline_id, batch_id),
        );
    }
}
