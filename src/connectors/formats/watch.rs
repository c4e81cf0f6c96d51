//! What a decoder notices beside its columns: fields that no column takes, and values that do not fit theirs.
//!
//! A record is noticed field by field, and counts only when it turns out to be a row: a record that is set
//! aside as a dead letter tells of itself there. Without an option that asks for more, an unknown field
//! costs one mark per record. See [`crate::connectors::evolution`] for what becomes of it.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringBuilder};

use super::FormatOptions;
use crate::connectors::evolution::{
    NewField, SchemaEvolution, UnknownFields, can_be_column, type_of_json, type_of_text,
};
use crate::types::SqlType;
use crate::values::jsonb::Json;

/// The member of `_rescued_data` that says which file the record is from.
const FILE_MEMBER: &str = "_file_path";

/// Watches the records of one decoder.
pub struct Watch {
    evolution: SchemaEvolution,
    /// Names that are never new: see [`FormatOptions::taken_names`].
    taken_names: Vec<String>,
    file: Option<String>,
    /// Of the record that is decoded.
    record: Noticed,
    unknown: UnknownFields,
    /// What was rescued, by the number of the row; most rows have nothing.
    rescued: Vec<(usize, String)>,
    rows: usize,
    /// Fields at the end of `unknown` whose record has no name yet.
    unplaced: usize,
}

#[derive(Default)]
struct Noticed {
    has_unknown: bool,
    new: Vec<(String, SqlType)>,
    /// Names and values as JSON; `None`: a later value of the name fits.
    rescued: Vec<(String, Option<String>)>,
}

impl Noticed {
    /// What is rescued of the record: of each name what came last.
    fn rescued(&mut self) -> Vec<(String, String)> {
        let all = std::mem::take(&mut self.rescued);
        let places = all.iter().enumerate();
        let last: HashMap<&str, usize> =
            places.map(|(at, (name, _))| (name.as_str(), at)).collect();
        let is_last: Vec<bool> = (all.iter().enumerate())
            .map(|(at, (name, _))| last[name.as_str()] == at)
            .collect();
        let kept = all.into_iter().zip(is_last).filter(|(_, is_last)| *is_last);
        kept.filter_map(|((name, raw), _)| Some((name, raw?)))
            .collect()
    }
}

impl Watch {
    /// Watches as the options say.
    pub fn new(options: &FormatOptions) -> Self {
        Self {
            evolution: options.evolution,
            taken_names: options.taken_names.clone(),
            file: None,
            record: Noticed::default(),
            unknown: UnknownFields::default(),
            rescued: Vec::new(),
            rows: 0,
            unplaced: 0,
        }
    }

    /// Records are of this file.
    pub fn of_file(&mut self, path: &str) {
        self.file = Some(path.to_owned());
    }

    /// Values that do not fit their columns are kept beside them.
    pub fn rescues(&self) -> bool {
        self.evolution == SchemaEvolution::Rescue
    }

    /// Values of unknown fields are to be looked at.
    pub fn wants_values(&self) -> bool {
        self.evolution != SchemaEvolution::None
    }

    /// An unknown field that is not null.
    pub fn saw(&mut self) {
        self.record.has_unknown = true;
    }

    /// An unknown field and its value as JSON.
    pub fn saw_json(&mut self, name: &str, raw: &str) {
        if let Some(sql_type) = type_of_json(raw) {
            self.saw_value(name, sql_type, || raw.to_owned());
        }
    }

    /// An unknown field and its value as text.
    pub fn saw_text(&mut self, name: &str, text: &str) {
        self.saw_value(name, type_of_text(text), || quoted(text));
    }

    fn saw_value(&mut self, name: &str, sql_type: SqlType, as_json: impl FnOnce() -> String) {
        self.record.has_unknown = true;
        match self.evolution {
            SchemaEvolution::None => {}
            SchemaEvolution::Rescue => self.rescue(name, as_json()),
            SchemaEvolution::AddNewColumns | SchemaEvolution::Fail => {
                let is_taken =
                    (self.taken_names.iter()).any(|taken| taken.eq_ignore_ascii_case(name));
                if !is_taken && can_be_column(name) {
                    self.record.new.push((name.to_owned(), sql_type));
                }
            }
        }
    }

    /// Keeps a value, as JSON, that no column takes. Of a repeated name the last value counts.
    pub fn rescue(&mut self, name: &str, raw: String) {
        // The decoder passes over values without looking at them closer than it must.
        let raw = match serde_json::from_str::<serde::de::IgnoredAny>(&raw) {
            Ok(_) => raw,
            Err(_) => quoted(&raw),
        };
        self.record.rescued.push((name.to_owned(), Some(raw)));
    }

    /// The record names it once more, with a value that fits.
    pub fn forget(&mut self, name: &str) {
        if !self.record.rescued.is_empty() {
            self.record.rescued.push((name.to_owned(), None));
        }
    }

    /// The record is a row.
    pub fn row(&mut self) {
        let row = self.rows;
        self.rows += 1;
        if !self.record.has_unknown && self.record.rescued.is_empty() {
            return;
        }
        let mut record = std::mem::take(&mut self.record);
        let rescued = record.rescued();
        self.unknown.rows += u64::from(record.has_unknown);
        for (name, sql_type) in record.new {
            self.unknown.see(NewField {
                name,
                sql_type,
                origin: String::new(),
            });
        }
        let fields = &self.unknown.fields;
        self.unplaced = fields
            .iter()
            .rev()
            .take_while(|f| f.origin.is_empty())
            .count();
        if !rescued.is_empty() {
            self.unknown.rescued_rows += 1;
            let object = rescued_object(&rescued, self.file.as_deref());
            self.rescued.push((row, object));
        }
    }

    /// The record is none.
    pub fn refused(&mut self) {
        self.record = Noticed::default();
    }

    /// The last row is the first with some field, and wants to be named.
    pub fn wants_origin(&self) -> bool {
        self.unplaced > 0
    }

    /// Names the last row.
    pub fn place(&mut self, origin: &str) {
        for field in self.unknown.fields.iter_mut().rev().take(self.unplaced) {
            origin.clone_into(&mut field.origin);
        }
        self.unplaced = 0;
    }

    /// Takes what was noticed.
    pub fn take_unknown(&mut self) -> UnknownFields {
        self.unplaced = 0;
        std::mem::take(&mut self.unknown)
    }

    /// Takes `_rescued_data` of the rows so far.
    pub fn finish(&mut self) -> ArrayRef {
        let rows = std::mem::take(&mut self.rows);
        rescued_column(rows, std::mem::take(&mut self.rescued))
    }
}

/// A column of texts that most rows have none in; the texts in the order of their rows.
pub fn rescued_column(rows: usize, rescued: Vec<(usize, String)>) -> ArrayRef {
    let mut builder = StringBuilder::new();
    let mut rescued = rescued.into_iter().peekable();
    for row in 0..rows {
        let text = rescued.next_if(|(at, _)| *at == row);
        builder.append_option(text.map(|(_, text)| text));
    }
    Arc::new(builder.finish())
}

/// The object of one row, as jsonb has it.
pub fn rescued_object(members: &[(String, String)], file: Option<&str>) -> String {
    let mut object = String::from("{");
    let of_file = file.map(|file| (FILE_MEMBER, quoted(file)));
    let of_file = of_file.iter().map(|(name, raw)| (*name, raw));
    let members = members.iter().map(|(name, raw)| (name.as_str(), raw));
    for (number, (name, raw)) in members.chain(of_file).enumerate() {
        let comma = if number > 0 { ", " } else { "" };
        object.push_str(&format!("{comma}{}: {raw}", quoted(name)));
    }
    object.push('}');
    match Json::parse_sorted(&object) {
        Ok(value) => value.to_text(),
        // What jsonb refuses, such as a NUL in a string, is shown as it came.
        Err(_) => object,
    }
}

/// A text as JSON.
pub fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::AsArray;

    use super::super::Format;
    use super::super::values::EpochUnit;
    use super::*;

    fn watch(evolution: SchemaEvolution) -> Watch {
        Watch::new(&FormatOptions {
            evolution,
            taken_names: vec!["gone".to_owned()],
            ..FormatOptions::of(Format::Json, EpochUnit::Auto)
        })
    }

    #[test]
    fn only_rows_count_and_each_new_field_has_the_place_of_its_first() {
        let mut watch = watch(SchemaEvolution::AddNewColumns);
        watch.saw_json("x", "1");
        watch.refused();
        watch.row();
        watch.saw_json("x", "null");
        watch.row();
        assert_eq!(watch.take_unknown(), UnknownFields::default());
        watch.saw_json("x", "1");
        watch.saw_json("gone", "1");
        watch.row();
        assert!(watch.wants_origin());
        watch.place("a line 3");
        watch.saw_json("x", "1.5");
        watch.row();
        assert!(!watch.wants_origin());
        watch.saw_json("gone", "1");
        watch.row();
        let unknown = watch.take_unknown();
        assert_eq!(unknown.rows, 3);
        assert_eq!(unknown.fields.len(), 1);
        assert_eq!(unknown.fields[0].sql_type, SqlType::Double);
        assert_eq!(unknown.fields[0].origin, "a line 3");
    }

    #[test]
    fn what_is_rescued_is_the_object_of_its_row() {
        let mut watch = watch(SchemaEvolution::Rescue);
        watch.of_file("in/a \"b\".json");
        watch.row();
        watch.saw_json("x", "{\"y\": 1}");
        watch.rescue("k", "\"seven\"".to_owned());
        watch.rescue("k", "\"eight\"".to_owned());
        watch.row();
        watch.rescue("k", "7".to_owned());
        watch.forget("k");
        watch.row();
        let column = watch.finish();
        let texts: Vec<_> = column.as_string::<i32>().iter().collect();
        let object = r#"{"k": "eight", "x": {"y": 1}, "_file_path": "in/a \"b\".json"}"#;
        assert_eq!(texts, [None, Some(object), None]);
        let unknown = watch.take_unknown();
        assert_eq!((unknown.rows, unknown.rescued_rows), (1, 1));
        assert!(unknown.fields.is_empty());
    }
}
