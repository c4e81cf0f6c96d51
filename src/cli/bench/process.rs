//! What the kernel accounts to a server under measurement, and what the server says.

use std::time::Duration;

use tokio_postgres::{Client, SimpleQueryMessage};

use crate::cli::server_process::ServerProcess;
use crate::cli::sql::wire_error;
use crate::error::Result;

/// A figure of `/proc/PID/status` in bytes: `VmRSS`, `VmHWM`.
pub(super) fn memory_bytes(server: &ServerProcess, figure: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()?))?;
    let line = status
        .lines()
        .find(|l| l.starts_with(figure))
        .unwrap_or_default();
    let kib: u64 = line
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    Ok(kib * 1024)
}

/// CPU time used so far, user and system.
pub(super) fn cpu_time(server: &ServerProcess) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.pid()?))?;
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks: u64 = [11, 12]
        .iter()
        .filter_map(|i| fields.get(*i)?.parse::<u64>().ok())
        .sum();
    // Linux counts in hundredths of a second for user space (USER_HZ, proc(5)).
    Ok(Duration::from_millis(ticks * 10))
}

/// CPU time that this process has used so far, user and system, all threads.
pub(super) fn own_cpu_time() -> Result<Duration> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the structure, which is large enough and lives as long as the call.
    let status = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    if status != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: zeroed is a valid value of it, and the call succeeded.
    let usage = unsafe { usage.assume_init() };
    let of = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1_000);
    Ok(of(usage.ru_utime) + of(usage.ru_stime))
}

/// The only value of a query.
pub(super) async fn value(client: &Client, sql: &str) -> Result<String> {
    let messages = client.simple_query(sql).await.map_err(|e| wire_error(&e))?;
    let row = messages.iter().find_map(|m| match m {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(row.unwrap_or_default().to_owned())
}
