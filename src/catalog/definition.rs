//! Definitions: what a user created, as the catalog keeps it (JSON) and as all others read it.
//!
//! A definition is data only. It holds SQL text where the user wrote an expression or a query;
//! binding that text is the `sql` and `dataflow` modules' work.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use super::function::FunctionDefinition;
use super::shape::Shape;
use super::temporary::OnCommit;
use crate::types::{SqlType, TYPE_KEY, TextType};

/// Options of a `WITH (…)` list, by their canonical snake_case name.
pub type Options = BTreeMap<String, OptionValue>;

/// The value of an option.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptionValue {
    /// a literal, as text
    Text(String),
    /// `SECRET name`
    Secret(String),
}

/// A column of a stream or table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnDefinition {
    /// Name, folded as PostgreSQL folds it.
    pub name: String,
    /// Type.
    pub sql_type: SqlType,
    /// `NOT NULL` was not said.
    pub nullable: bool,
    /// `DEFAULT` expression, as SQL text.
    pub default: Option<String>,
    /// `METADATA FROM 'offset'`: filled by the connector, not from the payload.
    pub metadata_from: Option<String>,
    /// `COMMENT ON COLUMN`.
    pub comment: Option<String>,
    /// For text: how it was declared, where that was not as `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_type: Option<TextType>,
}

impl ColumnDefinition {
    /// A column of which nothing is said but its name and type; it may be NULL.
    pub fn new(name: impl Into<String>, sql_type: SqlType) -> Self {
        Self {
            name: name.into(),
            sql_type,
            nullable: true,
            default: None,
            metadata_from: None,
            comment: None,
            text_type: None,
        }
    }

    /// Its type as PostgreSQL's `format_type` writes it.
    pub fn type_name(&self) -> String {
        match self.text_type {
            Some(text_type) => text_type.to_string(),
            None => self.sql_type.to_string(),
        }
    }

    /// Its Arrow field.
    pub fn to_field(&self) -> Field {
        let field = self.sql_type.to_field(&self.name, self.nullable);
        match self.text_type {
            Some(text_type) => {
                field.with_metadata([(TYPE_KEY.to_owned(), text_type.metadata_name())].into())
            }
            None => field,
        }
    }
}

/// `WATERMARK FOR column AS column - INTERVAL '…'`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatermarkDefinition {
    /// The event-time column (timestamp, timestamptz or an integer of the generator).
    pub column: String,
    /// How far behind the largest event time the watermark stays; microseconds for timestamps.
    pub delay_us: i64,
}

/// What happens to a row that fails an expectation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnViolation {
    /// count it, keep it
    Keep,
    /// count it, drop it
    DropRow,
    /// stop the batch
    FailUpdate,
}

/// `CONSTRAINT name EXPECT (condition) ON VIOLATION …`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectationDefinition {
    /// Constraint name.
    pub name: String,
    /// Condition as SQL text over the relation's columns; NULL passes, as in a CHECK.
    pub condition: String,
    /// What a failing row meets.
    pub on_violation: OnViolation,
}

/// When a view shows its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum EmitMode {
    /// as they change
    #[default]
    OnUpdate,
    /// once, when the watermark passed the window's end
    OnWindowClose,
}

/// `CREATE STREAM`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamDefinition {
    /// Columns in order.
    pub columns: Vec<ColumnDefinition>,
    /// Event time and its delay.
    pub watermark: Option<WatermarkDefinition>,
    /// Expectations.
    pub expectations: Vec<ExpectationDefinition>,
    /// Connector name; `None` is a durable log that `INSERT` and `COPY` append to.
    pub connector: Option<String>,
    /// Connector and format options.
    pub options: Options,
    /// What `ALTER` made of the columns.
    #[serde(default, skip_serializing_if = "Shape::is_original")]
    pub shape: Shape,
}

/// `CREATE TABLE`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableDefinition {
    /// Columns in order.
    pub columns: Vec<ColumnDefinition>,
    /// Names of the primary key's columns; empty: rows have a hidden identity.
    pub primary_key: Vec<String>,
    /// Options.
    pub options: Options,
    /// What `ALTER` made of the columns.
    #[serde(default, skip_serializing_if = "Shape::is_original")]
    pub shape: Shape,
    /// Of a temporary table, which is never kept: what a commit does to it.
    #[serde(skip)]
    pub on_commit: OnCommit,
}

/// `CREATE MATERIALIZED VIEW`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaterializedViewDefinition {
    /// The `SELECT`, as the user wrote it.
    pub query: String,
    /// Output columns, resolved at creation.
    pub columns: Vec<ColumnDefinition>,
    /// When results show.
    pub emit: EmitMode,
    /// The pipeline it runs in.
    pub pipeline: String,
    /// Options other than the pipeline's.
    pub options: Options,
    /// Relations it reads, by name.
    pub depends_on: Vec<String>,
    /// For the altered ones among them: the version of their columns that the query means.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, usize>,
    /// The functions in SQL that it was planned with, also those that functions and views call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Arc<FunctionDefinition>>,
}

/// `CREATE VIEW`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ViewDefinition {
    /// The `SELECT`, as the user wrote it.
    pub query: String,
    /// Output columns, resolved at creation.
    pub columns: Vec<ColumnDefinition>,
    /// Relations it reads, by name.
    pub depends_on: Vec<String>,
    /// For the altered ones among them: the version of their columns that the query means.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, usize>,
    /// The functions in SQL that it calls, as they were at its creation; they mean what they are
    /// when the view is read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Arc<FunctionDefinition>>,
}

/// `CREATE SINK`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkDefinition {
    /// The view or stream whose changes it delivers.
    pub from: String,
    /// The pipeline it runs in: the view's, or its own when it reads a stream.
    pub pipeline: String,
    /// Connector name.
    pub connector: String,
    /// Connector and format options.
    pub options: Options,
    /// The version of the columns that it delivers, where what it delivers was altered.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, usize>,
}

/// A column of an index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexColumn {
    /// Name of the view's column.
    pub name: String,
    /// `DESC`
    pub descending: bool,
    /// `NULLS FIRST`
    pub nulls_first: bool,
}

/// `CREATE INDEX` on a materialized view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexDefinition {
    /// The view's name.
    pub view: String,
    /// The view's identifier: its namesake after a replacement has other rows.
    pub of: u32,
    /// The view's pipeline.
    pub pipeline: String,
    /// Columns in order.
    pub columns: Vec<IndexColumn>,
    /// `INCLUDE (…)`; all columns of the view are there in any case.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include: Vec<String>,
}

/// A pipeline's settings: the options of the views in it that concern the trigger loop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineDefinition {
    /// Identity that every checkpoint file of it names.
    pub id: uuid::Uuid,
    /// `trigger`, `checkpoint_location`, `max_…`, `min_batches_to_retain`, ….
    pub options: Options,
    /// `STOP` was said: it stays stopped over restarts.
    pub stopped: bool,
    /// Where its checkpoint lay before it was told to be elsewhere, until it has been moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_location: Option<String>,
    /// Pipelines whose views and sinks became its own, until their state has been taken over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merges: Vec<MergedPipeline>,
}

/// A pipeline that another one takes in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedPipeline {
    /// Its name until then.
    pub name: String,
    /// Identity that its checkpoint names.
    pub id: uuid::Uuid,
    /// Its options, which say where the checkpoint lies.
    pub options: Options,
    /// The views that ran in it.
    pub views: Vec<String>,
}

/// The kinds of named relations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Definition {
    /// append-only relation
    Stream(StreamDefinition),
    /// relation with a primary key and DML
    Table(TableDefinition),
    /// incrementally kept `SELECT`
    MaterializedView(MaterializedViewDefinition),
    /// stored `SELECT`, run when read
    View(ViewDefinition),
    /// delivery of changes
    Sink(SinkDefinition),
    /// another order of a materialized view's rows
    Index(IndexDefinition),
}

impl Definition {
    /// The relation's rows lie in the database's own log.
    pub fn is_logged(&self) -> bool {
        match self {
            Self::Stream(stream) => matches!(stream.connector.as_deref(), None | Some("socket")),
            Self::Table(_) => true,
            Self::MaterializedView(_) | Self::View(_) | Self::Sink(_) | Self::Index(_) => false,
        }
    }
}

/// A named object of the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogObject {
    /// Name, folded.
    pub name: String,
    /// Stable over restarts; 16384 and up.
    pub oid: u32,
    /// When it was created, microseconds since the epoch.
    pub created_at_us: i64,
    /// `COMMENT ON`.
    pub comment: Option<String>,
    /// What pipelines and history know it by, where it has another name now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_as: Option<String>,
    /// Names in its query that mean relations of other names now.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub renamed: BTreeMap<String, String>,
    /// What it is.
    pub definition: Definition,
}

impl CatalogObject {
    /// Columns, for the kinds that have any.
    pub fn columns(&self) -> &[ColumnDefinition] {
        match &self.definition {
            Definition::Stream(d) => &d.columns,
            Definition::Table(d) => &d.columns,
            Definition::MaterializedView(d) => &d.columns,
            Definition::View(d) => &d.columns,
            Definition::Sink(_) | Definition::Index(_) => &[],
        }
    }

    /// The functions in SQL that its query calls.
    pub fn functions(&self) -> &[Arc<FunctionDefinition>] {
        match &self.definition {
            Definition::MaterializedView(d) => &d.functions,
            Definition::View(d) => &d.functions,
            Definition::Stream(_)
            | Definition::Table(_)
            | Definition::Sink(_)
            | Definition::Index(_) => &[],
        }
    }

    /// What the names in its query mean.
    pub fn kept_names(&self) -> KeptNames {
        let versions = match &self.definition {
            Definition::MaterializedView(view) => view.versions.clone(),
            Definition::View(view) => view.versions.clone(),
            Definition::Sink(sink) => sink.versions.clone(),
            Definition::Stream(_) | Definition::Table(_) | Definition::Index(_) => BTreeMap::new(),
        };
        KeptNames {
            renamed: self.renamed.clone(),
            versions,
            functions: self.functions().to_vec(),
            time_zone: self.time_zone().map(str::to_owned),
        }
    }

    /// The time zone of a materialized view's query; `None`: UTC.
    pub fn time_zone(&self) -> Option<&str> {
        match &self.definition {
            Definition::MaterializedView(view) => match view.options.get(TIME_ZONE)? {
                OptionValue::Text(zone) => Some(zone),
                OptionValue::Secret(_) => None,
            },
            _ => None,
        }
    }

    /// Arrow schema of the columns.
    pub fn schema(&self) -> SchemaRef {
        columns_schema(self.columns())
    }
}

/// What the names in a stored query mean.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeptNames {
    /// Names of relations as they are written, and what those are named now, where that differs.
    pub renamed: BTreeMap<String, String>,
    /// Of altered relations: the version of their columns.
    pub versions: BTreeMap<String, usize>,
    /// Functions in SQL; there are no others for the query.
    pub functions: Vec<Arc<FunctionDefinition>>,
    /// Whose clocks times are read and shown by; `None`: UTC.
    pub time_zone: Option<String>,
}

/// The option of a materialized view that says it.
pub const TIME_ZONE: &str = "timezone";

/// Arrow schema of a list of columns.
pub fn columns_schema(columns: &[ColumnDefinition]) -> SchemaRef {
    Arc::new(Schema::new(
        columns
            .iter()
            .map(ColumnDefinition::to_field)
            .collect::<Vec<_>>(),
    ))
}
