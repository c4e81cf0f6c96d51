//! Types that Arrow does not tell apart (uuid, json, jsonb, the catalog's own) stay what they are in
//! CASE, `coalesce` and its like, arrays and their elements, `unnest`, aggregates and subqueries.
//!
//! Columns and most functions carry such a type in their field; the engine drops it where a value is
//! one of several. Without it a uuid is shown as bytes, and a driver is told another type.
//!
//! ```text
//! coalesce(u, v)              →  kept[uuid](coalesce(u, v))
//! array_agg(u), unnest(a)     →  a projection above: kept[uuid[]](…), kept[uuid](…)
//! ```

use std::collections::HashMap;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result as DataFusionResult};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Unnest};
use datafusion::optimizer::AnalyzerRule;

use crate::sql::functions::casts;
use crate::sql::functions::kept::{self, ARRAY};
use crate::sql::text_constants::with_new_schema;
use crate::types::TYPE_KEY;

/// Types that are kept; `varchar(n)` and its like are text wherever they are computed with.
const KEPT: [&str; 6] = ["uuid", "json", "jsonb", "oid", "name", "char"];

/// Functions that give one of their arguments.
const CHOICES: [&str; 6] = ["coalesce", "nullif", "greatest", "least", "nvl", "ifnull"];

/// Functions that give an array like the one that they take.
const OF_ARRAYS: [&str; 12] = [
    "array_append",
    "array_cat",
    "array_concat",
    "array_distinct",
    "array_prepend",
    "array_remove",
    "array_remove_all",
    "array_replace",
    "array_replace_all",
    "array_slice",
    "array_sort",
    "array_or_empty",
];

/// Aggregates and window functions that give one of their arguments' values.
const OF_VALUES: [&str; 9] = [
    "min",
    "max",
    "first_value",
    "last_value",
    "nth_value",
    "lag",
    "lead",
    "any_value",
    "only_value",
];

/// The rule.
#[derive(Debug, Default)]
pub(crate) struct KeptTypes;

impl AnalyzerRule for KeptTypes {
    fn name(&self) -> &str {
        "kept_types"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        let mut is_changed = false;
        plan.transform_up_with_subqueries(|plan| {
            let rewritten = rewrite_plan(plan)?;
            is_changed |= rewritten.transformed;
            let rewritten = match is_changed {
                true => rewritten.map_data(with_new_schema)?,
                false => rewritten,
            };
            let above = rewritten.transform_data(above)?;
            is_changed |= above.transformed;
            Ok(above)
        })
        .map(|t| t.data)
    }
}

/// What a node's own expressions choose.
fn rewrite_plan(plan: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
    let schema = merge_schema(&plan.inputs());
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expression| {
        let name = names.save(&expression);
        let rewritten = expression.transform_up(|e| {
            let is_function = matches!(
                e,
                Expr::Case(_) | Expr::ScalarFunction(_) | Expr::ScalarSubquery(_)
            );
            Ok(
                match is_function.then(|| lost_type(&e, &schema)).flatten() {
                    Some(lost) => Transformed::yes(keep(&lost, e)),
                    None => Transformed::no(e),
                },
            )
        })?;
        Ok(rewritten.update_data(|e| name.restore(e)))
    })
}

/// A projection above what cannot hold a function around its results.
fn above(plan: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
    let computed = |first: usize, results: &[Expr]| {
        let schema = merge_schema(&plan.inputs());
        let results = results.iter().enumerate();
        results
            .filter_map(|(at, result)| Some((first + at, lost_type(result, &schema)?)))
            .collect()
    };
    let width = plan.schema().fields().len();
    let lost: HashMap<usize, String> = match &plan {
        LogicalPlan::Aggregate(aggregate) => {
            computed(width - aggregate.aggr_expr.len(), &aggregate.aggr_expr)
        }
        LogicalPlan::Window(window) => {
            computed(width - window.window_expr.len(), &window.window_expr)
        }
        LogicalPlan::Unnest(unnest) => elements(unnest),
        _ => HashMap::new(),
    };
    if lost.is_empty() {
        return Ok(Transformed::no(plan));
    }
    let outputs = plan.schema().iter().enumerate();
    let outputs: Vec<Expr> = outputs
        .map(|(place, named)| {
            let column = Expr::Column(Column::from(named));
            match lost.get(&place) {
                Some(lost) => {
                    let (qualifier, field) = named;
                    keep(lost, column).alias_qualified(qualifier.cloned(), field.name())
                }
                None => column,
            }
        })
        .collect();
    let plan = LogicalPlanBuilder::from(plan).project(outputs)?.build()?;
    Ok(Transformed::yes(plan))
}

/// The places of elements whose fields do not say their types.
fn elements(unnest: &Unnest) -> HashMap<usize, String> {
    let (given, shown) = (unnest.input.schema(), &unnest.schema);
    let places = unnest.dependency_indices.iter().enumerate();
    let elements = places.filter_map(|(place, of)| {
        let mut meant = type_of_field(given.field(*of))?;
        let mut data_type = given.field(*of).data_type();
        while let DataType::List(item) = data_type
            && data_type != shown.field(place).data_type()
        {
            meant = meant.strip_suffix(ARRAY)?.to_owned();
            data_type = item.data_type();
        }
        (type_of_field(shown.field(place)).as_ref() != Some(&meant)).then_some((place, meant))
    });
    elements.collect()
}

fn keep(type_name: &str, expression: Expr) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(
        kept::kept(type_name),
        vec![expression],
    ))
}

/// The type of an expression, where its field does not say it.
fn lost_type(expression: &Expr, schema: &DFSchema) -> Option<String> {
    let meant = type_of(expression, schema)?;
    let (_, field) = expression.to_field(schema).ok()?;
    (type_of_field(&field).as_ref() != Some(&meant)).then_some(meant)
}

fn type_of(expression: &Expr, schema: &DFSchema) -> Option<String> {
    let first = |members: &[Expr]| members.iter().find_map(|m| type_of(m, schema));
    let of_call = |name: &str, args: &[Expr]| match name {
        name if CHOICES.contains(&name) || OF_VALUES.contains(&name) => {
            Some(first(args.get(..args.len().min(choices_of(name)))?))
        }
        name if OF_ARRAYS.contains(&name) => Some(first(args).filter(|t| t.ends_with(ARRAY))),
        name if name == casts::NAME => Some(first(args)),
        "make_array" | "array_agg" => Some(first(args).map(|item| item + ARRAY)),
        "array_element" => {
            let array = args.first().and_then(|a| type_of(a, schema));
            Some(array.and_then(|t| t.strip_suffix(ARRAY).map(str::to_owned)))
        }
        _ => None,
    };
    let found = match expression {
        Expr::Alias(alias) => return type_of(&alias.expr, schema),
        // Of what it casts, its field keeps the mark.
        Expr::Cast(cast) => return type_of_field(&cast.field),
        Expr::Case(case) => {
            let results = case.when_then_expr.iter().map(|(_, then)| then);
            let mut results = results.chain(case.else_expr.as_ref());
            return results.find_map(|result| type_of(result, schema));
        }
        Expr::ScalarFunction(function) => of_call(function.func.name(), &function.args),
        Expr::AggregateFunction(function) => of_call(function.func.name(), &function.params.args),
        Expr::WindowFunction(function) => of_call(function.fun.name(), &function.params.args),
        Expr::ScalarSubquery(subquery) => {
            return type_of_field(subquery.subquery.schema().fields().first()?);
        }
        _ => None,
    };
    match found {
        Some(found) => found,
        None => {
            let (_, field) = expression.to_field(schema).ok()?;
            type_of_field(&field)
        }
    }
}

/// Arguments of a function of which one is its result.
fn choices_of(name: &str) -> usize {
    match name {
        "coalesce" | "greatest" | "least" => usize::MAX,
        _ => 1,
    }
}

fn type_of_field(field: &Field) -> Option<String> {
    if let Some(name) = field.metadata().get(TYPE_KEY) {
        let scalar = name.strip_suffix(ARRAY).unwrap_or(name);
        return KEPT.contains(&scalar).then(|| name.clone());
    }
    match field.data_type() {
        DataType::List(item) => type_of_field(item).map(|item| item + ARRAY),
        _ => None,
    }
}
