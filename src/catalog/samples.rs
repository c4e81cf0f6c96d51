//! Definitions for the tests of all modules, in which nothing is said but what a test is about.

use super::definition::{CatalogObject, ColumnDefinition, Definition, StreamDefinition};
use crate::types::SqlType;

/// A `bigint` column that may be NULL.
pub(crate) fn column(name: &str) -> ColumnDefinition {
    ColumnDefinition::new(name, SqlType::BigInt)
}

/// An object without a comment, created at the beginning of time.
pub(crate) fn object(oid: u32, name: &str, definition: Definition) -> CatalogObject {
    CatalogObject {
        name: name.to_owned(),
        oid,
        created_at_us: 0,
        comment: None,
        kept_as: None,
        renamed: Default::default(),
        definition,
    }
}

/// A stream without a connector, of `bigint` columns.
pub(crate) fn stream(oid: u32, name: &str, columns: &[&str]) -> CatalogObject {
    let definition = StreamDefinition {
        columns: columns.iter().map(|name| column(name)).collect(),
        watermark: None,
        expectations: Vec::new(),
        connector: None,
        options: Default::default(),
        shape: Default::default(),
    };
    object(oid, name, Definition::Stream(definition))
}
