//! A value as it is, of a type that its Arrow type does not tell: uuid, json, jsonb, the catalog's
//! own, and arrays of them. Put in by [`crate::sql::kept_types`].

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListArray};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::udf;
use crate::error::Error;
use crate::types::TYPE_KEY;

/// What follows the name of a type in that of its array.
pub(crate) const ARRAY: &str = "[]";

/// A value of the type that fields carry under [`TYPE_KEY`] as `type_name`.
pub(crate) fn kept(type_name: &str) -> Arc<ScalarUDF> {
    udf(Kept {
        type_name: type_name.to_owned(),
        signature: Signature::any(1, Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Kept {
    type_name: String,
    signature: Signature,
}

impl Kept {
    /// The field of the argument, with the type's name.
    fn field(&self, given: &FieldRef) -> FieldRef {
        let named = |field: &FieldRef, name: &str| {
            let mut metadata = field.metadata().clone();
            metadata.insert(TYPE_KEY.to_owned(), name.to_owned());
            Arc::new(field.as_ref().clone().with_metadata(metadata))
        };
        match (self.type_name.strip_suffix(ARRAY), given.data_type()) {
            // The catalog's own types are of arrays as a whole.
            (Some("oid" | "name"), _) | (None, _) => named(given, &self.type_name),
            (Some(item), DataType::List(items)) => {
                let list = DataType::List(named(items, item));
                Arc::new(given.as_ref().clone().with_data_type(list))
            }
            (Some(_), _) => Arc::clone(given),
        }
    }
}

/// A list under a field that says more of its items.
fn list_of(array: &ArrayRef, wanted: &DataType) -> DataFusionResult<ArrayRef> {
    let (DataType::List(item), Some(list)) = (wanted, array.as_list_opt::<i32>()) else {
        return Ok(Arc::clone(array));
    };
    let (offsets, values, nulls) = (list.offsets(), list.values(), list.nulls());
    let list = ListArray::try_new(
        Arc::clone(item),
        offsets.clone(),
        Arc::clone(values),
        nulls.cloned(),
    )?;
    Ok(Arc::new(list))
}

impl ScalarUDFImpl for Kept {
    fn name(&self) -> &str {
        "kept_type"
    }

    fn schema_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        Ok(match args {
            [argument] => argument.schema_name().to_string(),
            _ => self.name().to_owned(),
        })
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Err(Error::internal("a kept type has a field, not a type").into())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let given = args
            .arg_fields
            .first()
            .ok_or_else(|| Error::internal("a kept type without a value"))?;
        Ok(self.field(given))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let value = args
            .args
            .pop()
            .ok_or_else(|| Error::internal("a kept type without a value"))?;
        let wanted = args.return_field.data_type();
        Ok(match value {
            ColumnarValue::Array(array) => ColumnarValue::Array(list_of(&array, wanted)?),
            ColumnarValue::Scalar(scalar) if matches!(wanted, DataType::List(_)) => {
                let list = list_of(&scalar.to_array()?, wanted)?;
                ColumnarValue::Scalar(ScalarValue::try_from_array(&list, 0)?)
            }
            scalar => scalar,
        })
    }
}
