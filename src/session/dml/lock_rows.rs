//! The session's side of `SELECT … FOR UPDATE`: the rows are read, locked, and only then shown.
//!
//! ```text
//!   query with its keys ─► rows ─► SKIP LOCKED: those that are free ─► locks ─► rows without their keys
//!        ▲                                                               │ held by others, or changed since
//!        └───────────────── after their end, on what is there then ◄─────┘
//! ```
//!
//! A query with such a clause inside of another statement runs first, and what it gives takes its place, as a
//! changing query of a WITH does: so a queue's `UPDATE … WHERE id IN (SELECT … FOR UPDATE SKIP LOCKED LIMIT 1)` works.
//! Such a query cannot use columns of what it stands in.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::arrow::array::{AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{Int64Type, SchemaRef};
use datafusion::execution::SessionState;
use datafusion::sql::sqlparser::ast::{self, NonBlock, Visit, VisitMut, Visitor, VisitorMut};
use futures::{StreamExt, TryStreamExt, stream};

use super::Transaction;
use super::locking::{Bounds, Lock, Locking};
use super::plan::{Rows, locked_name, state_with_locked, template};
use super::session::lookup;
use crate::catalog::access::acl::Privileges;
use crate::error::{Error, Result, sqlstate};
use crate::log::tables::locks::Conflict;
use crate::log::tables::overlay::Layer;
use crate::session::access::checks::Checks;
use crate::session::parameters::plan_with_values;
use crate::session::query::{RowStream, start};
use crate::session::{Parameter, Session, planning};

/// The statement has a query that locks rows.
pub(in crate::session) fn has_locks(statement: &impl Visit) -> bool {
    struct Found;
    impl Visitor for Found {
        type Break = ();
        fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
            match query.locks.is_empty() {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        }
    }
    statement.visit(&mut Found).is_break()
}

/// Takes the queries that lock out of a statement; what they give is looked for under [`locked_name`].
pub(super) fn take_locking(statement: &mut impl VisitMut) -> Result<Vec<ast::Query>> {
    struct Taken {
        queries: Vec<ast::Query>,
        failed: Option<Error>,
    }
    impl VisitorMut for Taken {
        type Break = ();
        fn pre_visit_query(&mut self, query: &mut ast::Query) -> ControlFlow<()> {
            if query.locks.is_empty() {
                return ControlFlow::Continue(());
            }
            let name = locked_name(self.queries.len());
            match template(&format!("SELECT * FROM {name}")) {
                Ok(instead) => self.queries.push(std::mem::replace(query, instead)),
                Err(error) => self.failed = Some(error),
            }
            ControlFlow::Continue(())
        }
    }
    let mut taken = Taken {
        queries: Vec::new(),
        failed: None,
    };
    let _done = statement.visit(&mut taken);
    taken.failed.map_or(Ok(taken.queries), Err)
}

/// What came of reading and locking.
enum Attempt {
    Locked(Rows),
    /// it is to be read again, after this
    Lost(Conflict),
}

impl Session {
    /// A query that locks rows, or has one inside that does.
    pub(in crate::session) async fn start_locking_query(
        &mut self,
        query: &ast::Query,
        state: SessionState,
        parameters: &[Parameter],
    ) -> Result<(SchemaRef, RowStream)> {
        let mut query = query.clone();
        let locks = std::mem::take(&mut query.locks);
        let inner = take_locking(&mut query)?;
        let state = self.state_over_locked(inner, state, parameters).await?;
        query.locks = locks;
        if query.locks.is_empty() {
            let statement = planning::query_statement(&query);
            let plan = plan_with_values(&state, statement, parameters).await?;
            return start(&state, &plan).await;
        }
        let (schema, rows) = self.lock_rows(&query, &state, parameters).await?;
        Ok((schema, stream::iter(rows.into_iter().map(Ok)).boxed()))
    }

    /// Runs queries that lock; in the state that is given back, what they gave is found.
    pub(super) async fn state_over_locked(
        &mut self,
        queries: Vec<ast::Query>,
        state: SessionState,
        parameters: &[Parameter],
    ) -> Result<SessionState> {
        if queries.is_empty() {
            return Ok(state);
        }
        let mut results = Vec::with_capacity(queries.len());
        for query in queries {
            results.push(self.locked_rows(query, state.clone(), parameters).await?);
        }
        state_with_locked(&state, &results)
    }

    /// All rows of a query that locks rows, or has one inside that does.
    pub(super) async fn locked_rows(
        &mut self,
        query: ast::Query,
        state: SessionState,
        parameters: &[Parameter],
    ) -> Result<Rows> {
        let started = self.start_locking_query(&query, state, parameters);
        let (schema, rows) = Box::pin(started).await?;
        Ok((schema, rows.try_collect().await?))
    }

    async fn lock_rows(
        &mut self,
        query: &ast::Query,
        state: &SessionState,
        parameters: &[Parameter],
    ) -> Result<Rows> {
        self.check_writable("SELECT FOR UPDATE")?;
        let definitions = self.definitions();
        let catalog = lookup(definitions.clone());
        let is_aggregate = |name: &str| state.aggregate_functions().contains_key(name);
        let locking = Locking::of(&catalog, &is_aggregate, query)?;
        let subject = self.scope.subject();
        let checks = Checks {
            catalog: &definitions,
            subject: &subject,
        };
        for lock in &locking.locks {
            checks.relation(&lock.target.object, Privileges::UPDATE, &[])?;
        }
        loop {
            let mut transaction = self.rows.take_for_statement(&self.parts.tables)?;
            let mark = transaction.mark();
            let attempt = attempt(&locking, &mut transaction, state, parameters).await;
            let undone = match &attempt {
                Ok(Attempt::Locked(_)) => Ok(()),
                // Nothing of it stays while it waits, so that it can be cancelled.
                Ok(Attempt::Lost(_)) | Err(_) => transaction.rollback_to(&mark),
            };
            self.rows.put_back(transaction);
            undone?;
            match attempt? {
                Attempt::Locked(rows) => return Ok(rows),
                Attempt::Lost(conflict) if !conflict.is_held() => drop(conflict),
                // Those rows are skipped, or refused, the next time.
                Attempt::Lost(_) if locking.locks.iter().all(|l| l.nonblock.is_some()) => {
                    tokio::task::yield_now().await;
                }
                Attempt::Lost(conflict) => {
                    let within = self.settings.duration("lock_timeout");
                    conflict.over(within).await?;
                }
            }
        }
    }
}

/// Reads the rows and locks them.
async fn attempt(
    locking: &Locking,
    transaction: &mut Transaction,
    state: &SessionState,
    parameters: &[Parameter],
) -> Result<Attempt> {
    let mut left = match &locking.bounds {
        Some(bounds) => Some(Left::of(bounds, state, parameters).await?),
        None => None,
    };
    let statement = planning::query_statement(&locking.query);
    let plan = plan_with_values(state, statement, parameters).await?;
    let (schema, mut stream) = start(state, &plan).await?;
    let mut batches: Vec<RecordBatch> = Vec::new();
    let mut bytes = 0;
    while left.as_ref().is_none_or(|left| left.limit > 0)
        && let Some(batch) = stream.next().await
    {
        let batch = free_rows(locking, transaction, batch?)?;
        let batch = match &mut left {
            Some(left) => left.part_of(&batch),
            None => batch,
        };
        bytes += batch.get_array_memory_size();
        transaction.check_room(bytes)?;
        batches.push(batch);
    }
    let width = schema.fields().len() - locking.key_columns;
    let mut at = width;
    for lock in &locking.locks {
        let key_width = lock.layout.key_columns().len();
        if let Some(conflict) = lock_keys(lock, transaction, &batches, at..at + key_width)? {
            return Ok(Attempt::Lost(conflict));
        }
        at += key_width;
    }
    let shown: Vec<usize> = (0..width).collect();
    let rows = batches.iter().map(|batch| Ok(batch.project(&shown)?));
    let schema = std::sync::Arc::new(schema.project(&shown)?);
    Ok(Attempt::Locked((schema, rows.collect::<Result<_>>()?)))
}

/// The rows that can be locked at once: all of them where the query waits. 55P03 with NOWAIT.
fn free_rows(
    locking: &Locking,
    transaction: &mut Transaction,
    batch: RecordBatch,
) -> Result<RecordBatch> {
    let mut is_free = vec![true; batch.num_rows()];
    let mut at = batch.num_columns() - locking.key_columns;
    for lock in &locking.locks {
        let key = at..at + lock.layout.key_columns().len();
        at = key.end;
        let Some(nonblock) = lock.nonblock else {
            continue;
        };
        let rows = lock.key_rows(&batch.columns()[key], batch.num_rows())?;
        let keys = lock.layout.keys(&rows)?;
        let unavailable = transaction.unavailable(&lock.layout, keys.iter(), lock.strength);
        if nonblock == NonBlock::Nowait && unavailable.contains(&true) {
            let name = lock.layout.name();
            return Err(Error::new(
                sqlstate::LOCK_NOT_AVAILABLE,
                format!("could not obtain lock on row in relation \"{name}\""),
            ));
        }
        for (is_free, is_held) in is_free.iter_mut().zip(unavailable) {
            *is_free &= !is_held;
        }
    }
    Ok(filter_record_batch(&batch, &BooleanArray::from(is_free))?)
}

/// Locks the rows' keys, which are the columns `key`.
fn lock_keys(
    lock: &Lock,
    transaction: &mut Transaction,
    batches: &[RecordBatch],
    key: std::ops::Range<usize>,
) -> Result<Option<Conflict>> {
    let mut keys: BTreeSet<Vec<u8>> = BTreeSet::new();
    for batch in batches {
        let rows = lock.key_rows(&batch.columns()[key.clone()], batch.num_rows())?;
        keys.extend(lock.layout.keys(&rows)?.iter().map(<[u8]>::to_vec));
    }
    let view = transaction.view();
    let base = view.position();
    let known: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let entries = view.get_many(&lock.layout, &known)?;
    let layer: Layer = keys.into_iter().zip(entries).collect();
    transaction.lock(&lock.layout, &layer, base, lock.strength)
}

/// How many rows are still to be passed over, and to be given.
struct Left {
    offset: usize,
    limit: usize,
}

impl Left {
    /// Computes LIMIT and OFFSET. 2201W, 2201X below zero.
    async fn of(bounds: &Bounds, state: &SessionState, parameters: &[Parameter]) -> Result<Self> {
        let text = |expr: &Option<ast::Expr>| match expr {
            Some(expr) => format!("({expr})::bigint"),
            None => "NULL::bigint".to_owned(),
        };
        let query = template(&format!(
            "SELECT {}, {}",
            text(&bounds.limit),
            text(&bounds.offset)
        ))?;
        let plan = plan_with_values(state, planning::query_statement(&query), parameters).await?;
        let (_, mut stream) = start(state, &plan).await?;
        let row = stream.next().await.transpose()?;
        let row = row.ok_or_else(|| Error::internal("one row has the bounds of a query"))?;
        let bound = |column: usize, code: &'static str, name: &str| {
            let value = row.column(column).as_primitive::<Int64Type>();
            let value = value.iter().next().flatten();
            let negative = |_| Error::new(code, format!("{name} must not be negative"));
            value
                .map(|v| usize::try_from(v).map_err(negative))
                .transpose()
        };
        Ok(Self {
            limit: bound(0, "2201W", "LIMIT")?.unwrap_or(usize::MAX),
            offset: bound(1, "2201X", "OFFSET")?.unwrap_or(0),
        })
    }

    /// What of these rows is given.
    fn part_of(&mut self, batch: &RecordBatch) -> RecordBatch {
        let passed = self.offset.min(batch.num_rows());
        let given = self.limit.min(batch.num_rows() - passed);
        self.offset -= passed;
        self.limit -= given;
        batch.slice(passed, given)
    }
}
