//! CREATE.

use super::*;

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
fn create_function_in_its_forms() {
    use crate::catalog::function::{FunctionBody, FunctionResult, FunctionVolatility};
    use crate::types::SqlType;

    let Statement::CreateFunction(f) = one(
        "CREATE OR REPLACE FUNCTION F(IN a double precision, \"B\" text DEFAULT 'x', bigint = 1 + 1) \
         RETURNS TABLE (n int, \"T\" text[]) LANGUAGE 'sql' STABLE PARALLEL SAFE COST 5 STRICT AS $$ SELECT 1, ARRAY['a'] $$",
    ) else {
        panic!()
    };
    assert!(f.or_replace && f.is_strict);
    assert_eq!(f.name, "f");
    let parameters: Vec<_> = f
        .parameters
        .iter()
        .map(|p| (p.name.as_deref(), p.sql_type.clone(), p.default.as_deref()))
        .collect();
    assert_eq!(
        parameters,
        [
            (Some("a"), SqlType::Double, None),
            (Some("B"), SqlType::Text, Some("'x'")),
            (None, SqlType::BigInt, Some("1 + 1")),
        ]
    );
    assert_eq!(f.volatility, FunctionVolatility::Stable);
    assert_eq!(f.body, FunctionBody::Query(" SELECT 1, ARRAY['a'] ".into()));
    let FunctionResult::Table(columns) = f.result else {
        panic!()
    };
    assert_eq!(columns[1].name, "T");
    let Statement::CreateFunction(f) = one(
        "CREATE FUNCTION public.g(timestamp with time zone) RETURNS SETOF date LANGUAGE SQL AS 'SELECT $1::date'",
    ) else {
        panic!()
    };
    assert_eq!(f.parameters[0].sql_type, SqlType::TimestampTz);
    assert_eq!(f.result, FunctionResult::Set(SqlType::Date));
    assert_eq!(f.volatility, FunctionVolatility::Volatile);
    let Statement::DropFunction {
        functions,
        if_exists,
        cascade,
    } = one("DROP FUNCTION IF EXISTS f(a double precision, text), g CASCADE")
    else {
        panic!()
    };
    assert!(if_exists && cascade);
    assert_eq!(
        functions[0].types.as_deref(),
        Some([SqlType::Double, SqlType::Text].as_slice())
    );
    assert_eq!(functions[1].types, None);
}

#[test]
fn explain_of_a_replacement_holds_the_view() {
    let Statement::ExplainReplace(view) = one(
        "EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW v WITH (reset_state = true) AS SELECT 1 AS x EMIT ON WINDOW CLOSE",
    ) else {
        panic!()
    };
    assert_eq!(
        (view.name.as_str(), view.query_text.as_str()),
        ("v", "SELECT 1 AS x")
    );
    assert!(view.or_replace);
}

#[test]
fn create_index_in_its_forms() {
    let Statement::CreateIndex(i) = one(
        "CREATE INDEX CONCURRENTLY IF NOT EXISTS by_a ON public.v USING btree \
         (a, \"B\" DESC, c ASC NULLS FIRST, d DESC NULLS LAST) INCLUDE (e, f)",
    ) else {
        panic!()
    };
    assert_eq!(i.name.as_deref(), Some("by_a"));
    assert!(i.if_not_exists);
    assert_eq!(i.relation, "v");
    let columns: Vec<_> = i
        .columns
        .iter()
        .map(|c| (c.name.as_str(), c.descending, c.nulls_first))
        .collect();
    // As in PostgreSQL, NULL is larger than all values.
    let wanted = [
        ("a", false, false),
        ("B", true, true),
        ("c", false, true),
        ("d", true, false),
    ];
    assert_eq!(columns, wanted);
    assert_eq!(i.include, ["e", "f"]);
    let Statement::CreateIndex(i) = one("CREATE INDEX ON v (a)") else {
        panic!()
    };
    assert_eq!(i.name, None);
}

#[test]
fn create_aggregate_in_its_forms() {
    let Statement::CreateAggregate(a) = one(
        "CREATE OR REPLACE AGGREGATE f(double precision, weight INT) (SFUNC = g, STYPE = float8[], \
         SSPACE = 16, FINALFUNC = h, INITCOND = '{0,0}', PARALLEL = SAFE)",
    ) else {
        panic!()
    };
    assert_eq!(a.name, "f");
    assert!(a.or_replace);
    assert_eq!(a.parameters.len(), 2);
    assert_eq!(a.parameters[1].name.as_deref(), Some("weight"));
    assert_eq!(a.body.transition, "g");
    assert_eq!(a.body.state, SqlType::Array(Box::new(SqlType::Double)));
    assert_eq!(a.body.initial.as_deref(), Some("{0,0}"));
    assert_eq!(a.body.last.as_deref(), Some("h"));
    let Statement::DropAggregate {
        aggregates,
        if_exists,
        cascade,
    } = one("DROP AGGREGATE IF EXISTS f(int), g(text, text) CASCADE")
    else {
        panic!()
    };
    assert!(if_exists && cascade);
    assert_eq!(aggregates[1].types.as_ref().map(Vec::len), Some(2));
}

#[test]
fn temporary_tables() {
    use crate::catalog::temporary::OnCommit;

    for (sql, name, temporary) in [
        ("CREATE TABLE t (a INT)", "t", None),
        ("CREATE TABLE public.t (a INT)", "t", None),
        (
            "CREATE TEMP TABLE t (a INT)",
            "t",
            Some(OnCommit::PreserveRows),
        ),
        (
            "CREATE TABLE pg_temp.t (a INT)",
            "t",
            Some(OnCommit::PreserveRows),
        ),
        (
            "CREATE LOCAL TEMPORARY TABLE IF NOT EXISTS t (a INT) ON COMMIT DELETE ROWS",
            "t",
            Some(OnCommit::DeleteRows),
        ),
        (
            "CREATE TEMP TABLE t (a, b) ON COMMIT DROP AS SELECT 1, 2 WITH NO DATA",
            "t",
            Some(OnCommit::Drop),
        ),
    ] {
        let Statement::CreateTable(create) = one(sql) else {
            panic!("{sql}")
        };
        assert_eq!((create.name.as_str(), create.temporary), (name, temporary));
    }
    for sql in [
        "CREATE TEMP TABLE public.t (a INT)",
        "CREATE TABLE t (a INT) ON COMMIT DROP",
    ] {
        let error = crate::sql::parse(sql).unwrap_err();
        assert_eq!(error.sqlstate(), "42P16", "{sql}");
    }
}
