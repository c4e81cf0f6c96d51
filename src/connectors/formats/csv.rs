//! CSV records: RFC 4180 with a choice of delimiter, quote and NULL marker, as `COPY … CSV`.
//!
//! An unquoted field equal to the NULL marker (default: empty) is NULL; a quoted one never is. A
//! field may hold newlines inside quotes, so records are cut here and not by a line reader. With
//! a header, columns are found by name and may come in any order; a missing one is NULL, and
//! names of no column are noticed ([`Watch`]). Without, they come in the declared order.

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::Fields;

use super::column::{Column, Refusal};
use super::json::null_refusal;
use super::values::{self, EpochUnit};
use super::watch::{Watch, quoted};
use crate::error::Result;

/// How a CSV file is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvStyle {
    /// Byte between fields.
    pub delimiter: u8,
    /// Quote; doubled inside a quoted field.
    pub quote: u8,
    /// What an unquoted field says for NULL.
    pub null: String,
    /// The first record names the columns.
    pub header: bool,
    /// Columns added to the stream later: records may end before them.
    pub added_columns: usize,
}

impl Default for CsvStyle {
    fn default() -> Self {
        Self {
            delimiter: b',',
            quote: b'"',
            null: String::new(),
            header: false,
            added_columns: 0,
        }
    }
}

/// Length of the first record of `bytes` with its line end, or `None` if it does not end here.
/// Quotes are honoured: a newline between them does not end a record.
pub fn record_length(bytes: &[u8], quote: u8) -> Option<usize> {
    let mut quoted = false;
    for (i, byte) in bytes.iter().enumerate() {
        if *byte == quote {
            quoted = !quoted;
        } else if *byte == b'\n' && !quoted {
            return Some(i + 1);
        }
    }
    None
}

/// A field of a record: where its bytes are, and whether it was quoted.
struct FieldSpan {
    start: usize,
    end: usize,
    quoted: bool,
    doubled: bool,
}

/// Decodes CSV records.
pub struct CsvDecoder {
    style: CsvStyle,
    payload: Fields,
    columns: Vec<Column>,
    /// Field position of each column; `None`: not in this file.
    positions: Vec<Option<usize>>,
    /// `NOT NULL` columns outside the projection and their positions.
    required: Vec<(String, Option<usize>)>,
    projection: Vec<usize>,
    fields: Vec<FieldSpan>,
    fields_expected: usize,
    other_names: Vec<(String, String)>,
    /// Fields of the header that no column takes.
    unknown: Vec<(usize, String)>,
    watch: Option<Watch>,
    rows: usize,
}

impl CsvDecoder {
    /// A decoder of `payload[projection]`, for records without a header.
    pub fn new(
        payload: &Fields,
        projection: &[usize],
        style: CsvStyle,
        epoch: EpochUnit,
    ) -> Result<Self> {
        let columns = projection
            .iter()
            .map(|&i| Column::new(&payload[i], epoch))
            .collect::<Result<Vec<_>>>()?;
        let mut decoder = Self {
            style,
            payload: payload.clone(),
            columns,
            positions: vec![],
            required: vec![],
            projection: projection.to_vec(),
            fields: vec![],
            fields_expected: payload.len(),
            other_names: vec![],
            unknown: vec![],
            watch: None,
            rows: 0,
        };
        decoder.place(&|i, _| Some(i));
        Ok(decoder)
    }

    fn place(&mut self, position: &dyn Fn(usize, &str) -> Option<usize>) {
        self.positions = self
            .projection
            .iter()
            .map(|&i| position(i, self.payload[i].name()))
            .collect();
        self.required = self
            .payload
            .iter()
            .enumerate()
            .filter(|(i, f)| !f.is_nullable() && !self.projection.contains(i))
            .map(|(i, f)| (f.name().clone(), position(i, f.name())))
            .collect();
    }

    /// Columns are found in a header by further names too: pairs of such a name and the column's own.
    #[must_use]
    pub fn with_other_names(mut self, names: &[(String, String)]) -> Self {
        names.clone_into(&mut self.other_names);
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

    /// Reads a header record: from now on columns are found by its names.
    pub fn header(&mut self, record: &[u8]) -> Result<(), Refusal> {
        let record = record.strip_prefix(b"\xef\xbb\xbf").unwrap_or(record);
        self.split(record)?;
        let mut names = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            names.push(self.text(record, field)?.trim().to_owned());
        }
        self.fields_expected = names.len();
        // Names in SQL are folded, names in files are not: an exact match wins over a folded one.
        let of_name = |name: &str| {
            names
                .iter()
                .position(|n| n == name)
                .or_else(|| names.iter().position(|n| n.eq_ignore_ascii_case(name)))
        };
        let others = std::mem::take(&mut self.other_names);
        let others_of = |name: &str| {
            let mut others = others.iter().filter(|(_, own)| own == name);
            others.find_map(|(other, _)| of_name(other))
        };
        let place_of = |name: &str| of_name(name).or_else(|| others_of(name));
        self.place(&|_, name| place_of(name));
        let payload = self.payload.iter();
        let taken: Vec<usize> = payload.filter_map(|f| place_of(f.name())).collect();
        let unknown = names.iter().cloned().enumerate();
        self.unknown = unknown.filter(|(at, _)| !taken.contains(at)).collect();
        self.other_names = others;
        Ok(())
    }

    /// Decodes one record (with or without its line end). A refused record leaves nothing behind.
    pub fn push(&mut self, record: &[u8]) -> Result<(), Refusal> {
        match self.fill(record) {
            Ok(()) => {
                self.notice(record);
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

    /// Looks at the fields that no column takes.
    fn notice(&mut self, record: &[u8]) {
        let Some(mut watch) = self.watch.take() else {
            return;
        };
        for (at, name) in &self.unknown {
            let Some(span) = self.fields.get(*at) else {
                continue;
            };
            if self.is_null(record, span) {
                continue;
            }
            if !watch.wants_values() {
                watch.saw();
                continue;
            }
            match self.text(record, span) {
                Ok(text) => watch.saw_text(name, &text),
                // A column would refuse it; what is kept of it can be read at least.
                Err(_) => {
                    let bytes = &record[span.start..span.end];
                    watch.saw_text(name, &String::from_utf8_lossy(bytes));
                }
            }
        }
        self.watch = Some(watch);
    }

    fn fill(&mut self, record: &[u8]) -> Result<(), Refusal> {
        self.split(record)?;
        let fewest = match self.style.header {
            true => self.fields_expected,
            false => self
                .fields_expected
                .saturating_sub(self.style.added_columns),
        };
        if !(fewest..=self.fields_expected).contains(&self.fields.len()) {
            return Err(format!(
                "record has {} fields, expected {}",
                self.fields.len(),
                self.fields_expected
            ));
        }
        for i in 0..self.columns.len() {
            let span = self.positions[i].and_then(|p| self.fields.get(p));
            let value = match span {
                Some(span) if !self.is_null(record, span) => Some(self.text(record, span)?),
                _ => None,
            };
            let column = &mut self.columns[i];
            match value {
                Some(text) => {
                    let Err(refusal) = column.push_text(&text) else {
                        continue;
                    };
                    let name = column.field().name().clone();
                    match self.watch.as_mut().filter(|watch| watch.rescues()) {
                        Some(watch) if column.field().is_nullable() => {
                            column.truncate(self.rows);
                            column.push_null();
                            watch.rescue(&name, quoted(&text));
                        }
                        _ => return Err(format!("column \"{name}\": {refusal}")),
                    }
                }
                None if column.field().is_nullable() => column.push_null(),
                None => return Err(null_refusal(column.field().name())),
            }
        }
        for (name, position) in &self.required {
            let span = position.and_then(|p| self.fields.get(p));
            if span.is_none_or(|span| self.is_null(record, span)) {
                return Err(null_refusal(name));
            }
        }
        Ok(())
    }

    fn is_null(&self, record: &[u8], span: &FieldSpan) -> bool {
        !span.quoted && &record[span.start..span.end] == self.style.null.as_bytes()
    }

    fn text<'r>(
        &self,
        record: &'r [u8],
        span: &FieldSpan,
    ) -> Result<std::borrow::Cow<'r, str>, Refusal> {
        let text = values::utf8(&record[span.start..span.end])?;
        if !span.doubled {
            return Ok(text.into());
        }
        let quote = (self.style.quote as char).to_string();
        Ok(text.replace(&format!("{quote}{quote}"), &quote).into())
    }

    /// Finds the fields of a record.
    fn split(&mut self, record: &[u8]) -> Result<(), Refusal> {
        let record = record.strip_suffix(b"\n").unwrap_or(record);
        let record = record.strip_suffix(b"\r").unwrap_or(record);
        let (delimiter, quote) = (self.style.delimiter, self.style.quote);
        self.fields.clear();
        let mut at = 0;
        loop {
            let quoted = record.get(at) == Some(&quote);
            let mut doubled = false;
            let (start, end);
            if quoted {
                start = at + 1;
                at = start;
                loop {
                    match record.get(at) {
                        None => return Err("a quoted field is not closed".to_owned()),
                        Some(b) if *b == quote && record.get(at + 1) == Some(&quote) => {
                            doubled = true;
                            at += 2;
                        }
                        Some(b) if *b == quote => break,
                        Some(_) => at += 1,
                    }
                }
                end = at;
                at += 1;
            } else {
                start = at;
                while at < record.len() && record[at] != delimiter {
                    at += 1;
                }
                end = at;
            }
            self.fields.push(FieldSpan {
                start,
                end,
                quoted,
                doubled,
            });
            match record.get(at) {
                None => return Ok(()),
                Some(b) if *b == delimiter => at += 1,
                Some(_) => return Err("text follows a quoted field".to_owned()),
            }
        }
    }

    /// The fields of a record as texts.
    pub fn fields_of(record: &[u8], style: &CsvStyle) -> Result<Vec<String>, Refusal> {
        let none = Fields::empty();
        let decoder = Self::new(&none, &[], style.clone(), EpochUnit::Auto);
        let mut decoder = decoder.map_err(|e| e.primary().to_owned())?;
        decoder.split(record)?;
        let fields = decoder.fields.iter();
        let text = |span| Ok(decoder.text(record, span)?.into_owned());
        fields.map(text).collect()
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
