//! Correlated subqueries over the catalog that the engine's planner cannot turn into joins.
//!
//! Tools write `(SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d WHERE d.adrelid =
//! a.attrelid AND a.atthasdef)`. The engine only plans a correlated scalar subquery that is an
//! aggregate over equalities. Any other one that reads nothing but catalog relations becomes a
//! function of the outer columns that it uses: called for a row, it puts the row's values in and
//! runs the subquery, as PostgreSQL does. The catalog is small; subqueries over a user's relations
//! are left alone, so that no view and no large query ever runs this way.

use std::any::Any;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::arrow::array::Array;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, ScalarValue};
use datafusion::datasource::source_as_provider;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::execution::SessionState;
use datafusion::logical_expr::async_udf::{AsyncScalarUDF, AsyncScalarUDFImpl};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, LogicalPlan, Operator, ReturnFieldArgs, ScalarFunctionArgs,
    ScalarUDFImpl, Signature, Subquery, Volatility,
};
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_plan::collect;
use parking_lot::RwLock;

use super::relation::CatalogRelation;
use crate::error::{Error, sqlstate};

/// Replaces such subqueries.
pub(super) struct CatalogSubqueries {
    state: Weak<RwLock<SessionState>>,
}

impl CatalogSubqueries {
    /// For the context that owns this state.
    pub fn new(state: Weak<RwLock<SessionState>>) -> Self {
        Self { state }
    }

    fn rewrite(&self, plan: LogicalPlan) -> PlanResult<Transformed<LogicalPlan>> {
        if !matches!(plan, LogicalPlan::Projection(_) | LogicalPlan::Filter(_)) {
            return Ok(Transformed::no(plan));
        }
        let has_any = plan.expressions().iter().any(|expression| {
            expression
                .exists(|inner| Ok(matches!(inner, Expr::ScalarSubquery(_))))
                .unwrap_or(false)
        });
        if !has_any {
            return Ok(Transformed::no(plan));
        }
        let names = NamePreserver::new(&plan);
        let rewritten = plan.map_expressions(|expression| {
            let name = names.save(&expression);
            let changed = expression.transform_up(|inner| match inner {
                Expr::ScalarSubquery(subquery) if needs_rows(&subquery)? => {
                    Ok(Transformed::yes(self.function(&subquery)?))
                }
                other => Ok(Transformed::no(other)),
            })?;
            Ok(changed.update_data(|expression| name.restore(expression)))
        })?;
        match rewritten.transformed {
            true => rewritten.map_data(LogicalPlan::recompute_schema),
            false => Ok(rewritten),
        }
    }

    fn function(&self, subquery: &Subquery) -> PlanResult<Expr> {
        let mut outer: Vec<Column> = Vec::new();
        for reference in &subquery.outer_ref_columns {
            if let Expr::OuterReferenceColumn(_, column) = reference
                && !outer.contains(column)
            {
                outer.push(column.clone());
            }
        }
        let field = subquery
            .subquery
            .schema()
            .fields()
            .first()
            .ok_or_else(|| DataFusionError::Plan("a subquery gives no column".to_owned()))?;
        let field = field.as_ref().clone().with_nullable(true);
        let arguments = outer.iter().cloned().map(Expr::Column).collect();
        let function = SubqueryFunction {
            signature: Signature::any(outer.len(), Volatility::Stable),
            plan: subquery.subquery.clone(),
            field: Arc::new(field),
            outer,
            state: self.state.clone(),
        };
        let function = AsyncScalarUDF::new(Arc::new(function)).into_scalar_udf();
        Ok(Expr::ScalarFunction(ScalarFunction::new_udf(
            Arc::new(function),
            arguments,
        )))
    }
}

impl std::fmt::Debug for CatalogSubqueries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CatalogSubqueries")
    }
}

impl AnalyzerRule for CatalogSubqueries {
    fn analyze(&self, plan: LogicalPlan, _config: &ConfigOptions) -> PlanResult<LogicalPlan> {
        Ok(plan.transform_up(|node| self.rewrite(node))?.data)
    }

    fn name(&self) -> &str {
        "catalog_subqueries"
    }
}

/// True for a correlated subquery over catalog relations that cannot become a join.
fn needs_rows(subquery: &Subquery) -> PlanResult<bool> {
    if subquery.outer_ref_columns.is_empty() {
        return Ok(false);
    }
    Ok(reads_only_catalog(&subquery.subquery)? && !is_joinable(&subquery.subquery)?)
}

/// It reads relations of the catalog, and no others. One that reads nothing is anyone's.
fn reads_only_catalog(plan: &LogicalPlan) -> PlanResult<bool> {
    let (mut reads, mut only) = (false, true);
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            let provider = source_as_provider(&scan.source)?;
            reads = true;
            only &= (provider.as_ref() as &dyn Any).is::<CatalogRelation>();
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(reads && only)
}

/// An aggregate over one filter whose correlated conditions are all equalities of an inner column.
fn is_joinable(plan: &LogicalPlan) -> PlanResult<bool> {
    let mut top = plan;
    while let LogicalPlan::Projection(projection) = top {
        top = projection.input.as_ref();
    }
    let LogicalPlan::Aggregate(aggregate) = top else {
        return Ok(false);
    };
    let LogicalPlan::Filter(filter) = aggregate.input.as_ref() else {
        return Ok(false);
    };
    let conditions = split_conjunction(&filter.predicate);
    let equalities = conditions
        .iter()
        .all(|condition| !condition.contains_outer() || is_equality(condition));
    let mut elsewhere = false;
    plan.apply_with_subqueries(|node| {
        let is_the_filter = matches!(node, LogicalPlan::Filter(other) if other == filter);
        elsewhere |= !is_the_filter && node.expressions().iter().any(Expr::contains_outer);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(equalities && !elsewhere)
}

fn is_equality(condition: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Eq,
        right,
    }) = condition
    else {
        return false;
    };
    let outer = |e: &Expr| matches!(e, Expr::OuterReferenceColumn(..));
    matches!(left.as_ref(), Expr::Column(_)) && outer(right)
        || matches!(right.as_ref(), Expr::Column(_)) && outer(left)
}

/// A subquery as a function of the outer columns it uses.
struct SubqueryFunction {
    plan: Arc<LogicalPlan>,
    outer: Vec<Column>,
    field: FieldRef,
    signature: Signature,
    state: Weak<RwLock<SessionState>>,
}

impl SubqueryFunction {
    /// The subquery's value for one outer row.
    async fn value(&self, state: &SessionState, row: &[ScalarValue]) -> PlanResult<ScalarValue> {
        let plan = self.bound(row)?;
        let physical = state.create_physical_plan(&plan).await?;
        let batches = collect(physical, state.task_ctx()).await?;
        let rows: usize = batches.iter().map(|batch| batch.num_rows()).sum();
        match (rows, batches.iter().find(|batch| batch.num_rows() > 0)) {
            (1, Some(batch)) => {
                ScalarValue::try_from_array(batch.column(0), 0)?.cast_to(self.field.data_type())
            }
            (0, _) => ScalarValue::try_from(self.field.data_type()),
            _ => Err(DataFusionError::External(Box::new(Error::new(
                sqlstate::CARDINALITY_VIOLATION,
                "more than one row returned by a subquery used as an expression",
            )))),
        }
    }

    /// The subquery with an outer row's values in place of the outer columns.
    fn bound(&self, row: &[ScalarValue]) -> PlanResult<LogicalPlan> {
        let put_in = |expression: Expr| {
            expression.transform_up(|inner| {
                let Expr::OuterReferenceColumn(_, column) = &inner else {
                    return Ok(Transformed::no(inner));
                };
                match self.outer.iter().position(|c| c == column) {
                    Some(at) => Ok(Transformed::yes(Expr::Literal(row[at].clone(), None))),
                    None => Ok(Transformed::no(inner)),
                }
            })
        };
        let bound = self
            .plan
            .as_ref()
            .clone()
            .transform_up_with_subqueries(|node| {
                let names = NamePreserver::new(&node);
                node.map_expressions(|expression| {
                    let name = names.save(&expression);
                    Ok(put_in(expression)?.update_data(|e| name.restore(e)))
                })?
                .map_data(|node| match node {
                    // A derived table that used outer columns is a plain one now.
                    LogicalPlan::Subquery(inner) => Ok(Arc::unwrap_or_clone(inner.subquery)),
                    node => node.recompute_schema(),
                })
            })?;
        Ok(bound.data)
    }
}

impl std::fmt::Debug for SubqueryFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SubqueryFunction")
    }
}

impl PartialEq for SubqueryFunction {
    fn eq(&self, other: &Self) -> bool {
        self.plan == other.plan && self.outer == other.outer
    }
}

impl Eq for SubqueryFunction {}

impl Hash for SubqueryFunction {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.plan.hash(hasher);
    }
}

impl ScalarUDFImpl for SubqueryFunction {
    fn name(&self) -> &str {
        "catalog_subquery"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> PlanResult<DataType> {
        Ok(self.field.data_type().clone())
    }

    fn return_field_from_args(&self, _arguments: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        Ok(self.field.clone())
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        Err(DataFusionError::External(Box::new(Error::unsupported(
            "a correlated subquery cannot be used here",
        ))))
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for SubqueryFunction {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let state = self
            .state
            .upgrade()
            .map(|state| state.read().clone())
            .ok_or_else(|| DataFusionError::Execution("the session ended".to_owned()))?;
        let mut columns = Vec::with_capacity(args.args.len());
        for argument in &args.args {
            columns.push(argument.to_array(args.number_rows)?);
        }
        let mut values = Vec::with_capacity(args.number_rows);
        for row in 0..args.number_rows {
            let outer = columns
                .iter()
                .map(|column| ScalarValue::try_from_array(column, row))
                .collect::<PlanResult<Vec<_>>>()?;
            // Boxed: a subquery may hold another.
            values.push(Box::pin(self.value(&state, &outer)).await?);
        }
        let array = match values.is_empty() {
            true => datafusion::arrow::array::new_empty_array(self.field.data_type()),
            false => ScalarValue::iter_to_array(values)?,
        };
        debug_assert_eq!(array.len(), args.number_rows);
        Ok(ColumnarValue::Array(array))
    }
}
