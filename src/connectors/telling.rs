//! What a source tells people beside rows: names for its hints, and notices.
//!
//! Hints hold whole statements, so a source must know what its stream and its pipeline are called.
//! A notice is about something that no batch may ever carry, such as a file that changed after it
//! was read; the engine takes notices with [`super::Source::take_notices`].

use std::sync::Arc;

use parking_lot::Mutex;

use super::{ConnectorEnvironment, DataGap, Notice};
use crate::sql::names::quote_identifier;

/// Names for the statements in hints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    /// The stream, as its options name it.
    pub stream: String,
    /// The pipeline that reads it; `None` for a reader without one.
    pub pipeline: Option<String>,
}

impl Names {
    pub fn new(stream: &str, environment: &ConnectorEnvironment) -> Self {
        Self {
            stream: stream.to_owned(),
            pipeline: environment.pipeline.clone(),
        }
    }

    /// `ALTER STREAM s SET (setting);`
    pub fn alter_stream(&self, setting: &str) -> String {
        format!(
            "ALTER STREAM {} SET ({setting});",
            quote_identifier(&self.stream)
        )
    }

    /// `REPAIR CHECKPOINT OF p;` and the like, with `verb` before and `rest` behind. A reader
    /// without a pipeline has no checkpoint, so its hint names the view as a place to fill in.
    pub fn checkpoint(&self, verb: &str, rest: &str) -> String {
        let pipeline = match &self.pipeline {
            Some(pipeline) => quote_identifier(pipeline),
            None => format!("the view over {}", self.stream),
        };
        format!("{verb} CHECKPOINT OF {pipeline}{rest};")
    }
}

/// Notices that wait to be taken; clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Notices(Arc<Mutex<Vec<Notice>>>);

impl Notices {
    /// Adds one, and logs it.
    pub fn tell(&self, text: String) {
        self.add(Notice { text, gap: None });
    }

    /// As [`Self::tell`], of what was lost or skipped.
    pub fn tell_gap(&self, text: String, gap: DataGap) {
        self.add(Notice {
            text,
            gap: Some(gap),
        });
    }

    /// What nobody takes does not grow without bound.
    fn add(&self, notice: Notice) {
        const KEPT: usize = 1_000;
        tracing::warn!("{}", notice.text);
        let mut waiting = self.0.lock();
        if waiting.len() < KEPT {
            waiting.push(notice);
        }
    }

    /// Takes all that wait, oldest first.
    pub fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.0.lock())
    }
}
