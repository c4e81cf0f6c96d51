//! What records look like, whatever their stream declares: fields, types, and which columns cannot be read.
//!
//! For people who compare schemas. A type is the narrowest that holds all values that were seen.

use datafusion::arrow::datatypes::{FieldRef, Fields};
use serde_json::Value;

use super::column::Refusal;
use super::csv::CsvDecoder;
use super::letter::row_decoder;
use super::values::{EpochUnit, date, timestamp_us};
use super::{Format, FormatOptions, RecordDecoder};
use crate::error::Result;
use crate::types::SqlType;

/// A field of a source.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// Its name; in records without names, its place from 1 on.
    pub name: String,
    /// What its values are; `None`: all of them were null.
    pub sql_type: Option<SqlType>,
    /// Records that have it.
    pub seen: u64,
}

/// Records as they came, with the header of those that have one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    /// Names of the fields, as the source writes them.
    pub header: Option<Vec<u8>>,
    /// Records; of Parquet files their rows as JSON objects.
    pub records: Vec<Vec<u8>>,
    /// What files say themselves of their columns.
    pub columns: Vec<Observed>,
}

impl Sample {
    /// The columns of one more file, which has so many of the records.
    pub fn add_columns(&mut self, fields: &Fields, rows: u64) {
        for field in fields {
            let sql_type = SqlType::from_field(field).or(Some(SqlType::Jsonb));
            let known = self
                .columns
                .iter_mut()
                .find(|known| known.name == *field.name());
            match known {
                Some(known) => {
                    known.seen += rows;
                    known.sql_type = widened(known.sql_type.take(), sql_type);
                }
                None => self.columns.push(Observed {
                    name: field.name().clone(),
                    sql_type,
                    seen: rows,
                }),
            }
        }
    }
}

/// The fields of records, in the order in which they were first seen. Records that are none are left out.
pub fn observe(format: &FormatOptions, sample: &Sample) -> Vec<Observed> {
    let mut fields: Vec<Observed> = Vec::new();
    let mut see = |name: &str, sql_type: Option<SqlType>| match fields
        .iter_mut()
        .find(|field| field.name == name)
    {
        Some(field) => {
            field.seen += 1;
            field.sql_type = widened(field.sql_type.take(), sql_type);
        }
        None => fields.push(Observed {
            name: name.to_owned(),
            sql_type,
            seen: 1,
        }),
    };
    match &format.format {
        Format::Json => {
            for record in &sample.records {
                if let Ok(Value::Object(members)) = serde_json::from_slice(record) {
                    members
                        .iter()
                        .for_each(|(name, value)| see(name, type_of_value(value)));
                }
            }
        }
        Format::Csv(style) => {
            let names = sample.header.as_ref();
            let names = names.and_then(|header| CsvDecoder::fields_of(header, style).ok());
            for record in &sample.records {
                let Ok(values) = CsvDecoder::fields_of(record, style) else {
                    continue;
                };
                for (index, value) in values.iter().enumerate() {
                    let place = (index + 1).to_string();
                    let name = names.as_ref().and_then(|names| names.get(index));
                    let is_null = *value == style.null;
                    let sql_type = (!is_null).then(|| type_of_text(value));
                    see(name.map_or(&place, |name| name), sql_type);
                }
            }
        }
        Format::Parquet => fields.clone_from(&sample.columns),
        Format::Text | Format::Raw => {}
    }
    fields
}

/// Records that cannot be read into one column, whatever the others say, and why the first cannot.
pub fn refusals(
    format: &FormatOptions,
    payload: &Fields,
    column: usize,
    sample: &Sample,
) -> Result<(u64, Option<Refusal>)> {
    let alone = |(index, field): (usize, &FieldRef)| -> FieldRef {
        let is_nullable = index != column || field.is_nullable();
        field.as_ref().clone().with_nullable(is_nullable).into()
    };
    let payload: Fields = payload.iter().enumerate().map(alone).collect();
    let mut decoder = match &format.format {
        Format::Parquet => row_decoder(format, &payload, &[column])?,
        _ => RecordDecoder::new(format, &payload, &[column])?,
    };
    if let (RecordDecoder::Csv(csv), Some(header)) = (&mut decoder, &sample.header)
        && let Err(reason) = csv.header(header)
    {
        return Ok((sample.records.len() as u64, Some(reason)));
    }
    let mut refused = 0;
    let mut first = None;
    for record in &sample.records {
        if let Err(reason) = decoder.push(record) {
            refused += 1;
            first.get_or_insert(reason);
        }
    }
    Ok((refused, first))
}

fn type_of_value(value: &Value) -> Option<SqlType> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(_) => SqlType::Boolean,
        Value::Number(number) if number.is_i64() => SqlType::BigInt,
        Value::Number(_) => SqlType::Double,
        Value::String(text) => type_of_moment(text).unwrap_or(SqlType::Text),
        Value::Array(_) | Value::Object(_) => SqlType::Jsonb,
    })
}

fn type_of_text(text: &str) -> SqlType {
    if text.parse::<i64>().is_ok() {
        return SqlType::BigInt;
    }
    if text.parse::<f64>().is_ok_and(f64::is_finite) {
        return SqlType::Double;
    }
    match text {
        "true" | "false" => SqlType::Boolean,
        _ => type_of_moment(text).unwrap_or(SqlType::Text),
    }
}

fn type_of_moment(text: &str) -> Option<SqlType> {
    if !text.contains('-') {
        return None;
    }
    if date(text).is_some() && text.len() <= "2024-01-01".len() {
        return Some(SqlType::Date);
    }
    timestamp_us(text, EpochUnit::Auto).map(|_| SqlType::TimestampTz)
}

/// The narrowest type that holds both.
fn widened(one: Option<SqlType>, other: Option<SqlType>) -> Option<SqlType> {
    use SqlType::{BigInt, Date, Double, Jsonb, Text, TimestampTz};
    Some(match (one?, other) {
        (one, None) => one,
        (one, Some(other)) if one == other => one,
        (BigInt | Double, Some(BigInt | Double)) => Double,
        (Date | TimestampTz, Some(Date | TimestampTz)) => TimestampTz,
        (Jsonb, _) | (_, Some(Jsonb)) => Jsonb,
        _ => Text,
    })
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::Field;

    use super::*;
    use crate::connectors::formats::csv::CsvStyle;

    fn sample(header: Option<&str>, records: &[&str]) -> Sample {
        Sample {
            header: header.map(|header| header.as_bytes().to_vec()),
            records: records.iter().map(|r| r.as_bytes().to_vec()).collect(),
            columns: Vec::new(),
        }
    }

    fn options(format: Format) -> FormatOptions {
        FormatOptions::of(format, EpochUnit::Auto)
    }

    fn types(fields: &[Observed]) -> Vec<(&str, Option<String>, u64)> {
        let of = |f: &SqlType| f.to_string();
        fields
            .iter()
            .map(|f| (f.name.as_str(), f.sql_type.as_ref().map(of), f.seen))
            .collect()
    }

    #[test]
    fn fields_of_json_have_the_narrowest_type_that_holds_their_values() {
        let json = options(Format::Json);
        let sample = sample(
            None,
            &[
                r#"{"a": 1, "b": "x", "c": null, "at": "2024-01-01T00:00:00Z"}"#,
                r#"{"a": 1.5, "b": 2, "at": "2024-01-02"}"#,
                "no record",
            ],
        );
        let fields = observe(&json, &sample);
        let expected = [
            ("a", Some("double precision".to_owned()), 2),
            ("b", Some("text".to_owned()), 2),
            ("c", None, 1),
            ("at", Some("timestamp with time zone".to_owned()), 2),
        ];
        assert_eq!(types(&fields), expected);
    }

    #[test]
    fn fields_of_csv_have_the_names_of_the_header_or_their_places() {
        let style = CsvStyle {
            header: true,
            ..CsvStyle::default()
        };
        let csv = options(Format::Csv(style));
        let named = observe(&csv, &sample(Some("k,note"), &["1,\"a,b\"", "2,x"]));
        let expected = [
            ("k", Some("bigint".to_owned()), 2),
            ("note", Some("text".to_owned()), 2),
        ];
        assert_eq!(types(&named), expected);
        let plain = options(Format::Csv(CsvStyle::default()));
        let placed = observe(&plain, &sample(None, &["1,true"]));
        let expected = [
            ("1", Some("bigint".to_owned()), 1),
            ("2", Some("boolean".to_owned()), 1),
        ];
        assert_eq!(types(&placed), expected);
    }

    #[test]
    fn a_column_is_refused_for_itself_alone() {
        let payload: Fields = vec![
            SqlType::BigInt.to_field("a", false),
            SqlType::Boolean.to_field("b", true),
        ]
        .into_iter()
        .collect::<Vec<Field>>()
        .into();
        let json = options(Format::Json);
        let sample = sample(None, &[r#"{"a": 1, "b": 7.5}"#, r#"{"b": true}"#]);
        let of = |column| refusals(&json, &payload, column, &sample).unwrap();
        assert_eq!(of(0).0, 1, "the second record has no a");
        let (refused, why) = of(1);
        assert_eq!(refused, 1, "{why:?}");
        assert!(why.unwrap().contains('b'));
    }
}
