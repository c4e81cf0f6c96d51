//! JSON records: one object each, into the declared columns.
//!
//! Fields without a column are skipped and noticed ([`Watch`]), missing ones are NULL, of a repeated key the last value counts. Keys
//! of records of one source mostly come in one order, so the decoder guesses each next key from
//! the record before and compares, instead of looking it up.
//!
//! Only the asked-for columns are decoded. Of the others, `NOT NULL` ones are still checked to be
//! there, so that the same record is refused whatever a query reads; their values are not parsed.

use std::collections::HashMap;

use datafusion::arrow::array::ArrayRef;

use super::column::{Column, Refusal};
use super::json_text::{JsonText, Key, Token};
use super::values::{self, EpochUnit};
use super::watch::Watch;
use crate::error::Result;
use datafusion::arrow::datatypes::Fields;

/// Where a key's value goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// nobody asked for it
    Skip,
    /// a column to fill
    Column(usize),
    /// a `NOT NULL` column that is only checked
    Required(usize),
    /// no column takes it
    Unknown,
}

/// A key that is expected at a place in the record.
struct Guess {
    /// The key in quotes with its colon, as writers put it.
    text: Box<[u8]>,
    name: Box<str>,
    target: Target,
}

impl Guess {
    fn new(name: &str, target: Target) -> Self {
        // A key that needs escapes is written in more than one way: it is compared by its value.
        let plain = !name.bytes().any(|b| b < b' ' || matches!(b, b'"' | b'\\'));
        let text = if plain {
            format!("\"{name}\":")
        } else {
            String::new()
        };
        Self {
            text: text.into_bytes().into(),
            name: name.into(),
            target,
        }
    }

    fn text(&self) -> Option<&[u8]> {
        (!self.text.is_empty()).then_some(&*self.text)
    }
}

/// Decodes JSON objects, one per record.
pub struct JsonDecoder {
    columns: Vec<Column>,
    /// Names of `NOT NULL` columns outside the projection.
    required: Vec<String>,
    targets: HashMap<String, Target>,
    /// Names that differ by case alone are one.
    folds_case: bool,
    watch: Option<Watch>,
    /// Keys of the last record in their order.
    expected: Vec<Guess>,
    /// Record in which each required column was last seen not NULL.
    required_seen: Vec<u64>,
    records: u64,
    rows: usize,
}

impl JsonDecoder {
    /// A decoder of `payload[projection]`.
    pub fn new(payload: &Fields, projection: &[usize], epoch: EpochUnit) -> Result<Self> {
        let columns = projection
            .iter()
            .map(|&i| Column::new(&payload[i], epoch))
            .collect::<Result<Vec<_>>>()?;
        let required: Vec<String> = payload
            .iter()
            .enumerate()
            .filter(|(i, f)| !f.is_nullable() && !projection.contains(i))
            .map(|(_, f)| f.name().clone())
            .collect();
        let mut targets = HashMap::new();
        for field in payload {
            targets.insert(field.name().clone(), Target::Skip);
        }
        for (i, column) in columns.iter().enumerate() {
            targets.insert(column.field().name().clone(), Target::Column(i));
        }
        for (i, name) in required.iter().enumerate() {
            targets.insert(name.clone(), Target::Required(i));
        }
        Ok(Self {
            columns,
            required_seen: vec![0; required.len()],
            required,
            targets,
            folds_case: false,
            watch: None,
            expected: vec![],
            records: 0,
            rows: 0,
        })
    }

    /// Columns are found by further names too: pairs of such a name and the column's own.
    #[must_use]
    pub fn with_other_names(mut self, names: &[(String, String)]) -> Self {
        for (other, name) in names {
            if let Some(target) = self.targets.get(name).copied() {
                self.targets.entry(other.clone()).or_insert(target);
            }
        }
        self
    }

    /// Where no column has a key's exact name, one that differs by case alone is it.
    #[must_use]
    pub fn folding_case(mut self) -> Self {
        self.folds_case = true;
        self
    }

    /// Fields without a column are noticed.
    #[must_use]
    pub fn watched_by(mut self, watch: Watch) -> Self {
        self.watch = Some(watch);
        self
    }

    /// What was noticed.
    pub fn watch(&mut self) -> Option<&mut Watch> {
        self.watch.as_mut()
    }

    fn target_of(&self, key: &str) -> Target {
        let folded = || {
            let mut all = self.targets.iter().filter(|_| self.folds_case);
            let found = all.find(|(name, _)| name.eq_ignore_ascii_case(key));
            found.map(|(_, target)| *target)
        };
        let exact = self.targets.get(key).copied();
        exact.or_else(folded).unwrap_or(Target::Unknown)
    }

    /// Decodes one record. A refused record leaves nothing behind.
    pub fn push(&mut self, record: &[u8]) -> Result<(), Refusal> {
        let text = values::utf8(record)?;
        self.records += 1;
        match self.object(text).and_then(|()| self.complete()) {
            Ok(()) => {
                self.rows += 1;
                self.watch.iter_mut().for_each(Watch::row);
                Ok(())
            }
            Err(refusal) => {
                for column in &mut self.columns {
                    column.truncate(self.rows);
                }
                self.watch.iter_mut().for_each(Watch::refused);
                Err(refusal)
            }
        }
    }

    fn object(&mut self, text: &str) -> Result<(), Refusal> {
        let mut json = JsonText::new(text);
        json.begin_object()?;
        let mut position = 0;
        loop {
            let guess = self.expected.get(position);
            let mut named = None;
            let target = match (json.next_key_or_guess(guess.and_then(Guess::text))?, guess) {
                (Key::End, _) => break,
                (Key::Guessed, Some(guess)) => guess.target,
                (Key::Other(key), Some(guess)) if *guess.name == *key => guess.target,
                (Key::Other(key), _) => {
                    let target = self.look_up(position, &key);
                    named = Some(key);
                    target
                }
                (Key::Guessed, None) => Target::Skip,
            };
            position += 1;
            match target {
                Target::Skip => json.skip_value()?,
                Target::Unknown => self.notice(named.as_deref(), position - 1, &mut json)?,
                Target::Column(i) => self.fill(i, &mut json)?,
                Target::Required(i) => {
                    let null = json.peek()? == Token::Null;
                    json.skip_value()?;
                    self.required_seen[i] = if null { 0 } else { self.records };
                }
            }
        }
        json.end()
    }

    fn fill(&mut self, index: usize, json: &mut JsonText<'_>) -> Result<(), Refusal> {
        let column = &mut self.columns[index];
        if column.len() > self.rows {
            column.truncate(self.rows);
        }
        let rescue = match &mut self.watch {
            Some(watch) if watch.rescues() => watch,
            _ => {
                return column
                    .push_json(json)
                    .map_err(|refusal| format!("column \"{}\": {refusal}", column.field().name()));
            }
        };
        json.peek()?;
        let place = json.place();
        match column.push_json(json) {
            Ok(()) => rescue.forget(column.field().name()),
            // Kept beside the column, unless that may not be without it.
            Err(refusal) if !column.field().is_nullable() => {
                return Err(format!("column \"{}\": {refusal}", column.field().name()));
            }
            Err(_) => {
                column.truncate(self.rows);
                json.go_back(place);
                rescue.rescue(column.field().name(), json.raw_value()?.to_owned());
                column.push_null();
            }
        }
        Ok(())
    }

    /// Passes over a field that no column takes: `named`, or guessed at a place of the record.
    fn notice(
        &mut self,
        named: Option<&str>,
        position: usize,
        json: &mut JsonText<'_>,
    ) -> Result<(), Refusal> {
        let is_null = json.peek()? == Token::Null;
        let Some(watch) = self.watch.as_mut().filter(|_| !is_null) else {
            return json.skip_value();
        };
        if !watch.wants_values() {
            watch.saw();
            return json.skip_value();
        }
        let guessed = self.expected.get(position).map(|guess| &*guess.name);
        let raw = json.raw_value()?;
        if let Some(name) = named.or(guessed) {
            watch.saw_json(name, raw);
        }
        Ok(())
    }

    /// Finds a key that the guess did not name, and guesses it the next time.
    #[cold]
    fn look_up(&mut self, position: usize, key: &str) -> Target {
        let target = self.target_of(key);
        // Records with ever new keys must not grow the list for ever.
        const GUESSED_KEYS_MAX: usize = 1_024;
        if position < self.expected.len() {
            self.expected[position] = Guess::new(key, target);
        } else if position < GUESSED_KEYS_MAX {
            self.expected.push(Guess::new(key, target));
        }
        target
    }

    /// Fills what the record did not name, and checks `NOT NULL`.
    fn complete(&mut self) -> Result<(), Refusal> {
        for column in &mut self.columns {
            if column.len() == self.rows {
                column.push_null();
            }
            if !column.field().is_nullable() && column.is_null(self.rows) {
                return Err(null_refusal(column.field().name()));
            }
        }
        for (name, seen) in self.required.iter().zip(&self.required_seen) {
            if *seen != self.records {
                return Err(null_refusal(name));
            }
        }
        Ok(())
    }

    /// Rows decoded since the last [`Self::finish`].
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Takes the decoded columns.
    pub fn finish(&mut self) -> Vec<ArrayRef> {
        self.rows = 0;
        self.columns.iter_mut().map(Column::finish).collect()
    }
}

/// The dead letter's line for a NULL that may not be.
pub fn null_refusal(column: &str) -> Refusal {
    format!("null value in column \"{column}\" violates not-null constraint")
}
