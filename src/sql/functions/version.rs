//! `version()`: clients read PostgreSQL's version out of it, so it begins like PostgreSQL's.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::udf;

/// The PostgreSQL version whose behaviour clients may expect.
pub const POSTGRES_VERSION: &str = "15.0";

/// What `version()` gives.
pub fn version_text() -> String {
    format!(
        "PostgreSQL {POSTGRES_VERSION} on {}-{}, Tidemill {}",
        std::env::consts::ARCH,
        std::env::consts::OS,
        env!("CARGO_PKG_VERSION")
    )
}

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![udf(VersionFunction {
        signature: Signature::nullary(Volatility::Immutable),
    })]
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct VersionFunction {
    signature: Signature,
}

impl ScalarUDFImpl for VersionFunction {
    fn name(&self) -> &str {
        "version"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(
            version_text(),
        ))))
    }
}
