//! The system tables: what the database tells about itself, readable by bare names in any session.
//!
//! A table is a function from facts to columns; its schema is that of no rows. The running
//! engine's state is copied at one instant and never waits for a pipeline; history is read from
//! its store, one view's part only where the query asks for one view. Absent: `pg_catalog`.

mod columns;
mod history;
mod running;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::memory::MemorySourceConfig;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::logical_expr::{Expr, Operator, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;

use super::Catalog;
use super::access::Subject;
use super::history::{History, HistoryFilter};

use crate::engine::status::EngineStatus;
use crate::error::Result;
pub use history::STATEMENT_EVENT;

/// What the tables are made of.
#[derive(Clone)]
pub struct SystemFacts {
    /// Metrics, events, dead letters.
    pub history: Arc<History>,
    /// Definitions.
    pub catalog: Arc<Catalog>,
    /// Who reads.
    pub subject: Arc<Subject>,
    /// The engine's state at this instant.
    pub status: Arc<dyn Fn() -> EngineStatus + Send + Sync>,
}

impl std::fmt::Debug for SystemFacts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SystemFacts").finish_non_exhaustive()
    }
}

/// How a table's rows are made; without facts, no rows.
type Build = fn(Option<&SystemFacts>, &HistoryFilter) -> Result<RecordBatch>;

/// A system table.
struct Definition {
    name: &'static str,
    /// The column that a filter's name is of.
    name_column: &'static str,
    build: Build,
}

const TABLES: &[Definition] = &[
    Definition {
        name: "streaming_metrics_log",
        name_column: "stream_name",
        build: history::metrics_log,
    },
    Definition {
        name: "streaming_events",
        name_column: "object_name",
        build: history::events,
    },
    Definition {
        name: "streaming_backups",
        name_column: "pipeline",
        build: history::backups,
    },
    Definition {
        name: "streaming_recovery_drills",
        name_column: "pipeline",
        build: history::drills,
    },
    Definition {
        name: "streaming_recovery_schedules",
        name_column: "schedule_name",
        build: history::schedules,
    },
    Definition {
        name: "streaming_dead_letters",
        name_column: "stream_name",
        build: history::dead_letters,
    },
    Definition {
        name: "streaming_late_rows",
        name_column: "stream_name",
        build: history::late_rows,
    },
    Definition {
        name: "streaming_expectations",
        name_column: "stream_name",
        build: history::expectations,
    },
    Definition {
        name: "streaming_expectations_log",
        name_column: "stream_name",
        build: history::expectations_log,
    },
    Definition {
        name: "streaming_data_gaps",
        name_column: "stream_name",
        build: history::data_gaps,
    },
    Definition {
        name: "streaming_queries",
        name_column: "stream_name",
        build: running::queries,
    },
    Definition {
        name: "streaming_pipelines",
        name_column: "pipeline",
        build: running::pipelines,
    },
    Definition {
        name: "streaming_sources",
        name_column: "source_name",
        build: running::sources,
    },
    Definition {
        name: "streaming_sinks",
        name_column: "sink_name",
        build: running::sinks,
    },
    Definition {
        name: "streaming_state_operators",
        name_column: "stream_name",
        build: running::state_operators,
    },
    Definition {
        name: "streaming_checkpoints",
        name_column: "pipeline",
        build: running::checkpoints,
    },
];

/// Names of all system tables.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|t| t.name)
}

/// The columns of a system table; `None` if there is none of that name.
pub fn schema_of(name: &str) -> Option<SchemaRef> {
    let table = TABLES.iter().find(|t| t.name == name)?;
    let empty = (table.build)(None, &HistoryFilter::default());
    Some(empty.expect("a table without facts has no rows").schema())
}

/// A system table to read; `None` if there is none of that name.
pub fn provider(name: &str, facts: &SystemFacts) -> Option<Arc<dyn TableProvider>> {
    let table = TABLES.iter().find(|t| t.name == name)?;
    Some(Arc::new(SystemTable {
        table,
        schema: schema_of(name)?,
        facts: facts.clone(),
    }))
}

struct SystemTable {
    table: &'static Definition,
    schema: SchemaRef,
    facts: SystemFacts,
}

impl std::fmt::Debug for SystemTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SystemTable({})", self.table.name)
    }
}

impl SystemTable {
    /// The name that a filter `name_column = 'name'` asks for.
    fn name_asked(&self, filter: &Expr) -> Option<String> {
        let Expr::BinaryExpr(comparison) = filter else {
            return None;
        };
        if comparison.op != Operator::Eq {
            return None;
        }
        match (comparison.left.as_ref(), comparison.right.as_ref()) {
            (Expr::Column(column), Expr::Literal(value, _))
            | (Expr::Literal(value, _), Expr::Column(column))
                if column.name == self.table.name_column =>
            {
                match value {
                    ScalarValue::Utf8(name)
                    | ScalarValue::LargeUtf8(name)
                    | ScalarValue::Utf8View(name) => name.clone(),
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

#[async_trait]
impl TableProvider for SystemTable {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        Ok(filters
            .iter()
            .map(|filter| match self.name_asked(filter) {
                Some(_) => TableProviderFilterPushDown::Inexact,
                None => TableProviderFilterPushDown::Unsupported,
            })
            .collect())
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        _limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let filter = HistoryFilter {
            name: filters.iter().find_map(|f| self.name_asked(f)),
            limit: None,
        };
        let (build, facts) = (self.table.build, self.facts.clone());
        // The history store reads files.
        let batch = tokio::task::spawn_blocking(move || build(Some(&facts), &filter))
            .await
            .map_err(|e| DataFusionError::External(Box::new(e)))?
            .map_err(|e| DataFusionError::External(Box::new(e)))?;
        let rows: Arc<dyn ExecutionPlan> =
            MemorySourceConfig::try_new_exec(&[vec![batch]], self.schema(), projection.cloned())?;
        Ok(rows)
    }
}
