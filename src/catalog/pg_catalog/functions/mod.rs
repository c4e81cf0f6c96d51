//! PostgreSQL's functions over the catalog and the session.
//!
//! A [`Definition`] names a function's argument lists and result as PostgreSQL types and holds a
//! body over plain values; one [`CatalogFunction`] makes an engine function of it. They are called
//! on a few rows of catalog queries, so that a value at a time is fast enough. Absent: pure
//! functions of text and numbers that views may use; the SQL module has those.

mod keywords;
mod locks;
mod names;
mod privileges;
mod procedures;
mod session;
mod shape;
mod sizes;
mod sleep;

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::ScalarValue;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility,
};

use super::model::{Catalog, OWNER_OID, PG_CATALOG_OID};
use super::relation::{self, Datum, Row, row};
use super::types::TYPES;
use crate::error::Result;
use crate::types::SqlType;

/// First OID of the functions in `pg_proc`.
const FUNCTION_OID: i64 = 14_000;

/// A function's body: arguments in the order of the call.
type Body = fn(&Catalog, &[Datum]) -> Result<Datum>;

/// A function as PostgreSQL declares it.
#[derive(Clone, Copy)]
struct Definition {
    name: &'static str,
    /// Argument lists, types separated by blanks. Beyond the catalog's types: `any` (its type's
    /// name is passed), `array` (its number of elements is passed).
    overloads: &'static [&'static str],
    returns: &'static str,
    volatility: Volatility,
    /// A NULL argument does not make the result NULL.
    takes_null: bool,
    body: Body,
}

impl Definition {
    /// A function whose result stays the same within a statement, NULL on NULL.
    const fn new(
        name: &'static str,
        overloads: &'static [&'static str],
        returns: &'static str,
        body: Body,
    ) -> Self {
        Self {
            name,
            overloads,
            returns,
            volatility: Volatility::Stable,
            takes_null: false,
            body,
        }
    }

    const fn volatile(mut self) -> Self {
        self.volatility = Volatility::Volatile;
        self
    }

    const fn with_null(mut self) -> Self {
        self.takes_null = true;
        self
    }
}

fn definitions() -> impl Iterator<Item = &'static Definition> {
    [
        keywords::FUNCTIONS,
        names::FUNCTIONS,
        shape::FUNCTIONS,
        session::FUNCTIONS,
        privileges::FUNCTIONS,
        sizes::FUNCTIONS,
    ]
    .into_iter()
    .flatten()
}

/// All functions over a catalog.
pub(super) fn all(catalog: &Arc<Catalog>) -> Vec<ScalarUDF> {
    let mut functions: Vec<ScalarUDF> = definitions()
        .map(|definition| {
            ScalarUDF::new_from_impl(CatalogFunction::new(*definition, catalog.clone()))
        })
        .collect();
    functions.push(sleep::function());
    functions.extend(locks::functions(catalog));
    functions
}

pub(super) use procedures::aggregates;

/// The rows of `pg_proc`: these functions, and the user's.
pub(super) fn procedures(catalog: &Catalog) -> Vec<Row> {
    let mut rows = procedures::rows(catalog);
    let users = rows.len();
    for definition in definitions() {
        for arguments in definition.overloads {
            let types: Vec<i64> = arguments.split_whitespace().map(argument_oid).collect();
            rows.push(row! {
                oid: FUNCTION_OID + (rows.len() - users) as i64,
                proname: definition.name,
                pronamespace: PG_CATALOG_OID,
                proowner: OWNER_OID,
                prolang: 12,
                procost: 1.0,
                prokind: "f",
                proisstrict: !definition.takes_null,
                provolatile: match definition.volatility {
                    Volatility::Immutable => "i",
                    Volatility::Stable => "s",
                    Volatility::Volatile => "v",
                },
                proparallel: "s",
                pronargs: types.len() as i64,
                prorettype: argument_oid(definition.returns),
                proargtypes: types,
                prosrc: definition.name,
            });
        }
    }
    for name in type_functions() {
        rows.push(row! {
            oid: FUNCTION_OID + (rows.len() - users) as i64,
            proname: name,
            pronamespace: PG_CATALOG_OID,
            proowner: OWNER_OID,
            prolang: 12,
            procost: 1.0,
            prokind: "f",
            proisstrict: true,
            provolatile: "i",
            proparallel: "s",
            pronargs: 1,
            prorettype: 2281,
            proargtypes: vec![2281],
            prosrc: name,
        });
    }
    debug_assert!(catalog.types.iter().any(|t| t.oid == 26));
    rows
}

/// What reads and writes values of types, which drivers look up by name.
fn type_functions() -> BTreeSet<&'static str> {
    let rows = TYPES.lines();
    let names = rows.flat_map(|row| row.split(' ').skip(10).take(4));
    names.filter(|name| *name != "-").collect()
}

fn argument_oid(catalog_type: &str) -> i64 {
    match catalog_type {
        "any" => 2276,
        "array" => 2277,
        other => relation::catalog_type_oid(other),
    }
}

/// A definition as the engine calls it.
struct CatalogFunction {
    definition: Definition,
    catalog: Arc<Catalog>,
    signature: Signature,
}

impl CatalogFunction {
    fn new(definition: Definition, catalog: Arc<Catalog>) -> Self {
        let mut counts: Vec<usize> = definition
            .overloads
            .iter()
            .map(|arguments| arguments.split_whitespace().count())
            .collect();
        counts.sort_unstable();
        counts.dedup();
        let takes_texts = is_of_texts(&definition);
        let signatures = counts
            .into_iter()
            .map(|count| match count {
                0 => TypeSignature::Nullary,
                _ if takes_texts => TypeSignature::UserDefined,
                count => TypeSignature::Any(count),
            })
            .collect();
        Self {
            signature: Signature::one_of(signatures, definition.volatility),
            definition,
            catalog,
        }
    }

    /// The argument list for a call: the first of that length.
    fn overload(&self, count: usize) -> Vec<&'static str> {
        self.definition
            .overloads
            .iter()
            .map(|arguments| arguments.split_whitespace().collect::<Vec<_>>())
            .find(|arguments| arguments.len() == count)
            .unwrap_or_default()
    }

    fn field(&self) -> Field {
        relation::field(self.definition.name, self.definition.returns)
    }

    fn call(&self, arguments: &[Datum]) -> PlanResult<Datum> {
        if !self.definition.takes_null && arguments.contains(&Datum::Null) {
            return Ok(Datum::Null);
        }
        (self.definition.body)(&self.catalog, arguments)
            .map_err(|e| DataFusionError::External(Box::new(e)))
    }
}

impl std::fmt::Debug for CatalogFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CatalogFunction({})", self.definition.name)
    }
}

impl PartialEq for CatalogFunction {
    fn eq(&self, other: &Self) -> bool {
        self.definition.name == other.definition.name && Arc::ptr_eq(&self.catalog, &other.catalog)
    }
}

impl Eq for CatalogFunction {}

impl Hash for CatalogFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.definition.name.hash(state);
    }
}

/// Whether all arguments are texts, which any value has.
fn is_of_texts(definition: &Definition) -> bool {
    let mut kinds = definition
        .overloads
        .iter()
        .flat_map(|o| o.split_whitespace());
    kinds.clone().next().is_some() && kinds.all(|kind| kind == "text")
}

impl ScalarUDFImpl for CatalogFunction {
    fn name(&self) -> &str {
        self.definition.name
    }

    /// Asked of functions of texts only: what is none is cast to one.
    fn coerce_types(&self, types: &[DataType]) -> PlanResult<Vec<DataType>> {
        match self.overload(types.len()).len() == types.len() {
            true => Ok(vec![DataType::Utf8; types.len()]),
            false => Err(datafusion::error::DataFusionError::Plan(format!(
                "function {} does not exist",
                self.definition.name
            ))),
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> PlanResult<DataType> {
        Ok(self.field().data_type().clone())
    }

    fn return_field_from_args(&self, _arguments: ReturnFieldArgs<'_>) -> PlanResult<FieldRef> {
        Ok(Arc::new(self.field()))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> PlanResult<ColumnarValue> {
        let kinds = self.overload(args.args.len());
        let constant = args
            .args
            .iter()
            .all(|a| matches!(a, ColumnarValue::Scalar(_)));
        // A volatile function without arguments is called for every row.
        let once = constant && self.definition.volatility != Volatility::Volatile;
        let rows = if once { 1 } else { args.number_rows };
        let mut columns = Vec::with_capacity(kinds.len());
        for ((value, field), kind) in args.args.iter().zip(&args.arg_fields).zip(&kinds) {
            columns.push(arguments(
                &self.catalog,
                &value.to_array(rows)?,
                field,
                kind,
            )?);
        }
        let mut results = Vec::with_capacity(rows);
        for row in 0..rows {
            let arguments: Vec<Datum> = columns.iter().map(|column| column[row].clone()).collect();
            results.push(self.call(&arguments)?);
        }
        let array = relation::array(results.iter(), &self.field());
        match once {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(
                &array, 0,
            )?)),
            false => Ok(ColumnarValue::Array(array)),
        }
    }
}

/// A type's name without the digits of a numeric.
fn bare_name(sql_type: &SqlType) -> String {
    match sql_type {
        SqlType::Numeric { .. } => "numeric".to_owned(),
        SqlType::Array(item) => format!("{}[]", bare_name(item)),
        other => other.to_string(),
    }
}

/// An argument's values as a function of that kind takes them.
fn arguments(
    catalog: &Catalog,
    array: &ArrayRef,
    field: &FieldRef,
    kind: &str,
) -> PlanResult<Vec<Datum>> {
    let rows = array.len();
    match kind {
        "any" => {
            let name = SqlType::from_field(field).map(|sql_type| bare_name(&sql_type));
            let name = name.unwrap_or_else(|| "unknown".to_owned());
            Ok(vec![Datum::Text(name); rows])
        }
        "array" => array_lengths(array),
        "text[]" => text_arrays(array),
        "oidvector" => oid_arrays(array),
        "bool" => {
            let values = cast(array, &DataType::Boolean)?;
            Ok(values.as_boolean().iter().map(Datum::from).collect())
        }
        "oid" if is_text(array.data_type()) => {
            let values = cast(array, &DataType::Utf8)?;
            let names = values.as_string::<i32>().iter();
            Ok(names
                .map(|name| name.map_or(Datum::Null, |name| named_oid(catalog, name)))
                .collect())
        }
        "oid" | "xid" | "int2" | "int4" | "int8" => {
            let values = cast(array, &DataType::Int64)?;
            let values = values.as_primitive::<Int64Type>().iter();
            Ok(values.map(Datum::from).collect())
        }
        "float8" => {
            let values = cast(array, &DataType::Float64)?;
            let values = values
                .as_primitive::<datafusion::arrow::datatypes::Float64Type>()
                .iter();
            Ok(values.map(Datum::from).collect())
        }
        _ => {
            let values = cast(array, &DataType::Utf8)?;
            Ok(values.as_string::<i32>().iter().map(Datum::from).collect())
        }
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

/// A text where an object's number is wanted: digits, or a relation's name (as `regclass`).
fn named_oid(catalog: &Catalog, name: &str) -> Datum {
    match name.trim().parse::<i64>() {
        Ok(oid) => Datum::Int(oid),
        Err(_) => catalog.relation_named(name).map(|r| r.oid).into(),
    }
}

fn text_arrays(array: &ArrayRef) -> PlanResult<Vec<Datum>> {
    let DataType::List(_) = array.data_type() else {
        return Ok(vec![Datum::Null; array.len()]);
    };
    let lists = array.as_list::<i32>();
    (0..lists.len())
        .map(|row| {
            if lists.is_null(row) {
                return Ok(Datum::Null);
            }
            let items = cast(&lists.value(row), &DataType::Utf8)?;
            let items = items.as_string::<i32>().iter().flatten();
            Ok(Datum::Texts(items.map(str::to_owned).collect()))
        })
        .collect()
}

fn oid_arrays(array: &ArrayRef) -> PlanResult<Vec<Datum>> {
    let DataType::List(_) = array.data_type() else {
        return Ok(vec![Datum::Null; array.len()]);
    };
    let lists = array.as_list::<i32>();
    (0..lists.len())
        .map(|row| {
            if lists.is_null(row) {
                return Ok(Datum::Null);
            }
            let items = cast(&lists.value(row), &DataType::Int64)?;
            let items = items.as_primitive::<Int64Type>().iter().flatten();
            Ok(Datum::Ints(items.collect()))
        })
        .collect()
}

fn array_lengths(array: &ArrayRef) -> PlanResult<Vec<Datum>> {
    let DataType::List(_) = array.data_type() else {
        return Ok(vec![Datum::Null; array.len()]);
    };
    let lists = array.as_list::<i32>();
    Ok((0..lists.len())
        .map(|row| match lists.is_null(row) {
            true => Datum::Null,
            false => Datum::Int(lists.value_length(row).into()),
        })
        .collect())
}

// What bodies take their arguments with ----------------------------------------------------------

fn int(arguments: &[Datum], at: usize) -> i64 {
    match arguments.get(at) {
        Some(Datum::Int(value)) => *value,
        _ => 0,
    }
}

fn text(arguments: &[Datum], at: usize) -> &str {
    match arguments.get(at) {
        Some(Datum::Text(value)) => value,
        _ => "",
    }
}

fn flag(arguments: &[Datum], at: usize) -> bool {
    matches!(arguments.get(at), Some(Datum::Bool(true)))
}
