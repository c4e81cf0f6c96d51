//! `START`, `STOP`, `REFRESH`, `WAIT FOR`: what runs, and what has been taken in.
//!
//! They act at once, inside a transaction block too: a pipeline's life is not part of a transaction.

use std::time::Duration;

use super::rowset::done;
use super::work::record_event;
use super::{Notice, Session, StatementResult, show};
use crate::catalog::changes::CatalogChange;
use crate::catalog::renaming::KeptName;
use crate::catalog::snapshot::{kind_keyword, pipeline_of};
use crate::error::{Error, Result};
use crate::sql::statement::{ObjectKind, Statement};

/// How long `STOP` without `WITHIN` waits for the batch that runs; what is given up then runs again
/// at the next `START`.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Statements about what pipelines do with committed rows.
pub(super) fn concerns_committed(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Start(..)
            | Statement::Stop(..)
            | Statement::Refresh(_)
            | Statement::Flush
            | Statement::Wait(..)
            | Statement::Recovery(_)
    )
}

impl Session {
    /// `WITHIN`: does not return before what was started runs, or has failed.
    pub(super) async fn start_running(
        &mut self,
        target: Option<&(ObjectKind, String)>,
        within: Option<Duration>,
    ) -> Result<StatementResult> {
        let (tag, targets) = match target {
            Some((kind, name)) => {
                let target = (*kind, name.clone());
                (format!("START {}", kind_keyword(*kind)), vec![target])
            }
            None => {
                let pipelines = self.pipeline_names().into_iter();
                let all = pipelines.map(|name| (ObjectKind::Pipeline, name)).collect();
                ("START ALL".to_owned(), all)
            }
        };
        let mut kept_targets = Vec::with_capacity(targets.len());
        for (kind, name) in &targets {
            if let Some(pipeline) = self.pipeline_named(*kind, name)? {
                self.set_stopped(&pipeline, false).await?;
            }
            let kept = self.kept_name(*kind, name)?;
            self.parts.engine().start(*kind, &kept).await?;
            kept_targets.push((*kind, kept));
        }
        if let Some(within) = within {
            let engine = self.parts.engine();
            let started = kept_targets
                .iter()
                .map(|(kind, name)| engine.started(*kind, name, within));
            futures::future::try_join_all(started).await?;
        }
        Ok(done(tag))
    }

    pub(super) async fn stop_running(
        &mut self,
        target: Option<&(ObjectKind, String)>,
        within: Option<Duration>,
    ) -> Result<StatementResult> {
        let within = within.unwrap_or(STOP_WITHIN);
        let Some((kind, name)) = target else {
            let pipelines = self.pipeline_names();
            for pipeline in &pipelines {
                self.set_stopped(pipeline, true).await?;
            }
            let engine = self.parts.engine();
            let pipelines: Vec<_> = pipelines.iter().map(|p| KeptName::of_pipeline(p)).collect();
            let stopped = pipelines
                .iter()
                .map(|pipeline| engine.stop(ObjectKind::Pipeline, pipeline, within));
            futures::future::try_join_all(stopped).await?;
            return Ok(done("STOP ALL"));
        };
        // Stopped in the catalog first: a crash in between must not start it again.
        if let Some(pipeline) = self.pipeline_named(*kind, name)? {
            self.set_stopped(&pipeline, true).await?;
            self.tell_stopped_together(&pipeline, *kind, name);
        }
        let kept = self.kept_name(*kind, name)?;
        self.parts.engine().stop(*kind, &kept, within).await?;
        Ok(done(format!("STOP {}", kind_keyword(*kind))))
    }

    pub(super) async fn refresh(&mut self, view: &str) -> Result<StatementResult> {
        let view = self.kept_name(ObjectKind::MaterializedView, view)?;
        self.parts.engine().refresh(&view).await?;
        Ok(done("REFRESH MATERIALIZED VIEW"))
    }

    pub(super) async fn wait_for(
        &mut self,
        view: &str,
        within: Option<Duration>,
    ) -> Result<StatementResult> {
        let view = self.kept_name(ObjectKind::MaterializedView, view)?;
        self.parts.engine().wait_for(&view, within).await?;
        Ok(done("WAIT"))
    }

    /// What is stopped takes nothing in, and the client is told.
    pub(super) async fn flush(&mut self) -> Result<StatementResult> {
        self.parts.engine().flush().await?;
        let snapshot = self.definitions();
        let stopped: Vec<String> = snapshot
            .pipelines()
            .filter(|(_, pipeline)| pipeline.stopped)
            .map(|(name, _)| name.clone())
            .collect();
        if let Some(first) = stopped.first() {
            self.notices.push(Notice {
                severity: "WARNING",
                sqlstate: "01000",
                message: format!("stopped pipelines took in no rows: {}", stopped.join(", ")),
                hint: Some(match stopped.len() {
                    1 => format!("START PIPELINE {first};"),
                    _ => "START ALL;".to_owned(),
                }),
            });
        }
        Ok(done("FLUSH"))
    }

    fn pipeline_names(&self) -> Vec<String> {
        let snapshot = self.definitions();
        snapshot.pipelines().map(|(name, _)| name.clone()).collect()
    }

    /// What the engine knows a relation, sink or pipeline by that a statement names.
    pub(super) fn kept_name(&self, kind: ObjectKind, name: &str) -> Result<KeptName> {
        match kind {
            ObjectKind::Pipeline => Ok(KeptName::of_pipeline(name)),
            _ => Ok(KeptName::of(self.definitions().require(kind, name)?)),
        }
    }

    /// The pipeline whose stopped state `kind name` is about: a view's or its own. A stream or
    /// sink alone can rest while its pipeline goes on.
    fn pipeline_named(&self, kind: ObjectKind, name: &str) -> Result<Option<String>> {
        let snapshot = self.definitions();
        match kind {
            ObjectKind::Pipeline => match snapshot.pipeline(name) {
                Some(_) => Ok(Some(name.to_owned())),
                None => Err(show::no_such(kind, name)),
            },
            ObjectKind::MaterializedView => {
                let object = snapshot.require(kind, name)?;
                Ok(pipeline_of(&object.definition).map(str::to_owned))
            }
            ObjectKind::Stream | ObjectKind::Sink => {
                snapshot.require(kind, name)?;
                Ok(None)
            }
            ObjectKind::Table | ObjectKind::View | ObjectKind::Secret | ObjectKind::Index => {
                Err(Error::unsupported(format!(
                    "{} does not run by itself",
                    crate::catalog::snapshot::a_kind(kind)
                )))
            }
        }
    }

    async fn set_stopped(&mut self, pipeline: &str, stopped: bool) -> Result<()> {
        let mut change = self.parts.catalog.begin();
        let snapshot = change.snapshot();
        let Some(definition) = snapshot.pipeline(pipeline) else {
            // Created in this transaction block, it starts or rests with the commit.
            return Err(show::no_such(ObjectKind::Pipeline, pipeline));
        };
        if definition.stopped == stopped {
            return Ok(());
        }
        let mut definition = definition.clone();
        definition.stopped = stopped;
        change.stage(CatalogChange::PutPipeline(pipeline.to_owned(), definition))?;
        self.parts.catalog.commit(change).await?;
        let event = if stopped { "stopped" } else { "started" };
        record_event(&self.parts, event, pipeline, serde_json::json!({}));
        Ok(())
    }

    fn tell_stopped_together(&mut self, pipeline: &str, kind: ObjectKind, name: &str) {
        if kind != ObjectKind::MaterializedView {
            return;
        }
        let snapshot = self.definitions();
        let others: Vec<_> = snapshot
            .pipeline_members(pipeline)
            .into_iter()
            .filter(|o| o.name != name)
            .map(|o| o.name.clone())
            .collect();
        if !others.is_empty() {
            self.notice(format!(
                "pipeline \"{pipeline}\" stops as a whole: also {}",
                others.join(", ")
            ));
        }
    }
}
