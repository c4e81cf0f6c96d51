//! What a pipeline writes into history beside its metrics: notices of its sources, gaps, late rows,
//! expectations, and sources that go and come back.

use serde_json::json;

use super::feeding::Intake;
use super::parts::{BatchPlace, ExpectationCount, LateRow};
use super::pipeline::Pipeline;
use super::receivers::ReceiverCounts;
use crate::checkpoint::OffsetEntry;
use crate::connectors::Notice;
use crate::connectors::formats::encode::json_rows;
use crate::dataflow::graph::BatchResult;
use crate::dataflow::late::LateBatch;
use crate::error::Result;

impl Pipeline {
    /// Writes what the sources noticed (changed, missing or skipped files, lost records) as events,
    /// and what is missing of them as gaps.
    pub(super) fn tell_notices(&self) {
        let Some(opened) = &self.opened else { return };
        for slot in &opened.slots {
            let notices = slot.source.take_notices();
            if notices.is_empty() {
                continue;
            }
            let texts: Vec<&str> = notices.iter().map(|notice| notice.text.as_str()).collect();
            self.event(
                "noticed",
                json!({ "source": slot.relation, "notices": texts }),
            );
            let gaps: Vec<_> = notices
                .iter()
                .filter_map(|Notice { text, gap }| Some((text.clone(), gap.clone()?)))
                .collect();
            if !gaps.is_empty() {
                let place = self.place(&slot.relation, opened.next_batch_id());
                self.parts.history.record_data_gaps(&place, &gaps);
            }
        }
    }

    /// Writes what the batch's sources noticed while they were read, its late rows and its
    /// expectations. The same batch again writes the same rows.
    pub(super) fn tell_rows(&self, entry: &OffsetEntry, result: &BatchResult, intake: &Intake) {
        self.tell_notices();
        let history = &self.parts.history;
        for (view, batches) in &result.late {
            match late_rows(batches) {
                Ok(rows) => {
                    let place = self.place(view, entry.batch_id);
                    history.record_late_rows(&place, entry.watermark_of(view), &rows);
                }
                Err(error) => {
                    tracing::warn!(view, %error, "late rows are counted and cannot be shown");
                }
            }
        }
        for (relation, counts) in &intake.per_relation {
            let expectations: Vec<_> = counts
                .expectations
                .iter()
                .map(|(name, counts)| ExpectationCount {
                    name: name.clone(),
                    passed: counts.passed,
                    failed: counts.failed,
                    dropped: counts.dropped,
                })
                .collect();
            if !expectations.is_empty() {
                let place = self.place(relation, entry.batch_id);
                history.record_expectations(&place, entry.batch_at_us, &expectations);
            }
            if counts.skewed_rows > 0 {
                let notice = format!(
                    "{} rows have event times further ahead of the clock than max_future_skew; \
                     they do not move the watermark",
                    counts.skewed_rows
                );
                self.event(
                    "noticed",
                    json!({ "source": relation, "notices": [notice] }),
                );
            }
        }
    }

    /// Writes an event for each source that cannot be reached any more, or can again.
    pub(super) fn tell_sources(&mut self) {
        let Some(opened) = &mut self.opened else {
            return;
        };
        let mut events = Vec::new();
        for slot in &mut opened.slots {
            let is_down = slot.last_error.is_some();
            if slot.told_down == is_down {
                continue;
            }
            slot.told_down = is_down;
            events.push(match &slot.last_error {
                Some(error) => (
                    "source lost",
                    json!({ "source": slot.relation, "error": error.primary() }),
                ),
                None => ("source back", json!({ "source": slot.relation })),
            });
        }
        for (kind, detail) in events {
            self.event(kind, detail);
        }
    }

    /// What receivers counted since a batch last told it: it comes with no batch's rows.
    pub(super) fn receivers_counts(&mut self) -> ReceiverCounts {
        let mut all = ReceiverCounts::default();
        let slots = self.opened.iter().flat_map(|opened| &opened.slots);
        for slot in slots.filter(|slot| slot.reads_log) {
            let counted = self.receivers.counts(&slot.relation);
            let told = self.counts_told.entry(slot.relation.clone()).or_default();
            let fresh = counted.since(*told);
            all.dead_letters += fresh.dead_letters;
            all.unknown_field_rows += fresh.unknown_field_rows;
            *told = counted;
        }
        all
    }

    fn place<'a>(&'a self, name: &'a str, batch_id: u64) -> BatchPlace<'a> {
        BatchPlace {
            name,
            pipeline: &self.shared.name,
            batch_id,
        }
    }
}

fn late_rows(batches: &[LateBatch]) -> Result<Vec<LateRow>> {
    let mut rows = Vec::new();
    for LateBatch { rows: batch, times } in batches {
        let texts = json_rows(batch)?;
        rows.extend(
            texts
                .into_iter()
                .zip(times)
                .map(|(row, event_time)| LateRow { event_time, row }),
        );
    }
    Ok(rows)
}
