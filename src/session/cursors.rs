//! SQL cursors: `DECLARE`, `FETCH`, `CLOSE`, over queries and over `SUBSCRIBE`.
//!
//! A cursor keeps its running rows; nothing is read ahead of what `FETCH` asks for but the rest of
//! a batch. With `SCROLL` it keeps what it has read, within the memory of queries, and goes both ways. A cursor over `SUBSCRIBE` never ends: `FETCH` waits for its first row as long as
//! `tidemill.fetch_timeout` says, then gives what is there. A fetch that is cancelled loses no row.

use std::collections::VecDeque;
use std::time::Duration;

use datafusion::arrow::array::{RecordBatch, UInt64Array};
use datafusion::arrow::compute::take_record_batch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use futures::{StreamExt, stream};

use super::dml::has_locks;
use super::query::{RowStream, watched};
use super::rowset::done;
use super::{Parameter, Session, StatementResult};
use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::{Direction, Statement};

/// After the first row of a `SUBSCRIBE`, how long a fetch waits for more of the same moment.
const GATHER: Duration = Duration::from_millis(5);

/// An open cursor. Rows have positions from 1; it stands on one, before the first (0) or after the
/// last.
pub(super) struct Cursor {
    schema: SchemaRef,
    rows: RowStream,
    /// What was read and not let go of, from position `first` on.
    kept: VecDeque<RecordBatch>,
    first: u64,
    kept_rows: u64,
    position: u64,
    is_ended: bool,
    hold: bool,
    is_subscription: bool,
    /// `SCROLL`: all rows that were read stay, in the queries' memory.
    scroll: Option<MemoryReservation>,
}

/// Rows of a FETCH, or how many a MOVE passed.
struct Fetched {
    batches: Vec<RecordBatch>,
    rows: u64,
}

impl Fetched {
    fn nothing() -> Self {
        Self {
            batches: Vec::new(),
            rows: 0,
        }
    }
}

impl Cursor {
    /// It outlives its transaction.
    pub fn is_held(&self) -> bool {
        self.hold
    }

    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Position of the last row that was read.
    fn last(&self) -> u64 {
        self.first + self.kept_rows - 1
    }

    /// Reads until the row at `wanted` is there, the end comes, or a subscription has no more now.
    /// Rows before `needed` may be let go of. Dropped in between, what was read stays read.
    async fn fill(&mut self, wanted: u64, needed: u64, first_within: Duration) -> Result<()> {
        self.let_go(needed);
        while !self.is_ended && self.last() < wanted {
            let next = if self.is_subscription {
                let patience = match self.kept.is_empty() {
                    true => first_within,
                    false => GATHER,
                };
                match tokio::time::timeout(patience, self.rows.next()).await {
                    Ok(next) => next,
                    Err(_) => return Ok(()),
                }
            } else {
                self.rows.next().await
            };
            match next {
                Some(batch) => {
                    let batch = batch?;
                    if let Some(memory) = &mut self.scroll {
                        memory.try_grow(batch.get_array_memory_size())?;
                    }
                    self.kept_rows += batch.num_rows() as u64;
                    self.kept.push_back(batch);
                    self.let_go(needed);
                }
                None => self.is_ended = true,
            }
        }
        Ok(())
    }

    /// Forgets rows before a position, unless they can be read again.
    fn let_go(&mut self, needed: u64) {
        if self.scroll.is_some() {
            return;
        }
        while let Some(batch) = self.kept.front() {
            let rows = batch.num_rows() as u64;
            if self.first + rows <= needed {
                self.kept.pop_front();
            } else if self.first < needed {
                let passed = (needed - self.first) as usize;
                let rest = batch.slice(passed, batch.num_rows() - passed);
                self.kept[0] = rest;
                self.kept_rows -= passed as u64;
                self.first = needed;
                return;
            } else {
                return;
            }
            self.first += rows;
            self.kept_rows -= rows;
        }
    }

    /// The rows from one position to another, both of which are there.
    fn between(&self, from: u64, to: u64) -> Vec<RecordBatch> {
        let mut at = self.first;
        let mut found = Vec::new();
        for batch in &self.kept {
            let rows = batch.num_rows() as u64;
            let (start, end) = (from.max(at), to.saturating_add(1).min(at + rows));
            if start < end {
                found.push(batch.slice((start - at) as usize, (end - start) as usize));
            }
            at += rows;
        }
        found
    }

    /// Goes there and gives the rows on the way, or (`is_move`) only counts them.
    async fn go(&mut self, to: Direction, is_move: bool, patience: Duration) -> Result<Fetched> {
        match to {
            Direction::Forward(Some(0)) | Direction::Backward(Some(0)) | Direction::Relative(0) => {
                self.one(self.position, patience).await
            }
            Direction::Forward(count) => self.forward(count, is_move, patience).await,
            Direction::Backward(count) => self.backward(count),
            Direction::Absolute(row) if row < 0 => {
                self.check_scroll()?;
                self.fill(u64::MAX, 0, patience).await?;
                let row = (self.last() + 1).saturating_sub(row.unsigned_abs());
                self.one(row, patience).await
            }
            Direction::Absolute(row) => self.one(row.unsigned_abs(), patience).await,
            Direction::Relative(by) => {
                let row = self.position.saturating_add_signed(by);
                self.one(row, patience).await
            }
        }
    }

    async fn forward(
        &mut self,
        count: Option<u64>,
        is_move: bool,
        patience: Duration,
    ) -> Result<Fetched> {
        let from = self.position + 1;
        let to = count.map_or(u64::MAX, |count| self.position.saturating_add(count));
        // What only is passed is let go of on the way, so that a cursor's rest never is in memory at once.
        let needed = if is_move { to } else { from };
        self.fill(to, needed, patience).await?;
        let last = self.last().min(to);
        let rows = last.saturating_sub(self.position);
        let batches = match is_move {
            true => Vec::new(),
            false => self.between(from, last),
        };
        self.position = match self.is_ended && self.last() < to {
            true => self.last() + 1,
            false => last.max(self.position),
        };
        self.let_go(self.position + 1);
        Ok(Fetched { batches, rows })
    }

    fn backward(&mut self, count: Option<u64>) -> Result<Fetched> {
        if self.position > 0 {
            self.check_scroll()?;
        }
        let from = self.position.saturating_sub(1);
        let to = count.map_or(1, |count| self.position.saturating_sub(count).max(1));
        let reaches_start = count.is_none_or(|count| count >= self.position);
        self.position = if reaches_start { 0 } else { to };
        if from < to {
            return Ok(Fetched::nothing());
        }
        let batches = self.between(to, from);
        let reversed = batches.iter().rev().map(reversed);
        Ok(Fetched {
            batches: reversed.collect::<Result<_>>()?,
            rows: from - to + 1,
        })
    }

    /// The row at a position, on which the cursor stands then.
    async fn one(&mut self, row: u64, patience: Duration) -> Result<Fetched> {
        if row == 0 {
            if self.position > 0 {
                self.check_scroll()?;
            }
            self.position = 0;
            return Ok(Fetched::nothing());
        }
        if row <= self.position {
            self.check_scroll()?;
        }
        self.fill(row, row, patience).await?;
        if self.last() < row {
            self.position = self.last() + u64::from(self.is_ended);
            return Ok(Fetched::nothing());
        }
        let batches = self.between(row, row);
        self.position = row;
        self.let_go(row + 1);
        Ok(Fetched { batches, rows: 1 })
    }

    fn check_scroll(&self) -> Result<()> {
        match self.scroll {
            Some(_) => Ok(()),
            None => Err(Error::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                "cursor can only scan forward",
            )
            .hint("Declare it with SCROLL option to enable backward scan.")),
        }
    }

    /// All rows that are left, as they come; the cursor stands at its end.
    fn rest(&mut self) -> RowStream {
        self.let_go(self.position + 1);
        let ready = std::mem::take(&mut self.kept);
        let rows = std::mem::replace(&mut self.rows, stream::empty().boxed());
        (self.is_ended, self.kept_rows) = (true, 0);
        stream::iter(ready.into_iter().map(Ok)).chain(rows).boxed()
    }
}

/// The last row first.
fn reversed(batch: &RecordBatch) -> Result<RecordBatch> {
    let rows = batch.num_rows() as u64;
    let order = UInt64Array::from_iter_values((0..rows).rev());
    Ok(take_record_batch(batch, &order)?)
}

impl Session {
    pub(super) async fn declare_cursor(
        &mut self,
        statement: &Statement,
        parameters: &[Parameter],
    ) -> Result<StatementResult> {
        let Statement::DeclareCursor {
            name,
            query,
            hold,
            scroll,
        } = statement
        else {
            return Err(Error::internal("only a cursor is declared"));
        };
        let is_subscription = matches!(**query, Statement::Subscribe(_));
        if !hold && !self.block.is_explicit() {
            return Err(Error::new(
                sqlstate::NO_ACTIVE_TRANSACTION,
                "DECLARE CURSOR can only be used in transaction blocks",
            )
            .hint("Say BEGIN first, or DECLARE … CURSOR WITH HOLD."));
        }
        if *scroll && is_subscription {
            return Err(
                Error::unsupported("a cursor over SUBSCRIBE only reads forward")
                    .hint("Leave SCROLL out."),
            );
        }
        if self.cursors.get_mut().contains_key(name) {
            return Err(Error::new(
                sqlstate::DUPLICATE_CURSOR,
                format!("cursor \"{name}\" already exists"),
            ));
        }
        let (schema, rows) = match query.as_ref() {
            Statement::Query(query) if has_locks(query.as_ref()) => {
                let state = self.planning_state();
                self.start_locking_query(query, state, parameters).await?
            }
            Statement::Query(query) => self.start_query(query, parameters).await?,
            Statement::Subscribe(subscribe) => self.start_subscription(subscribe).await?,
            _ => {
                return Err(Error::unsupported("a cursor reads a query or a SUBSCRIBE"));
            }
        };
        let pool = &self.parts.runtime.memory_pool;
        let scroll = scroll.then(|| MemoryConsumer::new("scrollable cursor").register(pool));
        self.cursors.get_mut().insert(
            name.to_owned(),
            Cursor {
                schema,
                rows,
                kept: VecDeque::new(),
                first: 1,
                kept_rows: 0,
                position: 0,
                is_ended: false,
                hold: *hold,
                is_subscription,
                scroll,
            },
        );
        Ok(done("DECLARE CURSOR"))
    }

    /// Columns of an open cursor, which is a portal of the protocol too; `None`: there is none.
    pub fn cursor_columns(&mut self, name: &str) -> Option<SchemaRef> {
        self.cursors.get_mut().get(name).map(Cursor::schema)
    }

    /// The protocol's Close of a cursor; one that is not there is closed already.
    pub fn close_portal(&mut self, name: &str) {
        self.cursors.get_mut().remove(name);
    }

    pub(super) fn cursor(&mut self, name: &str) -> Result<&mut Cursor> {
        self.cursors.get_mut().get_mut(name).ok_or_else(|| {
            Error::new(
                sqlstate::INVALID_CURSOR_NAME,
                format!("cursor \"{name}\" does not exist"),
            )
        })
    }

    /// How long FETCH and MOVE wait for the rows of a subscription.
    fn patience(&self) -> Duration {
        let timeout = self.settings.duration("tidemill.fetch_timeout");
        timeout.unwrap_or(Duration::ZERO)
    }

    pub(super) async fn fetch(
        &mut self,
        name: &str,
        direction: Direction,
    ) -> Result<StatementResult> {
        let patience = self.patience();
        let cursor = self.cursor(name)?;
        let schema = cursor.schema();
        let forward_only = cursor.scroll.is_none() && !cursor.is_subscription;
        let stream = match direction {
            Direction::Forward(None) if forward_only => cursor.rest(),
            _ => {
                let fetched = cursor.go(direction, false, patience).await?;
                stream::iter(fetched.batches.into_iter().map(Ok)).boxed()
            }
        };
        Ok(StatementResult::Rows {
            schema,
            stream: watched(stream, self.stream_failed.clone()),
            tag: "FETCH".to_owned(),
            tag_has_count: true,
        })
    }

    /// As [`Self::fetch`], but the rows go nowhere.
    pub(super) async fn move_cursor(
        &mut self,
        name: &str,
        direction: Direction,
    ) -> Result<StatementResult> {
        let patience = self.patience();
        let cursor = self.cursor(name)?;
        let moved = cursor.go(direction, true, patience).await?.rows;
        Ok(done(format!("MOVE {moved}")))
    }

    pub(super) fn close_cursor(&mut self, name: Option<&str>) -> Result<StatementResult> {
        let Some(name) = name else {
            self.cursors.get_mut().clear();
            return Ok(done("CLOSE CURSOR ALL"));
        };
        self.cursor(name)?;
        self.cursors.get_mut().remove(name);
        Ok(done("CLOSE CURSOR"))
    }
}
