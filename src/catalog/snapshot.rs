//! The catalog's contents at one version: immutable for its readers.
//!
//! Names of streams, tables, views and sinks share one name space, as relations do in PostgreSQL;
//! secrets and pipelines have one each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::FIRST_OID;
use super::access::{Access, ObjectKey};
use super::definition::{CatalogObject, Definition, OptionValue, Options, PipelineDefinition};
use super::function::FunctionDefinition;
use super::pg_catalog::PUBLIC_SCHEMA;
use super::schedule::ScheduleDefinition;
use super::temporary::{TEMPORARY_SCHEMA, TemporaryTables, temporary_name};
use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::ObjectKind;

/// An encrypted secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretRecord {
    /// When it was created or last altered, microseconds since the epoch; 0 when unknown.
    #[serde(default)]
    pub changed_at_us: i64,
    /// Nonce and sealed bytes, in hexadecimal.
    pub(super) sealed: String,
}

impl std::fmt::Debug for SecretRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretRecord(…)")
    }
}

/// All definitions at one version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CatalogSnapshot {
    version: u64,
    next_oid: u32,
    objects: BTreeMap<String, Arc<CatalogObject>>,
    pipelines: BTreeMap<String, PipelineDefinition>,
    secrets: BTreeMap<String, SecretRecord>,
    /// By their signatures.
    #[serde(default)]
    functions: BTreeMap<String, Arc<FunctionDefinition>>,
    /// Of recovery drills.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    schedules: BTreeMap<String, ScheduleDefinition>,
    /// Roles, owners and grants; a copy only where it changes.
    #[serde(default)]
    access: Arc<Access>,
    /// Those of the session that looks.
    #[serde(skip)]
    temporary: TemporaryTables,
}

/// The name spaces, to change them.
pub(super) struct PartsMut<'a> {
    pub objects: &'a mut BTreeMap<String, Arc<CatalogObject>>,
    pub pipelines: &'a mut BTreeMap<String, PipelineDefinition>,
    pub secrets: &'a mut BTreeMap<String, SecretRecord>,
    pub functions: &'a mut BTreeMap<String, Arc<FunctionDefinition>>,
    pub schedules: &'a mut BTreeMap<String, ScheduleDefinition>,
    pub access: &'a mut Arc<Access>,
    pub temporary: &'a mut TemporaryTables,
}

impl Default for CatalogSnapshot {
    fn default() -> Self {
        Self {
            version: 0,
            next_oid: FIRST_OID,
            objects: BTreeMap::new(),
            pipelines: BTreeMap::new(),
            secrets: BTreeMap::new(),
            functions: BTreeMap::new(),
            schedules: BTreeMap::new(),
            access: Arc::default(),
            temporary: TemporaryTables::new(),
        }
    }
}

impl CatalogSnapshot {
    /// Counts commits; equal versions mean equal contents.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A relation or sink by its folded name, the session's temporary tables before all others; a
    /// name with its schema in front means that one only.
    pub fn object(&self, name: &str) -> Option<&Arc<CatalogObject>> {
        let found = self.temporary.get(name).or_else(|| self.objects.get(name));
        found.or_else(|| match name.split_once('.')? {
            (PUBLIC_SCHEMA, name) => self.permanent(name),
            (TEMPORARY_SCHEMA, name) => self.temporary.get(name),
            _ => None,
        })
    }

    /// A relation or sink that all sessions see.
    pub fn permanent(&self, name: &str) -> Option<&Arc<CatalogObject>> {
        self.objects.get(name)
    }

    /// The temporary tables of the session that looks.
    pub fn temporary(&self) -> &TemporaryTables {
        &self.temporary
    }

    /// The same contents as a session sees them.
    pub fn with_temporary(&self, temporary: TemporaryTables) -> Self {
        Self {
            temporary,
            ..self.clone()
        }
    }

    /// A relation or sink by its identifier.
    pub fn object_by_oid(&self, oid: u32) -> Option<&Arc<CatalogObject>> {
        self.objects().find(|o| o.oid == oid)
    }

    /// All relations and sinks, by name; then the session's temporary tables.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<CatalogObject>> {
        self.objects.values().chain(self.temporary.values())
    }

    /// A pipeline's settings.
    pub fn pipeline(&self, name: &str) -> Option<&PipelineDefinition> {
        self.pipelines.get(name)
    }

    /// All pipelines, by name.
    pub fn pipelines(&self) -> impl Iterator<Item = (&String, &PipelineDefinition)> {
        self.pipelines.iter()
    }

    /// Names of all secrets, with when they last changed.
    pub fn secret_names(&self) -> impl Iterator<Item = (&String, i64)> {
        self.secrets.iter().map(|(n, r)| (n, r.changed_at_us))
    }

    /// A secret exists.
    pub fn has_secret(&self, name: &str) -> bool {
        self.secrets.contains_key(name)
    }

    pub(super) fn secret(&self, name: &str) -> Option<&SecretRecord> {
        self.secrets.get(name)
    }

    pub(super) fn secrets_is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    pub(super) fn next_oid(&self) -> u32 {
        self.next_oid
    }

    pub(super) fn set_next_oid(&mut self, next_oid: u32) {
        self.next_oid = next_oid;
    }

    pub(super) fn bump_version(&mut self) {
        self.version += 1;
    }

    pub(super) fn parts_mut(&mut self) -> PartsMut<'_> {
        PartsMut {
            objects: &mut self.objects,
            pipelines: &mut self.pipelines,
            secrets: &mut self.secrets,
            functions: &mut self.functions,
            schedules: &mut self.schedules,
            access: &mut self.access,
            temporary: &mut self.temporary,
        }
    }

    /// Roles, owners and grants.
    pub fn access(&self) -> &Arc<Access> {
        &self.access
    }

    /// What was granted of objects that are no longer there goes.
    pub(super) fn settle_access(&mut self) -> Result<()> {
        let exists = |key: &ObjectKey| match key {
            ObjectKey::Database | ObjectKey::Schema => true,
            ObjectKey::Relation(oid) | ObjectKey::Column(oid, _) => {
                self.objects.values().any(|o| o.oid == *oid)
            }
            ObjectKey::Pipeline(name) => self.pipelines.contains_key(name),
            ObjectKey::Secret(name) => self.secrets.contains_key(name),
            ObjectKey::Function(oid) => self.functions.values().any(|f| f.oid == *oid),
        };
        if self.access.entries().any(|(key, _)| !exists(key)) {
            let mut access = Access::clone(&self.access);
            access.retain(exists);
            self.access = Arc::new(access);
        }
        self.access.check_roles()
    }

    /// All schedules of recovery drills, by name.
    pub fn schedules(&self) -> impl Iterator<Item = (&String, &ScheduleDefinition)> {
        self.schedules.iter()
    }

    /// A schedule of recovery drills.
    pub fn schedule(&self, name: &str) -> Option<&ScheduleDefinition> {
        self.schedules.get(name)
    }

    /// The pipeline of the view or sink of that name, or the one of that name. In this order: a pipeline keeps its
    /// name where its view is renamed, and who says the name then means the new view of that name.
    pub fn pipeline_named(&self, name: &str) -> Option<&str> {
        let object = self.object(name);
        let of_object = object.and_then(|object| pipeline_of(&object.definition));
        let own = || self.pipelines.get_key_value(name);
        of_object.or_else(|| own().map(|(pipeline, _)| pipeline.as_str()))
    }

    /// The pipeline that a schedule drills: the one that it holds, or that of the view or sink that it names.
    pub fn scheduled_pipeline(&self, schedule: &ScheduleDefinition) -> Option<&str> {
        let target = &schedule.target;
        match self.pipelines.get_key_value(target) {
            Some((pipeline, _)) => Some(pipeline),
            None => self.pipeline_named(target),
        }
    }

    /// All functions, by signature.
    pub fn functions(&self) -> impl Iterator<Item = &Arc<FunctionDefinition>> {
        self.functions.values()
    }

    /// The function of a signature.
    pub fn function(&self, signature: &str) -> Option<&Arc<FunctionDefinition>> {
        self.functions.get(signature)
    }

    /// Aggregates that are made of a function.
    pub fn aggregates_of(&self, function: &FunctionDefinition) -> Vec<Arc<FunctionDefinition>> {
        let signature = function.signature();
        let is_part = |a: &&Arc<FunctionDefinition>| a.parts().contains(&signature);
        self.functions.values().filter(is_part).cloned().collect()
    }

    /// Views that call a function, directly or through others, by name.
    pub fn function_users(&self, oid: u32) -> Vec<Arc<CatalogObject>> {
        let calls = |o: &&Arc<CatalogObject>| o.functions().iter().any(|f| f.oid == oid);
        self.objects.values().filter(calls).cloned().collect()
    }

    /// The object as it is now; 40001 if it was dropped or replaced by a namesake.
    pub fn require_same(&self, object: &CatalogObject) -> Result<&Arc<CatalogObject>> {
        let found = self.object(&object.name);
        let found = found.filter(|o| o.oid == object.oid);
        // A later statement of a transaction may have renamed it.
        found
            .or_else(|| self.object_by_oid(object.oid))
            .ok_or_else(|| {
                Error::new(
                    sqlstate::SERIALIZATION_FAILURE,
                    format!("relation \"{}\" was dropped meanwhile", object.name),
                )
                .hint("Run the transaction again.")
            })
    }

    /// The object of a kind and name, or the error that PostgreSQL gives (42P01, 42809).
    pub fn require(&self, kind: ObjectKind, name: &str) -> Result<&Arc<CatalogObject>> {
        let object = self.object(name).ok_or_else(|| undefined(kind, name))?;
        if kind_of(&object.definition) != kind {
            return Err(wrong_kind(object, kind));
        }
        Ok(object)
    }

    /// The views and materialized views that run in or the sinks that belong to a pipeline. Indexes
    /// are parts of their views.
    pub fn pipeline_members(&self, pipeline: &str) -> Vec<&Arc<CatalogObject>> {
        let mut members = self.running_in(pipeline);
        members.retain(|o| !matches!(o.definition, Definition::Index(_)));
        members
    }

    /// As [`Self::pipeline_members`], with the indexes.
    pub fn running_in(&self, pipeline: &str) -> Vec<&Arc<CatalogObject>> {
        self.objects
            .values()
            .filter(|o| pipeline_of(&o.definition) == Some(pipeline))
            .collect()
    }

    /// Objects that name `name` directly, by name.
    pub fn dependents(&self, name: &str) -> Vec<&Arc<CatalogObject>> {
        let temporary = self.temporary.get(name).map(|object| object.reference());
        let reference = temporary.unwrap_or_else(|| name.to_owned());
        self.objects()
            .filter(|o| depends_on(&o.definition).any(|d| *d == reference))
            .collect()
    }

    /// All objects that need `name`, directly or not, in an order in which they can be dropped.
    pub fn dependents_in_drop_order(&self, name: &str) -> Vec<Arc<CatalogObject>> {
        let mut needed = BTreeSet::new();
        let mut open = vec![name.to_owned()];
        while let Some(next) = open.pop() {
            for dependent in self.dependents(&next) {
                if needed.insert(dependent.reference()) {
                    open.push(dependent.reference());
                }
            }
        }
        let mut order: Vec<_> = self
            .in_dependency_order()
            .into_iter()
            .filter(|o| needed.contains(&o.reference()))
            .collect();
        order.reverse();
        order
    }

    /// All objects, each after everything it depends on; ties by identifier.
    pub fn in_dependency_order(&self) -> Vec<Arc<CatalogObject>> {
        let mut waiting: Vec<_> = self.objects().cloned().collect();
        waiting.sort_by_key(|o| o.oid);
        let mut placed = BTreeSet::new();
        let mut order = Vec::with_capacity(waiting.len());
        while !waiting.is_empty() {
            let before = order.len();
            waiting.retain(|object| {
                let is_ready = depends_on(&object.definition)
                    .all(|d| placed.contains(d) || !self.has_reference(d));
                if is_ready {
                    placed.insert(object.reference());
                    order.push(object.clone());
                }
                !is_ready
            });
            assert!(order.len() > before, "definitions cannot form a circle");
        }
        order
    }

    /// There is what a definition names.
    fn has_reference(&self, reference: &str) -> bool {
        match temporary_name(reference) {
            Some(name) => self.temporary.contains_key(name),
            None => self.objects.contains_key(reference),
        }
    }

    /// Objects whose options name a secret.
    pub fn secret_users(&self, secret: &str) -> Vec<&Arc<CatalogObject>> {
        let uses = |options: &Options| {
            options
                .values()
                .any(|v| matches!(v, OptionValue::Secret(s) if s == secret))
        };
        self.objects
            .values()
            .filter(|o| options_of(&o.definition).is_some_and(uses))
            .collect()
    }

    /// Everything that a definition names exists.
    pub(super) fn check_references(&self) -> Result<()> {
        for object in self.objects.values() {
            if let Some(missing) =
                depends_on(&object.definition).find(|d| !self.objects.contains_key(*d))
            {
                return Err(Error::new(
                    sqlstate::DEPENDENT_OBJECTS,
                    format!(
                        "{} {} needs relation \"{missing}\", which another transaction dropped",
                        kind_name(kind_of(&object.definition)),
                        object.name
                    ),
                ));
            }
            let is_missing = |oid: u32| !self.functions.values().any(|f| f.oid == oid);
            if let Some(missing) = object.functions().iter().find(|f| is_missing(f.oid)) {
                return Err(Error::new(
                    sqlstate::DEPENDENT_OBJECTS,
                    format!(
                        "{} {} needs function {}, which another transaction dropped",
                        kind_name(kind_of(&object.definition)),
                        object.name,
                        missing.signature()
                    ),
                ));
            }
            if let Some(pipeline) = pipeline_of(&object.definition)
                && !self.pipelines.contains_key(pipeline)
            {
                return Err(Error::internal(format!(
                    "pipeline \"{pipeline}\" of \"{}\" is not in the catalog",
                    object.name
                )));
            }
        }
        Ok(())
    }
}

/// Relations that a definition reads, by name.
pub fn depends_on(definition: &Definition) -> Box<dyn Iterator<Item = &String> + '_> {
    match definition {
        Definition::Stream(_) | Definition::Table(_) => Box::new(std::iter::empty()),
        Definition::MaterializedView(d) => Box::new(d.depends_on.iter()),
        Definition::View(d) => Box::new(d.depends_on.iter()),
        Definition::Sink(d) => Box::new(std::iter::once(&d.from)),
        Definition::Index(d) => Box::new(std::iter::once(&d.view)),
    }
}

/// The pipeline that a definition runs in, if it runs.
pub fn pipeline_of(definition: &Definition) -> Option<&str> {
    match definition {
        Definition::MaterializedView(d) => Some(&d.pipeline),
        Definition::Sink(d) => Some(&d.pipeline),
        Definition::Index(d) => Some(&d.pipeline),
        _ => None,
    }
}

/// A definition's own options.
pub fn options_of(definition: &Definition) -> Option<&Options> {
    match definition {
        Definition::Stream(d) => Some(&d.options),
        Definition::Table(d) => Some(&d.options),
        Definition::MaterializedView(d) => Some(&d.options),
        Definition::Sink(d) => Some(&d.options),
        Definition::View(_) | Definition::Index(_) => None,
    }
}

/// As [`options_of`], to change them.
pub fn options_of_mut(definition: &mut Definition) -> Option<&mut Options> {
    match definition {
        Definition::Stream(d) => Some(&mut d.options),
        Definition::Table(d) => Some(&mut d.options),
        Definition::MaterializedView(d) => Some(&mut d.options),
        Definition::Sink(d) => Some(&mut d.options),
        Definition::View(_) | Definition::Index(_) => None,
    }
}

/// The kind of a definition.
pub fn kind_of(definition: &Definition) -> ObjectKind {
    match definition {
        Definition::Stream(_) => ObjectKind::Stream,
        Definition::Table(_) => ObjectKind::Table,
        Definition::MaterializedView(_) => ObjectKind::MaterializedView,
        Definition::View(_) => ObjectKind::View,
        Definition::Sink(_) => ObjectKind::Sink,
        Definition::Index(_) => ObjectKind::Index,
    }
}

/// A kind as messages write it.
pub fn kind_name(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Stream => "stream",
        ObjectKind::Table => "table",
        ObjectKind::MaterializedView => "materialized view",
        ObjectKind::View => "view",
        ObjectKind::Sink => "sink",
        ObjectKind::Index => "index",
        ObjectKind::Pipeline => "pipeline",
        ObjectKind::Secret => "secret",
    }
}

/// A kind with its article.
pub fn a_kind(kind: ObjectKind) -> String {
    let article = if kind == ObjectKind::Index { "an" } else { "a" };
    format!("{article} {}", kind_name(kind))
}

/// A kind as statements write it.
pub fn kind_keyword(kind: ObjectKind) -> String {
    kind_name(kind).to_uppercase()
}

/// PostgreSQL's error for a name that is not there.
pub fn undefined(kind: ObjectKind, name: &str) -> Error {
    let (code, what) = match kind {
        ObjectKind::Stream
        | ObjectKind::Table
        | ObjectKind::View
        | ObjectKind::MaterializedView => (sqlstate::UNDEFINED_TABLE, kind_name(kind)),
        _ => (sqlstate::UNDEFINED_OBJECT, kind_name(kind)),
    };
    Error::new(code, format!("{what} \"{name}\" does not exist"))
}

/// PostgreSQL's error for an object of another kind.
pub fn wrong_kind(object: &CatalogObject, wanted: ObjectKind) -> Error {
    let is = kind_of(&object.definition);
    Error::new(
        sqlstate::WRONG_OBJECT_TYPE,
        format!("\"{}\" is not {}", object.name, a_kind(wanted)),
    )
    .detail(format!("It is {}.", a_kind(is)))
    .hint(format!("Say {} {}.", kind_keyword(is), object.name))
}
