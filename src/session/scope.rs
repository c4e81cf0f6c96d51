//! What names mean during one statement: the definitions its transaction sees, and the batch
//! that its views are read at.
//!
//! The session sets the scope before it plans a statement; the schema provider of its context
//! reads it. A plan keeps the reading context it was made with, so that a cursor goes on reading
//! its batch while later statements read newer ones.

use std::sync::Arc;

use parking_lot::Mutex;

use super::versions;
use crate::catalog::access::Subject;
use crate::catalog::definition::CatalogObject;
use crate::catalog::snapshot::CatalogSnapshot;
use crate::catalog::temporary::{TemporaryTables, temporary_name};
use crate::engine::{Engine, ReadContext};

/// Shared by a session and its schema provider.
pub(super) struct StatementScope {
    state: Mutex<State>,
}

struct State {
    catalog: Arc<CatalogSnapshot>,
    reads: Option<ReadContext>,
    /// The statement names what is permanent.
    leaves_out_temporary: bool,
    /// A temporary table that names without a schema do not mean yet.
    unseen: Option<u32>,
    /// As whom its statements run; the database itself where no client speaks.
    subject: Arc<Subject>,
}

impl std::fmt::Debug for StatementScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatementScope").finish_non_exhaustive()
    }
}

impl StatementScope {
    pub fn new(catalog: Arc<CatalogSnapshot>) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                catalog,
                reads: None,
                leaves_out_temporary: false,
                unseen: None,
                subject: Arc::new(Subject::system()),
            }),
        })
    }

    /// A statement begins.
    pub fn enter(&self, catalog: Arc<CatalogSnapshot>) {
        let mut state = self.state.lock();
        state.catalog = catalog;
        state.reads = None;
        state.leaves_out_temporary = false;
        state.unseen = None;
    }

    /// In the rest of the statement, names mean permanent relations.
    pub fn leave_out_temporary(&self) {
        let mut state = self.state.lock();
        state.leaves_out_temporary = true;
        state.catalog = without_temporary(&state.catalog);
    }

    /// In the rest of the statement, names without a schema do not mean this table, which it creates:
    /// `CREATE TEMP TABLE t AS SELECT … FROM t`.
    pub fn leave_out(&self, oid: u32) {
        self.state.lock().unseen = Some(oid);
    }

    /// The relation that a name without a schema means where it stands: in a stored query what it meant there.
    pub fn meant(&self, name: &str) -> Option<Arc<CatalogObject>> {
        if !versions::is_stored() {
            return self.find(name);
        }
        let present = versions::present_name(name);
        match temporary_name(&present) {
            Some(temporary) => self.catalog().temporary().get(temporary).cloned(),
            None => self.catalog().permanent(&present).cloned(),
        }
    }

    /// The relation of the schema `public` that a name means where it stands.
    pub fn meant_in_public(&self, name: &str) -> Option<Arc<CatalogObject>> {
        let present = versions::present_name(name);
        // What a temporary table of the name is called now is no matter to `public.name`.
        let name = match temporary_name(&present) {
            Some(_) => name,
            None => &present,
        };
        self.catalog().permanent(name).cloned()
    }

    /// The relation that a name without a schema means in what is said now.
    fn find(&self, name: &str) -> Option<Arc<CatalogObject>> {
        let state = self.state.lock();
        let temporary = state.catalog.temporary().get(name);
        let seen = temporary.filter(|object| Some(object.oid) != state.unseen);
        seen.or_else(|| state.catalog.permanent(name)).cloned()
    }

    /// The statement changed the definitions that it sees.
    pub fn set_catalog(&self, catalog: Arc<CatalogSnapshot>) {
        let mut state = self.state.lock();
        state.catalog = match state.leaves_out_temporary {
            true => without_temporary(&catalog),
            false => catalog,
        };
    }

    /// From now on statements run as this subject.
    pub fn set_subject(&self, subject: Arc<Subject>) {
        self.state.lock().subject = subject;
    }

    pub fn subject(&self) -> Arc<Subject> {
        self.state.lock().subject.clone()
    }

    pub fn catalog(&self) -> Arc<CatalogSnapshot> {
        self.state.lock().catalog.clone()
    }

    /// The statement's reading context; made when first asked for.
    pub fn reads(&self, engine: &Engine) -> ReadContext {
        self.state
            .lock()
            .reads
            .get_or_insert_with(|| engine.read_context())
            .clone()
    }
}

fn without_temporary(catalog: &Arc<CatalogSnapshot>) -> Arc<CatalogSnapshot> {
    match catalog.temporary().is_empty() {
        true => Arc::clone(catalog),
        false => Arc::new(catalog.with_temporary(TemporaryTables::new())),
    }
}
