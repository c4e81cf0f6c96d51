//! Filling views that have no state yet from what came before them: in parts, so that a history of any
//! size takes the memory of a batch.
//!
//! ```text
//!   (what an attempt left goes) ─► part ─► part ─► … ─► the last part: from this commit on the views are there
//! ```
//!
//! Each part is a batch that takes in nothing of the sources, so that what the parts read is the same
//! all the while. Only the last one's commit knows the views: cut short, they are filled from the
//! beginning. A batch that was planned before a view came is run as it was planned, and fills it whole.

use std::collections::VecDeque;

use futures::StreamExt;
use futures::stream::BoxStream;
use parking_lot::Mutex;

use super::opening::{FillInput, Opened};
use super::pipeline::{Pipeline, ViewEntry};
use crate::checkpoint::OffsetEntry;
use crate::connectors::{SourceChunk, SourceRange};
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::view_storage::ViewRows;
use crate::error::Result;

/// Rows per batch when a view's stored contents fill another view.
const FILL_BATCH_ROWS: usize = 8192;

/// What a batch does for the views without state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FillStep {
    /// There are none.
    Nothing,
    /// What an attempt before left of their state goes.
    Clear,
    /// So many rows, or a few more.
    Part(u64),
    /// All there is.
    Whole,
}

/// What a batch is about, for [`fill_step`].
#[derive(Debug, Clone, Copy)]
pub(super) struct FillFacts {
    /// There are views without state.
    pub has_unfilled: bool,
    /// The batch takes something in.
    pub has_input: bool,
    /// None of these views must be filled at once.
    pub may_come_in_parts: bool,
    /// An attempt before left something.
    pub is_dirty: bool,
    /// Rows that a batch may take.
    pub rows_max: u64,
}

/// In parts, if nothing is against it.
pub(super) fn fill_step(facts: FillFacts) -> FillStep {
    match facts {
        FillFacts {
            has_unfilled: false,
            ..
        } => FillStep::Nothing,
        FillFacts {
            has_input: true, ..
        } => FillStep::Whole,
        FillFacts { is_dirty: true, .. } => FillStep::Clear,
        FillFacts {
            may_come_in_parts: false,
            ..
        } => FillStep::Whole,
        FillFacts { rows_max, .. } => FillStep::Part(rows_max),
    }
}

enum Rows {
    Stored(ViewRows),
    Source(BoxStream<'static, Result<SourceChunk>>),
    /// There never was one.
    None,
}

/// How far the views without state are filled.
pub(super) struct Filling {
    waiting: VecDeque<(String, FillInput)>,
    /// The view, the input's name, and what of it is left.
    current: Option<(String, String, Rows)>,
}

impl Filling {
    pub fn of(fills: &[(String, FillInput)]) -> Self {
        Self {
            waiting: fills.iter().cloned().collect(),
            current: None,
        }
    }

    /// The next rows: the view that they fill, the input that they are of. `None`: that was all.
    pub async fn next(&mut self, opened: &Opened) -> Result<Option<(String, String, ChangeBatch)>> {
        loop {
            if self.current.is_none() {
                let Some((view, input)) = self.waiting.pop_front() else {
                    return Ok(None);
                };
                let (name, rows) = open_input(&input, opened).await?;
                self.current = Some((view, name, rows));
            }
            let Some((view, input, rows)) = &mut self.current else {
                continue;
            };
            let next = match rows {
                Rows::Stored(rows) => rows.next().transpose()?.map(ChangeBatch::inserts),
                Rows::Source(chunks) => match chunks.next().await.transpose()? {
                    Some(chunk) => Some(without_violating(opened, input, chunk.changes)?),
                    None => None,
                },
                Rows::None => None,
            };
            match next {
                Some(change) => return Ok(Some((view.clone(), input.clone(), change))),
                None => self.current = None,
            }
        }
    }
}

fn without_violating(opened: &Opened, relation: &str, rows: ChangeBatch) -> Result<ChangeBatch> {
    let slot = opened.slots.iter().find(|slot| slot.relation == relation);
    match slot {
        Some(slot) => slot.drop_violating(rows),
        None => Ok(rows),
    }
}

/// An input of a new view from its beginning to the last committed position: a relation from its
/// source, a view of this pipeline from its stored rows.
async fn open_input(input: &FillInput, opened: &Opened) -> Result<(String, Rows)> {
    match input {
        FillInput::Stored { name, reader } => {
            let rows = reader.all_rows(&opened.state.snapshot(), FILL_BATCH_ROWS)?;
            Ok((name.clone(), Rows::Stored(rows)))
        }
        FillInput::Source { name } => {
            let slot = opened.slots.iter().find(|s| s.relation == *name);
            let range = slot.map(|slot| SourceRange {
                start: slot.initial.clone(),
                end: slot.position.clone(),
            });
            let (Some(slot), Some(range)) = (slot, range.filter(|r| r.start != r.end)) else {
                return Ok((name.clone(), Rows::None));
            };
            let all: Vec<usize> = (0..slot.schema.fields().len()).collect();
            let batch_id = opened.next_batch_id();
            let chunks = slot.source.read_range(batch_id, &range, &all).await?;
            Ok((name.clone(), Rows::Source(chunks)))
        }
    }
}

impl Opened {
    /// There are rows that views without state have yet to take in.
    fn has_history_to_fill(&self) -> bool {
        self.fills.iter().any(|(_, input)| match input {
            FillInput::Stored { .. } => true,
            FillInput::Source { name } => {
                let mut slots = self.slots.iter();
                slots.any(|slot| slot.relation == *name && slot.initial != slot.position)
            }
        })
    }
}

/// A sink over a view that is filled in parts gets it whole with the batch after the last of them.
pub(super) fn waits_for_whole(opened: &Opened, view: &str, is_partial: bool) -> bool {
    opened.unfilled.contains(view) && (is_partial || opened.filled_parts > 0)
}

impl Pipeline {
    /// None of the views without state must be filled at once.
    fn may_fill_in_parts(&self, opened: &Opened) -> bool {
        let unfilled = |view: &&ViewEntry| opened.unfilled.contains(&view.object.name);
        self.views
            .iter()
            .filter(unfilled)
            .all(|view| view.may_fill_in_parts)
    }

    /// The next batch takes in nothing of the sources: it fills views in parts.
    pub(super) fn only_fills(&self, opened: &Opened) -> bool {
        opened.has_history_to_fill() && self.may_fill_in_parts(opened)
    }

    /// What the batch of `entry` does for the views without state. Where that is to clear what is left
    /// of them, or to begin, the operators are made ready for it.
    pub(super) fn prepare_filling(&mut self, entry: &OffsetEntry) -> Result<FillStep> {
        let rows_max = self.rows_max();
        let may_come_in_parts = self
            .opened
            .as_ref()
            .is_none_or(|opened| self.may_fill_in_parts(opened));
        let opened = self.opened.as_mut().expect("a running pipeline is open");
        let is_begun = opened.filling.is_some();
        let Some(dataflow) = opened.dataflow.as_mut().map(Mutex::get_mut) else {
            return Ok(FillStep::Nothing);
        };
        let snapshot = opened.state.snapshot();
        let mut is_dirty = false;
        if !is_begun {
            for table in opened.unfilled.iter().flat_map(|v| dataflow.tables_of(v)) {
                is_dirty |= !snapshot.is_table_empty(table)?;
            }
        }
        let step = fill_step(FillFacts {
            has_unfilled: !opened.unfilled.is_empty(),
            has_input: !entry.sources.is_empty(),
            may_come_in_parts,
            is_dirty,
            rows_max,
        });
        match step {
            FillStep::Nothing => {}
            FillStep::Clear => {
                for view in &opened.unfilled {
                    dataflow.clear(view);
                    self.shared.end_subscriptions(view);
                }
            }
            FillStep::Part(_) | FillStep::Whole => {
                if !is_begun {
                    // What operators know of a state that was cleared.
                    dataflow.reset();
                    opened.filling = Some(Mutex::new(Filling::of(&opened.fills)));
                }
            }
        }
        Ok(step)
    }

    /// Rows that a part takes.
    fn rows_max(&self) -> u64 {
        let written_bytes = self.opened.as_ref().and_then(|o| o.pace.written_bytes());
        let limits =
            super::decide::limits_of_memory(self.parts.budget.limit_bytes(), written_bytes);
        let rows = [limits.max_rows, self.settings.limits.max_rows];
        rows.into_iter().flatten().min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_are_filled_in_parts_unless_a_planned_batch_or_a_view_wants_them_whole() {
        let facts = FillFacts {
            has_unfilled: true,
            has_input: false,
            may_come_in_parts: true,
            is_dirty: false,
            rows_max: 7,
        };
        assert_eq!(fill_step(facts), FillStep::Part(7));
        let with = |change: fn(&mut FillFacts)| {
            let mut facts = facts;
            change(&mut facts);
            fill_step(facts)
        };
        assert_eq!(with(|f| f.has_unfilled = false), FillStep::Nothing);
        assert_eq!(with(|f| f.is_dirty = true), FillStep::Clear);
        assert_eq!(with(|f| f.has_input = true), FillStep::Whole);
        assert_eq!(with(|f| f.may_come_in_parts = false), FillStep::Whole);
    }
}
