//! `x LIKE ANY (patterns)`, `x ~ ALL (patterns)` and their kin, where the patterns are an array that
//! is computed; one that is written out becomes comparisons of its own. What is unknown stays so
//! unless another pattern decides.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, BooleanArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use regex::Regex;

use super::plain::Type;
use super::regexes::compiled;
use super::{arrays, no_function, patterns, result, udf};
use crate::error::{Error, Result};
use crate::types::SqlType;

/// `pattern_any(text, patterns, operator)`
pub(crate) const ANY: &str = "pattern_any";

/// `pattern_all(text, patterns, operator)`
pub(crate) const ALL: &str = "pattern_all";

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    [false, true]
        .map(|is_all| {
            udf(Quantified {
                is_all,
                signature: Signature::user_defined(Volatility::Immutable),
            })
        })
        .to_vec()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Quantified {
    is_all: bool,
    signature: Signature,
}

/// An operator such as `!~*`, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Comparison {
    is_negated: bool,
    /// `~~`: LIKE
    is_like: bool,
    ignores_case: bool,
}

impl Comparison {
    /// Reads `~`, `~*`, `~~`, `~~*`, each with or without `!` before it.
    fn parse(operator: &str) -> Option<Self> {
        let (is_negated, rest) = match operator.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, operator),
        };
        let (is_like, ignores_case) = match rest {
            "~" => (false, false),
            "~*" => (false, true),
            "~~" => (true, false),
            "~~*" => (true, true),
            _ => return None,
        };
        Some(Self {
            is_negated,
            is_like,
            ignores_case,
        })
    }

    /// Errors: 2201B a regular expression that is none, 22025 an escape at a pattern's end.
    fn compile(self, pattern: &str) -> Result<Regex> {
        let flags = if self.ignores_case { "i" } else { "" };
        let regex = match self.is_like {
            true => compiled(&patterns::like_regex(pattern)?, flags)?,
            false => compiled(pattern, flags)?,
        };
        Ok(regex.0)
    }
}

/// Regular expressions by their patterns.
struct Known {
    comparison: Comparison,
    compiled: HashMap<String, Regex>,
}

impl Known {
    fn compare(&mut self, text: Option<&str>, pattern: Option<&str>) -> Result<Option<bool>> {
        let (Some(text), Some(pattern)) = (text, pattern) else {
            return Ok(None);
        };
        let regex = match self.compiled.entry(pattern.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(self.comparison.compile(pattern)?),
        };
        Ok(Some(regex.is_match(text) != self.comparison.is_negated))
    }
}

/// What several comparisons say together.
fn together(
    is_all: bool,
    outcomes: impl Iterator<Item = Result<Option<bool>>>,
) -> Result<Option<bool>> {
    let mut is_unknown = false;
    for outcome in outcomes {
        match outcome? {
            Some(holds) if holds != is_all => return Ok(Some(holds)),
            Some(_) => {}
            None => is_unknown = true,
        }
    }
    Ok((!is_unknown).then_some(is_all))
}

impl ScalarUDFImpl for Quantified {
    fn name(&self) -> &str {
        if self.is_all { ALL } else { ANY }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        match types {
            [text, patterns, operator]
                if Type::Text.takes(text)
                    && Type::TextArray.takes(patterns)
                    && Type::Text.takes(operator) =>
            {
                let texts = SqlType::Array(Box::new(SqlType::Text)).to_arrow();
                Ok(vec![DataType::Utf8, texts, DataType::Utf8])
            }
            _ => Err(no_function(self.name(), types).into()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let texts = columns[0].as_string::<i32>();
        let lists = columns[1].as_list::<i32>();
        let operators = columns[2].as_string::<i32>();
        let mut outcomes = Vec::with_capacity(texts.len());
        let mut known: Option<Known> = None;
        for row in 0..texts.len() {
            if lists.is_null(row) || operators.is_null(row) {
                outcomes.push(None);
                continue;
            }
            let known = match &mut known {
                Some(known) => known,
                none => none.insert(Known {
                    comparison: Comparison::parse(operators.value(row))
                        .ok_or_else(|| Error::internal("a pattern's operator is not known"))?,
                    compiled: HashMap::new(),
                }),
            };
            let text = texts.is_valid(row).then(|| texts.value(row));
            let patterns = lists.value(row);
            let patterns = patterns.as_string::<i32>().iter();
            let compared = patterns.map(|pattern| known.compare(text, pattern));
            outcomes.push(together(self.is_all, compared)?);
        }
        result(Arc::new(BooleanArray::from(outcomes)), constant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decides_and_what_is_unknown() {
        let compare = |operator: &str, is_all, text: Option<&str>, patterns: &[Option<&str>]| {
            let mut known = Known {
                comparison: Comparison::parse(operator).unwrap(),
                compiled: HashMap::new(),
            };
            let compared = patterns.iter().map(|pattern| known.compare(text, *pattern));
            together(is_all, compared).unwrap()
        };
        let any = |operator, patterns: &[_]| compare(operator, false, Some("aB"), patterns);
        assert_eq!(any("~~", &[Some("b%"), Some("a_")]), Some(true));
        assert_eq!(any("~~", &[Some("x"), None]), None);
        assert_eq!(any("~~", &[None, Some("a%")]), Some(true));
        assert_eq!(any("~", &[]), Some(false));
        assert_eq!(any("~*", &[Some("^A")]), Some(true));
        assert_eq!(any("!~", &[Some("a"), Some("B")]), Some(false));
        let all = |operator, patterns: &[_]| compare(operator, true, Some("aB"), patterns);
        assert_eq!(all("!~~", &[Some("x"), Some("y%")]), Some(true));
        assert_eq!(all("!~~", &[Some("x"), Some("a%")]), Some(false));
        assert_eq!(all("~", &[Some("a"), None]), None);
        assert_eq!(all("~", &[]), Some(true));
        assert_eq!(compare("~", true, None, &[Some("a")]), None);
        assert_eq!(Comparison::parse("="), None);
    }
}
