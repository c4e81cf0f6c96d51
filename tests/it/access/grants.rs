//! What roles may do, statement by statement.

use super::*;
use crate::harness::{rows, run};

const WORLD: &str = "
    CREATE USER ada PASSWORD 'a'; CREATE USER bob PASSWORD 'b'; CREATE ROLE team;
    CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, pay NUMERIC(10,2));
    CREATE STREAM s (a BIGINT, b TEXT);
    INSERT INTO t VALUES (1, 'x', 10), (2, 'y', 20); INSERT INTO s VALUES (1, 'u'), (2, 'v');
    CREATE MATERIALIZED VIEW m AS SELECT a, count(*) AS n FROM s GROUP BY a;
    CREATE VIEW v AS SELECT id, name FROM t;
    CREATE SECRET k AS 'hidden'; FLUSH;";

#[test]
fn each_statement_needs_its_privilege() {
    run(async {
        let server = server_with_users(WORLD).await;
        let root = root(&server).await;
        let ada = connect(&server, "ada", "a").await.unwrap();
        let denied = |what: &str| format!("42501 permission denied for {what}");
        // Without grants.
        for (sql, what) in [
            ("SELECT * FROM t", "table t"),
            ("SELECT count(*) FROM s", "stream s"),
            ("SELECT n FROM m", "materialized view m"),
            ("SELECT * FROM v", "view v"),
            ("EXPLAIN SELECT * FROM t", "table t"),
            ("SELECT 1 WHERE EXISTS (SELECT 1 FROM t)", "table t"),
            (
                "WITH x AS (SELECT * FROM t) SELECT count(*) FROM x",
                "table t",
            ),
            ("INSERT INTO t VALUES (3, 'z', 1)", "table t"),
            ("INSERT INTO s SELECT 1, 'a'", "stream s"),
            ("UPDATE t SET pay = 0", "table t"),
            ("DELETE FROM t", "table t"),
            ("TRUNCATE t", "table t"),
            ("COPY t TO STDOUT", "table t"),
            ("COPY (SELECT * FROM m) TO STDOUT", "materialized view m"),
            ("SUBSCRIBE TO m", "materialized view m"),
            ("CREATE TABLE mine (id BIGINT)", "schema public"),
            ("CREATE VIEW mine AS SELECT 1", "schema public"),
            ("STOP MATERIALIZED VIEW m", "pipeline m"),
            ("DIAGNOSE m", "pipeline m"),
            ("REFRESH MATERIALIZED VIEW m", "pipeline m"),
            ("BACKUP DATABASE TO '/tmp/x'", "BACKUP DATABASE"),
            ("GRANT SELECT ON t TO bob", "table t"),
        ] {
            assert_eq!(outcome(&ada, sql).await, denied(what), "{sql}");
        }
        for (sql, what) in [
            ("DROP TABLE t", "table t"),
            ("DROP MATERIALIZED VIEW m", "materialized view m"),
            ("ALTER STREAM s ADD COLUMN c BIGINT", "stream s"),
            ("ALTER SECRET k AS 'mine'", "secret k"),
            ("DROP SECRET k", "secret k"),
            ("CREATE INDEX ON m (n)", "materialized view m"),
            ("COMMENT ON TABLE t IS 'x'", "table t"),
            ("ALTER TABLE t OWNER TO ada", "table t"),
        ] {
            assert_eq!(
                outcome(&ada, sql).await,
                format!("42501 must be owner of {what}"),
                "{sql}"
            );
        }
        for sql in [
            "CREATE USER eve",
            "ALTER USER bob PASSWORD 'x'",
            "DROP USER bob",
            "GRANT team TO ada",
            "SET ROLE team",
            "SET SESSION AUTHORIZATION bob",
            "SELECT set_config('role', 'team', false)",
        ] {
            assert!(outcome(&ada, sql).await.starts_with("42501"), "{sql}");
        }
        // Prepared before the grant, good after it, and no longer after its end.
        let statement = ada.prepare("SELECT n FROM m WHERE a = $1").await.unwrap();
        let code = |r: Result<Vec<tokio_postgres::Row>, tokio_postgres::Error>| {
            r.err().and_then(|e| e.code().map(|c| c.code().to_owned()))
        };
        assert_eq!(
            code(ada.query(&statement, &[&1i64]).await).as_deref(),
            Some("42501")
        );
        assert_eq!(
            outcome(&root, "GRANT SELECT ON m TO team; GRANT team TO ada").await,
            "ok"
        );
        assert_eq!(ada.query(&statement, &[&1i64]).await.unwrap().len(), 1);
        assert_eq!(outcome(&root, "REVOKE SELECT ON m FROM team").await, "ok");
        assert_eq!(
            code(ada.query(&statement, &[&1i64]).await).as_deref(),
            Some("42501")
        );
        // A plain view reads with its owner's rights, an inner query of one's own does not.
        assert_eq!(outcome(&root, "GRANT SELECT ON v, s TO ada").await, "ok");
        assert_eq!(rows(&ada, "SELECT count(*) FROM v").await.unwrap(), [["2"]]);
        assert_eq!(
            outcome(&ada, "SELECT * FROM v JOIN t USING (id)").await,
            denied("table t")
        );
        // What runs for ever is checked when it is created.
        assert_eq!(
            outcome(&root, "GRANT CREATE ON SCHEMA public TO ada").await,
            "ok"
        );
        assert_eq!(
            outcome(
                &ada,
                "CREATE MATERIALIZED VIEW leak AS SELECT count(*) AS n FROM t"
            )
            .await,
            denied("table t")
        );
        assert_eq!(
            outcome(&ada, "CREATE VIEW leak AS SELECT * FROM t").await,
            "ok"
        );
        assert_eq!(outcome(&ada, "SELECT * FROM leak").await, denied("table t"));
        assert_eq!(
            outcome(
                &ada,
                "CREATE MATERIALIZED VIEW own AS SELECT count(*) AS n FROM s"
            )
            .await,
            "ok"
        );
        assert_eq!(outcome(&ada, "STOP MATERIALIZED VIEW own; START MATERIALIZED VIEW own; DIAGNOSE own; DROP MATERIALIZED VIEW own").await, "ok");
        assert_eq!(outcome(&ada, "CREATE STREAM x (a BIGINT) WITH (connector = 'kafka', brokers = 'localhost:1', topic = 't', format = 'json', password = SECRET k)").await, denied("secret k"));
        assert!(outcome(&ada, "CREATE STREAM x (a TEXT) WITH (connector = 'files', location = '/etc/*.conf', format = 'text')").await.starts_with("42501 permission denied for path"));
        // Recovery by grant.
        assert_eq!(
            outcome(&root, "GRANT RECOVERY ON PIPELINE m TO ada").await,
            "ok"
        );
        assert_eq!(outcome(&ada, "STOP MATERIALIZED VIEW m").await, "ok");
        assert_eq!(outcome(&ada, "START MATERIALIZED VIEW m").await, "ok");
        assert_eq!(
            outcome(&ada, "SELECT * FROM m").await,
            denied("materialized view m")
        );
    });
}

#[test]
fn columns_are_granted_one_by_one() {
    run(async {
        let server = server_with_users(WORLD).await;
        let root = root(&server).await;
        let ada = connect(&server, "ada", "a").await.unwrap();
        assert_eq!(
            outcome(
                &root,
                "GRANT SELECT (id, name), UPDATE (name), INSERT (id, name) ON t TO ada"
            )
            .await,
            "ok"
        );
        let denied = "42501 permission denied for table t";
        for (sql, expected) in [
            ("SELECT id, name FROM t", "ok"),
            ("SELECT count(*) FROM t", "ok"),
            ("SELECT x.name FROM t AS x WHERE x.id = 1", "ok"),
            ("SELECT * FROM t", denied),
            ("SELECT id FROM t WHERE pay > 5", denied),
            ("SELECT id FROM t ORDER BY pay", denied),
            ("SELECT sum(pay) FROM t", denied),
            ("UPDATE t SET name = 'z' WHERE id = 1", "ok"),
            ("UPDATE t SET name = 'z' WHERE pay = 10", denied),
            ("UPDATE t SET name = pay::text", denied),
            ("UPDATE t SET pay = 1", denied),
            ("UPDATE t SET name = 'q' RETURNING id, name", "ok"),
            ("UPDATE t SET name = 'q' RETURNING *", denied),
            (
                "UPDATE t SET name = (SELECT max(name) FROM t AS o WHERE o.id = 2)",
                denied,
            ),
            ("INSERT INTO t (id, name) VALUES (7, 'n')", "ok"),
            ("INSERT INTO t (id, pay) VALUES (8, 1)", denied),
            ("INSERT INTO t VALUES (8, 'a', 1)", denied),
            (
                "INSERT INTO t (id, name) VALUES (7, 'm') ON CONFLICT (id) DO UPDATE SET name = excluded.name",
                "ok",
            ),
            (
                "INSERT INTO t (id, name) VALUES (7, 'm') ON CONFLICT (id) DO UPDATE SET pay = 1",
                denied,
            ),
            ("DELETE FROM t WHERE id = 7", denied),
            (
                "WITH gone AS (DELETE FROM t RETURNING id) SELECT * FROM gone",
                denied,
            ),
        ] {
            assert_eq!(outcome(&ada, sql).await, expected, "{sql}");
        }
        // A renamed column keeps what was granted of it.
        assert_eq!(
            outcome(&root, "ALTER TABLE t RENAME COLUMN name TO title").await,
            "ok"
        );
        assert_eq!(outcome(&ada, "SELECT id, title FROM t").await, "ok");
        assert_eq!(outcome(&root, "REVOKE SELECT ON t FROM ada").await, "ok");
        assert_eq!(outcome(&ada, "SELECT id FROM t").await, denied);
        // Who may change without reading may do so blindly.
        assert_eq!(
            outcome(&root, "GRANT UPDATE, DELETE ON t TO bob").await,
            "ok"
        );
        let bob = connect(&server, "bob", "b").await.unwrap();
        assert_eq!(outcome(&bob, "UPDATE t SET pay = 3").await, "ok");
        assert_eq!(outcome(&bob, "UPDATE t SET pay = pay + 1").await, denied);
        assert_eq!(outcome(&bob, "DELETE FROM t WHERE id = 1").await, denied);
        assert_eq!(outcome(&bob, "DELETE FROM t").await, "ok");
    });
}

#[test]
fn roles_own_grant_on_and_go_as_in_postgres() {
    run(async {
        let mut server = server_with_users(WORLD).await;
        let root = root(&server).await;
        for sql in [
            "GRANT CREATE ON SCHEMA public TO team; GRANT team TO ada WITH ADMIN OPTION",
            "GRANT SELECT ON t TO ada WITH GRANT OPTION",
            "ALTER DEFAULT PRIVILEGES FOR ROLE ada IN SCHEMA public GRANT SELECT ON TABLES TO bob",
            "ALTER ROLE bob SET default_transaction_read_only = on; ALTER ROLE bob SET application_name = 'board'",
        ] {
            assert_eq!(outcome(&root, sql).await, "ok", "{sql}");
        }
        let ada = connect(&server, "ada", "a").await.unwrap();
        let bob = connect(&server, "bob", "b").await.unwrap();
        assert_eq!(outcome(&ada, "GRANT SELECT ON t TO bob").await, "ok");
        assert_eq!(outcome(&bob, "SELECT * FROM t").await, "ok");
        assert_eq!(
            outcome(&root, "REVOKE SELECT ON t FROM ada").await,
            "2BP01 dependent privileges exist"
        );
        assert_eq!(
            outcome(&root, "REVOKE SELECT ON t FROM ada CASCADE").await,
            "ok"
        );
        assert_eq!(
            outcome(&bob, "SELECT * FROM t").await,
            "42501 permission denied for table t"
        );
        // What is created is the creator's, and begins with the default privileges.
        assert_eq!(
            outcome(&ada, "CREATE TABLE own (id BIGINT PRIMARY KEY)").await,
            "ok"
        );
        assert_eq!(outcome(&bob, "SELECT * FROM own").await, "ok");
        assert_eq!(outcome(&root, "GRANT INSERT ON own TO bob").await, "ok");
        assert_eq!(
            outcome(&bob, "INSERT INTO own VALUES (1)").await,
            "25006 cannot execute INSERT in a read-only transaction"
        );
        assert_eq!(
            rows(&bob, "SHOW application_name").await.unwrap(),
            [["board"]]
        );
        assert_eq!(outcome(&ada, "SET ROLE team").await, "ok");
        assert_eq!(
            rows(&ada, "SELECT current_user, session_user")
                .await
                .unwrap(),
            [["team", "ada"]]
        );
        assert_eq!(
            outcome(
                &ada,
                "CREATE TABLE teams (id BIGINT PRIMARY KEY); RESET ROLE"
            )
            .await,
            "ok"
        );
        assert_eq!(outcome(&ada, "DROP TABLE teams").await, "ok");
        assert_eq!(outcome(&ada, "GRANT team TO bob").await, "ok");
        // A role that something hangs on stays.
        let told = root.simple_query("DROP USER ada").await.unwrap_err();
        let told = told.as_db_error().unwrap();
        assert_eq!(
            told.message(),
            "role \"ada\" cannot be dropped because some objects depend on it"
        );
        assert!(
            told.detail().unwrap().contains("owner of table own"),
            "{told:?}"
        );
        assert_eq!(
            outcome(
                &root,
                "REASSIGN OWNED BY ada TO team; DROP OWNED BY ada; DROP USER ada"
            )
            .await,
            "ok"
        );
        assert_eq!(
            outcome(&root, "DROP ROLE team").await,
            "2BP01 role \"team\" cannot be dropped because some objects depend on it"
        );
        assert!(
            outcome(&ada, "SELECT * FROM own")
                .await
                .starts_with("42501"),
            "a dropped role has nothing"
        );
        // All of it is there after a kill.
        drop((ada, bob));
        server.kill();
        server.restart();
        let root = super::root(&server).await;
        let owner = rows(&root, "SELECT tableowner, (SELECT relacl::text FROM pg_class WHERE relname = 'own') FROM pg_tables WHERE tablename = 'own'").await.unwrap();
        assert_eq!(owner[0][0], "team");
        assert!(owner[0][1].contains("bob=ar/team"), "{owner:?}");
        let oids = rows(
            &root,
            "SELECT oid = to_regrole('bob') FROM pg_roles WHERE rolname = 'bob'",
        )
        .await
        .unwrap();
        assert_eq!(oids, [["t"]]);
    });
}

#[test]
fn psql_shows_roles_and_privileges() {
    run(async {
        let server = server_with_users(WORLD).await;
        let root = root(&server).await;
        for sql in [
            "GRANT SELECT, INSERT ON t TO ada WITH GRANT OPTION; GRANT SELECT (a) ON s TO bob; GRANT team TO ada",
            "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO team",
            "ALTER ROLE bob SET statement_timeout = '5s'",
        ] {
            assert_eq!(outcome(&root, sql).await, "ok", "{sql}");
        }
        let (out, err) = psql(
            &url(&server, "tidemill", ""),
            &[("PGPASSWORD", ROOT)],
            "\\du\n\\dp\n\\z t\n\\ddp\n\\drds\n\\dn+\n\\l\n\\dg+ ada\n",
        );
        assert_eq!(err, "", "{out}");
        for expected in [
            " ada       |",
            "{team}",
            "Superuser, Create role, Create DB, Replication, Bypass RLS",
            "Cannot login",
            "tidemill=arwdDxt/tidemill+",
            "ada=a*r*/tidemill",
            "a:               +",
            "bob=r/tidemill",
            "team=r/tidemill",
            "statement_timeout=5s",
            "pg_database_owner=UC/pg_database_owner+",
        ] {
            assert!(out.contains(expected), "no {expected:?} in:\n{out}");
        }
        // As \password sends it.
        let (out, err) = psql(
            &url(&server, "ada", ""),
            &[("PGPASSWORD", "a")],
            "SHOW password_encryption;\n\\conninfo\n",
        );
        assert!(
            err.is_empty() && out.contains("scram-sha-256"),
            "{out}{err}"
        );
    });
}
