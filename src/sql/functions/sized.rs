//! `repeat`, `lpad`, `rpad` with a limit: what would not fit into memory is refused before it is
//! made.
//!
//! The functions are the engine's; only the size of their result is looked at first. PostgreSQL
//! refuses a value of a gigabyte; here the rows of one batch share that limit, since they are in
//! memory together.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::Result as DataFusionResult;
use datafusion::error::DataFusionError;
use datafusion::functions::{string, unicode};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};

use super::udf;
use crate::error::{Error, sqlstate};

/// Bytes of a batch's results.
const RESULT_BYTES_MAX: u128 = 1 << 30;

/// The functions.
pub fn functions() -> Vec<Arc<ScalarUDF>> {
    [
        (string::repeat(), Growth::Times),
        (unicode::lpad(), Growth::Upto),
        (unicode::rpad(), Growth::Upto),
    ]
    .into_iter()
    .map(|(inner, growth)| udf(Limited { inner, growth }))
    .collect()
}

/// What the second argument says of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Growth {
    /// So many copies.
    Times,
    /// So many characters, each up to the bytes of the longest.
    Upto,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Limited {
    inner: Arc<ScalarUDF>,
    growth: Growth,
}

impl Limited {
    fn check(&self, arguments: &ScalarFunctionArgs) -> DataFusionResult<()> {
        let [text, count, ..] = arguments.args.as_slice() else {
            return Ok(());
        };
        let is_constant = |v: &ColumnarValue| matches!(v, ColumnarValue::Scalar(_));
        let rows = match is_constant(text) && is_constant(count) {
            true => 1,
            false => arguments.number_rows,
        };
        let texts: ArrayRef = cast(&text.to_array(rows)?, &DataType::LargeUtf8)?;
        let counts: ArrayRef = cast(&count.to_array(rows)?, &DataType::Int64)?;
        let (texts, counts) = (texts.as_string::<i64>(), counts.as_primitive::<Int64Type>());
        let mut bytes: u128 = 0;
        for row in 0..rows {
            if texts.is_null(row) || counts.is_null(row) {
                continue;
            }
            let count = u128::try_from(counts.value(row)).unwrap_or(0);
            bytes += match self.growth {
                Growth::Times => count * texts.value(row).len() as u128,
                Growth::Upto => count,
            };
        }
        if bytes < RESULT_BYTES_MAX {
            return Ok(());
        }
        Err(DataFusionError::External(Box::new(
            Error::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                "requested length too large",
            )
            .detail(format!(
                "{} would make {bytes} bytes at once.",
                self.inner.name()
            )),
        )))
    }
}

impl ScalarUDFImpl for Limited {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        self.inner.return_type(types)
    }

    fn return_field_from_args(&self, arguments: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        self.inner.return_field_from_args(arguments)
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        self.check(&arguments)?;
        self.inner.invoke_with_args(arguments)
    }
}
