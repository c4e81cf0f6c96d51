//! Nexmark, q0 to q22: as materialized views they hold what the same queries answer by batch.
//!
//! Once over generated streams, where watermarks close windows and free state; and once over
//! tables, where every step inserts, changes and deletes rows, with the database closed and opened
//! between. A third run has several times as much state as memory.

use tidemill::database::{Database, DatabaseOptions};

use crate::oracle::{compare, open};
use crate::random::Random;
use crate::soak;

#[path = "../../src/cli/bench/nexmark/queries.rs"]
mod queries;

use self::queries::{Query, SIDE_INPUT, STREAMS, queries, streams};

/// A runtime for one test, on a stack on which the longest of the queries is planned without
/// optimisation.
fn run<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(32 << 20);
    let done = thread
        .spawn(|| crate::harness::run(test()))
        .expect("a thread");
    if let Err(panic) = done.join() {
        std::panic::resume_unwind(panic);
    }
}

async fn execute(database: &Database, sql: &str) {
    let done = database.execute(sql).await;
    done.unwrap_or_else(|e| panic!("{sql}: {e}"));
}

/// Reads all streams from the first batch on: rows of a stream that joins a pipeline later may be
/// behind its watermark, and are then dropped and counted.
const TIMES: &str = "CREATE MATERIALIZED VIEW times WITH (pipeline = 'site', trigger = 'continuous') AS
    SELECT date_time FROM person UNION ALL SELECT date_time FROM auction UNION ALL SELECT date_time FROM bid";

/// A view of each query, all in one pipeline, which runs while they are created, so that most are
/// filled in one batch and then go on; name and query.
async fn create_views(database: &Database, queries: &[(Query, String)]) -> Vec<(String, String)> {
    execute(database, TIMES).await;
    let mut views = Vec::new();
    for (query, select) in queries {
        execute(
            database,
            &format!(
                "CREATE MATERIALIZED VIEW {} WITH (pipeline = 'site', trigger = 'continuous') AS {select}",
                query.name
            ),
        )
        .await;
        views.push((query.name.to_owned(), select.clone()));
    }
    views
}

fn as_written(queries: Vec<Query>) -> Vec<(Query, String)> {
    let own = |query: Query| (query, query.select.to_owned());
    queries.into_iter().map(own).collect()
}

#[test]
fn every_query_is_there_once() {
    let names: Vec<&str> = queries().iter().map(|query| query.name).collect();
    let expected: Vec<String> = (0..=22).map(|number| format!("q{number}")).collect();
    assert_eq!(names, expected);
    let read = |name: &str| {
        let queries = queries();
        let query = queries.iter().find(|query| query.name == name);
        let query = query.expect("the query is there");
        STREAMS.map(|(stream, _, _)| query.reads(stream))
    };
    assert_eq!(read("q3"), [true, true, false]);
    assert_eq!(read("q5"), [false, false, true]);
    assert_eq!(read("q8"), [true, true, false]);
    assert_eq!(read("q20"), [false, true, true]);
}

/// Views over generated streams, filled in many batches.
async fn generated(seed: u64, events: u64) {
    let dir = tempfile::tempdir().expect("a folder");
    let database = open(dir.path()).await;
    let options = format!(", seed = {seed}, event_rate = 100");
    execute(&database, &streams(events, 400, &options)).await;
    execute(&database, SIDE_INPUT).await;
    let views = create_views(&database, &as_written(queries())).await;
    execute(&database, "FLUSH").await;
    compare(&database, &views, &format!("seed {seed}")).await;
    let late = "SELECT coalesce(sum(num_late_rows), 0)::bigint AS late FROM streaming_metrics_log";
    let late = crate::oracle::multiset(&database.query(late).await.expect("the metrics"));
    assert_eq!(late.into_keys().next(), Some(vec!["0".to_owned()]));
    database.close().await.expect("closes");
}

#[test]
fn views_over_streams_equal_their_batch_answer() {
    run(|| async {
        for seed in soak::seeds(1..2) {
            generated(seed, 4000).await;
        }
    });
}

/// The tables, filled from generated streams of other names bit by bit.
const TABLES: &str = "
CREATE TABLE person (id BIGINT PRIMARY KEY, name TEXT, city TEXT, state TEXT, date_time TIMESTAMP);
CREATE TABLE auction (id BIGINT PRIMARY KEY, item_name TEXT, description TEXT, initial_bid BIGINT, reserve BIGINT,
  date_time TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra TEXT);
CREATE TABLE bid (number BIGINT PRIMARY KEY, auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT,
  date_time TIMESTAMP, extra TEXT);";

/// Inserts the events of one step out of `steps`.
fn inserts(step: u64, steps: u64, events: u64) -> String {
    let seconds = |step: u64| {
        format!(
            "TIMESTAMP '2015-07-15 00:00:00' + INTERVAL '{} milliseconds'",
            events * 10 * step / steps
        )
    };
    let in_step = format!(
        "date_time >= {} AND date_time < {}",
        seconds(step),
        seconds(step + 1)
    );
    format!(
        "INSERT INTO person SELECT id, name, city, state, date_time FROM all_person WHERE {in_step};
         INSERT INTO auction SELECT id, item_name, description, initial_bid, reserve, date_time, expires, seller, category, extra
           FROM all_auction WHERE {in_step};
         INSERT INTO bid SELECT * FROM (
           SELECT row_number() OVER (ORDER BY date_time, auction, bidder, price, url, extra) AS number,
                  auction, bidder, price, channel, url, date_time, extra
           FROM all_bid) numbered WHERE {in_step};"
    )
}

/// A change of rows that are there: keys of joins, orders and groups, with ties and NULLs.
fn change(random: &mut Random) -> String {
    let (part, rest) = (3 + random.below(9), random.below(3));
    let of = |column: &str| format!("{column} % {part} = {rest}");
    match random.below(12) {
        0 => format!(
            "UPDATE bid SET price = 100 + price % 3 WHERE {}",
            of("number")
        ),
        1 => format!(
            "UPDATE bid SET bidder = 1000 + number % 5 WHERE {}",
            of("number")
        ),
        2 => format!(
            "UPDATE bid SET auction = auction + 1 WHERE {}",
            of("number")
        ),
        3 => format!(
            "UPDATE bid SET date_time = date_time + INTERVAL '7 seconds' WHERE {}",
            of("number")
        ),
        4 => format!(
            "UPDATE bid SET channel = 'apple', price = NULL WHERE {}",
            of("number")
        ),
        5 | 6 => format!("DELETE FROM bid WHERE {}", of("number")),
        7 => format!("UPDATE auction SET category = 10 WHERE {}", of("id")),
        8 => format!(
            "UPDATE auction SET expires = expires + INTERVAL '2 seconds', seller = 1000 + id % 4 WHERE {}",
            of("id")
        ),
        9 => format!("DELETE FROM auction WHERE {}", of("id")),
        10 => format!(
            "UPDATE person SET state = 'OR', date_time = date_time + INTERVAL '3 seconds' WHERE {}",
            of("id")
        ),
        _ => format!(
            "DELETE FROM person WHERE {}; UPDATE side_input SET value = 'another' WHERE {}",
            of("id"),
            of("key")
        ),
    }
}

async fn changed(seed: u64, events: u64) {
    let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let dir = tempfile::tempdir().expect("a folder");
    let mut database = open(dir.path()).await;
    let options = format!(", seed = {seed}, event_rate = 100");
    let mut definitions = streams(events, events, &options);
    for (stream, _, _) in STREAMS {
        definitions = definitions.replace(
            &format!("CREATE STREAM {stream} "),
            &format!("CREATE STREAM all_{stream} "),
        );
    }
    execute(&database, &definitions).await;
    execute(&database, TABLES).await;
    execute(&database, SIDE_INPUT).await;
    let over_tables = |(query, select): (Query, String)| {
        // A table's rows change, so that they cannot pass through.
        let kept = select.replace(
            "side_input FOR SYSTEM_TIME AS OF b.date_time AS s",
            "side_input s",
        );
        (query, kept)
    };
    let all: Vec<(Query, String)> = as_written(queries()).into_iter().map(over_tables).collect();
    let views = create_views(&database, &all).await;
    let steps = 5;
    for step in 0..steps {
        let mut sql = inserts(step, steps, events);
        for _ in 0..random.below(4) {
            sql += &format!("{};", change(&mut random));
        }
        execute(&database, &sql).await;
        execute(&database, "FLUSH").await;
        let what = format!("seed {seed}, step {step}");
        compare(&database, &views, &what).await;
        // What came together goes in a batch of its own as well.
        execute(&database, &change(&mut random)).await;
        execute(&database, "FLUSH").await;
        compare(&database, &views, &format!("{what}, changed")).await;
        if step == 2 {
            database.close().await.expect("closes");
            drop(database);
            database = open(dir.path()).await;
        }
    }
    database.close().await.expect("closes");
}

#[test]
fn views_over_tables_equal_their_batch_answer_at_every_step() {
    run(|| async {
        for seed in soak::seeds(1..2) {
            changed(seed, 1000).await;
        }
    });
}

/// As much memory as the smallest caches need, and at least ten times as much state.
#[test]
fn answers_are_right_with_ten_times_as_much_state_as_memory() {
    const MEMORY_BYTES: usize = 1 << 20;
    run(|| async {
        let dir = tempfile::tempdir().expect("a folder");
        let options = DatabaseOptions {
            memory_limit_bytes: MEMORY_BYTES,
            ..DatabaseOptions::default()
        };
        let database = Database::open(dir.path(), options).await.expect("opens");
        execute(&database, &streams(30_000, 2000, "")).await;
        let wide =
            |query: &Query| matches!(query.name, "q4" | "q9" | "q16" | "q18" | "q19" | "q20");
        let some = queries().into_iter().filter(wide).collect();
        let views = create_views(&database, &as_written(some)).await;
        execute(&database, "FLUSH").await;
        let bytes = "SELECT (state_memory_bytes + state_disk_bytes) >= 10485760 AS enough FROM streaming_pipelines";
        let enough = crate::oracle::multiset(&database.query(bytes).await.expect("the sizes"));
        assert_eq!(enough.into_keys().next(), Some(vec!["true".to_owned()]));
        database.close().await.expect("closes");
        drop(database);
        // The batch answers take more memory than that.
        let database = open(dir.path()).await;
        compare(&database, &views, "with little memory").await;
        database.close().await.expect("closes");
    });
}
