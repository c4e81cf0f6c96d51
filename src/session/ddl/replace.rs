//! `CREATE OR REPLACE MATERIALIZED VIEW`: another query under the name of a view.
//!
//! ```text
//! the same plan      the definition changes, the state stays
//! another plan       the new view is filled in the old one's pipeline at a batch border, and
//!                    readers change over with the batch that fills it; pipelines of which it
//!                    reads views become one with that first
//! ```
//! Running views and sinks that read the view would have to start over too, so that they are named
//! and nothing is done. Its indexes do start over: they are filled once the view is. Absent: keeping the state of some of a changed plan's operators; what they
//! would have to hand to the operators above is no change of any batch.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use futures::TryStreamExt;

use super::super::rowset::text_rows;
use super::super::work::Action;
use super::super::{Session, StatementResult, show};
use super::alter::columns_mut;
use super::listed;
use super::merging::ChosenPipeline;
use super::readers::Seen;
use super::views::{Bound, keeps_columns, own_part, reaches};
use crate::catalog::access::AccessChange;
use crate::catalog::changes::CatalogChange;
use crate::catalog::definition::{CatalogObject, Definition};
use crate::catalog::snapshot::{kind_of, pipeline_of, wrong_kind};
use crate::dataflow::plan::{ExplainRow, ViewPlan};
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;
use crate::sql::options;
use crate::sql::statement::{CreateMaterializedView, ObjectKind};

/// A replacement that was looked at.
struct Replacement {
    object: Arc<CatalogObject>,
    pipeline: ChosenPipeline,
    bound: Bound,
    plan: ViewPlan,
    keeps_state: bool,
}

impl Session {
    pub(super) async fn replace_materialized_view(
        &mut self,
        old: &Arc<CatalogObject>,
        create: &CreateMaterializedView,
        query: String,
        bound: Bound,
    ) -> Result<()> {
        let new = self.replacement(old, create, query, bound).await?;
        let settings = super::pipeline_part(&create.options);
        if new.keeps_state {
            if let Some(pipeline) = pipeline_of(&old.definition) {
                self.join_pipeline(pipeline, settings)?;
            }
            let change = CatalogChange::Replace {
                name: old.name.clone(),
                object: new.object,
            };
            return self.stage(change, None);
        }
        if options::boolean(&create.options, "reset_state")? != Some(true) {
            return Err(loses_state(&old.name, &new.plan));
        }
        self.check_replaceable(old, &new.object)?;
        if self.block.is_explicit() {
            return Err(Error::new(
                sqlstate::ACTIVE_TRANSACTION,
                "CREATE OR REPLACE MATERIALIZED VIEW cannot run inside a transaction block",
            )
            .detail("The old view is read until the new one is filled."));
        }
        self.tell_of_unbounded_state(&old.name, &new.plan);
        if !new.pipeline.merged.is_empty() {
            // First, and by itself: the old view moves with what it has, and then goes.
            self.merge_pipelines(&create.name, &new.pipeline)?;
            self.commit_work().await?;
            self.begin_work();
        }
        self.join_pipeline(&new.pipeline.name, settings)?;
        let old = &Arc::clone(self.definitions().require_same(old)?);
        let gone = CatalogChange::Drop {
            name: old.name.clone(),
            oid: old.oid,
        };
        self.stage(gone, None)?;
        let object = Arc::clone(&new.object);
        self.stage(
            CatalogChange::Create(Arc::clone(&new.object)),
            Some(Action::ReplaceView(
                Arc::clone(old),
                new.object,
                Box::new(new.bound.plan),
            )),
        )?;
        let inherit = AccessChange::Inherit {
            from: old.oid,
            to: object.oid,
        };
        self.stage(CatalogChange::Access(inherit), None)?;
        self.keep_indexes(old, &object)
    }

    /// The new definition, its plan, and whether the state that is there is the plan's.
    async fn replacement(
        &mut self,
        old: &Arc<CatalogObject>,
        create: &CreateMaterializedView,
        query: String,
        bound: Bound,
    ) -> Result<Replacement> {
        let Definition::MaterializedView(view) = &old.definition else {
            return Err(wrong_kind(old, ObjectKind::MaterializedView));
        };
        let pipeline = self.pipeline_of_new(&view.pipeline, create, &bound.depends_on)?;
        let object = self.defined_view(create, query, &bound, &pipeline.name);
        if reaches(&self.definitions(), &object, &old.name) {
            return Err(Error::new(
                sqlstate::INVALID_OBJECT_DEFINITION,
                format!("materialized view \"{}\" cannot read itself", old.name),
            ));
        }
        let mut renewed = CatalogObject::clone(&object);
        renewed.oid = old.oid;
        renewed.created_at_us = old.created_at_us;
        renewed.comment.clone_from(&old.comment);
        for (column, before) in columns_mut(&mut renewed.definition)
            .iter_mut()
            .zip(old.columns())
        {
            column.comment.clone_from(&before.comment);
        }
        let seen = Arc::new(Seen(self.definitions()));
        let plan = self
            .parts
            .engine()
            .planned(&renewed, &bound.plan, Some(seen))
            .await?;
        let is_same_shape = renewed.columns() == old.columns()
            && view.emit == create.emit
            && view.options == own_part(&create.options);
        // A definition that cannot be planned any more has no state to keep.
        let keeps_state = is_same_shape
            && match self.running_plan(old).await {
                Ok(before) => before.is_some_and(|p| p.fingerprint == plan.fingerprint),
                Err(_) => false,
            };
        Ok(Replacement {
            object: match keeps_state {
                true => Arc::new(renewed),
                false => object,
            },
            pipeline,
            bound,
            plan,
            keeps_state,
        })
    }

    /// Nothing that runs may read it, and plain views must find its columns.
    fn check_replaceable(&self, old: &CatalogObject, new: &CatalogObject) -> Result<()> {
        let dependents = self.definitions().dependents_in_drop_order(&old.name);
        let keeps_columns = keeps_columns(old, new);
        let broken: Vec<_> = dependents
            .iter()
            .filter(|d| match kind_of(&d.definition) {
                ObjectKind::Index => false,
                ObjectKind::View => !keeps_columns,
                _ => true,
            })
            .map(|d| d.name.as_str())
            .collect();
        if broken.is_empty() {
            return Ok(());
        }
        Err(Error::new(
            sqlstate::DEPENDENT_OBJECTS,
            format!(
                "cannot replace materialized view \"{}\" because other objects depend on it",
                old.name
            ),
        )
        .detail(format!("These read it: {}.", listed(broken)))
        .hint("Drop them, then replace the view and create them again."))
    }

    /// `EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW`: what the statement would keep and what it
    /// would compute anew, from how many rows; nothing is done.
    pub(in crate::session) async fn explain_replace(
        &mut self,
        create: &CreateMaterializedView,
    ) -> Result<StatementResult> {
        let create = &self.with_time_zone(create);
        let old = self.definitions().object(&create.name).cloned();
        let (query, bound) = self.bind_for_pipeline(create).await?;
        let (plan, keeps_state) = match &old {
            Some(old) => {
                let new = self.replacement(old, create, query, bound).await?;
                if !new.keeps_state {
                    self.check_replaceable(old, &new.object)?;
                }
                (new.plan, new.keeps_state)
            }
            None => {
                let chosen = self.choose_pipeline(create, &bound.depends_on)?;
                let object = self.defined_view(create, query, &bound, &chosen.name);
                let seen = Arc::new(Seen(self.definitions()));
                let engine = self.parts.engine();
                (
                    engine.planned(&object, &bound.plan, Some(seen)).await?,
                    false,
                )
            }
        };
        let mut rows = Vec::new();
        for operator in plan.explain() {
            let to_read = match plan.relation_read_by(&operator.operator_name) {
                Some(relation) if !keeps_state => Some(self.count_rows(&relation).await?),
                Some(_) => Some(0),
                None => None,
            };
            rows.push(explained(&operator, keeps_state, to_read));
        }
        Ok(text_rows(&show::REPLACE_COLUMNS, rows, "EXPLAIN"))
    }

    /// The rows of a relation as it is now.
    async fn count_rows(&self, relation: &str) -> Result<i64> {
        let text = format!("SELECT count(*) FROM {}", quote_identifier(relation));
        let query = super::super::planning::parse_query(&text)?;
        let (_, rows) = self.start_query(&query, &[]).await?;
        let batches: Vec<_> = rows.try_collect().await?;
        let counts = batches.iter().flat_map(|batch| {
            let column = batch.column(0).as_primitive::<Int64Type>();
            column.iter().flatten().collect::<Vec<_>>()
        });
        Ok(counts.sum())
    }
}

/// A line of the dry run.
fn explained(
    operator: &ExplainRow,
    keeps_state: bool,
    to_read: Option<i64>,
) -> Vec<Option<String>> {
    let state = match (&operator.description.state, keeps_state) {
        (None, _) => "none",
        (Some(_), true) => "kept",
        (Some(_), false) => "computed anew",
    };
    vec![
        Some(format!(
            "{}{}",
            "  ".repeat(operator.depth),
            operator.operator_name
        )),
        Some(operator.description.detail.clone()),
        Some(state.to_owned()),
        to_read.map(|rows| rows.to_string()),
    ]
}

fn loses_state(name: &str, plan: &ViewPlan) -> Error {
    let stateful = plan
        .explain()
        .into_iter()
        .filter(|operator| operator.description.state.is_some())
        .map(|operator| operator.operator_name);
    let stateful: Vec<String> = stateful.collect();
    let operators = match stateful.is_empty() {
        true => String::new(),
        false => format!(" Computed anew: {}.", stateful.join(", ")),
    };
    Error::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        format!("replacing materialized view \"{name}\" loses its state"),
    )
    .detail(format!(
        "The new query starts from the beginning of its inputs.{operators}"
    ))
    .hint("Say CREATE OR REPLACE … WITH (reset_state = true) to accept that, and EXPLAIN before it to see what has to be read.")
}
