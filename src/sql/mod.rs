//! SQL text to closed commands. Pure: no I/O.
//!
//! ```text
//! text --source--> tokens --parse--> Statement        our own syntax, options checked
//!                                    Query/DML tree --rewrite--> tree DataFusion can plan
//!                                                     context --> SessionContext with our functions
//! definition --render--> text        SHOW CREATE
//! ```
//! Absent by design: the catalog (names are resolved by whoever plans) and anything that waits.

pub mod access;
mod adjacent_strings;
mod asof;
pub mod context;
mod correlated;
mod cursor;
pub mod data_types;
mod dialect;
mod distinct_on;
mod empty_subqueries;
pub(crate) mod exclusions;
pub mod functions;
mod grouping_sets;
pub mod guards;
pub mod hints;
pub mod host_functions;
pub mod interval;
mod interval_order;
mod join_alias;
mod kept_types;
pub(crate) mod local_times;
mod lock_words;
pub mod masking;
pub mod names;
mod numeric_floats;
mod offsets;
pub mod options;
mod order_subqueries;
mod parse;
pub(crate) mod places;
mod planner;
mod push_down;
pub mod recovery;
mod renamed;
pub mod render;
pub mod render_functions;
pub mod rewrite;
mod row_numbers;
mod series;
pub mod sessions;
mod set_operations;
mod sorted_windows;
mod source;
pub mod statement;
mod subqueries;
pub(crate) mod temporal_join;
mod text_constants;
mod typed_expressions;
pub(crate) mod user_functions;

use crate::error::Result;
use statement::Statement;

pub(crate) use parse::changes_rows;

/// The INSERT, UPDATE or DELETE that a query of a WITH is; `None` for one that only reads.
pub(crate) fn change_of_query(
    query: &mut datafusion::sql::sqlparser::ast::Query,
) -> Result<Option<Statement>> {
    parse::change_of(query, 1)
}

/// Parses a text of statements separated by semicolons; empty statements vanish.
/// Each comes with its own source text, without the semicolon.
///
/// Errors: 42601 with the character position in the whole text, 0A000 for what is known and not
/// supported, 42704 and 22023 for options and types. Nothing is returned if any statement fails.
pub fn parse(sql: &str) -> Result<Vec<(Statement, String)>> {
    parse::parse(sql)
}
