//! The check of what a query reads: at the one place where names become relations.
//!
//! A relation that its reader may read whole is given out as it is, so that a permitted query pays
//! one look-up per relation. Any other is given out behind a [`Guarded`], which refuses when it is
//! scanned: a statement may be prepared and a view created over what may not be read, as in
//! PostgreSQL. The relations in a plain view are read with the rights of its owner; a change of rows
//! reads its own target without a check here, since the statement's text says what it needs
//! (`dml/needs.rs`).

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session as PlanningSession, TableProvider};
use datafusion::error::Result as PlanResult;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;

use super::checks::denied_relation;
use crate::catalog::access::acl::Privileges;
use crate::catalog::access::{Access, ObjectKey, Subject};
use crate::catalog::definition::CatalogObject;
use crate::session::planning::external;

/// Who reads while something is planned.
#[derive(Clone, Default)]
struct Reader {
    /// `None`: whoever the session acts as
    subject: Option<Arc<Subject>>,
    /// identifier of a relation that is read without a check
    exempt: Option<u32>,
}

tokio::task_local! {
    static READER: Reader;
}

fn present_reader() -> Reader {
    READER.try_with(Reader::clone).unwrap_or_default()
}

/// Plans with the rights of a view's owner.
pub(in crate::session) async fn as_owner<T>(
    access: &Access,
    view: &CatalogObject,
    planning: impl Future<Output = T>,
) -> T {
    let owner = access.owner(&ObjectKey::Relation(view.oid));
    let reader = Reader {
        subject: Some(Arc::new(access.subject(owner))),
        exempt: None,
    };
    READER.scope(reader, planning).await
}

/// Runs a change of a relation's rows, which reads them too.
pub(in crate::session) async fn changing<T>(oid: u32, change: impl Future<Output = T>) -> T {
    let reader = Reader {
        exempt: Some(oid),
        ..present_reader()
    };
    READER.scope(reader, change).await
}

/// A relation as its reader may see it.
pub(in crate::session) fn guarded(
    access: &Access,
    session: &Arc<Subject>,
    object: &Arc<CatalogObject>,
    provider: Arc<dyn TableProvider>,
) -> Arc<dyn TableProvider> {
    let reader = present_reader();
    let subject = reader.subject.as_ref().unwrap_or(session);
    if reader.exempt == Some(object.oid)
        || access.allows(
            subject,
            &ObjectKey::Relation(object.oid),
            Privileges::SELECT,
        )
    {
        return provider;
    }
    let of_column = |column: &usize| {
        let place = object.stored_index(*column) as u32;
        let key = ObjectKey::Column(object.oid, place);
        access.allows(subject, &key, Privileges::SELECT)
    };
    Arc::new(Guarded {
        provider,
        readable: (0..object.columns().len()).filter(of_column).collect(),
        object: Arc::clone(object),
    })
}

/// A relation of which some columns may be read, or none.
#[derive(Debug)]
struct Guarded {
    provider: Arc<dyn TableProvider>,
    object: Arc<CatalogObject>,
    readable: BTreeSet<usize>,
}

#[async_trait]
impl TableProvider for Guarded {
    fn schema(&self) -> SchemaRef {
        self.provider.schema()
    }

    fn table_type(&self) -> TableType {
        self.provider.table_type()
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> PlanResult<Vec<TableProviderFilterPushDown>> {
        self.provider.supports_filters_pushdown(filters)
    }

    async fn scan(
        &self,
        session: &dyn PlanningSession,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> PlanResult<Arc<dyn ExecutionPlan>> {
        let schema = self.schema();
        let projected = match projection {
            Some(columns) => columns.clone(),
            None => (0..schema.fields().len()).collect(),
        };
        let compared = filters.iter().flat_map(Expr::column_refs);
        let compared = compared.filter_map(|column| schema.index_of(&column.name).ok());
        let mut read = projected.into_iter().chain(compared);
        // Rows are counted by whoever may read something of them.
        if self.readable.is_empty() || read.any(|column| !self.readable.contains(&column)) {
            return Err(external(denied_relation(&self.object)));
        }
        self.provider
            .scan(session, projection, filters, limit)
            .await
    }
}
