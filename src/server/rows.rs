//! Result rows on their way out.
//!
//! A [`RowSource`] is a running query: its stream of batches and the rest of the batch that a row
//! limit cut. Rows are encoded straight into the connection's output. Output is written when it
//! reaches [`FLUSH_BYTES`], when the query makes the client wait, and at the latest 100 ms after
//! the last time, so that a slow query's rows are seen as they come.

use std::time::Duration;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use futures::StreamExt;
use futures::stream::BoxStream;
use pgwire::messages::PgWireBackendMessage as Message;
use pgwire::messages::data::{FieldDescription, RowDescription};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

use super::wire::{FLUSH_BYTES, Wire, WireResult};
use crate::error::{Error, Result, sqlstate};
use crate::session::origins;
use crate::values::types::WireType;
use crate::values::{Format, OutputSettings, RowEncoder};

/// Encoded rows wait at most this long.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);

/// A query whose rows are being sent.
pub(super) struct RowSource {
    schema: SchemaRef,
    types: Vec<WireType>,
    stream: BoxStream<'static, Result<RecordBatch>>,
    /// the rest of a batch: rows from this one on
    pending: Option<(RecordBatch, usize)>,
    ended: bool,
    tag: String,
    tag_has_count: bool,
}

/// What one Execute sent.
pub(super) struct Sent {
    pub rows: u64,
    /// the limit was reached
    pub suspended: bool,
}

impl RowSource {
    /// A query that has not sent anything yet.
    pub fn new(
        schema: SchemaRef,
        stream: BoxStream<'static, Result<RecordBatch>>,
        tag: String,
        tag_has_count: bool,
    ) -> Result<Self> {
        Ok(Self {
            types: WireType::of_schema(&schema)?,
            schema,
            stream,
            pending: None,
            ended: false,
            tag,
            tag_has_count,
        })
    }

    /// The RowDescription.
    pub fn description(&self, formats: &[Format]) -> Message {
        row_description(&self.schema, &self.types, formats)
    }

    /// CommandComplete's tag after `rows` rows.
    pub fn tag(&self, rows: u64) -> String {
        match self.tag_has_count {
            true => format!("{} {rows}", self.tag),
            false => self.tag.clone(),
        }
    }

    /// Refuses rows of other types than Describe told.
    pub fn check_types(&self, described: &[WireType]) -> Result<()> {
        check_types(&self.types, described)
    }

    /// Passes rows over, at most `limit`; how many there were.
    pub async fn skip<R, W>(&mut self, wire: &mut Wire<R, W>, limit: Option<u64>) -> WireResult<u64>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut rows = 0;
        while limit != Some(rows) {
            let Some((batch, start)) = self.next_rows(wire).await? else {
                break;
            };
            let left = (batch.num_rows() - start) as u64;
            let take = limit.map_or(left, |limit| left.min(limit - rows));
            rows += take;
            if take < left {
                self.pending = Some((batch, start + take as usize));
            }
        }
        Ok(rows)
    }

    /// Sends rows until the end or the limit.
    pub async fn send<R, W>(
        &mut self,
        wire: &mut Wire<R, W>,
        formats: &[Format],
        settings: &OutputSettings,
        limit: Option<u64>,
    ) -> WireResult<Sent>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut rows = 0u64;
        let mut flushed_at = Instant::now();
        loop {
            if limit == Some(rows) {
                return Ok(Sent {
                    rows,
                    suspended: true,
                });
            }
            let Some((batch, start)) = self.next_rows(wire).await? else {
                return Ok(Sent {
                    rows,
                    suspended: false,
                });
            };
            let left = batch.num_rows() - start;
            let take = limit.map_or(left, |limit| {
                left.min(usize::try_from(limit - rows).unwrap_or(left))
            });
            let encoder = RowEncoder::new(&batch, &self.types, formats, settings)?;
            for row in start..start + take {
                encoder.data_row(row, &mut wire.output)?;
                if wire.output.len() >= FLUSH_BYTES {
                    wire.flush_guarded().await?;
                    flushed_at = Instant::now();
                }
            }
            rows += take as u64;
            if take < left {
                self.pending = Some((batch, start + take));
            }
            if flushed_at.elapsed() >= FLUSH_INTERVAL {
                wire.flush_guarded().await?;
                flushed_at = Instant::now();
            }
        }
    }

    async fn next_rows<R, W>(
        &mut self,
        wire: &mut Wire<R, W>,
    ) -> WireResult<Option<(RecordBatch, usize)>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        if let Some(pending) = self.pending.take() {
            return Ok(Some(pending));
        }
        while !self.ended {
            match wire.guard(self.stream.next()).await? {
                Some(batch) => {
                    let batch = batch?;
                    if batch.num_rows() > 0 {
                        return Ok(Some((batch, 0)));
                    }
                }
                None => self.ended = true,
            }
        }
        Ok(None)
    }
}

/// Refuses columns of other types than a client was told. Drivers know the error by its routine,
/// and prepare again.
pub(super) fn check_types(types: &[WireType], described: &[WireType]) -> Result<()> {
    let same =
        types.len() == described.len() && types.iter().zip(described).all(|(a, b)| a.oid == b.oid);
    match same {
        true => Ok(()),
        false => Err(Error::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            "cached plan must not change result type",
        )
        .routine("RevalidateCachedQuery")
        .hint("Prepare the statement again.")),
    }
}

/// RowDescription of a schema; `formats` as in Bind (none: text).
pub(super) fn row_description(
    schema: &SchemaRef,
    types: &[WireType],
    formats: &[Format],
) -> Message {
    let fields = schema
        .fields()
        .iter()
        .zip(types)
        .enumerate()
        .map(|(i, (field, wire_type))| {
            let format = formats.get(i).or(formats.first()).copied();
            let (relation, column) = origins::of(field);
            FieldDescription::new(
                field.name().replace('\0', ""),
                relation,
                column,
                wire_type.oid,
                wire_type.size,
                wire_type.modifier,
                format.unwrap_or(Format::Text).code(),
            )
        })
        .collect();
    Message::RowDescription(RowDescription::new(fields))
}
