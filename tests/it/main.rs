//! Integration tests: one binary. Each test starts the real server as a process of its own and
//! talks to it over the wire.

mod harness;
mod kill;
mod slt;
