//! The rows' side of a transaction: joins the session with the module that changes rows.
//!
//! What a statement sees of the tables is fixed when it first looks at one, and stays so for all
//! of the statement's subqueries. The transaction itself begins with the first change.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::catalog::TableProvider;
use parking_lot::Mutex;

use super::dml::relation::TableRelation;
use super::dml::transaction::{Overlays, Transaction, TransactionMark};
use crate::catalog::definition::CatalogObject;
use crate::database::DatabaseParts;
use crate::error::{Error, Result, sqlstate};
use crate::log::tables::TableStore;
use crate::log::tables::layout::TableLayout;
use crate::log::tables::overlay::Overlay;
use crate::log::tables::view::TablesView;

/// A transaction's changes to rows, shared by a session and its schema provider.
#[derive(Clone, Default)]
pub(super) struct SharedRows {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The rows of the session's temporary tables as the last transaction left them.
    temporary: Arc<Overlays>,
    /// Absent until the first change, and while a statement works with it.
    transaction: Option<Transaction>,
    /// What the running statement sees.
    view: Option<TablesView>,
}

/// What a transaction leaves behind.
#[derive(Default)]
pub(super) struct Left {
    /// what must become durable; `None`: nothing
    pub changes: Option<RowTransaction>,
    /// the rows of temporary tables; `None`: as they were
    pub temporary: Option<Arc<Overlays>>,
}

/// A place to go back to; without a transaction at that time, its beginning.
pub(super) struct RowMark(Option<TransactionMark>);

/// Changes on their way to the log.
pub(super) struct RowTransaction(Transaction);

impl SharedRows {
    /// No changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// A statement begins: it sees what is committed now.
    pub fn enter(&self) {
        self.state.lock().view = None;
    }

    /// A table as the running statement sees it.
    pub fn table_provider(
        &self,
        parts: &DatabaseParts,
        object: &Arc<CatalogObject>,
    ) -> Result<Arc<dyn TableProvider>> {
        let view = self.view(&parts.tables)?;
        Ok(Arc::new(TableRelation::new(object, view)?))
    }

    /// The rest of the statement sees this.
    pub fn see(&self, view: &TablesView) {
        self.state.lock().view = Some(view.clone());
    }

    /// What the running statement sees.
    pub fn view(&self, store: &Arc<TableStore>) -> Result<TablesView> {
        let mut state = self.state.lock();
        if let Some(view) = &state.view {
            return Ok(view.clone());
        }
        let view = match &mut state.transaction {
            Some(transaction) => {
                transaction.begin_statement()?;
                transaction.view().clone()
            }
            None => state.begin(store)?.view().clone(),
        };
        state.view = Some(view.clone());
        Ok(view)
    }

    /// The transaction, for a statement that changes rows; give it back with [`Self::put_back`].
    /// A statement that is dropped on the way drops it too, and with it all its changes.
    pub fn take_for_statement(&self, store: &Arc<TableStore>) -> Result<Transaction> {
        let mut state = self.state.lock();
        let transaction = match state.transaction.take() {
            Some(mut transaction) => {
                transaction.begin_statement()?;
                transaction
            }
            None => state.begin(store)?,
        };
        state.view = Some(transaction.view().clone());
        Ok(transaction)
    }

    /// The statement is done with the transaction.
    pub fn put_back(&self, transaction: Transaction) {
        let mut state = self.state.lock();
        state.transaction = Some(transaction);
        state.view = None;
    }

    /// Marks this point.
    pub fn mark(&self) -> RowMark {
        RowMark(
            self.state
                .lock()
                .transaction
                .as_ref()
                .map(Transaction::mark),
        )
    }

    /// Takes back what came after the mark.
    pub fn rollback_to(&self, mark: &RowMark) -> Result<()> {
        let mut state = self.state.lock();
        state.view = None;
        match (&mark.0, &mut state.transaction) {
            (Some(mark), Some(transaction)) => transaction.rollback_to(mark),
            (None, transaction) => {
                *transaction = None;
                Ok(())
            }
            // A statement that was cancelled while it changed rows took them along.
            (Some(_), None) => Err(Error::new(
                sqlstate::SERIALIZATION_FAILURE,
                "could not go back to the savepoint: a cancelled statement ended the transaction",
            )
            .hint("Say ROLLBACK, then run the transaction again.")),
        }
    }

    /// Forgets the transaction.
    pub fn discard(&self) {
        let mut state = self.state.lock();
        state.transaction = None;
        state.view = None;
    }

    /// Ends the transaction: what is to be committed of it, and what is to be kept if that works.
    pub fn take(&self) -> Left {
        let mut state = self.state.lock();
        state.view = None;
        let Some(mut transaction) = state.transaction.take() else {
            return Left::default();
        };
        let temporary = transaction.take_temporary();
        Left {
            temporary: Some(settled(temporary, &state.temporary)),
            changes: (!transaction.is_empty()).then_some(RowTransaction(transaction)),
        }
    }

    /// From now on temporary tables have these rows.
    pub fn keep_temporary(&self, rows: Arc<Overlays>) {
        self.state.lock().temporary = rows;
    }

    /// The rows of temporary tables between two transactions.
    pub fn temporary(&self) -> Arc<Overlays> {
        Arc::clone(&self.state.lock().temporary)
    }
}

impl State {
    fn begin(&self, store: &Arc<TableStore>) -> Result<Transaction> {
        Transaction::begin_over(store, Arc::clone(&self.temporary))
    }
}

/// Rows of temporary tables at a transaction's end; `before` is what it began with.
fn settled(rows: Arc<Overlays>, before: &Arc<Overlays>) -> Arc<Overlays> {
    if Arc::ptr_eq(&rows, before) {
        return rows;
    }
    let settled = |(oid, overlay): (u32, Overlay)| (oid, overlay.settled(before.get(&oid)));
    let rows = Arc::unwrap_or_clone(rows).into_iter().map(settled);
    Arc::new(rows.filter(|(_, overlay)| !overlay.is_empty()).collect())
}

impl RowTransaction {
    /// Identifiers of the tables and streams whose rows change.
    pub fn relations(&self) -> impl Iterator<Item = u32> {
        self.0.relations()
    }

    /// The transaction drops a table: its rows need no change any more.
    pub fn forget(&mut self, table: u32) {
        self.0.forget(table);
    }

    /// Makes the changes durable and visible; the log's frame carries `marker`. `altered`: tables
    /// that the transaction itself altered, as they are then.
    pub async fn commit(
        mut self,
        marker: Option<&str>,
        altered: &BTreeMap<u32, Arc<TableLayout>>,
    ) -> Result<()> {
        if let Some(marker) = marker {
            self.0.set_marker(marker);
        }
        self.0.commit_over(altered).await.map(drop)
    }
}
