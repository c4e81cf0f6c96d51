//! Transactions that change the same rows at the same time, asked of Tidemill and of a real PostgreSQL alike.

use std::time::Duration;

use tokio_postgres::Client;

use crate::harness::{Server, describe, rows, run};
use crate::postgres::Postgres;

/// A statement that waits for another session says nothing for so long.
const A_WHILE: Duration = Duration::from_millis(300);

/// Two sessions of one server.
struct Two {
    a: Client,
    b: Client,
}

impl Two {
    async fn say(client: &Client, sql: &str) -> String {
        match rows(client, sql).await {
            Ok(rows) => rows
                .iter()
                .map(|row| row.join(" | "))
                .collect::<Vec<_>>()
                .join("; "),
            Err(e) => e
                .code()
                .map_or_else(|| describe(&e), |c| c.code().to_owned()),
        }
    }

    /// `b` says something that waits until `a` has said what lets it go on; both answers.
    async fn waits(&self, waiting: &str, then: &str) -> [String; 2] {
        let waiter = Self::say(&self.b, waiting);
        tokio::pin!(waiter);
        let early = tokio::time::timeout(A_WHILE, &mut waiter).await;
        assert!(early.is_err(), "{waiting} did not wait: {early:?}");
        let then = Self::say(&self.a, then).await;
        let late = tokio::time::timeout(Duration::from_secs(20), waiter).await;
        [late.expect("it goes on"), then]
    }

    async fn both(&self, sql: &str) {
        Self::say(&self.a, sql).await;
        Self::say(&self.b, sql).await;
    }
}

/// What each step answers.
async fn story(two: &Two) -> Vec<String> {
    let (a, b) = (&two.a, &two.b);
    let mut told = Vec::new();
    for sql in [
        "DROP TABLE IF EXISTS locked",
        "CREATE TABLE locked (id integer PRIMARY KEY, n integer, t text)",
        "INSERT INTO locked VALUES (1, 0, 'a'), (2, 0, 'b'), (3, 0, 'c')",
    ] {
        told.push(Two::say(a, sql).await);
    }

    // No update is lost, and what waited sees what was committed.
    Two::say(a, "BEGIN").await;
    told.push(Two::say(a, "UPDATE locked SET n = n + 1 WHERE id = 1 RETURNING n").await);
    Two::say(b, "BEGIN").await;
    told.push(Two::say(b, "UPDATE locked SET n = n + 1 WHERE id = 2 RETURNING n").await);
    told.extend(
        two.waits(
            "UPDATE locked SET n = n + 10 WHERE id = 1 RETURNING n",
            "COMMIT",
        )
        .await,
    );
    told.push(Two::say(b, "COMMIT").await);
    told.push(Two::say(a, "SELECT id, n FROM locked ORDER BY id").await);

    // A statement outside a block waits as well, and goes on after a ROLLBACK with what was there before.
    Two::say(a, "BEGIN").await;
    told.push(Two::say(a, "DELETE FROM locked WHERE id = 3").await);
    told.extend(
        two.waits(
            "UPDATE locked SET t = t || '!' WHERE id = 3 RETURNING t",
            "ROLLBACK",
        )
        .await,
    );

    // A row that no longer is what was looked for is let be.
    Two::say(a, "BEGIN").await;
    told.push(Two::say(a, "UPDATE locked SET t = 'gone' WHERE id = 3").await);
    told.extend(
        two.waits(
            "UPDATE locked SET n = 99 WHERE t = 'c!' RETURNING id",
            "COMMIT",
        )
        .await,
    );

    // One key inserted twice: whoever comes second learns what became of the first.
    Two::say(a, "BEGIN").await;
    told.push(Two::say(a, "INSERT INTO locked VALUES (4, 4, 'a')").await);
    told.extend(
        two.waits("INSERT INTO locked VALUES (4, 5, 'b')", "COMMIT")
            .await,
    );
    Two::say(a, "BEGIN").await;
    told.push(Two::say(a, "INSERT INTO locked VALUES (5, 5, 'a')").await);
    told.extend(
        two.waits("INSERT INTO locked VALUES (5, 6, 'b')", "ROLLBACK")
            .await,
    );
    Two::say(a, "BEGIN").await;
    told.push(Two::say(a, "INSERT INTO locked VALUES (6, 1, 'a')").await);
    told.extend(
        two.waits(
            "INSERT INTO locked VALUES (6, 1, 'b') ON CONFLICT (id) DO UPDATE SET n = locked.n + 1 RETURNING n, t",
            "COMMIT",
        )
        .await,
    );

    // Nobody waits for ever.
    two.both("BEGIN").await;
    told.push(Two::say(a, "UPDATE locked SET n = 1 WHERE id = 1").await);
    Two::say(b, "SET LOCAL lock_timeout = '100ms'").await;
    told.push(Two::say(b, "UPDATE locked SET n = 2 WHERE id = 1").await);
    told.push(Two::say(b, "SELECT 1").await);
    two.both("ROLLBACK").await;
    Two::say(a, "BEGIN").await;
    told.push(Two::say(a, "UPDATE locked SET n = 1 WHERE id = 1").await);
    Two::say(b, "SET statement_timeout = '100ms'").await;
    told.push(Two::say(b, "UPDATE locked SET n = 2 WHERE id = 1").await);
    Two::say(b, "RESET statement_timeout").await;
    Two::say(a, "ROLLBACK").await;

    // What a savepoint gave up is free again for this transaction itself.
    Two::say(a, "BEGIN; SAVEPOINT s").await;
    told.push(Two::say(a, "UPDATE locked SET n = 7 WHERE id = 2").await);
    Two::say(a, "ROLLBACK TO s").await;
    told.push(Two::say(a, "UPDATE locked SET n = 8 WHERE id = 2 RETURNING n").await);
    Two::say(a, "COMMIT").await;

    // A failed transaction keeps nobody waiting, but for what it changed before its savepoint.
    Two::say(a, "BEGIN").await;
    told.push(Two::say(a, "UPDATE locked SET n = 20 WHERE id = 1").await);
    Two::say(a, "SAVEPOINT s").await;
    told.push(Two::say(a, "UPDATE locked SET n = 20 WHERE id = 2").await);
    told.push(Two::say(a, "SELECT 1 / 0").await);
    told.push(Two::say(b, "UPDATE locked SET n = n + 1 WHERE id = 2 RETURNING n").await);
    told.extend(
        two.waits(
            "UPDATE locked SET n = n + 1 WHERE id = 1 RETURNING n",
            "ROLLBACK TO s; COMMIT",
        )
        .await,
    );
    Two::say(a, "BEGIN").await;
    told.push(Two::say(a, "UPDATE locked SET n = 0 WHERE id = 1").await);
    told.extend(
        two.waits(
            "UPDATE locked SET n = n + 1 WHERE id = 1 RETURNING n",
            "SELECT 1 / 0",
        )
        .await,
    );
    told.push(Two::say(a, "COMMIT").await);
    told.push(Two::say(a, "SELECT * FROM locked ORDER BY id").await);

    // Of two that wait for each other one is let go.
    two.both("BEGIN").await;
    told.push(Two::say(a, "UPDATE locked SET n = 1 WHERE id = 1").await);
    told.push(Two::say(b, "UPDATE locked SET n = 1 WHERE id = 2").await);
    let mut codes = two
        .waits(
            "UPDATE locked SET n = 2 WHERE id = 1",
            "UPDATE locked SET n = 2 WHERE id = 2",
        )
        .await;
    codes.sort();
    told.extend(codes);
    two.both("ROLLBACK").await;
    told.push(Two::say(a, "SELECT count(*) FROM locked").await);
    told
}

/// What each step answers when rows are locked by reading them.
async fn story_of_readers(two: &Two) -> Vec<String> {
    let (a, b) = (&two.a, &two.b);
    let mut told = Vec::new();
    for sql in [
        "DROP TABLE IF EXISTS jobs, notes, bare",
        "CREATE TABLE jobs (id integer PRIMARY KEY, state text, n integer)",
        "CREATE TABLE notes (job integer, line integer, t text, PRIMARY KEY (job, line))",
        "CREATE TABLE bare (x integer, t text)",
        "INSERT INTO jobs SELECT i, 'new', 0 FROM generate_series(1, 6) AS g(i)",
        "INSERT INTO notes SELECT i, l, 'n' FROM generate_series(1, 6) AS g(i), generate_series(1, 2) AS h(l)",
        "INSERT INTO bare VALUES (1, 'a'), (1, 'a'), (2, NULL)",
    ] {
        told.push(Two::say(a, sql).await);
    }

    // Who reads for a change sees what the one before has made of it.
    Two::say(a, "BEGIN").await;
    told.push(Two::say(a, "SELECT n, id FROM jobs WHERE id = 1 FOR UPDATE").await);
    told.push(Two::say(b, "SELECT n FROM jobs WHERE id = 1").await);
    told.push(Two::say(b, "SELECT n FROM jobs WHERE id = 2 FOR UPDATE").await);
    told.push(Two::say(a, "UPDATE jobs SET n = n + 1 WHERE id = 1").await);
    told.extend(
        two.waits(
            "SELECT n FROM jobs WHERE id = 1 FOR NO KEY UPDATE",
            "COMMIT",
        )
        .await,
    );
    Two::say(a, "BEGIN").await;
    told.push(Two::say(a, "SELECT id FROM jobs WHERE id = 2 FOR UPDATE").await);
    told.extend(
        two.waits("UPDATE jobs SET n = 9 WHERE id = 2 RETURNING n", "ROLLBACK")
            .await,
    );
    Two::say(a, "BEGIN").await;
    told.push(Two::say(a, "SELECT x, t FROM bare WHERE x = 1 FOR UPDATE").await);
    told.extend(two.waits("DELETE FROM bare WHERE x = 1", "COMMIT").await);

    // Readers share, and keep those that change out.
    two.both("BEGIN").await;
    told.push(Two::say(a, "SELECT id FROM jobs WHERE id < 3 ORDER BY id FOR SHARE").await);
    told.push(Two::say(b, "SELECT id FROM jobs WHERE id < 3 ORDER BY id FOR SHARE").await);
    told.push(Two::say(b, "SELECT id FROM jobs WHERE id = 1 FOR UPDATE NOWAIT").await);
    Two::say(b, "ROLLBACK").await;
    told.extend(
        two.waits("UPDATE jobs SET n = 3 WHERE id = 1 RETURNING n", "COMMIT")
            .await,
    );

    // A queue: each takes what nobody else has.
    two.both("BEGIN").await;
    let next = "SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 2 FOR UPDATE SKIP LOCKED";
    told.push(Two::say(a, next).await);
    told.push(Two::say(b, next).await);
    told.push(Two::say(a, next).await);
    told.push(
        Two::say(
            b,
            "SELECT id FROM jobs ORDER BY id DESC FOR UPDATE SKIP LOCKED",
        )
        .await,
    );
    told.push(
        Two::say(
            b,
            "SELECT id FROM jobs ORDER BY id FETCH FIRST 1 ROW ONLY FOR SHARE SKIP LOCKED",
        )
        .await,
    );
    two.both("ROLLBACK").await;
    two.both("BEGIN").await;
    let take = "UPDATE jobs SET state = 'done' WHERE id IN (SELECT id FROM jobs WHERE state = 'new' ORDER BY id \
                FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id";
    told.push(Two::say(a, take).await);
    told.push(Two::say(b, take).await);
    let with = "WITH next AS (SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED) \
                UPDATE jobs SET state = 'done' FROM next WHERE jobs.id = next.id RETURNING jobs.id";
    told.push(Two::say(a, with).await);
    told.push(Two::say(b, with).await);
    let taken = "WITH next AS (SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED), \
                 gone AS (DELETE FROM jobs USING next WHERE jobs.id = next.id RETURNING jobs.id) SELECT * FROM gone";
    told.push(Two::say(b, taken).await);
    told.push(
        Two::say(
            a,
            "SELECT count(*) FROM (SELECT 1 FROM jobs FOR UPDATE SKIP LOCKED) AS free",
        )
        .await,
    );
    two.both("COMMIT").await;
    told.push(Two::say(a, "SELECT * FROM jobs ORDER BY id").await);

    // Of a join only what is named, which may be known by another name; keys of several columns.
    two.both("BEGIN").await;
    let joined = "SELECT j.id, l.line FROM jobs j JOIN notes l ON l.job = j.id WHERE j.id = 1 ORDER BY l.line";
    told.push(Two::say(a, &format!("{joined} FOR UPDATE OF l")).await);
    told.push(Two::say(b, "SELECT id FROM jobs WHERE id = 1 FOR UPDATE NOWAIT").await);
    told.push(Two::say(b, "SELECT line FROM notes WHERE job = 1 FOR SHARE NOWAIT").await);
    two.both("ROLLBACK").await;
    two.both("BEGIN").await;
    told.push(Two::say(a, &format!("{joined} LIMIT 1 FOR UPDATE OF j, l")).await);
    told.push(Two::say(b, "SELECT line FROM notes WHERE job < 3 ORDER BY job, line OFFSET 1 FOR UPDATE SKIP LOCKED").await);
    told.push(Two::say(b, "SELECT id FROM jobs WHERE id = 1 FOR UPDATE NOWAIT").await);
    two.both("ROLLBACK").await;

    // Back to a savepoint, the rows are free again; alone, a statement keeps nothing.
    Two::say(a, "BEGIN; SAVEPOINT s").await;
    told.push(Two::say(a, "SELECT id FROM jobs WHERE id = 1 FOR UPDATE").await);
    Two::say(a, "ROLLBACK TO s").await;
    told.push(Two::say(b, "SELECT id FROM jobs WHERE id = 1 FOR UPDATE NOWAIT").await);
    Two::say(a, "COMMIT").await;
    told.push(Two::say(a, "SELECT id FROM jobs WHERE id = 1 FOR UPDATE NOWAIT").await);
    two.both("BEGIN").await;
    told.push(
        Two::say(
            a,
            "DECLARE c CURSOR FOR SELECT id FROM jobs WHERE id = 1 FOR UPDATE",
        )
        .await,
    );
    told.push(Two::say(a, "FETCH c").await);
    told.push(Two::say(b, "SELECT id FROM jobs WHERE id = 1 FOR UPDATE NOWAIT").await);
    two.both("ROLLBACK").await;

    // What cannot be locked says so.
    for refused in [
        "SELECT DISTINCT n FROM jobs FOR UPDATE",
        "SELECT n FROM jobs GROUP BY n FOR UPDATE",
        "SELECT count(*) FROM jobs FOR UPDATE",
        "SELECT row_number() OVER () FROM jobs FOR SHARE",
        "SELECT 1 FROM jobs HAVING true FOR UPDATE",
        "SELECT id FROM jobs UNION SELECT n FROM jobs FOR UPDATE",
        "VALUES (1) FOR UPDATE",
        "SELECT 1 FROM jobs FOR UPDATE OF other",
        "SELECT 1 FROM jobs AS j FOR UPDATE OF jobs",
        "SELECT 1 FROM jobs LEFT JOIN notes ON job = id FOR UPDATE",
        "SELECT 1 FROM nothing FOR UPDATE",
        "WITH w AS (SELECT 1) SELECT * FROM w FOR UPDATE OF w",
        "SELECT 1 FROM jobs LIMIT -1 FOR UPDATE SKIP LOCKED",
        "BEGIN READ ONLY; SELECT 1 FROM jobs FOR UPDATE",
        "ROLLBACK",
        "SELECT id, (SELECT count(*) FROM notes) FROM jobs LEFT JOIN notes ON job = id WHERE id = 1 AND line = 1 FOR UPDATE OF jobs",
        "WITH w AS (SELECT 1 AS one) SELECT one, id FROM w, jobs ORDER BY id LIMIT 1 FOR UPDATE",
        "SELECT i, id FROM generate_series(1, 1) AS g(i), jobs ORDER BY 2 LIMIT 1 FOR SHARE",
    ] {
        told.push(format!("{refused}: {}", Two::say(a, refused).await));
    }

    // Of two that wait for each other one is let go.
    two.both("BEGIN").await;
    two.both("SELECT id FROM jobs WHERE id = 1 FOR SHARE").await;
    let change = "UPDATE jobs SET n = 5 WHERE id = 1";
    let mut codes = two.waits(change, change).await;
    codes.sort();
    told.extend(codes);
    two.both("ROLLBACK").await;
    told
}

/// A story told to both gives the same.
async fn compare<F: Future<Output = Vec<String>>>(
    postgres: &Postgres,
    story: impl Fn(std::sync::Arc<Two>) -> F,
) {
    let server = Server::start();
    let ours = Two {
        a: server.connect().await,
        b: server.connect().await,
    };
    let theirs = Two {
        a: postgres.connect().await,
        b: postgres.connect().await,
    };
    let (ours, theirs) = (story(ours.into()).await, story(theirs.into()).await);
    assert_eq!(ours.len(), theirs.len());
    let steps = ours.iter().zip(&theirs).enumerate();
    let differing: Vec<_> = steps.filter(|(_, (ours, theirs))| ours != theirs).collect();
    assert!(
        differing.is_empty(),
        "steps, ours and theirs: {differing:#?}"
    );
}

#[test]
fn who_changes_the_same_rows_waits_as_in_postgres() {
    let Some(postgres) = Postgres::start("rows that two transactions change") else {
        return;
    };
    run(compare(&postgres, |two| async move { story(&two).await }));
}

#[test]
fn who_reads_rows_for_a_change_waits_as_in_postgres() {
    let Some(postgres) = Postgres::start("rows that two transactions lock") else {
        return;
    };
    run(compare(&postgres, |two| async move {
        story_of_readers(&two).await
    }));
}

/// Workers over a queue: each job is done once, and nobody waits for another.
#[test]
fn a_queue_gives_each_job_to_one() {
    run(async {
        let server = Server::start();
        server
            .execute("CREATE TABLE queue (id INT PRIMARY KEY, done INT); INSERT INTO queue SELECT i, 0 FROM generate_series(1, 60) AS g(i)")
            .await;
        let mut workers = Vec::new();
        for _ in 0..4 {
            let client = server.connect().await;
            workers.push(tokio::spawn(async move {
                let mut done = 0;
                loop {
                    client.batch_execute("BEGIN").await.expect("a block");
                    let next = "SELECT id FROM queue WHERE done = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED";
                    let row = client.query_opt(next, &[]).await.expect("no worker waits or fails");
                    if let Some(row) = &row {
                        let id: i32 = row.get(0);
                        let change = "UPDATE queue SET done = done + 1 WHERE id = $1";
                        client.execute(change, &[&id]).await.expect("it is locked");
                        done += 1;
                    }
                    client.batch_execute("COMMIT").await.expect("it is committed");
                    if row.is_none() {
                        return done;
                    }
                }
            }));
        }
        let mut total = 0;
        for worker in workers {
            total += worker.await.expect("no worker fails");
        }
        assert_eq!(total, 60);
        let told = "SELECT count(*), min(done), max(done) FROM queue";
        assert_eq!(server.rows(told).await, [["60", "1", "1"]]);
    });
}

#[test]
fn no_update_of_many_sessions_is_lost() {
    run(async {
        let server = Server::start();
        server
            .execute("CREATE TABLE counted (id INT PRIMARY KEY, n BIGINT); INSERT INTO counted VALUES (1, 0), (2, 0)")
            .await;
        let mut sessions = Vec::new();
        for session in 0..6 {
            let client = server.connect().await;
            sessions.push(tokio::spawn(async move {
                // Always in one order: nobody waits for whom he holds up.
                let block = "BEGIN; UPDATE counted SET n = n + 1 WHERE id = 1; UPDATE counted SET n = n + 1 WHERE id = 2; COMMIT";
                let alone = "UPDATE counted SET n = n + 1";
                for round in 0..15 {
                    let sql = if (round + session) % 3 == 0 { alone } else { block };
                    client.batch_execute(sql).await.expect("it is committed");
                }
            }));
        }
        for session in sessions {
            session.await.expect("no session fails");
        }
        assert_eq!(
            server.rows("SELECT n FROM counted ORDER BY id").await,
            [["90"], ["90"]]
        );
    });
}
