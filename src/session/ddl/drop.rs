//! `DROP`: nothing that others need goes without `CASCADE`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::rowset::done;
use super::super::work::Action;
use super::super::{Session, StatementResult};
use crate::catalog::changes::CatalogChange;
use crate::catalog::definition::{CatalogObject, Definition};
use crate::catalog::snapshot::{kind_keyword, kind_name, kind_of, pipeline_of, undefined};
use crate::catalog::temporary::TEMPORARY_SCHEMA;
use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::ObjectKind;

impl Session {
    pub(in crate::session) fn drop_objects(
        &mut self,
        kind: ObjectKind,
        names: &[String],
        if_exists: bool,
        cascade: bool,
    ) -> Result<StatementResult> {
        match kind {
            ObjectKind::Secret => self.drop_secrets(names, if_exists)?,
            ObjectKind::Pipeline => self.drop_pipelines(names, if_exists, cascade)?,
            _ => {
                let targets = self.targets(kind, names, if_exists)?;
                self.drop_with_dependents(&targets, cascade)?;
            }
        }
        Ok(done(format!("DROP {}", kind_keyword(kind))))
    }

    fn targets(
        &mut self,
        kind: ObjectKind,
        names: &[String],
        if_exists: bool,
    ) -> Result<Vec<Arc<CatalogObject>>> {
        let snapshot = self.definitions();
        let mut targets = Vec::new();
        for name in names {
            let is_missing = snapshot.object(name).is_none();
            let name = match name.split_once('.') {
                Some((TEMPORARY_SCHEMA, name)) if is_missing => name,
                _ => name.as_str(),
            };
            if is_missing && !if_exists {
                return Err(undefined(kind, name));
            }
            if is_missing {
                self.notice(format!(
                    "{} \"{name}\" does not exist, skipping",
                    kind_name(kind)
                ));
                continue;
            }
            targets.push(snapshot.require(kind, name)?.clone());
        }
        Ok(targets)
    }

    pub(in crate::session) fn drop_with_dependents(
        &mut self,
        targets: &[Arc<CatalogObject>],
        cascade: bool,
    ) -> Result<()> {
        let snapshot = self.definitions();
        let named: BTreeSet<&str> = targets.iter().map(|t| t.name.as_str()).collect();
        let mut order: Vec<Arc<CatalogObject>> = Vec::new();
        for target in targets {
            let dependents = snapshot.dependents_in_drop_order(&target.name);
            let unnamed: Vec<_> = dependents
                .iter()
                .filter(|d| !named.contains(d.name.as_str()) && !goes_along(d))
                .collect();
            if !unnamed.is_empty() && !cascade {
                return Err(has_dependents(target, &unnamed));
            }
            for object in dependents.into_iter().chain([target.clone()]) {
                // What is dropped later must not be dropped twice, and after all that needs it.
                order.retain(|o| o.oid != object.oid);
                order.push(object);
            }
        }
        let ranks = snapshot.in_dependency_order();
        order.sort_by_key(|o| rank(&ranks, o));
        let extra: Vec<String> = order
            .iter()
            .filter(|o| !named.contains(o.name.as_str()) && !goes_along(o))
            .map(|o| described(o))
            .collect();
        if !extra.is_empty() {
            self.notice(format!("drop cascades to {}", extra.join(", ")));
        }
        for object in order.into_iter().rev() {
            self.drop_one(&object)?;
        }
        Ok(())
    }

    /// Objects and all that needs them, which the caller has told of.
    pub(super) fn drop_silently(&mut self, targets: &[Arc<CatalogObject>]) -> Result<()> {
        for target in targets {
            let dependents = self.definitions().dependents_in_drop_order(&target.name);
            for object in dependents.into_iter().chain([target.clone()]) {
                if self.definitions().object(&object.name).is_some() {
                    self.drop_one(&object)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn drop_one(&mut self, object: &Arc<CatalogObject>) -> Result<()> {
        let action = match &object.definition {
            Definition::View(_) => None,
            _ => Some(Action::Drop(object.clone())),
        };
        let change = CatalogChange::Drop {
            name: object.name.clone(),
            oid: object.oid,
        };
        self.stage(change, action)?;
        let Some(pipeline) = pipeline_of(&object.definition) else {
            return Ok(());
        };
        if self.definitions().pipeline_members(pipeline).is_empty() {
            self.stage(CatalogChange::DropPipeline(pipeline.to_owned()), None)?;
        }
        Ok(())
    }

    fn drop_secrets(&mut self, names: &[String], if_exists: bool) -> Result<()> {
        for name in names {
            let snapshot = self.definitions();
            if !snapshot.has_secret(name) {
                if if_exists {
                    self.notice(format!("secret \"{name}\" does not exist, skipping"));
                    continue;
                }
                return Err(undefined(ObjectKind::Secret, name));
            }
            let users = snapshot.secret_users(name);
            if !users.is_empty() {
                let users: Vec<_> = users.iter().map(|o| described(o)).collect();
                return Err(Error::new(
                    sqlstate::DEPENDENT_OBJECTS,
                    format!("cannot drop secret \"{name}\" because other objects use it"),
                )
                .detail(format!("These use it: {}.", users.join(", ")))
                .hint("Drop them first, or give them another secret with ALTER … SET."));
            }
            self.stage(CatalogChange::DropSecret(name.clone()), None)?;
        }
        Ok(())
    }

    /// A pipeline goes with its views and sinks, and with nothing else of its own.
    fn drop_pipelines(&mut self, names: &[String], if_exists: bool, cascade: bool) -> Result<()> {
        for name in names {
            let snapshot = self.definitions();
            if snapshot.pipeline(name).is_none() {
                if if_exists {
                    self.notice(format!("pipeline \"{name}\" does not exist, skipping"));
                    continue;
                }
                return Err(undefined(ObjectKind::Pipeline, name));
            }
            let members: Vec<_> = snapshot
                .pipeline_members(name)
                .into_iter()
                .cloned()
                .collect();
            if !cascade && !members.is_empty() {
                let listed: Vec<_> = members.iter().map(|o| described(o)).collect();
                return Err(Error::new(
                    sqlstate::DEPENDENT_OBJECTS,
                    format!("cannot drop pipeline \"{name}\" because it runs other objects"),
                )
                .detail(format!("It runs {}.", listed.join(", ")))
                .hint(format!(
                    "Say DROP PIPELINE {name} CASCADE to drop them too."
                )));
            }
            self.drop_with_dependents(&members, true)?;
        }
        Ok(())
    }
}

/// It is a part of what it depends on, and goes without being named.
fn goes_along(object: &CatalogObject) -> bool {
    matches!(object.definition, Definition::Index(_))
}

fn has_dependents(target: &CatalogObject, dependents: &[&Arc<CatalogObject>]) -> Error {
    let what = described(target);
    let detail: Vec<_> = dependents
        .iter()
        .map(|d| format!("{} depends on {what}.", described(d)))
        .collect();
    let keyword = kind_keyword(kind_of(&target.definition));
    Error::new(
        sqlstate::DEPENDENT_OBJECTS,
        format!("cannot drop {what} because other objects depend on it"),
    )
    .detail(detail.join(" "))
    .hint(format!(
        "Say DROP {keyword} {} CASCADE to drop the dependent objects too.",
        target.name
    ))
}

fn described(object: &CatalogObject) -> String {
    format!("{} {}", kind_name(kind_of(&object.definition)), object.name)
}

fn rank(order: &[Arc<CatalogObject>], object: &CatalogObject) -> usize {
    order
        .iter()
        .position(|o| o.oid == object.oid)
        .unwrap_or(order.len())
}
