//! `string_agg` that sorts by itself. The engine's asks its input to come in its order, and two of
//! different orders in one query cannot both have that; its accumulator sorts what comes unordered
//! anyway.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result as DataFusionResult;
use datafusion::functions_aggregate::string_agg::StringAgg;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
};

/// `string_agg`
pub(crate) fn string_agg() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(JoinedTexts {
        inner: StringAgg::new(),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct JoinedTexts {
    inner: StringAgg,
}

impl AggregateUDFImpl for JoinedTexts {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        self.inner.return_type(types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DataFusionResult<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs) -> DataFusionResult<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> DataFusionResult<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::SoftRequirement
    }

    /// The order of the input changes nothing: the accumulator sorts.
    fn with_beneficial_ordering(
        self: Arc<Self>,
        _: bool,
    ) -> DataFusionResult<Option<Arc<dyn AggregateUDFImpl>>> {
        Ok(Some(self))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::NotSupported
    }
}
