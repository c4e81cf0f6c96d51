//! Query results as the demo prints them.

use tokio_postgres::{Client, SimpleQueryMessage};

use super::say;
use crate::cli::sql::wire_error;
use crate::error::Result;

type Rows = Vec<Vec<Option<String>>>;

/// Column names and rows of a query, as texts.
pub(super) async fn rows(client: &Client, sql: &str) -> Result<(Vec<String>, Rows)> {
    let messages = client.simple_query(sql).await.map_err(|e| wire_error(&e))?;
    let mut names = Vec::new();
    let mut rows = Vec::new();
    for message in messages {
        match message {
            SimpleQueryMessage::RowDescription(columns) => {
                names = columns.iter().map(|c| c.name().to_owned()).collect();
            }
            SimpleQueryMessage::Row(row) => {
                rows.push(
                    (0..row.len())
                        .map(|i| row.get(i).map(str::to_owned))
                        .collect(),
                );
            }
            _ => {}
        }
    }
    Ok((names, rows))
}

/// Prints a query's rows as an aligned table.
pub(super) async fn print_rows(client: &Client, sql: &str) -> Result<()> {
    let (names, rows) = rows(client, sql).await?;
    let width = |i: usize| {
        rows.iter()
            .map(|row| row[i].as_deref().unwrap_or("").len())
            .chain([names[i].len()])
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..names.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let cells: Vec<String> = cells
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        say(&format!("     {}", cells.join(" | ")));
    };
    line(names.iter().map(String::as_str).collect());
    say(&format!(
        "     {}",
        widths
            .iter()
            .map(|w| "-".repeat(*w))
            .collect::<Vec<_>>()
            .join("-+-")
    ));
    for row in &rows {
        line(
            row.iter()
                .map(|cell| cell.as_deref().unwrap_or(""))
                .collect(),
        );
    }
    say("");
    Ok(())
}
