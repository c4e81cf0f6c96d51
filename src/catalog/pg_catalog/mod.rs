//! `pg_catalog` and `information_schema`.

pub mod backends;

/// The one database.
pub const DATABASE_NAME: &str = "tidemill";
