//! Starts, kills and restarts a real server, and speaks SQL with it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// A server process over a data directory that outlives its kills.
pub struct Server {
    dir: PathBuf,
    _temp: Option<TempDir>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    child: Option<Child>,
    address: String,
    http: String,
}

impl Server {
    /// A server over a new directory.
    pub fn start() -> Self {
        Self::start_with(&[], &[])
    }

    /// With more arguments and environment variables.
    pub fn start_with(arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let temp = TempDir::new().expect("a temporary folder");
        let mut server = Self {
            dir: temp.path().to_owned(),
            _temp: Some(temp),
            arguments: arguments.iter().map(|s| (*s).to_owned()).collect(),
            environment: environment
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect(),
            child: None,
            address: String::new(),
            http: String::new(),
        };
        server.restart();
        server
    }

    /// The folder that holds `data` and whatever a test puts beside it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// `host:port` of the HTTP endpoint.
    pub fn http(&self) -> &str {
        &self.http
    }

    /// `host:port` of the Postgres endpoint.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Starts the process and waits for its ready line.
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "the server is running");
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.dir.join("server.log"))
            .expect("a log file");
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidemill"))
            .arg("serve")
            .args(["--data", self.data_dir().to_str().expect("a UTF-8 path")])
            .args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
            .args(&self.arguments)
            .envs(self.environment.iter().cloned())
            .current_dir(&self.dir)
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the server starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .expect("a ready line");
        let field = |name: &str| {
            line.split_whitespace()
                .find_map(|word| word.strip_prefix(name))
                .unwrap_or_else(|| {
                    panic!("no {name} in the ready line {line:?}; log:\n{}", self.log())
                })
                .trim_start_matches("http://")
                .to_owned()
        };
        assert!(
            line.starts_with("tidemill ready:"),
            "ready line: {line:?}; log:\n{}",
            self.log()
        );
        let (address, http) = (field("postgres="), field("http="));
        self.address = address;
        self.http = http;
        self.child = Some(child);
    }

    /// Memory that the process has now.
    pub fn resident_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// The most memory that the process ever had.
    pub fn peak_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    fn status_bytes(&self, field: &str) -> u64 {
        let pid = self.child.as_ref().expect("the server is running").id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process");
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.expect("a number of kB") << 10
    }

    /// What the server logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("server.log")).unwrap_or_default()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("the server is running");
        child.kill().expect("our own child can be killed");
        child.wait().expect("a killed child is reaped");
    }

    /// True while the process lives; a process that ended by itself is reaped.
    pub fn is_alive(&mut self) -> bool {
        let ended = match &mut self.child {
            Some(child) => child.try_wait().expect("our own child").is_some(),
            None => return false,
        };
        if ended {
            self.child = None;
        }
        !ended
    }

    /// SIGTERM; waits for a clean exit.
    pub fn terminate(&mut self) {
        let mut child = self.child.take().expect("the server is running");
        // SAFETY: the signal goes to our own child, which has not been reaped yet.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
        let status = child.wait().expect("the server ends");
        assert!(
            status.success(),
            "exit status {status}; log:\n{}",
            self.log()
        );
    }

    /// Sets or removes an environment variable of the next start.
    pub fn set_environment(&mut self, name: &str, value: Option<&str>) {
        self.environment.retain(|(n, _)| n != name);
        if let Some(value) = value {
            self.environment.push((name.to_owned(), value.to_owned()));
        }
    }

    /// Reaps a server that has died by itself.
    pub fn reap(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.wait().expect("a dead child is reaped");
        }
    }

    /// A new connection.
    pub async fn connect(&self) -> Client {
        self.try_connect().await.expect("connects")
    }

    /// A new connection to a server that may be dying.
    pub async fn try_connect(&self) -> Result<Client, tokio_postgres::Error> {
        let (host, port) = self.address.split_once(':').expect("host:port");
        let config = format!("host={host} port={port} user=tidemill dbname=tidemill");
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
        tokio::spawn(async move {
            // A killed server ends the connection; the statement in flight reports it.
            connection.await.ok();
        });
        Ok(client)
    }

    /// Runs statements on a connection of their own.
    pub async fn execute(&self, sql: &str) {
        let client = self.connect().await;
        if let Err(e) = client.batch_execute(sql).await {
            panic!("{sql}\n{}\nlog:\n{}", describe(&e), self.log());
        }
    }

    /// All rows of a query as texts, NULL as `NULL`.
    pub async fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        let client = self.connect().await;
        rows(&client, sql)
            .await
            .unwrap_or_else(|e| panic!("{sql}\n{}\nlog:\n{}", describe(&e), self.log()))
    }

    /// The only value of a query.
    pub async fn value(&self, sql: &str) -> String {
        let rows = self.rows(sql).await;
        assert!(rows.len() == 1 && rows[0].len() == 1, "{sql} gave {rows:?}");
        rows[0][0].clone()
    }

    /// Waits until a query's only value is `expected`.
    pub async fn wait_for_value(&self, sql: &str, expected: &str, within: Duration) {
        let start = Instant::now();
        loop {
            let got = self.value(sql).await;
            if got == expected {
                return;
            }
            assert!(
                start.elapsed() < within,
                "{sql} gave {got}, not {expected}, for {within:?}; log:\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

/// All rows of a query as texts.
pub async fn rows(client: &Client, sql: &str) -> Result<Vec<Vec<String>>, tokio_postgres::Error> {
    let messages = client.simple_query(sql).await?;
    Ok(messages
        .iter()
        .filter_map(|m| match m {
            SimpleQueryMessage::Row(row) => Some(
                (0..row.len())
                    .map(|i| row.get(i).unwrap_or("NULL").to_owned())
                    .collect(),
            ),
            _ => None,
        })
        .collect())
}

/// An error as psql shows it.
pub fn describe(e: &tokio_postgres::Error) -> String {
    match e.as_db_error() {
        Some(db) => format!(
            "{}: {} {}\nDETAIL: {:?}\nHINT: {:?}",
            db.severity(),
            db.code().code(),
            db.message(),
            db.detail(),
            db.hint()
        ),
        None => e.to_string(),
    }
}

/// A test that takes longer hangs, and the others are to be told of all the same.
const TEST_MAX: Duration = Duration::from_secs(20 * 60);

/// A runtime for one test, which fails when it hangs.
pub fn run<F: std::future::Future>(test: F) -> F::Output {
    let time = TEST_MAX * u32::try_from(crate::soak::factor()).unwrap_or(u32::MAX);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(async { tokio::time::timeout(time, test).await })
        .unwrap_or_else(|_| panic!("the test did not end within {} s", time.as_secs()))
}
