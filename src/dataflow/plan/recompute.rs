//! Translation of what has no incremental operator: a node over ports, or a whole subtree.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DFSchemaRef};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{
    Expr, Extension, Limit, LogicalPlan, Projection, Sort, SortExpr, Subquery, SubqueryAlias,
    Window,
};

use super::NodeKind;
use super::translate::{Place, Properties, Translator, list};
use crate::dataflow::recompute::port::PortScan;
use crate::dataflow::recompute::{Partition, RecomputeSpec};
use crate::dataflow::row_errors::OnRowError;
use crate::error::{Error, Result};

/// The ports that a recomputed plan has got so far.
struct Ports {
    nodes: Vec<usize>,
    on_row_error: OnRowError,
}

impl Ports {
    /// A leaf that stands for `plan`, whose rows the node `node` gives.
    fn leaf(&mut self, node: usize, plan: &LogicalPlan) -> LogicalPlan {
        self.nodes.push(node);
        LogicalPlan::Extension(Extension {
            node: Arc::new(PortScan {
                port: self.nodes.len() - 1,
                schema: self.relaxed(plan.schema()),
            }),
        })
    }

    /// See [`super::ViewRequest::on_row_error`].
    fn relaxed(&self, schema: &DFSchemaRef) -> DFSchemaRef {
        if self.on_row_error != OnRowError::Null {
            return Arc::clone(schema);
        }
        let fields = schema.iter().map(|(qualifier, field)| {
            let field = field.as_ref().clone().with_nullable(true);
            (qualifier.cloned(), Arc::new(field))
        });
        let fields = fields.collect::<Vec<_>>();
        let relaxed = DFSchema::new_with_metadata(fields, schema.metadata().clone());
        Arc::new(relaxed.expect("the same names as before are as unique"))
    }
}

impl Translator<'_> {
    /// A node over ports: its children, and the subqueries of its expressions, are planned by
    /// themselves and their rows kept.
    pub(super) fn recompute_node(&mut self, plan: &LogicalPlan) -> Result<usize> {
        let mut ports = self.no_ports();
        let over_ports = self.over_ports(plan, &mut ports)?;
        self.add_recompute(plan, over_ports, ports, None, Properties::default())
    }

    fn no_ports(&self) -> Ports {
        Ports {
            nodes: Vec::new(),
            on_row_error: self.request.on_row_error,
        }
    }

    /// A plan that reads nothing: its rows come once.
    pub(super) fn recompute_leaf(&mut self, plan: &LogicalPlan) -> Result<usize> {
        let constant = Properties {
            append_only: true,
            ..Properties::default()
        };
        self.add_recompute(plan, plan.clone(), self.no_ports(), None, constant)
    }

    /// A subtree whose nodes belong together: its scans become ports. The scans of a recursive
    /// query's own name stay, they read the rows of its last step.
    pub(super) fn recompute_subtree(&mut self, plan: &LogicalPlan) -> Result<usize> {
        let mut own_names = Vec::new();
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::RecursiveQuery(query) = node {
                own_names.push(query.name.clone());
            }
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        })?;
        let mut ports = self.no_ports();
        let over_ports = plan
            .clone()
            .transform_down_with_subqueries(|node| match &node {
                LogicalPlan::TableScan(scan)
                    if !own_names.iter().any(|name| name == scan.table_name.table()) =>
                {
                    let input = self.node(&node, Place::Below).map_err(external)?;
                    Ok(Transformed::yes(ports.leaf(input, &node)))
                }
                _ => Ok(Transformed::no(node)),
            })
            .map_err(internal)?
            .data;
        self.add_recompute(plan, over_ports, ports, None, Properties::default())
    }

    /// A window: only the partitions that a change touches, when all functions have a common part
    /// of their PARTITION BY.
    pub(super) fn window(&mut self, plan: &LogicalPlan, window: &Window) -> Result<usize> {
        let mut ports = self.no_ports();
        let over_ports = self.over_ports(plan, &mut ports)?;
        let keys = common_partition(&window.window_expr);
        let partition = if keys.is_empty() {
            None
        } else {
            let keys = keys
                .iter()
                .map(|key| self.expression(key, window.input.schema()))
                .collect::<Result<Vec<_>>>()?;
            // The input's columns come first in the output, so the same expressions give the
            // partition of a row of either.
            Some(Partition {
                input: keys.clone(),
                output: keys,
            })
        };
        let below = &self.nodes[ports.nodes[0]];
        let properties = Properties {
            append_only: false,
            key: below.key.clone(),
            event_time: below.event_time.clone(),
        };
        self.add_recompute(plan, over_ports, ports, partition, properties)
    }

    /// LIMIT with the ORDER BY below it, made total by all columns, so that the same rows remain
    /// whatever order they came in.
    pub(super) fn limit(&mut self, limit: &Limit) -> Result<usize> {
        let mut ports = self.no_ports();
        let ordered = match self.ordered(&limit.input, &mut ports)? {
            Some(ordered) => ordered,
            None => {
                let input = self.node(&limit.input, Place::Below)?;
                total_order(Vec::new(), ports.leaf(input, &limit.input))
            }
        };
        let plan = LogicalPlan::Limit(Limit {
            skip: limit.skip.clone(),
            fetch: limit.fetch.clone(),
            input: Arc::new(ordered),
        });
        let original = LogicalPlan::Limit(limit.clone());
        self.add_recompute(&original, plan, ports, None, Properties::default())
    }

    /// The plan down to its ORDER BY, whose input becomes a port; `None` when it is not ordered.
    fn ordered(&mut self, plan: &LogicalPlan, ports: &mut Ports) -> Result<Option<LogicalPlan>> {
        Ok(match plan {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                let input = self.node(&sort.input, Place::Below)?;
                let leaf = ports.leaf(input, &sort.input);
                Some(total_order(sort.expr.clone(), leaf))
            }
            LogicalPlan::Projection(projection) if !super::translate::holds_subquery(plan)? => {
                match self.ordered(&projection.input, ports)? {
                    Some(input) => Some(LogicalPlan::Projection(Projection::try_new_with_schema(
                        projection.expr.clone(),
                        Arc::new(input),
                        projection.schema.clone(),
                    )?)),
                    None => None,
                }
            }
            LogicalPlan::SubqueryAlias(alias) => match self.ordered(&alias.input, ports)? {
                Some(input) => Some(LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(
                    Arc::new(input),
                    alias.alias.clone(),
                )?)),
                None => None,
            },
            _ => None,
        })
    }

    fn over_ports(&mut self, plan: &LogicalPlan, ports: &mut Ports) -> Result<LogicalPlan> {
        let mut leaves = Vec::new();
        for child in plan.inputs() {
            let input = self.node(child, Place::Below)?;
            leaves.push(ports.leaf(input, child));
        }
        let over_ports = plan.with_new_exprs(plan.expressions(), leaves)?;
        let over_ports = over_ports.map_subqueries(|subquery| {
            let LogicalPlan::Subquery(subquery) = subquery else {
                return Ok(Transformed::no(subquery));
            };
            if !subquery.outer_ref_columns.is_empty() {
                return Err(external(
                    Error::unsupported(
                        "this correlated subquery cannot be used in a materialized view",
                    )
                    .hint("Write it as a join."),
                ));
            }
            let input = self
                .node(&subquery.subquery, Place::Below)
                .map_err(external)?;
            let leaf = ports.leaf(input, &subquery.subquery);
            Ok(Transformed::yes(LogicalPlan::Subquery(Subquery {
                subquery: Arc::new(leaf),
                ..subquery
            })))
        });
        Ok(over_ports.map_err(internal)?.data)
    }

    fn add_recompute(
        &mut self,
        original: &LogicalPlan,
        over_ports: LogicalPlan,
        ports: Ports,
        partition: Option<Partition>,
        properties: Properties,
    ) -> Result<usize> {
        let replan =
            over_ports.exists(|node| Ok(matches!(node, LogicalPlan::RecursiveQuery(_))))?;
        let detail = words(original);
        let spec = RecomputeSpec {
            detail: detail.clone(),
            logical: over_ports,
            ports: ports
                .nodes
                .iter()
                .map(|node| self.nodes[*node].schema.clone())
                .collect(),
            partition,
            schema: self.relaxed(original.schema().inner()),
            state: self.recompute_state(),
            replan,
        };
        let kind = NodeKind::Recompute(Box::new(spec));
        Ok(self.add(kind, ports.nodes, original.schema(), detail, properties))
    }
}

/// A node in SQL words.
fn words(plan: &LogicalPlan) -> String {
    match plan {
        LogicalPlan::Window(window) => list(&window.window_expr),
        LogicalPlan::Limit(limit) => {
            let part = |word: &str, value: &Option<Box<Expr>>| {
                value.as_ref().map(|value| format!("{word} {value}"))
            };
            let parts = [part("limit", &limit.fetch), part("offset", &limit.skip)];
            parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
        }
        LogicalPlan::Values(values) => format!("{} constant rows", values.values.len()),
        LogicalPlan::EmptyRelation(_) => "constant row".to_owned(),
        LogicalPlan::TableScan(scan) => scan.table_name.table().to_owned(),
        LogicalPlan::RecursiveQuery(query) => format!("recursive query {}", query.name),
        LogicalPlan::Filter(filter) => format!("filter {}", filter.predicate),
        LogicalPlan::Projection(projection) => list(&projection.expr),
        LogicalPlan::Aggregate(aggregate) => format!(
            "group by ({}) compute ({})",
            list(&aggregate.group_expr),
            list(&aggregate.aggr_expr)
        ),
        other => other.display().to_string(),
    }
}

/// Sorts by `first`, then by every column.
fn total_order(first: Vec<SortExpr>, input: LogicalPlan) -> LogicalPlan {
    let mut order = first;
    for column in input.schema().columns() {
        let column = Expr::Column(column);
        if !order.iter().any(|sort| sort.expr == column) {
            order.push(SortExpr::new(column, true, false));
        }
    }
    LogicalPlan::Sort(Sort {
        expr: order,
        input: Arc::new(input),
        fetch: None,
    })
}

/// PARTITION BY expressions that all the window functions have.
fn common_partition(functions: &[Expr]) -> Vec<Expr> {
    let mut common: Option<Vec<Expr>> = None;
    for function in functions {
        let mut call = function;
        while let Expr::Alias(alias) = call {
            call = &alias.expr;
        }
        let Expr::WindowFunction(call) = call else {
            return Vec::new();
        };
        let partition = &call.params.partition_by;
        common = Some(match common {
            None => partition.clone(),
            Some(common) => common
                .into_iter()
                .filter(|e| partition.contains(e))
                .collect(),
        });
    }
    common.unwrap_or_default()
}

fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Our own error out of a plan rewrite.
fn internal(error: DataFusionError) -> Error {
    match error {
        DataFusionError::External(inner) => match inner.downcast::<Error>() {
            Ok(own) => *own,
            Err(other) => DataFusionError::External(other).into(),
        },
        other => other.into(),
    }
}
