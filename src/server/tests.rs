//! The protocol over an in-memory socket with a scripted session.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::ScalarValue;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::connection::Connection;
use super::port::SessionPort;
use super::startup::Startup;
use super::wire::Wire;
use crate::catalog::pg_catalog::backends::{Backend, Backends};
use crate::clock::ManualClock;
use crate::error::{Error, Result};
use crate::session::{
    CopyIn, CopyWriter, Notice, Parameter, StatementDescription, StatementResult, TransactionStatus,
};
use crate::sql::statement::{CopyFormat, CopyStatement, CopyTarget, ForceQuote, Statement};
use crate::types::SqlType;

/// Statements are `NoOperation`s whose tag is the text; what they do:
/// `rows N` gives the numbers below N in batches of two, `forever` never ends, `fail` fails,
/// `fail late` fails after two rows, `panic` panics, `echo` gives its parameter, `copy` copies in.
struct Script {
    backend: Arc<Backend>,
    log: Arc<Mutex<Vec<String>>>,
    status: TransactionStatus,
    implicit: bool,
}

fn numbers() -> SchemaRef {
    Arc::new(Schema::new(vec![SqlType::BigInt.to_field("n", true)]))
}

fn batch(values: Vec<i64>) -> Result<RecordBatch> {
    Ok(RecordBatch::try_new(
        numbers(),
        vec![Arc::new(Int64Array::from(values))],
    )?)
}

fn rows(batches: Vec<Result<RecordBatch>>, endless: bool) -> StatementResult {
    let head = futures::stream::iter(batches);
    let stream = match endless {
        true => head.chain(futures::stream::pending()).boxed(),
        false => head.boxed(),
    };
    StatementResult::Rows {
        schema: numbers(),
        stream,
        tag: "SELECT".into(),
        tag_has_count: true,
    }
}

struct Collected(Arc<Mutex<Vec<String>>>, usize);

#[async_trait::async_trait]
impl CopyWriter for Collected {
    async fn write(&mut self, rows: RecordBatch) -> Result<()> {
        self.1 += rows.num_rows();
        Ok(())
    }

    async fn finish(self: Box<Self>) -> Result<u64> {
        self.0.lock().push(format!("copied {}", self.1));
        Ok(self.1 as u64)
    }
}

impl SessionPort for Script {
    fn announce(&mut self, _: &str) {}

    fn rows_were_read(&mut self) {}

    fn know_prepared(&mut self, _name: &str, _statement: &Statement) {}

    fn forget_prepared(&mut self, _name: Option<&str>) {}

    fn definitions_version(&self) -> u64 {
        0
    }

    fn parse(&self, sql: &str) -> Result<Vec<(Statement, String)>> {
        if sql.contains("syntax") {
            return Err(Error::new("42601", "syntax error"));
        }
        let statements = sql.split(';').map(str::trim).filter(|s| !s.is_empty());
        Ok(statements
            .map(|text| {
                let tag: &'static str = Box::leak(text.to_owned().into_boxed_str());
                let statement = match text.strip_prefix("deallocate ") {
                    Some(name) => Statement::Deallocate(Some(name.to_owned())),
                    None => Statement::NoOperation(tag),
                };
                (statement, text.to_owned())
            })
            .collect())
    }

    async fn describe(
        &mut self,
        statement: &Statement,
        declared: &[Option<SqlType>],
    ) -> Result<StatementDescription> {
        let Statement::NoOperation(text) = statement else {
            return Err(Error::internal("not scripted"));
        };
        let parameters = match *text {
            "echo" => vec![
                declared
                    .first()
                    .cloned()
                    .flatten()
                    .unwrap_or(SqlType::BigInt),
            ],
            _ => Vec::new(),
        };
        let gives_rows = ["rows", "forever", "echo", "fail late"]
            .iter()
            .any(|word| text.starts_with(word));
        Ok(StatementDescription {
            parameters,
            columns: gives_rows.then(numbers),
        })
    }

    async fn execute(
        &mut self,
        statement: &Statement,
        parameters: &[Parameter],
    ) -> Result<StatementResult> {
        let Statement::NoOperation(text) = statement else {
            return Err(Error::internal("not scripted"));
        };
        self.log.lock().push((*text).to_owned());
        Ok(match text.split_once(' ') {
            Some(("rows", count)) => {
                let count: i64 = count.parse().unwrap();
                let values: Vec<i64> = (0..count).collect();
                rows(values.chunks(2).map(|c| batch(c.to_vec())).collect(), false)
            }
            Some(("fail", "late")) => rows(
                vec![
                    batch(vec![1, 2]),
                    Err(Error::new("22012", "division by zero")),
                ],
                false,
            ),
            None if *text == "fail" => return Err(Error::new("42P01", "no such relation")),
            None if *text == "panic" => panic!("scripted panic"),
            None if *text == "begin" => {
                self.status = TransactionStatus::Open;
                StatementResult::Command {
                    tag: "BEGIN".into(),
                }
            }
            None if *text == "forever" => rows(vec![batch(vec![7])], true),
            None if *text == "sleep" => std::future::pending().await,
            None if *text == "echo" => match &parameters[0].value {
                ScalarValue::Int64(Some(n)) => rows(vec![batch(vec![*n])], false),
                other => return Err(Error::internal(format!("{other:?}"))),
            },
            None if *text == "copy" => StatementResult::CopyIn(CopyIn {
                statement: CopyStatement {
                    target: CopyTarget::Relation("t".into(), Vec::new()),
                    from_stdin: true,
                    format: CopyFormat::Text,
                    delimiter: b'\t',
                    null: "\\N".into(),
                    header: false,
                    header_match: false,
                    force_quote: ForceQuote::Columns(Vec::new()),
                    quote: b'"',
                    escape: b'"',
                },
                schema: numbers(),
                writer: Box::new(Collected(self.log.clone(), 0)),
            }),
            _ => StatementResult::Command {
                tag: text.to_uppercase(),
            },
        })
    }

    fn cursor_columns(&mut self, _name: &str) -> Option<SchemaRef> {
        None
    }

    fn close_portal(&mut self, _cursor: &str) {}

    fn begin_implicit(&mut self) {
        self.log.lock().push("begin implicit".into());
        self.implicit = true;
    }

    async fn end_implicit(&mut self, failed: bool) -> Result<()> {
        assert!(std::mem::take(&mut self.implicit));
        let end = if failed { "rollback" } else { "commit" };
        self.log.lock().push(end.into());
        Ok(())
    }

    fn fail_transaction(&mut self) {
        if self.status == TransactionStatus::Open {
            self.status = TransactionStatus::Failed;
        }
    }

    fn transaction_status(&self) -> TransactionStatus {
        self.status
    }

    fn take_notices(&mut self) -> Vec<Notice> {
        Vec::new()
    }

    fn take_parameter_changes(&mut self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn set_startup_parameter(&mut self, _name: &str, _value: &str) -> Result<()> {
        Ok(())
    }

    fn parameter(&self, name: &str) -> Option<String> {
        (name == "statement_timeout").then(|| "300ms".to_owned())
    }

    fn backend(&self) -> &Arc<Backend> {
        &self.backend
    }
}

struct Client {
    socket: DuplexStream,
    backend: Arc<Backend>,
    log: Arc<Mutex<Vec<String>>>,
    server: tokio::task::JoinHandle<()>,
}

impl Client {
    async fn connect() -> Self {
        let (socket, far) = tokio::io::duplex(1 << 16);
        let (reader, writer) = tokio::io::split(far);
        let backend = Backends::new(ManualClock::at(1)).register("ada");
        let log = Arc::new(Mutex::new(Vec::new()));
        let script = Script {
            backend: backend.clone(),
            log: log.clone(),
            status: TransactionStatus::Idle,
            implicit: false,
        };
        let startup = Startup {
            user: "ada".into(),
            database: "tidemill".into(),
            parameters: Vec::new(),
            minor_version: 0,
        };
        let server = tokio::spawn(async move {
            Connection::new(Wire::new(reader, writer), script)
                .run(&startup)
                .await;
        });
        let mut client = Self {
            socket,
            backend,
            log,
            server,
        };
        assert_eq!(client.until_ready().await, ["K", "Z I"]);
        client
    }

    async fn send(&mut self, messages: &[(u8, &[u8])]) {
        let mut out = BytesMut::new();
        for (kind, body) in messages {
            out.put_u8(*kind);
            out.put_i32(body.len() as i32 + 4);
            out.put_slice(body);
        }
        self.socket.write_all(&out).await.unwrap();
    }

    async fn message(&mut self) -> String {
        let read = async {
            let kind = self.socket.read_u8().await.unwrap();
            let length = self.socket.read_i32().await.unwrap() as usize - 4;
            let mut body = vec![0; length];
            self.socket.read_exact(&mut body).await.unwrap();
            describe(kind, &body)
        };
        tokio::time::timeout(Duration::from_secs(10), read)
            .await
            .unwrap()
    }

    async fn until_ready(&mut self) -> Vec<String> {
        let mut messages = Vec::new();
        loop {
            messages.push(self.message().await);
            if messages.last().unwrap().starts_with('Z') {
                return messages;
            }
        }
    }

    async fn query(&mut self, sql: &str) -> Vec<String> {
        let body = [sql.as_bytes(), b"\0"].concat();
        self.send(&[(b'Q', &body)]).await;
        self.until_ready().await
    }
}

fn describe(kind: u8, body: &[u8]) -> String {
    let kind = char::from(kind);
    match kind {
        'Z' => format!("Z {}", char::from(body[0])),
        'C' => format!(
            "C {}",
            std::str::from_utf8(&body[..body.len() - 1]).unwrap()
        ),
        'D' => {
            let mut value = &body[2..];
            let length = value.get_i32() as usize;
            format!(
                "D {}",
                std::str::from_utf8(&value[..length]).unwrap_or("binary")
            )
        }
        'E' => {
            let code = body
                .split(|b| *b == 0)
                .find(|field| field.first() == Some(&b'C'));
            format!("E {}", std::str::from_utf8(&code.unwrap()[1..]).unwrap())
        }
        kind => kind.to_string(),
    }
}

fn parse(name: &str, sql: &str) -> Vec<u8> {
    [name.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"].concat()
}

fn bind(portal: &str, statement: &str) -> Vec<u8> {
    [
        portal.as_bytes(),
        b"\0",
        statement.as_bytes(),
        b"\0\0\0\0\0\0\0",
    ]
    .concat()
}

fn execute(portal: &str, limit: i32) -> Vec<u8> {
    [portal.as_bytes(), b"\0", &limit.to_be_bytes()].concat()
}

#[tokio::test]
async fn simple_queries_answer_statement_by_statement() {
    let mut client = Client::connect().await;
    assert_eq!(client.query("").await, ["I", "Z I"]);
    assert_eq!(
        client.query("rows 3").await,
        ["T", "D 0", "D 1", "D 2", "C SELECT 3", "Z I"]
    );
    assert_eq!(
        client.query("rows 1; fail; rows 2").await,
        ["T", "D 0", "C SELECT 1", "E 42P01", "Z I"]
    );
    assert_eq!(client.query("one; two").await, ["C ONE", "C TWO", "Z I"]);
    assert_eq!(client.query("syntax").await, ["E 42601", "Z I"]);
    assert_eq!(
        client.query("fail late").await,
        ["T", "D 1", "D 2", "E 22012", "Z I"]
    );
    assert_eq!(client.query("panic").await, ["E XX000", "Z I"]);
    assert_eq!(client.query("begin").await, ["C BEGIN", "Z T"]);
    assert_eq!(client.query("fail late").await.last().unwrap(), "Z E");
    let log = client.log.lock().join(",");
    // Each statement of a message belongs to an implicit transaction, if none is open.
    assert!(
        log.contains("begin implicit,rows 1,begin implicit,fail,rollback"),
        "{log}"
    );
    assert!(
        log.contains("begin implicit,one,begin implicit,two,commit"),
        "{log}"
    );
}

#[tokio::test]
async fn portals_stop_at_their_limit_and_go_on() {
    let mut client = Client::connect().await;
    client
        .send(&[
            (b'P', &parse("s", "rows 5")),
            (b'D', b"Ss\0"),
            (b'B', &bind("p", "s")),
            (b'D', b"Pp\0"),
            (b'E', &execute("p", 3)),
            (b'E', &execute("p", 2)),
            (b'E', &execute("p", 0)),
            (b'S', b""),
        ])
        .await;
    assert_eq!(
        client.until_ready().await,
        [
            "1",
            "t",
            "T",
            "2",
            "T",
            "D 0",
            "D 1",
            "D 2",
            "s",
            "D 3",
            "D 4",
            "s",
            "C SELECT 0",
            "Z I"
        ]
    );
    // The portal went with its transaction, the statement stays.
    client.send(&[(b'E', &execute("p", 0)), (b'S', b"")]).await;
    assert_eq!(client.until_ready().await, ["E 34000", "Z I"]);
    client
        .send(&[(b'P', &parse("s", "rows 1")), (b'S', b"")])
        .await;
    assert_eq!(client.until_ready().await, ["E 42P05", "Z I"]);
    assert_eq!(client.query("deallocate s").await, ["C DEALLOCATE", "Z I"]);
    client.send(&[(b'B', &bind("", "s")), (b'S', b"")]).await;
    assert_eq!(client.until_ready().await, ["E 26000", "Z I"]);
}

#[tokio::test]
async fn an_error_skips_to_sync_and_rolls_back() {
    let mut client = Client::connect().await;
    client
        .send(&[
            (b'P', &parse("", "one")),
            (b'B', &bind("", "")),
            (b'E', &execute("", 0)),
            (b'P', &parse("", "fail")),
            (b'B', &bind("", "")),
            (b'D', b"P\0"),
            (b'E', &execute("", 0)),
            (b'P', &parse("", "two")),
            (b'B', &bind("", "")),
            (b'E', &execute("", 0)),
            (b'S', b""),
        ])
        .await;
    assert_eq!(
        client.until_ready().await,
        ["1", "2", "C ONE", "1", "2", "n", "E 42P01", "Z I"]
    );
    assert_eq!(
        client.log.lock().join(","),
        "begin implicit,one,fail,rollback"
    );
    client.log.lock().clear();
    client
        .send(&[
            (b'P', &parse("", "one")),
            (b'B', &bind("", "")),
            (b'E', &execute("", 0)),
            (b'S', b""),
            (b'P', &parse("", "one; two")),
            (b'S', b""),
        ])
        .await;
    assert_eq!(client.until_ready().await, ["1", "2", "C ONE", "Z I"]);
    assert_eq!(client.until_ready().await, ["E 42601", "Z I"]);
    assert_eq!(client.log.lock().join(","), "one");
}

#[tokio::test]
async fn parameters_arrive_in_both_formats() {
    let mut client = Client::connect().await;
    let text = b"\0\0\0\0\0\x01\0\0\0\x0242\0\0";
    let binary = b"\0\0\0\x01\0\x01\0\x01\0\0\0\x08\0\0\0\0\0\0\0\x2b\0\x01\0\x01";
    let wrong_count = b"\0\0\0\0\0\0\0\0";
    let bad = b"\0\0\0\0\0\x01\0\0\0\x024x\0\0";
    for (body, expected) in [
        (&text[..], &["1", "2", "D 42", "C SELECT 1", "Z I"][..]),
        (
            binary,
            &["1", "2", "D \0\0\0\0\0\0\0+", "C SELECT 1", "Z I"],
        ),
        (wrong_count, &["1", "E 08P01", "Z I"]),
        (bad, &["1", "E 22P02", "Z I"]),
    ] {
        client
            .send(&[
                (b'P', &parse("", "echo")),
                (b'B', body),
                (b'E', &execute("", 0)),
                (b'S', b""),
            ])
            .await;
        assert_eq!(client.until_ready().await, expected);
    }
}

#[tokio::test]
async fn rows_show_as_they_come_and_a_cancel_ends_them() {
    let mut client = Client::connect().await;
    client.send(&[(b'Q', b"forever\0")]).await;
    assert_eq!(client.message().await, "T");
    assert_eq!(client.message().await, "D 7");
    assert!(client.backend.cancel());
    assert_eq!(client.until_ready().await, ["E 57014", "Z I"]);
    // A late cancel does not hit the next statement.
    assert!(!client.backend.cancel());
    assert_eq!(client.query("one").await, ["C ONE", "Z I"]);
    // The statement timeout of the script is 300 ms.
    assert_eq!(client.query("sleep").await, ["E 57014", "Z I"]);
}

#[tokio::test]
async fn a_vanished_client_ends_its_query() {
    let mut client = Client::connect().await;
    client.send(&[(b'Q', b"forever\0")]).await;
    assert_eq!(client.message().await, "T");
    let Client { socket, server, .. } = client;
    drop(socket);
    tokio::time::timeout(Duration::from_millis(250), server)
        .await
        .expect("before the statement timeout")
        .unwrap();
}

#[tokio::test]
async fn a_terminated_backend_says_why() {
    let mut client = Client::connect().await;
    client.backend.terminate();
    assert_eq!(client.message().await, "E 57P01");
    assert_eq!(client.socket.read(&mut [0; 1]).await.unwrap(), 0);
}

#[tokio::test]
async fn copy_keeps_all_or_nothing() {
    let mut client = Client::connect().await;
    client
        .send(&[
            (b'Q', b"copy\0"),
            (b'd', b"1\n2"),
            (b'd', b"2\n"),
            (b'c', b""),
        ])
        .await;
    assert_eq!(client.until_ready().await, ["G", "C COPY 2", "Z I"]);
    client
        .send(&[(b'Q', b"copy\0"), (b'd', b"1\n"), (b'f', b"no\0")])
        .await;
    assert_eq!(client.until_ready().await, ["G", "E 57014", "Z I"]);
    // What follows a failed COPY is read over.
    client
        .send(&[
            (b'Q', b"copy\0"),
            (b'd', b"x\n"),
            (b'd', b"2\n"),
            (b'c', b""),
        ])
        .await;
    assert_eq!(client.until_ready().await, ["G", "E 22P02", "Z I"]);
    assert_eq!(client.query("one").await, ["C ONE", "Z I"]);
    client.send(&[(b'Q', b"copy\0"), (b'd', b"1\n")]).await;
    assert_eq!(client.message().await, "G");
    let Client {
        socket,
        server,
        log,
        ..
    } = client;
    drop(socket);
    tokio::time::timeout(Duration::from_secs(5), server)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        log.lock()
            .iter()
            .filter(|l| l.starts_with("copied"))
            .count(),
        1
    );
}

#[tokio::test]
async fn malformed_messages_are_protocol_errors() {
    let mut client = Client::connect().await;
    client.send(&[(b'Q', b"\xff\0")]).await;
    assert_eq!(client.until_ready().await, ["E 22021", "Z I"]);
    client
        .send(&[(b'B', b"no end"), (b'P', &parse("", "one")), (b'S', b"")])
        .await;
    assert_eq!(client.until_ready().await, ["E 08P01", "Z I"]);
    client.socket.write_all(b"Q\0\0\0\x01").await.unwrap();
    assert_eq!(client.message().await, "E 08P01");
    assert_eq!(client.socket.read(&mut [0; 1]).await.unwrap(), 0);
}
