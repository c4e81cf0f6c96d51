//! Regular expressions: matches and splits as arrays. The expressions are the engine's, which know
//! most of PostgreSQL's; absent are back references and look-around.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ListBuilder, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use regex::{Regex, RegexBuilder};

use super::plain::{Form, Type, plain, text, texts};
use super::{arrays, result, udf};
use crate::error::{Error, Result, sqlstate};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    let two = TypeSignature::Exact(vec![DataType::Utf8; 2]);
    let three = TypeSignature::Exact(vec![DataType::Utf8; 3]);
    vec![
        plain(
            "regexp_split_to_array",
            &[
                Form {
                    takes: &[Type::Text, Type::Text],
                    gives: Type::TextArray,
                    compute: split,
                },
                Form {
                    takes: &[Type::Text, Type::Text, Type::Text],
                    gives: Type::TextArray,
                    compute: split,
                },
            ],
        ),
        plain(
            "regexp_substr",
            &[Form {
                takes: &[Type::Text, Type::Text],
                gives: Type::Text,
                compute: |a| {
                    let (regex, _) = compiled(&a[1], None)?;
                    let found = regex.find(text(&a[0])?).map(|m| m.as_str().to_owned());
                    Ok(ScalarValue::Utf8(found))
                },
            }],
        ),
        udf(Matches {
            signature: Signature::one_of(vec![two, three], Volatility::Immutable),
        }),
    ]
}

/// A regular expression and whether its flags ask for all matches.
fn compiled(pattern: &ScalarValue, flags: Option<&ScalarValue>) -> Result<(Regex, bool)> {
    let flags = match flags {
        Some(flags) => text(flags)?,
        None => "",
    };
    let mut builder = RegexBuilder::new(text(pattern)?);
    let mut all = false;
    // A dot matches a line break unless a flag says otherwise, as in PostgreSQL.
    builder.dot_matches_new_line(true);
    for flag in flags.chars() {
        match flag {
            'g' => all = true,
            'i' => {
                builder.case_insensitive(true);
            }
            'c' => {
                builder.case_insensitive(false);
            }
            'x' => {
                builder.ignore_whitespace(true);
            }
            's' => {
                builder.dot_matches_new_line(true);
            }
            'n' | 'm' => {
                builder.dot_matches_new_line(false).multi_line(true);
            }
            _ => {
                return Err(Error::new(
                    sqlstate::INVALID_PARAMETER_VALUE,
                    format!("invalid regular expression option: \"{flag}\""),
                ));
            }
        }
    }
    let regex = builder.build().map_err(|_| {
        Error::new(
            sqlstate::INVALID_REGULAR_EXPRESSION,
            "invalid regular expression",
        )
    })?;
    Ok((regex, all))
}

/// `substring(text FROM pattern)`: the first group's match, or the whole one's.
pub(super) fn part_of(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let (regex, _) = compiled(&arguments[1], None)?;
    let found = regex.captures(text(&arguments[0])?);
    let part = found.and_then(|groups| {
        let wanted = usize::from(groups.len() > 1);
        groups.get(wanted).map(|m| m.as_str().to_owned())
    });
    Ok(ScalarValue::Utf8(part))
}

fn split(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let given = text(&arguments[0])?;
    let (regex, _) = compiled(&arguments[1], arguments.get(2))?;
    let mut parts = Vec::new();
    let mut last = 0;
    for found in regex.find_iter(given) {
        // An empty match at the beginning or the end splits nothing off.
        let is_empty = found.is_empty();
        if is_empty && (found.start() == 0 || found.start() == given.len()) {
            continue;
        }
        parts.push(Some(given[last..found.start()].to_owned()));
        last = found.end();
    }
    parts.push(Some(given[last..].to_owned()));
    Ok(texts(Type::TextArray, parts))
}

/// `regexp_matches` as an array of matches, each an array of its groups.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Matches {
    signature: Signature,
}

fn groups_type() -> DataType {
    DataType::List(Arc::new(Field::new("item", DataType::Utf8, true)))
}

impl ScalarUDFImpl for Matches {
    fn name(&self) -> &str {
        "regexp_matches_array"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::List(Arc::new(Field::new(
            "item",
            groups_type(),
            true,
        ))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let mut builder = ListBuilder::new(ListBuilder::new(StringBuilder::new()));
        for row in 0..columns[0].len() {
            let values = columns
                .iter()
                .map(|column| ScalarValue::try_from_array(column, row))
                .collect::<DataFusionResult<Vec<_>>>()?;
            if values.iter().any(ScalarValue::is_null) {
                builder.append(false);
                continue;
            }
            let (regex, all) = compiled(&values[1], values.get(2))?;
            let count = if all { usize::MAX } else { 1 };
            for groups in regex.captures_iter(text(&values[0])?).take(count) {
                let skipped = usize::from(groups.len() > 1);
                for group in groups.iter().skip(skipped) {
                    builder
                        .values()
                        .values()
                        .append_option(group.map(|g| g.as_str()));
                }
                builder.values().append(true);
            }
            builder.append(true);
        }
        result(Arc::new(builder.finish()), constant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits() {
        let split = |given: &str, pattern: &str| {
            let arguments = [given, pattern].map(|t| ScalarValue::Utf8(Some(t.to_owned())));
            split(&arguments).unwrap().to_string()
        };
        assert_eq!(split("a,b;c", "[,;]"), "[a, b, c]");
        assert_eq!(split("ab", ""), "[a, b]");
        assert_eq!(split("", ","), "[]");
    }
}
