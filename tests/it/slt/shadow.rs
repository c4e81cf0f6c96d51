//! Views beside a file's queries.
//!
//! A query of the file becomes a view as soon as its relations are there, so that the file's own
//! statements feed it in steps; when the file asks the query, the view must hold the same rows.
//! Statements that define or alter something find no view in their way: all are dropped before,
//! and created anew, over the rows that are there then. Queries that no view can be (of the clock,
//! of system tables, with two columns of one name) are left alone.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_postgres::Client;

use crate::answers::{difference, multiset};
use crate::harness::{describe, rows};

/// Files about pipelines, batches and checkpoints, whose counts further views change, and about rows
/// that fail, which stop a view whenever they come.
const NOT_FOR_VIEWS: [&str; 10] = [
    "accounting",
    "errors",
    "functions",
    "indexes",
    "joining_sources",
    "pacing",
    "recovery_refusals",
    "replace",
    "row_errors",
    "views",
];
/// What views over it would not hold still.
const NOT_OF_ROWS: [&str; 7] = [
    "streaming_",
    "pg_",
    "information_schema",
    "now()",
    "current_",
    "random()",
    "nextval",
];

/// The views of one file.
#[derive(Debug, Clone)]
pub struct Shadows {
    queries: Vec<String>,
    there: Vec<bool>,
    in_transaction: bool,
    compared: Arc<AtomicUsize>,
}

impl Shadows {
    /// The queries of a file that may be views.
    pub fn of(file: &Path) -> Self {
        let name = file.file_stem().and_then(|n| n.to_str()).unwrap_or("");
        let mut queries = Vec::new();
        if !NOT_FOR_VIEWS.contains(&name) {
            let text = std::fs::read_to_string(file).expect("a readable file");
            for record in text.split("\n\n") {
                let Some((head, rest)) = record.trim_start().split_once('\n') else {
                    continue;
                };
                let sql = rest.split("\n----").next().unwrap_or("").trim();
                if head.starts_with("query")
                    && is_of_rows(sql)
                    && !queries.contains(&sql.to_owned())
                {
                    queries.push(sql.to_owned());
                }
            }
        }
        Self {
            there: vec![false; queries.len()],
            queries,
            in_transaction: false,
            compared: Arc::default(),
        }
    }

    /// How often a view was compared with its query.
    pub fn compared(&self) -> usize {
        self.compared.load(Ordering::Relaxed)
    }

    /// Before a statement: no view is in the way of definitions.
    pub async fn before(&mut self, client: &Client, sql: &str) {
        if !defines(sql) {
            return;
        }
        for (number, there) in self.there.iter_mut().enumerate() {
            if std::mem::take(there) {
                let drop = format!("DROP MATERIALIZED VIEW IF EXISTS shadow_{number}");
                client.batch_execute(&drop).await.ok();
            }
        }
    }

    /// After a statement: views over what is there, and the comparison if it was a query.
    pub async fn after(&mut self, client: &Client, sql: &str) -> Result<(), String> {
        let word = first_word(sql);
        match word.as_str() {
            "begin" | "start" | "declare" => self.in_transaction = true,
            "commit" | "rollback" | "end" => {
                self.in_transaction = sql.to_lowercase().contains("and chain");
            }
            _ => {}
        }
        if self.in_transaction {
            return Ok(());
        }
        if defines(sql) || word == "begin" || word == "commit" {
            self.create(client).await;
        }
        match self.queries.iter().position(|query| query == sql) {
            Some(number) if self.there[number] => self.compare(client, number).await,
            _ => Ok(()),
        }
    }

    async fn create(&mut self, client: &Client) {
        for (number, query) in self.queries.iter().enumerate() {
            if !self.there[number] {
                let create = format!("CREATE MATERIALIZED VIEW shadow_{number} AS {query}");
                self.there[number] = client.batch_execute(&create).await.is_ok();
            }
        }
    }

    async fn compare(&self, client: &Client, number: usize) -> Result<(), String> {
        let query = &self.queries[number];
        let failed = |e: tokio_postgres::Error| format!("{query} as a view: {}", describe(&e));
        client.batch_execute("FLUSH").await.map_err(failed)?;
        let view = format!("SELECT * FROM shadow_{number}");
        let kept = multiset(rows(client, &view).await.map_err(failed)?);
        let asked = multiset(rows(client, query).await.map_err(failed)?);
        self.compared.fetch_add(1, Ordering::Relaxed);
        match difference(&kept, &asked, ["the view", "the query"]) {
            None => Ok(()),
            Some(text) => Err(format!("{query} as a view: {text}")),
        }
    }
}

fn first_word(sql: &str) -> String {
    let word = sql.split_whitespace().next().unwrap_or("");
    word.trim_end_matches(';').to_lowercase()
}

fn defines(sql: &str) -> bool {
    let words = [
        "create", "drop", "alter", "truncate", "set", "reset", "copy",
    ];
    words.contains(&first_word(sql).as_str())
}

/// A SELECT over relations that hold still.
fn is_of_rows(sql: &str) -> bool {
    let lower = sql.to_lowercase();
    matches!(first_word(sql).as_str(), "select" | "with" | "values")
        && lower.contains("from")
        && !NOT_OF_ROWS.iter().any(|word| lower.contains(word))
}
