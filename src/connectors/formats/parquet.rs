//! Parquet files: columns by name, cast to the declared types, row group by row group.
//!
//! Only the row groups' asked-for columns are read. A column that the file lacks is NULL, one that nobody
//! declared is noticed by what the file says of it, and read only where it is rescued. A row
//! whose value does not fit the declared type, or is NULL where that is not allowed, becomes a
//! dead letter and the rest of the file stays. A letter holds the whole row, whatever columns were
//! asked for, as a JSON object: so it can be read by itself, by people and when it is replayed. An
//! unreadable file is an error; what to do about it is the caller's policy.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray, UInt64Array, new_null_array,
};
use datafusion::arrow::compute::kernels::cmp::not_distinct;
use datafusion::arrow::compute::kernels::nullif::nullif;
use datafusion::arrow::compute::{CastOptions, can_cast_types, cast_with_options, filter};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions as DisplayOptions};
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder, RowSelection,
};
use datafusion::parquet::file::reader::ChunkReader;

use super::column::Column;
use super::encode::json_rows;
use super::json::null_refusal;
use super::values::{EpochUnit, refusal};
use super::watch::{quoted, rescued_column, rescued_object};
use crate::connectors::DeadLetter;
use crate::connectors::evolution::{NewField, SchemaEvolution, UnknownFields, can_be_column};
use crate::connectors::replayed::PassedOver;
use crate::error::{Error, Result};
use crate::types::{SqlType, TYPE_KEY};
use crate::values::float::one_nan;
use crate::values::jsonb::Json;

/// Rows that are decoded at a time.
const BATCH_ROWS: usize = 65_536;

/// Reads one Parquet file in pieces.
pub struct ParquetChunks<R> {
    /// Where whole rows are read from once more.
    file: R,
    /// Rows that went through by themselves.
    passed_over: PassedOver,
    /// Rows of the file.
    rows: u64,
    reader: ParquetRecordBatchReader,
    /// For each wanted column, its position in the reader's batches.
    positions: Vec<Option<usize>>,
    wanted: Vec<FieldRef>,
    /// How many of `wanted` are asked for; those behind are `NOT NULL` columns to be checked.
    asked: usize,
    evolution: SchemaEvolution,
    /// Columns of the file that nobody declared, with their positions in the reader's batches, if they are read.
    unknown: Vec<(FieldRef, Option<usize>)>,
    /// Those that are new, until they are told.
    new_fields: Vec<NewField>,
    origin: String,
    rows_before: u64,
    /// Bytes of the asked-for columns per row, on average, as stored.
    bytes_per_row: f64,
}

/// What is read of a file.
pub struct Wanted<'a> {
    /// The columns as they are declared.
    pub payload: &'a Fields,
    /// Which of them are asked for.
    pub projection: &'a [usize],
    /// Other names under which they may come; see [`super::FormatOptions`].
    pub other_names: &'a [(String, String)],
    /// What columns that nobody declared do.
    pub evolution: SchemaEvolution,
    /// Those of these that are never new.
    pub taken_names: &'a [String],
    /// Rows that are left out.
    pub passed_over: PassedOver,
}

/// Decoded rows of a file.
pub struct ParquetPiece {
    /// Arrays in the projection's order.
    pub arrays: Vec<ArrayRef>,
    /// Rows.
    pub rows: usize,
    /// Rows that were refused.
    pub dead_letters: Vec<DeadLetter>,
    /// What no column takes.
    pub unknown: UnknownFields,
    /// `_rescued_data` of the rows.
    pub rescued: ArrayRef,
    /// Stored bytes of it, about.
    pub bytes: u64,
}

/// The file itself is to blame: what to do about it the caller says.
fn unreadable(origin: &str, error: impl std::fmt::Display) -> Error {
    Error::damaged(format!("cannot read Parquet file \"{origin}\""))
        .detail(format!("The reader says: {error}."))
}

fn builder_of<R: ChunkReader + 'static>(
    file: R,
    origin: &str,
) -> Result<ParquetRecordBatchReaderBuilder<R>> {
    let options = ArrowReaderOptions::new();
    ParquetRecordBatchReaderBuilder::try_new_with_options(file, options)
        .map_err(|e| unreadable(origin, e))
}

impl<R: ChunkReader + Clone + 'static> ParquetChunks<R> {
    /// Opens a file; `origin` names it in errors.
    pub fn open(file: R, origin: &str, of: Wanted<'_>) -> Result<Self> {
        let Wanted {
            payload,
            projection,
            other_names,
            evolution,
            taken_names,
            passed_over,
        } = of;
        let builder = builder_of(file.clone(), origin)?;
        let rows = builder.metadata().file_metadata().num_rows();
        let mut wanted: Vec<FieldRef> = projection.iter().map(|&i| payload[i].clone()).collect();
        let required = (0..payload.len())
            .filter(|i| !payload[*i].is_nullable() && !projection.contains(i))
            .map(|i| payload[i].clone());
        wanted.extend(required);

        let stored = builder.schema().fields().clone();
        let find_either = |name: &str| {
            let mut others = other_names.iter().filter(|(_, own)| own == name);
            find(&stored, name).or_else(|| others.find_map(|(other, _)| find(&stored, other)))
        };
        let roots: Vec<Option<usize>> = wanted.iter().map(|f| find_either(f.name())).collect();
        let declared: Vec<usize> = payload
            .iter()
            .filter_map(|f| find_either(f.name()))
            .collect();
        let is_unknown =
            |at: &usize| !declared.contains(at) && *stored[*at].data_type() != DataType::Null;
        let unknown: Vec<usize> = (0..stored.len()).filter(is_unknown).collect();
        let mut read: Vec<usize> = roots.iter().flatten().copied().collect();
        if evolution == SchemaEvolution::Rescue {
            read.extend(&unknown);
        }
        read.sort_unstable();
        read.dedup();
        let positions = roots
            .iter()
            .map(|root| root.and_then(|r| read.binary_search(&r).ok()))
            .collect();
        let new_fields = match evolution.wants_fields() {
            true => new_fields(unknown.iter().map(|at| &stored[*at]), taken_names, origin),
            false => Vec::new(),
        };
        let unknown = unknown.iter();
        let unknown = unknown.map(|at| (stored[*at].clone(), read.binary_search(at).ok()));
        let unknown = unknown.collect();
        let mask = ProjectionMask::roots(builder.parquet_schema(), read);
        let bytes_per_row = stored_bytes_per_row(&builder, &mask);
        let reader = builder
            .with_batch_size(BATCH_ROWS)
            .with_projection(mask)
            .build()
            .map_err(|e| unreadable(origin, e))?;
        Ok(Self {
            file,
            passed_over,
            rows: u64::try_from(rows).unwrap_or(0),
            reader,
            positions,
            asked: projection.len(),
            wanted,
            evolution,
            unknown,
            new_fields,
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
        let mut rescued = self.rescued_of(&batch)?;
        let mut arrays = Vec::with_capacity(self.wanted.len());
        for (field, position) in self.wanted.iter().zip(&self.positions) {
            let array = match position {
                None => new_null_array(field.data_type(), rows),
                Some(p) if self.evolution == SchemaEvolution::Rescue && field.is_nullable() => {
                    convert_or_rescue(batch.column(*p), field, &mut rescued)?
                }
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
        arrays.push(self.rescued_column(rows, rescued));
        let mut piece = self.without_refused(rows, arrays, refused, bytes)?;
        piece.unknown.fields = std::mem::take(&mut self.new_fields);
        self.rows_before += rows as u64;
        Ok(Some(piece))
    }

    /// The values of columns that nobody declared, by their rows.
    fn rescued_of(&self, batch: &RecordBatch) -> Result<Rescued> {
        let mut rescued = Rescued::new();
        for (field, position) in &self.unknown {
            let Some(position) = position else { continue };
            let array = batch.column(*position);
            let rows: Vec<usize> = (0..array.len())
                .filter(|row| array.is_valid(*row))
                .collect();
            rescue(&mut rescued, field, array, &rows)?;
        }
        Ok(rescued)
    }

    fn rescued_column(&self, rows: usize, rescued: Rescued) -> ArrayRef {
        let object = |(row, members): (usize, Vec<(String, String)>)| {
            (row, rescued_object(&members, Some(&self.origin)))
        };
        rescued_column(rows, rescued.into_iter().map(object).collect())
    }

    /// What is told of rows; the last of their columns is what was rescued of them.
    fn piece(
        &self,
        mut arrays: Vec<ArrayRef>,
        rows: usize,
        dead_letters: Vec<DeadLetter>,
        bytes: u64,
    ) -> Result<ParquetPiece> {
        let rescued = arrays
            .pop()
            .ok_or_else(|| Error::internal("a piece of a file lacks what was rescued"))?;
        let unknown = UnknownFields {
            rows: if self.unknown.is_empty() {
                0
            } else {
                rows as u64
            },
            rescued_rows: (rescued.len() - rescued.null_count()) as u64,
            fields: Vec::new(),
        };
        Ok(ParquetPiece {
            arrays,
            rows,
            dead_letters,
            unknown,
            rescued,
            bytes,
        })
    }

    fn without_refused(
        &self,
        rows: usize,
        arrays: Vec<ArrayRef>,
        mut refused: Vec<Option<String>>,
        bytes: u64,
    ) -> Result<ParquetPiece> {
        if refused.is_empty() && self.passed_over.is_empty() {
            return self.piece(arrays, rows, vec![], bytes);
        }
        refused.resize(rows, None);
        let mut keep: Vec<bool> = refused.iter().map(Option::is_none).collect();
        // Rows to be looked at whole: refused ones, and ones that may have gone through already.
        let is_known = |row: usize| self.passed_over.has(self.number(row));
        let wanted: Vec<usize> = (0..rows)
            .filter(|row| !keep[*row] || is_known(*row))
            .collect();
        let mut dead_letters = Vec::new();
        for (row, raw) in wanted.iter().zip(self.whole_rows(&wanted)?) {
            let number = self.number(*row);
            if self.passed_over.holds(number, raw.as_bytes()) {
                keep[*row] = false;
            } else if let Some(reason) = refused[*row].take() {
                let origin = format!("{} row {number}", self.origin);
                dead_letters.push(super::dead_letter(origin, raw.as_bytes(), reason));
            }
        }
        let keep = BooleanArray::from(keep);
        let arrays = match keep.true_count() == rows {
            true => arrays,
            false => arrays
                .iter()
                .map(|a| Ok(filter(a, &keep)?))
                .collect::<Result<_>>()?,
        };
        self.piece(arrays, keep.true_count(), dead_letters, bytes)
    }

    /// The number in the file of a row of the piece, from 1 on.
    fn number(&self, row: usize) -> u64 {
        self.rows_before + row as u64 + 1
    }

    /// Rows of the piece with all of the file's columns, as JSON objects.
    fn whole_rows(&self, rows: &[usize]) -> Result<Vec<String>> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let at = |row: &usize| {
            let row = (self.number(*row) - 1) as usize;
            row..row + 1
        };
        let selected = rows.iter().map(at);
        let selection = RowSelection::from_consecutive_ranges(selected, self.rows as usize);
        let reader = builder_of(self.file.clone(), &self.origin)?
            .with_row_selection(selection)
            .build()
            .map_err(|e| unreadable(&self.origin, e))?;
        let mut texts = Vec::with_capacity(rows.len());
        for batch in reader {
            let batch = batch.map_err(|e| unreadable(&self.origin, e))?;
            texts.extend(row_texts(&batch)?);
        }
        Ok(texts)
    }
}

/// Members of `_rescued_data` by the rows of a piece.
type Rescued = std::collections::BTreeMap<usize, Vec<(String, String)>>;

/// Keeps values of a column of the file as JSON.
fn rescue(rescued: &mut Rescued, field: &FieldRef, array: &ArrayRef, rows: &[usize]) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let wanted: UInt64Array = rows.iter().map(|row| *row as u64).collect();
    let values = datafusion::arrow::compute::take(array, &wanted, None)?;
    for (row, raw) in rows.iter().zip(json_values(field, &values)?) {
        let members = rescued.entry(*row).or_default();
        members.push((field.name().clone(), raw));
    }
    Ok(())
}

/// Values of a column of a file as JSON.
fn json_values(field: &FieldRef, array: &ArrayRef) -> Result<Vec<String>> {
    const NAME: &str = "v";
    let field = field.as_ref().clone().with_name(NAME).with_nullable(true);
    let schema = Arc::new(Schema::new(vec![field]));
    let rows = row_texts(&RecordBatch::try_new(schema, vec![array.clone()])?)?;
    let before = format!("{{{}:", quoted(NAME));
    let value = |row: &String| {
        let value = row
            .strip_prefix(&before)
            .and_then(|rest| rest.strip_suffix('}'));
        let value =
            value.ok_or_else(|| Error::internal("a row of one column is no JSON object"))?;
        Ok(value.to_owned())
    };
    rows.iter().map(value).collect()
}

/// Casts a stored column to its declared type; values that do not fit are kept beside it.
fn convert_or_rescue(
    array: &ArrayRef,
    field: &FieldRef,
    rescued: &mut Rescued,
) -> Result<ArrayRef> {
    let mut refused = Vec::new();
    let converted = convert(array, field, &mut refused)?;
    let is_refused = |row: &usize| refused.get(*row).is_some_and(Option::is_some);
    let rows: Vec<usize> = (0..array.len()).filter(is_refused).collect();
    if rows.is_empty() {
        return Ok(converted);
    }
    // What is kept is what the file has, in the file's own type.
    let stored = Field::new(field.name(), array.data_type().clone(), true);
    rescue(rescued, &Arc::new(stored), array, &rows)?;
    let absent: BooleanArray = (0..array.len()).map(|row| Some(is_refused(&row))).collect();
    Ok(nullif(&converted, &absent)?)
}

/// Columns for what nobody declared, as the file says them; what is nested is JSON.
fn new_fields<'f>(
    unknown: impl Iterator<Item = &'f FieldRef>,
    taken_names: &[String],
    origin: &str,
) -> Vec<NewField> {
    let is_taken = |name: &str| taken_names.iter().any(|t| t.eq_ignore_ascii_case(name));
    let is_new = |field: &&FieldRef| !is_taken(field.name()) && can_be_column(field.name());
    let new_field = |field: &FieldRef| NewField {
        name: field.name().clone(),
        sql_type: match SqlType::from_field(field) {
            Some(SqlType::Array(item))
                if matches!(*item, SqlType::Array(_) | SqlType::Struct(_)) =>
            {
                SqlType::Jsonb
            }
            None | Some(SqlType::Struct(_)) => SqlType::Jsonb,
            Some(own) => own,
        },
        origin: origin.to_owned(),
    };
    unknown.filter(is_new).map(new_field).collect()
}

/// The columns of a file.
pub fn columns_of<R: ChunkReader + 'static>(file: R, origin: &str) -> Result<Fields> {
    Ok(builder_of(file, origin)?.schema().fields().clone())
}

/// The first rows of a file with all of its columns, as JSON objects.
pub fn sample<R: ChunkReader + 'static>(
    file: R,
    origin: &str,
    rows: usize,
) -> Result<Vec<Vec<u8>>> {
    let reader = builder_of(file, origin)?
        .with_limit(rows)
        .build()
        .map_err(|e| unreadable(origin, e))?;
    let mut texts = Vec::new();
    for batch in reader {
        let batch = batch.map_err(|e| unreadable(origin, e))?;
        texts.extend(row_texts(&batch)?.into_iter().map(String::into_bytes));
    }
    Ok(texts)
}

/// Rows as JSON objects.
fn row_texts(batch: &RecordBatch) -> Result<Vec<String>> {
    let schema = batch.schema();
    let columns = schema.fields().iter().zip(batch.columns());
    let columns: Vec<_> = columns
        .map(|(field, array)| in_json_terms(field, array))
        .collect::<Result<_>>()?;
    let of = |columns: &[(FieldRef, ArrayRef)]| -> Result<RecordBatch> {
        let (fields, arrays): (Vec<_>, Vec<_>) = columns.iter().cloned().unzip();
        Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
    };
    // What JSON has no form for stands as people would read it.
    json_rows(&of(&columns)?).or_else(|_| {
        let displayed = columns.iter().map(|(field, array)| displayed(field, array));
        json_rows(&of(&displayed.collect::<Result<Vec<_>>>()?)?)
    })
}

/// Binary of all kinds is written as one; a dictionary is its values.
fn in_json_terms(field: &FieldRef, array: &ArrayRef) -> Result<(FieldRef, ArrayRef)> {
    let is_named = field.metadata().contains_key(TYPE_KEY);
    let data_type = match array.data_type() {
        DataType::FixedSizeBinary(_) if is_named => return Ok((field.clone(), array.clone())),
        DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            DataType::Binary
        }
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        _ => return Ok((field.clone(), array.clone())),
    };
    let array = cast_with_options(array, &data_type, &EXACT)?;
    let field = field.as_ref().clone().with_data_type(data_type);
    Ok((Arc::new(field), array))
}

fn displayed(field: &FieldRef, array: &ArrayRef) -> Result<(FieldRef, ArrayRef)> {
    let display = DisplayOptions::default();
    let formatter = ArrayFormatter::try_new(array, &display)?;
    let rows = 0..array.len();
    let texts = rows.map(|row| {
        array
            .is_valid(row)
            .then(|| formatter.value(row).to_string())
    });
    let field = Field::new(field.name(), DataType::Utf8, true);
    Ok((Arc::new(field), Arc::new(texts.collect::<StringArray>())))
}

/// A value that does not fit is an error.
const EXACT: CastOptions<'static> = CastOptions {
    safe: false,
    format_options: DisplayOptions::new(),
};

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
    if sql_type == SqlType::Jsonb && array.data_type().is_nested() {
        let texts = json_values(
            &Arc::new(Field::new("v", array.data_type().clone(), true)),
            array,
        )?;
        let texts = texts.iter().enumerate().map(|(row, text)| {
            let value = Json::parse_sorted(text).map_or_else(|_| text.clone(), |v| v.to_text());
            array.is_valid(row).then_some(value)
        });
        return Ok(Arc::new(texts.collect::<StringArray>()));
    }
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
    if loses_fractions(array.data_type(), target) {
        let back = cast_with_options(&cast, array.data_type(), &options)?;
        let is_same = not_distinct(array, &back)?;
        let lost = (0..array.len()).filter(|row| cast.is_valid(*row) && !is_same.value(*row));
        let display = DisplayOptions::default();
        let formatter = ArrayFormatter::try_new(array, &display)?;
        for row in lost {
            refuse(refused, array.len(), row, || {
                let text = formatter.value(row).to_string();
                format!("column \"{}\": {}", field.name(), refusal(&sql_type, &text))
            });
        }
    }
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

/// A number with a fraction is none without: as in records of text, only a fraction of zero is left out.
fn loses_fractions(from: &DataType, to: &DataType) -> bool {
    let has_fractions = from.is_floating()
        || matches!(from, DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) if *scale > 0);
    has_fractions && to.is_integer()
}

fn convert_by_text(
    array: &ArrayRef,
    field: &FieldRef,
    sql_type: &SqlType,
    refused: &mut Vec<Option<String>>,
) -> Result<ArrayRef> {
    if !can_cast_types(array.data_type(), &DataType::Utf8) {
        for row in (0..array.len()).filter(|row| array.is_valid(*row)) {
            refuse(refused, array.len(), row, || {
                let name = field.name();
                format!("column \"{name}\": its type in the file cannot be read as {sql_type}")
            });
        }
        return Ok(new_null_array(field.data_type(), array.len()));
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

/// Checks the marks at both ends of a file of `length` bytes, which a half-written one lacks.
pub fn looks_complete(first4: &[u8], last4: &[u8], length: u64) -> bool {
    const SMALLEST_FILE_BYTES: u64 = 12;
    length >= SMALLEST_FILE_BYTES && first4 == b"PAR1" && last4 == b"PAR1"
}
