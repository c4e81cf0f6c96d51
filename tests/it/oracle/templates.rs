//! The oracle of invariant 1: after every batch, a view equals its `SELECT` run by batch.
//!
//! Seeded random DML over two tables and a stream, cut into random batches, under views from a
//! grammar; half of the views are there before the rows, half come later; the database is closed
//! and opened between. The batch answer comes from the same engine's ad-hoc path, which is plain
//! DataFusion over the relations. Results compare as multisets.

use std::collections::BTreeMap;
use std::path::Path;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use tidemill::database::{Database, DatabaseOptions};

use crate::harness::run;
use crate::random::Random;

pub const DEFINITIONS: &str = "
CREATE TABLE a (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT, t TEXT);
CREATE TABLE b (id BIGINT PRIMARY KEY, k BIGINT, w NUMERIC(10,2), t TEXT);
CREATE STREAM s (k BIGINT, v BIGINT, t TEXT);";

/// A `SELECT` from the grammar. Every output column has a name of its own.
pub fn query(random: &mut Random) -> String {
    match random.below(28) {
        0 => format!(
            "SELECT k, v + 1 AS v1, upper(t) AS u FROM {} WHERE {}",
            relation(random),
            predicate(random, "")
        ),
        1 | 2 => aggregate(random),
        3 => format!(
            "SELECT x.k AS k, x.v AS v, y.w AS w FROM {} x {} JOIN b y ON x.k = y.k{}",
            relation(random),
            random.pick(&["INNER", "LEFT", "RIGHT", "FULL"]),
            if random.chance(40) {
                " AND x.v > 3"
            } else {
                ""
            }
        ),
        4 => format!("SELECT DISTINCT k, t FROM {}", relation(random)),
        5 => format!(
            "SELECT k, t FROM {} {} SELECT k, t FROM {}",
            relation(random),
            random.pick(&[
                "UNION ALL",
                "UNION",
                "EXCEPT",
                "INTERSECT",
                "EXCEPT ALL",
                "INTERSECT ALL"
            ]),
            random.pick(&["a", "b", "s"])
        ),
        6 => format!(
            "SELECT k, v, t FROM a ORDER BY v DESC NULLS LAST, id LIMIT {}",
            1 + random.below(5)
        ),
        7 => format!(
            "SELECT id, k, {} OVER (PARTITION BY k ORDER BY v, id) AS r FROM a",
            random.pick(&["row_number()", "rank()", "sum(v)", "lag(v)", "count(*)"])
        ),
        8 => format!(
            "SELECT id, k FROM a WHERE {} (SELECT 1 FROM {} z WHERE z.k = a.k)",
            random.pick(&["EXISTS", "NOT EXISTS"]),
            random.pick(&["b", "s"])
        ),
        9 => format!(
            "SELECT id, t FROM a WHERE k {} (SELECT k FROM b WHERE k IS NOT NULL)",
            random.pick(&["IN", "NOT IN"])
        ),
        10 => format!(
            "SELECT id, v, (SELECT max(w) FROM b) AS m FROM a WHERE {}",
            predicate(random, "")
        ),
        11 => {
            let inner = aggregate(random);
            format!("SELECT count(*) AS groups, sum(q.c0) AS total FROM ({inner}) q")
        }
        12 => format!(
            "SELECT x.t AS t, count(*) AS n, sum(x.v) AS sv, max(y.w) AS mw FROM {} x JOIN b y ON x.k = y.k GROUP BY x.t",
            relation(random)
        ),
        13 => "SELECT x.id AS i, y.id AS j FROM a x JOIN b y ON x.v < y.k AND x.k >= 2".to_owned(),
        14 => format!(
            "SELECT k, count(*) AS n FROM {} GROUP BY k HAVING count(*) > 1",
            relation(random)
        ),
        15 | 16 => format!(
            "SELECT k, t, count(*) AS n, sum(v) AS s FROM {} GROUP BY {}",
            relation(random),
            random.pick(&[
                "ROLLUP(k, t)",
                "CUBE(k, t)",
                "GROUPING SETS ((k), (t), ())",
                "k, ROLLUP(t)",
            ])
        ),
        17 => format!(
            "SELECT k, v, t FROM {} ORDER BY {} LIMIT {} OFFSET {}",
            relation(random),
            random.pick(&["v DESC NULLS LAST, k, t", "k, v, t", "t DESC, v, k"]),
            1 + random.below(5),
            random.below(3)
        ),
        18 | 19 => first_of_groups(random),
        20 | 21 => window(random),
        22 => format!(
            "SELECT k, v FROM {} WHERE {} NOT IN (SELECT k FROM b WHERE {})",
            relation(random),
            random.pick(&["k", "v"]),
            random.pick(&["true", "w > 5", "k IS NOT NULL", "k < 2"])
        ),
        23 => format!(
            "SELECT k, v, (SELECT count(*) FROM b WHERE w > 4) AS n FROM {} WHERE v {} (SELECT {} FROM a)",
            relation(random),
            random.pick(&["<", ">=", "="]),
            random.pick(&["avg(v)", "max(v)", "count(*)"])
        ),
        24 => format!(
            "SELECT k, v, window_start, window_end FROM SESSION({}, v, {}, k)",
            relation(random),
            1 + random.below(3)
        ),
        25 => format!(
            "SELECT k, session_window.end, count(*) AS n, min(t) AS l FROM {} GROUP BY session_window(v, {}), k",
            relation(random),
            1 + random.below(3)
        ),
        26 => format!(
            "SELECT x.k AS k, x.v AS v, y.id AS id FROM {} x {} JOIN b y ON y.k BETWEEN x.v - 2 AND x.v",
            relation(random),
            random.pick(&["INNER", "LEFT", "FULL"])
        ),
        _ => {
            let (one, other) = (relation(random), relation(random));
            format!(
                "WITH c AS (SELECT k, count(*) AS n, max(v) AS m FROM {one} GROUP BY k) \
                 SELECT x.k AS k, x.n AS n, y.m AS m FROM c x JOIN c y ON x.n = y.m \
                 UNION ALL SELECT k, v, v FROM {other}"
            )
        }
    }
}

/// The first rows of each group; the order is total where the row's place shows.
fn first_of_groups(random: &mut Random) -> String {
    let relation = relation(random);
    let group = *random.pick(&["k", "t", "v % 3"]);
    match random.below(3) {
        0 => format!(
            "SELECT k, v, t, n FROM (SELECT *, {}() OVER (PARTITION BY {group} ORDER BY v {}) AS n FROM {relation}) q WHERE n <= {}",
            random.pick(&["rank", "dense_rank"]),
            random.pick(&["", "DESC"]),
            1 + random.below(3)
        ),
        1 => format!(
            "SELECT k, v, t, n FROM (SELECT *, row_number() OVER (PARTITION BY {group} ORDER BY v, k, t) AS n FROM {relation}) q WHERE n {} {}",
            random.pick(&["<=", "<", "="]),
            1 + random.below(3)
        ),
        _ => format!(
            "SELECT DISTINCT ON ({group}) k, v, t FROM {relation} ORDER BY {group}, v DESC, k, t"
        ),
    }
}

/// Window functions with frames; where ties would show, all columns order.
fn window(random: &mut Random) -> String {
    let partition = *random.pick(&["", "PARTITION BY k ", "PARTITION BY t "]);
    let calls: Vec<String> = (0..1 + random.below(3))
        .map(|i| {
            let call = match random.below(4) {
                0 => format!(
                    "{} OVER ({partition}ORDER BY v, k, t)",
                    random.pick(&[
                        "row_number()",
                        "lag(v)",
                        "lead(t, 2)",
                        "first_value(t)",
                        "nth_value(v, 2)",
                        "ntile(3)"
                    ])
                ),
                1 => format!(
                    "{} OVER ({partition}ORDER BY v, k, t ROWS BETWEEN {} AND {})",
                    random.pick(&["sum(v)", "count(*)", "max(t)", "min(v)"]),
                    random.pick(&["UNBOUNDED PRECEDING", "2 PRECEDING", "CURRENT ROW"]),
                    random.pick(&["CURRENT ROW", "1 FOLLOWING", "UNBOUNDED FOLLOWING"])
                ),
                2 => format!(
                    "{} OVER ({partition}ORDER BY v {} BETWEEN 1 PRECEDING AND 2 FOLLOWING)",
                    random.pick(&["sum(v)", "count(k)", "max(k)"]),
                    random.pick(&["RANGE", "GROUPS"])
                ),
                _ => format!(
                    "{} OVER ({partition}ORDER BY v)",
                    random.pick(&[
                        "rank()",
                        "dense_rank()",
                        "percent_rank()",
                        "cume_dist()",
                        "sum(k)"
                    ])
                ),
            };
            format!("{call} AS w{i}")
        })
        .collect();
    format!(
        "SELECT k, v, t, {} FROM {}",
        calls.join(", "),
        relation(random)
    )
}

fn relation(random: &mut Random) -> &'static str {
    random.pick::<&'static str>(&["a", "s"])
}

fn predicate(random: &mut Random, prefix: &str) -> String {
    let p = prefix;
    match random.below(5) {
        0 => format!("{p}v > {}", random.below(10)),
        1 => format!("{p}k IS NOT NULL AND {p}v % 2 = 0"),
        2 => format!("{p}t LIKE 'a%'"),
        3 => format!("{p}v BETWEEN 2 AND 7 OR {p}k = {}", random.below(5)),
        _ => format!("coalesce({p}v, 0) <> 3"),
    }
}

/// The first aggregate is called c0 and is a count, so that an outer query can add it up.
fn aggregate(random: &mut Random) -> String {
    const CALLS: [&str; 14] = [
        "sum(v)",
        "avg(v)",
        "min(v)",
        "max(v)",
        "count(v)",
        "count(DISTINCT t)",
        "min(t)",
        "max(t)",
        "sum(DISTINCT v)",
        "string_agg(t, ',' ORDER BY t)",
        "bool_or(v > 5)",
        "sum(v) FILTER (WHERE k > 1)",
        "count(DISTINCT v) FILTER (WHERE v < 8)",
        "sum(v * 2 - k)",
    ];
    let mut select = Vec::new();
    let groups = *random.pick(&["", "k", "t", "k, t", "v % 3", "k + 1"]);
    for (i, group) in groups.split(", ").filter(|g| !g.is_empty()).enumerate() {
        select.push(format!("{group} AS g{i}"));
    }
    select.push("count(*) AS c0".to_owned());
    for i in 1..=1 + random.below(3) {
        select.push(format!("{} AS c{i}", random.pick(&CALLS)));
    }
    let filter = if random.chance(30) {
        format!(" WHERE {}", predicate(random, ""))
    } else {
        String::new()
    };
    let group_by = if groups.is_empty() {
        String::new()
    } else {
        format!(" GROUP BY {groups}")
    };
    format!(
        "SELECT {} FROM {}{filter}{group_by}",
        select.join(", "),
        relation(random)
    )
}

fn value(random: &mut Random, bound: u64) -> String {
    if random.chance(10) {
        "NULL".to_owned()
    } else {
        random.below(bound).to_string()
    }
}

fn text(random: &mut Random) -> String {
    random
        .pick(&["NULL", "'a'", "'ab'", "'b'", "''"])
        .to_string()
}

/// One statement of DML.
pub fn change(random: &mut Random) -> String {
    let n = 1 + random.below(8);
    let id = random.below(30);
    match random.below(8) {
        0 | 1 => {
            let rows: Vec<String> = (0..n)
                .map(|_| {
                    format!(
                        "({}, {}, {})",
                        value(random, 6),
                        value(random, 12),
                        text(random)
                    )
                })
                .collect();
            format!("INSERT INTO s VALUES {}", rows.join(", "))
        }
        2 | 3 => format!(
            "INSERT INTO a VALUES ({id}, {}, {}, {}) ON CONFLICT (id) DO UPDATE SET k = excluded.k, v = excluded.v, t = excluded.t",
            value(random, 6),
            value(random, 12),
            text(random)
        ),
        4 => format!(
            "INSERT INTO b VALUES ({id}, {}, {}.25, {}) ON CONFLICT (id) DO UPDATE SET k = excluded.k, w = excluded.w",
            value(random, 6),
            random.below(20),
            text(random)
        ),
        5 => format!(
            "UPDATE a SET v = v + 1, k = {} WHERE id % 4 = {}",
            value(random, 6),
            id % 4
        ),
        6 => format!(
            "DELETE FROM {} WHERE id % 7 = {}",
            random.pick(&["a", "b"]),
            id % 7
        ),
        _ => format!("UPDATE b SET k = {} WHERE id < {id}", value(random, 6)),
    }
}

/// Rows as texts with their number of copies.
pub fn multiset(batches: &[RecordBatch]) -> BTreeMap<Vec<String>, usize> {
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = BTreeMap::new();
    for batch in batches {
        let columns: Vec<ArrayFormatter> = batch
            .columns()
            .iter()
            .map(|c| ArrayFormatter::try_new(c.as_ref(), &options).expect("a printable type"))
            .collect();
        for row in 0..batch.num_rows() {
            *rows
                .entry(columns.iter().map(|c| c.value(row).to_string()).collect())
                .or_insert(0) += 1;
        }
    }
    rows
}

pub async fn open(dir: &Path) -> Database {
    Database::open(dir, DatabaseOptions::default())
        .await
        .expect("the database opens")
}

pub async fn compare(database: &Database, views: &[(String, String)], what: &str) {
    for (name, select) in views {
        let kept = multiset(
            &database
                .query(&format!("SELECT * FROM {name}"))
                .await
                .unwrap_or_else(|e| panic!("{what}: {name}: {e}")),
        );
        let batch = multiset(
            &database
                .query(select)
                .await
                .unwrap_or_else(|e| panic!("{what}: {select}: {e}")),
        );
        let differing: Vec<_> = kept
            .iter()
            .filter(|(row, count)| batch.get(*row) != Some(count))
            .chain(
                batch
                    .iter()
                    .filter(|(row, count)| kept.get(*row) != Some(count)),
            )
            .take(10)
            .collect();
        assert!(
            differing.is_empty(),
            "{what}: {name} AS {select}\nhas {} rows and should have {}; these differ: {differing:?}",
            kept.len(),
            batch.len()
        );
    }
}

async fn create(
    database: &Database,
    random: &mut Random,
    views: &mut Vec<(String, String)>,
    seed: u64,
) {
    let select = query(random);
    let name = format!("v{}", views.len());
    database
        .execute(&format!(
            "CREATE MATERIALIZED VIEW {name} WITH (trigger = 'continuous') AS {select}"
        ))
        .await
        .unwrap_or_else(|e| panic!("seed {seed}: {select}: {e}"));
    views.push((name, select));
}

async fn one_seed(seed: u64) {
    let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let dir = tempfile::tempdir().expect("a folder");
    let mut database = open(dir.path()).await;
    database.execute(DEFINITIONS).await.expect("definitions");
    let mut views = Vec::new();
    for _ in 0..4 {
        create(&database, &mut random, &mut views, seed).await;
    }
    for step in 0..10 {
        let what = format!("seed {seed}, step {step}");
        let statements: Vec<String> = (0..1 + random.below(4))
            .map(|_| change(&mut random))
            .collect();
        let sql = if random.chance(30) {
            format!("BEGIN; {}; COMMIT", statements.join("; "))
        } else {
            statements.join("; ")
        };
        database
            .execute(&sql)
            .await
            .unwrap_or_else(|e| panic!("{what}: {sql}: {e}"));
        database
            .execute("FLUSH")
            .await
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        compare(&database, &views, &what).await;
        if step == 3 || step == 6 {
            create(&database, &mut random, &mut views, seed).await;
            database
                .execute("FLUSH")
                .await
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            compare(&database, &views, &format!("{what}, a view later")).await;
        }
        if step == 5 {
            database.close().await.expect("closes");
            drop(database);
            database = open(dir.path()).await;
        }
    }
    database.close().await.expect("closes");
}

#[test]
fn views_equal_their_batch_answer_after_every_batch() {
    let one = std::env::var("TIDEMILL_SEED").ok();
    let seeds = match one.and_then(|seed| seed.parse::<u64>().ok()) {
        Some(seed) => seed..seed + 1,
        None => crate::soak::seeds(1..41),
    };
    run(async {
        for seed in seeds {
            one_seed(seed).await;
        }
    });
}
