//! `format(pattern, values…)` (PostgreSQL 15 documentation, section 9.4.1).
//!
//! ```text
//! %[position$][-][width]type     type: s as it is, I an identifier, L a literal; width: 10, * or *n$
//! ```

use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, StringArray, StringBuilder};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{arrays, no_function, result, udf};
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::{quote_identifier, quote_literal};

pub(super) fn format() -> Arc<ScalarUDF> {
    udf(Format {
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

/// Characters that a value is filled up to, at most.
const WIDTH_MAX: i64 = 1 << 20;

fn refused(primary: impl Into<String>) -> Error {
    Error::new(sqlstate::INVALID_PARAMETER_VALUE, primary)
}

fn unterminated() -> Error {
    refused("unterminated format() type specifier").hint("For a single \"%\" use \"%%\".")
}

/// The values of one row, and which of them is the next.
struct Values<'a> {
    given: &'a [Option<&'a str>],
    next: usize,
}

impl<'a> Values<'a> {
    /// The value at a position that counts from 1, or the next one.
    fn take(&mut self, position: Option<usize>) -> Result<Option<&'a str>> {
        let at = match position {
            Some(position) => position.checked_sub(1).ok_or_else(|| {
                refused("format specifies argument 0, but arguments are numbered from 1")
            })?,
            None => self.next,
        };
        self.next = at + 1;
        let value = self.given.get(at).copied();
        value.ok_or_else(|| refused("too few arguments for format()"))
    }
}

/// What stands behind a percent sign.
struct Reader<'p> {
    rest: &'p str,
}

impl Reader<'_> {
    fn accept(&mut self, wanted: char) -> bool {
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn number(&mut self) -> Result<Option<usize>> {
        let count = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.rest.split_at(count);
        if digits.is_empty() {
            return Ok(None);
        }
        self.rest = rest;
        let number: i32 = digits
            .parse()
            .map_err(|_| Error::new(sqlstate::NUMERIC_OUT_OF_RANGE, "number is out of range"))?;
        Ok(usize::try_from(number).ok())
    }

    /// `10`, `*`, `*2$`: the width, which is below zero for a value that is filled up on the right.
    fn width(&mut self, values: &mut Values<'_>) -> Result<i64> {
        if !self.accept('*') {
            let width = self.number()?.unwrap_or(0);
            return Ok(i64::try_from(width).unwrap_or(i64::MAX));
        }
        let position = self.number()?;
        if position.is_some() && !self.accept('$') {
            return Err(refused("width argument position must be ended by \"$\""));
        }
        let Some(width) = values.take(position)? else {
            return Ok(0);
        };
        width.trim().parse::<i64>().map_err(|_| {
            Error::new(
                sqlstate::INVALID_TEXT,
                format!("invalid input syntax for type integer: \"{width}\""),
            )
        })
    }

    /// One specifier, and its value as it is written.
    fn specifier(&mut self, values: &mut Values<'_>) -> Result<String> {
        let before = self.rest;
        let mut position = self.number()?;
        if position.is_some() && !self.accept('$') {
            // It was the width.
            position = None;
            self.rest = before;
        }
        let mut is_left = false;
        while self.accept('-') {
            is_left = true;
        }
        let width = self.width(values)?;
        let kind = self.rest.chars().next().ok_or_else(unterminated)?;
        self.rest = &self.rest[kind.len_utf8()..];
        if !matches!(kind, 's' | 'I' | 'L') {
            return Err(
                refused(format!("unrecognized format() type specifier \"{kind}\""))
                    .hint("For a single \"%\" use \"%%\"."),
            );
        }
        let value = values.take(position)?;
        let written = match (kind, value) {
            ('I', None) => {
                return Err(Error::new(
                    sqlstate::NULL_VALUE_NOT_ALLOWED,
                    "null values cannot be formatted as an SQL identifier",
                ));
            }
            ('I', Some(value)) => quote_identifier(value),
            ('L', None) => "NULL".to_owned(),
            ('L', Some(value)) => quote_literal(value),
            (_, value) => value.unwrap_or_default().to_owned(),
        };
        filled(written, width, is_left || width < 0)
    }
}

fn filled(text: String, width: i64, is_left: bool) -> Result<String> {
    if width.saturating_abs() > WIDTH_MAX {
        return Err(Error::new(
            sqlstate::PROGRAM_LIMIT_EXCEEDED,
            "requested length too large",
        ));
    }
    let width = usize::try_from(width.abs()).unwrap_or(0);
    Ok(match is_left {
        true => format!("{text:<width$}"),
        false => format!("{text:>width$}"),
    })
}

/// Errors: 22023 a specifier that is none or has no value, 22004 NULL as an identifier.
fn written(pattern: &str, given: &[Option<&str>]) -> Result<String> {
    let mut values = Values { given, next: 0 };
    let mut reader = Reader { rest: pattern };
    let mut out = String::with_capacity(pattern.len());
    while let Some((before, rest)) = reader.rest.split_once('%') {
        out.push_str(before);
        reader.rest = rest;
        match reader.accept('%') {
            true => out.push('%'),
            false => out.push_str(&reader.specifier(&mut values)?),
        }
    }
    out.push_str(reader.rest);
    Ok(out)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Format {
    signature: Signature,
}

impl ScalarUDFImpl for Format {
    fn name(&self) -> &str {
        "format"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        match types.is_empty() {
            true => Err(no_function(self.name(), types).into()),
            false => Ok(vec![DataType::Utf8; types.len()]),
        }
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let columns: Vec<&StringArray> = columns.iter().map(|c| c.as_string::<i32>()).collect();
        let Some((patterns, values)) = columns.split_first() else {
            return Err(no_function(self.name(), &[]).into());
        };
        let mut texts = StringBuilder::new();
        let mut row_values = Vec::with_capacity(values.len());
        for row in 0..patterns.len() {
            row_values.clear();
            for column in values {
                row_values.push(column.is_valid(row).then(|| column.value(row)));
            }
            match patterns.is_valid(row) {
                true => texts.append_value(written(patterns.value(row), &row_values)?),
                false => texts.append_null(),
            }
        }
        result(Arc::new(texts.finish()), constant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifiers() {
        let values = [Some("a b"), None, Some("it's"), Some("-4")];
        for (pattern, expected) in [
            ("Hello %s, %1$s", "Hello a b, a b"),
            ("%I.%s.%L", "\"a b\"..'it''s'"),
            ("%3$L %2$L", "'it''s' NULL"),
            ("%%|%10s|%-10s|", "%|       a b|          |"),
            ("%3$s %s", "it's -4"),
            ("%1$*4$s|", "a b |"),
            ("none", "none"),
        ] {
            assert_eq!(written(pattern, &values).unwrap(), expected, "{pattern}");
        }
        for (pattern, state) in [
            ("%", "22023"),
            ("%z", "22023"),
            ("%0$s", "22023"),
            ("%9$s", "22023"),
            ("%2$I", "22004"),
            ("%99999999999s", "22003"),
        ] {
            let error = written(pattern, &values).unwrap_err();
            assert_eq!(error.sqlstate(), state, "{pattern}");
        }
    }
}
