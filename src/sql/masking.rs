//! Statements as they may be shown: passwords and secrets in them are asterisks.
//!
//! A scan of words and literals, not a parse, so that what does not parse is masked as well: a
//! literal after `PASSWORD`, after `SECRET name AS`, and as the value of an option whose name tells
//! of a credential. What is cut off within such a literal is masked to its end.

use std::borrow::Cow;

/// What stands in the place of a literal.
const MASK: &str = "'********'";
/// Parts of the names of options that hold credentials.
const CREDENTIALS: [&str; 8] = [
    "password",
    "passwd",
    "secret",
    "token",
    "credential",
    "private_key",
    "access_key",
    "sasl.jaas",
];

/// Longer texts are cut where they are shown.
const SHOWN_BYTES_MAX: usize = 16 << 10;

/// As much of a text as is shown, masked.
pub fn shown(text: &str) -> Cow<'_, str> {
    let mut end = text.len().min(SHOWN_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    masked(&text[..end])
}

/// An option of this name holds a credential.
pub fn is_credential(option: &str) -> bool {
    let option = option.to_ascii_lowercase();
    CREDENTIALS.iter().any(|part| option.contains(part))
}

/// The text with its secrets masked.
pub fn masked(text: &str) -> Cow<'_, str> {
    if !may_hold_secrets(text) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut expects = Expects::Nothing;
    let mut rest = text;
    while !rest.is_empty() {
        let (kind, length) = token(rest);
        let piece = &rest[..length];
        let hides = matches!(expects, Expects::Literal | Expects::ValueAfterEquals);
        match kind {
            Kind::Literal if hides => out.push_str(MASK),
            _ => out.push_str(piece),
        }
        expects = expects.after(kind, piece);
        rest = &rest[length..];
    }
    Cow::Owned(out)
}

/// A quick look, as most statements hold none.
fn may_hold_secrets(text: &str) -> bool {
    let bytes = text.as_bytes();
    let starts = |at: usize, word: &str| {
        bytes
            .get(at..at + word.len())
            .is_some_and(|b| b.eq_ignore_ascii_case(word.as_bytes()))
    };
    (0..bytes.len()).any(|at| match bytes[at].to_ascii_lowercase() {
        b'p' | b's' | b't' | b'c' | b'a' => CREDENTIALS.iter().any(|word| starts(at, word)),
        _ => false,
    })
}

/// What the next literal means.
#[derive(Clone, Copy, PartialEq)]
enum Expects {
    Nothing,
    /// after `PASSWORD` or a credential's name: a literal, at once or after `=`
    Literal,
    ValueAfterEquals,
    /// after `SECRET`: a name, then `AS`
    SecretName,
    SecretAs,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Blank,
    Word,
    /// in double quotes
    Name,
    Literal,
    Other,
}

impl Expects {
    fn after(self, kind: Kind, piece: &str) -> Self {
        if kind == Kind::Blank {
            return self;
        }
        let word = piece.trim_matches('"').to_ascii_lowercase();
        match (self, kind) {
            (Self::SecretName, Kind::Word) if matches!(word.as_str(), "if" | "not" | "exists") => {
                Self::SecretName
            }
            (Self::SecretName, Kind::Word | Kind::Name) => Self::SecretAs,
            (Self::SecretAs, Kind::Word) if word == "as" => Self::Literal,
            (Self::Literal, Kind::Other) if matches!(piece, "=" | ":" | ">") => {
                Self::ValueAfterEquals
            }
            (Self::ValueAfterEquals, Kind::Other) if matches!(piece, "=" | ">") => self,
            (_, Kind::Word) if word == "secret" => Self::SecretName,
            (_, Kind::Word | Kind::Name) if is_credential(&word) => Self::Literal,
            // `kafka.sasl.password`: the last part tells.
            (Self::Literal, Kind::Other) if piece == "." => Self::Nothing,
            _ => Self::Nothing,
        }
    }
}

/// Kind and length of the first piece.
fn token(text: &str) -> (Kind, usize) {
    let mut characters = text.char_indices();
    let Some((_, first)) = characters.next() else {
        return (Kind::Other, 0);
    };
    let run = |is_part: fn(char) -> bool| {
        let end = text.find(|c: char| !is_part(c));
        end.unwrap_or(text.len())
    };
    match first {
        c if c.is_whitespace() => (Kind::Blank, run(char::is_whitespace)),
        '-' if text.starts_with("--") => (Kind::Blank, text.find('\n').unwrap_or(text.len())),
        '/' if text.starts_with("/*") => {
            let end = text.find("*/").map_or(text.len(), |at| at + 2);
            (Kind::Blank, end)
        }
        '\'' => (Kind::Literal, quoted(text, '\'', false)),
        'e' | 'E' if text[1..].starts_with('\'') => {
            (Kind::Literal, 1 + quoted(&text[1..], '\'', true))
        }
        '"' => (Kind::Name, quoted(text, '"', false)),
        '$' => match dollar_quoted(text) {
            Some(length) => (Kind::Literal, length),
            None => (Kind::Other, 1),
        },
        c if c.is_alphanumeric() || c == '_' => {
            (Kind::Word, run(|c| c.is_alphanumeric() || c == '_'))
        }
        c => (Kind::Other, c.len_utf8()),
    }
}

/// Length of a quoted piece; one that does not end goes to the end of the text.
fn quoted(text: &str, quote: char, with_backslash: bool) -> usize {
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = characters.next() {
        if with_backslash && c == '\\' {
            characters.next();
        } else if c == quote {
            match characters.peek() {
                Some((_, next)) if *next == quote => {
                    characters.next();
                }
                _ => return at + c.len_utf8(),
            }
        }
    }
    text.len()
}

fn dollar_quoted(text: &str) -> Option<usize> {
    let tag_end = text[1..].find('$')? + 2;
    let tag = &text[..tag_end];
    let is_tag = tag[1..tag_end - 1]
        .chars()
        .all(|c| c.is_alphanumeric() || c == '_');
    is_tag.then_some(())?;
    let end = text[tag_end..].find(tag);
    Some(end.map_or(text.len(), |at| tag_end + at + tag_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_wherever_they_stand() {
        for (text, shown) in [
            (
                "CREATE USER ada WITH PASSWORD 'it''s' LOGIN",
                "CREATE USER ada WITH PASSWORD '********' LOGIN",
            ),
            (
                "alter role ada encrypted password E'a\\'b'; SELECT 'c'",
                "alter role ada encrypted password '********'; SELECT 'c'",
            ),
            (
                "CREATE SECRET IF NOT EXISTS k AS $x$ y $x$",
                "CREATE SECRET IF NOT EXISTS k AS '********'",
            ),
            (
                "ALTER SECRET \"as\" /* 'no' */ AS 'v'",
                "ALTER SECRET \"as\" /* 'no' */ AS '********'",
            ),
            (
                "WITH (topic = 't', password = 'p', \"kafka.sasl.password\"='q', key = SECRET s)",
                "WITH (topic = 't', password = '********', \"kafka.sasl.password\"='********', key = SECRET s)",
            ),
            (
                "CREATE USER ada PASSWORD 'cut of",
                "CREATE USER ada PASSWORD '********'",
            ),
            (
                "SELECT 'password', secret FROM t WHERE a = 'x'",
                "SELECT 'password', secret FROM t WHERE a = 'x'",
            ),
        ] {
            assert_eq!(masked(text), shown, "{text}");
        }
    }
}
