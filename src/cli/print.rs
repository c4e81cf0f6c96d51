//! What the commands print: aligned tables and errors in PostgreSQL's form.

use std::io::{IsTerminal, Write};

use bytes::BytesMut;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;

use crate::error::{Error, Result};
use crate::session::Notice;
use crate::values::types::WireType;
use crate::values::{Format, OutputSettings, RowEncoder};

/// Rows that one table holds; more go on in a table of their own widths, so that a long result
/// needs no memory and shows at once.
const TABLE_ROWS: usize = 1000;

/// Writes a line to stdout, at once.
pub(super) fn line(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()?;
    Ok(())
}

/// Writes an error to stderr.
#[allow(clippy::print_stderr)]
pub(super) fn error(error: &Error) {
    eprintln!("ERROR:  {}: {}", error.sqlstate(), error.primary());
    if let Some(detail) = error.detail_text() {
        eprintln!("DETAIL:  {detail}");
    }
    if let Some(hint) = error.hint_text() {
        eprintln!("HINT:  {hint}");
    }
}

/// The error with the line of the script that its position is in, and a caret under the place.
pub(super) fn with_line(error: Error, script: &str) -> Error {
    let Some(position) = error.position_value() else {
        return error;
    };
    let before: String = script.chars().take(position.saturating_sub(1)).collect();
    let number = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |b| b.chars().count());
    let line = script.lines().nth(number - 1).unwrap_or_default();
    let head = format!("LINE {number}: ");
    let indent = " ".repeat(head.len() + column);
    error.at(format!("\n{head}{line}\n{indent}^"))
}

/// Writes a notice to stderr.
#[allow(clippy::print_stderr)]
pub(super) fn notice(notice: &Notice) {
    eprintln!("{}:  {}", notice.severity, notice.message);
    if let Some(hint) = &notice.hint {
        eprintln!("HINT:  {hint}");
    }
}

/// Stderr is a terminal, where a progress bar makes sense.
pub(super) fn is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// A table that is printed as its rows come.
pub(super) struct Table {
    names: Vec<String>,
    rows: Vec<Vec<Option<String>>>,
    printed_rows: usize,
}

impl Table {
    /// A table with these columns.
    pub fn new(names: Vec<String>) -> Self {
        Self {
            names,
            rows: Vec::new(),
            printed_rows: 0,
        }
    }

    /// A table with a result's columns.
    pub fn of(schema: &SchemaRef) -> Self {
        Self::new(schema.fields().iter().map(|f| f.name().clone()).collect())
    }

    /// Adds a row of texts; `None` is NULL.
    pub fn push(&mut self, row: Vec<Option<String>>) -> Result<()> {
        self.rows.push(row);
        if self.rows.len() >= TABLE_ROWS {
            self.print_rows()?;
        }
        Ok(())
    }

    /// Adds a batch's rows, written as the server writes them.
    pub fn push_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        let schema = batch.schema();
        let types = WireType::of_schema(&schema)?;
        let settings = OutputSettings::default();
        let encoder = RowEncoder::new(batch, &types, &[Format::Text], &settings)?;
        let mut text = BytesMut::new();
        for row in 0..batch.num_rows() {
            let mut cells = Vec::with_capacity(types.len());
            for column in 0..types.len() {
                text.clear();
                let is_value = encoder.text(row, column, &mut text)?;
                cells.push(is_value.then(|| String::from_utf8_lossy(&text).into_owned()));
            }
            self.push(cells)?;
        }
        Ok(())
    }

    /// Prints what is left, and the number of rows.
    pub fn finish(mut self) -> Result<()> {
        self.print_rows()?;
        let rows = self.printed_rows;
        let noun = if rows == 1 { "row" } else { "rows" };
        line(&format!("({rows} {noun})\n"))
    }

    fn print_rows(&mut self) -> Result<()> {
        if self.rows.is_empty() && self.printed_rows > 0 {
            return Ok(());
        }
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        for text in layout(&self.names, &self.rows, self.printed_rows == 0) {
            writeln!(out, "{text}")?;
        }
        out.flush()?;
        self.printed_rows += self.rows.len();
        self.rows.clear();
        Ok(())
    }
}

/// The lines of a table: columns as wide as their widest cell.
fn layout(names: &[String], rows: &[Vec<Option<String>>], with_header: bool) -> Vec<String> {
    let cell = |row: &[Option<String>], i: usize| row[i].clone().unwrap_or_default();
    let widths: Vec<usize> = (0..names.len())
        .map(|i| {
            rows.iter()
                .map(|row| cell(row, i).chars().count())
                .chain([names[i].chars().count()])
                .max()
                .unwrap_or(0)
        })
        .collect();
    let padded = |cells: Vec<String>| {
        let cells: Vec<String> = cells
            .iter()
            .zip(&widths)
            .map(|(text, width)| format!("{text:<width$}"))
            .collect();
        format!(" {}", cells.join(" | ")).trim_end().to_owned()
    };
    let mut lines = Vec::with_capacity(rows.len() + 2);
    if with_header {
        lines.push(padded(names.to_vec()));
        let rules: Vec<String> = widths.iter().map(|w| "-".repeat(w + 2)).collect();
        lines.push(rules.join("+"));
    }
    lines.extend(
        rows.iter()
            .map(|row| padded((0..names.len()).map(|i| cell(row, i)).collect())),
    );
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_shows_its_line_and_a_caret() {
        let script = "SELECT 1;\n\n  SELEC 2;\n";
        let error = Error::new("42601", "syntax error").position(14);
        let shown = with_line(error, script);
        assert_eq!(
            shown.primary(),
            "syntax error \nLINE 3:   SELEC 2;\n          ^"
        );
        let plain = with_line(Error::new("42601", "no place"), script);
        assert_eq!(plain.primary(), "no place");
    }

    #[test]
    fn columns_align_and_null_is_empty() {
        let names = ["word".to_owned(), "n".to_owned()];
        let rows = vec![
            vec![Some("straße".to_owned()), Some("12".to_owned())],
            vec![None, Some("3".to_owned())],
        ];
        assert_eq!(
            layout(&names, &rows, true),
            [
                " word   | n",
                "--------+----",
                " straße | 12",
                "        | 3"
            ]
        );
        assert_eq!(layout(&names, &rows, false).len(), 2);
    }
}
