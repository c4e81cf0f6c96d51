//! The `tidemill` binary: a thin shell around the library, and the allocator it runs with.

/// Batches pass buffers of megabytes from thread to thread. What one thread frees here the next one
/// gets, whichever it is, so that the process stays small and its memory warm; RocksDB and
/// librdkafka take theirs from the same.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Read by the allocator at its start: memory that has been free for two seconds goes back to the
/// system, by a thread of its own, so that an idle server is small.
#[allow(non_upper_case_globals)]
#[unsafe(export_name = "malloc_conf")]
pub static malloc_conf: &[u8; 60] =
    b"background_thread:true,dirty_decay_ms:2000,muzzy_decay_ms:0\0";

fn main() {
    tidemill::cli::main()
}
