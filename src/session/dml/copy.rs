//! `COPY … FROM STDIN`: decoded rows into a relation.
//!
//! Owns what it needs, so that a session can hold it while the client sends. Rows of a stream go to
//! the log as they come; rows of a table are kept by key until the end.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::execution::SessionState;

use super::DmlContext;
use super::assign::{Origin, assign};
use super::conflict::ConflictRule;
use super::insert::{DefaultFiller, InsertSink};
use super::plan::StatementPlanner;
use super::target::{CatalogLookup, Target, Verb};
use super::transaction::{Transaction, TransactionMark};
use crate::error::{Error, Result, sqlstate};
use crate::log::LogPosition;
use crate::log::tables::overlay::Layer;

/// An open `COPY … FROM STDIN`.
pub struct CopyRows {
    target: Target,
    columns: Vec<usize>,
    state: SessionState,
    planner: Arc<dyn StatementPlanner>,
    mark: TransactionMark,
    /// position of the view that the first rows were checked against
    base: LogPosition,
    layer: Layer,
    bytes: usize,
    rows: u64,
}

impl CopyRows {
    /// Starts a copy into `relation`; `columns` are the listed ones, none for all.
    pub fn begin(
        state: SessionState,
        planner: Arc<dyn StatementPlanner>,
        catalog: CatalogLookup<'_>,
        transaction: &Transaction,
        relation: &str,
        columns: &[String],
    ) -> Result<Self> {
        let target = Target::find(catalog, relation, None, Verb::Insert)?;
        Ok(Self {
            columns: target.listed(columns)?,
            target,
            state,
            planner,
            mark: transaction.mark(),
            base: transaction.view().position(),
            layer: Layer::new(),
            bytes: 0,
            rows: 0,
        })
    }

    /// The columns that [`Self::write`] expects, in order.
    pub fn schema(&self) -> SchemaRef {
        let fields = self.columns.iter().map(|&c| {
            let field = self.target.schema.field(c);
            // A null is refused with the row that has it, not by the decoder.
            Arc::new(field.clone().with_nullable(true))
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// Takes decoded rows. After an error, give the copy up with [`Self::abandon`].
    pub async fn write(&mut self, transaction: &mut Transaction, rows: &RecordBatch) -> Result<()> {
        if rows.num_columns() != self.columns.len() {
            return Err(Error::new(
                sqlstate::BAD_COPY_FORMAT,
                format!(
                    "a row has {} columns, {} are expected",
                    rows.num_columns(),
                    self.columns.len()
                ),
            ));
        }
        if rows.num_rows() == 0 {
            return Ok(());
        }
        let state = self.state.clone();
        let planner = Arc::clone(&self.planner);
        let none = |_: &str| None;
        let mut dml = DmlContext {
            state: &state,
            planner: planner.as_ref(),
            catalog: &none,
            transaction,
            parameters: &[],
        };
        let settings = dml.planning().settings();
        let filler = DefaultFiller::new(&self.target, &self.columns)?;
        let mut columns = filler.fill(&dml.planning(), rows.num_rows()).await?;
        let schema = rows.schema();
        for (at, column) in self.columns.iter().enumerate() {
            let definition = &self.target.columns()[*column];
            let field = &schema.fields()[at];
            let values = assign(
                rows.column(at),
                field,
                definition,
                Origin::Literal,
                &settings,
            )?;
            columns[*column] = Some(values);
        }
        let columns = columns.into_iter().flatten().collect();
        let whole = self.target.rows(columns, rows.num_rows())?;
        let mut sink = InsertSink::new(&self.target, ConflictRule::Fail, false);
        sink.resume(std::mem::take(&mut self.layer), self.bytes);
        sink.take(&mut dml, whole).await?;
        let (layer, bytes, rows) = sink.pause();
        self.layer = layer;
        self.bytes = bytes;
        self.rows += rows;
        Ok(())
    }

    /// Adds all rows to the transaction; their number.
    pub fn finish(self, transaction: &mut Transaction) -> u64 {
        if let Some(layout) = &self.target.layout {
            transaction.add(layout, self.layer, self.base);
        }
        self.rows
    }

    /// Takes back what was written.
    pub fn abandon(self, transaction: &mut Transaction) -> Result<()> {
        transaction.rollback_to(&self.mark)
    }
}
