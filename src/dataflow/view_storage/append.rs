//! The append layout: chunks of rows as Arrow IPC messages.
//!
//! A value is the message's length (4 bytes, little endian), the message, the message's buffers.
//! The schema is the view's and not repeated; the run's checksum covers the bytes.

use std::collections::HashMap;

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions, UInt64Array};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::ipc::reader::read_record_batch;
use datafusion::arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use datafusion::arrow::ipc::{MetadataVersion, root_as_message};

use crate::dataflow::change::ChangeBatch;
use crate::dataflow::entries::Entries;
use crate::error::{Error, Result};
use crate::state::EntryKind;

/// Rows in a chunk at most.
const CHUNK_ROWS: usize = 8192;

/// The chunks of a batch.
pub fn entries(schema: &SchemaRef, changes: &[ChangeBatch], batch_id: u64) -> Result<Entries> {
    let mut entries = Entries::default();
    let mut gathered: Vec<RecordBatch> = Vec::new();
    let mut gathered_rows = 0;
    for change in changes {
        let rows = repeated(change)?;
        let mut from = 0;
        while from < rows.num_rows() {
            let length = (CHUNK_ROWS - gathered_rows).min(rows.num_rows() - from);
            gathered.push(rows.slice(from, length));
            gathered_rows += length;
            from += length;
            if gathered_rows == CHUNK_ROWS {
                put_chunk(&mut entries, schema, &gathered, batch_id)?;
                gathered.clear();
                gathered_rows = 0;
            }
        }
    }
    if gathered_rows > 0 {
        put_chunk(&mut entries, schema, &gathered, batch_id)?;
    }
    Ok(entries)
}

/// Each row as often as its weight says.
fn repeated(change: &ChangeBatch) -> Result<RecordBatch> {
    let Some(weights) = change.weights() else {
        return Ok(change.rows().clone());
    };
    if weights.values().iter().all(|&w| w == 1) {
        return Ok(change.rows().clone());
    }
    let mut indexes = Vec::new();
    for (index, &weight) in weights.values().iter().enumerate() {
        let copies = usize::try_from(weight)
            .map_err(|_| Error::internal("a row was deleted from an append-only view"))?;
        indexes.extend(std::iter::repeat_n(index as u64, copies));
    }
    Ok(take_record_batch(
        change.rows(),
        &UInt64Array::from(indexes),
    )?)
}

fn put_chunk(
    entries: &mut Entries,
    schema: &SchemaRef,
    parts: &[RecordBatch],
    batch_id: u64,
) -> Result<()> {
    let rows = match parts {
        [one] => one.clone(),
        many => concat_batches(&many[0].schema(), many)?,
    };
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    let rows =
        RecordBatch::try_new_with_options(schema.clone(), rows.columns().to_vec(), &options)?;
    let mut key = [0; 16];
    key[..8].copy_from_slice(&batch_id.to_be_bytes());
    key[8..].copy_from_slice(&(entries.len() as u64).to_be_bytes());
    let value = encode(&rows)?;
    entries.put(EntryKind::Value, &key, |out| out.extend_from_slice(&value));
    Ok(())
}

fn encode(rows: &RecordBatch) -> Result<Vec<u8>> {
    let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5)?;
    let mut dictionaries = DictionaryTracker::new(true);
    let (dictionaries, encoded) = IpcDataGenerator::default().encode(
        rows,
        &mut dictionaries,
        &options,
        &mut Default::default(),
    )?;
    if !dictionaries.is_empty() {
        return Err(Error::internal("a view's column is dictionary-encoded"));
    }
    let mut value = Vec::with_capacity(4 + encoded.ipc_message.len() + encoded.arrow_data.len());
    value.extend_from_slice(&(encoded.ipc_message.len() as u32).to_le_bytes());
    value.extend_from_slice(&encoded.ipc_message);
    value.extend_from_slice(&encoded.arrow_data);
    Ok(value)
}

/// A stored chunk's rows, only the projected columns.
pub fn decode(value: &[u8], schema: &SchemaRef, projection: &[usize]) -> Result<RecordBatch> {
    let malformed = || Error::damaged("a chunk of a view's rows is malformed");
    let (length, rest) = value.split_first_chunk::<4>().ok_or_else(malformed)?;
    let length = u32::from_le_bytes(*length) as usize;
    let (message, data) = rest.split_at_checked(length).ok_or_else(malformed)?;
    let message = root_as_message(message).map_err(|_| malformed())?;
    let batch = message.header_as_record_batch().ok_or_else(malformed)?;
    if projection.is_empty() {
        let options = RecordBatchOptions::new().with_row_count(Some(batch.length() as usize));
        let empty = std::sync::Arc::new(schema.project(&[])?);
        return Ok(RecordBatch::try_new_with_options(
            empty,
            Vec::new(),
            &options,
        )?);
    }
    Ok(read_record_batch(
        &Buffer::from(data),
        batch,
        schema.clone(),
        &HashMap::new(),
        Some(projection),
        &message.version(),
    )?)
}
