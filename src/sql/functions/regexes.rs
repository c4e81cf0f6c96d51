//! Regular expressions: matches and splits as arrays, and the patterns that [`super::regex_searches`] looks for too.
//! The expressions are the engine's, which know most of PostgreSQL's; absent are back references and look-around.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListBuilder, StringArray, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use regex::{CaptureLocations, Regex, RegexBuilder};

use super::plain::Type;
use super::regex_groups::GroupPlace;
use super::{no_function, result, udf};
use crate::error::{Error, Result, sqlstate};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    [Which::Split, Which::Matches]
        .into_iter()
        .map(function)
        .collect()
}

/// `substring(text FROM pattern)`
pub(super) fn part_of() -> Arc<ScalarUDF> {
    function(Which::Part)
}

fn function(which: Which) -> Arc<ScalarUDF> {
    udf(RegexFunction {
        which,
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

/// What is made of the matches of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Which {
    /// `regexp_split_to_array(text, pattern [, flags])`: what stands between them
    Split,
    /// `substring(text FROM pattern)`: the first group of the first, or the whole one
    Part,
    /// `regexp_matches(text, pattern [, flags])`, as an array of matches, each an array of its
    /// groups
    Matches,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct RegexFunction {
    which: Which,
    signature: Signature,
}

/// A regular expression and whether its flags ask for all matches.
pub(super) fn compiled(pattern: &str, flags: &str) -> Result<(Regex, bool)> {
    let mut builder = RegexBuilder::new(pattern);
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

/// An argument: a text for every row, or one for all.
pub(super) struct Texts {
    array: StringArray,
    pub is_constant: bool,
}

impl Texts {
    pub fn new(argument: &ColumnarValue) -> DataFusionResult<Self> {
        let array = match argument {
            ColumnarValue::Array(array) => array.as_string().clone(),
            // A pattern copied for every row costs more than to match it.
            ColumnarValue::Scalar(scalar) => scalar.to_array()?.as_string().clone(),
        };
        Ok(Self {
            array,
            is_constant: matches!(argument, ColumnarValue::Scalar(_)),
        })
    }

    pub fn get(&self, row: usize) -> Option<&str> {
        let row = if self.is_constant { 0 } else { row };
        self.array.is_valid(row).then(|| self.array.value(row))
    }
}

/// A pattern with its flags, compiled.
pub(super) struct Compiled {
    pub regex: Regex,
    /// All matches are wanted.
    all: bool,
    /// Room for the groups of a match.
    pub groups: CaptureLocations,
    /// Where the first group is, if the match alone says it.
    first_group: Option<GroupPlace>,
}

/// The patterns of a batch, each compiled once.
#[derive(Default)]
pub(super) struct Patterns<'a> {
    /// Places in `compiled` by pattern and flags.
    known: HashMap<(&'a str, &'a str), usize>,
    compiled: Vec<Compiled>,
    last: Option<((&'a str, &'a str), usize)>,
}

impl<'a> Patterns<'a> {
    pub fn get(&mut self, pattern: &'a str, flags: &'a str) -> Result<&mut Compiled> {
        let key = (pattern, flags);
        // Most often all rows have one pattern, even the same text in memory; to compare costs less than to hash.
        let is_last = |last: (&str, &str)| {
            std::ptr::eq(last.0, key.0) && std::ptr::eq(last.1, key.1) || last == key
        };
        let place = match self.last {
            Some((last, place)) if is_last(last) => place,
            _ => self.place(key)?,
        };
        self.last = Some((key, place));
        Ok(&mut self.compiled[place])
    }

    fn place(&mut self, key: (&'a str, &'a str)) -> Result<usize> {
        Ok(match self.known.entry(key) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let (regex, all) = compiled(key.0, key.1)?;
                self.compiled.push(Compiled {
                    groups: regex.capture_locations(),
                    first_group: GroupPlace::of(key.0).filter(|_| key.1.is_empty()),
                    regex,
                    all,
                });
                *new.insert(self.compiled.len() - 1)
            }
        })
    }
}

/// Texts, patterns and flags of a batch.
struct Rows<'a> {
    columns: &'a [Texts],
    count: usize,
    patterns: Patterns<'a>,
}

impl<'a> Rows<'a> {
    fn new(columns: &'a [Texts], count: usize) -> Self {
        Self {
            columns,
            count,
            patterns: Patterns::default(),
        }
    }

    /// Gives `each` what every row says, `None` where an argument is NULL.
    fn visit(&mut self, mut each: impl FnMut(Option<(&'a str, &mut Compiled)>)) -> Result<()> {
        let [texts, patterns, flags @ ..] = self.columns else {
            return Err(Error::internal(
                "a regular expression has a text and a pattern",
            ));
        };
        for row in 0..self.count {
            let flags = flags.first().map_or(Some(""), |flags| flags.get(row));
            let (Some(text), Some(pattern), Some(flags)) =
                (texts.get(row), patterns.get(row), flags)
            else {
                each(None);
                continue;
            };
            each(Some((text, self.patterns.get(pattern, flags)?)));
        }
        Ok(())
    }
}

/// The first group's match, or the whole one's if there is no group.
fn part<'a>(text: &'a str, pattern: &mut Compiled) -> Option<&'a str> {
    if let Some(place) = pattern.first_group {
        return Some(place.within(pattern.regex.find(text)?.as_str()));
    }
    let wanted = usize::from(pattern.groups.len() > 1);
    pattern.regex.captures_read(&mut pattern.groups, text)?;
    let (start, end) = pattern.groups.get(wanted)?;
    Some(&text[start..end])
}

fn split(given: &str, regex: &Regex, parts: &mut StringBuilder) {
    let mut last = 0;
    for found in regex.find_iter(given) {
        // An empty match at the beginning or the end splits nothing off.
        let is_empty = found.is_empty();
        if is_empty && (found.start() == 0 || found.start() == given.len()) {
            continue;
        }
        parts.append_value(&given[last..found.start()]);
        last = found.end();
    }
    parts.append_value(&given[last..]);
}

impl RegexFunction {
    fn evaluate(&self, rows: &mut Rows<'_>) -> Result<ArrayRef> {
        let mut texts = StringBuilder::new();
        match self.which {
            Which::Part => rows.visit(|row| {
                texts.append_option(row.and_then(|(text, pattern)| part(text, pattern)));
            })?,
            Which::Split => {
                let mut lists = ListBuilder::new(texts);
                rows.visit(|row| {
                    let is_valid = row.is_some();
                    if let Some((text, pattern)) = row {
                        split(text, &pattern.regex, lists.values());
                    }
                    lists.append(is_valid);
                })?;
                return Ok(Arc::new(lists.finish()));
            }
            Which::Matches => {
                let mut lists = ListBuilder::new(ListBuilder::new(texts));
                rows.visit(|row| {
                    let is_valid = row.is_some();
                    if let Some((text, pattern)) = row {
                        let count = if pattern.all { usize::MAX } else { 1 };
                        for groups in pattern.regex.captures_iter(text).take(count) {
                            let skipped = usize::from(groups.len() > 1);
                            let groups = groups.iter().skip(skipped);
                            lists
                                .values()
                                .append_value(groups.map(|g| g.map(|g| g.as_str())));
                        }
                    }
                    lists.append(is_valid);
                })?;
                return Ok(Arc::new(lists.finish()));
            }
        }
        Ok(Arc::new(texts.finish()))
    }
}

impl ScalarUDFImpl for RegexFunction {
    fn name(&self) -> &str {
        match self.which {
            Which::Split => "regexp_split_to_array",
            Which::Part => "part_of_text",
            Which::Matches => "regexp_matches_array",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let takes_flags = matches!(self.which, Which::Split | Which::Matches);
        let has_all = types.len() == 2 || types.len() == 3 && takes_flags;
        match has_all && types.iter().all(|given| Type::Text.takes(given)) {
            true => Ok(vec![DataType::Utf8; types.len()]),
            false => Err(no_function(self.name(), types).into()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        let list = |item| DataType::List(Arc::new(Field::new("item", item, true)));
        Ok(match self.which {
            Which::Part => DataType::Utf8,
            Which::Split => list(DataType::Utf8),
            Which::Matches => list(list(DataType::Utf8)),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let columns: Vec<Texts> = args
            .args
            .iter()
            .map(Texts::new)
            .collect::<DataFusionResult<_>>()?;
        let is_constant = columns.iter().all(|column| column.is_constant);
        let count = if is_constant { 1 } else { args.number_rows };
        result(self.evaluate(&mut Rows::new(&columns, count))?, is_constant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits() {
        let split = |given: &str, pattern: &str| {
            let mut parts = StringBuilder::new();
            split(given, &compiled(pattern, "").unwrap().0, &mut parts);
            parts.finish()
        };
        assert_eq!(
            split("a,b;c", "[,;]"),
            StringArray::from(vec!["a", "b", "c"])
        );
        assert_eq!(split("ab", ""), StringArray::from(vec!["a", "b"]));
        assert_eq!(split("", ","), StringArray::from(vec![""]));
    }

    #[test]
    fn every_row_has_its_own_pattern() {
        let column = |texts: [Option<&str>; 4]| Texts {
            array: StringArray::from(texts.to_vec()),
            is_constant: false,
        };
        let columns = [
            column([Some("foobar"), Some("foobar"), None, Some("x")]),
            column([Some("o(.)"), Some("a."), Some("a"), Some("y")]),
        ];
        let evaluate = |which| {
            let signature = Signature::user_defined(Volatility::Immutable);
            let function = RegexFunction { which, signature };
            function.evaluate(&mut Rows::new(&columns, 4)).unwrap()
        };
        let parts = StringArray::from(vec![Some("o"), Some("ar"), None, None]);
        assert_eq!(evaluate(Which::Part).as_string::<i32>(), &parts);
    }

    #[test]
    fn a_constant_pattern_is_that_of_all_rows() {
        let texts = StringArray::from(vec![Some("foobar"), None, Some("x")]);
        let evaluate = |pattern: Option<&str>| {
            let signature = Signature::user_defined(Volatility::Immutable);
            let which = Which::Part;
            let function = RegexFunction { which, signature };
            let pattern = Texts {
                array: StringArray::from(vec![pattern]),
                is_constant: true,
            };
            let array = texts.clone();
            let columns = [
                Texts {
                    array,
                    is_constant: false,
                },
                pattern,
            ];
            let found = function.evaluate(&mut Rows::new(&columns, 3)).unwrap();
            found.as_string::<i32>().clone()
        };
        let parts = StringArray::from(vec![Some("o"), None, None]);
        assert_eq!(evaluate(Some("o(.)")), parts);
        assert_eq!(evaluate(None).null_count(), 3);
    }
}
