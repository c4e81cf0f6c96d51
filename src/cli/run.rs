//! `tidemill run FILE.sql…`: scripts on an embedded database, to the end of what is available.
//!
//! A query sees all that is there: before it runs, every view takes in what its sources have. After
//! the last statement the views do so once more, so that sinks have everything.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use futures::TryStreamExt;

use super::{Settings, print, progress};
use crate::Database;
use crate::error::{Error, Result, sqlstate};
use crate::session::{Session, StatementResult};
use crate::sql::statement::Statement;

/// What a shell expects of a command ended by Ctrl-C.
pub(super) const INTERRUPTED: u8 = 130;

pub(super) async fn run(settings: &Settings, files: &[PathBuf]) -> Result<ExitCode> {
    let scripts = files
        .iter()
        .map(|path| read(path))
        .collect::<Result<Vec<_>>>()?;
    let (data, _deleted_at_end) = match &settings.data {
        Some(dir) => (dir.clone(), None),
        None => {
            let dir = tempfile::tempdir()?;
            (dir.path().to_owned(), Some(dir))
        }
    };
    let database = Database::open(&data, settings.database_options()?).await?;
    let outcome = tokio::select! {
        result = run_scripts(&database, files, &scripts) => result.map(|()| ExitCode::SUCCESS),
        interrupted = tokio::signal::ctrl_c() => {
            interrupted.map(|()| ExitCode::from(INTERRUPTED)).map_err(Error::from)
        }
    };
    let closed = database.close().await;
    let code = outcome?;
    closed?;
    Ok(code)
}

async fn run_scripts(database: &Database, files: &[PathBuf], scripts: &[String]) -> Result<()> {
    let mut session = database.session("tidemill");
    for (path, script) in files.iter().zip(scripts) {
        let at = |e: Error| e.context(path.display());
        let statements = session.parse(script);
        for (statement, _) in statements.map_err(|e| at(print::with_line(e, script)))? {
            if reads(&statement) {
                progress::refresh_all(database).await.map_err(at)?;
            }
            execute(&mut session, &statement).await.map_err(at)?;
        }
    }
    progress::refresh_all(database).await
}

/// Runs a statement and prints what it gives.
pub(super) async fn execute(session: &mut Session, statement: &Statement) -> Result<()> {
    let result = session.execute(statement, &[]).await;
    for notice in session.take_notices() {
        print::notice(&notice);
    }
    match result? {
        StatementResult::Rows {
            schema, mut stream, ..
        }
        | StatementResult::CopyOut {
            schema, mut stream, ..
        } => {
            let mut table = print::Table::of(&schema);
            while let Some(batch) = stream.try_next().await? {
                table.push_batch(&batch)?;
            }
            table.finish()
        }
        StatementResult::Command { tag } => print::line(&tag),
        StatementResult::CopyIn(_) => Err(Error::unsupported(
            "COPY FROM STDIN needs a client of the server",
        )
        .hint("Use psql, or CREATE STREAM … WITH (connector = 'files', …).")),
    }
}

fn reads(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Query(_) | Statement::Copy(_) | Statement::DeclareCursor { .. }
    )
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| {
        Error::new(
            sqlstate::UNDEFINED_FILE,
            format!("could not read {}: {e}", path.display()),
        )
    })
}
