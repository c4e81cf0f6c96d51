//! The text of a message: tokens, statements, positions.
//!
//! Tokens come from sqlparser, whose positions are lines and columns in characters; clients want a
//! 1-based character position in the whole text, and we keep slices of the text (queries, defaults,
//! conditions), so both directions live here. Long operator chains are refused here, before a tree
//! is built whose depth could exhaust a stack when it is walked or dropped.

use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::ParserError;
use datafusion::sql::sqlparser::tokenizer::{
    Location, Span, Token, TokenWithSpan, Tokenizer, TokenizerError, Whitespace,
};

use crate::error::{Error, Result, sqlstate};
use crate::sql::dialect::QueryDialect;
use crate::sql::{adjacent_strings, exclusions, join_alias, lock_words};

/// The dialect of every parse.
pub(crate) static DIALECT: QueryDialect = QueryDialect {
    has_versions: false,
};

/// The dialect of a statement that asks for a relation as of a time.
pub(crate) static VERSIONED_DIALECT: QueryDialect = QueryDialect { has_versions: true };

/// Operators in one expression without a comma or parenthesis between them. PostgreSQL's own limit
/// is its stack depth, which ends at some thousands too.
const OPERATOR_CHAIN_MAX: usize = 2_000;

/// Parentheses, brackets and CASEs within each other.
pub(crate) const NESTING_DEPTH_MAX: usize = 256;

/// A text and where its lines begin.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    text: &'a str,
    line_starts: Vec<usize>,
}

/// The tokens of one statement, without its semicolon.
#[derive(Debug)]
pub(crate) struct StatementTokens {
    /// Tokens, white space and comments included.
    pub tokens: Vec<TokenWithSpan>,
    /// Byte offset of its first token.
    pub start: usize,
    /// Byte offset after its last token.
    pub end: usize,
}

impl<'a> Source<'a> {
    /// Wraps a text.
    pub fn new(text: &'a str) -> Self {
        let line_starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        Self { text, line_starts }
    }

    /// A slice of the text by byte offsets.
    pub fn slice(&self, start: usize, end: usize) -> &'a str {
        self.text.get(start..end.max(start)).unwrap_or_default()
    }

    /// Byte offset of a tokenizer's location.
    pub fn offset(&self, location: Location) -> usize {
        let line = usize::try_from(location.line).unwrap_or(0);
        let column = usize::try_from(location.column).unwrap_or(0);
        let Some(&start) = line.checked_sub(1).and_then(|l| self.line_starts.get(l)) else {
            return self.text.len();
        };
        self.text[start..]
            .char_indices()
            .nth(column.saturating_sub(1))
            .map_or(self.text.len(), |(at, _)| start + at)
    }

    /// 1-based character position of a byte offset, as clients count it.
    pub fn position(&self, offset: usize) -> usize {
        self.text.get(..offset).map_or_else(
            || self.text.chars().count(),
            |before| before.chars().count(),
        ) + 1
    }

    /// Splits into statements; empty ones vanish.
    pub fn statements(&self) -> Result<Vec<StatementTokens>> {
        let tokens = Tokenizer::new(&DIALECT, self.text)
            .tokenize_with_location()
            .map_err(|e| self.tokenizer_error(&e))?;
        let mut statements = Vec::new();
        let mut current = Vec::new();
        for token in tokens {
            match token.token {
                Token::SemiColon => self.push_statement(&mut statements, &mut current)?,
                Token::EOF => {}
                _ => current.push(token),
            }
        }
        self.push_statement(&mut statements, &mut current)?;
        for statement in &statements {
            self.check_depth(&statement.tokens)?;
        }
        Ok(statements)
    }

    fn push_statement(
        &self,
        statements: &mut Vec<StatementTokens>,
        current: &mut Vec<TokenWithSpan>,
    ) -> Result<()> {
        let (tokens, refused) = adjacent_strings::joined(std::mem::take(current));
        if let Some(span) = refused {
            return Err(self.syntax_error_near(span));
        }
        let is_code = |t: &&TokenWithSpan| !matches!(t.token, Token::Whitespace(_));
        let (Some(first), Some(last)) = (
            tokens.iter().find(is_code),
            tokens.iter().rev().find(is_code),
        ) else {
            return Ok(());
        };
        statements.push(StatementTokens {
            start: self.offset(first.span.start),
            end: self.offset(last.span.end),
            tokens: join_alias::as_marks(exclusions::as_marks(plain_words(split_operators(
                split_closing_brackets(lock_words::plain(tokens)),
            )))),
        });
        Ok(())
    }

    fn check_depth(&self, tokens: &[TokenWithSpan]) -> Result<()> {
        // One counter of operators per open parenthesis.
        let mut counts = vec![0usize];
        for token in tokens {
            match &token.token {
                Token::LParen | Token::LBracket | Token::LBrace => counts.push(0),
                Token::RParen | Token::RBracket | Token::RBrace if counts.len() > 1 => {
                    counts.pop();
                }
                Token::Comma => {
                    if let Some(last) = counts.last_mut() {
                        *last = 0;
                    }
                }
                t if is_chained(t) => {
                    if let Some(last) = counts.last_mut() {
                        *last += 1;
                    }
                }
                _ => continue,
            }
            if counts.len() > NESTING_DEPTH_MAX
                || counts.last().is_some_and(|n| *n > OPERATOR_CHAIN_MAX)
            {
                return Err(too_complex().position(self.position(self.offset(token.span.start))));
            }
        }
        Ok(())
    }

    /// `syntax error at or near "…"` for the token at a byte offset.
    pub fn syntax_error_at(&self, offset: usize, end: usize) -> Error {
        let token = self.slice(offset, end);
        let primary = if token.is_empty() {
            "syntax error at end of input".to_owned()
        } else {
            format!("syntax error at or near \"{token}\"")
        };
        Error::new(sqlstate::SYNTAX_ERROR, primary).position(self.position(offset))
    }

    /// As [`Self::syntax_error_at`] for a token.
    pub fn syntax_error_near(&self, span: Span) -> Error {
        self.syntax_error_at(self.offset(span.start), self.offset(span.end))
    }

    fn tokenizer_error(&self, error: &TokenizerError) -> Error {
        let mut start = self.offset(error.location);
        let what = match error.message.as_str() {
            m if m.starts_with("Unterminated string") => "unterminated quoted string",
            m if m.contains("close delimiter") => "unterminated quoted identifier",
            m if m.contains("multi-line comment") => {
                // The tokenizer stops at the end; the comment's start is what helps.
                start = self.text.rfind("/*").unwrap_or(start);
                "unterminated /* comment"
            }
            m if m.contains("dollar") => "unterminated dollar-quoted string",
            _ => "syntax error",
        };
        let near: String = self
            .slice(start, self.text.len())
            .chars()
            .take(60)
            .collect();
        let primary = if near.is_empty() {
            format!("{what} at end of input")
        } else {
            format!("{what} at or near \"{near}\"")
        };
        Error::new(sqlstate::SYNTAX_ERROR, primary).position(self.position(start))
    }

    /// An error of sqlparser; `next` is the token the parser stands before.
    pub fn parser_error(&self, error: &ParserError, next: &TokenWithSpan, end: usize) -> Error {
        match error {
            ParserError::RecursionLimitExceeded => {
                too_complex().position(self.position(self.offset(next.span.start)))
            }
            ParserError::TokenizerError(message) | ParserError::ParserError(message) => {
                let start = message_location(message).map_or_else(
                    || self.token_offset(next, end),
                    |location| self.offset(location).min(end),
                );
                let stop = self.token_end(start, end);
                let error = self.syntax_error_at(start, stop);
                match expectation(message) {
                    Some(expected) => error.detail(format!("Expected {expected}.")),
                    None => error,
                }
            }
        }
    }

    fn token_offset(&self, token: &TokenWithSpan, end: usize) -> usize {
        match token.token {
            Token::EOF => end,
            _ => self.offset(token.span.start),
        }
    }

    /// Where the token that begins at `start` ends.
    fn token_end(&self, start: usize, end: usize) -> usize {
        Tokenizer::new(&DIALECT, self.slice(start, end))
            .tokenize_with_location()
            .ok()
            .and_then(|tokens| tokens.first().map(|t| t.span.end))
            .map_or(end, |stop| {
                let rest = self.slice(start, end);
                start + Source::new(rest).offset(stop)
            })
    }
}

/// The error for what is nested or chained too deeply.
fn too_complex() -> Error {
    Error::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, "statement is too complex")
        .detail(format!(
            "An expression may chain {OPERATOR_CHAIN_MAX} operators and nest {NESTING_DEPTH_MAX} levels."
        ))
        .hint("Use an IN list, a VALUES list or a join instead of a long chain of conditions.")
}

/// Tokens that make a tree one level deeper each.
fn is_chained(token: &Token) -> bool {
    match token {
        Token::Plus
        | Token::Minus
        | Token::Mul
        | Token::Div
        | Token::Mod
        | Token::Caret
        | Token::StringConcat
        | Token::DoubleColon
        | Token::Eq
        | Token::Neq
        | Token::Lt
        | Token::Gt
        | Token::LtEq
        | Token::GtEq
        | Token::Ampersand
        | Token::Pipe
        | Token::ShiftLeft
        | Token::ShiftRight
        | Token::Arrow
        | Token::LongArrow
        | Token::ExclamationMark
        | Token::Tilde
        | Token::CustomBinaryOperator(_) => true,
        Token::Word(w) => matches!(
            w.keyword,
            Keyword::AND
                | Keyword::OR
                | Keyword::NOT
                | Keyword::UNION
                | Keyword::INTERSECT
                | Keyword::EXCEPT
                | Keyword::JOIN
                | Keyword::CASE
                | Keyword::IS
                | Keyword::COLLATE
        ),
        _ => false,
    }
}

/// `id>-10`: an operator of several characters ends in a sign only if it has one of those that no
/// operator of the standard has (PostgreSQL manual, 4.1.3); otherwise the sign is one of its own.
fn split_operators(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut split = Vec::with_capacity(tokens.len());
    for token in tokens {
        match &token.token {
            Token::CustomBinaryOperator(name)
                if !name.contains(|c| "~!@#%^&|`?".contains(c)) && name.ends_with(['+', '-']) =>
            {
                let head = name.trim_end_matches(['+', '-']);
                let signs = &name[head.len()..];
                let parts = Tokenizer::new(&DIALECT, head)
                    .tokenize()
                    .unwrap_or_default();
                let signs = signs.chars().map(|sign| match sign {
                    '+' => Token::Plus,
                    _ => Token::Minus,
                });
                let mut at = token.span.start;
                for part in parts.into_iter().chain(signs) {
                    let mut end = at;
                    end.column += part.to_string().chars().count() as u64;
                    split.push(TokenWithSpan::new(part, Span::new(at, end)));
                    at = end;
                }
            }
            _ => split.push(token),
        }
    }
    split
}

/// `SELECT top, …`: a word of other dialects that is a name in PostgreSQL. `FROM ONLY t`, without
/// the tables that inherit from it: there are none.
fn plain_words(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut names_relation = false;
    for token in &mut tokens {
        let Token::Word(word) = &mut token.token else {
            names_relation &= matches!(token.token, Token::Whitespace(_));
            continue;
        };
        match word.keyword {
            Keyword::TOP => word.keyword = Keyword::NoKeyword,
            Keyword::ONLY if names_relation && word.quote_style.is_none() => {
                token.token = Token::Whitespace(Whitespace::Space);
                continue;
            }
            _ => {}
        }
        names_relation = matches!(word.keyword, Keyword::FROM | Keyword::JOIN);
    }
    tokens
}

/// `STRUCT<a STRUCT<b int>>`: the tokenizer reads the end as a shift operator.
fn split_closing_brackets(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let mut split = Vec::with_capacity(tokens.len());
    let mut depth = 0usize;
    let mut after_struct = false;
    for token in tokens {
        match &token.token {
            Token::Whitespace(_) => {}
            Token::Lt if after_struct => {
                depth += 1;
                after_struct = false;
            }
            Token::Word(w) => after_struct = w.value.eq_ignore_ascii_case("struct"),
            Token::Gt => depth = depth.saturating_sub(1),
            Token::ShiftRight if depth > 0 => {
                depth = depth.saturating_sub(2);
                let middle = Location {
                    line: token.span.start.line,
                    column: token.span.start.column + 1,
                };
                split.push(TokenWithSpan::new(
                    Token::Gt,
                    Span::new(token.span.start, middle),
                ));
                split.push(TokenWithSpan::new(
                    Token::Gt,
                    Span::new(middle, token.span.end),
                ));
                continue;
            }
            _ => after_struct = false,
        }
        split.push(token);
    }
    split
}

/// The location that sqlparser appends to its messages.
fn message_location(message: &str) -> Option<Location> {
    let (_, tail) = message.rsplit_once(" at Line: ")?;
    let (line, column) = tail.split_once(", Column: ")?;
    Some(Location {
        line: line.trim().parse().ok()?,
        column: column.trim().parse().ok()?,
    })
}

/// What sqlparser expected, where it says so.
fn expectation(message: &str) -> Option<&str> {
    let expected = message.strip_prefix("Expected: ")?;
    let (expected, _) = expected.split_once(", found:")?;
    Some(expected.trim())
}
