//! `generate_series` and `range` in FROM: the engine's, which tell what they were called with.
//!
//! To the engine the relations of two calls are one and the same table, whatever the arguments are;
//! who compares plans, or keeps one, asks for the call in words (`get_table_definition`).

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::Result as DataFusionResult;
use datafusion::functions_table::generate_series::{GenerateSeriesFunc, RangeFunc};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

/// The functions under their names.
pub(super) fn functions() -> Vec<(&'static str, Arc<dyn TableFunctionImpl>)> {
    let series = |name, inner| -> (&'static str, Arc<dyn TableFunctionImpl>) {
        (name, Arc::new(SeriesFunction { name, inner }))
    };
    vec![
        series("generate_series", Arc::new(GenerateSeriesFunc {})),
        series("range", Arc::new(RangeFunc {})),
    ]
}

#[derive(Debug)]
struct SeriesFunction {
    name: &'static str,
    inner: Arc<dyn TableFunctionImpl>,
}

impl TableFunctionImpl for SeriesFunction {
    fn call_with_args(&self, args: TableFunctionArgs) -> DataFusionResult<Arc<dyn TableProvider>> {
        let arguments: Vec<String> = args.exprs().iter().map(words).collect();
        let definition = format!("{}({})", self.name, arguments.join(", "));
        let inner = self.inner.call_with_args(args)?;
        Ok(Arc::new(Series { inner, definition }))
    }
}

fn words(argument: &Expr) -> String {
    match argument {
        Expr::Literal(value, _) => value.to_string(),
        other => other.to_string(),
    }
}

#[derive(Debug)]
struct Series {
    inner: Arc<dyn TableProvider>,
    definition: String,
}

#[async_trait]
impl TableProvider for Series {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }

    fn table_type(&self) -> TableType {
        self.inner.table_type()
    }

    fn get_table_definition(&self) -> Option<&str> {
        Some(&self.definition)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        self.inner.scan(state, projection, filters, limit).await
    }
}
