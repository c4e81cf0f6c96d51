//! `ARRAY(SELECT …)` of no rows: an empty array, where an aggregate gives NULL.

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, ListArray};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::{arrays, result, udf};
use crate::error::Error;

/// `array_or_empty(array)`
pub(super) fn array_or_empty() -> Arc<ScalarUDF> {
    udf(ArrayOrEmpty {
        signature: Signature::any(1, Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ArrayOrEmpty {
    signature: Signature,
}

impl ScalarUDFImpl for ArrayOrEmpty {
    fn name(&self) -> &str {
        "array_or_empty"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Err(Error::internal("an array's function has a field, not a type").into())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let field = args
            .arg_fields
            .first()
            .ok_or_else(|| Error::internal("array_or_empty has an argument"))?;
        Ok(Arc::clone(field))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let Some(lists) = columns[0].as_list_opt::<i32>() else {
            return result(Arc::clone(&columns[0]), constant);
        };
        // A NULL may lie over elements, which an empty array must not show.
        if lists.null_count() == 0 {
            return result(Arc::clone(&columns[0]), constant);
        }
        let pieces: Vec<_> = (0..lists.len())
            .filter(|row| lists.is_valid(*row))
            .map(|row| lists.value(row))
            .collect();
        let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
        let items = match pieces.is_empty() {
            true => lists.values().slice(0, 0),
            false => datafusion::arrow::compute::concat(&pieces)?,
        };
        let lengths = (0..lists.len()).map(|row| match lists.is_valid(row) {
            true => usize::try_from(lists.value_length(row)).unwrap_or(0),
            false => 0,
        });
        let offsets = datafusion::arrow::buffer::OffsetBuffer::from_lengths(lengths);
        let DataType::List(item) = lists.data_type() else {
            return Err(Error::internal("an array's type is an array").into());
        };
        let filled = ListArray::try_new(Arc::clone(item), offsets, items, None)?;
        result(Arc::new(filled), constant)
    }
}
