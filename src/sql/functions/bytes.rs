//! Functions over `bytea`, beside those of the same names over text, which are the engine's; and
//! `substring(text FROM pattern)`.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;

use super::beside::beside;
use super::plain::{Form, Type, bytes, plain, text, whole};
use crate::error::{Error, Result, sqlstate};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let length = plain(
        "bytea_length",
        &[Form {
            takes: &[Type::Bytea],
            gives: Type::Integer,
            compute: |a| {
                let length = bytes(&a[0])?.len();
                Ok(ScalarValue::Int32(i32::try_from(length).ok()))
            },
        }],
    );
    let part = plain(
        "part_of",
        &[
            Form {
                takes: &[Type::Text, Type::Text],
                gives: Type::Text,
                compute: super::regexes::part_of,
            },
            Form {
                takes: &[Type::Bytea, Type::BigInt],
                gives: Type::Bytea,
                compute: part_of,
            },
            Form {
                takes: &[Type::Bytea, Type::BigInt, Type::BigInt],
                gives: Type::Bytea,
                compute: part_of,
            },
        ],
    );
    let mut functions = vec![
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
        beside(datafusion::functions::unicode::substr(), &part, |types| {
            of_bytes(types) || types.get(1) == Some(&DataType::Utf8)
        }),
    ];
    functions.extend(conversions());
    functions
}

fn of_bytes(types: &[DataType]) -> bool {
    matches!(
        types.first(),
        Some(DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
    )
}

fn conversions() -> Vec<Arc<ScalarUDF>> {
    vec![
        plain(
            "encode",
            &[Form {
                takes: &[Type::Bytea, Type::Text],
                gives: Type::Text,
                compute: encode,
            }],
        ),
        plain(
            "decode",
            &[Form {
                takes: &[Type::Text, Type::Text],
                gives: Type::Bytea,
                compute: decode,
            }],
        ),
        plain(
            "convert_from",
            &[Form {
                takes: &[Type::Bytea, Type::Text],
                gives: Type::Text,
                compute: |a| {
                    utf8_only(&a[1])?;
                    let given = bytes(&a[0])?;
                    let text = std::str::from_utf8(given)
                        .map_err(|e| crate::values::invalid_utf8(&given[e.valid_up_to()..]))?;
                    Ok(ScalarValue::Utf8(Some(text.to_owned())))
                },
            }],
        ),
        plain(
            "convert_to",
            &[Form {
                takes: &[Type::Text, Type::Text],
                gives: Type::Bytea,
                compute: |a| {
                    utf8_only(&a[1])?;
                    Ok(ScalarValue::Binary(Some(text(&a[0])?.as_bytes().to_vec())))
                },
            }],
        ),
        plain(
            "chr",
            &[Form {
                takes: &[Type::BigInt],
                gives: Type::Text,
                compute: |a| {
                    let code = whole(&a[0])?;
                    if code == 0 {
                        return Err(Error::new(
                            sqlstate::PROGRAM_LIMIT_EXCEEDED,
                            "null character not permitted",
                        ));
                    }
                    let found = u32::try_from(code).ok().and_then(char::from_u32);
                    match found {
                        Some(c) => Ok(ScalarValue::Utf8(Some(c.to_string()))),
                        None => Err(Error::new(
                            sqlstate::PROGRAM_LIMIT_EXCEEDED,
                            format!("requested character not valid for encoding: {code}"),
                        )),
                    }
                },
            }],
        ),
        plain(
            "get_byte",
            &[Form {
                takes: &[Type::Bytea, Type::Integer],
                gives: Type::Integer,
                compute: |a| {
                    let (given, at) = (bytes(&a[0])?, whole(&a[1])?);
                    let byte = usize::try_from(at).ok().and_then(|at| given.get(at));
                    match byte {
                        Some(byte) => Ok(ScalarValue::Int32(Some(i32::from(*byte)))),
                        None => Err(Error::new(
                            sqlstate::INVALID_PARAMETER_VALUE,
                            format!(
                                "index {at} out of valid range, 0..{}",
                                given.len() as i64 - 1
                            ),
                        )),
                    }
                },
            }],
        ),
    ]
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
    let invalid = |primary: String| Error::new(sqlstate::INVALID_PARAMETER_VALUE, primary);
    let plain: String = given.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    let decoded = match name.to_ascii_lowercase().as_str() {
        "hex" => {
            if !plain.len().is_multiple_of(2) {
                return Err(invalid(
                    "invalid hexadecimal data: odd number of digits".to_owned(),
                ));
            }
            plain
                .as_bytes()
                .chunks(2)
                .map(|pair| {
                    let digit = |b: u8| char::from(b).to_digit(16);
                    let byte = digit(pair[0]).zip(digit(pair[1])).map(|(h, l)| h * 16 + l);
                    byte.and_then(|b| u8::try_from(b).ok())
                        .ok_or_else(|| invalid("invalid hexadecimal digit".to_owned()))
                })
                .collect::<Result<Vec<u8>>>()?
        }
        "base64" => {
            from_base64(&plain).ok_or_else(|| invalid("invalid base64 end sequence".to_owned()))?
        }
        "escape" => unescaped(given)?,
        _ => return Err(unknown_encoding(name)),
    };
    Ok(ScalarValue::Binary(Some(decoded)))
}

fn unescaped(text: &str) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        match (first, octal.and_then(|d| u8::from_str_radix(d, 8).ok())) {
            (b'\\', _) if after.first() == Some(&b'\\') => {
                out.push(b'\\');
                rest = &after[1..];
            }
            (b'\\', Some(byte)) => {
                out.push(byte);
                rest = &after[3..];
            }
            (b'\\', None) => {
                return Err(Error::new(
                    sqlstate::INVALID_TEXT,
                    "invalid input syntax for type bytea",
                ));
            }
            (byte, _) => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    Ok(out)
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
