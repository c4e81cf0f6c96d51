//! DISTINCT: each row once, while its weight is above zero.
//!
//! State: row → weight. Per batch only rows whose weight crosses zero go out.

use std::sync::Arc;

use super::bag::{Bag, SettledRows};
use super::batch_numbers::BatchNumbers;
use super::change::ChangeBatch;
use super::consolidate::decode_changes;
use super::operator::{BatchContext, Operator, OperatorDescription, OperatorStatistics, Retention};
use super::rows::RowCodec;
use crate::error::Result;
use crate::state::{Run, TableId};
use datafusion::arrow::datatypes::SchemaRef;

/// The operator.
pub struct Distinct {
    codec: RowCodec,
    bag: Bag,
    numbers: BatchNumbers,
}

impl Distinct {
    /// DISTINCT over rows of `schema`; `name` is the operator's stable name.
    pub fn new(name: &str, schema: SchemaRef) -> Result<Self> {
        Ok(Self {
            codec: RowCodec::new(schema)?,
            bag: Bag::new(&format!("{name}/rows")),
            numbers: BatchNumbers::default(),
        })
    }
}

/// +1 for a row that appears, −1 for one that vanishes, 0 for one that stays or stays away.
fn crossing(settled: &SettledRows, index: usize) -> i64 {
    i64::from(settled.new_weight(index) > 0) - i64::from(settled.old_weight(index) > 0)
}

impl Operator for Distinct {
    fn describe(&self) -> OperatorDescription {
        let columns = self.codec.schema().fields().iter();
        OperatorDescription {
            kind: "distinct",
            detail: columns
                .map(|f| f.name().as_str())
                .collect::<Vec<_>>()
                .join(", "),
            incremental: true,
            state: Some("row -> weight".to_owned()),
            retention: Some(Retention::by_input("kept while the row is in the input")),
        }
    }

    fn push(
        &mut self,
        _port: usize,
        change: ChangeBatch,
        context: &BatchContext,
        _out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        self.numbers.of(context).input_rows += change.num_rows() as u64;
        self.bag.add_change(&self.codec, &change)
    }

    fn finish(&mut self, context: &BatchContext, out: &mut Vec<ChangeBatch>) -> Result<()> {
        let settled: Arc<SettledRows> = self.bag.settle(&context.snapshot)?;
        let crossed: Vec<usize> = (0..settled.len())
            .filter(|index| crossing(&settled, *index) != 0)
            .collect();
        let at = |place: usize| {
            let index = crossed[place];
            (settled.key(index), crossing(&settled, index))
        };
        decode_changes(&self.codec, crossed.len(), at, out)?;
        self.numbers.of(context).output_rows += crossed.len() as u64;
        Ok(())
    }

    fn drain_state(&mut self, context: &BatchContext) -> Result<Vec<(TableId, Run)>> {
        self.bag.drain(&context.snapshot)
    }

    fn tables(&self) -> Vec<TableId> {
        self.bag.tables().to_vec()
    }

    fn reset(&mut self) {
        self.bag.reset();
        self.numbers = BatchNumbers::default();
    }

    fn statistics(&self) -> OperatorStatistics {
        let mut statistics = self.numbers.get();
        self.bag.add_statistics(&mut statistics);
        statistics
    }
}
