//! `schema_evolution`: what fields that no column takes do to their stream.
//!
//! ```text
//!   decoder ─► per chunk: rows with such fields, rows with something rescued, new fields with a guessed type
//!                │
//!   engine  ◄────┘  none, rescue: counted    fail: the batch stops    add_new_columns: the stream gains columns,
//!                                                                     and the batch is read again under them
//! ```
//!
//! A batch is only ever committed under a definition that has a column for every new field in it, so
//! every later definition, which differs by further columns, reads the same rows from it. What becomes
//! of a batch is decided in `engine/evolving.rs`; here is what was seen, and what a column for it is.
//! Absent: fields that are null throughout. They say nothing of their type, and nothing of them is lost.

use super::formats::values::{EpochUnit, timestamp_us};
use crate::catalog::definition::{ColumnDefinition, OptionValue, Options};
use crate::types::SqlType;

/// The metadata that keeps what no column takes.
pub const RESCUED_METADATA: &str = "rescued_data";

/// The column that shows it, unless it is declared under another name.
pub const RESCUED_COLUMN: &str = "_rescued_data";

/// Different new fields that one batch tells of: those behind them are found when it is read again.
pub const NEW_FIELDS_MAX: usize = 256;

/// Columns of a relation at most, as in PostgreSQL.
pub const COLUMNS_MAX: usize = 1_600;

/// Bytes of a column's name at most, as in PostgreSQL.
const NAME_BYTES_MAX: usize = 63;

/// What fields without a column do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchemaEvolution {
    /// They are ignored, and rows that have some are counted.
    #[default]
    None,
    /// The stream gains columns for them.
    AddNewColumns,
    /// They are kept in `_rescued_data`, as are values that do not fit their columns.
    Rescue,
    /// They stop the batch.
    Fail,
}

impl SchemaEvolution {
    /// The words of the option.
    pub const WORDS: [(&'static str, Self); 4] = [
        ("none", Self::None),
        ("add_new_columns", Self::AddNewColumns),
        ("rescue", Self::Rescue),
        ("fail", Self::Fail),
    ];

    /// What a stream's options say; they were checked when they were set.
    pub fn of(options: &Options) -> Self {
        let Some(OptionValue::Text(text)) = options.get("schema_evolution") else {
            return Self::None;
        };
        let text = text.trim().replace(' ', "_");
        let mut words = Self::WORDS.into_iter();
        let word = words.find(|(word, _)| word.eq_ignore_ascii_case(&text));
        word.map_or(Self::None, |(_, evolution)| evolution)
    }

    /// Names and types of new fields are wanted.
    pub fn wants_fields(self) -> bool {
        matches!(self, Self::AddNewColumns | Self::Fail)
    }
}

/// The hidden column of a stream that rescues.
pub fn rescued_column() -> ColumnDefinition {
    ColumnDefinition {
        metadata_from: Some(RESCUED_METADATA.to_owned()),
        ..ColumnDefinition::new(RESCUED_COLUMN, SqlType::Jsonb)
    }
}

/// A column that keeps what no other takes.
pub fn keeps_rescued(column: &ColumnDefinition) -> bool {
    column.metadata_from.as_deref() == Some(RESCUED_METADATA)
}

/// A column that `*` leaves out: only who names it sees it.
pub fn is_hidden(column: &ColumnDefinition) -> bool {
    column.name == RESCUED_COLUMN && keeps_rescued(column)
}

/// A field that no column takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewField {
    /// Its name, as the source writes it.
    pub name: String,
    /// The narrowest type that surely holds all values that were seen.
    pub sql_type: SqlType,
    /// The first record that has it: `partition 3 offset 42`, `clicks/a.json line 7`.
    pub origin: String,
}

/// What was seen of fields that no column takes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnknownFields {
    /// Rows that have some.
    pub rows: u64,
    /// Rows of which something went into `_rescued_data`.
    pub rescued_rows: u64,
    /// The fields, where they are wanted.
    pub fields: Vec<NewField>,
}

impl UnknownFields {
    /// Takes in what was seen in a later part.
    pub fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.rescued_rows += other.rescued_rows;
        for field in other.fields {
            self.see(field);
        }
    }

    /// Takes in one field of a record.
    pub fn see(&mut self, field: NewField) {
        let has_room = self.fields.len() < NEW_FIELDS_MAX;
        match self.fields.iter_mut().find(|f| f.name == field.name) {
            Some(known) if known.sql_type == field.sql_type => {}
            Some(known) => known.sql_type = wider(&known.sql_type, &field.sql_type),
            None if has_room => self.fields.push(field),
            None => {}
        }
    }
}

/// The narrowest type that holds the values of both; text where there is no better one. Whole numbers beside
/// fractions become double precision, whose 15 digits are what readers of JSON expect of a number.
pub fn wider(one: &SqlType, other: &SqlType) -> SqlType {
    use SqlType::{Json, Jsonb, Text, Timestamp, TimestampTz};
    if one == other {
        return one.clone();
    }
    match (one, other) {
        (Json | Jsonb, _) | (_, Json | Jsonb) => Jsonb,
        (Timestamp | TimestampTz, Timestamp | TimestampTz) => TimestampTz,
        _ => match (number_rank(one), number_rank(other)) {
            (Some(_), Some(rank)) if rank >= REAL_RANK => SqlType::Double,
            (Some(rank), Some(_)) if rank >= REAL_RANK => SqlType::Double,
            (Some(a), Some(b)) if a > b => one.clone(),
            (Some(_), Some(_)) => other.clone(),
            _ => Text,
        },
    }
}

/// From here on numbers have fractions, and of two different ones only the widest holds both.
const REAL_RANK: u8 = 3;

fn number_rank(sql_type: &SqlType) -> Option<u8> {
    Some(match sql_type {
        SqlType::SmallInt => 0,
        SqlType::Integer => 1,
        SqlType::BigInt => 2,
        SqlType::Real => REAL_RANK,
        SqlType::Double => 4,
        _ => return None,
    })
}

/// The type that the JSON value `raw` surely is of; `None`: null, which says nothing.
pub fn type_of_json(raw: &str) -> Option<SqlType> {
    Some(match raw.as_bytes().first()? {
        b'n' => return None,
        b't' | b'f' => SqlType::Boolean,
        b'[' | b'{' => SqlType::Jsonb,
        b'"' => type_of_moment(raw.trim_matches('"')),
        // A whole number that is too large is kept to its last digit.
        _ if !raw.bytes().any(|b| matches!(b, b'.' | b'e' | b'E')) => match raw.parse::<i64>() {
            Ok(_) => SqlType::BigInt,
            Err(_) => SqlType::Text,
        },
        _ => SqlType::Double,
    })
}

/// The type that a field of a CSV record surely is of. What would be written otherwise as a number, such as
/// a postal code with a leading zero, is a text.
pub fn type_of_text(text: &str) -> SqlType {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_plain = digits == "0" || digits.starts_with(|c: char| ('1'..='9').contains(&c));
    let is_fraction = digits.starts_with("0.") && digits.len() > 2;
    match text {
        "true" | "false" => SqlType::Boolean,
        _ if is_plain && text.parse::<i64>().is_ok() => SqlType::BigInt,
        _ if is_plain && digits.bytes().all(|b| b.is_ascii_digit()) => SqlType::Text,
        _ if (is_plain || is_fraction) && text.parse::<f64>().is_ok_and(f64::is_finite) => {
            SqlType::Double
        }
        _ => type_of_moment(text),
    }
}

/// Only what says its day, its time and its zone is surely a moment.
fn type_of_moment(text: &str) -> SqlType {
    let has_zone =
        text.ends_with('Z') || text.get(19..).is_some_and(|rest| rest.contains(['+', '-']));
    let is_long = text.len() >= "2024-01-01T00:00:00Z".len();
    match is_long && has_zone && timestamp_us(text, EpochUnit::Auto).is_some() {
        true => SqlType::TimestampTz,
        false => SqlType::Text,
    }
}

/// A field of this name can become a column.
pub fn can_be_column(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.chars().any(char::is_control)
        && !SYSTEM_COLUMNS.contains(&name)
}

/// What PostgreSQL has in every table.
const SYSTEM_COLUMNS: [&str; 6] = ["tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"];

#[cfg(test)]
mod tests {
    use SqlType::{BigInt, Boolean, Double, Integer, Jsonb, Real, Text, Timestamp, TimestampTz};

    use super::*;

    #[test]
    fn a_value_has_the_type_that_it_surely_is_of() {
        let json = [
            ("null", None),
            ("true", Some(Boolean)),
            ("-7", Some(BigInt)),
            ("9223372036854775808", Some(Text)),
            ("1.0", Some(Double)),
            ("2e3", Some(Double)),
            ("\"x\"", Some(Text)),
            ("\"2024-01-01\"", Some(Text)),
            ("\"2024-01-01T10:00:00\"", Some(Text)),
            ("\"2024-01-01T10:00:00Z\"", Some(TimestampTz)),
            ("\"2024-01-01 10:00:00.5+02:00\"", Some(TimestampTz)),
            ("{\"a\": 1}", Some(Jsonb)),
            ("[]", Some(Jsonb)),
        ];
        for (raw, expected) in json {
            assert_eq!(type_of_json(raw), expected, "{raw}");
        }
        let text = [
            ("0", BigInt),
            ("-12", BigInt),
            ("01067", Text),
            ("99999999999999999999", Text),
            ("0.5", Double),
            ("1e3", Double),
            ("1.", Double),
            (".", Text),
            ("inf", Text),
            ("NaN", Text),
            ("false", Boolean),
            ("t", Text),
            ("2024-01-01T10:00:00+02", TimestampTz),
            ("", Text),
        ];
        for (raw, expected) in text {
            assert_eq!(type_of_text(raw), expected, "{raw}");
        }
    }

    #[test]
    fn of_two_types_the_wider_one_holds_both() {
        let of = [
            (BigInt, Double, Double),
            (Integer, BigInt, BigInt),
            (Real, Integer, Double),
            (Boolean, BigInt, Text),
            (Timestamp, TimestampTz, TimestampTz),
            (TimestampTz, Text, Text),
            (Text, Jsonb, Jsonb),
            (SqlType::Date, TimestampTz, Text),
        ];
        for (one, other, both) in of {
            assert_eq!(wider(&one, &other), both, "{one} and {other}");
            assert_eq!(wider(&other, &one), both, "{other} and {one}");
            assert_eq!(wider(&one, &one), one);
        }
    }

    #[test]
    fn fields_are_told_once_with_their_first_place_and_bounded() {
        let field = |name: &str, sql_type, origin: &str| NewField {
            name: name.to_owned(),
            sql_type,
            origin: origin.to_owned(),
        };
        let mut all = UnknownFields::default();
        for (rows, origin) in [(2, "a line 1"), (1, "b line 9")] {
            all.merge(UnknownFields {
                rows,
                rescued_rows: 0,
                fields: vec![field("x", if rows == 2 { BigInt } else { Double }, origin)],
            });
        }
        assert_eq!(all.rows, 3);
        assert_eq!(all.fields, [field("x", Double, "a line 1")]);
        for number in 0..2 * NEW_FIELDS_MAX {
            all.see(field(&format!("f{number}"), Text, "c line 1"));
        }
        assert_eq!(all.fields.len(), NEW_FIELDS_MAX);
    }

    #[test]
    fn only_a_name_that_a_statement_can_say_is_that_of_a_column() {
        for name in ["a", "Größe", "a b", "\"", "_rescued_data"] {
            assert!(can_be_column(name), "{name}");
        }
        for name in ["", "a\u{0}", "\u{1}x", "ctid", &"x".repeat(64)] {
            assert!(!can_be_column(name), "{name:?}");
        }
    }
}
