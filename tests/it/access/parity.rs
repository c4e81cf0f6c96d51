//! The same roles and grants here and in a real PostgreSQL: the same lists and answers.

use super::*;
use crate::harness::{rows, run};
use crate::postgres::Postgres;

const COMMON: &str = "
    CREATE ROLE ada LOGIN; CREATE ROLE bob LOGIN NOINHERIT; CREATE ROLE team; CREATE ROLE \"odd name\";
    CREATE TABLE t (id BIGINT PRIMARY KEY, name TEXT, pay NUMERIC(10,2));
    CREATE TABLE u (a BIGINT);
    CREATE VIEW v AS SELECT id FROM t;
    GRANT team TO ada WITH ADMIN OPTION; GRANT team TO bob; GRANT pg_read_all_data TO team;
    GRANT SELECT, INSERT ON t TO ada WITH GRANT OPTION;
    GRANT UPDATE (name, pay), SELECT (id) ON t TO bob;
    GRANT ALL ON u TO PUBLIC; REVOKE DELETE, TRUNCATE ON u FROM PUBLIC;
    GRANT SELECT ON v TO \"odd name\" WITH GRANT OPTION;
    REVOKE INSERT ON u FROM tidemill;
    GRANT USAGE, CREATE ON SCHEMA public TO team;
    ALTER TABLE u OWNER TO team;
    ALTER DEFAULT PRIVILEGES FOR ROLE ada GRANT SELECT ON TABLES TO bob WITH GRANT OPTION;
    ALTER DEFAULT PRIVILEGES FOR ROLE ada IN SCHEMA public GRANT INSERT ON TABLES TO team;
    ALTER ROLE bob VALID UNTIL '2030-01-01 00:00:00+00' CONNECTION LIMIT 5 CREATEROLE;";

const QUESTIONS: &[&str] = &[
    "SELECT relname, array_to_string(relacl, ';') FROM pg_class WHERE relname IN ('t', 'u', 'v') ORDER BY 1",
    "SELECT attname, array_to_string(attacl, ';') FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0 AND attname <> 'xmin' ORDER BY attnum",
    "SELECT nspname, array_to_string(nspacl, ';'), pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'public'",
    "SELECT pg_get_userbyid(defaclrole), defaclnamespace <> 0, defaclobjtype, array_to_string(defaclacl, ';') FROM pg_default_acl ORDER BY 2",
    "SELECT rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolconnlimit, rolvaliduntil, rolreplication, rolbypassrls FROM pg_roles WHERE rolname NOT LIKE 'pg_%' ORDER BY 1",
    "SELECT rolname, oid FROM pg_roles WHERE rolname LIKE 'pg_%' ORDER BY 1",
    "SELECT pg_get_userbyid(roleid), pg_get_userbyid(member), admin_option FROM pg_auth_members ORDER BY 1, 2",
    "SELECT r.rolname, c.relname, has_table_privilege(r.oid, c.oid, 'SELECT'), has_table_privilege(r.oid, c.oid, 'INSERT'), has_table_privilege(r.oid, c.oid, 'UPDATE'), has_table_privilege(r.oid, c.oid, 'DELETE'), has_table_privilege(r.oid, c.oid, 'TRUNCATE'), has_table_privilege(r.oid, c.oid, 'SELECT WITH GRANT OPTION'), has_table_privilege(r.oid, c.oid, 'INSERT, DELETE'), has_any_column_privilege(r.oid, c.oid, 'UPDATE') FROM pg_roles r, pg_class c WHERE r.rolname IN ('ada', 'bob', 'team', 'odd name', 'tidemill', 'pg_monitor', 'pg_write_all_data') AND c.relname IN ('t', 'u', 'v', 'pg_class') OR r.rolname IN ('bob', 'tidemill') AND c.relname = 'pg_authid' ORDER BY 1, 2",
    "SELECT r.rolname, a.attname, has_column_privilege(r.rolname, 't', a.attname, 'SELECT'), has_column_privilege(r.oid, a.attrelid, a.attnum, 'UPDATE') FROM pg_roles r, pg_attribute a WHERE r.rolname IN ('ada', 'bob', 'team') AND a.attrelid = 't'::regclass AND a.attnum > 0 AND a.attname <> 'xmin' ORDER BY 1, 2",
    "SELECT r.rolname, has_schema_privilege(r.oid, 'public', 'CREATE'), has_schema_privilege(r.oid, 'pg_catalog', 'USAGE'), has_database_privilege(r.oid, current_database(), 'CONNECT'), has_database_privilege(r.oid, current_database(), 'CREATE') FROM pg_roles r ORDER BY 1",
    "SELECT r.rolname, o.rolname, pg_has_role(r.rolname, o.rolname, 'USAGE'), pg_has_role(r.oid, o.oid, 'MEMBER') FROM pg_roles r, pg_roles o ORDER BY 1, 2",
    "SELECT has_table_privilege('public', 'u', 'SELECT'), has_table_privilege('u', 'SELECT'), has_table_privilege(1, 'SELECT') IS NULL, has_table_privilege('ada', 1, 'SELECT') IS NULL",
    "SELECT grantor, grantee, table_name, privilege_type, is_grantable, with_hierarchy FROM information_schema.table_privileges WHERE table_schema = 'public' ORDER BY 1, 2, 3, 4",
    "SELECT grantor, grantee, table_name, privilege_type, is_grantable FROM information_schema.role_table_grants WHERE table_schema = 'public' ORDER BY 1, 2, 3, 4",
    "SELECT grantor, grantee, table_name, column_name, privilege_type, is_grantable FROM information_schema.column_privileges WHERE table_schema = 'public' ORDER BY 1, 2, 3, 4, 5",
    "SELECT role_name FROM information_schema.enabled_roles ORDER BY 1",
    "SELECT grantee, role_name, is_grantable FROM information_schema.applicable_roles ORDER BY 1, 2",
    "SELECT c.relname, x.grantor::regrole::text, x.grantee, x.privilege_type, x.is_grantable FROM pg_class c, LATERAL aclexplode(c.relacl) AS x WHERE c.relname IN ('t', 'v') AND x.grantee <> 0 AND x.grantor = 10 AND x.grantee = 10 ORDER BY 1, 4",
    "SELECT array_to_string(acldefault('r', 10), ';')",
];

/// Each fails, with the same SQLSTATE and words.
const MISTAKES: &[&str] = &[
    "SELECT has_table_privilege('nobody', 't', 'SELECT')",
    "SELECT has_table_privilege('nothing', 'SELECT')",
    "SELECT has_table_privilege('t', 'FLY')",
    "SELECT has_schema_privilege('nothing', 'USAGE')",
    "CREATE ROLE ada",
    "CREATE ROLE pg_x",
    "CREATE ROLE \"public\"",
    "DROP ROLE nobody",
    "DROP ROLE ada",
    "DROP ROLE pg_monitor",
    "GRANT ada TO ada",
    "GRANT bob TO team",
    "GRANT FLY ON t TO ada",
    "GRANT USAGE ON t TO ada",
    "GRANT SELECT ON nothing TO ada",
    "GRANT SELECT (nothing) ON t TO ada",
    "GRANT SELECT ON t TO nobody",
    "GRANT SELECT ON t TO PUBLIC WITH GRANT OPTION",
    "GRANT SELECT ON SCHEMA public TO ada",
    "REVOKE GRANT OPTION FOR SELECT ON v FROM nobody",
    "ALTER ROLE nobody LOGIN",
    "ALTER ROLE ada LOGIN NOLOGIN",
    "ALTER ROLE ada SET nothing = 1",
    "SET ROLE nobody",
    "SET SESSION AUTHORIZATION nobody",
    "ALTER TABLE t OWNER TO nobody",
];

async fn told(client: &Client, sql: &str) -> String {
    match rows(client, sql).await {
        Ok(rows) => rows
            .iter()
            .map(|row| row.join("|"))
            .collect::<Vec<_>>()
            .join("\n"),
        Err(error) => format!("{error:?}"),
    }
}

#[test]
fn lists_and_answers_are_those_of_postgres() {
    run(async {
        let Some(postgres) = Postgres::start("grants beside a PostgreSQL") else {
            return;
        };
        let theirs = postgres.connect().await;
        let server = Server::start();
        let ours = server.connect().await;
        for client in [&theirs, &ours] {
            for statement in COMMON.split(';').filter(|s| !s.trim().is_empty()) {
                client
                    .batch_execute(statement)
                    .await
                    .unwrap_or_else(|e| panic!("{statement}: {e:?}"));
            }
        }
        let mut differing = Vec::new();
        for sql in QUESTIONS {
            let (expected, got) = (told(&theirs, sql).await, told(&ours, sql).await);
            if expected != got {
                differing.push(format!(
                    "{sql}\n-- PostgreSQL:\n{expected}\n-- Tidemill:\n{got}\n"
                ));
            }
        }
        for sql in MISTAKES {
            let (expected, got) = (outcome(&theirs, sql).await, outcome(&ours, sql).await);
            if expected != got {
                differing.push(format!(
                    "{sql}\n-- PostgreSQL: {expected}\n-- Tidemill:   {got}\n"
                ));
            }
        }
        assert!(differing.is_empty(), "{}", differing.join("\n"));
    });
}
