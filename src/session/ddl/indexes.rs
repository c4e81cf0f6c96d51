//! `CREATE INDEX` on materialized views, and what becomes of indexes when views change.
//!
//! An index is a second layout of the view's rows, in another order and with all columns. It runs as
//! a view over the view would, in its pipeline: it is filled at a batch border, changes with each
//! batch, and is restored with the others. Absent: indexes on tables and streams, whose rows are not
//! in a pipeline; a materialized view of them can have any.

use std::sync::Arc;

use super::super::lookup::is_ordered;
use super::super::rowset::done;
use super::super::work::Action;
use super::super::{Session, StatementResult, binding};
use super::Existing;
use crate::catalog::changes::CatalogChange;
use crate::catalog::definition::{CatalogObject, Definition, IndexColumn, IndexDefinition};
use crate::catalog::snapshot::{CatalogSnapshot, kind_name, kind_of};
use crate::engine::sink_query;
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;
use crate::sql::statement::CreateIndex;

/// PostgreSQL's bound on the columns of an index.
const COLUMNS_MAX: usize = 32;

impl Session {
    pub(in crate::session) async fn create_index(
        &mut self,
        create: &CreateIndex,
    ) -> Result<StatementResult> {
        const TAG: &str = "CREATE INDEX";
        let snapshot = self.definitions();
        let view = snapshot.object(&create.relation).cloned().ok_or_else(|| {
            Error::new(
                sqlstate::UNDEFINED_TABLE,
                format!("relation \"{}\" does not exist", create.relation),
            )
        })?;
        let definition = defined(&view, create)?;
        let name = match &create.name {
            Some(name) => name.clone(),
            None => free_name(&snapshot, &view.name, &definition.columns),
        };
        if let Existing::Skip = self.existing(&name, create.if_not_exists, false)? {
            return Ok(done(TAG));
        }
        self.stage_index(&name, definition).await?;
        Ok(done(TAG))
    }

    async fn stage_index(&mut self, name: &str, definition: IndexDefinition) -> Result<()> {
        let query = sink_query(&definition.view);
        let object = self.new_object(name, Definition::Index(definition));
        let kept = object.kept_names();
        let plan = binding::bind_text(&self.planning_state(), &query, &kept).await?;
        self.stage(
            CatalogChange::Create(object.clone()),
            Some(Action::CreateView(object, Box::new(plan))),
        )
    }

    /// After a replacement of a view was staged: its indexes become those of the new one. The engine
    /// makes the exchange with that of the view.
    pub(super) fn keep_indexes(&mut self, old: &CatalogObject, new: &CatalogObject) -> Result<()> {
        for object in indexes_of(&self.definitions(), &old.name) {
            let Definition::Index(index) = &object.definition else {
                continue;
            };
            let names = index.columns.iter().map(|c| &c.name).chain(&index.include);
            for name in names {
                if new.columns().iter().all(|column| column.name != *name) {
                    return Err(needs_column(&object, old, name));
                }
            }
            let renewed = IndexDefinition {
                of: new.oid,
                ..index.clone()
            };
            check_columns(new, &renewed.columns)?;
            let mut renewed = self.new_object(&object.name, Definition::Index(renewed));
            Arc::make_mut(&mut renewed)
                .comment
                .clone_from(&object.comment);
            let gone = CatalogChange::Drop {
                name: object.name.clone(),
                oid: object.oid,
            };
            self.stage(gone, None)?;
            self.stage(CatalogChange::Create(renewed), None)?;
        }
        Ok(())
    }
}

/// The indexes of a view, by name.
pub(in crate::session) fn indexes_of(
    snapshot: &CatalogSnapshot,
    view: &str,
) -> Vec<Arc<CatalogObject>> {
    let is_of = |object: &&Arc<CatalogObject>| match &object.definition {
        Definition::Index(index) => index.view == view,
        _ => false,
    };
    snapshot.objects().filter(is_of).cloned().collect()
}

/// The definition that a statement gives.
fn defined(view: &CatalogObject, create: &CreateIndex) -> Result<IndexDefinition> {
    let Definition::MaterializedView(definition) = &view.definition else {
        return Err(not_indexed(view));
    };
    if create.columns.len() + create.include.len() > COLUMNS_MAX {
        return Err(Error::new(
            sqlstate::TOO_MANY_COLUMNS,
            format!("cannot use more than {COLUMNS_MAX} columns in an index"),
        ));
    }
    check_columns(view, &create.columns)?;
    for name in &create.include {
        column_type(view, name)?;
    }
    Ok(IndexDefinition {
        view: view.name.clone(),
        of: view.oid,
        pipeline: definition.pipeline.clone(),
        columns: create.columns.clone(),
        include: create.include.clone(),
    })
}

fn check_columns(view: &CatalogObject, columns: &[IndexColumn]) -> Result<()> {
    for column in columns {
        let data_type = column_type(view, &column.name)?;
        if !is_ordered(&data_type) {
            return Err(Error::unsupported(format!(
                "column \"{}\" has a type that cannot be indexed",
                column.name
            ))
            .hint("Let the view have it as a number, text, date or time."));
        }
    }
    Ok(())
}

fn column_type(view: &CatalogObject, name: &str) -> Result<datafusion::arrow::datatypes::DataType> {
    let found = view.columns().iter().find(|column| column.name == name);
    let column = found.ok_or_else(|| {
        Error::new(
            sqlstate::UNDEFINED_COLUMN,
            format!("column \"{name}\" does not exist"),
        )
    })?;
    Ok(column.sql_type.to_arrow())
}

/// As PostgreSQL's: `view_column_…_idx`, and a number where that is taken.
fn free_name(snapshot: &CatalogSnapshot, view: &str, columns: &[IndexColumn]) -> String {
    /// Bytes of a name.
    const NAME_MAX: usize = 63;
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let names = names.join("_");
    let mut number = 0;
    loop {
        let end = match number {
            0 => "_idx".to_owned(),
            number => format!("_idx{number}"),
        };
        let mut name = format!("{view}_{names}");
        while name.len() + end.len() > NAME_MAX {
            name.pop();
        }
        name.push_str(&end);
        if snapshot.object(&name).is_none() {
            return name;
        }
        number += 1;
    }
}

fn not_indexed(object: &CatalogObject) -> Error {
    let kind = kind_name(kind_of(&object.definition));
    let name = quote_identifier(&object.name);
    let hint = match &object.definition {
        Definition::Table(table) if !table.primary_key.is_empty() => format!(
            "Rows are found by the primary key ({}). For other columns: \
             CREATE MATERIALIZED VIEW v AS SELECT * FROM {name}; and an index on v.",
            table.primary_key.join(", ")
        ),
        Definition::View(_) => {
            "It holds no rows: create it as a materialized view, and an index on that.".to_owned()
        }
        _ => format!(
            "CREATE MATERIALIZED VIEW v AS SELECT * FROM {name}; then create the index on v."
        ),
    };
    Error::unsupported(format!(
        "cannot create an index on {kind} \"{}\"",
        object.name
    ))
    .hint(hint)
}

fn needs_column(index: &CatalogObject, view: &CatalogObject, column: &str) -> Error {
    Error::new(
        sqlstate::DEPENDENT_OBJECTS,
        format!(
            "cannot replace materialized view \"{}\" because its index \"{}\" needs column \"{column}\"",
            view.name, index.name
        ),
    )
    .hint(format!(
        "DROP INDEX {}; then replace the view.",
        quote_identifier(&index.name)
    ))
}
