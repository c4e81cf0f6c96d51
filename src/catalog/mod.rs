//! Definitions, persisted; and the history tables' storage.
pub mod definition;
