//! The incremental planner: from a bound plan to a graph of operators.
//!
//! ```text
//!   bound plan ─► analyze ─► prepare (nodes of our own) ─► check (volatile functions)
//!              ─► optimize (rules that keep meaning)
//!              ─► translate: one operator per node ─► ViewPlan: nodes, key, append-only, lineage
//! ```
//!
//! Planning is pure: it reads the plan and the properties of the inputs, and builds each operator
//! once so that what cannot run is refused at CREATE. A node without an incremental operator is
//! recomputed over the kept rows of its children, so every plan DataFusion runs is a right view.
//! No operator is chosen by looking at SQL text.

mod aggregate;
mod arranged;
pub mod bounds;
mod check;
pub mod event_time;
mod grouping;
mod join;
mod join_time;
mod nodes;
mod optimize;
mod ordered;
mod prepare;
mod recompute;
mod temporal;
mod translate;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Column};

use self::event_time::EventTime;
use super::aggregate::{AggregateOperator, AggregateRequest, GroupContents};
use super::distinct::Distinct;
use super::join::{Arrangements, Join, JoinSpec, LeftRows};
use super::not_in::{NotIn, NotInSpec};
use super::operator::{BoxOperator, OperatorDescription};
use super::recompute::{Recompute, RecomputeSpec};
use super::row_errors::OnRowError;
use super::rows::all_nullable;
use super::session::{Session, SessionSpec};
use super::set_operation::{SetOperation, SetOperationKind};
use super::single_row::SingleRow;
use super::stateless::{Filter, Pass, Project, Stateless};
use super::temporal::{TemporalFilter, TemporalSpec};
use super::top::{HeadContents, Top, TopSpec};
use super::unnest::Unnest;
use super::view_storage::{KeyColumn, ViewContents, ViewLayout};
use super::window::{Window, WindowSpec};
use crate::catalog::definition::EmitMode;
use crate::error::{Error, Result, sqlstate};

/// What the planner must know of a relation that a view reads.
#[derive(Debug, Clone)]
pub struct InputProperties {
    /// All its columns.
    pub schema: SchemaRef,
    /// Its changes are inserts only.
    pub append_only: bool,
    /// The column that its watermark follows.
    pub watermark_column: Option<usize>,
    /// Columns of which no two rows have the same values.
    pub primary_key: Option<Vec<usize>>,
    /// For a view: how its columns relate to the watermark ([`ViewPlan::event_time`]); may be
    /// empty.
    pub event_time: Vec<Option<EventTime>>,
}

/// A view to be planned.
pub struct ViewRequest<'a> {
    /// Its name.
    pub name: &'a str,
    /// What the operators' names, and so their state tables, begin with: the view's name and
    /// identity, so that a view never finds the state of a dropped one of the same name.
    pub state_name: &'a str,
    /// Its rows are kept to be read; false for a query that only feeds a sink.
    pub stored: bool,
    /// Its query: bound, not optimized.
    pub plan: &'a LogicalPlan,
    /// Functions and options that the query was bound with.
    pub state: &'a SessionState,
    /// Properties of the relations it may read, by bare name.
    pub inputs: &'a dyn Fn(&str) -> Option<InputProperties>,
    /// When results show.
    pub emit: EmitMode,
    /// What a row meets on which an expression fails. The plan is the same for all; under `null`
    /// every column may hold a NULL, whatever the query alone would say.
    pub on_row_error: OnRowError,
}

/// Columns of a relation that are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputSpec {
    /// The relation's name.
    pub relation: String,
    /// Its columns, as indices into its schema, ascending.
    pub projection: Vec<usize>,
}

/// A line of `EXPLAIN MATERIALIZED VIEW`: the operators, result first, inputs below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainRow {
    /// 0 for the operator that gives the view's rows.
    pub depth: usize,
    /// Stable name.
    pub operator_name: String,
    /// What it does.
    pub description: OperatorDescription,
}

/// What an operator does; enough to build it.
#[derive(Debug, Clone)]
pub(crate) enum NodeKind {
    Input {
        relation: String,
        projection: Vec<usize>,
    },
    Filter {
        condition: Arc<dyn PhysicalExpr>,
    },
    Project {
        expressions: Vec<Arc<dyn PhysicalExpr>>,
    },
    Unnest {
        lists: Vec<usize>,
        structs: Vec<usize>,
        null_handling: datafusion::common::NullHandling,
    },
    Union,
    Distinct,
    Aggregate(Box<AggregateRequest>),
    Join(Box<JoinSpec>),
    NotIn(Box<NotInSpec>),
    Session(Box<SessionSpec>),
    SetOperation(SetOperationKind),
    SingleRow,
    Temporal(Box<TemporalSpec>),
    Top(Box<TopSpec>),
    Window(Box<WindowSpec>),
    Recompute(Box<RecomputeSpec>),
}

/// A node of a view's plan; inputs come before it in the list.
#[derive(Debug, Clone)]
pub(crate) struct PlanNode {
    pub name: String,
    pub kind: NodeKind,
    pub inputs: Vec<usize>,
    pub schema: SchemaRef,
    pub append_only: bool,
    pub key: Option<Vec<usize>>,
    pub event_time: Vec<Option<EventTime>>,
    /// The whole definition in words, for people and for the fingerprint.
    pub detail: String,
}

impl PlanNode {
    /// Builds the operator, beside those of the view that were built before.
    pub(crate) fn build(&self, arrangements: &mut Arrangements) -> Result<BoxOperator> {
        let detail = self.detail.clone();
        let schema = self.schema.clone();
        Ok(match &self.kind {
            NodeKind::Input { .. } => Box::new(Stateless::new("input", detail, Pass { schema })),
            NodeKind::Filter { condition } => Box::new(Stateless::new(
                "filter",
                detail,
                Filter {
                    condition: condition.clone(),
                },
            )),
            NodeKind::Project { expressions } => Box::new(Stateless::new(
                "project",
                detail,
                Project {
                    expressions: expressions.clone(),
                    schema,
                },
            )),
            NodeKind::Unnest {
                lists,
                structs,
                null_handling,
            } => Box::new(Stateless::new(
                "unnest",
                detail,
                Unnest {
                    lists: lists.clone(),
                    structs: structs.clone(),
                    null_handling: *null_handling,
                    schema,
                },
            )),
            NodeKind::Union => Box::new(Stateless::new("union", detail, Pass { schema })),
            NodeKind::Distinct => Box::new(Distinct::new(&self.name, schema)?),
            NodeKind::Aggregate(request) => {
                Box::new(AggregateOperator::try_new(request.as_ref().clone())?)
            }
            NodeKind::Join(spec) => {
                Box::new(Join::new(&self.name, spec.as_ref().clone())?.sharing(arrangements))
            }
            NodeKind::NotIn(spec) => Box::new(NotIn::new(&self.name, spec.as_ref().clone())?),
            NodeKind::Session(spec) => Box::new(Session::new(&self.name, spec.as_ref().clone())?),
            NodeKind::SetOperation(kind) => Box::new(SetOperation::new(&self.name, *kind, schema)?),
            NodeKind::SingleRow => Box::new(SingleRow::new(&self.name, schema)?),
            NodeKind::Temporal(spec) => {
                Box::new(TemporalFilter::new(&self.name, spec.as_ref().clone())?)
            }
            NodeKind::Top(spec) => Box::new(Top::new(&self.name, spec.as_ref().clone())?),
            NodeKind::Window(spec) => Box::new(Window::new(&self.name, spec.as_ref().clone())?),
            NodeKind::Recompute(spec) => {
                Box::new(Recompute::new(&self.name, spec.as_ref().clone())?)
            }
        })
    }

    fn kind_name(&self) -> &'static str {
        self.kind.name()
    }
}

impl NodeKind {
    fn name(&self) -> &'static str {
        match self {
            Self::Input { .. } => "input",
            Self::Filter { .. } => "filter",
            Self::Project { .. } => "project",
            Self::Unnest { .. } => "unnest",
            Self::Union => "union",
            Self::Distinct => "distinct",
            Self::Aggregate(_) => "aggregate",
            Self::Join(_) => "join",
            Self::NotIn(_) => "not_in",
            Self::Session(_) => "session",
            Self::SetOperation(_) => "set_operation",
            Self::SingleRow => "single_row",
            Self::Temporal(_) => "temporal_filter",
            Self::Top(_) => "top",
            Self::Window(_) => "window",
            Self::Recompute(_) => "recompute",
        }
    }
}

/// A planned view.
#[derive(Debug, Clone)]
pub struct ViewPlan {
    /// Its name.
    pub name: String,
    /// What its state tables' names begin with.
    pub state_name: String,
    /// Its rows are kept to be read.
    pub stored: bool,
    /// Its columns, as the user named them.
    pub schema: SchemaRef,
    /// What it reads, a line per relation.
    pub inputs: Vec<InputSpec>,
    /// Rows are only ever added.
    pub append_only: bool,
    /// Columns of which no two rows have the same values; empty: there is at most one row.
    pub key: Option<Vec<usize>>,
    /// Hash over the definitions of all its operators (FNV-1a, 128 bit, in hexadecimal).
    pub fingerprint: String,
    /// Per column: how its values relate to the watermark.
    pub event_time: Vec<Option<EventTime>>,
    /// What rows that fail meet.
    pub on_row_error: OnRowError,
    pub(crate) nodes: Vec<PlanNode>,
    /// How its rows lie, where that does not follow from the plan.
    layout: Option<ViewLayout>,
    descriptions: Vec<OperatorDescription>,
}

impl ViewPlan {
    /// The operators, from the result down to the inputs.
    pub fn explain(&self) -> Vec<ExplainRow> {
        let mut rows = Vec::with_capacity(self.nodes.len());
        self.explain_from(self.root(), 0, &mut rows);
        rows
    }

    fn explain_from(&self, node: usize, depth: usize, rows: &mut Vec<ExplainRow>) {
        rows.push(ExplainRow {
            depth,
            operator_name: self.nodes[node].name.clone(),
            description: self.descriptions[node].clone(),
        });
        for input in &self.nodes[node].inputs {
            self.explain_from(*input, depth + 1, rows);
        }
    }

    /// The relation that an operator reads, if it is one that reads.
    pub fn relation_read_by(&self, operator: &str) -> Option<String> {
        let node = self.nodes.iter().find(|node| node.name == operator)?;
        match &node.kind {
            NodeKind::Input { relation, .. } => Some(relation.clone()),
            _ => None,
        }
    }

    /// A history must be taken in at once: rows are joined with others as they pass, and these must
    /// have come.
    pub fn takes_history_at_once(&self) -> bool {
        let passes = |node: &PlanNode| matches!(&node.kind, NodeKind::Join(spec) if spec.left_rows == LeftRows::Passing);
        self.nodes.iter().any(passes)
    }

    /// What the root emits in a batch holds no row twice, so that it need not be consolidated:
    /// its operator emits each row once, and nothing above it makes two rows equal.
    pub(crate) fn emits_consolidated(&self) -> bool {
        let mut node = &self.nodes[self.root()];
        loop {
            match &node.kind {
                NodeKind::Aggregate(_)
                | NodeKind::Distinct
                | NodeKind::Session(_)
                | NodeKind::SetOperation(_)
                | NodeKind::SingleRow
                | NodeKind::Top(_)
                | NodeKind::Window(_)
                | NodeKind::Recompute(_) => return true,
                NodeKind::Filter { .. } => {}
                NodeKind::Project { expressions } => {
                    let kept: BTreeSet<usize> = expressions.iter().filter_map(column).collect();
                    if kept.len() < self.nodes[node.inputs[0]].schema.fields().len() {
                        return false;
                    }
                }
                _ => return false,
            }
            node = &self.nodes[node.inputs[0]];
        }
    }

    /// Names relations and their columns as the sources do: `map` gets the name under which the
    /// plan scans a relation, puts other numbers for its columns, and returns the relation's name.
    pub(crate) fn map_inputs(&mut self, map: impl Fn(&str, &mut Vec<usize>) -> String) {
        for (node, description) in self.nodes.iter_mut().zip(&mut self.descriptions) {
            if let NodeKind::Input {
                relation,
                projection,
            } = &mut node.kind
            {
                *relation = map(relation, projection);
                node.detail.clone_from(relation);
                description.detail.clone_from(relation);
            }
        }
        self.inputs = inputs_of(&self.nodes);
    }

    /// The rows lie ordered by `columns`, and after these by their own key if they have one: the plan
    /// is an index.
    pub(crate) fn order_by(&mut self, columns: Vec<KeyColumn>) {
        let width = self.schema.fields().len();
        let layout = ViewLayout::index(columns, self.key.as_deref(), width);
        self.layout = Some(layout);
    }

    /// Where the view's rows are to be found once a batch is applied.
    pub fn contents(&self) -> Result<ViewContents> {
        let stored = || ViewLayout::choose(self.append_only, self.key.as_deref());
        if let Some(layout) = &self.layout {
            return Ok(ViewContents::Stored(layout.clone()));
        }
        Ok(self
            .operator_contents()?
            .unwrap_or_else(|| ViewContents::Stored(stored())))
    }

    /// The view's rows in the state of an operator, if it only names and orders its results.
    fn operator_contents(&self) -> Result<Option<ViewContents>> {
        let mut columns: Vec<usize> = (0..self.schema.fields().len()).collect();
        // Of the columns, those that are a whole number under another type.
        let mut casts: Vec<bool> = vec![false; columns.len()];
        let mut node = &self.nodes[self.root()];
        loop {
            match &node.kind {
                NodeKind::Project { expressions } => {
                    for (column_of, is_cast) in columns.iter_mut().zip(&mut casts) {
                        let expression = &expressions[*column_of];
                        let number = cast_to_bigint(expression);
                        *is_cast |= number.is_some();
                        let Some(source) = column(number.unwrap_or(expression)) else {
                            return Ok(None);
                        };
                        *column_of = source;
                    }
                }
                // A cast of anything but a row's number may fail.
                NodeKind::Aggregate(_) if casts.contains(&true) => return Ok(None),
                NodeKind::Top(spec)
                    if casts
                        .iter()
                        .zip(&columns)
                        .any(|(cast, column)| *cast && !spec.is_number(*column)) =>
                {
                    return Ok(None);
                }
                NodeKind::Aggregate(request) => {
                    let (schema, policy) = (self.schema.clone(), self.on_row_error);
                    let groups = GroupContents::of(request, schema, columns, policy)?;
                    return Ok(groups.map(|groups| ViewContents::Groups(Arc::new(groups))));
                }
                NodeKind::Top(spec) => {
                    let heads = HeadContents::of(&node.name, spec, self.schema.clone(), columns)?;
                    return Ok(heads.map(|heads| ViewContents::Heads(Arc::new(heads))));
                }
                _ => return Ok(None),
            }
            node = &self.nodes[node.inputs[0]];
        }
    }

    /// Index of the aggregate or top-N operator of which projections alone make the view's rows.
    /// Other ones of the view feed it.
    pub(crate) fn outermost_groups(&self) -> Option<usize> {
        let mut index = self.root();
        loop {
            match &self.nodes[index].kind {
                NodeKind::Project { .. } => index = self.nodes[index].inputs[0],
                NodeKind::Aggregate(_) | NodeKind::Top(_) => return Some(index),
                _ => return None,
            }
        }
    }

    /// Index of the node that gives the view's rows.
    pub(crate) fn root(&self) -> usize {
        self.nodes.len() - 1
    }
}

/// Plans a view. Errors: 0A000 for what no view can hold (volatile functions), 42P17 for
/// `EMIT ON WINDOW CLOSE` without an event-time window, 42P01 for a relation that cannot be read.
pub fn plan_view(request: &ViewRequest) -> Result<ViewPlan> {
    let context = |error: Error| error.context(format!("materialized view \"{}\"", request.name));
    let optimized = optimize::optimize(request.plan, request.state).map_err(context)?;
    let (mut nodes, emits_on_close) = translate::translate(request, &optimized).map_err(context)?;
    arranged::share_sides(&mut nodes);
    if request.emit == EmitMode::OnWindowClose && !emits_on_close {
        return Err(context(no_window_to_close()));
    }
    let mut arrangements = Arrangements::default();
    let descriptions = nodes
        .iter()
        .map(|node| Ok(node.build(&mut arrangements)?.describe()))
        .collect::<Result<Vec<_>>>()
        .map_err(context)?;
    let root = nodes.last().expect("a plan has a node");
    Ok(ViewPlan {
        name: request.name.to_owned(),
        state_name: request.state_name.to_owned(),
        stored: request.stored,
        schema: relaxed(request.on_row_error, view_schema(request.plan)),
        inputs: inputs_of(&nodes),
        append_only: root.append_only,
        key: root.key.clone(),
        fingerprint: fingerprint(&nodes)?,
        event_time: root.event_time.clone(),
        on_row_error: request.on_row_error,
        descriptions,
        nodes,
        layout: None,
    })
}

fn no_window_to_close() -> Error {
    Error::new(
        sqlstate::INVALID_OBJECT_DEFINITION,
        "EMIT ON WINDOW CLOSE needs a GROUP BY over a window of event time",
    )
    .detail(
        "The outermost aggregation does not group by a window, or the stream that it reads has no watermark.",
    )
    .hint(
        "Group by window_start of TUMBLE(stream, column, INTERVAL '…') over a stream that was created with WATERMARK FOR column AS column - INTERVAL '…', or use EMIT ON UPDATE.",
    )
}

/// The user's columns: the plan's names without qualifiers, text as plain text.
fn view_schema(plan: &LogicalPlan) -> SchemaRef {
    let fields = plan.schema().fields().iter().map(|field| {
        let data_type = match field.data_type() {
            DataType::Utf8View => DataType::Utf8,
            DataType::BinaryView => DataType::Binary,
            other => other.clone(),
        };
        Field::new(field.name(), data_type, field.is_nullable())
            .with_metadata(field.metadata().clone())
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The schema that rows have under a policy: values that cannot be computed are NULL under `null`.
fn relaxed(policy: OnRowError, schema: SchemaRef) -> SchemaRef {
    match policy {
        OnRowError::Null => all_nullable(&schema),
        OnRowError::Fail | OnRowError::Skip => schema,
    }
}

/// The columns read of each relation, by relation; at least one column of each, since few
/// sources can count rows without reading any.
fn inputs_of(nodes: &[PlanNode]) -> Vec<InputSpec> {
    let mut columns: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for node in nodes {
        if let NodeKind::Input {
            relation,
            projection,
        } = &node.kind
        {
            columns.entry(relation).or_default().extend(projection);
        }
    }
    columns
        .into_iter()
        .map(|(relation, mut projection)| {
            if projection.is_empty() {
                projection.insert(0);
            }
            InputSpec {
                relation: relation.to_owned(),
                projection: projection.into_iter().collect(),
            }
        })
        .collect()
}

/// What an expression casts to bigint, if it does no more.
fn cast_to_bigint(expression: &Arc<dyn PhysicalExpr>) -> Option<&Arc<dyn PhysicalExpr>> {
    let cast = expression.downcast_ref::<CastExpr>()?;
    (*cast.cast_type() == DataType::Int64).then(|| cast.expr())
}

/// The input column that an expression is.
fn column(expression: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    let column = expression.downcast_ref::<Column>();
    column.map(Column::index)
}

fn fingerprint(nodes: &[PlanNode]) -> Result<String> {
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    let mut add = |text: &str| {
        for byte in text.bytes().chain([0]) {
            hash ^= u128::from(byte);
            hash = hash.wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    };
    for node in nodes {
        add(&node.name);
        add(node.kind_name());
        add(&node.detail);
        add(&format!("{:?}", node.inputs));
        for field in node.schema.fields() {
            add(&format!("{} {}", field.name(), field.data_type()));
        }
        match &node.kind {
            NodeKind::Input { projection, .. } => add(&format!("{projection:?}")),
            NodeKind::Aggregate(request) => {
                add(&format!("{:?} {:?}", request.event_time, request.emit));
                add(&request.state_form()?);
            }
            NodeKind::Join(spec) => {
                add(&format!("{:?} {:?}", spec.times, spec.side_rows));
                for arranged in spec.arranged.iter().flatten() {
                    add(&arranged.name);
                }
            }
            NodeKind::Window(spec) => add(&format!(
                "{:?} {:?}",
                spec.rows.event_time, spec.rows.order_closes_after
            )),
            NodeKind::Top(spec) => add(&format!("{:?}", spec.heads_form())),
            NodeKind::Recompute(spec) => {
                add(&spec.logical.display_indent_schema().to_string());
            }
            _ => {}
        }
    }
    Ok(format!("{hash:032x}"))
}
