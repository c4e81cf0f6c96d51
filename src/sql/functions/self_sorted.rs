//! `string_agg` and `array_agg` that sort by themselves.
//!
//! The engine's ask their input to come in their order, and two of different orders in one query
//! cannot both have that; then one of them is turned around, which `array_agg(DISTINCT …)` does
//! not notice. The accumulators sort what comes unordered anyway.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result as DataFusionResult;
use datafusion::functions_aggregate::array_agg::ArrayAgg;
use datafusion::functions_aggregate::string_agg::StringAgg;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
};

use super::sliding::Texts;

/// `string_agg`
pub(crate) fn string_agg() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(SelfSorted {
        inner: StringAgg::new(),
    }))
}

/// `array_agg`
pub(crate) fn array_agg() -> Arc<AggregateUDF> {
    Arc::new(AggregateUDF::new_from_impl(SelfSorted {
        inner: ArrayAgg::default(),
    }))
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SelfSorted<A> {
    inner: A,
}

impl<A: AggregateUDFImpl + PartialEq + Eq + Hash> AggregateUDFImpl for SelfSorted<A> {
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

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> DataFusionResult<Box<dyn Accumulator>> {
        match args.return_field.data_type() {
            DataType::List(_) => self.inner.create_sliding_accumulator(args),
            text => Ok(Box::new(Texts::new(text.clone()))),
        }
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

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
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
