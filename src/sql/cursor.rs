//! A cursor over one statement's tokens: our own grammar beside sqlparser's.
//!
//! What sqlparser knows (queries, expressions, types) it parses; everything else is read here word
//! by word, because most of our words (STREAM, WATERMARK, EMIT) are no keywords of its.

use datafusion::sql::sqlparser::ast;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Location, Span, Token, TokenWithSpan};

use crate::catalog::definition::EmitMode;
use crate::catalog::temporary::{TEMPORARY_SCHEMA, is_temporary_schema};
use crate::error::{Error, Result, sqlstate};
use crate::sql::names;
use crate::sql::source::{DIALECT, NESTING_DEPTH_MAX, Source, StatementTokens, VERSIONED_DIALECT};

/// Reads one statement.
pub(crate) struct Cursor<'a> {
    source: &'a Source<'a>,
    parser: Parser<'a>,
    end: usize,
    /// `EMIT …` at the end, taken off before the query is parsed, since a query could read `EMIT`
    /// as a table's alias. With the byte offset where it began.
    emit: Option<(EmitMode, usize)>,
}

impl<'a> Cursor<'a> {
    /// Starts before the first token.
    pub fn new(source: &'a Source<'a>, statement: StatementTokens) -> Self {
        let StatementTokens { tokens, end, .. } = statement;
        let mut tokens: Vec<TokenWithSpan> = tokens
            .into_iter()
            .filter(|t| !matches!(t.token, Token::Whitespace(_)))
            .collect();
        let is_versioned = |t: &TokenWithSpan| matches!(&t.token, Token::Word(w) if w.value.eq_ignore_ascii_case("system_time"));
        let dialect = match tokens.iter().any(is_versioned) {
            true => &VERSIONED_DIALECT,
            false => &DIALECT,
        };
        let emit = take_emit(&mut tokens).map(|(mode, at)| (mode, source.offset(at)));
        Self {
            source,
            parser: Parser::new(dialect)
                .with_recursion_limit(NESTING_DEPTH_MAX)
                .with_tokens_with_locations(tokens),
            end: emit.map_or(end, |(_, at)| at),
            emit,
        }
    }

    /// The `EMIT` clause, once.
    pub fn take_emit(&mut self) -> Option<EmitMode> {
        self.emit.take().map(|(mode, _)| mode)
    }

    /// The next token.
    pub fn peek(&self) -> &Token {
        &self.parser.peek_token_ref().token
    }

    /// The token `ahead` tokens from here.
    pub fn peek_at(&self, ahead: usize) -> &Token {
        &self.parser.peek_nth_token_ref(ahead).token
    }

    /// Byte offset of the next token.
    pub fn offset(&self) -> usize {
        let token = self.parser.peek_token_ref();
        match token.token {
            Token::EOF => self.end,
            _ => self.source.offset(token.span.start),
        }
    }

    /// 1-based character position of the next token.
    pub fn position(&self) -> usize {
        self.source.position(self.offset())
    }

    /// The text from a byte offset to the end of the last token taken.
    pub fn text_from(&self, start: usize) -> String {
        let last = self.parser.get_current_token();
        let end = match last.token {
            Token::EOF => self.end,
            _ => self.source.offset(last.span.end),
        };
        self.source.slice(start, end).trim_end().to_owned()
    }

    /// Whether nothing is left.
    pub fn at_end(&self) -> bool {
        matches!(self.peek(), Token::EOF)
    }

    /// Fails unless the statement ends here.
    pub fn finish(&self) -> Result<()> {
        if !self.at_end() {
            return Err(self.unexpected());
        }
        match self.emit {
            Some((_, at)) => Err(self.source.syntax_error_at(at, at + "EMIT".len())),
            None => Ok(()),
        }
    }

    /// `syntax error at or near` the next token.
    pub fn unexpected(&self) -> Error {
        let token = self.parser.peek_token_ref();
        match token.token {
            Token::EOF => self.source.syntax_error_at(self.end, self.end),
            _ => self.source.syntax_error_near(token.span),
        }
    }

    /// `syntax error at or near` the token of a span.
    pub fn unexpected_at(&self, span: Span) -> Error {
        self.source.syntax_error_near(span)
    }

    /// As [`Self::unexpected`], saying what would be right.
    pub fn expected(&self, what: &str) -> Error {
        self.unexpected().detail(format!("Expected {what}."))
    }

    /// Runs a parse of sqlparser, with its errors put into our form.
    pub fn run<T>(
        &mut self,
        parse: impl FnOnce(&mut Parser<'a>) -> std::result::Result<T, ParserError>,
    ) -> Result<T> {
        parse(&mut self.parser).map_err(|e| {
            self.source
                .parser_error(&e, self.parser.peek_token_ref(), self.end)
        })
    }

    /// Takes the next token.
    pub fn advance(&mut self) {
        self.parser.advance_token();
    }

    /// The word `ahead` tokens from here, unquoted, in capitals.
    pub fn word_at(&self, ahead: usize) -> Option<String> {
        match &self.parser.peek_nth_token_ref(ahead).token {
            Token::Word(w) if w.quote_style.is_none() => Some(w.value.to_ascii_uppercase()),
            _ => None,
        }
    }

    /// Whether these words (in capitals, separated by spaces) come next.
    pub fn sees(&self, words: &str) -> bool {
        words.split(' ').enumerate().all(|(ahead, word)| {
            matches!(
                &self.parser.peek_nth_token_ref(ahead).token,
                Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word)
            )
        })
    }

    /// Takes these words if they come next.
    pub fn accept(&mut self, words: &str) -> bool {
        let seen = self.sees(words);
        if seen {
            for _ in words.split(' ') {
                self.advance();
            }
        }
        seen
    }

    /// Takes the first of these phrases that comes next.
    pub fn accept_one<'w>(&mut self, phrases: &[&'w str]) -> Option<&'w str> {
        phrases.iter().copied().find(|phrase| self.accept(phrase))
    }

    /// Takes these words or fails.
    pub fn expect(&mut self, words: &str) -> Result<()> {
        for word in words.split(' ') {
            if !self.accept(word) {
                return Err(self.expected(words));
            }
        }
        Ok(())
    }

    /// Takes a token if it comes next.
    pub fn accept_token(&mut self, token: &Token) -> bool {
        let seen = self.peek() == token;
        if seen {
            self.advance();
        }
        seen
    }

    /// Takes a token or fails.
    pub fn expect_token(&mut self, token: &Token) -> Result<()> {
        if self.accept_token(token) {
            Ok(())
        } else {
            Err(self.expected(&format!("\"{token}\"")))
        }
    }

    /// A name: folded unless quoted, not a reserved word.
    pub fn identifier(&mut self) -> Result<String> {
        let name = match self.peek() {
            Token::Word(w) if w.quote_style.is_some() => w.value.clone(),
            Token::Word(w) if !names::is_reserved(&w.value) => names::fold(&w.value),
            _ => return Err(self.expected("a name")),
        };
        if name.is_empty() {
            return Err(
                Error::new(sqlstate::SYNTAX_ERROR, "zero-length delimited identifier")
                    .position(self.position()),
            );
        }
        self.advance();
        Ok(name)
    }

    /// A name that may be a reserved word too, as PostgreSQL allows for labels and options.
    pub fn label(&mut self) -> Result<String> {
        match self.peek() {
            Token::Word(w) if w.quote_style.is_none() => {
                let name = names::fold(&w.value);
                self.advance();
                Ok(name)
            }
            _ => self.identifier(),
        }
    }

    /// An object's name. `public.` and `tidemill.public.` are dropped, `pg_catalog.` too;
    /// `information_schema.` and `pg_temp.` are kept; other schemas and databases do not exist.
    pub fn object_name(&mut self) -> Result<String> {
        let position = self.position();
        let parts = self.name_parts()?;
        unqualified(parts).map_err(|e| e.position(position))
    }

    /// The name of a relation that may be temporary: as [`Self::object_name`], but `public.` is kept
    /// where it was said. The session settles which one it means.
    pub fn target_name(&mut self) -> Result<String> {
        let position = self.position();
        let parts = self.name_parts()?;
        target(parts).map_err(|e| e.position(position))
    }

    fn name_parts(&mut self) -> Result<Vec<String>> {
        let mut parts = vec![self.identifier()?];
        while self.accept_token(&Token::Period) {
            parts.push(self.label()?);
        }
        Ok(parts)
    }

    /// Names separated by commas.
    pub fn object_names(&mut self) -> Result<Vec<String>> {
        self.comma_separated(Self::object_name)
    }

    /// As [`Self::object_names`], of [`Self::target_name`].
    pub fn target_names(&mut self) -> Result<Vec<String>> {
        self.comma_separated(Self::target_name)
    }

    /// `(a, b, …)`.
    pub fn column_names(&mut self) -> Result<Vec<String>> {
        self.expect_token(&Token::LParen)?;
        let columns = self.comma_separated(Self::identifier)?;
        self.expect_token(&Token::RParen)?;
        Ok(columns)
    }

    /// One or more, separated by commas.
    pub fn comma_separated<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.accept_token(&Token::Comma) {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// A string literal of any form, if one comes next.
    pub fn accept_string(&mut self) -> Option<String> {
        let text = match self.peek() {
            Token::SingleQuotedString(s)
            | Token::EscapedStringLiteral(s)
            | Token::UnicodeStringLiteral(s) => s.clone(),
            Token::DollarQuotedString(s) => s.value.clone(),
            _ => return None,
        };
        self.advance();
        Some(text)
    }

    /// A string literal.
    pub fn string(&mut self) -> Result<String> {
        self.accept_string()
            .ok_or_else(|| self.expected("a string in quotes"))
    }

    /// A whole number that is not negative.
    pub fn unsigned(&mut self) -> Result<u64> {
        let value = match self.peek() {
            Token::Number(digits, _) => digits.replace('_', "").parse().ok(),
            _ => None,
        };
        let value = value.ok_or_else(|| self.expected("a whole number"))?;
        self.advance();
        Ok(value)
    }

    /// An expression.
    pub fn expression(&mut self) -> Result<ast::Expr> {
        self.run(Parser::parse_expr)
    }

    /// A query and its text.
    pub fn query(&mut self) -> Result<(Box<ast::Query>, String)> {
        let start = self.offset();
        let query = self.run(Parser::parse_query)?;
        Ok((query, self.text_from(start)))
    }
}

/// A relation's name with `public` in front where that was said.
pub(in crate::sql) fn target(parts: Vec<String>) -> Result<String> {
    let schema = parts.len().checked_sub(2).map(|at| parts[at].clone());
    let name = unqualified(parts)?;
    match schema.as_deref() {
        Some("public") => Ok(format!("public.{name}")),
        _ => Ok(name),
    }
}

/// Drops the qualifiers that name what every name is in anyway.
fn unqualified(mut parts: Vec<String>) -> Result<String> {
    let name = parts.pop().unwrap_or_default();
    let schema = parts.pop();
    if let Some(database) = parts.pop()
        && (database != "tidemill" || !parts.is_empty())
    {
        return Err(Error::unsupported(format!(
            "cross-database references are not implemented: \"{database}\""
        )));
    }
    match schema.as_deref() {
        None | Some("public" | "pg_catalog") => Ok(name),
        Some("information_schema") => Ok(format!("information_schema.{name}")),
        Some(schema) if is_temporary_schema(schema) => Ok(format!("{TEMPORARY_SCHEMA}.{name}")),
        Some(schema) => Err(Error::new(
            sqlstate::INVALID_SCHEMA_NAME,
            format!("schema \"{schema}\" does not exist"),
        )),
    }
}

/// Takes `EMIT ON UPDATE` or `EMIT ON WINDOW CLOSE` off the end.
fn take_emit(tokens: &mut Vec<TokenWithSpan>) -> Option<(EmitMode, Location)> {
    let ends_with = |tokens: &[TokenWithSpan], words: &[&str]| {
        tokens.len() > words.len()
            && tokens[tokens.len() - words.len()..]
                .iter()
                .zip(words)
                .all(|(token, word)| {
                    matches!(&token.token, Token::Word(w)
                        if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
                })
    };
    let (mode, length) = if ends_with(tokens, &["EMIT", "ON", "UPDATE"]) {
        (EmitMode::OnUpdate, 3)
    } else if ends_with(tokens, &["EMIT", "ON", "WINDOW", "CLOSE"]) {
        (EmitMode::OnWindowClose, 4)
    } else {
        return None;
    };
    let at = tokens[tokens.len() - length].span.start;
    tokens.truncate(tokens.len() - length);
    Some((mode, at))
}
