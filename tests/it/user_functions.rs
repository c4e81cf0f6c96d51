//! Functions in SQL and replaced views, by the oracle of invariant 1.
//!
//! A view that calls functions is compared with its `SELECT` with the bodies written out by hand,
//! so that what is put in is what the user wrote; a view whose query is replaced again and again is
//! compared with the query of the moment.

use tidemill::database::Database;

use crate::harness::run;
use crate::oracle::{DEFINITIONS, change, compare, multiset, open, query};
use crate::random::Random;

const FUNCTIONS: &str = "
CREATE FUNCTION doubled(x bigint) RETURNS bigint LANGUAGE SQL IMMUTABLE RETURN x * 2 + 1;
CREATE FUNCTION doubled(x text) RETURNS text LANGUAGE SQL IMMUTABLE RETURN x || x;
CREATE FUNCTION labelled(t text, kind text DEFAULT 'row') RETURNS text LANGUAGE SQL STRICT
  AS 'SELECT $2 || '':'' || doubled(t)';
CREATE FUNCTION total_of(key bigint) RETURNS bigint LANGUAGE SQL
  AS $$ SELECT sum(id) FROM b WHERE b.k = key $$;
CREATE FUNCTION last_of(key bigint) RETURNS text LANGUAGE SQL
  AS $$ SELECT t FROM b WHERE k = total_of.key ORDER BY id DESC LIMIT 1 $$;
CREATE FUNCTION of_key(key bigint, least numeric DEFAULT 5) RETURNS TABLE (number bigint, weight numeric)
  LANGUAGE SQL AS $$ SELECT id, w FROM b WHERE k = key AND w >= least $$;
CREATE FUNCTION keys() RETURNS SETOF bigint LANGUAGE SQL AS 'SELECT DISTINCT k FROM b';";

/// Views over functions, and the same queries without any.
const VIEWS: &[(&str, &str)] = &[
    (
        "SELECT k, sum(doubled(v)) AS s, max(doubled(t)) AS m FROM a GROUP BY k",
        "SELECT k, sum(v * 2 + 1) AS s, max(t || t) AS m FROM a GROUP BY k",
    ),
    (
        "SELECT id, labelled(t) AS one, labelled(kind => t, t => 'x') AS two FROM a",
        "SELECT id, 'row:' || t || t AS one, t || ':xx' AS two FROM a",
    ),
    (
        "SELECT s.k, s.v, total_of(s.k) AS total FROM s",
        "SELECT s.k, s.v, (SELECT sum(id) FROM b WHERE b.k = s.k) AS total FROM s",
    ),
    (
        "SELECT a.id, f.number, f.weight FROM a, of_key(a.k) f",
        "SELECT a.id, b.id AS number, b.w AS weight FROM a JOIN b ON a.k = b.k AND b.w >= 5",
    ),
    (
        "SELECT a.id, f.number FROM a LEFT JOIN LATERAL of_key(a.k, 9) AS f ON true",
        "SELECT a.id, b.id AS number FROM a LEFT JOIN b ON a.k = b.k AND b.w >= 9",
    ),
    (
        "SELECT x.k, count(*) AS n FROM keys() AS x(k) JOIN a ON a.k = x.k WHERE doubled(a.v) > 7 GROUP BY x.k",
        "SELECT a.k, count(*) AS n FROM a WHERE v * 2 + 1 > 7 AND k IN (SELECT k FROM b) GROUP BY a.k",
    ),
];

async fn execute(database: &Database, what: &str, sql: &str) {
    let done = database.execute(sql).await;
    done.unwrap_or_else(|e| panic!("{what}: {sql}: {e}"));
}

async fn changed(database: &Database, random: &mut Random, what: &str) {
    for _ in 0..1 + random.below(4) {
        execute(database, what, &change(random)).await;
    }
    execute(database, what, "FLUSH").await;
}

async fn functions_of_one_seed(seed: u64) {
    let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let dir = tempfile::tempdir().expect("a folder");
    let mut database = open(dir.path()).await;
    execute(&database, "definitions", DEFINITIONS).await;
    let functions = FUNCTIONS.replace("total_of.key", "last_of.key");
    execute(&database, "functions", &functions).await;
    let mut expected = Vec::new();
    for (number, (called, written)) in VIEWS.iter().enumerate() {
        let name = format!("v{number}");
        let create = format!("CREATE MATERIALIZED VIEW {name} AS {called}");
        execute(&database, "views", &create).await;
        expected.push((name, (*written).to_owned()));
    }
    for step in 0..8 {
        let what = format!("seed {seed}, step {step}");
        changed(&database, &mut random, &what).await;
        compare(&database, &expected, &what).await;
        let asked = "SELECT id, last_of(k) AS l FROM a WHERE k IS NOT NULL";
        let written = "SELECT a.id, (SELECT b.t FROM b WHERE b.k = a.k ORDER BY b.id DESC LIMIT 1) AS l \
                       FROM a WHERE k IS NOT NULL";
        assert_eq!(
            multiset(&database.query(asked).await.expect("the function is called")),
            multiset(&database.query(written).await.expect("the query runs")),
            "{what}"
        );
        if step == 3 {
            // What runs goes on with the function that it was planned with, also after a restart.
            let other =
                "CREATE OR REPLACE FUNCTION doubled(x bigint) RETURNS bigint LANGUAGE SQL RETURN x";
            execute(&database, &what, other).await;
            database.close().await.expect("closes");
            drop(database);
            database = open(dir.path()).await;
        }
    }
    database.close().await.expect("closes");
}

#[test]
fn views_over_functions_equal_the_queries_written_out() {
    run(async {
        for seed in crate::soak::seeds(1..7) {
            functions_of_one_seed(seed).await;
        }
    });
}

async fn replacements_of_one_seed(seed: u64) {
    let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let dir = tempfile::tempdir().expect("a folder");
    let mut database = open(dir.path()).await;
    execute(&database, "definitions", DEFINITIONS).await;
    let mut views = Vec::new();
    for (name, pipeline) in [("v0", "p"), ("v1", "p"), ("v2", "alone")] {
        let select = query(&mut random);
        let create =
            format!("CREATE MATERIALIZED VIEW {name} WITH (pipeline = '{pipeline}') AS {select}");
        execute(&database, "views", &create).await;
        views.push((name.to_owned(), select));
    }
    for step in 0..9 {
        let what = format!("seed {seed}, step {step}");
        changed(&database, &mut random, &what).await;
        compare(&database, &views, &what).await;
        let (name, select) = &mut views[step % 3];
        *select = query(&mut random);
        let replace = format!(
            "CREATE OR REPLACE MATERIALIZED VIEW {name} WITH (reset_state = true) AS {select}"
        );
        execute(&database, &what, &replace).await;
        if step == 4 {
            // Perhaps before the batch that fills it.
            database.close().await.expect("closes");
            drop(database);
            database = open(dir.path()).await;
        }
        execute(&database, &what, "FLUSH").await;
        compare(&database, &views, &format!("{what}, replaced")).await;
    }
    database.close().await.expect("closes");
}

#[test]
fn replaced_views_equal_their_new_query() {
    run(async {
        for seed in crate::soak::seeds(1..13) {
            replacements_of_one_seed(seed).await;
        }
    });
}

/// Readers see the old contents whole, then the new ones whole, and nothing else.
#[test]
fn readers_change_over_at_once() {
    run(async {
        let dir = tempfile::tempdir().expect("a folder");
        let database = open(dir.path()).await;
        let setup = "CREATE STREAM s (k BIGINT, v BIGINT);
            INSERT INTO s SELECT n % 100, n FROM generate_series(1, 20000) AS g(n);
            CREATE MATERIALIZED VIEW v AS SELECT k, count(*) AS c FROM s GROUP BY k;
            CREATE MATERIALIZED VIEW w WITH (pipeline = 'v') AS SELECT max(v) AS m FROM s;
            FLUSH";
        execute(&database, "set-up", setup).await;
        for round in 1..4 {
            let what = format!("round {round}");
            let before = multiset(&database.query("SELECT * FROM v").await.expect("v is read"));
            assert_eq!(before.len(), 100, "{what}");
            let select =
                format!("SELECT k, count(*) + {round} AS c, sum(v) AS s FROM s GROUP BY k");
            let after = multiset(&database.query(&select).await.expect("the query runs"));
            let replace = format!(
                "CREATE OR REPLACE MATERIALIZED VIEW v WITH (reset_state = true) AS {select}"
            );
            execute(&database, &what, &replace).await;
            let mut reads = 0;
            loop {
                // The columns of the definition are the new ones from the statement on; what is
                // counted here are rows, which the two have in common.
                let read = database.query("SELECT k, c FROM v").await;
                let read = multiset(&read.unwrap_or_else(|e| panic!("{what}: {e}")));
                assert_eq!(read.len(), 100, "{what}: {reads} reads");
                let counts = |rows: &std::collections::BTreeMap<Vec<String>, usize>| {
                    let pairs = rows.keys().map(|row| row[..2].to_vec());
                    pairs.collect::<std::collections::BTreeSet<_>>()
                };
                if counts(&read) == counts(&after) {
                    break;
                }
                assert_eq!(counts(&read), counts(&before), "{what}: {reads} reads");
                reads += 1;
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        }
        database.close().await.expect("closes");
    });
}
