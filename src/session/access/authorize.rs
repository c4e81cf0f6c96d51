//! One place that says what each statement needs before it runs.
//!
//! Every statement has its line, so that a new one cannot be forgotten. What a query reads is checked
//! where its names become relations ([`super::guard`]), what a change of rows needs in
//! `dml/needs.rs`, what roles and grants need where they are carried out. Superusers pass at once.

use super::checks::Checks;
use super::identity::denied;
use crate::catalog::access::ObjectKey;
use crate::catalog::access::acl::Privileges;
use crate::catalog::definition::{OptionValue, Options};
use crate::catalog::pg_catalog::DATABASE_NAME;
use crate::error::Result;
use crate::session::Session;
use crate::sql::recovery::RecoveryStatement;
use crate::sql::statement::{CopyTarget, FunctionReference, ObjectKind, Statement};

impl Session {
    /// Refuses what the session's role may not do.
    pub(in crate::session) fn authorize(&self, statement: &Statement) -> Result<()> {
        let subject = self.scope.subject();
        if subject.is_superuser {
            return Ok(());
        }
        let catalog = self.definitions();
        let checks = Checks {
            catalog: &catalog,
            subject: &subject,
        };
        checks.statement(statement)?;
        match location(statement) {
            Some(location) => self.parts.paths.check(location),
            None => Ok(()),
        }
    }
}

/// Where a statement of an operator reads or writes beside the data directory.
fn location(statement: &Statement) -> Option<&str> {
    match statement {
        Statement::CreateMaterializedView(create) => checkpoint_location(&create.options),
        Statement::CreateSink(create) => checkpoint_location(&create.options),
        Statement::AlterOptions { set, .. } => checkpoint_location(set),
        Statement::Recovery(
            RecoveryStatement::BackupCheckpoint { to: Some(at), .. }
            | RecoveryStatement::RestoreCheckpoint { from: at, .. },
        ) => Some(at),
        _ => None,
    }
}

fn checkpoint_location(options: &Options) -> Option<&str> {
    match options.get("checkpoint_location") {
        Some(OptionValue::Text(location)) => Some(location),
        _ => None,
    }
}

impl Checks<'_> {
    fn statement(&self, statement: &Statement) -> Result<()> {
        match statement {
            Statement::CreateStream(create) => {
                self.replacement(&create.name, create.or_replace)?;
                self.creation(&create.options)
            }
            Statement::CreateTable(create) if create.temporary.is_some() => {
                self.temporary_creation(&create.options)
            }
            Statement::CreateTable(create) => self.creation(&create.options),
            Statement::CreateMaterializedView(create) => {
                self.pipeline_choice(&create.options)?;
                self.replacement(&create.name, create.or_replace)?;
                self.creation(&create.options)
            }
            Statement::CreateView(create) if create.is_temporary => {
                self.temporary_creation(&Options::new())
            }
            Statement::CreateView(create) => {
                self.replacement(&create.name, create.or_replace)?;
                self.creation(&Options::new())
            }
            Statement::CreateSink(create) => {
                self.relation_named(&create.from, Privileges::SELECT)?;
                self.pipeline_choice(&create.options)?;
                self.creation(&create.options)
            }
            Statement::CreateIndex(create) => self.relation_owner(&create.relation),
            Statement::CreateFunction(create) => self.function_creation(&create.name),
            Statement::CreateAggregate(create) => self.function_creation(&create.name),
            Statement::DropFunction { functions, .. }
            | Statement::DropAggregate {
                aggregates: functions,
                ..
            } => functions.iter().try_for_each(|f| self.function_owner(f)),
            Statement::CreateSecret { .. } => self.create_in_schema(),
            Statement::AlterSecret { name, .. } => self.object_owner(ObjectKind::Secret, name),
            Statement::CreateRecoverySchedule(create) => self.recovery_of_named(&create.target),
            Statement::DropRecoverySchedule { names, .. } => {
                let mut schedules = names.iter().filter_map(|name| self.catalog.schedule(name));
                schedules.try_for_each(|s| self.recovery_of_named(&s.target))
            }
            Statement::Drop { kind, names, .. } => {
                names.iter().try_for_each(|n| self.object_owner(*kind, n))
            }
            Statement::AlterOptions {
                kind, name, set, ..
            } => {
                self.secrets(set)?;
                self.object_owner(*kind, name)
            }
            Statement::AlterRelation { kind, name, .. } | Statement::Comment { kind, name, .. } => {
                self.object_owner(*kind, name)
            }
            Statement::Rename { kind, name, .. } => {
                self.object_owner(*kind, name)?;
                self.create_in_schema()
            }
            Statement::Start(target, _) | Statement::Stop(target, _) => match target {
                Some((_, name)) => self.recovery_of_named(name),
                None => self.recovery_of_all(),
            },
            Statement::Refresh(view) => self.recovery_of_named(view),
            Statement::Wait(view, _) => self.reading_or_recovery(view),
            Statement::ExplainMaterializedView { name, .. } => self.reading_or_recovery(name),
            Statement::Subscribe(subscribe) => {
                self.relation_named(&subscribe.name, Privileges::SELECT)
            }
            Statement::Recovery(recovery) => self.recovery(recovery),
            Statement::DeclareCursor { query, .. } => self.statement(query),
            Statement::Copy(copy) => match &copy.target {
                CopyTarget::Query(query) => self.statement(query),
                CopyTarget::Relation(name, columns) if copy.from_stdin => {
                    self.copy_into(name, columns)
                }
                // Read as a query is.
                CopyTarget::Relation(..) => Ok(()),
            },
            Statement::ExplainReplace(create) => self.relation_owner(&create.name),
            // What they read and change is checked where it is planned.
            Statement::Query(_)
            | Statement::Insert(_)
            | Statement::Update(_)
            | Statement::Delete(_)
            | Statement::Truncate(_)
            | Statement::Explain(_)
            | Statement::Execute { .. }
            | Statement::Access(_) => Ok(()),
            // Definitions are everyone's to read, as those of `pg_class` are.
            Statement::ShowFunctions
            | Statement::ShowCreateFunction(_)
            | Statement::ShowObjects(_)
            | Statement::ShowCreate(..)
            | Statement::ShowOptions(_)
            | Statement::Describe(_)
            | Statement::ShowParameter(_) => Ok(()),
            // The session's own.
            Statement::Flush
            | Statement::SetParameter { .. }
            | Statement::ResetParameter(_)
            | Statement::Begin(_)
            | Statement::SetTransaction { .. }
            | Statement::Commit { .. }
            | Statement::Rollback { .. }
            | Statement::Savepoint(_)
            | Statement::ReleaseSavepoint(_)
            | Statement::RollbackToSavepoint(_)
            | Statement::Prepare { .. }
            | Statement::Deallocate(_)
            | Statement::Fetch { .. }
            | Statement::Move { .. }
            | Statement::CloseCursor(_)
            | Statement::Discard(_)
            | Statement::Listen(_)
            | Statement::Unlisten(_)
            | Statement::Notify { .. }
            | Statement::NoOperation(_) => Ok(()),
        }
    }

    /// A new relation.
    fn creation(&self, options: &Options) -> Result<()> {
        self.create_in_schema()?;
        self.secrets(options)
    }

    /// A new table of the session's own.
    fn temporary_creation(&self, options: &Options) -> Result<()> {
        let access = self.access();
        match access.allows(self.subject, &ObjectKey::Database, Privileges::TEMPORARY) {
            true => self.secrets(options),
            false => Err(denied(format!(
                "permission denied to create temporary tables in database \"{DATABASE_NAME}\""
            ))),
        }
    }

    /// What is replaced must be the subject's own.
    fn replacement(&self, name: &str, or_replace: bool) -> Result<()> {
        match or_replace {
            true => self.relation_owner(name),
            false => Ok(()),
        }
    }

    fn secrets(&self, options: &Options) -> Result<()> {
        options.values().try_for_each(|value| match value {
            OptionValue::Secret(name) => self.secret_use(name),
            OptionValue::Text(_) => Ok(()),
        })
    }

    /// Who joins a pipeline by its name has a say in it.
    fn pipeline_choice(&self, options: &Options) -> Result<()> {
        match options.get("pipeline") {
            Some(OptionValue::Text(name)) if self.catalog.pipeline(name).is_some() => self.owner(
                &ObjectKey::Pipeline(name.clone()),
                &format!("pipeline {name}"),
            ),
            _ => Ok(()),
        }
    }

    fn function_creation(&self, name: &str) -> Result<()> {
        self.create_in_schema()?;
        let mut same = self.catalog.functions().filter(|f| f.name == name);
        same.try_for_each(|f| self.owner(&ObjectKey::Function(f.oid), &format!("function {name}")))
    }

    fn function_owner(&self, function: &FunctionReference) -> Result<()> {
        let name = &function.name;
        let mut same = self.catalog.functions().filter(|f| f.name == *name);
        same.try_for_each(|f| self.owner(&ObjectKey::Function(f.oid), &format!("function {name}")))
    }

    /// It owns an object of any kind.
    pub fn object_owner(&self, kind: ObjectKind, name: &str) -> Result<()> {
        match kind {
            ObjectKind::Pipeline if self.catalog.pipeline(name).is_some() => self.owner(
                &ObjectKey::Pipeline(name.to_owned()),
                &format!("pipeline {name}"),
            ),
            ObjectKind::Secret if self.catalog.has_secret(name) => self.owner(
                &ObjectKey::Secret(name.to_owned()),
                &format!("secret {name}"),
            ),
            ObjectKind::Pipeline | ObjectKind::Secret => Ok(()),
            _ => self.relation_owner(name),
        }
    }

    fn recovery_of_all(&self) -> Result<()> {
        let mut pipelines = self.catalog.pipelines();
        pipelines.try_for_each(|(name, _)| self.recovery_of(name))
    }

    fn reading_or_recovery(&self, name: &str) -> Result<()> {
        match self.catalog.pipeline_named(name) {
            Some(pipeline) if self.may_recover(pipeline) => Ok(()),
            _ => self.relation_named(name, Privileges::SELECT),
        }
    }

    fn copy_into(&self, name: &str, columns: &[String]) -> Result<()> {
        let Some(object) = self.catalog.object(name) else {
            return Ok(());
        };
        let named = columns.iter();
        let listed: Vec<usize> = named
            .filter_map(|c| object.columns().iter().position(|own| own.name == *c))
            .collect();
        let all = (0..object.columns().len()).collect();
        let columns = if columns.is_empty() { all } else { listed };
        self.relation(object, Privileges::INSERT, &columns)
    }

    fn recovery(&self, statement: &RecoveryStatement) -> Result<()> {
        match statement.target() {
            Some(name) => self.recovery_of_named(name),
            None => Err(denied(format!("permission denied for {}", statement.tag()))
                .hint("It holds everything: a superuser may take it.")),
        }
    }
}
