//! The user's functions, aggregates among them, as `information_schema` has them.

use super::super::DATABASE_NAME;
use super::super::model::Catalog;
use super::super::relation::{Row, row};
use crate::catalog::function::{FunctionDefinition, FunctionResult, FunctionVolatility};
use crate::types::SqlType;

/// `information_schema.routines`
pub(super) fn routines(catalog: &Catalog) -> Vec<Row> {
    let functions = catalog.model.functions();
    functions.iter().map(|f| routine(catalog, f)).collect()
}

/// `information_schema.parameters`
pub(super) fn parameters(catalog: &Catalog) -> Vec<Row> {
    let functions = catalog.model.functions();
    functions
        .iter()
        .flat_map(|f| parameters_of(catalog, f))
        .collect()
}

fn specific_name(function: &FunctionDefinition) -> String {
    format!("{}_{}", function.name, function.oid)
}

/// What a type is called in these views, and its own name.
fn type_names(catalog: &Catalog, sql_type: &SqlType) -> (String, String) {
    let oid = i64::from(sql_type.pg_oid());
    let own = catalog.type_by_oid(oid).map(|t| t.name.clone());
    let shown = match sql_type {
        SqlType::Array(_) => "ARRAY".to_owned(),
        _ => catalog.format_type(oid, None),
    };
    (shown, own.unwrap_or_default())
}

fn routine(catalog: &Catalog, function: &FunctionDefinition) -> Row {
    let (data_type, own_name) = match &function.result {
        FunctionResult::Value(sql_type) | FunctionResult::Set(sql_type) => {
            type_names(catalog, sql_type)
        }
        FunctionResult::Table(columns) => match columns.as_slice() {
            [only] => type_names(catalog, &only.sql_type),
            _ => ("record".to_owned(), "record".to_owned()),
        },
    };
    row! {
        specific_catalog: DATABASE_NAME,
        specific_schema: "public",
        specific_name: specific_name(function),
        routine_catalog: DATABASE_NAME,
        routine_schema: "public",
        routine_name: function.name.as_str(),
        // PostgreSQL says nothing of aggregates here.
        routine_type: (!function.is_aggregate()).then_some("FUNCTION"),
        data_type: data_type,
        type_udt_catalog: DATABASE_NAME,
        type_udt_schema: "pg_catalog",
        type_udt_name: own_name,
        dtd_identifier: "0",
        routine_body: "SQL",
        routine_definition: function.source_text(),
        external_language: "SQL",
        parameter_style: "GENERAL",
        is_deterministic: match function.volatility {
            FunctionVolatility::Immutable => "YES",
            _ => "NO",
        },
        sql_data_access: "MODIFIES",
        is_null_call: if function.is_strict { "YES" } else { "NO" },
        schema_level_routine: "YES",
        max_dynamic_result_sets: 0,
        security_type: "INVOKER",
        as_locator: "NO",
        is_udt_dependent: "NO",
    }
}

fn parameters_of(catalog: &Catalog, function: &FunctionDefinition) -> Vec<Row> {
    let parameters = function.parameters.iter().enumerate();
    parameters
        .map(|(at, parameter)| {
            let (data_type, own_name) = type_names(catalog, &parameter.sql_type);
            row! {
                specific_catalog: DATABASE_NAME,
                specific_schema: "public",
                specific_name: specific_name(function),
                ordinal_position: at as i64 + 1,
                parameter_mode: "IN",
                is_result: "NO",
                as_locator: "NO",
                parameter_name: parameter.name.clone(),
                data_type: data_type,
                udt_catalog: DATABASE_NAME,
                udt_schema: "pg_catalog",
                udt_name: own_name,
                dtd_identifier: (at + 1).to_string(),
                parameter_default: parameter.default.clone(),
            }
        })
        .collect()
}
