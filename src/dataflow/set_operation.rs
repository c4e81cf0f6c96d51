//! EXCEPT and INTERSECT, with and without ALL, by counting.
//!
//! ```text
//!   left  ──► row -> weight l ─┐
//!                              ├─► EXCEPT ALL l - r, INTERSECT ALL least of l and r, …
//!   right ──► row -> weight r ─┘   emitted: the change of that number
//! ```
//!
//! NULL equals NULL, as everywhere in set operations. UNION needs no operator of its own: it is
//! UNION ALL under DISTINCT.

use datafusion::arrow::datatypes::SchemaRef;

use super::bag::{Bag, drain_all};
use super::batch_numbers::BatchNumbers;
use super::change::ChangeBatch;
use super::consolidate::{decode_changes, under_schema};
use super::keyed::weights_around;
use super::operator::{BatchContext, Operator, OperatorDescription, OperatorStatistics, Retention};
use super::rows::{RowCodec, all_nullable};
use crate::error::Result;
use crate::state::{Run, TableId};

/// Which rows remain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SetOperationKind {
    /// Those of the left that are not on the right, each once.
    Except,
    /// As many copies as the left has more than the right.
    ExceptAll,
    /// Those on both sides, each once.
    Intersect,
    /// As many copies as are on both sides.
    IntersectAll,
}

impl SetOperationKind {
    /// In SQL words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Except => "except",
            Self::ExceptAll => "except all",
            Self::Intersect => "intersect",
            Self::IntersectAll => "intersect all",
        }
    }

    /// Copies that go out, given those on either side. A weight below zero is a passing state of
    /// an input out of order.
    fn copies(self, left: i64, right: i64) -> i64 {
        let (left, right) = (left.max(0), right.max(0));
        match self {
            Self::Except => i64::from(left > 0 && right == 0),
            Self::ExceptAll => (left - right).max(0),
            Self::Intersect => i64::from(left > 0 && right > 0),
            Self::IntersectAll => left.min(right),
        }
    }
}

/// The operator.
pub struct SetOperation {
    kind: SetOperationKind,
    /// Of the rows that go out. Those that come in on the right may hold NULL where they may not.
    schema: SchemaRef,
    codec: RowCodec,
    sides: [Bag; 2],
    numbers: BatchNumbers,
}

impl SetOperation {
    /// An operation over two inputs whose rows have the types of `schema`; `name` is the
    /// operator's stable name.
    pub fn new(name: &str, kind: SetOperationKind, schema: SchemaRef) -> Result<Self> {
        Ok(Self {
            kind,
            codec: RowCodec::new(all_nullable(&schema))?,
            schema,
            sides: ["left", "right"].map(|side| Bag::new(&format!("{name}/{side}"))),
            numbers: BatchNumbers::default(),
        })
    }
}

impl Operator for SetOperation {
    fn describe(&self) -> OperatorDescription {
        OperatorDescription {
            kind: "set operation",
            detail: self.kind.words().to_owned(),
            incremental: true,
            state: Some("row -> weight per side".to_owned()),
            retention: Some(Retention::by_input("kept while the row is in the input")),
        }
    }

    fn push(
        &mut self,
        port: usize,
        change: ChangeBatch,
        context: &BatchContext,
        _out: &mut Vec<ChangeBatch>,
    ) -> Result<()> {
        self.numbers.of(context).input_rows += change.num_rows() as u64;
        let change = under_schema(change, self.codec.schema())?;
        self.sides[port].add_change(&self.codec, &change)
    }

    fn finish(&mut self, context: &BatchContext, out: &mut Vec<ChangeBatch>) -> Result<()> {
        self.numbers.of(context);
        let left = self.sides[0].settle(&context.snapshot)?;
        let right = self.sides[1].settle(&context.snapshot)?;
        let rows = left.union_of_keys(&right);
        let left = weights_around(&self.sides[0], &rows, context)?;
        let right = weights_around(&self.sides[1], &rows, context)?;
        let changed: Vec<(usize, i64)> = (0..rows.len())
            .map(|index| {
                let (l, r) = (left[index], right[index]);
                (
                    index,
                    self.kind.copies(l.1, r.1) - self.kind.copies(l.0, r.0),
                )
            })
            .filter(|(_, delta)| *delta != 0)
            .collect();
        let at = |place: usize| {
            let (index, delta) = changed[place];
            (rows.get(index), delta)
        };
        let mut changes = Vec::new();
        decode_changes(&self.codec, changed.len(), at, &mut changes)?;
        for change in changes {
            out.push(under_schema(change, &self.schema)?);
        }
        self.numbers.of(context).output_rows += changed.len() as u64;
        Ok(())
    }

    fn drain_state(&mut self, context: &BatchContext) -> Result<Vec<(TableId, Run)>> {
        drain_all(&mut self.sides, &context.snapshot)
    }

    fn tables(&self) -> Vec<TableId> {
        self.sides.iter().flat_map(Bag::tables).collect()
    }

    fn reset(&mut self) {
        self.sides.iter_mut().for_each(Bag::reset);
        self.numbers = BatchNumbers::default();
    }

    fn statistics(&self) -> OperatorStatistics {
        let mut statistics = self.numbers.get();
        for side in &self.sides {
            side.add_statistics(&mut statistics);
        }
        statistics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_counted_as_sql_counts_them() {
        use SetOperationKind::{Except, ExceptAll, Intersect, IntersectAll};
        for (kind, expected) in [
            (Except, [0, 1, 0, 0, 0]),
            (ExceptAll, [0, 3, 0, 2, 0]),
            (Intersect, [0, 0, 0, 1, 1]),
            (IntersectAll, [0, 0, 0, 1, 3]),
        ] {
            let found = [(0, 0), (3, 0), (0, 2), (3, 1), (3, 4)].map(|(l, r)| kind.copies(l, r));
            assert_eq!(found, expected, "{kind:?}");
        }
    }
}
