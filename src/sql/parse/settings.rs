//! Parameters, transactions, `SHOW` and `DISCARD`.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::{accept_kind, functions};
use crate::error::Result;
use crate::sql::cursor::Cursor;
use crate::sql::statement::{Discarded, ObjectKind, Statement, TransactionModes};

/// Reads `SHOW`, `SET`, `RESET` or `DISCARD`.
pub(super) fn setting(cursor: &mut Cursor) -> Result<Statement> {
    if cursor.accept("SHOW") {
        return show(cursor);
    }
    if cursor.accept("SET") {
        return set(cursor);
    }
    if cursor.accept("RESET") {
        return Ok(Statement::ResetParameter(match special_name(cursor) {
            Some(name) => name.to_owned(),
            None => parameter_name(cursor)?,
        }));
    }
    cursor.expect("DISCARD")?;
    let parts = ["ALL", "PLANS", "SEQUENCES", "TEMPORARY", "TEMP"];
    match cursor.accept_one(&parts) {
        Some("ALL") => Ok(Statement::Discard(Discarded::All)),
        // Plans are made for each execution, and there are no sequences.
        Some("PLANS") => Ok(Statement::NoOperation("DISCARD PLANS")),
        Some("SEQUENCES") => Ok(Statement::NoOperation("DISCARD SEQUENCES")),
        Some(_) => Ok(Statement::Discard(Discarded::Temporary)),
        None => Err(cursor.expected("ALL, PLANS, SEQUENCES or TEMP")),
    }
}

fn show(cursor: &mut Cursor) -> Result<Statement> {
    const LISTS: &[(&str, ObjectKind)] = &[
        ("STREAMS", ObjectKind::Stream),
        ("TABLES", ObjectKind::Table),
        ("MATERIALIZED VIEWS", ObjectKind::MaterializedView),
        ("VIEWS", ObjectKind::View),
        ("SINKS", ObjectKind::Sink),
        ("INDEXES", ObjectKind::Index),
        ("PIPELINES", ObjectKind::Pipeline),
        ("SECRETS", ObjectKind::Secret),
    ];
    if let Some((_, kind)) = LISTS.iter().find(|(words, _)| cursor.accept(words)) {
        return Ok(Statement::ShowObjects(*kind));
    }
    if cursor.accept("FUNCTIONS") {
        return Ok(Statement::ShowFunctions);
    }
    if cursor.accept("CREATE FUNCTION") {
        return functions::reference(cursor).map(Statement::ShowCreateFunction);
    }
    if cursor.accept("CREATE") {
        let kind = accept_kind(cursor).ok_or_else(|| {
            cursor.expected("STREAM, TABLE, MATERIALIZED VIEW, VIEW, INDEX or SINK")
        })?;
        return Ok(Statement::ShowCreate(kind, cursor.target_name()?));
    }
    if cursor.accept("OPTIONS FOR") {
        return options_for(cursor);
    }
    if let Some(name) = special_name(cursor) {
        return Ok(Statement::ShowParameter(name.to_owned()));
    }
    parameter_name(cursor).map(Statement::ShowParameter)
}

/// A connector or kind of object, quoted or in words: `kafka`, `'kafka'`, `MATERIALIZED VIEW`.
fn options_for(cursor: &mut Cursor) -> Result<Statement> {
    if let Some(name) = cursor.accept_string() {
        return Ok(Statement::ShowOptions(name));
    }
    cursor.accept("CONNECTOR");
    let mut words = vec![cursor.label()?];
    while matches!(cursor.peek(), Token::Word(_)) {
        words.push(cursor.label()?);
    }
    Ok(Statement::ShowOptions(words.join(" ")))
}

/// Parameters with names of several words.
fn special_name(cursor: &mut Cursor) -> Option<&'static str> {
    const NAMES: &[(&str, &str)] = &[
        ("TIME ZONE", "timezone"),
        ("TRANSACTION ISOLATION LEVEL", "transaction_isolation"),
        ("SESSION AUTHORIZATION", "session_authorization"),
    ];
    NAMES
        .iter()
        .find(|(words, _)| cursor.accept(words))
        .map(|(_, name)| *name)
}

/// A parameter's name, with dots for those of extensions.
pub(super) fn parameter_name(cursor: &mut Cursor) -> Result<String> {
    let mut name = cursor.label()?;
    while cursor.accept_token(&Token::Period) {
        name.push('.');
        name.push_str(&cursor.label()?);
    }
    Ok(name.to_ascii_lowercase())
}

fn set(cursor: &mut Cursor) -> Result<Statement> {
    if cursor.accept("SESSION CHARACTERISTICS AS TRANSACTION") {
        return Ok(Statement::SetTransaction {
            modes: modes(cursor)?,
            is_session: true,
        });
    }
    if cursor.accept("CONSTRAINTS") {
        super::skip_rest(cursor);
        return Ok(Statement::NoOperation("SET CONSTRAINTS"));
    }
    if cursor.sees("TRANSACTION") && !matches!(cursor.peek_at(1), Token::Eq) {
        cursor.advance();
        if cursor.sees("SNAPSHOT") {
            return Err(super::unsupported(cursor, "SET TRANSACTION SNAPSHOT"));
        }
        return Ok(Statement::SetTransaction {
            modes: modes(cursor)?,
            is_session: false,
        });
    }
    let local = match cursor.word_at(1).as_deref() {
        // `SET session = 1` names a parameter; `SET SESSION x = 1` a scope.
        Some("TO") => false,
        Some(_) if cursor.sees("SESSION AUTHORIZATION") => false,
        Some(_) => cursor.accept_one(&["LOCAL", "SESSION"]) == Some("LOCAL"),
        None => false,
    };
    let name = set_name(cursor)?;
    let value = value(cursor)?;
    Ok(Statement::SetParameter { name, value, local })
}

/// The name, and the `TO` or `=` after it where one belongs.
pub(super) fn set_name(cursor: &mut Cursor) -> Result<String> {
    const WITHOUT_EQUALS: &[(&str, &str)] = &[
        ("TIME ZONE", "timezone"),
        ("SESSION AUTHORIZATION", "session_authorization"),
        ("NAMES", "client_encoding"),
        ("ROLE", "role"),
        ("SCHEMA", "search_path"),
        ("XML OPTION", "xmloption"),
    ];
    let equals = |cursor: &mut Cursor| cursor.accept_token(&Token::Eq) || cursor.accept("TO");
    for (words, name) in WITHOUT_EQUALS {
        if cursor.accept(words) {
            equals(cursor);
            return Ok((*name).to_owned());
        }
    }
    let name = parameter_name(cursor)?;
    if equals(cursor) {
        return Ok(name);
    }
    Err(cursor.expected("TO or \"=\""))
}

/// `name FROM CURRENT`, if that comes next.
pub(super) fn from_current(cursor: &mut Cursor) -> Result<Option<String>> {
    let mut ahead = 1;
    while matches!(cursor.peek_at(ahead), Token::Period) {
        ahead += 2;
    }
    let word = |at: usize| cursor.word_at(at);
    if word(ahead).as_deref() != Some("FROM") || word(ahead + 1).as_deref() != Some("CURRENT") {
        return Ok(None);
    }
    let name = parameter_name(cursor)?;
    cursor.expect("FROM CURRENT")?;
    Ok(Some(name))
}

/// One or more values as text; `None` for `DEFAULT`.
pub(super) fn value(cursor: &mut Cursor) -> Result<Option<String>> {
    if cursor.accept("DEFAULT") {
        return Ok(None);
    }
    let values = cursor.comma_separated(|cursor| {
        if let Some(text) = cursor.accept_string() {
            return Ok(text);
        }
        if cursor.sees("INTERVAL") {
            cursor.advance();
            let text = cursor.string()?;
            cursor.accept_one(&["HOUR TO MINUTE", "HOUR"]);
            return Ok(text);
        }
        let negative = cursor.accept_token(&Token::Minus);
        if !negative {
            cursor.accept_token(&Token::Plus);
        }
        let text = match cursor.peek() {
            Token::Number(digits, _) => digits.clone(),
            Token::Word(w) if !negative => match w.quote_style {
                Some(_) => w.value.clone(),
                None => w.value.to_ascii_lowercase(),
            },
            _ => return Err(cursor.expected("a value")),
        };
        cursor.advance();
        Ok(if negative { format!("-{text}") } else { text })
    })?;
    Ok(Some(values.join(", ")))
}

fn modes(cursor: &mut Cursor) -> Result<TransactionModes> {
    let mut modes = TransactionModes::default();
    loop {
        if cursor.accept("ISOLATION LEVEL") {
            const LEVELS: &[(&str, &str)] = &[
                ("SERIALIZABLE", "serializable"),
                ("REPEATABLE READ", "repeatable read"),
                ("READ COMMITTED", "read committed"),
                ("READ UNCOMMITTED", "read uncommitted"),
            ];
            let level = LEVELS.iter().find(|(words, _)| cursor.accept(words));
            let Some((_, level)) = level else {
                return Err(cursor.expected("an isolation level"));
            };
            modes.isolation = Some(level);
        } else if cursor.accept("READ ONLY") {
            modes.read_only = Some(true);
        } else if cursor.accept("READ WRITE") {
            modes.read_only = Some(false);
        } else if cursor.accept("NOT DEFERRABLE") {
            modes.deferrable = Some(false);
        } else if cursor.accept("DEFERRABLE") {
            modes.deferrable = Some(true);
        } else if cursor.at_end() {
            return Ok(modes);
        } else {
            return Err(cursor.unexpected());
        }
        cursor.accept_token(&Token::Comma);
    }
}

/// Reads a statement of transaction control.
pub(super) fn transaction(cursor: &mut Cursor) -> Result<Statement> {
    if cursor.accept_one(&["START TRANSACTION", "BEGIN"]).is_some() {
        cursor.accept_one(&["WORK", "TRANSACTION"]);
        return modes(cursor).map(Statement::Begin);
    }
    if cursor.accept_one(&["COMMIT", "END"]).is_some() {
        if cursor.sees("PREPARED") {
            return Err(super::unsupported(cursor, "COMMIT PREPARED"));
        }
        let chain = end_of_transaction(cursor)?;
        return Ok(Statement::Commit { chain });
    }
    if cursor.accept("SAVEPOINT") {
        return cursor.identifier().map(Statement::Savepoint);
    }
    if cursor.accept("RELEASE") {
        cursor.accept("SAVEPOINT");
        return cursor.identifier().map(Statement::ReleaseSavepoint);
    }
    if cursor.accept_one(&["ROLLBACK", "ABORT"]).is_none() {
        return Err(cursor.unexpected());
    }
    if cursor.sees("PREPARED") {
        return Err(super::unsupported(cursor, "ROLLBACK PREPARED"));
    }
    cursor.accept_one(&["WORK", "TRANSACTION"]);
    if cursor.accept("TO") {
        cursor.accept("SAVEPOINT");
        return cursor.identifier().map(Statement::RollbackToSavepoint);
    }
    let chain = end_of_transaction(cursor)?;
    Ok(Statement::Rollback { chain })
}

/// `[WORK | TRANSACTION] [AND [NO] CHAIN]`
fn end_of_transaction(cursor: &mut Cursor) -> Result<bool> {
    cursor.accept_one(&["WORK", "TRANSACTION"]);
    Ok(cursor.accept_one(&["AND NO CHAIN", "AND CHAIN"]) == Some("AND CHAIN"))
}
