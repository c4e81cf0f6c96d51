//! Definitions, persisted; and the history tables' storage.
pub mod definition;
pub mod pg_catalog;
