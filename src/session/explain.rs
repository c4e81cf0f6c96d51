//! `EXPLAIN` of a query: the engine's plan in PostgreSQL's forms.
//!
//! Each node ends with `(cost=0.00..… rows=… width=…)`, which tools read (`postgres_fdw` with
//! `use_remote_estimate`). They are guesses: rows are as the engine knows them, or as many as
//! PostgreSQL guesses of what it knows nothing about; costs compare plans of one server at most.

use std::sync::Arc;

use datafusion::arrow::array::{RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::display::DisplayableExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::sql::sqlparser::ast;
use futures::TryStreamExt;
use serde_json::{Value, json};

use super::parameters::plan_with_values;
use super::{Parameter, Session, StatementResult, rowset, threads};
use crate::error::{Error, Result, sqlstate};
use crate::types::SqlType;

/// Rows of what nothing is known of.
const UNKNOWN_ROWS: f64 = 1000.0;
/// What a row costs, in PostgreSQL's unit.
const ROW_COST: f64 = 0.01;
/// Bytes of a value whose type has no length.
const UNKNOWN_WIDTH: usize = 32;

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wanted {
    analyze: bool,
    costs: bool,
    json: bool,
}

impl Session {
    /// `EXPLAIN [ANALYZE]` of a query: one text column, as PostgreSQL has it.
    pub(super) async fn explain(
        &mut self,
        statement: &ast::Statement,
        parameters: &[Parameter],
    ) -> Result<StatementResult> {
        let ast::Statement::Explain {
            analyze,
            statement,
            options,
            ..
        } = statement
        else {
            return Err(Error::internal("EXPLAIN without a statement to explain"));
        };
        let wanted = wanted(*analyze, options.as_deref().unwrap_or_default())?;
        let (query, parameters) = match statement.as_ref() {
            query @ ast::Statement::Query(_) => (query.clone(), parameters.to_vec()),
            ast::Statement::Execute {
                name: Some(name),
                parameters,
                ..
            } => {
                let name = name.to_string();
                // Quoted where it must be, as PostgreSQL folds it otherwise.
                let name = match name.strip_prefix('"').and_then(|n| n.strip_suffix('"')) {
                    Some(quoted) => quoted.to_owned(),
                    None => name.to_lowercase(),
                };
                self.explained_execute(&name, parameters).await?
            }
            _ => return Err(Error::unsupported("EXPLAIN takes a query or EXECUTE")),
        };
        let state = self.planning_state();
        let plan = plan_with_values(&state, query, &parameters).await?;
        let physical = threads::physical_plan(&state, &plan).await?;
        if wanted.analyze {
            let rows = threads::start_plan(&state, physical.clone())?;
            rows.try_for_each(|_| async { Ok(()) }).await?;
        }
        let lines = match wanted.json {
            true => {
                let plan = json!([{ "Plan": tree(&physical, wanted) }]);
                vec![format!("{plan:#}")]
            }
            false => {
                let mut lines = Vec::new();
                write_lines(&physical, wanted, 0, &mut lines);
                lines
            }
        };
        let lines = StringArray::from(lines);
        let batch = RecordBatch::try_new(schema_of(wanted), vec![Arc::new(lines)])?;
        Ok(rowset::one_batch(batch, "EXPLAIN", false))
    }
}

/// The one column of an EXPLAIN.
pub(super) fn columns(statement: &ast::Statement) -> Result<SchemaRef> {
    let ast::Statement::Explain {
        analyze, options, ..
    } = statement
    else {
        return Err(Error::internal("EXPLAIN without a statement to explain"));
    };
    let options = options.as_deref().unwrap_or_default();
    Ok(schema_of(wanted(*analyze, options)?))
}

fn schema_of(wanted: Wanted) -> SchemaRef {
    let sql_type = match wanted.json {
        true => SqlType::Json,
        false => SqlType::Text,
    };
    Arc::new(Schema::new(vec![sql_type.to_field("QUERY PLAN", true)]))
}

/// The options in parentheses; those that show more of PostgreSQL's own have no effect.
fn wanted(analyze: bool, options: &[ast::UtilityOption]) -> Result<Wanted> {
    let mut wanted = Wanted {
        analyze,
        costs: true,
        json: false,
    };
    for option in options {
        let name = option.name.value.to_lowercase();
        let value = option.arg.as_ref().map(|v| v.to_string().to_lowercase());
        let value = value.as_deref().map(|v| v.trim_matches('\''));
        match name.as_str() {
            "analyze" => wanted.analyze = flag(&name, value)?,
            "costs" => wanted.costs = flag(&name, value)?,
            "verbose" | "buffers" | "settings" | "timing" | "summary" | "wal" | "generic_plan" => {
                flag(&name, value)?;
            }
            "format" => match value {
                Some("text") => wanted.json = false,
                Some("json") => wanted.json = true,
                _ => {
                    return Err(Error::unsupported("EXPLAIN gives FORMAT TEXT or JSON"));
                }
            },
            _ => {
                return Err(Error::new(
                    sqlstate::SYNTAX_ERROR,
                    format!("unrecognized EXPLAIN option \"{name}\""),
                ));
            }
        }
    }
    Ok(wanted)
}

fn flag(name: &str, value: Option<&str>) -> Result<bool> {
    match value {
        None | Some("true" | "on" | "1") => Ok(true),
        Some("false" | "off" | "0") => Ok(false),
        Some(_) => Err(Error::new(
            sqlstate::SYNTAX_ERROR,
            format!("{name} requires a Boolean value"),
        )),
    }
}

/// What a node is expected to take.
struct Estimate {
    cost: f64,
    rows: f64,
    width: usize,
}

fn estimate(plan: &Arc<dyn ExecutionPlan>) -> Estimate {
    let inputs: Vec<Estimate> = plan.children().into_iter().map(estimate).collect();
    let known = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
    let known = known.ok().and_then(|s| s.num_rows.get_value().copied());
    let largest = inputs.iter().map(|input| input.rows).reduce(f64::max);
    let rows = known.map_or_else(|| largest.unwrap_or(UNKNOWN_ROWS), |rows| rows as f64);
    let below: f64 = inputs.iter().map(|input| input.cost).sum();
    let schema = plan.schema();
    let widths = schema.fields().iter().map(|f| width(f.data_type()));
    Estimate {
        cost: below + rows.max(1.0) * ROW_COST,
        rows,
        width: widths.sum(),
    }
}

fn width(data_type: &DataType) -> usize {
    match data_type {
        DataType::Boolean => 1,
        other => other.primitive_width().unwrap_or(UNKNOWN_WIDTH),
    }
}

/// A node by itself.
fn described(plan: &Arc<dyn ExecutionPlan>, wanted: Wanted) -> String {
    let displayed = match wanted.analyze {
        true => DisplayableExecutionPlan::with_metrics(plan.as_ref()),
        false => DisplayableExecutionPlan::new(plan.as_ref()),
    };
    displayed.one_line().to_string().trim_end().to_owned()
}

fn write_lines(plan: &Arc<dyn ExecutionPlan>, wanted: Wanted, depth: usize, out: &mut Vec<String>) {
    let mut line = format!(
        "{:indent$}{}",
        "",
        described(plan, wanted),
        indent = depth * 2
    );
    if wanted.costs {
        let Estimate { cost, rows, width } = estimate(plan);
        line.push_str(&format!(
            "  (cost=0.00..{cost:.2} rows={rows:.0} width={width})"
        ));
    }
    out.push(line);
    for input in plan.children() {
        write_lines(input, wanted, depth + 1, out);
    }
}

fn tree(plan: &Arc<dyn ExecutionPlan>, wanted: Wanted) -> Value {
    let mut node = json!({
        "Node Type": plan.name().trim_end_matches("Exec"),
        "Detail": described(plan, wanted),
    });
    if wanted.costs {
        let Estimate { cost, rows, width } = estimate(plan);
        let hundredths = |cost: f64| (cost * 100.0).round() / 100.0;
        node["Startup Cost"] = json!(0.0);
        node["Total Cost"] = json!(hundredths(cost));
        node["Plan Rows"] = json!(rows.round() as u64);
        node["Plan Width"] = json!(width);
    }
    let inputs = plan.children();
    if !inputs.is_empty() {
        let inputs = inputs.into_iter().map(|input| tree(input, wanted));
        node["Plans"] = inputs.collect();
    }
    node
}
