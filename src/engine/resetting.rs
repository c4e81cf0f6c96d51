//! `RESET CHECKPOINT` and `REBUILD STATE`: what asks the sources before anything moves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use super::opening::open_relation;
use super::pipeline::Pipeline;
use super::recovery::{Recovered, Step, archived_step, steps_json};
use crate::catalog::definition::Definition;
use crate::checkpoint::decide::{Decision, Stop};
use crate::checkpoint::recovery::{Depth, Held, Rebuild, Survey, begin_again, plan_rebuild};
use crate::connectors::{SourceOffset, SourceRange, SourceRef, StartAt};
use crate::error::{Error, ErrorKind, Result, sqlstate};
use crate::sql::names::quote_identifier;
use crate::sql::recovery::ResetFrom;

impl Pipeline {
    /// The streams and tables that the pipeline's views read.
    async fn source_relations(&self) -> Result<BTreeSet<String>> {
        let mut relations = BTreeSet::new();
        for object in &self.objects {
            let plan = self.plan(object).await?;
            relations.extend(plan.inputs.iter().map(|input| input.relation.clone()));
        }
        relations.retain(|relation| {
            let object = self.parts.definitions.object(relation);
            object.is_some_and(|object| {
                matches!(
                    object.definition,
                    Definition::Stream(_) | Definition::Table(_)
                )
            })
        });
        Ok(relations)
    }

    /// Opens a source; with a hold its log is at the location, else in memory.
    fn source_of(&self, relation: &str, held: Option<&Held>) -> Result<SourceRef> {
        let definitions = &self.parts.definitions;
        let object = definitions
            .object(relation)
            .ok_or_else(|| super::planning::unknown(relation))?;
        let checkpoint = held.map(|held| Arc::new(held.checkpoint()));
        let retain = self.settings.min_batches_to_retain as usize;
        let id = Some(self.shared.id);
        Ok(open_relation(&self.parts, &object, id, checkpoint.as_ref(), retain)?.0)
    }

    async fn positions(
        &self,
        from: &BTreeMap<String, StartAt>,
        first_batch: u64,
        held: Option<&Held>,
    ) -> Result<BTreeMap<String, SourceOffset>> {
        let mut positions = BTreeMap::new();
        for (relation, at) in from {
            let source = self.source_of(relation, held)?;
            let position = source
                .position_at(first_batch, at)
                .await
                .map_err(|e| e.context(format!("source \"{relation}\"")))?;
            positions.insert(relation.clone(), position);
        }
        Ok(positions)
    }

    /// A table's changes mean nothing without the rows that they change.
    fn check_starts(&self, starts: &BTreeMap<String, StartAt>) -> Result<()> {
        for (relation, at) in starts {
            let is_whole = matches!(at, StartAt::Earliest);
            if !is_whole && !self.source_of(relation, None)?.is_append_only() {
                return Err(Error::unsupported(format!(
                    "table \"{relation}\" cannot be taken in from the middle of its changes"
                ))
                .detail("They delete and update rows that a new state would not hold.")
                .hint(format!(
                    "RESET CHECKPOINT OF {} FROM EARLIEST; or name the other sources alone in FROM OFFSETS.",
                    quote_identifier(&self.shared.name)
                )));
            }
        }
        Ok(())
    }

    pub(super) async fn reset(&self, from: &ResetFrom) -> Result<Recovered> {
        let relations = self.source_relations().await?;
        let starts = start_of_each(from, &relations)?;
        self.check_starts(&starts)?;
        // Asked before anything moves: a source that does not answer leaves all as it was.
        if let Err(error) = self.positions(&starts, 0, None).await {
            return Err(match from {
                ResetFrom::Offsets(offsets) if error.kind() != ErrorKind::Transient => {
                    unusable_position(&error, offsets, &relations)
                }
                _ => error,
            });
        }
        let held = self.hold().await?;
        let survey = held.survey(self.known_batch(), Depth::Quick).await?;
        survey.require_own()?;
        let first_batch = survey.next_first_batch();
        let archived = held.archive_all(&survey).await?;
        let positions = self.positions(&starts, first_batch, Some(&held)).await?;
        let mut steps = vec![archived_step(&self.location(), &archived)];
        for relation in &relations {
            let at = positions.get(relation).map(|at| at.0.to_string());
            let at = at.unwrap_or_else(|| "where its options say".to_owned());
            steps.push(Step::new("starts", relation, at));
        }
        begin_again(&held, first_batch, positions).await?;
        steps.push(Step::new("first batch", first_batch, ""));
        self.event("reset", steps_json(&steps));
        Ok(Recovered::Steps(steps))
    }

    pub(super) async fn rebuild_state(&mut self) -> Result<Recovered> {
        let held = self.hold().await?;
        let survey = held.survey(self.known_batch(), Depth::Quick).await?;
        self.require_only_state_lost(&survey)?;
        let rebuild = plan_rebuild(&survey).map_err(|why| self.cannot_rebuild(&why, ""))?;
        if matches!(rebuild, Rebuild::Fill(_))
            && let Some(sink) = self.sink_objects.first()
        {
            let why = "the offset log does not reach back to the first batch";
            let detail = format!("Sink \"{}\" would get every row again.", sink.name);
            return Err(self.cannot_rebuild(why, &detail));
        }
        for (relation, range) in ranges_of(&survey, &rebuild) {
            let source = self.source_of(&relation, Some(&held))?;
            source.check_range(&range).await.map_err(|e| {
                let detail = format!("{}.", e.primary());
                self.cannot_rebuild(&format!("source \"{relation}\" has lost rows"), &detail)
            })?;
        }
        let archived = held.give_up_state(&survey, &rebuild).await?;
        match &rebuild {
            Rebuild::Replay { last, .. } => self.keep_shown(*last),
            // Only the batch that fills the views has all of their rows again.
            Rebuild::Fill(commit) => self.keep_shown_until(commit.entry.batch_id + 1),
        }
        let steps = vec![
            archived_step(&self.location(), &archived),
            match &rebuild {
                Rebuild::Replay { first, last } => Step::new(
                    "runs again",
                    format!("batches {first} to {last}"),
                    "Each batch takes in exactly what it took in before.",
                ),
                Rebuild::Fill(commit) => Step::new(
                    "reads again",
                    format!("batches up to {}", commit.entry.batch_id),
                    "The next batch reads the sources from where they were begun.",
                ),
            },
        ];
        self.event("rebuilt", steps_json(&steps));
        Ok(Recovered::Steps(steps))
    }

    /// What else is wrong is mended first: it decides which input the state is made of.
    fn require_only_state_lost(&self, survey: &Survey) -> Result<()> {
        survey.require_own()?;
        match survey.verdict() {
            Decision::Stop(Stop::StateLost { .. } | Stop::CommitsLost { .. })
            | Decision::Resume(_)
            | Decision::Read(_) => Ok(()),
            Decision::Stop(stop) => Err(stop.to_error(&self.shared.name, &survey.location)),
            Decision::Fresh => Err(Error::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("pipeline \"{}\" has no state", self.shared.name),
            )
            .detail("No batch ever ran.")),
        }
    }

    fn cannot_rebuild(&self, why: &str, detail: &str) -> Error {
        let name = quote_identifier(&self.shared.name);
        let error = Error::new(
            sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!(
                "state of pipeline \"{}\" cannot be rebuilt: {why}",
                self.shared.name
            ),
        );
        let error = match detail {
            "" => error,
            detail => error.detail(detail),
        };
        error.hint(format!(
            "Run RESTORE CHECKPOINT OF {name} FROM '…' with a backup, or RESET CHECKPOINT OF {name} \
             FROM EARLIEST to take in again what the sources still have."
        ))
    }
}

/// Where each source starts; nothing for where its options say.
fn start_of_each(
    from: &ResetFrom,
    relations: &BTreeSet<String>,
) -> Result<BTreeMap<String, StartAt>> {
    let each = |at: &StartAt| {
        let all = relations
            .iter()
            .map(|relation| (relation.clone(), at.clone()));
        Ok(all.collect())
    };
    let offsets = match from {
        ResetFrom::Configured => return Ok(BTreeMap::new()),
        ResetFrom::Earliest => return each(&StartAt::Earliest),
        ResetFrom::Latest => return each(&StartAt::Latest),
        ResetFrom::Timestamp(at_us) => return each(&StartAt::Timestamp(*at_us)),
        ResetFrom::Offsets(offsets) => offsets,
    };
    let Some(named) = offsets
        .as_object()
        .filter(|named| relations.len() != 1 || named.keys().any(|name| relations.contains(name)))
    else {
        return match relations.len() {
            1 => each(&StartAt::Offsets(offsets.clone())),
            _ => Err(no_positions(relations)),
        };
    };
    match named.keys().find(|name| !relations.contains(*name)) {
        Some(unknown) => Err(unknown_source(unknown, relations)),
        None if named.is_empty() => Err(no_positions(relations)),
        None => Ok(named
            .iter()
            .map(|(name, offset)| (name.clone(), StartAt::Offsets(offset.clone())))
            .collect()),
    }
}

const WHERE_POSITIONS_ARE: &str = "The positions are those of streaming_sources.end_offset: SELECT source_name, end_offset FROM \
     streaming_sources;";

fn reads(relations: &BTreeSet<String>) -> String {
    let names: Vec<&str> = relations.iter().map(String::as_str).collect();
    format!("The pipeline reads {}.", names.join(", "))
}

fn no_positions(relations: &BTreeSet<String>) -> Error {
    Error::new(
        sqlstate::INVALID_PARAMETER_VALUE,
        "OFFSETS must be a JSON object with a position for each source by its name",
    )
    .detail(reads(relations))
    .hint(WHERE_POSITIONS_ARE)
}

fn unknown_source(name: &str, relations: &BTreeSet<String>) -> Error {
    Error::new(
        sqlstate::UNDEFINED_OBJECT,
        format!("OFFSETS name source \"{name}\", which the pipeline does not read"),
    )
    .detail(reads(relations))
    .hint(WHERE_POSITIONS_ARE)
}

/// A position that a source does not take, which may be a name that is none.
fn unusable_position(error: &Error, offsets: &Value, relations: &BTreeSet<String>) -> Error {
    let mut names = offsets.as_object().into_iter().flat_map(|o| o.keys());
    let is_by_name = names.any(|name| relations.contains(name));
    let (primary, detail) = match relations.first().filter(|_| !is_by_name) {
        Some(only) => (
            format!("OFFSETS are neither a position of source \"{only}\" nor one by its name"),
            vec![format!("They say {offsets}: {}.", error.primary())],
        ),
        None => (
            format!("OFFSETS cannot be used: {}", error.primary()),
            error.detail_text().map(str::to_owned).into_iter().collect(),
        ),
    };
    let detail = [detail, vec![reads(relations)]].concat().join(" ");
    Error::new(sqlstate::INVALID_PARAMETER_VALUE, primary)
        .detail(detail)
        .hint(WHERE_POSITIONS_ARE)
}

/// What is read again of each source.
pub(super) fn ranges_of(survey: &Survey, rebuild: &Rebuild) -> BTreeMap<String, SourceRange> {
    let mut ranges: BTreeMap<String, SourceRange> = BTreeMap::new();
    match rebuild {
        Rebuild::Replay { .. } => {
            let entries = survey.offsets.values().filter_map(|entry| entry.whole());
            for (relation, range) in entries.flat_map(|file| &file.entry.sources) {
                let known = ranges
                    .entry(relation.clone())
                    .or_insert_with(|| range.clone());
                known.end = range.end.clone();
            }
        }
        Rebuild::Fill(commit) => {
            for (relation, end) in &commit.entry.source_offsets {
                if let Some(start) = commit.entry.initial_offsets.get(relation) {
                    let (start, end) = (start.clone(), end.clone());
                    ranges.insert(relation.clone(), SourceRange { start, end });
                }
            }
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn offsets_are_given_by_source_or_for_the_only_one() {
        let relations = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        let two: BTreeSet<String> = relations(&["a", "b"]);
        let one: BTreeSet<String> = relations(&["a"]);
        let offsets = |json: Value| ResetFrom::Offsets(json);
        let each = |from: &ResetFrom, relations| start_of_each(from, relations);
        assert_eq!(each(&ResetFrom::Earliest, &two).unwrap().len(), 2);
        assert!(each(&ResetFrom::Configured, &two).unwrap().is_empty());
        let named = each(&offsets(json!({"b": {"commit": 3}})), &two).unwrap();
        assert_eq!(named["b"], StartAt::Offsets(json!({"commit": 3})));
        assert_eq!(named.len(), 1);
        let only = each(&offsets(json!({"commit": 3})), &one).unwrap();
        assert_eq!(only["a"], StartAt::Offsets(json!({"commit": 3})));
        let error = each(&offsets(json!({"commit": 3})), &two).unwrap_err();
        assert!(error.detail_text().unwrap().contains("a, b"), "{error}");
        let error = each(&offsets(json!({"c": 1, "a": 2})), &two).unwrap_err();
        assert_eq!(error.sqlstate(), sqlstate::UNDEFINED_OBJECT);
        assert!(error.primary().contains("\"c\""), "{error}");
        let error = each(&offsets(json!({"a": 1, "c": 2})), &one).unwrap_err();
        assert!(error.primary().contains("\"c\""), "{error}");
        assert!(each(&offsets(json!({})), &two).is_err());
    }
}
