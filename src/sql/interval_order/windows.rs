//! `min` and `max` of intervals over windows: of their keys.

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result as DataFusionResult};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Window};

use super::{is_interval, key_of, of_key};

/// The window with such functions over keys, and a projection that makes intervals of them.
pub(super) fn window(window: Window) -> DataFusionResult<Transformed<LogicalPlan>> {
    let schema = Arc::clone(window.input.schema());
    let mut are_keys = Vec::with_capacity(window.window_expr.len());
    let mut functions = window.window_expr.clone();
    for function in &mut functions {
        are_keys.push(into_keys(function, &schema));
    }
    if !are_keys.contains(&true) {
        return Ok(Transformed::no(LogicalPlan::Window(window)));
    }
    let new = Window::try_new(functions, Arc::clone(&window.input))?;
    let first = schema.fields().len();
    let outputs = window.schema.iter().enumerate().map(|(place, named)| {
        let column = Expr::Column(Column::from(new.schema.qualified_field(place)));
        let value = match place.checked_sub(first).map(|at| are_keys[at]) {
            Some(true) => of_key(column),
            _ => column,
        };
        let (qualifier, field) = named;
        value.alias_qualified(qualifier.cloned(), field.name())
    });
    let outputs: Vec<Expr> = outputs.collect();
    let plan = LogicalPlanBuilder::from(LogicalPlan::Window(new))
        .project(outputs)?
        .build()?;
    Ok(Transformed::yes(plan))
}

fn into_keys(function: &mut Expr, schema: &datafusion::common::DFSchema) -> bool {
    match function {
        Expr::Alias(alias) => into_keys(&mut alias.expr, schema),
        Expr::WindowFunction(function) => {
            let is_extreme = matches!(function.fun.name(), "min" | "max");
            match function.params.args.as_mut_slice() {
                [argument] if is_extreme && is_interval(argument, schema) => {
                    *argument = key_of(std::mem::take(argument));
                    true
                }
                _ => false,
            }
        }
        _ => false,
    }
}
