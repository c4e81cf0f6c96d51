//! A subquery used as a value: always exactly one row, of NULLs while the subquery gives none.
//!
//! ```text
//!   no row → NULL      one row → that row      more → error 21000
//! ```
//!
//! The planner joins it without a condition to the rows that use the value. What was sent is kept
//! beside the subquery's rows, so that the row of NULLs is sent once, also after a restart.

use datafusion::arrow::array::{RecordBatch, new_null_array};
use datafusion::arrow::datatypes::SchemaRef;

use super::bag::Bag;
use super::batch_numbers::BatchNumbers;
use super::change::ChangeBatch;
use super::consolidate::{Outgoing, under_schema};
use super::operator::{BatchContext, Operator, OperatorDescription, OperatorStatistics, Retention};
use super::rows::{RowCodec, rebatch};
use super::single_entry;
use crate::error::{Error, Result, sqlstate};
use crate::state::{Run, TableId};

/// The operator.
pub struct SingleRow {
    codec: RowCodec,
    rows: Bag,
    sent_table: TableId,
    /// The row that was sent by a committed batch, encoded; the outer `None`: not looked up yet.
    sent: Option<Option<Vec<u8>>>,
    /// The row that this batch sent in its place.
    sending: Option<Vec<u8>>,
    numbers: BatchNumbers,
}

impl SingleRow {
    /// A single row of `schema`, all nullable; `name` is the operator's stable name.
    pub fn new(name: &str, schema: SchemaRef) -> Result<Self> {
        Ok(Self {
            codec: RowCodec::new(schema)?,
            rows: Bag::new(&format!("{name}/rows")),
            sent_table: TableId::from_name(&format!("{name}/sent")),
            sent: None,
            sending: None,
            numbers: BatchNumbers::default(),
        })
    }

    fn sent(&mut self, context: &BatchContext) -> Result<Option<Vec<u8>>> {
        if self.sent.is_none() {
            self.sent = Some(single_entry::read(&context.snapshot, self.sent_table)?);
        }
        Ok(self.sent.clone().flatten())
    }

    /// The row to show after the batch.
    fn row(&self, context: &BatchContext) -> Result<Vec<u8>> {
        let mut reader = self.rows.read_new(&context.snapshot, &[])?;
        let mut row = None;
        while reader.advance()? {
            if reader.weight() > 1 || (reader.weight() > 0 && row.is_some()) {
                return Err(Error::new(
                    sqlstate::CARDINALITY_VIOLATION,
                    "more than one row returned by a subquery used as an expression",
                ));
            }
            if reader.weight() > 0 {
                row = Some(reader.row().to_vec());
            }
        }
        match row {
            Some(row) => Ok(row),
            None => {
                let nulls = self.nulls()?;
                Ok(self.codec.encode(&nulls)?.row(0).to_vec())
            }
        }
    }

    fn nulls(&self) -> Result<RecordBatch> {
        let schema = self.codec.schema();
        let columns = schema.fields().iter();
        let columns = columns.map(|field| new_null_array(field.data_type(), 1));
        rebatch(schema, columns.collect(), 1)
    }
}

impl Operator for SingleRow {
    fn describe(&self) -> OperatorDescription {
        OperatorDescription {
            kind: "single row",
            detail: "subquery used as a value".to_owned(),
            incremental: true,
            state: Some("row -> weight, and the row that was sent".to_owned()),
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
        let change = under_schema(change, self.codec.schema())?;
        self.rows.add_change(&self.codec, &change)
    }

    fn finish(&mut self, context: &BatchContext, out: &mut Vec<ChangeBatch>) -> Result<()> {
        self.numbers.of(context);
        let unchanged = self.rows.is_pending_empty();
        let sent = self.sent(context)?;
        self.rows.settle(&context.snapshot)?;
        if unchanged && sent.is_some() {
            return Ok(());
        }
        let row = self.row(context)?;
        if sent.as_ref() == Some(&row) {
            return Ok(());
        }
        let mut going = Outgoing::default();
        if let Some(sent) = &sent {
            going.push(sent, -1);
        }
        going.push(&row, 1);
        going.decode(&self.codec, out)?;
        self.numbers.of(context).output_rows += going.len() as u64;
        self.sending = Some(row);
        Ok(())
    }

    fn drain_state(&mut self, context: &BatchContext) -> Result<Vec<(TableId, Run)>> {
        let mut runs = self.rows.drain(&context.snapshot)?;
        if let Some(row) = &self.sending {
            runs.push(single_entry::write(self.sent_table, row));
        }
        runs.sort_by_key(|(table, _)| *table);
        Ok(runs)
    }

    fn tables(&self) -> Vec<TableId> {
        self.rows
            .tables()
            .into_iter()
            .chain([self.sent_table])
            .collect()
    }

    fn committed(&mut self) {
        if let Some(row) = self.sending.take() {
            self.sent = Some(Some(row));
        }
    }

    fn reset(&mut self) {
        self.rows.reset();
        self.sent = None;
        self.sending = None;
        self.numbers = BatchNumbers::default();
    }

    fn statistics(&self) -> OperatorStatistics {
        let mut statistics = self.numbers.get();
        self.rows.add_statistics(&mut statistics);
        statistics
    }
}
