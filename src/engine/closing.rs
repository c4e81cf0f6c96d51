//! Letting go of a checkpoint: closed at a shutdown, archived at a DROP, moved when it is to be
//! elsewhere.
//!
//! None of these waits long for a store: what could not be done is told and left, and a lease that
//! was not given back runs out by itself.

use std::time::Duration;

use serde_json::json;

use super::pipeline::{Phase, Pipeline};
use super::settings::PipelineSettings;
use crate::catalog::definition::Options;
use crate::checkpoint::Checkpoint;
use crate::checkpoint::leftover::set_aside;
use crate::checkpoint::relocate::relocate;
use crate::error::{ErrorKind, Result};
use crate::state::StateStore;

/// How long a store may take.
const STORE_PATIENCE: Duration = Duration::from_secs(3);

impl Pipeline {
    /// Takes over changed options. A checkpoint that is to be elsewhere is moved: everything is let
    /// go of, and opened again over the new location.
    pub(super) async fn change_settings(
        &mut self,
        options: &Options,
        phase: &mut Phase,
    ) -> Result<()> {
        let settings = PipelineSettings::read(options)?;
        self.shared.life.lock().stall_timeout_us = settings.stall_timeout.as_micros() as i64;
        if settings.checkpoint_location == self.settings.checkpoint_location {
            self.settings = settings;
            return Ok(());
        }
        let from = self.location();
        self.abandon_commit().await;
        self.let_go();
        self.let_go_of_store(false).await?;
        let before = std::mem::replace(&mut self.settings, settings);
        let to = self.location();
        let moved = relocate(&from, &to, self.shared.id, &self.parts.clock).await;
        match &moved {
            Ok(()) => self.event("moved", json!({ "from": from, "to": to })),
            Err(_) => self.settings = before,
        }
        if !matches!(phase, Phase::Stopped) {
            self.attempt = 0;
            self.error = None;
            *phase = Phase::Opening;
        }
        moved
    }

    /// Closes the checkpoint that was let go of, or archives it, within [`STORE_PATIENCE`].
    pub(super) async fn let_go_of_store(&mut self, archive: bool) -> Result<()> {
        let Some(checkpoint) = self.closing.take() else {
            return Ok(());
        };
        let work = async {
            let checkpoint = Checkpoint::clone(&checkpoint);
            match archive {
                true => checkpoint.archive().await.map(drop),
                false => {
                    checkpoint.close().await;
                    Ok(())
                }
            }
        };
        let failure = match tokio::time::timeout(STORE_PATIENCE, work).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) if error.kind() != ErrorKind::Transient => return Err(error),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "its store does not answer".to_owned(),
        };
        let location = self.location();
        tracing::warn!(pipeline = %self.shared.name, location, failure, "a checkpoint was left as it is");
        if archive {
            let note = "The checkpoint could not be archived and was left where it is.";
            self.event(
                "dropped",
                json!({ "note": note, "location": location, "error": failure }),
            );
        }
        Ok(())
    }

    /// Lets go of everything; with `archive` the checkpoint is moved aside and the local state deleted.
    pub(super) async fn end(&mut self, archive: bool) -> Result<()> {
        if archive {
            // What lands after the archiving would be taken for a damaged checkpoint of the next
            // pipeline of this name.
            let writes = self.finish_writes();
            tokio::time::timeout(STORE_PATIENCE, writes).await.ok();
        }
        self.abandon_commit().await;
        self.let_go();
        let was_open = self.closing.is_some();
        self.state = None;
        self.sinks.clear();
        self.tell("stopped");
        self.let_go_of_store(archive).await?;
        if archive && !was_open {
            self.set_checkpoint_aside()?;
        }
        if !archive {
            return Ok(());
        }
        self.shared.publication.lock().snapshot = None;
        let dir = self
            .parts
            .data_dir
            .join("pipelines")
            .join(super::file_names::file_name(&self.shared.name));
        StateStore::destroy(&dir)
    }

    /// Waits for what is on its way to the location; what comes of it does not matter any more.
    async fn finish_writes(&mut self) {
        if let Some(logging) = self.logging.take() {
            logging.await.ok();
        }
        if let Some(committing) = self.committing.take() {
            committing.finish().await;
        }
    }

    /// Moves the checkpoint of a pipeline that never opened out of the way, so that its name can be
    /// used again. Only the default location is known to be this database's own.
    fn set_checkpoint_aside(&self) -> Result<()> {
        let location = std::path::PathBuf::from(self.location());
        if self.settings.checkpoint_location.is_some() || !location.exists() {
            return Ok(());
        }
        set_aside(&location, &self.parts.clock).map(drop)
    }
}
