//! `JOIN t FOR SYSTEM_TIME AS OF time`: each row of the left side with the rows of the right side
//! as they are when it is taken in.
//!
//! ```text
//! s JOIN t FOR SYSTEM_TIME AS OF s.at ON s.k = t.k   →   s JOIN t ON s.k = t.k AND system_time_match(s.at)
//! ```
//! A query over what there is now joins with the right side as it is now: there the mark is true
//! of every pair. A view is planned with it: its left rows are not kept, and what the right side
//! becomes later changes no answer that was given. Absent: the right side at another time than the
//! batch's; `ASOF JOIN` looks rows of a stream up by their own times.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

/// The function that marks a join's condition.
pub const MARK: &str = "system_time_match";

#[derive(Debug, PartialEq, Eq, Hash)]
struct SystemTimeMatch {
    signature: Signature,
}

/// The marker function: true of every pair of rows.
pub(super) fn function() -> ScalarUDF {
    ScalarUDF::new_from_impl(SystemTimeMatch {
        signature: Signature::variadic_any(Volatility::Immutable),
    })
}

impl ScalarUDFImpl for SystemTimeMatch {
    fn name(&self) -> &str {
        MARK
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        Ok(ColumnarValue::Scalar(ScalarValue::Boolean(Some(true))))
    }
}
