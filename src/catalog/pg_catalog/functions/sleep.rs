//! `pg_sleep`: waits without holding a thread, and ends at once when its statement is cancelled.

use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use std::sync::Arc;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sleep {
    signature: Signature,
}

/// `pg_sleep(seconds)`.
pub(super) fn function() -> ScalarUDF {
    let sleep = Sleep {
        signature: Signature::any(1, Volatility::Volatile),
    };
    AsyncScalarUDF::new(Arc::new(sleep)).into_scalar_udf()
}

impl ScalarUDFImpl for Sleep {
    fn name(&self) -> &str {
        "pg_sleep"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> PlanResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        Err(DataFusionError::External(Box::new(
            crate::error::Error::unsupported("pg_sleep cannot be used here")
                .hint("Use it in the list of SELECT."),
        )))
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for Sleep {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let seconds = args.args[0].to_array(args.number_rows)?;
        let seconds = cast(&seconds, &DataType::Float64)?;
        let total: f64 = seconds
            .as_primitive::<Float64Type>()
            .iter()
            .flatten()
            .filter(|s| *s > 0.0)
            .sum();
        if let Ok(duration) = Duration::try_from_secs_f64(total) {
            tokio::time::sleep(duration).await;
        }
        let empty = ScalarValue::Utf8(Some(String::new()));
        Ok(ColumnarValue::Array(empty.to_array_of_size(seconds.len())?))
    }
}
