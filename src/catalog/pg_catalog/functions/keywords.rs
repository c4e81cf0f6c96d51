//! The columns of `pg_get_keywords()`: what words the parser knows, and which of them need quotes.
//!
//! Tools ask which words to put in quotes; JDBC drivers tell them to their programs.

use datafusion::sql::sqlparser::keywords::ALL_KEYWORDS;

use super::super::relation::Datum;
use super::Definition;
use crate::sql::names;

pub(super) const FUNCTIONS: &[Definition] = &[
    Definition::new("keyword_words_array", &[""], "text[]", |_, _| {
        Ok(words(|word, _| word.to_owned()))
    }),
    Definition::new("keyword_codes_array", &[""], "text[]", |_, _| {
        Ok(words(|_, reserved| {
            if reserved { "R" } else { "U" }.to_owned()
        }))
    }),
    Definition::new("keyword_bare_labels_array", &[""], "bool[]", |_, _| {
        let labels = all().into_iter().map(|(_, reserved)| i64::from(!reserved));
        Ok(labels.collect::<Vec<_>>().into())
    }),
    Definition::new("keyword_descriptions_array", &[""], "text[]", |_, _| {
        Ok(words(|_, reserved| {
            if reserved { "reserved" } else { "unreserved" }.to_owned()
        }))
    }),
    Definition::new(
        "keyword_bare_descriptions_array",
        &[""],
        "text[]",
        |_, _| {
            Ok(words(|_, reserved| {
                let told = if reserved {
                    "requires AS"
                } else {
                    "can be bare label"
                };
                told.to_owned()
            }))
        },
    ),
];

fn words(told: impl Fn(&str, bool) -> String) -> Datum {
    let words = all().into_iter();
    Datum::Texts(
        words
            .map(|(word, reserved)| told(&word, reserved))
            .collect(),
    )
}

/// Every word, and whether it is reserved.
fn all() -> Vec<(String, bool)> {
    let words = ALL_KEYWORDS.iter().map(|word| {
        let word = word.to_ascii_lowercase();
        let is_reserved = names::is_reserved(&word);
        (word, is_reserved)
    });
    words.collect()
}
