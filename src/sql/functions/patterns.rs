//! `like_escape`, `similar_to_escape`: PostgreSQL's own helpers, under its names.
//!
//! The engine's LIKE knows one escape, the backslash, and its regular expressions are searched for
//! anywhere; these bring PostgreSQL's patterns to those forms.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{arrays, result, udf};
use crate::error::{Error, Result, sqlstate};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let two_texts =
        || Signature::exact(vec![DataType::Utf8, DataType::Utf8], Volatility::Immutable);
    vec![
        udf(PatternFunction {
            which: Which::LikeEscape,
            signature: two_texts(),
        }),
        udf(PatternFunction {
            which: Which::SimilarToEscape,
            signature: two_texts(),
        }),
    ]
}

fn escape_character(escape: &str) -> Result<Option<char>> {
    let mut characters = escape.chars();
    match (characters.next(), characters.next()) {
        (first, None) => Ok(first),
        _ => Err(
            Error::new(sqlstate::INVALID_ESCAPE_SEQUENCE, "invalid escape string")
                .hint("Escape string must be empty or one character."),
        ),
    }
}

fn ends_with_escape(operator: &str) -> Error {
    Error::new(
        sqlstate::INVALID_ESCAPE_SEQUENCE,
        format!("{operator} pattern must not end with escape character"),
    )
}

/// A LIKE pattern whose escape is a backslash as a regular expression that matches the whole text.
/// Errors: 22025 an escape at its end.
pub(super) fn like_regex(pattern: &str) -> Result<String> {
    let mut out = String::from("^(?s:");
    let mut characters = pattern.chars();
    while let Some(c) = characters.next() {
        let literal = match c {
            '%' => {
                out.push_str(".*");
                continue;
            }
            '_' => {
                out.push('.');
                continue;
            }
            '\\' => characters.next().ok_or_else(|| ends_with_escape("LIKE"))?,
            literal => literal,
        };
        out.push_str(&regex::escape(literal.encode_utf8(&mut [0; 4])));
    }
    out.push_str(")$");
    Ok(out)
}

/// A LIKE pattern whose escape is `escape` (empty: none) as one whose escape is a backslash.
pub fn like_escape(pattern: &str, escape: &str) -> Result<String> {
    let escape = escape_character(escape)?;
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut characters = pattern.chars();
    while let Some(c) = characters.next() {
        if Some(c) == escape {
            match characters.next() {
                // `cx` means x itself; a backslash makes it so for the wild cards and itself.
                Some(next @ ('%' | '_' | '\\')) => {
                    out.push('\\');
                    out.push(next);
                }
                Some(next) => out.push(next),
                None => {
                    return Err(ends_with_escape("LIKE"));
                }
            }
        } else if c == '\\' {
            out.push_str("\\\\");
        } else {
            out.push(c);
        }
    }
    Ok(out)
}

/// A pattern of SQL's SIMILAR TO as a regular expression that matches the whole text.
pub fn similar_to_regex(pattern: &str, escape: &str) -> Result<String> {
    let escape = escape_character(escape)?;
    let body = similar_body(pattern, escape, Repeats::AsOftenAsCanBe)?;
    Ok(format!("^(?:{body})$"))
}

/// `substring(x FROM pattern FOR escape)`: a regular expression whose group is what stands between
/// the two separators, an escape and a double quote each, or all of the text without them; what
/// stands before it is as short as can be. Errors: 2200C more than two separators.
pub fn substring_regex(pattern: &str, escape: &str) -> Result<String> {
    let character = escape_character(escape)?;
    let separator = format!("{escape}\"");
    let parts: Vec<&str> = match character {
        Some(_) => pattern.split(&separator).collect(),
        None => vec![pattern],
    };
    let body = |part, repeats| similar_body(part, character, repeats);
    Ok(match parts.as_slice() {
        [all] => format!("^({})$", body(all, Repeats::AsOftenAsCanBe)?),
        [before, wanted] => format!(
            "^(?:{})({})$",
            body(before, Repeats::AsSeldomAsCanBe)?,
            body(wanted, Repeats::AsOftenAsCanBe)?
        ),
        [before, wanted, after] => format!(
            "^(?:{})({})(?:{})$",
            body(before, Repeats::AsSeldomAsCanBe)?,
            body(wanted, Repeats::AsOftenAsCanBe)?,
            body(after, Repeats::AsOftenAsCanBe)?
        ),
        _ => {
            return Err(Error::new(
                sqlstate::INVALID_USE_OF_ESCAPE,
                "SQL regular expression may not contain more than two escape-double-quote separators",
            ));
        }
    })
}

/// How much `%` takes where the rest leaves a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeats {
    AsOftenAsCanBe,
    AsSeldomAsCanBe,
}

fn similar_body(pattern: &str, escape: Option<char>, repeats: Repeats) -> Result<String> {
    let mut out = String::new();
    let mut in_brackets = false;
    let mut characters = pattern.chars();
    while let Some(c) = characters.next() {
        if Some(c) == escape {
            let Some(next) = characters.next() else {
                return Err(ends_with_escape("SIMILAR TO"));
            };
            if !next.is_alphanumeric() && next != '_' {
                out.push('\\');
            }
            out.push(next);
            continue;
        }
        match c {
            '[' => {
                in_brackets = true;
                out.push(c);
            }
            ']' => {
                in_brackets = false;
                out.push(c);
            }
            '\\' => out.push_str("\\\\"),
            _ if in_brackets => out.push(c),
            // As in PostgreSQL, wild cards match line breaks too.
            '%' if repeats == Repeats::AsSeldomAsCanBe => out.push_str("(?s:.)*?"),
            '%' => out.push_str("(?s:.)*"),
            '_' => out.push_str("(?s:.)"),
            '.' | '^' | '$' => {
                out.push('\\');
                out.push(c);
            }
            '(' => out.push_str("(?:"),
            _ => out.push(c),
        }
    }
    Ok(out)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Which {
    LikeEscape,
    SimilarToEscape,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PatternFunction {
    which: Which,
    signature: Signature,
}

impl ScalarUDFImpl for PatternFunction {
    fn name(&self) -> &str {
        match self.which {
            Which::LikeEscape => "like_escape",
            Which::SimilarToEscape => "similar_to_escape",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let patterns = columns[0].as_string::<i32>();
        let escapes = columns[1].as_string::<i32>();
        let converted = patterns
            .iter()
            .zip(escapes)
            .map(|pair| match pair {
                (Some(pattern), Some(escape)) => match self.which {
                    Which::LikeEscape => like_escape(pattern, escape),
                    Which::SimilarToEscape => similar_to_regex(pattern, escape),
                }
                .map(Some),
                _ => Ok(None),
            })
            .collect::<Result<StringArray>>()?;
        result(Arc::new(converted) as ArrayRef, constant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like() {
        for (pattern, escape, expected) in [
            ("pg/_%", "/", "pg\\_%"),
            ("a//b", "/", "a/b"),
            ("50!%", "!", "50\\%"),
            ("a\\b", "/", "a\\\\b"),
            ("a\\_b", "", "a\\\\_b"),
        ] {
            assert_eq!(like_escape(pattern, escape).unwrap(), expected);
        }
        assert!(like_escape("a/", "/").is_err());
        assert!(like_escape("a", "ab").is_err());
    }

    #[test]
    fn like_as_regular_expression() {
        for (pattern, expected) in [
            ("a%b_", "^(?s:a.*b.)$"),
            ("a.\\%", "^(?s:a\\.%)$"),
            ("", "^(?s:)$"),
        ] {
            assert_eq!(like_regex(pattern).unwrap(), expected);
        }
        assert_eq!(like_regex("a\\").unwrap_err().sqlstate(), "22025");
    }

    #[test]
    fn parts_between_separators() {
        let regex = |pattern| substring_regex(pattern, "#");
        assert_eq!(
            regex("%#\"o_a#\"_").unwrap(),
            "^(?:(?s:.)*?)(o(?s:.)a)(?:(?s:.))$"
        );
        assert_eq!(regex("a").unwrap(), "^(a)$");
        assert_eq!(regex("a#\"b").unwrap(), "^(?:a)(b)$");
        assert_eq!(regex("#\"#\"#\"").unwrap_err().sqlstate(), "2200C");
    }

    #[test]
    fn similar() {
        for (pattern, expected) in [
            ("a%", "^(?:a(?s:.)*)$"),
            ("(a|b)_", "^(?:(?:a|b)(?s:.))$"),
            ("a.b", "^(?:a\\.b)$"),
            ("[a%]\\%", "^(?:[a%]\\%)$"),
        ] {
            assert_eq!(similar_to_regex(pattern, "\\").unwrap(), expected);
        }
    }
}
