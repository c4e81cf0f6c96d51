//! Lines out of pieces, and a real connection into a real log.

use datafusion::arrow::array::AsArray;

use super::*;
use crate::catalog::definition::{ColumnDefinition, OptionValue, Options, StreamDefinition};
use crate::clock::{ManualClock, SystemClock};
use crate::connectors::{Source, open_source};
use crate::types::SqlType;
use futures::StreamExt;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

fn object(options: &[(&str, &str)], sql_type: SqlType) -> CatalogObject {
    let options: Options = options
        .iter()
        .map(|(k, v)| ((*k).to_owned(), OptionValue::Text((*v).to_owned())))
        .collect();
    CatalogObject {
        name: "s".into(),
        oid: 20_000,
        created_at_us: 0,
        comment: None,
        kept_as: None,
        renamed: Default::default(),
        definition: Definition::Stream(StreamDefinition {
            columns: vec![ColumnDefinition {
                name: "value".into(),
                sql_type,
                nullable: true,
                default: None,
                metadata_from: None,
                comment: None,
                text_type: None,
            }],
            watermark: None,
            expectations: vec![],
            connector: Some("socket".into()),
            options,
            shape: Default::default(),
        }),
    }
}

fn endpoint(options: &[(&str, &str)], sql_type: SqlType) -> Result<Endpoint> {
    let environment = ConnectorEnvironment::new(None, ManualClock::at(0));
    Endpoint::from_object(&object(options, sql_type), &environment)
}

fn lines(endpoint: &Endpoint) -> Lines {
    let layout = &endpoint.layout;
    let decoder = RecordDecoder::new(
        &endpoint.format,
        &layout.payload,
        &layout.payload_projection,
    );
    Lines::new(decoder.unwrap(), endpoint.address())
}

const HERE: [(&str, &str); 2] = [("host", "localhost"), ("port", "9999")];

#[test]
fn a_socket_cannot_stop_at_a_bad_row() {
    let with = |policy| endpoint(&[HERE[0], HERE[1], ("on_bad_row", policy)], SqlType::Text);
    assert_eq!(with("fail").err().unwrap().sqlstate(), "0A000");
    assert!(with("drop").unwrap().drops_bad_rows);
    assert!(!with("dead letter").unwrap().drops_bad_rows);
}

#[test]
fn lines_come_whole_out_of_any_pieces() {
    let endpoint = endpoint(&HERE, SqlType::Text).unwrap();
    let input = "one two\r\n\nd\u{e9}j\u{e0}\nlast".as_bytes();
    for step in 1..input.len() {
        let mut lines = lines(&endpoint);
        for piece in input.chunks(step) {
            lines.add(piece);
        }
        assert_eq!(lines.rows(), 3);
        lines.finish();
        let (rows, letters) = lines.take(&endpoint.layout).unwrap();
        let rows = rows.unwrap();
        let texts: Vec<_> = rows.column(0).as_string::<i32>().iter().flatten().collect();
        assert_eq!(texts, ["one two", "", "d\u{e9}j\u{e0}", "last"]);
        assert!(letters.is_empty());
    }
}

#[test]
fn bad_lines_are_dead_letters_with_their_number() {
    let mut options = HERE.to_vec();
    options.push(("format", "json"));
    let endpoint = endpoint(&options, SqlType::BigInt).unwrap();
    let mut lines = lines(&endpoint);
    lines.add(b"{\"value\":1}\n\nno\n{\"value\":2}\n");
    let (rows, letters) = lines.take(&endpoint.layout).unwrap();
    assert_eq!(rows.unwrap().num_rows(), 2);
    assert_eq!(letters[0].origin, "localhost:9999 line 3");
    lines.add(b"\xff\n");
    assert_eq!(lines.take(&endpoint.layout).unwrap().1.len(), 1);
}

#[test]
fn commits_are_due_by_count_by_quiet_and_by_flow() {
    let endpoint = endpoint(&HERE, SqlType::Text).unwrap();
    let mut lines = lines(&endpoint);
    assert!(!lines.is_due(true), "nothing came");
    lines.add(b"a\n");
    assert!(!lines.is_due(false));
    assert!(lines.is_due(true), "quiet");
    for _ in 0..16 {
        assert!(!lines.is_due(false));
        lines.add(b"b\n");
    }
    assert!(lines.is_due(false), "a steady flow");
    lines.take(&endpoint.layout).unwrap();
    lines.add("x\n".repeat(BATCH_ROWS).as_bytes());
    assert!(lines.is_due(false), "many");
}

#[test]
fn pauses_grow_to_a_limit_and_differ() {
    assert!(pause(1, 0) >= PAUSE_MIN / 2 && pause(1, 49_999) <= PAUSE_MIN);
    assert!(pause(5, 0) > pause(2, 0));
    assert!(pause(1_000, u64::MAX) <= PAUSE_MAX);
    assert_ne!(pause(4, 1), pause(4, 2));
}

#[test]
fn options_are_checked() {
    assert!(
        endpoint(&[("host", "h")], SqlType::Text)
            .err()
            .unwrap()
            .primary()
            .contains("port")
    );
    let far = [("host", "h"), ("port", "70000")];
    assert!(
        endpoint(&far, SqlType::Text)
            .err()
            .unwrap()
            .detail_text()
            .unwrap()
            .contains("70000")
    );
}

async fn received(source: &dyn Source) -> Vec<String> {
    let start = source.initial_offset().await.unwrap();
    let latest = source.latest_offset().await.unwrap();
    let limits = crate::connectors::ReadLimits::default();
    let planned = source.plan_range(1, &start, &latest, &limits).await;
    let Some(range) = planned.unwrap() else {
        return vec![];
    };
    let chunks = source.read_range(1, &range, &[0]).await.unwrap();
    chunks
        .flat_map(|chunk| {
            let rows = chunk.unwrap().changes.rows().clone();
            let texts: Vec<String> = rows
                .column(0)
                .as_string::<i32>()
                .iter()
                .map(|t| t.unwrap().to_owned())
                .collect();
            futures::stream::iter(texts)
        })
        .collect()
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_received_is_in_the_log_and_a_lost_connection_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let log = DurableLog::open(folder.path()).unwrap();
    let environment = ConnectorEnvironment::new(Some(log), SystemClock::shared());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let object = object(&[("host", "127.0.0.1"), ("port", &port)], SqlType::Text);
    let source = open_source(&object, &environment).unwrap();
    let start = source.initial_offset().await.unwrap();
    let receiver = SocketReceiver::start(&object, &environment).unwrap();

    let (mut server, _) = listener.accept().await.unwrap();
    server.write_all(b"one\ntwo\nthr").await.unwrap();
    source.wait_for_data(&start).await;
    assert_eq!(received(source.as_ref()).await, ["one", "two"]);
    assert!(receiver.status().connected);
    server.write_all(b"ee\nlast without newline").await.unwrap();
    drop(server);

    let (mut server, _) = listener.accept().await.unwrap();
    server.write_all(b"again\n").await.unwrap();
    while receiver.status().rows < 5 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let all = ["one", "two", "three", "last without newline", "again"];
    assert_eq!(received(source.as_ref()).await, all);
    receiver.stop().await;
    assert_eq!(
        received(source.as_ref()).await,
        all,
        "a batch reads the same again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_told_and_stopping_is_quick() {
    let folder = tempfile::tempdir().unwrap();
    let log = DurableLog::open(folder.path()).unwrap();
    let environment = ConnectorEnvironment::new(Some(log), SystemClock::shared());
    let object = object(&[("host", "127.0.0.1"), ("port", "1")], SqlType::Text);
    let receiver = SocketReceiver::start(&object, &environment).unwrap();
    while receiver.status().last_error.is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let status = receiver.status();
    let trouble = status.trouble().unwrap();
    assert_eq!(trouble.kind(), crate::error::ErrorKind::Transient);
    assert!(trouble.primary().contains("127.0.0.1:1"));
    assert!(!status.connected && status.down_since_us.is_some());
    let stopped = tokio::time::timeout(Duration::from_secs(2), receiver.stop());
    stopped.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_is_no_text_is_a_dead_letter_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let log = DurableLog::open(folder.path()).unwrap();
    let mut environment = ConnectorEnvironment::new(Some(log), SystemClock::shared());
    let recorded: Arc<Mutex<Vec<(String, DeadLetter)>>> = Arc::default();
    let records = recorded.clone();
    environment.dead_letters = Some(Arc::new(move |stream, _, letters| {
        let named = letters.iter().map(|l| (stream.to_owned(), l.clone()));
        records.lock().extend(named);
    }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let object = object(&[("host", "127.0.0.1"), ("port", &port)], SqlType::Text);
    let receiver = SocketReceiver::start(&object, &environment).unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    server.write_all(b"good1\n\xff\xfe\ngood2\n").await.unwrap();
    while receiver.status().rows < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let status = receiver.status();
    assert_eq!((status.dead_letters, status.trouble().is_none()), (1, true));
    let recorded = recorded.lock().clone();
    assert_eq!(recorded.len(), 1);
    assert!(recorded[0].0 == "s" && recorded[0].1.origin.ends_with("line 2"));
    assert_eq!(recorded[0].1.raw, b"\xff\xfe");
    receiver.stop().await;
}
