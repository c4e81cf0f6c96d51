//! The source over the durable log: tables, streams without a connector, socket streams.
//!
//! A position is a count of commits, so a transaction is never split over two batches. Small
//! commits are put together into chunks of a few thousand rows, since operators work by the chunk;
//! large ones are cut.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use futures::stream::{self, BoxStream, StreamExt};

use super::chunks::{self, CHUNK_ROWS, ChunkSender, Stop};
use super::evolution::UnknownFields;
use super::{Backlog, ReadLimits, Source, SourceChunk, SourceOffset, SourceRange};
use crate::catalog::definition::{CatalogObject, Definition};
use crate::dataflow::change::ChangeBatch;
use crate::dataflow::rows::all_nullable;
use crate::error::{Error, Result};
use crate::log::stored::{StoredReader, batch_of};
use crate::log::{DurableLog, LogPosition};

/// Rows of small commits that are put together.
const GATHER_ROWS: usize = 16_384;

/// The source.
pub struct LogSource {
    log: Arc<DurableLog>,
    relation: u32,
    name: String,
    /// Of the stored columns, dropped ones too.
    schema: SchemaRef,
    reader: Arc<StoredReader>,
    append_only: bool,
}

impl LogSource {
    /// The source of a stream or table that lives in `log`. Its columns are the stored ones.
    pub fn open(object: &CatalogObject, log: Arc<DurableLog>) -> Result<Self> {
        Ok(Self {
            log,
            relation: object.oid,
            name: object.name.clone(),
            schema: object.with_stored_columns().schema(),
            reader: Arc::new(StoredReader::new(object)?),
            append_only: !matches!(object.definition, Definition::Table(_)),
        })
    }
}

/// `{"commit": n}` to n.
fn position(offset: &SourceOffset) -> Result<LogPosition> {
    offset
        .0
        .get("commit")
        .and_then(|n| n.as_u64())
        .ok_or_else(|| {
            Error::damaged("offset of a log source is not of the form {\"commit\": n}")
                .detail(format!("It says {}.", offset.0))
        })
}

fn offset(position: LogPosition) -> SourceOffset {
    SourceOffset(serde_json::json!({"commit": position}))
}

#[async_trait]
impl Source for LogSource {
    fn description(&self) -> String {
        format!("log of {}", self.name)
    }

    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    async fn check_position(&self, at: &SourceOffset) -> Result<()> {
        self.log.require(position(at)?)
    }

    async fn initial_offset(&self) -> Result<SourceOffset> {
        Ok(offset(0))
    }

    async fn latest_offset(&self) -> Result<SourceOffset> {
        Ok(offset(self.log.end_of(self.relation)))
    }

    async fn plan_range(
        &self,
        _batch_id: u64,
        start: &SourceOffset,
        latest: &SourceOffset,
        limits: &ReadLimits,
    ) -> Result<Option<SourceRange>> {
        let (from, to) = (position(start)?, position(latest)?);
        if to <= from {
            return Ok(None);
        }
        let to = match limits.max_rows {
            None => to,
            Some(rows) => self.log.cut(self.relation, from, to, rows.max(1)),
        };
        Ok((to > from).then(|| SourceRange {
            start: start.clone(),
            end: offset(to),
        }))
    }

    fn backlog(&self, from: &SourceOffset, latest: &SourceOffset) -> Backlog {
        match (position(from), position(latest)) {
            (Ok(from), Ok(to)) if to > from => {
                let (rows, bytes) = self.log.size_between(self.relation, from, to);
                Backlog {
                    rows: Some(rows),
                    bytes: Some(bytes),
                }
            }
            (Ok(_), Ok(_)) => Backlog {
                rows: Some(0),
                bytes: Some(0),
            },
            _ => Backlog::default(),
        }
    }

    async fn read_range(
        &self,
        _batch_id: u64,
        range: &SourceRange,
        projection: &[usize],
    ) -> Result<BoxStream<'static, Result<SourceChunk>>> {
        let (from, to) = (position(&range.start)?, position(&range.end)?);
        // A planned range holds what it held when it was planned, or is not read at all.
        self.log.require(to)?;
        if to <= from {
            return Ok(stream::empty().boxed());
        }
        let log = self.log.clone();
        let relation = self.relation;
        let reader = Arc::clone(&self.reader);
        let schema = Arc::new(self.schema.project(projection)?);
        let projection = projection.to_vec();
        Ok(chunks::read_blocking(Box::new(move |out| {
            let mut gathered = Gathered::new(schema, reader);
            for entry in log.read(relation, from, to) {
                gathered.add(&entry?.changes, &projection, out)?;
            }
            gathered.flush(out)
        })))
    }

    async fn acknowledge(&self, _batch_id: u64, _offset: &SourceOffset) -> Result<()> {
        // The log is the only copy of these rows: it forgets nothing because a view has read it.
        Ok(())
    }

    async fn wait_for_data(&self, from: &SourceOffset) {
        match position(from) {
            Ok(from) => self.log.wait_beyond(self.relation, from).await,
            // A damaged offset is reported by whoever plans with it; nothing to wait for here.
            Err(_) => std::future::pending().await,
        }
    }

    fn is_append_only(&self) -> bool {
        self.append_only
    }
}

/// Small commits on their way into one chunk.
struct Gathered {
    schema: Arc<Schema>,
    reader: Arc<StoredReader>,
    parts: Vec<ChangeBatch>,
    rows: usize,
}

impl Gathered {
    fn new(schema: Arc<Schema>, reader: Arc<StoredReader>) -> Self {
        Self {
            schema,
            reader,
            parts: vec![],
            rows: 0,
        }
    }

    fn add(
        &mut self,
        changes: &ChangeBatch,
        projection: &[usize],
        out: &ChunkSender,
    ) -> Result<(), Stop> {
        // The relation's declared names and nullability, whatever the writer's batch said.
        let columns = projection
            .iter()
            .map(|&i| self.reader.column(changes.rows(), i))
            .collect::<Result<_>>()?;
        let rows = batch_of(&self.schema, columns, changes.num_rows())?;
        let changes = changes.with_rows(rows);
        if changes.num_rows() >= GATHER_ROWS {
            self.flush(out)?;
            let mut at = 0;
            while at < changes.num_rows() {
                let length = CHUNK_ROWS.min(changes.num_rows() - at);
                send(out, slice(&changes, at, length))?;
                at += length;
            }
            return Ok(());
        }
        self.rows += changes.num_rows();
        self.parts.push(changes);
        if self.rows >= GATHER_ROWS {
            self.flush(out)?;
        }
        Ok(())
    }

    fn flush(&mut self, out: &ChunkSender) -> Result<(), Stop> {
        let parts = std::mem::take(&mut self.parts);
        self.rows = 0;
        match parts.len() {
            0 => Ok(()),
            1 => send(out, parts.into_iter().next().expect("one part")),
            _ => send(out, together(&self.schema, &parts)?),
        }
    }
}

fn send(out: &ChunkSender, changes: ChangeBatch) -> Result<(), Stop> {
    let bytes = changes.rows().get_array_memory_size() as u64;
    Ok(out.send(SourceChunk {
        changes,
        dead_letters: vec![],
        unknown: UnknownFields::default(),
        bytes,
    })?)
}

fn slice(changes: &ChangeBatch, at: usize, length: usize) -> ChangeBatch {
    let rows = changes.rows().slice(at, length);
    match changes.weights() {
        None => ChangeBatch::inserts(rows),
        Some(weights) => ChangeBatch::weighted(rows, weights.slice(at, length)),
    }
}

fn together(schema: &SchemaRef, parts: &[ChangeBatch]) -> Result<ChangeBatch> {
    let rows: Vec<&RecordBatch> = parts.iter().map(ChangeBatch::rows).collect();
    let is_declared = rows.iter().all(|rows| rows.schema_ref() == schema);
    let rows = match is_declared {
        true => concat_batches(schema, rows)?,
        false => concat_batches(&all_nullable(schema), rows)?,
    };
    if parts.iter().all(|p| p.weights().is_none()) {
        return Ok(ChangeBatch::inserts(rows));
    }
    let weights: Int64Array = parts
        .iter()
        .flat_map(|p| (0..p.num_rows()).map(|i| Some(p.weight(i))))
        .collect();
    Ok(ChangeBatch::weighted(rows, weights))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::{DataType, Field, Int64Type};

    use super::*;
    use crate::catalog::samples;

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Int64, true),
        ]))
    }

    fn commit(values: std::ops::Range<i64>, weights: Option<Vec<i64>>) -> ChangeBatch {
        let a: Int64Array = values.clone().map(Some).collect();
        let b: Int64Array = values.map(|v| (v % 3 != 0).then_some(v * 10)).collect();
        let rows = RecordBatch::try_new(schema(), vec![Arc::new(a), Arc::new(b)]).unwrap();
        match weights {
            None => ChangeBatch::inserts(rows),
            Some(weights) => ChangeBatch::weighted(rows, weights.into()),
        }
    }

    fn reader() -> Arc<StoredReader> {
        let stream = samples::stream(20_000, "s", &["a", "b"]);
        Arc::new(StoredReader::new(&stream).unwrap())
    }

    async fn gather(commits: Vec<ChangeBatch>, projection: Vec<usize>) -> Vec<ChangeBatch> {
        let projected = Arc::new(schema().project(&projection).unwrap());
        chunks::read_blocking(Box::new(move |out| {
            let mut gathered = Gathered::new(projected, reader());
            for commit in &commits {
                gathered.add(commit, &projection, out)?;
            }
            gathered.flush(out)
        }))
        .map(|c| c.unwrap().changes)
        .collect()
        .await
    }

    #[tokio::test]
    async fn small_commits_come_together_in_order_with_their_weights() {
        let commits = vec![
            commit(0..2, None),
            commit(2..4, Some(vec![-1, 1])),
            commit(4..4, None),
            commit(4..5, None),
        ];
        let all = gather(commits, vec![1, 0]).await;
        assert_eq!(all.len(), 1);
        let a = all[0].rows().column(1).as_primitive::<Int64Type>();
        assert_eq!(a.values(), &[0, 1, 2, 3, 4]);
        assert_eq!(all[0].rows().column(0).null_count(), 2);
        let weights: Vec<i64> = (0..5).map(|i| all[0].weight(i)).collect();
        assert_eq!(weights, [1, 1, -1, 1, 1]);
    }

    #[tokio::test]
    async fn large_commits_are_cut_and_keep_their_place() {
        let large = CHUNK_ROWS as i64 + 7;
        let all = gather(
            vec![
                commit(0..3, None),
                commit(3..large, None),
                commit(large..large + 1, None),
            ],
            vec![0],
        )
        .await;
        let sizes: Vec<_> = all.iter().map(ChangeBatch::num_rows).collect();
        assert_eq!(sizes, [3, CHUNK_ROWS, 4, 1]);
        let flat: Vec<i64> = all
            .iter()
            .flat_map(|c| {
                c.rows()
                    .column(0)
                    .as_primitive::<Int64Type>()
                    .values()
                    .to_vec()
            })
            .collect();
        assert!(flat.iter().copied().eq(0..large + 1));
        // No columns at all still counts rows.
        let all = gather(vec![commit(0..3, None), commit(3..5, None)], vec![]).await;
        assert_eq!(all[0].num_rows(), 5);
    }

    #[test]
    fn offsets() {
        assert_eq!(position(&offset(7)).unwrap(), 7);
        assert!(position(&SourceOffset(serde_json::json!({"row": 7}))).is_err());
    }
}
