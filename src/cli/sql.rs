//! `tidemill sql`: statements on a data directory, or on a server that has it open.

use std::io::Read;

use tokio_postgres::error::ErrorPosition;
use tokio_postgres::{NoTls, SimpleQueryMessage};

use super::{Settings, print, run};
use crate::Database;
use crate::error::{Error, Result, sqlstate};

pub(super) async fn sql(
    settings: &Settings,
    command: Option<String>,
    connect: Option<&str>,
) -> Result<()> {
    let text = match command {
        Some(text) => text,
        None => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text)?;
            text
        }
    };
    match connect {
        Some(url) => on_server(url, &text)
            .await
            .map_err(|error| print::with_line(error, &text)),
        None => on_directory(settings, &text).await,
    }
}

async fn on_directory(settings: &Settings, text: &str) -> Result<()> {
    let database = Database::open(&settings.data_dir(), settings.database_options()?).await?;
    let mut session = database.session("tidemill");
    let result = async {
        let statements = session.parse(text);
        for (statement, _) in statements.map_err(|error| print::with_line(error, text))? {
            run::execute(&mut session, &statement).await?;
        }
        Ok(())
    }
    .await;
    drop(session);
    let closed = database.close().await;
    result.and(closed)
}

async fn on_server(url: &str, text: &str) -> Result<()> {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .map_err(|e| wire_error(&e))?;
    let served = tokio::spawn(connection);
    let messages = client.simple_query(text).await;
    drop(client);
    let messages = messages.map_err(|e| wire_error(&e))?;
    let mut table: Option<print::Table> = None;
    for message in messages {
        match message {
            SimpleQueryMessage::RowDescription(columns) => {
                let names = columns.iter().map(|c| c.name().to_owned()).collect();
                table = Some(print::Table::new(names));
            }
            SimpleQueryMessage::Row(row) => {
                let cells = (0..row.len()).map(|i| row.get(i).map(str::to_owned));
                if let Some(table) = &mut table {
                    table.push(cells.collect())?;
                }
            }
            SimpleQueryMessage::CommandComplete(_) => match table.take() {
                Some(table) => table.finish()?,
                None => print::line("OK")?,
            },
            _ => {}
        }
    }
    match served.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(wire_error(&error)),
        Err(_) => Err(Error::internal("the connection's task failed")),
    }
}

/// The server's own words where it said some.
pub(super) fn wire_error(error: &tokio_postgres::Error) -> Error {
    let Some(told) = error.as_db_error() else {
        return Error::transient(
            sqlstate::CONNECTION_FAILURE,
            format!("could not talk to the server: {error}"),
        );
    };
    let code = told.code().code();
    let mut result = match sqlstate::known(code) {
        Some(code) => Error::new(code, told.message()),
        None => Error::internal(format!("{} (SQLSTATE {code})", told.message())),
    };
    if let Some(detail) = told.detail() {
        result = result.detail(detail);
    }
    if let Some(hint) = told.hint() {
        result = result.hint(hint);
    }
    if let Some(&ErrorPosition::Original(position)) = told.position() {
        result = result.position(position as usize);
    }
    result
}
