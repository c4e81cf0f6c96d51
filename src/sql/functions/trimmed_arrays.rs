//! `trim_array(array, n)`: an array without its last elements.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, Int64Array, ListArray, UInt64Array};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::{arrays, no_function, result, udf};
use crate::error::{Error, Result, sqlstate};

pub(super) fn trim_array() -> Arc<ScalarUDF> {
    udf(TrimArray {
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TrimArray {
    signature: Signature,
}

/// Errors: 2202E fewer than none, or more elements than there are.
fn trimmed(lists: &ListArray, counts: &Int64Array) -> Result<ListArray> {
    let DataType::List(item) = lists.data_type() else {
        return Err(Error::internal("what is trimmed is an array"));
    };
    let offsets = lists.value_offsets();
    let (mut kept, mut lengths) = (Vec::new(), Vec::with_capacity(lists.len()));
    let mut valid = Vec::with_capacity(lists.len());
    for row in 0..lists.len() {
        let is_valid = lists.is_valid(row) && counts.is_valid(row);
        valid.push(is_valid);
        if !is_valid {
            lengths.push(0);
            continue;
        }
        let (start, end) = (i64::from(offsets[row]), i64::from(offsets[row + 1]));
        let count = counts.value(row);
        if !(0..=end - start).contains(&count) {
            return Err(Error::new(
                sqlstate::ARRAY_SUBSCRIPT_ERROR,
                format!(
                    "number of elements to trim must be between 0 and {}",
                    end - start
                ),
            ));
        }
        let before = kept.len();
        kept.extend((start..end - count).filter_map(|place| u64::try_from(place).ok()));
        lengths.push(kept.len() - before);
    }
    let values = take(lists.values(), &UInt64Array::from(kept), None)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    let nulls = Some(NullBuffer::from(valid));
    Ok(ListArray::try_new(
        Arc::clone(item),
        offsets,
        values,
        nulls,
    )?)
}

impl ScalarUDFImpl for TrimArray {
    fn name(&self) -> &str {
        "trim_array"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        match types {
            [DataType::List(_), count] if count.is_integer() || count.is_null() => {
                Ok(vec![types[0].clone(), DataType::Int64])
            }
            _ => Err(no_function(self.name(), types).into()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Err(Error::internal("trim_array has a field, not a type").into())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let field = args
            .arg_fields
            .first()
            .ok_or_else(|| no_function(self.name(), &[]))?;
        let field = field.as_ref().clone().with_nullable(true);
        Ok(Arc::new(field.with_name(self.name())))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let counts = columns[1].as_primitive::<Int64Type>();
        let trimmed = trimmed(columns[0].as_list::<i32>(), counts)?;
        result(Arc::new(trimmed), constant)
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int32Array;
    use datafusion::arrow::datatypes::Int32Type;

    use super::*;

    #[test]
    fn last_elements_go() {
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([
            Some(vec![Some(1), None, Some(3)]),
            None,
            Some(vec![Some(4)]),
            Some(vec![]),
        ]);
        let counts = Int64Array::from(vec![1, 1, 1, 0]);
        let rest = trimmed(&lists, &counts).unwrap();
        assert_eq!(
            rest.value(0).as_primitive::<Int32Type>(),
            &Int32Array::from(vec![Some(1), None])
        );
        assert!(rest.is_null(1));
        assert!(rest.value(2).is_empty() && rest.value(3).is_empty());
        let too_many = Int64Array::from(vec![4, 0, 0, 0]);
        assert_eq!(trimmed(&lists, &too_many).unwrap_err().sqlstate(), "2202E");
    }
}
