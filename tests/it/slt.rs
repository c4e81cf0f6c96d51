//! Runs every `tests/slt/*.slt` over the wire, each against a server of its own.
//!
//! Beside SQL, a statement record may hold one of our directives: `\kill` (kill -9), `\restart`,
//! `\terminate` (SIGTERM) and `\step` (FLUSH: every view takes in what was committed).

use async_trait::async_trait;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType};
use tokio_postgres::SimpleQueryMessage;

use crate::harness::{Server, describe, run};

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
        let messages = client
            .simple_query(sql)
            .await
            .map_err(|e| SltError(describe(&e)))?;
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

#[test]
fn slt_files() {
    let mut files: Vec<_> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/slt"))
        .expect("tests/slt is there")
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|e| e == "slt"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    let mut failures = Vec::new();
    for file in &files {
        let result = run(async {
            let mut runner = sqllogictest::Runner::new(|| async {
                Ok(SltDatabase {
                    server: Server::start(),
                    client: None,
                })
            });
            runner.run_file_async(file).await
        });
        if let Err(e) = result {
            failures.push(format!("{}: {}", file.display(), e.display(false)));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
