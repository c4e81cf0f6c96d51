//! Looking at checkpoints and mending them: `DIAGNOSE`, `CHECK`, `VERIFY`, `BACKUP`, `RESTORE`,
//! `REWIND`, `REPAIR`, `REBUILD`, `RESET CHECKPOINT`, `RUN RECOVERY DRILL`.

use datafusion::sql::sqlparser::tokenizer::Token;

use super::if_not_exists;
use crate::catalog::schedule;
use crate::connectors::formats::values::{EpochUnit, timestamp_us};
use crate::error::{Error, Result, sqlstate};
use crate::sql::cursor::Cursor;
use crate::sql::recovery::{RecoveryStatement, ResetFrom, RewindTo};
use crate::sql::statement::{CreateRecoverySchedule, Statement};

/// Reads one of these statements.
pub(super) fn recovery(cursor: &mut Cursor) -> Result<Statement> {
    let first = cursor.word_at(0).unwrap_or_default();
    let statement = match first.as_str() {
        "DIAGNOSE" => diagnose(cursor),
        "CHECK" => {
            cursor.advance();
            let name = any_object(cursor)?;
            Ok(RecoveryStatement::Check { name })
        }
        "VERIFY" => {
            cursor.expect("VERIFY MATERIALIZED VIEW")?;
            let name = cursor.object_name()?;
            let sample = match cursor.accept("SAMPLE") {
                true => Some(cursor.unsigned()?),
                false => None,
            };
            Ok(RecoveryStatement::Verify { name, sample })
        }
        "REPAIR" => {
            cursor.expect("REPAIR CHECKPOINT OF")?;
            let name = any_object(cursor)?;
            let dry_run = cursor.accept("DRY RUN");
            Ok(RecoveryStatement::RepairCheckpoint { name, dry_run })
        }
        "RESET" => reset(cursor),
        "REBUILD" => {
            cursor.expect("REBUILD STATE OF")?;
            let name = any_object(cursor)?;
            Ok(RecoveryStatement::RebuildState { name })
        }
        "BACKUP" if cursor.accept("BACKUP DATABASE TO") => {
            let to = cursor.string()?;
            Ok(RecoveryStatement::BackupDatabase { to })
        }
        "BACKUP" => {
            cursor.expect("BACKUP CHECKPOINT OF")?;
            let name = any_object(cursor)?;
            let to = match cursor.accept("TO") {
                true => Some(cursor.string()?),
                false => None,
            };
            Ok(RecoveryStatement::BackupCheckpoint { name, to })
        }
        "RESTORE" => restore(cursor),
        "RUN" => drill(cursor),
        "TEST" => test(cursor),
        "REPLAY" => {
            cursor.expect("REPLAY DEAD LETTERS OF")?;
            let name = cursor.object_name()?;
            Ok(RecoveryStatement::ReplayDeadLetters { name })
        }
        "COMPARE" => {
            cursor.expect("COMPARE SCHEMA OF")?;
            let name = any_relation(cursor)?;
            Ok(RecoveryStatement::CompareSchema { name })
        }
        "SUGGEST" => {
            cursor.expect("SUGGEST WATERMARK FOR")?;
            let name = cursor.object_name()?;
            Ok(RecoveryStatement::SuggestWatermark { name })
        }
        _ => rewind(cursor),
    };
    statement.map(Statement::Recovery)
}

/// A name, with or without the kind of object before it: all that it can name lie in one pipeline.
pub(super) fn any_object(cursor: &mut Cursor) -> Result<String> {
    any_of(cursor, &["MATERIALIZED VIEW", "PIPELINE", "SINK"])
}

/// As [`any_object`], also of a stream.
fn any_relation(cursor: &mut Cursor) -> Result<String> {
    any_of(cursor, &["MATERIALIZED VIEW", "PIPELINE", "SINK", "STREAM"])
}

fn any_of(cursor: &mut Cursor, kinds: &[&'static str]) -> Result<String> {
    const AFTER_NAME: [&str; 7] = ["AS", "DRY", "FROM", "TO", "BEFORE", "WITH", "EVERY"];
    let is_name = match cursor.word_at(1) {
        Some(word) => AFTER_NAME.contains(&word.as_str()),
        None => !matches!(cursor.peek_at(1), Token::Word(_)),
    };
    if !is_name {
        cursor.accept_one(kinds);
    }
    cursor.object_name()
}

fn diagnose(cursor: &mut Cursor) -> Result<RecoveryStatement> {
    if !cursor.accept("DIAGNOSE CHECKPOINT OF") {
        cursor.expect("DIAGNOSE")?;
        let name = any_object(cursor)?;
        return Ok(RecoveryStatement::Diagnose { name });
    }
    let name = any_object(cursor)?;
    let as_json = cursor.accept("AS JSON");
    Ok(RecoveryStatement::DiagnoseCheckpoint { name, as_json })
}

fn reset(cursor: &mut Cursor) -> Result<RecoveryStatement> {
    cursor.expect("RESET CHECKPOINT OF")?;
    let name = any_object(cursor)?;
    let from = match cursor.accept("FROM") {
        false => ResetFrom::Configured,
        true if cursor.accept("EARLIEST") => ResetFrom::Earliest,
        true if cursor.accept("LATEST") => ResetFrom::Latest,
        true if cursor.accept("TIMESTAMP") => ResetFrom::Timestamp(timestamp(cursor)?),
        true if cursor.accept("OFFSETS") => ResetFrom::Offsets(offsets(cursor)?),
        true => return Err(cursor.expected("EARLIEST, LATEST, TIMESTAMP '…' or OFFSETS '{…}'")),
    };
    Ok(RecoveryStatement::ResetCheckpoint { name, from })
}

fn restore(cursor: &mut Cursor) -> Result<RecoveryStatement> {
    cursor.expect("RESTORE CHECKPOINT OF")?;
    let name = any_object(cursor)?;
    cursor.expect("FROM")?;
    let from = cursor.string()?;
    let batch_id = match cursor.accept("AT BATCH") {
        true => Some(cursor.unsigned()?),
        false => None,
    };
    Ok(RecoveryStatement::RestoreCheckpoint {
        name,
        from,
        batch_id,
    })
}

fn test(cursor: &mut Cursor) -> Result<RecoveryStatement> {
    cursor.advance();
    match cursor.accept_one(&["SOURCE", "SINK"]) {
        Some("SINK") => {
            let name = cursor.object_name()?;
            Ok(RecoveryStatement::TestSink { name })
        }
        Some(_) => {
            let name = cursor.object_name()?;
            Ok(RecoveryStatement::TestSource { name })
        }
        None => Err(cursor.expected("SOURCE or SINK")),
    }
}

/// The faults are checked by whoever makes them.
fn drill(cursor: &mut Cursor) -> Result<RecoveryStatement> {
    cursor.expect("RUN RECOVERY DRILL ON")?;
    let name = any_object(cursor)?;
    let faults = faults(cursor)?;
    Ok(RecoveryStatement::RunDrill { name, faults })
}

/// `[WITH (fault = '…')]`
fn faults(cursor: &mut Cursor) -> Result<Option<String>> {
    if !cursor.accept("WITH") {
        return Ok(None);
    }
    cursor.expect_token(&Token::LParen)?;
    cursor.expect("FAULT")?;
    cursor.expect_token(&Token::Eq)?;
    let faults = cursor.string()?;
    cursor.expect_token(&Token::RParen)?;
    Ok(Some(faults))
}

/// `[IF NOT EXISTS] name ON target [WITH (fault = '…')] EVERY '1 month'`, behind `CREATE RECOVERY SCHEDULE`.
pub(super) fn create_schedule(cursor: &mut Cursor) -> Result<Statement> {
    let if_not_exists = if_not_exists(cursor);
    let name = cursor.identifier()?;
    cursor.expect("ON")?;
    let target = any_object(cursor)?;
    let faults = faults(cursor)?;
    cursor.expect("EVERY")?;
    cursor.accept("INTERVAL");
    let position = cursor.position();
    let every = cursor.string()?;
    if !schedule::is_interval(&every) {
        return Err(Error::new(
            sqlstate::INVALID_DATETIME,
            format!("invalid input syntax for type interval: \"{every}\""),
        )
        .hint("Drills are made every so often, such as '1 month' or '12 hours': no less than a minute.")
        .position(position));
    }
    Ok(Statement::CreateRecoverySchedule(CreateRecoverySchedule {
        name,
        target,
        faults,
        every,
        if_not_exists,
    }))
}

fn rewind(cursor: &mut Cursor) -> Result<RecoveryStatement> {
    cursor.expect("REWIND")?;
    let name = any_object(cursor)?;
    let to = if cursor.accept("TO BATCH") {
        RewindTo::Batch(cursor.unsigned()?)
    } else if cursor.accept("BEFORE TIMESTAMP") {
        RewindTo::Before(timestamp(cursor)?)
    } else {
        return Err(cursor.expected("TO BATCH n or BEFORE TIMESTAMP '…'"));
    };
    Ok(RecoveryStatement::Rewind { name, to })
}

/// A moment in quotes; without a zone it is UTC.
pub(super) fn timestamp(cursor: &mut Cursor) -> Result<i64> {
    let position = cursor.position();
    let text = cursor.string()?;
    timestamp_us(&text, EpochUnit::Auto).ok_or_else(|| {
        Error::new(
            sqlstate::INVALID_DATETIME,
            format!("invalid input syntax for type timestamp with time zone: \"{text}\""),
        )
        .position(position)
    })
}

fn offsets(cursor: &mut Cursor) -> Result<serde_json::Value> {
    let position = cursor.position();
    let text = cursor.string()?;
    serde_json::from_str(&text).map_err(|e| {
        Error::new(sqlstate::INVALID_PARAMETER_VALUE, "OFFSETS must be JSON")
            .detail(format!("{e}."))
            .position(position)
    })
}
