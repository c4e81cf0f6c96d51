//! A PostgreSQL of the test's own: the measure of answers that do not come from this code base.
//!
//! It lives in a temporary folder, listens on loopback, and ends with the test. PostgreSQL refuses
//! to run as root, so root starts it as the user `postgres`, or `nobody`. Where it is not
//! installed, `start` says so and gives none; nothing is downloaded.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

/// Where distributions put the server's programs, a folder per version below.
const FOLDERS: [&str; 3] = [
    "/usr/lib/postgresql",
    "/usr/pgsql",
    "/opt/homebrew/opt/postgresql",
];
const START_TIME_MAX: Duration = Duration::from_secs(30);

/// A running server; it ends when dropped.
pub struct Postgres {
    child: Child,
    port: u16,
    folder: TempDir,
}

impl Postgres {
    /// A new, empty server. Without PostgreSQL on the machine, none, and a line that says what
    /// the test therefore did not do.
    pub fn start(what: &str) -> Option<Self> {
        let Some(programs) = programs() else {
            eprintln!(
                "SKIPPED: {what}: no PostgreSQL in {FOLDERS:?}; `.ci/setup test` installs it, \
                 TIDEMILL_POSTGRES names the folder of another"
            );
            return None;
        };
        let folder = TempDir::new().expect("a temporary folder");
        let owner = unprivileged();
        if let Some((user, group)) = owner {
            chown(folder.path(), Some(user), Some(group)).expect("root can give its folder away");
        }
        let data = folder.path().join("data");
        let made = command(&programs.join("initdb"), owner)
            .current_dir(folder.path())
            .args(["--auth", "trust", "--username", "tidemill", "--no-sync"])
            .args(["--encoding", "UTF8", "--locale", "C.UTF-8", "--pgdata"])
            .arg(&data)
            .output()
            .expect("initdb runs");
        assert!(
            made.status.success(),
            "initdb: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        let port = free_port();
        let log = std::fs::File::create(folder.path().join("log")).expect("a log file");
        let child = command(&programs.join("postgres"), owner)
            .current_dir(folder.path())
            .arg("-D")
            .arg(&data)
            .arg("-k")
            .arg(folder.path())
            .args(["-p", &port.to_string()])
            .args(["-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"])
            .args(["-c", "timezone=UTC", "-c", "max_connections=50"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("PostgreSQL starts");
        Some(Self {
            child,
            port,
            folder,
        })
    }

    /// The folder of PostgreSQL's programs, if this one is among them.
    pub fn folder_of(program: &str) -> Option<PathBuf> {
        programs().filter(|folder| folder.join(program).is_file())
    }

    /// Where it listens on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A new connection; waits while the server starts.
    pub async fn connect(&self) -> Client {
        let config = format!(
            "host=127.0.0.1 port={} user=tidemill dbname=postgres",
            self.port
        );
        let start = Instant::now();
        loop {
            match tokio_postgres::connect(&config, NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(async move {
                        // The server ends with the test; whoever waits for an answer is told.
                        connection.await.ok();
                    });
                    return client;
                }
                Err(e) if start.elapsed() > START_TIME_MAX => panic!("{e}; {}", self.log()),
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SAFETY: the signal goes to our own child, which has not been reaped yet. SIGQUIT ends
        // its children too, which SIGKILL would not.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGQUIT) };
        self.child.wait().expect("our own child is reaped");
    }
}

/// The folder of the newest installed version's programs.
fn programs() -> Option<PathBuf> {
    if let Ok(folder) = std::env::var("TIDEMILL_POSTGRES") {
        return Some(PathBuf::from(folder));
    }
    let versions = FOLDERS.iter().filter_map(|f| std::fs::read_dir(f).ok());
    let mut found: Vec<(u32, PathBuf)> = versions
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let version = path.file_name()?.to_str()?.parse().ok()?;
            let programs = path.join("bin");
            programs
                .join("initdb")
                .is_file()
                .then_some((version, programs))
        })
        .collect();
    found.sort();
    found.pop().map(|(_, programs)| programs)
}

/// For root: the user and group to run as.
fn unprivileged() -> Option<(u32, u32)> {
    // SAFETY: reads the process's user, and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("a list of users");
    let find = |name: &str| {
        users.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            let [user, _, uid, gid, ..] = fields[..] else {
                return None;
            };
            (user == name).then_some((uid.parse().ok()?, gid.parse().ok()?))
        })
    };
    Some(
        find("postgres")
            .or_else(|| find("nobody"))
            .expect("a user that is not root"),
    )
}

fn command(program: &Path, owner: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    if let Some((user, group)) = owner {
        command.uid(user).gid(group);
    }
    command
}

/// A port that nobody listens on now. Another process may take it before the server does; the
/// test then fails to connect and says what the server logged.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}
