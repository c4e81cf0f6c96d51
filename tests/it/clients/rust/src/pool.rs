//! sqlx.

use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, NaiveDate, Utc};
use futures_util::{StreamExt, TryStreamExt};
use serde_json::{Value, json};
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgListener, PgPoolOptions, PgRow};
use sqlx::{Column, Connection, Executor, PgPool, Row, Statement, TypeInfo};
use uuid::Uuid;

use crate::{check, show};

type Sale = (i64, String, Option<f64>, Vec<String>, Option<Value>, DateTime<Utc>);

pub async fn session(url: &str) {
    let pool = PgPoolOptions::new().max_connections(3).connect(url).await.expect("connects");
    rows(&pool).await;
    transactions(&pool).await;
    described(&pool).await;
    copied(&pool).await;
    listened(&pool).await;
    migrated(&pool).await;
    check("gone", pool.execute("drop table sales; drop table migrated; drop table _sqlx_migrations").await.map(|_| ()));
    pool.close().await;
}

async fn rows(pool: &PgPool) {
    let create = "create table sales (id bigint primary key, customer text not null, amount double precision, \
        tags text[] not null, doc jsonb, at timestamptz not null, day date, u uuid)";
    check("create", pool.execute(create).await.map(|done| done.rows_affected()));
    let at = DateTime::<Utc>::from_timestamp(1_700_000_000, 123_456_000).expect("a time");
    for id in 1..=3i64 {
        let done = sqlx::query("insert into sales values ($1, $2, $3, $4, $5, $6, $7, $8)")
            .bind(id)
            .bind(["Ada", "Bob"][id as usize % 2])
            .bind((id != 2).then_some(id as f64 * 1.5))
            .bind(vec![format!("t{id}"), "x".to_owned()])
            .bind((id != 3).then(|| json!({"n": id})))
            .bind(at)
            .bind(NaiveDate::from_ymd_opt(2024, 1, id as u32))
            .bind(Uuid::from_u128(id as u128))
            .execute(pool)
            .await;
        check("insert", done.map(|done| done.rows_affected()));
    }
    let all: Result<Vec<Sale>, _> =
        sqlx::query_as("select id, customer, amount, tags, doc, at from sales order by id").fetch_all(pool).await;
    check("all", all);
    let ids = sqlx::query_scalar::<_, i64>("select id from sales where customer = any($1) and at > $2 order by id")
        .bind(vec!["Ada", "Cyd"])
        .bind(at - Duration::from_secs(1))
        .fetch_all(pool)
        .await;
    check("ids", ids);
    let mut stream = sqlx::query("select day, u from sales order by id desc").fetch(pool);
    while let Some(row) = stream.try_next().await.expect("a row") {
        show("streamed", (row.get::<NaiveDate, _>("day"), row.get::<Uuid, _>("u")));
    }
    drop(stream);
    let optional = sqlx::query("select 1 from sales where id = $1").bind(99i64).fetch_optional(pool).await;
    check("none", optional.map(|row| row.is_none()));
    let many: Vec<_> = sqlx::raw_sql("update sales set amount = 0 where id = 2; select count(*) from sales")
        .fetch_many(pool)
        .map(|part| part.map(|part| part.either(|done| done.rows_affected() as i64, |row: PgRow| row.get(0))))
        .try_collect()
        .await
        .expect("both");
    show("many", many);
    let duplicate = sqlx::query("insert into sales select * from sales where id = 1").execute(pool).await;
    let error = duplicate.expect_err("a duplicate");
    let known = error.as_database_error().expect("of the server");
    show("duplicate", (known.is_unique_violation(), known.constraint(), known.table()));
}

async fn transactions(pool: &PgPool) {
    let mut outer = pool.begin().await.expect("begun");
    check("outer", sqlx::query("delete from sales where id = 3").execute(&mut *outer).await.map(|d| d.rows_affected()));
    let mut inner = outer.begin().await.expect("a savepoint");
    check("inner", sqlx::query("delete from sales").execute(&mut *inner).await.map(|d| d.rows_affected()));
    check("inner ends", inner.rollback().await);
    check("committed", outer.commit().await);
    let mut dropped = pool.begin().await.expect("begun");
    check("dropped", sqlx::query("delete from sales").execute(&mut *dropped).await.map(|d| d.rows_affected()));
    drop(dropped);
    check("left", sqlx::query_scalar::<_, i64>("select count(*) from sales").fetch_one(pool).await);
    let mut connection = pool.acquire().await.expect("one");
    check("temp", connection.execute("create temp table scratch on commit preserve rows as select id from sales").await.map(|d| d.rows_affected()));
    check("scratch", sqlx::query_scalar::<_, i64>("select count(*) from scratch").fetch_one(&mut *connection).await);
    check("ping", connection.ping().await);
}

/// What `query!` asks at compile time.
async fn described(pool: &PgPool) {
    let prepared = pool.prepare("select id, customer, amount + $1 as more, $2::date from sales where tags = $3").await;
    let prepared = prepared.expect("prepared");
    let columns: Vec<_> = prepared.columns().iter().map(|c| (c.name().to_owned(), c.type_info().name().to_owned())).collect();
    show("columns", columns);
    show("parameters", prepared.parameters().map(|p| p.map_left(|types| types.iter().map(|t| t.name().to_owned()).collect::<Vec<_>>())));
    let told = pool.describe("select id, customer, doc from sales where id = $1").await;
    let told = told.expect("described");
    let nullable: Vec<_> = (0..3).map(|column| told.nullable(column)).collect();
    show("nullable", nullable);
}

async fn copied(pool: &PgPool) {
    let mut connection = pool.acquire().await.expect("one");
    let mut copy = connection.copy_in_raw("copy sales (id, customer, tags, at) from stdin (format csv)").await.expect("begun");
    copy.send(&b"10,Eve,\"{a,b}\",2024-01-01 00:00:00+00\n"[..]).await.expect("sent");
    check("copied", copy.finish().await);
    let mut out = connection.copy_out_raw("copy (select id, customer, tags from sales order by id) to stdout").await.expect("begun");
    let mut bytes = Vec::new();
    while let Some(part) = out.try_next().await.expect("bytes") {
        bytes.extend_from_slice(&part);
    }
    show("out", String::from_utf8_lossy(&bytes));
}

async fn listened(pool: &PgPool) {
    let mut listener = PgListener::connect_with(pool).await.expect("connects");
    check("listens", listener.listen_all(["one", "Two"]).await);
    check("says", sqlx::query("select pg_notify($1, $2)").bind("Two").bind("payload").execute(pool).await.map(|_| ()));
    let heard = tokio::time::timeout(Duration::from_secs(10), listener.recv()).await.expect("in time");
    check("heard", heard.map(|news| (news.channel().to_owned(), news.payload().to_owned())));
    check("unlistens", listener.unlisten_all().await);
}

async fn migrated(pool: &PgPool) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let migrator = Migrator::new(folder).await.expect("migrations");
    for round in ["first", "again"] {
        show(round, migrator.run(pool).await.map_err(|e| e.to_string()));
    }
    check("what", sqlx::query_as::<_, (i64, String, i32)>("select id, what, n from migrated").fetch_all(pool).await);
    let known = "select version, description, success from _sqlx_migrations order by version";
    check("known", sqlx::query_as::<_, (i64, String, bool)>(known).fetch_all(pool).await);
}
