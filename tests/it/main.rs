//! Integration tests: one binary. Each test starts the real server as a process of its own and
//! talks to it over the wire; the oracle uses the library, which the server is a client of.

// Tests wait for real processes in real time.
#![allow(clippy::disallowed_methods)]

mod access;
mod answers;
mod azure;
mod beside_postgres;
mod clients;
mod crash_points;
mod embedded;
mod evolution;
mod files;
mod filling;
mod harness;
mod http;
mod kafka;
mod kill;
mod limits;
mod merging;
mod nexmark;
mod oracle;
mod postgres;
mod protocol_fuzz;
mod proxy;
mod psql;
mod random;
mod recovery;
mod renaming;
mod row_locks;
mod s3;
mod slt;
#[path = "../../src/soak.rs"]
mod soak;
mod temporal_join;
mod temporary;
mod time_zones;
mod tools;
mod tpch;
mod unreliable_store;
mod user_functions;
mod word_count;
