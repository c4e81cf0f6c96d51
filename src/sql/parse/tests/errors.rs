//! Texts that are refused: SQLSTATE and position.

use super::*;

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
            "CREATE TRIGGER i ON t",
            "0A000",
            "CREATE TRIGGER is not supported",
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
            "FETCH RELATIVE FROM c",
            "42601",
            "syntax error at or near \"FROM\"",
            16,
        ),
        (
            "REPLAY DEAD LETTERS",
            "42601",
            "syntax error at end of input",
            20,
        ),
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
        ("ALTER TABLE t ALTER COLUMN a TYPE", "42601"),
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
