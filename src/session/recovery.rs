//! `DIAGNOSE`, `CHECK`, `REPAIR`, `RESET CHECKPOINT`, `REBUILD STATE`, `BACKUP`, `RESTORE`, `REWIND`.
//!
//! Those that change a checkpoint are refused inside a transaction block: none of it could be rolled
//! back. What must be still for it is stopped at a batch border and goes on by itself. The engine does the work;
//! here names become pipelines and answers become rows.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde_json::json;

use super::rowset::one_batch;
use super::work::record_event;
use super::{Session, StatementResult, advice};
use crate::catalog::definition::Definition;
use crate::catalog::history::HistoryFilter;
use crate::checkpoint::recovery::PartReport;
use crate::engine::lateness::wants_watermark;
use crate::engine::recovery::{Recovered, Recovery};
use crate::engine::{CheckpointDiagnosis, Usable, naming_members};
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::{quote_identifier, quote_literal};
use crate::sql::recovery::RecoveryStatement;

/// Newest backups that are looked at for one that opens.
const BACKUPS_TRIED: usize = 3;

/// A value of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cell {
    Text(Option<String>),
    Number(Option<u64>),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Cell::Text(Some(text.to_owned()))
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Cell::Text(Some(text))
    }
}

impl From<Option<String>> for Cell {
    fn from(text: Option<String>) -> Self {
        Cell::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Cell::Number(Some(number))
    }
}

impl From<Option<u64>> for Cell {
    fn from(number: Option<u64>) -> Self {
        Cell::Number(number)
    }
}

/// The columns of a statement's rows.
pub(super) fn schema_of(statement: &RecoveryStatement) -> SchemaRef {
    let fields = statement.columns().iter().map(|(name, is_number)| {
        let data_type = match is_number {
            true => DataType::Int64,
            false => DataType::Utf8,
        };
        Field::new(*name, data_type, true)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

fn rows_of(statement: &RecoveryStatement, rows: &[Vec<Cell>]) -> Result<StatementResult> {
    let column = |(index, (_, is_number)): (usize, &(&str, bool))| -> ArrayRef {
        let text = |row: &Vec<Cell>| match &row[index] {
            Cell::Text(text) => text.clone(),
            Cell::Number(_) => None,
        };
        let number = |row: &Vec<Cell>| match row[index] {
            Cell::Number(number) => number.map(|n| i64::try_from(n).unwrap_or(i64::MAX)),
            Cell::Text(_) => None,
        };
        match is_number {
            true => Arc::new(rows.iter().map(number).collect::<Int64Array>()),
            false => Arc::new(rows.iter().map(text).collect::<StringArray>()),
        }
    };
    let columns = statement.columns().iter().enumerate().map(column).collect();
    let batch = RecordBatch::try_new(schema_of(statement), columns)?;
    Ok(one_batch(batch, statement.tag(), false))
}

impl Session {
    pub(super) async fn recover(
        &mut self,
        statement: &RecoveryStatement,
    ) -> Result<StatementResult> {
        if statement.is_refused_in_block() && self.block.is_explicit() {
            let tag = statement.tag();
            return Err(Error::new(
                sqlstate::ACTIVE_TRANSACTION,
                format!("{tag} cannot run inside a transaction block"),
            ));
        }
        let found = self.found(statement).await;
        // What the engine advises names pipelines, and a view may have such a name by now.
        let members = self.definitions().hidden_pipelines();
        let named = |text: &str| naming_members(text, &members);
        let mut rows = found.map_err(|error| error.with_texts(named))?;
        for cell in rows.iter_mut().flatten() {
            if let Cell::Text(Some(text)) = cell {
                *text = named(text);
            }
        }
        rows_of(statement, &rows)
    }

    /// The rows of a statement.
    async fn found(&mut self, statement: &RecoveryStatement) -> Result<Vec<Vec<Cell>>> {
        Ok(match statement {
            RecoveryStatement::DiagnoseCheckpoint { name, as_json } => {
                self.diagnose_checkpoint(name, *as_json).await?
            }
            RecoveryStatement::RepairCheckpoint { name, .. }
            | RecoveryStatement::ResetCheckpoint { name, .. }
            | RecoveryStatement::RebuildState { name }
            | RecoveryStatement::RestoreCheckpoint { name, .. }
            | RecoveryStatement::Rewind { name, .. } => {
                let work = Recovery::of(statement);
                let work = work.ok_or_else(|| Error::internal("a statement without work"))?;
                self.carry_out(name, work).await?
            }
            RecoveryStatement::RunDrill { name, faults } => {
                self.run_drills(name, faults.as_deref()).await?
            }
            RecoveryStatement::TestSource { name } => self.test_source(name).await?,
            RecoveryStatement::TestSink { name } => self.test_sink(name).await?,
            RecoveryStatement::SuggestWatermark { name } => self.suggest_watermark(name).await?,
            RecoveryStatement::ReplayDeadLetters { name } => self.replay_dead_letters(name).await?,
            RecoveryStatement::CompareSchema { name } => self.compare_schema(name).await?,
            RecoveryStatement::BackupCheckpoint { name, to } => {
                self.back_up(name, to.as_deref()).await?
            }
            RecoveryStatement::BackupDatabase { to } => self.back_up_database(to).await?,
            RecoveryStatement::Verify { name, sample } => self.verify(name, *sample).await?,
            RecoveryStatement::Diagnose { name } => {
                let pipeline = self.pipeline_of_any(name)?;
                let diagnosis = self.diagnosis_of(&pipeline).await;
                let status = self.parts.engine().status();
                advice_rows(advice::diagnose(&status, &pipeline, diagnosis.as_ref()))
            }
            RecoveryStatement::Check { name } => {
                let pipeline = self.pipeline_of_any(name)?;
                advice_rows(self.check(&pipeline)?)
            }
        })
    }

    /// The pipeline of that name, or that of the view or sink of that name.
    pub(super) fn pipeline_of_any(&self, name: &str) -> Result<String> {
        let snapshot = self.definitions();
        if let Some(pipeline) = snapshot.pipeline_named(name) {
            return Ok(pipeline.to_owned());
        }
        match snapshot.object(name) {
            Some(_) => Err(Error::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("\"{name}\" has no checkpoint"),
            )
            .detail("Pipelines have one, and so have the views and sinks in them.")
            .hint("SHOW PIPELINES;")),
            None => Err(Error::new(
                sqlstate::UNDEFINED_OBJECT,
                format!("pipeline \"{name}\" does not exist"),
            )
            .hint("SHOW PIPELINES;")),
        }
    }

    /// A new beginning gives up what a backup has: where one would open, it is named instead.
    async fn diagnosis_of(&self, pipeline: &str) -> Result<CheckpointDiagnosis> {
        let engine = self.parts.engine();
        let mut diagnosis = engine.diagnose_checkpoint(pipeline).await?;
        let begins_anew = |part: &PartReport| {
            let repair = part.repair.as_deref();
            repair.is_some_and(|repair| repair.starts_with("RESET CHECKPOINT"))
        };
        if !diagnosis.parts.iter().any(begins_anew) {
            return Ok(diagnosis);
        }
        let Some((location, usable)) = self.newest_backup(pipeline).await? else {
            return Ok(diagnosis);
        };
        let at_batch = match usable.is_newest {
            true => String::new(),
            false => format!(" AT BATCH {}", usable.batch_id),
        };
        let restore = format!(
            "RESTORE CHECKPOINT OF {} FROM {}{at_batch};",
            quote_identifier(pipeline),
            quote_literal(&location)
        );
        for part in diagnosis.parts.iter_mut().filter(|part| begins_anew(part)) {
            part.repair = Some(restore.clone());
        }
        Ok(diagnosis)
    }

    /// The newest backup of a pipeline that would open.
    async fn newest_backup(&self, pipeline: &str) -> Result<Option<(String, Usable)>> {
        let filter = HistoryFilter {
            name: Some(pipeline.to_owned()),
            limit: None,
        };
        let events = self.parts.history.events(&filter)?;
        let backups = events
            .iter()
            .rev()
            .filter(|event| event.kind == "backed up");
        for event in backups.take(BACKUPS_TRIED) {
            let Some(location) = event.detail.get("location").and_then(|l| l.as_str()) else {
                continue;
            };
            let usable = self.parts.engine().usable_batch(pipeline, location).await;
            // One that cannot be read is as good as none.
            if let Ok(Some(usable)) = usable {
                return Ok(Some((location.to_owned(), usable)));
            }
        }
        Ok(None)
    }

    async fn diagnose_checkpoint(&self, name: &str, as_json: bool) -> Result<Vec<Vec<Cell>>> {
        let pipeline = self.pipeline_of_any(name)?;
        let diagnosis = self.diagnosis_of(&pipeline).await?;
        if as_json {
            return Ok(vec![vec![diagnosis.guide.to_string().into()]]);
        }
        let rows = diagnosis.parts.into_iter().map(|part| {
            vec![
                part.part.into(),
                part.status.into(),
                part.count.into(),
                part.first.into(),
                part.last.into(),
                part.detail.into(),
                part.repair.into(),
            ]
        });
        Ok(rows.collect())
    }

    async fn carry_out(&self, name: &str, work: Recovery) -> Result<Vec<Vec<Cell>>> {
        let pipeline = self.pipeline_of_any(name)?;
        let only_looks = matches!(work, Recovery::Repair { dry_run: true });
        let recovered = self.parts.engine().recover(&pipeline, work).await?;
        Ok(match recovered {
            Recovered::Steps(steps) => steps
                .into_iter()
                .map(|step| vec![step.step.into(), step.object.into(), step.detail.into()])
                .collect(),
            Recovered::Findings(findings, _) if findings.is_empty() => {
                let text = "Nothing is wrong with the checkpoint.";
                let action = "There is nothing to repair.";
                vec![vec![
                    "checkpoint".into(),
                    text.into(),
                    action.into(),
                    "ok".into(),
                    None::<String>.into(),
                ]]
            }
            Recovered::Findings(findings, archive) => findings
                .into_iter()
                .map(|mut finding| {
                    let moves = finding.mend.as_ref().is_some_and(|m| !m.aside.is_empty());
                    if let Some(archive) = archive.as_ref().filter(|_| moves) {
                        finding.action += &format!(" The old file is in {archive}.");
                    }
                    let status = match (&finding.mend, &finding.statement) {
                        (Some(_), _) if only_looks => "would be mended",
                        (Some(_), _) => "mended",
                        (None, Some(_)) => "not mended",
                        (None, None) => "no harm",
                    };
                    vec![
                        finding.part.into(),
                        finding.finding.into(),
                        finding.action.into(),
                        status.into(),
                        finding.statement.into(),
                    ]
                })
                .collect(),
        })
    }

    async fn back_up(&self, name: &str, to: Option<&str>) -> Result<Vec<Vec<Cell>>> {
        let pipeline = self.pipeline_of_any(name)?;
        let backup = self.parts.engine().back_up(&pipeline, to).await?;
        let id = uuid::Uuid::new_v4().to_string();
        let checksum = format!("crc32c:{:08x}", backup.crc32c);
        let detail = json!({
            "id": id,
            "location": backup.location,
            "batch_id": backup.batch_id,
            "bytes": backup.bytes,
            "files": backup.files,
            "checksum": checksum,
        });
        record_event(&self.parts, "backed up", &pipeline, detail);
        Ok(vec![vec![
            id.into(),
            backup.location.into(),
            backup.batch_id.into(),
            backup.bytes.into(),
            backup.files.into(),
            checksum.into(),
        ]])
    }

    /// Definitions, rows and checkpoints, as of one instant.
    async fn back_up_database(&self, to: &str) -> Result<Vec<Vec<Cell>>> {
        let backup = crate::database::backup::back_up(&self.parts, to).await?;
        let (files, bytes) = backup.size();
        let detail = json!({ "location": to, "files": files, "bytes": bytes });
        record_event(&self.parts, "database backed up", "database", detail);
        let mut rows = vec![vec![
            "catalog and log".into(),
            to.into(),
            None::<u64>.into(),
            bytes.into(),
            files.into(),
        ]];
        rows.extend(backup.checkpoints.into_iter().map(|checkpoint| {
            vec![
                "checkpoint".into(),
                checkpoint.pipeline.into(),
                checkpoint.batch_id.into(),
                checkpoint.bytes.into(),
                checkpoint.files.into(),
            ]
        }));
        Ok(rows)
    }

    /// The checklist over the pipeline's figures and those of its newest batches.
    fn check(&self, pipeline: &str) -> Result<Vec<advice::Advice>> {
        let snapshot = self.definitions();
        let status = self.parts.engine().status();
        let mut metrics = Vec::new();
        for query in status.queries.iter().filter(|q| q.pipeline == pipeline) {
            let filter = HistoryFilter {
                name: Some(snapshot.kept_name(&query.stream_name).to_owned()),
                limit: Some(advice::BATCHES),
            };
            metrics.extend(self.parts.history.metrics(&filter)?);
        }
        let options = snapshot.pipeline(pipeline).map(|p| p.options.clone());
        let mine = status.sources.iter().filter(|s| s.pipeline == pipeline);
        let is_stream = |name: &String| {
            let object = snapshot.object(name);
            object.is_some_and(|object| matches!(object.definition, Definition::Stream(_)))
        };
        let streams: Vec<String> = mine
            .map(|s| s.source_name.clone())
            .filter(is_stream)
            .collect();
        let is_timed = |name: &&String| {
            let object = snapshot.object(name);
            object.is_some_and(|object| wants_watermark(object))
        };
        let timed: Vec<String> = streams.iter().filter(is_timed).cloned().collect();
        let facts = advice::CheckFacts {
            pipeline,
            status: &status,
            options: &options.unwrap_or_default(),
            streams: &streams,
            timed: &timed,
            metrics: &metrics,
        };
        Ok(advice::check(&facts))
    }
}

fn advice_rows(advice: Vec<advice::Advice>) -> Vec<Vec<Cell>> {
    let rows = advice.into_iter().map(|a| {
        vec![
            a.check.into(),
            a.status.into(),
            a.detail.into(),
            a.statement.into(),
        ]
    });
    rows.collect()
}
