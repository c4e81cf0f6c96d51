//! Bodies in the place of calls, in a plan that is not analyzed yet.
//!
//! A body knows its parameters as columns of a relation of its own: at its top these are columns,
//! within its subqueries columns from outside. Both become the argument; an argument's own columns
//! are from outside where they end up in a subquery.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::expr::{Exists, InSubquery, ScalarFunction, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Subquery, cast, when,
};

use super::{CallKind, CalledFunction, PlannedBody, PlannedFunction};
use crate::catalog::function::{FunctionDefinition, bare_type};
use crate::error::{Error, Result, sqlstate};
use crate::sql::correlated::gives_one_row;
use crate::sql::functions::{numerics, uuids};
use crate::types::{DEFAULT_NUMERIC, SqlType};

/// Expressions that one call may grow to.
const EXPRESSIONS_MAX: usize = 20_000;

/// A plan without calls, and what was called.
pub(crate) struct Inlined {
    /// the plan
    pub plan: LogicalPlan,
    /// the functions, by identifier, also those that others call
    pub called: BTreeMap<u32, Arc<FunctionDefinition>>,
}

/// Puts the bodies of functions into a plan.
pub(crate) fn inlined(plan: LogicalPlan) -> Result<Inlined> {
    let mut called = BTreeMap::new();
    let plan = in_plan(plan, &mut called)?;
    Ok(Inlined { plan, called })
}

type Called = BTreeMap<u32, Arc<FunctionDefinition>>;

fn in_plan(plan: LogicalPlan, called: &mut Called) -> DataFusionResult<LogicalPlan> {
    if let Some(rows) = rows_of_call(&plan, called)? {
        return Ok(rows);
    }
    let plan = plan
        .map_children(|child| Ok(Transformed::yes(in_plan(child, called)?)))?
        .data;
    let plan = with_outer_columns(plan);
    let schema = merge_schema(&plan.inputs());
    let names = NamePreserver::new(&plan);
    let plan = plan.map_expressions(|expression| {
        let name = names.save(&expression);
        let expression = in_expression(expression, &schema, called)?;
        Ok(expression.update_data(|e| name.restore(e)))
    })?;
    plan.data.recompute_schema()
}

fn in_expression(
    expression: Expr,
    schema: &DFSchema,
    called: &mut Called,
) -> DataFusionResult<Transformed<Expr>> {
    expression.transform_up(|e| match e {
        Expr::ScalarFunction(call) if call.func.inner().is::<CalledFunction>() => {
            Ok(Transformed::yes(value_of_call(&call, schema, called)?))
        }
        Expr::ScalarSubquery(subquery) => Ok(Transformed::yes(Expr::ScalarSubquery(in_subquery(
            subquery, called,
        )?))),
        Expr::Exists(Exists { subquery, negated }) => Ok(Transformed::yes(Expr::Exists(Exists {
            subquery: in_subquery(subquery, called)?,
            negated,
        }))),
        Expr::InSubquery(within) => Ok(Transformed::yes(Expr::InSubquery(InSubquery {
            subquery: in_subquery(within.subquery, called)?,
            ..within
        }))),
        Expr::SetComparison(compared) => Ok(Transformed::yes(Expr::SetComparison(SetComparison {
            subquery: in_subquery(compared.subquery, called)?,
            ..compared
        }))),
        other => Ok(Transformed::no(other)),
    })
}

fn in_subquery(subquery: Subquery, called: &mut Called) -> DataFusionResult<Subquery> {
    let plan = in_plan(Arc::unwrap_or_clone(subquery.subquery), called)?;
    Ok(subquery_of(plan))
}

/// At most the first row of a subquery.
pub(crate) fn first_row(plan: LogicalPlan) -> Result<LogicalPlan> {
    match gives_one_row(&plan) {
        true => Ok(plan),
        false => Ok(LogicalPlanBuilder::from(plan).limit(0, Some(1))?.build()?),
    }
}

/// A plan as a subquery, with its columns from outside.
pub(crate) fn subquery_of(plan: LogicalPlan) -> Subquery {
    Subquery {
        outer_ref_columns: plan.all_out_ref_exprs(),
        subquery: Arc::new(plan),
        spans: Default::default(),
    }
}

/// A lateral subquery's list of columns from outside, as its plan is now.
fn with_outer_columns(plan: LogicalPlan) -> LogicalPlan {
    match plan {
        LogicalPlan::Subquery(subquery) => {
            LogicalPlan::Subquery(subquery_of(Arc::unwrap_or_clone(subquery.subquery)))
        }
        other => other,
    }
}

fn note(function: &PlannedFunction, called: &mut Called) {
    let functions = std::iter::once(&function.definition).chain(&function.calls);
    called.extend(functions.map(|f| (f.oid, Arc::clone(f))));
}

/// The function that a call means, and its arguments in the parameters' types.
fn resolved(
    call: &ScalarFunction,
    schema: &DFSchema,
) -> DataFusionResult<(Arc<PlannedFunction>, Vec<Expr>)> {
    let function = call
        .func
        .inner()
        .downcast_ref::<CalledFunction>()
        .ok_or_else(|| Error::internal("a call of another function"))?;
    let fields = call
        .args
        .iter()
        .map(|argument| Ok(argument.to_field(schema)?.1))
        .collect::<DataFusionResult<Vec<_>>>()?;
    let chosen = function.chosen(&fields)?;
    if let PlannedBody::Unfinished = chosen.body {
        return Err(recursive(&chosen.definition).into());
    }
    let parameters = chosen.definition.parameters.iter();
    let arguments = call.args.iter().zip(&fields).zip(parameters);
    let arguments = arguments
        .map(|((argument, field), parameter)| {
            converted(argument, field, &parameter.sql_type)
                .ok_or_else(|| function.undefined(&fields).into())
        })
        .collect::<DataFusionResult<Vec<_>>>()?;
    Ok((Arc::clone(chosen), arguments))
}

/// An argument as a parameter takes it; `None` for a text that is no literal.
fn converted(argument: &Expr, field: &FieldRef, to: &SqlType) -> Option<Expr> {
    let wanted = to.to_arrow();
    let from = SqlType::from_field(field);
    if from.as_ref() == Some(to) && field.data_type() == &wanted {
        return Some(argument.clone());
    }
    let is_text = field.data_type() != &DataType::Null
        && from == Some(SqlType::Text)
        && bare_type(to) != "text";
    if is_text && !matches!(argument, Expr::Literal(ScalarValue::Utf8(_), _)) {
        return None;
    }
    Some(match to {
        SqlType::Uuid if is_text => uuids::to_uuid().call(vec![argument.clone()]),
        _ => in_type(argument.clone(), field, to),
    })
}

/// A value in another type. A numeric without digits takes any number with the digits it has.
pub(crate) fn in_type(value: Expr, field: &FieldRef, to: &SqlType) -> Expr {
    let wanted = to.to_arrow();
    let (precision, scale) = DEFAULT_NUMERIC;
    let is_bare = *to == SqlType::Numeric { precision, scale };
    match SqlType::from_field(field) {
        Some(SqlType::Numeric { .. }) if is_bare => value,
        Some(SqlType::SmallInt | SqlType::Integer | SqlType::BigInt)
            if is_bare && field.data_type() != &DataType::Null =>
        {
            numerics::to_bare_numeric().call(vec![value])
        }
        _ if field.data_type() == &wanted => value,
        _ => cast(value, wanted),
    }
}

fn recursive(definition: &FunctionDefinition) -> Error {
    Error::new(
        sqlstate::INVALID_FUNCTION_DEFINITION,
        format!("function {} cannot call itself", definition.signature()),
    )
    .detail("The body of a function in SQL becomes part of the query that calls it.")
    .hint("Use WITH RECURSIVE in its body.")
}

fn value_of_call(
    call: &ScalarFunction,
    schema: &DFSchema,
    called: &mut Called,
) -> DataFusionResult<Expr> {
    let (function, arguments) = resolved(call, schema)?;
    note(&function, called);
    let PlannedBody::Value(body) = &function.body else {
        return Err(Error::internal("rows in the place of a value").into());
    };
    let outer = arguments
        .iter()
        .map(|argument| from_outside(argument.clone(), schema))
        .collect::<DataFusionResult<Vec<_>>>()?;
    let mut substitution = Substitution::new(&function, &arguments, &outer);
    let value = substitution.in_expression(body.clone())?;
    substitution.check(&function)?;
    let is_null = arguments
        .iter()
        .map(|a| a.clone().is_null())
        .reduce(Expr::or);
    match is_null.filter(|_| function.definition.is_strict) {
        None => Ok(value),
        Some(is_null) => {
            let nothing = ScalarValue::try_from(&value.get_type(schema)?)?;
            when(is_null, Expr::Literal(nothing, None)).otherwise(value)
        }
    }
}

/// The rows of a call in FROM: `π NULL as c (σ "rows of f"(arguments) (one row))`.
fn rows_of_call(plan: &LogicalPlan, called: &mut Called) -> DataFusionResult<Option<LogicalPlan>> {
    let LogicalPlan::Projection(projection) = plan else {
        return Ok(None);
    };
    let LogicalPlan::Filter(filter) = projection.input.as_ref() else {
        return Ok(None);
    };
    let Expr::ScalarFunction(call) = &filter.predicate else {
        return Ok(None);
    };
    let marker = call.func.inner().downcast_ref::<CalledFunction>();
    if marker.is_none_or(|marker| marker.kind != CallKind::Rows) {
        return Ok(None);
    }
    let schema = DFSchema::empty();
    let mut call = call.clone();
    for argument in &mut call.args {
        *argument = in_expression(std::mem::take(argument), &schema, called)?.data;
    }
    let (function, arguments) = resolved(&call, &schema)?;
    note(&function, called);
    let PlannedBody::Rows(body) = &function.body else {
        return Err(Error::internal("a value in the place of rows").into());
    };
    let mut substitution = Substitution::new(&function, &arguments, &arguments);
    let rows = substitution.in_plan(LogicalPlan::clone(body))?;
    substitution.check(&function)?;
    let mut rows = LogicalPlanBuilder::from(rows);
    if function.definition.is_strict {
        let is_present = arguments.into_iter().map(Expr::is_not_null);
        if let Some(are_present) = is_present.reduce(Expr::and) {
            rows = rows.filter(are_present)?;
        }
    }
    let names = projection.schema.columns();
    let columns = rows.schema().columns().into_iter().zip(names);
    let columns: Vec<Expr> = columns
        .map(|(column, name)| Expr::Column(column).alias(name.name))
        .collect();
    rows.project(columns)?.build().map(Some)
}

/// An expression as it is written within a subquery of its level.
fn from_outside(expression: Expr, schema: &DFSchema) -> DataFusionResult<Expr> {
    let expression = expression.transform_up(|e| match e {
        Expr::Column(column) => {
            let field = Arc::clone(schema.field_from_column(&column)?);
            Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(expression.data)
}

/// Arguments for parameters.
struct Substitution<'a> {
    alias: &'a str,
    parameters: BTreeMap<String, usize>,
    /// at the body's top
    plain: &'a [Expr],
    /// within its subqueries
    outer: &'a [Expr],
    uses: Vec<usize>,
    expressions: usize,
}

impl<'a> Substitution<'a> {
    fn new(function: &'a PlannedFunction, plain: &'a [Expr], outer: &'a [Expr]) -> Self {
        let definition = &function.definition;
        let names = (0..plain.len()).map(|index| (definition.parameter_name(index), index));
        Self {
            alias: &function.alias,
            parameters: names.collect(),
            plain,
            outer,
            uses: vec![0; plain.len()],
            expressions: 0,
        }
    }

    fn parameter(&self, column: &Column) -> Option<usize> {
        let relation = column.relation.as_ref()?;
        match relation.table() == self.alias {
            true => self.parameters.get(&column.name).copied(),
            false => None,
        }
    }

    fn put(&mut self, expression: Expr) -> DataFusionResult<Transformed<Expr>> {
        self.expressions += 1;
        let (index, arguments) = match &expression {
            Expr::Column(column) => (self.parameter(column), self.plain),
            Expr::OuterReferenceColumn(_, column) => (self.parameter(column), self.outer),
            _ => (None, self.plain),
        };
        let found = index.and_then(|index| Some((index, arguments.get(index)?)));
        let Some((index, argument)) = found else {
            return Ok(Transformed::no(expression));
        };
        if let Some(uses) = self.uses.get_mut(index) {
            *uses += 1;
        }
        // What an argument is made of is not the body's.
        let argument = argument.clone();
        Ok(Transformed::new(argument, true, TreeNodeRecursion::Jump))
    }

    fn in_expression(&mut self, expression: Expr) -> DataFusionResult<Expr> {
        let put = expression.transform_down(|e| {
            let subquery = |s: &mut Self, subquery: Subquery| -> DataFusionResult<Subquery> {
                let plan = Arc::unwrap_or_clone(subquery.subquery);
                Ok(subquery_of(s.in_plan(plan)?))
            };
            match e {
                Expr::ScalarSubquery(inner) => {
                    let inner = subquery(self, inner)?;
                    Ok(Transformed::yes(Expr::ScalarSubquery(inner)))
                }
                Expr::Exists(Exists {
                    subquery: inner,
                    negated,
                }) => {
                    let inner = subquery(self, inner)?;
                    Ok(Transformed::yes(Expr::Exists(Exists {
                        subquery: inner,
                        negated,
                    })))
                }
                Expr::InSubquery(within) => {
                    let inner = subquery(self, within.subquery)?;
                    Ok(Transformed::yes(Expr::InSubquery(InSubquery {
                        subquery: inner,
                        ..within
                    })))
                }
                Expr::SetComparison(compared) => {
                    let inner = subquery(self, compared.subquery)?;
                    Ok(Transformed::yes(Expr::SetComparison(SetComparison {
                        subquery: inner,
                        ..compared
                    })))
                }
                other => self.put(other),
            }
        })?;
        Ok(put.data)
    }

    /// The plan of a subquery or of a body of rows: parameters are from outside in all of it.
    fn in_plan(&mut self, plan: LogicalPlan) -> DataFusionResult<LogicalPlan> {
        let plan = plan
            .map_children(|child| Ok(Transformed::yes(self.in_plan(child)?)))?
            .data;
        let plan = with_outer_columns(plan);
        let names = NamePreserver::new(&plan);
        let plan = plan.map_expressions(|expression| {
            let name = names.save(&expression);
            let expression = self.in_expression(expression)?;
            Ok(Transformed::yes(name.restore(expression)))
        })?;
        plan.data.recompute_schema()
    }

    /// A volatile argument has one value for a call, so that it may stand in one place only; and a
    /// query has an end.
    fn check(&self, function: &PlannedFunction) -> Result<()> {
        let repeated = self.plain.iter().zip(&self.uses);
        if repeated
            .into_iter()
            .any(|(a, uses)| *uses > 1 && a.is_volatile())
        {
            return Err(Error::unsupported(format!(
                "function {} uses an argument several times that is another at each",
                function.definition.signature()
            ))
            .hint("Compute the argument in a subquery in FROM, and pass its column."));
        }
        if self.expressions > EXPRESSIONS_MAX {
            return Err(
                Error::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "statement is too complex").detail(
                    format!(
                        "Function {} with all that it calls has more than {EXPRESSIONS_MAX} expressions.",
                        function.definition.signature()
                    ),
                ),
            );
        }
        Ok(())
    }
}
