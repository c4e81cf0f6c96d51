//! A source that does not answer for a while.

use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use futures::stream::BoxStream;

use crate::connectors::{
    Backlog, ReadLimits, Source, SourceChunk, SourceOffset, SourceRange, SourceRef,
};
use crate::error::{Error, Result, sqlstate};

/// The first so many reads fail as those of a source that cannot be reached.
pub(super) struct Outage {
    source: SourceRef,
    calls_left: AtomicU32,
}

impl Outage {
    pub fn new(source: SourceRef, calls: u32) -> Self {
        Self {
            source,
            calls_left: AtomicU32::new(calls),
        }
    }

    fn answer(&self) -> Result<()> {
        let taken = self
            .calls_left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        match taken {
            Err(_) => Ok(()),
            Ok(_) => Err(Error::transient(
                sqlstate::CONNECTION_FAILURE,
                format!("could not reach {}", self.source.description()),
            )),
        }
    }
}

#[async_trait]
impl Source for Outage {
    fn description(&self) -> String {
        self.source.description()
    }

    fn schema(&self) -> SchemaRef {
        self.source.schema()
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.source)
    }

    async fn check_position(&self, position: &SourceOffset) -> Result<()> {
        self.answer()?;
        self.source.check_position(position).await
    }

    async fn initial_offset(&self) -> Result<SourceOffset> {
        self.answer()?;
        self.source.initial_offset().await
    }

    async fn latest_offset(&self) -> Result<SourceOffset> {
        self.answer()?;
        self.source.latest_offset().await
    }

    async fn plan_range(
        &self,
        batch_id: u64,
        start: &SourceOffset,
        latest: &SourceOffset,
        limits: &ReadLimits,
    ) -> Result<Option<SourceRange>> {
        self.answer()?;
        self.source
            .plan_range(batch_id, start, latest, limits)
            .await
    }

    fn backlog(&self, from: &SourceOffset, latest: &SourceOffset) -> Backlog {
        self.source.backlog(from, latest)
    }

    async fn read_range(
        &self,
        batch_id: u64,
        range: &SourceRange,
        projection: &[usize],
    ) -> Result<BoxStream<'static, Result<SourceChunk>>> {
        self.answer()?;
        self.source.read_range(batch_id, range, projection).await
    }

    async fn acknowledge(&self, batch_id: u64, offset: &SourceOffset) -> Result<()> {
        self.source.acknowledge(batch_id, offset).await
    }

    async fn wait_for_data(&self, from: &SourceOffset) {
        self.source.wait_for_data(from).await;
    }
}
