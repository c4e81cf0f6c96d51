//! START, STOP, REFRESH, FLUSH and WAIT: what is asked of running pipelines, and waited for.

use std::time::Duration;

use super::shared::Command;
use super::{Engine, unknown};
use crate::catalog::renaming::KeptName;
use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::ObjectKind;

impl Engine {
    /// Starts a stopped or failed object (view, sink, stream, pipeline by name).
    pub async fn start(&self, kind: ObjectKind, name: &KeptName) -> Result<()> {
        let started = self.start_kept(kind, name.as_str());
        started.await.map_err(|error| self.shown(error))
    }

    async fn start_kept(&self, kind: ObjectKind, name: &str) -> Result<()> {
        if kind == ObjectKind::Stream {
            let object = self
                .inner
                .parts
                .definitions
                .object(name)
                .ok_or_else(|| unknown(name))?;
            if !self.inner.receivers.contains(name) {
                self.create_stream(&object).await?;
            }
            for shared in self.affected(name) {
                shared.ask(Command::Start).await?;
            }
            return Ok(());
        }
        self.pipeline_by(kind, name)?.ask(Command::Start).await
    }

    /// Returns once what was started runs; its error if it failed, 57014 if it takes longer.
    pub async fn started(&self, kind: ObjectKind, name: &KeptName, within: Duration) -> Result<()> {
        let pipelines = match kind {
            ObjectKind::Stream => self.affected(name.as_str()),
            _ => vec![self.pipeline_by(kind, name.as_str())?],
        };
        for shared in pipelines {
            let mut status = shared.status.subscribe();
            let is_settled = |s: &&'static str| !matches!(*s, "starting" | "restoring");
            let settled = status.wait_for(is_settled);
            let Ok(settled) = tokio::time::timeout(within, settled).await else {
                return Err(self.not_started(kind, name, within));
            };
            if settled.is_ok_and(|s| *s == "failed") {
                return Err(self.shown(shared.failure()));
            }
        }
        Ok(())
    }

    fn not_started(&self, kind: ObjectKind, name: &KeptName, within: Duration) -> Error {
        let error = Error::with_kind(
            crate::error::ErrorKind::Cancelled,
            sqlstate::QUERY_CANCELED,
            format!(
                "\"{}\" did not start within {} ms",
                name.as_str(),
                within.as_millis()
            ),
        )
        .detail("It goes on starting.");
        match kind {
            ObjectKind::Pipeline => error,
            _ => self.shown(error),
        }
    }

    /// Stops it at a batch border, within `within`.
    pub async fn stop(&self, kind: ObjectKind, name: &KeptName, within: Duration) -> Result<()> {
        let stopped = self.stop_kept(kind, name.as_str(), within);
        stopped.await.map_err(|error| self.shown(error))
    }

    async fn stop_kept(&self, kind: ObjectKind, name: &str, within: Duration) -> Result<()> {
        if kind == ObjectKind::Stream {
            self.inner.receivers.stop(name).await;
            for shared in self.affected(name) {
                shared.ask(|reply| Command::Stop(within, reply)).await?;
            }
            return Ok(());
        }
        self.pipeline_by(kind, name)?
            .ask(|reply| Command::Stop(within, reply))
            .await
    }

    /// Runs what is available, then returns.
    pub async fn refresh(&self, view: &KeptName) -> Result<()> {
        let refreshed = async {
            let shared = self.inner.directory.pipeline_of(view.as_str())?;
            shared.ask(Command::Refresh).await
        };
        refreshed.await.map_err(|error| self.shown(error))
    }

    /// Returns when every running view took in all that was committed before the call.
    pub async fn flush(&self) -> Result<()> {
        let pipelines = self.inner.directory.all();
        let asked = pipelines
            .iter()
            .map(|shared| shared.ask(|reply| Command::Flush(false, reply)));
        for answer in futures::future::join_all(asked).await {
            answer.map_err(|error| self.shown(error))?;
        }
        Ok(())
    }

    /// Waits until new views have rows to be read, or do not run. Those that have none after
    /// `within`: there is much to fill them with, or a source does not answer.
    pub async fn first_batches(&self, views: &[KeptName], within: Duration) -> Vec<KeptName> {
        let waits = views.iter().map(async |view| {
            let shared = self.inner.directory.pipeline_of(view.as_str()).ok()?;
            let first = shared.wait_for_first_batch(view.as_str());
            let waited = tokio::time::timeout(within, first).await;
            waited.is_err().then(|| view.clone())
        });
        let waited = futures::future::join_all(waits).await;
        waited.into_iter().flatten().collect()
    }

    /// As [`Self::flush`] for one view.
    pub async fn wait_for(&self, view: &KeptName, within: Option<Duration>) -> Result<()> {
        let waited = self.wait_for_kept(view.as_str(), within);
        waited.await.map_err(|error| self.shown(error))
    }

    async fn wait_for_kept(&self, view: &str, within: Option<Duration>) -> Result<()> {
        let shared = self.inner.directory.pipeline_of(view)?;
        let flushed = shared.ask(|reply| Command::Flush(true, reply));
        match within {
            None => flushed.await,
            Some(within) => tokio::time::timeout(within, flushed).await.map_err(|_| {
                Error::with_kind(
                    crate::error::ErrorKind::Cancelled,
                    sqlstate::QUERY_CANCELED,
                    format!(
                        "\"{view}\" did not take in all rows within {} ms",
                        within.as_millis()
                    ),
                )
            })?,
        }
    }
}
