//! The `generator` source: rows made from their number, so that any range can be made again.
//!
//! Nothing is stored: a position is a row number, and a row depends on the seed and its number
//! only. `rows_per_second` lets rows appear by the clock from the stream's creation on; without
//! it, all `rows` are there at once (a generator with neither is refused: it would never end).

pub mod nexmark;
pub mod random;
pub mod sequence;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use futures::stream::{self, BoxStream, StreamExt};

use self::nexmark::{Event, Nexmark};
use self::sequence::Sequence;
use super::chunks;
use super::evolution::UnknownFields;
use super::formats::values::{EpochUnit, timestamp_us};
use super::settings::Settings;
use super::{
    Backlog, ConnectorEnvironment, ReadLimits, Source, SourceChunk, SourceOffset, SourceRange,
};
use crate::catalog::definition::{CatalogObject, Options};
use crate::clock::ClockRef;
use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, Result, sqlstate};

/// Rows of a chunk.
const CHUNK_ROWS: u64 = 65_536;

/// Event time by row (or event) number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeline {
    /// Event time of number 0, microseconds since the epoch.
    pub start_us: i64,
    /// Nanoseconds between two numbers: at a high rate, microseconds would be too coarse.
    pub interval_ns: u64,
}

impl Timeline {
    /// Event time of a number, microseconds since the epoch.
    #[inline]
    pub fn at_us(&self, number: u64) -> i64 {
        let passed_us = u128::from(number) * u128::from(self.interval_ns) / 1_000;
        self.start_us
            .saturating_add(i64::try_from(passed_us).unwrap_or(i64::MAX))
    }
}

#[derive(Debug, Clone)]
enum Kind {
    Sequence(Sequence),
    Nexmark(Nexmark),
}

/// The source.
pub struct GeneratorSource {
    name: String,
    schema: SchemaRef,
    kind: Kind,
    /// Rows (for nexmark: events of all kinds) in all.
    rows: Option<u64>,
    /// Rows (for nexmark: events of all kinds) a second.
    rows_per_second: Option<u64>,
    created_at_us: i64,
    clock: ClockRef,
}

impl GeneratorSource {
    /// Opens the generator of a stream.
    pub fn open(
        object: &CatalogObject,
        options: &Options,
        environment: &ConnectorEnvironment,
    ) -> Result<Self> {
        let settings = Settings::new(&object.name, options, &environment.secrets);
        let rows = settings.count("rows")?;
        let rows_per_second = settings.count("rows_per_second")?.map(|rate| rate.max(1));
        if rows.is_none() && rows_per_second.is_none() {
            return Err(Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!(
                    "\"{}\" needs option \"rows\" or \"rows_per_second\"",
                    object.name
                ),
            )
            .detail("Without either the generator would never end.")
            .hint("Add rows = 1000000, or rows_per_second = 1000, to its WITH list."));
        }
        #[derive(Clone, Copy)]
        enum Name {
            Sequence,
            Nexmark,
        }
        let kinds = [("sequence", Name::Sequence), ("nexmark", Name::Nexmark)];
        let seed = settings.count("seed")?.unwrap_or(0);
        let kind = match settings.choice("kind", &kinds)?.unwrap_or(Name::Sequence) {
            Name::Sequence => Kind::Sequence(Sequence {
                seed,
                keys: settings.count("keys")?.unwrap_or(1_000).max(1),
                sequence_column: settings.text("sequence_column")?,
                timeline: timeline(
                    &settings,
                    object,
                    rows_per_second,
                    "2025-01-01T00:00:00Z",
                    1_000_000,
                )?,
            }),
            // The benchmark's own start, and its 10,000 events a second.
            Name::Nexmark => Kind::Nexmark(Nexmark {
                seed,
                event: event(&settings)?,
                timeline: timeline(
                    &settings,
                    object,
                    rows_per_second,
                    "2015-07-15T00:00:00Z",
                    100_000,
                )?,
            }),
        };
        if let Some(column) = object.columns().iter().find(|c| c.metadata_from.is_some()) {
            let name = column.metadata_from.as_deref().unwrap_or_default();
            return Err(super::unknown_metadata(
                &column.name,
                name,
                "generator",
                &[],
            ));
        }
        let source = Self {
            name: object.name.clone(),
            schema: object.schema(),
            kind,
            rows,
            rows_per_second,
            created_at_us: object.created_at_us,
            clock: environment.clock.clone(),
        };
        // Making one row shows now what would fail at the first batch.
        let all: Vec<usize> = (0..source.schema.fields().len()).collect();
        source.maker().make(&source.schema, &all, 0, 1)?;
        Ok(source)
    }

    fn maker(&self) -> Maker {
        Maker {
            kind: self.kind.clone(),
        }
    }

    /// Rows there are at a moment.
    fn rows_at(&self, now_us: i64) -> u64 {
        let total = self.rows.unwrap_or(u64::MAX);
        let numbers = match self.rows_per_second {
            None => total,
            Some(rate) => {
                let passed_us = now_us.saturating_sub(self.created_at_us).max(0) as u128;
                let made = passed_us * u128::from(rate) / 1_000_000;
                u64::try_from(made).unwrap_or(u64::MAX).min(total)
            }
        };
        match &self.kind {
            Kind::Sequence(_) => numbers,
            Kind::Nexmark(nexmark) => nexmark.event.count_among(numbers),
        }
    }
}

fn event(settings: &Settings<'_>) -> Result<Event> {
    let events = [
        ("bid", Event::Bid),
        ("auction", Event::Auction),
        ("person", Event::Person),
    ];
    settings.required("event")?;
    settings
        .choice("event", &events)?
        .ok_or_else(|| Error::internal("a required option is there"))
}

/// `start_time` and `event_rate` (per second of event time). With a rate, event time follows the clock by default; without, it
/// starts at a fixed moment, so that the same statement always makes the same rows.
fn timeline(
    settings: &Settings<'_>,
    object: &CatalogObject,
    rows_per_second: Option<u64>,
    default_start: &str,
    default_interval_ns: u64,
) -> Result<Timeline> {
    let start = settings.parsed("start_time", "a timestamp", |text| {
        timestamp_us(text, EpochUnit::Auto)
    })?;
    let event_rate = settings.count("event_rate")?.or(rows_per_second);
    let start_us = match (start, rows_per_second) {
        (Some(start), _) => start,
        (None, Some(_)) => object.created_at_us,
        (None, None) => timestamp_us(default_start, EpochUnit::Auto)
            .ok_or_else(|| Error::internal("the default start is a timestamp"))?,
    };
    let interval_ns = match event_rate {
        Some(rate) => (1_000_000_000 / rate.max(1)).max(1),
        None => default_interval_ns,
    };
    Ok(Timeline {
        start_us,
        interval_ns,
    })
}

/// Makes rows; apart from the source so that it can move to a blocking thread.
struct Maker {
    kind: Kind,
}

impl Maker {
    fn make(
        &self,
        schema: &SchemaRef,
        projection: &[usize],
        first: u64,
        rows: u64,
    ) -> Result<RecordBatch> {
        let numbers: Vec<u64> = match &self.kind {
            Kind::Sequence(_) => (first..first + rows).collect(),
            Kind::Nexmark(_) => vec![],
        };
        let arrays = projection
            .iter()
            .map(|&i| match &self.kind {
                Kind::Sequence(sequence) => sequence.column(&schema.fields()[i], &numbers),
                Kind::Nexmark(nexmark) => nexmark.column(&schema.fields()[i], first, rows as usize),
            })
            .collect::<Result<Vec<ArrayRef>>>()?;
        let projected = Arc::new(schema.project(projection)?);
        let options = RecordBatchOptions::new().with_row_count(Some(rows as usize));
        Ok(RecordBatch::try_new_with_options(
            projected, arrays, &options,
        )?)
    }
}

fn row(offset: &SourceOffset) -> Result<u64> {
    offset.0.get("row").and_then(|n| n.as_u64()).ok_or_else(|| {
        Error::damaged("offset of a generator is not of the form {\"row\": n}")
            .detail(format!("It says {}.", offset.0))
    })
}

fn offset(row: u64) -> SourceOffset {
    SourceOffset(serde_json::json!({"row": row}))
}

#[async_trait]
impl Source for GeneratorSource {
    fn description(&self) -> String {
        format!("generator {}", self.name)
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    async fn initial_offset(&self) -> Result<SourceOffset> {
        Ok(offset(0))
    }

    async fn latest_offset(&self) -> Result<SourceOffset> {
        Ok(offset(self.rows_at(self.clock.now_us())))
    }

    async fn plan_range(
        &self,
        _batch_id: u64,
        start: &SourceOffset,
        latest: &SourceOffset,
        limits: &ReadLimits,
    ) -> Result<Option<SourceRange>> {
        let (from, to) = (row(start)?, row(latest)?);
        if to <= from {
            return Ok(None);
        }
        let to = to.min(from.saturating_add(limits.max_rows.unwrap_or(u64::MAX).max(1)));
        Ok(Some(SourceRange {
            start: start.clone(),
            end: offset(to),
        }))
    }

    fn backlog(&self, from: &SourceOffset, latest: &SourceOffset) -> Backlog {
        match (row(from), row(latest)) {
            (Ok(from), Ok(to)) => Backlog {
                rows: Some(to.saturating_sub(from)),
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
        let (from, to) = (row(&range.start)?, row(&range.end)?);
        if to <= from {
            return Ok(stream::empty().boxed());
        }
        let (maker, schema, projection) = (self.maker(), self.schema.clone(), projection.to_vec());
        Ok(chunks::read_blocking(Box::new(move |out| {
            let mut at = from;
            while at < to {
                let rows = CHUNK_ROWS.min(to - at);
                let batch = maker.make(&schema, &projection, at, rows)?;
                let bytes = batch.get_array_memory_size() as u64;
                out.send(SourceChunk {
                    changes: ChangeBatch::inserts(batch),
                    dead_letters: vec![],
                    unknown: UnknownFields::default(),
                    bytes,
                })?;
                at += rows;
            }
            Ok(())
        })))
    }

    async fn acknowledge(&self, _batch_id: u64, _offset: &SourceOffset) -> Result<()> {
        Ok(())
    }

    async fn wait_for_data(&self, from: &SourceOffset) {
        let Ok(from) = row(from) else {
            return std::future::pending().await;
        };
        let Some(rate) = self.rows_per_second else {
            // All rows are there from the beginning; beyond the last there is nothing to wait for.
            if self.rows_at(0) <= from {
                return std::future::pending().await;
            }
            return;
        };
        // One row's time, but neither a busy loop nor longer than anyone would notice.
        let row_time = Duration::from_secs_f64(1.0 / rate as f64);
        let pause = row_time.clamp(Duration::from_millis(1), Duration::from_millis(500));
        if self.rows_at(self.clock.now_us()) <= from {
            tokio::time::sleep(pause).await;
        }
    }
}
