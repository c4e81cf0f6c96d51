//! UNNEST: list columns to rows, struct columns to columns. Stateless.
//!
//! Several lists of one row are walked side by side, the shorter ones padded with NULL. Lists
//! within lists (depth over 1) are not here; the planner leaves these to DataFusion.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, UInt64Array, cast::as_struct_array,
};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::NullHandling;

use super::change::ChangeBatch;
use super::rows::rebatch;
use super::stateless::Transform;
use crate::error::{Error, Result};

/// What is unnested.
pub struct Unnest {
    /// Input columns that are lists to be unnested.
    pub lists: Vec<usize>,
    /// Input columns that are structs to be spread.
    pub structs: Vec<usize>,
    /// What a NULL or empty list gives.
    pub null_handling: NullHandling,
    /// Output schema.
    pub schema: SchemaRef,
}

/// Values of a list array and where each row's lie in them.
struct List<'a> {
    values: ArrayRef,
    /// start and length of row `i`; length 0 for NULL
    range: Box<dyn Fn(usize) -> (usize, usize) + 'a>,
    array: &'a ArrayRef,
}

/// Start and length of a row's items.
type RangeOf<'a> = Box<dyn Fn(usize) -> (usize, usize) + 'a>;

impl<'a> List<'a> {
    fn of(array: &'a ArrayRef) -> Result<Self> {
        let (values, range): (ArrayRef, RangeOf<'a>) = match array.data_type() {
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let offsets = list.value_offsets();
                (
                    list.values().clone(),
                    Box::new(|i| (offsets[i] as usize, (offsets[i + 1] - offsets[i]) as usize)),
                )
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                let offsets = list.value_offsets();
                (
                    list.values().clone(),
                    Box::new(|i| (offsets[i] as usize, (offsets[i + 1] - offsets[i]) as usize)),
                )
            }
            DataType::FixedSizeList(_, size) => {
                let list = array.as_fixed_size_list();
                let size = *size as usize;
                (
                    list.values().clone(),
                    Box::new(move |i| (list.value_offset(i) as usize, size)),
                )
            }
            other => {
                return Err(Error::internal(format!(
                    "cannot unnest a column of {other}"
                )));
            }
        };
        Ok(Self {
            values,
            range,
            array,
        })
    }

    fn range_of(&self, row: usize) -> (usize, usize) {
        if self.array.is_null(row) {
            (0, 0)
        } else {
            (self.range)(row)
        }
    }

    /// Output rows that input row `row` asks for.
    fn rows_of(&self, row: usize, null_handling: NullHandling) -> usize {
        let (_, length) = self.range_of(row);
        let null = self.array.is_null(row);
        match null_handling {
            NullHandling::Preserve if null => 1,
            NullHandling::PreserveAndExpandEmpty if length == 0 => 1,
            _ => length,
        }
    }
}

impl Transform for Unnest {
    fn apply(&self, change: ChangeBatch, _columns: Vec<ArrayRef>) -> Result<ChangeBatch> {
        if self.lists.is_empty() {
            let columns = self.spread_structs(change.rows().columns().to_vec());
            let rows = rebatch(&self.schema, columns, change.num_rows())?;
            return Ok(change.with_rows(rows));
        }
        let columns = change.rows().columns();
        let lists: Vec<List> = self
            .lists
            .iter()
            .map(|index| List::of(&columns[*index]))
            .collect::<Result<_>>()?;
        let mut repeat: Vec<u64> = Vec::new();
        let mut elements: Vec<Vec<Option<u64>>> = vec![Vec::new(); lists.len()];
        for row in 0..change.num_rows() {
            let count = lists
                .iter()
                .map(|list| list.rows_of(row, self.null_handling))
                .max()
                .expect("there is a list");
            repeat.extend(std::iter::repeat_n(row as u64, count));
            for (list, elements) in lists.iter().zip(&mut elements) {
                let (start, length) = list.range_of(row);
                elements.extend((0..count).map(|i| (i < length).then_some((start + i) as u64)));
            }
        }
        let repeat = UInt64Array::from(repeat);
        let mut output: Vec<ArrayRef> = Vec::with_capacity(columns.len());
        for (index, column) in columns.iter().enumerate() {
            output.push(match self.lists.iter().position(|list| *list == index) {
                Some(list) => take(
                    &lists[list].values,
                    &UInt64Array::from(std::mem::take(&mut elements[list])),
                    None,
                )?,
                None => take(column, &repeat, None)?,
            });
        }
        let rows = rebatch(&self.schema, self.spread_structs(output), repeat.len())?;
        Ok(match change.weights() {
            None => ChangeBatch::inserts(rows),
            Some(weights) => {
                let weights = take(weights, &repeat, None)?;
                let weights = weights
                    .as_any()
                    .downcast_ref::<Int64Array>()
                    .expect("take keeps the type");
                ChangeBatch::weighted(rows, weights.clone())
            }
        })
    }
}

impl Unnest {
    fn spread_structs(&self, columns: Vec<ArrayRef>) -> Vec<ArrayRef> {
        if self.structs.is_empty() {
            return columns;
        }
        let mut output = Vec::with_capacity(self.schema.fields().len());
        for (index, column) in columns.into_iter().enumerate() {
            if self.structs.contains(&index) {
                output.extend(as_struct_array(&column).columns().iter().map(Arc::clone));
            } else {
                output.push(column);
            }
        }
        output
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ListArray, RecordBatch};
    use datafusion::arrow::datatypes::{Field, Int64Type, Schema};

    fn lists(handling: NullHandling) -> (Vec<(Option<i64>, i64)>, Vec<i64>) {
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>(vec![
            Some(vec![Some(1), Some(2)]),
            None,
            Some(vec![]),
            Some(vec![None]),
        ]);
        let key = Int64Array::from(vec![10, 20, 30, 40]);
        let input = Arc::new(Schema::new(vec![
            Field::new("l", list.data_type().clone(), true),
            Field::new("k", DataType::Int64, false),
        ]));
        let output = Arc::new(Schema::new(vec![
            Field::new("l", DataType::Int64, true),
            Field::new("k", DataType::Int64, false),
        ]));
        let rows = RecordBatch::try_new(input, vec![Arc::new(list), Arc::new(key)]).unwrap();
        let change = ChangeBatch::weighted(rows, Int64Array::from(vec![1, -1, 2, 3]));
        let unnest = Unnest {
            lists: vec![0],
            structs: vec![],
            null_handling: handling,
            schema: output,
        };
        let result = unnest.apply(change, Vec::new()).unwrap();
        let values = result.rows().column(0).as_primitive::<Int64Type>();
        let keys = result.rows().column(1).as_primitive::<Int64Type>();
        (
            values.iter().zip(keys.values().iter().copied()).collect(),
            (0..result.num_rows()).map(|i| result.weight(i)).collect(),
        )
    }

    #[test]
    fn null_and_empty_lists_follow_the_option() {
        let full = vec![(Some(1), 10), (Some(2), 10)];
        let mut preserve = full.clone();
        preserve.extend([(None, 20), (None, 40)]);
        assert_eq!(lists(NullHandling::Preserve), (preserve, vec![1, 1, -1, 3]));
        let mut drop = full.clone();
        drop.push((None, 40));
        assert_eq!(lists(NullHandling::Drop), (drop, vec![1, 1, 3]));
        let mut expand = full;
        expand.extend([(None, 20), (None, 30), (None, 40)]);
        assert_eq!(
            lists(NullHandling::PreserveAndExpandEmpty),
            (expand, vec![1, 1, -1, 2, 3])
        );
    }
}
