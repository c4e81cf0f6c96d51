//! Running plans: rows as they come, memory bounded by the database's pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::{SendableRecordBatchStream, SessionState};
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use super::dml::{has_changes, has_locks};
use super::parameters::{Parameter, plan_with_values};
use super::{Session, StatementResult, origins, planning, threads};
use crate::catalog::definition::TIME_ZONE;
use crate::error::{Error, Result};
use crate::sql::local_times::in_time_zone;

/// Rows as they come.
pub type RowStream = BoxStream<'static, Result<RecordBatch>>;

/// Optimizes a plan and starts it. The rows carry `schema`, the plan's own, with the types that
/// all branches of a CASE or UNION have in common.
pub(super) async fn start(
    state: &SessionState,
    plan: &LogicalPlan,
) -> Result<(SchemaRef, RowStream)> {
    let as_written = plan;
    let plan = planning::analyzed(state, plan.clone())?;
    let schema = planning::output_schema(&plan);
    let schema = origins::marked(schema, as_written, state);
    let plan = threads::optimized(state, plan)?;
    let physical = threads::physical_plan_of(state, &plan).await?;
    let rows = threads::start_plan(state, physical)?;
    Ok((schema.clone(), with_schema_of(rows, schema)))
}

/// The rows of a plan under the schema that its analysis gave.
pub(super) fn with_schema_of(rows: SendableRecordBatchStream, schema: SchemaRef) -> RowStream {
    rows.map_err(Error::from)
        .map(move |batch| with_schema(batch?, &schema))
        .boxed()
}

/// Field metadata names the SQL type of a column, and not every operator hands it on.
fn with_schema(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let is_same = batch
        .schema()
        .fields()
        .iter()
        .zip(schema.fields())
        .all(|(a, b)| a.data_type() == b.data_type());
    if !is_same {
        return Ok(batch);
    }
    let options =
        datafusion::arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    // A plan may promise "not null" where an outer operator pads: the data decides.
    let fields: Vec<_> = schema
        .fields()
        .iter()
        .zip(batch.columns())
        .map(|(field, column)| {
            let has_nulls = column.is_nullable();
            Arc::new(
                field
                    .as_ref()
                    .clone()
                    .with_nullable(field.is_nullable() || has_nulls),
            )
        })
        .collect();
    let schema = datafusion::arrow::datatypes::Schema::new(fields);
    Ok(RecordBatch::try_new_with_options(
        Arc::new(schema),
        batch.columns().to_vec(),
        &options,
    )?)
}

/// Sets `failed` when the stream ends with an error: the transaction block has then failed too.
pub(super) fn watched(rows: RowStream, failed: Arc<AtomicBool>) -> RowStream {
    rows.inspect_err(move |_| failed.store(true, Ordering::SeqCst))
        .boxed()
}

impl Session {
    /// The planning state of this statement; its `now()` is the statement's.
    pub(super) fn planning_state(&self) -> SessionState {
        let zone = self.settings.get(TIME_ZONE);
        in_time_zone(self.context.state(), zone.as_deref())
    }

    /// Plans and starts a query.
    pub(super) async fn start_query(
        &self,
        query: &ast::Query,
        parameters: &[Parameter],
    ) -> Result<(SchemaRef, RowStream)> {
        if let Some(started) = self.start_reused(query, parameters).await? {
            return Ok(started);
        }
        let state = self.planning_state();
        let plan = plan_with_values(&state, planning::query_statement(query), parameters).await?;
        start(&state, &plan).await
    }

    /// `SELECT` and its like.
    pub(super) async fn query(
        &mut self,
        query: &ast::Query,
        parameters: &[Parameter],
    ) -> Result<StatementResult> {
        let (schema, stream) = match (has_changes(query), has_locks(query)) {
            (false, false) => self.start_query(query, parameters).await?,
            (false, true) => {
                let state = self.planning_state();
                self.start_locking_query(query, state, parameters).await?
            }
            (true, _) => {
                let results = self.run_changes_of_with(query, parameters).await?;
                self.start_locking_query(&results.query, results.state, parameters)
                    .await?
            }
        };
        Ok(StatementResult::Rows {
            schema,
            stream: watched(stream, self.stream_failed.clone()),
            tag: "SELECT".to_owned(),
            tag_has_count: true,
        })
    }
}
