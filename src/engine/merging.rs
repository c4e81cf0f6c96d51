//! Making pipelines one: brought to one place in their common sources, then the state of one is taken
//! over by the other.
//!
//! ```text
//!   hold both ─► read on to one position ─► (the catalog's commit) ─► end the one ─► open the other: take over, go on
//! ```
//!
//! Held pipelines stand at a batch border with all of their state in the checkpoint. Once the catalog
//! says that the views are the other's, opening it takes over what lies in the checkpoint of the one that
//! ended (`taking_over.rs`). Deliberately absent: undoing a merge.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::batch::BatchOutcome;
use super::opening::Opened;
use super::pipeline::{Phase, Pipeline};
use super::shared::{Command, PipelineShared};
use super::{Engine, unknown};
use crate::catalog::definition::{CatalogObject, Definition};
use crate::connectors::SourceOffset;
use crate::error::{Error, Result, sqlstate};

/// How often pipelines are told to read on to where the last of them stands: a source may give more in
/// between that only one of them has seen.
const ROUNDS: usize = 5;

/// Where a held pipeline stands.
pub(super) struct HeldAt {
    /// The position after everything that was there, by source.
    pub latest: BTreeMap<String, SourceOffset>,
    /// See [`crate::connectors::Source::taken_in`].
    pub taken_in: BTreeMap<String, Option<u64>>,
}

/// A pipeline that is told to stand still.
pub(super) struct Hold {
    /// How far it reads before; nothing of other sources.
    pub targets: BTreeMap<String, SourceOffset>,
    /// Who waits for it to stand.
    pub reply: Option<oneshot::Sender<Result<HeldAt>>>,
}

/// Pipelines that stand still until they are merged; let go of, they go on.
pub struct HeldPipelines(Vec<Arc<PipelineShared>>);

impl HeldPipelines {
    /// They stay held: the merge is a fact.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for HeldPipelines {
    fn drop(&mut self) {
        for pipeline in &self.0 {
            // One that has ended goes on with nothing.
            pipeline.commands.send(Command::Release).ok();
        }
    }
}

impl Engine {
    /// The pipeline that has run the most batches, so that no view's batches count backwards when the
    /// others become part of it.
    pub fn furthest(&self, names: &BTreeSet<String>) -> String {
        let batch_of = |name: &String| {
            let shared = self.pipeline(name)?;
            let batch_id = shared.publication.lock().batch_id;
            Some(batch_id.map_or(0, |n| n + 1))
        };
        // Of equal ones the first by name.
        let furthest = names.iter().rev().max_by_key(|name| batch_of(name));
        furthest.cloned().unwrap_or_default()
    }

    /// Brings the pipelines of each group, keyed by the one that stays, to one place in the sources that
    /// they have in common, and holds them there.
    pub async fn hold_together(
        &self,
        groups: &BTreeMap<String, Vec<String>>,
    ) -> Result<HeldPipelines> {
        let mut held = HeldPipelines(Vec::new());
        for (into, merged) in groups {
            let members: Vec<_> = merged
                .iter()
                .chain([into])
                .filter_map(|name| self.pipeline(name))
                .collect();
            held.0.extend(members.iter().cloned());
            hold_group(&members).await?;
        }
        Ok(held)
    }

    /// The views and sinks of `from`, whose definitions say so already, move to pipeline `into`.
    pub async fn merge(&self, into: &str, from: &str) -> Result<()> {
        // One that this transaction made has not started.
        let Some(gone) = self.pipeline(from) else {
            return Ok(());
        };
        // What the transaction itself makes joins afterwards.
        let running = self.running_in(&[into, from]);
        gone.ask(|reply| Command::Shutdown(false, reply)).await?;
        let (mut views, mut sinks) = self.members_of(into);
        views.retain(|view| running.contains(&view.name));
        sinks.retain(|sink| running.contains(&sink.name));
        let names: Vec<String> = views.iter().map(|v| v.name.clone()).collect();
        let merged = self.merge_into(into, views, sinks).await;
        for name in names {
            self.inner
                .directory
                .views
                .write()
                .insert(name.clone(), into.to_owned());
            gone.end_subscriptions(&name);
        }
        self.inner.directory.pipelines.write().remove(from);
        merged
    }

    /// Names of the views and sinks that run in pipelines.
    fn running_in(&self, pipelines: &[&str]) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for shared in pipelines.iter().filter_map(|name| self.pipeline(name)) {
            let board = shared.board.lock();
            names.extend(board.queries.keys().cloned());
            names.extend(board.sinks.iter().map(|sink| sink.sink_name.clone()));
        }
        names
    }

    async fn merge_into(
        &self,
        into: &str,
        views: Vec<CatalogObject>,
        sinks: Vec<CatalogObject>,
    ) -> Result<()> {
        let shared = match self.pipeline(into) {
            Some(shared) => {
                shared
                    .ask(|reply| Command::TakeIn(views, sinks, reply))
                    .await?;
                shared
            }
            None => {
                let definition = self.inner.parts.definitions.pipeline(into);
                let definition = definition.ok_or_else(|| unknown(into))?;
                self.spawn(into, &definition, views, sinks)?
            }
        };
        let mut status = shared.status.subscribe();
        let opened = status
            .wait_for(|s| !matches!(*s, "starting" | "restoring"))
            .await;
        match opened.is_ok_and(|s| *s == "failed") {
            true => Err(shared.failure()),
            false => Ok(()),
        }
    }

    /// What runs in a pipeline, in the order of creation: views (and sinks over no materialized view), and
    /// sinks.
    pub(super) fn members_of(&self, pipeline: &str) -> (Vec<CatalogObject>, Vec<CatalogObject>) {
        let (mut views, mut sinks) = (Vec::new(), Vec::new());
        for object in self.inner.parts.definitions.objects() {
            match &object.definition {
                Definition::MaterializedView(view) if view.pipeline == pipeline => {
                    views.push(object);
                }
                Definition::Index(index) if index.pipeline == pipeline => views.push(object),
                Definition::Sink(sink) if sink.pipeline == pipeline => {
                    if !self.is_materialized_view(&sink.from) {
                        views.push(object.clone());
                    }
                    sinks.push(object);
                }
                _ => {}
            }
        }
        (views, sinks)
    }
}

async fn hold_group(members: &[Arc<PipelineShared>]) -> Result<()> {
    if members.len() < 2 {
        return Ok(());
    }
    let mut targets = BTreeMap::new();
    for _ in 0..ROUNDS {
        let mut held = Vec::new();
        for member in members {
            let targets = targets.clone();
            let hold = |reply| {
                Command::Hold(Hold {
                    targets,
                    reply: Some(reply),
                })
            };
            held.push(member.ask(hold).await?);
        }
        let differing = differing_sources(&held, &targets);
        if differing.is_empty() {
            return Ok(());
        }
        targets = differing;
    }
    let names: Vec<String> = members.iter().map(|m| format!("\"{}\"", m.name)).collect();
    let sources: Vec<String> = targets.keys().map(|name| format!("\"{name}\"")).collect();
    Err(Error::new(
        sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "could not bring pipelines to the same place in a source",
    )
    .detail(format!(
        "Pipelines {} both read {}, which gives more all the time.",
        names.join(" and "),
        sources.join(", ")
    ))
    .hint("Run the statement again; create such views WITH (pipeline = '…') naming one pipeline to begin with."))
}

/// Sources that several pipelines read and that they may not have read to the same place: how far they
/// are to read now. `reached` are the places that all of them were told to read to.
fn differing_sources(
    held: &[HeldAt],
    reached: &BTreeMap<String, SourceOffset>,
) -> BTreeMap<String, SourceOffset> {
    let mut differing = BTreeMap::new();
    for (index, one) in held.iter().enumerate() {
        for (source, taken_in) in &one.taken_in {
            // The last who was asked has seen the most.
            let others = held[index + 1..].iter().rev();
            let Some(other) = others.clone().find(|o| o.taken_in.contains_key(source)) else {
                continue;
            };
            let is_same = held[index + 1..]
                .iter()
                .filter_map(|o| o.taken_in.get(source))
                .all(|theirs| theirs == taken_in);
            if (!reached.contains_key(source) || !is_same)
                && let Some(latest) = other.latest.get(source)
            {
                differing.insert(source.clone(), latest.clone());
            }
        }
    }
    differing
}

impl Pipeline {
    /// Begins to stand still.
    pub(super) fn begin_hold(&mut self, mut hold: Hold, phase: &mut Phase) {
        let refused = match phase {
            Phase::Stopped => Some(self.not_running()),
            Phase::Failed | Phase::Waiting(..) => {
                Some(self.error.clone().unwrap_or_else(|| self.not_running()))
            }
            Phase::Opening | Phase::Running | Phase::Held => None,
        };
        if let Some(error) = refused {
            if let Some(reply) = hold.reply.take() {
                reply.send(Err(error)).ok();
            }
            return;
        }
        if matches!(phase, Phase::Held) {
            *phase = Phase::Running;
        }
        self.hold = Some(hold);
    }

    /// After a batch, or after none was found: whether it stands where it was told to, with all of its
    /// state in the checkpoint.
    pub(super) async fn stands_held(&mut self, outcome: BatchOutcome) -> bool {
        let (Some(hold), Some(opened)) = (&self.hold, &self.opened) else {
            return false;
        };
        let is_reached = opened.replay.is_empty()
            && opened.unfilled.is_empty()
            && opened.unpersisted.is_empty()
            && opened.slots.iter().all(|slot| {
                hold.targets.get(&slot.relation).is_none_or(|target| {
                    let left = slot.source.backlog(&slot.position, target).rows;
                    left.map_or(outcome == BatchOutcome::Idle, |rows| rows == 0)
                })
            });
        if !is_reached {
            let trouble = opened.slots.iter().find_map(|slot| slot.last_error.clone());
            if outcome == BatchOutcome::Idle {
                self.give_up_hold(trouble.unwrap_or_else(|| self.not_read_on()));
            }
            return false;
        }
        let stands = held_at(opened).await;
        if let Some(reply) = self.hold.as_mut().and_then(|hold| hold.reply.take()) {
            reply.send(stands).ok();
        }
        true
    }

    fn not_read_on(&self) -> Error {
        Error::transient(
            sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!(
                "pipeline \"{}\" could not read its sources to the place of another one",
                self.shared.name
            ),
        )
        .hint("Run the statement again.")
    }

    /// Whoever waits for it to stand still gets an error, and it goes on.
    pub(super) fn give_up_hold(&mut self, error: Error) {
        if let Some(reply) = self.hold.take().and_then(|hold| hold.reply) {
            reply.send(Err(error)).ok();
        }
    }

    /// Views and sinks of a pipeline that ended, with its own: all is opened again.
    pub(super) async fn take_in(
        &mut self,
        views: Vec<CatalogObject>,
        sinks: Vec<CatalogObject>,
        phase: &mut Phase,
    ) {
        self.hold = None;
        self.abandon_commit().await;
        self.let_go();
        self.objects = views;
        self.sink_objects = sinks;
        self.attempt = 0;
        self.error = None;
        *phase = Phase::Opening;
        self.tell("restoring");
    }
}

async fn held_at(opened: &Opened) -> Result<HeldAt> {
    let mut held = HeldAt {
        latest: BTreeMap::new(),
        taken_in: BTreeMap::new(),
    };
    for slot in &opened.slots {
        let taken_in = slot.source.taken_in(&slot.position).await?;
        held.taken_in.insert(slot.relation.clone(), taken_in);
        // What was read may be more than what was there when it was last asked.
        let latest = slot.source.latest_offset().await?;
        held.latest.insert(slot.relation.clone(), latest);
    }
    Ok(held)
}
