//! Statements in, enums out; errors with SQLSTATE and position.
use std::time::Duration;

use super::parse;
use crate::catalog::definition::{EmitMode, OnViolation, OptionValue, WatermarkDefinition};
use crate::sql::statement::*;
use crate::types::SqlType;

fn one(sql: &str) -> Statement {
    let mut all = parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    assert_eq!(all.len(), 1, "{sql}");
    all.remove(0).0
}

fn text(value: &str) -> Option<OptionValue> {
    Some(OptionValue::Text(value.into()))
}

#[test]
fn create_stream_with_everything() {
    let Statement::CreateStream(s) = one("CREATE OR REPLACE STREAM IF NOT EXISTS Clicks (
          user_id BIGINT NOT NULL, url TEXT, \"Amount\" DOUBLE PRECISION, event_timestamp TIMESTAMPTZ,
          kafka_offset BIGINT METADATA FROM 'offset', topic TEXT METADATA,
          price NUMERIC, tags bigint[], pos STRUCT<a int, b STRUCT<c text[]>>[],
          n NUMERIC(5) DEFAULT 1 + 1 NOT NULL,
          WATERMARK FOR event_timestamp AS event_timestamp - INTERVAL '1 hour',
          CONSTRAINT has_user EXPECT (user_id > 0 AND (url <> ')')) ON VIOLATION DROP ROW,
          CONSTRAINT other EXPECT (url IS NOT NULL)
        ) WITH (connector = 'kafka', brokers = 'localhost:9092', topic = 'events.clicks', format = 'json',
          startingOffsets = 'earliest', max_offsets_per_trigger = 100000, fail_on_data_loss = false,
          password = SECRET kafka_password, \"kafka.max.partition.fetch.bytes\" = 1048576)")
    else {
        panic!()
    };
    assert_eq!(s.name, "clicks");
    assert!(s.or_replace && s.if_not_exists);
    assert_eq!(s.connector.as_deref(), Some("kafka"));
    let types: Vec<String> = s.columns.iter().map(|c| c.sql_type.to_string()).collect();
    assert_eq!(
        types,
        [
            "bigint",
            "text",
            "double precision",
            "timestamp with time zone",
            "bigint",
            "text",
            "numeric(38,9)",
            "bigint[]",
            "struct<a integer, b struct<c text[]>>[]",
            "numeric(5,0)"
        ]
    );
    assert!(!s.columns[0].nullable && s.columns[1].nullable);
    assert_eq!(s.columns[2].name, "Amount");
    assert_eq!(s.columns[4].metadata_from.as_deref(), Some("offset"));
    assert_eq!(s.columns[5].metadata_from.as_deref(), Some("topic"));
    assert_eq!(s.columns[9].default.as_deref(), Some("1 + 1"));
    assert!(!s.columns[9].nullable);
    let watermark = s.watermark.unwrap();
    assert_eq!(
        (watermark.column.as_str(), watermark.delay_us),
        ("event_timestamp", 3_600_000_000)
    );
    assert_eq!(s.expectations[0].condition, "user_id > 0 AND (url <> ')')");
    assert_eq!(s.expectations[0].on_violation, OnViolation::DropRow);
    assert_eq!(s.expectations[1].on_violation, OnViolation::Keep);
    for (name, value) in [
        ("brokers", text("localhost:9092")),
        ("starting_offsets", text("earliest")),
        ("max_offsets_per_trigger", text("100000")),
        ("fail_on_data_loss", text("false")),
        (
            "password",
            Some(OptionValue::Secret("kafka_password".into())),
        ),
        ("kafka.max.partition.fetch.bytes", text("1048576")),
    ] {
        assert_eq!(s.options.get(name).cloned(), value, "{name}");
    }
}

#[test]
fn create_table() {
    let Statement::CreateTable(t) = one(
        "create table \"tidemill\".\"public\".\"T__tmp\" (id BIGINT PRIMARY KEY, name varchar(10), balance NUMERIC(18,2) DEFAULT 0)",
    ) else {
        panic!()
    };
    assert_eq!(t.name, "T__tmp");
    assert_eq!(t.primary_key, ["id"]);
    assert!(!t.columns[0].nullable);
    assert_eq!(t.columns[1].sql_type, SqlType::Text);
    let Statement::CreateTable(t) = one("CREATE TABLE t (a int, b int, PRIMARY KEY (b, a))") else {
        panic!()
    };
    assert_eq!(t.primary_key, ["b", "a"]);
    let Statement::CreateTable(t) = one("CREATE TABLE t AS (SELECT 1 AS a)") else {
        panic!()
    };
    assert!(t.query.is_some() && t.columns.is_empty());
}

#[test]
fn create_views_keep_their_text() {
    let sql = "CREATE MATERIALIZED VIEW IF NOT EXISTS v (a, \"B\") WITH (trigger = '10 seconds', pipeline = p) AS
 SELECT x, -- comment; with a semicolon
   count(*) FROM t /* why */ GROUP BY x   EMIT ON WINDOW CLOSE ;";
    let parsed = parse(sql).unwrap();
    assert_eq!(parsed[0].1, sql.trim_end_matches(" ;"));
    let Statement::CreateMaterializedView(v) = &parsed[0].0 else {
        panic!()
    };
    assert_eq!(
        v.query_text,
        "SELECT x, -- comment; with a semicolon\n   count(*) FROM t /* why */ GROUP BY x"
    );
    assert_eq!(v.emit, EmitMode::OnWindowClose);
    assert_eq!(v.column_names, ["a", "B"]);
    assert_eq!(v.options.get("pipeline").cloned(), text("p"));
    assert!(v.if_not_exists && !v.or_replace);

    let Statement::CreateMaterializedView(v) =
        one("CREATE OR REPLACE MATERIALIZED VIEW v AS SELECT * FROM t EMIT ON UPDATE")
    else {
        panic!()
    };
    assert_eq!(
        (v.query_text.as_str(), v.emit),
        ("SELECT * FROM t", EmitMode::OnUpdate)
    );
    let Statement::CreateView(v) = one("CREATE VIEW \"ü\" AS SELECT 'ß' AS x") else {
        panic!()
    };
    assert_eq!(
        (v.name.as_str(), v.query_text.as_str()),
        ("ü", "SELECT 'ß' AS x")
    );
}

#[test]
fn sinks_and_secrets() {
    let Statement::CreateSink(k) = one(
        "CREATE SINK k FROM v WITH (connector = 'files', path = '/out', format = 'parquet', mode = 'append')",
    ) else {
        panic!()
    };
    assert_eq!((k.from.as_str(), k.connector.as_str()), ("v", "files"));
    assert_eq!(k.options.get("location").cloned(), text("/out"));
    assert_eq!(
        one("CREATE SECRET s AS E'a\\nb'"),
        Statement::CreateSecret {
            name: "s".into(),
            value: "a\nb".into(),
            if_not_exists: false
        }
    );
    assert_eq!(
        one("ALTER SECRET s AS $x$it's$x$"),
        Statement::AlterSecret {
            name: "s".into(),
            value: "it's".into()
        }
    );
}

#[test]
fn drops_alters_comments() {
    assert_eq!(
        one("DROP MATERIALIZED VIEW IF EXISTS a, public.b CASCADE"),
        Statement::Drop {
            kind: ObjectKind::MaterializedView,
            names: vec!["a".into(), "b".into()],
            if_exists: true,
            cascade: true
        }
    );
    assert_eq!(
        one("ALTER PIPELINE p SET (trigger = '1 second', maxOffsetsPerTrigger = 5)"),
        Statement::AlterOptions {
            kind: ObjectKind::Pipeline,
            name: "p".into(),
            set: [
                ("trigger".to_owned(), text("1 second").unwrap()),
                ("max_offsets_per_trigger".to_owned(), text("5").unwrap())
            ]
            .into(),
            reset: vec![]
        }
    );
    assert_eq!(
        one("ALTER STREAM s RESET (startingOffsets, kafka.x)"),
        Statement::AlterOptions {
            kind: ObjectKind::Stream,
            name: "s".into(),
            set: Default::default(),
            reset: vec!["starting_offsets".into(), "kafka.x".into()]
        }
    );
    assert_eq!(
        one("alter table \"tidemill\".\"public\".\"t\" rename to \"t__dbt_backup\""),
        Statement::Rename {
            kind: ObjectKind::Table,
            name: "t".into(),
            new_name: "t__dbt_backup".into()
        }
    );
    assert_eq!(
        one("COMMENT ON COLUMN public.t.\"C\" IS $dbt$x$dbt$"),
        Statement::Comment {
            kind: ObjectKind::Table,
            name: "t".into(),
            column: Some("C".into()),
            comment: Some("x".into())
        }
    );
    assert_eq!(
        one("COMMENT ON STREAM s IS NULL"),
        Statement::Comment {
            kind: ObjectKind::Stream,
            name: "s".into(),
            column: None,
            comment: None
        }
    );
}

#[test]
fn alterations() {
    let name = || "a".to_owned();
    for (sql, expected) in [
        (
            "DROP a CASCADE",
            AlterAction::DropColumn {
                name: name(),
                if_exists: false,
                cascade: true,
            },
        ),
        (
            "DROP COLUMN IF EXISTS a",
            AlterAction::DropColumn {
                name: name(),
                if_exists: true,
                cascade: false,
            },
        ),
        (
            "RENAME a TO \"B\" FROM 'x'",
            AlterAction::RenameColumn {
                name: name(),
                new_name: "B".into(),
                sent_as: Some("x".into()),
            },
        ),
        (
            "ALTER a SET NOT NULL",
            AlterAction::SetNullable(name(), false),
        ),
        (
            "ALTER COLUMN a DROP NOT NULL",
            AlterAction::SetNullable(name(), true),
        ),
        (
            "ALTER a SET DEFAULT 1 + 2",
            AlterAction::SetDefault(name(), Some("1 + 2".into())),
        ),
        (
            "ALTER a DROP DEFAULT",
            AlterAction::SetDefault(name(), None),
        ),
        ("DROP WATERMARK", AlterAction::SetWatermark(None)),
        (
            "ALTER WATERMARK FOR a AS a - 5",
            AlterAction::SetWatermark(Some((
                WatermarkDefinition {
                    column: name(),
                    delay_us: 5,
                },
                DelayUnit::Number,
            ))),
        ),
        (
            "DROP CONSTRAINT a",
            AlterAction::DropConstraint {
                name: name(),
                if_exists: false,
            },
        ),
    ] {
        let statement = one(&format!("ALTER STREAM IF EXISTS s {sql}, DROP b"));
        let Statement::AlterRelation {
            kind: ObjectKind::Stream,
            if_exists: true,
            actions,
            ..
        } = statement
        else {
            panic!("{sql}: {statement:?}");
        };
        assert_eq!(actions.len(), 2, "{sql}");
        assert_eq!(actions[0], expected, "{sql}");
    }
    let Statement::AlterRelation { actions, .. } =
        one("ALTER TABLE t ADD IF NOT EXISTS c varchar(5) NOT NULL DEFAULT 'x'")
    else {
        panic!("an ALTER");
    };
    let AlterAction::AddColumn {
        column,
        if_not_exists: true,
    } = &actions[0]
    else {
        panic!("{actions:?}");
    };
    assert_eq!(column.type_name(), "character varying(5)");
    assert!(!column.nullable);
    assert_eq!(column.default.as_deref(), Some("'x'"));
}

#[test]
fn running() {
    let minute = Some(Duration::from_secs(60));
    for (sql, expected) in [
        ("START ALL", Statement::Start(None, None)),
        (
            "START PIPELINE p",
            Statement::Start(Some((ObjectKind::Pipeline, "p".into())), None),
        ),
        (
            "STOP MATERIALIZED VIEW v WITHIN INTERVAL '60 seconds'",
            Statement::Stop(Some((ObjectKind::MaterializedView, "v".into())), minute),
        ),
        ("STOP ALL", Statement::Stop(None, None)),
        (
            "REFRESH MATERIALIZED VIEW v",
            Statement::Refresh("v".into()),
        ),
        ("FLUSH", Statement::Flush),
        (
            "WAIT FOR v WITHIN INTERVAL '1' MINUTE",
            Statement::Wait("v".into(), minute),
        ),
        (
            "SUBSCRIBE TO v WITH (SNAPSHOT, PROGRESS = false) AFTER BATCH 7",
            Statement::Subscribe(Subscribe {
                name: "v".into(),
                snapshot: true,
                progress: false,
                after_batch: Some(7),
            }),
        ),
        (
            "EXPLAIN ANALYZE MATERIALIZED VIEW v",
            Statement::ExplainMaterializedView {
                name: "v".into(),
                analyze: true,
            },
        ),
        ("DESCRIBE TABLE t", Statement::Describe("t".into())),
        ("DESC t", Statement::Describe("t".into())),
        (
            "SHOW MATERIALIZED VIEWS",
            Statement::ShowObjects(ObjectKind::MaterializedView),
        ),
        ("SHOW STREAMS", Statement::ShowObjects(ObjectKind::Stream)),
        (
            "SHOW CREATE STREAM s",
            Statement::ShowCreate(ObjectKind::Stream, "s".into()),
        ),
        (
            "SHOW OPTIONS FOR MATERIALIZED VIEW",
            Statement::ShowOptions("materialized view".into()),
        ),
        (
            "SHOW OPTIONS FOR 'kafka'",
            Statement::ShowOptions("kafka".into()),
        ),
        ("ANALYZE VERBOSE t (a)", Statement::NoOperation("ANALYZE")),
        ("UNLISTEN *", Statement::NoOperation("UNLISTEN")),
        ("VACUUM", Statement::NoOperation("VACUUM")),
    ] {
        assert_eq!(one(sql), expected, "{sql}");
    }
    assert!(matches!(
        one("EXPLAIN (VERBOSE, FORMAT JSON) SELECT 1"),
        Statement::Explain(_)
    ));
    assert!(matches!(
        one("EXPLAIN ANALYZE SELECT 1"),
        Statement::Explain(_)
    ));
}

#[test]
fn parameters() {
    let set = |name: &str, value: Option<&str>, local: bool| Statement::SetParameter {
        name: name.into(),
        value: value.map(str::to_owned),
        local,
    };
    for (sql, expected) in [
        (
            "SET DateStyle = 'ISO'",
            set("datestyle", Some("ISO"), false),
        ),
        (
            "set extra_float_digits TO 3",
            set("extra_float_digits", Some("3"), false),
        ),
        (
            "SET LOCAL statement_timeout = '5s'",
            set("statement_timeout", Some("5s"), true),
        ),
        (
            "SET SESSION TIMEZONE TO 'Europe/Berlin'",
            set("timezone", Some("Europe/Berlin"), false),
        ),
        ("SET TIME ZONE DEFAULT", set("timezone", None, false)),
        ("SET TIME ZONE -3", set("timezone", Some("-3"), false)),
        (
            "SET search_path = a, \"B\"",
            set("search_path", Some("a, B"), false),
        ),
        (
            "SET NAMES 'UTF8'",
            set("client_encoding", Some("UTF8"), false),
        ),
        ("SET my.app TO on", set("my.app", Some("on"), false)),
        (
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
            set(
                "default_transaction_isolation",
                Some("read uncommitted"),
                false,
            ),
        ),
        (
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            set("default_transaction_read_only", Some("on"), false),
        ),
        (
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            set("transaction_isolation", Some("serializable"), true),
        ),
        (
            "SET SESSION AUTHORIZATION DEFAULT",
            set("session_authorization", None, false),
        ),
        (
            "SHOW TRANSACTION ISOLATION LEVEL",
            Statement::ShowParameter("transaction_isolation".into()),
        ),
        ("show timezone", Statement::ShowParameter("timezone".into())),
        (
            "SHOW TIME ZONE",
            Statement::ShowParameter("timezone".into()),
        ),
        ("SHOW ALL", Statement::ShowParameter("all".into())),
        ("RESET ALL", Statement::ResetParameter("all".into())),
        ("DISCARD ALL", Statement::Discard),
    ] {
        assert_eq!(one(sql), expected, "{sql}");
    }
}

#[test]
fn transactions() {
    for (sql, expected) in [
        ("BEGIN", Statement::Begin { read_only: false }),
        (
            "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
            Statement::Begin { read_only: true },
        ),
        (
            "START TRANSACTION READ WRITE NOT DEFERRABLE",
            Statement::Begin { read_only: false },
        ),
        ("COMMIT WORK", Statement::Commit { chain: false }),
        ("END AND CHAIN", Statement::Commit { chain: true }),
        (
            "ROLLBACK AND NO CHAIN",
            Statement::Rollback { chain: false },
        ),
        ("ABORT TRANSACTION", Statement::Rollback { chain: false }),
        ("SAVEPOINT \"S\"", Statement::Savepoint("S".into())),
        (
            "RELEASE SAVEPOINT s",
            Statement::ReleaseSavepoint("s".into()),
        ),
        ("ROLLBACK TO s", Statement::RollbackToSavepoint("s".into())),
        (
            "ROLLBACK TRANSACTION TO SAVEPOINT s",
            Statement::RollbackToSavepoint("s".into()),
        ),
    ] {
        assert_eq!(one(sql), expected, "{sql}");
    }
}

#[test]
fn prepared_statements_and_cursors() {
    let Statement::Prepare { name, statement } = one("PREPARE p (int, text[]) AS SELECT $1, $2")
    else {
        panic!()
    };
    assert_eq!(name, "p");
    assert!(matches!(*statement, Statement::Query(_)));
    let Statement::Execute { name, arguments } = one("EXECUTE \"P\"(1, 'a' || 'b')") else {
        panic!()
    };
    assert_eq!((name.as_str(), arguments.len()), ("P", 2));
    assert_eq!(one("DEALLOCATE ALL"), Statement::Deallocate(None));
    assert_eq!(
        one("DEALLOCATE PREPARE \"_PLAN0x1\""),
        Statement::Deallocate(Some("_PLAN0x1".into()))
    );
    let Statement::DeclareCursor { name, query, hold } =
        one("declare \"SQL_CUR0x1\" cursor with hold for select 1")
    else {
        panic!()
    };
    assert_eq!((name.as_str(), hold), ("SQL_CUR0x1", true));
    assert!(matches!(*query, Statement::Query(_)));
    let Statement::DeclareCursor { query, .. } =
        one("DECLARE c NO SCROLL CURSOR WITHOUT HOLD FOR SUBSCRIBE TO v")
    else {
        panic!()
    };
    assert!(matches!(*query, Statement::Subscribe(_)));
    for (sql, count) in [
        ("FETCH c", Some(1)),
        ("FETCH NEXT FROM c", Some(1)),
        ("FETCH FORWARD 10 FROM \"c\"", Some(10)),
        ("FETCH 5 IN c", Some(5)),
        ("FETCH ALL FROM c", None),
        ("FETCH FORWARD ALL c", None),
        ("FETCH FORWARD c", Some(1)),
    ] {
        assert_eq!(
            one(sql),
            Statement::Fetch {
                name: "c".into(),
                count
            },
            "{sql}"
        );
    }
    assert_eq!(
        one("FETCH next"),
        Statement::Fetch {
            name: "next".into(),
            count: Some(1)
        }
    );
    assert_eq!(
        one("MOVE 2 FROM c"),
        Statement::Move {
            name: "c".into(),
            count: Some(2)
        }
    );
    assert_eq!(one("CLOSE ALL"), Statement::CloseCursor(None));
}

#[test]
fn copy() {
    let copy = |sql: &str| match one(sql) {
        Statement::Copy(c) => c,
        other => panic!("{other:?}"),
    };
    let c = copy("COPY t (a, \"B\") FROM STDIN");
    assert_eq!(
        c.target,
        CopyTarget::Relation("t".into(), vec!["a".into(), "B".into()])
    );
    assert_eq!(
        (c.format, c.delimiter, c.null.as_str()),
        (CopyFormat::Text, b'\t', "\\N")
    );
    let c =
        copy("COPY t FROM STDIN WITH (FORMAT csv, HEADER, DELIMITER ';', NULL 'x', QUOTE '''')");
    assert_eq!(
        (c.format, c.header, c.delimiter),
        (CopyFormat::Csv, true, b';')
    );
    assert_eq!((c.null.as_str(), c.quote, c.escape), ("x", b'\'', b'\''));
    let c = copy("COPY t FROM STDIN DELIMITER AS ',' NULL '' CSV HEADER ESCAPE '\\'");
    assert_eq!(
        (c.format, c.header, c.escape),
        (CopyFormat::Csv, true, b'\\')
    );
    let c = copy("COPY (SELECT 1, (2)) TO STDOUT (FORMAT binary)");
    assert!(!c.from_stdin && c.format == CopyFormat::Binary);
    let c = copy("COPY BINARY t TO STDOUT");
    assert_eq!(c.format, CopyFormat::Binary);
    assert!(matches!(
        copy("COPY (SUBSCRIBE TO v) TO STDOUT").target,
        CopyTarget::Query(_)
    ));
}

#[test]
fn queries_and_changes() {
    for sql in [
        "SELECT 1",
        "(SELECT 1) UNION ALL SELECT 2",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "VALUES (1), (2)",
        "TABLE t",
        "SELECT a FROM TUMBLE((SELECT * FROM t), ts, INTERVAL '1 minute') AS w",
        "SELECT c.relname OPERATOR(pg_catalog.~) '^(x)$' COLLATE pg_catalog.default FROM c",
    ] {
        assert!(matches!(one(sql), Statement::Query(_)), "{sql}");
    }
    assert!(matches!(
        one(
            "INSERT INTO t (a) VALUES (1) ON CONFLICT (a) DO UPDATE SET b = excluded.b RETURNING *"
        ),
        Statement::Insert(_)
    ));
    assert!(matches!(
        one("UPDATE t SET a = 1 WHERE b RETURNING a"),
        Statement::Update(_)
    ));
    assert!(matches!(
        one("DELETE FROM t USING u WHERE t.a = u.a"),
        Statement::Delete(_)
    ));
    assert_eq!(
        one("TRUNCATE TABLE a, b RESTART IDENTITY CASCADE"),
        Statement::Truncate(vec!["a".into(), "b".into()])
    );
}

#[test]
fn many_statements() {
    let parsed = parse(";; SELECT ';' ; -- end;\n/* ; */ SELECT $$;$$;").unwrap();
    let texts: Vec<&str> = parsed.iter().map(|(_, t)| t.as_str()).collect();
    assert_eq!(texts, ["SELECT ';'", "SELECT $$;$$"]);
    assert!(parse(" -- nothing\n ;").unwrap().is_empty());
}

#[test]
fn errors_have_state_and_position() {
    for (sql, state, primary, position) in [
        ("SELEC 1", "42601", "syntax error at or near \"SELEC\"", 1),
        (
            "SELECT 1; SELECT FROM FROM t",
            "42601",
            "syntax error at or near \"FROM\"",
            23,
        ),
        ("SELECT (1", "42601", "syntax error at end of input", 10),
        (
            "SELECT 'ä' x y",
            "42601",
            "syntax error at or near \"y\"",
            14,
        ),
        (
            "SELECT 'abc",
            "42601",
            "unterminated quoted string at or near \"'abc\"",
            8,
        ),
        (
            "SELECT \"abc",
            "42601",
            "unterminated quoted identifier at or near \"\"abc\"",
            8,
        ),
        (
            "SELECT 1 /* x",
            "42601",
            "unterminated /* comment at or near \"/* x\"",
            10,
        ),
        (
            "CREATE STREAM s (a foo)",
            "42704",
            "type \"foo\" does not exist",
            20,
        ),
        (
            "CREATE TABLE t (a serial)",
            "42704",
            "type \"serial\" does not exist",
            19,
        ),
        (
            "CREATE STREAM s (a int) WITH (connector = 'files', locaton = '/x')",
            "42704",
            "option \"locaton\" does not exist",
            52,
        ),
        (
            "CREATE STREAM s (a int,)",
            "42601",
            "syntax error at or near \")\"",
            24,
        ),
        (
            "CREATE TABLE select (a int)",
            "42601",
            "syntax error at or near \"select\"",
            14,
        ),
        (
            "SELECT a FROM t EMIT ON UPDATE",
            "42601",
            "syntax error at or near \"EMIT\"",
            17,
        ),
        ("DROP TABLE x.y", "3F000", "schema \"x\" does not exist", 12),
        (
            "CREATE INDEX i ON t (a)",
            "0A000",
            "CREATE INDEX is not supported",
            8,
        ),
        (
            "COPY t FROM '/etc/passwd'",
            "0A000",
            "COPY FROM a file or program is not supported",
            13,
        ),
        (
            "CREATE STREAM s (a NUMERIC(50))",
            "22023",
            "NUMERIC precision 50 must be between 1 and 38",
            20,
        ),
        (
            "SELECT 1 WHERE",
            "42601",
            "syntax error at end of input",
            15,
        ),
        (
            "FETCH BACKWARD 1 FROM c",
            "55000",
            "cursor can only scan forward",
            7,
        ),
        ("DIAGNOSE v", "0A000", "DIAGNOSE is not supported", 1),
        ("SET x", "42601", "syntax error at end of input", 6),
        ("SHOW", "42601", "syntax error at end of input", 5),
    ] {
        let e = parse(sql).expect_err(sql);
        assert_eq!(
            (e.sqlstate(), e.primary(), e.position_value()),
            (state, primary, Some(position)),
            "{sql}"
        );
    }
    let hint = parse("COPY t FROM '/x'").unwrap_err();
    assert!(hint.hint_text().unwrap().contains("\\copy"));
}

#[test]
fn errors_of_definitions() {
    for (sql, state) in [
        ("CREATE STREAM s (a int PRIMARY KEY)", "42P17"),
        ("CREATE TABLE t (a int, a int)", "42701"),
        (
            "CREATE STREAM s (a bigint, WATERMARK FOR a AS a - INTERVAL '1 hour')",
            "42883",
        ),
        (
            "CREATE STREAM s (a timestamp, WATERMARK FOR a AS a - 7)",
            "42883",
        ),
        ("CREATE VIEW v AS DELETE FROM t", "42601"),
        ("ALTER TABLE t ALTER COLUMN a TYPE bigint", "0A000"),
        ("ALTER TABLE t ADD PRIMARY KEY (a)", "0A000"),
        ("ALTER TABLE t ADD COLUMN a int PRIMARY KEY", "0A000"),
        ("ALTER VIEW v ADD COLUMN a int", "0A000"),
        ("CREATE TABLE t (a varchar(0))", "22023"),
        ("CREATE TABLE t (a int, PRIMARY KEY (b))", "42703"),
        (
            "CREATE TABLE t (a int PRIMARY KEY, PRIMARY KEY (a))",
            "42P16",
        ),
        ("CREATE STREAM s (a int, WATERMARK FOR b AS b)", "42703"),
        ("CREATE STREAM s (a text, WATERMARK FOR a AS a)", "42804"),
        (
            "CREATE STREAM s (a timestamp, WATERMARK FOR a AS a + INTERVAL '1 s')",
            "42P17",
        ),
        (
            "CREATE STREAM s (a int) WITH (connector = 'kafak')",
            "42704",
        ),
        ("CREATE SINK k FROM v", "42P17"),
        (
            "CREATE STREAM s (a int) WITH (connector = 'files', location = 'a', path = 'b')",
            "42601",
        ),
        ("CREATE TABLE t (a int UNIQUE)", "0A000"),
        ("CREATE TABLE \"\" (a int)", "42601"),
        (
            "CREATE MATERIALIZED VIEW v WITH (triger = '1 s') AS SELECT 1",
            "42704",
        ),
        ("SELECT 1 INTO t", "0A000"),
    ] {
        assert_eq!(parse(sql).expect_err(sql).sqlstate(), state, "{sql}");
    }
}

#[test]
fn deep_nesting_is_an_error() {
    for sql in [
        format!("SELECT {}1{}", "(".repeat(5_000), ")".repeat(5_000)),
        format!("SELECT {}1", "1 + ".repeat(50_000)),
        format!("SELECT {}true", "NOT ".repeat(50_000)),
        format!("SELECT 1{}", " UNION SELECT 1".repeat(50_000)),
        format!("SELECT {}1", "- ".repeat(50_000)),
        format!("SELECT {}1 END", "CASE WHEN true THEN ".repeat(5_000)),
    ] {
        let e = parse(&sql).expect_err("too deep");
        assert_eq!(e.sqlstate(), "54000", "{}", &sql[..40]);
    }
    // A long list is no deep tree.
    let values = vec!["(1, 'x')"; 20_000].join(", ");
    assert!(parse(&format!("INSERT INTO t VALUES {values}")).is_ok());
    let nested = format!("SELECT {}1{}", "(".repeat(100), ")".repeat(100));
    assert!(parse(&nested).is_ok());
}

/// Whatever comes in: an answer or an error with a position inside the text, never a panic.
#[test]
fn random_texts_give_answers() {
    const WORDS: &[&str] = &[
        "SELECT",
        "CREATE",
        "STREAM",
        "TABLE",
        "MATERIALIZED VIEW",
        "v",
        "\"Q\"",
        "(",
        ")",
        ",",
        ";",
        "'x'",
        "'",
        "\"",
        "$$",
        "$1",
        "E'\\n'",
        "1",
        "2.5",
        "-",
        "=",
        "*",
        ".",
        "::",
        "int",
        "numeric(",
        "STRUCT<",
        ">>",
        "[",
        "]",
        "WITH",
        "AS",
        "FROM",
        "EMIT ON UPDATE",
        "EMIT",
        "WATERMARK FOR",
        "CONSTRAINT",
        "EXPECT",
        "COPY",
        "STDIN",
        "SET",
        "SHOW",
        "FETCH",
        "ALL",
        "NOT NULL",
        "DEFAULT",
        "INTERVAL '1 s'",
        "/*",
        "*/",
        "--",
        "\n",
        "ä",
        "TUMBLE(",
        "ALTER",
        "DROP",
        "IF EXISTS",
        "COMMENT ON",
        "SUBSCRIBE TO",
        "DECLARE c CURSOR FOR",
        "PREPARE p AS",
        "SECRET",
        "OPTIONS FOR",
        "NULL",
        "IS",
        "UNION",
    ];
    let mut seed = 42u64;
    for _ in 0..20_000 {
        let mut sql = String::new();
        let mut next = || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize
        };
        for _ in 0..next() % 12 {
            sql.push_str(WORDS[next() % WORDS.len()]);
            sql.push_str(if next() % 4 == 0 { "" } else { " " });
        }
        match parse(&sql) {
            Ok(statements) => {
                for (statement, text) in statements {
                    assert!(sql.contains(&text), "{sql}");
                    if let Statement::Query(query) = statement {
                        // Rewrites must answer too.
                        if let Err(e) = crate::sql::rewrite::rewrite_query(*query) {
                            assert!(!e.primary().is_empty());
                        }
                    }
                }
            }
            Err(e) => {
                assert!(e.sqlstate() != "XX000", "{sql}: {e}");
                if let Some(position) = e.position_value() {
                    assert!(
                        (1..=sql.chars().count() + 1).contains(&position),
                        "{sql}: {position}"
                    );
                }
            }
        }
    }
}
