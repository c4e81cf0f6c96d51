//! What PostgreSQL makes of times under a session's `TimeZone`, asked of both; and views that keep
//! the zone of the session that made them.

use std::time::Duration;

use crate::harness::{Server, rows, run};
use crate::postgres::Postgres;

/// With two changes of the clock in the year, with half an hour, without changes, and an offset.
const ZONES: &[&str] = &[
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "America/Sao_Paulo",
    "UTC",
    "GMT-2",
    "-03:30",
    "7",
];

const SET_UP: &str = "
    CREATE TABLE times (id integer PRIMARY KEY, t timestamptz, w timestamp, d date, s text);
    INSERT INTO times VALUES
      (1, '2024-03-31 00:30:00+00', '2024-03-31 02:30:00', '2024-03-31', '2024-03-31 02:30'),
      (2, '2024-03-31 01:30:00+00', '2024-03-31 03:30:00.123456', '2024-04-01', '2024-10-27 02:30'),
      (3, '2024-10-27 00:30:00+00', '2024-10-27 02:30:00', '2024-10-27', '2024-10-27T12:00:00Z'),
      (4, '2024-10-27 01:30:00+00', '2024-11-03 01:30:00', '2024-11-03', '2024-11-03 01:30:00.5 America/New_York'),
      (5, '1999-12-31 23:59:59.9995+00', '2000-01-01 00:00:00', '2000-01-01', '2024-01-01'),
      (6, '2024-06-15 14:30:00-04', '2024-06-15 14:30:00', '2024-06-15', '2024-06-15 14:30+05:30'),
      (7, NULL, NULL, NULL, NULL);";

/// Of a row of `times`, or of nothing.
const EXPRESSIONS: &[&str] = &[
    "t",
    "t::text",
    "t::timestamp",
    "t::date",
    "t::time",
    "w::timestamptz",
    "d::timestamptz",
    "s::timestamptz",
    "s::timestamptz::timestamp",
    "timestamptz '2024-10-27 02:30:00'",
    "timestamptz '2024-03-31 02:30'",
    "t = w",
    "t < d",
    "t >= w",
    "d = t",
    "t BETWEEN d AND w",
    "t > '2024-10-27 02:30'",
    "t IN ('2024-03-31 02:30', '2024-10-27 02:30')",
    "date_trunc('hour', t)",
    "date_trunc('day', t)",
    "date_trunc('week', t)",
    "date_trunc('month', t)",
    "date_trunc('quarter', t)",
    "date_trunc('year', t)",
    "date_trunc('minute', t)",
    "date_trunc('millisecond', t)",
    "date_trunc('day', w)",
    "date_trunc('day', t, 'Asia/Tokyo')",
    "date_trunc('decade', t)",
    "date_trunc('century', t)",
    "date_trunc('day', t)::date",
    "date_trunc('day', d)",
    "extract(hour FROM t)",
    "extract(day FROM t)",
    "extract(dow FROM t)",
    "extract(epoch FROM t)",
    "extract(timezone FROM t)",
    "extract(timezone_hour FROM t)",
    "extract(timezone_minute FROM t)",
    "date_part('minute', t)",
    "date_part('epoch', t)",
    "extract(hour FROM w)",
    "extract(second FROM t)",
    "extract(isodow FROM t)",
    "extract(epoch FROM d::timestamptz)",
    "to_char(t, 'YYYY-MM-DD HH24:MI:SS.US TZ')",
    "to_char(t, 'OF tz')",
    "to_char(w, 'HH24 TZ')",
    "to_timestamp('2024-10-27 02:30', 'YYYY-MM-DD HH24:MI')",
    "to_timestamp(1711846800)",
    "to_date('2024-03-31', 'YYYY-MM-DD')::timestamptz",
    "t + interval '1 day'",
    "t - interval '1 day'",
    "interval '1 month' + t",
    "t + interval '24 hours'",
    "t - interval '1 month 1 day 1 hour'",
    "d + interval '1 day'",
    "t - w",
    "t - d",
    "t - timestamptz '2024-01-01'",
    "age(t, timestamptz '2023-12-31 12:00')",
    "age(t, w)",
    "make_timestamptz(2024, 10, 27, 2, 30, 0)",
    "make_timestamptz(2024, 10, 27, 2, 30, 0, 'Asia/Tokyo')",
    "t AT TIME ZONE 'America/New_York'",
    "w AT TIME ZONE 'America/New_York'",
    "t AT TIME ZONE '+02'",
    "w AT TIME ZONE 'GMT-2'",
    "s::timestamptz AT TIME ZONE 'UTC'",
    "to_json(t)",
    "to_jsonb(t)",
    "jsonb_build_object('t', t, 'w', w)",
    "json_build_array(t, d)",
    "concat(t, ' ', w)",
    "t || ''",
    "format('%s', t)",
    "concat_ws(',', t, d)",
    "ARRAY[t, w::timestamptz]",
    "ARRAY[t]::text",
    "CASE WHEN id > 3 THEN t ELSE w END",
    "coalesce(t, d)",
    "greatest(t, w)",
    "least(t, d::timestamptz)",
    "nullif(t, w)",
    "(SELECT max(u.t)::date FROM times u WHERE u.t <= times.t)",
    "pg_typeof(t::date)",
    "quote_literal(t)",
];

const QUERIES: &[&str] = &[
    "SELECT t::date AS day, count(*) FROM times GROUP BY t::date ORDER BY 1",
    "SELECT date_trunc('day', t) AS day, count(*), min(w), max(t) FROM times GROUP BY 1 ORDER BY 1",
    "SELECT extract(hour FROM t) AS hour, count(*) FROM times GROUP BY 1 ORDER BY 1",
    "SELECT a.id, b.id FROM times a JOIN times b ON a.t = b.w ORDER BY 1, 2",
    "SELECT a.id, b.id FROM times a JOIN times b ON a.t::date = b.d ORDER BY 1, 2",
    "SELECT * FROM generate_series(timestamptz '2024-03-30', timestamptz '2024-04-01', '1 day') AS g",
    "SELECT g::date FROM generate_series('2024-10-26'::date, '2024-10-28'::date, '1 day') AS g",
    "SELECT * FROM generate_series(timestamptz '2024-10-27', timestamptz '2024-10-28', '6 hours') AS g",
    "SELECT t FROM times UNION SELECT w FROM times ORDER BY 1",
    "SELECT d FROM times UNION ALL SELECT t FROM times ORDER BY 1",
    "SELECT string_agg(t::text, ';' ORDER BY id) FROM times",
    "SELECT json_agg(t ORDER BY id) FROM times",
    "SELECT jsonb_object_agg(id, t) FROM times WHERE t IS NOT NULL",
    "SELECT array_agg(t::date ORDER BY id) FROM times",
    "SELECT id, sum(1) OVER (PARTITION BY t::date ORDER BY t) FROM times ORDER BY id",
    "SELECT now()::date = current_date, localtimestamp = now()::timestamp",
    "SELECT current_date::timestamptz <= now(), extract(timezone FROM current_date::timestamptz) IS NULL",
    "SHOW TimeZone",
    "SELECT id FROM times WHERE d = date '2024-03-31' AND t >= d ORDER BY id",
    "SELECT v FROM (VALUES ('2024-10-27 02:30'::timestamptz), ('2024-03-31 02:30')) AS x (v)",
    "VALUES (date '2024-10-27'), (timestamptz '2024-03-31 02:30')",
    "VALUES (timestamptz '2024-03-31 02:30', 1), (date '2024-10-27', 2), ('2024-07-01', 3), (NULL, 4)",
    "VALUES (date '2024-10-27'), (timestamp '2024-03-31 02:30')",
    "VALUES (timestamp '2024-03-31 02:30'), (timestamptz '2024-03-31 02:30'), (date '2024-10-27')",
    "SELECT d < t FROM (VALUES (date '2024-10-27', now()), (current_timestamp, date '2024-10-27')) AS x (d, t)",
    "SELECT date '2024-10-27' AS v UNION ALL SELECT timestamptz '2024-03-31 02:30'",
    "SELECT coalesce(NULL::date, d, t) FROM (VALUES (date '2024-10-27', timestamptz '2024-03-31 02:30')) AS x (d, t)",
    "SELECT CASE WHEN true THEN date '2024-10-27' ELSE timestamptz '2024-03-31 02:30' END",
    "SELECT ARRAY[date '2024-10-27', timestamptz '2024-03-31 02:30']",
    "SELECT greatest(date '2024-10-27', timestamptz '2024-03-31 02:30')",
];

/// What is written in the zone, and stays what it was in another one.
const CHANGES: &str = "
    CREATE TABLE written (n integer, t timestamptz DEFAULT '2024-06-01 00:00', w timestamp, d date, s text);
    INSERT INTO written VALUES (1, '2024-10-27 02:30', '2024-10-27 02:30', '2024-10-27', '-');
    INSERT INTO written (n) VALUES (2);
    INSERT INTO written SELECT id + 10, w, t, t, t FROM times;
    INSERT INTO written (n, t) SELECT id + 20, d FROM times;
    UPDATE written SET w = t, d = t, s = t WHERE n = 1;
    UPDATE written SET t = w WHERE n = 13;
    UPDATE written SET t = '2024-01-01 12:00' WHERE n = 14;";

#[test]
fn times_are_read_and_shown_as_postgres_does() {
    let Some(postgres) = Postgres::start("times in other zones against PostgreSQL's") else {
        return;
    };
    run(async {
        let server = Server::start();
        let (ours, theirs) = (server.connect().await, postgres.connect().await);
        for client in [&ours, &theirs] {
            client.batch_execute(SET_UP).await.expect("set up");
        }
        let mut differences = Vec::new();
        for zone in ZONES {
            let set = format!("SET TimeZone = '{zone}'");
            let mut asked = vec![set];
            let of_rows = |e: &&str| format!("SELECT id, {e} FROM times ORDER BY id");
            asked.extend(EXPRESSIONS.iter().map(of_rows));
            asked.extend(QUERIES.iter().map(|q| (*q).to_owned()));
            asked.extend(CHANGES.split_terminator(';').map(str::to_owned));
            asked.push("SET TimeZone = 'UTC'".to_owned());
            asked.push("SELECT * FROM written ORDER BY n".to_owned());
            asked.push("DROP TABLE written".to_owned());
            for sql in asked {
                let (mine, wanted) = (rows(&ours, &sql).await, rows(&theirs, &sql).await);
                let told = |answer: &Result<Vec<Vec<String>>, tokio_postgres::Error>| match answer {
                    Ok(rows) => rows
                        .iter()
                        .map(|r| r.join(" | "))
                        .collect::<Vec<_>>()
                        .join("\n"),
                    Err(error) => error.code().map_or("lost", |c| c.code()).to_owned(),
                };
                if told(&mine) != told(&wanted) {
                    differences.push(format!(
                        "{zone}: {sql}\nours:\n{}\nPostgreSQL's:\n{}",
                        told(&mine),
                        told(&wanted)
                    ));
                }
            }
        }
        assert!(
            differences.is_empty(),
            "{} differences\n{}",
            differences.len(),
            differences.join("\n\n")
        );
    });
}

#[test]
fn a_view_keeps_the_zone_of_the_session_that_made_it() {
    const DAYS: &str = "SELECT day, n FROM days ORDER BY day";
    run(async {
        let mut server = Server::start();
        server
            .execute(
                "CREATE STREAM visits (at timestamptz);
                 SET TimeZone = 'europe/berlin';
                 CREATE VIEW dated AS SELECT at::date AS day FROM visits;
                 CREATE MATERIALIZED VIEW days AS SELECT day, count(*) AS n FROM dated GROUP BY day;
                 CREATE MATERIALIZED VIEW utc WITH (timezone = 'UTC') AS SELECT day, count(*) AS n FROM dated GROUP BY day;
                 SET TimeZone = 'UTC';
                 CREATE MATERIALIZED VIEW york WITH (spark.sql.session.timeZone = 'America/New_York') AS
                   SELECT date_trunc('day', at) AS day, count(*) AS n FROM visits WHERE at >= '2024-06-01 00:00' GROUP BY 1;
                 INSERT INTO visits VALUES ('2024-06-01 22:30+00'), ('2024-06-01 21:30+00'), ('2024-06-01 03:59+00');
                 FLUSH",
            )
            .await;
        let berlin = [["2024-06-01", "2"], ["2024-06-02", "1"]];
        for round in 0..2 {
            assert_eq!(server.rows(DAYS).await, berlin, "round {round}");
            assert_eq!(
                server.rows("SELECT day, n FROM utc").await,
                [["2024-06-01", "3"]]
            );
            assert_eq!(
                server.rows("SELECT day, n FROM york").await,
                [["2024-06-01 04:00:00+00", "2"]]
            );
            let verified = server.rows("VERIFY MATERIALIZED VIEW days").await;
            assert!(!verified.is_empty(), "verified");
            server.kill();
            server.restart();
            server
                .wait_for_value("SELECT sum(n) FROM days", "3", Duration::from_secs(10))
                .await;
        }
        // A day of 25 hours closes after its last one.
        server
            .execute(
                "CREATE STREAM w (at timestamptz, WATERMARK FOR at AS at);
                 SET TimeZone = 'Europe/Berlin';
                 CREATE MATERIALIZED VIEW closed AS
                   SELECT date_trunc('day', at) AS day, count(*) AS n FROM w GROUP BY 1 EMIT ON WINDOW CLOSE;
                 INSERT INTO w VALUES ('2024-10-27 00:30'), ('2024-10-27 23:30');
                 FLUSH;
                 INSERT INTO w VALUES ('2024-10-27 23:45');
                 FLUSH",
            )
            .await;
        assert_eq!(server.value("SELECT count(*) FROM closed").await, "0");
        server
            .execute("INSERT INTO w VALUES ('2024-10-28 00:30+01'), ('2024-10-29 00:30+01'); FLUSH")
            .await;
        server
            .wait_for_value(
                "SELECT n FROM closed ORDER BY day LIMIT 1",
                "3",
                Duration::from_secs(10),
            )
            .await;
        let made = server.rows("SHOW CREATE MATERIALIZED VIEW days").await;
        assert!(
            made[0][1].contains("timezone = 'Europe/Berlin'"),
            "{made:?}"
        );
        let client = server.connect().await;
        let error = client
            .batch_execute("ALTER MATERIALIZED VIEW days SET (timezone = 'UTC')")
            .await
            .expect_err("its rows are of the zone");
        assert_eq!(error.code().map(|c| c.code()), Some("0A000"));
        let error = client
            .batch_execute("CREATE MATERIALIZED VIEW x WITH (timezone = 'Mars/Olympus') AS SELECT 1 AS a FROM visits")
            .await
            .expect_err("there is no such zone");
        assert_eq!(error.code().map(|c| c.code()), Some("22023"));
    });
}
