//! Casts between text and all other types, by PostgreSQL's input and output functions.
//!
//! The engine's own casts read fewer forms (`1 day 02:03:04`, `10:00+02`) and write others
//! (`2024-01-01T00:00:00`, `100000.0`). The rule of [`super::arithmetic`] puts these in their place.
//! Absent: numbers, booleans, dates to text, which the engine writes as PostgreSQL does.

use std::sync::Arc;

use bytes::BytesMut;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::{arrays, result, udf};
use crate::error::{Error, Result};
use crate::types::SqlType;
use crate::values::OutputSettings;
use crate::values::column::Column;
use crate::values::input::ColumnBuilder;
use crate::values::types::WireType;

/// Reads text as `sql_type`; `time_zone` is that of texts without one.
pub(crate) fn read_text(sql_type: SqlType, time_zone: Option<&str>) -> Arc<ScalarUDF> {
    udf(ReadText {
        sql_type,
        time_zone: time_zone.map(str::to_owned),
        signature: Signature::any(1, Volatility::Immutable),
    })
}

/// Writes any value as text; `time_zone` is that in which `timestamptz` is shown.
pub(crate) fn write_text(time_zone: Option<&str>) -> Arc<ScalarUDF> {
    udf(WriteText {
        time_zone: time_zone.map(str::to_owned),
        signature: Signature::any(1, Volatility::Immutable),
    })
}

/// True for types whose text [`write_text`] must make.
pub(super) fn needs_write_text(sql_type: &SqlType) -> bool {
    matches!(
        sql_type,
        SqlType::Real
            | SqlType::Double
            | SqlType::Bytea
            | SqlType::Time
            | SqlType::Timestamp
            | SqlType::TimestampTz
            | SqlType::Interval
            | SqlType::Uuid
            | SqlType::Json
            | SqlType::Jsonb
            | SqlType::Array(_)
            | SqlType::Struct(_)
    )
}

/// A column of text as a column of `sql_type`. Errors: 22P02 bad text, 22003, 22007, 22008.
pub(crate) fn read_column(
    texts: &ArrayRef,
    sql_type: &SqlType,
    settings: &OutputSettings,
) -> Result<ArrayRef> {
    let texts = cast(texts, &DataType::Utf8)?;
    let mut builder = ColumnBuilder::new(sql_type, settings);
    for text in texts.as_string::<i32>() {
        match text {
            None => builder.append_null(),
            Some(text) => builder.append_text(text)?,
        }
    }
    Ok(builder.finish())
}

/// A column, described by `field`, as text.
pub(crate) fn write_column(
    values: &ArrayRef,
    field: &FieldRef,
    settings: &OutputSettings,
) -> Result<ArrayRef> {
    let column = Column::new(values, &WireType::of_field(field)?)?;
    let mut texts = StringBuilder::with_capacity(values.len(), values.len() * 8);
    let mut buffer = BytesMut::new();
    for row in 0..values.len() {
        if column.is_null(row) {
            texts.append_null();
            continue;
        }
        buffer.clear();
        column.write_text(row, settings, &mut buffer)?;
        let text = std::str::from_utf8(&buffer)
            .map_err(|e| crate::values::invalid_utf8(&buffer[e.valid_up_to()..]))?;
        texts.append_value(text);
    }
    Ok(Arc::new(texts.finish()))
}

fn cast_name(args: &[Expr], type_name: &str) -> String {
    match args {
        [operand] => format!("CAST({operand} AS {type_name})"),
        _ => "CAST".to_owned(),
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ReadText {
    sql_type: SqlType,
    time_zone: Option<String>,
    signature: Signature,
}

impl ScalarUDFImpl for ReadText {
    fn name(&self) -> &str {
        "read_text"
    }

    fn display_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        Ok(cast_name(args, &self.sql_type.to_string()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(self.sql_type.to_arrow())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let nullable = args.arg_fields.iter().any(|f| f.is_nullable());
        Ok(Arc::new(self.sql_type.to_field(self.name(), nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let settings = OutputSettings::new(self.time_zone.as_deref());
        let read = read_column(&columns[0], &self.sql_type, &settings)?;
        result(read, constant)
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WriteText {
    time_zone: Option<String>,
    signature: Signature,
}

impl ScalarUDFImpl for WriteText {
    fn name(&self) -> &str {
        "write_text"
    }

    fn display_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        Ok(cast_name(args, "text"))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let nullable = args.arg_fields.iter().any(|f| f.is_nullable());
        Ok(Arc::new(SqlType::Text.to_field(self.name(), nullable)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let field = args
            .arg_fields
            .first()
            .ok_or_else(|| Error::internal("a cast without an operand"))?;
        let settings = OutputSettings::new(self.time_zone.as_deref());
        let written = write_column(&columns[0], field, &settings)?;
        result(written, constant)
    }
}
