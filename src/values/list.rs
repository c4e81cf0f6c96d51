//! Array literals: `{1,NULL,"a b"}`, nested as `{{1},{2}}`.

use bytes::{BufMut, BytesMut};

use crate::error::{Error, Result, sqlstate};

/// An element of an array literal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// NULL
    Null,
    /// text, unquoted
    Text(String),
    /// a nested array, as its literal
    Nested(String),
}

/// Quotes what was written into `out` from `start` on, where an element needs quotes.
pub(crate) fn quote_element(out: &mut BytesMut, start: usize) {
    let text = &out[start..];
    let special = |b: &u8| matches!(b, b'{' | b'}' | b',' | b'"' | b'\\' | b' ' | 0x09..=0x0d);
    if !text.is_empty() && !text.eq_ignore_ascii_case(b"null") && !text.iter().any(special) {
        return;
    }
    let text = text.to_vec();
    out.truncate(start);
    out.put_u8(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.put_u8(b'\\');
        }
        out.put_u8(byte);
    }
    out.put_u8(b'"');
}

/// Splits an array literal into its elements; 22P02 when it is none. Bounds such as `[0:1]=` are
/// read over, since arrays here always start at 1.
pub(crate) fn parse_elements(text: &str) -> Result<Vec<Element>> {
    let malformed = |detail: &str| {
        Error::new(
            sqlstate::INVALID_TEXT,
            format!("malformed array literal: \"{text}\""),
        )
        .detail(detail)
    };
    let trimmed = text.trim();
    let trimmed = match (trimmed.starts_with('['), trimmed.find("]={")) {
        (true, Some(at)) => &trimmed[at + 2..],
        _ => trimmed,
    };
    let inner = trimmed
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .ok_or_else(|| malformed("Array value must start with \"{\" and end with \"}\"."))?;
    if inner.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut elements = Vec::new();
    let mut rest = inner;
    loop {
        let (element, after) =
            next_element(rest).ok_or_else(|| malformed("An element is not well formed."))?;
        elements.push(element);
        let after = after.trim_start();
        if after.is_empty() {
            return Ok(elements);
        }
        rest = after
            .strip_prefix(',')
            .ok_or_else(|| malformed("Elements must be separated by commas."))?;
    }
}

fn next_element(text: &str) -> Option<(Element, &str)> {
    let text = text.trim_start();
    match text.as_bytes().first()? {
        b'"' => quoted(&text[1..]).map(|(value, rest)| (Element::Text(value), rest)),
        b'{' => nested(text),
        _ => {
            let end = text.find(',').unwrap_or(text.len());
            let (raw, rest) = text.split_at(end);
            let raw = raw.trim_end();
            if raw.is_empty() || raw.contains(['"', '{', '}']) {
                return None;
            }
            let element = match raw.eq_ignore_ascii_case("null") {
                true => Element::Null,
                false => Element::Text(unescape(raw)?),
            };
            Some((element, rest))
        }
    }
}

fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            c => value.push(c),
        }
    }
    None
}

fn unescape(text: &str) -> Option<String> {
    let mut value = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        value.push(match c {
            '\\' => characters.next()?,
            c => c,
        });
    }
    Some(value)
}

fn nested(text: &str) -> Option<(Element, &str)> {
    let mut depth = 0;
    let mut in_quotes = false;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next()?;
            }
            b'"' => in_quotes = !in_quotes,
            b'{' if !in_quotes => depth += 1,
            b'}' if !in_quotes => {
                depth -= 1;
                if depth == 0 {
                    let (literal, rest) = text.split_at(at + 1);
                    return Some((Element::Nested(literal.to_owned()), rest));
                }
            }
            _ => {}
        }
    }
    None
}
