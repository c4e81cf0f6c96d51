//! COPY's part of the protocol: data in and out of a running statement.

use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use futures::StreamExt;
use futures::stream::BoxStream;
use pgwire::messages::PgWireBackendMessage as Message;
use pgwire::messages::copy::{CopyDone, CopyInResponse, CopyOutResponse};
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::Connection;
use super::copy::{Decoder, Encoder};
use super::frontend::FrontendMessage;
use super::port::SessionPort;
use super::wire::{FLUSH_BYTES, WireResult};
use crate::error::{Error, ErrorKind, Result, sqlstate};
use crate::session::CopyIn;
use crate::sql::statement::{CopyFormat, CopyStatement};
use crate::values::types::WireType;
use crate::values::{Format, RowEncoder};

impl<R, W, P> Connection<R, W, P>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
    P: SessionPort,
{
    /// Takes the client's rows. A failure of any kind drops the writer: nothing is kept.
    pub(super) async fn copy_in(&mut self, copy: CopyIn) -> WireResult<()> {
        let CopyIn {
            statement,
            schema,
            mut writer,
        } = copy;
        let settings = self.output_settings();
        let mut decoder = Decoder::new(&statement, schema.clone(), &settings)?;
        let (format, formats) = format_codes(&statement, schema.fields().len());
        self.send_notices()?;
        self.wire.put(Message::CopyInResponse(CopyInResponse::new(
            format,
            formats.len() as i16,
            formats,
        )))?;
        self.wire.flush().await?;
        loop {
            let finish = match self.wire.next_guarded().await? {
                FrontendMessage::CopyData(bytes) => {
                    decoder.push(&bytes, false)?;
                    false
                }
                FrontendMessage::CopyDone => {
                    decoder.push(&[], true)?;
                    true
                }
                FrontendMessage::CopyFail(reason) => {
                    return Err(Error::with_kind(
                        ErrorKind::Cancelled,
                        sqlstate::QUERY_CANCELED,
                        format!("COPY from stdin failed: {reason}"),
                    )
                    .into());
                }
                // Drivers send these ahead of the data.
                FrontendMessage::Flush | FrontendMessage::Sync => continue,
                FrontendMessage::Terminate => return Err(super::wire::Failure::Gone),
                _ => {
                    return Err(Error::new(
                        sqlstate::PROTOCOL_VIOLATION,
                        "unexpected message type during COPY from stdin",
                    )
                    .into());
                }
            };
            while let Some(batch) = decoder.take(finish)? {
                self.wire.guard(writer.write(batch)).await??;
            }
            if finish {
                break;
            }
        }
        let rows = self.wire.guard(writer.finish()).await??;
        self.complete(format!("COPY {rows}"))
    }

    /// Sends a query's rows as COPY data, one message per row as PostgreSQL does.
    pub(super) async fn copy_out(
        &mut self,
        statement: &CopyStatement,
        schema: SchemaRef,
        mut stream: BoxStream<'static, Result<RecordBatch>>,
    ) -> WireResult<()> {
        let types = WireType::of_schema(&schema)?;
        let settings = self.output_settings();
        let (format, formats) = format_codes(statement, types.len());
        let value_format = match statement.format {
            CopyFormat::Binary => Format::Binary,
            CopyFormat::Text | CopyFormat::Csv => Format::Text,
        };
        self.send_notices()?;
        self.wire
            .put(Message::CopyOutResponse(CopyOutResponse::new(
                format,
                formats.len() as i16,
                formats,
            )))?;
        let encoder = Encoder::new(statement, &schema)?;
        // The binary header goes with the first row, or with the end, as from PostgreSQL.
        let mut is_started = statement.format != CopyFormat::Binary;
        if is_started {
            copy_data(&mut self.wire.output, |out| {
                encoder.start(&schema, out);
                Ok(())
            })?;
        }
        let mut count = 0u64;
        while let Some(batch) = self.wire.guard(stream.next()).await? {
            let batch = batch?;
            let rows = RowEncoder::new(&batch, &types, &[value_format], &settings)?;
            for row in 0..batch.num_rows() {
                copy_data(&mut self.wire.output, |out| {
                    if !std::mem::replace(&mut is_started, true) {
                        encoder.start(&schema, out);
                    }
                    encoder.row(&rows, row, out)
                })?;
                if self.wire.output.len() >= FLUSH_BYTES {
                    self.wire.flush_guarded().await?;
                }
            }
            count += batch.num_rows() as u64;
        }
        copy_data(&mut self.wire.output, |out| {
            if !is_started {
                encoder.start(&schema, out);
            }
            encoder.end(out);
            Ok(())
        })?;
        self.wire.put(Message::CopyDone(CopyDone::new()))?;
        self.complete(format!("COPY {count}"))
    }
}

fn format_codes(statement: &CopyStatement, columns: usize) -> (i8, Vec<i16>) {
    let code = i8::from(statement.format == CopyFormat::Binary);
    (code, vec![code.into(); columns])
}

/// Appends what `write` writes as a CopyData message; nothing when it writes nothing.
fn copy_data(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut) -> Result<()>) -> Result<()> {
    let start = out.len();
    out.put_u8(b'd');
    out.put_i32(0);
    if let Err(error) = write(out) {
        // Half a message must not reach the client.
        out.truncate(start);
        return Err(error);
    }
    let length = out.len() - start - 1;
    if length == 4 {
        out.truncate(start);
        return Ok(());
    }
    let length = i32::try_from(length).map_err(|_| {
        Error::new(
            sqlstate::PROGRAM_LIMIT_EXCEEDED,
            "a row is too large to be copied",
        )
    })?;
    out[start + 1..start + 5].copy_from_slice(&length.to_be_bytes());
    Ok(())
}
