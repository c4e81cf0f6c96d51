//! `kind = 'sequence'`: rows for the declared columns, by rules anyone can predict.
//!
//! | column | value in row n (from 0) |
//! |---|---|
//! | integer called `id`, `n`, `seq`, `sequence`, `row_number` or like the stream's `sequence_column` option | n |
//! | integer called `k`, `key`, or ending in `_id` or `_key` | a key: one of `keys` numbers from 0, at random |
//! | other integer | 0 to 999, at random |
//! | real, double, numeric | 0.00 to 999.99, at random |
//! | text | `name-` and a key; the name is the column's, without `_id` or `_key` |
//! | timestamp, timestamptz | `start_time` + n / `event_rate` |
//! | date, time | of that moment |
//! | boolean, uuid, bytea, interval | at random |
//! | json, jsonb | `{"row": n}` |
//! | array | 0 to 3 items by the rule of the item's type |
//! | struct | each field by these rules |
//!
//! "At random" depends on seed, column name and n only. No value is ever NULL.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::arrow::array::types::IntervalMonthDayNano;
use datafusion::arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryBuilder,
    Float32Array, Float64Array, Int16Array, Int32Array, Int64Array, IntervalMonthDayNanoArray,
    ListArray, StringBuilder, StructArray, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use datafusion::arrow::buffer::OffsetBuffer;
use datafusion::arrow::datatypes::{DataType, FieldRef};

use super::Timeline;
use super::random::{Stream, scale};
use crate::error::{Error, Result};
use crate::types::SqlType;

const DAY_US: i64 = 86_400_000_000;

/// What the rules depend on.
#[derive(Debug, Clone)]
pub struct Sequence {
    /// Seed of all that is random.
    pub seed: u64,
    /// Number of different keys.
    pub keys: u64,
    /// Name of the integer column that counts rows, beside the usual names.
    pub sequence_column: Option<String>,
    /// Event time of each row.
    pub timeline: Timeline,
}

/// The role an integer column has by its name.
#[derive(Debug, PartialEq, Eq)]
enum Role {
    Sequence,
    Key,
    Measure,
}

impl Sequence {
    fn role(&self, name: &str) -> Role {
        const SEQUENCES: [&str; 5] = ["id", "n", "seq", "sequence", "row_number"];
        if SEQUENCES.contains(&name) || self.sequence_column.as_deref() == Some(name) {
            Role::Sequence
        } else if matches!(name, "k" | "key") || name.ends_with("_id") || name.ends_with("_key") {
            Role::Key
        } else {
            Role::Measure
        }
    }

    /// Values of one column in the given rows.
    pub fn column(&self, field: &FieldRef, rows: &[u64]) -> Result<ArrayRef> {
        let sql_type = SqlType::from_field(field).ok_or_else(|| {
            Error::unsupported(format!(
                "the generator cannot fill column \"{}\"",
                field.name()
            ))
        })?;
        let random = Stream::new(self.seed, field.name());
        let integer = |max: i64| self.integers(field.name(), rows, max);
        let times = || rows.iter().map(|n| self.timeline.at_us(*n));
        Ok(match sql_type {
            SqlType::SmallInt => Arc::new(Int16Array::from_iter_values(
                integer(i64::from(i16::MAX)).map(|v| v as i16),
            )),
            SqlType::Integer => Arc::new(Int32Array::from_iter_values(
                integer(i64::from(i32::MAX)).map(|v| v as i32),
            )),
            SqlType::BigInt => Arc::new(Int64Array::from_iter_values(integer(i64::MAX))),
            SqlType::Real => Arc::new(Float32Array::from_iter_values(
                cents(random, rows).map(|c| c as f32 / 100.0),
            )),
            SqlType::Double => Arc::new(Float64Array::from_iter_values(
                cents(random, rows).map(|c| c as f64 / 100.0),
            )),
            SqlType::Numeric { precision, scale } => {
                Arc::new(numeric(random, rows, precision, scale)?)
            }
            SqlType::Boolean => Arc::new(BooleanArray::from_iter(
                rows.iter().map(|n| Some(random.bits(*n) & 1 == 1)),
            )),
            SqlType::Text => self.texts(field.name(), rows),
            SqlType::Json | SqlType::Jsonb => json(rows),
            SqlType::Timestamp | SqlType::TimestampTz => Arc::new(
                TimestampMicrosecondArray::from_iter_values(times())
                    .with_data_type(field.data_type().clone()),
            ),
            SqlType::Date => Arc::new(Date32Array::from_iter_values(
                times().map(|t| t.div_euclid(DAY_US) as i32),
            )),
            SqlType::Time => Arc::new(Time64MicrosecondArray::from_iter_values(
                times().map(|t| t.rem_euclid(DAY_US)),
            )),
            SqlType::Interval => Arc::new(IntervalMonthDayNanoArray::from_iter_values(
                rows.iter().map(|n| {
                    let seconds = random.below(*n, 3_600) as i64;
                    IntervalMonthDayNano::new(0, 0, seconds * 1_000_000_000)
                }),
            )),
            SqlType::Uuid => uuids(random, rows)?,
            SqlType::Bytea => Arc::new(BinaryArray::from_iter_values(
                rows.iter().map(|n| random.bits(*n).to_be_bytes()),
            )),
            SqlType::Array(_) => self.lists(field, random, rows)?,
            SqlType::Struct(_) => self.structs(field, rows)?,
        })
    }

    fn integers(&self, name: &str, rows: &[u64], max: i64) -> impl Iterator<Item = i64> {
        let random = Stream::new(self.seed, name);
        let role = self.role(name);
        let modulus = max.unsigned_abs() + u64::from(max < i64::MAX);
        rows.iter().map(move |n| match role {
            Role::Sequence => (*n % modulus) as i64,
            Role::Key => random.below(*n, self.keys.min(modulus)) as i64,
            Role::Measure => random.below(*n, 1_000) as i64,
        })
    }

    fn texts(&self, name: &str, rows: &[u64]) -> ArrayRef {
        let random = Stream::new(self.seed, name);
        let base = name
            .strip_suffix("_id")
            .or_else(|| name.strip_suffix("_key"))
            .unwrap_or(name);
        let mut texts = StringBuilder::with_capacity(rows.len(), rows.len() * (base.len() + 7));
        for n in rows {
            // Writing into a builder's memory cannot fail.
            write!(texts, "{base}-{}", random.below(*n, self.keys)).expect("memory can be written");
            texts.append_value("");
        }
        Arc::new(texts.finish())
    }

    fn lists(&self, field: &FieldRef, random: Stream, rows: &[u64]) -> Result<ArrayRef> {
        let DataType::List(item) = field.data_type() else {
            return Err(Error::internal("an array column has a list type"));
        };
        let lengths: Vec<usize> = rows.iter().map(|n| random.below(*n, 4) as usize).collect();
        let item_rows: Vec<u64> = rows
            .iter()
            .zip(&lengths)
            .flat_map(|(n, length)| (0..*length as u64).map(move |i| n * 4 + i))
            .collect();
        let named = Arc::new(item.as_ref().clone().with_name(field.name()));
        let items = self.column(&named, &item_rows)?;
        Ok(Arc::new(ListArray::new(
            item.clone(),
            OffsetBuffer::from_lengths(lengths),
            items,
            None,
        )))
    }

    fn structs(&self, field: &FieldRef, rows: &[u64]) -> Result<ArrayRef> {
        let DataType::Struct(fields) = field.data_type() else {
            return Err(Error::internal("a struct column has a struct type"));
        };
        let arrays = fields
            .iter()
            .map(|f| self.column(f, rows))
            .collect::<Result<Vec<_>>>()?;
        Ok(Arc::new(StructArray::new(fields.clone(), arrays, None)))
    }
}

/// 0 to 99,999.
fn cents(random: Stream, rows: &[u64]) -> impl Iterator<Item = i64> {
    rows.iter().map(move |n| random.below(*n, 100_000) as i64)
}

/// Hundredths up to 999.99, as far as precision and scale have room.
fn numeric(random: Stream, rows: &[u64], precision: u8, scale_: i8) -> Result<Decimal128Array> {
    let largest = 10i128.pow(u32::from(precision)) - 1;
    let (up, down) = match scale_ {
        // Beyond 34 digits the hundredths would leave 128 bits: smaller values do as well.
        2.. => (10i128.pow(u32::from(scale_.unsigned_abs() - 2).min(32)), 1),
        _ => (
            1,
            10i128
                .checked_pow((2 - i32::from(scale_)) as u32)
                .unwrap_or(i128::MAX),
        ),
    };
    let values = cents(random, rows).map(|cents| i128::from(cents) * up / down % (largest + 1));
    Ok(Decimal128Array::from_iter_values(values).with_precision_and_scale(precision, scale_)?)
}

fn json(rows: &[u64]) -> ArrayRef {
    let mut texts = StringBuilder::with_capacity(rows.len(), rows.len() * 16);
    for n in rows {
        write!(texts, "{{\"row\": {n}}}").expect("memory can be written");
        texts.append_value("");
    }
    Arc::new(texts.finish())
}

/// Version 4 UUIDs (RFC 9562).
fn uuids(random: Stream, rows: &[u64]) -> Result<ArrayRef> {
    let mut uuids = FixedSizeBinaryBuilder::with_capacity(rows.len(), 16);
    for n in rows {
        let high = random.bits(*n);
        let low = scale(random.bits(!*n), u64::MAX);
        let bits = u128::from(high) << 64 | u128::from(low);
        let uuid = uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid();
        uuids.append_value(uuid.as_bytes())?;
    }
    Ok(Arc::new(uuids.finish()))
}
