//! `ALTER TABLE … ADD PRIMARY KEY`.
//!
//! The key is how a table's rows are stored, so that the table with a key is another one: it takes the
//! place of the old one, with its rows and grants, in the same transaction. Who runs over the old one
//! would read its rows under their old identity; so there must be none.

use std::sync::Arc;

use super::super::work::Action;
use super::super::{Session, planning};
use super::create::check_primary_key;
use super::{columns, listed};
use crate::catalog::access::AccessChange;
use crate::catalog::changes::CatalogChange;
use crate::catalog::definition::{CatalogObject, Definition, TableDefinition};
use crate::catalog::temporary;
use crate::error::{Error, Result, Subject, sqlstate};
use crate::sql::names::quote_identifier;

impl Session {
    pub(super) async fn add_primary_key(
        &mut self,
        object: &Arc<CatalogObject>,
        key: &[String],
    ) -> Result<()> {
        let Definition::Table(table) = &object.definition else {
            return Err(Error::unsupported("a stream cannot have a primary key")
                .hint("Use CREATE TABLE for rows that are updated by key."));
        };
        if !table.primary_key.is_empty() {
            return Err(Error::new(
                sqlstate::INVALID_TABLE_DEFINITION,
                format!(
                    "multiple primary keys for table \"{}\" are not allowed",
                    object.name
                ),
            ));
        }
        check_primary_key(&table.columns, key)?;
        self.check_nothing_runs_over(object)?;
        for column in key {
            if self.has_row(&object.name, Some(column)).await? {
                return Err(columns::contains_nulls(column, &object.name));
            }
        }
        let keyed = self.keyed(object, table, key);
        self.move_rows(object, &keyed).await
    }

    fn check_nothing_runs_over(&self, object: &CatalogObject) -> Result<()> {
        let mut running = self.definitions().dependents_in_drop_order(&object.name);
        running.retain(|o| !matches!(o.definition, Definition::View(_)));
        if running.is_empty() {
            return Ok(());
        }
        Err(Error::unsupported(format!(
            "cannot add a primary key to table \"{}\", which others run over",
            object.name
        ))
        .detail(format!(
            "These do: {}.",
            listed(running.iter().map(|o| o.name.as_str()))
        ))
        .hint("Drop them, add the key, and create them again."))
    }

    /// The table with a key.
    fn keyed(
        &self,
        object: &CatalogObject,
        table: &TableDefinition,
        key: &[String],
    ) -> Arc<CatalogObject> {
        let mut table = table.clone();
        table.primary_key = key.to_vec();
        for column in &mut table.columns {
            column.nullable &= !key.contains(&column.name);
        }
        let mut keyed = self.new_object(&object.name, Definition::Table(table));
        let new = Arc::make_mut(&mut keyed);
        new.comment.clone_from(&object.comment);
        if object.is_temporary() {
            new.oid = temporary::allocate_oid();
        }
        keyed
    }

    async fn move_rows(
        &mut self,
        object: &Arc<CatalogObject>,
        keyed: &Arc<CatalogObject>,
    ) -> Result<()> {
        let mut aside = CatalogObject::clone(object);
        aside.name = format!("{} without a key", object.name);
        let aside_name = aside.name.clone();
        let renamed = CatalogChange::Replace {
            name: object.name.clone(),
            object: Arc::new(aside),
        };
        self.stage(renamed, None)?;
        self.stage(CatalogChange::Create(Arc::clone(keyed)), None)?;
        let (schema, from) = (object.schema_name(), quote_identifier(&aside_name));
        let query = planning::parse_query(&format!("SELECT * FROM {schema}.{from}"))?;
        let moved = self.insert_query_rows(keyed, &query).await;
        moved.map_err(|error| not_unique(error, &object.name))?;
        if !object.is_temporary() {
            let inherit = AccessChange::Inherit {
                from: object.oid,
                to: keyed.oid,
            };
            self.stage(CatalogChange::Access(inherit), None)?;
        }
        let gone = CatalogChange::Drop {
            name: aside_name,
            oid: object.oid,
        };
        let action = Action::Rekey(Arc::clone(object), Arc::clone(keyed));
        self.stage(gone, Some(action))
    }
}

/// What an INSERT says of a key that is there twice, as PostgreSQL says it of an index.
fn not_unique(error: Error, table: &str) -> Error {
    if error.sqlstate() != sqlstate::UNIQUE_VIOLATION {
        return error;
    }
    let constraint = format!("{table}_pkey");
    let told = Error::new(
        sqlstate::UNIQUE_VIOLATION,
        format!("could not create unique index \"{constraint}\""),
    )
    .about(Subject::constraint(table, &constraint));
    match error.detail_text() {
        Some(detail) => told.detail(detail.replace(" already exists.", " is duplicated.")),
        None => told,
    }
}
