//! What a `files` sink finds in its folder: columns of the newest file there, held against its own.
//!
//! ```text
//!   target         view           merge_schema = false    true
//!   a  b           a  b           goes on                 goes on
//!   a  b           a  b  c        stops, shows both       files have c from now on
//!   a  b           a              stops, shows both       stops: nothing new is to be taken in
//!   a bigint       a text         stops, shows both       stops: no reader takes one for the other
//! ```
//!
//! A folder has no schema but that of its files: readers find columns by their names (Parquet, JSON, CSV
//! with a header) or by their places (CSV without), and those that an older file lacks are NULL. So a
//! new column needs no file written again, and by places it must be the last. Types are those that a
//! Parquet file says; of JSON and CSV only the names, or the number, are held against each other.

use std::io::Read;

use datafusion::arrow::datatypes::SchemaRef;

use super::files::blocking;
use crate::connectors::files::location::{FileEntry, Location};
use crate::connectors::formats::csv::{CsvDecoder, record_length};
use crate::connectors::formats::{Format, encode, parquet};
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;
use crate::types::SqlType;

/// Bytes of a file of lines in which its first line must end to be known.
const FIRST_LINE_BYTES_MAX: u64 = 1 << 20;

/// A column, with its type where that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    name: String,
    sql_type: Option<SqlType>,
}

/// The columns of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Columns {
    /// found by their names
    Named(Vec<Known>),
    /// found by their places: so many
    Placed(usize),
}

/// How two sets of columns stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Same,
    /// The sink has all of the target's, and more.
    Adds,
    /// Merging does not help; why, as a sentence.
    Differs(&'static str),
}

/// Holds the sink's columns against those of its target, before it first delivers.
pub(super) async fn check(
    sink: &str,
    location: &Location,
    format: &Format,
    schema: &SchemaRef,
    merges: bool,
) -> Result<()> {
    let Some(newest) = newest_file(location, format).await? else {
        return Ok(());
    };
    let (place, of, entry) = (location.clone(), format.clone(), newest.clone());
    let Some(target) = blocking(move || columns_of(&place, &of, &entry)).await? else {
        return Ok(());
    };
    match (verdict(&target, schema), merges) {
        (Verdict::Same, _) | (Verdict::Adds, true) => Ok(()),
        (verdict, _) => Err(differs(sink, &newest.path, &target, schema, verdict)),
    }
}

/// The newest data file of the format; none where the folder is not there yet.
async fn newest_file(location: &Location, format: &Format) -> Result<Option<FileEntry>> {
    if let Location::Local { root, .. } = location
        && !root.exists()
    {
        return Ok(None);
    }
    let ending = format!(".{}", extension(format));
    let listing = location.list().await?.into_iter();
    let files = listing.filter(|entry| entry.size > 0 && entry.path.ends_with(&ending));
    Ok(files.max_by(|a, b| (a.modified_at_us, &a.path).cmp(&(b.modified_at_us, &b.path))))
}

/// The ending of files of a format.
pub(super) fn extension(format: &Format) -> &'static str {
    match format {
        Format::Json => "json",
        Format::Csv(_) => "csv",
        _ => "parquet",
    }
}

/// What a file says of its columns; `None`: it cannot be told, and is not this sink's to judge.
fn columns_of(location: &Location, format: &Format, entry: &FileEntry) -> Result<Option<Columns>> {
    let failed = |e: &std::io::Error| super::files::could_not_write(&entry.path, e);
    let file = location.open(entry).map_err(|e| failed(&e))?;
    if *format == Format::Parquet {
        let Ok(fields) = parquet::columns_of(file, &entry.path) else {
            return Ok(None);
        };
        let known = fields.iter().map(|field| Known {
            name: field.name().clone(),
            sql_type: SqlType::from_field(field),
        });
        return Ok(Some(Columns::Named(known.collect())));
    }
    let mut beginning = Vec::new();
    let mut reader = file.reader(0).take(FIRST_LINE_BYTES_MAX.min(entry.size));
    reader.read_to_end(&mut beginning).map_err(|e| failed(&e))?;
    Ok(columns_of_line(format, &beginning))
}

fn columns_of_line(format: &Format, beginning: &[u8]) -> Option<Columns> {
    let named = |names: Vec<String>| {
        let known = |name| Known {
            name,
            sql_type: None,
        };
        Columns::Named(names.into_iter().map(known).collect())
    };
    match format {
        Format::Csv(style) => {
            let length = record_length(beginning, style.quote)?;
            let fields = CsvDecoder::fields_of(&beginning[..length], style).ok()?;
            Some(match style.header {
                true => named(fields),
                false => Columns::Placed(fields.len()),
            })
        }
        Format::Json => {
            let line = beginning.split(|byte| *byte == b'\n').next()?;
            let record: serde_json::Map<String, serde_json::Value> =
                serde_json::from_slice(line).ok()?;
            Some(named(record.into_iter().map(|(name, _)| name).collect()))
        }
        _ => None,
    }
}

fn verdict(target: &Columns, schema: &SchemaRef) -> Verdict {
    let own = schema.fields();
    let target = match target {
        Columns::Placed(fields) if *fields > own.len() => {
            return Verdict::Differs("The target has columns that the sink does not deliver.");
        }
        Columns::Placed(fields) if *fields < own.len() => return Verdict::Adds,
        Columns::Placed(_) => return Verdict::Same,
        Columns::Named(target) => target,
    };
    for known in target {
        let Some(field) = own.iter().find(|field| *field.name() == known.name) else {
            return Verdict::Differs("The target has columns that the sink does not deliver.");
        };
        let delivered = SqlType::from_field(&encode::stored_field(field));
        if known.sql_type.is_some() && delivered.is_some() && known.sql_type != delivered {
            return Verdict::Differs("A column of the target has another type.");
        }
    }
    match target.len() < own.len() {
        true => Verdict::Adds,
        false => Verdict::Same,
    }
}

fn differs(
    sink: &str,
    file: &str,
    target: &Columns,
    schema: &SchemaRef,
    verdict: Verdict,
) -> Error {
    let of_target = match target {
        Columns::Placed(fields) => format!("{fields} columns without names"),
        Columns::Named(columns) => listed(columns),
    };
    let own: Vec<Known> = schema
        .fields()
        .iter()
        .map(|field| Known {
            name: field.name().clone(),
            sql_type: SqlType::from_field(field),
        })
        .collect();
    let why = match verdict {
        Verdict::Differs(why) => format!(" {why}"),
        Verdict::Same | Verdict::Adds => String::new(),
    };
    let hint = match verdict {
        Verdict::Differs(_) => format!(
            "Deliver into another folder: DROP SINK {}, then create it with another location.",
            quote_identifier(sink)
        ),
        Verdict::Same | Verdict::Adds => format!(
            "To take the new columns into the target: ALTER SINK {} SET (merge_schema = true);",
            quote_identifier(sink)
        ),
    };
    Error::new(
        sqlstate::DATATYPE_MISMATCH,
        "the target has other columns than are delivered",
    )
    .detail(format!(
        "The target has, in \"{file}\": {of_target}. The sink delivers: {}.{why}",
        listed(&own)
    ))
    .hint(hint)
}

fn listed(columns: &[Known]) -> String {
    let shown = columns.iter().map(|column| match &column.sql_type {
        Some(sql_type) => format!("{} {sql_type}", column.name),
        None => column.name.clone(),
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::datatypes::Schema;

    use super::*;
    use crate::connectors::formats::csv::CsvStyle;

    fn schema(columns: &[(&str, SqlType)]) -> SchemaRef {
        let fields = columns.iter().map(|(name, t)| t.to_field(name, true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    fn named(columns: &[(&str, Option<SqlType>)]) -> Columns {
        let known = columns.iter().map(|(name, sql_type)| Known {
            name: (*name).to_owned(),
            sql_type: sql_type.clone(),
        });
        Columns::Named(known.collect())
    }

    #[test]
    fn only_further_columns_can_be_merged() {
        use SqlType::{BigInt, Text};
        let own = schema(&[("a", BigInt), ("b", Text)]);
        let a = ("a", Some(BigInt));
        let verdicts = [
            (named(&[a.clone(), ("b", Some(Text))]), Verdict::Same),
            (named(&[("b", None), ("a", None)]), Verdict::Same),
            (named(std::slice::from_ref(&a)), Verdict::Adds),
            (Columns::Placed(2), Verdict::Same),
            (Columns::Placed(1), Verdict::Adds),
        ];
        for (target, expected) in verdicts {
            assert_eq!(verdict(&target, &own), expected, "{target:?}");
        }
        let refused = [
            named(&[a.clone(), ("c", None)]),
            named(&[("a", Some(Text)), ("b", Some(Text))]),
            Columns::Placed(3),
        ];
        for target in refused {
            assert!(matches!(verdict(&target, &own), Verdict::Differs(_)));
        }
        let intervals = schema(&[("i", SqlType::Interval)]);
        let stored = named(&[("i", Some(Text))]);
        assert_eq!(verdict(&stored, &intervals), Verdict::Same);
        let error = differs("out", "out/1.parquet", &named(&[a]), &own, Verdict::Adds);
        let detail = error.detail_text().unwrap();
        assert!(
            detail.contains("a bigint. The sink delivers: a bigint, b text."),
            "{detail}"
        );
        assert!(error.hint_text().unwrap().contains("merge_schema = true"));
    }

    #[test]
    fn a_file_of_lines_says_its_columns_in_its_first_line() {
        let csv = |header| {
            Format::Csv(CsvStyle {
                header,
                ..CsvStyle::default()
            })
        };
        let of = |format: &Format, text: &str| columns_of_line(format, text.as_bytes());
        let named = named(&[("a", None), ("b c", None)]);
        assert_eq!(of(&csv(true), "a,\"b c\"\n1,2\n"), Some(named.clone()));
        assert_eq!(of(&csv(false), "1,\"x\ny\"\n"), Some(Columns::Placed(2)));
        assert_eq!(of(&csv(true), "a,b"), None);
        assert_eq!(
            of(&Format::Json, "{\"a\": 1, \"b c\": null}\nx"),
            Some(named)
        );
        assert_eq!(of(&Format::Json, "{\"a\""), None);
    }
}
