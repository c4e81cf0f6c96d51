//! Sinks: where changes go. Each delivers a batch whole and the same batch again without doubling.

mod blackhole;
mod console;
mod files;
mod taken_back;
mod target;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, UInt64Array};
use datafusion::arrow::compute::take_record_batch;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

pub use self::blackhole::BlackholeSink;
pub use self::console::ConsoleSink;
pub use self::files::FilesSink;

use super::changelog::Changelog;
use super::open::SinkInput;
use super::settings::Settings;
use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, Result, sqlstate};

/// How changes are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// rows only; nothing may be updated or deleted
    Append,
    /// rows with batch and kind of change
    Changelog,
}

/// Turns a batch's changes into the rows that a sink writes.
#[derive(Debug, Clone)]
pub struct Shape {
    mode: Mode,
    input: SinkInput,
    output: SchemaRef,
    name: String,
}

impl Shape {
    /// The shape that option `mode` asks for; by default as simple as the input allows.
    pub fn from_settings(name: &str, settings: &Settings<'_>, input: SinkInput) -> Result<Self> {
        #[derive(Clone, Copy, PartialEq)]
        enum Wanted {
            Append,
            Changelog,
            Unsupported,
        }
        let wanted = settings.choice(
            "mode",
            &[
                ("append", Wanted::Append),
                ("changelog", Wanted::Changelog),
                ("update", Wanted::Changelog),
                ("upsert", Wanted::Unsupported),
                ("complete", Wanted::Unsupported),
            ],
        )?;
        let mode = match wanted {
            Some(Wanted::Unsupported) => {
                return Err(Error::unsupported(format!(
                    "sink \"{name}\" has only the modes 'append' and 'changelog'"
                ))
                .hint("Use mode = 'changelog'."));
            }
            Some(Wanted::Append) if input.append_only == Some(false) => {
                return Err(append_needs_inserts(name));
            }
            Some(Wanted::Append) => Mode::Append,
            Some(Wanted::Changelog) => Mode::Changelog,
            None if input.append_only == Some(false) => Mode::Changelog,
            None => Mode::Append,
        };
        Self::new(name, mode, input)
    }

    fn new(name: &str, mode: Mode, input: SinkInput) -> Result<Self> {
        let output = match mode {
            Mode::Append => input.schema.clone(),
            Mode::Changelog => changelog_schema(&input.schema)?,
        };
        Ok(Self {
            mode,
            input,
            output,
            name: name.to_owned(),
        })
    }

    /// Schema of the rows that are written.
    pub fn schema(&self) -> &SchemaRef {
        &self.output
    }

    /// The rows to write for a batch, without empty batches.
    pub fn rows(&self, batch_id: u64, changes: &[ChangeBatch]) -> Result<Vec<RecordBatch>> {
        match self.mode {
            Mode::Append => {
                let mut batches = Vec::with_capacity(changes.len());
                for change in changes.iter().filter(|c| !c.is_empty()) {
                    batches.push(self.inserted(change)?);
                }
                Ok(batches)
            }
            Mode::Changelog => {
                let log = Changelog::of(&self.input.schema, changes, &self.input.key)?;
                let rows = log.rows.num_rows();
                if rows == 0 {
                    return Ok(vec![]);
                }
                let batch_ids = Int64Array::from_value(batch_id as i64, rows);
                let mut columns: Vec<ArrayRef> = vec![Arc::new(batch_ids), log.kind_column()];
                columns.extend(log.rows.columns().iter().cloned());
                Ok(vec![RecordBatch::try_new(self.output.clone(), columns)?])
            }
        }
    }

    fn inserted(&self, change: &ChangeBatch) -> Result<RecordBatch> {
        let Some(weights) = change.weights() else {
            return Ok(change.rows().clone());
        };
        let mut indices = Vec::with_capacity(weights.len());
        for (index, weight) in weights.values().iter().enumerate() {
            match *weight {
                1 => indices.push(index as u64),
                w if w < 0 => return Err(append_needs_inserts(&self.name)),
                w => indices.extend(std::iter::repeat_n(index as u64, w as usize)),
            }
        }
        Ok(take_record_batch(
            change.rows(),
            &UInt64Array::from(indices),
        )?)
    }
}

fn append_needs_inserts(name: &str) -> Error {
    Error::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("sink \"{name}\" in mode 'append' cannot deliver updates and deletes"),
    )
    .hint("Create the sink WITH (mode = 'changelog', …), or let the view use EMIT ON WINDOW CLOSE.")
}

fn changelog_schema(input: &SchemaRef) -> Result<SchemaRef> {
    let mut fields = vec![
        Arc::new(Field::new("batch_id", DataType::Int64, false)),
        Arc::new(Field::new("change_kind", DataType::Utf8, false)),
    ];
    for field in input.fields() {
        if matches!(field.name().as_str(), "batch_id" | "change_kind") {
            return Err(Error::new(
                sqlstate::DUPLICATE_COLUMN,
                format!(
                    "mode 'changelog' adds a column \"{}\", which the input has too",
                    field.name()
                ),
            )
            .hint("Rename that column in the view."));
        }
        // A deleted row's values are told as they were; the declared nullability stays.
        fields.push(field.clone());
    }
    Ok(Arc::new(Schema::new(fields)))
}
