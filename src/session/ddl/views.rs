//! `CREATE VIEW` and `CREATE MATERIALIZED VIEW`: binding a query, choosing its pipeline. What is in
//! the place of the name already, `replace.rs` looks after.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast;

use super::super::parameters::{placeholders, undefined_parameter};
use super::super::rowset::done;
use super::super::work::Action;
use super::super::{Session, StatementResult, binding, functions, planning, versions};
use super::alter::follow_row_policy;
use super::{Existing, listed, new_pipeline};
use crate::catalog::changes::{CatalogChange, duplicate_relation};
use crate::catalog::definition::{
    CatalogObject, ColumnDefinition, Definition, MaterializedViewDefinition, OptionValue, Options,
    TIME_ZONE, ViewDefinition,
};
use crate::catalog::function::FunctionDefinition;
use crate::catalog::renaming::{KeptName, follow};
use crate::catalog::snapshot::{CatalogSnapshot, depends_on, kind_of, wrong_kind};
use crate::catalog::system_tables;
use crate::catalog::temporary::{self, temporary_name};
use crate::error::{Error, Result, sqlstate};
use crate::sql::local_times::in_time_zone;
use crate::sql::render::present_query;
use crate::sql::statement::{CreateMaterializedView, CreateView, ObjectKind};
use crate::values::zones;

/// A view's query, bound.
pub(super) struct Bound {
    pub plan: LogicalPlan,
    pub columns: Vec<ColumnDefinition>,
    pub depends_on: Vec<String>,
    /// those that are read without a schema
    pub bare: BTreeSet<String>,
    /// those that it calls, also through functions
    pub functions: Vec<Arc<FunctionDefinition>>,
}

impl Session {
    pub(in crate::session) async fn create_view(
        &mut self,
        create: &CreateView,
    ) -> Result<StatementResult> {
        const TAG: &str = "CREATE VIEW";
        let state = self.planning_state();
        let mut bound = self
            .bind(state, &create.query, &create.column_names)
            .await?;
        let is_temporary = create.is_temporary || self.reads_temporary(&bound)?;
        let existing = match is_temporary {
            true => {
                self.existing_temporary(&create.name, create.if_not_exists, create.or_replace)?
            }
            false => self.existing(&create.name, create.if_not_exists, create.or_replace)?,
        };
        if let Existing::Skip = existing {
            return Ok(done(TAG));
        }
        if is_temporary && !create.is_temporary {
            self.notice(format!("view \"{}\" will be a temporary view", create.name));
        }
        // The system's own tables cannot be dropped, so that a view need not hold on to them.
        let snapshot = self.definitions();
        bound
            .depends_on
            .retain(|name| snapshot.object(name).is_some());
        let versions = versions::present(&snapshot, &bound.depends_on);
        let renamed = match is_temporary {
            true => temporary_references(&snapshot, &bound.bare, &mut bound.depends_on),
            false => BTreeMap::new(),
        };
        let definition = Definition::View(ViewDefinition {
            query: create.query_text.clone(),
            columns: bound.columns,
            versions,
            depends_on: bound.depends_on,
            functions: bound.functions,
        });
        let mut object = self.new_object(&create.name, definition);
        let new = Arc::make_mut(&mut object);
        new.renamed = renamed;
        if is_temporary {
            new.oid = temporary::allocate_oid();
            new.kept_as = None;
        }
        match existing {
            Existing::Replace(old) => self.replace_view(&old, &object)?,
            _ => self.stage(CatalogChange::Create(object), None)?,
        }
        Ok(done(TAG))
    }

    /// What a query reads goes with the session.
    fn reads_temporary(&self, bound: &Bound) -> Result<bool> {
        let catalog = self.definitions();
        let is_view = |name: &String| {
            let object = catalog.temporary().get(name);
            object.is_some_and(|o| matches!(o.definition, Definition::View(_)))
        };
        Ok(versions::reads_temporary(&bound.plan)? || bound.bare.iter().any(is_view))
    }

    /// `OR REPLACE`: as in PostgreSQL, the old columns must stay; new ones may follow.
    fn replace_view(&mut self, old: &Arc<CatalogObject>, view: &CatalogObject) -> Result<()> {
        if kind_of(&old.definition) != ObjectKind::View {
            return Err(wrong_kind(old, ObjectKind::View));
        }
        let mut new = CatalogObject::clone(old);
        new.definition = view.definition.clone();
        new.renamed = view.renamed.clone();
        if !keeps_columns(old, &new) {
            return Err(Error::new(
                sqlstate::INVALID_OBJECT_DEFINITION,
                "cannot drop, rename or change the type of columns of a view",
            )
            .hint(format!("Say DROP VIEW {}, then create it again.", old.name)));
        }
        if reaches(&self.definitions(), &new, &old.reference()) {
            return Err(Error::new(
                sqlstate::INVALID_OBJECT_DEFINITION,
                format!("view \"{}\" cannot read itself", old.name),
            ));
        }
        let running: Vec<_> = self
            .definitions()
            .dependents_in_drop_order(&old.name)
            .into_iter()
            .filter(|o| kind_of(&o.definition) != ObjectKind::View)
            .collect();
        if !running.is_empty() {
            return Err(Error::new(
                sqlstate::DEPENDENT_OBJECTS,
                format!(
                    "cannot replace view \"{}\" because running views read it",
                    old.name
                ),
            )
            .detail(format!(
                "These read it: {}.",
                listed(running.iter().map(|o| o.name.as_str()))
            )));
        }
        let change = CatalogChange::Replace {
            name: old.name.clone(),
            object: Arc::new(new),
        };
        self.stage(change, None)
    }

    pub(in crate::session) async fn create_materialized_view(
        &mut self,
        create: &CreateMaterializedView,
    ) -> Result<StatementResult> {
        const TAG: &str = "CREATE MATERIALIZED VIEW";
        let create = &self.with_time_zone(create);
        let existing = self.existing(&create.name, create.if_not_exists, create.or_replace)?;
        self.check_readable(&create.query).await?;
        if let Existing::Skip = existing {
            return Ok(done(TAG));
        }
        self.check_secrets(&create.options)?;
        let (query, bound) = self.bind_for_pipeline(create).await?;
        if let Existing::Replace(old) = existing {
            if self.is_same_view(&old, create, &query, &bound) {
                self.notice(format!(
                    "materialized view \"{}\" is unchanged",
                    create.name
                ));
                return Ok(done(TAG));
            }
            self.replace_materialized_view(&old, create, query, bound)
                .await?;
            return Ok(done(TAG));
        }
        self.stage_materialized_view(create, query, bound).await?;
        Ok(done(TAG))
    }

    /// The statement with the zone whose clocks the query's times are of, so that a restart and
    /// `SHOW CREATE` know it: the session's, unless it says one.
    pub(super) fn with_time_zone(&self, create: &CreateMaterializedView) -> CreateMaterializedView {
        let mut create = create.clone();
        let zone = self.settings.get(TIME_ZONE);
        if let Some(zone) = zone.filter(|zone| !zones::is_utc(zone)) {
            let options = &mut create.options;
            options
                .entry(TIME_ZONE.to_owned())
                .or_insert(OptionValue::Text(zone));
        }
        create
    }

    /// The query of a materialized view: the text to keep, and what it is bound to.
    pub(super) async fn bind_for_pipeline(
        &mut self,
        create: &CreateMaterializedView,
    ) -> Result<(String, Bound)> {
        let query = binding::stored_text(&create.query_text, &create.name, &create.column_names);
        let zone = match create.options.get(TIME_ZONE) {
            Some(OptionValue::Text(zone)) => Some(zone.as_str()),
            _ => None,
        };
        // From the text: exactly what a restart will bind.
        let state = in_time_zone(self.planning_state(), zone);
        let parsed = planning::parse_query(&query)?;
        let mut bound = self.bind(state, &parsed, &[]).await?;
        if self.reads_temporary(&bound)? {
            return Err(Error::unsupported(
                "materialized views must not use temporary tables or views",
            ));
        }
        self.check_readable_by_pipeline(&bound)?;
        bound.functions = self.with_those_of_views(&bound);
        Ok((query, bound))
    }

    /// The view that a statement defines, in a pipeline.
    pub(super) fn defined_view(
        &self,
        create: &CreateMaterializedView,
        query: String,
        bound: &Bound,
        pipeline: &str,
    ) -> Arc<CatalogObject> {
        let mut object = self.new_object(
            &create.name,
            Definition::MaterializedView(MaterializedViewDefinition {
                query,
                columns: bound.columns.clone(),
                emit: create.emit,
                pipeline: pipeline.to_owned(),
                options: own_part(&create.options),
                versions: versions::present(&self.definitions(), &bound.depends_on),
                depends_on: bound.depends_on.clone(),
                functions: bound.functions.clone(),
            }),
        );
        follow_row_policy(Arc::make_mut(&mut object));
        object
    }

    async fn stage_materialized_view(
        &mut self,
        create: &CreateMaterializedView,
        query: String,
        bound: Bound,
    ) -> Result<()> {
        let chosen = self.choose_pipeline(create, &bound.depends_on)?;
        let settings = super::pipeline_part(&create.options);
        let object = self.defined_view(create, query, &bound, &chosen.name);
        // Says whether it can run, before anything is staged. What this transaction itself
        // creates the engine learns at the commit, and then it says so there.
        let committed = self.parts.catalog.snapshot();
        if self.reads_only(&committed, &object) {
            let planned = self
                .parts
                .engine()
                .planned(&object, &bound.plan, None)
                .await?;
            self.tell_of_unbounded_state(&create.name, &planned);
        }
        self.merge_pipelines(&create.name, &chosen)?;
        self.join_pipeline(&chosen.name, settings)?;
        self.stage(
            CatalogChange::Create(object.clone()),
            Some(Action::CreateView(object, Box::new(bound.plan))),
        )
    }

    /// Everything that a view reads, through plain views too, is in `committed`.
    fn reads_only(&self, committed: &CatalogSnapshot, object: &CatalogObject) -> bool {
        let mine = self.definitions();
        depends_on(&object.definition).all(|name| {
            let (Some(a), Some(b)) = (committed.object(name), mine.object(name)) else {
                return false;
            };
            a.oid == b.oid && self.reads_only(committed, a)
        })
    }

    /// Makes the pipeline, or lets the view's settings change the one that is there.
    pub(super) fn join_pipeline(&mut self, name: &str, settings: Options) -> Result<()> {
        let snapshot = self.definitions();
        let Some(existing) = snapshot.pipeline(name) else {
            let change = CatalogChange::PutPipeline(name.to_owned(), new_pipeline(settings));
            return self.stage(change, None);
        };
        let mut changed = existing.clone();
        changed.options.extend(settings);
        if changed == *existing {
            return Ok(());
        }
        let engine = self.parts.engine();
        let from = engine.checkpoint_location(name, &existing.options)?;
        if from != engine.checkpoint_location(name, &changed.options)? {
            changed.previous_location = Some(from);
        }
        self.notice(format!(
            "the options apply to all views of pipeline \"{name}\""
        ));
        let action = Action::AlterOptions(
            ObjectKind::Pipeline,
            KeptName::of_pipeline(name),
            changed.options.clone(),
        );
        self.stage(
            CatalogChange::PutPipeline(name.to_owned(), changed),
            Some(action),
        )
    }

    pub(super) fn is_same_view(
        &self,
        old: &CatalogObject,
        create: &CreateMaterializedView,
        query: &str,
        bound: &Bound,
    ) -> bool {
        let settings = super::pipeline_part(&create.options);
        match &old.definition {
            Definition::MaterializedView(view) => {
                let names_and_types = |columns: &[ColumnDefinition]| {
                    let of = |c: &ColumnDefinition| (c.name.clone(), c.sql_type.clone());
                    columns.iter().map(of).collect::<Vec<_>>()
                };
                present_query(old).is_some_and(|present| present == query.trim())
                    && view.functions == bound.functions
                    && view.emit == create.emit
                    && view.options == own_part(&create.options)
                    && names_and_types(&view.columns) == names_and_types(&bound.columns)
                    && self
                        .definitions()
                        .pipeline(&view.pipeline)
                        .is_some_and(|p| settings.iter().all(|(k, v)| p.options.get(k) == Some(v)))
            }
            _ => false,
        }
    }

    /// Plans a view's query and finds what it reads.
    async fn bind(
        &self,
        state: SessionState,
        query: &ast::Query,
        names: &[String],
    ) -> Result<Bound> {
        let statement = planning::query_statement(query);
        if let Some(number) = placeholders(&statement)?.first() {
            return Err(undefined_parameter(format!("${number}"))
                .detail("A view's query cannot have parameters."));
        }
        let bound = binding::bind(&state, statement.clone(), names).await?;
        let mut reads = planning::relations_read(&state, statement)?;
        for function in &bound.called {
            let Some(text) = function.query_text() else {
                continue;
            };
            let body = planning::parse_query(&text)?;
            let body = planning::query_statement(&body);
            let within = planning::relations_read(&state, body)?;
            reads.names.extend(within.names);
            reads.bare.extend(within.bare);
        }
        // A function of rows, such as generate_series, is constant and nothing to depend on.
        let snapshot = self.definitions();
        let is_relation = |name: &String| {
            snapshot.object(name).is_some() || !state.table_functions().contains_key(name)
        };
        Ok(Bound {
            plan: bound.plan,
            columns: bound.columns,
            depends_on: reads.names.into_iter().filter(is_relation).collect(),
            bare: reads.bare,
            functions: bound.called,
        })
    }

    /// The functions that a query calls and those of the plain views that it reads, as they are now.
    fn with_those_of_views(&self, bound: &Bound) -> Vec<Arc<FunctionDefinition>> {
        let snapshot = self.definitions();
        let mut functions: BTreeMap<u32, _> = bound
            .functions
            .iter()
            .map(|f| (f.oid, Arc::clone(f)))
            .collect();
        let mut open: Vec<&String> = bound.depends_on.iter().collect();
        while let Some(name) = open.pop() {
            if let Some(Definition::View(view)) = snapshot.object(name).map(|o| &o.definition) {
                let newest = functions::present(&self.planning_state(), &view.functions);
                functions.extend(newest.into_iter().map(|f| (f.oid, f)));
                open.extend(&view.depends_on);
            }
        }
        functions.into_values().collect()
    }

    /// A pipeline reads streams, tables and views; the system tables are not fed by changes.
    fn check_readable_by_pipeline(&self, bound: &Bound) -> Result<()> {
        let snapshot = self.definitions();
        for name in &bound.depends_on {
            if snapshot.object(name).is_none() {
                let what = match system_tables::schema_of(name) {
                    Some(_) => "system table",
                    None => "catalog table",
                };
                return Err(Error::unsupported(format!(
                    "a materialized view cannot read {what} \"{name}\""
                ))
                .hint("Create a view (CREATE VIEW) of the same query."));
            }
        }
        Ok(())
    }

    /// See [`Session::bind_materialized_view`].
    pub(in crate::session) async fn bind_stored_view(
        &self,
        object: &CatalogObject,
    ) -> Result<LogicalPlan> {
        let Definition::MaterializedView(view) = &object.definition else {
            return Err(wrong_kind(object, ObjectKind::MaterializedView));
        };
        binding::bind_text(&self.planning_state(), &view.query, &object.kept_names())
            .await
            .map_err(|e| e.context(format!("materialized view \"{}\"", object.name)))
    }

    /// Another name for a relation, unless that is taken.
    pub(super) fn rename_object(
        &mut self,
        object: &Arc<CatalogObject>,
        new_name: &str,
    ) -> Result<()> {
        let definitions = self.definitions();
        let is_taken = match object.is_temporary() {
            true => definitions.temporary().contains_key(new_name),
            false => definitions.permanent(new_name).is_some(),
        };
        let is_system = system_tables::schema_of(new_name).is_some() || new_name.starts_with("pg_");
        if is_taken || is_system {
            return Err(duplicate_relation(new_name));
        }
        let name = object.name.clone();
        if !object.is_temporary() {
            let change = CatalogChange::Rename {
                name,
                oid: object.oid,
                new_name: new_name.to_owned(),
            };
            return self.stage(change, None);
        }
        let before = object.reference();
        let mut renamed = CatalogObject::clone(object);
        renamed.name = new_name.to_owned();
        let reference = renamed.reference();
        let views = definitions.dependents(&name).into_iter().cloned();
        for mut view in views.collect::<Vec<_>>() {
            follow(Arc::make_mut(&mut view), &before, &reference);
            let name = view.name.clone();
            self.stage(CatalogChange::Replace { name, object: view }, None)?;
        }
        let object = Arc::new(renamed);
        self.stage(CatalogChange::Replace { name, object }, None)
    }
}

/// Makes references of the names of temporary tables and views; what these names mean in the query.
fn temporary_references(
    catalog: &CatalogSnapshot,
    bare: &BTreeSet<String>,
    reads: &mut [String],
) -> BTreeMap<String, String> {
    let mut meant = BTreeMap::new();
    for read in reads {
        let name = match temporary_name(read) {
            Some(name) => name,
            None if bare.contains(read) => read,
            None => continue,
        };
        if let Some(object) = catalog.temporary().get(name) {
            let reference = object.reference();
            meant.insert(name.to_owned(), reference.clone());
            *read = reference;
        }
    }
    meant
}

/// The columns of a view stay; new ones may follow.
pub(super) fn keeps_columns(old: &CatalogObject, new: &CatalogObject) -> bool {
    let mut pairs = old.columns().iter().zip(new.columns());
    old.columns().len() <= new.columns().len()
        && pairs.all(|(a, b)| a.name == b.name && a.sql_type == b.sql_type)
}

/// The options that are the view's own rather than its pipeline's, without those that only say
/// what the statement shall do.
pub(super) fn own_part(options: &Options) -> Options {
    let mut own = options.clone();
    own.retain(|name, _| {
        !super::is_pipeline_option(name) && name != "pipeline" && name != "reset_state"
    });
    own
}

/// An object reads `name`, directly or through views.
pub(super) fn reaches(snapshot: &CatalogSnapshot, object: &CatalogObject, name: &str) -> bool {
    depends_on(&object.definition).any(|read| {
        read == name
            || snapshot
                .object(read)
                .is_some_and(|next| reaches(snapshot, next, name))
    })
}
