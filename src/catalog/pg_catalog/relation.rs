//! A catalog relation: its columns from a specification, its rows as values by column name.
//!
//! Rows are made when a statement reads the relation, so that each statement sees the catalog of
//! its moment; they are few. Columns that a row does not set are NULL in views and, in tables,
//! the zero of their type, as PostgreSQL declares nearly all of them NOT NULL.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::types::IntervalMonthDayNano;
use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array,
    IntervalMonthDayNanoArray, ListArray, RecordBatch, RecordBatchOptions, StringArray,
    TimestampMicrosecondArray,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::error::{DataFusionError, Result as PlanResult};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use crate::error::Result;
use crate::types::{SqlType, TYPE_KEY};

/// A value of a catalog row.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Datum {
    /// NULL
    Null,
    /// bool
    Bool(bool),
    /// any integer, oid, xid
    Int(i64),
    /// real, double precision
    Float(f64),
    /// text, name, "char", regproc
    Text(String),
    /// microseconds since the epoch
    Time(i64),
    /// interval of this many microseconds
    Interval(i64),
    /// array of integers
    Ints(Vec<i64>),
    /// array of texts
    Texts(Vec<String>),
}

impl From<bool> for Datum {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for Datum {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u32> for Datum {
    fn from(value: u32) -> Self {
        Self::Int(value.into())
    }
}

impl From<i32> for Datum {
    fn from(value: i32) -> Self {
        Self::Int(value.into())
    }
}

impl From<f64> for Datum {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for Datum {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Datum {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<i64>> for Datum {
    fn from(value: Vec<i64>) -> Self {
        Self::Ints(value)
    }
}

impl From<Vec<String>> for Datum {
    fn from(value: Vec<String>) -> Self {
        Self::Texts(value)
    }
}

impl<T: Into<Datum>> From<Option<T>> for Datum {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A row: values by column name; the others have their defaults.
pub(super) type Row = HashMap<&'static str, Datum>;

/// A row of `(column, value)` pairs.
macro_rules! row {
    ($($column:ident: $value:expr),* $(,)?) => {{
        let mut row = $crate::catalog::pg_catalog::relation::Row::new();
        $(row.insert(
            stringify!($column),
            $crate::catalog::pg_catalog::relation::Datum::from($value),
        );)*
        row
    }};
}
pub(super) use row;

/// Columns of a relation.
#[derive(Debug, Clone)]
pub(super) struct Specification {
    /// PostgreSQL's OID of it
    pub oid: i64,
    /// name
    pub name: String,
    /// `r` or `v`
    pub kind: char,
    /// (name, catalog type)
    pub columns: Vec<(String, String)>,
}

impl Specification {
    /// From a line of the specification text.
    pub fn parse(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let mut word = || {
            words
                .next()
                .expect("a specification names oid, name and kind")
        };
        let oid = word().parse().expect("a specification starts with an oid");
        let name = word().to_owned();
        let kind = word().chars().next().expect("a kind is one character");
        let mut columns: Vec<(String, String)> = words
            .map(|column| {
                let (name, catalog_type) = column.split_once(':').expect("a column is name:type");
                (name.to_owned(), catalog_type.to_owned())
            })
            .collect();
        if kind == 'r' {
            columns.push(("xmin".to_owned(), "xid".to_owned()));
            columns.push(("tableoid".to_owned(), "oid".to_owned()));
        }
        Self {
            oid,
            name,
            kind,
            columns,
        }
    }

    /// Arrow schema; the catalog types are named in the fields' metadata.
    pub fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(
            self.columns
                .iter()
                .map(|(name, catalog_type)| field(name, catalog_type))
                .collect::<Vec<_>>(),
        ))
    }

    /// The rows in columns.
    pub fn batch(&self, rows: &[Row]) -> PlanResult<RecordBatch> {
        let schema = self.schema();
        let mut columns = Vec::with_capacity(self.columns.len());
        for (at, (name, catalog_type)) in self.columns.iter().enumerate() {
            let unset = match name.as_str() {
                "xmin" if self.kind == 'r' => Datum::Int(1),
                "tableoid" if self.kind == 'r' => Datum::Int(self.oid),
                _ => self.unset(catalog_type),
            };
            let values = rows
                .iter()
                .map(|row| row.get(name.as_str()).unwrap_or(&unset));
            columns.push(array(values, schema.field(at)));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }

    fn unset(&self, catalog_type: &str) -> Datum {
        match catalog_type {
            _ if self.kind != 'r' => Datum::Null,
            "bool" => Datum::Bool(false),
            "oid" | "xid" | "int2" | "int4" | "int8" => Datum::Int(0),
            "float4" | "float8" => Datum::Float(0.0),
            "name" | "char" => Datum::Text(String::new()),
            "regproc" => Datum::Text("-".to_owned()),
            "int2vector" | "oidvector" => Datum::Ints(Vec::new()),
            _ => Datum::Null,
        }
    }
}

/// OID in `pg_type` of a catalog type's name.
pub(super) fn catalog_type_oid(catalog_type: &str) -> i64 {
    match catalog_type {
        "oid" => 26,
        "xid" => 28,
        "name" => 19,
        "char" => 18,
        "regproc" => 24,
        "bool" => 16,
        "int2" => 21,
        "int4" => 23,
        "int8" => 20,
        "float4" => 700,
        "float8" => 701,
        "timestamptz" => 1184,
        "interval" => 1186,
        "int2vector" => 22,
        "oidvector" => 30,
        "oid[]" => 1028,
        "int2[]" => 1005,
        "text[]" => 1009,
        "name[]" => 1003,
        "char[]" => 1002,
        "float4[]" => 1021,
        "float8[]" => 1022,
        "bool[]" => 1000,
        _ => 25,
    }
}

pub(super) fn field(name: &str, catalog_type: &str) -> Field {
    let list = |item: DataType| DataType::List(Arc::new(Field::new("item", item, true)));
    let data_type = match catalog_type {
        "bool" => DataType::Boolean,
        "oid" | "xid" | "int8" => DataType::Int64,
        "int2" => DataType::Int16,
        "int4" => DataType::Int32,
        "float4" => DataType::Float32,
        "float8" => DataType::Float64,
        "timestamptz" => SqlType::TimestampTz.to_arrow(),
        "interval" => SqlType::Interval.to_arrow(),
        "oid[]" | "oidvector" => list(DataType::Int64),
        "int2[]" | "int2vector" => list(DataType::Int16),
        "text[]" | "name[]" | "char[]" => list(DataType::Utf8),
        "bool[]" => list(DataType::Boolean),
        "float4[]" => list(DataType::Float32),
        "float8[]" => list(DataType::Float64),
        _ => DataType::Utf8,
    };
    let field = Field::new(name, data_type, true);
    match catalog_type {
        "oid" | "xid" | "name" | "char" | "regproc" | "int2vector" | "oidvector" | "oid[]"
        | "name[]" => field.with_metadata([(TYPE_KEY.to_owned(), catalog_type.to_owned())].into()),
        _ => field,
    }
}

fn int(datum: &Datum) -> Option<i64> {
    match datum {
        Datum::Int(value) => Some(*value),
        Datum::Bool(value) => Some(i64::from(*value)),
        _ => None,
    }
}

fn float(datum: &Datum) -> Option<f64> {
    match datum {
        Datum::Float(value) => Some(*value),
        other => int(other).map(|value| value as f64),
    }
}

fn text(datum: &Datum) -> Option<&str> {
    match datum {
        Datum::Text(value) => Some(value),
        _ => None,
    }
}

/// An array of a field's type; values that do not fit it are NULL.
pub(super) fn array<'a>(values: impl Iterator<Item = &'a Datum>, field: &Field) -> ArrayRef {
    match field.data_type() {
        DataType::Boolean => Arc::new(BooleanArray::from_iter(values.map(|value| match value {
            Datum::Bool(value) => Some(*value),
            // Of an array.
            Datum::Int(value) => Some(*value != 0),
            _ => None,
        }))),
        DataType::Int16 => Arc::new(Int16Array::from_iter(
            values.map(|value| int(value).and_then(|n| i16::try_from(n).ok())),
        )),
        DataType::Int32 => Arc::new(Int32Array::from_iter(
            values.map(|value| int(value).and_then(|n| i32::try_from(n).ok())),
        )),
        DataType::Int64 => Arc::new(Int64Array::from_iter(values.map(int))),
        DataType::Float32 => Arc::new(Float32Array::from_iter(
            values.map(|value| float(value).map(|f| f as f32)),
        )),
        DataType::Float64 => Arc::new(Float64Array::from_iter(values.map(float))),
        DataType::Timestamp(..) => Arc::new(
            TimestampMicrosecondArray::from_iter(values.map(|value| match value {
                Datum::Time(us) => Some(*us),
                _ => None,
            }))
            .with_data_type(field.data_type().clone()),
        ),
        DataType::Interval(_) => Arc::new(IntervalMonthDayNanoArray::from_iter(values.map(
            |value| match value {
                Datum::Interval(us) => Some(IntervalMonthDayNano::new(0, 0, us * 1000)),
                _ => None,
            },
        ))),
        DataType::List(item) => list_array(values, item),
        _ => Arc::new(StringArray::from_iter(values.map(text))),
    }
}

fn list_array<'a>(values: impl Iterator<Item = &'a Datum>, item: &FieldRef) -> ArrayRef {
    let (mut lengths, mut valid, mut items) = (Vec::new(), Vec::new(), Vec::new());
    for value in values {
        let before = items.len();
        match value {
            Datum::Ints(ints) => items.extend(ints.iter().map(|n| Datum::Int(*n))),
            Datum::Texts(texts) => items.extend(texts.iter().cloned().map(Datum::Text)),
            _ => {}
        }
        valid.push(matches!(value, Datum::Ints(_) | Datum::Texts(_)));
        lengths.push(items.len() - before);
    }
    Arc::new(ListArray::new(
        item.clone(),
        OffsetBuffer::from_lengths(lengths),
        array(items.iter(), item),
        Some(NullBuffer::from(valid)),
    ))
}

/// Makes a relation's rows at the moment of a scan.
pub(super) type MakeRows = Arc<dyn Fn() -> Result<Vec<Row>> + Send + Sync>;

/// A relation as the engine's planner sees it.
pub(super) struct CatalogRelation {
    specification: Specification,
    schema: SchemaRef,
    rows: MakeRows,
}

impl CatalogRelation {
    /// A relation of that shape.
    pub fn new(specification: Specification, rows: MakeRows) -> Self {
        Self {
            schema: specification.schema(),
            specification,
            rows,
        }
    }
}

impl fmt::Debug for CatalogRelation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CatalogRelation({})", self.specification.name)
    }
}

#[async_trait]
impl TableProvider for CatalogRelation {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        match self.specification.kind {
            'r' => TableType::Base,
            _ => TableType::View,
        }
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let rows = (self.rows)().map_err(|e| DataFusionError::External(Box::new(e)))?;
        let batch = self.specification.batch(&rows)?;
        let plan = MemorySourceConfig::try_new_exec(
            &[vec![batch]],
            self.schema.clone(),
            projection.cloned(),
        )?;
        Ok(plan)
    }
}
