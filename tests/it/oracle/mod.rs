//! The oracles of invariant 1: after every batch a view equals its `SELECT` run by batch, and that
//! equals PostgreSQL's answer.
//!
//! `templates` is the short form over the library; the rest runs cases of a grammar that reaches
//! every operator, on a real server: views before the data and after it, batches cut in different
//! ways, other numbers of threads, little memory, kills. A failing case is cut down before it is
//! shown. `TIDEMILL_SEED` runs one seed, `TIDEMILL_SOAK` more of them.

mod bench;
mod case;
mod changes;
mod grammar;
mod shrink;
mod templates;

pub use templates::{DEFINITIONS, change, compare, multiset, open, query};

use std::ops::Range;

use crate::harness::run;
use crate::postgres::Postgres;
use bench::Bench;
use case::{Case, Shape, many};

/// Failures whose cases are cut down; of the others only the query is shown.
const SHRUNK: usize = 3;

fn seeds(usual: Range<u64>) -> Range<u64> {
    let one = std::env::var("TIDEMILL_SEED").ok();
    match one.and_then(|seed| seed.parse::<u64>().ok()) {
        Some(seed) => seed..seed + 1,
        None => crate::soak::seeds(usual),
    }
}

/// Runs the cases of the seeds, and fails with what is wrong in all of them.
async fn check(mut bench: Bench, seeds: Range<u64>, make: impl Fn(u64) -> Case) {
    let mut texts = Vec::new();
    for seed in seeds.clone() {
        let case = make(seed);
        for failure in bench.run(&case).await {
            eprintln!("seed {seed} fails");
            texts.push(match texts.len() < SHRUNK {
                true => {
                    let (case, failure) = shrink::shrink(&mut bench, case.clone(), failure).await;
                    format!("seed {seed}: {failure}\n{}", case.script())
                }
                false => format!("seed {seed}: {failure}"),
            });
        }
    }
    if std::env::var("TIDEMILL_ORACLE_NOTES").is_ok() {
        eprintln!("{:#?}", bench.notes);
    }
    assert!(
        texts.is_empty(),
        "{} failures in {} cases\n\n{}",
        texts.len(),
        seeds.count(),
        texts.join("\n\n")
    );
}

#[test]
fn views_of_any_query_equal_their_batch_answer() {
    let shape = Shape {
        views: 8,
        changes: 6,
        asked: 0,
        restarts: true,
        standard_only: false,
        large: None,
    };
    run(check(Bench::new(None), seeds(1..13), |seed| {
        Case::new(seed, shape)
    }));
}

#[test]
fn views_over_many_rows_equal_their_batch_answer() {
    run(check(Bench::new(None), seeds(1..3), many));
}

/// Batches of more rows than operators take at once, with what takes them back.
#[test]
fn views_of_any_query_over_many_rows_equal_their_batch_answer() {
    run(check(Bench::new(None), seeds(1..5), |seed| {
        let shape = Shape {
            views: 8,
            changes: 5,
            asked: 0,
            restarts: true,
            standard_only: false,
            large: Some(["s", "a"][seed as usize % 2]),
        };
        Case::new(seed, shape)
    }));
}

#[test]
fn answers_are_those_of_postgres() {
    let Some(postgres) = Postgres::start("answers against PostgreSQL's") else {
        return;
    };
    let shape = Shape {
        views: 6,
        changes: 5,
        asked: 30,
        restarts: false,
        standard_only: true,
        large: None,
    };
    run(async {
        let client = postgres.connect().await;
        check(Bench::new(Some(client)), seeds(1..13), |seed| {
            Case::new(seed, shape)
        })
        .await;
    });
}

/// In the manner of SQLite's own corpus: many queries over few rows.
#[test]
fn a_corpus_of_queries_is_answered_as_postgres_does() {
    let Some(postgres) = Postgres::start("the corpus against PostgreSQL's answers") else {
        return;
    };
    let shape = Shape {
        views: 0,
        changes: 3,
        asked: 150,
        restarts: false,
        standard_only: true,
        large: None,
    };
    run(async {
        let client = postgres.connect().await;
        check(Bench::new(Some(client)), seeds(1001..1005), |seed| {
            Case::new(seed, shape)
        })
        .await;
    });
}
