//! What streams of a run read: a folder of files, a topic, a socket, or what is inserted.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use datafusion::parquet::arrow::ArrowWriter;

use crate::kafka::Broker;
use crate::recovery::WITHIN;
use crate::tools::free_port;

use super::shapes;

/// A row that comes in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub k: i64,
    pub v: Option<i64>,
    /// Minutes after the beginning of 2024.
    pub minutes: Option<i64>,
}

/// Microseconds of the beginning of 2024.
const BEGINNING_US: i64 = 1_704_067_200_000_000;

impl Row {
    fn time(self, quote: &str) -> String {
        let minute = |m: i64| {
            let (day, hour, minute) = (m / 1440, m / 60 % 24, m % 60);
            format!(
                "{quote}2024-01-{:02} {hour:02}:{minute:02}:00{quote}",
                day + 1
            )
        };
        self.minutes.map_or_else(|| "null".to_owned(), minute)
    }

    fn value(self) -> String {
        self.v.map_or_else(|| "null".to_owned(), |v| v.to_string())
    }

    pub(super) fn json(self) -> String {
        format!(
            "{{\"k\": {}, \"v\": {}, \"ts\": {}}}",
            self.k,
            self.value(),
            self.time("\"")
        )
    }

    pub(super) fn csv(self) -> String {
        let line = format!("{},{},{}", self.k, self.value(), self.time(""));
        line.replace("null", "")
    }

    pub(super) fn sql(self) -> String {
        format!("({}, {}, {})", self.k, self.value(), self.time("'"))
    }
}

/// How files are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    Json,
    Csv,
    /// CSV with the names of its columns
    Headed,
    Parquet,
}

/// Which feed a fault wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FeedKind {
    Files(Written),
    Socket(Written),
    Kafka,
    /// Over the broker's door that asks for a password.
    KafkaSecured,
    Insert,
}

/// A feed of one run.
pub(super) enum Feed {
    Files {
        folder: PathBuf,
        written: Written,
        number: u64,
    },
    Socket {
        written: Written,
        port: u16,
        listener: Option<TcpListener>,
        connections: Vec<TcpStream>,
    },
    Kafka {
        broker: Arc<tokio::sync::Mutex<Broker>>,
        topic: String,
        secured: bool,
    },
    Insert,
}

impl Feed {
    /// What a stream says of it.
    pub(super) fn connector(&self, address: &str) -> String {
        match self {
            Self::Files { written, .. } => {
                format!(
                    "connector = 'files', location = 'in', {}",
                    format_of(*written)
                )
            }
            Self::Socket { written, port, .. } => format!(
                "connector = 'socket', host = '127.0.0.1', port = {port}, {}",
                format_of(*written)
            ),
            Self::Kafka { topic, secured, .. } => {
                let secured = match secured {
                    true => {
                        ", security_protocol = 'SASL_PLAINTEXT', sasl_mechanism = 'PLAIN', username = 'reader', password = SECRET word"
                    }
                    false => "",
                };
                format!(
                    "connector = 'kafka', brokers = '{address}', topic = '{topic}', format = 'json'{secured}"
                )
            }
            Self::Insert => String::new(),
        }
    }

    /// Lines or a whole file for the streams of all shapes.
    pub(super) fn lines(rows: &[Row], written: Written) -> Vec<u8> {
        let text = match written {
            Written::Json => joined(rows, |row| row.json()),
            Written::Csv => joined(rows, |row| row.csv()),
            Written::Headed => format!("k,v,ts\n{}", joined(rows, |row| row.csv())),
            Written::Parquet => return parquet(rows),
        };
        text.into_bytes()
    }

    /// Accepts what connects, until every shape's stream has.
    pub(super) fn accept(&mut self) {
        let Self::Socket {
            listener: Some(listener),
            connections,
            ..
        } = self
        else {
            panic!("no socket listens");
        };
        listener.set_nonblocking(true).expect("a listener");
        let start = Instant::now();
        while connections.len() < shapes::SHAPES.len() {
            match listener.accept() {
                Ok((connection, _)) => {
                    connection.set_nonblocking(false).expect("a connection");
                    connections.push(connection);
                }
                Err(_) => {
                    assert!(start.elapsed() < WITHIN, "{} connect", connections.len());
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
            }
        }
    }

    /// Listens at its port.
    pub(super) fn listen(&mut self) {
        if let Self::Socket { listener, port, .. } = self {
            *listener = Some(TcpListener::bind(("127.0.0.1", *port)).expect("the port is free"));
        }
    }

    /// Ends the connections, and listens no more.
    pub(super) fn hang_up(&mut self) {
        if let Self::Socket {
            listener,
            connections,
            ..
        } = self
        {
            *listener = None;
            connections.clear();
        }
    }

    /// Bytes to all that are connected.
    pub(super) fn transmit(&mut self, bytes: &[u8]) {
        let Self::Socket { connections, .. } = self else {
            panic!("no socket");
        };
        for connection in connections {
            connection.write_all(bytes).expect("sent");
        }
    }
}

/// A feed of a kind for a server in `dir`; a socket does not listen yet.
pub(super) fn feed(
    kind: FeedKind,
    dir: &Path,
    broker: Option<&Arc<tokio::sync::Mutex<Broker>>>,
) -> Feed {
    let topic = format!("t{}", uuid::Uuid::new_v4().simple());
    match kind {
        FeedKind::Files(written) => {
            let folder = dir.join("in");
            std::fs::create_dir(&folder).expect("a folder");
            Feed::Files {
                folder,
                written,
                number: 0,
            }
        }
        FeedKind::Socket(written) => Feed::Socket {
            written,
            port: free_port(),
            listener: None,
            connections: Vec::new(),
        },
        FeedKind::Kafka | FeedKind::KafkaSecured => Feed::Kafka {
            broker: broker.expect("a broker").clone(),
            topic,
            secured: kind == FeedKind::KafkaSecured,
        },
        FeedKind::Insert => Feed::Insert,
    }
}

fn format_of(written: Written) -> &'static str {
    match written {
        Written::Json => "format = 'json'",
        Written::Csv => "format = 'csv'",
        Written::Headed => "format = 'csv', header = true",
        Written::Parquet => "format = 'parquet'",
    }
}

/// Ending of a file.
pub(super) fn extension(written: Written) -> &'static str {
    match written {
        Written::Json => "json",
        Written::Csv | Written::Headed => "csv",
        Written::Parquet => "parquet",
    }
}

fn joined(rows: &[Row], text: impl Fn(Row) -> String) -> String {
    rows.iter().map(|row| text(*row) + "\n").collect()
}

/// A Parquet file of columns.
pub(crate) fn parquet_of(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .expect("a batch");
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("written");
    writer.close().expect("closed");
    bytes
}

/// The times of rows as a column.
pub(super) fn times(rows: &[Row]) -> ArrayRef {
    let times = rows
        .iter()
        .map(|row| row.minutes.map(|m| BEGINNING_US + m * 60_000_000));
    Arc::new(times.collect::<TimestampMicrosecondArray>())
}

fn parquet(rows: &[Row]) -> Vec<u8> {
    let of = |column: &dyn Fn(&Row) -> Option<i64>| -> ArrayRef {
        Arc::new(rows.iter().map(column).collect::<Int64Array>())
    };
    parquet_of(vec![
        ("k", of(&|row| Some(row.k))),
        ("v", of(&|row| row.v)),
        ("ts", times(rows)),
    ])
}
