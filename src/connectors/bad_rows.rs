//! `on_bad_row`: what a record that cannot be decoded does to its batch.
//!
//! Sources always give such records as dead letters. This wrapper makes an error of them
//! (`fail`), or takes their bytes away so that they are counted and not kept (`drop`).

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use futures::stream::{BoxStream, StreamExt};

use super::settings::Settings;
use super::telling::Names;
use super::{Backlog, ReadLimits, Source, SourceChunk, SourceOffset, SourceRange, SourceRef};
use crate::error::{Error, Result, sqlstate};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnBadRow {
    DeadLetter,
    Fail,
    Drop,
}

/// A source whose dead letters follow a policy.
pub struct BadRowPolicy {
    source: SourceRef,
    policy: OnBadRow,
    names: Names,
}

impl BadRowPolicy {
    /// Puts option `on_bad_row` over a source; the default leaves the source as it is.
    pub(super) fn wrap(
        source: SourceRef,
        settings: &Settings<'_>,
        names: Names,
    ) -> Result<SourceRef> {
        let policy = settings.choice(
            "on_bad_row",
            &[
                ("dead_letter", OnBadRow::DeadLetter),
                ("fail", OnBadRow::Fail),
                ("drop", OnBadRow::Drop),
            ],
        )?;
        Ok(match policy {
            None | Some(OnBadRow::DeadLetter) => source,
            Some(policy) => Arc::new(Self {
                source,
                policy,
                names,
            }),
        })
    }
}

fn apply(policy: OnBadRow, names: &Names, mut chunk: SourceChunk) -> Result<SourceChunk> {
    match policy {
        OnBadRow::DeadLetter => {}
        OnBadRow::Drop => chunk.dead_letters.iter_mut().for_each(|l| l.raw.clear()),
        OnBadRow::Fail => {
            if let Some(letter) = chunk.dead_letters.first() {
                return Err(Error::new(
                    sqlstate::INVALID_TEXT,
                    format!("cannot decode {}", letter.origin),
                )
                .detail(format!("{}.", letter.error))
                .hint(format!(
                    "To go on without such rows: {}",
                    names.alter_stream("on_bad_row = 'dead_letter'")
                )));
            }
        }
    }
    Ok(chunk)
}

#[async_trait]
impl Source for BadRowPolicy {
    fn description(&self) -> String {
        self.source.description()
    }

    fn schema(&self) -> SchemaRef {
        self.source.schema()
    }

    fn inner(&self) -> Option<&dyn Source> {
        Some(&*self.source)
    }

    async fn initial_offset(&self) -> Result<SourceOffset> {
        self.source.initial_offset().await
    }

    async fn latest_offset(&self) -> Result<SourceOffset> {
        self.source.latest_offset().await
    }

    async fn plan_range(
        &self,
        batch_id: u64,
        start: &SourceOffset,
        latest: &SourceOffset,
        limits: &ReadLimits,
    ) -> Result<Option<SourceRange>> {
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
        let (policy, names) = (self.policy, self.names.clone());
        let chunks = self.source.read_range(batch_id, range, projection).await?;
        Ok(chunks
            .map(move |chunk| chunk.and_then(|chunk| apply(policy, &names, chunk)))
            .boxed())
    }

    async fn acknowledge(&self, batch_id: u64, offset: &SourceOffset) -> Result<()> {
        self.source.acknowledge(batch_id, offset).await
    }

    async fn wait_for_data(&self, from: &SourceOffset) {
        self.source.wait_for_data(from).await;
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::RecordBatch;
    use datafusion::arrow::datatypes::Schema;

    use super::*;
    use crate::connectors::DeadLetter;
    use crate::connectors::evolution::UnknownFields;
    use crate::dataflow::change::ChangeBatch;

    fn chunk(letters: usize) -> SourceChunk {
        let letter = DeadLetter {
            origin: "a.json line 7".into(),
            raw: b"oops".to_vec(),
            error: "invalid JSON".into(),
        };
        SourceChunk {
            changes: ChangeBatch::inserts(RecordBatch::new_empty(Arc::new(Schema::empty()))),
            dead_letters: vec![letter; letters],
            unknown: UnknownFields::default(),
            bytes: 4,
        }
    }

    #[test]
    fn policies() {
        let names = Names {
            stream: "f".into(),
            pipeline: None,
        };
        assert!(apply(OnBadRow::Fail, &names, chunk(0)).is_ok());
        let error = apply(OnBadRow::Fail, &names, chunk(2)).unwrap_err();
        assert_eq!(error.primary(), "cannot decode a.json line 7");
        assert!(
            error
                .hint_text()
                .unwrap()
                .contains("ALTER STREAM f SET (on_bad_row = 'dead_letter');")
        );
        let dropped = apply(OnBadRow::Drop, &names, chunk(2)).unwrap();
        assert!(dropped.dead_letters.len() == 2 && dropped.dead_letters[0].raw.is_empty());
        assert_eq!(
            apply(OnBadRow::DeadLetter, &names, chunk(1))
                .unwrap()
                .dead_letters[0]
                .raw,
            b"oops"
        );
    }
}
