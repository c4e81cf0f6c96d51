//! TPC-H's queries as views: after every step of inserts, updates and deletes each equals its
//! batch answer, and at the end PostgreSQL's.
//!
//! A step is a transaction: base tables, some orders, changed rows of every table, the oldest
//! orders gone (the benchmark's two refresh functions), with a kill between. There are
//! `TIDEMILL_SOAK` times as many rows of everything. Once all runs with little memory, so that most
//! of the state is on disk.

mod generator;
mod queries;

use tokio_postgres::Client;

use crate::answers::{Multiset, difference, multiset};
use crate::harness::{Server, describe, rows, run};
use crate::postgres::Postgres;
use generator::Generator;
use queries::{QUERIES, TABLES};

const SEED: u64 = 19;
const STEPS: usize = 5;
const ORDERS_PER_STEP: u64 = 200;
const ORDERS_GONE_PER_STEP: u64 = 50;
/// The least that the server takes.
const LITTLE_MEMORY: &str = "16MiB";

async fn answer(client: &Client, sql: &str) -> Multiset {
    let rows = rows(client, sql)
        .await
        .unwrap_or_else(|e| panic!("{sql}\n{}", describe(&e)));
    multiset(rows)
}

async fn execute(client: &Client, statements: &[String]) {
    let sql = format!("BEGIN; {}; COMMIT", statements.join("; "));
    if let Err(e) = client.batch_execute(&sql).await {
        panic!("{}\n{}", &sql[..sql.len().min(400)], describe(&e));
    }
}

/// The queries with even or odd numbers, as views.
async fn create_views(client: &Client, even: bool) {
    for (index, (name, query)) in QUERIES.iter().enumerate() {
        if (index % 2 == 0) != even {
            continue;
        }
        let sql =
            format!("CREATE MATERIALIZED VIEW {name} WITH (trigger = 'continuous') AS {query}");
        if let Err(e) = client.batch_execute(&sql).await {
            panic!("{sql}\n{}", describe(&e));
        }
    }
}

/// Every view that is there against its query.
async fn compare(client: &Client, all: bool, what: &str) {
    client.batch_execute("FLUSH").await.expect("views catch up");
    let mut wrong = Vec::new();
    for (index, (name, query)) in QUERIES.iter().enumerate() {
        if !all && index % 2 == 1 {
            continue;
        }
        let kept = answer(client, &format!("SELECT * FROM {name}")).await;
        let batch = answer(client, query).await;
        if let Some(text) = difference(&kept, &batch, ["the view", "the batch answer"]) {
            wrong.push(format!("{name}: {text}"));
        }
    }
    assert!(wrong.is_empty(), "{what}: {}", wrong.join("\n"));
}

async fn compare_with_postgres(ours: &Client, theirs: &Client) {
    let mut wrong = Vec::new();
    for (name, query) in QUERIES {
        let kept = answer(ours, &format!("SELECT * FROM {name}")).await;
        let right = answer(theirs, query).await;
        assert!(!right.is_empty(), "{name} has no rows to compare");
        if let Some(text) = difference(&kept, &right, ["the view", "PostgreSQL"]) {
            wrong.push(format!("{name}: {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The views' contents by their names.
async fn contents(client: &Client) -> Vec<Multiset> {
    client.batch_execute("FLUSH").await.expect("views catch up");
    let mut all = Vec::new();
    for (name, _) in QUERIES {
        all.push(answer(client, &format!("SELECT * FROM {name}")).await);
    }
    all
}

/// The transactions, one a step.
fn transactions(scale: u64) -> Vec<Vec<String>> {
    let mut generator = Generator::new(SEED, scale);
    let step = |number| {
        let mut statements = match number {
            0 => generator.base(),
            2 => generator.late_customers(),
            _ => Vec::new(),
        };
        statements.extend(generator.orders(ORDERS_PER_STEP * scale));
        if number > 0 {
            statements.extend(generator.updates());
            statements.extend(generator.delete_orders(ORDERS_GONE_PER_STEP * scale));
        }
        statements
    };
    (0..STEPS).map(step).collect()
}

/// Runs all steps with a comparison after each; half of the views come later.
async fn compared_steps(server: &mut Server, transactions: &[Vec<String>]) {
    let mut client = server.connect().await;
    client.batch_execute(TABLES).await.expect("tables");
    create_views(&client, true).await;
    for (step, statements) in transactions.iter().enumerate() {
        execute(&client, statements).await;
        compare(&client, step > 1, &format!("step {step}")).await;
        if step == 1 {
            create_views(&client, false).await;
            compare(&client, true, "views over rows that are there").await;
        }
        if step == STEPS - 2 {
            server.kill();
            server.restart();
            client = server.connect().await;
            compare(&client, true, "after a kill").await;
        }
    }
}

/// Runs all steps; the views' contents after each.
async fn steps(server: &mut Server, transactions: &[Vec<String>]) -> Vec<Vec<Multiset>> {
    let mut client = server.connect().await;
    client.batch_execute(TABLES).await.expect("tables");
    create_views(&client, true).await;
    create_views(&client, false).await;
    let mut all = Vec::new();
    for (step, statements) in transactions.iter().enumerate() {
        execute(&client, statements).await;
        all.push(contents(&client).await);
        if step == STEPS - 2 {
            server.kill();
            server.restart();
            client = server.connect().await;
        }
    }
    all
}

#[test]
fn tpch_views_equal_their_batch_answer_and_postgres() {
    let transactions = transactions(crate::soak::factor());
    run(async {
        let mut server = Server::start();
        compared_steps(&mut server, &transactions).await;
        let Some(postgres) = Postgres::start("TPC-H's answers against PostgreSQL's") else {
            return;
        };
        let theirs = postgres.connect().await;
        theirs.batch_execute(TABLES).await.expect("tables");
        for statements in &transactions {
            execute(&theirs, statements).await;
        }
        compare_with_postgres(&server.connect().await, &theirs).await;
    });
}

/// The batch answers need more memory than there is here, so that the views of a server with
/// plenty are the measure; the other test compares those.
#[test]
fn tpch_views_are_right_with_most_of_their_state_on_disk() {
    let transactions = transactions(crate::soak::factor());
    run(async {
        let right = steps(&mut Server::start(), &transactions).await;
        let mut server = Server::start_with(&["--memory-limit", LITTLE_MEMORY], &[]);
        let kept = steps(&mut server, &transactions).await;
        for (step, (kept, right)) in kept.iter().zip(&right).enumerate() {
            for (place, (name, _)) in QUERIES.iter().enumerate() {
                let names = ["the view with little memory", "the view with plenty"];
                if let Some(text) = difference(&kept[place], &right[place], names) {
                    panic!("step {step}: {name}: {text}");
                }
            }
        }
    });
}
