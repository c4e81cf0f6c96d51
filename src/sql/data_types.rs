//! Names of types: sqlparser's trees to [`SqlType`], and the planner's hook for casts.
//!
//! DataFusion would read `TIMESTAMP` as nanoseconds and `NUMERIC` with a scale of 10; here every
//! type in a query means the same as in a `CREATE` statement.

use std::sync::Arc;

use datafusion::arrow::datatypes::FieldRef;
use datafusion::error::Result as DataFusionResult;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, ObjectName, TimezoneInfo,
};

use crate::error::{Error, Result, sqlstate};
use crate::sql::names;
use crate::types::{DEFAULT_NUMERIC, SqlType, TextType};

/// The SQL type that a tree names. Lengths of texts are told by [`text_type`]; fractional digits of
/// times are accepted and not enforced: times have microseconds.
pub fn sql_type(data_type: &DataType) -> Result<SqlType> {
    Ok(match data_type {
        DataType::Boolean | DataType::Bool => SqlType::Boolean,
        DataType::SmallInt(_) | DataType::Int2(_) => SqlType::SmallInt,
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => SqlType::Integer,
        DataType::BigInt(_) | DataType::Int8(_) => SqlType::BigInt,
        DataType::Real | DataType::Float4 => SqlType::Real,
        DataType::Float(ExactNumberInfo::Precision(bits)) if *bits <= 24 => SqlType::Real,
        DataType::Float(_)
        | DataType::Float8
        | DataType::DoublePrecision
        | DataType::Double(ExactNumberInfo::None) => SqlType::Double,
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => numeric(info)?,
        DataType::Text
        | DataType::String(_)
        | DataType::Varchar(_)
        | DataType::CharacterVarying(_)
        | DataType::CharVarying(_)
        | DataType::Char(_)
        | DataType::Character(_) => SqlType::Text,
        DataType::Bytea => SqlType::Bytea,
        DataType::Date => SqlType::Date,
        DataType::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => SqlType::Time,
        DataType::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            SqlType::Timestamp
        }
        DataType::Timestamp(_, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => {
            SqlType::TimestampTz
        }
        DataType::Interval { .. } => SqlType::Interval,
        DataType::Uuid => SqlType::Uuid,
        DataType::JSON => SqlType::Json,
        DataType::JSONB => SqlType::Jsonb,
        DataType::Array(
            ArrayElemTypeDef::SquareBracket(item, _) | ArrayElemTypeDef::AngleBracket(item),
        ) => SqlType::Array(Box::new(sql_type(item)?)),
        DataType::Struct(fields, _) => SqlType::Struct(
            fields
                .iter()
                .map(|f| {
                    let name = f.field_name.as_ref().ok_or_else(|| unknown(data_type))?;
                    Ok((folded(name), sql_type(&f.field_type)?))
                })
                .collect::<Result<_>>()?,
        ),
        DataType::Custom(name, _) => named(&last_part(name)).ok_or_else(|| unknown(data_type))?,
        _ => return Err(unknown(data_type)),
    })
}

/// How a type of texts is declared, where it is not `text`; 22023 for a length of 0.
pub fn text_type(data_type: &DataType) -> Result<Option<TextType>> {
    let limit = |length: &Option<CharacterLength>, name: &str| match length {
        Some(CharacterLength::IntegerLength { length, .. }) => match u32::try_from(*length) {
            Ok(limit) if limit > 0 => Ok(Some(limit)),
            Ok(_) => Err(Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("length for type {name} must be at least 1"),
            )),
            Err(_) => Ok(None),
        },
        Some(CharacterLength::Max) | None => Ok(None),
    };
    Ok(match data_type {
        DataType::Varchar(length)
        | DataType::CharacterVarying(length)
        | DataType::CharVarying(length) => Some(TextType::Varchar(limit(length, "varchar")?)),
        DataType::Char(length) | DataType::Character(length) => {
            Some(TextType::Char(limit(length, "char")?.unwrap_or(1)))
        }
        _ => None,
    })
}

/// Types that sqlparser knows by no keyword, under PostgreSQL's internal names.
pub(crate) fn named(name: &str) -> Option<SqlType> {
    Some(match name {
        "bool" | "boolean" => SqlType::Boolean,
        "int2" | "smallint" => SqlType::SmallInt,
        "int4" | "int" | "integer" => SqlType::Integer,
        "int8" | "bigint" => SqlType::BigInt,
        // Identifiers of the catalog: unsigned in PostgreSQL, wide enough here.
        "oid" | "xid" | "cid" | "xid8" => SqlType::BigInt,
        "float4" | "real" => SqlType::Real,
        "float8" => SqlType::Double,
        "numeric" | "decimal" => SqlType::Numeric {
            precision: DEFAULT_NUMERIC.0,
            scale: DEFAULT_NUMERIC.1,
        },
        "text" | "varchar" | "bpchar" | "name" | "char" | "cstring" | "citext" | "character"
        | "information_schema" | "sql_identifier" | "pg_node_tree" => SqlType::Text,
        "bytea" => SqlType::Bytea,
        "date" => SqlType::Date,
        "time" => SqlType::Time,
        "timestamp" => SqlType::Timestamp,
        "timestamptz" => SqlType::TimestampTz,
        "interval" => SqlType::Interval,
        "uuid" => SqlType::Uuid,
        "json" => SqlType::Json,
        "jsonb" => SqlType::Jsonb,
        "int2vector" => SqlType::Array(Box::new(SqlType::SmallInt)),
        "oidvector" => SqlType::Array(Box::new(SqlType::BigInt)),
        _ => return named(name.strip_prefix('_')?).map(|t| SqlType::Array(Box::new(t))),
    })
}

fn numeric(info: &ExactNumberInfo) -> Result<SqlType> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => (u64::from(DEFAULT_NUMERIC.0), i64::from(DEFAULT_NUMERIC.1)),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    let invalid = |primary: String| Error::new(sqlstate::INVALID_PARAMETER_VALUE, primary);
    let digits = u8::try_from(precision)
        .ok()
        .filter(|p| (1..=38).contains(p))
        .ok_or_else(|| {
            invalid(format!(
                "NUMERIC precision {precision} must be between 1 and 38"
            ))
        })?;
    let scale_digits = i8::try_from(scale)
        .ok()
        .filter(|s| *s >= 0 && s.unsigned_abs() <= digits)
        .ok_or_else(|| {
            invalid(format!(
                "NUMERIC scale {scale} must be between 0 and precision {precision}"
            ))
        })?;
    Ok(SqlType::Numeric {
        precision: digits,
        scale: scale_digits,
    })
}

fn unknown(data_type: &DataType) -> Error {
    let name = match data_type {
        DataType::Custom(name, _) => last_part(name),
        other => other.to_string().to_lowercase(),
    };
    let error = Error::new(
        sqlstate::UNDEFINED_OBJECT,
        format!("type \"{name}\" does not exist"),
    );
    if name.ends_with("serial") {
        return error.hint("Use bigint, and give the value in INSERT.");
    }
    const KNOWN: [&str; 22] = [
        "boolean",
        "smallint",
        "integer",
        "bigint",
        "real",
        "double precision",
        "numeric",
        "text",
        "varchar",
        "bytea",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "interval",
        "uuid",
        "json",
        "jsonb",
        "int",
        "decimal",
        "bool",
        "struct",
    ];
    match names::nearest(&name, KNOWN) {
        Some(near) => error.hint(format!("Perhaps you meant the type {near}.")),
        None => error,
    }
}

/// The last part of a possibly qualified name, folded.
pub(crate) fn last_part(name: &ObjectName) -> String {
    name.0
        .last()
        .and_then(|part| part.as_ident())
        .map_or_else(|| name.to_string().to_lowercase(), folded)
}

/// An identifier's name, folded unless it was quoted.
pub(crate) fn folded(ident: &datafusion::sql::sqlparser::ast::Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => names::fold(&ident.value),
    }
}

/// DataFusion's hook: casts and typed literals mean our types.
#[derive(Debug)]
pub(crate) struct SqlTypePlanner;

impl TypePlanner for SqlTypePlanner {
    fn plan_type_field(&self, data_type: &DataType) -> DataFusionResult<Option<FieldRef>> {
        let sql_type = sql_type(data_type)?;
        Ok(Some(Arc::new(sql_type.to_field("", true))))
    }
}
