//! `SUGGEST WATERMARK`: how late the rows of a stream came, and what a delay would cost.
//!
//! A row is late by what the newest event time before it is ahead of its own. A delay of so much would have
//! taken it in; a shorter one would not. The longer the delay, the more state waits for the watermark.

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, TimeUnit};
use futures::StreamExt;

use super::Engine;
use crate::catalog::definition::{CatalogObject, Definition};
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;

/// Rows that are looked at, the first ones.
const ROWS_MAX: usize = 5_000_000;
/// Thousandths of the rows that a suggested delay takes in.
const PERMILLES: [u64; 6] = [500, 900, 950, 990, 999, 1000];

/// A delay, and what comes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// Thousandths of the rows that came no later than this.
    pub permille: u64,
    /// The delay.
    pub delay_us: i64,
    /// Rows that would be late at least.
    pub late_rows: u64,
    /// Rows that a window over this delay holds at the end.
    pub rows_in_delay: u64,
    /// The statement that sets it.
    pub statement: String,
}

/// What a delay means for rows whose lateness and age at the end are known.
fn suggest(times_us: &[i64]) -> Vec<(u64, i64, u64, u64)> {
    let mut newest = i64::MIN;
    let mut lateness: Vec<i64> = times_us
        .iter()
        .map(|time| {
            newest = newest.max(*time);
            newest - time
        })
        .collect();
    lateness.sort_unstable();
    let mut suggestions: Vec<(u64, i64, u64, u64)> = Vec::new();
    for permille in PERMILLES {
        let rank = (lateness.len() as u64 * permille).div_ceil(1000).max(1) as usize;
        let Some(at_least) = lateness.get(rank - 1) else {
            return Vec::new();
        };
        let delay_us = rounded_up(*at_least);
        if suggestions
            .iter()
            .any(|(_, known, _, _)| *known == delay_us)
        {
            continue;
        }
        let in_time = lateness.partition_point(|late| *late <= delay_us);
        let kept = times_us.iter().filter(|time| **time > newest - delay_us);
        let late_rows = (lateness.len() - in_time) as u64;
        suggestions.push((permille, delay_us, late_rows, kept.count() as u64));
    }
    suggestions
}

/// To whole seconds, from a minute on to whole minutes, from an hour on to whole hours.
fn rounded_up(us: i64) -> i64 {
    const SECOND: i64 = 1_000_000;
    let unit = match us {
        us if us <= 60 * SECOND => SECOND,
        us if us <= 3600 * SECOND => 60 * SECOND,
        _ => 3600 * SECOND,
    };
    (us + unit - 1) / unit * unit
}

/// The event-time column: that of the watermark, or the only column that is a time.
fn event_time_of(object: &CatalogObject) -> Result<usize> {
    let schema = object.schema();
    if let Definition::Stream(stream) = &object.definition
        && let Some(watermark) = &stream.watermark
    {
        return Ok(schema.index_of(&watermark.column)?);
    }
    let is_time =
        |index: &usize| matches!(schema.field(*index).data_type(), DataType::Timestamp(..));
    let times: Vec<usize> = (0..schema.fields().len()).filter(is_time).collect();
    let name = quote_identifier(&object.name);
    match times[..] {
        [only] => Ok(only),
        [] => Err(Error::new(
            sqlstate::UNDEFINED_COLUMN,
            format!("stream \"{}\" has no column of a timestamp type", object.name),
        )
        .hint(format!("DESCRIBE {name};"))),
        [first, ..] => Err(Error::new(
            sqlstate::AMBIGUOUS_COLUMN,
            format!("stream \"{}\" has several columns of a timestamp type", object.name),
        )
        .hint(format!(
            "Say which one is the event time: ALTER STREAM {name} ADD WATERMARK FOR {column} AS {column};",
            column = quote_identifier(schema.field(first).name())
        ))),
    }
}

/// A watermark can be suggested for a stream, and it has none yet.
pub fn wants_watermark(object: &CatalogObject) -> bool {
    let has_none = matches!(&object.definition, Definition::Stream(s) if s.watermark.is_none());
    has_none && event_time_of(object).is_ok()
}

impl Engine {
    /// Looks at the rows of a stream that are there, in the order in which they came.
    pub async fn suggest_watermark(&self, object: &CatalogObject) -> Result<Vec<Suggestion>> {
        let column = event_time_of(object)?;
        let stored = object.stored_index(column);
        let mut times: Vec<i64> = Vec::new();
        let mut rows = self.scan_stream(object, &[stored]).await?;
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            let time = DataType::Timestamp(TimeUnit::Microsecond, None);
            let plain = cast(batch.column(0), &DataType::Int64);
            let micros = cast(batch.column(0), &time).and_then(|t| cast(&t, &DataType::Int64));
            let values = micros.or(plain)?;
            times.extend(values.as_primitive::<Int64Type>().iter().flatten());
            if times.len() >= ROWS_MAX {
                break;
            }
        }
        let name = quote_identifier(&object.name);
        let column = quote_identifier(object.schema().field(column).name());
        let has_one = match &object.definition {
            Definition::Stream(stream) => stream.watermark.is_some(),
            _ => false,
        };
        let verb = if has_one { "ALTER" } else { "ADD" };
        let all = suggest(&times).into_iter();
        Ok(all
            .map(|(permille, delay_us, late_rows, rows_in_delay)| Suggestion {
                permille,
                delay_us,
                late_rows,
                rows_in_delay,
                statement: format!(
                    "ALTER STREAM {name} {verb} WATERMARK FOR {column} AS {column} - INTERVAL '{} seconds';",
                    delay_us / 1_000_000
                ),
            })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    #[test]
    fn a_delay_takes_in_its_share_of_the_rows() {
        // Nine rows in order, then one that comes five seconds late, again and again.
        let mut times = Vec::new();
        for round in 0..100 {
            let at = round * 20 * SECOND;
            times.extend((0..9).map(|n| at + n * SECOND));
            times.push(at + 3 * SECOND);
        }
        let found = suggest(&times);
        let delays: Vec<(u64, i64, u64)> = found.iter().map(|s| (s.0, s.1 / SECOND, s.2)).collect();
        assert_eq!(delays, [(500, 0, 100), (950, 5, 0)]);
        assert_eq!(found[1].3, 5, "rows of the last five seconds");
        assert!(suggest(&[]).is_empty());
        assert_eq!(suggest(&[7]), [(500, 0, 0, 0)]);
    }

    #[test]
    fn delays_are_round() {
        assert_eq!(rounded_up(1), SECOND);
        assert_eq!(rounded_up(61 * SECOND), 120 * SECOND);
        assert_eq!(rounded_up(3601 * SECOND), 7200 * SECOND);
        assert_eq!(rounded_up(0), 0);
    }
}
