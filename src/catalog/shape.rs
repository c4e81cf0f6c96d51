//! How a relation that was altered still reads what it stored before.
//!
//! ```text
//!   ALTER …        columns shown     stored (only ever grows)       a row stored before
//!   (created)      a  b              a  b                           1  x
//!   ADD c          a  b  c           a  b  c                        1  x  (c's missing value)
//!   DROP b         a  c              a  b† c                        1     …
//!   RENAME a TO k  k  c              a  b† c                        1     …
//! ```
//!
//! Rows lie on disk under the names of the stored columns, which are never reused, so that no
//! ALTER rewrites them. Whatever was planned before an ALTER (a running view, say) goes on with the
//! columns of its [`Version`]. A stored column may only become wider, where no version of it is
//! read any more; any other type is that of another stored column, which takes the place of the first.

use datafusion::arrow::datatypes::SchemaRef;
use serde::{Deserialize, Serialize};

use super::definition::{CatalogObject, ColumnDefinition, Definition, columns_schema};
use crate::error::{Error, Result, sqlstate};

/// What `ALTER` made of a relation's columns; empty for one that never was altered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Shape {
    /// Every column that the relation ever had, oldest first.
    stored: Vec<StoredColumn>,
    /// The place in `stored` of each present column.
    shown: Vec<usize>,
    /// How many of `stored` were there at the creation.
    original: usize,
    /// What the relation looked like before each change, oldest first.
    versions: Vec<Version>,
    /// Set in a relation that [`CatalogObject::at_version`] gave.
    #[serde(skip)]
    shown_version: Option<usize>,
}

/// A column as rows are stored under it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredColumn {
    /// Its name in stored rows, its own for ever.
    pub name: String,
    /// It is no longer shown.
    pub dropped: bool,
    /// What rows stored before it was added hold, in the text form of its type; `None`: NULL.
    pub missing: Option<String>,
    /// The name under which a connector's records carry it, where that is not its present one.
    pub sent_as: Option<String>,
    /// It came by itself, for a field of the stream's records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evolved: Option<Evolved>,
    /// The column as it was when it was added.
    pub definition: ColumnDefinition,
}

/// Which batch brought a column that came by itself. It lies in the catalog with the column, so that
/// the event that tells it is written again, as the same row, where a crash came between the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evolved {
    /// The stream, as it was called then.
    pub stream: String,
    /// The batch's time, microseconds since the epoch.
    pub at_us: i64,
    /// The pipeline that read it.
    pub pipeline: String,
    /// The batch.
    pub batch_id: u64,
    /// The first record that has the field.
    pub first_in: String,
}

impl StoredColumn {
    /// A column under its own name; rows stored before it hold NULL.
    pub fn new(column: &ColumnDefinition) -> Self {
        Self {
            name: column.name.clone(),
            dropped: false,
            missing: None,
            sent_as: None,
            evolved: None,
            definition: column.clone(),
        }
    }
}

/// A relation's columns at an earlier time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Version {
    columns: Vec<ColumnDefinition>,
    shown: Vec<usize>,
}

impl Shape {
    /// Never altered.
    pub fn is_original(&self) -> bool {
        self.versions.is_empty()
    }

    /// Keeps what the relation looks like now as a version, before a change.
    fn remember(&mut self, columns: &[ColumnDefinition]) {
        if self.is_original() {
            self.original = columns.len();
            self.shown = (0..columns.len()).collect();
            self.stored = columns.iter().map(StoredColumn::new).collect();
        }
        self.versions.push(Version {
            columns: columns.to_vec(),
            shown: self.shown.clone(),
        });
    }

    /// A name that no stored column has or had.
    fn unused_name(&self, wanted: &str) -> String {
        let is_taken = |name: &str| self.stored.iter().any(|c| c.name == name);
        if !is_taken(wanted) {
            return wanted.to_owned();
        }
        (self.stored.len()..)
            .map(|n| format!("{wanted}#{n}"))
            .find(|name| !is_taken(name))
            .expect("some number is free")
    }
}

impl Definition {
    /// Columns and shape, for the kinds whose columns can be altered.
    fn columns_and_shape(&mut self) -> Option<(&mut Vec<ColumnDefinition>, &mut Shape)> {
        match self {
            Self::Stream(d) => Some((&mut d.columns, &mut d.shape)),
            Self::Table(d) => Some((&mut d.columns, &mut d.shape)),
            Self::MaterializedView(_) | Self::View(_) | Self::Sink(_) | Self::Index(_) => None,
        }
    }
}

impl CatalogObject {
    fn shape(&self) -> Option<&Shape> {
        match &self.definition {
            Definition::Stream(d) => Some(&d.shape),
            Definition::Table(d) => Some(&d.shape),
            Definition::MaterializedView(_)
            | Definition::View(_)
            | Definition::Sink(_)
            | Definition::Index(_) => None,
        }
        .filter(|shape| !shape.is_original())
    }

    /// How often its columns were altered.
    pub fn version(&self) -> usize {
        self.shape().map_or(0, |shape| shape.versions.len())
    }

    /// The relation as it was at a version: what was planned then goes on with these columns.
    /// The rows are the same.
    pub fn at_version(&self, version: usize) -> Self {
        let mut object = self.clone();
        let Some(then) = self.shape().and_then(|s| s.versions.get(version)).cloned() else {
            return object;
        };
        let renamed = |name: &str| {
            let now = self.columns().iter().position(|c| c.name == name)?;
            let stored = self.stored_index(now);
            let at = then.shown.iter().position(|s| *s == stored)?;
            Some(then.columns[at].name.clone())
        };
        match &mut object.definition {
            Definition::Stream(d) => {
                let watermark = d.watermark.take();
                d.watermark = watermark.and_then(|mut watermark| {
                    watermark.column = renamed(&watermark.column)?;
                    Some(watermark)
                });
            }
            Definition::Table(d) => {
                d.primary_key = d.primary_key.iter().filter_map(|n| renamed(n)).collect();
            }
            Definition::MaterializedView(_)
            | Definition::View(_)
            | Definition::Sink(_)
            | Definition::Index(_) => {}
        }
        if let Some((columns, shape)) = object.definition.columns_and_shape() {
            *columns = then.columns;
            shape.shown = then.shown;
            shape.shown_version = Some(version);
        }
        object
    }

    /// The version that its columns are of: the newest, but for what [`Self::at_version`] gave.
    pub fn shown_version(&self) -> usize {
        let shown = self.shape().and_then(|shape| shape.shown_version);
        shown.unwrap_or(self.version())
    }

    /// The place of a present column among the stored ones.
    pub fn stored_index(&self, column: usize) -> usize {
        self.shape().map_or(column, |shape| shape.shown[column])
    }

    /// The stored columns, oldest first; for a relation that never was altered its columns.
    pub fn stored_columns(&self) -> Vec<StoredColumn> {
        if let Some(shape) = self.shape() {
            return shape.stored.clone();
        }
        self.columns().iter().map(StoredColumn::new).collect()
    }

    /// How many of the stored columns were there at the creation.
    pub fn original_columns(&self) -> usize {
        self.shape()
            .map_or(self.columns().len(), |shape| shape.original)
    }

    /// The relation with all stored columns in their places: present ones under their present
    /// names, dropped ones under names that nobody can say. What pipelines read.
    pub fn with_stored_columns(&self) -> Self {
        self.with_columns_named(|at, stored, present| match present {
            Some(column) => column.name.clone(),
            None => unsayable(at, stored),
        })
    }

    /// As [`Self::with_stored_columns`], under the names that a connector's records carry.
    pub fn with_sent_columns(&self) -> Self {
        let mut object =
            self.with_columns_named(|at, stored, present| match (present, &stored.sent_as) {
                (None, _) => unsayable(at, stored),
                (Some(_), Some(sent)) => sent.clone(),
                (Some(column), None) => column.name.clone(),
            });
        let shown = self.shape().map(|shape| shape.shown.clone());
        if let Some((_, shape)) = object.definition.columns_and_shape() {
            for (at, column) in shown.unwrap_or_default().into_iter().zip(self.columns()) {
                shape.stored[at].definition.name.clone_from(&column.name);
            }
        }
        object
    }

    /// Of [`Self::with_sent_columns`]: the columns' own names beside those that they are sent under.
    pub fn other_names(&self) -> Vec<(String, String)> {
        let stored = self.shape().map_or(&[][..], |shape| &shape.stored);
        let renamed = stored.iter().filter(|stored| !stored.dropped);
        let renamed = renamed.filter_map(|stored| {
            let sent = stored.sent_as.clone()?;
            Some((stored.definition.name.clone(), sent))
        });
        // A name under which another column comes is that one's.
        let is_sent = |own: &str| self.columns().iter().any(|column| column.name == own);
        renamed.filter(|(own, _)| !is_sent(own)).collect()
    }

    /// Of [`Self::with_sent_columns`]: names under which records may carry a field that is none of its columns, and
    /// yet not new: that of a column that was dropped, or of one that is filled from elsewhere.
    pub fn taken_names(&self) -> Vec<String> {
        let stored = self.shape().map_or(&[][..], |shape| &shape.stored);
        let dropped = stored.iter().filter(|stored| stored.dropped);
        let dropped = dropped.map(|s| s.sent_as.as_ref().unwrap_or(&s.definition.name));
        let filled = self.columns().iter().filter(|c| c.metadata_from.is_some());
        dropped.chain(filled.map(|c| &c.name)).cloned().collect()
    }

    /// Its columns come from those of `before` by an ALTER, or are the same: nothing that someone else altered
    /// meanwhile is lost by it.
    pub fn follows(&self, before: &Self) -> bool {
        let has_columns = |object: &Self| {
            let kind = &object.definition;
            matches!(kind, Definition::Stream(_) | Definition::Table(_))
        };
        if !has_columns(self) || !has_columns(before) {
            return true;
        }
        let places = |object: &Self| -> Vec<usize> {
            let columns = 0..object.columns().len();
            columns.map(|column| object.stored_index(column)).collect()
        };
        let names = |columns: &[ColumnDefinition]| -> Vec<String> {
            columns.iter().map(|column| column.name.clone()).collect()
        };
        let then = match self.shape().and_then(|s| s.versions.get(before.version())) {
            Some(then) => (names(&then.columns), then.shown.clone()),
            None if self.version() == before.version() => (names(self.columns()), places(self)),
            None => return false,
        };
        // Of two pipelines that found the same fields the second one adds nothing, or these would come twice.
        let origins = |object: &Self| -> Vec<Option<Evolved>> {
            let stored = object.stored_columns();
            stored.iter().map(|stored| stored.evolved.clone()).collect()
        };
        origins(self).starts_with(&origins(before))
            && then == (names(before.columns()), places(before))
    }

    /// Schema of the present columns under the names that a connector's records carry.
    pub fn sent_schema(&self) -> SchemaRef {
        let stored = self.stored_columns();
        let mut columns = self.columns().to_vec();
        for (at, column) in columns.iter_mut().enumerate() {
            if let Some(sent) = &stored[self.stored_index(at)].sent_as {
                column.name.clone_from(sent);
            }
        }
        columns_schema(&columns)
    }

    fn with_columns_named(
        &self,
        name: impl Fn(usize, &StoredColumn, Option<&ColumnDefinition>) -> String,
    ) -> Self {
        let mut object = self.clone();
        let Some(shape) = self.shape() else {
            return object;
        };
        let columns = shape.stored.iter().enumerate().map(|(at, stored)| {
            let shown = shape.shown.iter().position(|s| *s == at);
            let present = shown.map(|shown| &self.columns()[shown]);
            let mut column = present.unwrap_or(&stored.definition).clone();
            column.name = name(at, stored, present);
            if present.is_none() {
                column.nullable = true;
                column.metadata_from = None;
            }
            column
        });
        let columns: Vec<_> = columns.collect();
        if let Some((present, shape)) = object.definition.columns_and_shape() {
            *present = columns;
            shape.shown = (0..shape.stored.len()).collect();
        }
        object
    }

    /// `ADD COLUMN`; rows that are there hold `missing` (text form; `None`: NULL).
    pub fn add_column(&mut self, column: ColumnDefinition, missing: Option<String>) -> Result<()> {
        self.require_unused(&column.name)?;
        let (columns, shape) = self.alterable()?;
        shape.shown.push(shape.stored.len());
        shape.stored.push(StoredColumn {
            name: shape.unused_name(&column.name),
            missing,
            ..StoredColumn::new(&column)
        });
        columns.push(column);
        Ok(())
    }

    /// Columns come by themselves, all in one version.
    pub fn evolve_columns(&mut self, columns: Vec<(ColumnDefinition, Evolved)>) -> Result<()> {
        for (column, _) in &columns {
            self.require_unused(&column.name)?;
        }
        let (present, shape) = self.alterable()?;
        for (column, evolved) in columns {
            shape.shown.push(shape.stored.len());
            shape.stored.push(StoredColumn {
                name: shape.unused_name(&column.name),
                evolved: Some(evolved),
                ..StoredColumn::new(&column)
            });
            present.push(column);
        }
        Ok(())
    }

    /// `DROP COLUMN`.
    pub fn drop_column(&mut self, name: &str) -> Result<()> {
        let at = self.column_named(name)?;
        let (columns, shape) = self.alterable()?;
        let column = columns.remove(at);
        let stored = shape.shown.remove(at);
        let stored = &mut shape.stored[stored];
        stored.dropped = true;
        // Records go on carrying it.
        stored.sent_as.get_or_insert(column.name);
        Ok(())
    }

    /// `ALTER COLUMN name TYPE …`, to a type as which all stored rows can be read.
    pub fn widen_column(&mut self, name: &str, column: ColumnDefinition) -> Result<()> {
        let at = self.column_named(name)?;
        let (columns, shape) = self.alterable()?;
        let stored = shape.shown[at];
        for version in &mut shape.versions {
            if let Some(at) = version.shown.iter().position(|s| *s == stored) {
                version.columns[at].sql_type = column.sql_type.clone();
                version.columns[at].text_type = column.text_type;
            }
        }
        let definition = &mut shape.stored[stored].definition;
        definition.sql_type = column.sql_type.clone();
        definition.text_type = column.text_type;
        columns[at] = column;
        Ok(())
    }

    /// One column gives its name and its place to another, and goes.
    pub fn replace_column(&mut self, name: &str, by: &str) -> Result<()> {
        let (at, from) = (self.column_named(name)?, self.column_named(by)?);
        let (columns, shape) = self.alterable()?;
        let mut column = columns.remove(from);
        let stored = shape.shown.remove(from);
        name.clone_into(&mut column.name);
        // The one that comes is behind the one that goes.
        columns[at] = column;
        let gone = std::mem::replace(&mut shape.shown[at], stored);
        shape.stored[gone].dropped = true;
        let sent_as = shape.stored[gone].sent_as.take();
        shape.stored[stored].sent_as = sent_as;
        Ok(())
    }

    /// `RENAME COLUMN name TO new_name [FROM sent_as]`.
    pub fn rename_column(
        &mut self,
        name: &str,
        new_name: &str,
        sent_as: Option<String>,
    ) -> Result<()> {
        let at = self.column_named(name)?;
        self.require_unused(new_name)?;
        let (columns, shape) = self.alterable()?;
        columns[at].name = new_name.to_owned();
        let stored = shape.shown[at];
        shape.stored[stored].sent_as = sent_as;
        Ok(())
    }

    /// `ALTER COLUMN … SET | DROP NOT NULL`.
    pub fn set_nullable(&mut self, name: &str, nullable: bool) -> Result<()> {
        let at = self.column_named(name)?;
        let (columns, shape) = self.alterable()?;
        columns[at].nullable = nullable;
        if nullable {
            // Whoever knows the column from before meets the NULLs too.
            let stored = shape.shown[at];
            for version in &mut shape.versions {
                if let Some(at) = version.shown.iter().position(|s| *s == stored) {
                    version.columns[at].nullable = true;
                }
            }
        }
        Ok(())
    }

    /// The place of a column; 42703 without one.
    pub fn column_named(&self, name: &str) -> Result<usize> {
        let at = self.columns().iter().position(|c| c.name == name);
        at.ok_or_else(|| {
            Error::new(
                sqlstate::UNDEFINED_COLUMN,
                format!(
                    "column \"{name}\" of relation \"{}\" does not exist",
                    self.name
                ),
            )
        })
    }

    /// 42701 if a column of this name is there.
    fn require_unused(&self, name: &str) -> Result<()> {
        if self.columns().iter().all(|c| c.name != name) {
            return Ok(());
        }
        Err(Error::new(
            sqlstate::DUPLICATE_COLUMN,
            format!(
                "column \"{name}\" of relation \"{}\" already exists",
                self.name
            ),
        ))
    }

    /// Columns and shape, with the present state kept as a version.
    fn alterable(&mut self) -> Result<(&mut Vec<ColumnDefinition>, &mut Shape)> {
        let name = self.name.clone();
        let Some((columns, shape)) = self.definition.columns_and_shape() else {
            return Err(Error::new(
                sqlstate::WRONG_OBJECT_TYPE,
                format!("the columns of \"{name}\" cannot be altered"),
            ));
        };
        shape.remember(columns);
        Ok((columns, shape))
    }
}

/// A name for a dropped column: it starts with a character that no statement can hold.
fn unsayable(at: usize, stored: &StoredColumn) -> String {
    format!("\u{1}dropped {at} {}", stored.name)
}

#[cfg(test)]
mod tests {
    use super::super::definition::TableDefinition;
    use super::super::samples::{column, object};
    use super::*;

    fn table() -> CatalogObject {
        let definition = Definition::Table(TableDefinition {
            columns: vec![column("a"), column("b")],
            primary_key: vec!["a".to_owned()],
            options: Default::default(),
            shape: Shape::default(),
            on_commit: Default::default(),
        });
        object(20_000, "t", definition)
    }

    fn names(object: &CatalogObject) -> Vec<&str> {
        object.columns().iter().map(|c| c.name.as_str()).collect()
    }

    #[test]
    fn stored_columns_only_grow_and_are_never_reused() {
        let mut t = table();
        assert_eq!(t.version(), 0);
        t.add_column(column("c"), Some("7".to_owned())).unwrap();
        t.drop_column("b").unwrap();
        t.add_column(column("b"), None).unwrap();
        t.rename_column("c", "d", None).unwrap();
        assert_eq!(names(&t), ["a", "d", "b"]);
        let stored = t.stored_columns();
        let stored_names: Vec<_> = stored.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(stored_names, ["a", "b", "c", "b#3"]);
        assert_eq!(stored[2].missing.as_deref(), Some("7"));
        assert!(stored[1].dropped);
        let places: Vec<_> = (0..3).map(|i| t.stored_index(i)).collect();
        assert_eq!(places, [0, 2, 3]);
        assert_eq!((t.original_columns(), t.version()), (2, 4));
        let whole = t.with_stored_columns();
        assert_eq!(whole.columns()[2].name, "d");
        assert!(whole.columns()[1].name.starts_with('\u{1}'));
    }

    #[test]
    fn a_column_of_another_type_takes_a_place() {
        let mut t = table();
        t.add_column(column("new"), None).unwrap();
        t.add_column(column("c"), None).unwrap();
        t.replace_column("b", "new").unwrap();
        assert_eq!(names(&t), ["a", "b", "c"]);
        let places: Vec<_> = (0..3).map(|i| t.stored_index(i)).collect();
        assert_eq!(places, [0, 2, 3]);
        assert!(t.stored_columns()[1].dropped);
        let wide = ColumnDefinition::new("c", crate::types::SqlType::Double);
        t.widen_column("c", wide.clone()).unwrap();
        assert_eq!(t.columns()[2], wide);
        assert_eq!(t.stored_columns()[3].definition.sql_type, wide.sql_type);
        assert_eq!(t.at_version(2).columns()[3].sql_type, wide.sql_type);
    }

    #[test]
    fn a_version_keeps_names_and_places() {
        let mut t = table();
        t.rename_column("a", "k", None).unwrap();
        let Definition::Table(definition) = &mut t.definition else {
            panic!("a table");
        };
        definition.primary_key = vec!["k".to_owned()];
        t.add_column(column("c"), None).unwrap();
        let first = t.at_version(0);
        assert_eq!(names(&first), ["a", "b"]);
        let Definition::Table(definition) = &first.definition else {
            panic!("a table");
        };
        assert_eq!(definition.primary_key, ["a"]);
        assert_eq!(names(&t.at_version(1)), ["k", "b"]);
        assert_eq!(names(&t.at_version(9)), ["k", "b", "c"]);
    }

    #[test]
    fn what_was_dropped_or_is_filled_from_elsewhere_is_not_new() {
        let mut t = table();
        t.rename_column("b", "c", None).unwrap();
        t.drop_column("c").unwrap();
        let mut path = column("file");
        path.metadata_from = Some("file_path".to_owned());
        t.add_column(path, None).unwrap();
        assert_eq!(t.with_sent_columns().taken_names(), ["c", "file"]);
        assert!(table().taken_names().is_empty());
    }

    #[test]
    fn columns_that_come_by_themselves_come_in_one_version() {
        let mut t = table();
        let evolved = |first_in: &str| Evolved {
            stream: "t".to_owned(),
            at_us: 7,
            pipeline: "v".to_owned(),
            batch_id: 3,
            first_in: first_in.to_owned(),
        };
        let both = ["x", "y"].map(|name| (column(name), evolved(name)));
        t.evolve_columns(both.to_vec()).unwrap();
        assert_eq!((t.version(), names(&t).len()), (1, 4));
        assert_eq!(t.stored_columns()[3].evolved, Some(evolved("y")));
        assert!(t.follows(&table()));
        // Another pipeline found the same at the same time.
        let mut other = table();
        let others = both.map(|(column, evolved)| {
            let pipeline = "w".to_owned();
            (
                column,
                Evolved {
                    pipeline,
                    ..evolved
                },
            )
        });
        other.evolve_columns(others.to_vec()).unwrap();
        assert!(!other.follows(&t) && !t.follows(&other));
        let again = t.evolve_columns(vec![(column("x"), evolved("x"))]);
        assert_eq!(again.unwrap_err().sqlstate(), sqlstate::DUPLICATE_COLUMN);
        assert_eq!(t.version(), 1);
        let text = serde_json::to_string(&t).unwrap();
        assert_eq!(serde_json::from_str::<CatalogObject>(&text).unwrap(), t);
    }

    #[test]
    fn an_alter_follows_what_it_was_made_of_and_nothing_else() {
        let altered = |of: &CatalogObject, name: &str| {
            let mut altered = of.clone();
            altered.add_column(column(name), None).unwrap();
            altered
        };
        let t = table();
        let (x, y) = (altered(&t, "x"), altered(&t, "y"));
        assert!(t.follows(&t) && x.follows(&t) && altered(&x, "y").follows(&x));
        assert!(altered(&x, "y").follows(&t));
        for (one, other) in [(&x, &y), (&y, &x), (&t, &x)] {
            assert!(!one.follows(other));
        }
        let mut dropped = t.clone();
        dropped.drop_column("b").unwrap();
        assert!(dropped.follows(&t) && !dropped.follows(&x) && !x.follows(&dropped));
    }

    #[test]
    fn names_that_are_taken_or_missing_are_refused() {
        let mut t = table();
        let error = t.add_column(column("b"), None).unwrap_err();
        assert_eq!(error.sqlstate(), sqlstate::DUPLICATE_COLUMN);
        let error = t.rename_column("a", "b", None).unwrap_err();
        assert_eq!(error.sqlstate(), sqlstate::DUPLICATE_COLUMN);
        assert_eq!(
            t.drop_column("x").unwrap_err().sqlstate(),
            sqlstate::UNDEFINED_COLUMN
        );
        assert_eq!(t.version(), 0);
    }
}
