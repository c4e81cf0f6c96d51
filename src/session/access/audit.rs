//! The audit trail: who changed definitions, roles, grants or pipelines, from where, and by which
//! statement, as rows of `streaming_events` of the kind `statement`.
//!
//! What failed is told too, with its SQLSTATE: what somebody tried is worth knowing. A statement of a
//! transaction that is rolled back later stays in the trail. Rows that are read or changed are not
//! part of it.

use serde_json::json;

use super::super::Session;
use super::super::work::record_event;
use crate::catalog::system_tables::STATEMENT_EVENT;
use crate::error::Error;
use crate::sql::access::{AccessStatement, Owned};
use crate::sql::masking::shown;
use crate::sql::statement::Statement;

impl Session {
    /// The text of the statement that comes next, for the audit trail.
    pub fn announce(&mut self, text: &str) {
        self.announced.clear();
        self.announced.push_str(&shown(text));
    }

    /// Keeps what somebody did, or tried.
    pub(in crate::session) fn record_statement(
        &self,
        statement: &Statement,
        error: Option<&Error>,
    ) {
        let Some(object) = audited(statement) else {
            return;
        };
        let activity = self.backend.activity();
        let subject = self.scope.subject();
        let detail = json!({
            "user": self.identity.name(),
            "role": subject.name,
            "client_address": activity.client_address.map(|a| a.to_string()),
            "application_name": activity.application_name,
            "statement": self.announced,
            "sqlstate": error.map(|e| e.sqlstate()),
        });
        record_event(&self.parts, STATEMENT_EVENT, &object, detail);
    }
}

/// What a statement of the trail is about; `None`: it is not of the trail.
fn audited(statement: &Statement) -> Option<String> {
    let listed = |names: &[String]| Some(names.join(", "));
    match statement {
        Statement::CreateStream(create) => Some(create.name.clone()),
        Statement::CreateTable(create) => Some(create.name.clone()),
        Statement::CreateMaterializedView(create) => Some(create.name.clone()),
        Statement::CreateView(create) => Some(create.name.clone()),
        Statement::CreateSink(create) => Some(create.name.clone()),
        Statement::CreateIndex(create) => Some(create.relation.clone()),
        Statement::CreateFunction(create) => Some(create.name.clone()),
        Statement::CreateAggregate(create) => Some(create.name.clone()),
        Statement::DropFunction { functions, .. }
        | Statement::DropAggregate {
            aggregates: functions,
            ..
        } => {
            let names: Vec<_> = functions.iter().map(|f| f.name.clone()).collect();
            listed(&names)
        }
        Statement::CreateSecret { name, .. }
        | Statement::AlterSecret { name, .. }
        | Statement::AlterOptions { name, .. }
        | Statement::AlterRelation { name, .. }
        | Statement::Rename { name, .. }
        | Statement::Comment { name, .. }
        | Statement::Refresh(name) => Some(name.clone()),
        Statement::CreateRecoverySchedule(create) => Some(create.name.clone()),
        Statement::DropRecoverySchedule { names, .. } | Statement::Drop { names, .. } => {
            listed(names)
        }
        Statement::Start(target, _) | Statement::Stop(target, _) => {
            let name = target.as_ref().map(|(_, name)| name.clone());
            Some(name.unwrap_or_else(|| "all".to_owned()))
        }
        // Those that only look are asked by every script.
        Statement::Recovery(recovery) => (recovery.is_refused_in_block())
            .then(|| recovery.target().unwrap_or("database").to_owned()),
        Statement::Access(access) => Some(of_access(access)),
        _ => None,
    }
}

fn of_access(statement: &AccessStatement) -> String {
    match statement {
        AccessStatement::CreateRole { name, .. } | AccessStatement::RenameRole { name, .. } => {
            name.clone()
        }
        AccessStatement::AlterOwner { object, .. } => match object {
            Owned::Object(_, name) | Owned::Schema(name) | Owned::Database(name) => name.clone(),
            Owned::Function(function) => function.name.clone(),
        },
        AccessStatement::AlterRole { .. }
        | AccessStatement::AlterRoleSetting { .. }
        | AccessStatement::DropRole { .. }
        | AccessStatement::Grant(_)
        | AccessStatement::GrantRole(_)
        | AccessStatement::DefaultGrant(_)
        | AccessStatement::ReassignOwned { .. }
        | AccessStatement::DropOwned { .. } => "roles".to_owned(),
    }
}
