//! Named points at which a test makes the process die as `kill -9` would.
//!
//! `TIDEMILL_CRASH_AT=name` dies at the first pass of that point, `name:3` at the third. Unset, a
//! point costs one comparison. The names are part of the test suite, not of the user's contract.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

struct Armed {
    name: String,
    passes_left: AtomicU64,
}

fn armed() -> Option<&'static Armed> {
    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();
    ARMED
        .get_or_init(|| {
            let setting = std::env::var("TIDEMILL_CRASH_AT").ok()?;
            let (name, pass) = match setting.split_once(':') {
                Some((name, pass)) => (name.to_owned(), pass.parse().ok()?),
                None => (setting, 1),
            };
            Some(Armed {
                name,
                passes_left: AtomicU64::new(pass),
            })
        })
        .as_ref()
}

/// Dies here, without unwinding, flushing or answering, when a test asked for it.
pub fn crash_point(name: &str) {
    let Some(armed) = armed() else { return };
    if armed.name == name && armed.passes_left.fetch_sub(1, Ordering::SeqCst) == 1 {
        // SAFETY: a signal to our own process; it does not return from SIGKILL.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}
