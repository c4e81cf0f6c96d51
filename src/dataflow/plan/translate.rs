//! Translation: a node of the optimized plan becomes an operator.
//!
//! The nodes of aggregation, join, order and recompute have files of their own beside this one.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source_as_provider;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{
    self as logical, Distinct, Expr, LogicalPlan, TableScan, utils::conjunction,
};
use datafusion::physical_expr::PhysicalExpr;

use super::event_time::{self, EventTime};
use super::join::without_mark;
use super::nodes::{SetOperationNode, SingleRowNode, TemporalFilterNode};
use super::ordered::beside_window;
use super::prepare::calls;
use super::{NodeKind, PlanNode, ViewRequest, optimize};
use crate::dataflow::join::LeftRows;
use crate::dataflow::set_operation::SetOperationKind;
use crate::dataflow::temporal::TemporalSpec;
use crate::error::{Error, Result, sqlstate};
use crate::sql::guards::guarded;
use crate::sql::temporal_join;

/// What is known of a node besides its kind.
#[derive(Default)]
pub(super) struct Properties {
    pub append_only: bool,
    pub key: Option<Vec<usize>>,
    pub event_time: Vec<Option<EventTime>>,
}

/// Where a node lies: only the outermost aggregation emits when its window closes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Outermost,
    Below,
}

pub(super) struct Translator<'a> {
    pub request: &'a ViewRequest<'a>,
    /// Made when the first node is recomputed.
    recompute_state: Option<Arc<SessionState>>,
    pub nodes: Vec<PlanNode>,
    pub emits_on_close: bool,
    counts: BTreeMap<&'static str, usize>,
    /// Nodes of the plans translated so far: what a query names twice is kept up to date once.
    known: HashMap<(LogicalPlan, Place, Vec<String>), usize>,
}

/// The nodes of a plan, inputs first, and whether results are emitted at window close.
pub(super) fn translate(
    request: &ViewRequest,
    plan: &LogicalPlan,
) -> Result<(Vec<PlanNode>, bool)> {
    let mut translator = Translator {
        request,
        recompute_state: None,
        nodes: Vec::new(),
        emits_on_close: false,
        counts: BTreeMap::new(),
        known: HashMap::new(),
    };
    let root = translator.node(plan, Place::Outermost)?;
    assert_eq!(root + 1, translator.nodes.len(), "the root comes last");
    require_passing_joins(plan, &translator.nodes)?;
    Ok((translator.nodes, translator.emits_on_close))
}

/// A mark of `FOR SYSTEM_TIME AS OF` that no join has kept must not go without a word. With what
/// the optimizer found to give no rows, its marks are gone.
fn require_passing_joins(plan: &LogicalPlan, nodes: &[PlanNode]) -> Result<()> {
    let mut is_marked = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            is_marked |= calls(expression, &[temporal_join::MARK])?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    let passes = |node: &PlanNode| matches!(&node.kind, NodeKind::Join(spec) if spec.left_rows == LeftRows::Passing);
    if !is_marked || nodes.iter().any(passes) {
        return Ok(());
    }
    Err(Error::unsupported(
        "FOR SYSTEM_TIME AS OF is not supported in this place of a materialized view",
    )
    .hint("Join the stream with the table first, in a subquery or WITH."))
}

impl Translator<'_> {
    /// Translates a plan; the index of the node that gives its rows. A plan that was translated
    /// before gives the same node again.
    pub(super) fn node(&mut self, plan: &LogicalPlan, place: Place) -> Result<usize> {
        // Plans that differ in the arguments of these only are equal.
        let key = (plan.clone(), place, calls_in_from(plan)?);
        if let Some(node) = self.known.get(&key) {
            return Ok(*node);
        }
        let node = self.new_node(plan, place)?;
        self.known.insert(key, node);
        Ok(node)
    }

    fn new_node(&mut self, plan: &LogicalPlan, place: Place) -> Result<usize> {
        if holds_subquery(plan)? {
            return self.recompute_node(plan);
        }
        match plan {
            LogicalPlan::TableScan(scan) if is_function(scan) => self.recompute_leaf(plan),
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::Filter(filter) => {
                if let Some(moved) = beside_window(filter)? {
                    return self.node(&moved, place);
                }
                if let Some(node) = self.first_of_partitions(filter)? {
                    return Ok(node);
                }
                let input = self.node(&filter.input, place)?;
                // Rules infer the mark of a join for its sides; it says nothing of their rows.
                match without_mark(filter.predicate.clone())? {
                    None => Ok(input),
                    Some(predicate) => self.filter(input, &predicate, filter.input.schema()),
                }
            }
            LogicalPlan::Projection(projection) => self.projection(projection, place),
            LogicalPlan::SubqueryAlias(alias) => self.node(&alias.input, place),
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => self.node(&sort.input, place),
            LogicalPlan::Repartition(repartition) => self.node(&repartition.input, place),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let input = self.node(input, Place::Below)?;
                Ok(self.distinct(input, plan.schema()))
            }
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate, place),
            LogicalPlan::Unnest(unnest) => self.unnest(plan, unnest),
            LogicalPlan::Join(join) => self.join(plan, join),
            LogicalPlan::Window(window) => self.window(window),
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) => self.recompute_leaf(plan),
            LogicalPlan::RecursiveQuery(_) => self.recompute_subtree(plan),
            LogicalPlan::Sort(_) | LogicalPlan::Distinct(_) => self.recompute_node(plan),
            LogicalPlan::Extension(extension) => match self.own_node(extension, place)? {
                Some(node) => Ok(node),
                None => self.recompute_subtree(plan),
            },
            LogicalPlan::Subquery(_) => self.recompute_subtree(plan),
            _ => Err(Error::new(
                sqlstate::INVALID_OBJECT_DEFINITION,
                "a materialized view must be a query",
            )),
        }
    }

    /// A node of ours; `None` for another's.
    fn own_node(&mut self, extension: &logical::Extension, place: Place) -> Result<Option<usize>> {
        let node: &dyn Any = extension.node.as_any();
        if let Some(operation) = node.downcast_ref::<SetOperationNode>() {
            let left = self.node(&operation.left, Place::Below)?;
            let right = self.node(&operation.right, Place::Below)?;
            let schema = operation.left.schema();
            let distinct = matches!(
                operation.kind,
                SetOperationKind::Except | SetOperationKind::Intersect
            );
            let properties = Properties {
                append_only: false,
                key: match distinct {
                    true => Some((0..schema.fields().len()).collect()),
                    false => self.nodes[left].key.clone(),
                },
                // A row comes back when an equal one on the other side goes, which follows the
                // watermark if both sides do.
                event_time: self.nodes[left]
                    .event_time
                    .iter()
                    .zip(&self.nodes[right].event_time)
                    .map(|(one, other)| one.filter(|_| one == other))
                    .collect(),
            };
            let detail = operation.kind.words().to_owned();
            let kind = NodeKind::SetOperation(operation.kind);
            return Ok(Some(self.add(
                kind,
                vec![left, right],
                schema,
                detail,
                properties,
            )));
        }
        if let Some(single) = node.downcast_ref::<SingleRowNode>() {
            let input = self.node(&single.input, Place::Below)?;
            let properties = Properties {
                key: Some(Vec::new()),
                ..Properties::default()
            };
            let kind = NodeKind::SingleRow;
            return Ok(Some(self.add(
                kind,
                vec![input],
                &single.schema,
                String::new(),
                properties,
            )));
        }
        if let Some(filter) = node.downcast_ref::<TemporalFilterNode>() {
            return self.temporal_filter(filter, place).map(Some);
        }
        Ok(None)
    }

    fn temporal_filter(&mut self, filter: &TemporalFilterNode, place: Place) -> Result<usize> {
        let input = self.node(&filter.input, place)?;
        let schema = filter.input.schema();
        let bounds = filter
            .bounds
            .iter()
            .map(|(bound, time)| Ok((*bound, self.expression(time, schema)?)))
            .collect::<Result<Vec<_>>>()?;
        let below = &self.nodes[input];
        let properties = Properties {
            append_only: below.append_only
                && filter.bounds.iter().all(|(bound, _)| bound.only_lets_in()),
            key: below.key.clone(),
            // Rows come and go by the clock, wherever the watermark stands.
            event_time: Vec::new(),
        };
        let spec = TemporalSpec {
            detail: filter.detail.clone(),
            bounds,
            schema: below.schema.clone(),
        };
        let kind = NodeKind::Temporal(Box::new(spec));
        Ok(self.add(kind, vec![input], schema, filter.detail.clone(), properties))
    }

    /// Adds a node under a name made of its kind and its place among those of its kind.
    pub(super) fn add(
        &mut self,
        kind: NodeKind,
        inputs: Vec<usize>,
        schema: &DFSchema,
        detail: String,
        properties: Properties,
    ) -> usize {
        let kind_name = kind.name();
        let name = self.next_name(kind_name);
        self.add_named(name, kind, inputs, schema, detail, properties)
    }

    /// The stable name that the next operator of a kind gets.
    pub(super) fn next_name(&mut self, kind_name: &'static str) -> String {
        let count = self.counts.entry(kind_name).or_default();
        let name = format!("{}/{kind_name}_{count}", self.request.state_name);
        *count += 1;
        name
    }

    /// As [`Self::add`], for a node that had to know its name before.
    pub(super) fn add_named(
        &mut self,
        name: String,
        kind: NodeKind,
        inputs: Vec<usize>,
        schema: &DFSchema,
        detail: String,
        properties: Properties,
    ) -> usize {
        let columns = schema.fields().len();
        let mut event_time = properties.event_time;
        event_time.resize(columns, None);
        for (time, field) in event_time.iter_mut().zip(schema.fields()) {
            let followed = event_time::is_followed(field.data_type());
            if time.is_some_and(|time| !time.list) && !followed {
                *time = None;
            }
        }
        self.nodes.push(PlanNode {
            name,
            kind,
            inputs,
            schema: self.relaxed(schema.inner()),
            append_only: properties.append_only,
            key: properties.key,
            event_time,
            detail,
        });
        self.nodes.len() - 1
    }

    /// The schema that rows have; see [`ViewRequest::on_row_error`].
    pub(super) fn relaxed(&self, schema: &SchemaRef) -> SchemaRef {
        super::relaxed(self.request.on_row_error, Arc::clone(schema))
    }

    /// The state under which recomputed plans are made.
    pub(super) fn recompute_state(&mut self) -> Arc<SessionState> {
        let state = self.request.state;
        self.recompute_state
            .get_or_insert_with(|| optimize::recompute_state(state))
            .clone()
    }

    pub(super) fn expression(
        &self,
        expression: &Expr,
        schema: &DFSchema,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let state = self.request.state;
        Ok(guarded(state.create_physical_expr(expression.clone(), schema)?)?.data)
    }

    fn scan(&mut self, scan: &TableScan) -> Result<usize> {
        let relation = scan.table_name.table();
        let input = (self.request.inputs)(relation).ok_or_else(|| {
            Error::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("\"{relation}\" cannot be read by a materialized view"),
            )
            .hint("A materialized view reads streams, tables and materialized views.")
        })?;
        if scan.fetch.is_some() {
            return Err(Error::internal("a scan with a limit reached the planner"));
        }
        let wanted: Vec<usize> = match &scan.projection {
            Some(projection) => projection.clone(),
            None => (0..input.schema.fields().len()).collect(),
        };
        let full =
            DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?;
        let mut columns: BTreeSet<usize> = wanted.iter().copied().collect();
        for filter in &scan.filters {
            for column in filter.column_refs() {
                columns.extend(full.maybe_index_of_column(column));
            }
        }
        let columns: Vec<usize> = columns.into_iter().collect();
        let schema = DFSchema::try_from_qualified_schema(
            scan.table_name.clone(),
            &scan.source.schema().project(&columns)?,
        )?;
        let place = |column: usize| columns.binary_search(&column).ok();
        let event_time = columns
            .iter()
            .map(|column| {
                if input.watermark_column == Some(*column) {
                    Some(EventTime::RAW)
                } else {
                    input.event_time.get(*column).copied().flatten()
                }
            })
            .collect();
        let mut node = self.add(
            NodeKind::Input {
                relation: relation.to_owned(),
                projection: columns.clone(),
            },
            Vec::new(),
            &schema,
            relation.to_owned(),
            Properties {
                append_only: input.append_only,
                key: input
                    .primary_key
                    .and_then(|key| key.into_iter().map(place).collect()),
                event_time,
            },
        );
        if let Some(condition) = conjunction(scan.filters.iter().cloned()) {
            node = self.filter(node, &condition, &schema)?;
        }
        if wanted != columns {
            let columns: Vec<Expr> = wanted
                .iter()
                .map(|column| {
                    let column = place(*column).expect("a wanted column is read");
                    Expr::Column(schema.columns()[column].clone())
                })
                .collect();
            node = self.project(node, &columns, &schema, &scan.projected_schema)?;
        }
        Ok(node)
    }

    pub(super) fn filter(
        &mut self,
        input: usize,
        predicate: &Expr,
        schema: &DFSchema,
    ) -> Result<usize> {
        let condition = self.expression(predicate, schema)?;
        let below = &self.nodes[input];
        let properties = Properties {
            append_only: below.append_only,
            key: below.key.clone(),
            event_time: below.event_time.clone(),
        };
        Ok(self.add(
            NodeKind::Filter { condition },
            vec![input],
            schema,
            predicate.to_string(),
            properties,
        ))
    }

    fn projection(&mut self, projection: &logical::Projection, place: Place) -> Result<usize> {
        let input = self.node(&projection.input, place)?;
        self.project(
            input,
            &projection.expr,
            projection.input.schema(),
            &projection.schema,
        )
    }

    /// Adds a projection of `expressions` over the node `input`, whose plan has `input_schema`.
    pub(super) fn project(
        &mut self,
        input: usize,
        expressions: &[Expr],
        input_schema: &DFSchema,
        schema: &DFSchema,
    ) -> Result<usize> {
        let physical = expressions
            .iter()
            .map(|expression| self.expression(expression, input_schema))
            .collect::<Result<Vec<_>>>()?;
        let below = &self.nodes[input];
        let properties = Properties {
            append_only: below.append_only,
            key: below.key.as_ref().and_then(|key| {
                key.iter()
                    .map(|column| {
                        expressions
                            .iter()
                            .position(|e| column_index(e, input_schema) == Some(*column))
                    })
                    .collect()
            }),
            event_time: expressions
                .iter()
                .map(|e| event_time::of_expression(e, input_schema, &below.event_time))
                .collect(),
        };
        let detail = list(expressions);
        Ok(self.add(
            NodeKind::Project {
                expressions: physical,
            },
            vec![input],
            schema,
            detail,
            properties,
        ))
    }

    fn union(&mut self, union: &logical::Union) -> Result<usize> {
        let inputs = union
            .inputs
            .iter()
            .map(|input| self.node(input, Place::Below))
            .collect::<Result<Vec<_>>>()?;
        Ok(self.union_of(inputs, &union.schema))
    }

    /// All rows of some nodes, under one schema.
    pub(super) fn union_of(&mut self, inputs: Vec<usize>, schema: &DFSchema) -> usize {
        let arms: Vec<&PlanNode> = inputs.iter().map(|input| &self.nodes[*input]).collect();
        let event_time = (0..schema.fields().len())
            .map(|column| {
                let first = arms.first()?.event_time[column];
                arms.iter()
                    .all(|arm| arm.event_time[column] == first)
                    .then_some(first)
                    .flatten()
            })
            .collect();
        let properties = Properties {
            append_only: arms.iter().all(|arm| arm.append_only),
            key: None,
            event_time,
        };
        let detail = format!("{} inputs", arms.len());
        self.add(NodeKind::Union, inputs, schema, detail, properties)
    }

    /// Adds DISTINCT over a node whose rows have this schema.
    pub(super) fn distinct(&mut self, input: usize, schema: &DFSchema) -> usize {
        let below = &self.nodes[input];
        let properties = Properties {
            append_only: below.append_only,
            key: Some((0..schema.fields().len()).collect()),
            event_time: below.event_time.clone(),
        };
        self.add(
            NodeKind::Distinct,
            vec![input],
            schema,
            String::new(),
            properties,
        )
    }

    fn unnest(&mut self, plan: &LogicalPlan, unnest: &logical::Unnest) -> Result<usize> {
        let lists: Vec<usize> = unnest.list_type_columns.iter().map(|(i, _)| *i).collect();
        let unique: BTreeSet<usize> = lists.iter().copied().collect();
        let flat = unnest.list_type_columns.iter().all(|(_, c)| c.depth == 1);
        if !flat || unique.len() != lists.len() {
            return self.recompute_node(plan);
        }
        let input = self.node(&unnest.input, Place::Below)?;
        let below = &self.nodes[input];
        let event_time = unnest
            .dependency_indices
            .iter()
            .map(|index| {
                let time = below.event_time[*index]?;
                let list = lists.contains(index);
                (time.list == list).then_some(EventTime {
                    list: false,
                    ..time
                })
            })
            .collect();
        let properties = Properties {
            append_only: below.append_only,
            key: None,
            event_time,
        };
        let kind = NodeKind::Unnest {
            lists,
            structs: unnest.struct_type_columns.clone(),
            null_handling: unnest.options.null_handling,
        };
        let detail = unnest.exec_columns.iter().map(|column| column.name());
        let detail = detail.collect::<Vec<_>>().join(", ");
        Ok(self.add(kind, vec![input], &unnest.schema, detail, properties))
    }
}

/// The input column that an expression passes through unchanged.
pub(super) fn column_index(expression: &Expr, schema: &DFSchema) -> Option<usize> {
    match expression {
        Expr::Column(column) => schema.maybe_index_of_column(column),
        Expr::Alias(alias) => column_index(&alias.expr, schema),
        _ => None,
    }
}

/// Expressions in words, separated by commas.
pub(super) fn list(expressions: &[Expr]) -> String {
    let words: Vec<String> = expressions.iter().map(ToString::to_string).collect();
    words.join(", ")
}

/// A table function's result is scanned under a name that no relation can have, or under the
/// function's own; it is constant.
fn is_function(scan: &TableScan) -> bool {
    scan.table_name.table().ends_with("()")
}

/// A table function's call in words, or what is scanned by its name.
pub(super) fn scanned(scan: &TableScan) -> String {
    let provider = source_as_provider(&scan.source).ok();
    let definition = provider
        .as_ref()
        .filter(|_| is_function(scan))
        .and_then(|provider| provider.get_table_definition());
    definition.map_or_else(|| scan.table_name.table().to_owned(), str::to_owned)
}

/// The calls of table functions in a plan, in words.
fn calls_in_from(plan: &LogicalPlan) -> Result<Vec<String>> {
    let mut calls = Vec::new();
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node
            && is_function(scan)
        {
            calls.push(scanned(scan));
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(calls)
}

/// An expression of the node itself holds a subquery that the optimizer could not turn into a
/// join.
pub(super) fn holds_subquery(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_expressions(|expression| {
        expression.apply(|part| {
            found |= matches!(
                part,
                Expr::ScalarSubquery(_)
                    | Expr::InSubquery(_)
                    | Expr::Exists(_)
                    | Expr::SetComparison(_)
            );
            Ok(if found {
                TreeNodeRecursion::Stop
            } else {
                TreeNodeRecursion::Continue
            })
        })
    })?;
    Ok(found)
}
