//! Aggregates in SQL: their functions, compiled for the fold.
//!
//! A function is planned as a query would call it, over a relation of the state and the arguments,
//! and what is left of the plan must be an expression of these.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::SessionState;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::PhysicalExpr;

use super::functions::{plan_within, visible};
use super::planning::{self, query_statement};
use crate::catalog::function::{
    AggregateBody, FunctionDefinition, FunctionResult, bare_type, signature,
};
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::{quote_identifier, quote_literal};
use crate::sql::user_functions::{PlannedAggregate, Step};
use crate::types::SqlType;

/// The functions that an aggregate is made of.
pub(super) struct Parts {
    pub transition: Arc<FunctionDefinition>,
    pub last: Option<Arc<FunctionDefinition>>,
}

/// Finds the functions of an aggregate over arguments of these types: 42883 where there is none,
/// 42804 where one gives another type.
pub(super) fn parts(
    state: &SessionState,
    body: &AggregateBody,
    arguments: &[SqlType],
) -> Result<Parts> {
    let functions = visible(state);
    let find = |name: &str, types: &[&SqlType]| {
        let wanted = signature(name, types.iter().copied());
        let found = functions
            .iter()
            .find(|f| f.signature() == wanted && !f.is_aggregate());
        found.cloned().ok_or_else(|| {
            Error::new(
                sqlstate::UNDEFINED_FUNCTION,
                format!("function {wanted} does not exist"),
            )
            .hint(format!(
                "An aggregate is made of functions in SQL: CREATE FUNCTION {wanted} RETURNS … LANGUAGE SQL ….",
            ))
        })
    };
    let mut types = vec![&body.state];
    types.extend(arguments);
    let transition = find(&body.transition, &types)?;
    let gives_state = match &transition.result {
        FunctionResult::Value(given) => bare_type(given) == bare_type(&body.state),
        _ => false,
    };
    if !gives_state {
        return Err(Error::new(
            sqlstate::DATATYPE_MISMATCH,
            format!(
                "return type of transition function {} is not {}",
                body.transition,
                bare_type(&body.state)
            ),
        ));
    }
    let last = body.last.as_ref();
    let last = last.map(|name| find(name, &[&body.state])).transpose()?;
    if let Some(last) = &last
        && last.columns().is_some()
    {
        return Err(Error::unsupported("a final function cannot give rows"));
    }
    Ok(Parts { transition, last })
}

/// Compiles an aggregate, within the bodies of the functions `unfinished`.
pub(super) async fn planned(
    state: &SessionState,
    definition: &Arc<FunctionDefinition>,
    unfinished: &[u32],
) -> Result<PlannedAggregate> {
    let Some(body) = definition.aggregate() else {
        return Err(Error::internal("a function that is no aggregate"));
    };
    if unfinished.contains(&definition.oid) {
        return Err(Error::new(
            sqlstate::INVALID_FUNCTION_DEFINITION,
            format!("aggregate {} cannot call itself", definition.signature()),
        ));
    }
    let unfinished: Vec<u32> = unfinished.iter().copied().chain([definition.oid]).collect();
    let arguments: Vec<SqlType> = definition
        .parameters
        .iter()
        .map(|p| p.sql_type.clone())
        .collect();
    let parts = parts(state, body, &arguments)?;
    let mut compiler = Compiler {
        state,
        unfinished: &unfinished,
        volatility: Volatility::Immutable,
        calls: vec![Arc::clone(&parts.transition)],
    };
    let initial = compiler.initial(body).await?;
    let mut columns = vec![body.state.clone()];
    columns.extend(arguments);
    let transition = compiler.step(&parts.transition, &columns).await?;
    let last = match &parts.last {
        Some(last) => Some(
            compiler
                .step(last, std::slice::from_ref(&body.state))
                .await?,
        ),
        None => None,
    };
    compiler.calls.extend(parts.last);
    Ok(PlannedAggregate {
        definition: Arc::clone(definition),
        transition,
        last,
        initial,
        volatility: compiler.volatility,
        calls: compiler.calls,
    })
}

struct Compiler<'a> {
    state: &'a SessionState,
    unfinished: &'a [u32],
    volatility: Volatility,
    calls: Vec<Arc<FunctionDefinition>>,
}

impl Compiler<'_> {
    /// A call of a function over a relation of its arguments.
    async fn step(&mut self, function: &FunctionDefinition, types: &[SqlType]) -> Result<Step> {
        let names: Vec<String> = (0..types.len())
            .map(|i| format!("\"argument {i}\""))
            .collect();
        let columns = types.iter().zip(&names);
        let columns: Vec<String> = columns
            .map(|(sql_type, name)| format!("CAST(NULL AS {sql_type}) AS {name}"))
            .collect();
        let call = format!("{}({})", quote_identifier(&function.name), names.join(", "));
        let fields = types.iter().enumerate();
        let fields = fields.map(|(i, sql_type)| sql_type.to_field(&format!("argument {i}"), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let expression = self
            .expression(&call, &columns.join(", "), &schema)
            .await
            .map_err(|e| e.context(format!("function {}", function.signature())))?;
        Ok(Step {
            expression,
            schema,
            is_strict: function.is_strict,
        })
    }

    async fn expression(
        &mut self,
        call: &str,
        columns: &str,
        schema: &SchemaRef,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let text = format!("SELECT {call} AS result FROM (SELECT {columns}) AS arguments");
        let statement = query_statement(&*planning::parse_query(&text)?);
        let planned = plan_within(self.state, statement, Vec::new(), self.unfinished).await?;
        self.calls.extend(planned.called);
        let plan = planning::analyzed(self.state, planned.plan)?;
        let LogicalPlan::Projection(projection) = &plan else {
            return Err(reads_rows());
        };
        let ([result], LogicalPlan::SubqueryAlias(_)) =
            (projection.expr.as_slice(), projection.input.as_ref())
        else {
            return Err(reads_rows());
        };
        let result = result.clone().unalias();
        self.look_at(&result)?;
        let input = projection.input.schema();
        debug_assert_eq!(input.fields().len(), schema.fields().len());
        // Some functions are only names for what the optimizer puts in their place.
        let options = Arc::clone(self.state.config_options());
        let started_at = self.state.execution_props().query_execution_start_time;
        let context = SimplifyContext::builder()
            .with_schema(Arc::clone(input))
            .with_config_options(options)
            .with_query_execution_start_time(started_at)
            .build();
        let result = ExprSimplifier::new(context).simplify(result)?;
        Ok(self.state.create_physical_expr(result, input)?)
    }

    /// Whether it changes by itself, and that it reads no rows.
    fn look_at(&mut self, expression: &Expr) -> Result<()> {
        let mut reads = false;
        expression.apply(|part| {
            match part {
                Expr::ScalarFunction(call) => {
                    self.volatility = self.volatility.max(call.func.signature().volatility);
                }
                Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_) => reads = true,
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        match reads {
            true => Err(reads_rows()),
            false => Ok(()),
        }
    }

    /// The state of no rows, from its text.
    async fn initial(&mut self, body: &AggregateBody) -> Result<ScalarValue> {
        let Some(text) = &body.initial else {
            return Ok(ScalarValue::try_from(&body.state.to_arrow())?);
        };
        let value = format!("CAST({} AS {})", quote_literal(text), body.state);
        let schema = Arc::new(Schema::new(vec![
            SqlType::Integer.to_field("argument 0", true),
        ]));
        let column = "CAST(NULL AS integer) AS \"argument 0\"";
        let expression = self.expression(&value, column, &schema).await?;
        let row = datafusion::arrow::array::RecordBatch::try_new(
            schema,
            vec![ScalarValue::Int32(None).to_array()?],
        )?;
        let value = expression.evaluate(&row)?.into_array(1)?;
        Ok(ScalarValue::try_from_array(&value, 0)?)
    }
}

fn reads_rows() -> Error {
    Error::unsupported("a function of an aggregate cannot read relations or give rows")
        .hint("Its body is an expression of its parameters: RETURN expression.")
}
