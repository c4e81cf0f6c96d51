//! Every option there is: one table, read by the parser, by SHOW OPTIONS and by the documentation.

use super::{Kind, Spec, Targets};

const SOURCES: Targets = Targets::FILES
    .or(Targets::SOCKET)
    .or(Targets::KAFKA)
    .or(Targets::GENERATOR);
const FORMATTED: Targets = Targets::FILES
    .or(Targets::SOCKET)
    .or(Targets::KAFKA)
    .or(Targets::SINK_FILES);
const RATE_LIMITED: Targets = SOURCES
    .or(Targets::LOG)
    .or(Targets::VIEW)
    .or(Targets::PIPELINE);
const STORES: Targets = Targets::FILES.or(Targets::SINK_FILES);
const RUN: Targets = Targets::VIEW.or(Targets::PIPELINE);

const fn spec(
    name: &'static str,
    aliases: &'static [&'static str],
    targets: Targets,
    kind: Kind,
    default: Option<&'static str>,
    doc: &'static str,
) -> Spec {
    Spec {
        name,
        aliases,
        targets,
        kind,
        default,
        doc,
    }
}

/// The options, sorted by name. Aliases are Spark's spellings; case and underscores do not count.
#[rustfmt::skip]
pub const OPTIONS: &[Spec] = &[
    spec("access_key_id", &[], STORES, Kind::Text, None, "key of the object store; the usual environment variable if not set"),
    spec("account_key", &[], STORES, Kind::Text, None, "key of the Azure account; the usual environment variable if not set"),
    spec("account_name", &[], STORES, Kind::Text, None, "Azure account; the usual environment variable if not set"),
    spec("allow_http", &[], STORES, Kind::Boolean, None, "reach the object store without TLS"),
    spec("bad_file_wait", &[], Targets::FILES, Kind::Duration, Some("1 minute"), "how long on_bad_file = 'wait' waits for an unreadable file"),
    spec("brokers", &["kafka.bootstrap.servers", "bootstrap_servers"], Targets::KAFKA, Kind::Text, None, "host:port of the brokers, separated by commas"),
    spec("checkpoint_interval", &[], RUN, Kind::Duration, None, "how long committed batches may wait to be written as state; after a restart they run again from the offset log"),
    spec("checkpoint_location", &["checkpointLocation"], RUN, Kind::Text, None, "path or URL of the checkpoint; within the data directory if not set"),
    spec("delimiter", &["sep"], FORMATTED, Kind::Text, Some(","), "character between the fields of a CSV line"),
    spec("endpoint", &[], STORES, Kind::Text, None, "URL of the object store, if not the provider's own"),
    spec("event", &[], Targets::GENERATOR, Kind::Enum(&["bid", "auction", "person"]), None, "which Nexmark events the stream holds; rows and rows_per_second count events of all kinds"),
    spec("event_rate", &[], Targets::GENERATOR, Kind::Integer { min: 1 }, None, "rows (Nexmark: events) per second of event time; rows_per_second if not set"),
    spec("fail_on_data_loss", &["failOnDataLoss"], Targets::KAFKA, Kind::Boolean, Some("true"), "stop when offsets to be read are gone, instead of recording the gap"),
    spec("format", &["cloudFiles.format", "fileFormat"], FORMATTED, Kind::Enum(&["json", "csv", "parquet", "text", "raw"]), Some("json"), "how rows are written: json, csv, parquet, text or raw"),
    spec("group_id", &["kafka.group.id", "groupId"], Targets::KAFKA, Kind::Text, None, "consumer group to show to the brokers; offsets are never committed there"),
    spec("header", &[], Targets::FILES.or(Targets::SOCKET).or(Targets::SINK_FILES), Kind::Boolean, Some("false"), "the first line of a CSV file names the columns"),
    spec("host", &[], Targets::SOCKET, Kind::Text, Some("localhost"), "host to read lines from"),
    spec("idle_timeout", &[], RUN.or(SOURCES).or(Targets::LOG), Kind::Duration, None, "a source without rows for so long holds back no watermark"),
    spec("ignore_missing_files", &["ignoreMissingFiles"], Targets::FILES, Kind::Boolean, Some("false"), "go on when a file of a planned batch is gone, and record the gap"),
    spec("keys", &[], Targets::GENERATOR, Kind::Integer { min: 1 }, Some("1000"), "how many different keys a sequence has"),
    spec("kind", &[], Targets::GENERATOR, Kind::Enum(&["sequence", "nexmark"]), Some("sequence"), "what to generate: sequence or nexmark"),
    spec("location", &["path"], Targets::FILES.or(Targets::SINK_FILES), Kind::Text, None, "folder or object-store URL"),
    spec("max_batch_duration", &["maxTriggerDelay"], RUN, Kind::Duration, None, "target for one batch; batches are cut smaller when they take longer"),
    spec("max_bytes_per_trigger", &["maxBytesPerTrigger", "cloudFiles.maxBytesPerTrigger"], Targets::FILES.or(RUN), Kind::Bytes, None, "bytes that one batch takes at most"),
    spec("max_files_per_trigger", &["maxFilesPerTrigger", "cloudFiles.maxFilesPerTrigger"], Targets::FILES.or(RUN), Kind::Integer { min: 1 }, None, "files that one batch takes at most"),
    spec("max_future_skew", &[], RUN.or(SOURCES).or(Targets::LOG), Kind::Duration, Some("1 hour"), "event times further ahead of the clock than this do not move the watermark"),
    spec("max_offsets_per_trigger", &["maxOffsetsPerTrigger", "max_rows_per_trigger", "maxRowsPerTrigger"], RATE_LIMITED, Kind::Integer { min: 1 }, None, "rows that one batch takes at most"),
    spec("merge_schema", &["mergeSchema"], Targets::SINK_FILES, Kind::Boolean, Some("false"), "take new columns of the view into the target, instead of stopping with both schemas"),
    spec("metrics_retention", &[], RUN, Kind::Duration, Some("7 days"), "how long rows of streaming_metrics_log are kept"),
    spec("min_batches_to_retain", &["minBatchesToRetain", "spark.sql.streaming.minBatchesToRetain"], RUN, Kind::Integer { min: 1 }, Some("100"), "batches that stay restorable"),
    spec("min_file_age", &[], Targets::FILES, Kind::Duration, Some("0 seconds"), "a file younger than this is not read yet"),
    spec("min_partitions", &["minPartitions"], Targets::KAFKA, Kind::Integer { min: 1 }, None, "pieces that a batch is read in at least"),
    spec("mode", &["outputMode"], Targets::SINK_FILES, Kind::Enum(&["append", "changelog", "update", "upsert", "complete"]), None, "append: only inserted rows; changelog (Spark's update): every change with its batch_id and change_kind; append if the input allows it"),
    spec("null_value", &["nullValue"], FORMATTED, Kind::Text, Some(""), "text that means NULL in CSV"),
    spec("num_rows", &["numRows"], Targets::SINK_CONSOLE, Kind::Integer { min: 0 }, Some("20"), "rows of a batch to show"),
    spec("on_bad_file", &[], Targets::FILES, Kind::Enum(&["wait", "fail", "skip"]), Some("wait"), "an unreadable file is waited for and then stops the pipeline, stops it at once, or is skipped and recorded"),
    spec("on_bad_row", &["badRowsPolicy"], FORMATTED, Kind::Enum(&["dead letter", "fail", "drop"]), Some("dead letter"), "a row that cannot be decoded is set aside, stops the pipeline, or is counted and dropped"),
    spec("on_changed_file", &[], Targets::FILES, Kind::Enum(&["warn", "read again", "fail"]), Some("warn"), "a file that changed after it was read is told, is read again, or stops the pipeline"),
    spec("on_row_error", &[], Targets::VIEW, Kind::Enum(&["fail", "skip", "null"]), Some("fail"), "a row on which an expression fails stops the pipeline, is left out and counted, or is counted and keeps NULL for the value"),
    spec("pipeline", &["queryName"], Targets::VIEW, Kind::Text, None, "pipeline to run in; views of one pipeline commit together; one of its own if not set"),
    spec("port", &[], Targets::SOCKET, Kind::Integer { min: 1 }, None, "port to read lines from"),
    spec("quote", &[], FORMATTED, Kind::Text, Some("\""), "character around the fields of a CSV line"),
    spec("region", &[], STORES, Kind::Text, None, "region of the object store; the usual environment variable if not set"),
    spec("reset_state", &[], Targets::VIEW, Kind::Boolean, Some("false"), "with CREATE OR REPLACE: start from nothing where state cannot be carried over"),
    spec("rows", &["numRows"], Targets::GENERATOR, Kind::Integer { min: 0 }, None, "rows in all; without end if not set"),
    spec("rows_per_second", &["rowsPerSecond"], Targets::GENERATOR, Kind::Integer { min: 0 }, None, "rows per second; as many as asked for if not set"),
    spec("sas_token", &[], STORES, Kind::Text, None, "Azure shared access signature"),
    spec("schema_evolution", &["cloudFiles.schemaEvolutionMode", "schemaEvolutionMode"], Targets::FILES.or(Targets::KAFKA), Kind::Enum(&["none", "add new columns", "rescue", "fail"]), Some("none"), "fields that no column takes are ignored and counted, give the stream a column, are kept in _rescued_data, or stop the pipeline before the batch"),
    spec("secret_access_key", &[], STORES, Kind::Text, None, "secret of the object store; the usual environment variable if not set"),
    spec("seed", &[], Targets::GENERATOR, Kind::Integer { min: 0 }, Some("0"), "same seed, same rows"),
    spec("sequence_column", &[], Targets::GENERATOR, Kind::Text, None, "name of a further integer column that counts the rows of a sequence"),
    spec("service_account_key", &[], STORES, Kind::Text, None, "Google service account, as JSON"),
    spec("session_token", &[], STORES, Kind::Text, None, "session token of the object store"),
    spec("skip_signature", &[], STORES, Kind::Boolean, None, "read a public bucket without credentials"),
    spec("stall_timeout", &[], RUN, Kind::Duration, Some("1 minute"), "a pipeline that shows no life for so long in a batch is called stalled, and opens its sources again if it was reading"),
    spec("start_time", &[], Targets::GENERATOR, Kind::Text, None, "first event time of generated rows"),
    spec("starting_offsets", &["startingOffsets"], Targets::KAFKA.or(Targets::LOG), Kind::Text, Some("earliest"), "where a new pipeline starts: earliest, latest, or JSON of offsets"),
    spec("starting_timestamp", &["startingTimestamp"], Targets::KAFKA, Kind::Text, None, "start at the first message at or after this time"),
    spec("state_partitions", &["spark.sql.shuffle.partitions", "shufflePartitions"], RUN, Kind::Count { min: 1 }, Some("auto"), "threads that a batch is computed on; auto: as many as there are cores; answers and state do not depend on it"),
    spec("timestamp_unit", &[], FORMATTED, Kind::Enum(&["auto", "seconds", "milliseconds", "microseconds", "nanoseconds"]), Some("auto"), "what a number in a timestamp column counts; auto tells by its size"),
    spec("timezone", &["spark.sql.session.timeZone"], Targets::VIEW, Kind::TimeZone, None, "whose clocks the query's dates and times without a zone are of; the session's that creates the view if not set"),
    spec("topic", &["subscribe"], Targets::KAFKA, Kind::Text, None, "topics to read, separated by commas"),
    spec("topic_pattern", &["subscribePattern"], Targets::KAFKA, Kind::Text, None, "regular expression of topics to read"),
    spec("trigger", &["processingTime"], RUN, Kind::Trigger, Some("1 second"), "time between batches, or 'available now', or 'continuous'"),
    spec("watermark_policy", &["spark.sql.streaming.multipleWatermarkPolicy", "multipleWatermarkPolicy"], RUN, Kind::Enum(&["min", "max"]), Some("min"), "which of several watermarks counts"),
];
