//! Names of a body's own for the relations that it reads.
//!
//! A call may stand in a query over a relation that the body reads too: what the argument has from
//! outside and what the body has must not meet under one name. Bodies with nodes that name columns
//! outside of their expressions (unnest, recursion) are left as they are.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result as DataFusionResult, TableReference};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Subquery, SubqueryAlias};

use super::inline::subquery_of;

/// The plan with its relations under names that begin with `owner`.
pub(crate) fn with_own_names(plan: LogicalPlan, owner: &str) -> DataFusionResult<LogicalPlan> {
    let mut own = Own {
        owner,
        names: BTreeSet::new(),
    };
    let mut is_plain = true;
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(scan) => {
                own.names.insert(scan.table_name.to_string());
            }
            LogicalPlan::SubqueryAlias(alias) => {
                own.names.insert(alias.alias.to_string());
            }
            LogicalPlan::Unnest(_) | LogicalPlan::RecursiveQuery(_) | LogicalPlan::Extension(_) => {
                is_plain = false
            }
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if !is_plain {
        return Ok(plan);
    }
    plan.transform_up_with_subqueries(|node| own.in_node(node))
        .map(|t| t.data)
}

struct Own<'a> {
    owner: &'a str,
    names: BTreeSet<String>,
}

impl Own<'_> {
    fn name(&self, relation: &TableReference) -> Option<TableReference> {
        let name = relation.to_string();
        let is_own = self.names.contains(&name);
        is_own.then(|| TableReference::bare(format!("{} {name}", self.owner)))
    }

    fn in_node(&self, node: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
        match node {
            LogicalPlan::TableScan(scan) => {
                let Some(name) = self.name(&scan.table_name) else {
                    return Ok(Transformed::no(LogicalPlan::TableScan(scan)));
                };
                let scan = LogicalPlanBuilder::from(LogicalPlan::TableScan(scan));
                scan.alias(name)?.build().map(Transformed::yes)
            }
            LogicalPlan::SubqueryAlias(alias) => {
                let name = self.name(&alias.alias).unwrap_or(alias.alias);
                let alias = SubqueryAlias::try_new(alias.input, name)?;
                Ok(Transformed::yes(LogicalPlan::SubqueryAlias(alias)))
            }
            node => {
                let names = NamePreserver::new(&node);
                node.map_expressions(|expression| match expression {
                    // Known above by its relation, whose name changes there too.
                    Expr::Column(_) => self.in_expression(expression),
                    _ => {
                        let name = names.save(&expression);
                        Ok(self
                            .in_expression(expression)?
                            .update_data(|e| name.restore(e)))
                    }
                })?
                .map_data(LogicalPlan::recompute_schema)
            }
        }
    }

    fn in_expression(&self, expression: Expr) -> DataFusionResult<Transformed<Expr>> {
        let again = |subquery: Subquery| subquery_of(Arc::unwrap_or_clone(subquery.subquery));
        expression.transform_up(|e| {
            Ok(Transformed::yes(match e {
                Expr::Column(mut column) => {
                    let name = column.relation.as_ref().and_then(|r| self.name(r));
                    column.relation = name.or(column.relation);
                    Expr::Column(column)
                }
                Expr::OuterReferenceColumn(field, mut column) => {
                    let name = column.relation.as_ref().and_then(|r| self.name(r));
                    column.relation = name.or(column.relation);
                    Expr::OuterReferenceColumn(field, column)
                }
                Expr::Alias(mut alias) => {
                    let name = alias.relation.as_ref().and_then(|r| self.name(r));
                    alias.relation = name.or(alias.relation);
                    Expr::Alias(alias)
                }
                Expr::ScalarSubquery(subquery) => Expr::ScalarSubquery(again(subquery)),
                Expr::Exists(Exists { subquery, negated }) => Expr::Exists(Exists {
                    subquery: again(subquery),
                    negated,
                }),
                Expr::InSubquery(within) => Expr::InSubquery(InSubquery {
                    subquery: again(within.subquery),
                    ..within
                }),
                Expr::SetComparison(compared) => Expr::SetComparison(SetComparison {
                    subquery: again(compared.subquery),
                    ..compared
                }),
                other => return Ok(Transformed::no(other)),
            }))
        })
    }
}
