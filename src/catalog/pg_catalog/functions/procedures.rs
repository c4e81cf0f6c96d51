//! The user's functions in SQL, as `pg_proc` has them.

use std::sync::Arc;

use super::super::model::{Catalog, PUBLIC_OID};
use super::super::relation::{Datum, Row, row};
use crate::catalog::access::ObjectKey;
use crate::catalog::function::{FunctionDefinition, FunctionResult, FunctionVolatility};

/// `sql` in `pg_language`.
const LANGUAGE_SQL_OID: i64 = 14;

/// `record` in `pg_type`.
const RECORD_OID: i64 = 2249;

/// A function by its identifier.
pub(super) fn by_oid(catalog: &Catalog, oid: i64) -> Option<Arc<FunctionDefinition>> {
    let functions = catalog.model.functions();
    functions.into_iter().find(|f| i64::from(f.oid) == oid)
}

/// The rows of the user's functions.
pub(super) fn rows(catalog: &Catalog) -> Vec<Row> {
    catalog
        .model
        .functions()
        .iter()
        .map(|f| row_of(catalog, f))
        .collect()
}

fn row_of(catalog: &Catalog, function: &FunctionDefinition) -> Row {
    let parameters = &function.parameters;
    let types: Vec<i64> = parameters
        .iter()
        .map(|p| i64::from(p.sql_type.pg_oid()))
        .collect();
    let (result, gives_rows) = match &function.result {
        FunctionResult::Value(sql_type) => (i64::from(sql_type.pg_oid()), false),
        FunctionResult::Set(sql_type) => (i64::from(sql_type.pg_oid()), true),
        FunctionResult::Table(columns) => match columns.as_slice() {
            [only] => (i64::from(only.sql_type.pg_oid()), true),
            _ => (RECORD_OID, true),
        },
    };
    row! {
        oid: i64::from(function.oid),
        proname: function.name.clone(),
        pronamespace: PUBLIC_OID,
        proowner: catalog.owner_of(&ObjectKey::Function(function.oid)),
        prolang: LANGUAGE_SQL_OID,
        procost: 100.0,
        prorows: if gives_rows { 1000.0 } else { 0.0 },
        prokind: if function.is_aggregate() { "a" } else { "f" },
        prosecdef: false,
        proleakproof: false,
        proisstrict: function.is_strict,
        proretset: gives_rows,
        provolatile: match function.volatility {
            FunctionVolatility::Immutable => "i",
            FunctionVolatility::Stable => "s",
            FunctionVolatility::Volatile => "v",
        },
        proparallel: "u",
        pronargs: types.len() as i64,
        pronargdefaults: function.defaults_count() as i64,
        prorettype: result,
        proargtypes: types,
        proargnames: argument_names(function),
        prosrc: function.source_text(),
        prosqlbody: function.return_text(),
    }
}

/// The rows of `pg_aggregate`.
pub(in super::super) fn aggregates(catalog: &Catalog) -> Vec<Row> {
    let functions = catalog.model.functions();
    let row_of = |function: &Arc<FunctionDefinition>| {
        let body = function.aggregate()?;
        Some(row! {
            aggfnoid: function.name.as_str(),
            aggkind: "n",
            aggnumdirectargs: 0,
            aggtransfn: body.transition.as_str(),
            aggfinalfn: body.last.as_deref().unwrap_or("-"),
            aggfinalextra: false,
            aggmfinalextra: false,
            aggfinalmodify: "r",
            aggmfinalmodify: "r",
            aggtranstype: i64::from(body.state.pg_oid()),
            agginitval: body.initial.clone(),
        })
    };
    functions.iter().filter_map(row_of).collect()
}

/// NULL where no parameter has a name.
fn argument_names(function: &FunctionDefinition) -> Datum {
    let has_names = function.parameters.iter().any(|p| p.name.is_some());
    if !has_names {
        return Datum::Null;
    }
    let names = function.parameters.iter();
    Datum::Texts(names.map(|p| p.name.clone().unwrap_or_default()).collect())
}
