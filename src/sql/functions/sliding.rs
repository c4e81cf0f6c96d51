//! Aggregates in window frames that move: what leaves a frame is taken back.
//!
//! The engine has no way back for `bool_and`, `bool_or`, `bit_and`, `bit_or` and `string_agg`, and
//! refuses them over such frames. Counts have one: of true and false values, of ones per bit.
//! Everywhere else the engine's own accumulators stay.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::functions_aggregate::{bit_and_or_xor, bool_and_or};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, Signature,
};

use crate::error::Error;

const BITS: usize = 64;

/// The engine's aggregates with accumulators for frames that move.
pub(crate) fn aggregates() -> Vec<Arc<AggregateUDF>> {
    [
        (bool_and_or::bool_and_udaf(), Kind::Boolean { all: true }),
        (bool_and_or::bool_or_udaf(), Kind::Boolean { all: false }),
        (bit_and_or_xor::bit_and_udaf(), Kind::Bits { all: true }),
        (bit_and_or_xor::bit_or_udaf(), Kind::Bits { all: false }),
    ]
    .into_iter()
    .map(|(inner, kind)| Arc::new(AggregateUDF::new_from_impl(Sliding { inner, kind })))
    .collect()
}

/// What is counted; `all`: one value that is not decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Boolean { all: bool },
    Bits { all: bool },
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Sliding {
    inner: Arc<AggregateUDF>,
    kind: Kind,
}

impl AggregateUDFImpl for Sliding {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        self.inner.return_type(types)
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        self.inner.coerce_types(types)
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DataFusionResult<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn create_sliding_accumulator(
        &self,
        args: AccumulatorArgs,
    ) -> DataFusionResult<Box<dyn Accumulator>> {
        Ok(match self.kind {
            Kind::Boolean { all } => Box::new(Booleans {
                all,
                counts: [0; 2],
            }),
            Kind::Bits { all } => Box::new(Bits {
                all,
                data_type: args.return_field.data_type().clone(),
                ones: [0; BITS],
                values: 0,
            }),
        })
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
        self.inner.order_sensitivity()
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }
}

/// Accumulators of window frames have no states that others merge.
fn no_states<T>() -> DataFusionResult<T> {
    Err(Error::internal("a window frame's aggregate has no states to merge").into())
}

/// Numbers of false and of true values.
#[derive(Debug)]
struct Booleans {
    all: bool,
    counts: [i64; 2],
}

impl Booleans {
    fn add(&mut self, values: &[ArrayRef], weight: i64) {
        for value in values[0].as_boolean().iter().flatten() {
            self.counts[usize::from(value)] += weight;
        }
    }
}

impl Accumulator for Booleans {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.add(values, 1);
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.add(values, -1);
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        let [falses, trues] = self.counts;
        Ok(ScalarValue::Boolean(match (falses + trues, self.all) {
            (0, _) => None,
            (_, true) => Some(falses == 0),
            (_, false) => Some(trues > 0),
        }))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        no_states()
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> DataFusionResult<()> {
        no_states()
    }
}

/// Numbers of values with a one at each bit.
#[derive(Debug)]
struct Bits {
    all: bool,
    data_type: DataType,
    ones: [i64; BITS],
    values: i64,
}

impl Bits {
    fn add(&mut self, values: &[ArrayRef], weight: i64) -> DataFusionResult<()> {
        let values = cast(&values[0], &DataType::Int64)?;
        for value in values.as_primitive::<Int64Type>().iter().flatten() {
            self.values += weight;
            for (bit, ones) in self.ones.iter_mut().enumerate() {
                *ones += weight * (value >> bit & 1);
            }
        }
        Ok(())
    }
}

impl Accumulator for Bits {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.add(values, 1)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.add(values, -1)
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        let least = if self.all { self.values } else { 1 };
        let bits = self.ones.iter().enumerate();
        let value = bits.fold(0, |value, (bit, ones)| {
            value | i64::from(*ones >= least) << bit
        });
        ScalarValue::Int64((self.values > 0).then_some(value)).cast_to(&self.data_type)
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        no_states()
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> DataFusionResult<()> {
        no_states()
    }
}

/// The texts of a frame with the separators before them, NULL for what is no text.
#[derive(Debug)]
pub(super) struct Texts {
    texts: VecDeque<Option<(String, String)>>,
    data_type: DataType,
}

impl Texts {
    pub(super) fn new(data_type: DataType) -> Self {
        Self {
            texts: VecDeque::new(),
            data_type,
        }
    }
}

impl Accumulator for Texts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        let texts = cast(&values[0], &DataType::Utf8)?;
        let separators = cast(&values[1], &DataType::Utf8)?;
        let separators = separators.as_string::<i32>();
        for (row, text) in texts.as_string::<i32>().iter().enumerate() {
            let separator = match separators.is_valid(row) {
                true => separators.value(row),
                false => "",
            };
            let text = text.map(|text| (separator.to_owned(), text.to_owned()));
            self.texts.push_back(text);
        }
        Ok(())
    }

    /// Rows leave a frame in the order in which they came.
    fn retract_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.texts.drain(..values[0].len());
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        let mut joined: Option<String> = None;
        for (separator, text) in self.texts.iter().flatten() {
            joined = Some(match joined {
                None => text.clone(),
                Some(before) => before + separator + text,
            });
        }
        ScalarValue::Utf8(joined).cast_to(&self.data_type)
    }

    fn size(&self) -> usize {
        let texts = self.texts.iter().flatten();
        size_of_val(self) + texts.map(|(s, t)| s.len() + t.len()).sum::<usize>()
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        no_states()
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> DataFusionResult<()> {
        no_states()
    }
}
