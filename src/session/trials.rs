//! Statements that try something beside what runs, and change nothing: `VERIFY`, `RUN RECOVERY DRILL`,
//! `TEST SOURCE`, `TEST SINK`, `SUGGEST WATERMARK`.

use std::sync::Arc;

use serde_json::json;

use super::Session;
use super::recovery::Cell;
use super::work::record_event;
use crate::catalog::definition::{CatalogObject, Definition};
use crate::catalog::renaming::KeptName;
use crate::catalog::snapshot::CatalogSnapshot;
use crate::database::DatabaseParts;
use crate::engine::drilling::{Drill, Fault, Verdict};
use crate::engine::probing::Probe;
use crate::engine::verifying::Method;
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;
use crate::sql::statement::ObjectKind;

impl Session {
    pub(super) async fn verify(&self, name: &str, sample: Option<u64>) -> Result<Vec<Vec<Cell>>> {
        let kept = self.require_view(name)?;
        let found = self.parts.engine().verify(&kept, sample).await?;
        let (method, how) = match found.method {
            Method::OneQuery => (
                "query",
                "Its query was run over all rows that were taken in.",
            ),
            Method::Batches => ("batches", "Every batch ran again."),
            Method::OneBatch => (
                "one batch",
                "The sources were read as one batch: the offset log does not reach back.",
            ),
        };
        let mut detail = vec![how.to_owned()];
        if let Some(why) = &found.why_not_one_query {
            detail.push(format!(
                "Its query by itself proves nothing: {why}. What computed it again is what computes it."
            ));
        }
        if found.compared_rows < found.rows {
            detail.push(format!("{} rows were compared.", found.compared_rows));
        }
        if found.took_in_nothing {
            detail.push(
                "No batch has taken in anything yet: there is nothing to compare.".to_owned(),
            );
        }
        detail.extend(found.examples.iter().cloned());
        let rebuild = format!("REBUILD STATE OF {};", quote_identifier(&found.pipeline));
        record_event(
            &self.parts,
            "verified",
            kept.as_str(),
            json!({
                "batch_id": found.batch_id,
                "method": method,
                "missing_rows": found.missing_rows,
                "unexpected_rows": found.unexpected_rows,
            }),
        );
        let status = match found.differs() {
            true => "differs",
            false if found.took_in_nothing => "empty",
            false => "equal",
        };
        Ok(vec![vec![
            name.into(),
            status.into(),
            found.batch_id.into(),
            found.rows.into(),
            found.missing_rows.into(),
            found.unexpected_rows.into(),
            method.into(),
            detail.join(" ").into(),
            found.differs().then_some(rebuild).into(),
        ]])
    }

    /// Only what is computed and stored can be computed again and compared.
    fn require_view(&self, name: &str) -> Result<KeptName> {
        let snapshot = self.definitions();
        let error = match snapshot.require(ObjectKind::MaterializedView, name) {
            Ok(view) => return Ok(KeptName::of(view)),
            Err(error) => error,
        };
        if error.sqlstate() != sqlstate::WRONG_OBJECT_TYPE {
            return Err(error);
        }
        let dependents = snapshot.dependents(name).into_iter();
        let mut views = dependents
            .filter(|o| matches!(o.definition, Definition::MaterializedView(_)))
            .map(|o| quote_identifier(&o.name));
        let hint = match views.next() {
            Some(view) => {
                format!("VERIFY MATERIALIZED VIEW {view}; computes a view over it again.")
            }
            None => "SHOW MATERIALIZED VIEWS; tells what can be computed again.".to_owned(),
        };
        Err(error.hint(hint))
    }

    pub(super) async fn run_drills(
        &self,
        name: &str,
        faults: Option<&str>,
    ) -> Result<Vec<Vec<Cell>>> {
        let faults = Fault::named(faults)?;
        let pipeline = self.pipeline_of_any(name)?;
        let drills = run_drills(&self.parts, &pipeline, &faults, None).await?;
        let rows = drills.into_iter().map(|(id, drill)| {
            vec![
                id.into(),
                drill.fault.name().into(),
                drill.verdict.name().into(),
                drill.batch_id.into(),
                drill.statements.join(" ").into(),
                drill.duration_ms().into(),
                drill.rows.into(),
                drill.missing_rows.into(),
                drill.unexpected_rows.into(),
                drill.detail.into(),
            ]
        });
        Ok(rows.collect())
    }

    pub(super) async fn test_source(&self, name: &str) -> Result<Vec<Vec<Cell>>> {
        let snapshot = self.definitions();
        let stream = require_stream(&snapshot, name)?;
        Ok(probe_rows(self.parts.engine().test_source(stream).await))
    }

    pub(super) async fn test_sink(&self, name: &str) -> Result<Vec<Vec<Cell>>> {
        let snapshot = self.definitions();
        let sink = snapshot.require(ObjectKind::Sink, name)?;
        let pipeline = self.pipeline_of_any(name)?;
        let engine = self.parts.engine();
        Ok(probe_rows(engine.test_sink(sink, &pipeline).await))
    }

    pub(super) async fn suggest_watermark(&self, name: &str) -> Result<Vec<Vec<Cell>>> {
        let snapshot = self.definitions();
        let stream = require_stream(&snapshot, name)?;
        let suggested = self.parts.engine().suggest_watermark(stream).await?;
        let rows = suggested.into_iter().map(|suggestion| {
            let percent = suggestion.permille as f64 / 10.0;
            let seconds = suggestion.delay_us / 1_000_000;
            vec![
                format!("{percent:.1}").into(),
                format!("{seconds} seconds").into(),
                suggestion.late_rows.into(),
                suggestion.rows_in_delay.into(),
                suggestion.statement.into(),
            ]
        });
        Ok(rows.collect())
    }
}

/// A stream; of other relations it is said where to look instead.
pub(super) fn require_stream<'a>(
    snapshot: &'a CatalogSnapshot,
    name: &str,
) -> Result<&'a Arc<CatalogObject>> {
    let required = snapshot.require(ObjectKind::Stream, name);
    required.map_err(|error| match error.sqlstate() {
        sqlstate::WRONG_OBJECT_TYPE => {
            error.hint("SHOW STREAMS; tells what rows come from outside, or in the order of time.")
        }
        _ => error,
    })
}

/// Drills with one fault after the other, each on a copy of its own, and keeps what came of each under an
/// identity. `schedule`: whose drills they are.
pub(crate) async fn run_drills(
    parts: &Arc<DatabaseParts>,
    pipeline: &str,
    faults: &[Fault],
    schedule: Option<&str>,
) -> Result<Vec<(String, Drill)>> {
    let mut drills = Vec::new();
    for fault in faults {
        let drill = parts.engine().drill(pipeline, *fault).await?;
        let id = uuid::Uuid::new_v4().to_string();
        let detail = json!({
            "id": id,
            "schedule": schedule,
            "fault": fault.name(),
            "verdict": drill.verdict.name(),
            "batch_id": drill.batch_id,
            "statements": drill.statements.join(" "),
            "duration_ms": drill.duration_ms(),
            "rows": drill.rows,
            "missing_rows": drill.missing_rows,
            "unexpected_rows": drill.unexpected_rows,
            "detail": drill.detail,
        });
        record_event(parts, "drilled", pipeline, detail);
        drills.push((id, drill));
    }
    Ok(drills)
}

/// Keeps that a schedule's drill could not be run.
pub(crate) fn record_failed_drill(
    parts: &Arc<DatabaseParts>,
    pipeline: &str,
    schedule: &str,
    error: &Error,
) {
    let detail = json!({
        "id": uuid::Uuid::new_v4().to_string(),
        "schedule": schedule,
        "verdict": Verdict::Failed.name(),
        "detail": format!("It could not be run: {}.", error.primary()),
    });
    record_event(parts, "drilled", pipeline, detail);
}

fn probe_rows(probes: Vec<Probe>) -> Vec<Vec<Cell>> {
    let rows = probes.into_iter().map(|probe| {
        vec![
            probe.check.into(),
            probe.status.into(),
            probe.detail.into(),
            u64::try_from(probe.duration_us / 1000).unwrap_or(0).into(),
            probe.statement.into(),
        ]
    });
    rows.collect()
}
