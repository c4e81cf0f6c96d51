//! A pipeline's settings, read from its options.

use std::time::Duration;

use super::decide::{DEFAULT_TRIGGER, Trigger, WatermarkPolicy};
use crate::catalog::definition::{OptionValue, Options};
use crate::connectors::ReadLimits;
use crate::error::Result;
use crate::sql::options;

/// How far ahead of the clock an event time may move the watermark unless told otherwise: one absurd
/// timestamp must not make all else late.
const DEFAULT_MAX_FUTURE_SKEW: Duration = Duration::from_secs(3600);

/// How long a pipeline may be silent unless told otherwise.
const DEFAULT_STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Settings that concern the trigger loop and the checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PipelineSettings {
    pub trigger: Trigger,
    pub trigger_text: String,
    pub checkpoint_location: Option<String>,
    pub min_batches_to_retain: u64,
    pub limits: ReadLimits,
    pub idle_timeout: Option<Duration>,
    pub max_future_skew: Option<Duration>,
    pub watermark_policy: WatermarkPolicy,
    /// How long committed batches may wait to be persisted as state; `None`: not at all.
    pub checkpoint_interval: Option<Duration>,
    /// Target for one batch.
    pub max_batch_duration: Option<Duration>,
    /// Threads that a batch is computed on; `None`: as many as there are cores.
    pub state_partitions: Option<usize>,
    /// Silence after which the pipeline is told as stalled.
    pub stall_timeout: Duration,
}

impl PipelineSettings {
    /// Reads them; the options were validated when they were written.
    pub fn read(given: &Options) -> Result<Self> {
        let trigger_text = text(given, "trigger")
            .unwrap_or("100 milliseconds")
            .to_owned();
        Ok(Self {
            trigger: trigger(given)?,
            trigger_text,
            checkpoint_location: text(given, "checkpoint_location").map(str::to_owned),
            min_batches_to_retain: options::integer(given, "min_batches_to_retain")?
                .unwrap_or(100)
                .max(1) as u64,
            limits: read_limits(given)?,
            idle_timeout: options::duration(given, "idle_timeout")?,
            max_future_skew: options::duration(given, "max_future_skew")?
                .or(Some(DEFAULT_MAX_FUTURE_SKEW)),
            checkpoint_interval: options::duration(given, "checkpoint_interval")?,
            max_batch_duration: options::duration(given, "max_batch_duration")?,
            state_partitions: options::count(given, "state_partitions")?
                .map(|count| count.max(1) as usize),
            stall_timeout: options::duration(given, "stall_timeout")?
                .unwrap_or(DEFAULT_STALL_TIMEOUT),
            watermark_policy: match text(given, "watermark_policy") {
                Some("max" | "maximum") => WatermarkPolicy::Maximum,
                _ => WatermarkPolicy::Minimum,
            },
        })
    }
}

fn trigger(given: &Options) -> Result<Trigger> {
    Ok(match options::trigger_of(given)? {
        None => DEFAULT_TRIGGER,
        Some(options::Trigger::Continuous) => Trigger::Continuous,
        Some(options::Trigger::AvailableNow) => Trigger::AvailableNow,
        Some(options::Trigger::Every(interval)) => Trigger::Interval(interval),
    })
}

/// Limits of one batch from a stream's or a pipeline's options.
pub(super) fn read_limits(given: &Options) -> Result<ReadLimits> {
    let count = |name| -> Result<Option<u64>> {
        Ok(options::integer(given, name)?.map(|n| n.max(1) as u64))
    };
    Ok(ReadLimits {
        max_rows: count("max_offsets_per_trigger")?,
        max_files: count("max_files_per_trigger")?,
        max_bytes: options::bytes(given, "max_bytes_per_trigger")?,
    })
}

/// The stricter of two sets of limits.
pub(super) fn stricter(a: ReadLimits, b: ReadLimits) -> ReadLimits {
    let least = |x: Option<u64>, y: Option<u64>| [x, y].into_iter().flatten().min();
    ReadLimits {
        max_rows: least(a.max_rows, b.max_rows),
        max_files: least(a.max_files, b.max_files),
        max_bytes: least(a.max_bytes, b.max_bytes),
    }
}

/// A text option.
pub(super) fn text<'a>(given: &'a Options, name: &str) -> Option<&'a str> {
    match given.get(name) {
        Some(OptionValue::Text(t)) => Some(t),
        _ => None,
    }
}
