//! An operator's numbers of one batch, which start from zero when the batch id moves on.

use super::operator::{BatchContext, OperatorStatistics};

/// The numbers, and the batch they belong to.
#[derive(Debug, Default)]
pub struct BatchNumbers {
    batch_id: Option<u64>,
    numbers: OperatorStatistics,
}

impl BatchNumbers {
    /// The numbers of the batch of `context`, to count into.
    pub fn of(&mut self, context: &BatchContext) -> &mut OperatorStatistics {
        if self.batch_id != Some(context.batch_id) {
            self.batch_id = Some(context.batch_id);
            self.numbers = OperatorStatistics::default();
        }
        &mut self.numbers
    }

    /// A copy of the last batch's numbers.
    pub fn get(&self) -> OperatorStatistics {
        self.numbers.clone()
    }
}
