//! `ALTER STREAM|TABLE`: columns, watermark, expectations.
//!
//! ```text
//!   action ─► the definition it makes ─► checks: the connector, the rows, who reads it ─► staged
//! ```
//!
//! No ALTER rewrites stored rows (see `catalog::shape`), and what reads the relation goes on with
//! the columns it knows. An action that would change a running view's plan is refused, naming the
//! view: its state could not be kept.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast;
use futures::TryStreamExt;

use super::super::rowset::done;
use super::super::work::Action;
use super::super::{Session, StatementResult, planning};
use super::alter::columns_mut;
use super::create::check_columns;
use crate::catalog::changes::CatalogChange;
use crate::catalog::definition::{
    CatalogObject, ColumnDefinition, Definition, ExpectationDefinition, StreamDefinition,
    WatermarkDefinition,
};
use crate::catalog::snapshot::{kind_keyword, kind_name};
use crate::connectors::evolution::{SchemaEvolution, keeps_rescued};
use crate::error::{Error, Result, Subject, sqlstate};
use crate::sql::names::quote_identifier;
use crate::sql::statement::{AlterAction, DelayUnit, ObjectKind};

impl Session {
    pub(in crate::session) async fn alter_relation(
        &mut self,
        kind: ObjectKind,
        name: &str,
        if_exists: bool,
        actions: &[AlterAction],
    ) -> Result<StatementResult> {
        let tag = done(format!("ALTER {}", kind_keyword(kind)));
        if if_exists && self.definitions().object(name).is_none() {
            self.notice(format!("relation \"{name}\" does not exist, skipping"));
            return Ok(tag);
        }
        for action in actions {
            let object = self.definitions().require(kind, name)?.clone();
            self.alter_once(&object, action).await?;
        }
        Ok(tag)
    }

    async fn alter_once(
        &mut self,
        object: &Arc<CatalogObject>,
        action: &AlterAction,
    ) -> Result<()> {
        let mut changed = CatalogObject::clone(object);
        match action {
            AlterAction::AddPrimaryKey(key) => return self.add_primary_key(object, key).await,
            AlterAction::AddColumn {
                column,
                if_not_exists: true,
            } if object.column_named(&column.name).is_ok() => {
                let (column, relation) = (&column.name, &object.name);
                return self.skip(&format!(
                    "column \"{column}\" of relation \"{relation}\" already exists"
                ));
            }
            AlterAction::AddColumn { column, .. } => self.add_column(&mut changed, column).await?,
            AlterAction::DropColumn {
                name,
                if_exists,
                cascade,
            } => {
                return match object.column_named(name) {
                    Err(error) if *if_exists => self.skip(error.primary()),
                    Err(error) => Err(error),
                    Ok(at) => self.drop_column(object, at, *cascade).await,
                };
            }
            AlterAction::RenameColumn {
                name,
                new_name,
                sent_as,
            } => rename_column(&mut changed, name, new_name, sent_as.clone())?,
            AlterAction::SetNullable(name, nullable) => {
                return self.set_nullable(object, name, *nullable).await;
            }
            AlterAction::SetDefault(name, default) => {
                let at = changed.column_named(name)?;
                let column = &mut columns_mut(&mut changed.definition)[at];
                column.default.clone_from(default);
                self.default_text(column).await?;
            }
            AlterAction::SetType(name, wanted) => {
                return self.set_column_type(object, name, wanted).await;
            }
            AlterAction::SetWatermark(watermark) => {
                return self.set_watermark(object, watermark.as_ref()).await;
            }
            AlterAction::AddExpectation(expectation) => {
                add_expectation(&mut changed, expectation)?;
                self.check_stream(&changed)?;
            }
            AlterAction::DropConstraint { name, if_exists } => {
                if !drop_expectation(&mut changed, name)? {
                    let error = no_constraint(object, name);
                    return match if_exists {
                        true => self.skip(error.primary()),
                        false => Err(error),
                    };
                }
            }
        }
        self.stage_altered(changed)
    }

    /// What an IF EXISTS or IF NOT EXISTS finds already done.
    fn skip(&mut self, why: &str) -> Result<()> {
        self.notice(format!("{why}, skipping"));
        Ok(())
    }

    /// Stages an altered definition; a connector that cannot read it refuses.
    pub(super) fn stage_altered(&mut self, changed: CatalogObject) -> Result<()> {
        check_columns(changed.columns())?;
        self.parts.engine().check_source(&changed)?;
        let changed = Arc::new(changed);
        let change = CatalogChange::Replace {
            name: changed.name.clone(),
            object: Arc::clone(&changed),
        };
        self.stage(change, Some(Action::AlterRelation(changed)))
    }

    pub(super) fn check_stream(&self, object: &CatalogObject) -> Result<()> {
        match &object.definition {
            Definition::Stream(stream) => self.check_stream_expressions(stream),
            _ => Ok(()),
        }
    }

    /// Rows that are there hold the default's value of this moment, as in PostgreSQL.
    async fn add_column(
        &mut self,
        changed: &mut CatalogObject,
        column: &ColumnDefinition,
    ) -> Result<()> {
        if column.metadata_from.is_some() && matches!(changed.definition, Definition::Table(_)) {
            return Err(Error::unsupported("a table has no METADATA columns"));
        }
        if self.default_differs_by_row(column)? {
            return Err(Error::unsupported(format!(
                "the default of column \"{}\": a value that differs from row to row cannot be added",
                column.name
            ))
            .hint(
                "Add the column without DEFAULT, UPDATE the rows, then say \
                 ALTER COLUMN … SET DEFAULT ….",
            ));
        }
        let missing = self.default_text(column).await?;
        let name = changed.name.clone();
        changed.add_column(column.clone(), missing.clone())?;
        let is_logged = changed.definition.is_logged();
        if !column.nullable && missing.is_none() && is_logged && self.has_row(&name, None).await? {
            return Err(contains_nulls(&column.name, &name));
        }
        Ok(())
    }

    /// The text of what a column's default gives now; `None` for NULL or without a default.
    pub(super) async fn default_text(
        &mut self,
        column: &ColumnDefinition,
    ) -> Result<Option<String>> {
        self.default_value_text(column).await.map_err(|e| {
            let clause = format!("the default of column \"{}\"", column.name);
            e.context(clause)
        })
    }

    async fn drop_column(
        &mut self,
        object: &Arc<CatalogObject>,
        at: usize,
        cascade: bool,
    ) -> Result<()> {
        let name = &object.columns()[at].name;
        check_not_needed(object, name)?;
        let readers = self.readers_of_column(object, at).await?;
        if !readers.is_empty() {
            if !cascade {
                return Err(column_has_readers(object, name, &readers));
            }
            self.drop_with_dependents(&readers, true)?;
        }
        let is_bag = matches!(&object.definition, Definition::Table(t) if t.primary_key.is_empty());
        if is_bag {
            self.forget_values(object, at).await?;
        }
        let mut changed = CatalogObject::clone(self.definitions().require_same(object)?);
        changed.drop_column(name)?;
        self.check_stream(&changed)?;
        self.stage_altered(changed)
    }

    /// Rows without a key are known by all that is stored of them, so what a dropped column held
    /// must not tell them apart.
    pub(super) async fn forget_values(
        &mut self,
        object: &Arc<CatalogObject>,
        at: usize,
    ) -> Result<()> {
        let column = &object.columns()[at];
        if !column.nullable {
            let mut nullable = CatalogObject::clone(object);
            nullable.set_nullable(&column.name, true)?;
            self.stage_altered(nullable)?;
        }
        let relation = quote_identifier(&object.name);
        let column = quote_identifier(&column.name);
        let text = format!("UPDATE {relation} SET {column} = NULL WHERE {column} IS NOT NULL");
        for (statement, _) in crate::sql::parse(&text)? {
            self.change(&statement, &[]).await?;
        }
        Ok(())
    }

    async fn set_nullable(
        &mut self,
        object: &Arc<CatalogObject>,
        name: &str,
        nullable: bool,
    ) -> Result<()> {
        let at = object.column_named(name)?;
        if object.columns()[at].nullable == nullable {
            return Ok(());
        }
        if nullable && is_key(object, name) {
            return Err(Error::new(
                sqlstate::INVALID_TABLE_DEFINITION,
                format!("column \"{name}\" is in a primary key"),
            ));
        }
        let is_logged = object.definition.is_logged();
        if !nullable && is_logged && self.has_row(&object.name, Some(name)).await? {
            return Err(contains_nulls(name, &object.name));
        }
        let mut changed = CatalogObject::clone(object);
        changed.set_nullable(name, nullable)?;
        let before = self.plans_over(object).await?;
        self.stage_altered(changed)?;
        if nullable {
            self.spread_nullability(object).await?;
        }
        self.require_same_plans(object, &before, &format!("its column \"{name}\""))
            .await
    }

    async fn set_watermark(
        &mut self,
        object: &Arc<CatalogObject>,
        watermark: Option<&(WatermarkDefinition, DelayUnit)>,
    ) -> Result<()> {
        let mut changed = CatalogObject::clone(object);
        stream_of(&mut changed)?.watermark = watermark.map(|(watermark, _)| watermark.clone());
        if let Some((watermark, unit)) = watermark {
            let at = object.column_named(&watermark.column)?;
            unit.check(&object.columns()[at])?;
        }
        self.check_stream(&changed)?;
        let before = self.plans_over(object).await?;
        self.stage_altered(changed)?;
        self.require_same_plans(object, &before, "its watermark")
            .await
    }

    /// A row is there, or one where `null_column` is NULL.
    pub(super) async fn has_row(
        &mut self,
        relation: &str,
        null_column: Option<&str>,
    ) -> Result<bool> {
        let relation = quote_identifier(relation);
        let condition = match null_column {
            Some(column) => format!("WHERE {} IS NULL", quote_identifier(column)),
            None => String::new(),
        };
        let query =
            planning::parse_query(&format!("SELECT 1 FROM {relation} {condition} LIMIT 1"))?;
        let (_, rows) = self.start_query(&query, &[]).await?;
        let batches: Vec<_> = rows.try_collect().await?;
        Ok(batches.iter().any(|b| b.num_rows() > 0))
    }
}

pub(super) fn contains_nulls(column: &str, relation: &str) -> Error {
    Error::new(
        sqlstate::NOT_NULL_VIOLATION,
        format!("column \"{column}\" of relation \"{relation}\" contains null values"),
    )
    .about(Subject::column(relation, column))
}

pub(super) fn is_key(object: &CatalogObject, column: &str) -> bool {
    matches!(&object.definition, Definition::Table(t) if t.primary_key.iter().any(|k| k == column))
}

fn stream_of(object: &mut CatalogObject) -> Result<&mut StreamDefinition> {
    match &mut object.definition {
        Definition::Stream(stream) => Ok(stream),
        _ => Err(
            Error::unsupported("tables have no watermark and no expectations")
                .hint("Use CREATE STREAM for rows with an event time."),
        ),
    }
}

/// A new name holds in the key, the watermark and the expectations too.
fn rename_column(
    object: &mut CatalogObject,
    name: &str,
    new_name: &str,
    sent_as: Option<String>,
) -> Result<()> {
    let has_sender = matches!(&object.definition, Definition::Stream(s) if s.connector.is_some());
    if sent_as.is_some() && !has_sender {
        return Err(Error::unsupported(format!(
            "no source sends the columns of \"{}\"",
            object.name
        ))
        .hint("Leave out FROM."));
    }
    object.rename_column(name, new_name, sent_as)?;
    match &mut object.definition {
        Definition::Table(table) => {
            for key in table.primary_key.iter_mut().filter(|k| *k == name) {
                new_name.clone_into(key);
            }
        }
        Definition::Stream(stream) => {
            if let Some(watermark) = &mut stream.watermark
                && watermark.column == name
            {
                new_name.clone_into(&mut watermark.column);
            }
            for expectation in &mut stream.expectations {
                expectation.condition = renamed_in(&expectation.condition, name, new_name)?;
            }
        }
        Definition::MaterializedView(_)
        | Definition::View(_)
        | Definition::Sink(_)
        | Definition::Index(_) => {}
    }
    Ok(())
}

/// A condition with another name for a column; as it is when it does not name the column.
fn renamed_in(condition: &str, name: &str, new_name: &str) -> Result<String> {
    let mut expression = super::super::dml::parse_expression(condition)?;
    let mut is_renamed = false;
    let walked = ast::visit_expressions_mut(&mut expression, |expression| {
        let ident = match expression {
            ast::Expr::Identifier(ident) => Some(ident),
            ast::Expr::CompoundIdentifier(parts) => parts.last_mut(),
            _ => None,
        };
        if let Some(ident) = ident
            && crate::sql::data_types::folded(ident) == name
        {
            *ident = ast::Ident::with_quote('"', new_name);
            is_renamed = true;
        }
        std::ops::ControlFlow::<()>::Continue(())
    });
    assert!(walked.is_continue(), "the renaming never stops early");
    Ok(match is_renamed {
        true => expression.to_string(),
        false => condition.to_owned(),
    })
}

fn names_column(condition: &str, name: &str) -> Result<bool> {
    Ok(renamed_in(condition, name, "\u{1}")? != condition)
}

/// A column that the relation itself needs does not go.
fn check_not_needed(object: &CatalogObject, name: &str) -> Result<()> {
    let needed = |what: String, hint: String| {
        Err(Error::new(
            sqlstate::DEPENDENT_OBJECTS,
            format!(
                "cannot drop column \"{name}\" of \"{}\" because {what}",
                object.name
            ),
        )
        .hint(hint))
    };
    if is_key(object, name) {
        return needed(
            "it is in the primary key".to_owned(),
            "Create a new table with another key, and INSERT the rows into it.".to_owned(),
        );
    }
    let Definition::Stream(stream) = &object.definition else {
        return Ok(());
    };
    let mut rescued = stream.columns.iter().filter(|c| keeps_rescued(c));
    if SchemaEvolution::of(&stream.options) == SchemaEvolution::Rescue
        && rescued.any(|column| column.name == name)
    {
        return needed(
            "schema_evolution is 'rescue'".to_owned(),
            format!(
                "Say ALTER STREAM {} SET (schema_evolution = 'none') first.",
                object.name
            ),
        );
    }
    if stream.watermark.as_ref().is_some_and(|w| w.column == name) {
        return needed(
            "the watermark follows it".to_owned(),
            format!("Say ALTER STREAM {} DROP WATERMARK first.", object.name),
        );
    }
    for expectation in &stream.expectations {
        if names_column(&expectation.condition, name)? {
            let constraint = &expectation.name;
            return needed(
                format!("constraint \"{constraint}\" names it"),
                format!(
                    "Say ALTER STREAM {} DROP CONSTRAINT {constraint} first.",
                    object.name
                ),
            );
        }
    }
    Ok(())
}

fn column_has_readers(
    object: &CatalogObject,
    column: &str,
    readers: &[Arc<CatalogObject>],
) -> Error {
    let relation = &object.name;
    let detail: Vec<String> = readers
        .iter()
        .map(|reader| {
            let kind = kind_name(crate::catalog::snapshot::kind_of(&reader.definition));
            let name = &reader.name;
            format!("{kind} {name} depends on column {column} of {relation}.")
        })
        .collect();
    Error::new(
        sqlstate::DEPENDENT_OBJECTS,
        format!(
            "cannot drop column \"{column}\" of \"{relation}\" because other objects depend on it"
        ),
    )
    .detail(detail.join(" "))
    .hint("Say DROP COLUMN … CASCADE to drop the dependent objects too.")
}

fn add_expectation(object: &mut CatalogObject, expectation: &ExpectationDefinition) -> Result<()> {
    let relation = object.name.clone();
    let stream = stream_of(object)?;
    if stream
        .expectations
        .iter()
        .any(|e| e.name == expectation.name)
    {
        return Err(Error::new(
            sqlstate::DUPLICATE_OBJECT,
            format!(
                "constraint \"{}\" for relation \"{relation}\" already exists",
                expectation.name
            ),
        ));
    }
    stream.expectations.push(expectation.clone());
    Ok(())
}

/// False: there is none of this name.
fn drop_expectation(object: &mut CatalogObject, name: &str) -> Result<bool> {
    let stream = match &mut object.definition {
        Definition::Stream(stream) => stream,
        Definition::Table(_) if name == format!("{}_pkey", object.name) => {
            return Err(Error::unsupported("a primary key cannot be dropped")
                .hint("Create a new table without the key, and INSERT the rows into it."));
        }
        _ => return Ok(false),
    };
    let before = stream.expectations.len();
    stream.expectations.retain(|e| e.name != name);
    Ok(stream.expectations.len() < before)
}

fn no_constraint(object: &CatalogObject, name: &str) -> Error {
    Error::new(
        sqlstate::UNDEFINED_OBJECT,
        format!(
            "constraint \"{name}\" of relation \"{}\" does not exist",
            object.name
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_follows_its_columns_name() {
        let renamed = renamed_in("a > 0 AND lower(B.\"a\") <> 'a'", "a", "k x").unwrap();
        assert_eq!(renamed, "\"k x\" > 0 AND lower(B.\"k x\") <> 'a'");
        assert_eq!(renamed_in("b>0", "a", "k").unwrap(), "b>0");
        assert!(names_column("A IS NULL", "a").unwrap());
        assert!(!names_column("\"A\" IS NULL", "a").unwrap());
    }
}
