//! The `kafka` source: topics read by exact offsets.
//!
//! Positions live in the pipeline's offset log alone. Partitions are assigned by hand, nothing is
//! committed to a consumer group, and a batch reads exactly the offsets it planned. Offsets that
//! the broker no longer has are data loss: an error by default, or skipped and told.

mod client;
mod offsets;
mod read;
mod topic_ids;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use futures::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;

use self::client::{Connection, KafkaConsumer};
use self::offsets::{Loss, StartingOffsets, TopicIds, TopicOffsets, TopicWatermarks};
use self::read::{PartitionRange, Pool, ReadTask};
use super::evolution::RESCUED_METADATA;
use super::files::plan::tighter;
use super::formats::values::{EpochUnit, timestamp_us};
use super::formats::{FormatOptions, Layout, RecordDecoder};
use super::replayed::Letters;
use super::settings::Settings;
use super::telling::{Names, Notices};
use super::{
    Backlog, ConnectorEnvironment, ReadLimits, Source, SourceChunk, SourceOffset, SourceRange,
    StartAt, chunks,
};
use crate::catalog::definition::{CatalogObject, Options};
use crate::clock::ClockRef;
use crate::error::{Error, Result};

/// How long a topic's list of partitions is believed.
const PARTITIONS_FRESH: Duration = Duration::from_secs(10);

/// How long brokers are not asked for identities after they did not tell them.
const IDENTITY_PAUSE: Duration = Duration::from_secs(300);

/// How long a waiting pipeline rests between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Metadata that columns can be filled from.
const METADATA: [&str; 7] = [
    "offset",
    "partition",
    "timestamp",
    "key",
    "headers",
    "topic",
    RESCUED_METADATA,
];

/// The source.
pub struct KafkaSource {
    inner: Arc<Inner>,
}

/// What blocking calls need; shared with the blocking pool.
struct Inner {
    names: Names,
    notices: Notices,
    /// Accepted losses that were told: they stand until a batch goes past them.
    told: Mutex<Vec<Loss>>,
    connection: Connection,
    topics: Vec<String>,
    schema: SchemaRef,
    metadata: Vec<Option<String>>,
    format: FormatOptions,
    /// Records that went through by themselves.
    replayed: Option<Arc<Letters>>,
    starting: StartingOffsets,
    /// `starting_timestamp`, milliseconds; comes before `starting`.
    starting_ms: Option<i64>,
    fail_on_data_loss: bool,
    rows_max: Option<u64>,
    clock: ClockRef,
    /// The consumer for questions; made at the first one.
    asking: Mutex<Option<Arc<KafkaConsumer>>>,
    partitions: Mutex<Option<KnownPartitions>>,
    watermarks: Mutex<TopicWatermarks>,
    /// Identities of the topics when they were last asked for.
    ids: Mutex<Option<TopicIds>>,
    /// Until when (on the monotonic clock) brokers that did not tell them are left in peace.
    ids_unasked_until: Mutex<Option<Duration>>,
    pool: Arc<Pool>,
}

/// Partitions of the topics, and when (on the monotonic clock) that was asked.
struct KnownPartitions {
    asked_at: Duration,
    by_topic: BTreeMap<String, Vec<i32>>,
}

impl KafkaSource {
    /// Opens the source of a stream; connects at the first question.
    pub fn open(
        object: &CatalogObject,
        options: &Options,
        environment: &ConnectorEnvironment,
    ) -> Result<Self> {
        let settings = Settings::new(&object.name, options, &environment.secrets);
        settings.refuse_unsupported(&["topic_pattern", "min_partitions"])?;
        let topics: Vec<String> = settings
            .required("topic")?
            .split(',')
            .map(|topic| topic.trim().to_owned())
            .filter(|topic| !topic.is_empty())
            .collect();
        if topics.is_empty() {
            return Err(settings.invalid("topic", "the name of a topic"));
        }
        let metadata =
            object
                .columns()
                .iter()
                .map(|column| match &column.metadata_from {
                    Some(name) if !METADATA.contains(&name.as_str()) => Err(
                        super::unknown_metadata(&column.name, name, "kafka", &METADATA),
                    ),
                    name => Ok(name.clone()),
                })
                .collect::<Result<Vec<_>>>()?;
        let starting = settings
            .parsed(
                "starting_offsets",
                "'earliest', 'latest' or JSON such as '{\"topic\":{\"0\":42}}'",
                StartingOffsets::parse,
            )?
            .unwrap_or(StartingOffsets::Earliest);
        let inner = Inner {
            names: Names::new(&object.name, environment),
            notices: Notices::default(),
            told: Mutex::default(),
            connection: Connection::from_settings(&settings)?,
            topics,
            schema: object.schema(),
            metadata,
            format: FormatOptions::from_settings(&settings, || Some("json"))?
                .with_altered_columns(object),
            replayed: environment.letters.clone(),
            starting,
            starting_ms: settings
                .parsed("starting_timestamp", "a timestamp", |text| {
                    timestamp_us(text, EpochUnit::Auto)
                })?
                .map(|us| us.div_euclid(1_000)),
            fail_on_data_loss: settings.boolean("fail_on_data_loss")?.unwrap_or(true),
            rows_max: settings.count("max_offsets_per_trigger")?,
            clock: environment.clock.clone(),
            asking: Mutex::default(),
            partitions: Mutex::default(),
            watermarks: Mutex::default(),
            ids: Mutex::default(),
            ids_unasked_until: Mutex::default(),
            pool: Arc::default(),
        };
        let all: Vec<usize> = (0..inner.schema.fields().len()).collect();
        let layout = Layout::new(&inner.schema, &inner.metadata, &all);
        RecordDecoder::new(&inner.format, &layout.payload, &layout.payload_projection)?;
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Runs a blocking piece of work off the async threads.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || work(&inner))
            .await
            .map_err(|_| Error::internal("a kafka call ended unexpectedly"))?
    }

    async fn refresh(&self) -> Result<(TopicWatermarks, TopicIds)> {
        self.blocking(Inner::refresh).await
    }
}

impl Inner {
    fn consumer(&self) -> Result<Arc<KafkaConsumer>> {
        let mut asking = self.asking.lock();
        if let Some(consumer) = asking.as_ref() {
            return Ok(consumer.clone());
        }
        const SMALLEST_QUEUE_KIB: usize = 1;
        let consumer = Arc::new(self.connection.consumer(SMALLEST_QUEUE_KIB)?);
        *asking = Some(consumer.clone());
        Ok(consumer)
    }

    /// Asks for the watermarks of all partitions and the topics' identities. Blocks.
    fn refresh(&self) -> Result<(TopicWatermarks, TopicIds)> {
        let consumer = self.consumer()?;
        let partitions = self.partitions(&consumer)?;
        let watermarks = self.connection.all_watermarks(&consumer, &partitions)?;
        // Between two tries of the library there is no report: what it said last is the cause until it is none.
        self.connection.reports().clear();
        // Asked last: watermarks of a new topic must never go with the old one's identity.
        let ids = self.ask_ids(&consumer);
        *self.watermarks.lock() = watermarks.clone();
        *self.ids.lock() = Some(ids.clone());
        Ok((watermarks, ids))
    }

    /// Identities as last asked for, or now if never. Blocks.
    fn known_ids(&self) -> Result<TopicIds> {
        if let Some(ids) = &*self.ids.lock() {
            return Ok(ids.clone());
        }
        let consumer = self.consumer()?;
        let ids = self.ask_ids(&consumer);
        *self.ids.lock() = Some(ids.clone());
        Ok(ids)
    }

    /// Asks for identities, unless brokers did not tell them a while ago. Blocks.
    fn ask_ids(&self, consumer: &KafkaConsumer) -> TopicIds {
        let now = self.clock.monotonic();
        let unasked_until = *self.ids_unasked_until.lock();
        if unasked_until.is_some_and(|until| now < until) {
            return TopicIds::new();
        }
        let ids = self.connection.topic_ids(consumer, &self.topics);
        *self.ids_unasked_until.lock() = ids.is_none().then_some(now + IDENTITY_PAUSE);
        ids.unwrap_or_default()
    }

    /// Says each accepted loss once.
    fn tell_losses(&self, losses: Vec<Loss>) {
        let mut told = self.told.lock();
        for loss in losses.iter().filter(|loss| !told.contains(loss)) {
            let notice = loss.describe();
            let notice = notice.trim_end_matches('.');
            let text = format!("kafka data loss is accepted: {notice}");
            self.notices.tell_gap(text, loss.gap());
        }
        *told = losses;
    }

    fn partitions(&self, consumer: &KafkaConsumer) -> Result<BTreeMap<String, Vec<i32>>> {
        let now = self.clock.monotonic();
        if let Some(known) = &*self.partitions.lock()
            && now.saturating_sub(known.asked_at) < PARTITIONS_FRESH
        {
            return Ok(known.by_topic.clone());
        }
        let mut all = BTreeMap::new();
        for topic in &self.topics {
            all.insert(topic.clone(), self.connection.partitions(consumer, topic)?);
        }
        *self.partitions.lock() = Some(KnownPartitions {
            asked_at: now,
            by_topic: all.clone(),
        });
        Ok(all)
    }
}

/// Non-empty parts of partitions between two positions, by topic and partition.
fn ranges_between(start: &TopicOffsets, end: &TopicOffsets) -> Result<Vec<PartitionRange>> {
    let mut ranges = Vec::new();
    for (topic, partitions) in end {
        for (partition, end) in partitions {
            let from = start.get(topic).and_then(|p| p.get(partition)).copied();
            let from = from.ok_or_else(|| {
                Error::damaged("range of a kafka source has an end without a start").detail(
                    format!("Partition {partition} of topic {topic} is missing in its start."),
                )
            })?;
            if from < *end {
                ranges.push(PartitionRange {
                    topic: topic.clone(),
                    partition: *partition,
                    start: from,
                    end: *end,
                });
            }
        }
    }
    Ok(ranges)
}

#[async_trait]
impl Source for KafkaSource {
    fn description(&self) -> String {
        format!(
            "kafka topic {} at {}",
            self.inner.topics.join(", "),
            self.inner.connection.brokers
        )
    }

    fn schema(&self) -> SchemaRef {
        self.inner.schema.clone()
    }

    async fn initial_offset(&self) -> Result<SourceOffset> {
        let (watermarks, ids) = self.refresh().await?;
        let start = match self.inner.starting_ms {
            None => self.inner.starting.resolve(&watermarks),
            Some(ms) => {
                self.blocking(move |inner| {
                    let consumer = inner.consumer()?;
                    inner.connection.offsets_at(&consumer, &watermarks, ms)
                })
                .await?
            }
        };
        Ok(offsets::to_offset(&start, &ids))
    }

    async fn position_at(&self, _batch_id: u64, at: &StartAt) -> Result<SourceOffset> {
        let (watermarks, ids) = self.refresh().await?;
        let start = match at {
            StartAt::Earliest => StartingOffsets::Earliest.resolve(&watermarks),
            StartAt::Latest => offsets::latest(&watermarks),
            StartAt::Offsets(offset) => {
                let exact = offsets::parse(&SourceOffset(offset.clone()))?.offsets;
                StartingOffsets::Exact(exact).resolve(&watermarks)
            }
            StartAt::Timestamp(us) => {
                let ms = us.div_euclid(1_000);
                self.blocking(move |inner| {
                    let consumer = inner.consumer()?;
                    inner.connection.offsets_at(&consumer, &watermarks, ms)
                })
                .await?
            }
        };
        Ok(offsets::to_offset(&start, &ids))
    }

    async fn check_range(&self, range: &SourceRange) -> Result<()> {
        let mut start = offsets::parse(&range.start)?;
        start.keep_topics(&self.inner.topics);
        let (watermarks, ids) = self.refresh().await?;
        match offsets::losses(&start, &ids, &watermarks).first() {
            Some(loss) => Err(loss.error(&self.inner.names)),
            None => Ok(()),
        }
    }

    async fn latest_offset(&self) -> Result<SourceOffset> {
        let (watermarks, ids) = self.refresh().await?;
        Ok(offsets::to_offset(&offsets::latest(&watermarks), &ids))
    }

    async fn plan_range(
        &self,
        _batch_id: u64,
        start: &SourceOffset,
        latest: &SourceOffset,
        limits: &ReadLimits,
    ) -> Result<Option<SourceRange>> {
        let mut start = offsets::parse(start)?;
        start.keep_topics(&self.inner.topics);
        let latest = offsets::parse(latest)?;
        let known = self.inner.watermarks.lock().clone();
        let watermarks = if known.is_empty() {
            self.refresh().await?.0
        } else {
            known
        };
        let losses = offsets::losses(&start, &latest.ids, &watermarks);
        if self.inner.fail_on_data_loss
            && let Some(loss) = losses.first()
        {
            return Err(loss.error(&self.inner.names));
        }
        // Of a topic that was created again nothing was read yet.
        for loss in losses.iter().filter(|loss| loss.recreated) {
            start.offsets.remove(&loss.topic);
        }
        self.inner.tell_losses(losses);
        let mut ids = start.ids;
        ids.extend(latest.ids);
        let rows_max = tighter(limits.max_rows, self.inner.rows_max);
        let planned = offsets::plan(&start.offsets, &latest.offsets, &watermarks, rows_max);
        Ok(planned.map(|planned| SourceRange {
            start: offsets::to_offset(&planned.start, &ids),
            end: offsets::to_offset(&planned.end, &ids),
        }))
    }

    fn backlog(&self, from: &SourceOffset, latest: &SourceOffset) -> Backlog {
        match (offsets::parse(from), offsets::parse(latest)) {
            (Ok(from), Ok(latest)) => Backlog {
                rows: Some(offsets::distance(&from.offsets, &latest.offsets)),
                bytes: None,
            },
            _ => Backlog::default(),
        }
    }

    async fn read_range(
        &self,
        _batch_id: u64,
        range: &SourceRange,
        projection: &[usize],
    ) -> Result<BoxStream<'static, Result<SourceChunk>>> {
        let (start, end) = (offsets::parse(&range.start)?, offsets::parse(&range.end)?);
        let mut ranges = ranges_between(&start.offsets, &end.offsets)?;
        if ranges.is_empty() {
            return Ok(stream::empty().boxed());
        }
        // A batch that was planned before a crash must not read the rows of another topic.
        if !end.ids.is_empty() {
            let ids = self.blocking(Inner::known_ids).await?;
            let (lost, sound): (Vec<_>, Vec<_>) = ranges
                .into_iter()
                .partition(|range| offsets::is_recreated(&range.topic, &end.ids, &ids));
            for range in &lost {
                let loss = range.lost_with_its_topic(&self.inner.watermarks.lock());
                if self.inner.fail_on_data_loss {
                    return Err(loss.error(&self.inner.names));
                }
                let text = format!(
                    "kafka data loss is accepted: offsets {} up to {} of partition {} went with \
                     the old topic {}",
                    range.start, range.end, range.partition, range.topic
                );
                self.inner.notices.tell_gap(text, range.gap());
            }
            ranges = sound;
        }
        let layout = Arc::new(Layout::new(
            &self.inner.schema,
            &self.inner.metadata,
            projection,
        ));
        let readers = self
            .blocking(move |inner| {
                ReadTask {
                    connection: inner.connection.clone(),
                    pool: inner.pool.clone(),
                    format: inner.format.clone(),
                    replayed: inner.replayed.clone(),
                    layout,
                    fail_on_data_loss: inner.fail_on_data_loss,
                    names: inner.names.clone(),
                    ranges,
                }
                .into_readers()
            })
            .await?;
        let parallelism = std::thread::available_parallelism().map_or(2, usize::from);
        Ok(chunks::read_in_order(
            readers.into_iter(),
            parallelism.min(8),
        ))
    }

    async fn acknowledge(&self, _batch_id: u64, _offset: &SourceOffset) -> Result<()> {
        // Nothing is committed to a group: the offset log is the only record of progress.
        Ok(())
    }

    fn take_notices(&self) -> Vec<crate::connectors::Notice> {
        self.inner.notices.take()
    }

    async fn wait_for_data(&self, _from: &SourceOffset) {
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
