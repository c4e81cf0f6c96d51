//! The configuration file: the same settings as the flags, as keys of a TOML file.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Error, Result, sqlstate};

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
                format!("configuration file {}: {}", path.display(), e.message()),
            )
            .hint("Its keys are data, listen, http, memory_limit, log_level and log_format.")
        })
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
        assert!(error.primary().contains("lissten"), "{error}");
        std::fs::write(&path, "listen = '127.0.0.1:1'").unwrap();
        let config = Config::read(Some(&path)).unwrap();
        assert_eq!(config.listen.as_deref(), Some("127.0.0.1:1"));
    }
}
