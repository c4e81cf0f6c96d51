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

#[test]
fn who_changes_the_same_rows_waits_as_in_postgres() {
    let Some(postgres) = Postgres::start("rows that two transactions change") else {
        return;
    };
    run(async {
        let server = Server::start();
        let ours = Two {
            a: server.connect().await,
            b: server.connect().await,
        };
        let theirs = Two {
            a: postgres.connect().await,
            b: postgres.connect().await,
        };
        let (ours, theirs) = (story(&ours).await, story(&theirs).await);
        for (step, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            assert_eq!(ours, theirs, "step {step}");
        }
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
