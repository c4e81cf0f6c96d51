//! `ALTER TABLE|STREAM … ALTER COLUMN … TYPE`.
//!
//! ```text
//! a stream whose logged rows can be read as the new type, or text   the definition changes
//! any other type in a stream    refused: its rows are never written anew
//! any other type in a table     ADD a column, UPDATE it from the old one, which is dropped, and put
//!                               it in its place; rows of a table are encoded by the columns' types
//! ```
//! Whatever reads the column stands in the way, as in PostgreSQL. Absent: columns of a primary key,
//! under which the rows are stored.

use std::sync::Arc;

use super::super::Session;
use super::alter::columns_mut;
use super::columns::{contains_nulls, is_key};
use crate::catalog::access::{AccessChange, ObjectKey};
use crate::catalog::definition::{CatalogObject, ColumnDefinition, Definition};
use crate::catalog::snapshot::{kind_name, kind_of};
use crate::error::{Error, Result, sqlstate};
use crate::sql::names::quote_identifier;
use crate::sql::statement::ColumnType;
use crate::types::{SqlType, TextType};

/// What the new column is called until it takes the old one's place; no statement can say it.
const NEW_COLUMN: &str = "\u{1}of the new type";

impl Session {
    pub(super) async fn set_column_type(
        &mut self,
        object: &Arc<CatalogObject>,
        name: &str,
        wanted: &ColumnType,
    ) -> Result<()> {
        let at = object.column_named(name)?;
        let before = &object.columns()[at];
        let mut after = ColumnDefinition {
            sql_type: wanted.sql_type.clone(),
            text_type: wanted.text_type,
            ..before.clone()
        };
        if (&after.sql_type, after.text_type) == (&before.sql_type, before.text_type)
            && wanted.using.is_none()
        {
            return Ok(());
        }
        self.check_retyped(object, at).await?;
        self.default_text(&after)
            .await
            .map_err(|e| default_stays(name, &after, &e))?;
        let is_table = matches!(object.definition, Definition::Table(_));
        let reads_as_it_is = !is_table || after.sql_type == before.sql_type;
        if wanted.using.is_none() && reads_as_it_is && widens(before, &after) {
            let mut changed = CatalogObject::clone(object);
            changed.widen_column(name, after)?;
            self.check_stream(&changed)?;
            return self.stage_altered(changed);
        }
        if !is_table {
            return Err(stays(object, before, &after));
        }
        after.name = NEW_COLUMN.to_owned();
        after.nullable = true;
        after.default = None;
        let mut wider = CatalogObject::clone(object);
        wider.add_column(after, None)?;
        self.stage_altered(wider)?;
        self.fill_column(object, name, wanted).await?;
        if !before.nullable && self.has_row(&object.name, Some(NEW_COLUMN)).await? {
            return Err(contains_nulls(name, &object.name));
        }
        self.put_in_place(object, name).await
    }

    /// Nothing that reads the column, and no key, is in the way.
    async fn check_retyped(&mut self, object: &Arc<CatalogObject>, at: usize) -> Result<()> {
        let name = &object.columns()[at].name;
        if is_key(object, name) {
            return Err(Error::unsupported(format!(
                "cannot alter the type of column \"{name}\", which is in the primary key"
            ))
            .detail("The key is how the rows of a table are stored.")
            .hint("Create a new table with another key, and INSERT the rows into it."));
        }
        let readers = self.readers_of_column(object, at).await?;
        if readers.is_empty() {
            return Ok(());
        }
        let lines = readers.iter().map(|reader| {
            let kind = kind_name(kind_of(&reader.definition));
            format!("{kind} {} depends on column \"{name}\".", reader.name)
        });
        Err(
            Error::unsupported("cannot alter type of a column used by a view or rule")
                .detail(lines.collect::<Vec<_>>().join(" "))
                .hint("Drop them, then alter the column and create them again."),
        )
    }

    /// What the new column holds, by USING or as an assignment of the old one.
    async fn fill_column(
        &mut self,
        object: &CatalogObject,
        name: &str,
        wanted: &ColumnType,
    ) -> Result<()> {
        let (relation, new) = (quote_identifier(&object.name), quote_identifier(NEW_COLUMN));
        let value = match &wanted.using {
            Some(using) => format!("({using})"),
            None => quote_identifier(name),
        };
        let text = format!("UPDATE {relation} SET {new} = {value}");
        for (statement, _) in crate::sql::parse(&text)? {
            let done = self.change(&statement, &[]).await;
            done.map_err(|e| match e.sqlstate() {
                sqlstate::DATATYPE_MISMATCH => cannot_be_cast(name, wanted),
                _ => e,
            })?;
        }
        Ok(())
    }

    /// The old column goes, and the new one has its name, its place and what it was granted.
    async fn put_in_place(&mut self, object: &Arc<CatalogObject>, name: &str) -> Result<()> {
        let wider = Arc::clone(self.definitions().require_same(object)?);
        if matches!(&wider.definition, Definition::Table(t) if t.primary_key.is_empty()) {
            let at = wider.column_named(name)?;
            self.forget_values(&wider, at).await?;
        }
        let mut changed = CatalogObject::clone(self.definitions().require_same(object)?);
        changed.replace_column(name, NEW_COLUMN)?;
        let at = changed.column_named(name)?;
        let old = object.columns().iter().find(|column| column.name == name);
        if let Some(old) = old {
            let column = &mut columns_mut(&mut changed.definition)[at];
            column.nullable = old.nullable;
            column.default.clone_from(&old.default);
            column.comment.clone_from(&old.comment);
        }
        let place = |object: &CatalogObject, at: usize| {
            ObjectKey::Column(object.oid, object.stored_index(at) as u32)
        };
        let (old, new) = (
            place(object, object.column_named(name)?),
            place(&changed, at),
        );
        self.stage_altered(changed)?;
        let granted = self.access().acl(&old).cloned();
        let Some(granted) = granted else {
            return Ok(());
        };
        self.stage_access(AccessChange::SetAcl {
            key: old,
            before: Some(granted.clone()),
            acl: None,
        })?;
        self.stage_access(AccessChange::SetAcl {
            key: new,
            before: None,
            acl: Some(granted),
        })
    }
}

/// Stored rows of one type can be read as the other, each value as it is.
fn widens(before: &ColumnDefinition, after: &ColumnDefinition) -> bool {
    use SqlType::{BigInt, Double, Integer, Numeric, Real, SmallInt, Text};
    match (&before.sql_type, &after.sql_type) {
        (SmallInt, Integer | BigInt | Real | Double)
        | (Integer, BigInt | Double)
        | (Real, Double) => true,
        (
            Numeric { precision, scale },
            Numeric {
                precision: wider,
                scale: more,
            },
        ) => {
            let whole = |precision: &u8, scale: &i8| i16::from(*precision) - i16::from(*scale);
            more >= scale && whole(wider, more) >= whole(precision, scale)
        }
        (Text, Text) => {
            let limit = |column: &ColumnDefinition| column.text_type.and_then(TextType::limit);
            match (limit(before), limit(after)) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(before), Some(after)) => after >= before,
            }
        }
        _ => false,
    }
}

fn stays(object: &CatalogObject, before: &ColumnDefinition, after: &ColumnDefinition) -> Error {
    Error::unsupported(format!(
        "column \"{}\" of stream \"{}\" cannot become {}",
        before.name,
        object.name,
        after.type_name()
    ))
    .detail(format!(
        "The rows of a stream are never written anew, and not every {} is a value of the new type.",
        before.type_name()
    ))
    .hint("Add a column of the new type, or create another stream and INSERT the rows into it.")
}

fn cannot_be_cast(name: &str, wanted: &ColumnType) -> Error {
    let type_name = match wanted.text_type {
        Some(text_type) => text_type.to_string(),
        None => wanted.sql_type.to_string(),
    };
    let column = quote_identifier(name);
    match wanted.using {
        None => Error::new(
            sqlstate::DATATYPE_MISMATCH,
            format!("column \"{name}\" cannot be cast automatically to type {type_name}"),
        )
        .hint(format!(
            "You might need to specify \"USING {column}::{type_name}\"."
        )),
        Some(_) => Error::new(
            sqlstate::DATATYPE_MISMATCH,
            format!(
                "result of USING clause for column \"{name}\" cannot be cast automatically to type {type_name}"
            ),
        )
        .hint("You might need to add an explicit cast."),
    }
}

fn default_stays(name: &str, after: &ColumnDefinition, why: &Error) -> Error {
    Error::new(
        sqlstate::DATATYPE_MISMATCH,
        format!(
            "default for column \"{name}\" cannot be cast automatically to type {}",
            after.type_name()
        ),
    )
    .detail(why.primary().to_owned())
    .hint(format!(
        "Say ALTER COLUMN {} DROP DEFAULT first.",
        quote_identifier(name)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_reads_as_it_is_is_wider() {
        let numeric = |precision, scale| SqlType::Numeric { precision, scale };
        let column = |sql_type: SqlType, text_type| ColumnDefinition {
            text_type,
            ..ColumnDefinition::new("c", sql_type)
        };
        let wider = |from: SqlType, to: SqlType| widens(&column(from, None), &column(to, None));
        assert!(wider(SqlType::SmallInt, SqlType::BigInt));
        assert!(wider(SqlType::Integer, SqlType::Double));
        assert!(wider(numeric(5, 2), numeric(7, 3)));
        assert!(!wider(numeric(5, 2), numeric(5, 3)));
        assert!(!wider(SqlType::BigInt, SqlType::Double));
        assert!(!wider(SqlType::Integer, SqlType::Real));
        assert!(!wider(SqlType::BigInt, SqlType::Integer));
        assert!(!wider(SqlType::Integer, SqlType::Text));
        let text =
            |limit: Option<u32>| column(SqlType::Text, limit.map(|n| TextType::Varchar(Some(n))));
        assert!(widens(&text(Some(3)), &text(Some(4))));
        assert!(widens(&text(Some(3)), &text(None)));
        assert!(!widens(&text(Some(3)), &text(Some(2))));
        assert!(!widens(&text(None), &text(Some(2))));
    }
}
