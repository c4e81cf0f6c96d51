//! Pipelines that show no life: a task that looks at all of them from outside.
//!
//! A pipeline that hangs cannot say so itself. Its task leaves a heartbeat wherever it gets on; when
//! that is older than `stall_timeout` while a batch should run, the pipeline is told as `stalled`.
//! A source that neither gives nor fails is opened anew; what else hangs is left alone, since work
//! that takes long looks the same.

use std::sync::Weak;
use std::time::Duration;

use serde_json::json;

use super::decide;
use super::parts::{Event, History};
use super::read::Directory;
use super::shared::{Command, Doing, PipelineShared};
use crate::clock::ClockRef;

/// How often the heartbeats are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks until the engine is gone, which this does not keep alive.
pub(super) async fn watch(directory: Weak<Directory>, history: Weak<dyn History>, clock: ClockRef) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let (Some(directory), Some(history)) = (directory.upgrade(), history.upgrade()) else {
            return;
        };
        for shared in directory.all() {
            if let Some(event) = look(&shared, clock.now_us()) {
                history.record_event(event);
            }
        }
    }
}

/// Tells one pipeline as stalled, if it is and was not told yet.
fn look(shared: &PipelineShared, now_us: i64) -> Option<Event> {
    let (doing, silent_us) = {
        let mut life = shared.life.lock();
        let silent_us = now_us.saturating_sub(life.beat_at_us);
        let status = *shared.status.borrow();
        if life.told || !decide::is_stalled(status, silent_us, life.stall_timeout_us) {
            return None;
        }
        life.told = true;
        (life.doing, silent_us)
    };
    let seconds = silent_us / 1_000_000;
    let mut board = shared.board.lock();
    board.pipeline.status = "stalled";
    for query in board.queries.values_mut() {
        query.status = "stalled";
        query.message = format!("no progress for {seconds} seconds while {}", doing.words());
    }
    drop(board);
    tracing::warn!(pipeline = %shared.name, seconds, "stalled while {}", doing.words());
    if doing == Doing::Reading && shared.commands.send(Command::Stalled).is_err() {
        tracing::debug!(pipeline = %shared.name, "the stalled pipeline has ended");
    }
    Some(Event {
        at_us: now_us,
        kind: "stalled",
        object: shared.name.clone(),
        pipeline: Some(shared.name.clone()),
        batch_id: shared.publication.lock().batch_id,
        detail: json!({ "while": doing.words(), "seconds": seconds }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::status::QueryStatus;
    use crate::state::MemoryBudget;

    #[tokio::test]
    async fn a_silent_pipeline_is_told_once_and_its_source_opened_anew() {
        let (commands, mut received) = tokio::sync::mpsc::unbounded_channel();
        let shared = PipelineShared::new(
            "p".to_owned(),
            uuid::Uuid::nil(),
            commands,
            &MemoryBudget::new(1 << 20),
        );
        shared.life.lock().stall_timeout_us = 60_000_000;
        let query = ("v".to_owned(), QueryStatus::default());
        shared.board.lock().queries.extend([query]);
        shared.status.send_replace("running");
        shared.beat(Doing::Reading, 1_000_000);

        assert!(look(&shared, 30_000_000).is_none());
        let event = look(&shared, 62_000_000).unwrap();
        assert_eq!((event.kind, event.object.as_str()), ("stalled", "p"));
        assert_eq!(event.detail["seconds"], 61);
        assert!(matches!(received.try_recv(), Ok(Command::Stalled)));
        {
            let board = shared.board.lock();
            assert_eq!(board.pipeline.status, "stalled");
            assert!(
                board.queries["v"]
                    .message
                    .contains("61 seconds while reading")
            );
        }
        assert!(look(&shared, 99_000_000).is_none(), "told once");

        shared.beat(Doing::Computing, 100_000_000);
        assert!(
            look(&shared, 161_000_000).is_some(),
            "and again the next time"
        );
        assert!(
            received.try_recv().is_err(),
            "work that takes long is left alone"
        );
    }
}
