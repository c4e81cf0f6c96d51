//! The NOTICE about a view that keeps all that ever came: the operator, and the watermark or the
//! clause that would bound it.

use super::super::Session;
use crate::catalog::definition::{CatalogObject, Definition, StreamDefinition};
use crate::catalog::snapshot::{CatalogSnapshot, depends_on};
use crate::dataflow::plan::ViewPlan;
use crate::dataflow::plan::bounds::{Bound, UnboundedState};
use crate::sql::names::quote_identifier;
use crate::types::SqlType;

impl Session {
    /// Tells of each operator of a new view whose state is never freed.
    pub(super) fn tell_of_unbounded_state(&mut self, view: &str, plan: &ViewPlan) {
        let snapshot = self.definitions();
        for state in plan.unbounded_states() {
            let message = format!(
                "materialized view \"{view}\" keeps state without bound in operator {}",
                state.operator
            );
            self.notice_with_hint(message, hint(&snapshot, &state));
        }
    }
}

/// What bounds it: first a watermark, where a stream has none.
fn hint(snapshot: &CatalogSnapshot, state: &UnboundedState) -> String {
    let mut streams = Vec::new();
    for relation in &state.relations {
        streams_below(snapshot, relation, &mut streams);
    }
    let needs_watermark = state.bound != Bound::OtherSideAsOfTheBatch;
    let missing: Vec<String> = streams
        .iter()
        .filter(|(_, stream)| needs_watermark && stream.watermark.is_none())
        .map(|(name, stream)| watermark_statement(name, stream))
        .collect();
    let clause = match state.bound {
        Bound::WindowInGroups => {
            "group by window_start of TUMBLE(stream, event time, INTERVAL '…')"
        }
        Bound::TimesOfBothSides => {
            "add a condition that bounds how far the event times of the two sides lie apart"
        }
        Bound::OtherSideAsOfTheBatch => {
            "write JOIN … FOR SYSTEM_TIME AS OF event time ON …, which keeps no rows of the stream"
        }
        Bound::TimeInGroupsOrOrder => "partition by a window of event time, or order by event time",
        Bound::Nothing => "",
    };
    match (missing.is_empty(), clause.is_empty()) {
        (_, true) => "It keeps its whole input; no watermark frees that.".to_owned(),
        (true, false) => format!("To bound it, {clause}."),
        (false, false) => format!("To bound it, {}, and {clause}.", missing.join(", ")),
    }
}

/// The streams that a relation is or reads.
fn streams_below<'a>(
    snapshot: &'a CatalogSnapshot,
    name: &str,
    found: &mut Vec<(&'a str, &'a StreamDefinition)>,
) {
    let Some(object): Option<&'a CatalogObject> = snapshot.object(name).map(AsRef::as_ref) else {
        return;
    };
    match &object.definition {
        Definition::Stream(stream) => {
            if !found.iter().any(|(known, _)| *known == object.name) {
                found.push((&object.name, stream));
            }
        }
        definition => {
            for read in depends_on(definition) {
                streams_below(snapshot, read, found);
            }
        }
    }
}

/// What gives a stream its watermark.
fn watermark_statement(name: &str, stream: &StreamDefinition) -> String {
    let is_time = |t: &SqlType| matches!(t, SqlType::Timestamp | SqlType::TimestampTz);
    let column = stream.columns.iter().find(|c| is_time(&c.sql_type));
    let name = quote_identifier(name);
    match column {
        Some(column) => {
            let column = quote_identifier(&column.name);
            format!(
                "say ALTER STREAM {name} ALTER WATERMARK FOR {column} AS {column} - INTERVAL '1 hour'"
            )
        }
        None => {
            format!("give stream {name} a TIMESTAMPTZ column and a watermark for it")
        }
    }
}
