//! How long the seeded tests run: seconds with `make test`, hours with `make soak`.
//!
//! `TIDEMILL_SOAK` says how many times as many seeds are tried as usual, and `TIDEMILL_SOAK_FROM`
//! is added to them, so that every soak tries others. A test that fails says how its seed is tried again.

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

/// A seed that is being tried: should the test fail meanwhile, it is said how to try it again.
pub struct Tried {
    seed: u64,
    /// The first of the usual seeds.
    usual: u64,
}

/// Begins to try a seed of those that [`seeds`] gave for `usual`.
pub fn tried(seed: u64, usual: &Range<u64>) -> Tried {
    let usual = usual.start;
    Tried { seed, usual }
}

impl Drop for Tried {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let from = self.seed.saturating_sub(self.usual);
            eprintln!(
                "seed {}; the same again, and those after it: TIDEMILL_SOAK=1 TIDEMILL_SOAK_FROM={from} cargo test",
                self.seed
            );
        }
    }
}
