//! The watermarks that a batch applies: facts of the sources to the decisions of `decide.rs`.
//!
//! A pipeline has one, and each view whose inputs came when that had gone further has its own until
//! it has caught up.

use std::collections::{BTreeMap, BTreeSet};

use super::decide::{self, ViewWatermark, WatermarkInput};
use super::feeding::Intake;
use super::intake::SourceSlot;
use super::opening::Opened;
use super::pipeline::ViewEntry;
use super::settings::PipelineSettings;
use crate::checkpoint::OffsetEntry;

impl Opened {
    /// Each watermarked input's own watermark at these event times.
    pub(super) fn watermarks_of(
        &self,
        event_time_max: &BTreeMap<String, i64>,
    ) -> BTreeMap<String, i64> {
        let of = |slot: &SourceSlot| {
            let delay = slot.watermark.as_ref()?.delay_us;
            let time = event_time_max.get(&slot.relation)?;
            Some((slot.relation.clone(), time.saturating_sub(delay)))
        };
        self.slots.iter().filter_map(of).collect()
    }

    /// A batch at these watermarks would close windows, even one without rows.
    pub(super) fn closes_windows(
        &self,
        watermark: Option<i64>,
        of_views: &BTreeMap<String, Option<i64>>,
    ) -> bool {
        let moved_to = |view: &str| {
            let before = self.view_watermarks.get(view).unwrap_or(&self.watermark);
            let now = *of_views.get(view).unwrap_or(&watermark);
            now.filter(|_| now != *before || self.may_close_at_same_watermark)
        };
        self.dataflow
            .as_ref()
            .is_some_and(|d| d.lock().wants_batch_at(moved_to))
    }

    /// The watermarks that a batch planned now applies to views that are behind the pipeline's.
    pub(super) fn next_view_watermarks(
        &self,
        views: &[ViewEntry],
        settings: &PipelineSettings,
        now_us: i64,
        watermark: Option<i64>,
    ) -> BTreeMap<String, Option<i64>> {
        let next = |(view, before): (&String, &Option<i64>)| {
            let sources = sources_of(view, views)?;
            let inputs = self.watermark_inputs(settings, now_us, |s| sources.contains(s));
            let policy = settings.watermark_policy;
            match decide::view_watermark(*before, watermark, &inputs, policy) {
                ViewWatermark::Behind(own) => Some((view.clone(), own)),
                ViewWatermark::CaughtUp => None,
            }
        };
        self.view_watermarks.iter().filter_map(next).collect()
    }

    /// When a batch is wanted by the clock, even one without rows.
    pub(super) fn due_us(&self) -> Option<i64> {
        self.dataflow.as_ref()?.lock().due_us()
    }

    /// The watermark that a batch planned now applies.
    pub(super) fn next_watermark(&self, settings: &PipelineSettings, now_us: i64) -> Option<i64> {
        let inputs = self.watermark_inputs(settings, now_us, |_| true);
        let current = self.watermark.max(self.closed_until);
        decide::next_watermark(current, &inputs, settings.watermark_policy)
    }

    /// The watermark that the batch after `entry` applies at least, now that all rows of `entry` are
    /// in: what an input that falls idle in between might add is left out. One that was planned
    /// before the batch runs again applies what it was planned with.
    pub(super) fn watermark_after(
        &self,
        entry: &OffsetEntry,
        intake: &Intake,
        settings: &PipelineSettings,
    ) -> Option<i64> {
        let next_id = entry.batch_id + 1;
        if let Some(next) = self.replay.iter().find(|next| next.batch_id == next_id) {
            return next.watermark;
        }
        let event_time_max = self.event_times_after(intake);
        let watermarked = self.slots.iter().filter_map(|slot| {
            Some(WatermarkInput {
                event_time_max: event_time_max.get(&slot.relation).copied(),
                delay: slot.watermark.as_ref()?.delay_us,
                idle: false,
            })
        });
        let inputs: Vec<WatermarkInput> = watermarked.collect();
        decide::next_watermark(entry.watermark, &inputs, settings.watermark_policy)
    }

    /// The largest event time of each input with a batch's rows.
    pub(super) fn event_times_after(&self, intake: &Intake) -> BTreeMap<String, i64> {
        let mut event_time_max = self.event_time_max.clone();
        for (relation, counts) in &intake.per_relation {
            if let Some(time) = counts.event_time_max {
                let known = event_time_max.entry(relation.clone()).or_insert(time);
                *known = (*known).max(time);
            }
        }
        event_time_max
    }

    /// What is known of inputs that have a watermark.
    fn watermark_inputs(
        &self,
        settings: &PipelineSettings,
        now_us: i64,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Vec<WatermarkInput> {
        let idle_us = settings.idle_timeout.map(|d| d.as_micros() as i64);
        self.slots
            .iter()
            .filter(|slot| is_wanted(&slot.relation))
            .filter_map(|slot| {
                let delay = slot.watermark.as_ref()?.delay_us;
                let idle_us = slot.idle_timeout_us.or(idle_us);
                let since = slot.last_data_at_us.unwrap_or(self.opened_at_us);
                Some(WatermarkInput {
                    event_time_max: self.event_time_max.get(&slot.relation).copied(),
                    delay,
                    idle: idle_us.is_some_and(|limit| now_us.saturating_sub(since) > limit),
                })
            })
            .collect()
    }
}

/// The relations that a view reads, also through others of its pipeline; `None`: it is gone.
fn sources_of(view: &str, views: &[ViewEntry]) -> Option<BTreeSet<String>> {
    let entry = |name: &str| views.iter().find(|view| view.object.name == name);
    let mut sources = BTreeSet::new();
    let mut waiting = vec![entry(view)?];
    while let Some(view) = waiting.pop() {
        for input in &view.inputs {
            match entry(input) {
                Some(inner) => waiting.push(inner),
                None => drop(sources.insert(input.clone())),
            }
        }
    }
    Some(sources)
}
