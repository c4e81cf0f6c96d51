//! A cast inside an aggregate that its name tells.
//!
//! The engine calls `sum(x::numeric)` as it calls `sum(x)`, and refuses two columns of one name.
//! This function stands around such an argument until types are settled, only for its name.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};

use super::udf;
use crate::error::Error;

/// What the function is called.
pub(crate) const NAME: &str = "named_cast";

/// Its argument, with a name that has the casts in it.
pub(crate) fn named_cast() -> Arc<ScalarUDF> {
    udf(NamedCast {
        signature: Signature::any(1, Volatility::Immutable),
    })
}

/// Whether an expression is a call of [`named_cast`].
pub(crate) fn is_named(expression: &Expr) -> bool {
    matches!(expression, Expr::ScalarFunction(function) if function.func.name() == NAME)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NamedCast {
    signature: Signature,
}

impl ScalarUDFImpl for NamedCast {
    fn name(&self) -> &str {
        NAME
    }

    fn schema_name(&self, args: &[Expr]) -> DataFusionResult<String> {
        Ok(args.first().map(ToString::to_string).unwrap_or_default())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Err(Error::internal("a named cast has a field, not a type").into())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        let field = args
            .arg_fields
            .first()
            .ok_or_else(|| Error::internal("a cast without an operand"))?;
        Ok(Arc::clone(field))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        args.args
            .pop()
            .ok_or_else(|| Error::internal("a cast without an operand").into())
    }
}
