//! The configuration file: the same settings as the flags, as keys of a TOML file.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Error, Result, sqlstate};
use crate::sql::names::nearest;

/// What a configuration file may say; an unknown key is an error.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub data: Option<PathBuf>,
    pub listen: Option<String>,
    pub http: Option<String>,
    pub memory_limit: Option<String>,
    pub log_level: Option<String>,
    pub log_format: Option<String>,
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub tls_client_ca: Option<PathBuf>,
    pub tls_required: Option<bool>,
    pub max_connections: Option<usize>,
    pub allowed_paths: Option<Vec<PathBuf>>,
    pub password_file: Option<PathBuf>,
}

impl Config {
    /// Reads a file; without one, nothing is set.
    pub fn read(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self::default());
        };
        let text = std::fs::read_to_string(path).map_err(|e| {
            Error::new(
                sqlstate::CONFIG_FILE_ERROR,
                format!("could not read configuration file {}: {e}", path.display()),
            )
        })?;
        toml::from_str(&text).map_err(|e| {
            Error::new(
                sqlstate::CONFIG_FILE_ERROR,
                format!(
                    "configuration file {}: {}",
                    path.display(),
                    reason(e.message())
                ),
            )
            .hint(hint(e.message()))
        })
    }
}

const KEYS: [&str; 13] = [
    "data",
    "listen",
    "http",
    "memory_limit",
    "log_level",
    "log_format",
    "tls_cert",
    "tls_key",
    "tls_client_ca",
    "tls_required",
    "max_connections",
    "allowed_paths",
    "password_file",
];

/// The key that a reader's message calls unknown.
fn unknown_key(message: &str) -> Option<&str> {
    message.strip_prefix("unknown field `")?.split('`').next()
}

/// Why a file cannot be used, in our words where they are known.
fn reason(message: &str) -> String {
    match unknown_key(message) {
        Some(key) => format!("key \"{key}\" does not exist"),
        None => message.lines().next().unwrap_or("").to_owned(),
    }
}

fn hint(message: &str) -> String {
    let near = unknown_key(message).and_then(|key| nearest(key, KEYS));
    match near {
        Some(key) => format!("Perhaps you meant {key}."),
        None => format!("Its keys are {}.", KEYS.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tidemill.toml");
        std::fs::write(&path, "lissten = '127.0.0.1:1'").unwrap();
        let error = Config::read(Some(&path)).unwrap_err();
        assert_eq!(error.sqlstate(), "F0000");
        let told = error.primary();
        assert!(told.ends_with("key \"lissten\" does not exist"), "{told}");
        assert_eq!(error.hint_text(), Some("Perhaps you meant listen."));
        std::fs::write(&path, "listen = '127.0.0.1:1'").unwrap();
        let config = Config::read(Some(&path)).unwrap();
        assert_eq!(config.listen.as_deref(), Some("127.0.0.1:1"));
    }
}
