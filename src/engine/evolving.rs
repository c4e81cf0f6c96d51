//! New fields of a stream's records, before the batch that brought them commits.
//!
//! ```text
//!   offsets/N written ─► read ─► new fields ─┬─ fail: the pipeline stops before the batch, with the ALTER to run
//!                                            └─ add_new_columns: catalog ─► the source opened anew ─► read N again
//! ```
//!
//! The catalog comes before the commit: killed between the two, the planned batch is read again under the
//! new columns, finds nothing new and commits. Killed before the catalog, it finds the same fields again. So a column
//! comes once, and a batch never commits without a field that it brought. The event is told from what the
//! catalog says of the column, so it is the same row however often it is told.
//! Pipelines over one stream find its fields each for itself; who comes second finds the columns there.
//! What runs goes on with the columns that it was planned with (see `catalog::shape`).

use super::batch::BatchOutcome;
use super::opening::open_slot;
use super::pipeline::Pipeline;
use crate::catalog::definition::ColumnDefinition;
use crate::catalog::shape::Evolved;
use crate::checkpoint::OffsetEntry;
use crate::connectors::evolution::{NewField, SchemaEvolution};
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;

/// Fields of a stream's records that no column takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundFields {
    /// The stream.
    pub relation: String,
    /// At least one.
    pub fields: Vec<NewField>,
}

impl FoundFields {
    /// Columns for them, in the order in which they came.
    fn columns(&self, pipeline: &str, entry: &OffsetEntry) -> Vec<(ColumnDefinition, Evolved)> {
        let column = |field: &NewField| {
            let evolved = Evolved {
                stream: self.relation.clone(),
                at_us: entry.batch_at_us,
                pipeline: pipeline.to_owned(),
                batch_id: entry.batch_id,
                first_in: field.origin.clone(),
            };
            let column = ColumnDefinition::new(&field.name, field.sql_type.clone());
            (column, evolved)
        };
        self.fields.iter().map(column).collect()
    }

    /// The statement that makes room for them.
    fn alter(&self) -> String {
        let add = |field: &NewField| {
            let name = quote_identifier(&field.name);
            format!("ADD COLUMN {name} {}", field.sql_type)
        };
        let added: Vec<String> = self.fields.iter().map(add).collect();
        let stream = quote_identifier(&self.relation);
        format!("ALTER STREAM {stream} {};", added.join(", "))
    }

    /// The error for a stream that is to stop for them.
    fn error(&self) -> Error {
        let Some(first) = self.fields.first() else {
            return Error::internal("a batch stopped for no new field");
        };
        let others = match self.fields.len() {
            1 => String::new(),
            2 => " and 1 other new field".to_owned(),
            all => format!(" and {} other new fields", all - 1),
        };
        let places: Vec<String> = self
            .fields
            .iter()
            .map(|field| format!("\"{}\" first in {}", field.name, field.origin))
            .collect();
        let stream = &self.relation;
        Error::new(
            sqlstate::UNDEFINED_COLUMN,
            format!(
                "stream \"{stream}\" has no column for field \"{}\"{others} in {}",
                first.name, first.origin
            ),
        )
        .detail(format!(
            "schema_evolution is 'fail'. New: {}.",
            places.join(", ")
        ))
        .hint(format!(
            "{} Then the batch is read again. A field that is a column of another name: \
             ALTER STREAM {} RENAME COLUMN … TO {};",
            self.alter(),
            quote_identifier(stream),
            quote_identifier(&first.name),
        ))
    }
}

impl Pipeline {
    /// Makes room for what the records of a planned batch hold, so that it can run again; or says what to do.
    pub(super) async fn evolve(
        &mut self,
        entry: &OffsetEntry,
        found: FoundFields,
    ) -> Result<BatchOutcome> {
        let opened = self.opened.as_mut().expect("a running pipeline is open");
        let slot = opened.slots.iter().find(|s| s.relation == found.relation);
        let evolution = slot.map_or(SchemaEvolution::None, |slot| slot.evolution);
        if evolution != SchemaEvolution::AddNewColumns {
            return Err(found.error());
        }
        let evolved = (entry.batch_id, found);
        if opened.evolved.as_ref() == Some(&evolved) {
            return Err(Error::internal(format!(
                "stream \"{}\" has columns for its new fields, and they are still new",
                evolved.1.relation
            )));
        }
        let found = &evolved.1;
        self.settle().await?;
        let columns = found.columns(&self.shared.name, entry);
        let definitions = &self.parts.definitions;
        definitions.add_columns(&found.relation, &columns).await?;
        self.reopen_source(entry, &found.relation).await?;
        if let Some(opened) = &mut self.opened {
            opened.evolved = Some(evolved);
        }
        Ok(BatchOutcome::Evolved)
    }

    /// Opens one source anew by its definition as it is now; all else stays as it is.
    async fn reopen_source(&mut self, entry: &OffsetEntry, relation: &str) -> Result<()> {
        let retain_batches = self.settings.min_batches_to_retain as usize;
        let opened = self.opened.as_mut().expect("a running pipeline is open");
        let inputs = match &opened.dataflow {
            Some(dataflow) => dataflow.lock().inputs(),
            None => return Err(Error::internal("the dataflow is gone")),
        };
        let slot = open_slot(
            &self.parts,
            &opened.checkpoint,
            Some(entry),
            relation,
            None,
            retain_batches,
        )
        .await?;
        let place = opened.slots.iter().position(|s| s.relation == relation);
        let input = inputs.iter().find(|input| input.relation == relation);
        if let (Some(place), Some(input)) = (place, input) {
            let mut slot = slot.in_place_of(&opened.slots[place]);
            slot.project(&input.projection);
            opened.slots[place] = slot;
        }
        self.tell_open_sources();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::SqlType;

    #[test]
    fn the_error_names_place_field_and_the_statement_to_run() {
        let field = |name: &str, sql_type, origin: &str| NewField {
            name: name.to_owned(),
            sql_type,
            origin: origin.to_owned(),
        };
        let mut found = FoundFields {
            relation: "clicks".to_owned(),
            fields: vec![field("userId", SqlType::BigInt, "in/a.json line 7")],
        };
        let error = found.error();
        assert_eq!(error.sqlstate(), "42703");
        assert_eq!(
            error.primary(),
            "stream \"clicks\" has no column for field \"userId\" in in/a.json line 7"
        );
        let hint = error.hint_text().unwrap();
        assert!(
            hint.starts_with("ALTER STREAM clicks ADD COLUMN \"userId\" bigint;"),
            "{hint}"
        );
        found
            .fields
            .push(field("x", SqlType::Text, "in/b.json line 1"));
        assert_eq!(
            found.alter(),
            "ALTER STREAM clicks ADD COLUMN \"userId\" bigint, ADD COLUMN x text;"
        );
        assert!(found.error().primary().contains("and 1 other new field"));
    }
}
