//! A cursor over the text of one JSON document.
//!
//! It walks, and never builds a tree: the caller knows from the declared schema what it wants of
//! each value, and skips the rest at the speed of a search for quotes. The text is valid UTF-8 by
//! its type.

use std::borrow::Cow;

use super::column::Refusal;

/// Kind of the next value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// `null`
    Null,
    /// `true`
    True,
    /// `false`
    False,
    /// a number
    Number,
    /// a string
    String,
    /// `[`
    Array,
    /// `{`
    Object,
}

/// What stands at the next place of an object.
#[derive(Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// the object's end
    End,
    /// the key that was guessed
    Guessed,
    /// another key
    Other(Cow<'a, str>),
}

/// The cursor.
pub struct JsonText<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// The container that was just begun has had no element yet.
    first: bool,
}

impl<'a> JsonText<'a> {
    /// A cursor before the first value of `text`.
    pub fn new(text: &'a str) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            at: 0,
            first: false,
        }
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn unexpected(&self, wanted: &str) -> Refusal {
        match self
            .text
            .get(self.at..)
            .and_then(|rest| rest.chars().next())
        {
            None => format!("invalid JSON: input ends where {wanted} was expected"),
            Some(found) => format!(
                "invalid JSON: expected {wanted} at byte {}, found \"{}\"",
                self.at + 1,
                found.escape_default()
            ),
        }
    }

    fn expect(&mut self, byte: u8, wanted: &str) -> Result<(), Refusal> {
        self.space();
        if self.bytes.get(self.at) == Some(&byte) {
            self.at += 1;
            Ok(())
        } else {
            Err(self.unexpected(wanted))
        }
    }

    /// What comes next, without moving past it.
    pub fn peek(&mut self) -> Result<Token, Refusal> {
        self.space();
        match self.bytes.get(self.at) {
            Some(b'"') => Ok(Token::String),
            Some(b'-' | b'0'..=b'9') => Ok(Token::Number),
            Some(b'n') => Ok(Token::Null),
            Some(b't') => Ok(Token::True),
            Some(b'f') => Ok(Token::False),
            Some(b'[') => Ok(Token::Array),
            Some(b'{') => Ok(Token::Object),
            _ => Err(self.unexpected("a value")),
        }
    }

    /// Moves past a literal word.
    pub fn literal(&mut self, word: &str) -> Result<(), Refusal> {
        if self.bytes[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(())
        } else {
            Err(self.unexpected(word))
        }
    }

    /// Moves past a number; its text.
    pub fn number(&mut self) -> Result<&'a str, Refusal> {
        let start = self.at;
        while let Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E') = self.bytes.get(self.at) {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.unexpected("a number"));
        }
        Ok(&self.text[start..self.at])
    }

    /// Position of the next quote or backslash at or after `from`; the end if there is none.
    fn find_quote(&self, mut from: usize) -> usize {
        const ONES: u64 = 0x0101_0101_0101_0101;
        const HIGHS: u64 = 0x8080_8080_8080_8080;
        let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
        while let Some(eight) = self.bytes.get(from..from + 8) {
            let word = u64::from_le_bytes(eight.try_into().expect("eight bytes"));
            let found =
                zero_bytes(word ^ (ONES * b'"' as u64)) | zero_bytes(word ^ (ONES * b'\\' as u64));
            if found != 0 {
                return from + (found.trailing_zeros() / 8) as usize;
            }
            from += 8;
        }
        while from < self.bytes.len() && !matches!(self.bytes[from], b'"' | b'\\') {
            from += 1;
        }
        from
    }

    /// Moves past a string; its value, borrowed unless it has escapes.
    pub fn string(&mut self) -> Result<Cow<'a, str>, Refusal> {
        self.expect(b'"', "a string")?;
        let start = self.at;
        let end = self.find_quote(start);
        if self.bytes.get(end) == Some(&b'"') {
            self.at = end + 1;
            return Ok(Cow::Borrowed(&self.text[start..end]));
        }
        self.string_with_escapes(start).map(Cow::Owned)
    }

    fn string_with_escapes(&mut self, start: usize) -> Result<String, Refusal> {
        let mut value = String::new();
        let mut from = start;
        loop {
            let found = self.find_quote(from);
            value.push_str(&self.text[from..found]);
            self.at = found + 1;
            match self.bytes.get(found) {
                None => return Err("invalid JSON: a string is not closed".to_owned()),
                Some(b'"') => return Ok(value),
                Some(_) => value.push(self.escape()?),
            }
            from = self.at;
        }
    }

    /// The character of an escape; the cursor is behind its backslash.
    fn escape(&mut self) -> Result<char, Refusal> {
        let letter = self.bytes.get(self.at).copied();
        self.at += 1;
        Ok(match letter {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return Err("invalid JSON: unknown escape in a string".to_owned()),
        })
    }

    fn unicode_escape(&mut self) -> Result<char, Refusal> {
        let invalid = || "invalid JSON: invalid \\u escape in a string".to_owned();
        let first = self.hex4().ok_or_else(invalid)?;
        if !(0xD800..0xDC00).contains(&first) {
            return char::from_u32(first).ok_or_else(invalid);
        }
        if !self.bytes[self.at.min(self.bytes.len())..].starts_with(b"\\u") {
            return Err(invalid());
        }
        self.at += 2;
        let second = self.hex4().ok_or_else(invalid)?;
        if !(0xDC00..0xE000).contains(&second) {
            return Err(invalid());
        }
        char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)).ok_or_else(invalid)
    }

    fn hex4(&mut self) -> Option<u32> {
        let digits = self.bytes.get(self.at..self.at + 4)?;
        self.at += 4;
        digits.iter().try_fold(0u32, |value, b| {
            Some(value * 16 + (*b as char).to_digit(16)?)
        })
    }

    /// Moves past `[`.
    pub fn begin_array(&mut self) -> Result<(), Refusal> {
        self.expect(b'[', "\"[\"")?;
        self.first = true;
        Ok(())
    }

    /// Moves to the next item of an array; false behind its `]`.
    pub fn next_item(&mut self) -> Result<bool, Refusal> {
        self.next_element(b']', "\",\" or \"]\"")
    }

    /// Moves past `{`.
    pub fn begin_object(&mut self) -> Result<(), Refusal> {
        self.expect(b'{', "\"{\"")?;
        self.first = true;
        Ok(())
    }

    /// Moves to the next value of an object, as [`Self::next_key`], but first compares with a
    /// guess: the key with its quotes and colon, as it stands in the text.
    #[inline]
    pub fn next_key_or_guess(&mut self, guess: Option<&[u8]>) -> Result<Key<'a>, Refusal> {
        if !self.next_element(b'}', "\",\" or \"}\"")? {
            return Ok(Key::End);
        }
        self.space();
        if let Some(guess) = guess
            && self.bytes[self.at..].starts_with(guess)
        {
            self.at += guess.len();
            return Ok(Key::Guessed);
        }
        self.key().map(Key::Other)
    }

    /// Moves to the next value of an object and gives its key; `None` behind its `}`.
    pub fn next_key(&mut self) -> Result<Option<Cow<'a, str>>, Refusal> {
        if !self.next_element(b'}', "\",\" or \"}\"")? {
            return Ok(None);
        }
        self.key().map(Some)
    }

    fn key(&mut self) -> Result<Cow<'a, str>, Refusal> {
        let key = self.string()?;
        self.expect(b':', "\":\"")?;
        Ok(key)
    }

    fn next_element(&mut self, close: u8, wanted: &str) -> Result<bool, Refusal> {
        self.space();
        let first = std::mem::replace(&mut self.first, false);
        match self.bytes.get(self.at) {
            Some(b) if *b == close => {
                self.at += 1;
                Ok(false)
            }
            Some(_) if first => Ok(true),
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            _ => Err(self.unexpected(wanted)),
        }
    }

    /// Moves past a value of any kind.
    pub fn skip_value(&mut self) -> Result<(), Refusal> {
        match self.peek()? {
            Token::Null => self.literal("null"),
            Token::True => self.literal("true"),
            Token::False => self.literal("false"),
            Token::Number => self.number().map(drop),
            Token::String => self.skip_string(),
            Token::Array | Token::Object => self.skip_container(),
        }
    }

    fn skip_string(&mut self) -> Result<(), Refusal> {
        self.expect(b'"', "a string")?;
        loop {
            let found = self.find_quote(self.at);
            match self.bytes.get(found) {
                None => return Err("invalid JSON: a string is not closed".to_owned()),
                Some(b'"') => {
                    self.at = found + 1;
                    return Ok(());
                }
                Some(_) => self.at = found + 2,
            }
        }
    }

    /// Without recursion: a document may be nested deeper than the stack. Brackets must match,
    /// what stands between them is not looked at closer.
    fn skip_container(&mut self) -> Result<(), Refusal> {
        let mut open: Vec<u8> = Vec::new();
        loop {
            match self.bytes.get(self.at) {
                None => return Err("invalid JSON: an array or object is not closed".to_owned()),
                Some(b'"') => {
                    self.skip_string()?;
                    continue;
                }
                Some(b'[') => open.push(b']'),
                Some(b'{') => open.push(b'}'),
                Some(close @ (b']' | b'}')) if open.pop() != Some(*close) => {
                    return Err(self.unexpected("a matching bracket"));
                }
                Some(_) => {}
            }
            self.at += 1;
            if open.is_empty() {
                return Ok(());
            }
        }
    }

    /// Where the cursor is, to come back to.
    pub fn place(&self) -> usize {
        self.at
    }

    /// Comes back to where a value begins.
    pub fn go_back(&mut self, place: usize) {
        self.at = place;
        self.first = false;
    }

    /// Moves past a value; its text.
    pub fn raw_value(&mut self) -> Result<&'a str, Refusal> {
        self.space();
        let start = self.at;
        self.skip_value()?;
        Ok(&self.text[start..self.at])
    }

    /// The text is one whole value, checked to the last bracket.
    pub fn whole_value(mut self) -> Result<(), Refusal> {
        self.skip_value()?;
        self.end()
    }

    /// Nothing but space is left.
    pub fn end(&mut self) -> Result<(), Refusal> {
        self.space();
        if self.at < self.bytes.len() {
            return Err(self.unexpected("the end"));
        }
        Ok(())
    }
}
