//! Statements of `tests/beside/*.sql`, asked of a real PostgreSQL and of Tidemill: columns' names, rows and SQLSTATEs
//! are the same. A file's statements build on each other; each ends with a semicolon at the end of a line.
//!
//! Deliberately absent: what `docs/divergences.md` lists, and the texts of errors.

use std::path::Path;

use tokio_postgres::{Client, SimpleQueryMessage};

use crate::harness::{Server, describe, run};
use crate::postgres::Postgres;

fn statements(text: &str) -> Vec<&str> {
    let parts = text.split_inclusive(";\n").map(str::trim);
    parts.filter(|part| !part.is_empty()).collect()
}

/// Names of the columns and the rows, or what went wrong.
async fn answer(client: &Client, sql: &str) -> String {
    let messages = match client.simple_query(sql).await {
        Ok(messages) => messages,
        Err(e) => {
            let code = e.code().map_or("lost", |code| code.code());
            return format!("{code}\n{}", describe(&e));
        }
    };
    let mut lines = Vec::new();
    for message in &messages {
        match message {
            SimpleQueryMessage::RowDescription(columns) => {
                let names: Vec<&str> = columns.iter().map(|column| column.name()).collect();
                lines.push(format!("[{}]", names.join(", ")));
            }
            SimpleQueryMessage::Row(row) => {
                let values = (0..row.len()).map(|i| row.get(i).unwrap_or("NULL"));
                lines.push(values.collect::<Vec<_>>().join(" | "));
            }
            _ => {}
        }
    }
    lines.join("\n")
}

/// Of an error its SQLSTATE alone is compared.
fn is_same(ours: &str, theirs: &str) -> bool {
    let code = |answer: &str| {
        answer
            .split_once("\nERROR: ")
            .map(|(code, _)| code.to_owned())
    };
    match (code(ours), code(theirs)) {
        (Some(ours), Some(theirs)) => ours == theirs,
        (None, None) => ours == theirs,
        _ => false,
    }
}

#[test]
fn statements_are_answered_as_postgres_answers_them() {
    let Some(postgres) = Postgres::start("statements beside PostgreSQL") else {
        return;
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/beside");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("tests/beside")
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    run(async {
        let server = Server::start();
        let mut differences = Vec::new();
        let mut count = 0;
        for file in &files {
            let (ours, theirs) = (server.connect().await, postgres.connect().await);
            let text = std::fs::read_to_string(file).expect("readable");
            for sql in statements(&text) {
                count += 1;
                let (ours, theirs) = (answer(&ours, sql).await, answer(&theirs, sql).await);
                if !is_same(&ours, &theirs) {
                    let name = file.file_name().unwrap_or_default().to_string_lossy();
                    differences.push(format!(
                        "{name}: {sql}\nours:\n{ours}\nPostgreSQL's:\n{theirs}"
                    ));
                }
            }
        }
        assert!(
            differences.is_empty(),
            "{} of {count} differ\n\n{}",
            differences.len(),
            differences.join("\n\n")
        );
    });
}
