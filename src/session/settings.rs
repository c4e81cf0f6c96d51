//! Settings of a session (PostgreSQL's "parameters"): one table that `SET`, `SHOW`, `RESET`,
//! `current_setting`, `set_config`, `pg_settings` and the reports to the client all read.
//!
//! A handle is shared with the functions and tables of the session's own context, never with
//! another session. `SET` follows the transaction: rolled back with it; `SET LOCAL` ends with it.
//! Most parameters only have to be accepted: drivers set them and read them back.

mod known;
mod values;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub(crate) use self::known::ISOLATION_LEVELS;
use self::known::{KNOWN, Known};
use crate::catalog::pg_catalog::Parameter;
use crate::error::{Error, Result, sqlstate};

/// A session's parameters; clones share them.
#[derive(Debug, Clone)]
pub struct Settings {
    state: Arc<Mutex<State>>,
}

/// `values` outlive the transaction, `local` ones do not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Layer {
    values: BTreeMap<String, String>,
    local: BTreeMap<String, String>,
}

/// All that was said of parameters at some instant.
#[derive(Debug)]
pub(super) struct Said {
    current: Layer,
    startup: BTreeMap<String, String>,
}

#[derive(Debug, Default)]
struct State {
    current: Layer,
    /// What `RESET` goes back to: the start-up packet's values.
    startup: BTreeMap<String, String>,
    /// Layers to go back to: the transaction's first, then its savepoints'.
    marks: Vec<Layer>,
    reported: BTreeMap<String, String>,
}

impl Settings {
    /// Defaults, for a user.
    pub fn new(user: &str) -> Self {
        let settings = Self {
            state: Arc::default(),
        };
        settings
            .state
            .lock()
            .startup
            .insert("session_authorization".to_owned(), user.to_owned());
        settings
    }

    /// A parameter's value; names fold as PostgreSQL's do. `None`: there is no such parameter.
    pub fn get(&self, name: &str) -> Option<String> {
        let key = canonical(name);
        let said = {
            let state = self.state.lock();
            let values = [&state.current.local, &state.current.values, &state.startup];
            values.iter().find_map(|layer| layer.get(&key).cloned())
        };
        said.or_else(|| match key.as_str() {
            // What a transaction does not say is what the session says of its transactions.
            "transaction_isolation" | "transaction_deferrable" => {
                self.get(&format!("default_{key}"))
            }
            _ => known(&key).map(|k| k.default.to_owned()),
        })
    }

    /// What is said now.
    pub(super) fn said(&self) -> Said {
        let state = self.state.lock();
        Said {
            current: state.current.clone(),
            startup: state.startup.clone(),
        }
    }

    /// Nothing else is said now.
    pub(super) fn are_as_said(&self, said: &Said) -> bool {
        let state = self.state.lock();
        state.current == said.current && state.startup == said.startup
    }

    /// A parameter's name as PostgreSQL spells it.
    pub fn spelling(&self, name: &str) -> String {
        let key = canonical(name);
        known(&key).map_or(key, |k| k.name.to_owned())
    }

    /// As [`Self::get`], with PostgreSQL's error for an unknown name (42704).
    pub fn require(&self, name: &str) -> Result<String> {
        self.get(name).ok_or_else(|| unrecognized(name))
    }

    /// `SET [LOCAL] name = value`; `None`: DEFAULT. Returns the value as it is kept.
    pub fn set(&self, name: &str, value: Option<&str>, is_local: bool) -> Result<String> {
        let key = canonical(name);
        let Some(value) = value else {
            self.check_settable(&key, name)?;
            let mut state = self.state.lock();
            state.current.local.remove(&key);
            state.current.values.remove(&key);
            drop(state);
            return Ok(self.get(&key).unwrap_or_default());
        };
        self.check_settable(&key, name)?;
        let value = match known(&key) {
            Some(known) => known.kind.normalize(known, value)?,
            None => value.to_owned(),
        };
        let mut state = self.state.lock();
        if is_local {
            state.current.local.insert(key, value.clone());
        } else {
            state.current.local.remove(&key);
            state.current.values.insert(key, value.clone());
        }
        Ok(value)
    }

    /// A setting of the start-up packet: the value that `RESET` goes back to. Unknown names are
    /// refused as PostgreSQL refuses them.
    pub fn set_startup(&self, name: &str, value: &str) -> Result<()> {
        let key = canonical(name);
        self.check_settable(&key, name)?;
        let value = match known(&key) {
            Some(known) => known.kind.normalize(known, value)?,
            None => value.to_owned(),
        };
        self.state.lock().startup.insert(key, value);
        Ok(())
    }

    /// A value as it would be kept, after all checks; nothing is set.
    pub fn checked(&self, name: &str, value: &str) -> Result<String> {
        let key = canonical(name);
        self.check_settable(&key, name)?;
        match known(&key) {
            Some(known) => known.kind.normalize(known, value),
            None => Ok(value.to_owned()),
        }
    }

    /// What the server itself says of the session, such as `is_superuser`.
    pub(super) fn tell(&self, name: &str, value: &str) {
        let mut state = self.state.lock();
        state.startup.insert(canonical(name), value.to_owned());
    }

    /// `RESET name`.
    pub fn reset(&self, name: &str) -> Result<()> {
        self.set(name, None, false).map(|_| ())
    }

    /// `RESET ALL`.
    pub fn reset_all(&self) {
        self.state.lock().current = Layer::default();
    }

    /// All parameters by name, custom ones last.
    pub fn all(&self) -> Vec<Parameter> {
        let mut rows: Vec<Parameter> = KNOWN
            .iter()
            .map(|known| {
                let reset = self
                    .state
                    .lock()
                    .startup
                    .get(&canonical(known.name))
                    .cloned();
                Parameter {
                    name: known.name.to_owned(),
                    value: self.get(known.name).unwrap_or_default(),
                    unit: known.kind.unit(),
                    context: known.context,
                    vartype: known.kind.vartype(),
                    reset_value: reset.unwrap_or_else(|| known.default.to_owned()),
                    boot_value: known.default.to_owned(),
                    description: known.description,
                }
            })
            .collect();
        rows.sort_by_key(|r| r.name.to_lowercase());
        rows
    }

    /// A parameter that is a time, such as `statement_timeout`; `None`: off (0).
    pub fn duration(&self, name: &str) -> Option<Duration> {
        let text = self.get(name)?;
        let milliseconds = values::parse_with_unit(&text, "ms", values::TIME_UNITS_MS)?;
        (milliseconds > 0.0).then(|| Duration::from_secs_f64(milliseconds / 1000.0))
    }

    /// A parameter that is `on` or `off`.
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name).as_deref() == Some("on")
    }

    /// Reported parameters that changed since the last call; all of them at the first.
    pub fn take_changes(&self) -> Vec<(String, String)> {
        let mut changes = Vec::new();
        for known in KNOWN.iter().filter(|k| k.reported) {
            let value = self.get(known.name).unwrap_or_default();
            let mut state = self.state.lock();
            if state.reported.get(known.name) != Some(&value) {
                state.reported.insert(known.name.to_owned(), value.clone());
                changes.push((known.name.to_owned(), value));
            }
        }
        changes
    }

    /// A transaction or savepoint begins.
    pub(super) fn mark(&self) {
        let mut state = self.state.lock();
        let layer = state.current.clone();
        state.marks.push(layer);
    }

    /// Back to mark number `index`, which stays.
    pub(super) fn rollback_to_mark(&self, index: usize) {
        let mut state = self.state.lock();
        if let Some(layer) = state.marks.get(index).cloned() {
            state.current = layer;
            state.marks.truncate(index + 1);
        }
    }

    /// Forgets marks from `index` on, keeping the values.
    pub(super) fn release_marks(&self, index: usize) {
        self.state.lock().marks.truncate(index);
    }

    /// The transaction ends.
    pub(super) fn end_transaction(&self, is_committed: bool) {
        let mut state = self.state.lock();
        if !is_committed && let Some(first) = state.marks.first().cloned() {
            state.current = first;
        }
        state.marks.clear();
        state.current.local.clear();
    }

    fn check_settable(&self, key: &str, name: &str) -> Result<()> {
        match known(key) {
            Some(known) if matches!(known.context, "internal" | "postmaster") => Err(Error::new(
                "55P02",
                format!("parameter \"{}\" cannot be changed", known.name),
            )),
            Some(_) => Ok(()),
            None if is_custom(key) => Ok(()),
            None => Err(unrecognized(name)),
        }
    }
}

fn canonical(name: &str) -> String {
    let folded = name.to_lowercase();
    match folded.as_str() {
        "time zone" => "timezone".to_owned(),
        "session characteristics" => "default_transaction_isolation".to_owned(),
        "transaction isolation level" => "transaction_isolation".to_owned(),
        "names" => "client_encoding".to_owned(),
        _ => folded,
    }
}

fn known(key: &str) -> Option<&'static Known> {
    KNOWN.iter().find(|k| k.name.eq_ignore_ascii_case(key))
}

fn is_custom(key: &str) -> bool {
    key.split('.').count() >= 2
        && key.split('.').all(|part| {
            part.starts_with(|c: char| c.is_alphabetic() || c == '_')
                && part
                    .chars()
                    .all(|c| c.is_alphanumeric() || "_$-".contains(c))
        })
}

fn unrecognized(name: &str) -> Error {
    Error::new(
        sqlstate::UNDEFINED_OBJECT,
        format!("unrecognized configuration parameter \"{name}\""),
    )
}
