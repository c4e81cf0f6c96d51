//! SQL types, and what each is in Arrow and on the wire.
//!
//! One closed enum serves definitions (as JSON in the catalog), the planner (as Arrow fields) and
//! the server (as PostgreSQL OIDs). A type that Arrow cannot tell apart by itself (uuid, json)
//! carries its name in the field's metadata under [`TYPE_KEY`].

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Fields, IntervalUnit, TimeUnit};
use serde::{Deserialize, Serialize};

/// Field metadata key that names a SQL type Arrow has no type of its own for.
pub const TYPE_KEY: &str = "tidemill.type";

/// Precision and scale of `NUMERIC` written without any.
pub const DEFAULT_NUMERIC: (u8, i8) = (38, 9);

/// A column's SQL type.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SqlType {
    /// `boolean`
    Boolean,
    /// `smallint`
    SmallInt,
    /// `integer`
    Integer,
    /// `bigint`
    BigInt,
    /// `real`
    Real,
    /// `double precision`
    Double,
    /// `numeric(precision, scale)`, precision up to 38
    Numeric {
        /// digits in all
        precision: u8,
        /// digits after the point
        scale: i8,
    },
    /// `text` and `varchar`
    Text,
    /// `bytea`
    Bytea,
    /// `date`
    Date,
    /// `time`, microseconds
    Time,
    /// `timestamp without time zone`, microseconds
    Timestamp,
    /// `timestamp with time zone`, microseconds, UTC
    TimestampTz,
    /// `interval`
    Interval,
    /// `uuid`
    Uuid,
    /// `json`, its text kept
    Json,
    /// `jsonb`, held as text; compared as text
    Jsonb,
    /// `type[]`
    Array(Box<SqlType>),
    /// `STRUCT<name type, …>`
    Struct(Vec<(String, SqlType)>),
}

impl SqlType {
    /// An integer, a float or a numeric.
    pub fn is_number(&self) -> bool {
        matches!(
            self,
            Self::SmallInt
                | Self::Integer
                | Self::BigInt
                | Self::Real
                | Self::Double
                | Self::Numeric { .. }
        )
    }

    /// The Arrow type that holds it.
    pub fn to_arrow(&self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::SmallInt => DataType::Int16,
            Self::Integer => DataType::Int32,
            Self::BigInt => DataType::Int64,
            Self::Real => DataType::Float32,
            Self::Double => DataType::Float64,
            Self::Numeric { precision, scale } => DataType::Decimal128(*precision, *scale),
            Self::Text | Self::Json | Self::Jsonb => DataType::Utf8,
            Self::Bytea => DataType::Binary,
            Self::Date => DataType::Date32,
            Self::Time => DataType::Time64(TimeUnit::Microsecond),
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC"))),
            Self::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            Self::Uuid => DataType::FixedSizeBinary(16),
            Self::Array(item) => DataType::List(Arc::new(item.to_field("item", true))),
            Self::Struct(fields) => DataType::Struct(
                fields
                    .iter()
                    .map(|(name, t)| t.to_field(name, true))
                    .collect::<Fields>(),
            ),
        }
    }

    /// An Arrow field of this type, with the metadata that tells it apart.
    pub fn to_field(&self, name: &str, nullable: bool) -> Field {
        let field = Field::new(name, self.to_arrow(), nullable);
        match self.metadata_name() {
            Some(t) => field.with_metadata([(TYPE_KEY.to_owned(), t.to_owned())].into()),
            None => field,
        }
    }

    fn metadata_name(&self) -> Option<&'static str> {
        match self {
            Self::Uuid => Some("uuid"),
            Self::Json => Some("json"),
            Self::Jsonb => Some("jsonb"),
            _ => None,
        }
    }

    /// The SQL type of an Arrow field, wider where SQL has no such type (unsigned, large and view
    /// forms); `None` where SQL has nothing near it.
    pub fn from_field(field: &FieldRef) -> Option<Self> {
        match field.metadata().get(TYPE_KEY).map(String::as_str) {
            Some("uuid") => return Some(Self::Uuid),
            Some("json") => return Some(Self::Json),
            Some("jsonb") => return Some(Self::Jsonb),
            _ => {}
        }
        Self::from_arrow(field.data_type())
    }

    /// As [`Self::from_field`], from the type alone.
    pub fn from_arrow(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Boolean => Self::Boolean,
            DataType::Int8 | DataType::Int16 | DataType::UInt8 => Self::SmallInt,
            DataType::Int32 | DataType::UInt16 => Self::Integer,
            DataType::Int64 | DataType::UInt32 => Self::BigInt,
            DataType::UInt64 => Self::Numeric {
                precision: 20,
                scale: 0,
            },
            DataType::Float16 | DataType::Float32 => Self::Real,
            DataType::Float64 => Self::Double,
            DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) => {
                Self::Numeric {
                    precision: *p,
                    scale: *s,
                }
            }
            DataType::Decimal256(p, s) => Self::Numeric {
                precision: (*p).min(38),
                scale: *s,
            },
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => {
                Self::Text
            }
            DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView
            | DataType::FixedSizeBinary(_) => Self::Bytea,
            DataType::Date32 | DataType::Date64 => Self::Date,
            DataType::Time32(_) | DataType::Time64(_) => Self::Time,
            DataType::Timestamp(_, None) => Self::Timestamp,
            DataType::Timestamp(_, Some(_)) => Self::TimestampTz,
            DataType::Interval(_) | DataType::Duration(_) => Self::Interval,
            DataType::List(f) | DataType::LargeList(f) | DataType::FixedSizeList(f, _) => {
                Self::Array(Box::new(Self::from_field(f)?))
            }
            DataType::Struct(fields) => Self::Struct(
                fields
                    .iter()
                    .map(|f| Some((f.name().clone(), Self::from_field(f)?)))
                    .collect::<Option<Vec<_>>>()?,
            ),
            DataType::Dictionary(_, value) => Self::from_arrow(value)?,
            _ => return None,
        })
    }

    /// The type's OID in PostgreSQL (`pg_type.dat` of PostgreSQL 15); arrays give the array OID.
    /// A struct is sent as jsonb, since few drivers decode an anonymous record.
    pub fn pg_oid(&self) -> u32 {
        match self {
            Self::Boolean => 16,
            Self::SmallInt => 21,
            Self::Integer => 23,
            Self::BigInt => 20,
            Self::Real => 700,
            Self::Double => 701,
            Self::Numeric { .. } => 1700,
            Self::Text => 25,
            Self::Bytea => 17,
            Self::Date => 1082,
            Self::Time => 1083,
            Self::Timestamp => 1114,
            Self::TimestampTz => 1184,
            Self::Interval => 1186,
            Self::Uuid => 2950,
            Self::Json => 114,
            Self::Jsonb | Self::Struct(_) => 3802,
            Self::Array(item) => match item.as_ref() {
                Self::Boolean => 1000,
                Self::SmallInt => 1005,
                Self::Integer => 1007,
                Self::BigInt => 1016,
                Self::Real => 1021,
                Self::Double => 1022,
                Self::Numeric { .. } => 1231,
                Self::Text => 1009,
                Self::Bytea => 1001,
                Self::Date => 1182,
                Self::Time => 1183,
                Self::Timestamp => 1115,
                Self::TimestampTz => 1185,
                Self::Interval => 1187,
                Self::Uuid => 2951,
                Self::Json => 199,
                Self::Jsonb | Self::Struct(_) => 3807,
                Self::Array(_) => item.pg_oid(),
            },
        }
    }

    /// The type of a parameter that a client declared by OID; `None` for one we do not know.
    pub fn from_pg_oid(oid: u32) -> Option<Self> {
        Some(match oid {
            16 => Self::Boolean,
            21 => Self::SmallInt,
            23 => Self::Integer,
            20 | 26 => Self::BigInt,
            700 => Self::Real,
            701 => Self::Double,
            1700 => Self::Numeric {
                precision: DEFAULT_NUMERIC.0,
                scale: DEFAULT_NUMERIC.1,
            },
            18 | 19 | 25 | 1042 | 1043 => Self::Text,
            17 => Self::Bytea,
            1082 => Self::Date,
            1083 => Self::Time,
            1114 => Self::Timestamp,
            1184 => Self::TimestampTz,
            1186 => Self::Interval,
            2950 => Self::Uuid,
            114 => Self::Json,
            3802 => Self::Jsonb,
            1000 => Self::array_of(Self::Boolean),
            1005 => Self::array_of(Self::SmallInt),
            1007 => Self::array_of(Self::Integer),
            1016 => Self::array_of(Self::BigInt),
            1021 => Self::array_of(Self::Real),
            1022 => Self::array_of(Self::Double),
            1002 | 1003 | 1009 | 1014 | 1015 => Self::array_of(Self::Text),
            1231 => Self::array_of(Self::Numeric {
                precision: DEFAULT_NUMERIC.0,
                scale: DEFAULT_NUMERIC.1,
            }),
            1001 => Self::array_of(Self::Bytea),
            1183 => Self::array_of(Self::Time),
            1187 => Self::array_of(Self::Interval),
            199 => Self::array_of(Self::Json),
            3807 => Self::array_of(Self::Jsonb),
            1115 => Self::array_of(Self::Timestamp),
            1182 => Self::array_of(Self::Date),
            1185 => Self::array_of(Self::TimestampTz),
            2951 => Self::array_of(Self::Uuid),
            _ => return None,
        })
    }

    fn array_of(item: Self) -> Self {
        Self::Array(Box::new(item))
    }
}

/// How a text column was declared, where it was not as `text`: its limit holds for what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextType {
    /// `varchar`, `varchar(n)`
    Varchar(Option<u32>),
    /// `char(n)`; not padded
    Char(u32),
}

impl TextType {
    /// Characters that a value may have.
    pub fn limit(self) -> Option<u32> {
        match self {
            Self::Varchar(limit) => limit,
            Self::Char(limit) => Some(limit),
        }
    }

    /// The type's OID in PostgreSQL.
    pub fn pg_oid(self) -> u32 {
        match self {
            Self::Varchar(_) => 1043,
            Self::Char(_) => 1042,
        }
    }

    /// The type modifier, -1 without.
    pub fn modifier(self) -> i32 {
        let limit = self.limit().and_then(|limit| i32::try_from(limit).ok());
        limit.map_or(-1, |limit| limit.saturating_add(4))
    }

    /// What an Arrow field of such a column carries under [`TYPE_KEY`].
    pub fn metadata_name(self) -> String {
        match self {
            Self::Varchar(None) => "varchar".to_owned(),
            Self::Varchar(Some(limit)) => format!("varchar({limit})"),
            Self::Char(limit) => format!("char({limit})"),
        }
    }

    /// From [`Self::metadata_name`].
    pub fn from_metadata_name(name: &str) -> Option<Self> {
        if name == "varchar" {
            return Some(Self::Varchar(None));
        }
        let (kind, rest) = name.split_once('(')?;
        let limit = rest.strip_suffix(')')?.parse().ok()?;
        match kind {
            "varchar" => Some(Self::Varchar(Some(limit))),
            "char" => Some(Self::Char(limit)),
            _ => None,
        }
    }

    /// How the column of an Arrow field was declared.
    pub fn from_field(field: &Field) -> Option<Self> {
        let name = field.metadata().get(TYPE_KEY)?;
        Self::from_metadata_name(name)
    }
}

/// As PostgreSQL's `format_type` writes it.
impl std::fmt::Display for TextType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Varchar(None) => f.write_str("character varying"),
            Self::Varchar(Some(limit)) => write!(f, "character varying({limit})"),
            Self::Char(limit) => write!(f, "character({limit})"),
        }
    }
}

/// As PostgreSQL's `format_type` writes it.
impl std::fmt::Display for SqlType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Boolean => "boolean",
            Self::SmallInt => "smallint",
            Self::Integer => "integer",
            Self::BigInt => "bigint",
            Self::Real => "real",
            Self::Double => "double precision",
            Self::Numeric { precision, scale } => return write!(f, "numeric({precision},{scale})"),
            Self::Text => "text",
            Self::Bytea => "bytea",
            Self::Date => "date",
            Self::Time => "time without time zone",
            Self::Timestamp => "timestamp without time zone",
            Self::TimestampTz => "timestamp with time zone",
            Self::Interval => "interval",
            Self::Uuid => "uuid",
            Self::Json => "json",
            Self::Jsonb => "jsonb",
            Self::Array(item) => return write!(f, "{item}[]"),
            Self::Struct(fields) => {
                f.write_str("struct<")?;
                for (i, (name, t)) in fields.iter().enumerate() {
                    write!(f, "{}{name} {t}", if i > 0 { ", " } else { "" })?;
                }
                return f.write_str(">");
            }
        })
    }
}
