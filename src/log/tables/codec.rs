//! The bytes of a table's columns outside of its key; for a bag, of all its columns.
//!
//! ```text
//!   as at the creation    arrow-row bytes of the first columns
//!   with added columns    0x80 | how many columns, u16 | arrow-row bytes of so many columns
//! ```
//!
//! Arrow-row bytes never begin with 0x80, so that rows written before a column was added stay as
//! they are and are told apart by themselves. A bag's row is cut before trailing added columns that
//! hold their missing values: a row from before then has the same key as an equal one of today. A
//! dropped column keeps its place and is written as NULL.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, UInt64Array, new_null_array};
use datafusion::arrow::compute::kernels::cmp::not_distinct;
use datafusion::arrow::compute::{interleave, take};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::ScalarValue;

use super::layout::decode_rows;
use crate::catalog::shape::StoredColumn;
use crate::error::{Error, Result, sqlstate};
use crate::log::stored::missing_value;

const TAG: u8 = 0x80;
const TAG_BYTES: usize = 3;

/// Encoded keys or values, a row each.
#[derive(Debug)]
pub enum Encoded {
    /// Arrow-row bytes as they are.
    Plain(Rows),
    /// Bytes with a tag where columns were added.
    Tagged(Vec<Vec<u8>>),
}

impl Encoded {
    /// The bytes of a row.
    pub fn row(&self, row: usize) -> &[u8] {
        match self {
            Self::Plain(rows) => rows.row(row).data(),
            Self::Tagged(rows) => &rows[row],
        }
    }

    /// All rows' bytes.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let count = match self {
            Self::Plain(rows) => rows.num_rows(),
            Self::Tagged(rows) => rows.len(),
        };
        (0..count).map(|row| self.row(row))
    }
}

/// Encodes and decodes the columns.
#[derive(Debug)]
pub(super) struct Codec {
    types: Vec<DataType>,
    missing: Vec<ScalarValue>,
    /// Columns at the creation.
    fixed: usize,
    /// One key for equal rows of all times.
    is_canonical: bool,
    /// For each number of columns from `fixed`; the first is absent without any column.
    converters: Vec<Option<RowConverter>>,
}

impl Codec {
    /// A codec of these columns; the first `fixed` were there at the creation.
    pub fn new(columns: &[StoredColumn], fixed: usize, is_canonical: bool) -> Result<Self> {
        let types: Vec<DataType> = columns
            .iter()
            .map(|c| c.definition.sql_type.to_arrow())
            .collect();
        let converters = (fixed..=types.len()).map(|count| {
            let fields: Vec<SortField> = types[..count]
                .iter()
                .map(|t| SortField::new(t.clone()))
                .collect();
            match fields.is_empty() {
                true => Ok(None),
                false => Ok(Some(RowConverter::new(fields)?)),
            }
        });
        Ok(Self {
            converters: converters.collect::<Result<_>>()?,
            missing: columns.iter().map(missing_value).collect::<Result<_>>()?,
            types,
            fixed,
            is_canonical,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.types.is_empty()
    }

    pub fn width(&self) -> usize {
        self.types.len()
    }

    /// Encodes rows; absent columns are NULL.
    pub fn encode(&self, columns: Vec<Option<ArrayRef>>, rows: usize) -> Result<Encoded> {
        let columns: Vec<ArrayRef> = columns
            .into_iter()
            .zip(&self.types)
            .map(|(values, data_type)| values.unwrap_or_else(|| new_null_array(data_type, rows)))
            .collect();
        if self.width() == self.fixed {
            let rows = self.converter(self.fixed)?.convert_columns(&columns)?;
            return Ok(Encoded::Plain(rows));
        }
        let mut by_count: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for (row, count) in self.counts(&columns, rows)?.into_iter().enumerate() {
            by_count.entry(count).or_default().push(row as u64);
        }
        let mut encoded = vec![Vec::new(); rows];
        for (count, places) in by_count {
            let indices = UInt64Array::from(places);
            let columns = columns[..count]
                .iter()
                .map(|c| Ok(take(c, &indices, None)?))
                .collect::<Result<Vec<_>>>()?;
            let bytes = match columns.is_empty() {
                true => None,
                false => Some(self.converter(count)?.convert_columns(&columns)?),
            };
            for (at, row) in indices.values().iter().enumerate() {
                let row = &mut encoded[*row as usize];
                if count > self.fixed {
                    row.push(TAG);
                    // A relation has far fewer columns than u16 holds.
                    row.extend_from_slice(&(count as u16).to_be_bytes());
                }
                row.extend_from_slice(bytes.as_ref().map_or(&[], |rows| rows.row(at).data()));
            }
        }
        Ok(Encoded::Tagged(encoded))
    }

    /// How many columns each row is written with.
    fn counts(&self, columns: &[ArrayRef], rows: usize) -> Result<Vec<usize>> {
        let mut counts = vec![self.width(); rows];
        if !self.is_canonical {
            return Ok(counts);
        }
        for at in (self.fixed..self.width()).rev() {
            let missing = self.missing[at].to_scalar()?;
            let is_missing: BooleanArray = not_distinct(&columns[at], &missing)?;
            for (row, count) in counts.iter_mut().enumerate() {
                if *count == at + 1 && is_missing.value(row) {
                    *count = at;
                }
            }
        }
        Ok(counts)
    }

    /// All columns of encoded rows.
    pub fn decode(&self, encoded: &[&[u8]]) -> Result<Vec<ArrayRef>> {
        let mut by_count: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (row, bytes) in encoded.iter().enumerate() {
            by_count.entry(self.count_of(bytes)?).or_default().push(row);
        }
        let mut parts = Vec::with_capacity(by_count.len());
        let mut order = vec![(0, 0); encoded.len()];
        for (part, (count, rows)) in by_count.iter().enumerate() {
            let bytes: Vec<&[u8]> = rows
                .iter()
                .map(|row| &encoded[*row][self.tag_bytes(*count)..])
                .collect();
            parts.push(self.decode_part(*count, &bytes)?);
            for (at, row) in rows.iter().enumerate() {
                order[*row] = (part, at);
            }
        }
        if parts.len() <= 1 {
            return Ok(parts.pop().unwrap_or_default());
        }
        (0..self.width())
            .map(|column| {
                let arrays: Vec<&dyn Array> =
                    parts.iter().map(|p| Arc::as_ref(&p[column])).collect();
                Ok(interleave(&arrays, &order)?)
            })
            .collect()
    }

    fn decode_part(&self, count: usize, bytes: &[&[u8]]) -> Result<Vec<ArrayRef>> {
        let mut columns = match count {
            0 => Vec::new(),
            count => decode_rows(self.converter(count)?, bytes)?,
        };
        for missing in &self.missing[count..] {
            columns.push(missing.to_array_of_size(bytes.len())?);
        }
        Ok(columns)
    }

    fn tag_bytes(&self, count: usize) -> usize {
        if count > self.fixed { TAG_BYTES } else { 0 }
    }

    /// The number of columns that a row was written with.
    fn count_of(&self, bytes: &[u8]) -> Result<usize> {
        let count = match bytes {
            [TAG, high, low, ..] => usize::from(u16::from_be_bytes([*high, *low])),
            _ => self.fixed,
        };
        if count > self.width() {
            return Err(Error::new(
                sqlstate::SERIALIZATION_FAILURE,
                "could not read a table: its columns were altered meanwhile",
            )
            .hint("Run the transaction again."));
        }
        Ok(count)
    }

    fn converter(&self, count: usize) -> Result<&RowConverter> {
        count
            .checked_sub(self.fixed)
            .and_then(|at| self.converters.get(at)?.as_ref())
            .ok_or_else(|| Error::damaged("a row of a table has an unknown number of columns"))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{AsArray, Int64Array, StringArray};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;
    use crate::catalog::definition::ColumnDefinition;
    use crate::types::SqlType;

    fn column(name: &str, sql_type: SqlType, missing: Option<&str>) -> StoredColumn {
        StoredColumn {
            missing: missing.map(str::to_owned),
            ..StoredColumn::new(&ColumnDefinition::new(name, sql_type))
        }
    }

    fn codec(columns: usize, is_canonical: bool) -> Codec {
        let all = [
            column("a", SqlType::Text, None),
            column("b", SqlType::BigInt, Some("7")),
            column("c", SqlType::BigInt, None),
        ];
        Codec::new(&all[..columns], 1, is_canonical).unwrap()
    }

    fn arrays(a: &[Option<&str>], b: &[Option<i64>], c: &[Option<i64>]) -> Vec<Option<ArrayRef>> {
        let mut all: Vec<Option<ArrayRef>> = vec![Some(Arc::new(StringArray::from(a.to_vec())))];
        for values in [b, c] {
            if !values.is_empty() {
                all.push(Some(Arc::new(Int64Array::from(values.to_vec()))));
            }
        }
        all
    }

    fn bytes(encoded: &Encoded) -> Vec<Vec<u8>> {
        encoded.iter().map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn rows_of_all_times_are_read_together() {
        for is_canonical in [false, true] {
            let a = [Some("x"), None, Some("")];
            let old = codec(1, is_canonical)
                .encode(arrays(&a, &[], &[]), 3)
                .unwrap();
            let mut all = bytes(&old);
            let newer = codec(2, is_canonical);
            let rows = arrays(&a[..2], &[Some(7), None], &[]);
            all.extend(bytes(&newer.encode(rows, 2).unwrap()));
            let newest = codec(3, is_canonical);
            let rows = arrays(&a[..1], &[Some(8)], &[Some(9)]);
            all.extend(bytes(&newest.encode(rows, 1).unwrap()));
            all.reverse();
            let views: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
            let decoded = newest.decode(&views).unwrap();
            let texts: Vec<_> = decoded[0].as_string::<i32>().iter().collect();
            assert_eq!(texts, [a[0], a[1], a[0], a[2], a[1], a[0]]);
            let b: Vec<_> = decoded[1].as_primitive::<Int64Type>().iter().collect();
            let seven = Some(7);
            assert_eq!(b, [Some(8), None, seven, seven, seven, seven]);
            assert_eq!(decoded[2].null_count(), 5);
            assert!(newer.decode(&views).is_err());
        }
    }

    #[test]
    fn a_bags_row_has_one_key_at_all_times() {
        let old = codec(1, true)
            .encode(arrays(&[Some("x")], &[], &[]), 1)
            .unwrap();
        let newest = codec(3, true);
        let x = [Some("x"); 3];
        let rows = arrays(&x, &[Some(7), Some(7), None], &[None, Some(1), None]);
        let keys = bytes(&newest.encode(rows, 3).unwrap());
        assert_eq!(keys[0], old.row(0));
        assert_ne!(keys[1], keys[0]);
        assert_ne!(keys[2], keys[0]);
        let views: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let decoded = newest.decode(&views).unwrap();
        let b: Vec<_> = decoded[1].as_primitive::<Int64Type>().iter().collect();
        assert_eq!(b, [Some(7), Some(7), None]);
    }

    #[test]
    fn a_dropped_column_is_null() {
        let mut gone = column("b", SqlType::BigInt, Some("7"));
        gone.dropped = true;
        let columns = [column("a", SqlType::Text, None), gone];
        let codec = Codec::new(&columns, 1, true).unwrap();
        let a: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        let key = codec.encode(vec![Some(a), None], 1).unwrap();
        let decoded = codec.decode(&[key.row(0)]).unwrap();
        assert!(decoded[1].is_null(0));
    }
}
