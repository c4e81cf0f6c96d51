//! Where time comes from.
//!
//! Every part that needs the time gets a [`Clock`] handed to it, so that a simulation decides
//! what time it is. `clippy.toml` bans the direct calls. Operators of the dataflow never read a
//! clock: a batch's wall time is fixed in the offset log, so that replay is exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// A source of wall time and of monotonic time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Microseconds since 1970-01-01T00:00:00Z.
    fn now_us(&self) -> i64;
    /// Time since an arbitrary fixed instant; never goes back. For durations only.
    fn monotonic(&self) -> Duration;
}

/// Shared handle to a clock.
pub type ClockRef = Arc<dyn Clock>;

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock {
    start: std::time::Instant,
}

impl SystemClock {
    /// A handle to the machine's clock.
    #[allow(clippy::disallowed_methods)]
    pub fn shared() -> ClockRef {
        Arc::new(Self {
            start: std::time::Instant::now(),
        })
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)]
    fn now_us(&self) -> i64 {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.as_micros() as i64)
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

/// A clock that moves only when told to; for simulations and tests.
#[derive(Debug, Default)]
pub struct ManualClock {
    now_us: AtomicI64,
}

impl ManualClock {
    /// A clock that stands at `now_us` microseconds since the epoch.
    pub fn at(now_us: i64) -> Arc<Self> {
        Arc::new(Self {
            now_us: AtomicI64::new(now_us),
        })
    }

    /// Moves the clock forward (or, for a clock jump, back).
    pub fn advance_us(&self, by_us: i64) {
        self.now_us.fetch_add(by_us, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_us(&self) -> i64 {
        self.now_us.load(Ordering::SeqCst)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.now_us().max(0) as u64)
    }
}
