//! What happened, kept across restarts: metrics rows, events, dead letters, late rows,
//! expectation counts, data gaps.
//!
//! Rows are JSON values under ordered keys (see [`keys`]), so that one view's last batches are one
//! short range scan. Every write is idempotent: a row's key says which batch or instant it belongs
//! to, and writing it again after a crash writes the same row. Metrics rows are not forced to disk
//! one by one: the commit log of the checkpoint carries them, and the engine puts them back.

mod keys;
pub mod rows;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde::de::DeserializeOwned;

use self::rows::{DataGapRow, DeadLetterRow, EventRow, ExpectationRow, LateRow, MetricsRow};
use crate::catalog::pg_catalog::backends::Backends;
use crate::catalog::pg_catalog::notifications::{EVENTS_CHANNEL, Notification, PAYLOAD_MAX_BYTES};
use crate::catalog::system_tables::STATEMENT_EVENT;
use crate::clock::ClockRef;
use crate::error::{Error, ErrorKind, Result};
use crate::state::system::SystemStore;

/// From which pipeline to which the letters of a stream go.
#[derive(Debug, Clone, Copy)]
pub struct HandedOver<'a> {
    /// The pipeline that ends.
    pub from: &'a str,
    /// The one that it becomes part of.
    pub to: &'a str,
    /// The batch of `to` with which it does.
    pub batch_id: u64,
    /// Both read the stream: only records that both set aside are one letter from now on. To the views of `to` the
    /// rest are rows already.
    pub is_read_by_both: bool,
}

/// How long metrics rows are kept, in microseconds: `metrics_retention`, 7 days.
pub const METRICS_RETENTION_US: i64 = 7 * 24 * 3600 * 1_000_000;
/// Late rows kept for each view; more are counted, not kept.
pub const LATE_ROWS_MAX: usize = 10_000;
/// Rows that one step of a scan reads.
const SCAN_ROWS: usize = 4096;

/// The history store of a database.
#[derive(Debug)]
pub struct History {
    store: SystemStore,
    clock: ClockRef,
    /// Who hears of events as they are kept.
    listeners: OnceLock<Arc<Backends>>,
}

/// A row of `streaming_events` as JSON, with the names of its columns. What a reader without the right
/// to other users' statements does not see is left out, and a detail that is too long is `null`.
fn event_payload(event: &EventRow) -> String {
    let at = chrono::DateTime::from_timestamp_micros(event.event_at);
    let at = at.map(|at| at.to_rfc3339_opts(chrono::SecondsFormat::Micros, true));
    let detail = match event.kind.as_str() {
        STATEMENT_EVENT => serde_json::json!({ "user": event.detail.get("user") }),
        _ => event.detail.clone(),
    };
    let mut row = serde_json::json!({
        "event_at": at,
        "event": event.kind,
        "object_name": event.object_name,
        "pipeline": event.pipeline,
        "batch_id": event.batch_id,
        "detail": detail,
    });
    let payload = row.to_string();
    if payload.len() < PAYLOAD_MAX_BYTES {
        return payload;
    }
    row["detail"] = serde_json::Value::Null;
    row.to_string()
}

/// Which rows of a table a reader wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistoryFilter {
    /// Only this view, stream or object.
    pub name: Option<String>,
    /// At most this many rows, the newest of each name; `None`: all.
    pub limit: Option<usize>,
}

impl History {
    /// Opens or creates the store in `dir` (`<data>/catalog/history`). Nothing depends on it, so a
    /// damaged one is set aside as `history.damaged-<time>` and a new one begins, with an event that
    /// tells where the old one is.
    pub fn open(dir: &Path, clock: ClockRef) -> Result<Arc<Self>> {
        let in_dir = |error: Error| error.context(dir.display());
        match SystemStore::open(dir) {
            Ok(store) => Ok(Arc::new(Self::over(store, clock))),
            Err(error) if error.kind() == ErrorKind::Damaged => {
                let aside = set_aside(dir, clock.now_us()).map_err(in_dir)?;
                let cause = error.detail_text().unwrap_or(error.primary()).to_owned();
                tracing::error!(
                    cause,
                    set_aside = %aside.display(),
                    "history is damaged, a new one begins"
                );
                let store = SystemStore::open(dir).map_err(in_dir)?;
                let history = Self::over(store, clock);
                history.record_event(
                    "recovered",
                    "history",
                    None,
                    serde_json::json!({
                        "note": "The history of metrics and events was damaged; a new one begins.",
                        "cause": cause,
                        "set_aside": aside.to_string_lossy(),
                    }),
                )?;
                Ok(Arc::new(history))
            }
            Err(error) => Err(in_dir(error)),
        }
    }

    fn over(store: SystemStore, clock: ClockRef) -> Self {
        Self {
            store,
            clock,
            listeners: OnceLock::new(),
        }
    }

    /// From now on every event is a notification too, for whoever listens to `streaming_events`.
    pub fn tell_events_to(&self, backends: &Arc<Backends>) {
        // The first one stays: a database has one register of sessions.
        self.listeners.get_or_init(|| backends.clone());
    }

    /// Keeps the metrics rows of a batch. The same view and batch again replaces the row.
    pub fn record_metrics(&self, rows: &[MetricsRow]) -> Result<()> {
        let pairs = rows
            .iter()
            .map(|row| Ok((keys::metrics(&row.stream_name, row.batch_id), json(row)?)))
            .collect::<Result<Vec<_>>>()?;
        self.store.put_all(&pairs, false)
    }

    /// As [`Self::record_metrics`], for rows as the commit log carries them.
    pub fn record_metrics_json(&self, rows: &[serde_json::Value]) -> Result<()> {
        let rows = rows
            .iter()
            .map(|value| {
                serde_json::from_value(value.clone())
                    .map_err(|_| Error::damaged("a metrics row of the commit log cannot be read"))
            })
            .collect::<Result<Vec<_>>>()?;
        self.record_metrics(&rows)
    }

    /// Keeps an event that happens now, and forces it to disk.
    pub fn record_event(
        &self,
        kind: &str,
        object: &str,
        batch_id: Option<u64>,
        detail: serde_json::Value,
    ) -> Result<()> {
        let mut event_at = self.clock.now_us();
        // Two of one instant are two.
        while self
            .store
            .get(&keys::event(event_at, object, kind))?
            .is_some()
        {
            event_at += 1;
        }
        self.put_event(&EventRow {
            event_at,
            kind: kind.to_owned(),
            object_name: object.to_owned(),
            pipeline: None,
            batch_id,
            detail,
        })
    }

    /// Keeps an event with its own time. The same instant, object and kind again is the same row.
    pub fn put_event(&self, event: &EventRow) -> Result<()> {
        let key = keys::event(event.event_at, &event.object_name, &event.kind);
        self.store.put_all(&[(key, json(event)?)], true)?;
        if let Some(listeners) = self.listeners.get() {
            listeners.notify(Notification {
                pid: 0,
                channel: EVENTS_CHANNEL.to_owned(),
                payload: event_payload(event),
            });
        }
        Ok(())
    }

    /// Keeps the records of a batch that could not be used.
    pub fn record_dead_letters(&self, rows: &[DeadLetterRow]) -> Result<()> {
        let pairs = rows
            .iter()
            .map(|row| Ok((letter_key(row), json(row)?)))
            .collect::<Result<Vec<_>>>()?;
        self.store.put_all(&pairs, true)
    }

    /// Forgets the letters of a batch that is read again: it tells those anew that are some still.
    pub fn forget_batch_letters(&self, stream: &str, pipeline: &str, batch_id: u64) -> Result<()> {
        let (lower, upper) = keys::dead_letters_of(stream, batch_id, pipeline);
        match self.store.scan(&lower, &upper, false, 1)?.is_empty() {
            // As nearly always: nothing is written then.
            true => Ok(()),
            false => self.store.delete_range(&lower, &upper),
        }
    }

    /// Forgets letters that went through again.
    pub fn forget_letters(&self, rows: &[DeadLetterRow]) -> Result<()> {
        rows.iter().try_for_each(|row| {
            let key = letter_key(row);
            self.store.delete_range(&key, &keys::after(&key))
        })
    }

    /// Gives the letters of a pipeline to the one that it becomes part of. Said again it does the same.
    pub fn hand_over_letters(&self, stream: &str, handed: &HandedOver<'_>) -> Result<()> {
        let filter = HistoryFilter {
            name: Some(stream.to_owned()),
            limit: None,
        };
        let rows = self.dead_letters(&filter)?;
        let theirs = |row: &&DeadLetterRow| row.pipeline == handed.to;
        let known: HashSet<(&str, &[u8])> = rows
            .iter()
            .filter(theirs)
            .map(|row| (row.origin.as_str(), row.raw.as_slice()))
            .collect();
        let is_given = |row: &&DeadLetterRow| {
            let is_known = known.contains(&(row.origin.as_str(), row.raw.as_slice()));
            row.pipeline == handed.from && (is_known || !handed.is_read_by_both)
        };
        let given: Vec<DeadLetterRow> = rows.iter().filter(is_given).cloned().collect();
        let mut new = Vec::new();
        for row in &given {
            if !known.contains(&(row.origin.as_str(), row.raw.as_slice())) {
                let mut row = row.clone();
                handed.to.clone_into(&mut row.pipeline);
                row.batch_id = handed.batch_id;
                new.push(row);
            }
        }
        self.record_dead_letters(&new)?;
        self.forget_letters(&given)
    }

    /// Keeps rows of a batch that came too late, up to [`LATE_ROWS_MAX`] a view.
    pub fn record_late_rows(&self, rows: &[LateRow]) -> Result<()> {
        let pairs = rows
            .iter()
            .map(|row| {
                let key = keys::late_row(&row.stream_name, row.batch_id, row.row_number);
                Ok((key, json(row)?))
            })
            .collect::<Result<Vec<_>>>()?;
        self.store.put_all(&pairs, false)?;
        let mut names: Vec<&str> = rows.iter().map(|r| r.stream_name.as_str()).collect();
        names.dedup();
        names
            .into_iter()
            .try_for_each(|name| self.trim(keys::LATE_ROWS, name, LATE_ROWS_MAX))
    }

    /// Keeps a batch's counts of expectations.
    pub fn record_expectations(&self, rows: &[ExpectationRow]) -> Result<()> {
        let pairs = rows
            .iter()
            .map(|row| {
                let ExpectationRow {
                    stream_name,
                    pipeline,
                    expectation_name,
                    ..
                } = row;
                let key = keys::expectation(stream_name, row.batch_id, pipeline, expectation_name);
                Ok((key, json(row)?))
            })
            .collect::<Result<Vec<_>>>()?;
        self.store.put_all(&pairs, false)
    }

    /// Keeps parts of a source that were lost or skipped.
    pub fn record_data_gaps(&self, rows: &[DataGapRow]) -> Result<()> {
        let pairs = rows
            .iter()
            .map(|row| {
                let DataGapRow {
                    stream_name,
                    pipeline,
                    partition,
                    ..
                } = row;
                let key = keys::data_gap(stream_name, row.batch_id, pipeline, partition);
                Ok((key, json(row)?))
            })
            .collect::<Result<Vec<_>>>()?;
        self.store.put_all(&pairs, true)
    }

    /// Where the store's times come from.
    pub fn clock(&self) -> &ClockRef {
        &self.clock
    }

    /// Remembers that the metrics of a pipeline's batch are here.
    pub fn put_last_metrics_batch(&self, pipeline: &str, batch_id: u64) -> Result<()> {
        self.put_number(keys::last_metrics(pipeline), batch_id)
    }

    /// The newest batch of a pipeline whose metrics are here.
    pub fn last_metrics_batch(&self, pipeline: &str) -> Result<Option<u64>> {
        self.number(&keys::last_metrics(pipeline))
    }

    /// Remembers a committed batch, so that a checkpoint put back to an older one is noticed.
    pub fn put_known_batch(
        &self,
        pipeline: &str,
        pipeline_id: uuid::Uuid,
        batch_id: u64,
    ) -> Result<()> {
        self.put_number(keys::known_batch(pipeline, pipeline_id), batch_id)
    }

    /// The newest batch that a pipeline is known to have committed.
    pub fn known_batch(&self, pipeline: &str, pipeline_id: uuid::Uuid) -> Result<Option<u64>> {
        self.number(&keys::known_batch(pipeline, pipeline_id))
    }

    /// Remembers when the drills of a schedule began; microseconds since the epoch.
    pub fn put_schedule_run(&self, schedule: &str, at_us: i64) -> Result<()> {
        let key = keys::schedule_run(schedule);
        let at = at_us.unsigned_abs().to_be_bytes().to_vec();
        self.store.put_all(&[(key, at)], true)
    }

    /// When the drills of a schedule last began.
    pub fn schedule_run(&self, schedule: &str) -> Result<Option<i64>> {
        let at = self.number(&keys::schedule_run(schedule))?;
        Ok(at.and_then(|at| i64::try_from(at).ok()))
    }

    /// Forgets what is known of a dropped pipeline.
    pub fn forget_pipeline(&self, pipeline: &str) -> Result<()> {
        for table in [keys::LAST_METRICS, keys::KNOWN_BATCHES] {
            let (lower, upper) = keys::range_of(table, pipeline);
            self.store.delete_range(&lower, &upper)?;
        }
        Ok(())
    }

    fn put_number(&self, key: Vec<u8>, number: u64) -> Result<()> {
        self.store
            .put_all(&[(key, number.to_be_bytes().to_vec())], false)
    }

    fn number(&self, key: &[u8]) -> Result<Option<u64>> {
        self.store
            .get(key)?
            .map(|bytes| {
                let bytes = bytes.try_into().map_err(|_| {
                    Error::damaged("a batch number of the history store cannot be read")
                })?;
                Ok(u64::from_be_bytes(bytes))
            })
            .transpose()
    }

    /// Metrics rows, by view and batch.
    pub fn metrics(&self, filter: &HistoryFilter) -> Result<Vec<MetricsRow>> {
        self.read(keys::METRICS, filter)
    }

    /// Events, oldest first; the filter's name is the object's.
    pub fn events(&self, filter: &HistoryFilter) -> Result<Vec<EventRow>> {
        let all = HistoryFilter::default();
        let mut events: Vec<EventRow> = self.read(keys::EVENTS, &all)?;
        if let Some(name) = &filter.name {
            events.retain(|e| &e.object_name == name);
        }
        let surplus = filter
            .limit
            .map_or(0, |limit| events.len().saturating_sub(limit));
        Ok(events.split_off(surplus))
    }

    /// Dead letters, by stream and batch.
    pub fn dead_letters(&self, filter: &HistoryFilter) -> Result<Vec<DeadLetterRow>> {
        self.read(keys::DEAD_LETTERS, filter)
    }

    /// Late rows that were kept, by view and batch.
    pub fn late_rows(&self, filter: &HistoryFilter) -> Result<Vec<LateRow>> {
        self.read(keys::LATE_ROWS, filter)
    }

    /// Expectation counts, by stream and batch.
    pub fn expectations(&self, filter: &HistoryFilter) -> Result<Vec<ExpectationRow>> {
        self.read(keys::EXPECTATIONS, filter)
    }

    /// Parts of sources that were lost or skipped, by stream and batch.
    pub fn data_gaps(&self, filter: &HistoryFilter) -> Result<Vec<DataGapRow>> {
        self.read(keys::DATA_GAPS, filter)
    }

    /// Forgets the per-batch rows of a dropped object, whose namesake will count batches anew.
    /// Its events stay.
    pub fn forget(&self, name: &str) -> Result<()> {
        for table in keys::BATCH_TABLES {
            let (lower, upper) = keys::range_of(table, name);
            self.store.delete_range(&lower, &upper)?;
        }
        Ok(())
    }

    /// Deletes metrics rows and expectation counts of each view that are older than what
    /// `retention_us` says for it; called now and then.
    pub fn apply_retention(&self, retention_us: impl Fn(&str) -> i64) -> Result<()> {
        for name in self.names(keys::METRICS)? {
            let oldest_us = self.clock.now_us() - retention_us(&name);
            let (lower, upper) = keys::range_of(keys::METRICS, &name);
            let Some(first_kept) = self.first_since(&lower, &upper, oldest_us)? else {
                self.store.delete_range(&lower, &upper)?;
                continue;
            };
            self.store
                .delete_range(&lower, &keys::metrics(&name, first_kept))?;
            let (lower, _) = keys::range_of(keys::EXPECTATIONS, &name);
            self.store
                .delete_range(&lower, &keys::expectation(&name, first_kept, "", ""))?;
        }
        Ok(())
    }

    /// The first batch of a view that started at `oldest_us` or later.
    fn first_since(&self, lower: &[u8], upper: &[u8], oldest_us: i64) -> Result<Option<u64>> {
        let mut lower = lower.to_vec();
        loop {
            let pairs = self.store.scan(&lower, upper, false, SCAN_ROWS)?;
            for (_, value) in &pairs {
                let row: MetricsRow = parse(value)?;
                if row.batch_started_at >= oldest_us {
                    return Ok(Some(row.batch_id));
                }
            }
            match pairs.last() {
                Some((key, _)) if pairs.len() == SCAN_ROWS => lower = keys::after(key),
                _ => return Ok(None),
            }
        }
    }

    /// Keeps only the newest `limit` rows of a name.
    fn trim(&self, table: u8, name: &str, limit: usize) -> Result<()> {
        let (lower, upper) = keys::range_of(table, name);
        let newest = self.store.scan(&lower, &upper, true, limit)?;
        match newest.last() {
            Some((oldest_kept, _)) if newest.len() == limit => {
                self.store.delete_range(&lower, oldest_kept)
            }
            _ => Ok(()),
        }
    }

    /// Names that have rows in a table, found by one seek each.
    fn names(&self, table: u8) -> Result<Vec<String>> {
        let (mut lower, upper) = keys::range_of_table(table);
        let mut names = Vec::new();
        while let Some((key, _)) = self.store.scan(&lower, &upper, false, 1)?.pop() {
            let name = keys::name_in(&key)
                .ok_or_else(|| Error::damaged("a key of the history store cannot be read"))?;
            lower = keys::range_of(table, &name).1;
            names.push(name);
        }
        Ok(names)
    }

    fn read<T: DeserializeOwned>(&self, table: u8, filter: &HistoryFilter) -> Result<Vec<T>> {
        let Some(limit) = filter.limit else {
            let (lower, upper) = match &filter.name {
                Some(name) => keys::range_of(table, name),
                None => keys::range_of_table(table),
            };
            let pairs = self.store.scan(&lower, &upper, false, usize::MAX)?;
            return pairs.iter().map(|(_, value)| parse(value)).collect();
        };
        let names = match &filter.name {
            Some(name) => vec![name.clone()],
            None => self.names(table)?,
        };
        let mut rows = Vec::new();
        for name in names {
            let (lower, upper) = keys::range_of(table, &name);
            let mut newest = self.store.scan(&lower, &upper, true, limit)?;
            newest.reverse();
            for (_, value) in &newest {
                rows.push(parse(value)?);
            }
        }
        Ok(rows)
    }
}

fn letter_key(row: &DeadLetterRow) -> Vec<u8> {
    keys::dead_letter(&row.stream_name, row.batch_id, &row.pipeline, &row.origin)
}

/// Gives a damaged folder another name beside the old one.
fn set_aside(dir: &Path, now_us: i64) -> Result<PathBuf> {
    let time = chrono::DateTime::from_timestamp_micros(now_us).map_or_else(
        || now_us.to_string(),
        |at| at.format("%Y%m%dT%H%M%SZ").to_string(),
    );
    let name_of = |number: u32| {
        let mut name = dir.as_os_str().to_owned();
        name.push(format!(".damaged-{time}"));
        if number > 0 {
            name.push(format!("-{number}"));
        }
        PathBuf::from(name)
    };
    let aside = (0..)
        .map(name_of)
        .find(|path| !path.exists())
        .ok_or_else(|| Error::internal("every name for a damaged history is taken"))?;
    std::fs::rename(dir, &aside)?;
    Ok(aside)
}

fn json<T: Serialize>(row: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(row).map_err(|_| Error::internal("a history row cannot be written as JSON"))
}

fn parse<T: DeserializeOwned>(value: &[u8]) -> Result<T> {
    serde_json::from_slice(value)
        .map_err(|_| Error::damaged("a row of the history store cannot be read"))
}
