//! Unicode in texts: `normalize`, `is_normalized` (`IS NORMALIZED`) and `unistr` (PostgreSQL 15 documentation, section
//! 9.4).

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;
use unicode_normalization::UnicodeNormalization;

use super::plain::{form, plain, text, text_or_null};
use crate::error::{Error, Result, sqlstate};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        plain(
            "normalize",
            &[
                form!([Text] -> Text, |a| Ok(text_or_null(Some(normalized(text(&a[0])?, "NFC")?)))),
                form!([Text, Text] -> Text, |a| {
                    Ok(text_or_null(Some(normalized(text(&a[0])?, text(&a[1])?)?)))
                }),
            ],
        ),
        plain(
            "is_normalized",
            &[form!([Text, Text] -> Boolean, |a| {
                let given = text(&a[0])?;
                let is_normal = normalized(given, text(&a[1])?)? == given;
                Ok(ScalarValue::Boolean(Some(is_normal)))
            })],
        ),
        plain(
            "unistr",
            &[form!([Text] -> Text, |a| Ok(text_or_null(Some(unescaped(text(&a[0])?)?))))],
        ),
    ]
}

fn normalized(given: &str, form: &str) -> Result<String> {
    Ok(match form.to_ascii_uppercase().as_str() {
        "NFC" => given.nfc().collect(),
        "NFD" => given.nfd().collect(),
        "NFKC" => given.nfkc().collect(),
        "NFKD" => given.nfkd().collect(),
        _ => {
            // PostgreSQL has the forms in its grammar.
            return Err(Error::new(
                sqlstate::SYNTAX_ERROR,
                format!("invalid normalization form: {form}"),
            ));
        }
    })
}

/// `\XXXX`, `\+XXXXXX`, `\uXXXX` and `\UXXXXXXXX` as their characters; two of them may be a surrogate pair.
fn unescaped(given: &str) -> Result<String> {
    let mut units = Vec::new();
    let mut rest = given;
    while let Some(first) = rest.chars().next() {
        if first != '\\' {
            units.extend(first.encode_utf16(&mut [0; 2]).iter().copied());
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let behind = &rest[1..];
        if let Some(behind) = behind.strip_prefix('\\') {
            units.push(u16::from(b'\\'));
            rest = behind;
            continue;
        }
        let (prefix, digits) = match behind.bytes().next() {
            Some(b'+') => (1, 6),
            Some(b'u') => (1, 4),
            Some(b'U') => (1, 8),
            _ => (0, 4),
        };
        let code = behind.get(prefix..prefix + digits);
        let code = code.filter(|code| code.bytes().all(|b| b.is_ascii_hexdigit()));
        let code = code.ok_or_else(invalid_escape)?;
        match u32::from_str_radix(code, 16).map_err(|_| invalid_escape())? {
            unit @ 0xd800..=0xdfff => units.push(unit as u16),
            code => {
                let character = char::from_u32(code).filter(|c| *c != '\0');
                let character = character.ok_or_else(|| {
                    Error::new(
                        sqlstate::SYNTAX_ERROR,
                        format!("invalid Unicode code point: {code:04X}"),
                    )
                })?;
                units.extend(character.encode_utf16(&mut [0; 2]).iter().copied());
            }
        }
        rest = &behind[prefix + digits..];
    }
    String::from_utf16(&units)
        .map_err(|_| Error::new(sqlstate::SYNTAX_ERROR, "invalid Unicode surrogate pair"))
}

fn invalid_escape() -> Error {
    Error::new(sqlstate::SYNTAX_ERROR, "invalid Unicode escape")
        .hint("Unicode escapes must be \\XXXX, \\+XXXXXX, \\uXXXX, or \\UXXXXXXXX.")
}
