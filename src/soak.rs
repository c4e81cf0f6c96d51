//! How long the seeded tests run: seconds with `make test`, hours with `make soak`.
//!
//! `TIDEMILL_SOAK` says how many times as many seeds are tried as usual, and `TIDEMILL_SOAK_FROM`
//! is added to them, so that every soak tries others. A test names the seed that fails.

use std::ops::Range;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// How many times as much as usual is tried.
pub fn factor() -> u64 {
    number("TIDEMILL_SOAK").unwrap_or(1).max(1)
}

/// The seeds that a test tries, usually `usual`.
pub fn seeds(usual: Range<u64>) -> Range<u64> {
    if number("TIDEMILL_SOAK").is_none() {
        return usual;
    }
    let first = usual.start + number("TIDEMILL_SOAK_FROM").unwrap_or(0);
    first..first + (usual.end - usual.start) * factor()
}
