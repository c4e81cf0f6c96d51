//! A server with all shapes, each over a stream of its own that reads one feed, and their twins over what is inserted.
//!
//! A fault is a function on a [`Bench`]: it does to the feed, the server or the store what happens in life, waits until
//! it is told, and brings back what no statement can. What is mended by statements is left to `DIAGNOSE`.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;

use crate::harness::Server;
use crate::kafka::Broker;
use crate::recovery::WITHIN;
use crate::recovery::follow::follow;

use super::feed::{self, Feed, FeedKind, Row, Written};
use super::place::Place;
use super::{Line, shapes, words};

/// A fault of what comes in.
#[derive(Clone)]
pub(super) struct InputFault {
    pub name: &'static str,
    pub feed: FeedKind,
    /// Options of the streams, behind those of the feed.
    pub options: &'static str,
    /// Constraints of the streams and their twins.
    pub constraints: &'static str,
    /// Their key is NOT NULL.
    pub requires_key: bool,
    /// Arguments of the server.
    pub arguments: &'static [&'static str],
    /// The feed is not there when the streams are created.
    pub starts_away: bool,
    /// `make test` makes it.
    pub is_of_the_few: bool,
    pub make: for<'a> fn(&'a mut Bench) -> BoxFuture<'a, ()>,
}

impl InputFault {
    pub(super) fn new(
        name: &'static str,
        feed: FeedKind,
        make: for<'a> fn(&'a mut Bench) -> BoxFuture<'a, ()>,
    ) -> Self {
        Self {
            name,
            feed,
            options: "",
            constraints: "",
            requires_key: false,
            arguments: &[],
            starts_away: false,
            is_of_the_few: false,
            make,
        }
    }

    pub(super) fn with(mut self, options: &'static str) -> Self {
        self.options = options;
        self
    }

    pub(super) fn constrained(mut self, constraints: &'static str) -> Self {
        self.constraints = constraints;
        self
    }

    pub(super) fn with_required_key(mut self) -> Self {
        self.requires_key = true;
        self
    }

    pub(super) fn away(mut self) -> Self {
        self.starts_away = true;
        self
    }

    pub(super) fn of_the_few(mut self) -> Self {
        self.is_of_the_few = true;
        self
    }
}

/// What a fault is made on.
pub(super) struct Bench {
    pub server: Server,
    pub place: Place,
    pub feed: Feed,
    next: i64,
    first_minute: i64,
    /// Statements that were said, for all shapes or for the one named.
    said: Vec<(Option<&'static str>, String)>,
    /// The sink begins anew.
    begins_anew: bool,
}

impl Bench {
    async fn start(
        fault: &InputFault,
        place: &Place,
        broker: Option<&Arc<tokio::sync::Mutex<Broker>>>,
    ) -> Self {
        let server = place.server(fault.arguments);
        let mut bench = Self {
            feed: feed::feed(fault.feed, server.dir(), broker),
            server,
            place: place.clone(),
            next: 0,
            first_minute: 0,
            said: Vec::new(),
            begins_anew: false,
        };
        let address = bench.prepare(fault.starts_away).await;
        bench.server.execute("CREATE SECRET word AS 'right'").await;
        let mut sql = "CREATE TABLE t (id BIGINT PRIMARY KEY, g BIGINT);
            INSERT INTO t VALUES (0, 0), (1, 0), (2, 0), (3, 0);"
            .to_owned();
        let columns = format!(
            "(k BIGINT{}, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1 day'{})",
            if fault.requires_key { " NOT NULL" } else { "" },
            fault.constraints
        );
        let connector = bench.feed.connector(&address);
        for stream in shapes::names().map(stream_of) {
            sql += &format!("CREATE STREAM {stream} {columns}");
            sql += &match connector.as_str() {
                "" => ";".to_owned(),
                connector => format!(" WITH ({connector}{});", fault.options),
            };
        }
        sql += &format!("CREATE STREAM plain {columns};");
        let prefix = uuid::Uuid::new_v4();
        let options = |name: &str| {
            format!(
                "trigger = '20 milliseconds', stall_timeout = '3 seconds'{}",
                place.options(prefix, name)
            )
        };
        sql += &shapes::create("", stream_of, options);
        let of_plain = |_: &str| "plain".to_owned();
        sql += &shapes::create("_twin", of_plain, |_| "trigger = 'continuous'".to_owned());
        sql += shapes::SINK;
        bench.server.execute(&sql).await;
        if !fault.starts_away {
            if matches!(bench.feed, Feed::Socket { .. }) {
                bench.feed.accept();
            }
            for _ in 0..4 {
                bench.send().await;
            }
        }
        bench
    }

    /// The feed is there, or it is not; where a broker is to be asked.
    async fn prepare(&mut self, is_away: bool) -> String {
        match &mut self.feed {
            Feed::Kafka {
                broker,
                topic,
                secured,
            } => {
                let mut broker = broker.lock().await;
                broker.create_topic(topic, 2).await;
                if is_away {
                    broker.stop();
                }
                match secured {
                    true => broker.secured_address(),
                    false => broker.address(),
                }
            }
            feed => {
                if !is_away {
                    feed.listen();
                }
                String::new()
            }
        }
    }

    /// So many new rows, with NULLs and keys and values that come again.
    pub(super) fn rows(&mut self, batches: i64) -> Vec<Row> {
        let mut rows = Vec::new();
        for _ in 0..batches {
            let i = self.next;
            self.next += 1;
            let row = |k, v, minutes| Row { k, v, minutes };
            rows.push(row(i % 3, Some(i), Some(self.first_minute + i)));
            rows.push(row(i % 5, Some(i % 7), Some(self.first_minute)));
            rows.push(row(i % 2, None, None));
        }
        rows
    }

    /// The next rows are of this minute and later.
    pub(super) fn skip_to(&mut self, minute: i64) {
        self.first_minute = minute;
    }

    /// Rows that come and are expected, and a change of the table; all views have them.
    pub(super) async fn send(&mut self) {
        let rows = self.rows(1);
        let key = self.next % 4;
        self.server
            .execute(&format!("UPDATE t SET g = g + 1 WHERE id = {key}"))
            .await;
        self.deliver(&rows).await;
        self.wait_equal().await;
    }

    /// Rows that come and are expected.
    pub(super) async fn deliver(&mut self, rows: &[Row]) {
        self.arrive(rows).await;
        self.expect(rows).await;
    }

    /// Rows that come.
    pub(super) async fn arrive(&mut self, rows: &[Row]) {
        match &mut self.feed {
            Feed::Files { written, .. } => {
                let written = *written;
                self.put(&Feed::lines(rows, written));
            }
            Feed::Socket { written, .. } => {
                let bytes = Feed::lines(rows, *written);
                self.feed.transmit(&bytes);
            }
            Feed::Kafka { .. } => {
                let messages: Vec<String> = rows.iter().map(|row| row.json()).collect();
                self.produce(messages).await;
            }
            Feed::Insert => {
                for stream in shapes::names().map(stream_of) {
                    self.insert(&stream, rows).await;
                }
            }
        }
    }

    /// Rows that the twins have.
    pub(super) async fn expect(&self, rows: &[Row]) {
        if !rows.is_empty() {
            self.insert("plain", rows).await;
        }
    }

    async fn insert(&self, stream: &str, rows: &[Row]) {
        let values: Vec<String> = rows.iter().map(|row| row.sql()).collect();
        let sql = format!("INSERT INTO {stream} VALUES {}", values.join(", "));
        self.server.execute(&sql).await;
    }

    /// Messages to the two first partitions in turn.
    pub(super) async fn produce(&self, messages: Vec<String>) {
        let Feed::Kafka { broker, topic, .. } = &self.feed else {
            panic!("no broker");
        };
        let messages = messages.into_iter().enumerate();
        let messages = messages.map(|(i, text)| ((i % 2) as i32, text));
        broker.lock().await.produce(topic, messages);
    }

    /// A file of these bytes, whole at once; its name.
    pub(super) fn put(&mut self, bytes: &[u8]) -> String {
        let Feed::Files {
            folder,
            written,
            number,
        } = &mut self.feed
        else {
            panic!("no files");
        };
        let name = format!("{number}.{}", feed::extension(*written));
        *number += 1;
        let temporary = folder.join(".new");
        std::fs::write(&temporary, bytes).expect("written");
        std::fs::rename(temporary, folder.join(&name)).expect("renamed");
        name
    }

    /// How the feed's files are written.
    pub(super) fn written(&self) -> Written {
        match &self.feed {
            Feed::Files { written, .. } | Feed::Socket { written, .. } => *written,
            _ => Written::Json,
        }
    }

    /// Says a statement for each shape: `{stream}` and `{view}` are its own.
    pub(super) async fn say(&mut self, statement: &str) -> Vec<Vec<Vec<String>>> {
        let mut answers = Vec::new();
        for name in shapes::names() {
            let statement = statement
                .replace("{stream}", &stream_of(name))
                .replace("{view}", name);
            answers.push(self.server.rows(&statement).await);
        }
        self.has_said(None, statement);
        answers
    }

    /// What a fault has said itself.
    pub(super) fn has_said(&mut self, shape: Option<&'static str>, statement: &str) {
        self.said.push((shape, statement.to_owned()));
    }

    /// Says a statement that is there once for all.
    pub(super) async fn say_once(&mut self, statement: &str) {
        self.server.execute(statement).await;
        self.has_said(None, statement);
    }

    /// The twins have what was inserted.
    async fn wait_for_twins(&self) {
        let twins = shapes::names().map(|name| format!("WAIT FOR {name}_twin;"));
        self.server.execute(&twins.collect::<String>()).await;
    }

    /// Rows that each shape's pipeline has taken in, of its table too.
    pub(super) async fn taken_in(&self) -> Vec<u64> {
        let mut counts = Vec::new();
        for name in shapes::names() {
            let sql = format!(
                "SELECT coalesce(sum(num_input_rows), 0)::bigint FROM streaming_metrics_log WHERE stream_name = '{name}'"
            );
            counts.push(self.server.value(&sql).await.parse().expect("a count"));
        }
        counts
    }

    /// Rows that nobody expects are taken in as well.
    pub(super) async fn arrive_unexpected(&mut self, rows: &[Row]) {
        let before = self.taken_in().await;
        self.arrive(rows).await;
        let start = Instant::now();
        loop {
            let now = self.taken_in().await;
            let is_in = |(now, before): (&u64, &u64)| *now >= *before + rows.len() as u64;
            if now.iter().zip(&before).all(is_in) {
                return;
            }
            assert!(start.elapsed() < WITHIN, "{before:?}, {now:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// All views equal their twins, or do so soon.
    pub(super) async fn wait_equal(&self) {
        self.wait_equal_within(WITHIN).await;
    }

    /// As [`Self::wait_equal`], where what comes back takes its time.
    pub(super) async fn wait_equal_within(&self, within: Duration) {
        self.wait_for_twins().await;
        let start = Instant::now();
        while let Some(what) = shapes::unequal(&self.server).await {
            assert!(
                start.elapsed() < within,
                "{what}; log:\n{}\n{:?}",
                self.server.log(),
                self.told().await
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What each shape's pipeline tells.
    async fn told(&self) -> Vec<Vec<String>> {
        let names: Vec<String> = shapes::names().map(|name| format!("'{name}'")).collect();
        let sql = format!(
            "SELECT stream_name, status, coalesce(exception, '') || ' ' || coalesce(hint, '') FROM streaming_queries WHERE stream_name IN ({})",
            names.join(", ")
        );
        self.server.rows(&sql).await
    }

    /// Each shape's pipeline comes to this status, and its error says this.
    pub(super) async fn wait_told(&self, status: &str, text: &str) {
        let start = Instant::now();
        loop {
            let told = self.told().await;
            let is_told = |row: &Vec<String>| {
                row[1] == status && row[2].to_lowercase().contains(&text.to_lowercase())
            };
            if told.len() == shapes::SHAPES.len() && told.iter().all(is_told) {
                break;
            }
            assert!(
                start.elapsed() < WITHIN,
                "not {status} with {text:?}: {told:?}; log:\n{}",
                self.server.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Readable at its last batch all the while.
        for name in shapes::names() {
            let rows = self.server.rows(&format!("SELECT * FROM {name}")).await;
            assert!(!rows.is_empty(), "{name}");
        }
    }

    /// A query about `{stream}` and `{view}` comes to say this for each shape.
    pub(super) async fn wait_each(&self, query: &str, expected: &str) {
        for name in shapes::names() {
            let query = query
                .replace("{stream}", &stream_of(name))
                .replace("{view}", name);
            self.server.wait_for_value(&query, expected, WITHIN).await;
        }
    }

    /// Each shape's pipeline is failed for good, or its view equals its twin.
    async fn settle(&self, fault: &str) {
        self.wait_for_twins().await;
        let start = Instant::now();
        loop {
            let told = self.told().await;
            if told.iter().any(|row| row[1] == "failed")
                || shapes::unequal(&self.server).await.is_none()
            {
                return;
            }
            assert!(
                start.elapsed() < WITHIN,
                "{fault}: {told:?} {:?}; log:\n{}",
                shapes::unequal(&self.server).await,
                self.server.log()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The stream that a shape reads.
pub(super) fn stream_of(name: &str) -> String {
    format!("{name}_s")
}

async fn run_fault(
    fault: &InputFault,
    place: &Place,
    broker: Option<&Arc<tokio::sync::Mutex<Broker>>>,
) -> Line {
    let name = fault.name;
    let mut bench = Bench::start(fault, place, broker).await;
    (fault.make)(&mut bench).await;
    bench.settle(name).await;
    let mut cells = Vec::new();
    for shape in shapes::names() {
        let said = bench.said.iter();
        let said = said.filter(|(of, _)| of.is_none_or(|of| of == shape));
        let mut statements: Vec<String> = said.map(|(_, statement)| statement.clone()).collect();
        statements.extend(follow(&bench.server, shape, &format!("{name}, {shape}")).await);
        bench.begins_anew |= statements.iter().any(|s| s.starts_with("RESET"));
        cells.push(words(&statements));
    }
    println!("{name} ({}): {cells:?}", place.name());
    bench.wait_equal().await;
    // Where the feed was away at the beginning these are the first.
    for _ in 0..4 {
        bench.send().await;
    }
    shapes::assert_equal(&bench.server, name).await;
    bench.server.execute("FLUSH").await;
    if !bench.begins_anew {
        shapes::assert_delivered(&bench.server, name).await;
    }
    Line::new(name, place, cells)
}

/// Makes faults, each on a server of its own; what mended them.
pub(super) async fn make(faults: &[InputFault], place: &Place) -> Vec<Line> {
    let is_kafka =
        |fault: &InputFault| matches!(fault.feed, FeedKind::Kafka | FeedKind::KafkaSecured);
    let broker = match faults.iter().any(is_kafka) {
        true => Broker::start().map(|broker| Arc::new(tokio::sync::Mutex::new(broker))),
        false => None,
    };
    let mut lines = Vec::new();
    let mut failed = Vec::new();
    for fault in faults {
        // Without a broker here its faults are not made; the harness has said so.
        if broker.is_none() && is_kafka(fault) {
            continue;
        }
        let started = Instant::now();
        // One that fails says so at once, and keeps no other from being made.
        let made = AssertUnwindSafe(run_fault(fault, place, broker.as_ref()));
        match made.catch_unwind().await {
            Ok(line) => lines.push(line),
            Err(_) => failed.push(fault.name),
        }
        println!("{}: {} ms", fault.name, started.elapsed().as_millis());
    }
    assert!(failed.is_empty(), "on {}: {failed:?}", place.name());
    lines
}
