//! The servers that tests start: where they are, and the loud word when one is missing.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The folder that `.ci/setup test` fills.
pub fn tools_dir() -> PathBuf {
    std::env::var_os("TIDEMILL_TOOLS").map_or_else(
        || {
            PathBuf::from(std::env::var_os("HOME").expect("HOME is set"))
                .join(".cache/tidemill-tools")
        },
        PathBuf::from,
    )
}

/// True if a tool is there. In CI it must be; elsewhere the test says that it was skipped.
pub fn is_there(path: &std::path::Path, what: &str) -> bool {
    if path.exists() {
        return true;
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "{what} is missing at {}",
        path.display()
    );
    eprintln!(
        "SKIPPED: {what} is missing at {}; `.ci/setup test` installs it",
        path.display()
    );
    false
}

/// A free port of the loopback interface.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .expect("a free port")
        .local_addr()
        .expect("an address")
        .port()
}

/// Waits until something listens on a loopback port.
pub fn wait_for_port(port: u16, within: Duration) {
    let start = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(start.elapsed() < within, "nothing listens on port {port}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A process that dies with its handle.
pub struct Process(Child);

impl Process {
    pub fn spawn(command: &mut Command) -> Self {
        Self(
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("the process starts"),
        )
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: the signal goes to our own child, which is reaped only by [`Self::kill`].
        unsafe { libc::kill(self.0.id() as libc::pid_t, signal) };
    }

    pub fn kill(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
