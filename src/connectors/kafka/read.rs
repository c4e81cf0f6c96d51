//! Reading exact ranges of partitions.
//!
//! One consumer is assigned all partitions of a batch, and each partition gets its own queue and
//! its own reader, so partitions are fetched and decoded side by side, while their chunks still
//! come in the order of the partitions. A partition is done when a record at or behind its end
//! came, or when the broker says that the partition ends: offsets that transaction markers or
//! compaction took away hold no record, so counting records would wait for ever.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{
    ArrayRef, BinaryBuilder, Int32Array, Int64Array, StringArray, StringBuilder,
    TimestampMicrosecondArray, new_null_array,
};
use datafusion::arrow::datatypes::DataType;
use parking_lot::Mutex;
use rdkafka::consumer::Consumer;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Headers, Message, OwnedMessage};
use rdkafka::{Offset, TopicPartitionList};

use super::client::{Connection, Context, KafkaConsumer};
use super::offsets::{Loss, TopicWatermarks, Watermarks};
use crate::connectors::chunks::{CHUNK_BYTES, CHUNK_ROWS, ChunkSender, Reader, Stop};
use crate::connectors::evolution::{RESCUED_METADATA, UnknownFields};
use crate::connectors::formats::{FormatOptions, Layout, RecordDecoder, dead_letter};
use crate::connectors::replayed::{Letters, PassedOver};
use crate::connectors::telling::Names;
use crate::connectors::{DataGap, DeadLetter, SourceChunk};
use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, Result};

/// How long a reader waits for one partition before it looks at the connection.
const POLL: Duration = Duration::from_millis(100);

/// Waits without a record after which a partition counts as unreachable: 30 seconds.
const IDLE_POLLS_MAX: u32 = 300;

/// Consumers that are connected and idle.
pub type Pool = Mutex<Vec<Arc<KafkaConsumer>>>;

/// A part of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionRange {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// First offset.
    pub start: i64,
    /// Offset behind the last.
    pub end: i64,
}

impl PartitionRange {
    /// The whole range, as it is kept where its loss is accepted.
    pub fn gap(&self) -> DataGap {
        DataGap {
            partition: format!("{}/{}", self.topic, self.partition),
            from: Some(self.start.to_string()),
            to: Some(self.end.to_string()),
            rows: u64::try_from(self.end - self.start).ok(),
            bytes: None,
            accepted_by: "fail_on_data_loss = false",
        }
    }

    /// What is lost of a range whose topic was created again.
    pub fn lost_with_its_topic(&self, watermarks: &TopicWatermarks) -> Loss {
        let marks = watermarks
            .get(&self.topic)
            .and_then(|p| p.get(&self.partition));
        Loss {
            topic: self.topic.clone(),
            partition: self.partition,
            wanted: self.start,
            marks: marks.copied(),
            recreated: true,
        }
    }
}

/// What all readers of a range share. When the last one is done, the consumer goes back to the
/// pool.
struct Session {
    consumer: Arc<KafkaConsumer>,
    connection: Connection,
    pool: Arc<Pool>,
    names: Names,
    /// Records that arrived before their partition had a queue of its own.
    strays: Mutex<HashMap<(String, i32), Vec<OwnedMessage>>>,
}

impl Drop for Session {
    fn drop(&mut self) {
        // A consumer that cannot even let go of its partitions is not used again.
        if self.consumer.unassign().is_ok() {
            self.pool.lock().push(self.consumer.clone());
        }
    }
}

/// How a range is read.
pub struct ReadTask {
    /// The brokers.
    pub connection: Connection,
    /// Consumers to take from and give back to.
    pub pool: Arc<Pool>,
    /// Format of the payload.
    pub format: FormatOptions,
    /// Records that went through by themselves.
    pub replayed: Option<Arc<Letters>>,
    /// The columns wanted.
    pub layout: Arc<Layout>,
    /// Lost records stop the batch; otherwise they are told and skipped.
    pub fail_on_data_loss: bool,
    /// Names for hints.
    pub(in crate::connectors) names: Names,
    /// What to read, in order.
    pub ranges: Vec<PartitionRange>,
}

impl ReadTask {
    /// Connects and assigns; one reader per partition. Blocks.
    pub fn into_readers(self) -> Result<Vec<Reader>> {
        let pooled = self.pool.lock().pop();
        let consumer = match pooled {
            Some(consumer) => consumer,
            None => {
                const QUEUED_KIB: usize = 64 << 10;
                let partitions = self.ranges.len().max(1);
                let queued_kib = (QUEUED_KIB / partitions).clamp(1 << 10, 16 << 10);
                Arc::new(self.connection.consumer(queued_kib)?)
            }
        };
        self.connection.reports().clear();
        let mut ranges = self.ranges;
        let mut lost = HashMap::new();
        if !self.fail_on_data_loss {
            for (index, range) in ranges.iter_mut().enumerate() {
                let marks = self
                    .connection
                    .watermarks(&consumer, &range.topic, range.partition)?;
                if let Some(loss) = skip_lost(range, marks) {
                    lost.insert(index, loss);
                }
            }
        }
        assign(&consumer, &ranges).map_err(|e| self.connection.error(&e, ""))?;
        let mut queues = Vec::with_capacity(ranges.len());
        for range in &ranges {
            queues.push(consumer.split_partition_queue(&range.topic, range.partition));
        }
        let session = Arc::new(Session {
            strays: Mutex::new(take_strays(&consumer)),
            consumer,
            connection: self.connection,
            pool: self.pool,
            names: self.names,
        });
        let mut readers: Vec<Reader> = Vec::with_capacity(ranges.len());
        for (index, (range, queue)) in ranges.into_iter().zip(queues).enumerate() {
            let queue = queue.ok_or_else(|| Error::internal("a partition has no queue"))?;
            let reader = PartitionReader {
                queue,
                session: session.clone(),
                decoder: RecordDecoder::new(
                    &self.format,
                    &self.layout.payload,
                    &self.layout.payload_projection,
                )?,
                metadata: MetadataColumns::new(&self.layout),
                layout: self.layout.clone(),
                letters: lost.remove(&index).into_iter().collect(),
                passed_over: match &self.replayed {
                    Some(letters) => letters.at(&format!("{} offset", place_of(&range)))?,
                    None => PassedOver::default(),
                },
                bytes: 0,
                range,
            };
            readers.push(Box::new(move |out| reader.run(out)));
        }
        Ok(readers)
    }
}

/// Moves a range's start over what is no longer there; the dead letter that tells it.
fn skip_lost(range: &mut PartitionRange, marks: Watermarks) -> Option<DeadLetter> {
    if marks.low <= range.start {
        return None;
    }
    let loss = Loss {
        topic: range.topic.clone(),
        partition: range.partition,
        wanted: range.start,
        marks: Some(marks),
        recreated: false,
    };
    let until = marks.low.min(range.end);
    let origin = format!(
        "topic {} partition {} offsets {} to {}",
        range.topic,
        range.partition,
        range.start,
        until - 1
    );
    tracing::warn!(origin, "records are lost");
    range.start = until;
    Some(dead_letter(origin, &[], loss.describe()))
}

fn assign(consumer: &KafkaConsumer, ranges: &[PartitionRange]) -> Result<(), KafkaError> {
    let mut list = TopicPartitionList::with_capacity(ranges.len());
    for range in ranges {
        list.add_partition_offset(&range.topic, range.partition, Offset::Offset(range.start))?;
    }
    consumer.assign(&list)
}

/// Records that slipped into the common queue before the partitions' queues were split off it.
fn take_strays(consumer: &KafkaConsumer) -> HashMap<(String, i32), Vec<OwnedMessage>> {
    let mut strays: HashMap<_, Vec<_>> = HashMap::new();
    while let Some(event) = consumer.poll(Duration::ZERO) {
        // Errors here are about the connection; the context has noted them.
        if let Ok(message) = event {
            let place = (message.topic().to_owned(), message.partition());
            strays.entry(place).or_default().push(message.detach());
        }
    }
    strays
}

/// Reads one partition's range.
struct PartitionReader {
    queue: PartitionQueue<Context>,
    session: Arc<Session>,
    decoder: RecordDecoder,
    metadata: MetadataColumns,
    layout: Arc<Layout>,
    letters: Vec<DeadLetter>,
    passed_over: PassedOver,
    bytes: u64,
    range: PartitionRange,
}

impl PartitionReader {
    fn run(mut self, out: &ChunkSender) -> Result<(), Stop> {
        let place = (self.range.topic.clone(), self.range.partition);
        let strays = self.session.strays.lock().remove(&place);
        let mut done = self.range.start >= self.range.end;
        for message in strays.into_iter().flatten() {
            done = done || self.take(&message, out)?;
        }
        let mut idle_polls = 0;
        while !done {
            let event = self.poll()?;
            match event {
                Polled::Idle => {
                    idle_polls += 1;
                    out.check()?;
                    self.look_at_connection(idle_polls)?;
                }
                Polled::End => {
                    self.check_end()?;
                    done = true;
                }
                Polled::Taken { last } => {
                    idle_polls = 0;
                    done = last;
                }
            }
            if self.is_full() {
                self.send(out)?;
            }
        }
        self.send(out)
    }

    /// Waits for one event of this partition and takes its record in.
    fn poll(&mut self) -> Result<Polled> {
        let queue = &self.queue;
        let event = match queue.poll(POLL) {
            None => return Ok(Polled::Idle),
            Some(event) => event,
        };
        match event {
            Ok(message) => Ok(Polled::Taken {
                last: take_record(
                    &mut self.decoder,
                    &mut self.metadata,
                    &mut self.letters,
                    &mut self.bytes,
                    (&self.range, &self.passed_over),
                    &message,
                ),
            }),
            Err(KafkaError::PartitionEOF(_)) => Ok(Polled::End),
            Err(error) => Err(self.partition_error(&error)),
        }
    }

    fn take<M: Message>(&mut self, message: &M, out: &ChunkSender) -> Result<bool, Stop> {
        let last = take_record(
            &mut self.decoder,
            &mut self.metadata,
            &mut self.letters,
            &mut self.bytes,
            (&self.range, &self.passed_over),
            message,
        );
        if self.is_full() {
            self.send(out)?;
        }
        Ok(last)
    }

    fn partition_error(&self, error: &KafkaError) -> Error {
        let lost = [
            RDKafkaErrorCode::AutoOffsetReset,
            RDKafkaErrorCode::OffsetOutOfRange,
        ];
        let code = error.rdkafka_error_code();
        if code.is_some_and(|c| lost.contains(&c)) {
            return match self.watermarks() {
                Ok(marks) => self.loss(marks).error(&self.session.names),
                Err(error) => error,
            };
        }
        self.session.connection.error(error, &self.range.topic)
    }

    fn watermarks(&self) -> Result<Watermarks> {
        let Session {
            connection,
            consumer,
            ..
        } = self.session.as_ref();
        connection.watermarks(consumer, &self.range.topic, self.range.partition)
    }

    fn loss(&self, marks: Watermarks) -> Loss {
        // Below the first record there is, or beyond the end of a partition that was cut.
        let wanted = if marks.low > self.range.start {
            self.range.start
        } else {
            self.range.end
        };
        Loss {
            topic: self.range.topic.clone(),
            partition: self.range.partition,
            wanted,
            marks: Some(marks),
            recreated: false,
        }
    }

    /// The partition ends here: that is right only if it reaches the range's end.
    fn check_end(&self) -> Result<()> {
        let marks = self.watermarks()?;
        if marks.high < self.range.end {
            return Err(self.loss(marks).error(&self.session.names));
        }
        Ok(())
    }

    /// Nothing came: serves the connection's events and gives up when there is no hope.
    fn look_at_connection(&self, idle_polls: u32) -> Result<()> {
        while let Some(event) = self.session.consumer.poll(Duration::ZERO) {
            if let Err(KafkaError::MessageConsumptionFatal(code)) = event {
                let fatal = KafkaError::MessageConsumptionFatal(code);
                return Err(self.session.connection.error(&fatal, &self.range.topic));
            }
        }
        let refused = self
            .session
            .connection
            .reports()
            .last()
            .is_some_and(|(code, _)| {
                [
                    RDKafkaErrorCode::Authentication,
                    RDKafkaErrorCode::SaslAuthenticationFailed,
                    RDKafkaErrorCode::TopicAuthorizationFailed,
                ]
                .contains(&code)
            });
        if refused || idle_polls >= IDLE_POLLS_MAX {
            let timed_out = KafkaError::MessageConsumption(RDKafkaErrorCode::OperationTimedOut);
            return Err(self.session.connection.error(&timed_out, &self.range.topic));
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.decoder.rows() >= CHUNK_ROWS
            || self.bytes >= CHUNK_BYTES as u64
            || self.letters.len() >= CHUNK_ROWS / 64
    }

    fn send(&mut self, out: &ChunkSender) -> Result<(), Stop> {
        let rows = self.decoder.rows();
        if rows == 0 && self.letters.is_empty() {
            return Ok(());
        }
        let arrays = self.decoder.finish();
        let (rescued, unknown) = match self.decoder.watch() {
            Some(watch) => (watch.finish(), watch.take_unknown()),
            None => (
                new_null_array(&DataType::Utf8, rows),
                UnknownFields::default(),
            ),
        };
        let metadata = &mut self.metadata;
        let topic = &self.range.topic;
        let partition = self.range.partition;
        // Two columns may show the same metadata, but it can be taken only once.
        let mut taken: HashMap<String, ArrayRef> = HashMap::new();
        let batch = self.layout.assemble(&arrays, rows, |name| {
            let column = taken.entry(name.to_owned()).or_insert_with(|| match name {
                RESCUED_METADATA => rescued.clone(),
                _ => metadata.column(name, topic, partition, rows),
            });
            Ok(column.clone())
        })?;
        out.send(SourceChunk {
            changes: ChangeBatch::inserts(batch),
            dead_letters: std::mem::take(&mut self.letters),
            unknown,
            bytes: std::mem::take(&mut self.bytes),
        })?;
        Ok(())
    }
}

enum Polled {
    Idle,
    End,
    Taken { last: bool },
}

/// Where the records of a range lie, as their origins begin.
fn place_of(range: &PartitionRange) -> String {
    format!("topic {} partition {}", range.topic, range.partition)
}

/// Decodes a record of the range; true if no other can follow in it.
fn take_record<M: Message>(
    decoder: &mut RecordDecoder,
    metadata: &mut MetadataColumns,
    letters: &mut Vec<DeadLetter>,
    bytes: &mut u64,
    (range, passed_over): (&PartitionRange, &PassedOver),
    message: &M,
) -> bool {
    let offset = message.offset();
    if offset >= range.end {
        return true;
    }
    let payload = message.payload();
    let is_passed_over = || {
        let raw = payload.unwrap_or_default();
        !passed_over.is_empty() && passed_over.holds(offset.unsigned_abs(), raw)
    };
    if offset >= range.start && !is_passed_over() {
        *bytes += payload.map_or(0, <[u8]>::len) as u64;
        let pushed = match payload {
            Some(payload) => decoder.push(payload),
            None => decoder.push_absent(),
        };
        let origin = || format!("{} offset {offset}", place_of(range));
        match pushed {
            Ok(()) => {
                metadata.push(message);
                if let Some(watch) = decoder.watch().filter(|watch| watch.wants_origin()) {
                    watch.place(&origin());
                }
            }
            Err(reason) => {
                letters.push(dead_letter(origin(), payload.unwrap_or_default(), reason));
            }
        }
    }
    offset + 1 >= range.end
}

/// Metadata of the records in a chunk; only what the projection shows.
struct MetadataColumns {
    offsets: Option<Vec<i64>>,
    timestamps: Option<Vec<Option<i64>>>,
    keys: Option<BinaryBuilder>,
    headers: Option<StringBuilder>,
}

impl MetadataColumns {
    fn new(layout: &Layout) -> Self {
        let wanted = |name: &str| layout.metadata_names().any(|n| n == name);
        Self {
            offsets: wanted("offset").then(Vec::new),
            timestamps: wanted("timestamp").then(Vec::new),
            keys: wanted("key").then(BinaryBuilder::new),
            headers: wanted("headers").then(StringBuilder::new),
        }
    }

    fn push<M: Message>(&mut self, message: &M) {
        if let Some(offsets) = &mut self.offsets {
            offsets.push(message.offset());
        }
        if let Some(timestamps) = &mut self.timestamps {
            timestamps.push(message.timestamp().to_millis().map(|ms| ms * 1_000));
        }
        if let Some(keys) = &mut self.keys {
            keys.append_option(message.key());
        }
        if let Some(headers) = &mut self.headers {
            headers.append_option(message.headers().map(headers_json));
        }
    }

    /// Takes one column out; each column of a chunk is taken once.
    fn column(&mut self, name: &str, topic: &str, partition: i32, rows: usize) -> ArrayRef {
        match name {
            "offset" => Arc::new(Int64Array::from(
                self.offsets
                    .as_mut()
                    .map(std::mem::take)
                    .unwrap_or_default(),
            )),
            "timestamp" => {
                let timestamps = self.timestamps.as_mut().map(std::mem::take);
                let timestamps = TimestampMicrosecondArray::from(timestamps.unwrap_or_default());
                Arc::new(timestamps.with_timezone("UTC"))
            }
            "key" => Arc::new(
                self.keys
                    .as_mut()
                    .map_or_else(|| BinaryBuilder::new().finish(), BinaryBuilder::finish),
            ),
            "headers" => Arc::new(
                self.headers
                    .as_mut()
                    .map_or_else(|| StringBuilder::new().finish(), StringBuilder::finish),
            ),
            "partition" => Arc::new(Int32Array::from_value(partition, rows)),
            _ => Arc::new(StringArray::from_iter_values(std::iter::repeat_n(
                topic, rows,
            ))),
        }
    }
}

/// Headers as a JSON array of `{"key": …, "value": …}`; a value that is no UTF-8 is `\x…` text.
fn headers_json<H: Headers>(headers: &H) -> String {
    let list: Vec<serde_json::Value> = headers
        .iter()
        .map(|header| {
            let value = header.value.map(|bytes| match std::str::from_utf8(bytes) {
                Ok(text) => text.to_owned(),
                Err(_) => {
                    let digits: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
                    format!("\\x{digits}")
                }
            });
            serde_json::json!({"key": header.key, "value": value})
        })
        .collect();
    serde_json::Value::Array(list).to_string()
}
