//! SQL cursors: `DECLARE`, `FETCH`, `CLOSE`, over queries and over `SUBSCRIBE`.
//!
//! A cursor keeps its running rows; nothing is read ahead of what `FETCH` asks for but the rest of
//! a batch. A cursor over `SUBSCRIBE` never ends: `FETCH` waits for its first row as long as
//! `tidemill.fetch_timeout` says, then gives what is there. A fetch that is cancelled loses no row.

use std::collections::VecDeque;
use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use futures::{StreamExt, stream};

use super::query::RowStream;
use super::rowset::done;
use super::{Parameter, Session, StatementResult};
use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::Statement;

/// After the first row of a `SUBSCRIBE`, how long a fetch waits for more of the same moment.
const GATHER: Duration = Duration::from_millis(5);

/// An open cursor.
pub(super) struct Cursor {
    schema: SchemaRef,
    rows: RowStream,
    ready: VecDeque<RecordBatch>,
    is_ended: bool,
    hold: bool,
    is_subscription: bool,
}

impl Cursor {
    /// It outlives its transaction.
    pub fn is_held(&self) -> bool {
        self.hold
    }

    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn ready_rows(&self) -> u64 {
        self.ready.iter().map(|b| b.num_rows() as u64).sum()
    }

    /// Gets rows ready until there are `wanted`, the end comes, or a subscription has no more now.
    /// Dropped in between, what is ready stays ready.
    async fn fill(&mut self, wanted: u64, first_within: Duration) -> Result<()> {
        while !self.is_ended && self.ready_rows() < wanted {
            let next = if self.is_subscription {
                let patience = match self.ready.is_empty() {
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
                    if batch.num_rows() > 0 {
                        self.ready.push_back(batch);
                    }
                }
                None => self.is_ended = true,
            }
        }
        Ok(())
    }

    /// Takes up to `wanted` rows of what is ready.
    fn take(&mut self, mut wanted: u64) -> Vec<RecordBatch> {
        let mut taken = Vec::new();
        while wanted > 0 {
            let Some(batch) = self.ready.pop_front() else {
                break;
            };
            let rows = batch.num_rows() as u64;
            if rows <= wanted {
                wanted -= rows;
                taken.push(batch);
            } else {
                let count = wanted as usize;
                self.ready
                    .push_front(batch.slice(count, batch.num_rows() - count));
                taken.push(batch.slice(0, count));
                wanted = 0;
            }
        }
        taken
    }
}

impl Session {
    pub(super) async fn declare_cursor(
        &mut self,
        name: &str,
        query: &Statement,
        hold: bool,
        parameters: &[Parameter],
    ) -> Result<StatementResult> {
        let is_subscription = matches!(query, Statement::Subscribe(_));
        if !hold && !self.block.is_explicit() {
            return Err(Error::new(
                sqlstate::NO_ACTIVE_TRANSACTION,
                "DECLARE CURSOR can only be used in transaction blocks",
            )
            .hint("Say BEGIN first, or DECLARE … CURSOR WITH HOLD."));
        }
        if self.cursors.get_mut().contains_key(name) {
            return Err(Error::new(
                sqlstate::DUPLICATE_CURSOR,
                format!("cursor \"{name}\" already exists"),
            ));
        }
        let (schema, rows) = match query {
            Statement::Query(query) => self.start_query(query, parameters).await?,
            Statement::Subscribe(subscribe) => self.start_subscription(subscribe).await?,
            _ => {
                return Err(Error::unsupported("a cursor reads a query or a SUBSCRIBE"));
            }
        };
        self.cursors.get_mut().insert(
            name.to_owned(),
            Cursor {
                schema,
                rows,
                ready: VecDeque::new(),
                is_ended: false,
                hold,
                is_subscription,
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
        count: Option<u64>,
    ) -> Result<StatementResult> {
        let patience = self.patience();
        let wanted = count.unwrap_or(u64::MAX);
        let cursor = self.cursor(name)?;
        cursor.fill(wanted, patience).await?;
        let schema = cursor.schema();
        let batches = cursor.take(wanted);
        Ok(StatementResult::Rows {
            schema,
            stream: stream::iter(batches.into_iter().map(Ok)).boxed(),
            tag: "FETCH".to_owned(),
            tag_has_count: true,
        })
    }

    /// As [`Self::fetch`], but the rows go nowhere.
    pub(super) async fn move_cursor(
        &mut self,
        name: &str,
        count: Option<u64>,
    ) -> Result<StatementResult> {
        let patience = self.patience();
        let cursor = self.cursor(name)?;
        let mut left = count.unwrap_or(u64::MAX);
        let mut moved = 0;
        // By the batch, so that a cursor's rest never is in memory at once.
        while left > 0 {
            cursor.fill(1, patience).await?;
            let rows: u64 = cursor.take(left).iter().map(|b| b.num_rows() as u64).sum();
            if rows == 0 {
                break;
            }
            moved += rows;
            left -= rows;
        }
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
