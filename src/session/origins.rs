//! Which column of which relation a result's column is: what RowDescription tells of it.
//!
//! Drivers look up names, keys and nullability by it, and tools decide by it whether rows can be
//! edited. It is read off the plan before views are put in, so that a view's column is the view's, as
//! in PostgreSQL; expressions and set operations are of no relation. It goes along as metadata of the
//! result's fields, which no operator sees.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::TableReference;
use datafusion::execution::SessionState;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan};

use super::scope::StatementScope;
use crate::catalog::snapshot::CatalogSnapshot;
use crate::sql::context::SCHEMA;

/// Key of a field's metadata: `OID:number of the column`.
pub(crate) const ORIGIN_KEY: &str = "tidemill.origin";

/// The schema, its fields marked with where the columns of `plan` come from.
pub(super) fn marked(schema: SchemaRef, plan: &LogicalPlan, state: &SessionState) -> SchemaRef {
    let Some(scope) = state.config().get_extension::<StatementScope>() else {
        return schema;
    };
    if plan.schema().fields().len() != schema.fields().len() {
        return schema;
    }
    let catalog = scope.catalog();
    let fields: Vec<_> = schema
        .fields()
        .iter()
        .enumerate()
        .map(|(index, field)| {
            let found =
                origin(plan, index).and_then(|(table, name)| number(&catalog, &table, &name));
            let Some((oid, column)) = found else {
                return field.clone();
            };
            let mut metadata = field.metadata().clone();
            metadata.insert(ORIGIN_KEY.to_owned(), format!("{oid}:{column}"));
            Arc::new(field.as_ref().clone().with_metadata(metadata))
        })
        .collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// OID and column number of what a field is marked with; zeros where it is not.
pub(crate) fn of(field: &datafusion::arrow::datatypes::Field) -> (i32, i16) {
    let parsed = field.metadata().get(ORIGIN_KEY).and_then(|text| {
        let (oid, column) = text.split_once(':')?;
        // The wire's numbers have no sign.
        Some((oid.parse::<u32>().ok()?.cast_signed(), column.parse().ok()?))
    });
    parsed.unwrap_or_default()
}

fn number(catalog: &CatalogSnapshot, table: &TableReference, name: &str) -> Option<(u32, usize)> {
    if table.schema().is_some_and(|schema| schema != SCHEMA) {
        return None;
    }
    let object = catalog.object(table.table())?;
    let at = object.columns().iter().position(|c| c.name == name)?;
    Some((object.oid, at + 1))
}

/// The relation and column that an output column of a plan only hands on.
fn origin(plan: &LogicalPlan, index: usize) -> Option<(TableReference, String)> {
    match plan {
        LogicalPlan::Projection(projection) => {
            handed_on(projection.expr.get(index)?, &projection.input)
        }
        LogicalPlan::SubqueryAlias(alias) => origin(&alias.input, index),
        LogicalPlan::Filter(filter) => origin(&filter.input, index),
        LogicalPlan::Sort(sort) => origin(&sort.input, index),
        LogicalPlan::Limit(limit) => origin(&limit.input, index),
        LogicalPlan::Distinct(Distinct::All(input)) => origin(input, index),
        LogicalPlan::Distinct(Distinct::On(on)) => handed_on(on.select_expr.get(index)?, &on.input),
        LogicalPlan::Window(window) if index < window.input.schema().fields().len() => {
            origin(&window.input, index)
        }
        LogicalPlan::Aggregate(aggregate) => {
            handed_on(aggregate.group_expr.get(index)?, &aggregate.input)
        }
        LogicalPlan::Join(join) => {
            let left = join.left.schema().fields().len();
            match index.checked_sub(left) {
                None => origin(&join.left, index),
                Some(index) => origin(&join.right, index),
            }
        }
        LogicalPlan::TableScan(scan) => {
            let field = scan.projected_schema.fields().get(index)?;
            Some((scan.table_name.clone(), field.name().clone()))
        }
        _ => None,
    }
}

fn handed_on(expression: &Expr, input: &LogicalPlan) -> Option<(TableReference, String)> {
    match expression {
        Expr::Alias(alias) => handed_on(&alias.expr, input),
        Expr::Column(column) => origin(input, input.schema().maybe_index_of_column(column)?),
        _ => None,
    }
}
