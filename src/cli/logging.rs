//! Structured logs to stderr, as text or as JSON lines.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::Settings;
use crate::error::{Error, Result, sqlstate};

/// Starts logging for this process, at `default_level` unless the settings say otherwise.
pub(super) fn start(settings: &Settings, default_level: &str) -> Result<()> {
    let level = settings.log_level.as_deref().unwrap_or(default_level);
    let filter = EnvFilter::try_new(level).map_err(|_| {
        Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("invalid log level: \"{level}\""),
        )
        .hint("Use error, warn, info, debug or trace.")
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = match settings.log_format.as_deref() {
        None | Some("text") => builder
            .with_ansi(std::io::stderr().is_terminal())
            .try_init(),
        Some("json") => builder.json().try_init(),
        Some(other) => {
            return Err(Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("invalid log format: \"{other}\""),
            )
            .hint("Use text or json."));
        }
    };
    started.map_err(|_| Error::internal("logging is started twice"))
}
