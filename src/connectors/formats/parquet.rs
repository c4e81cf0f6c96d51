//! Parquet files: columns by name, cast to the declared types, row group by row group.
//!
//! Only the row groups' asked-for columns are read. A column that the file lacks is NULL. A row
//! whose value does not fit the declared type, or is NULL where that is not allowed, becomes a
//! dead letter and the rest of the file stays. An unreadable file is an error; what to do about it
//! is the caller's policy.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, new_null_array,
};
use datafusion::arrow::compute::{CastOptions, can_cast_types, cast_with_options, filter};
use datafusion::arrow::datatypes::{DataType, FieldRef, Fields};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions as DisplayOptions};
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use datafusion::parquet::file::reader::ChunkReader;

use super::column::Column;
use super::json::null_refusal;
use super::values::{EpochUnit, refusal};
use crate::connectors::DeadLetter;
use crate::error::{Error, Result, sqlstate};
use crate::types::{SqlType, TYPE_KEY};
use crate::values::float::one_nan;

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 65_536;

/// Reads one Parquet file in pieces.
pub struct ParquetChunks {
    reader: ParquetRecordBatchReader,
    /// For each wanted column, its position in the reader's batches.
    positions: Vec<Option<usize>>,
    wanted: Vec<FieldRef>,
    /// How many of `wanted` are asked for; those behind are `NOT NULL` columns to be checked.
    asked: usize,
    origin: String,
    rows_before: u64,
    /// Bytes of the asked-for columns per row, on average, as stored.
    bytes_per_row: f64,
}

/// Decoded rows of a file.
pub struct ParquetPiece {
    /// Arrays in the projection's order.
    pub arrays: Vec<ArrayRef>,
    /// Rows.
    pub rows: usize,
    /// Rows that were refused.
    pub dead_letters: Vec<DeadLetter>,
    /// Stored bytes of it, about.
    pub bytes: u64,
}

fn unreadable(origin: &str, error: impl std::fmt::Display) -> Error {
    Error::damaged(format!("cannot read Parquet file \"{origin}\""))
        .detail(format!("The reader says: {error}."))
        .hint("Replace the file, or set on_bad_file = 'skip' on the stream.")
}

impl ParquetChunks {
    /// Opens a file; `origin` names it in errors.
    pub fn open<R: ChunkReader + 'static>(
        file: R,
        origin: &str,
        payload: &Fields,
        projection: &[usize],
    ) -> Result<Self> {
        let options = ArrowReaderOptions::new();
        let builder = ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)
            .map_err(|e| unreadable(origin, e))?;
        let mut wanted: Vec<FieldRef> = projection.iter().map(|&i| payload[i].clone()).collect();
        let required = (0..payload.len())
            .filter(|i| !payload[*i].is_nullable() && !projection.contains(i))
            .map(|i| payload[i].clone());
        wanted.extend(required);

        let stored = builder.schema().fields().clone();
        let roots: Vec<Option<usize>> = wanted.iter().map(|f| find(&stored, f.name())).collect();
        let mut read: Vec<usize> = roots.iter().flatten().copied().collect();
        read.sort_unstable();
        read.dedup();
        let positions = roots
            .iter()
            .map(|root| root.and_then(|r| read.binary_search(&r).ok()))
            .collect();
        let mask = ProjectionMask::roots(builder.parquet_schema(), read);
        let bytes_per_row = stored_bytes_per_row(&builder, &mask);
        let reader = builder
            .with_batch_size(BATCH_ROWS)
            .with_projection(mask)
            .build()
            .map_err(|e| unreadable(origin, e))?;
        Ok(Self {
            reader,
            positions,
            asked: projection.len(),
            wanted,
            origin: origin.to_owned(),
            rows_before: 0,
            bytes_per_row,
        })
    }

    /// The next piece, `None` at the end.
    pub fn next_piece(&mut self) -> Result<Option<ParquetPiece>> {
        let batch = match self.reader.next() {
            None => return Ok(None),
            Some(batch) => batch.map_err(|e| unreadable(&self.origin, e))?,
        };
        let rows = batch.num_rows();
        let bytes = (rows as f64 * self.bytes_per_row) as u64;
        let mut refused: Vec<Option<String>> = Vec::new();
        let mut arrays = Vec::with_capacity(self.wanted.len());
        for (field, position) in self.wanted.iter().zip(&self.positions) {
            let array = match position {
                None => new_null_array(field.data_type(), rows),
                Some(p) => convert(batch.column(*p), field, &mut refused)?,
            };
            if !field.is_nullable() && array.null_count() > 0 {
                for row in (0..rows).filter(|row| array.is_null(*row)) {
                    refuse(&mut refused, rows, row, || null_refusal(field.name()));
                }
            }
            arrays.push(array);
        }
        arrays.truncate(self.asked);
        let piece = self.without_refused(&batch, arrays, refused, bytes)?;
        self.rows_before += rows as u64;
        Ok(Some(piece))
    }

    fn without_refused(
        &self,
        batch: &RecordBatch,
        arrays: Vec<ArrayRef>,
        refused: Vec<Option<String>>,
        bytes: u64,
    ) -> Result<ParquetPiece> {
        if refused.is_empty() {
            return Ok(ParquetPiece {
                arrays,
                rows: batch.num_rows(),
                dead_letters: vec![],
                bytes,
            });
        }
        let keep: BooleanArray = refused.iter().map(|r| Some(r.is_none())).collect();
        let arrays = arrays
            .iter()
            .map(|a| Ok(filter(a, &keep)?))
            .collect::<Result<_>>()?;
        let mut dead_letters = Vec::new();
        for (row, reason) in refused.into_iter().enumerate() {
            if let Some(reason) = reason {
                dead_letters.push(super::dead_letter(
                    format!("{} row {}", self.origin, self.rows_before + row as u64 + 1),
                    row_text(batch, row).as_bytes(),
                    reason,
                ));
            }
        }
        Ok(ParquetPiece {
            arrays,
            rows: keep.true_count(),
            dead_letters,
            bytes,
        })
    }
}

/// By exact name, else without regard to case.
fn find(fields: &Fields, name: &str) -> Option<usize> {
    fields.iter().position(|f| f.name() == name).or_else(|| {
        fields
            .iter()
            .position(|f| f.name().eq_ignore_ascii_case(name))
    })
}

fn stored_bytes_per_row<R: ChunkReader + 'static>(
    builder: &ParquetRecordBatchReaderBuilder<R>,
    mask: &ProjectionMask,
) -> f64 {
    let (mut rows, mut bytes) = (0i64, 0i64);
    for group in builder.metadata().row_groups() {
        rows += group.num_rows();
        for (leaf, column) in group.columns().iter().enumerate() {
            if mask.leaf_included(leaf) {
                bytes += column.compressed_size();
            }
        }
    }
    bytes.max(0) as f64 / rows.max(1) as f64
}

fn refuse(
    refused: &mut Vec<Option<String>>,
    rows: usize,
    row: usize,
    reason: impl FnOnce() -> String,
) {
    refused.resize(rows, None);
    refused[row].get_or_insert_with(reason);
}

/// Casts a stored column to its declared type; rows that do not fit are refused.
fn convert(
    array: &ArrayRef,
    field: &FieldRef,
    refused: &mut Vec<Option<String>>,
) -> Result<ArrayRef> {
    let target = field.data_type();
    if array.data_type() == target {
        return Ok(one_nan(array.clone()));
    }
    let named = field.metadata().contains_key(TYPE_KEY);
    let sql_type = SqlType::from_field(field)
        .ok_or_else(|| Error::internal("a declared column has a SQL type"))?;
    let is_text = matches!(
        array.data_type(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    );
    // Text into bytea, uuid and the like follows SQL's input rules, not a byte copy.
    let by_text = is_text && !matches!(target, DataType::Utf8)
        || !can_cast_types(array.data_type(), target)
        || (named && sql_type == SqlType::Uuid && is_text);
    if by_text {
        return convert_by_text(array, field, &sql_type, refused);
    }
    let options = CastOptions {
        safe: true,
        ..CastOptions::default()
    };
    let cast = cast_with_options(array, target, &options)?;
    if cast.null_count() != array.logical_null_count() {
        let display = DisplayOptions::default();
        let formatter = ArrayFormatter::try_new(array, &display)?;
        let logical = array.logical_nulls();
        for row in 0..array.len() {
            let was_null = logical.as_ref().is_some_and(|n| n.is_null(row));
            if cast.is_null(row) && !was_null {
                refuse(refused, array.len(), row, || {
                    let text = formatter.value(row).to_string();
                    format!("column \"{}\": {}", field.name(), refusal(&sql_type, &text))
                });
            }
        }
    }
    Ok(one_nan(cast))
}

fn convert_by_text(
    array: &ArrayRef,
    field: &FieldRef,
    sql_type: &SqlType,
    refused: &mut Vec<Option<String>>,
) -> Result<ArrayRef> {
    if !can_cast_types(array.data_type(), &DataType::Utf8) {
        return Err(Error::new(
            sqlstate::DATATYPE_MISMATCH,
            format!(
                "column \"{}\" of the file cannot be read as {sql_type}",
                field.name()
            ),
        )
        .hint("Declare the column with the type that the file has."));
    }
    let text = cast_with_options(array, &DataType::Utf8, &CastOptions::default())?;
    let text = text.as_string::<i32>();
    let mut column = Column::new(field, EpochUnit::Auto)?;
    for row in 0..text.len() {
        if text.is_null(row) {
            column.push_null();
        } else if let Err(reason) = column.push_text(text.value(row)) {
            column.truncate(row);
            column.push_null();
            refuse(refused, text.len(), row, || {
                format!("column \"{}\": {reason}", field.name())
            });
        }
    }
    Ok(column.finish())
}

/// A refused row as JSON-like text, for people.
fn row_text(batch: &RecordBatch, row: usize) -> String {
    let display = DisplayOptions::default().with_null("null");
    let fields: Vec<String> = batch
        .schema()
        .fields()
        .iter()
        .zip(batch.columns())
        .map(|(field, array)| {
            let value = ArrayFormatter::try_new(array, &display)
                .map(|f| f.value(row).to_string())
                .unwrap_or_default();
            format!("{}: {value}", field.name())
        })
        .collect();
    format!("{{{}}}", fields.join(", "))
}

/// Checks the marks at both ends of a file of `length` bytes, which a half-written one lacks.
pub fn looks_complete(first4: &[u8], last4: &[u8], length: u64) -> bool {
    const SMALLEST_FILE_BYTES: u64 = 12;
    length >= SMALLEST_FILE_BYTES && first4 == b"PAR1" && last4 == b"PAR1"
}
