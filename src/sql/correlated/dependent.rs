//! A subquery's plan for many combinations of outer columns at once.
//!
//! Every node hands the combination (the *carried* columns) on as its last columns:
//!
//! ```text
//! leaf          →  leaf × combinations           σ, π          →  as they are, outer columns replaced
//! γ[g](p)       →  γ[g, carried](p)              γ[](p)        →  combinations ⟕ γ[carried](p)
//! LIMIT n       →  row_number() over carried ≤ n  ∪, δ          →  branch by branch
//! WITH RECURSIVE →  both terms, and the rows so far carry the columns
//! p ⋈ q         →  p ⋈ q on the carried columns of both, where q refers outside too
//! ```

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::Schema;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{
    Column, DFSchema, JoinType, NullEquality, Result as DataFusionResult, ScalarValue,
};
use datafusion::datasource::cte_worktable::CteWorkTable;
use datafusion::datasource::provider_as_source;
use datafusion::functions::core::expr_fn::coalesce;
use datafusion::logical_expr::logical_plan::builder::unnest_with_options;
use datafusion::logical_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, Filter, Join, Limit, LogicalPlan, LogicalPlanBuilder,
    Projection, RecursiveQuery, SortExpr, Subquery, SubqueryAlias, TableScan, Union, Window, lit,
};

use super::{Names, join_with_nulls};
use crate::error::Error;
use crate::sql::row_numbers;

/// The combinations that a subquery is evaluated for.
pub(super) struct Dependent<'a> {
    /// Distinct combinations; the columns are the carried ones.
    combinations: LogicalPlan,
    /// Outer column and the name under which it is carried.
    columns: Vec<(Column, String)>,
    /// Recursive queries that are being evaluated: their own rows carry the columns.
    recursions: RefCell<Vec<String>>,
    names: &'a Names,
}

impl<'a> Dependent<'a> {
    /// The distinct combinations of `columns` in `plan`.
    pub fn new(
        plan: &LogicalPlan,
        columns: Vec<Column>,
        names: &'a Names,
    ) -> DataFusionResult<Self> {
        let columns: Vec<(Column, String)> = columns
            .into_iter()
            .map(|column| (column, names.fresh("outer column")))
            .collect();
        let outputs: Vec<Expr> = columns
            .iter()
            .map(|(column, name)| Expr::Column(column.clone()).alias(name))
            .collect();
        let combinations = LogicalPlanBuilder::from(plan.clone())
            .project(outputs)?
            .distinct()?
            .build()?;
        Ok(Self {
            combinations,
            columns,
            recursions: RefCell::default(),
            names,
        })
    }

    /// The carried columns, as the evaluated plan has them.
    pub fn carried(&self) -> impl Iterator<Item = Column> + '_ {
        self.columns
            .iter()
            .map(|(_, name)| Column::new_unqualified(name))
    }

    fn carried_expressions(&self) -> Vec<Expr> {
        self.carried().map(Expr::Column).collect()
    }

    /// Joins the plan that has the outer columns with an evaluated one.
    pub fn join(
        &self,
        left: LogicalPlan,
        right: LogicalPlan,
        join_type: JoinType,
        filter: Option<Expr>,
    ) -> DataFusionResult<LogicalPlan> {
        let on = self
            .columns
            .iter()
            .map(|(column, name)| {
                let carried = Expr::Column(Column::new_unqualified(name));
                (Expr::Column(column.clone()), carried)
            })
            .collect();
        join_with_nulls(left, right, on, join_type, filter)
    }

    /// The plan with its columns first and the carried ones after them.
    pub fn evaluate(&self, plan: &LogicalPlan) -> DataFusionResult<LogicalPlan> {
        if !self.refers(plan)? {
            return LogicalPlanBuilder::from(plan.clone())
                .cross_join(self.combinations.clone())?
                .build();
        }
        match plan {
            LogicalPlan::Projection(projection) => {
                let input = self.evaluate(&projection.input)?;
                let names = projection.schema.columns();
                let schema = projection.input.schema();
                let mut outputs = self.replace_named(&projection.expr, names, schema)?;
                outputs.extend(self.carried_expressions());
                Projection::try_new(outputs, Arc::new(input)).map(LogicalPlan::Projection)
            }
            LogicalPlan::Filter(filter) => {
                let input = self.evaluate(&filter.input)?;
                let predicate = self.replace(filter.predicate.clone(), filter.input.schema())?;
                Filter::try_new(predicate, Arc::new(input)).map(LogicalPlan::Filter)
            }
            LogicalPlan::SubqueryAlias(alias) => self.renamed_by(alias),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            // Rows have an order only under a LIMIT, which sees to it.
            LogicalPlan::Sort(sort) => match sort.fetch {
                None => self.evaluate(&sort.input),
                Some(fetch) => {
                    let input = self.evaluate(&sort.input)?;
                    let order = self.replace_order(&sort.expr, sort.input.schema())?;
                    self.first_rows(input, order, 0, Some(fetch))
                }
            },
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let input = self.evaluate(input)?;
                LogicalPlanBuilder::from(input).distinct()?.build()
            }
            LogicalPlan::Union(union) => {
                let inputs = union
                    .inputs
                    .iter()
                    .map(|input| self.evaluate(input).map(Arc::new))
                    .collect::<DataFusionResult<Vec<_>>>()?;
                Union::try_new_with_loose_types(inputs).map(LogicalPlan::Union)
            }
            LogicalPlan::Join(join) => self.joined(join),
            LogicalPlan::Window(window) => self.window(window),
            LogicalPlan::Unnest(unnest) => {
                let input = self.evaluate(&unnest.input)?;
                unnest_with_options(input, unnest.exec_columns.clone(), unnest.options.clone())
            }
            LogicalPlan::Subquery(Subquery { subquery, .. }) => self.evaluate(subquery),
            LogicalPlan::RecursiveQuery(query) => self.recursive(query),
            LogicalPlan::TableScan(scan) => self.rows_so_far(scan),
            _ => Err(unsupported()),
        }
    }

    /// The columns of a relation under its alias.
    fn renamed_by(&self, alias: &SubqueryAlias) -> DataFusionResult<LogicalPlan> {
        let columns = alias.input.schema().columns().into_iter();
        let outputs = columns
            .zip(alias.schema.columns())
            .map(|(column, name)| Expr::Column(column).alias_qualified(name.relation, name.name));
        let outputs: Vec<Expr> = outputs.chain(self.carried_expressions()).collect();
        LogicalPlanBuilder::from(self.evaluate(&alias.input)?)
            .project(outputs)?
            .build()
    }

    fn aggregate(&self, aggregate: &Aggregate) -> DataFusionResult<LogicalPlan> {
        let input = Arc::new(self.evaluate(&aggregate.input)?);
        let schema = aggregate.input.schema();
        let outputs = aggregate.schema.columns();
        let names = aggregate.schema.columns();
        let first_value = names.len() - aggregate.aggr_expr.len();
        let of_values = names[first_value..].to_vec();
        let own_groups = match first_value == aggregate.group_expr.len() {
            true => self.replace_named(&aggregate.group_expr, names, schema)?,
            // The sets of groups have no names as such.
            false => self.replace_all(&aggregate.group_expr, schema)?,
        };
        let values = self.replace_named(&aggregate.aggr_expr, of_values, schema)?;
        let groups = own_groups.into_iter().chain(self.carried_expressions());
        let grouped = LogicalPlan::Aggregate(Aggregate::try_new(input, groups.collect(), values)?);
        if !aggregate.group_expr.is_empty() {
            let outputs = outputs.into_iter().map(Expr::Column);
            let outputs: Vec<Expr> = outputs.chain(self.carried_expressions()).collect();
            return LogicalPlanBuilder::from(grouped).project(outputs)?.build();
        }
        // Without groups there is a row for no input too: every combination has one.
        let (grouped, renamed) = self.renamed(grouped, &outputs)?;
        let on = self
            .carried_expressions()
            .into_iter()
            .zip(renamed)
            .collect();
        let all = join_with_nulls(self.combinations.clone(), grouped, on, JoinType::Left, None)?;
        let mut padded = Vec::with_capacity(outputs.len());
        for (column, value) in outputs.into_iter().zip(&aggregate.aggr_expr) {
            let of_nothing = default_of(value, schema)?;
            let output = Expr::Column(column.clone());
            padded.push(match of_nothing.is_null() {
                true => output,
                false => coalesce(vec![output, lit(of_nothing)])
                    .alias_qualified(column.relation, column.name),
            });
        }
        padded.extend(self.carried_expressions());
        LogicalPlanBuilder::from(all).project(padded)?.build()
    }

    /// The plan with its carried columns under new names, which come second.
    fn renamed(
        &self,
        plan: LogicalPlan,
        outputs: &[Column],
    ) -> DataFusionResult<(LogicalPlan, Vec<Expr>)> {
        let names: Vec<String> = self
            .columns
            .iter()
            .map(|_| self.names.fresh("outer column"))
            .collect();
        let carried = self.carried_expressions().into_iter().zip(&names);
        let expressions: Vec<Expr> = outputs
            .iter()
            .cloned()
            .map(Expr::Column)
            .chain(carried.map(|(column, name)| column.alias(name)))
            .collect();
        let plan = LogicalPlanBuilder::from(plan)
            .project(expressions)?
            .build()?;
        let columns = names
            .into_iter()
            .map(|name| Expr::Column(Column::new_unqualified(name)))
            .collect();
        Ok((plan, columns))
    }

    fn limit(&self, limit: &Limit) -> DataFusionResult<LogicalPlan> {
        let skip = match limit.skip.as_deref() {
            None => Some(0),
            skip => constant(skip),
        };
        let fetch = constant(limit.fetch.as_deref());
        let (Some(skip), true) = (skip, fetch.is_some() || limit.fetch.is_none()) else {
            return Err(unsupported());
        };
        match limit.input.as_ref() {
            // The order stands below what is shown of the rows.
            LogicalPlan::Projection(projection) => {
                let input = Arc::new(LogicalPlan::Limit(Limit {
                    input: Arc::clone(&projection.input),
                    ..limit.clone()
                }));
                let limited = Projection::try_new(projection.expr.clone(), input)?;
                self.evaluate(&LogicalPlan::Projection(limited))
            }
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                let input = self.evaluate(&sort.input)?;
                let order = self.replace_order(&sort.expr, sort.input.schema())?;
                self.first_rows(input, order, skip, fetch)
            }
            other => self.first_rows(self.evaluate(other)?, Vec::new(), skip, fetch),
        }
    }

    /// Some rows of each combination.
    fn first_rows(
        &self,
        input: LogicalPlan,
        order: Vec<SortExpr>,
        skip: usize,
        fetch: Option<usize>,
    ) -> DataFusionResult<LogicalPlan> {
        let outputs = input.schema().columns();
        let (windowed, number) = row_numbers::numbered(input, self.carried_expressions(), order)?;
        let after = number.clone().gt(lit(skip as u64));
        let condition = match fetch {
            None => after,
            Some(fetch) => after.and(number.lt_eq(lit((skip + fetch) as u64))),
        };
        LogicalPlanBuilder::from(windowed)
            .filter(condition)?
            .project(outputs.into_iter().map(Expr::Column))?
            .build()
    }

    fn window(&self, window: &Window) -> DataFusionResult<LogicalPlan> {
        let input = Arc::new(self.evaluate(&window.input)?);
        let carried = self.carried_expressions();
        let outputs = window.schema.columns();
        let computed = self
            .replace_all(&window.window_expr, window.input.schema())?
            .into_iter()
            .zip(&outputs[window.input.schema().fields().len()..])
            .map(|(expression, name)| {
                let partitioned = expression.transform_up(|e| match e {
                    Expr::WindowFunction(mut function) => {
                        function.params.partition_by.extend(carried.clone());
                        Ok(Transformed::yes(Expr::WindowFunction(function)))
                    }
                    other => Ok(Transformed::no(other)),
                })?;
                // An optimizer rule takes one alias around a window function, and no two.
                let call = partitioned.data.unalias();
                Ok(call.alias_qualified(name.relation.clone(), &name.name))
            })
            .collect::<DataFusionResult<Vec<_>>>()?;
        let plan = LogicalPlan::Window(Window::try_new(computed, input)?);
        let outputs = outputs.into_iter().map(Expr::Column);
        let outputs: Vec<Expr> = outputs.chain(carried).collect();
        LogicalPlanBuilder::from(plan).project(outputs)?.build()
    }

    /// A join of which every row has a left one.
    fn joined(&self, join: &Join) -> DataFusionResult<LogicalPlan> {
        let keeps_left = matches!(
            join.join_type,
            JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti
        );
        // Keys may be equal as NULLs only if all of them are.
        let nulls_are_equal = join.null_equality == NullEquality::NullEqualsNull;
        if !keeps_left {
            return Err(unsupported());
        }
        let mut schema = join.left.schema().as_ref().clone();
        schema.merge(join.right.schema());
        let left = self.evaluate(&join.left)?;
        let right_outputs = join.right.schema().columns();
        let (right, mut on) = match self.refers(&join.right)? {
            false => (join.right.as_ref().clone(), Vec::new()),
            true => {
                let right = self.evaluate(&join.right)?;
                let (right, renamed) = self.renamed(right, &right_outputs)?;
                (
                    right,
                    self.carried_expressions()
                        .into_iter()
                        .zip(renamed)
                        .collect(),
                )
            }
        };
        let mut conditions = Vec::new();
        for (a, b) in &join.on {
            let (a, b) = (
                self.replace(a.clone(), &schema)?,
                self.replace(b.clone(), &schema)?,
            );
            match nulls_are_equal {
                true => on.push((a, b)),
                false => conditions.push(a.eq(b)),
            }
        }
        if let Some(filter) = &join.filter {
            conditions.push(self.replace(filter.clone(), &schema)?);
        }
        let filter = conditions.into_iter().reduce(Expr::and);
        let joined = join_with_nulls(left, right, on, join.join_type, filter)?;
        let outputs = join.schema.columns().into_iter().map(Expr::Column);
        let outputs: Vec<Expr> = outputs.chain(self.carried_expressions()).collect();
        LogicalPlanBuilder::from(joined).project(outputs)?.build()
    }

    /// Every step of a recursion carries the columns on.
    fn recursive(&self, query: &RecursiveQuery) -> DataFusionResult<LogicalPlan> {
        let first = Arc::new(self.evaluate(&query.static_term)?);
        self.recursions.borrow_mut().push(query.name.clone());
        let step = self.evaluate(&query.recursive_term);
        self.recursions.borrow_mut().pop();
        let step = Arc::new(step?);
        RecursiveQuery::try_new(query.name.clone(), first, step, query.is_distinct)
            .map(LogicalPlan::RecursiveQuery)
    }

    /// The rows that a recursion has found so far, with the carried columns.
    fn rows_so_far(&self, scan: &TableScan) -> DataFusionResult<LogicalPlan> {
        let own = scan.source.schema();
        let carried = self.combinations.schema();
        let fields: Vec<_> = own
            .fields()
            .iter()
            .chain(carried.fields())
            .cloned()
            .collect();
        let name = scan.table_name.table();
        let table = CteWorkTable::new(name, Arc::new(Schema::new(fields)));
        let source = provider_as_source(Arc::new(table));
        let mut outputs: Vec<Expr> = scan
            .projected_schema
            .columns()
            .into_iter()
            .map(Expr::Column)
            .collect();
        outputs.extend(self.columns.iter().map(|(_, carried)| {
            Expr::Column(Column::new(Some(scan.table_name.clone()), carried)).alias(carried)
        }));
        LogicalPlanBuilder::scan(scan.table_name.clone(), source, None)?
            .project(outputs)?
            .build()
    }

    /// Whether a plan refers outside, itself or by a recursion that it is in.
    fn refers(&self, plan: &LogicalPlan) -> DataFusionResult<bool> {
        let mut found = false;
        for_each_outer(plan, &mut |_| found = true)?;
        let recursions = self.recursions.borrow();
        let continues = plan.exists(|node| {
            Ok(matches!(node, LogicalPlan::TableScan(scan)
                if recursions.iter().any(|name| name == scan.table_name.table())))
        })?;
        Ok(found || continues)
    }

    fn replace_order(
        &self,
        order: &[SortExpr],
        schema: &DFSchema,
    ) -> DataFusionResult<Vec<SortExpr>> {
        order
            .iter()
            .map(|sort| {
                let expr = self.replace(sort.expr.clone(), schema)?;
                Ok(SortExpr {
                    expr,
                    ..sort.clone()
                })
            })
            .collect()
    }

    /// Expressions with carried columns for outer ones, under the names that they had.
    fn replace_all(&self, all: &[Expr], schema: &DFSchema) -> DataFusionResult<Vec<Expr>> {
        let names = all.iter().map(|e| e.qualified_name());
        let names = names.map(|(relation, name)| Column::new(relation, name));
        self.replace_named(all, names.collect(), schema)
    }

    /// As [`Self::replace_all`], under the names that the node gives them: what an expression is
    /// called changes with the outer columns in it, once these are carried.
    fn replace_named(
        &self,
        all: &[Expr],
        names: Vec<Column>,
        schema: &DFSchema,
    ) -> DataFusionResult<Vec<Expr>> {
        all.iter()
            .zip(names)
            .map(|(e, Column { relation, name, .. })| {
                let replaced = self.replace(e.clone(), schema)?;
                Ok(
                    match replaced.qualified_name() == (relation.clone(), name.clone()) {
                        true => replaced,
                        false => replaced.alias_qualified(relation, name),
                    },
                )
            })
            .collect()
    }

    /// Outer columns become the carried ones; `schema` is that of the node's own input, whose
    /// columns hide those outside from the subqueries within.
    fn replace(&self, expression: Expr, schema: &DFSchema) -> DataFusionResult<Expr> {
        let names: HashMap<&Column, &String> = self.columns.iter().map(|(c, n)| (c, n)).collect();
        let replaced = expression.transform_up(|e| match e {
            Expr::OuterReferenceColumn(_, column) if names.contains_key(&column) => {
                let name = names[&column];
                Ok(Transformed::yes(Expr::Column(Column::new_unqualified(
                    name,
                ))))
            }
            Expr::ScalarSubquery(subquery) => {
                let subquery = rename_inside(subquery, &names, schema)?;
                Ok(Transformed::yes(Expr::ScalarSubquery(subquery)))
            }
            Expr::Exists(mut exists) => {
                exists.subquery = rename_inside(exists.subquery, &names, schema)?;
                Ok(Transformed::yes(Expr::Exists(exists)))
            }
            Expr::InSubquery(mut test) => {
                test.subquery = rename_inside(test.subquery, &names, schema)?;
                Ok(Transformed::yes(Expr::InSubquery(test)))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(replaced.data)
    }
}

/// A subquery within the subquery refers to the carried columns of the level around it.
fn rename_inside(
    subquery: Subquery,
    names: &HashMap<&Column, &String>,
    schema: &DFSchema,
) -> DataFusionResult<Subquery> {
    let plan = Arc::unwrap_or_clone(subquery.subquery);
    let renamed = plan.transform_down_with_subqueries(|node| {
        node.map_expressions(|expression| {
            expression.transform_up(|e| match e {
                Expr::OuterReferenceColumn(field, column)
                    if names.contains_key(&column) && !schema.has_column(&column) =>
                {
                    let carried = Column::new_unqualified(names[&column]);
                    Ok(Transformed::yes(Expr::OuterReferenceColumn(field, carried)))
                }
                other => Ok(Transformed::no(other)),
            })
        })
    })?;
    let mut outer_ref_columns = Vec::new();
    for_each_outer_expression(&renamed.data, &mut |e| {
        if !outer_ref_columns.contains(e) {
            outer_ref_columns.push(e.clone());
        }
    })?;
    Ok(Subquery {
        subquery: Arc::new(renamed.data),
        outer_ref_columns,
        spans: subquery.spans,
    })
}

/// Every reference to a query outside, at any depth.
pub(super) fn for_each_outer(
    plan: &LogicalPlan,
    visit: &mut impl FnMut(&Column),
) -> DataFusionResult<()> {
    for_each_outer_expression(plan, &mut |e| {
        if let Expr::OuterReferenceColumn(_, column) = e {
            visit(column);
        }
    })
}

fn for_each_outer_expression(
    plan: &LogicalPlan,
    visit: &mut impl FnMut(&Expr),
) -> DataFusionResult<()> {
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|e| {
                if matches!(e, Expr::OuterReferenceColumn(..)) {
                    visit(e);
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(())
}

/// The value of an aggregate over no rows.
fn default_of(expression: &Expr, schema: &DFSchema) -> DataFusionResult<ScalarValue> {
    match expression {
        Expr::Alias(alias) => default_of(&alias.expr, schema),
        Expr::AggregateFunction(function) => {
            let data_type = expression.get_type(schema)?;
            function.func.default_value(&data_type)
        }
        _ => Ok(ScalarValue::Null),
    }
}

/// A number that a limit says.
pub(super) fn constant(limit: Option<&Expr>) -> Option<usize> {
    match limit? {
        Expr::Literal(value, _) => match value {
            ScalarValue::Int64(Some(n)) => usize::try_from(*n).ok(),
            ScalarValue::Int32(Some(n)) => usize::try_from(*n).ok(),
            ScalarValue::UInt64(Some(n)) => usize::try_from(*n).ok(),
            _ => None,
        },
        Expr::Cast(c) => constant(Some(&c.expr)),
        _ => None,
    }
}

fn unsupported() -> datafusion::error::DataFusionError {
    Error::unsupported("this form of correlated subquery is not supported")
        .hint("Write it as a join.")
        .into()
}
