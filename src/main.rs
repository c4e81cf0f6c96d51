//! The `tidemill` binary: a thin shell around the library, and the allocator it runs with.

use std::time::Duration;

/// Streaming state allocates many small short-lived buffers on all cores, where the system's
/// allocator gives memory back late.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// mimalloc's option `purge_delay`: milliseconds until free memory goes back to the system. Its
/// number is not among those that the bindings name.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Batches free and take the same memory many times a second: each time it came back from the
/// system it would be cleared again, a tenth of all work at full load.
const PURGE_DELAY_MS: std::ffi::c_long = 10_000;

/// How often memory that stayed free is given back for certain, so that an idle server is small.
const COLLECT_INTERVAL: Duration = Duration::from_secs(4);

fn main() {
    // SAFETY: sets a number; nothing is read through it.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, PURGE_DELAY_MS) };
    let collector = std::thread::Builder::new().name("tidemill-memory".into());
    // A thread of its own, outside of every runtime and test: there is no other clock to ask.
    #[allow(clippy::disallowed_methods)]
    let spawned = collector.spawn(|| {
        loop {
            std::thread::sleep(COLLECT_INTERVAL);
            // SAFETY: the allocators' own housekeeping, which any thread may ask for.
            unsafe { libmimalloc_sys::mi_collect(true) };
            // RocksDB and librdkafka take theirs from the system's.
            #[cfg(all(target_os = "linux", target_env = "gnu"))]
            // SAFETY: as above.
            unsafe {
                libc::malloc_trim(0)
            };
        }
    });
    if let Err(error) = spawned {
        // Without it free memory still goes back, only later.
        eprintln!("tidemill: could not start the memory collector: {error}");
    }
    tidemill::cli::main()
}
