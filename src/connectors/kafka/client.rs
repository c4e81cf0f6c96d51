//! The connection to Kafka: configuration, watermarks, and errors in our words.
//!
//! All calls here block; the source makes them on the blocking pool. Progress is ours alone: the
//! group id is random and nothing is ever committed to a group.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Offset, TopicPartitionList};

use super::offsets::{TopicIds, TopicOffsets, TopicWatermarks, Watermarks};
use crate::connectors::settings::Settings;
use crate::error::{Error, Result, sqlstate};

/// How long one question to the brokers may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A consumer with our context.
pub type KafkaConsumer = BaseConsumer<Context>;

/// What the library reported last; shared by all consumers of a source.
#[derive(Debug, Default)]
pub struct Reports {
    last: Mutex<Option<(RDKafkaErrorCode, String)>>,
}

impl Reports {
    /// The last reported trouble.
    pub fn last(&self) -> Option<(RDKafkaErrorCode, String)> {
        self.last.lock().clone()
    }

    /// Forgets it, before something new is tried.
    pub fn clear(&self) {
        *self.last.lock() = None;
    }

    fn report(&self, code: RDKafkaErrorCode, reason: &str) {
        let mut last = self.last.lock();
        // The cause comes first, "all brokers down" after it: keep what says more.
        let keep = code == RDKafkaErrorCode::AllBrokersDown && last.is_some();
        if !keep {
            *last = Some((code, reason.to_owned()));
        }
    }
}

/// Receives the library's reports.
pub struct Context {
    reports: Arc<Reports>,
}

impl ClientContext for Context {
    fn log(&self, _level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(target: "tidemill::kafka", facility, "{message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        if let Some(code) = error.rdkafka_error_code()
            && code != RDKafkaErrorCode::PartitionEOF
        {
            self.reports.report(code, reason);
        }
    }
}

impl ConsumerContext for Context {}

/// How to reach the brokers.
#[derive(Clone)]
pub struct Connection {
    /// `host:port,…`, for people.
    pub brokers: String,
    config: ClientConfig,
    reports: Arc<Reports>,
}

impl Connection {
    /// From `brokers`, `security_protocol`, `sasl_mechanism`, `username`, `password` and `kafka.*`.
    pub fn from_settings(settings: &Settings<'_>) -> Result<Self> {
        let brokers = settings.required("brokers")?;
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &brokers)
            .set("client.id", "tidemill")
            .set_log_level(RDKafkaLogLevel::Warning)
            // A fetch that waits for data holds up the next batch's partitions.
            .set("fetch.wait.max.ms", "20")
            .set("reconnect.backoff.max.ms", "2000")
            // A broker that has stopped answering and comes back is noticed within these, not the library's minute.
            .set("socket.timeout.ms", "12000")
            .set("socket.connection.setup.timeout.ms", "10000")
            .set("topic.metadata.refresh.interval.ms", "30000");
        let named = [
            ("group_id", "group.id"),
            ("security_protocol", "security.protocol"),
            ("sasl_mechanism", "sasl.mechanisms"),
            ("username", "sasl.username"),
            ("password", "sasl.password"),
        ];
        for (option, property) in named {
            if let Some(value) = settings.text(option)? {
                config.set(property, value);
            }
        }
        if config.get("sasl.username").is_some() {
            for (property, default) in [
                ("security.protocol", "sasl_ssl"),
                ("sasl.mechanisms", "PLAIN"),
            ] {
                if config.get(property).is_none() {
                    config.set(property, default);
                }
            }
        }
        const OURS: [(&str, &str); 5] = [
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("auto.offset.reset", "error"),
            ("enable.partition.eof", "true"),
            ("bootstrap.servers", ""),
        ];
        for (property, value) in settings.with_prefix("kafka.")? {
            if OURS.iter().any(|(name, _)| *name == property) {
                return Err(settings.invalid(
                    &format!("kafka.{property}"),
                    "no value: this property is the database's own",
                ));
            }
            config.set(property, value);
        }
        for (property, value) in OURS.iter().filter(|(_, value)| !value.is_empty()) {
            config.set(*property, *value);
        }
        if config.get("group.id").is_none() {
            config.set("group.id", format!("tidemill-{}", uuid::Uuid::new_v4()));
        }
        Ok(Self {
            brokers,
            config,
            reports: Arc::default(),
        })
    }

    /// What went wrong lately.
    pub fn reports(&self) -> &Reports {
        &self.reports
    }

    /// A new consumer, not yet connected. `queued_kib` bounds what it holds of each partition.
    pub fn consumer(&self, queued_kib: usize) -> Result<KafkaConsumer> {
        let mut config = self.config.clone();
        if config.get("queued.max.messages.kbytes").is_none() {
            config.set("queued.max.messages.kbytes", queued_kib.to_string());
        }
        let context = Context {
            reports: self.reports.clone(),
        };
        config.create_with_context(context).map_err(|e| {
            Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                "invalid option of a kafka source",
            )
            .detail(format!("{}.", config_reason(&e)))
        })
    }

    /// Partitions of a topic.
    pub fn partitions(&self, consumer: &KafkaConsumer, topic: &str) -> Result<Vec<i32>> {
        let metadata = consumer
            .fetch_metadata(Some(topic), ANSWER_TIMEOUT)
            .map_err(|e| self.error_after(consumer, &e))?;
        let found = metadata.topics().iter().find(|t| t.name() == topic);
        let partitions: Vec<i32> = match found {
            Some(found) => {
                if let Some(e) = found.error() {
                    return Err(self.error(&KafkaError::MetadataFetch(e.into()), topic));
                }
                found.partitions().iter().map(|p| p.id()).collect()
            }
            None => vec![],
        };
        if partitions.is_empty() {
            let unknown = KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownTopicOrPartition);
            return Err(self.error(&unknown, topic));
        }
        Ok(partitions)
    }

    /// Watermarks of one partition.
    pub fn watermarks(
        &self,
        consumer: &KafkaConsumer,
        topic: &str,
        partition: i32,
    ) -> Result<Watermarks> {
        let (low, high) = consumer
            .fetch_watermarks(topic, partition, ANSWER_TIMEOUT)
            .map_err(|e| self.error_after(consumer, &e))?;
        Ok(Watermarks { low, high })
    }

    /// Watermarks of all partitions of `topics`.
    pub fn all_watermarks(
        &self,
        consumer: &KafkaConsumer,
        topics: &BTreeMap<String, Vec<i32>>,
    ) -> Result<TopicWatermarks> {
        let mut all = TopicWatermarks::new();
        for (topic, partitions) in topics {
            let mut marks = BTreeMap::new();
            for partition in partitions {
                marks.insert(*partition, self.watermarks(consumer, topic, *partition)?);
            }
            all.insert(topic.clone(), marks);
        }
        Ok(all)
    }

    /// Identities of topics; `None` if the brokers do not tell them.
    pub fn topic_ids(&self, consumer: &KafkaConsumer, topics: &[String]) -> Option<TopicIds> {
        /// Identities only guard against a rare mishap: a batch does not wait for them longer.
        const IDENTITY_TIMEOUT: Duration = Duration::from_secs(2);
        match super::topic_ids::ask(consumer, topics, IDENTITY_TIMEOUT) {
            Ok(ids) => Some(ids),
            Err(code) => {
                tracing::info!(%code, "kafka brokers do not tell the identity of topics");
                None
            }
        }
    }

    /// The first offsets of records at or after a time, in milliseconds; the end where there are
    /// none.
    pub fn offsets_at(
        &self,
        consumer: &KafkaConsumer,
        watermarks: &TopicWatermarks,
        time_ms: i64,
    ) -> Result<TopicOffsets> {
        let mut asked = TopicPartitionList::new();
        for (topic, partitions) in watermarks {
            for partition in partitions.keys() {
                asked
                    .add_partition_offset(topic, *partition, Offset::Offset(time_ms))
                    .map_err(|e| self.error(&e, topic))?;
            }
        }
        let answered = consumer
            .offsets_for_times(asked, ANSWER_TIMEOUT)
            .map_err(|e| self.error_after(consumer, &e))?;
        let mut offsets = super::offsets::latest(watermarks);
        for element in answered.elements() {
            element
                .error()
                .map_err(|e| self.error(&e, element.topic()))?;
            let place = offsets.get_mut(element.topic());
            if let Offset::Offset(offset) = element.offset()
                && let Some(place) = place.and_then(|p| p.get_mut(&element.partition()))
            {
                *place = offset;
            }
        }
        Ok(offsets)
    }

    /// The error of a failed question, after a moment for the library to report its cause.
    fn error_after(&self, consumer: &KafkaConsumer, error: &KafkaError) -> Error {
        if consumer.assignment().is_ok_and(|a| a.count() == 0) {
            // Nothing is assigned, so this takes events and no messages.
            for _ in 0..10 {
                if consumer.poll(Duration::from_millis(20)).is_none() {
                    break;
                }
            }
        }
        self.error(error, "")
    }

    /// An error in our words, with the library's last report as its cause.
    pub fn error(&self, error: &KafkaError, topic: &str) -> Error {
        let code = error.rdkafka_error_code();
        let report = self.reports.last();
        let cause = match &report {
            Some((_, reason)) => reason.clone(),
            None => code.map_or_else(|| error.to_string(), |c| c.to_string()),
        };
        let reported = report.map(|(code, _)| code);
        describe(&self.brokers, topic, code, reported, &cause)
    }
}

fn config_reason(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, reason, name, _) => format!("kafka.{name}: {reason}"),
        KafkaError::ClientCreation(reason) => reason.clone(),
        other => other.to_string(),
    }
}

/// Words for a failure: `code` is what failed, `reported` what the library had to say before.
fn describe(
    brokers: &str,
    topic: &str,
    code: Option<RDKafkaErrorCode>,
    reported: Option<RDKafkaErrorCode>,
    cause: &str,
) -> Error {
    use RDKafkaErrorCode as Code;
    let is = |codes: &[Code]| {
        code.is_some_and(|c| codes.contains(&c)) || reported.is_some_and(|c| codes.contains(&c))
    };
    let detail = format!("The cause is: {}.", cause.trim_end_matches('.'));
    if is(&[Code::Authentication, Code::SaslAuthenticationFailed]) {
        return Error::transient(
            sqlstate::INVALID_AUTHORIZATION,
            format!("authentication failed at kafka brokers {brokers}"),
        )
        .detail(detail)
        .hint("Check username, password and sasl_mechanism; ALTER SECRET … AS '…'; takes effect at the next try.");
    }
    if is(&[
        Code::TopicAuthorizationFailed,
        Code::GroupAuthorizationFailed,
        Code::ClusterAuthorizationFailed,
    ]) {
        return Error::transient(
            sqlstate::INSUFFICIENT_PRIVILEGE,
            format!("permission denied for kafka topic \"{topic}\""),
        )
        .detail(detail)
        .hint("Allow READ and DESCRIBE on the topic, and READ on groups tidemill-*.");
    }
    if code.is_some_and(|c| {
        [
            Code::UnknownTopic,
            Code::UnknownTopicOrPartition,
            Code::UnknownPartition,
        ]
        .contains(&c)
    }) {
        return Error::transient(
            sqlstate::UNDEFINED_OBJECT,
            format!("kafka topic \"{topic}\" does not exist at {brokers}"),
        )
        .hint("Create the topic, or correct option topic of the stream.");
    }
    Error::transient(
        sqlstate::CONNECTION_FAILURE,
        format!("could not reach kafka brokers {brokers}"),
    )
    .detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn failures_say_what_failed() {
        let error = describe(
            "b:9092",
            "t",
            Some(RDKafkaErrorCode::OperationTimedOut),
            Some(RDKafkaErrorCode::Authentication),
            "SASL authentication error: bad password",
        );
        assert!(error.primary().contains("authentication"));
        assert_eq!(error.sqlstate(), sqlstate::INVALID_AUTHORIZATION);
        let error = describe(
            "b:9092",
            "t",
            Some(RDKafkaErrorCode::OperationTimedOut),
            Some(RDKafkaErrorCode::BrokerTransportFailure),
            "b:9092: Connect failed: refused.",
        );
        assert_eq!(error.kind(), ErrorKind::Transient);
        assert_eq!(error.primary(), "could not reach kafka brokers b:9092");
        assert_eq!(
            error.detail_text(),
            Some("The cause is: b:9092: Connect failed: refused.")
        );
        let unknown = RDKafkaErrorCode::UnknownTopicOrPartition;
        assert!(
            describe("b", "clicks", Some(unknown), None, "")
                .primary()
                .contains("\"clicks\" does not exist")
        );
    }

    #[test]
    fn the_cause_is_kept_over_its_consequence() {
        let reports = Reports::default();
        reports.report(RDKafkaErrorCode::Authentication, "wrong password");
        reports.report(RDKafkaErrorCode::AllBrokersDown, "1/1 brokers are down");
        assert_eq!(reports.last().unwrap().1, "wrong password");
        reports.clear();
        reports.report(RDKafkaErrorCode::AllBrokersDown, "1/1 brokers are down");
        assert_eq!(reports.last().unwrap().0, RDKafkaErrorCode::AllBrokersDown);
    }
}
