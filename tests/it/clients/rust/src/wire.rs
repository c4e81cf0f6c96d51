//! tokio-postgres.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use futures_util::{SinkExt, StreamExt, TryStreamExt, future};
use serde_json::{Value, json};
use tokio_postgres::binary_copy::{BinaryCopyInWriter, BinaryCopyOutStream};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, IsolationLevel, NoTls, SimpleQueryMessage};
use uuid::Uuid;

use crate::{check, show};

pub async fn session(config: &str) {
    let (mut client, mut connection) = tokio_postgres::connect(config, NoTls).await.expect("connects");
    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let messages = futures_util::stream::poll_fn(move |context| connection.poll_message(context));
        let mut messages = pin!(messages);
        while let Some(Ok(message)) = messages.next().await {
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    types(&client).await;
    changes(&mut client).await;
    copies(&client).await;
    portals(&mut client).await;
    several(&client).await;
    show(
        "listen",
        client.batch_execute("listen news; notify news, 'hello'; do_nothing").await.is_err(),
    );
    check("listens", client.batch_execute("listen news").await);
    check("notifies", client.batch_execute("notify news, 'hello'").await);
    while let Ok(Some(message)) = tokio::time::timeout(Duration::from_secs(5), heard.recv()).await {
        match message {
            AsyncMessage::Notification(news) => {
                show("heard", (news.channel(), news.payload()));
                break;
            }
            AsyncMessage::Notice(notice) => show("notice", (notice.code().code(), notice.message())),
            _ => {}
        }
    }
    let cancel = client.cancel_token();
    let (slept, _) = future::join(client.batch_execute("select pg_sleep(20)"), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        cancel.cancel_query(NoTls).await.expect("sent");
    })
    .await;
    check("cancelled", slept);
    check("goes on", client.query_one("select 1", &[]).await.map(|r| r.get::<_, i32>(0)));
    check("dropped", client.batch_execute("drop table wired; drop table far").await);
}

async fn types(client: &Client) {
    let create = "create table wired (id bigint primary key, small smallint, n int, f real, d double precision, \
        what text, short varchar(5), yes boolean, raw bytea, day date, at timestamptz, local timestamp, hour time, \
        u uuid, j json, b jsonb, names text[], numbers bigint[])";
    check("create", client.batch_execute(create).await);
    let insert = "insert into wired values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)";
    let statement = client.prepare(insert).await.expect("prepared");
    // One for a varchar is a text here.
    let parameters: Vec<_> = statement.params().iter().filter(|t| ![Type::TEXT, Type::VARCHAR].contains(t)).collect();
    show("parameters", parameters);
    let day = NaiveDate::from_ymd_opt(2024, 2, 29).expect("a day");
    let hour = NaiveTime::from_hms_micro_opt(12, 30, 1, 5).expect("an hour");
    let local = day.and_time(hour);
    let at = local.and_utc();
    let u = Uuid::from_u128(42);
    let j = json!({"a": [1, 2.5, null], "b": "x\n"});
    let values: [&(dyn ToSql + Sync); 18] = [
        &1i64, &-2i16, &3i32, &1.5f32, &-2.25f64, &"text", &"short", &true, &&[0u8, 255, 7][..], &day, &at, &local,
        &hour, &u, &j, &j, &vec!["a", "", "c,d"], &vec![Some(1i64), None, Some(-3)],
    ];
    check("insert", client.execute(&statement, &values).await);
    let none: [Option<&str>; 1] = [None];
    check("null", client.execute("insert into wired (id, what) values (2, $1)", &[&none[0]]).await);
    let rows = client.query("select * from wired order by id", &[]).await.expect("rows");
    let columns: Vec<_> = rows[0].columns().iter().map(|c| (c.name().to_owned(), c.type_().clone())).collect();
    show("columns", columns);
    let row = &rows[0];
    show(
        "numbers",
        (row.get::<_, i64>(0), row.get::<_, i16>(1), row.get::<_, i32>(2), row.get::<_, f32>(3), row.get::<_, f64>(4)),
    );
    show(
        "texts",
        (row.get::<_, &str>(5), row.get::<_, String>(6), row.get::<_, bool>(7), row.get::<_, &[u8]>(8)),
    );
    show(
        "times",
        (
            row.get::<_, NaiveDate>(9),
            row.get::<_, DateTime<Utc>>(10),
            row.get::<_, NaiveDateTime>(11),
            row.get::<_, NaiveTime>(12),
        ),
    );
    show("others", (row.get::<_, Uuid>(13), row.get::<_, Value>(14), row.get::<_, Value>(15)));
    show("arrays", (row.get::<_, Vec<String>>(16), row.get::<_, Vec<Option<i64>>>(17)));
    show("nulls", (rows[1].get::<_, Option<&str>>(5), rows[1].get::<_, Option<Vec<String>>>(16)));
    let typed = client.prepare_typed("select $1 + 1 as next, $2::text", &[Type::INT8]).await;
    let typed = typed.expect("prepared");
    show("typed", (typed.params(), typed.columns().iter().map(|c| c.type_().name().to_owned()).collect::<Vec<_>>()));
    check("asked", client.query_one(&typed, &[&41i64, &"x"]).await.map(|r| (r.get::<_, i64>(0), r.get::<_, String>(1))));
    let any = client.query("select id from wired where id = any($1) order by id", &[&vec![1i64, 2, 9]]).await;
    check("any", any.map(|rows| rows.iter().map(|r| r.get::<_, i64>(0)).collect::<Vec<_>>()));
    check("ranged", client.query_opt("select id from wired where id > $1 limit $2", &[&5i64, &1i64]).await.map(|r| r.is_none()));
    check("no such type", client.execute("select $1::nosuch", &[&1i32]).await);
}

async fn changes(client: &mut Client) {
    let transaction = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted).start().await;
    let mut transaction = transaction.expect("begun");
    check("in it", transaction.execute("update wired set n = n + $1 where id = 1", &[&4i32]).await);
    {
        let savepoint = transaction.savepoint("nested").await.expect("set");
        check("fails", savepoint.execute("insert into wired (id) values (1)", &[]).await);
        check("aborted", savepoint.query("select 1", &[]).await.map(|rows| rows.len()));
        check("taken back", savepoint.rollback().await);
    }
    check("committed", transaction.commit().await);
    let returning = "insert into wired (id, n) values (1, 0), (3, 30) on conflict (id) do update set n = wired.n * 2 returning id, n";
    let rows = client.query(returning, &[]).await;
    check("upsert", rows.map(|rows| rows.iter().map(|r| (r.get::<_, i64>(0), r.get::<_, i32>(1))).collect::<Vec<_>>()));
    drop(client.transaction().await.expect("begun"));
    check("after a drop", client.query_one("select count(*) from wired", &[]).await.map(|r| r.get::<_, i64>(0)));
    let read_only = client.build_transaction().read_only(true).start().await.expect("begun");
    check("read only", read_only.execute("delete from wired", &[]).await);
    check("read only ends", read_only.rollback().await);
}

async fn copies(client: &Client) {
    check("far", client.batch_execute("create table far (id int, what text, day date)").await);
    let sink = client.copy_in("copy far from stdin binary").await.expect("begun");
    let mut writer = pin!(BinaryCopyInWriter::new(sink, &[Type::INT4, Type::TEXT, Type::DATE]));
    let day = NaiveDate::from_ymd_opt(1999, 12, 31).expect("a day");
    for id in 0..1000i32 {
        let what = (id % 3 != 0).then(|| format!("row {id}"));
        writer.as_mut().write(&[&id, &what, &day]).await.expect("written");
    }
    check("copied in", writer.finish().await);
    let stream = client.copy_out("copy (select id, what, day from far where id < 4 order by id) to stdout binary").await;
    let rows = BinaryCopyOutStream::new(stream.expect("begun"), &[Type::INT4, Type::TEXT, Type::DATE]);
    let rows: Vec<_> = rows.try_collect().await.expect("rows");
    let rows: Vec<_> = rows
        .iter()
        .map(|r| (r.get::<i32>(0), r.get::<Option<&str>>(1).map(str::to_owned), r.get::<NaiveDate>(2)))
        .collect();
    show("copied out", rows);
    let mut sink = Box::pin(client.copy_in("copy far from stdin (format csv)").await.expect("begun"));
    sink.send(Bytes::from_static(b"5000,csv,2000-01-01\nx,y,2000-01-01\n")).await.expect("sent");
    check("bad copy", sink.as_mut().finish().await);
    let sink = client.copy_in::<_, Bytes>("copy far from stdin").await.expect("begun");
    drop(sink);
    check("after a drop", client.query_one("select count(*) from far", &[]).await.map(|r| r.get::<_, i64>(0)));
}

async fn portals(client: &mut Client) {
    let transaction = client.transaction().await.expect("begun");
    let portal = transaction.bind("select id from far order by id", &[]).await.expect("bound");
    for size in [2, 3] {
        let rows = transaction.query_portal(&portal, size).await;
        check("portal", rows.map(|rows| rows.iter().map(|r| r.get::<_, i32>(0)).collect::<Vec<_>>()));
    }
    check("ends", transaction.commit().await);
    let mut stream = pin!(client.query_raw("select id from far where id > $1 order by id", [&996i32]).await.expect("begun"));
    let mut raw = Vec::new();
    while let Some(row) = stream.try_next().await.expect("a row") {
        raw.push(row.get::<_, i32>(0));
    }
    show("raw", (raw, stream.rows_affected()));
}

/// Several statements at once, and those of the simple protocol.
async fn several(client: &Client) {
    let one = client.query_one("select $1::int + 1", &[&1i32]);
    let two = client.query_one("select 1 / ($1::int - 1)", &[&1i32]);
    let three = client.query_one("select $1::int + 3", &[&1i32]);
    let (one, two, three) = future::join3(one, two, three).await;
    for (name, result) in [("first", one), ("second", two), ("third", three)] {
        check(name, result.map(|r| r.get::<_, i32>(0)));
    }
    let messages = client.simple_query("select id, what from far where id < 2 order by id; update far set what = 'u' where id = 1; values (1), (2)").await;
    let messages = messages.expect("answers");
    let told = messages.iter().map(|message| match message {
        SimpleQueryMessage::Row(row) => format!("{:?} {:?}", row.get(0), row.try_get(1).ok().flatten()),
        SimpleQueryMessage::CommandComplete(rows) => format!("done {rows}"),
        SimpleQueryMessage::RowDescription(columns) => format!("columns {}", columns.len()),
        _ => "other".to_owned(),
    });
    show("simple", told.collect::<Vec<_>>());
    check("syntax", client.batch_execute("selec 1").await);
}
