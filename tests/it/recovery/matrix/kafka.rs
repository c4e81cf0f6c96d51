//! Faults of a topic and its broker, which is a real one.

use super::bench::{Bench, InputFault};
use super::feed::{Feed, FeedKind, Row};

pub(super) fn faults() -> Vec<InputFault> {
    let mut all = of_brokers();
    all.extend(of_topics());
    all.extend(of_messages());
    all
}

fn of_brokers() -> Vec<InputFault> {
    vec![
        InputFault::new("Kafka: broker down at the start", FeedKind::Kafka, |b| {
            Box::pin(async move {
                b.wait_each(STATUS, "waiting for source").await;
                broker(b).await.restart();
                b.send().await;
            })
        })
        .away(),
        InputFault::new("Kafka: broker down in the middle", FeedKind::Kafka, |b| {
            Box::pin(async move {
                broker(b).await.stop();
                b.wait_told("waiting for source", "kafka").await;
                broker(b).await.restart();
                b.send().await;
            })
        }),
        InputFault::new("Kafka: broker does not answer", FeedKind::Kafka, |b| {
            Box::pin(async move {
                broker(b).await.pause();
                let start = std::time::Instant::now();
                let told = "SELECT count(*) FROM streaming_queries WHERE stream_name NOT LIKE '%twin' AND status IN ('waiting for source', 'stalled')";
                while b.server.value(told).await == "0" {
                    assert!(
                        start.elapsed() < std::time::Duration::from_secs(90),
                        "it is never told"
                    );
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
                broker(b).await.resume();
                let rows = b.rows(1);
                b.deliver(&rows).await;
                b.wait_equal_within(NEXT_TRY).await;
            })
        }),
        InputFault::new("Kafka: password wrong", FeedKind::KafkaSecured, |b| {
            Box::pin(async move {
                b.server.execute("ALTER SECRET word AS 'wrong'").await;
                b.server.terminate();
                b.server.restart();
                b.wait_told("waiting for source", "authentication").await;
                b.say_once("ALTER SECRET word AS 'right';").await;
                let rows = b.rows(1);
                b.deliver(&rows).await;
                b.wait_equal_within(NEXT_TRY).await;
            })
        }),
    ]
}

fn of_topics() -> Vec<InputFault> {
    vec![
        InputFault::new("Kafka: offsets gone", FeedKind::Kafka, |b| {
            Box::pin(async move {
                lose_offsets(b).await;
                b.wait_told("failed", "").await;
            })
        }),
        InputFault::new("Kafka: offsets gone, which may be", FeedKind::Kafka, |b| {
            Box::pin(async move {
                lose_offsets(b).await;
                b.wait_equal().await;
                let gaps = "SELECT sum(num_rows)::bigint FROM streaming_data_gaps WHERE stream_name = '{stream}'";
                b.wait_each(gaps, "6").await;
            })
        })
        .with(", fail_on_data_loss = false"),
        InputFault::new("Kafka: topic created again", FeedKind::Kafka, |b| {
            Box::pin(async move {
                create_again(b).await;
                b.wait_told("failed", "data loss").await;
            })
        }),
        InputFault::new("Kafka: topic created again, which may be", FeedKind::Kafka, |b| {
            Box::pin(async move {
                create_again(b).await;
                b.wait_equal().await;
                let gaps = "SELECT count(*) > 0 FROM streaming_data_gaps WHERE stream_name = '{stream}' AND cause LIKE '%created again%'";
                b.wait_each(gaps, "t").await;
            })
        })
        .with(", fail_on_data_loss = false"),
        InputFault::new("Kafka: topic deleted, its successor has another name", FeedKind::Kafka, |b| {
            Box::pin(async move {
                let old = topic(b);
                broker(b).await.delete_topic(&old).await;
                b.wait_told("waiting for source", &old).await;
                let new = format!("{old}n");
                broker(b).await.create_topic(&new, 2).await;
                if let Feed::Kafka { topic, .. } = &mut b.feed {
                    topic.clone_from(&new);
                }
                b.say(&format!("ALTER STREAM {{stream}} SET (topic = '{new}');")).await;
                b.send().await;
            })
        }),
        InputFault::new("Kafka: partitions added", FeedKind::Kafka, |b| {
            Box::pin(async move {
                let topic = topic(b);
                broker(b).await.add_partitions(&topic, 4).await;
                let rows = b.rows(4);
                let messages = rows.iter().enumerate();
                let messages = messages.map(|(i, row)| ((i % 4) as i32, row.json()));
                broker(b).await.produce(&topic, messages.collect::<Vec<_>>().into_iter());
                b.expect(&rows).await;
            })
        }),
    ]
}

fn of_messages() -> Vec<InputFault> {
    vec![
        InputFault::new("Kafka: messages that are no records", FeedKind::Kafka, |b| {
            Box::pin(async move {
                b.produce(vec!["poison".to_owned(), "{\"k\": \"x\"}".to_owned()]).await;
                let large = format!("{{\"k\": 1, \"v\": \"{}\"}}", "x".repeat(900_000));
                b.produce(vec![large]).await;
                b.send().await;
                let letters = "SELECT count(*) FROM streaming_dead_letters WHERE stream_name = '{stream}'";
                b.wait_each(letters, "3").await;
            })
        }),
        InputFault::new("Kafka: ten times as many at once", FeedKind::Kafka, |b| {
            Box::pin(async move {
                let rows = b.rows(100);
                b.deliver(&rows).await;
                b.wait_equal().await;
                let most = "SELECT max(num_input_rows) <= 10 FROM streaming_metrics_log WHERE stream_name = '{view}'";
                b.wait_each(most, "t").await;
            })
        })
        .with(", max_offsets_per_trigger = 10"),
        InputFault::new("Kafka: killed while it reads", FeedKind::Kafka, |b| {
            Box::pin(async move {
                for _ in 0..3 {
                    let rows = b.rows(5);
                    b.deliver(&rows).await;
                    b.server.kill();
                    b.server.restart();
                }
            })
        }),
    ]
}

/// A pipeline's next try is half a minute away at most, and takes as long as the broker does not answer.
const NEXT_TRY: std::time::Duration = std::time::Duration::from_secs(120);

const STATUS: &str = "SELECT status FROM streaming_queries WHERE stream_name = '{view}'";

async fn broker(b: &Bench) -> tokio::sync::MutexGuard<'_, crate::kafka::Broker> {
    match &b.feed {
        Feed::Kafka { broker, .. } => broker.lock().await,
        _ => panic!("no broker"),
    }
}

fn topic(b: &Bench) -> String {
    match &b.feed {
        Feed::Kafka { topic, .. } => topic.clone(),
        _ => panic!("no broker"),
    }
}

/// Rows come while the views rest, and six of them are gone when they start again.
async fn lose_offsets(b: &mut Bench) {
    for name in super::shapes::names() {
        b.server.execute(&format!("STOP PIPELINE {name}")).await;
    }
    let topic = topic(b);
    // Of partition 0 alone: its next offset is that of all its messages so far.
    let end = broker(b).await.end(&topic, 0).await;
    let lost = b.rows(2);
    let kept: Vec<Row> = b.rows(1);
    let all = lost.iter().chain(&kept).map(|row| (0, row.json()));
    let all: Vec<_> = all.collect();
    broker(b).await.produce(&topic, all.into_iter());
    broker(b).await.delete_before(&topic, end + 6).await;
    for name in super::shapes::names() {
        b.server.execute(&format!("START PIPELINE {name}")).await;
    }
    b.expect(&kept).await;
}

/// The topic is deleted and one of its name created, in which other rows lie.
async fn create_again(b: &mut Bench) {
    for name in super::shapes::names() {
        b.server.execute(&format!("STOP PIPELINE {name}")).await;
    }
    let topic = topic(b);
    broker(b).await.recreate_topic(&topic, 2).await;
    let rows = b.rows(4);
    b.deliver(&rows).await;
    for name in super::shapes::names() {
        b.server.execute(&format!("START PIPELINE {name}")).await;
    }
}
