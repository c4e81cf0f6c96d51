//! The value of a subquery used as an expression, of which there may be only one.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};

use crate::error::{Error, sqlstate};

/// Its only argument's only value; two rows are an error, no row is NULL.
pub(crate) fn only_value() -> AggregateUDF {
    AggregateUDF::new_from_impl(OnlyValue {
        signature: Signature::any(1, Volatility::Immutable),
    })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct OnlyValue {
    signature: Signature,
}

impl AggregateUDFImpl for OnlyValue {
    fn name(&self) -> &str {
        "only_value"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        types
            .first()
            .cloned()
            .ok_or_else(|| Error::internal("a subquery gives a column").into())
    }

    fn return_field(&self, fields: &[FieldRef]) -> DataFusionResult<FieldRef> {
        let field = fields
            .first()
            .ok_or_else(|| Error::internal("a subquery gives a column"))?;
        Ok(Arc::new(field.as_ref().clone().with_nullable(true)))
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DataFusionResult<Box<dyn Accumulator>> {
        let data_type = args.return_field.data_type().clone();
        Ok(Box::new(Only {
            value: None,
            data_type,
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> DataFusionResult<Vec<FieldRef>> {
        let value = Field::new("value", args.return_field.data_type().clone(), true);
        let seen = Field::new("seen", DataType::Boolean, false);
        Ok(vec![Arc::new(value), Arc::new(seen)])
    }
}

#[derive(Debug)]
struct Only {
    value: Option<ScalarValue>,
    data_type: DataType,
}

impl Only {
    fn add(&mut self, values: &ArrayRef, row: usize) -> DataFusionResult<()> {
        if self.value.is_some() {
            return Err(Error::new(
                sqlstate::CARDINALITY_VIOLATION,
                "more than one row returned by a subquery used as an expression",
            )
            .into());
        }
        self.value = Some(ScalarValue::try_from_array(values, row)?);
        Ok(())
    }
}

impl Accumulator for Only {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        (0..values[0].len()).try_for_each(|row| self.add(&values[0], row))
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        match &self.value {
            Some(value) => Ok(value.clone()),
            None => ScalarValue::try_from(&self.data_type),
        }
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.value.as_ref().map_or(0, ScalarValue::size)
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        let seen = ScalarValue::Boolean(Some(self.value.is_some()));
        Ok(vec![self.evaluate()?, seen])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        let seen = datafusion::arrow::array::AsArray::as_boolean(&states[1]);
        for row in 0..seen.len() {
            if seen.value(row) {
                self.add(&states[0], row)?;
            }
        }
        Ok(())
    }
}
