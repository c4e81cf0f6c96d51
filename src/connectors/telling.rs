//! What a source tells people beside rows: the names its hints need.
//!
//! Hints hold whole statements, so a source must know what its stream and its pipeline are called.

use super::ConnectorEnvironment;
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
        format!("ALTER STREAM {} SET ({setting});", quote_identifier(&self.stream))
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
