//! Functions that go row by row over a few values: a table of forms, each with the types that it
//! takes, the type that it gives, and a Rust function. For what is called often or is wide, write
//! a batch function instead.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::new_empty_array;
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, FieldRef};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::{arrays, no_function, result, types_of, udf};
use crate::error::{Error, Result};
use crate::types::SqlType;

/// Fractional digits of [`Type::Numeric`].
pub(super) const NUMERIC_SCALE: i8 = 16;

/// A type in a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub(super) enum Type {
    Boolean,
    Integer,
    BigInt,
    Double,
    Numeric,
    Text,
    Bytea,
    Date,
    Time,
    Timestamp,
    TimestampTz,
    Interval,
    Json,
    Jsonb,
    TextArray,
    JsonArray,
    JsonbArray,
}

impl Type {
    fn sql_type(self) -> SqlType {
        let array = |item: SqlType| SqlType::Array(Box::new(item));
        match self {
            Self::Boolean => SqlType::Boolean,
            Self::Integer => SqlType::Integer,
            Self::BigInt => SqlType::BigInt,
            Self::Double => SqlType::Double,
            Self::Numeric => SqlType::Numeric {
                precision: DECIMAL128_MAX_PRECISION,
                scale: NUMERIC_SCALE,
            },
            Self::Text => SqlType::Text,
            Self::Bytea => SqlType::Bytea,
            Self::Date => SqlType::Date,
            Self::Time => SqlType::Time,
            Self::Timestamp => SqlType::Timestamp,
            Self::TimestampTz => SqlType::TimestampTz,
            Self::Interval => SqlType::Interval,
            Self::Json => SqlType::Json,
            Self::Jsonb => SqlType::Jsonb,
            Self::TextArray => array(SqlType::Text),
            Self::JsonArray => array(SqlType::Json),
            Self::JsonbArray => array(SqlType::Jsonb),
        }
    }

    /// Whether a value of an Arrow type is taken, a literal of no type yet among them.
    pub fn takes(self, given: &DataType) -> bool {
        let own = self.sql_type().to_arrow();
        if *given == own || given.is_null() {
            return true;
        }
        match self {
            Self::Integer => matches!(given, DataType::Int8 | DataType::Int16),
            Self::BigInt => given.is_integer(),
            Self::Numeric => given.is_integer() || matches!(given, DataType::Decimal128(..)),
            Self::Double => given.is_numeric(),
            Self::Timestamp => matches!(given, DataType::Date32),
            Self::TimestampTz => matches!(given, DataType::Date32 | DataType::Timestamp(..)),
            Self::Text | Self::Json | Self::Jsonb => {
                matches!(given, DataType::LargeUtf8 | DataType::Utf8View)
            }
            Self::TextArray | Self::JsonArray | Self::JsonbArray => {
                matches!(given, DataType::List(item) if item.data_type() == &DataType::Utf8)
            }
            _ => false,
        }
    }
}

/// What a form does with the values of one row, none of which is NULL.
pub(super) type Compute = fn(&[ScalarValue]) -> Result<ScalarValue>;

/// One overload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    /// Types of the arguments.
    pub takes: &'static [Type],
    /// Type of the result.
    pub gives: Type,
    /// The function.
    pub compute: Compute,
}

/// `form!([Text, BigInt] -> Text, compute)`
macro_rules! form {
    ([$($takes:ident),*] -> $gives:ident, $compute:expr) => {
        $crate::sql::functions::plain::Form {
            takes: &[$($crate::sql::functions::plain::Type::$takes),*],
            gives: $crate::sql::functions::plain::Type::$gives,
            compute: $compute,
        }
    };
}
pub(super) use form;

/// A function of several forms, the first that fits is meant.
pub(super) fn plain(name: &'static str, forms: &'static [Form]) -> Arc<ScalarUDF> {
    udf(Plain {
        name,
        forms,
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

#[derive(Debug)]
struct Plain {
    name: &'static str,
    forms: &'static [Form],
    signature: Signature,
}

impl PartialEq for Plain {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Plain {}

impl Hash for Plain {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl Plain {
    fn form(&self, types: &[DataType]) -> Result<&Form> {
        let first = |text_fits: bool| {
            self.forms.iter().find(|form| {
                let mut pairs = form.takes.iter().zip(types);
                form.takes.len() == types.len()
                    && pairs
                        .all(|(t, given)| t.takes(given) || text_fits && *given == DataType::Utf8)
            })
        };
        // A text may be a literal of any type, so it is tried last.
        first(false)
            .or_else(|| first(true))
            .ok_or_else(|| no_function(self.name, types))
    }
}

impl ScalarUDFImpl for Plain {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let form = self.form(types)?;
        Ok(form.takes.iter().map(|t| t.sql_type().to_arrow()).collect())
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        Ok(self.form(types)?.gives.sql_type().to_arrow())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let gives = self.form(&types_of(args.arg_fields))?.gives.sql_type();
        Ok(Arc::new(gives.to_field(self.name, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let form = self.form(&types_of(&args.arg_fields))?;
        let gives = form.gives.sql_type().to_arrow();
        let (columns, constant) = arrays(&args)?;
        let rows = columns.first().map_or(1, |column| column.len());
        let mut values = Vec::with_capacity(rows);
        let mut row_values = Vec::with_capacity(columns.len());
        for row in 0..rows {
            row_values.clear();
            for column in &columns {
                row_values.push(ScalarValue::try_from_array(column, row)?);
            }
            values.push(match row_values.iter().any(ScalarValue::is_null) {
                true => ScalarValue::try_from(&gives)?,
                false => (form.compute)(&row_values)?,
            });
        }
        let array = match values.is_empty() {
            true => new_empty_array(&gives),
            false => ScalarValue::iter_to_array(values)?,
        };
        result(array, constant)
    }
}

/// The text of an argument that a form says is one.
pub(super) fn text(value: &ScalarValue) -> Result<&str> {
    value
        .try_as_str()
        .flatten()
        .ok_or_else(|| Error::internal("a form's argument is a text"))
}

/// The number of an argument that a form says is an integer.
pub(super) fn whole(value: &ScalarValue) -> Result<i64> {
    match value {
        ScalarValue::Int32(Some(n)) => Ok(i64::from(*n)),
        ScalarValue::Int64(Some(n)) => Ok(*n),
        _ => Err(Error::internal("a form's argument is an integer")),
    }
}

/// The number of an argument that a form says is a double precision.
pub(super) fn double(value: &ScalarValue) -> Result<f64> {
    match value {
        ScalarValue::Float64(Some(n)) => Ok(*n),
        _ => Err(Error::internal("a form's argument is a double precision")),
    }
}

/// The bytes of an argument that a form says is a bytea.
pub(super) fn bytes(value: &ScalarValue) -> Result<&[u8]> {
    match value {
        ScalarValue::Binary(Some(bytes)) => Ok(bytes),
        _ => Err(Error::internal("a form's argument is a bytea")),
    }
}

/// An array of texts of the type that a form gives.
pub(super) fn texts(gives: Type, items: impl IntoIterator<Item = Option<String>>) -> ScalarValue {
    let mut builder =
        datafusion::arrow::array::ListBuilder::new(datafusion::arrow::array::StringBuilder::new());
    if let DataType::List(item) = gives.sql_type().to_arrow() {
        builder = builder.with_field(item);
    }
    for item in items {
        builder.values().append_option(item);
    }
    builder.append(true);
    ScalarValue::List(Arc::new(builder.finish()))
}

/// A text, or NULL.
pub(super) fn text_or_null(text: Option<String>) -> ScalarValue {
    ScalarValue::Utf8(text)
}
