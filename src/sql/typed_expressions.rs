//! The expressions of a plan, rewritten where their types are known: what analyzer rules that go by the
//! types of operands have in common. Outputs keep their names. Absent: what becomes of the schema of
//! the plan, which each rule settles.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Rewrites every node of a plan's own expressions, inner ones first. The schema is that of its inputs;
/// of a scan, that of the table.
pub(crate) fn rewrite(
    plan: LogicalPlan,
    mut node: impl FnMut(Expr, &DFSchema) -> DataFusionResult<Transformed<Expr>>,
) -> DataFusionResult<Transformed<LogicalPlan>> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = &plan {
        let source =
            DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?;
        schema.merge(&source);
    }
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expression| {
        let name = names.save(&expression);
        let rewritten = expression.transform_up(|e| node(e, &schema))?;
        Ok(rewritten.update_data(|e| name.restore(e)))
    })
}
