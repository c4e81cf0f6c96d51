//! Values of any type as JSON: `to_json`, `json_build_object`, `json_build_array`, their `jsonb`
//! forms, and the arrays that `json_agg` and `json_object_agg` are made of.

use std::sync::Arc;

use bytes::BytesMut;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringBuilder};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::{result, udf};
use crate::error::{Error, Result, sqlstate};
use crate::types::SqlType;
use crate::values::column::Column;
use crate::values::json::{write_json, write_string};
use crate::values::jsonb::Json;
use crate::values::types::WireType;
use crate::values::{JsonSpacing, OutputSettings};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    use Shape::{Array, ArrayOf, Item, Object, ObjectOf, Value};
    [
        ("to_json", Value, false),
        ("json_item", Item, false),
        ("to_jsonb", Value, true),
        ("json_build_object", Object, false),
        ("jsonb_build_object", Object, true),
        ("json_build_array", Array, false),
        ("jsonb_build_array", Array, true),
        ("json_of_array", ArrayOf, false),
        ("jsonb_of_array", ArrayOf, true),
        ("json_of_pairs", ObjectOf, false),
        ("jsonb_of_pairs", ObjectOf, true),
    ]
    .into_iter()
    .map(|(name, shape, sorted)| {
        let signature = match shape {
            Value | Item | ArrayOf | ObjectOf => Signature::any(1, Volatility::Immutable),
            Object | Array => Signature::one_of(
                vec![
                    datafusion::logical_expr::TypeSignature::VariadicAny,
                    datafusion::logical_expr::TypeSignature::Nullary,
                ],
                Volatility::Immutable,
            ),
        };
        udf(Build {
            name,
            shape,
            sorted,
            signature,
        })
    })
    .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Shape {
    /// one value
    Value,
    /// one value of an array that is gathered: rows and arrays are on lines of their own
    Item,
    /// name, value, name, value, …
    Object,
    /// values
    Array,
    /// an array of JSON texts, as one JSON array
    ArrayOf,
    /// an array of pairs of a name and a JSON text
    ObjectOf,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Build {
    name: &'static str,
    shape: Shape,
    /// `jsonb`
    sorted: bool,
    signature: Signature,
}

impl Build {
    fn gives(&self) -> SqlType {
        match self.sorted {
            true => SqlType::Jsonb,
            false => SqlType::Json,
        }
    }

    /// The text of one row; `None` for NULL.
    fn text(&self, columns: &[Column], row: usize) -> Result<Option<BytesMut>> {
        let settings = OutputSettings {
            spacing: match self.sorted {
                true => JsonSpacing::Jsonb,
                false => JsonSpacing::Json,
            },
            ..OutputSettings::default()
        };
        let mut out = BytesMut::new();
        match self.shape {
            Shape::Value | Shape::Item => {
                if columns[0].is_null(row) {
                    return Ok(None);
                }
                let is_composite = matches!(
                    columns[0],
                    Column::List { .. } | Column::Struct { .. } | Column::Map { .. }
                );
                if self.shape == Shape::Item && is_composite {
                    out.extend_from_slice(NEW_LINE.as_bytes());
                }
                write_json(&columns[0], row, &settings, &mut out)?;
            }
            Shape::Array => {
                out.extend_from_slice(b"[");
                for (n, column) in columns.iter().enumerate() {
                    if n > 0 {
                        out.extend_from_slice(b", ");
                    }
                    write_json(column, row, &settings, &mut out)?;
                }
                out.extend_from_slice(b"]");
            }
            Shape::Object => {
                let invalid =
                    |primary: &str| Error::new(sqlstate::INVALID_PARAMETER_VALUE, primary);
                if !columns.len().is_multiple_of(2) {
                    return Err(
                        invalid("argument list must have even number of elements").hint(format!(
                            "The arguments of {}() must consist of alternating keys and values.",
                            self.name
                        )),
                    );
                }
                out.extend_from_slice(b"{");
                for (n, pair) in columns.chunks(2).enumerate() {
                    if n > 0 {
                        out.extend_from_slice(b", ");
                    }
                    if pair[0].is_null(row) {
                        return Err(invalid("argument 1: key must not be null"));
                    }
                    let mut name = BytesMut::new();
                    pair[0].write_text(row, &settings, &mut name)?;
                    write_string(&name, &mut out);
                    out.extend_from_slice(b" : ");
                    write_json(&pair[1], row, &settings, &mut out)?;
                }
                out.extend_from_slice(b"}");
            }
            Shape::ArrayOf | Shape::ObjectOf => {
                return Err(Error::internal("an aggregate's array has a way of its own"));
            }
        }
        Ok(Some(out))
    }

    fn of_arguments(&self, args: &ScalarFunctionArgs, rows: usize) -> Result<ArrayRef> {
        let columns = args
            .args
            .iter()
            .zip(&args.arg_fields)
            .map(|(value, field)| Column::new(&value.to_array(rows)?, &WireType::of_field(field)?))
            .collect::<Result<Vec<_>>>()?;
        let mut texts = StringBuilder::new();
        for row in 0..rows {
            let text = self.text(&columns, row)?;
            self.append(text.as_deref(), &mut texts)?;
        }
        Ok(Arc::new(texts.finish()))
    }

    fn append(&self, text: Option<&[u8]>, texts: &mut StringBuilder) -> Result<()> {
        let Some(bytes) = text else {
            texts.append_null();
            return Ok(());
        };
        let text = std::str::from_utf8(bytes)
            .map_err(|e| crate::values::invalid_utf8(&bytes[e.valid_up_to()..]))?;
        match self.sorted {
            true => texts.append_value(Json::parse_sorted(text)?.to_text()),
            false => texts.append_value(text),
        }
        Ok(())
    }

    /// What an aggregate gathered, as one value; no rows are NULL.
    fn of_gathered(&self, lists: &ArrayRef) -> Result<ArrayRef> {
        let lists = lists.as_list::<i32>();
        let mut texts = StringBuilder::new();
        for row in 0..lists.len() {
            if lists.is_null(row) {
                texts.append_null();
                continue;
            }
            let items = lists.value(row);
            let mut out = BytesMut::new();
            match self.shape {
                Shape::ObjectOf => write_pairs(&items, &mut out)?,
                _ => write_items(&items, &mut out)?,
            }
            self.append(Some(&out), &mut texts)?;
        }
        Ok(Arc::new(texts.finish()))
    }
}

/// Begins a row or an array among those that are gathered, but the first.
const NEW_LINE: &str = "\n ";

fn write_items(items: &ArrayRef, out: &mut BytesMut) -> Result<()> {
    let texts = datafusion::arrow::compute::cast(items, &DataType::Utf8)?;
    out.extend_from_slice(b"[");
    for (n, text) in texts.as_string::<i32>().iter().enumerate() {
        let text = text.unwrap_or("null");
        let text = match n {
            0 => text.strip_prefix(NEW_LINE).unwrap_or(text),
            _ => {
                out.extend_from_slice(b", ");
                text
            }
        };
        out.extend_from_slice(text.as_bytes());
    }
    out.extend_from_slice(b"]");
    Ok(())
}

fn write_pairs(items: &ArrayRef, out: &mut BytesMut) -> Result<()> {
    let pairs = items
        .as_struct_opt()
        .filter(|pairs| pairs.num_columns() == 2)
        .ok_or_else(|| Error::internal("an object is gathered from pairs"))?;
    let names = datafusion::arrow::compute::cast(pairs.column(0), &DataType::Utf8)?;
    let values = datafusion::arrow::compute::cast(pairs.column(1), &DataType::Utf8)?;
    let (names, values) = (names.as_string::<i32>(), values.as_string::<i32>());
    out.extend_from_slice(b"{ ");
    for row in 0..names.len() {
        if row > 0 {
            out.extend_from_slice(b", ");
        }
        if names.is_null(row) {
            return Err(Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                "field name must not be null",
            ));
        }
        write_string(names.value(row).as_bytes(), out);
        out.extend_from_slice(b" : ");
        let value = if values.is_null(row) {
            "null"
        } else {
            values.value(row)
        };
        out.extend_from_slice(value.as_bytes());
    }
    out.extend_from_slice(b" }");
    Ok(())
}

impl ScalarUDFImpl for Build {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        Ok(Arc::new(self.gives().to_field(self.name, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let constant = args
            .args
            .iter()
            .all(|a| matches!(a, ColumnarValue::Scalar(_)));
        let rows = if constant { 1 } else { args.number_rows };
        let built = match self.shape {
            Shape::ArrayOf | Shape::ObjectOf => self.of_gathered(&args.args[0].to_array(rows)?)?,
            _ => self.of_arguments(&args, rows)?,
        };
        result(built, constant)
    }
}
