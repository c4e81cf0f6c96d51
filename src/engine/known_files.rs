//! `streaming_files`: what the sources of all pipelines know of their files.
//!
//! Asked of the sources themselves and not copied onto a board: they are many, and seldom looked at. A source
//! answers from memory, so a pipeline that hangs or waits answers too. Each pipeline reads a stream's
//! files by itself, so a file has a row for each. Absent: pipelines that are not open, which know nothing yet.

use std::sync::Weak;

use super::Engine;
use super::pipeline::Pipeline;
use super::status::FileStatus;
use crate::connectors::{KnownFile, Source};

/// Rows for one stream of a pipeline; the oldest go first.
const FILES_TOLD_MAX: usize = 100_000;

/// A source of a pipeline, as long as it is open.
pub(super) type OpenSource = (String, Weak<dyn Source>);

impl Pipeline {
    /// Says which sources there are to ask.
    pub(super) fn tell_open_sources(&self) {
        let slots = self.opened.iter().flat_map(|opened| &opened.slots);
        let open = slots.map(|slot| {
            (
                slot.relation.clone(),
                std::sync::Arc::downgrade(&slot.source),
            )
        });
        *self.shared.open_sources.lock() = open.collect();
    }
}

impl Engine {
    /// Files of streams; `stream` asks for those of one.
    pub fn known_files(&self, stream: Option<&str>) -> Vec<FileStatus> {
        let mut files = Vec::new();
        let mut pipelines = self.inner.directory.all();
        pipelines.sort_by(|a, b| a.name.cmp(&b.name));
        for shared in pipelines {
            let sources: Vec<OpenSource> = shared.open_sources.lock().clone();
            let last_batch_id = shared.board.lock().pipeline.last_batch_id;
            for (relation, source) in sources {
                let is_asked = stream.is_none_or(|stream| stream == relation);
                let Some(source) = source.upgrade().filter(|_| is_asked) else {
                    continue;
                };
                let mut known = source.known_files();
                let passed_over = known.len().saturating_sub(FILES_TOLD_MAX);
                known.drain(..passed_over);
                files.extend(known.into_iter().map(|file| FileStatus {
                    stream_name: relation.clone(),
                    pipeline: shared.name.clone(),
                    state: state_of(&file, last_batch_id),
                    file,
                }));
            }
        }
        files
    }
}

fn state_of(file: &KnownFile, last_batch_id: Option<u64>) -> &'static str {
    let is_committed = file.batch_id.is_some() && file.batch_id <= last_batch_id;
    match (is_committed, &file.error) {
        (true, None) => "committed",
        (true, Some(_)) => "skipped",
        (false, None) => "pending",
        (false, Some(_)) if file.batch_id.is_none() => "waiting",
        (false, Some(_)) => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_pending_until_its_batch_commits() {
        let file = |batch_id, error: Option<&str>| KnownFile {
            path: "in/a.json".to_owned(),
            batch_id,
            size_bytes: 1,
            modified_at_us: 1,
            rows: None,
            dead_letters: None,
            error: error.map(str::to_owned),
        };
        let states = [
            (file(None, None), "pending"),
            (file(None, Some("cut")), "waiting"),
            (file(Some(4), None), "pending"),
            (file(Some(4), Some("gone")), "failed"),
            (file(Some(3), None), "committed"),
            (file(Some(3), Some("bad")), "skipped"),
        ];
        for (file, expected) in states {
            assert_eq!(state_of(&file, Some(3)), expected, "{file:?}");
        }
        assert_eq!(state_of(&file(Some(0), None), None), "pending");
    }
}
