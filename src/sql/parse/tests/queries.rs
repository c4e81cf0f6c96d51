//! Queries, changes of rows, and COPY.

use super::*;

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
