//! Against the client library's own broker in this process: real fetches, real offsets.

use std::time::Duration;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{Int32Type, Int64Type};
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer};

use super::*;
use crate::catalog::definition::{ColumnDefinition, Definition, OptionValue, StreamDefinition};
use crate::clock::SystemClock;
use crate::error::ErrorKind;
use crate::types::SqlType;

fn column(name: &str, sql_type: SqlType, metadata: Option<&str>) -> ColumnDefinition {
    ColumnDefinition {
        name: name.into(),
        sql_type,
        nullable: true,
        default: None,
        metadata_from: metadata.map(str::to_owned),
        comment: None,
        text_type: None,
    }
}

fn source(options: &[(&str, &str)]) -> Result<KafkaSource> {
    let options: Options = options
        .iter()
        .map(|(k, v)| ((*k).to_owned(), OptionValue::Text((*v).to_owned())))
        .collect();
    let object = CatalogObject {
        name: "k".into(),
        oid: 20_000,
        created_at_us: 0,
        comment: None,
        kept_as: None,
        renamed: Default::default(),
        definition: Definition::Stream(StreamDefinition {
            columns: vec![
                column("id", SqlType::BigInt, None),
                column("o", SqlType::BigInt, Some("offset")),
                column("p", SqlType::Integer, Some("partition")),
                column("k", SqlType::Text, Some("key")),
                column("h", SqlType::Jsonb, Some("headers")),
                column("t", SqlType::TimestampTz, Some("timestamp")),
                column("topic", SqlType::Text, Some("topic")),
            ],
            watermark: None,
            expectations: vec![],
            connector: Some("kafka".into()),
            options: options.clone(),
            shape: Default::default(),
        }),
    };
    let environment = ConnectorEnvironment::new(None, SystemClock::shared());
    KafkaSource::open(&object, &options, &environment)
}

struct Broker {
    cluster: MockCluster<'static, DefaultProducerContext>,
    producer: BaseProducer,
}

impl Broker {
    fn new(partitions: i32) -> Self {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("t", partitions, 1).unwrap();
        let producer = ClientConfig::new()
            .set("bootstrap.servers", cluster.bootstrap_servers())
            .create()
            .unwrap();
        Self { cluster, producer }
    }

    fn send(&self, partition: i32, payloads: &[&str]) {
        for payload in payloads {
            let headers = OwnedHeaders::new().insert(Header {
                key: "from",
                value: Some("test"),
            });
            let record = BaseRecord::to("t")
                .partition(partition)
                .key("key")
                .headers(headers)
                .payload(*payload);
            self.producer.send(record).map_err(|(e, _)| e).unwrap();
        }
        self.producer.flush(Duration::from_secs(10)).unwrap();
    }

    fn open(&self, more: &[(&str, &str)]) -> KafkaSource {
        let brokers = self.cluster.bootstrap_servers();
        let mut options = vec![
            ("brokers", brokers.as_str()),
            ("topic", "t"),
            ("format", "json"),
        ];
        options.extend_from_slice(more);
        source(&options).unwrap()
    }
}

async fn read(
    source: &KafkaSource,
    range: &SourceRange,
    projection: &[usize],
) -> Result<Vec<SourceChunk>> {
    let stream = source.read_range(1, range, projection).await?;
    stream.collect::<Vec<_>>().await.into_iter().collect()
}

fn ids(chunks: &[SourceChunk]) -> Vec<i64> {
    chunks
        .iter()
        .flat_map(|c| {
            c.changes
                .rows()
                .column(0)
                .as_primitive::<Int64Type>()
                .values()
                .to_vec()
        })
        .collect()
}

/// An offset as JSON without the topic's identity, which differs from run to run.
fn numbers_of(offset: &SourceOffset) -> serde_json::Value {
    let mut json = offset.0.clone();
    json["t"].as_object_mut().unwrap().remove("topic_id");
    json
}

fn range(start: serde_json::Value, end: serde_json::Value) -> SourceRange {
    SourceRange {
        start: SourceOffset(serde_json::json!({"t": start})),
        end: SourceOffset(serde_json::json!({"t": end})),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exact_ranges_again_and_again() {
    let broker = Broker::new(3);
    let numbers: Vec<String> = (0..40).map(|i| format!("{{\"id\":{i}}}")).collect();
    let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
    broker.send(0, &numbers[0..20]);
    broker.send(2, &numbers[20..40]);
    let source = broker.open(&[
        ("starting_offsets", "earliest"),
        ("max_offsets_per_trigger", "10"),
    ]);
    let start = source.initial_offset().await.unwrap();
    assert_eq!(
        numbers_of(&start),
        serde_json::json!({"t": {"0": 0, "1": 0, "2": 0}})
    );
    let latest = source.latest_offset().await.unwrap();
    assert_eq!(
        numbers_of(&latest),
        serde_json::json!({"t": {"0": 20, "1": 0, "2": 20}})
    );
    assert_eq!(source.backlog(&start, &latest).rows, Some(40));
    let first = source
        .plan_range(1, &start, &latest, &ReadLimits::default())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        numbers_of(&first.end),
        serde_json::json!({"t": {"0": 5, "1": 0, "2": 5}})
    );
    for _ in 0..3 {
        let chunks = read(&source, &first, &[0]).await.unwrap();
        assert_eq!(ids(&chunks), [0, 1, 2, 3, 4, 20, 21, 22, 23, 24]);
    }
    let rest = SourceRange {
        start: first.end.clone(),
        end: latest.clone(),
    };
    let chunks = read(&source, &rest, &[0]).await.unwrap();
    assert!(ids(&chunks).into_iter().eq((5..20).chain(25..40)));
    let caught_up = source
        .plan_range(3, &latest, &latest, &ReadLimits::default())
        .await;
    assert!(caught_up.unwrap().is_none());
    assert_eq!(
        broker.open(&[]).initial_offset().await.unwrap(),
        start,
        "the default is to start at the beginning"
    );
    let at_end = broker.open(&[("starting_offsets", "latest")]);
    assert_eq!(at_end.initial_offset().await.unwrap(), latest);
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_and_bad_records() {
    let broker = Broker::new(2);
    broker.send(1, &["{\"id\":1}", "oops", "{\"id\":\"x\"}", "{\"id\":2}"]);
    let source = broker.open(&[]);
    let all = range(serde_json::json!({"1": 0}), serde_json::json!({"1": 4}));
    let chunks = read(&source, &all, &[0, 1, 2, 3, 4, 5, 6]).await.unwrap();
    assert_eq!(chunks.len(), 1);
    let rows = chunks[0].changes.rows();
    assert_eq!(ids(&chunks), [1, 2]);
    assert_eq!(rows.column(1).as_primitive::<Int64Type>().values(), &[0, 3]);
    assert_eq!(rows.column(2).as_primitive::<Int32Type>().values(), &[1, 1]);
    assert_eq!(rows.column(3).as_string::<i32>().value(1), "key");
    assert_eq!(
        rows.column(4).as_string::<i32>().value(0),
        r#"[{"key":"from","value":"test"}]"#
    );
    assert_eq!(rows.column(5).null_count(), 0);
    assert_eq!(rows.column(6).as_string::<i32>().value(0), "t");
    let origins: Vec<_> = chunks[0]
        .dead_letters
        .iter()
        .map(|l| l.origin.as_str())
        .collect();
    assert_eq!(
        origins,
        [
            "topic t partition 1 offset 1",
            "topic t partition 1 offset 2"
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_records_stop_or_are_told() {
    let broker = Broker::new(1);
    broker.send(0, &["{\"id\":1}"]);
    let source = broker.open(&[]);
    let latest = source.latest_offset().await.unwrap();
    let beyond = SourceOffset(serde_json::json!({"t": {"0": 50}}));
    let plan = source
        .plan_range(1, &beyond, &latest, &ReadLimits::default())
        .await;
    let error = plan.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(
        error.primary().contains("partition 0")
            && error.hint_text().unwrap().contains("fail_on_data_loss")
    );
    let error = read(
        &source,
        &range(serde_json::json!({"0": 50}), serde_json::json!({"0": 60})),
        &[0],
    )
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    let lenient = broker.open(&[("fail_on_data_loss", "false")]);
    let planned = lenient
        .plan_range(1, &beyond, &latest, &ReadLimits::default())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(ids(&read(&lenient, &planned, &[0]).await.unwrap()), [1]);
    let notices = lenient.take_notices();
    assert!(
        notices.len() == 1 && notices[0].text.contains("offset 50"),
        "{notices:?}"
    );
    let again = lenient
        .plan_range(1, &beyond, &latest, &ReadLimits::default())
        .await;
    assert!(again.unwrap().is_some() && lenient.take_notices().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_was_created_again_is_found_though_it_has_grown() {
    let broker = Broker::new(1);
    broker.send(0, &["{\"id\":1}", "{\"id\":2}", "{\"id\":3}"]);
    let source = broker.open(&[]);
    let new = "00000000-0000-0000-0000-000000000002";
    let latest = source.latest_offset().await.unwrap();
    assert_eq!(numbers_of(&latest), serde_json::json!({"t": {"0": 3}}));
    let latest = SourceOffset(serde_json::json!({"t": {"0": 3, "topic_id": new}}));
    let knows = |source: KafkaSource| {
        let ids = TopicIds::from([("t".to_owned(), new.to_owned())]);
        *source.inner.ids.lock() = Some(ids);
        source
    };
    let old = "00000000-0000-0000-0000-000000000001";
    let before = SourceOffset(serde_json::json!({"t": {"0": 2, "topic_id": old}}));
    let limits = ReadLimits::default();
    let error = source
        .plan_range(2, &before, &latest, &limits)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(
        error.detail_text().unwrap().contains("created again"),
        "{error}"
    );
    let replayed = SourceRange {
        start: SourceOffset(serde_json::json!({"t": {"0": 1, "topic_id": old}})),
        end: before.clone(),
    };
    let error = read(&knows(broker.open(&[])), &replayed, &[0])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    let lenient = knows(broker.open(&[("fail_on_data_loss", "false")]));
    assert!(read(&lenient, &replayed, &[0]).await.unwrap().is_empty());
    assert_eq!(lenient.take_notices().len(), 1);
    let planned = lenient.plan_range(2, &before, &latest, &limits).await;
    let planned = planned.unwrap().unwrap();
    assert_eq!(
        ids(&read(&lenient, &planned, &[0]).await.unwrap()),
        [1, 2, 3]
    );
    assert_eq!(planned.end, latest);
    assert_eq!(lenient.take_notices().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_broker_is_a_transient_error() {
    let options = [
        ("brokers", "127.0.0.1:1"),
        ("topic", "t"),
        ("kafka.socket.timeout.ms", "1000"),
    ];
    let error = source(&options).unwrap().latest_offset().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transient);
    assert!(error.primary().contains("127.0.0.1:1"), "{error}");
    let broker = Broker::new(1);
    let brokers = broker.cluster.bootstrap_servers();
    let options = [
        ("brokers", brokers.as_str()),
        ("topic", "t"),
        ("kafka.no.such.thing", "1"),
    ];
    let error = source(&options).unwrap().latest_offset().await.unwrap_err();
    assert!(
        error.detail_text().unwrap().contains("no.such.thing"),
        "{error}"
    );
    let options = [
        ("brokers", "b"),
        ("topic", "t"),
        ("kafka.auto.offset.reset", "latest"),
    ];
    assert!(
        source(&options)
            .err()
            .unwrap()
            .primary()
            .contains("auto.offset.reset")
    );
}
