//! The system tables: what the database tells about itself, readable by bare names in any session.
//!
//! A table is a function from facts to columns; its schema is that of no rows. The running
//! engine's state is copied at one instant and never waits for a pipeline; history is read from
//! its store, one view's part only where the query asks for one view. Absent: `pg_catalog`.

mod columns;
mod history;
mod running;
mod scan;

#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, Operator, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;

use self::scan::{SystemRead, SystemScan};
use super::Catalog;
use super::access::Subject;
use super::history::{History, HistoryFilter};

use crate::engine::status::{EngineStatus, FileStatus};
use crate::error::Result;
pub use history::STATEMENT_EVENT;

/// Gives the files that sources know, of one stream if it is named.
pub type KnownFiles = Arc<dyn Fn(Option<&str>) -> Vec<FileStatus> + Send + Sync>;

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
    /// What files sources know.
    pub files: KnownFiles,
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

const METRICS_LOG: &str = "streaming_metrics_log";

const TABLES: &[Definition] = &[
    Definition {
        name: METRICS_LOG,
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
        name: "streaming_files",
        name_column: "stream_name",
        build: running::files,
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

/// The schema in which tools find the system tables that hide `pg_catalog` from their users.
pub const SCHEMA: &str = "tidemill";

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

/// A provider is a system table, which is made of the facts of the moment when it is scanned.
pub fn is_system_table(provider: &dyn Any) -> bool {
    provider.is::<SystemTable>()
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
    /// The rows of a name are one range of history.
    fn lies_by_name(&self) -> bool {
        self.table.name == METRICS_LOG
    }

    /// What is kept under this name is shown under another one.
    fn is_anothers(&self, name: &str) -> bool {
        let catalog = self.facts.catalog.snapshot();
        self.lies_by_name() && catalog.shown_name(catalog.kept_name(name)) != name
    }

    /// What history keeps a name's rows under; `None`: under several.
    fn kept_name(&self, name: String) -> Option<String> {
        let catalog = self.facts.catalog.snapshot();
        match self.table.name_column {
            "stream_name" => Some(catalog.kept_name(&name).to_owned()),
            // What a session tells has the name that was said.
            "object_name" if catalog.kept_name(&name) != name => None,
            _ => Some(name),
        }
    }

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
        let answer = |filter: &&Expr| match self.name_asked(filter) {
            // Whose rows lie by name, and under no other one.
            Some(_) if self.lies_by_name() => TableProviderFilterPushDown::Exact,
            Some(_) => TableProviderFilterPushDown::Inexact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(answer).collect())
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let asked: BTreeSet<String> = filters.iter().filter_map(|f| self.name_asked(f)).collect();
        let schema = match projection {
            Some(projection) => Arc::new(self.schema.project(projection)?),
            None => self.schema(),
        };
        if asked.len() > 1 || asked.iter().any(|name| self.is_anothers(name)) {
            // No row has two names, or one that its view had before.
            return Ok(Arc::new(EmptyExec::new(schema)));
        }
        let newest_first = self.lies_by_name() && !asked.is_empty();
        let name = asked.into_iter().next();
        let read = SystemRead {
            table: self.table,
            facts: self.facts.clone(),
            filter: HistoryFilter {
                name: name.and_then(|name| self.kept_name(name)),
                limit: limit.filter(|_| newest_first),
            },
            projection: projection.cloned(),
            newest_first,
        };
        Ok(Arc::new(SystemScan::new(read, schema)))
    }
}
