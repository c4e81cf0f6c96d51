//! Records of a source as they come now: for people who compare what a source sends with what its stream says.
//!
//! They are read as text through the stream's own connector, the newest first: from the last minute, hour, day or
//! month, whichever has any, else from the beginning. Parquet files, which have no records of text, say themselves
//! what their columns are. No pipeline's position moves.

use futures::StreamExt;

use super::Engine;
use super::opening::open_relation;
use crate::catalog::definition::{CatalogObject, ColumnDefinition, Definition, OptionValue};
use crate::catalog::shape::Shape;
use crate::connectors::formats::Format;
use crate::connectors::formats::observed::Sample;
use crate::connectors::open::{letter_format, parquet_sample};
use crate::connectors::replayed::LetterFormat;
use crate::connectors::{ReadLimits, SourceRange, SourceRef, StartAt};
use crate::error::Result;
use crate::types::SqlType;

/// How far back is looked for records, in seconds.
const WINDOWS_S: [i64; 4] = [60, 3600, 24 * 3600, 30 * 24 * 3600];
/// Records that are looked at, about.
const RECORDS: usize = 1000;
const LIMITS: ReadLimits = ReadLimits {
    max_rows: Some(RECORDS as u64),
    max_files: Some(20),
    max_bytes: Some(16 << 20),
};

/// What a source sends, and how its stream reads it.
pub struct Sampled {
    /// How the stream reads it.
    pub format: LetterFormat,
    /// Some of the newest records.
    pub sample: Sample,
}

impl Engine {
    /// Records of a stream's source; `None` where there is none, or it has no records as texts.
    pub async fn sample(&self, stream: &CatalogObject) -> Result<Option<Sampled>> {
        let parts = &self.inner.parts;
        let environment = parts.connector_environment(None, 0);
        let format = letter_format(stream, &environment)?;
        let Some(format) = format.filter(|_| !stream.definition.is_logged()) else {
            return Ok(None);
        };
        if format.format.format == Format::Parquet {
            let sample = parquet_sample(stream, &environment, RECORDS).await?;
            return Ok(Some(Sampled { format, sample }));
        }
        let (source, _) = open_relation(parts, &as_text(stream), None, None, 0)?;
        let mut records = Vec::new();
        for window_s in WINDOWS_S.map(Some).into_iter().chain([None]) {
            let at = match window_s {
                Some(seconds) => StartAt::Timestamp(parts.clock.now_us() - seconds * 1_000_000),
                None => StartAt::Earliest,
            };
            records = read_from(&source, &at).await?;
            if !records.is_empty() {
                break;
            }
        }
        let has_header = matches!(&format.format.format, Format::Csv(style) if style.header);
        let header = (has_header && !records.is_empty()).then(|| records.remove(0));
        // Of several files each has its own.
        records.retain(|record| Some(record) != header.as_ref());
        let sample = Sample {
            header,
            records,
            columns: Vec::new(),
        };
        Ok(Some(Sampled { format, sample }))
    }
}

/// The stream with its records in the place of its columns.
fn as_text(stream: &CatalogObject) -> CatalogObject {
    let mut object = stream.clone();
    if let Definition::Stream(definition) = &mut object.definition {
        definition.columns = vec![ColumnDefinition::new("record", SqlType::Text)];
        definition.shape = Shape::default();
        definition.watermark = None;
        definition.expectations.clear();
        let text = OptionValue::Text("text".to_owned());
        definition.options.insert("format".to_owned(), text);
        definition.options.remove("on_bad_row");
    }
    object
}

async fn read_from(source: &SourceRef, at: &StartAt) -> Result<Vec<Vec<u8>>> {
    let start = source.position_at(0, at).await?;
    let latest = source.latest_offset().await?;
    let range = source.plan_range(1, &start, &latest, &LIMITS).await?;
    let Some(SourceRange { start, end }) = range else {
        return Ok(Vec::new());
    };
    let range = SourceRange { start, end };
    let mut chunks = source.read_range(1, &range, &[0]).await?;
    let mut records = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let rows = chunk?.changes;
        let column = datafusion::arrow::compute::cast(
            rows.rows().column(0),
            &datafusion::arrow::datatypes::DataType::Utf8,
        )?;
        let texts = datafusion::arrow::array::AsArray::as_string::<i32>(&column);
        let texts = texts
            .iter()
            .flatten()
            .filter(|text| !text.trim().is_empty());
        records.extend(texts.map(|text| text.as_bytes().to_vec()));
        if records.len() >= RECORDS {
            break;
        }
    }
    Ok(records)
}
