//! JSON values as `jsonb` has them: members sorted by length and bytes, the last of equal names
//! kept, numbers without exponents, one space after commas and colons. Two texts of one value are
//! one text then, so that equality, grouping and joins of texts are those of values.
//!
//! Absent: numbers compare by their digits, so `1.0` and `1` are two values here.

use bytes::BytesMut;

use super::json::write_string;
use super::numeric;
use crate::error::{Error, Result, sqlstate};

/// A JSON value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Json {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// A number's text.
    Number(String),
    /// A string, its escapes resolved.
    Text(String),
    /// `[…]`
    Array(Vec<Json>),
    /// `{…}`
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads a value; members in the order of the text. Errors: 22P02 what is no JSON, 22P05 NUL.
    pub fn parse(text: &str) -> Result<Self> {
        check(text)?;
        let mut reader = Reader { text, at: 0 };
        reader.value()
    }

    /// Reads a value as `jsonb` does.
    pub fn parse_sorted(text: &str) -> Result<Self> {
        let mut value = Self::parse(text)?;
        value.sort();
        Ok(value)
    }

    /// Sorts members, keeps the last of equal names, and writes numbers out.
    pub fn sort(&mut self) {
        match self {
            Self::Array(items) => items.iter_mut().for_each(Self::sort),
            Self::Object(members) => {
                let mut kept: Vec<(String, Self)> = Vec::with_capacity(members.len());
                for (name, mut value) in std::mem::take(members) {
                    value.sort();
                    kept.push((name, value));
                }
                kept.sort_by(|(a, _), (b, _)| (a.len(), a).cmp(&(b.len(), b)));
                // Stable, so the last of equals is the last of the text.
                kept.reverse();
                kept.dedup_by(|(later, _), (first, _)| later == first);
                kept.reverse();
                *members = kept;
            }
            Self::Number(text) => {
                if let Some(plain) = plain_number(text) {
                    *text = plain;
                }
            }
            _ => {}
        }
    }

    /// Its type as `jsonb_typeof` says it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::Text(_) => "string",
            Self::Array(_) => "array",
            Self::Object(_) => "object",
        }
    }

    /// The text in `jsonb`'s spacing.
    pub fn to_text(&self) -> String {
        let mut out = BytesMut::new();
        self.write(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    /// What `->>` gives: a string without quotes, nothing for null.
    pub fn to_plain_text(&self) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(text.clone()),
            other => Some(other.to_text()),
        }
    }

    /// The text over several lines, as `jsonb_pretty` has it.
    pub fn to_pretty_text(&self) -> String {
        let mut out = String::new();
        self.write_pretty(0, &mut out);
        out
    }

    fn write(&self, out: &mut BytesMut) {
        match self {
            Self::Null => out.extend_from_slice(b"null"),
            Self::Bool(true) => out.extend_from_slice(b"true"),
            Self::Bool(false) => out.extend_from_slice(b"false"),
            Self::Number(text) => out.extend_from_slice(text.as_bytes()),
            Self::Text(text) => write_string(text.as_bytes(), out),
            Self::Array(items) => {
                out.extend_from_slice(b"[");
                for (n, item) in items.iter().enumerate() {
                    if n > 0 {
                        out.extend_from_slice(b", ");
                    }
                    item.write(out);
                }
                out.extend_from_slice(b"]");
            }
            Self::Object(members) => {
                out.extend_from_slice(b"{");
                for (n, (name, value)) in members.iter().enumerate() {
                    if n > 0 {
                        out.extend_from_slice(b", ");
                    }
                    write_string(name.as_bytes(), out);
                    out.extend_from_slice(b": ");
                    value.write(out);
                }
                out.extend_from_slice(b"}");
            }
        }
    }

    fn write_pretty(&self, depth: usize, out: &mut String) {
        let line = |out: &mut String, depth: usize| {
            out.push('\n');
            out.push_str(&"    ".repeat(depth));
        };
        let (open, close, items): (char, char, Vec<(Option<&String>, &Self)>) = match self {
            Self::Array(items) => ('[', ']', items.iter().map(|i| (None, i)).collect()),
            Self::Object(members) => (
                '{',
                '}',
                members.iter().map(|(n, v)| (Some(n), v)).collect(),
            ),
            plain => return out.push_str(&plain.to_text()),
        };
        out.push(open);
        for (n, (name, value)) in items.into_iter().enumerate() {
            if n > 0 {
                out.push(',');
            }
            line(out, depth + 1);
            if let Some(name) = name {
                out.push_str(&Self::Text(name.clone()).to_text());
                out.push_str(": ");
            }
            value.write_pretty(depth + 1, out);
        }
        line(out, depth);
        out.push(close);
    }
}

/// Fails on a text that is no JSON.
pub(crate) fn check(text: &str) -> Result<()> {
    serde_json::from_str::<serde::de::IgnoredAny>(text)
        .map(|_| ())
        .map_err(|e| {
            Error::new(sqlstate::INVALID_TEXT, "invalid input syntax for type json").detail(
                format!(
                    "The text is not JSON at line {} column {}.",
                    e.line(),
                    e.column()
                ),
            )
        })
}

/// A number without an exponent; `None` where it stays as it is.
fn plain_number(text: &str) -> Option<String> {
    const EXPONENT_MAX: u32 = 1_000;
    if text == "-0" {
        return Some("0".to_owned());
    }
    if !text.contains(['e', 'E']) {
        return None;
    }
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text),
    };
    let (whole, fraction) = numeric::plain_digits(unsigned, EXPONENT_MAX)?;
    let whole = if whole.is_empty() { "0" } else { &whole };
    Some(match fraction.as_str() {
        "" => format!("{sign}{whole}"),
        fraction => format!("{sign}{whole}.{fraction}"),
    })
}

/// Reads a text that is known to be JSON.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn accept(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn value(&mut self) -> Result<Json> {
        Ok(match self.peek() {
            Some(b'{') => {
                self.at += 1;
                let mut members = Vec::new();
                while !self.accept(b'}') {
                    self.accept(b',');
                    self.peek();
                    let name = self.string()?;
                    self.accept(b':');
                    members.push((name, self.value()?));
                }
                Json::Object(members)
            }
            Some(b'[') => {
                self.at += 1;
                let mut items = Vec::new();
                while !self.accept(b']') {
                    self.accept(b',');
                    items.push(self.value()?);
                }
                Json::Array(items)
            }
            Some(b'"') => Json::Text(self.string()?),
            Some(_) => {
                let rest = &self.text[self.at..];
                let end = rest
                    .find(|c: char| c == ',' || c == ']' || c == '}' || c.is_ascii_whitespace())
                    .unwrap_or(rest.len());
                self.at += end;
                match &rest[..end] {
                    "null" => Json::Null,
                    "true" => Json::Bool(true),
                    "false" => Json::Bool(false),
                    number => Json::Number(number.to_owned()),
                }
            }
            None => return Err(Error::internal("a JSON text ends within a value")),
        })
    }

    fn string(&mut self) -> Result<String> {
        let rest = &self.text[self.at..];
        let mut escaped = false;
        let inside = rest.bytes().skip(1).position(|b| {
            let ends = b == b'"' && !escaped;
            escaped = b == b'\\' && !escaped;
            ends
        });
        let end = inside.map_or(rest.len(), |at| at + 2);
        self.at += end;
        let text: String = serde_json::from_str(&rest[..end]).map_err(|_| {
            Error::new(sqlstate::INVALID_TEXT, "invalid input syntax for type json")
        })?;
        if text.contains('\0') {
            return Err(Error::new(
                sqlstate::UNTRANSLATABLE_CHARACTER,
                "unsupported Unicode escape sequence",
            )
            .detail("\\u0000 cannot be converted to text."));
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_has_one_text() {
        for (text, expected) in [
            ("{\"b\":1, \"a\":[1,2]}", "{\"a\": [1, 2], \"b\": 1}"),
            ("{\"aa\":1,\"b\":2,\"b\":3}", "{\"b\": 3, \"aa\": 1}"),
            (" [ 1e2 , -1.5E-1, 1.50 ] ", "[100, -0.15, 1.50]"),
            ("\"\\u0041\\n\"", "\"A\\n\""),
            ("{\"a\":{}, \"c\":[]}", "{\"a\": {}, \"c\": []}"),
            ("null", "null"),
        ] {
            assert_eq!(Json::parse_sorted(text).unwrap().to_text(), expected);
        }
        assert!(Json::parse("{\"a\"}").is_err());
        assert!(Json::parse("\"\\u0000\"").is_err());
    }

    #[test]
    fn pretty_texts_have_lines() {
        let value = Json::parse_sorted("{\"a\":[1,{}]}").unwrap();
        let expected = "{\n    \"a\": [\n        1,\n        {\n        }\n    ]\n}";
        assert_eq!(value.to_pretty_text(), expected);
    }
}
