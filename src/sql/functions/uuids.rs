//! `to_uuid`, `uuid_to_text`, `gen_random_uuid`: a uuid is sixteen bytes with a mark in the field's
//! metadata, which DataFusion's casts do not know.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeBinaryArray, FixedSizeBinaryBuilder, StringArray,
};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};
use uuid::Uuid;

use super::{arrays, result, udf};
use crate::error::{Error, Result, sqlstate};
use crate::types::SqlType;

const UUID_BYTES: i32 = 16;

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        to_uuid(),
        uuid_to_text(),
        udf(UuidFunction {
            which: Which::Random,
            signature: Signature::nullary(Volatility::Volatile),
        }),
    ]
}

/// `to_uuid(text)`, and of a uuid itself.
pub(crate) fn to_uuid() -> Arc<ScalarUDF> {
    udf(UuidFunction {
        which: Which::FromText,
        signature: Signature::one_of(
            vec![
                TypeSignature::Exact(vec![DataType::FixedSizeBinary(UUID_BYTES)]),
                TypeSignature::Exact(vec![DataType::Utf8]),
            ],
            Volatility::Immutable,
        ),
    })
}

/// `uuid_to_text(uuid)`
pub(crate) fn uuid_to_text() -> Arc<ScalarUDF> {
    udf(UuidFunction {
        which: Which::ToText,
        signature: Signature::exact(
            vec![DataType::FixedSizeBinary(UUID_BYTES)],
            Volatility::Immutable,
        ),
    })
}

/// Reads a uuid as PostgreSQL does: hyphens are optional, braces allowed, case free.
pub fn parse(text: &str) -> Result<Uuid> {
    Uuid::try_parse(text.trim()).map_err(|_| {
        Error::new(
            sqlstate::INVALID_TEXT,
            format!("invalid input syntax for type uuid: \"{text}\""),
        )
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Which {
    FromText,
    ToText,
    Random,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct UuidFunction {
    which: Which,
    signature: Signature,
}

impl ScalarUDFImpl for UuidFunction {
    fn name(&self) -> &str {
        match self.which {
            Which::FromText => "to_uuid",
            Which::ToText => "uuid_to_text",
            Which::Random => "gen_random_uuid",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(match self.which {
            Which::ToText => DataType::Utf8,
            _ => DataType::FixedSizeBinary(UUID_BYTES),
        })
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let sql_type = match self.which {
            Which::ToText => SqlType::Text,
            _ => SqlType::Uuid,
        };
        let nullable = args.arg_fields.iter().any(|f| f.is_nullable());
        Ok(Arc::new(sql_type.to_field(self.name(), nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        if self.which == Which::Random {
            let values = std::iter::repeat_with(|| Uuid::new_v4().into_bytes());
            let array = FixedSizeBinaryArray::try_from_iter(values.take(args.number_rows.max(1)))?;
            return Ok(ColumnarValue::Array(Arc::new(array)));
        }
        let (columns, constant) = arrays(&args)?;
        let column = &columns[0];
        let converted: ArrayRef = match (self.which, column.data_type()) {
            (Which::ToText, _) => {
                let values = column.as_fixed_size_binary();
                let texts = values.iter().map(|value| {
                    value.and_then(|bytes| Uuid::from_slice(bytes).ok().map(|u| u.to_string()))
                });
                Arc::new(texts.collect::<StringArray>())
            }
            (_, DataType::FixedSizeBinary(_)) => Arc::clone(column),
            _ => Arc::new(parse_array(column.as_string::<i32>())?),
        };
        result(converted, constant)
    }
}

fn parse_array(texts: &StringArray) -> DataFusionResult<FixedSizeBinaryArray> {
    let mut builder = FixedSizeBinaryBuilder::with_capacity(texts.len(), UUID_BYTES);
    for text in texts {
        match text {
            Some(text) => builder.append_value(parse(text)?.as_bytes())?,
            None => builder.append_null(),
        }
    }
    Ok(builder.finish())
}
