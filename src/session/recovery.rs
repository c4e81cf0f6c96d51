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
use crate::catalog::snapshot::pipeline_of;
use crate::engine::recovery::{Recovered, Recovery};
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;
use crate::sql::recovery::RecoveryStatement;
use crate::sql::statement::ObjectKind;

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
        if statement.changes() && self.block.is_explicit() {
            let tag = statement.tag();
            return Err(Error::new(
                sqlstate::ACTIVE_TRANSACTION,
                format!("{tag} cannot run inside a transaction block"),
            ));
        }
        let rows = match statement {
            RecoveryStatement::DiagnoseCheckpoint { name, as_json } => {
                self.diagnose_checkpoint(name, *as_json).await?
            }
            RecoveryStatement::RepairCheckpoint { name, dry_run } => {
                let work = Recovery::Repair { dry_run: *dry_run };
                self.carry_out(name, work).await?
            }
            RecoveryStatement::ResetCheckpoint { name, from } => {
                self.carry_out(name, Recovery::Reset(from.clone())).await?
            }
            RecoveryStatement::RebuildState { name } => {
                self.carry_out(name, Recovery::RebuildState).await?
            }
            RecoveryStatement::RestoreCheckpoint {
                name,
                from,
                batch_id,
            } => {
                let (from, batch_id) = (from.clone(), *batch_id);
                self.carry_out(name, Recovery::Restore { from, batch_id })
                    .await?
            }
            RecoveryStatement::Rewind { name, to } => {
                self.carry_out(name, Recovery::Rewind(*to)).await?
            }
            RecoveryStatement::BackupCheckpoint { name, to } => {
                self.back_up(name, to.as_deref()).await?
            }
            RecoveryStatement::Verify { name } => self.verify(name).await?,
            RecoveryStatement::Diagnose { name } => {
                let pipeline = self.pipeline_of_any(name)?;
                let diagnosis = self.parts.engine().diagnose_checkpoint(&pipeline).await;
                let status = self.parts.engine().status();
                advice_rows(advice::diagnose(&status, &pipeline, diagnosis.as_ref()))
            }
            RecoveryStatement::Check { name } => {
                let pipeline = self.pipeline_of_any(name)?;
                advice_rows(self.check(&pipeline)?)
            }
        };
        rows_of(statement, &rows)
    }

    /// The pipeline of that name, or that of the view or sink of that name.
    fn pipeline_of_any(&self, name: &str) -> Result<String> {
        let snapshot = self.definitions();
        if snapshot.pipeline(name).is_some() {
            return Ok(name.to_owned());
        }
        match snapshot.object(name) {
            Some(object) => pipeline_of(&object.definition)
                .map(str::to_owned)
                .ok_or_else(|| {
                    Error::new(
                        sqlstate::WRONG_OBJECT_TYPE,
                        format!("\"{name}\" has no checkpoint"),
                    )
                    .detail("Pipelines have one, and so have the views and sinks in them.")
                    .hint("SHOW PIPELINES;")
                }),
            None => Err(Error::new(
                sqlstate::UNDEFINED_OBJECT,
                format!("pipeline \"{name}\" does not exist"),
            )
            .hint("SHOW PIPELINES;")),
        }
    }

    async fn diagnose_checkpoint(&self, name: &str, as_json: bool) -> Result<Vec<Vec<Cell>>> {
        let pipeline = self.pipeline_of_any(name)?;
        let diagnosis = self.parts.engine().diagnose_checkpoint(&pipeline).await?;
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

    async fn verify(&self, name: &str) -> Result<Vec<Vec<Cell>>> {
        self.definitions()
            .require(ObjectKind::MaterializedView, name)?;
        let found = self.parts.engine().verify(name).await?;
        let is_equal = found.missing_rows + found.unexpected_rows == 0;
        let how = match found.is_exact {
            true => "Every batch ran again.",
            false => "The sources were read as one batch: the offset log does not reach back.",
        };
        let mut detail = vec![how.to_owned()];
        detail.extend(found.examples);
        let rebuild = format!("REBUILD STATE OF {};", quote_identifier(&found.pipeline));
        record_event(
            &self.parts,
            "verified",
            name,
            json!({
                "batch_id": found.batch_id,
                "missing_rows": found.missing_rows,
                "unexpected_rows": found.unexpected_rows,
            }),
        );
        Ok(vec![vec![
            name.into(),
            if is_equal { "equal" } else { "differs" }.into(),
            found.batch_id.into(),
            found.rows.into(),
            found.missing_rows.into(),
            found.unexpected_rows.into(),
            detail.join(" ").into(),
            (!is_equal).then_some(rebuild).into(),
        ]])
    }

    /// The checklist over the pipeline's figures and those of its newest batches.
    fn check(&self, pipeline: &str) -> Result<Vec<advice::Advice>> {
        let snapshot = self.definitions();
        let status = self.parts.engine().status();
        let mut metrics = Vec::new();
        for query in status.queries.iter().filter(|q| q.pipeline == pipeline) {
            let filter = crate::catalog::history::HistoryFilter {
                name: Some(query.stream_name.clone()),
                limit: Some(advice::BATCHES),
            };
            metrics.extend(self.parts.history.metrics(&filter)?);
        }
        let options = snapshot.pipeline(pipeline).map(|p| p.options.clone());
        let facts = advice::CheckFacts {
            pipeline,
            status: &status,
            options: &options.unwrap_or_default(),
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
