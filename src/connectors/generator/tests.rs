//! Determinism, rates and the ratios of Nexmark.

use std::collections::HashMap;

use datafusion::arrow::array::types::{Int64Type, TimestampMicrosecondType};
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::concat_batches;

use super::*;
use crate::catalog::definition::{ColumnDefinition, Definition, OptionValue, StreamDefinition};
use crate::clock::ManualClock;
use crate::types::SqlType;

fn column(name: &str, sql_type: SqlType) -> ColumnDefinition {
    ColumnDefinition {
        name: name.into(),
        sql_type,
        nullable: false,
        default: None,
        metadata_from: None,
        comment: None,
        text_type: None,
    }
}

fn open(
    columns: Vec<ColumnDefinition>,
    options: &[(&str, &str)],
    clock: ClockRef,
) -> Result<GeneratorSource> {
    let options: Options = options
        .iter()
        .map(|(k, v)| ((*k).to_owned(), OptionValue::Text((*v).to_owned())))
        .collect();
    let object = CatalogObject {
        name: "g".into(),
        oid: 20_000,
        created_at_us: 1_000_000,
        comment: None,
        kept_as: None,
        renamed: Default::default(),
        definition: Definition::Stream(StreamDefinition {
            columns,
            watermark: None,
            expectations: vec![],
            connector: Some("generator".into()),
            options: options.clone(),
            shape: Default::default(),
        }),
    };
    GeneratorSource::open(&object, &options, &ConnectorEnvironment::new(None, clock))
}

async fn read(source: &GeneratorSource, from: u64, to: u64, projection: &[usize]) -> RecordBatch {
    let range = SourceRange {
        start: offset(from),
        end: offset(to),
    };
    let chunks: Vec<_> = source
        .read_range(1, &range, projection)
        .await
        .unwrap()
        .map(|c| c.unwrap().changes.rows().clone())
        .collect()
        .await;
    let schema = Arc::new(source.schema().project(projection).unwrap());
    concat_batches(&schema, &chunks).unwrap()
}

fn bids() -> Vec<ColumnDefinition> {
    vec![
        column("auction", SqlType::BigInt),
        column("bidder", SqlType::BigInt),
        column("price", SqlType::BigInt),
        column("channel", SqlType::Text),
        column("url", SqlType::Text),
        column("date_time", SqlType::BigInt),
        column("extra", SqlType::Text),
    ]
}

#[tokio::test]
async fn any_range_reads_the_same() {
    let columns = || {
        vec![
            column("id", SqlType::BigInt),
            column("user_id", SqlType::Integer),
            column("user_key", SqlType::Text),
            column(
                "amount",
                SqlType::Numeric {
                    precision: 12,
                    scale: 3,
                },
            ),
            column("at", SqlType::TimestampTz),
            column("u", SqlType::Uuid),
            column("tags", SqlType::Array(Box::new(SqlType::SmallInt))),
            column(
                "doc",
                SqlType::Struct(vec![("x_id".into(), SqlType::BigInt)]),
            ),
            column("j", SqlType::Jsonb),
            column(
                "small",
                SqlType::Numeric {
                    precision: 3,
                    scale: 0,
                },
            ),
        ]
    };
    let options = [("rows", "100000"), ("seed", "7"), ("keys", "10")];
    let source = open(columns(), &options, ManualClock::at(0)).unwrap();
    let all: Vec<usize> = (0..10).collect();
    let whole = read(&source, 0, 70_000, &all).await;
    let again = open(columns(), &options, ManualClock::at(9)).unwrap();
    assert_eq!(read(&again, 0, 70_000, &all).await, whole);
    let part = read(&source, 40_001, 60_000, &[4, 2]).await;
    assert_eq!(part, whole.slice(40_001, 19_999).project(&[4, 2]).unwrap());

    let ids = whole.column(0).as_primitive::<Int64Type>();
    assert!(ids.values().iter().copied().eq(0..70_000));
    let mut keys: HashMap<&str, u32> = HashMap::new();
    for key in whole.column(2).as_string::<i32>().iter().flatten() {
        *keys.entry(key).or_default() += 1;
    }
    assert_eq!(keys.len(), 10);
    assert!(keys.contains_key("user-0") && keys.values().all(|n| (6_000..8_000).contains(n)));
    assert!(whole.columns().iter().all(|c| c.null_count() == 0));

    let other = open(
        columns(),
        &[("rows", "10"), ("seed", "8")],
        ManualClock::at(0),
    )
    .unwrap();
    assert_ne!(
        read(&other, 0, 10, &[2]).await,
        read(&source, 0, 10, &[2]).await
    );
    assert_eq!(read(&source, 0, 3, &[]).await.num_rows(), 3);
}

#[tokio::test]
async fn rows_appear_by_the_clock_up_to_the_bound() {
    let clock = ManualClock::at(1_000_000);
    let columns = vec![
        column("n", SqlType::BigInt),
        column("at", SqlType::Timestamp),
    ];
    let options = [("rows", "25"), ("rows_per_second", "10")];
    let source = open(columns, &options, clock.clone()).unwrap();
    let start = source.initial_offset().await.unwrap();
    let limits = ReadLimits::default();
    let latest = source.latest_offset().await.unwrap();
    assert_eq!(latest, start);
    assert!(
        source
            .plan_range(1, &start, &latest, &limits)
            .await
            .unwrap()
            .is_none()
    );
    clock.advance_us(1_050_000);
    let latest = source.latest_offset().await.unwrap();
    assert_eq!(latest, offset(10));
    let limits = ReadLimits {
        max_rows: Some(4),
        ..limits
    };
    let range = source
        .plan_range(1, &start, &latest, &limits)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(range.end, offset(4));
    assert_eq!(source.backlog(&range.end, &latest).rows, Some(6));
    let rows = read(&source, 0, 4, &[1]).await;
    let at = rows.column(0).as_primitive::<TimestampMicrosecondType>();
    assert_eq!(at.values(), &[1_000_000, 1_100_000, 1_200_000, 1_300_000]);
    clock.advance_us(60_000_000);
    assert_eq!(source.latest_offset().await.unwrap(), offset(25));
    // A clock that goes back makes nothing and breaks nothing.
    clock.advance_us(-500_000_000);
    assert_eq!(source.latest_offset().await.unwrap(), offset(0));
}

#[test]
fn mistakes_are_refused_at_creation() {
    let open = |columns, options: &[(&str, &str)]| {
        open(columns, options, ManualClock::at(0)).err().unwrap()
    };
    let n = || vec![column("n", SqlType::BigInt)];
    assert!(open(n(), &[]).hint_text().unwrap().contains("rows"));
    assert!(
        open(n(), &[("rows", "5"), ("kind", "other")])
            .detail_text()
            .unwrap()
            .contains("nexmark")
    );
    let nexmark = [("rows", "50"), ("kind", "nexmark"), ("event", "bid")];
    assert!(open(n(), &nexmark).hint_text().unwrap().contains("bidder"));
    let price = vec![column("url", SqlType::BigInt)];
    assert_eq!(
        open(price, &nexmark).sqlstate(),
        sqlstate::DATATYPE_MISMATCH
    );
}

#[tokio::test]
async fn nexmark_has_its_ratios() {
    const EVENTS: u64 = 500_000;
    assert_eq!(Event::Person.count_among(EVENTS), 10_000);
    assert_eq!(Event::Auction.count_among(EVENTS), 30_000);
    assert_eq!(Event::Bid.count_among(EVENTS), 460_000);
    for events in 0..200 {
        let kinds = [Event::Person, Event::Auction, Event::Bid];
        assert_eq!(
            kinds.iter().map(|k| k.count_among(events)).sum::<u64>(),
            events
        );
    }
    let options = [("rows", "500000"), ("kind", "nexmark"), ("event", "bid")];
    let source = open(bids(), &options, ManualClock::at(0)).unwrap();
    assert_eq!(source.latest_offset().await.unwrap(), offset(460_000));
    let rows = read(&source, 200_000, 300_000, &[0, 1, 2, 3, 4, 5]).await;
    let share = |count: usize| count as f64 / rows.num_rows() as f64;
    let column = |i: usize| rows.column(i).as_primitive::<Int64Type>().clone();
    let hot_auctions = column(0).values().iter().filter(|a| *a % 100 == 0).count();
    assert!(
        (0.50..0.53).contains(&share(hot_auctions)),
        "{}",
        share(hot_auctions)
    );
    let hot_bidders = column(1).values().iter().filter(|b| *b % 100 == 1).count();
    assert!(
        (0.74..0.77).contains(&share(hot_bidders)),
        "{}",
        share(hot_bidders)
    );
    let prices = column(2);
    assert!(
        prices
            .values()
            .iter()
            .all(|p| (100..=100_000_000).contains(p))
    );
    let channels = rows.column(3).as_string::<i32>();
    let well_known = channels
        .iter()
        .flatten()
        .filter(|c| !c.starts_with("channel-"))
        .count();
    assert!((0.48..0.52).contains(&share(well_known)));
    for (channel, url) in channels
        .iter()
        .zip(rows.column(4).as_string::<i32>().iter())
        .take(500)
    {
        let (channel, url) = (channel.unwrap(), url.unwrap());
        match channel.strip_prefix("channel-") {
            Some(id) => assert!(url.ends_with(&format!("&channel_id={id}")), "{url}"),
            None => assert!(!url.contains("channel_id"), "{url}"),
        }
    }
    // 10,000 events a second from the benchmark's start, in milliseconds, never going back.
    let times = column(5);
    assert!(times.values().is_sorted());
    let first_event = Event::Bid.number(200_000);
    assert_eq!(times.value(0), 1_436_918_400_000 + first_event as i64 / 10);
}

#[tokio::test]
async fn nexmark_streams_are_one_site() {
    let of = |columns, event| {
        let options = [
            ("rows", "200000"),
            ("kind", "nexmark"),
            ("event", event),
            ("seed", "3"),
        ];
        open(columns, &options, ManualClock::at(0)).unwrap()
    };
    let auctions = of(
        [
            "id",
            "seller",
            "category",
            "initial_bid",
            "reserve",
            "date_time",
            "expires",
        ]
        .map(|c| column(c, SqlType::BigInt))
        .to_vec(),
        "auction",
    );
    let persons = of(
        vec![
            column("id", SqlType::BigInt),
            column("name", SqlType::Text),
            column("email_address", SqlType::Text),
            column("credit_card", SqlType::Text),
            column("city", SqlType::Text),
            column("state", SqlType::Text),
            column("date_time", SqlType::Timestamp),
            column("extra", SqlType::Text),
        ],
        "person",
    );
    let bids = of(bids(), "bid");
    let auctions = read(&auctions, 0, 12_000, &[0, 1, 2, 3, 4, 5, 6]).await;
    let persons = read(&persons, 0, 4_000, &[0, 1, 2, 3, 4, 5, 6, 7]).await;
    let bids = read(&bids, 0, 184_000, &[0, 1]).await;
    let ints = |rows: &RecordBatch, i: usize| rows.column(i).as_primitive::<Int64Type>().clone();

    assert!(
        ints(&auctions, 0)
            .values()
            .iter()
            .copied()
            .eq(1_000..13_000)
    );
    assert!(ints(&persons, 0).values().iter().copied().eq(1_000..5_000));
    let (starts, ends) = (ints(&auctions, 5), ints(&auctions, 6));
    assert!(
        starts
            .values()
            .iter()
            .zip(ends.values())
            .all(|(s, e)| s < e)
    );
    let (initial, reserve) = (ints(&auctions, 3), ints(&auctions, 4));
    assert!(
        initial
            .values()
            .iter()
            .zip(reserve.values())
            .all(|(i, r)| i < r)
    );
    assert!(
        ints(&auctions, 2)
            .values()
            .iter()
            .all(|c| (10..15).contains(c))
    );
    let hot = ints(&auctions, 1)
        .values()
        .iter()
        .filter(|s| *s % 100 == 0)
        .count();
    assert!((0.74..0.78).contains(&(hot as f64 / 12_000.0)));
    // Bids name auctions that are, or are about to be, there; so do bidders.
    for (row, (auction, bidder)) in ints(&bids, 0)
        .values()
        .iter()
        .zip(ints(&bids, 1).values())
        .enumerate()
    {
        let event = Event::Bid.number(row as u64);
        let auctions_by_now = 1_000 + Event::Auction.count_among(event) as i64;
        assert!(
            *auction >= 1_000 && *auction < auctions_by_now + 10,
            "row {row}"
        );
        let persons_by_now = 1_000 + Event::Person.count_among(event) as i64;
        assert!(
            *bidder >= 1_000 && *bidder < persons_by_now + 10,
            "row {row}"
        );
    }
    let states = persons.column(5).as_string::<i32>();
    assert!(
        states
            .iter()
            .flatten()
            .all(|s| s.len() == 2 && s == s.to_uppercase())
    );
    assert!(
        persons
            .column(2)
            .as_string::<i32>()
            .value(9)
            .ends_with(".com")
    );
    assert_eq!(persons.column(3).as_string::<i32>().value(0).len(), 19);
}
