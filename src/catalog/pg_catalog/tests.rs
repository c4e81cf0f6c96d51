//! The catalog through the engine's planner: what psql and drivers ask, in plain SQL.

use std::collections::BTreeMap;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::{SessionConfig, SessionContext};
use parking_lot::Mutex;

use super::backends::Backends;
use super::notifications::Outbox;
use super::*;
use crate::catalog::definition::{
    CatalogObject, ColumnDefinition, Definition, EmitMode, MaterializedViewDefinition,
    SinkDefinition, StreamDefinition, TableDefinition, ViewDefinition,
};
use crate::clock::ManualClock;
use crate::types::SqlType;

#[derive(Debug)]
struct Objects(Vec<Arc<CatalogObject>>);

impl ObjectModel for Objects {
    fn objects(&self) -> Vec<Arc<CatalogObject>> {
        self.0.clone()
    }

    fn version(&self) -> u64 {
        40
    }

    fn size_bytes(&self, oid: u32) -> Option<u64> {
        (oid == 16_385).then_some(20_480)
    }
}

#[derive(Debug, Default)]
struct Settings(Mutex<BTreeMap<String, String>>);

impl Parameters for Settings {
    fn get(&self, name: &str) -> Option<String> {
        self.0.lock().get(name).cloned()
    }

    fn set(&self, name: &str, value: Option<&str>, _is_local: bool) -> Result<String> {
        let value = value.unwrap_or_default().to_owned();
        self.0.lock().insert(name.to_owned(), value.clone());
        Ok(value)
    }

    fn all(&self) -> Vec<Parameter> {
        Vec::new()
    }

    fn duration(&self, _: &str) -> Option<std::time::Duration> {
        None
    }
}

fn column(name: &str, sql_type: SqlType, nullable: bool) -> ColumnDefinition {
    ColumnDefinition {
        name: name.to_owned(),
        sql_type,
        nullable,
        default: None,
        metadata_from: None,
        comment: None,
        text_type: None,
    }
}

fn object(name: &str, oid: u32, definition: Definition) -> Arc<CatalogObject> {
    Arc::new(CatalogObject {
        name: name.to_owned(),
        oid,
        created_at_us: 0,
        comment: (name == "accounts").then(|| "who owes what".to_owned()),
        kept_as: None,
        renamed: Default::default(),
        definition,
    })
}

fn objects() -> Vec<Arc<CatalogObject>> {
    let balance = SqlType::Numeric {
        precision: 18,
        scale: 2,
    };
    let columns = vec![
        ColumnDefinition {
            comment: Some("the number".to_owned()),
            ..column("id", SqlType::BigInt, false)
        },
        ColumnDefinition {
            default: Some("'x'".to_owned()),
            ..column("Name", SqlType::Text, true)
        },
        column("balance", balance, true),
        column("tags", SqlType::Array(Box::new(SqlType::Text)), true),
    ];
    let table = Definition::Table(TableDefinition {
        columns: columns.clone(),
        primary_key: vec!["id".to_owned(), "Name".to_owned()],
        options: BTreeMap::new(),
        shape: Default::default(),
        on_commit: Default::default(),
    });
    let stream = Definition::Stream(StreamDefinition {
        columns: vec![column("at", SqlType::TimestampTz, true)],
        watermark: None,
        expectations: Vec::new(),
        connector: Some("kafka".to_owned()),
        options: BTreeMap::new(),
        shape: Default::default(),
    });
    let view = Definition::MaterializedView(MaterializedViewDefinition {
        query: "SELECT id FROM accounts;".to_owned(),
        columns: vec![column("id", SqlType::BigInt, true)],
        emit: EmitMode::OnUpdate,
        pipeline: "totals".to_owned(),
        options: BTreeMap::new(),
        depends_on: vec!["accounts".to_owned()],
        versions: Default::default(),
        functions: Vec::new(),
    });
    let plain = Definition::View(ViewDefinition {
        query: "SELECT 1 AS one".to_owned(),
        columns: vec![column("one", SqlType::Integer, true)],
        depends_on: Vec::new(),
        versions: Default::default(),
        functions: Vec::new(),
    });
    let sink = Definition::Sink(SinkDefinition {
        from: "totals".to_owned(),
        pipeline: "totals".to_owned(),
        connector: "console".to_owned(),
        options: BTreeMap::new(),
        versions: Default::default(),
    });
    vec![
        object("accounts", 16_385, table),
        object("clicks", 16_386, stream),
        object("totals", 16_387, view),
        object("Odd view", 16_388, plain),
        object("out", 16_389, sink),
    ]
}

fn context() -> SessionContext {
    let config = SessionConfig::new()
        .with_default_catalog_and_schema(DATABASE_NAME, PUBLIC_SCHEMA)
        .with_information_schema(false);
    let context = SessionContext::new_with_config(config);
    let clock = ManualClock::at(1_000_000);
    let backends = Backends::new(clock.clone());
    let backend = backends.register("ada");
    backend.statement_started("select now");
    let facts = SessionFacts {
        user: "ada".to_owned(),
        backend,
        backends,
        outbox: Outbox::default(),
        parameters: Arc::new(Settings::default()),
        clock,
        started_at_us: 0,
    };
    register(&context, Arc::new(Objects(objects())), facts).unwrap();
    context
}

async fn run(sql: &str) -> Vec<RecordBatch> {
    let context = context();
    let frame = context
        .sql(sql)
        .await
        .unwrap_or_else(|e| panic!("{sql}\n{e}"));
    frame
        .collect()
        .await
        .unwrap_or_else(|e| panic!("{sql}\n{e}"))
}

/// Rows as `a|b`, NULL as `~`.
async fn rows(sql: &str) -> Vec<String> {
    let batches = run(sql).await;
    let options = datafusion::arrow::util::display::FormatOptions::default().with_null("~");
    let mut lines = Vec::new();
    for batch in &batches {
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|c| {
                datafusion::arrow::util::display::ArrayFormatter::try_new(c, &options).unwrap()
            })
            .collect();
        for row in 0..batch.num_rows() {
            let values: Vec<String> = columns.iter().map(|c| c.value(row).to_string()).collect();
            lines.push(values.join("|"));
        }
    }
    assert!(pretty_format_batches(&batches).is_ok());
    lines
}

async fn value(sql: &str) -> String {
    rows(sql).await.join("\n")
}

#[tokio::test]
async fn relations_are_listed_by_kind() {
    let listed = rows(
        "SELECT n.nspname, c.relname, c.relkind, pg_get_userbyid(c.relowner)
         FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         LEFT JOIN pg_catalog.pg_am am ON am.oid = c.relam
         WHERE n.nspname <> 'pg_catalog' AND n.nspname !~ '^pg_toast'
           AND n.nspname <> 'information_schema' AND pg_table_is_visible(c.oid) ORDER BY 1, 2",
    )
    .await;
    assert_eq!(
        listed,
        [
            "public|Odd view|v|ada",
            "public|accounts|r|ada",
            "public|accounts_pkey|i|ada",
            "public|clicks|f|ada",
            "public|totals|m|ada",
        ]
    );
}

#[tokio::test]
async fn describing_a_table_as_psql_does() {
    assert_eq!(
        rows(
            "SELECT c.relchecks, c.relkind, c.relhasindex, c.relhasrules, c.relpersistence,
                    c.relreplident, am.amname, c.reloptions, c.relpartbound
             FROM pg_catalog.pg_class c
             LEFT JOIN pg_catalog.pg_class tc ON (c.reltoastrelid = tc.oid)
             LEFT JOIN pg_catalog.pg_am am ON (c.relam = am.oid) WHERE c.oid = '16385'"
        )
        .await,
        ["0|r|true|false|p|d|heap|~|~"]
    );
    assert_eq!(
        rows(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
                    a.attgenerated, col_description(a.attrelid, a.attnum)
             FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = '16385' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"
        )
        .await,
        [
            "id|bigint|true|||the number",
            "Name|text|false|||~",
            "balance|numeric(18,2)|false|||~",
            "tags|text[]|false|||~",
        ]
    );
    assert_eq!(
        rows(
            "SELECT c2.relname, i.indisprimary, i.indisunique, pg_get_indexdef(i.indexrelid, 0, true),
                    pg_get_constraintdef(con.oid, true), contype, condeferrable
             FROM pg_catalog.pg_class c, pg_catalog.pg_class c2, pg_catalog.pg_index i
             LEFT JOIN pg_catalog.pg_constraint con
               ON (conrelid = i.indrelid AND conindid = i.indexrelid AND contype IN ('p','u','x'))
             WHERE c.oid = '16385' AND c.oid = i.indrelid AND i.indexrelid = c2.oid"
        )
        .await,
        ["accounts_pkey|true|true|CREATE UNIQUE INDEX accounts_pkey ON accounts USING btree (id, \"Name\")|PRIMARY KEY (id, \"Name\")|p|false"]
    );
    assert_eq!(
        rows("SELECT adnum, pg_get_expr(adbin, adrelid) FROM pg_catalog.pg_attrdef").await,
        ["2|'x'"]
    );
    assert_eq!(
        value("SELECT indkey FROM pg_catalog.pg_index").await,
        "[1, 2]"
    );
}

#[tokio::test]
async fn names_and_numbers() {
    for (expression, expected) in [
        ("to_regclass_oid('public.accounts')", "16385"),
        ("to_regclass_oid('\"Odd view\"')", "16388"),
        ("to_regclass_oid('16999')", "16999"),
        ("to_regclass_oid('pg_class')", "1259"),
        ("to_regclass('nothing')", "~"),
        ("oid_to_regclass_text(16388)", "\"Odd view\""),
        ("oid_to_regclass_text(99)", "99"),
        ("oid_to_regclass_text(0)", "-"),
        ("to_regtype_oid('double precision')", "701"),
        ("to_regtype_oid('int8[]')", "1016"),
        ("to_regtype_oid('numeric(5,2)')", "1700"),
        ("to_regtype_oid('timestamp(3) with time zone')", "1184"),
        ("oid_to_regtype_text(1016)", "bigint[]"),
        ("oid_to_regtype_text(0)", "-"),
        ("format_type(1700, NULL)", "numeric"),
        ("format_type(1700, 1179650 + 4)", "numeric(18,2)"),
        ("format_type(NULL, 5)", "~"),
        (
            "to_regproc_oid('array_in(cstring,oid,integer)')",
            "array_in",
        ),
        ("quote_ident('select')", "\"select\""),
        ("quote_ident('a_1')", "a_1"),
        ("quote_literal('it''s')", "'it''s'"),
        ("parse_ident('a.\"B c\"')", "[a, B c]"),
        ("obj_description(16385, 'pg_class')", "who owes what"),
        ("pg_get_viewdef(16387, true)", " SELECT id FROM accounts;"),
        ("pg_table_size('accounts')", "20480"),
        ("pg_size_pretty(pg_total_relation_size(16385))", "20 kB"),
        ("has_table_privilege('ada', 'accounts', 'SELECT')", "true"),
        ("current_schemas(true)", "[pg_catalog, public]"),
        ("current_database()", "tidemill"),
        ("pg_backend_pid()", "1000"),
        ("set_config('a.b', 'c', false)", "c"),
        ("pg_typeof(1.5::double)", "double precision"),
        ("pg_encoding_to_char(6)", "UTF8"),
        ("array_upper(make_array(5, 6), 1)", "2"),
        ("pg_terminate_backend(1)", "false"),
        ("pg_sleep(0)", ""),
    ] {
        assert_eq!(
            value(&format!("SELECT {expression}")).await,
            expected,
            "{expression}"
        );
    }
    assert!(
        value("SELECT version()")
            .await
            .starts_with("PostgreSQL 15.0 on ")
    );
}

#[tokio::test]
async fn missing_objects_are_errors_with_their_sqlstate() {
    for (expression, code) in [
        ("to_regclass_oid('nothing')", "42P01"),
        ("to_regtype_oid('nothing')", "42704"),
        ("to_regnamespace_oid('nothing')", "3F000"),
        ("current_setting('nothing')", "42704"),
    ] {
        let sql = format!("SELECT {expression}");
        let error = match context().sql(&sql).await {
            Ok(frame) => frame.collect().await.unwrap_err(),
            Err(error) => error,
        };
        let found = error.find_root();
        let datafusion::error::DataFusionError::External(inner) = found else {
            panic!("{found:?}");
        };
        let error = inner.downcast_ref::<crate::error::Error>().unwrap();
        assert_eq!(error.sqlstate(), code);
    }
}

#[tokio::test]
async fn information_schema_speaks_postgres_types() {
    assert_eq!(
        rows(
            "SELECT column_name, ordinal_position, is_nullable, data_type, udt_name,
                    numeric_precision, numeric_scale
             FROM information_schema.columns
             WHERE table_schema = 'public' AND table_name = 'accounts' ORDER BY ordinal_position"
        )
        .await,
        [
            "id|1|NO|bigint|int8|64|0",
            "Name|2|YES|text|text|~|~",
            "balance|3|YES|numeric|numeric|18|2",
            "tags|4|YES|ARRAY|_text|~|~",
        ]
    );
    assert_eq!(
        rows(
            "SELECT table_name, table_type, is_insertable_into FROM information_schema.tables
             WHERE table_schema = 'public' ORDER BY table_name"
        )
        .await,
        [
            "Odd view|VIEW|NO",
            "accounts|BASE TABLE|YES",
            "clicks|FOREIGN|NO",
            "totals|VIEW|NO",
        ]
    );
    assert_eq!(
        rows(
            "SELECT k.column_name, k.ordinal_position FROM information_schema.table_constraints t
             JOIN information_schema.key_column_usage k ON t.constraint_name = k.constraint_name
             WHERE t.constraint_type = 'PRIMARY KEY' ORDER BY 2"
        )
        .await,
        ["id|1", "Name|2"]
    );
}

#[tokio::test]
async fn drivers_find_types_roles_and_the_database() {
    assert_eq!(
        value(
            "SELECT t.typname, t.typtype, t.typelem, r.rngsubtype, t.typbasetype, n.nspname
             FROM pg_catalog.pg_type t
             LEFT OUTER JOIN pg_catalog.pg_range r ON r.rngtypid = t.oid
             INNER JOIN pg_catalog.pg_namespace n ON t.typnamespace = n.oid WHERE t.oid = 3904"
        )
        .await,
        "int4range|r|0|23|0|pg_catalog"
    );
    assert_eq!(
        value("SELECT datname, pg_encoding_to_char(encoding), datallowconn FROM pg_catalog.pg_database").await,
        "tidemill|UTF8|true"
    );
    assert_eq!(
        value("SELECT rolname, rolsuper, xmin FROM pg_catalog.pg_authid WHERE oid = 10").await,
        "ada|true|1"
    );
    assert_eq!(
        value("SELECT pid, usename, state, query FROM pg_catalog.pg_stat_activity").await,
        "1000|ada|active|select now"
    );
    assert_eq!(
        rows(
            "SELECT DISTINCT c.relname FROM pg_catalog.pg_depend d
             JOIN pg_catalog.pg_rewrite w ON d.objid = w.oid
             JOIN pg_catalog.pg_class c ON d.refobjid = c.oid
             WHERE w.ev_class = 16387 AND d.deptype = 'n'"
        )
        .await,
        ["accounts"]
    );
}

#[tokio::test]
async fn correlated_subqueries_over_the_catalog_run_row_by_row() {
    assert_eq!(
        rows(
            "SELECT a.attname,
                    (SELECT pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d
                     WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef),
                    (SELECT c.collname FROM pg_catalog.pg_collation c, pg_catalog.pg_type t
                     WHERE c.oid = a.attcollation AND t.oid = a.atttypid
                       AND a.attcollation <> t.typcollation) AS attcollation
             FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = '16385' AND a.attnum > 0 ORDER BY a.attnum"
        )
        .await,
        ["id|~|~", "Name|'x'|~", "balance|~|~", "tags|~|~"]
    );
    assert_eq!(
        rows(
            "SELECT n.nspname FROM pg_catalog.pg_namespace n
             WHERE 'm' = (SELECT c.relkind FROM pg_catalog.pg_class c
                          WHERE c.relnamespace = n.oid AND c.relname = 'totals')"
        )
        .await,
        ["public"]
    );
    assert_eq!(
        rows(
            "SELECT r.rolname, (SELECT array_agg(e.element) FROM (
                 SELECT b.rolname FROM pg_catalog.pg_auth_members m
                 JOIN pg_catalog.pg_roles b ON m.roleid = b.oid WHERE m.member = r.oid) e(element))
             FROM pg_catalog.pg_roles r WHERE r.oid = 10"
        )
        .await,
        ["ada|~"]
    );
    let context = context();
    let frame = context
        .sql(
            "SELECT (SELECT c.relname FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid)
             FROM pg_catalog.pg_namespace n",
        )
        .await
        .unwrap();
    let error = frame.collect().await.unwrap_err();
    assert!(error.to_string().contains("21000"), "{error}");
}

#[test]
fn subqueries_over_empty_relations_are_replaced() {
    use datafusion::sql::sqlparser::{dialect::PostgreSqlDialect, parser::Parser};
    let rewritten = |sql: &str| {
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
        without_unreachable(&mut statements[0]);
        statements[0].to_string()
    };
    for (sql, expected) in [
        (
            "SELECT array_to_string(ARRAY(SELECT 1), ',') FROM pg_catalog.pg_policy p",
            "SELECT NULL::TEXT FROM pg_catalog.pg_policy p",
        ),
        (
            "SELECT CASE WHEN a THEN (SELECT 1) ELSE b END FROM pg_class c JOIN pg_trigger t ON x",
            "SELECT NULL::TEXT FROM pg_class c JOIN pg_trigger t ON x",
        ),
    ] {
        assert_eq!(rewritten(sql), expected);
    }
    assert_eq!(
        rewritten("SELECT x FROM pg_catalog.unnest(a) x"),
        "SELECT x FROM UNNEST(a) x (x)"
    );
    for kept in [
        "SELECT (SELECT 1) FROM pg_class c",
        "SELECT (SELECT 1) FROM pg_class c LEFT JOIN pg_trigger t ON x",
        "SELECT count((SELECT 1)) FROM pg_trigger",
        "SELECT (SELECT 1) FROM mine.pg_trigger",
    ] {
        assert_eq!(rewritten(kept), kept);
    }
}

#[test]
fn what_is_called_empty_is_empty() {
    let clock = ManualClock::at(1);
    let backends = Backends::new(clock.clone());
    let facts = SessionFacts {
        user: "ada".to_owned(),
        backend: backends.register("ada"),
        backends,
        outbox: Outbox::default(),
        parameters: Arc::new(Settings::default()),
        clock,
        started_at_us: 0,
    };
    let catalog = model::Catalog::new(Arc::new(Objects(objects())), facts);
    for specification in catalog.system_relations {
        let rows = rows::rows(&catalog, &specification.name);
        let told = unreachable::TOLD.contains(&specification.name.as_str());
        assert!(told || rows.is_empty(), "{}", specification.name);
    }
}

#[tokio::test]
async fn every_relation_can_be_read() {
    let context = context();
    let catalog = context.catalog(DATABASE_NAME).unwrap();
    for schema in ["pg_catalog", "information_schema"] {
        let names = catalog.schema(schema).unwrap().table_names();
        assert!(names.len() > 20);
        for name in names {
            let sql = format!("SELECT * FROM {schema}.\"{name}\"");
            let frame = context.sql(&sql).await.unwrap();
            let schema = Arc::new(frame.schema().as_arrow().clone());
            crate::values::types::WireType::of_schema(&schema)
                .unwrap_or_else(|e| panic!("{name}: {e}"));
            frame
                .collect()
                .await
                .unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }
}
