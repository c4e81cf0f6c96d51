//! Statements in, enums out; errors with SQLSTATE and position. A file for each kind of statement.

mod access;
mod alter;
mod create;
mod cursors;
mod errors;
mod queries;
mod recovery;
mod run;
mod settings;

use std::time::Duration;

use super::parse;
use crate::catalog::definition::{EmitMode, OnViolation, OptionValue, WatermarkDefinition};
use crate::sql::statement::*;
use crate::types::{SqlType, TextType};

fn one(sql: &str) -> Statement {
    let mut all = parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}"));
    assert_eq!(all.len(), 1, "{sql}");
    all.remove(0).0
}

fn text(value: &str) -> Option<OptionValue> {
    Some(OptionValue::Text(value.into()))
}
