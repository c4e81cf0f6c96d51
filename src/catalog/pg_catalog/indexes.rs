//! Indexes as the catalog shows them: those of primary keys, and those of `CREATE INDEX`.

use super::model::{Catalog, Relation};
use super::rows::quote_ident;
use crate::catalog::definition::{Definition, IndexColumn, IndexDefinition};
use crate::sql::render;

/// An index.
#[derive(Debug, Clone)]
pub(super) struct Index {
    pub oid: i64,
    pub name: String,
    /// What it is of.
    pub relation: Relation,
    /// Positions of its columns from 1; those of `INCLUDE` come last.
    pub columns: Vec<i64>,
    /// Columns before those of `INCLUDE`.
    pub keys: usize,
    /// Of each key column: 1 for `DESC`, 2 for `NULLS FIRST`.
    pub options: Vec<i64>,
    pub comment: Option<String>,
    /// `None`: it is a primary key's.
    definition: Option<IndexDefinition>,
}

impl Index {
    pub fn is_primary(&self) -> bool {
        self.definition.is_none()
    }

    /// The statement that creates it.
    pub fn text(&self, with_schema: bool) -> String {
        let schema = match super::model::namespace_name(self.relation.namespace) {
            Some(schema) if with_schema => format!("{schema}."),
            _ => String::new(),
        };
        let name = quote_ident(&self.name);
        match &self.definition {
            Some(definition) => render::index(&name, &schema, definition, quote_ident),
            None => {
                let columns = self.relation.key_columns();
                let columns: Vec<_> = columns.into_iter().map(quote_ident).collect();
                format!(
                    "CREATE UNIQUE INDEX {name} ON {schema}{} USING btree ({})",
                    quote_ident(&self.relation.name),
                    columns.join(", ")
                )
            }
        }
    }

    /// One of its columns, from 0.
    pub fn column_text(&self, at: usize) -> Option<String> {
        let position = usize::try_from(*self.columns.get(at)?).ok()?;
        let column = self.relation.columns.get(position - 1)?;
        Some(quote_ident(&column.name))
    }
}

impl Catalog {
    /// All indexes.
    pub fn indexes(&self) -> Vec<Index> {
        let relations = self.user_relations();
        let keyed = relations.iter().filter(|r| !r.key.is_empty());
        let mut indexes: Vec<Index> = keyed.map(of_key).collect();
        for object in self.model.objects() {
            let Definition::Index(definition) = &object.definition else {
                continue;
            };
            let Some(relation) = relations.iter().find(|r| r.name == definition.view) else {
                continue;
            };
            indexes.push(Index {
                oid: object.oid.into(),
                name: object.name.clone(),
                comment: object.comment.clone(),
                ..defined(relation, definition)
            });
        }
        indexes
    }
}

fn of_key(relation: &Relation) -> Index {
    Index {
        oid: relation.key_index_oid(),
        name: relation.key_name(),
        columns: relation.key.clone(),
        keys: relation.key.len(),
        options: vec![0; relation.key.len()],
        comment: None,
        definition: None,
        relation: relation.clone(),
    }
}

fn defined(relation: &Relation, definition: &IndexDefinition) -> Index {
    let position = |name: &String| {
        let at = relation.columns.iter().position(|c| c.name == *name);
        at.map_or(0, |at| at as i64 + 1)
    };
    let option =
        |column: &IndexColumn| i64::from(column.descending) + 2 * i64::from(column.nulls_first);
    let keys = definition.columns.iter();
    Index {
        oid: 0,
        name: String::new(),
        columns: keys
            .clone()
            .map(|column| position(&column.name))
            .chain(definition.include.iter().map(position))
            .collect(),
        keys: definition.columns.len(),
        options: keys.map(option).collect(),
        comment: None,
        definition: Some(definition.clone()),
        relation: relation.clone(),
    }
}
