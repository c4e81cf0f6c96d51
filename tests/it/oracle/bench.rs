//! Where a case runs: a server of ours and, if asked for, PostgreSQL beside it.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio_postgres::Client;

use super::case::{Case, Step, View};
use super::grammar::DEFINITIONS;
use crate::answers::{Multiset, difference, multiset};
use crate::harness::{Server, describe, rows};

const TABLES: [&str; 5] = ["a", "b", "s", "o", "e"];
/// What takes longer is a failure.
const STATEMENT_TIME_MAX: Duration = Duration::from_secs(60);

/// Why a case fails: the query to blame, if it is one, and what is wrong.
#[derive(Debug, Clone)]
pub struct Failure {
    pub view: Option<View>,
    pub text: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.view {
            Some(view) => write!(f, "{}\n{}", view.select, self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// What was seen beside failures.
#[derive(Debug, Default)]
pub struct Notes {
    /// Queries that were compared with PostgreSQL's answer.
    pub compared: usize,
    /// Refused with 0A000, as `docs/divergences.md` has it.
    pub unsupported: BTreeSet<String>,
    /// Refused by PostgreSQL: the grammar's fault.
    pub not_standard: BTreeSet<String>,
}

impl Notes {
    /// What is over a view that PostgreSQL refused says nothing more.
    fn refused_by_postgres(&mut self, select: &str, e: &tokio_postgres::Error) {
        if !is_over_nothing(e) {
            let text = format!("{select}\n  {}", describe(e));
            self.not_standard.insert(text);
        }
    }
}

pub struct Bench {
    server: Server,
    client: Option<Client>,
    postgres: Option<Client>,
    pub notes: Notes,
}

/// Refused as `docs/divergences.md` says, or over a view that was.
fn is_beside_the_point(e: &tokio_postgres::Error) -> bool {
    let is = |code: &str, words: &str| {
        e.as_db_error()
            .is_some_and(|e| e.code().code() == code && e.message().contains(words))
    };
    is("0A000", "")
        || is("42803", "aggregate functions are not allowed in WHERE")
        || is_over_nothing(e)
}

fn is_out_of_memory(e: &tokio_postgres::Error) -> bool {
    e.as_db_error().is_some_and(|e| e.code().code() == "53200")
}

fn is_over_nothing(e: &tokio_postgres::Error) -> bool {
    e.as_db_error()
        .is_some_and(|e| e.code().code() == "42P01" && e.message().starts_with("relation \"v"))
}

enum Answer {
    Rows(Multiset),
    /// More than the server may use for queries, which are not spilled as views are.
    TooLarge(String),
    Refused(String),
    Unsupported(String),
}

impl Bench {
    pub fn new(postgres: Option<Client>) -> Self {
        Self {
            server: Server::start(),
            client: None,
            postgres,
            notes: Notes::default(),
        }
    }

    /// Runs a case on an empty database, to the first failure, and all failures of what is asked.
    pub async fn run(&mut self, case: &Case) -> Vec<Failure> {
        let mut failures = Vec::new();
        if let Err(failure) = self.steps(case, &mut failures).await {
            failures.push(failure);
        }
        failures
    }

    async fn steps(&mut self, case: &Case, failures: &mut Vec<Failure>) -> Result<(), Failure> {
        self.reset().await?;
        let mut views = Vec::new();
        for step in &case.steps {
            match step {
                Step::Create(view) => self.create(view, &mut views).await?,
                Step::Change { statements, cut } => self.change(statements, *cut).await?,
                Step::Restart {
                    shards,
                    memory,
                    kill,
                } => self.restart(*shards, memory, *kill),
                Step::Ask(asked) => {
                    for view in asked {
                        failures.extend(self.ask(view).await.err());
                    }
                    continue;
                }
            }
            self.execute("FLUSH").await?;
            for view in &views {
                self.compare(view).await?;
            }
        }
        self.compare_tables().await
    }

    /// A server and a schema without anything in them. A failed case may have left a server that
    /// answers no more, so that it gets a new one.
    pub async fn reset(&mut self) -> Result<(), Failure> {
        self.client = None;
        self.server = Server::start();
        if let Some(postgres) = &self.postgres {
            let tables = DEFINITIONS.replace("STREAM", "TABLE");
            let sql = format!(
                "DROP SCHEMA IF EXISTS c CASCADE; CREATE SCHEMA c; SET search_path = c; SET statement_timeout = '20s'; {tables}"
            );
            postgres.batch_execute(&sql).await.expect("a new schema");
        }
        self.execute(DEFINITIONS).await
    }

    async fn client(&mut self) -> &Client {
        if self.client.is_none() {
            self.client = Some(self.server.connect().await);
        }
        self.client.as_ref().expect("just connected")
    }

    async fn execute(&mut self, sql: &str) -> Result<(), Failure> {
        let done = tokio::time::timeout(STATEMENT_TIME_MAX, self.client().await.batch_execute(sql));
        let text = match done.await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(e)) => describe(&e),
            Err(_) => "no answer".to_owned(),
        };
        Err(Failure {
            view: None,
            text: format!("{sql}\n{text}\n{}", self.complaints()),
        })
    }

    /// The last lines that the server logged, if they tell of a panic.
    fn complaints(&self) -> String {
        let log = self.server.log();
        let lines: Vec<&str> = log.lines().filter(|l| l.contains("panic")).collect();
        lines[lines.len().saturating_sub(3)..].join("\n")
    }

    async fn create(&mut self, view: &View, views: &mut Vec<View>) -> Result<(), Failure> {
        let mut view = view.clone();
        if let Some(postgres) = &self.postgres
            && view.standard
        {
            let sql = format!("CREATE VIEW {} AS {}", view.name, view.select);
            if let Err(e) = postgres.batch_execute(&sql).await {
                self.notes.refused_by_postgres(&view.select, &e);
                view.standard = false;
            }
        }
        let sql = format!(
            "CREATE MATERIALIZED VIEW {} WITH (trigger = 'continuous', pipeline = 'p') AS {}",
            view.name, view.select
        );
        let created = self.execute(&sql).await;
        let Err(failure) = created else {
            views.push(view);
            return Ok(());
        };
        // What neither a view nor a query can be is refused, and no wrong answer.
        match self.ours(&view.select).await {
            Answer::Unsupported(text) => {
                self.notes.unsupported.insert(text);
                Ok(())
            }
            _ => Err(Failure {
                view: Some(view),
                ..failure
            }),
        }
    }

    async fn change(&mut self, statements: &[String], cut: usize) -> Result<(), Failure> {
        for group in statements.chunks(cut) {
            let sql = format!("BEGIN; {}; COMMIT", group.join("; "));
            self.execute(&sql).await?;
            self.execute("FLUSH").await?;
            if let Some(postgres) = &self.postgres {
                postgres
                    .batch_execute(&sql)
                    .await
                    .unwrap_or_else(|e| panic!("PostgreSQL: {sql}: {}", describe(&e)));
            }
        }
        Ok(())
    }

    fn restart(&mut self, shards: u32, memory: &str, kill: bool) {
        self.client = None;
        match kill {
            true => self.server.kill(),
            false => self.server.terminate(),
        }
        let threads = shards.to_string();
        self.server
            .set_environment("RAYON_NUM_THREADS", Some(&threads));
        self.server
            .set_environment("TIDEMILL_MEMORY_LIMIT", Some(memory));
        self.server.restart();
    }

    async fn ours(&mut self, sql: &str) -> Answer {
        let client = self.client().await;
        let answer = tokio::time::timeout(STATEMENT_TIME_MAX, rows(client, sql)).await;
        match answer {
            Ok(Ok(rows)) => Answer::Rows(multiset(rows)),
            Ok(Err(e)) if is_beside_the_point(&e) => {
                Answer::Unsupported(format!("{sql}\n  {}", describe(&e)))
            }
            Ok(Err(e)) if is_out_of_memory(&e) => Answer::TooLarge(describe(&e)),
            Ok(Err(e)) => Answer::Refused(format!("{}\n{}", describe(&e), self.complaints())),
            Err(_) => Answer::Refused("no answer".to_owned()),
        }
    }

    /// A view against its query, and the query against PostgreSQL.
    async fn compare(&mut self, view: &View) -> Result<(), Failure> {
        let failed = |text: String| Failure {
            view: Some(view.clone()),
            text,
        };
        let kept = match self.ours(&format!("SELECT * FROM {}", view.name)).await {
            Answer::Rows(rows) => rows,
            Answer::Refused(text) | Answer::Unsupported(text) | Answer::TooLarge(text) => {
                return Err(failed(format!("the view cannot be read: {text}")));
            }
        };
        let batch = match self.ours(&view.select).await {
            Answer::Rows(rows) => rows,
            Answer::TooLarge(_) => return Ok(()),
            Answer::Refused(text) | Answer::Unsupported(text) => {
                return Err(failed(format!("the query of a view fails: {text}")));
            }
        };
        if let Some(text) = difference(&kept, &batch, ["the view", "the batch answer"]) {
            return Err(failed(text));
        }
        self.compare_with_postgres(view, &batch).await
    }

    /// A query that no view keeps, against PostgreSQL.
    async fn ask(&mut self, view: &View) -> Result<(), Failure> {
        let answer = self.ours(&view.select).await;
        let text = match answer {
            Answer::Rows(rows) => return self.compare_with_postgres(view, &rows).await,
            Answer::Unsupported(text) => {
                self.notes.unsupported.insert(text);
                return Ok(());
            }
            Answer::Refused(text) | Answer::TooLarge(text) => text,
        };
        if let Some(postgres) = &self.postgres
            && let Err(e) = rows(postgres, &view.select).await
        {
            self.notes.refused_by_postgres(&view.select, &e);
            return Ok(());
        }
        Err(Failure {
            view: Some(view.clone()),
            text: format!("refused: {text}"),
        })
    }

    async fn compare_with_postgres(&mut self, view: &View, ours: &Multiset) -> Result<(), Failure> {
        let Some(postgres) = &self.postgres else {
            return Ok(());
        };
        if !view.standard {
            return Ok(());
        }
        let theirs = match rows(postgres, &view.select).await {
            Ok(rows) => multiset(rows),
            Err(e) => {
                self.notes.refused_by_postgres(&view.select, &e);
                return Ok(());
            }
        };
        self.notes.compared += 1;
        match difference(ours, &theirs, ["our answer", "PostgreSQL's"]) {
            None => Ok(()),
            Some(text) => Err(Failure {
                view: Some(view.clone()),
                text,
            }),
        }
    }

    /// The same statements leave the same rows in both.
    async fn compare_tables(&mut self) -> Result<(), Failure> {
        for table in TABLES {
            let view = View {
                name: table.to_owned(),
                select: format!("SELECT * FROM {table}"),
                standard: true,
            };
            if let Answer::Rows(rows) = self.ours(&view.select).await {
                self.compare_with_postgres(&view, &rows).await?;
            }
        }
        Ok(())
    }
}
