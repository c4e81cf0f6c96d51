//! What an open transaction has changed, and how it becomes durable.
//!
//! ```text
//!   definitions ─┐                    ┌─► engine: start, stop, forget
//!                ├─► one commit ──────┤
//!   rows ────────┘  (log decides)     └─► events
//! ```
//!
//! Pipelines follow the commit: a crash in between leaves definitions that the next start runs,
//! never a pipeline without a definition. A view that cannot start takes its definition back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use datafusion::logical_expr::LogicalPlan;
use serde_json::json;

use super::ddl::indexes_of;
use super::rows::{RowMark, RowTransaction};
use super::{Session, TransactionStatus};
use crate::catalog::access::{AccessChange, ObjectKey};
use crate::catalog::changes::{CatalogChange, CatalogSavepoint, CatalogTransaction};
use crate::catalog::definition::{CatalogObject, Definition, Options, PipelineDefinition};
use crate::catalog::pg_catalog::notifications::{ChannelAction, Notification};
use crate::catalog::renaming::KeptName;
use crate::catalog::snapshot::{CatalogSnapshot, kind_name, kind_of, pipeline_of};
use crate::database::DatabaseParts;
use crate::error::{Error, Result};
use crate::log::tables::layout::TableLayout;
use crate::sql::statement::ObjectKind;

/// How long CREATE MATERIALIZED VIEW waits for the view's first rows; what takes longer is told.
const FIRST_BATCH_WAIT: Duration = Duration::from_secs(3);

/// What the engine does once the definitions are durable.
pub(super) enum Action {
    /// a new table, stream or sink
    Create(Arc<CatalogObject>),
    /// a new view with its bound query
    CreateView(Arc<CatalogObject>, Box<LogicalPlan>),
    /// another query, bound, for a view; what it was
    ReplaceView(Arc<CatalogObject>, Arc<CatalogObject>, Box<LogicalPlan>),
    /// an object is gone
    Drop(Arc<CatalogObject>),
    /// columns, watermark or expectations of a stream or table, as they are now
    AlterRelation(Arc<CatalogObject>),
    /// a table whose rows have moved to another one of its name
    Rekey(Arc<CatalogObject>, Arc<CatalogObject>),
    /// whole options of a view, sink, stream or pipeline, whatever it is named by then
    AlterOptions(ObjectKind, KeptName, Options),
    /// a pipeline whose views and sinks are another one's now
    MergePipelines { into: String, from: String },
}

/// An open transaction's changes to definitions.
pub(super) struct Work {
    pub catalog: CatalogTransaction,
    actions: Vec<Action>,
    marks: Vec<Mark>,
}

struct Mark {
    catalog: CatalogSavepoint,
    actions: usize,
    rows: RowMark,
    said: usize,
}

impl Session {
    pub(super) fn begin_work(&mut self) {
        self.rows_were_read();
        self.settings.mark();
        let seen = self.newest_definitions();
        self.work = Some(Work {
            catalog: CatalogTransaction::new(seen),
            actions: Vec::new(),
            marks: Vec::new(),
        });
    }

    /// The open transaction.
    pub(super) fn work(&mut self) -> Result<&mut Work> {
        self.work
            .as_mut()
            .ok_or_else(|| Error::internal("no transaction is open"))
    }

    /// Stages a change of a definition, and what the engine must do after the commit.
    pub(super) fn stage(&mut self, change: CatalogChange, action: Option<Action>) -> Result<()> {
        let created = self.created_by(&change);
        let action = action.filter(|_| !change.is_temporary());
        let work = self.work()?;
        work.catalog.stage(change)?;
        work.actions.extend(action);
        let snapshot = work.catalog.snapshot();
        self.scope.set_catalog(snapshot);
        match created {
            Some(key) => self.claim(key),
            None => Ok(()),
        }
    }

    /// What a change creates that somebody must own.
    fn created_by(&self, change: &CatalogChange) -> Option<ObjectKey> {
        let catalog = self.definitions();
        match change {
            CatalogChange::Create(object) if object.is_temporary() => None,
            CatalogChange::Create(object) => Some(ObjectKey::Relation(object.oid)),
            CatalogChange::CreateSecret(name, _) => Some(ObjectKey::Secret(name.clone())),
            CatalogChange::PutPipeline(name, _) if catalog.pipeline(name).is_none() => {
                Some(ObjectKey::Pipeline(name.clone()))
            }
            CatalogChange::PutFunction(function) => {
                let is_new = !catalog.functions().any(|f| f.oid == function.oid);
                is_new.then_some(ObjectKey::Function(function.oid))
            }
            _ => None,
        }
    }

    pub(super) fn mark_work(&mut self) -> Result<()> {
        let rows = self.rows.mark();
        let said = self.outbox.len();
        let work = self.work()?;
        work.marks.push(Mark {
            said,
            catalog: work.catalog.savepoint(),
            actions: work.actions.len(),
            rows,
        });
        Ok(())
    }

    pub(super) fn release_work(&mut self, depth: usize) {
        if let Some(work) = &mut self.work {
            work.marks.truncate(depth);
        }
    }

    pub(super) fn rollback_work_to(&mut self, depth: usize) -> Result<()> {
        let rows = self.rows.clone();
        let outbox = self.outbox.clone();
        let work = self.work()?;
        work.marks.truncate(depth + 1);
        let mark = work
            .marks
            .last()
            .ok_or_else(|| Error::internal("a savepoint without its mark"))?;
        outbox.truncate(mark.said);
        work.actions.truncate(mark.actions);
        work.catalog.rollback_to(&mark.catalog);
        rows.rollback_to(&mark.rows)
    }

    /// The block can only be rolled back now, or to its last savepoint: others need not wait for the rows that it
    /// has changed since.
    pub(super) fn fail_block(&mut self) {
        self.block.fail();
        if self.block.status() != TransactionStatus::Failed {
            return;
        }
        let last = self.work.as_ref().and_then(|work| work.marks.last());
        let Some(last) = last else {
            return self.rows.discard();
        };
        if let Err(error) = self.rows.rollback_to(&last.rows) {
            // It is told when somebody goes back to the savepoint.
            tracing::debug!(%error, "the rows of a failed transaction are gone");
        }
    }

    pub(super) fn rollback_work(&mut self) {
        self.work = None;
        self.release_transaction_locks();
        self.outbox.truncate(0);
        self.rows.discard();
        self.cursors.get_mut().retain(|_, cursor| cursor.is_held());
        self.settings.end_transaction(false);
    }

    /// Applies everything, as one; with an error, nothing.
    pub(super) async fn commit_work(&mut self) -> Result<()> {
        let left = self.rows.take();
        let work = self.work.take();
        self.cursors.get_mut().retain(|_, cursor| cursor.is_held());
        let Some(mut work) = work else {
            return Err(Error::internal("no transaction is open"));
        };
        let created = created_views(&work.actions);
        let kept = self.kept_by_commit(&mut work.catalog, left.temporary);
        let result = match kept {
            Err(error) => Err(error),
            Ok(kept) => {
                let result = self.commit_for_all(work, left.changes).await;
                if result.is_ok() {
                    self.keep_temporary(kept);
                }
                result
            }
        };
        self.release_transaction_locks();
        self.settings.end_transaction(result.is_ok());
        match result.is_ok() {
            true => {
                self.tell_listeners();
                if !created.is_empty() {
                    self.wait_for_first_batches(&created).await;
                }
            }
            false => self.outbox.truncate(0),
        }
        result
    }

    /// Who reads a view right after its creation finds it filled, as in PostgreSQL, unless that
    /// takes long.
    async fn wait_for_first_batches(&mut self, created: &[KeptName]) {
        let parts = self.parts.clone();
        let filling = parts.engine().first_batches(created, FIRST_BATCH_WAIT);
        let definitions = parts.catalog.snapshot();
        for view in filling.await {
            let view = definitions.shown_name(view.as_str());
            self.notice_with_hint(
                format!("materialized view \"{view}\" is still being filled"),
                "SELECT * FROM streaming_queries; shows how far it is.".to_owned(),
            );
        }
    }

    /// Commits what others see.
    async fn commit_for_all(&self, work: Work, rows: Option<RowTransaction>) -> Result<()> {
        if work.catalog.is_empty() && rows.is_none() {
            return Ok(());
        }
        let parts = self.parts.clone();
        // In a task of its own: a client that goes away must not leave half of it.
        match tokio::spawn(commit(parts, work, rows)).await {
            Ok(result) => result,
            Err(failure) if failure.is_panic() => {
                std::panic::resume_unwind(failure.into_panic());
            }
            Err(_) => Err(Error::internal("the commit was interrupted")),
        }
    }

    pub(super) fn release_transaction_locks(&self) {
        let locks = self.parts.backends.advisory_locks();
        locks.release_transaction(self.backend.pid());
    }

    /// What the transaction said to listeners counts from its commit on. Its own session listens
    /// before what it notifies goes out, whatever came first, as in PostgreSQL.
    pub(super) fn tell_listeners(&self) {
        let mailbox = self.backend.mailbox();
        let mut notifications = Vec::new();
        for action in self.outbox.take() {
            match action {
                ChannelAction::Listen(channel) => mailbox.listen(&channel),
                ChannelAction::Unlisten(channel) => mailbox.unlisten(channel.as_deref()),
                ChannelAction::Notify(channel, payload) => notifications.push(Notification {
                    pid: self.backend.pid(),
                    channel,
                    payload,
                }),
            }
        }
        for notification in notifications {
            self.parts.backends.notify(notification);
        }
    }
}

async fn commit(parts: Arc<DatabaseParts>, work: Work, rows: Option<RowTransaction>) -> Result<()> {
    let Work {
        catalog, actions, ..
    } = work;
    if let Some(rows) = &rows {
        check_relations(&parts, &catalog, rows)?;
    }
    if catalog.is_empty() {
        return match rows {
            Some(rows) => rows.commit(None, &BTreeMap::new()).await,
            None => Ok(()),
        };
    }
    let before = parts.catalog.snapshot();
    // What may fail of a merge comes before it is a fact.
    let held = parts
        .engine()
        .hold_together(&merged_together(&actions))
        .await?;
    let refused = refuse_old_changes(&parts, &actions);
    if let Err(error) = commit_definitions(&parts, catalog, rows, &actions).await {
        for (oid, version) in refused.into_iter().rev() {
            parts.tables.accept_again(oid, version);
        }
        return Err(error);
    }
    held.keep();
    for (index, action) in actions.iter().enumerate() {
        if let Err(error) = follow(&parts, action).await {
            take_back(&parts, &actions, index, &before).await;
            finish_merges(&parts, &actions[index + 1..]).await;
            return Err(error);
        }
    }
    settle_pipelines(&parts, &before);
    forget_what_is_done(&parts, &actions).await
}

/// Materialized views that were not there before.
fn created_views(actions: &[Action]) -> Vec<KeptName> {
    let created = actions.iter().filter_map(|action| match action {
        Action::CreateView(object, _) => Some(object),
        _ => None,
    });
    created
        .filter(|object| matches!(object.definition, Definition::MaterializedView(_)))
        .map(|object| KeptName::of(object))
        .collect()
}

/// Groups of pipelines that become one, each by the name that stays.
fn merged_together(actions: &[Action]) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for action in actions {
        if let Action::MergePipelines { into, from } = action {
            let mut group = groups.remove(from).unwrap_or_default();
            group.push(from.clone());
            groups.entry(into.clone()).or_default().append(&mut group);
        }
    }
    groups
}

/// The definitions say that pipelines are merged, whatever else of the transaction did not work: those
/// that stand held for it must not stand for ever.
async fn finish_merges(parts: &Arc<DatabaseParts>, actions: &[Action]) {
    for action in actions {
        if let Action::MergePipelines { into, from } = action
            && let Err(error) = follow(parts, action).await
        {
            tracing::error!(%into, %from, %error, "could not merge pipelines");
        }
    }
}

/// A relation whose rows a transaction changes must not have been dropped by another one.
fn check_relations(
    parts: &DatabaseParts,
    catalog: &CatalogTransaction,
    rows: &RowTransaction,
) -> Result<()> {
    let committed = parts.catalog.snapshot();
    let own = catalog.snapshot();
    let is_own = |oid: u32| {
        let mut changes = catalog.changes().iter();
        changes.any(|c| matches!(c, CatalogChange::Create(o) if o.oid == oid))
    };
    for oid in rows.relations() {
        if committed.object_by_oid(oid).is_none() && !is_own(oid) {
            let name = own.object_by_oid(oid).map_or("", |o| o.name.as_str());
            return Err(Error::new(
                crate::error::sqlstate::SERIALIZATION_FAILURE,
                "could not serialize access due to a concurrent DROP",
            )
            .detail(format!(
                "Another transaction dropped relation \"{name}\", whose rows this one changes."
            ))
            .hint("Run the transaction again."));
        }
    }
    Ok(())
}

/// Tables that are altered or dropped, and the version below which changes are too old then.
fn changing_tables(actions: &[Action]) -> impl Iterator<Item = (&Arc<CatalogObject>, usize)> {
    let changing = actions.iter().filter_map(|action| match action {
        Action::AlterRelation(object) => Some((object, object.version())),
        Action::Drop(object) | Action::Rekey(object, _) => Some((object, usize::MAX)),
        _ => None,
    });
    changing.filter(|(object, _)| matches!(object.definition, Definition::Table(_)))
}

/// From now on transactions that know tables as they were are refused; what counted before.
fn refuse_old_changes(parts: &DatabaseParts, actions: &[Action]) -> Vec<(u32, Option<usize>)> {
    let refuse = |(object, version): (&Arc<CatalogObject>, usize)| {
        let before = parts.tables.refuse_before(object.oid, version);
        (object.oid, before)
    };
    changing_tables(actions).map(refuse).collect()
}

/// Commits definitions and rows as one, after the changes by others that are still let through.
async fn commit_definitions(
    parts: &DatabaseParts,
    catalog: CatalogTransaction,
    rows: Option<RowTransaction>,
    actions: &[Action],
) -> Result<()> {
    for (object, _) in changing_tables(actions) {
        parts.tables.settle(object.oid).await?;
    }
    let Some(mut rows) = rows else {
        return parts.catalog.commit(catalog).await.map(drop);
    };
    let mut altered = BTreeMap::new();
    for action in actions {
        match action {
            Action::AlterRelation(object) if matches!(object.definition, Definition::Table(_)) => {
                altered.insert(object.oid, TableLayout::of(object)?);
            }
            Action::Drop(object) | Action::Rekey(object, _) => rows.forget(object.oid),
            _ => {}
        }
    }
    let marker = uuid::Uuid::new_v4().to_string();
    let log_marker = marker.clone();
    let log_commit = async move { rows.commit(Some(&log_marker), &altered).await };
    parts
        .catalog
        .commit_with_log(catalog, &marker, log_commit)
        .await
        .map(drop)
}

async fn follow(parts: &DatabaseParts, action: &Action) -> Result<()> {
    match action {
        Action::Create(object) => {
            match &object.definition {
                Definition::Stream(_) => parts.engine().create_stream(object).await?,

                Definition::Sink(_) => {
                    let snapshot = parts.catalog.snapshot();
                    let object = snapshot.require_same(object)?;
                    let Definition::Sink(sink) = &object.definition else {
                        return Err(Error::internal("only a sink is started"));
                    };
                    let pipeline = require_pipeline(&snapshot, &sink.pipeline)?;
                    let pipeline = (sink.pipeline.as_str(), pipeline);
                    parts.engine().create_sink(object, pipeline).await?;
                }
                Definition::Table(_)
                | Definition::View(_)
                | Definition::MaterializedView(_)
                | Definition::Index(_) => {}
            }
            record(parts, "created", object);
        }
        Action::CreateView(object, plan) => {
            // A later statement of the transaction may have moved it to another pipeline.
            let snapshot = parts.catalog.snapshot();
            let object = snapshot.require_same(object)?;
            let (Definition::MaterializedView(_) | Definition::Index(_), Some(name)) =
                (&object.definition, pipeline_of(&object.definition))
            else {
                return Err(Error::internal("only a materialized view is started"));
            };
            let pipeline = require_pipeline(&snapshot, name)?;
            parts
                .engine()
                .create_materialized_view(object, (name, pipeline), plan)
                .await?;
            record(parts, "created", object);
        }
        Action::ReplaceView(_, object, plan) => {
            // Here too: it may have another name by now.
            let snapshot = parts.catalog.snapshot();
            let object = snapshot.require_same(object)?;
            let Definition::MaterializedView(view) = &object.definition else {
                return Err(Error::internal("only a materialized view is replaced"));
            };
            parts
                .engine()
                .replace_materialized_view(object, &view.pipeline, plan)
                .await?;
            record(parts, "replaced", object);
        }
        Action::Drop(object) => {
            parts.forget(object).await?;
            record(parts, "dropped", object);
        }
        Action::Rekey(old, new) => {
            parts.forget(old).await?;
            record(parts, "altered", new);
        }
        Action::AlterRelation(object) => {
            parts.engine().alter_relation(object).await?;
            record(parts, "altered", object);
        }
        Action::AlterOptions(kind, name, options) => {
            parts.engine().alter_options(*kind, name, options).await?;
        }
        Action::MergePipelines { into, from } => {
            parts.engine().merge(into, from).await?;
            record_event(parts, "merged", into, json!({ "pipeline": from }));
        }
    }
    Ok(())
}

fn require_pipeline<'a>(
    snapshot: &'a CatalogSnapshot,
    name: &str,
) -> Result<&'a PipelineDefinition> {
    snapshot
        .pipeline(name)
        .ok_or_else(|| Error::internal(format!("pipeline \"{name}\" is not in the catalog")))
}

/// The creations of a transaction whose `failed` action did not work are taken back: its
/// definitions and what the engine had started. A failure here is logged; the first one is told.
async fn take_back(
    parts: &Arc<DatabaseParts>,
    actions: &[Action],
    failed: usize,
    before: &CatalogSnapshot,
) {
    let mut undo = parts.catalog.begin();
    // A pipeline that could not take over its options goes on with those it had.
    if let Some(Action::AlterOptions(ObjectKind::Pipeline, name, _)) = actions.get(failed)
        && let Some(definition) = before.pipeline(name.as_str())
    {
        let name = name.as_str();
        let change = CatalogChange::PutPipeline(name.to_owned(), definition.clone());
        if let Err(error) = undo.stage(change) {
            tracing::error!(pipeline = name, %error, "could not take back options");
        }
    }
    if let Some(Action::ReplaceView(old, new, _)) = actions.get(failed) {
        take_back_query(&mut undo, old, new, before);
    }
    for (index, action) in actions.iter().enumerate().rev() {
        let (Action::Create(object) | Action::CreateView(object, _)) = action else {
            continue;
        };
        if index < failed
            && let Err(error) = parts.forget(object).await
        {
            tracing::error!(object = %object.name, %error, "could not take back a creation");
        }
        let staged = undo.stage(CatalogChange::Drop {
            name: object.name.clone(),
            oid: object.oid,
        });
        if let Err(error) = staged {
            tracing::error!(object = %object.name, %error, "could not take back a definition");
        }
    }
    let empty: Vec<String> = undo
        .snapshot()
        .pipelines()
        .map(|(name, _)| name.clone())
        .filter(|name| undo.snapshot().pipeline_members(name).is_empty())
        .collect();
    for name in empty {
        if let Err(error) = undo.stage(CatalogChange::DropPipeline(name.clone())) {
            tracing::error!(pipeline = %name, %error, "could not take back a pipeline");
        }
    }
    if let Err(error) = parts.catalog.commit(undo).await {
        tracing::error!(%error, "could not take back definitions");
    }
}

/// A view whose new query could not be started goes on with the old one.
fn take_back_query(
    undo: &mut CatalogTransaction,
    old: &Arc<CatalogObject>,
    new: &CatalogObject,
    before: &CatalogSnapshot,
) {
    let inherit = AccessChange::Inherit {
        from: new.oid,
        to: old.oid,
    };
    let drop = |object: &CatalogObject| CatalogChange::Drop {
        name: object.name.clone(),
        oid: object.oid,
    };
    let renewed = indexes_of(&undo.snapshot(), &old.name);
    let mut changes: Vec<_> = renewed.iter().map(|index| drop(index)).collect();
    changes.push(CatalogChange::Access(inherit));
    changes.extend([drop(new), CatalogChange::Create(Arc::clone(old))]);
    let indexes = indexes_of(before, &old.name);
    changes.extend(indexes.into_iter().map(CatalogChange::Create));
    for change in changes {
        if let Err(error) = undo.stage(change) {
            tracing::error!(view = %old.name, %error, "could not take back a query");
        }
    }
}

/// Checkpoints that were to be moved, and states that were to be taken over, have been.
async fn forget_what_is_done(parts: &DatabaseParts, actions: &[Action]) -> Result<()> {
    for action in actions {
        let name = match action {
            Action::AlterOptions(ObjectKind::Pipeline, name, _) => name.as_str(),
            Action::MergePipelines { into, .. } => into,
            _ => continue,
        };
        let mut change = parts.catalog.begin();
        let Some(mut definition) = change.snapshot().pipeline(name).cloned() else {
            continue;
        };
        let before = definition.clone();
        definition.previous_location = None;
        definition.merges.clear();
        if definition != before {
            change.stage(CatalogChange::PutPipeline(name.to_owned(), definition))?;
            parts.catalog.commit(change).await?;
        }
    }
    Ok(())
}

/// An event tells, and never fails what it tells about.
pub(super) fn record(parts: &DatabaseParts, kind: &str, object: &CatalogObject) {
    let detail = json!({ "kind": kind_name(kind_of(&object.definition)) });
    record_event(parts, kind, object.kept_name(), detail);
}

pub(super) fn record_event(
    parts: &DatabaseParts,
    kind: &str,
    name: &str,
    detail: serde_json::Value,
) {
    if let Err(error) = parts.history.record_event(kind, name, None, detail) {
        tracing::error!(object = name, event = kind, %error, "could not keep an event");
    }
}

/// Tells of pipelines with other settings, and forgets those that are gone.
fn settle_pipelines(parts: &DatabaseParts, before: &CatalogSnapshot) {
    let after = parts.catalog.snapshot();
    for (name, old) in before.pipelines() {
        match after.pipeline(name) {
            Some(new) if new.options == old.options => {}
            Some(new) => {
                let options: Vec<&String> = new.options.keys().collect();
                record_event(parts, "altered", name, json!({ "options": options }));
            }
            None => {
                if let Err(error) = parts.history.forget_pipeline(name) {
                    tracing::error!(pipeline = %name, %error, "could not forget a pipeline");
                }
            }
        }
    }
}
