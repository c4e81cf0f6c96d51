//! The `tidemill` binary: a thin shell around the library.

/// Streaming state allocates many small short-lived buffers on all cores, where the system's
/// allocator gives memory back late.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    tidemill::cli::main()
}
