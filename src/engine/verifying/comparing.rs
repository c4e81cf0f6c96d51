//! Two contents of a view compared as multisets: all rows, or a sample that is the same on both sides.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

use super::Verification;
use crate::engine::shared::ViewReader;
use crate::error::{Error, Result};
use crate::state::StateSnapshot;

/// Rows that are compared at a time.
const BATCH_ROWS: usize = 8192;
/// Rows that differ and are told.
const ROWS_TOLD: usize = 3;

/// What readers see.
#[derive(Clone)]
pub(in crate::engine) struct Published {
    pub reader: ViewReader,
    pub snapshot: StateSnapshot,
    pub batch_id: u64,
}

/// What it is compared with.
pub(in crate::engine) enum Side {
    /// The result of a query.
    Computed(Vec<RecordBatch>),
    /// A view of another pipeline; `None`: that has no batch.
    Stored(Option<(ViewReader, StateSnapshot)>),
}

/// Which rows are compared: all, or those whose key's checksum leaves no rest.
struct Sample {
    key: Vec<usize>,
    divisor: u64,
}

impl Sample {
    /// About `rows` of the view's rows; the others of its key have the same place.
    fn of(published: &Published, rows: u64) -> Result<Option<Self>> {
        let mut all: u64 = 0;
        for batch in published.reader.all_rows(&published.snapshot, BATCH_ROWS)? {
            all += batch?.num_rows() as u64;
        }
        let divisor = all.div_ceil(rows.max(1));
        let columns = 0..published.reader.schema.fields().len();
        let key = published.reader.key.clone().filter(|key| !key.is_empty());
        Ok((divisor > 1).then(|| Self {
            key: key.unwrap_or_else(|| columns.collect()),
            divisor,
        }))
    }

    /// Which rows of a batch are in it.
    fn mask(&self, converter: &RowConverter, batch: &RecordBatch) -> Result<Vec<bool>> {
        let key = batch.project(&self.key)?;
        let rows = converter.convert_columns(key.columns())?;
        let is_in = |row: datafusion::arrow::row::Row<'_>| {
            u64::from(crc32c::crc32c(row.as_ref())).is_multiple_of(self.divisor)
        };
        Ok(rows.iter().map(is_in).collect())
    }
}

pub(in crate::engine) async fn compare_on_thread(
    published: Published,
    again: Side,
    sample: Option<u64>,
) -> Result<Verification> {
    tokio::task::spawn_blocking(move || compare(&published, &again, sample))
        .await
        .map_err(|e| Error::internal(format!("comparing rows ended: {e}")))?
}

fn converter_of(schema: &SchemaRef) -> Result<RowConverter> {
    let fields = schema.fields().iter();
    let fields = fields.map(|field| SortField::new(field.data_type().clone()));
    Ok(RowConverter::new(fields.collect())?)
}

/// Compares as multisets: what is there more often on one side than on the other.
fn compare(published: &Published, again: &Side, sample: Option<u64>) -> Result<Verification> {
    let schema = Arc::clone(&published.reader.schema);
    let sample = match sample {
        Some(rows) => Sample::of(published, rows)?,
        None => None,
    };
    let converter = converter_of(&schema)?;
    let key_converter = match &sample {
        Some(sample) => Some(converter_of(&Arc::new(schema.project(&sample.key)?))?),
        None => None,
    };
    let mut counts: HashMap<OwnedRow, i64> = HashMap::new();
    let mut compared_rows = 0;
    let mut add = |batch: &RecordBatch, weight: i64| -> Result<u64> {
        let mask = match (&sample, &key_converter) {
            (Some(sample), Some(converter)) => Some(sample.mask(converter, batch)?),
            _ => None,
        };
        let rows = converter.convert_columns(batch.columns())?;
        for (index, row) in rows.iter().enumerate() {
            if mask.as_ref().is_none_or(|mask| mask[index]) {
                *counts.entry(row.owned()).or_default() += weight;
                compared_rows += u64::from(weight > 0);
            }
        }
        Ok(batch.num_rows() as u64)
    };
    let mut rows = 0;
    for batch in published.reader.all_rows(&published.snapshot, BATCH_ROWS)? {
        rows += add(&batch?, 1)?;
    }
    match again {
        Side::Computed(batches) => {
            for batch in batches {
                add(batch, -1)?;
            }
        }
        Side::Stored(Some((reader, snapshot))) => {
            for batch in reader.all_rows(snapshot, BATCH_ROWS)? {
                add(&batch?, -1)?;
            }
        }
        Side::Stored(None) => {}
    }
    counts.retain(|_, count| *count != 0);
    let sum = |side: fn(i64) -> i64| {
        let each = counts.values().map(|count| side(*count).max(0) as u64);
        each.sum()
    };
    let mut differing: Vec<(&OwnedRow, i64)> = counts.iter().map(|(row, n)| (row, *n)).collect();
    differing.sort_by(|a, b| a.0.cmp(b.0));
    differing.truncate(ROWS_TOLD);
    Ok(Verification {
        batch_id: published.batch_id,
        rows,
        compared_rows,
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
