//! `JOIN … FOR SYSTEM_TIME AS OF` by a model: what a view holds is what each step's rows met.
//!
//! The table changes, then rows come, and each in batches of their own: the same join as a query,
//! over the rows of the step, gives what the view must have added, whatever the table becomes
//! later. The database is closed and opened between.

use std::collections::BTreeMap;

use crate::harness::run;
use crate::oracle::{multiset, open};
use crate::random::Random;

const DEFINITIONS: &str = "
CREATE STREAM s (step INT, k INT, v INT, at TIMESTAMPTZ);
CREATE TABLE t (k INT, n INT, w INT, PRIMARY KEY (k, n));";

/// The joins, as queries with a condition on the step to be put in.
const JOINS: &[&str] = &[
    "SELECT s.step, s.k, s.v, p.n, p.w FROM s JOIN t FOR SYSTEM_TIME AS OF s.at AS p ON s.k = p.k",
    "SELECT s.step, s.v, p.w FROM s LEFT JOIN t FOR SYSTEM_TIME AS OF s.at AS p ON s.k = p.k",
    "SELECT s.step, s.v, p.w FROM s LEFT JOIN t FOR SYSTEM_TIME AS OF s.at p ON s.k = p.k AND p.w > s.v",
];

fn changes_of_table(random: &mut Random) -> Vec<String> {
    let change = |random: &mut Random| {
        let (k, n, w) = (random.below(5), random.below(3), random.below(10));
        match random.below(3) {
            0 => format!("DELETE FROM t WHERE k = {k}"),
            _ => format!(
                "INSERT INTO t VALUES ({k}, {n}, {w}) ON CONFLICT (k, n) DO UPDATE SET w = excluded.w"
            ),
        }
    };
    (0..1 + random.below(6)).map(|_| change(random)).collect()
}

async fn one_seed(seed: u64) {
    let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let dir = tempfile::tempdir().expect("a folder");
    let mut database = open(dir.path()).await;
    database.execute(DEFINITIONS).await.expect("definitions");
    for (number, join) in JOINS.iter().enumerate() {
        let view = format!("CREATE MATERIALIZED VIEW v{number} AS {join}");
        database.execute(&view).await.expect("a view");
    }
    let mut expected = vec![BTreeMap::new(); JOINS.len()];
    for step in 0..8 {
        let what = format!("seed {seed}, step {step}");
        let mut statements = changes_of_table(&mut random);
        statements.push("FLUSH".to_owned());
        for _ in 0..1 + random.below(4) {
            let key = match random.chance(20) {
                true => "NULL".to_owned(),
                false => random.below(6).to_string(),
            };
            let v = random.below(10);
            statements.push(format!("INSERT INTO s VALUES ({step}, {key}, {v}, now())"));
        }
        statements.push("FLUSH".to_owned());
        for sql in statements {
            let done = database.execute(&sql).await;
            done.unwrap_or_else(|e| panic!("{what}: {sql}: {e}"));
        }
        for (number, join) in JOINS.iter().enumerate() {
            let added = database
                .query(&format!("{join} WHERE s.step = {step}"))
                .await;
            let added = multiset(&added.unwrap_or_else(|e| panic!("{what}: {join}: {e}")));
            for (row, copies) in added {
                *expected[number].entry(row).or_insert(0) += copies;
            }
            let kept = database.query(&format!("SELECT * FROM v{number}")).await;
            let kept = multiset(&kept.unwrap_or_else(|e| panic!("{what}: v{number}: {e}")));
            assert_eq!(kept, expected[number], "{what}: {join}");
        }
        if step == 4 {
            database.close().await.expect("closes");
            drop(database);
            database = open(dir.path()).await;
        }
    }
    database.close().await.expect("closes");
}

#[test]
fn rows_keep_what_they_met() {
    run(async {
        let usual = 1..9;
        for seed in crate::soak::seeds(usual.clone()) {
            let _tried = crate::soak::tried(seed, &usual);
            one_seed(seed).await;
        }
    });
}
