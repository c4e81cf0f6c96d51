//! A sink for people: each batch's changes as a small table.
//!
//! A screen cannot take anything back, so a batch that is delivered again after a crash is shown
//! again and marked as replayed.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::util::pretty::pretty_format_batches;

use super::{Mode, Shape};
use crate::connectors::formats::encode::text_column;
use crate::connectors::open::{ConsoleWriter, SinkInput};
use crate::connectors::settings::Settings;
use crate::connectors::{Delivery, Sink, SinkReceipt};
use crate::dataflow::change::ChangeBatch;
use crate::error::Result;

/// Rows of a batch that are shown unless option `num_rows` says otherwise.
const ROWS_SHOWN: u64 = 20;

/// The sink.
pub struct ConsoleSink {
    name: String,
    shape: Shape,
    rows_shown: usize,
    out: ConsoleWriter,
}

impl ConsoleSink {
    /// A sink that writes to `out`.
    pub fn open(
        name: &str,
        settings: &Settings<'_>,
        input: SinkInput,
        out: ConsoleWriter,
    ) -> Result<Self> {
        let rows_shown = settings.count("num_rows")?.unwrap_or(ROWS_SHOWN);
        Ok(Self {
            name: name.to_owned(),
            shape: Shape::new(name, Mode::Changelog, input)?,
            rows_shown: usize::try_from(rows_shown).unwrap_or(usize::MAX),
            out,
        })
    }

    fn render(&self, delivery: &Delivery, batches: &[RecordBatch]) -> Result<String> {
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let mut text = format!(
            "-- sink {}, batch {}: {rows} change{}{}\n",
            self.name,
            delivery.batch_id,
            if rows == 1 { "" } else { "s" },
            if delivery.replayed { " (replayed)" } else { "" },
        );
        let mut left = self.rows_shown;
        let mut shown = Vec::new();
        for batch in batches {
            let part = batch.slice(0, left.min(batch.num_rows()));
            left -= part.num_rows();
            if part.num_rows() > 0 {
                shown.push(as_text(&part)?);
            }
        }
        if !shown.is_empty() {
            text.push_str(&pretty_format_batches(&shown)?.to_string());
            text.push('\n');
        }
        if rows > self.rows_shown {
            text.push_str(&format!("-- and {} more\n", rows - self.rows_shown));
        }
        Ok(text)
    }
}

/// All columns as text, the batch's number left out: the line above has it.
fn as_text(batch: &RecordBatch) -> Result<RecordBatch> {
    let schema = batch.schema();
    let mut fields = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (field, column) in schema.fields().iter().zip(batch.columns()).skip(1) {
        fields.push(Field::new(field.name(), DataType::Utf8, true));
        columns.push(Arc::new(text_column(field, column)?));
    }
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}

#[async_trait]
impl Sink for ConsoleSink {
    fn description(&self) -> String {
        format!("console {}", self.name)
    }

    async fn deliver(&self, delivery: &Delivery, changes: &[ChangeBatch]) -> Result<SinkReceipt> {
        let batches = self.shape.rows(delivery.batch_id, changes)?;
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        if rows == 0 {
            return Ok(SinkReceipt::default());
        }
        let text = self.render(delivery, &batches)?;
        let mut out = self.out.lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Ok(SinkReceipt {
            rows: rows as u64,
            bytes: text.len() as u64,
        })
    }
}
