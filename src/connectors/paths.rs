//! Which local paths connectors may reach.
//!
//! Without users everyone on this machine may do what the server may. Once there are users, a stream
//! or sink must not be a way to files that its creator could not reach otherwise: local paths lie below
//! the allowed ones. Links and `..` are resolved first, as far as the path exists. Object stores are
//! not local.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result, sqlstate};

/// Says whether users are defined now.
type HasUsers = Arc<dyn Fn() -> bool + Send + Sync>;

/// The rule of a database.
#[derive(Clone)]
pub struct PathRule {
    allowed: Arc<Vec<PathBuf>>,
    has_users: HasUsers,
}

impl std::fmt::Debug for PathRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PathRule")
            .field("allowed", &self.allowed)
            .finish()
    }
}

impl Default for PathRule {
    /// Every path: for tools that run as whoever calls them.
    fn default() -> Self {
        Self::new(Vec::new(), Arc::new(|| false))
    }
}

impl PathRule {
    /// Below `allowed` while there are users.
    pub fn new(allowed: Vec<PathBuf>, has_users: HasUsers) -> Self {
        let allowed = allowed.iter().map(|path| resolved(path)).collect();
        Self {
            allowed: Arc::new(allowed),
            has_users,
        }
    }

    /// Refuses a local path that is not allowed; a URL of a store passes.
    pub fn check(&self, location: &str) -> Result<()> {
        match (self.has_users)() {
            true => self.check_below(location),
            false => Ok(()),
        }
    }

    fn check_below(&self, location: &str) -> Result<()> {
        let path = match location.strip_prefix("file://") {
            Some(path) => path,
            None if location.contains("://") => return Ok(()),
            None => location,
        };
        // What wildcards stand for is below the folder before them.
        let fixed = path.find(['*', '?', '[', '{']);
        let fixed = fixed.map_or(path, |at| {
            &path[..path[..at].rfind('/').map_or(0, |i| i + 1)]
        });
        let resolved = resolved(Path::new(if fixed.is_empty() { "." } else { fixed }));
        let has_parent = path.split('/').any(|part| part == "..");
        let wild_parent = fixed.len() < path.len() && has_parent;
        match !wild_parent && self.allowed.iter().any(|a| resolved.starts_with(a)) {
            true => Ok(()),
            false => Err(Error::new(
                sqlstate::INSUFFICIENT_PRIVILEGE,
                format!("permission denied for path \"{path}\""),
            )
            .detail(match self.allowed.is_empty() {
                true => "Once there are users, local paths must be below allowed_paths, which is empty."
                    .to_owned(),
                false => format!(
                    "Once there are users, local paths must be below allowed_paths: {}.",
                    self.allowed
                        .iter()
                        .map(|p| p.display().to_string())
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
            })
            .hint("Start the server with --allowed-path FOLDER, or set allowed_paths in its configuration.")),
        }
    }
}

/// The path that is meant: absolute, links resolved as far as it exists, no `..`.
fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut found = PathBuf::new();
    for component in absolute.components() {
        match component {
            Component::ParentDir => {
                found.pop();
            }
            Component::CurDir => {}
            other => found.push(other),
        }
        if let Ok(real) = found.canonicalize() {
            found = real;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_dots_lead_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::create_dir_all(root.join("data/in")).unwrap();
        std::fs::create_dir_all(root.join("database")).unwrap();
        std::os::unix::fs::symlink(root.join("database"), root.join("data/link")).unwrap();
        let rule = PathRule::new(vec![root.join("data")], Arc::new(|| true));
        let at = |path: &str| rule.check(&root.join(path).display().to_string());
        for good in [
            "data",
            "data/in",
            "data/in/*.json",
            "data/new/deep",
            "data/in/../x",
        ] {
            at(good).unwrap();
        }
        for bad in [
            "database",
            "data/../database",
            "data/link/x",
            "data/in/../../database/x",
            "data/*/../../database",
            "",
        ] {
            assert_eq!(at(bad).unwrap_err().sqlstate(), "42501", "{bad}");
        }
        rule.check("s3://bucket/x").unwrap();
        rule.check(&format!("file://{}/data/in", root.display()))
            .unwrap();
        assert!(rule.check("/etc/passwd").is_err());
        let open = PathRule::new(Vec::new(), Arc::new(|| false));
        open.check("/etc/passwd").unwrap();
    }
}
