//! Runs every `tests/slt/*.slt` over the wire, each against a server of its own.
//!
//! Beside SQL, a statement record may hold one of our directives: `\kill` (kill -9), `\restart`,
//! `\terminate` (SIGTERM) and `\step` (FLUSH: every view takes in what was committed).
//!
//! Once more, every query that can be a view is one, as soon as its relations are there, and must
//! show what the query answers (`shadow`).

use async_trait::async_trait;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType};
use tokio_postgres::SimpleQueryMessage;

use crate::harness::{Server, describe, run};
use shadow::Shadows;

mod shadow;

/// Fewer comparisons than this, and the views are not what is tested any more.
const COMPARED_MIN: usize = 100;

/// An error with the text that `statement error` patterns match.
#[derive(Debug)]
pub struct SltError(String);

impl std::fmt::Display for SltError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SltError {}

struct SltDatabase {
    server: Server,
    client: Option<tokio_postgres::Client>,
    shadows: Option<Shadows>,
}

impl SltDatabase {
    async fn directive(&mut self, directive: &str) -> Option<&'static str> {
        match directive {
            "\\kill" => {
                self.client = None;
                self.server.kill();
            }
            "\\terminate" => {
                self.client = None;
                self.server.terminate();
            }
            "\\restart" => {
                self.server.restart();
            }
            "\\step" => return Some("FLUSH"),
            other => panic!("unknown directive {other}"),
        }
        None
    }
}

#[async_trait]
impl AsyncDB for SltDatabase {
    type Error = SltError;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, SltError> {
        let sql = sql.trim();
        let sql = if sql.starts_with('\\') {
            match self.directive(sql).await {
                Some(statement) => statement,
                None => return Ok(DBOutput::StatementComplete(0)),
            }
        } else {
            sql
        };
        if self.client.is_none() {
            self.client = Some(self.server.connect().await);
        }
        let client = self.client.as_ref().expect("just connected");
        if let Some(shadows) = &mut self.shadows {
            shadows.before(client, sql).await;
        }
        let messages = client
            .simple_query(sql)
            .await
            .map_err(|e| SltError(describe(&e)))?;
        if let Some(shadows) = &mut self.shadows {
            shadows.after(client, sql).await.map_err(SltError)?;
        }
        let mut columns = None;
        let mut rows = Vec::new();
        let mut count = 0;
        for message in messages {
            match message {
                SimpleQueryMessage::RowDescription(description) => {
                    columns = Some(description.len())
                }
                SimpleQueryMessage::Row(row) => rows.push(
                    (0..row.len())
                        .map(|i| match row.get(i) {
                            None => "NULL".to_owned(),
                            Some("") => "(empty)".to_owned(),
                            Some(text) => text.to_owned(),
                        })
                        .collect(),
                ),
                SimpleQueryMessage::CommandComplete(n) => count = n,
                _ => {}
            }
        }
        Ok(match columns {
            Some(n) => DBOutput::Rows {
                types: vec![DefaultColumnType::Text; n],
                rows,
            },
            None => DBOutput::StatementComplete(count),
        })
    }

    async fn shutdown(&mut self) {
        self.client = None;
    }

    fn engine_name(&self) -> &str {
        "tidemill"
    }
}

fn files() -> Vec<std::path::PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slt"))
        .expect("tests/slt is there")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|e| e == "slt"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// Runs a file; the error as the runner shows it.
fn run_file(file: &std::path::Path, shadows: Option<&Shadows>) -> Option<String> {
    let result = run(async {
        let mut runner = sqllogictest::Runner::new(|| async {
            Ok(SltDatabase {
                server: Server::start(),
                client: None,
                shadows: shadows.cloned(),
            })
        });
        runner.run_file_async(file).await
    });
    let error = result.err()?;
    Some(format!("{}: {}", file.display(), error.display(false)))
}

#[test]
fn slt_files() {
    let failures: Vec<String> = files().iter().filter_map(|f| run_file(f, None)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn slt_queries_are_the_same_as_views() {
    let mut failures = Vec::new();
    let mut compared = 0;
    for file in files() {
        let shadows = Shadows::of(&file);
        failures.extend(run_file(&file, Some(&shadows)));
        compared += shadows.compared();
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(
        compared > COMPARED_MIN,
        "only {compared} queries were views"
    );
}
