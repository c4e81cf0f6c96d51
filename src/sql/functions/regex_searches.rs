//! `regexp_count`, `regexp_instr`, `regexp_like`, `regexp_match`, `regexp_replace` and `regexp_substr` with all their
//! arguments, as in PostgreSQL 15 (documentation, section 9.4). The expressions are those of [`super::regexes`].
//!
//! Matches are sought one after the other: behind an empty match the search goes on one character further, so that
//! a match may begin where the last one ended. The engine's own functions skip that match, and their dots stop at
//! line breaks.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanBuilder, Int32Builder, Int64Array, ListBuilder, StringBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use regex::{CaptureLocations, Regex};

use super::plain::Type;
use super::regexes::{Compiled, Patterns, Texts};
use super::{no_function, result, udf};
use crate::error::{Error, Result, sqlstate};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    use Which::{Count, Instr, Like, Match, Replace, Substr};
    let all = [Count, Instr, Like, Match, Replace, Substr].into_iter();
    all.map(|which| {
        udf(Search {
            which,
            signature: Signature::user_defined(Volatility::Immutable),
        })
    })
    .collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Which {
    /// `regexp_count(text, pattern [, start [, flags]])`
    Count,
    /// `regexp_instr(text, pattern [, start [, n [, endoption [, flags [, subexpr]]]]])`
    Instr,
    /// `regexp_like(text, pattern [, flags])`
    Like,
    /// `regexp_match(text, pattern [, flags])`
    Match,
    /// `regexp_replace(text, pattern, replacement [, flags])`, or `[, start [, n [, flags]]]`
    Replace,
    /// `regexp_substr(text, pattern [, start [, n [, flags [, subexpr]]]])`
    Substr,
}

/// An argument behind the pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Argument {
    Replacement,
    Start,
    N,
    EndOption,
    Flags,
    Subexpr,
}

impl Which {
    fn name(self) -> &'static str {
        match self {
            Self::Count => "regexp_count",
            Self::Instr => "regexp_instr",
            Self::Like => "regexp_like",
            Self::Match => "regexp_match",
            Self::Replace => "regexp_replace",
            Self::Substr => "regexp_substr",
        }
    }

    /// What may follow the pattern, all of it or its beginning; of the forms the first that fits is meant.
    fn forms(self) -> &'static [&'static [Argument]] {
        use Argument::{EndOption, Flags, N, Replacement, Start, Subexpr};
        match self {
            Self::Count => &[&[Start, Flags]],
            Self::Instr => &[&[Start, N, EndOption, Flags, Subexpr]],
            Self::Like | Self::Match => &[&[Flags]],
            Self::Replace => &[&[Replacement, Flags], &[Replacement, Start, N, Flags]],
            Self::Substr => &[&[Start, N, Flags, Subexpr]],
        }
    }

    /// Arguments behind the pattern that must be there.
    fn needed(self) -> usize {
        usize::from(self == Self::Replace)
    }

    /// The arguments that values of these types are.
    fn arguments(self, types: &[DataType]) -> Option<&'static [Argument]> {
        let (subject, rest) = types.split_at_checked(2)?;
        if rest.len() < self.needed() || !subject.iter().all(|given| Type::Text.takes(given)) {
            return None;
        }
        let fits = |form: &&[Argument]| {
            let mut pairs = form.iter().zip(rest);
            rest.len() <= form.len() && pairs.all(|(argument, given)| argument.takes(given))
        };
        let form = self.forms().iter().find(|form| fits(form))?;
        Some(&form[..rest.len()])
    }
}

impl Argument {
    fn is_text(self) -> bool {
        matches!(self, Self::Replacement | Self::Flags)
    }

    fn takes(self, given: &DataType) -> bool {
        match self.is_text() {
            true => Type::Text.takes(given),
            false => Type::Integer.takes(given) || *given == DataType::Int64,
        }
    }

    fn data_type(self) -> DataType {
        match self.is_text() {
            true => DataType::Utf8,
            false => DataType::Int64,
        }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Search {
    which: Which,
    signature: Signature,
}

/// The values of an argument.
enum Values {
    Texts(Texts),
    /// And whether one is for all rows.
    Numbers(Int64Array, bool),
}

impl Values {
    fn new(argument: &ColumnarValue, is_text: bool) -> DataFusionResult<Self> {
        if is_text {
            return Ok(Self::Texts(Texts::new(argument)?));
        }
        Ok(match argument {
            ColumnarValue::Array(array) => {
                Self::Numbers(array.as_primitive::<Int64Type>().clone(), false)
            }
            ColumnarValue::Scalar(scalar) => {
                let array = scalar.to_array()?;
                Self::Numbers(array.as_primitive::<Int64Type>().clone(), true)
            }
        })
    }

    fn text(&self, row: usize) -> Option<&str> {
        match self {
            Self::Texts(texts) => texts.get(row),
            Self::Numbers(..) => None,
        }
    }

    fn number(&self, row: usize) -> Option<i64> {
        match self {
            Self::Texts(_) => None,
            Self::Numbers(numbers, is_constant) => {
                let row = if *is_constant { 0 } else { row };
                numbers.is_valid(row).then(|| numbers.value(row))
            }
        }
    }

    fn is_constant(&self) -> bool {
        match self {
            Self::Texts(texts) => texts.is_constant,
            Self::Numbers(_, is_constant) => *is_constant,
        }
    }
}

/// Takes what a row asks for and its pattern, or that an argument is NULL.
type ForRow<'f> = dyn FnMut(Option<(&Asked<'_>, &mut Compiled)>) + 'f;

/// What one row asks for.
struct Asked<'a> {
    text: &'a str,
    replacement: &'a str,
    /// Byte where the search begins, if the text is that long.
    from: Option<usize>,
    /// Which match is meant; 0: all of them.
    n: usize,
    /// What lies behind the match.
    is_end: bool,
    subexpr: usize,
}

/// A row whose arguments are all there, with its pattern and flags; `None` if one is NULL.
fn asked<'a>(
    which: Which,
    values: &'a [Values],
    arguments: &[Argument],
    row: usize,
) -> Result<Option<(Asked<'a>, &'a str, &'a str)>> {
    let (Some(text), Some(pattern)) = (values[0].text(row), values[1].text(row)) else {
        return Ok(None);
    };
    let (mut replacement, mut flags) = ("", "");
    let (mut start, mut n, mut end_option, mut subexpr) = (1, None, 0, 0);
    for (argument, value) in arguments.iter().zip(&values[2..]) {
        let (text, number) = (value.text(row), value.number(row));
        if text.is_none() && number.is_none() {
            return Ok(None);
        }
        let (text, number) = (text.unwrap_or_default(), number.unwrap_or_default());
        match argument {
            Argument::Replacement => replacement = text,
            Argument::Flags => flags = text,
            Argument::Start => start = number,
            Argument::N => n = Some(number),
            Argument::EndOption => end_option = number,
            Argument::Subexpr => subexpr = number,
        }
    }
    check_flags(which, arguments, flags)?;
    let replaces = which == Which::Replace;
    let all_matches = replaces && flags.contains('g');
    let n = n.unwrap_or(i64::from(!all_matches));
    check("start", start, start >= 1)?;
    check("n", n, n >= i64::from(!replaces))?;
    check("endoption", end_option, (0..=1).contains(&end_option))?;
    check("subexpr", subexpr, subexpr >= 0)?;
    let place = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
    Ok(Some((
        Asked {
            text,
            replacement,
            from: byte_of(text, place(start)),
            n: place(n),
            is_end: end_option == 1,
            subexpr: place(subexpr),
        },
        pattern,
        flags,
    )))
}

/// One match is one match, and a number that is a text is no flag.
fn check_flags(which: Which, arguments: &[Argument], flags: &str) -> Result<()> {
    let invalid = |text: String| Error::new(sqlstate::INVALID_PARAMETER_VALUE, text);
    if which != Which::Replace {
        if !flags.contains('g') {
            return Ok(());
        }
        let name = which.name();
        let error = invalid(format!("{name}() does not support the \"global\" option"));
        return Err(match which {
            Which::Match => error.hint("Use the regexp_matches function instead."),
            _ => error,
        });
    }
    let is_number = flags.starts_with(|first: char| first.is_ascii_digit());
    if is_number && arguments == [Argument::Replacement, Argument::Flags] {
        return Err(invalid(format!("invalid regular expression option: \"{flags}\"")).hint(
            "If you meant to use regexp_replace() with a start parameter, cast the fourth argument to integer explicitly.",
        ));
    }
    Ok(())
}

fn check(name: &str, value: i64, is_valid: bool) -> Result<()> {
    match is_valid {
        true => Ok(()),
        false => Err(Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("invalid value for parameter \"{name}\": {value}"),
        )),
    }
}

/// The byte where a character, counted from 1, begins; that behind the last one is one too.
fn byte_of(text: &str, character: usize) -> Option<usize> {
    let bytes = text.char_indices().map(|(byte, _)| byte);
    bytes.chain([text.len()]).nth(character - 1)
}

/// The character, counted from 1, that begins at a byte.
fn character_at(text: &str, byte: usize) -> i32 {
    i32::try_from(text[..byte].chars().count() + 1).unwrap_or(i32::MAX)
}

/// Calls `each` with the groups of every match from `from` on, until it says that it has enough.
fn visit_matches(
    regex: &Regex,
    groups: &mut CaptureLocations,
    text: &str,
    from: Option<usize>,
    mut each: impl FnMut(&CaptureLocations) -> bool,
) {
    let mut next = from;
    while let Some(at) = next {
        let Some(found) = regex.captures_read_at(groups, text, at) else {
            return;
        };
        if !each(groups) {
            return;
        }
        next = Some(found.end());
        if found.is_empty() {
            let behind = text[found.end()..].chars().next();
            next = behind.map(|character| found.end() + character.len_utf8());
        }
    }
}

impl Asked<'_> {
    /// Where the wanted part of the wanted match lies.
    fn place(&self, pattern: &mut Compiled) -> Option<(usize, usize)> {
        let mut place = None;
        let mut left = self.n;
        let Compiled { regex, groups, .. } = pattern;
        visit_matches(regex, groups, self.text, self.from, |groups| {
            left -= 1;
            if left == 0 {
                place = groups.get(self.subexpr);
            }
            left > 0
        });
        place
    }

    fn count(&self, pattern: &mut Compiled) -> i32 {
        let mut count = 0;
        let Compiled { regex, groups, .. } = pattern;
        visit_matches(regex, groups, self.text, self.from, |_| {
            count += 1;
            true
        });
        count
    }

    /// The text with the wanted match, or all, replaced.
    fn replaced(&self, pattern: &mut Compiled) -> String {
        let mut replaced = String::with_capacity(self.text.len());
        let (mut copied, mut number) = (0, 0);
        let Compiled { regex, groups, .. } = pattern;
        visit_matches(regex, groups, self.text, self.from, |groups| {
            number += 1;
            if self.n != 0 && number < self.n {
                return true;
            }
            let (start, end) = groups.get(0).unwrap_or_default();
            replaced.push_str(&self.text[copied..start]);
            expand(self.replacement, self.text, groups, &mut replaced);
            copied = end;
            self.n == 0
        });
        replaced.push_str(&self.text[copied..]);
        replaced
    }
}

/// Puts the match for `\&`, its groups for `\1` to `\9`, and a backslash for two.
fn expand(replacement: &str, text: &str, groups: &CaptureLocations, into: &mut String) {
    let mut rest = replacement;
    while let Some(at) = rest.find('\\') {
        into.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        let group = match behind.bytes().next() {
            Some(b'&') => Some(0),
            Some(digit @ b'1'..=b'9') => Some(usize::from(digit - b'0')),
            _ => None,
        };
        if let Some(group) = group {
            let (start, end) = groups.get(group).unwrap_or_default();
            into.push_str(&text[start..end]);
        } else {
            into.push('\\');
        }
        let is_taken = group.is_some() || behind.starts_with('\\');
        rest = &behind[usize::from(is_taken)..];
    }
    into.push_str(rest);
}

/// The groups of the first match, or the match if it has none.
fn append_groups(
    asked: &Asked<'_>,
    pattern: &mut Compiled,
    lists: &mut ListBuilder<StringBuilder>,
) {
    let Compiled { regex, groups, .. } = pattern;
    let mut found = false;
    visit_matches(regex, groups, asked.text, asked.from, |groups| {
        found = true;
        for group in usize::from(groups.len() > 1)..groups.len() {
            let place = groups.get(group);
            let text = place.map(|(start, end)| &asked.text[start..end]);
            lists.values().append_option(text);
        }
        false
    });
    lists.append(found);
}

impl Search {
    fn evaluate(&self, values: &[Values], arguments: &[Argument], rows: usize) -> Result<ArrayRef> {
        let mut patterns = Patterns::default();
        let mut visit = |each: &mut ForRow<'_>| {
            for row in 0..rows {
                let Some((asked, pattern, flags)) = asked(self.which, values, arguments, row)?
                else {
                    each(None);
                    continue;
                };
                each(Some((&asked, patterns.get(pattern, flags)?)));
            }
            Ok::<(), Error>(())
        };
        Ok(match self.which {
            Which::Like => {
                let mut answers = BooleanBuilder::new();
                visit(&mut |row| {
                    answers.append_option(row.map(|(a, p)| p.regex.is_match(a.text)));
                })?;
                Arc::new(answers.finish())
            }
            Which::Count | Which::Instr => {
                let is_count = self.which == Which::Count;
                let mut numbers = Int32Builder::new();
                visit(&mut |row| {
                    numbers.append_option(row.map(|(asked, pattern)| match is_count {
                        true => asked.count(pattern),
                        false => asked.place(pattern).map_or(0, |(start, end)| {
                            character_at(asked.text, if asked.is_end { end } else { start })
                        }),
                    }));
                })?;
                Arc::new(numbers.finish())
            }
            Which::Replace => {
                let mut texts = StringBuilder::new();
                visit(&mut |row| texts.append_option(row.map(|(asked, p)| asked.replaced(p))))?;
                Arc::new(texts.finish())
            }
            Which::Substr => {
                let mut texts = StringBuilder::new();
                visit(&mut |row| {
                    let part = row.and_then(|(asked, pattern)| {
                        let (start, end) = asked.place(pattern)?;
                        Some(&asked.text[start..end])
                    });
                    texts.append_option(part);
                })?;
                Arc::new(texts.finish())
            }
            Which::Match => {
                let mut lists = ListBuilder::new(StringBuilder::new());
                visit(&mut |row| match row {
                    Some((asked, pattern)) => append_groups(asked, pattern, &mut lists),
                    None => lists.append(false),
                })?;
                Arc::new(lists.finish())
            }
        })
    }
}

impl ScalarUDFImpl for Search {
    fn name(&self) -> &str {
        self.which.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let arguments = self.which.arguments(types);
        let arguments = arguments.ok_or_else(|| no_function(self.name(), types))?;
        let behind = arguments.iter().map(|argument| argument.data_type());
        Ok([DataType::Utf8, DataType::Utf8]
            .into_iter()
            .chain(behind)
            .collect())
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(match self.which {
            Which::Like => DataType::Boolean,
            Which::Count | Which::Instr => DataType::Int32,
            Which::Replace | Which::Substr => DataType::Utf8,
            Which::Match => DataType::List(Arc::new(Field::new("item", DataType::Utf8, true))),
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let types: Vec<DataType> = args.args.iter().map(ColumnarValue::data_type).collect();
        let arguments = self.which.arguments(&types);
        let arguments = arguments.ok_or_else(|| no_function(self.name(), &types))?;
        let is_text = [true, true].into_iter();
        let is_text = is_text.chain(arguments.iter().map(|argument| argument.is_text()));
        let values = args.args.iter().zip(is_text);
        let values = values.map(|(value, is_text)| Values::new(value, is_text));
        let values = values.collect::<DataFusionResult<Vec<_>>>()?;
        let is_constant = values.iter().all(Values::is_constant);
        let rows = if is_constant { 1 } else { args.number_rows };
        result(self.evaluate(&values, arguments, rows)?, is_constant)
    }
}
