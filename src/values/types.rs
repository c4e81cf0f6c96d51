//! What a result column is on the wire: OID, length, modifier, and how its values are held.
//!
//! Columns of `pg_catalog` carry names beyond [`SqlType`]'s in the field metadata (`oid`, `name`,
//! `char`, `int2vector`, `oidvector`, `xid`), so that drivers see the types they look for.

use datafusion::arrow::datatypes::{DataType, FieldRef, IntervalUnit, SchemaRef, TimeUnit};

use crate::error::{Error, Result};
use crate::types::{DEFAULT_NUMERIC, SqlType, TYPE_KEY, TextType};

/// Type of a result column on the wire.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WireType {
    /// PostgreSQL's OID
    pub oid: u32,
    /// `pg_type.typlen`
    pub size: i16,
    /// type modifier, -1 without
    pub modifier: i32,
    /// how values are written
    pub kind: Kind,
    /// the Arrow type that values are cast to
    pub held_as: DataType,
}

/// How values are written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    /// boolean
    Bool,
    /// smallint
    Int2,
    /// integer
    Int4,
    /// bigint
    Int8,
    /// 32 bits, unsigned; held as Int64
    Oid,
    /// real
    Float4,
    /// double precision
    Float8,
    /// numeric
    Numeric,
    /// text and what looks like it
    Text,
    /// bytea
    Bytea,
    /// date
    Date,
    /// time
    Time,
    /// timestamp
    Timestamp,
    /// timestamptz
    TimestampTz,
    /// interval
    Interval,
    /// uuid
    Uuid,
    /// jsonb: text behind a version byte
    Jsonb,
    /// a struct, written as a JSON object
    Struct(Vec<(String, WireType)>),
    /// a map, written as a JSON object: key, value
    Map(Box<WireType>, Box<WireType>),
    /// a union of JSON values by field name, written as JSON
    JsonUnion,
    /// array of
    Array(Box<WireType>),
    /// int2vector, oidvector: an array that starts at 0 and reads `1 2`
    Vector(Box<WireType>),
}

impl WireType {
    /// Types of all columns; 0A000 for one that has no form on the wire.
    pub fn of_schema(schema: &SchemaRef) -> Result<Vec<Self>> {
        schema.fields().iter().map(Self::of_field).collect()
    }

    /// Type of one column.
    pub fn of_field(field: &FieldRef) -> Result<Self> {
        let named = field.metadata().get(TYPE_KEY).map(String::as_str);
        let new = |oid, size, kind, held_as| Self {
            oid,
            size,
            modifier: -1,
            kind,
            held_as,
        };
        match named {
            Some("oid") => return Ok(new(26, 4, Kind::Oid, DataType::Int64)),
            Some("xid") => return Ok(new(28, 4, Kind::Oid, DataType::Int64)),
            Some("regproc") => return Ok(new(24, 4, Kind::Text, DataType::Utf8)),
            Some("name") => return Ok(new(19, 64, Kind::Text, DataType::Utf8)),
            Some("char") => return Ok(new(18, 1, Kind::Text, DataType::Utf8)),
            Some("int2vector") => return Self::vector(field, 22),
            Some("oidvector") => return Self::vector(field, 30),
            Some("oid[]") => return Self::list(field, Some(1028)),
            Some("name[]") => return Self::list(field, Some(1003)),
            _ => {}
        }
        if let Some(text_type) = TextType::from_field(field) {
            return Ok(Self {
                modifier: text_type.modifier(),
                ..new(text_type.pg_oid(), -1, Kind::Text, DataType::Utf8)
            });
        }
        match field.data_type() {
            DataType::Map(entries, _) => return Self::map(entries),
            DataType::Union(..) => {
                return Ok(new(114, -1, Kind::JsonUnion, field.data_type().clone()));
            }
            DataType::List(_)
            | DataType::LargeList(_)
            | DataType::FixedSizeList(..)
            | DataType::ListView(_)
            | DataType::LargeListView(_) => return Self::list(field, None),
            DataType::Struct(fields) => {
                let members = fields
                    .iter()
                    .map(|f| Ok((f.name().clone(), Self::of_field(f)?)))
                    .collect::<Result<Vec<_>>>()?;
                return Ok(new(
                    3802,
                    -1,
                    Kind::Struct(members),
                    field.data_type().clone(),
                ));
            }
            _ => {}
        }
        let sql_type = SqlType::from_field(field).ok_or_else(|| unsupported(field))?;
        Self::scalar(&sql_type, field)
    }

    fn scalar(sql_type: &SqlType, field: &FieldRef) -> Result<Self> {
        let (size, kind) = match sql_type {
            SqlType::Boolean => (1, Kind::Bool),
            SqlType::SmallInt => (2, Kind::Int2),
            SqlType::Integer => (4, Kind::Int4),
            SqlType::BigInt => (8, Kind::Int8),
            SqlType::Real => (4, Kind::Float4),
            SqlType::Double => (8, Kind::Float8),
            SqlType::Numeric { .. } => (-1, Kind::Numeric),
            SqlType::Text | SqlType::Json => (-1, Kind::Text),
            SqlType::Bytea => (-1, Kind::Bytea),
            SqlType::Date => (4, Kind::Date),
            SqlType::Time => (8, Kind::Time),
            SqlType::Timestamp => (8, Kind::Timestamp),
            SqlType::TimestampTz => (8, Kind::TimestampTz),
            SqlType::Interval => (16, Kind::Interval),
            SqlType::Uuid => (16, Kind::Uuid),
            SqlType::Jsonb => (-1, Kind::Jsonb),
            SqlType::Array(_) | SqlType::Struct(_) => return Err(unsupported(field)),
        };
        let held_as = match (&kind, inner_type(field.data_type())) {
            (Kind::Numeric, DataType::Decimal256(p, s)) => DataType::Decimal256(*p, *s),
            (Kind::Interval, _) => DataType::Interval(IntervalUnit::MonthDayNano),
            (Kind::TimestampTz, DataType::Timestamp(_, zone)) => {
                DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
            }
            _ => sql_type.to_arrow(),
        };
        Ok(Self {
            oid: sql_type.pg_oid(),
            size,
            modifier: modifier(sql_type),
            kind,
            held_as,
        })
    }

    fn list(field: &FieldRef, oid: Option<u32>) -> Result<Self> {
        let (DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item)) = field.data_type()
        else {
            return Err(unsupported(field));
        };
        let mut item_type = Self::of_field(item)?;
        // A catalog column names its items' type itself.
        match oid {
            Some(1028) => (item_type.oid, item_type.kind) = (26, Kind::Oid),
            Some(1003) => item_type.oid = 19,
            _ => {}
        }
        let oid = oid
            .or_else(|| array_oid(&item_type))
            .ok_or_else(|| unsupported(field))?;
        Ok(Self {
            oid,
            size: -1,
            modifier: item_type.modifier,
            held_as: DataType::List(
                item.as_ref()
                    .clone()
                    .with_data_type(item_type.held_as.clone())
                    .into(),
            ),
            kind: Kind::Array(Box::new(item_type)),
        })
    }

    fn vector(field: &FieldRef, oid: u32) -> Result<Self> {
        let mut list = Self::list(field, None)?;
        if let Kind::Array(mut item) = list.kind {
            if oid == 30 {
                (item.oid, item.kind) = (26, Kind::Oid);
            }
            list.kind = Kind::Vector(item);
        }
        list.oid = oid;
        Ok(list)
    }

    fn map(entries: &FieldRef) -> Result<Self> {
        let DataType::Struct(members) = entries.data_type() else {
            return Err(unsupported(entries));
        };
        let [key, value] = members.as_ref() else {
            return Err(unsupported(entries));
        };
        Ok(Self {
            oid: 3802,
            size: -1,
            modifier: -1,
            kind: Kind::Map(
                Box::new(Self::of_field(key)?),
                Box::new(Self::of_field(value)?),
            ),
            held_as: DataType::Map(entries.clone(), false),
        })
    }
}

fn inner_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, value) => value,
        DataType::RunEndEncoded(_, value) => value.data_type(),
        other => other,
    }
}

fn modifier(sql_type: &SqlType) -> i32 {
    match sql_type {
        SqlType::Numeric { precision, scale } if (*precision, *scale) != DEFAULT_NUMERIC => {
            (i32::from(*precision) << 16 | i32::from(*scale) & 0x7ff) + 4
        }
        _ => -1,
    }
}

/// OID of the array type over an item type; arrays of arrays have their items' array type.
fn array_oid(item: &WireType) -> Option<u32> {
    Some(match &item.kind {
        Kind::Array(_) => item.oid,
        Kind::Vector(_) => return None,
        _ => match item.oid {
            16 => 1000,
            17 => 1001,
            18 => 1002,
            19 => 1003,
            20 => 1016,
            21 => 1005,
            23 => 1007,
            24 => 1008,
            25 => 1009,
            26 => 1028,
            28 => 1011,
            114 => 199,
            700 => 1021,
            701 => 1022,
            1082 => 1182,
            1083 => 1183,
            1114 => 1115,
            1184 => 1185,
            1042 => 1014,
            1043 => 1015,
            1186 => 1187,
            1700 => 1231,
            2950 => 2951,
            3802 => 3807,
            _ => return None,
        },
    })
}

fn unsupported(field: &FieldRef) -> Error {
    Error::unsupported(format!(
        "column \"{}\" has a type that cannot be sent to a client",
        field.name()
    ))
    .hint("Cast the column to text.")
}
