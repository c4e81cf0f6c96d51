//! Parts of a JSON text as they are written: a value of `json` keeps its blanks, the order of its
//! members and the forms of its numbers, and so do its parts. Pure; nothing is copied.

use crate::error::{Error, Result};

/// A JSON text, taken apart one level deep. Members are in the order of the text, names as written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parts<'a> {
    /// `{…}`: names in their quotes, and values
    Object(Vec<(&'a str, &'a str)>),
    /// `[…]`
    Array(Vec<&'a str>),
    /// all else
    Scalar(&'a str),
}

/// Takes a text apart. Errors: 22P02 what is no JSON.
pub(crate) fn parts(text: &str) -> Result<Parts<'_>> {
    super::jsonb::check(text)?;
    let mut reader = Reader { text, at: 0 };
    reader
        .parts()
        .ok_or_else(|| Error::internal("a JSON text ends within a value"))
}

/// The string that a text in quotes says. Errors: 22P02, 22P05 an escape that is no character.
pub(crate) fn string_of(quoted: &str) -> Result<String> {
    match super::jsonb::Json::parse(quoted)? {
        super::jsonb::Json::Text(text) => Ok(text),
        _ => Err(Error::internal("a name in a JSON text is a string")),
    }
}

/// What `->>` gives of a part: a string without quotes, nothing for null, all else as it is written.
pub(crate) fn plain_text(part: &str) -> Result<Option<String>> {
    match part.as_bytes().first() {
        Some(b'"') => string_of(part).map(Some),
        _ if part == "null" => Ok(None),
        _ => Ok(Some(part.to_owned())),
    }
}

/// Reads a text that is known to be JSON.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn accept(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn parts(&mut self) -> Option<Parts<'a>> {
        match self.peek()? {
            b'{' => {
                self.at += 1;
                let mut members = Vec::new();
                while !self.accept(b'}') {
                    self.accept(b',');
                    let name = self.value()?;
                    self.accept(b':');
                    members.push((name, self.value()?));
                }
                Some(Parts::Object(members))
            }
            b'[' => {
                self.at += 1;
                let mut items = Vec::new();
                while !self.accept(b']') {
                    self.accept(b',');
                    items.push(self.value()?);
                }
                Some(Parts::Array(items))
            }
            _ => self.value().map(Parts::Scalar),
        }
    }

    /// One whole value, without the blanks around it.
    fn value(&mut self) -> Option<&'a str> {
        self.peek()?;
        let rest = &self.text[self.at..];
        let mut depth = 0usize;
        let (mut in_string, mut is_escaped) = (false, false);
        let mut end = rest.len();
        for (at, byte) in rest.bytes().enumerate() {
            if in_string {
                let closes = byte == b'"' && !is_escaped;
                is_escaped = byte == b'\\' && !is_escaped;
                in_string = !closes;
                if closes && depth == 0 {
                    end = at + 1;
                    break;
                }
                continue;
            }
            match byte {
                b'"' => in_string = true,
                b'{' | b'[' => depth += 1,
                b'}' | b']' if depth == 1 => {
                    end = at + 1;
                    break;
                }
                b'}' | b']' if depth > 1 => depth -= 1,
                // Behind a number or a word.
                b',' | b'}' | b']' if depth == 0 => {
                    end = at;
                    break;
                }
                blank if depth == 0 && blank.is_ascii_whitespace() => {
                    end = at;
                    break;
                }
                _ => {}
            }
        }
        self.at += end;
        Some(&rest[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_they_are_written() {
        let text = " {\"b\" : [1, 2 ] ,\"a\":{\"c\":\"}\\\"\"},\"d\":1e2 , \"e\":\"x\" } ";
        let expected = vec![
            ("\"b\"", "[1, 2 ]"),
            ("\"a\"", "{\"c\":\"}\\\"\"}"),
            ("\"d\"", "1e2"),
            ("\"e\"", "\"x\""),
        ];
        assert_eq!(parts(text).unwrap(), Parts::Object(expected));
        assert_eq!(
            parts("[ 1.50,null ,[[]], {} ]").unwrap(),
            Parts::Array(vec!["1.50", "null", "[[]]", "{}"])
        );
        assert_eq!(parts(" true ").unwrap(), Parts::Scalar("true"));
        assert_eq!(parts("[]").unwrap(), Parts::Array(vec![]));
        assert_eq!(parts("{}").unwrap(), Parts::Object(vec![]));
        assert_eq!(parts("{").unwrap_err().sqlstate(), "22P02");
    }

    #[test]
    fn plain_texts() {
        assert_eq!(plain_text("\"a\\n\"").unwrap().as_deref(), Some("a\n"));
        assert_eq!(plain_text("null").unwrap(), None);
        assert_eq!(
            plain_text("{\"a\":1}").unwrap().as_deref(),
            Some("{\"a\":1}")
        );
    }
}
