//! `REPLAY DEAD LETTERS OF stream`: what was set aside goes through again, once.

use std::collections::BTreeMap;

use serde_json::json;

use super::Session;
use super::recovery::Cell;
use super::trials::require_stream;
use super::work::record_event;
use crate::catalog::history::HistoryFilter;
use crate::catalog::history::rows::DeadLetterRow;
use crate::engine::replaying::{Fate, KeptLetter};
use crate::error::Result;
use crate::sql::names::quote_literal;

/// What became of the letters of a pipeline.
#[derive(Default)]
struct Outcome {
    replayed: u64,
    left: u64,
    /// Of the first that stayed: where from and why.
    example: Option<String>,
}

impl Session {
    pub(super) async fn replay_dead_letters(&self, name: &str) -> Result<Vec<Vec<Cell>>> {
        let snapshot = self.definitions();
        let stream = require_stream(&snapshot, name)?;
        let filter = HistoryFilter {
            name: Some(stream.kept_name().to_owned()),
            limit: None,
        };
        let rows = self.parts.history.dead_letters(&filter)?;
        let kept: Vec<KeptLetter> = rows.iter().map(kept).collect();
        let fates = self.parts.engine().replay(stream, &kept).await?;
        let mut outcomes: BTreeMap<String, Outcome> = BTreeMap::new();
        let mut gone = Vec::new();
        for (row, fate) in rows.into_iter().zip(fates) {
            let outcome = outcomes.entry(row.pipeline.clone()).or_default();
            match fate {
                Fate::Replayed => outcome.replayed += 1,
                Fate::Known => {}
                Fate::Left(why) => {
                    outcome.left += 1;
                    outcome
                        .example
                        .get_or_insert(format!("{}: {why}.", row.origin));
                    continue;
                }
            }
            gone.push(row);
        }
        // Cut short here, the next time finds them in the log.
        self.parts.history.forget_letters(&gone)?;
        let counts = outcomes.iter().map(|(pipeline, outcome)| {
            json!({ "pipeline": pipeline, "replayed": outcome.replayed, "left": outcome.left })
        });
        let detail = json!({ "letters": counts.collect::<Vec<_>>() });
        record_event(&self.parts, "replayed", stream.kept_name(), detail);
        if outcomes.is_empty() {
            let text = "No record of this stream is set aside.";
            let nobody = None::<String>;
            return Ok(vec![vec![
                nobody.clone().into(),
                0u64.into(),
                0u64.into(),
                text.into(),
                nobody.into(),
            ]]);
        }
        Ok(outcomes.into_iter().map(|o| row_of(name, o)).collect())
    }
}

fn kept(row: &DeadLetterRow) -> KeptLetter {
    KeptLetter {
        pipeline: row.pipeline.clone(),
        batch_id: row.batch_id,
        origin: row.origin.clone(),
        raw: row.raw.clone(),
    }
}

fn row_of(stream: &str, (pipeline, outcome): (String, Outcome)) -> Vec<Cell> {
    let detail = match outcome.example {
        Some(example) => format!("The first of those that stay: {example}"),
        None => "All of them are taken in by the next batch.".to_owned(),
    };
    let look = format!(
        "SELECT origin, error FROM streaming_dead_letters WHERE stream_name = {};",
        quote_literal(stream)
    );
    vec![
        Some(pipeline).filter(|name| !name.is_empty()).into(),
        outcome.replayed.into(),
        outcome.left.into(),
        detail.into(),
        (outcome.left > 0).then_some(look).into(),
    ]
}
