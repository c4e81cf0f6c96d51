//! `COPY`, with the option list of PostgreSQL 9 and later and with the one before it.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::{query, statement, unsupported};
use crate::error::{Error, Result, sqlstate};
use crate::sql::cursor::Cursor;
use crate::sql::statement::{CopyFormat, CopyStatement, CopyTarget, ForceQuote, Statement};

/// Options as written; defaults depend on the format, which may come last.
#[derive(Default)]
struct Given {
    format: Option<CopyFormat>,
    delimiter: Option<u8>,
    null: Option<String>,
    header: bool,
    header_match: bool,
    force_quote: Option<ForceQuote>,
    quote: Option<u8>,
    escape: Option<u8>,
}

/// `COPY relation [(columns)] FROM STDIN | TO STDOUT …`, `COPY (query) TO STDOUT …`
pub(super) fn copy(cursor: &mut Cursor) -> Result<Statement> {
    cursor.expect("COPY")?;
    let mut given = Given::default();
    if cursor.accept("BINARY") {
        given.format = Some(CopyFormat::Binary);
    }
    let target = target(cursor)?;
    let from_stdin = match cursor.accept_one(&["FROM", "TO"]) {
        Some(direction) => direction == "FROM",
        None => return Err(cursor.expected("FROM or TO")),
    };
    if from_stdin && matches!(target, CopyTarget::Query(_)) {
        return Err(
            Error::new(sqlstate::SYNTAX_ERROR, "COPY FROM needs a table")
                .position(cursor.position()),
        );
    }
    endpoint(cursor, from_stdin)?;
    options(cursor, &mut given)?;
    if cursor.sees("WHERE") {
        return Err(unsupported(cursor, "COPY … WHERE"));
    }
    finish(target, from_stdin, given).map(Statement::Copy)
}

fn target(cursor: &mut Cursor) -> Result<CopyTarget> {
    if cursor.accept_token(&Token::LParen) {
        let inner = match cursor.word_at(0).as_deref() {
            Some("SUBSCRIBE" | "INSERT" | "UPDATE" | "DELETE") => statement(cursor)?,
            _ => query(cursor)?,
        };
        cursor.expect_token(&Token::RParen)?;
        return Ok(CopyTarget::Query(Box::new(inner)));
    }
    let name = cursor.target_name()?;
    let columns = if cursor.peek() == &Token::LParen {
        cursor.column_names()?
    } else {
        Vec::new()
    };
    Ok(CopyTarget::Relation(name, columns))
}

/// `STDIN` or `STDOUT`. Paths of the server's files are nothing a client may name.
fn endpoint(cursor: &mut Cursor, from: bool) -> Result<()> {
    let position = cursor.position();
    if cursor.accept_one(&["STDIN", "STDOUT"]).is_some() {
        return Ok(());
    }
    if cursor.sees("PROGRAM") || cursor.accept_string().is_some() {
        let direction = if from { "FROM" } else { "TO" };
        return Err(Error::unsupported(format!(
            "COPY {direction} a file or program is not supported"
        ))
        .hint(format!(
            "Use psql's \\copy … {direction} 'file', or a stream or sink with connector = 'files'."
        ))
        .position(position));
    }
    Err(cursor.expected(if from { "STDIN" } else { "STDOUT" }))
}

fn options(cursor: &mut Cursor, given: &mut Given) -> Result<()> {
    cursor.accept("WITH");
    if cursor.accept_token(&Token::LParen) {
        cursor.comma_separated(|cursor| listed_option(cursor, given))?;
        return cursor.expect_token(&Token::RParen);
    }
    while old_option(cursor, given)? {}
    Ok(())
}

/// `(FORMAT csv, HEADER true, …)`
fn listed_option(cursor: &mut Cursor, given: &mut Given) -> Result<()> {
    let position = cursor.position();
    let name = cursor.label()?;
    match name.as_str() {
        "format" => {
            let format = word_or_string(cursor)?;
            given.format = Some(match format.as_str() {
                "text" => CopyFormat::Text,
                "csv" => CopyFormat::Csv,
                "binary" => CopyFormat::Binary,
                _ => {
                    return Err(Error::new(
                        sqlstate::INVALID_PARAMETER_VALUE,
                        format!("COPY format \"{format}\" not recognized"),
                    )
                    .hint("The formats are text, csv and binary.")
                    .position(position));
                }
            });
        }
        "delimiter" => given.delimiter = Some(byte(cursor, "delimiter")?),
        "null" => given.null = Some(cursor.string()?),
        "quote" => given.quote = Some(byte(cursor, "quote")?),
        "escape" => given.escape = Some(byte(cursor, "escape")?),
        "header" | "freeze" => {
            let is_match = name == "header" && cursor.accept("MATCH");
            let on = match cursor.peek() {
                Token::Comma | Token::RParen => true,
                _ => truth(cursor)?,
            };
            if name == "header" {
                given.header = on;
                given.header_match = is_match;
            }
        }
        "encoding" => encoding(cursor)?,
        "force_quote" => {
            given.force_quote = Some(match cursor.accept_token(&Token::Mul) {
                true => ForceQuote::All,
                false => ForceQuote::Columns(cursor.column_names()?),
            });
        }
        "force_not_null" | "force_null" => {
            return Err(
                Error::unsupported(format!("COPY option {name} is not supported"))
                    .position(position),
            );
        }
        _ => {
            return Err(Error::new(
                sqlstate::SYNTAX_ERROR,
                format!("option \"{name}\" not recognized"),
            )
            .position(position));
        }
    }
    Ok(())
}

/// One option of the list without parentheses; false at its end.
fn old_option(cursor: &mut Cursor, given: &mut Given) -> Result<bool> {
    let Some(word) = cursor.accept_one(&[
        "BINARY",
        "CSV",
        "DELIMITERS",
        "DELIMITER",
        "NULL",
        "HEADER",
        "QUOTE",
        "ESCAPE",
        "ENCODING",
        "FREEZE",
    ]) else {
        return Ok(false);
    };
    match word {
        "BINARY" => given.format = Some(CopyFormat::Binary),
        "CSV" => given.format = Some(CopyFormat::Csv),
        "HEADER" => given.header = true,
        "ENCODING" => encoding(cursor)?,
        "FREEZE" => {}
        _ => {
            cursor.accept("AS");
            match word {
                "NULL" => given.null = Some(cursor.string()?),
                "QUOTE" => given.quote = Some(byte(cursor, "quote")?),
                "ESCAPE" => given.escape = Some(byte(cursor, "escape")?),
                _ => given.delimiter = Some(byte(cursor, "delimiter")?),
            }
        }
    }
    Ok(true)
}

fn word_or_string(cursor: &mut Cursor) -> Result<String> {
    match cursor.accept_string() {
        Some(text) => Ok(text.to_ascii_lowercase()),
        None => cursor.label(),
    }
}

fn truth(cursor: &mut Cursor) -> Result<bool> {
    let on = match cursor.peek() {
        Token::Number(n, _) => match n.as_str() {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        },
        _ => {
            return match word_or_string(cursor)?.as_str() {
                "true" | "on" => Ok(true),
                "false" | "off" => Ok(false),
                _ => Err(cursor.expected("true or false")),
            };
        }
    };
    let on = on.ok_or_else(|| cursor.expected("true or false"))?;
    cursor.advance();
    Ok(on)
}

fn encoding(cursor: &mut Cursor) -> Result<()> {
    let position = cursor.position();
    let name = word_or_string(cursor)?;
    if matches!(name.as_str(), "utf8" | "utf-8" | "unicode") {
        return Ok(());
    }
    Err(
        Error::unsupported(format!("encoding \"{name}\" is not supported"))
            .hint("Send the data as UTF8.")
            .position(position),
    )
}

fn byte(cursor: &mut Cursor, what: &str) -> Result<u8> {
    let position = cursor.position();
    let text = cursor.string()?;
    match text.as_bytes() {
        [b] if !matches!(b, b'\n' | b'\r') => Ok(*b),
        _ => Err(
            Error::unsupported(format!("COPY {what} must be a single one-byte character"))
                .position(position),
        ),
    }
}

fn finish(target: CopyTarget, from_stdin: bool, given: Given) -> Result<CopyStatement> {
    let format = given.format.unwrap_or(CopyFormat::Text);
    let csv = format == CopyFormat::Csv;
    let wrong = |what: &str| {
        Err(Error::new(
            sqlstate::SYNTAX_ERROR,
            format!("cannot specify {what}"),
        ))
    };
    if format == CopyFormat::Binary {
        if given.delimiter.is_some() {
            return wrong("DELIMITER in BINARY mode");
        }
        if given.null.is_some() {
            return wrong("NULL in BINARY mode");
        }
        if given.header {
            return wrong("HEADER in BINARY mode");
        }
    }
    if !csv && given.quote.is_some() {
        return Err(Error::unsupported("COPY quote available only in CSV mode"));
    }
    if given.header_match && !from_stdin {
        return Err(Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            "cannot use \"match\" with HEADER in COPY TO",
        ));
    }
    if given.force_quote.is_some() && (!csv || from_stdin) {
        return Err(Error::unsupported(match csv {
            true => "COPY force quote only available using COPY TO",
            false => "COPY force quote available only in CSV mode",
        }));
    }
    if !csv && given.escape.is_some() {
        return Err(Error::unsupported("COPY escape available only in CSV mode"));
    }
    let quote = given.quote.unwrap_or(b'"');
    let delimiter = given.delimiter.unwrap_or(if csv { b',' } else { b'\t' });
    if csv && delimiter == quote {
        return Err(Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            "COPY delimiter and quote must be different",
        ));
    }
    Ok(CopyStatement {
        target,
        from_stdin,
        format,
        delimiter,
        null: given
            .null
            .unwrap_or_else(|| if csv { String::new() } else { "\\N".to_owned() }),
        header: given.header,
        header_match: given.header_match,
        force_quote: given.force_quote.unwrap_or(ForceQuote::Columns(Vec::new())),
        quote,
        escape: given.escape.unwrap_or(quote),
    })
}
