//! Statements' trees to plans, with the functions in SQL that they call.
//!
//! ```text
//! tree ──calls──► names ──► definitions ──► bodies, planned over a relation of the parameters
//!   └──────────────────── plan, the bodies put in ◄──────────────────────┘
//! ```
//! Which functions there are, the statement says: those of its transaction's catalog, or for a
//! stored query the ones kept with it. A body is planned like a query that is written now, so that
//! it means by its names what they mean for the statement.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::{FunctionRegistry, SessionState};
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Statement as PlanStatement,
};
use datafusion::sql::parser::Statement as ParsedStatement;
use datafusion::sql::sqlparser::ast;
use futures::future::BoxFuture;

use super::aggregates;
use super::planning::{self, query_statement, rewritten};
use super::scope::StatementScope;
use super::{hidden_columns, merged_joins, versions, whole_rows};
use crate::catalog::definition::ColumnDefinition;
use crate::catalog::function::{FunctionDefinition, FunctionResult, bare_type};
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;
use crate::sql::user_functions::{
    CallKind, Calls, PlannedBody, PlannedFunction, aggregate, callable, first_row, in_type,
    inlined, mark_aggregates, mark_calls, parameters_as_columns, subquery_of, with_own_names,
};
use crate::types::SqlType;

/// A plan without calls of functions in SQL, and which were called.
pub(super) struct Planned {
    pub plan: LogicalPlan,
    /// by identifier, also those that functions call
    pub called: Vec<Arc<FunctionDefinition>>,
}

/// Plans a tree, unoptimized. `data_types` are those of its first parameters.
pub(super) async fn plan(
    state: &SessionState,
    statement: ast::Statement,
    data_types: Vec<ast::DataType>,
) -> Result<Planned> {
    plan_within(state, statement, data_types, &[]).await
}

/// Brings the calls of a tree into the planner's form.
pub(super) fn marked(state: &SessionState, statement: &mut ast::Statement) -> Result<Calls> {
    let functions = visible(state).into_iter();
    mark_calls(
        statement,
        &by_name(functions.filter(|f| !f.is_aggregate()).collect()),
    )
}

/// The functions that may be called now.
pub(super) fn visible(state: &SessionState) -> Vec<Arc<FunctionDefinition>> {
    if let Some(kept) = versions::functions() {
        return kept;
    }
    let scope = state.config().get_extension::<StatementScope>();
    scope.map_or_else(Vec::new, |scope| {
        scope.catalog().functions().cloned().collect()
    })
}

/// What functions kept with a plain view are now.
pub(super) fn present(
    state: &SessionState,
    kept: &[Arc<FunctionDefinition>],
) -> Vec<Arc<FunctionDefinition>> {
    if kept.is_empty() {
        return Vec::new();
    }
    let visible = visible(state);
    let newest = |f: &Arc<FunctionDefinition>| visible.iter().find(|v| v.oid == f.oid).cloned();
    kept.iter().filter_map(newest).collect()
}

/// Plans a function's body as a call would: 42P13 and what else a body may have against it.
pub(super) async fn check(state: &SessionState, function: &Arc<FunctionDefinition>) -> Result<()> {
    planned_function(state, function, &[]).await.map(|_| ())
}

fn by_name(
    functions: Vec<Arc<FunctionDefinition>>,
) -> BTreeMap<String, Vec<Arc<FunctionDefinition>>> {
    let mut names: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for function in functions {
        names
            .entry(function.name.clone())
            .or_default()
            .push(function);
    }
    names
}

/// Within the bodies of the functions `unfinished`.
pub(super) fn plan_within<'a>(
    state: &'a SessionState,
    mut statement: ast::Statement,
    data_types: Vec<ast::DataType>,
    unfinished: &'a [u32],
) -> BoxFuture<'a, Result<Planned>> {
    Box::pin(async move {
        let (aggregates, functions) = visible(state)
            .into_iter()
            .partition(|function| function.is_aggregate());
        let (names, aggregates) = (by_name(functions), by_name(aggregates));
        let calls = mark_calls(&mut statement, &names)?;
        let folds = mark_aggregates(&mut statement, &aggregates)?;
        if calls.is_empty() && folds.is_empty() {
            let plan = Box::pin(plan_tree(state, statement, data_types)).await?;
            let called = Vec::new();
            return Ok(Planned { plan, called });
        }
        let mut knowing = state.clone();
        let called: BTreeSet<&String> = calls.iter().map(|(name, _)| name).collect();
        for name in called {
            let overloads = names.get(name).map(Vec::as_slice).unwrap_or_default();
            let wanted = overloads
                .iter()
                .filter(|f| calls.contains(&(name.clone(), f.parameters.len())));
            let mut values = Vec::new();
            let mut rows = Vec::new();
            for definition in wanted {
                let planned = Arc::new(planned_function(state, definition, unfinished).await?);
                match definition.result {
                    FunctionResult::Value(_) => values.push(planned),
                    FunctionResult::Set(_) | FunctionResult::Table(_) => rows.push(planned),
                }
            }
            knowing.register_udf(callable(CallKind::Rows, name, rows))?;
            knowing.register_udf(callable(CallKind::Value, name, values))?;
        }
        let mut called = BTreeMap::new();
        for name in &folds {
            let mut planned = Vec::new();
            for definition in aggregates.get(name).into_iter().flatten() {
                let aggregate = aggregates::planned(state, definition, unfinished).await?;
                let functions = std::iter::once(definition).chain(&aggregate.calls);
                called.extend(functions.map(|f| (f.oid, Arc::clone(f))));
                planned.push(Arc::new(aggregate));
            }
            knowing.register_udaf(Arc::new(aggregate(name, planned)))?;
        }
        let plan = Box::pin(plan_tree(&knowing, statement, data_types)).await?;
        let found = inlined(plan)?;
        called.extend(found.called);
        Ok(Planned {
            plan: found.plan,
            called: called.into_values().collect(),
        })
    })
}

/// The plan of a tree, by a planner that knows the functions in it.
async fn plan_tree(
    state: &SessionState,
    mut statement: ast::Statement,
    data_types: Vec<ast::DataType>,
) -> Result<LogicalPlan> {
    hidden_columns::leave_out(state, &mut statement);
    whole_rows::with_rows(state, &mut statement).await?;
    merged_joins::with_conditions(state, &mut statement).await?;
    let statement = with_types(rewritten(statement)?, data_types);
    Ok(without_prepare(state.statement_to_plan(statement).await?))
}

/// The statement with parameters of these types.
fn with_types(mut statement: ast::Statement, data_types: Vec<ast::DataType>) -> ParsedStatement {
    if !data_types.is_empty() {
        statement = ast::Statement::Prepare {
            name: ast::Ident::new("parameters"),
            data_types,
            statement: Box::new(statement),
        };
    }
    ParsedStatement::Statement(Box::new(statement))
}

fn without_prepare(plan: LogicalPlan) -> LogicalPlan {
    match plan {
        LogicalPlan::Statement(PlanStatement::Prepare(prepared)) => {
            Arc::unwrap_or_clone(prepared.input)
        }
        plan => plan,
    }
}

/// Plans the body of a function, unless it is one of the `unfinished`.
async fn planned_function(
    state: &SessionState,
    definition: &Arc<FunctionDefinition>,
    unfinished: &[u32],
) -> Result<PlannedFunction> {
    let alias = format!("{} {}", definition.name, definition.oid);
    if unfinished.contains(&definition.oid) {
        return Ok(PlannedFunction {
            definition: Arc::clone(definition),
            alias,
            body: PlannedBody::Unfinished,
            calls: Vec::new(),
        });
    }
    let unfinished: Vec<u32> = unfinished.iter().copied().chain([definition.oid]).collect();
    let planner = BodyPlanner {
        state,
        definition,
        alias: &alias,
        unfinished: &unfinished,
    };
    let (body, calls) = planner
        .plan()
        .await
        .map_err(|e| of_function(e, definition, &alias))?;
    Ok(PlannedFunction {
        definition: Arc::clone(definition),
        alias,
        body,
        calls,
    })
}

/// An error in a body, in the words of whoever wrote it.
fn of_function(error: Error, definition: &FunctionDefinition, alias: &str) -> Error {
    // One that tells of a function says enough by itself.
    let error = match error.primary().starts_with("function ") {
        true => error,
        false => error.context(format!("function {}", definition.signature())),
    };
    let hint = error
        .hint_text()
        .map(|h| h.replace(&format!("{alias}."), ""));
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// Plans one body.
struct BodyPlanner<'a> {
    state: &'a SessionState,
    definition: &'a FunctionDefinition,
    alias: &'a str,
    unfinished: &'a [u32],
}

type Body = (PlannedBody, Vec<Arc<FunctionDefinition>>);

impl BodyPlanner<'_> {
    async fn plan(&self) -> Result<Body> {
        let text = self.definition.query_text();
        let text = text.ok_or_else(|| Error::internal("an aggregate has no body"))?;
        let mut query = *planning::parse_query(&text)?;
        parameters_as_columns(&mut query, self.definition, self.alias)?;
        match &self.definition.result {
            FunctionResult::Value(sql_type) => {
                if let Some(expression) = only_expression(&query)
                    && let Some(body) = self.direct(expression, sql_type).await?
                {
                    return Ok(body);
                }
                self.first_value(query, sql_type).await
            }
            FunctionResult::Set(_) | FunctionResult::Table(_) => self.rows(query).await,
        }
    }

    /// `SELECT (…)` over a relation of the parameters, with another expression in the brackets.
    async fn over_parameters(&self, template: &str, put: ast::Expr) -> Result<Planned> {
        let nulls = self.definition.parameters.iter().enumerate();
        let nulls = nulls.map(|(index, parameter)| {
            let name = self.definition.parameter_name(index);
            format!(
                "CAST(NULL AS {}) AS \"{}\"",
                parameter.sql_type,
                name.replace('"', "\"\"")
            )
        });
        let nulls: Vec<String> = nulls.collect();
        let from = match nulls.is_empty() {
            true => String::new(),
            false => format!(
                " FROM (SELECT {}) AS {}",
                nulls.join(", "),
                quote_identifier(self.alias)
            ),
        };
        let mut query = *planning::parse_query(&format!("SELECT {template}{from}"))?;
        if let ast::SetExpr::Select(select) = query.body.as_mut() {
            select.projection = vec![ast::SelectItem::ExprWithAlias {
                expr: put,
                alias: ast::Ident::new("body"),
            }];
        }
        plan_within(
            self.state,
            query_statement(&query),
            Vec::new(),
            self.unfinished,
        )
        .await
    }

    /// An expression without a relation; `None` if it is an aggregate or gives rows.
    async fn direct(&self, expression: ast::Expr, to: &SqlType) -> Result<Option<Body>> {
        let planned = self.over_parameters("1", expression).await?;
        let LogicalPlan::Projection(projection) = &planned.plan else {
            return Ok(None);
        };
        let is_plain = matches!(
            projection.input.as_ref(),
            LogicalPlan::SubqueryAlias(_) | LogicalPlan::EmptyRelation(_)
        );
        let ([value], true) = (projection.expr.as_slice(), is_plain) else {
            return Ok(None);
        };
        let value = value.clone().unalias();
        let (_, field) = value.to_field(projection.input.schema())?;
        let value = self.returned(value, &field, to)?;
        Ok(Some((PlannedBody::Value(value), planned.called)))
    }

    /// The rows of a query over the parameters, which are from outside for it.
    async fn subquery(&self, query: ast::Query) -> Result<(LogicalPlan, Planned)> {
        let exists = ast::Expr::Exists {
            subquery: Box::new(query),
            negated: false,
        };
        let planned = self.over_parameters("1", exists).await?;
        let mut found = None;
        if let LogicalPlan::Projection(projection) = &planned.plan {
            for expression in &projection.expr {
                expression.apply(|e| match e {
                    Expr::Exists(exists) => {
                        found = Some(LogicalPlan::clone(&exists.subquery.subquery));
                        Ok(TreeNodeRecursion::Stop)
                    }
                    _ => Ok(TreeNodeRecursion::Continue),
                })?;
            }
        }
        let rows = found.ok_or_else(|| Error::internal("a body that is not in its plan"))?;
        Ok((with_own_names(rows, self.alias)?, planned))
    }

    /// The value of the first row, as PostgreSQL has it.
    async fn first_value(&self, query: ast::Query, to: &SqlType) -> Result<Body> {
        let (rows, planned) = self.subquery(query).await?;
        let schema = Arc::clone(rows.schema());
        let [field] = schema.fields().as_ref() else {
            return Err(
                mismatch(&bare_type(to)).detail("Final statement must return exactly one column.")
            );
        };
        let value = Expr::ScalarSubquery(subquery_of(first_row(rows)?));
        let value = self.returned(value, field, to)?;
        Ok((PlannedBody::Value(value), planned.called))
    }

    async fn rows(&self, query: ast::Query) -> Result<Body> {
        let (rows, planned) = self.subquery(query).await?;
        let columns = self.definition.columns().unwrap_or_default();
        let outputs = self.row_columns(&rows, &columns)?;
        let rows = LogicalPlanBuilder::from(rows).project(outputs)?.build()?;
        Ok((PlannedBody::Rows(Arc::new(rows)), planned.called))
    }

    fn row_columns(&self, rows: &LogicalPlan, columns: &[ColumnDefinition]) -> Result<Vec<Expr>> {
        let schema = rows.schema();
        let count = schema.fields().len();
        let declared = match (&self.definition.result, columns) {
            (FunctionResult::Set(sql_type), _) => bare_type(sql_type),
            (_, [only]) => bare_type(&only.sql_type),
            _ => "record".to_owned(),
        };
        if count != columns.len() {
            let how = if count > columns.len() { "many" } else { "few" };
            return Err(
                mismatch(&declared).detail(format!("Final statement returns too {how} columns."))
            );
        }
        let mut outputs = Vec::with_capacity(count);
        for (index, ((qualifier, field), column)) in schema.iter().zip(columns).enumerate() {
            if !is_returnable(
                SqlType::from_field(field).as_ref(),
                field.data_type(),
                &column.sql_type,
            ) {
                return Err(mismatch(&declared).detail(format!(
                    "Final statement returns {} instead of {} at column {}.",
                    type_text(field),
                    bare_type(&column.sql_type),
                    index + 1
                )));
            }
            let value = Expr::Column((qualifier, field).into());
            let value = in_type(value, field, &column.sql_type);
            outputs.push(value.alias(&column.name));
        }
        Ok(outputs)
    }

    /// A value in the type that the function gives.
    fn returned(
        &self,
        value: Expr,
        field: &datafusion::arrow::datatypes::FieldRef,
        to: &SqlType,
    ) -> Result<Expr> {
        let from = SqlType::from_field(field);
        match is_returnable(from.as_ref(), field.data_type(), to) {
            true => Ok(in_type(value, field, to)),
            false => Err(mismatch(&bare_type(to))
                .detail(format!("Actual return type is {}.", type_text(field)))
                .hint("Cast the result to the type that the function returns.")),
        }
    }
}

fn type_text(field: &datafusion::arrow::datatypes::FieldRef) -> String {
    SqlType::from_field(field).map_or_else(|| "unknown".to_owned(), |t| bare_type(&t))
}

fn mismatch(declared: &str) -> Error {
    Error::new(
        sqlstate::INVALID_FUNCTION_DEFINITION,
        format!("return type mismatch in function declared to return {declared}"),
    )
}

/// A result that becomes the declared type without a cast that is written.
fn is_returnable(from: Option<&SqlType>, data_type: &DataType, to: &SqlType) -> bool {
    let is_time =
        |t: &SqlType| matches!(t, SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz);
    match (data_type, from) {
        (DataType::Null, _) => true,
        (_, Some(from)) => {
            bare_type(from) == bare_type(to)
                || (from.is_number() && to.is_number())
                || (is_time(from) && is_time(to))
        }
        (_, None) => false,
    }
}

/// The expression of `SELECT expression` with nothing else.
fn only_expression(query: &ast::Query) -> Option<ast::Expr> {
    let is_bare = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none();
    let ast::SetExpr::Select(select) = query.body.as_ref() else {
        return None;
    };
    let has_groups = match &select.group_by {
        ast::GroupByExpr::Expressions(groups, _) => !groups.is_empty(),
        ast::GroupByExpr::All(_) => true,
    };
    let is_value = select.from.is_empty()
        && select.selection.is_none()
        && select.having.is_none()
        && select.distinct.is_none()
        && !has_groups;
    match (select.projection.as_slice(), is_bare && is_value) {
        (
            [
                ast::SelectItem::UnnamedExpr(expression)
                | ast::SelectItem::ExprWithAlias {
                    expr: expression, ..
                },
            ],
            true,
        ) => Some(expression.clone()),
        _ => None,
    }
}
