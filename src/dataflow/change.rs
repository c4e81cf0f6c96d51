//! Change batches: the only thing that flows between operators.
//!
//! Rows are an Arrow batch; each has an Int64 weight, +n for n copies inserted and −n for n
//! copies deleted. A relation is the sum of its changes: a multiset. `weights: None` says that
//! every row has weight +1, which is all an append-only edge ever carries, so the fast path costs
//! no array.

use datafusion::arrow::array::{Array, Int64Array, RecordBatch};
use datafusion::arrow::compute;
use datafusion::arrow::datatypes::SchemaRef;

use crate::error::Result;

/// A batch of weighted rows.
#[derive(Debug, Clone)]
pub struct ChangeBatch {
    rows: RecordBatch,
    weights: Option<Int64Array>,
}

impl ChangeBatch {
    /// Rows that are each inserted once.
    pub fn inserts(rows: RecordBatch) -> Self {
        Self {
            rows,
            weights: None,
        }
    }

    /// Rows with their weights; as many weights as rows, none null.
    pub fn weighted(rows: RecordBatch, weights: Int64Array) -> Self {
        assert_eq!(rows.num_rows(), weights.len(), "one weight per row");
        assert_eq!(weights.null_count(), 0, "a weight is never null");
        Self {
            rows,
            weights: Some(weights),
        }
    }

    /// The rows.
    pub fn rows(&self) -> &RecordBatch {
        &self.rows
    }

    /// The weights; `None`: all +1.
    pub fn weights(&self) -> Option<&Int64Array> {
        self.weights.as_ref()
    }

    /// Weight of row `index`.
    pub fn weight(&self, index: usize) -> i64 {
        self.weights.as_ref().map_or(1, |w| w.value(index))
    }

    /// Number of rows (entries, not copies).
    pub fn num_rows(&self) -> usize {
        self.rows.num_rows()
    }

    /// No entries.
    pub fn is_empty(&self) -> bool {
        self.num_rows() == 0
    }

    /// Schema of the rows.
    pub fn schema(&self) -> SchemaRef {
        self.rows.schema()
    }

    /// The same weights over other rows of the same number, such as a projection's result.
    pub fn with_rows(&self, rows: RecordBatch) -> Self {
        assert_eq!(rows.num_rows(), self.num_rows(), "a projection keeps rows");
        Self {
            rows,
            weights: self.weights.clone(),
        }
    }

    /// Rows where `mask` is true.
    pub fn filter(&self, mask: &datafusion::arrow::array::BooleanArray) -> Result<Self> {
        let rows = compute::filter_record_batch(&self.rows, mask)?;
        let weights = match &self.weights {
            None => None,
            Some(w) => Some(
                compute::filter(w, mask)?
                    .as_any()
                    .downcast_ref::<Int64Array>()
                    .expect("filter keeps the type")
                    .clone(),
            ),
        };
        Ok(Self { rows, weights })
    }

    /// All rows with their weights negated.
    pub fn negated(&self) -> Self {
        let weights: Int64Array = (0..self.num_rows())
            .map(|i| Some(-self.weight(i)))
            .collect();
        Self {
            rows: self.rows.clone(),
            weights: Some(weights),
        }
    }
}
