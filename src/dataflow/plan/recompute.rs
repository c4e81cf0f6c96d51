//! Translation of what has no incremental operator: a node over ports, or a whole subtree.

use std::sync::Arc;

use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery};

use super::NodeKind;
use super::nodes::{all_nullable, extension};
use super::translate::{Place, Properties, Translator, list, scanned};
use crate::dataflow::recompute::RecomputeSpec;
use crate::dataflow::recompute::port::PortScan;
use crate::dataflow::row_errors::OnRowError;
use crate::error::{Error, Result};

/// The ports that a recomputed plan has got so far.
struct Ports {
    nodes: Vec<usize>,
    on_row_error: OnRowError,
}

impl Ports {
    /// A leaf that stands for `plan`, whose rows the node `node` gives.
    fn leaf(&mut self, node: usize, plan: &LogicalPlan) -> PlanResult<LogicalPlan> {
        self.nodes.push(node);
        let schema = match self.on_row_error {
            // See [`super::ViewRequest::on_row_error`].
            OnRowError::Null => all_nullable(plan.schema())?,
            OnRowError::Fail | OnRowError::Skip => Arc::clone(plan.schema()),
        };
        Ok(extension(PortScan {
            port: self.nodes.len() - 1,
            schema,
        }))
    }
}

impl Translator<'_> {
    /// A node over ports: its children, and the subqueries of its expressions, are planned by
    /// themselves and their rows kept.
    pub(super) fn recompute_node(&mut self, plan: &LogicalPlan) -> Result<usize> {
        let mut ports = self.no_ports();
        let over_ports = self.over_ports(plan, &mut ports)?;
        self.add_recompute(plan, over_ports, ports, Properties::default())
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
        self.add_recompute(plan, plan.clone(), self.no_ports(), constant)
    }

    /// A subtree whose nodes belong together: its scans become ports. The scans of a recursive
    /// query's own name stay, they read the rows of its last step.
    pub(super) fn recompute_subtree(&mut self, plan: &LogicalPlan) -> Result<usize> {
        let mut own_names = Vec::new();
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::RecursiveQuery(query) = node {
                own_names.push(query.name.clone());
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        let mut ports = self.no_ports();
        let is_own = |node: &LogicalPlan| {
            matches!(node, LogicalPlan::TableScan(scan)
                if own_names.iter().any(|name| name == scan.table_name.table()))
        };
        let over_ports = plan
            .clone()
            .transform_down_with_subqueries(|node| {
                // What only our planner knows gives its rows by itself, if it may.
                let is_port = match &node {
                    LogicalPlan::TableScan(_) => !is_own(&node),
                    LogicalPlan::Extension(_) if node != *plan => {
                        !node.exists(|inner| Ok(is_own(inner)))?
                    }
                    _ => false,
                };
                if !is_port {
                    return Ok(Transformed::no(node));
                }
                let input = self.node(&node, Place::Below).map_err(external)?;
                let mut leaf = ports.leaf(input, &node)?;
                if let LogicalPlan::Extension(_) = node {
                    // The engine asks a subquery's outermost node what it gives.
                    let columns = leaf.schema().columns().into_iter().map(Expr::Column);
                    let columns = columns.collect::<Vec<_>>();
                    leaf = LogicalPlanBuilder::from(leaf).project(columns)?.build()?;
                }
                Ok(Transformed::new(leaf, true, TreeNodeRecursion::Jump))
            })
            .map_err(internal)?
            .data;
        self.add_recompute(plan, over_ports, ports, Properties::default())
    }

    fn over_ports(&mut self, plan: &LogicalPlan, ports: &mut Ports) -> Result<LogicalPlan> {
        let mut leaves = Vec::new();
        for child in plan.inputs() {
            let input = self.node(child, Place::Below)?;
            leaves.push(ports.leaf(input, child)?);
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
            let leaf = ports.leaf(input, &subquery.subquery)?;
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
        LogicalPlan::Values(values) => format!("{} constant rows", values.values.len()),
        LogicalPlan::EmptyRelation(_) => "constant row".to_owned(),
        LogicalPlan::TableScan(scan) => scanned(scan),
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
