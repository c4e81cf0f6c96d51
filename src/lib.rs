//! Tidemill: a streaming SQL database in one binary.
//!
//! The library is the whole database; the `tidemill` binary and the Postgres-wire server are
//! clients of [`database::Database`]. Dependencies between the modules point one way:
//!
//! ```text
//! cli, server  ->  database, session  ->  sql
//!                        |-> engine  ->  dataflow  ->  state
//!                        |      |-> checkpoint  ->  state, object_store
//!                        |      |-> connectors  ->  log
//!                        |-> catalog, log
//! error, types, values, clock: used by all, use none
//! ```
//!
//! `ARCHITECTURE.md` has the map and the invariants.

pub mod catalog;
pub mod checkpoint;
pub mod cli;
pub mod clock;
pub mod connectors;
#[cfg(test)]
mod counting_allocator;
pub mod crash_point;
pub mod database;
pub mod dataflow;
pub mod engine;
pub mod error;
pub mod log;
mod object_stores;
pub mod server;
pub mod session;
#[cfg(test)]
mod soak;
pub mod sql;
pub mod state;
pub mod types;
mod values;

pub use database::{Database, DatabaseOptions};
pub use datafusion::arrow;
pub use error::{Error, Result};
pub use sql::host_functions::{AggregateFunction, Determinism, HostFunction, ScalarFunction};
