//! The command line: arguments, configuration, and what each command does with the library.
//!
//! Absent: any knowledge of pipelines or of the wire. Results go to stdout, everything else to
//! stderr.

mod bench;
mod checkpoint;
mod config;
mod demo;
mod logging;
mod print;
mod progress;
mod run;
mod serve;
mod server_process;
mod sql;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use self::config::Config;
use crate::clock::SystemClock;
use crate::error::{Error, Result, sqlstate};
use crate::session::threads::PLANNING_STACK_BYTES;

/// Streaming SQL database in one binary.
#[derive(Debug, Parser)]
#[command(name = "tidemill", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    settings: Settings,
}

/// Settings of several commands; each is also an environment variable and a key of the
/// configuration file. A flag wins over the environment, the environment over the file.
#[derive(Debug, Default, Clone, Args)]
struct Settings {
    /// Data directory [default: ./tidemill-data]
    #[arg(long, global = true, env = "TIDEMILL_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Memory for state and queries, such as 1GiB [default: 1GiB]
    #[arg(
        long,
        global = true,
        env = "TIDEMILL_MEMORY_LIMIT",
        value_name = "BYTES"
    )]
    memory_limit: Option<String>,
    /// Configuration file (TOML)
    #[arg(long, global = true, env = "TIDEMILL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// What is logged to stderr: error, warn, info, debug, trace, or a filter [default: info]
    #[arg(long, global = true, env = "TIDEMILL_LOG_LEVEL", value_name = "LEVEL")]
    log_level: Option<String>,
    /// How it is logged: text or json [default: text]
    #[arg(
        long,
        global = true,
        env = "TIDEMILL_LOG_FORMAT",
        value_name = "FORMAT"
    )]
    log_format: Option<String>,
}

/// Settings of the server alone.
#[derive(Debug, Default, Clone, Args)]
struct ServeSettings {
    /// Address of the Postgres wire [default: 127.0.0.1:5433]
    #[arg(long, env = "TIDEMILL_LISTEN", value_name = "ADDRESS")]
    listen: Option<String>,
    /// Address of metrics and health over HTTP [default: 127.0.0.1:8433]
    #[arg(long, env = "TIDEMILL_HTTP", value_name = "ADDRESS")]
    http: Option<String>,
    /// Certificate chain in PEM; with --tls-key connections can be encrypted
    #[arg(long, env = "TIDEMILL_TLS_CERT", value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key in PEM of the certificate
    #[arg(long, env = "TIDEMILL_TLS_KEY", value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Certificates in PEM of who signs those of clients, whose common name is the user's
    #[arg(long, env = "TIDEMILL_TLS_CLIENT_CA", value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// Refuse unencrypted connections from other machines
    #[arg(long, env = "TIDEMILL_TLS_REQUIRED")]
    tls_required: bool,
    /// Connections at once [default: 1000]
    #[arg(long, env = "TIDEMILL_MAX_CONNECTIONS", value_name = "COUNT")]
    max_connections: Option<usize>,
    /// Folder that connectors may read and write once there are users; may be given several times
    #[arg(
        long = "allowed-path",
        env = "TIDEMILL_ALLOWED_PATHS",
        value_name = "FOLDER",
        value_delimiter = ':'
    )]
    allowed_paths: Vec<PathBuf>,
    /// File with the first superuser's password, for a start without users
    #[arg(long, env = "TIDEMILL_PASSWORD_FILE", value_name = "FILE")]
    password_file: Option<PathBuf>,
}

impl ServeSettings {
    /// These settings, and where one is not given, the file's.
    fn or(self, config: Config) -> Self {
        Self {
            listen: self.listen.or(config.listen),
            http: self.http.or(config.http),
            tls_cert: self.tls_cert.or(config.tls_cert),
            tls_key: self.tls_key.or(config.tls_key),
            tls_client_ca: self.tls_client_ca.or(config.tls_client_ca),
            tls_required: self.tls_required || config.tls_required.unwrap_or(false),
            max_connections: self.max_connections.or(config.max_connections),
            allowed_paths: match self.allowed_paths.is_empty() {
                true => config.allowed_paths.unwrap_or_default(),
                false => self.allowed_paths,
            },
            password_file: self.password_file.or(config.password_file),
        }
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    Serve(ServeSettings),
    /// Run scripts embedded, to the end of what is available; no server
    Run {
        /// Scripts, in this order; without --data they run in a folder that is then deleted
        #[arg(required = true, value_name = "FILE.sql")]
        files: Vec<PathBuf>,
    },
    /// Run statements on a data directory or a server
    Sql {
        /// Statements; without it they are read from stdin
        #[arg(short = 'c', long, value_name = "SQL")]
        command: Option<String>,
        /// Server to connect to, such as postgres://localhost:5433/tidemill
        #[arg(long, value_name = "URL", conflicts_with = "data")]
        connect: Option<String>,
    },
    /// Put a backup of BACKUP DATABASE into a new data directory
    Restore {
        /// Path or URL of the backup
        location: String,
    },
    /// Look at a checkpoint and mend it, without a server
    Checkpoint {
        #[command(subcommand)]
        command: checkpoint::CheckpointCommand,
    },
    /// Streams, views, a kill -9, the recovery and the dashboard query, on generated data
    Demo,
    /// The benchmark workloads on this build
    Bench {
        /// Workloads; none: all
        workloads: Vec<String>,
    },
}

/// Runs the command line of this process and ends it.
///
/// The process ends without running exit handlers: RocksDB's static objects must not be destroyed
/// under threads that may still be at work in it. All that must last is synced by then.
pub fn main() -> ! {
    let code = run_process();
    for flushed in [std::io::stdout().flush(), std::io::stderr().flush()] {
        // Nobody is left to be told of a closed pipe.
        flushed.ok();
    }
    let status = if code == ExitCode::SUCCESS {
        0
    } else if code == ExitCode::from(run::INTERRUPTED) {
        i32::from(run::INTERRUPTED)
    } else {
        1
    };
    // SAFETY: ends the process at once; no Rust code runs after it.
    unsafe { libc::_exit(status) }
}

fn run_process() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("tidemill")
        // Expressions nest as deep as the parser allows, and planning recurses over them.
        .thread_stack_size(PLANNING_STACK_BYTES)
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            print::error(&Error::from(error).context("could not start threads"));
            return ExitCode::FAILURE;
        }
    };
    let code = runtime.block_on(run_arguments(std::env::args_os()));
    // Work on blocking threads may wait for a disk or a network that does not answer.
    runtime.shutdown_background();
    code
}

/// Runs a command line; its first item is the program's name.
pub async fn run_arguments(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    };
    match dispatch(arguments).await {
        Ok(code) => code,
        Err(error) => {
            print::error(&error);
            ExitCode::FAILURE
        }
    }
}

async fn dispatch(arguments: Arguments) -> Result<ExitCode> {
    let config = Config::read(arguments.settings.config.as_deref())?;
    let settings = arguments.settings.or(&config);
    match arguments.command {
        Command::Serve(serve) => {
            logging::start(&settings, "info")?;
            serve::serve(&settings, serve.or(config)).await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Run { files } => {
            logging::start(&settings, "warn")?;
            run::run(&settings, &files).await
        }
        Command::Sql { command, connect } => {
            logging::start(&settings, "warn")?;
            sql::sql(&settings, command, connect.as_deref()).await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Restore { location } => {
            logging::start(&settings, "warn")?;
            let data = settings.data_dir();
            let restored = crate::database::backup::restore(&location, &data).await?;
            let (files, bytes) = restored.size();
            print::line(&format!(
                "{files} files of {bytes} bytes and {} checkpoints restored to {}",
                restored.checkpoints.len(),
                data.display()
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Checkpoint { command } => {
            logging::start(&settings, "warn")?;
            let is_sound = checkpoint::run(command, &SystemClock::shared()).await?;
            Ok(match is_sound {
                true => ExitCode::SUCCESS,
                false => ExitCode::FAILURE,
            })
        }
        Command::Demo => {
            demo::run(&SystemClock::shared()).await?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Bench { workloads } => {
            bench::run(&workloads, &SystemClock::shared()).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

impl Settings {
    /// These settings, and where one is not given, the file's.
    fn or(self, config: &Config) -> Self {
        Self {
            data: self.data.or_else(|| config.data.clone()),
            memory_limit: self.memory_limit.or_else(|| config.memory_limit.clone()),
            config: self.config,
            log_level: self.log_level.or_else(|| config.log_level.clone()),
            log_format: self.log_format.or_else(|| config.log_format.clone()),
        }
    }

    /// The data directory.
    fn data_dir(&self) -> PathBuf {
        self.data
            .clone()
            .unwrap_or_else(|| PathBuf::from("./tidemill-data"))
    }

    /// How a database is opened.
    fn database_options(&self) -> Result<crate::DatabaseOptions> {
        let mut options = crate::DatabaseOptions::default();
        if let Some(text) = &self.memory_limit {
            let bytes = crate::sql::options::parse_bytes(text)
                .and_then(|bytes| usize::try_from(bytes).ok())
                .filter(|bytes| *bytes > 0)
                .ok_or_else(|| {
                    Error::new(
                        sqlstate::INVALID_PARAMETER_VALUE,
                        format!("invalid memory limit: \"{text}\""),
                    )
                    .hint("Write it like 512MiB or 4GiB.")
                })?;
            options.memory_limit_bytes = bytes;
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Arguments {
        Arguments::try_parse_from(arguments).unwrap()
    }

    #[test]
    fn the_arguments_are_well_formed() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_flag_wins_over_the_file() {
        let config: Config = toml::from_str("data = '/from/file'\nlog_format = 'json'").unwrap();
        let settings = parsed(&["tidemill", "serve", "--data", "/from/flag"])
            .settings
            .or(&config);
        assert_eq!(settings.data_dir(), PathBuf::from("/from/flag"));
        assert_eq!(settings.log_format.as_deref(), Some("json"));
    }

    #[test]
    fn memory_limits_are_bytes_with_units() {
        let limit = |text: &str| {
            let settings = Settings {
                memory_limit: Some(text.to_owned()),
                ..Settings::default()
            };
            settings.database_options().map(|o| o.memory_limit_bytes)
        };
        assert_eq!(limit("1GiB").unwrap(), 1 << 30);
        assert_eq!(limit("64 MB").unwrap(), 64 << 20);
        assert_eq!(limit("much").unwrap_err().sqlstate(), "22023");
    }

    #[test]
    fn data_and_connect_exclude_each_other() {
        let both = [
            "tidemill",
            "sql",
            "--data",
            "d",
            "--connect",
            "postgres://localhost",
        ];
        assert!(Arguments::try_parse_from(both).is_err());
    }
}
