//! Positions in topics, and what a batch takes: pure decisions over offsets and watermarks.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::connectors::telling::Names;
use crate::connectors::{DataGap, SourceOffset};
use crate::error::{Error, Result};

/// Offsets by partition.
pub type PartitionOffsets = BTreeMap<i32, i64>;

/// Next offset to read, by topic and partition: `{"events.clicks":{"0":42,"1":17}}`.
pub type TopicOffsets = BTreeMap<String, PartitionOffsets>;

/// First and next-to-be-written offset of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watermarks {
    /// First offset that is still there.
    pub low: i64,
    /// Offset that the next record will get.
    pub high: i64,
}

/// Watermarks by topic and partition.
pub type TopicWatermarks = BTreeMap<String, BTreeMap<i32, Watermarks>>;

/// Identities of topics, where brokers give them.
pub type TopicIds = BTreeMap<String, String>;

/// Key of a topic's identity among its partitions in the offset log's JSON.
const ID_KEY: &str = "topic_id";

/// What the offset log holds: `{"events.clicks":{"0":42,"1":17,"topic_id":"…"}}`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Position {
    /// Next offsets to read.
    pub offsets: TopicOffsets,
    /// The topics that they are offsets of; absent in logs of brokers without identities.
    pub ids: TopicIds,
}

/// Reads the offset log's JSON.
pub fn parse(offset: &SourceOffset) -> Result<Position> {
    read_position(&offset.0).ok_or_else(|| {
        Error::damaged("offset of a kafka source is not of the form {\"topic\":{\"0\":n}}")
            .detail(format!("It says {}.", offset.0))
    })
}

fn read_position(json: &Value) -> Option<Position> {
    let mut position = Position::default();
    for (topic, entries) in json.as_object()? {
        let partitions = position.offsets.entry(topic.clone()).or_default();
        for (key, value) in entries.as_object()? {
            if key == ID_KEY {
                let id = value.as_str()?.to_owned();
                position.ids.insert(topic.clone(), id);
            } else {
                partitions.insert(key.parse().ok()?, value.as_i64()?);
            }
        }
    }
    Some(position)
}

/// Writes the offset log's JSON.
pub fn to_offset(offsets: &TopicOffsets, ids: &TopicIds) -> SourceOffset {
    let topics = offsets.iter().map(|(topic, partitions)| {
        let id = ids
            .get(topic)
            .map(|id| (ID_KEY.to_owned(), Value::from(id.as_str())));
        let partitions = partitions
            .iter()
            .map(|(partition, offset)| (partition.to_string(), Value::from(*offset)))
            .chain(id)
            .collect();
        (topic.clone(), Value::Object(partitions))
    });
    SourceOffset(Value::Object(topics.collect()))
}

/// The topic is another one than the position was taken in.
pub fn is_recreated(topic: &str, then: &TopicIds, now: &TopicIds) -> bool {
    match (then.get(topic), now.get(topic)) {
        (Some(then), Some(now)) => then != now,
        _ => false,
    }
}

/// Where a new pipeline starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartingOffsets {
    /// at the first record that is there
    Earliest,
    /// behind the last one
    Latest,
    /// at given offsets; −2 is earliest and −1 latest, as are partitions that are not named
    Exact(TopicOffsets),
}

impl StartingOffsets {
    /// From the option's text; `None` if it is of no known form.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "earliest" => Some(Self::Earliest),
            "latest" => Some(Self::Latest),
            _ => serde_json::from_str(text).ok().map(Self::Exact),
        }
    }

    /// Concrete offsets within what is there.
    pub fn resolve(&self, watermarks: &TopicWatermarks) -> TopicOffsets {
        let start = |topic: &str, partition: i32, marks: &Watermarks| match self {
            Self::Earliest => marks.low,
            Self::Latest => marks.high,
            Self::Exact(exact) => match exact.get(topic).and_then(|p| p.get(&partition)) {
                Some(-2) => marks.low,
                Some(-1) | None => marks.high,
                Some(offset) => *offset,
            },
        };
        watermarks
            .iter()
            .map(|(topic, partitions)| {
                let partitions = partitions
                    .iter()
                    .map(|(p, marks)| (*p, start(topic, *p, marks)))
                    .collect();
                (topic.clone(), partitions)
            })
            .collect()
    }
}

/// The positions behind all that is there.
pub fn latest(watermarks: &TopicWatermarks) -> TopicOffsets {
    StartingOffsets::Latest.resolve(watermarks)
}

/// A part of a topic that should be there and is not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Offset that was to be read next.
    pub wanted: i64,
    /// What the partition holds now; `None`: the partition is gone.
    pub marks: Option<Watermarks>,
    /// The topic is another one of the same name: none of its offsets mean what they did.
    pub recreated: bool,
}

impl Loss {
    /// Offsets that cannot be read any more, where that is known.
    pub fn rows(&self) -> Option<u64> {
        if self.recreated {
            return None;
        }
        let marks = self.marks?;
        u64::try_from(marks.low - self.wanted).ok()
    }

    /// As it is kept where loss is accepted.
    pub(in crate::connectors) fn gap(&self) -> DataGap {
        let next = self
            .marks
            .filter(|_| !self.recreated)
            .map(|marks| marks.low);
        DataGap {
            partition: format!("{}/{}", self.topic, self.partition),
            from: Some(self.wanted.to_string()),
            to: next
                .filter(|next| *next > self.wanted)
                .map(|next| next.to_string()),
            rows: self.rows(),
            bytes: None,
            accepted_by: "fail_on_data_loss = false",
        }
    }

    /// As a sentence.
    pub fn describe(&self) -> String {
        let Self {
            topic,
            partition,
            wanted,
            marks,
            recreated,
        } = self;
        match (marks, self.rows()) {
            (Some(marks), _) if *recreated => format!(
                "Topic {topic} was deleted and created again: in the old one offset {wanted} of \
                 partition {partition} was to be read next; the new one has offsets {} up to {}.",
                marks.low, marks.high
            ),
            (None, _) => format!(
                "Partition {partition} of topic {topic} is gone; offset {wanted} was to be read next."
            ),
            (Some(marks), Some(rows)) => format!(
                "Partition {partition} of topic {topic}: offset {wanted} was to be read next, the \
                 earliest there is {}; {rows} offsets are lost.",
                marks.low
            ),
            (Some(marks), None) => format!(
                "Partition {partition} of topic {topic}: offset {wanted} was to be read next, but \
                 the partition ends at {}: it was deleted and created again, or cut.",
                marks.high
            ),
        }
    }

    /// The error where loss is not accepted.
    pub(in crate::connectors) fn error(&self, names: &Names) -> Error {
        Error::damaged(format!(
            "data loss in kafka topic \"{}\" partition {}",
            self.topic, self.partition
        ))
        .detail(self.describe())
        .hint(format!(
            "To go on without these records: {} to start over: {}",
            names.alter_stream("fail_on_data_loss = false"),
            names.checkpoint("RESET", " FROM EARLIEST")
        ))
    }
}

impl Position {
    /// Lets go of topics that the stream names no more: to read them no longer is no loss.
    pub fn keep_topics(&mut self, topics: &[String]) {
        self.offsets.retain(|topic, _| topics.contains(topic));
        self.ids.retain(|topic, _| topics.contains(topic));
    }
}

/// Positions of `start` that the topics, which are `ids` now, no longer have.
pub fn losses(start: &Position, ids: &TopicIds, watermarks: &TopicWatermarks) -> Vec<Loss> {
    let mut found = Vec::new();
    for (topic, partitions) in &start.offsets {
        let recreated = is_recreated(topic, &start.ids, ids);
        for (partition, wanted) in partitions {
            let marks = watermarks
                .get(topic)
                .and_then(|p| p.get(partition))
                .copied();
            let there = marks.is_some_and(|m| m.low <= *wanted && *wanted <= m.high);
            if recreated || !there {
                found.push(Loss {
                    topic: topic.clone(),
                    partition: *partition,
                    wanted: *wanted,
                    marks,
                    recreated,
                });
            }
        }
    }
    found
}

/// A batch's range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// Where it starts: as given, with partitions that are new since, at their first offset.
    pub start: TopicOffsets,
    /// Where it ends.
    pub end: TopicOffsets,
}

/// Chooses a batch of at most `rows_max` offsets, shared by lag. Partitions that are new start at
/// their first offset. Offsets that were lost count as lag like others: reading skips them.
/// `None` if there is nothing to read.
pub fn plan(
    start: &TopicOffsets,
    latest: &TopicOffsets,
    watermarks: &TopicWatermarks,
    rows_max: Option<u64>,
) -> Option<Planned> {
    let mut begin = start.clone();
    let mut lags: Vec<(String, i32, u64)> = Vec::new();
    for (topic, partitions) in latest {
        for (partition, end) in partitions {
            let low = watermarks
                .get(topic)
                .and_then(|p| p.get(partition))
                .map_or(0, |m| m.low);
            let from = begin.entry(topic.clone()).or_default().entry(*partition);
            let from = from.or_insert(low);
            // A topic that was made anew ends before the position: accepted loss starts it over.
            if *from > *end {
                *from = low;
            }
            lags.push((topic.clone(), *partition, (*end - *from).max(0) as u64));
        }
    }
    let shares = share(
        &lags.iter().map(|(_, _, lag)| *lag).collect::<Vec<_>>(),
        rows_max.unwrap_or(u64::MAX),
    );
    if shares.iter().all(|share| *share == 0) {
        return None;
    }
    let mut end = begin.clone();
    for ((topic, partition, _), share) in lags.into_iter().zip(shares) {
        if let Some(offset) = end.get_mut(&topic).and_then(|p| p.get_mut(&partition)) {
            *offset += share as i64;
        }
    }
    Some(Planned { start: begin, end })
}

/// Divides `total` over `lags` in their proportion, never more than a lag. What rounding leaves
/// over goes one by one to the largest lags, so that the sum is exact.
pub fn share(lags: &[u64], total: u64) -> Vec<u64> {
    let sum: u128 = lags.iter().map(|lag| u128::from(*lag)).sum();
    if sum <= u128::from(total) {
        return lags.to_vec();
    }
    let mut shares: Vec<u64> = lags
        .iter()
        .map(|lag| (u128::from(total) * u128::from(*lag) / sum) as u64)
        .collect();
    let mut left = total - shares.iter().sum::<u64>();
    let mut order: Vec<usize> = (0..lags.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(lags[*i]));
    for i in order.into_iter().cycle() {
        if left == 0 {
            break;
        }
        if shares[i] < lags[i] {
            shares[i] += 1;
            left -= 1;
        }
    }
    shares
}

/// Offsets between two positions.
pub fn distance(from: &TopicOffsets, to: &TopicOffsets) -> u64 {
    to.iter()
        .flat_map(|(topic, partitions)| {
            let from = from.get(topic);
            partitions.iter().map(move |(partition, end)| {
                let start = from.and_then(|p| p.get(partition)).copied().unwrap_or(0);
                (*end - start).max(0) as u64
            })
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(list: &[(i32, i64)]) -> TopicOffsets {
        BTreeMap::from([("t".to_owned(), list.iter().copied().collect())])
    }

    fn marks(list: &[(i32, i64, i64)]) -> TopicWatermarks {
        let partitions = list
            .iter()
            .map(|(p, low, high)| {
                (
                    *p,
                    Watermarks {
                        low: *low,
                        high: *high,
                    },
                )
            })
            .collect();
        BTreeMap::from([("t".to_owned(), partitions)])
    }

    #[test]
    fn json_as_spark_writes_it() {
        let position = |ids| Position {
            offsets: offsets(&[(0, 42), (10, 17)]),
            ids,
        };
        let offset = to_offset(&offsets(&[(0, 42), (10, 17)]), &TopicIds::new());
        assert_eq!(offset.0.to_string(), r#"{"t":{"0":42,"10":17}}"#);
        assert_eq!(parse(&offset).unwrap(), position(TopicIds::new()));
        let ids = TopicIds::from([("t".into(), "a-b".into()), ("other".into(), "c".into())]);
        let offset = to_offset(&offsets(&[(0, 42), (10, 17)]), &ids);
        let text = r#"{"t":{"0":42,"10":17,"topic_id":"a-b"}}"#;
        assert_eq!(offset.0.to_string(), text);
        let ids = TopicIds::from([("t".into(), "a-b".into())]);
        assert_eq!(parse(&offset).unwrap(), position(ids));
        assert!(parse(&SourceOffset(serde_json::json!({"t": 1}))).is_err());
    }

    #[test]
    fn a_topic_that_is_named_no_more_is_no_loss() {
        let json =
            serde_json::json!({"a": {"0": 7, "topic_id": "x"}, "b": {"0": 1, "topic_id": "y"}});
        let mut position = parse(&SourceOffset(json)).unwrap();
        assert_eq!(
            losses(&position, &TopicIds::new(), &TopicWatermarks::new()).len(),
            2
        );
        position.keep_topics(&["b".to_owned()]);
        let kept = to_offset(&position.offsets, &position.ids);
        assert_eq!(kept.0, serde_json::json!({"b": {"0": 1, "topic_id": "y"}}));
        assert_eq!(
            losses(&position, &TopicIds::new(), &TopicWatermarks::new()).len(),
            1
        );
    }

    #[test]
    fn starting_offsets() {
        let marks = marks(&[(0, 5, 10), (1, 0, 3), (2, 0, 0)]);
        let resolve = |text| StartingOffsets::parse(text).map(|s| s.resolve(&marks));
        assert_eq!(
            resolve("Earliest"),
            Some(offsets(&[(0, 5), (1, 0), (2, 0)]))
        );
        assert_eq!(resolve("latest"), Some(offsets(&[(0, 10), (1, 3), (2, 0)])));
        assert_eq!(
            resolve(r#"{"t":{"0":7,"1":-2}}"#),
            Some(offsets(&[(0, 7), (1, 0), (2, 0)]))
        );
        assert_eq!(resolve("yesterday"), None);
    }

    #[test]
    fn shares_are_proportional_exact_and_within_the_lag() {
        assert_eq!(share(&[10, 20, 30], 100), [10, 20, 30]);
        assert_eq!(share(&[10, 20, 30], 6), [1, 2, 3]);
        assert_eq!(share(&[1, 1, 1000], 10).iter().sum::<u64>(), 10);
        assert_eq!(share(&[5, 5, 5], 1), [1, 0, 0]);
        assert_eq!(share(&[0, 3], 2), [0, 2]);
        assert_eq!(share(&[u64::MAX, u64::MAX], 3).iter().sum::<u64>(), 3);
        assert!(share(&[], 3).is_empty());
    }

    #[test]
    fn plans() {
        let marks = marks(&[(0, 0, 100), (1, 40, 50), (2, 7, 7)]);
        let latest = latest(&marks);
        let planned = plan(&offsets(&[(0, 10)]), &latest, &marks, None).unwrap();
        assert_eq!(planned.start, offsets(&[(0, 10), (1, 40), (2, 7)]));
        assert_eq!(planned.end, offsets(&[(0, 100), (1, 50), (2, 7)]));
        let planned = plan(&offsets(&[(0, 10)]), &latest, &marks, Some(10)).unwrap();
        assert_eq!(planned.end, offsets(&[(0, 19), (1, 41), (2, 7)]));
        assert_eq!(distance(&planned.start, &planned.end), 10);
        assert_eq!(plan(&latest, &latest, &marks, None), None);
        // A topic made anew, with loss accepted, starts over.
        let planned = plan(
            &offsets(&[(0, 500), (1, 50), (2, 7)]),
            &latest,
            &marks,
            None,
        )
        .unwrap();
        assert_eq!(planned.start, offsets(&[(0, 0), (1, 50), (2, 7)]));
    }

    #[test]
    fn losses_are_found_and_told() {
        let marks = marks(&[(0, 20, 100), (1, 0, 5)]);
        let start = offsets(&[(0, 12), (1, 9), (2, 3)]);
        let position = |offsets: TopicOffsets, id: Option<&str>| Position {
            offsets,
            ids: id
                .map(|id| ("t".to_owned(), id.to_owned()))
                .into_iter()
                .collect(),
        };
        let new_id = TopicIds::from([("t".into(), "new".into())]);
        let lost = losses(&position(start, None), &new_id, &marks);
        assert_eq!(lost.len(), 3);
        assert_eq!(lost[0].rows(), Some(8));
        let names = Names {
            stream: "k".into(),
            pipeline: Some("v".into()),
        };
        let error = lost[0].error(&names);
        let detail = error.detail_text().unwrap();
        assert!(
            detail.contains("offset 12") && detail.contains("20") && detail.contains("8 offsets")
        );
        let hint = error.hint_text().unwrap();
        assert!(hint.contains("ALTER STREAM k SET (fail_on_data_loss = false);"));
        assert!(hint.contains("RESET CHECKPOINT OF v FROM EARLIEST;"));
        assert!(lost[1].describe().contains("ends at 5"));
        assert!(lost[2].describe().contains("gone"));
        let sound = offsets(&[(0, 20), (1, 5)]);
        assert!(losses(&position(sound.clone(), Some("new")), &new_id, &marks).is_empty());
        assert!(
            losses(
                &position(sound.clone(), Some("old")),
                &TopicIds::new(),
                &marks
            )
            .is_empty()
        );
        // Offsets that the new topic has too are lost none the less.
        let lost = losses(&position(sound, Some("old")), &new_id, &marks);
        assert_eq!(lost.len(), 2);
        assert!(lost[0].recreated && lost[0].rows().is_none());
        assert!(lost[0].describe().contains("created again") && lost[0].describe().contains("100"));
    }
}
