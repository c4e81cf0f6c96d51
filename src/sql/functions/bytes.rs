//! Functions over `bytea`, beside those of the same names over text, which are the engine's; and
//! `substring(text FROM pattern)`.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;

use super::beside::beside;
use super::plain::{Form, bytes, form, plain, text, whole};
use crate::error::{Error, Result, sqlstate};
use crate::values::input;

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let length = plain("bytea_length", &[form!([Bytea] -> Integer, length)]);
    let part = plain(
        "part_of",
        &[
            form!([Bytea, BigInt] -> Bytea, part_of),
            form!([Bytea, BigInt, BigInt] -> Bytea, part_of),
        ],
    );
    let substr = beside(
        datafusion::functions::unicode::substr(),
        &super::regexes::part_of(),
        |types| types.get(1) == Some(&DataType::Utf8),
    );
    vec![
        beside(
            datafusion::functions::string::octet_length(),
            &length,
            of_bytes,
        ),
        beside(
            datafusion::functions::unicode::character_length(),
            &length,
            of_bytes,
        ),
        beside(substr, &part, of_bytes),
        beside(
            datafusion::functions::string::bit_length(),
            &plain("bytea_bit_length", &[form!([Bytea] -> Integer, bit_length)]),
            of_bytes,
        ),
        beside(
            datafusion::functions::unicode::strpos(),
            &plain(
                "bytea_position",
                &[form!([Bytea, Bytea] -> Integer, position)],
            ),
            of_bytes,
        ),
        beside(
            datafusion::functions::core::overlay(),
            &plain("bytea_overlay", OVERLAYS),
            of_bytes,
        ),
        beside(
            datafusion::functions::string::btrim(),
            &plain(
                "bytea_btrim",
                &[form!([Bytea, Bytea] -> Bytea, |a| trimmed(a, true, true))],
            ),
            of_bytes,
        ),
        beside(
            datafusion::functions::string::ltrim(),
            &plain(
                "bytea_ltrim",
                &[form!([Bytea, Bytea] -> Bytea, |a| trimmed(a, true, false))],
            ),
            of_bytes,
        ),
        beside(
            datafusion::functions::string::rtrim(),
            &plain(
                "bytea_rtrim",
                &[form!([Bytea, Bytea] -> Bytea, |a| trimmed(a, false, true))],
            ),
            of_bytes,
        ),
        plain("encode", &[form!([Bytea, Text] -> Text, encode)]),
        plain("decode", &[form!([Text, Text] -> Bytea, decode)]),
        plain(
            "convert_from",
            &[form!([Bytea, Text] -> Text, convert_from)],
        ),
        plain(
            "convert_to",
            &[form!([Text, Text] -> Bytea, |a| {
                utf8_only(&a[1])?;
                Ok(ScalarValue::Binary(Some(text(&a[0])?.as_bytes().to_vec())))
            })],
        ),
        plain("chr", &[form!([BigInt] -> Text, character)]),
        plain("get_byte", &[form!([Bytea, Integer] -> Integer, byte_at)]),
    ]
}

fn of_bytes(types: &[DataType]) -> bool {
    matches!(
        types.first(),
        Some(DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
    )
}

fn length(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let length = bytes(&arguments[0])?.len();
    Ok(ScalarValue::Int32(i32::try_from(length).ok()))
}

fn bit_length(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let length = bytes(&arguments[0])?.len().checked_mul(8);
    let length = length.and_then(|length| i32::try_from(length).ok());
    let too_long = || Error::new(sqlstate::NUMERIC_OUT_OF_RANGE, "integer out of range");
    Ok(ScalarValue::Int32(Some(length.ok_or_else(too_long)?)))
}

/// The first place, counted from 1, at which some bytes begin; 0 for none.
fn position(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let (given, wanted) = (bytes(&arguments[0])?, bytes(&arguments[1])?);
    let found = match wanted.is_empty() {
        true => Some(0),
        false => given.windows(wanted.len()).position(|part| part == wanted),
    };
    let place = found.map_or(0, |at| at + 1);
    Ok(ScalarValue::Int32(i32::try_from(place).ok()))
}

const OVERLAYS: &[Form] = &[
    form!([Bytea, Bytea, BigInt] -> Bytea, overlay),
    form!([Bytea, Bytea, BigInt, BigInt] -> Bytea, overlay),
];

/// `overlay(bytes PLACING new FROM start FOR length)`; without a length that of what is put in.
/// Errors: 22011 a start below 1.
fn overlay(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let (given, new) = (bytes(&arguments[0])?, bytes(&arguments[1])?);
    let start = whole(&arguments[2])?;
    let count = match arguments.get(3) {
        Some(count) => whole(count)?,
        None => i64::try_from(new.len()).unwrap_or(i64::MAX),
    };
    if start <= 0 {
        return Err(Error::new(
            sqlstate::SUBSTRING_ERROR,
            "negative substring length not allowed",
        ));
    }
    let place = |at: i64| usize::try_from(at.max(0)).map_or(given.len(), |at| at.min(given.len()));
    let mut out = given[..place(start - 1)].to_vec();
    out.extend_from_slice(new);
    out.extend_from_slice(&given[place((start - 1).saturating_add(count))..]);
    Ok(ScalarValue::Binary(Some(out)))
}

/// Without the bytes at the ends that are among some.
fn trimmed(arguments: &[ScalarValue], at_start: bool, at_end: bool) -> Result<ScalarValue> {
    let (mut rest, gone) = (bytes(&arguments[0])?, bytes(&arguments[1])?);
    while let [first, after @ ..] = rest
        && at_start
        && gone.contains(first)
    {
        rest = after;
    }
    while let [before @ .., last] = rest
        && at_end
        && gone.contains(last)
    {
        rest = before;
    }
    Ok(ScalarValue::Binary(Some(rest.to_vec())))
}

fn convert_from(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    utf8_only(&arguments[1])?;
    let given = bytes(&arguments[0])?;
    let text = std::str::from_utf8(given)
        .map_err(|e| crate::values::invalid_utf8(&given[e.valid_up_to()..]))?;
    Ok(ScalarValue::Utf8(Some(text.to_owned())))
}

fn character(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let refused = |primary: String| Error::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, primary);
    let code = whole(&arguments[0])?;
    if code == 0 {
        return Err(refused("null character not permitted".to_owned()));
    }
    let found = u32::try_from(code).ok().and_then(char::from_u32);
    let found = found.ok_or_else(|| {
        refused(format!(
            "requested character not valid for encoding: {code}"
        ))
    })?;
    Ok(ScalarValue::Utf8(Some(found.to_string())))
}

fn byte_at(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let (given, at) = (bytes(&arguments[0])?, whole(&arguments[1])?);
    let byte = given[super::bits::place(at, given.len())?];
    Ok(ScalarValue::Int32(Some(i32::from(byte))))
}

fn utf8_only(encoding: &ScalarValue) -> Result<()> {
    let name = text(encoding)?;
    let plain: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect::<String>()
        .to_ascii_lowercase();
    match plain.as_str() {
        "utf8" | "unicode" | "sqlascii" => Ok(()),
        _ => Err(Error::unsupported(format!(
            "the encoding \"{name}\" is not supported"
        ))),
    }
}

fn unknown_encoding(name: &str) -> Error {
    Error::new(
        sqlstate::INVALID_PARAMETER_VALUE,
        format!("unrecognized encoding: \"{name}\""),
    )
}

fn encode(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let given = bytes(&arguments[0])?;
    let name = text(&arguments[1])?;
    let encoded = match name.to_ascii_lowercase().as_str() {
        "hex" => given.iter().map(|b| format!("{b:02x}")).collect(),
        "base64" => base64_lines(given),
        "escape" => given
            .iter()
            .map(|b| match b {
                0 | 0x80.. => format!("\\{b:03o}"),
                b'\\' => "\\\\".to_owned(),
                b => char::from(*b).to_string(),
            })
            .collect(),
        _ => return Err(unknown_encoding(name)),
    };
    Ok(ScalarValue::Utf8(Some(encoded)))
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 in lines of 76 characters, as PostgreSQL breaks them.
fn base64_lines(given: &[u8]) -> String {
    const LINE_LENGTH: usize = 76;
    let mut out = String::with_capacity(given.len() * 4 / 3 + 4);
    for (n, group) in given.chunks(3).enumerate() {
        if n > 0 && (n * 4) % LINE_LENGTH == 0 {
            out.push('\n');
        }
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = bits >> (18 - 6 * place) & 63;
            out.push(match place <= group.len() {
                true => char::from(BASE64[digit as usize]),
                false => '=',
            });
        }
    }
    out
}

/// `None` for what is no base64.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let digits = text.trim_end_matches('=');
    if text.len() - digits.len() > 2 {
        return None;
    }
    for group in digits.as_bytes().chunks(4) {
        let mut bits = 0u32;
        for place in 0..4 {
            let value = match group.get(place) {
                Some(digit) => BASE64.iter().position(|d| d == digit)?,
                None => 0,
            };
            bits = bits << 6 | u32::try_from(value).ok()?;
        }
        let bytes = bits.to_be_bytes();
        out.extend_from_slice(bytes.get(1..group.len())?);
    }
    Some(out)
}

fn decode(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let given = text(&arguments[0])?;
    let name = text(&arguments[1])?;
    let decoded = match name.to_ascii_lowercase().as_str() {
        "hex" => input::parse_hex(given)?,
        "base64" => from_base64(given).ok_or_else(|| {
            Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                "invalid base64 end sequence",
            )
        })?,
        "escape" => input::parse_escaped(given)?,
        _ => return Err(unknown_encoding(name)),
    };
    Ok(ScalarValue::Binary(Some(decoded)))
}

/// `substring(bytes FROM start FOR length)`; positions count from 1 and may lie before.
fn part_of(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let given = bytes(&arguments[0])?;
    let start = whole(&arguments[1])?;
    let length = i64::try_from(given.len()).unwrap_or(i64::MAX);
    let end = match arguments.get(2) {
        None => length + 1,
        Some(count) => {
            let count = whole(count)?;
            if count < 0 {
                return Err(Error::new(
                    sqlstate::SUBSTRING_ERROR,
                    "negative substring length not allowed",
                ));
            }
            start.saturating_add(count)
        }
    };
    let place = |p: i64| usize::try_from(p.clamp(1, length + 1) - 1).unwrap_or(0);
    let (from, to) = (place(start), place(end));
    let part = given.get(from..to.max(from)).unwrap_or_default();
    Ok(ScalarValue::Binary(Some(part.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodings_go_both_ways() {
        let given = ScalarValue::Binary(Some(vec![0x41, 0xff, 0, b'\\']));
        for (name, expected) in [
            ("hex", "41ff005c"),
            ("base64", "Qf8AXA=="),
            ("escape", "A\\377\\000\\\\"),
        ] {
            let name = ScalarValue::Utf8(Some(name.to_owned()));
            let encoded = encode(&[given.clone(), name.clone()]).unwrap();
            assert_eq!(encoded, ScalarValue::Utf8(Some(expected.to_owned())));
            assert_eq!(decode(&[encoded, name]).unwrap(), given);
        }
        let odd = ["abc", "hex"].map(|t| ScalarValue::Utf8(Some(t.to_owned())));
        assert!(decode(&odd).is_err());
    }

    #[test]
    fn bytes_are_found_and_put_in() {
        let given = |bytes: &[u8]| ScalarValue::Binary(Some(bytes.to_vec()));
        let found = |wanted: &[u8]| position(&[given(&[1, 2, 3, 2]), given(wanted)]).unwrap();
        assert_eq!(found(&[2]), ScalarValue::Int32(Some(2)));
        assert_eq!(found(&[3, 2]), ScalarValue::Int32(Some(3)));
        assert_eq!(found(&[9]), ScalarValue::Int32(Some(0)));
        assert_eq!(found(&[]), ScalarValue::Int32(Some(1)));
        let number = |n| ScalarValue::Int64(Some(n));
        let put = |start, count| {
            overlay(&[given(&[1, 2, 3]), given(&[9]), number(start), number(count)]).unwrap()
        };
        assert_eq!(put(2, 1), given(&[1, 9, 3]));
        assert_eq!(put(2, 9), given(&[1, 9]));
        assert_eq!(put(9, 1), given(&[1, 2, 3, 9]));
        assert!(overlay(&[given(&[1]), given(&[9]), number(0)]).is_err());
        let arguments = [given(&[0, 1, 0]), given(&[0])];
        assert_eq!(trimmed(&arguments, true, true).unwrap(), given(&[1]));
        assert_eq!(trimmed(&arguments, false, true).unwrap(), given(&[0, 1]));
    }

    #[test]
    fn parts_count_from_one() {
        let part = |start, count| {
            let given = ScalarValue::Binary(Some(vec![1, 2, 3]));
            let numbers = [start, count].map(|n| ScalarValue::Int64(Some(n)));
            match part_of(&[given, numbers[0].clone(), numbers[1].clone()]).unwrap() {
                ScalarValue::Binary(Some(bytes)) => bytes,
                other => panic!("{other}"),
            }
        };
        assert_eq!(part(2, 1), [2]);
        assert_eq!(part(0, 2), [1]);
        assert_eq!(part(3, 9), [3]);
        assert!(part(9, 1).is_empty());
    }
}
