//! Where in a statement an error is: clients show the line and a mark below the word.
//!
//! The engine's planner names what it did not find and not where. So the name is looked for among the
//! statement's words: the first of them is where PostgreSQL would have stopped too, but for names that
//! stand in several places with several meanings. A text constant that cannot be read as a type is
//! found by its text. Absent: errors of values that come from rows, which have no place.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::source::{DIALECT, Source};
use crate::error::{Error, sqlstate};
use crate::sql::names;

/// What is looked for.
enum Wanted<'a> {
    /// A name, perhaps with dots.
    Name(&'a str),
    /// A name before a parenthesis.
    Call(&'a str),
    /// A text constant.
    Text(&'a str),
}

/// The error with its position in the text of the message, if it has none and a word of the text is
/// at fault.
pub(crate) fn located(error: Error, text: &str) -> Error {
    if error.position_value().is_some() {
        return error;
    }
    match wanted(&error).and_then(|wanted| find(text, &wanted)) {
        Some(position) => error.position(position),
        None => error,
    }
}

fn wanted(error: &Error) -> Option<Wanted<'_>> {
    let primary = error.primary();
    let quoted = || {
        let (_, rest) = primary.split_once('"')?;
        rest.rsplit_once('"').map(|(name, _)| name)
    };
    match error.sqlstate() {
        sqlstate::UNDEFINED_TABLE => quoted().map(Wanted::Name),
        sqlstate::UNDEFINED_COLUMN => match quoted() {
            Some(name) => Some(Wanted::Name(name)),
            None => {
                let rest = primary.strip_prefix("column ")?;
                rest.split_whitespace().next().map(Wanted::Name)
            }
        },
        sqlstate::UNDEFINED_FUNCTION => {
            let rest = primary.strip_prefix("function ")?;
            rest.split(['(', ' ']).next().map(Wanted::Call)
        }
        sqlstate::INVALID_TEXT | sqlstate::INVALID_DATETIME | sqlstate::DATETIME_OVERFLOW => {
            quoted().map(Wanted::Text)
        }
        _ => None,
    }
}

fn find(text: &str, wanted: &Wanted<'_>) -> Option<usize> {
    let tokens = Tokenizer::new(&DIALECT, text)
        .tokenize_with_location()
        .ok()?;
    let words: Vec<&TokenWithSpan> = tokens
        .iter()
        .filter(|token| !matches!(token.token, Token::Whitespace(_)))
        .collect();
    let at = (0..words.len()).find_map(|at| match wanted {
        Wanted::Text(value) => is_text(&words[at].token, value).then_some(at),
        Wanted::Name(name) => name_ending(&words, at, name),
        Wanted::Call(name) => {
            let is_call = words
                .get(at + 1)
                .is_some_and(|next| next.token == Token::LParen);
            is_call.then(|| name_ending(&words, at, name)).flatten()
        }
    })?;
    let source = Source::new(text);
    Some(source.position(source.offset(words[at].span.start)))
}

fn is_text(token: &Token, value: &str) -> bool {
    matches!(token, Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text) if text == value)
}

/// The first word of the name that ends here, if it is the one.
fn name_ending(words: &[&TokenWithSpan], at: usize, name: &str) -> Option<usize> {
    let parts: Vec<&str> = name.split('.').collect();
    let mut first = at;
    for (back, part) in parts.iter().rev().enumerate() {
        if back > 0 {
            first = first.checked_sub(2)?;
            if words[first + 1].token != Token::Period {
                return None;
            }
        }
        let Token::Word(word) = &words[first].token else {
            return None;
        };
        let is_same = match word.quote_style {
            Some(_) => word.value == part.trim_matches('"'),
            None => names::fold(&word.value) == *part,
        };
        if !is_same {
            return None;
        }
    }
    // `a.b` where only `b` is named: PostgreSQL points at the whole.
    while first >= 2
        && words[first - 1].token == Token::Period
        && matches!(words[first - 2].token, Token::Word(_))
    {
        first -= 2;
    }
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(code: &'static str, primary: &str, text: &str) -> Option<usize> {
        located(Error::new(code, primary), text).position_value()
    }

    #[test]
    fn names_are_found_where_they_stand() {
        for (code, primary, text, expected) in [
            (
                "42P01",
                "relation \"b\" does not exist",
                "SELECT 'b', a FROM b",
                Some(20),
            ),
            (
                "42703",
                "column \"b\" does not exist",
                "SELECT a, B FROM t",
                Some(11),
            ),
            (
                "42703",
                "column \"b\" does not exist",
                "SELECT a, t.b FROM t",
                Some(11),
            ),
            (
                "42703",
                "column t.b does not exist",
                "SELECT b, t.b FROM t",
                Some(11),
            ),
            (
                "42703",
                "column \"B c\" does not exist",
                "SELECT \"B c\"",
                Some(8),
            ),
            (
                "42883",
                "function f(integer) does not exist",
                "SELECT f, f(1)",
                Some(11),
            ),
            (
                "22P02",
                "invalid input syntax for type integer: \"x\"",
                "SELECT x, 'x'::int",
                Some(11),
            ),
            (
                "22P02",
                "invalid input syntax for type integer: \"x\"",
                "SELECT t::int FROM s",
                None,
            ),
            (
                "42703",
                "column \"b\" does not exist",
                "SELECT é, b",
                Some(11),
            ),
            ("22012", "division by zero", "SELECT 1/0", None),
        ] {
            assert_eq!(place(code, primary, text), expected, "{text}");
        }
    }

    #[test]
    fn a_position_that_is_known_stays() {
        let error = Error::new("42P01", "relation \"b\" does not exist").position(3);
        assert_eq!(located(error, "SELECT * FROM b").position_value(), Some(3));
    }
}
