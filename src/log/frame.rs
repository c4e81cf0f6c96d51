//! The bytes of the log: segment headers, frames, and rows inside them.
//!
//! ```text
//! segment   "TIDELOG1" | version u32 | segment u32 | first commit u64 | identity 16 | crc32c u32 | 0 u32
//! frame     "TMLF" | header crc u32 | payload crc u32 | payload length u32
//!           | kind u8 | flags u8 | 0 u16 | relation u32 | rows u32 | 0 u32 | transaction u64 | schema u64
//!           | payload
//! rows      metadata length u32 | 0 × 12 | Arrow IPC record batch message, padded to 16 | its body
//! schema    Arrow IPC schema message
//! commit    commit u64 | synced u64 | frames u32 | (segment u32, offset u64) × frames
//!           | marker length u32 | marker
//! forget    (nothing; the header names the relation)
//! reclaimed segment u32 × n
//! ```
//!
//! Integers are little endian. A frame of rows names its schema by a hash; the schema itself is a
//! frame of its own, once per segment that uses it, so that each segment can be read alone and be
//! deleted alone. `synced` in a commit is how much of its segment was on disk when it was written:
//! what tells damage in the middle of a segment from a torn tail.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::buffer::{Buffer, MutableBuffer};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::ipc::convert::fb_to_schema;
use datafusion::arrow::ipc::reader::read_record_batch;
use datafusion::arrow::ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions};
use datafusion::arrow::ipc::{MetadataVersion, root_as_message};

use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, Result};

/// Bytes of a segment's header.
pub const SEGMENT_HEADER_BYTES: usize = 48;
/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 48;
/// First bytes of every frame.
pub const FRAME_MAGIC: &[u8; 4] = b"TMLF";

const SEGMENT_MAGIC: &[u8; 8] = b"TIDELOG1";
const FORMAT_VERSION: u32 = 1;
const ROWS_PREFIX_BYTES: usize = 16;
const FLAG_WEIGHTS: u8 = 1;
const WEIGHT_COLUMN: &str = "tidemill.weight";

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// a schema that frames of rows name by its hash
    Schema,
    /// rows of one relation
    Rows,
    /// the end of a transaction that happened
    Commit,
    /// a relation was dropped: its frames before this one are dead
    Forget,
    /// segments that were deleted on purpose
    Reclaimed,
}

impl FrameKind {
    fn code(self) -> u8 {
        match self {
            Self::Schema => 1,
            Self::Rows => 2,
            Self::Commit => 3,
            Self::Forget => 4,
            Self::Reclaimed => 5,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Schema,
            2 => Self::Rows,
            3 => Self::Commit,
            4 => Self::Forget,
            5 => Self::Reclaimed,
            _ => return None,
        })
    }
}

/// A frame's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// what follows
    pub kind: FrameKind,
    /// crc32c of the payload
    pub payload_crc: u32,
    /// bytes of the payload
    pub payload_bytes: u32,
    /// the last column of the rows is their weight
    pub has_weights: bool,
    /// oid, for rows and forget
    pub relation: u32,
    /// rows
    pub rows: u32,
    /// transaction that wrote it
    pub transaction: u64,
    /// hash of the schema, for schema and rows
    pub schema: u64,
}

impl FrameHeader {
    /// Header and payload, in bytes.
    pub fn frame_bytes(&self) -> u64 {
        FRAME_HEADER_BYTES as u64 + u64::from(self.payload_bytes)
    }

    /// Reads a header; `None` if these bytes are not one, whole and unharmed.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; FRAME_HEADER_BYTES] = bytes.get(..FRAME_HEADER_BYTES)?.try_into().ok()?;
        if &bytes[..4] != FRAME_MAGIC || u32_at(bytes, 4) != crc32c::crc32c(&bytes[8..]) {
            return None;
        }
        Some(Self {
            kind: FrameKind::from_code(bytes[16])?,
            payload_crc: u32_at(bytes, 8),
            payload_bytes: u32_at(bytes, 12),
            has_weights: bytes[17] & FLAG_WEIGHTS != 0,
            relation: u32_at(bytes, 20),
            rows: u32_at(bytes, 24),
            transaction: u64_at(bytes, 32),
            schema: u64_at(bytes, 40),
        })
    }

    fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[..4].copy_from_slice(FRAME_MAGIC);
        bytes[8..12].copy_from_slice(&self.payload_crc.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[16] = self.kind.code();
        bytes[17] = if self.has_weights { FLAG_WEIGHTS } else { 0 };
        bytes[20..24].copy_from_slice(&self.relation.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.rows.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.transaction.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.schema.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

/// Appends a frame; `header`'s checksum and length are computed here.
fn push_frame(out: &mut Vec<u8>, mut header: FrameHeader, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.resize(start + FRAME_HEADER_BYTES, 0);
    write(out);
    let payload = &out[start + FRAME_HEADER_BYTES..];
    header.payload_bytes =
        u32::try_from(payload.len()).expect("rows are cut long before four gigabytes");
    header.payload_crc = crc32c::crc32c(payload);
    out[start..start + FRAME_HEADER_BYTES].copy_from_slice(&header.encode());
}

fn header_of(kind: FrameKind, transaction: u64) -> FrameHeader {
    FrameHeader {
        kind,
        payload_crc: 0,
        payload_bytes: 0,
        has_weights: false,
        relation: 0,
        rows: 0,
        transaction,
        schema: 0,
    }
}

/// The header of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentHeader {
    /// number, as in the file's name
    pub segment: u32,
    /// commits in the segments before it
    pub first_commit: u64,
    /// identity of the whole log
    pub identity: uuid::Uuid,
}

impl SegmentHeader {
    /// Its bytes.
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[..8].copy_from_slice(SEGMENT_MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.segment.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first_commit.to_le_bytes());
        bytes[24..40].copy_from_slice(self.identity.as_bytes());
        let crc = crc32c::crc32c(&bytes[..40]);
        bytes[40..44].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header; `Ok(None)` if the bytes are not one, an error for a newer format.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let Some(bytes) = bytes.get(..SEGMENT_HEADER_BYTES) else {
            return Ok(None);
        };
        if &bytes[..8] != SEGMENT_MAGIC || u32_at(bytes, 40) != crc32c::crc32c(&bytes[..40]) {
            return Ok(None);
        }
        let version = u32_at(bytes, 8);
        if version != FORMAT_VERSION {
            return Err(Error::damaged(format!(
                "log segment has format version {version}, this build reads version {FORMAT_VERSION}"
            )));
        }
        Ok(Some(Self {
            segment: u32_at(bytes, 12),
            first_commit: u64_at(bytes, 16),
            identity: uuid::Uuid::from_slice(&bytes[24..40])
                .map_err(|e| Error::internal(e.to_string()))?,
        }))
    }
}

/// A schema as the log stores it.
#[derive(Debug, Clone)]
pub struct EncodedSchema {
    /// hash that frames of rows name
    pub id: u64,
    /// its whole frame
    pub frame: Arc<Vec<u8>>,
}

/// Encodes the schema of rows, with or without the weight column.
pub fn encode_schema(schema: &Schema, has_weights: bool) -> EncodedSchema {
    let stored = stored_schema(schema, has_weights);
    let mut tracker = DictionaryTracker::new(true);
    let encoded = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
        &stored,
        &mut tracker,
        &write_options(),
    );
    let id = schema_hash(&encoded.ipc_message);
    let mut frame = Vec::new();
    let mut header = header_of(FrameKind::Schema, 0);
    header.schema = id;
    push_frame(&mut frame, header, |out| {
        out.extend_from_slice(&encoded.ipc_message);
    });
    EncodedSchema {
        id,
        frame: Arc::new(frame),
    }
}

/// Reads the payload of a schema frame.
pub fn decode_schema(payload: &[u8]) -> Option<Schema> {
    Some(fb_to_schema(
        root_as_message(payload).ok()?.header_as_schema()?,
    ))
}

/// Appends a frame with rows. The rows must match `schema`, as [`encode_schema`] gave it.
pub fn push_rows(
    out: &mut Vec<u8>,
    relation: u32,
    transaction: u64,
    changes: &ChangeBatch,
    schema: u64,
) -> Result<()> {
    let batch = stored_batch(changes)?;
    let mut tracker = DictionaryTracker::new(true);
    let (dictionaries, encoded) = IpcDataGenerator::default().encode(
        &batch,
        &mut tracker,
        &write_options(),
        &mut Default::default(),
    )?;
    if !dictionaries.is_empty() {
        return Err(Error::internal("rows of the log hold no dictionaries"));
    }
    let mut header = header_of(FrameKind::Rows, transaction);
    header.relation = relation;
    header.rows = u32::try_from(batch.num_rows()).map_err(|_| too_large())?;
    header.has_weights = changes.weights().is_some();
    header.schema = schema;
    let payload_bytes = encoded.ipc_message.len() + encoded.arrow_data.len();
    if payload_bytes > (u32::MAX / 2) as usize {
        return Err(too_large());
    }
    push_frame(out, header, |out| {
        let metadata_bytes = encoded.ipc_message.len().next_multiple_of(16);
        out.extend_from_slice(&(encoded.ipc_message.len() as u32).to_le_bytes());
        out.extend_from_slice(&[0; ROWS_PREFIX_BYTES - 4]);
        out.extend_from_slice(&encoded.ipc_message);
        out.resize(out.len() + metadata_bytes - encoded.ipc_message.len(), 0);
        out.extend_from_slice(&encoded.arrow_data);
    });
    Ok(())
}

fn too_large() -> Error {
    Error::new(
        crate::error::sqlstate::PROGRAM_LIMIT_EXCEEDED,
        "a row is too large for the log",
    )
}

/// Reads the payload of a frame of rows; `None` if the bytes do not fit the schema. The schema is
/// the stored one, with the weight column.
pub fn decode_rows(
    payload: MutableBuffer,
    header: &FrameHeader,
    stored: &SchemaRef,
    rows_schema: &SchemaRef,
) -> Option<ChangeBatch> {
    let buffer: Buffer = payload.into();
    let metadata_length = u32_at(buffer.get(..4)?, 0) as usize;
    let metadata = buffer.get(ROWS_PREFIX_BYTES..ROWS_PREFIX_BYTES + metadata_length)?;
    let message = root_as_message(metadata).ok()?;
    let body_start = ROWS_PREFIX_BYTES + metadata_length.next_multiple_of(16);
    if body_start > buffer.len() {
        return None;
    }
    let batch = read_record_batch(
        &buffer.slice(body_start),
        message.header_as_record_batch()?,
        Arc::clone(stored),
        &HashMap::new(),
        None,
        &MetadataVersion::V5,
    )
    .ok()?;
    if !header.has_weights {
        return Some(ChangeBatch::inserts(batch));
    }
    let (weights, columns) = batch.columns().split_last()?;
    let weights = weights.as_any().downcast_ref::<Int64Array>()?.clone();
    let options =
        datafusion::arrow::array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let rows =
        RecordBatch::try_new_with_options(Arc::clone(rows_schema), columns.to_vec(), &options)
            .ok()?;
    (weights.null_count() == 0).then(|| ChangeBatch::weighted(rows, weights))
}

/// The schema of the rows behind a stored schema.
pub fn rows_schema(stored: &SchemaRef) -> SchemaRef {
    match stored.fields().split_last() {
        Some((last, rest)) if last.name() == WEIGHT_COLUMN => Arc::new(Schema::new_with_metadata(
            rest.to_vec(),
            stored.metadata().clone(),
        )),
        _ => Arc::clone(stored),
    }
}

fn stored_schema(schema: &Schema, has_weights: bool) -> Schema {
    let mut fields = schema.fields().to_vec();
    if has_weights {
        fields.push(Arc::new(Field::new(WEIGHT_COLUMN, DataType::Int64, false)));
    }
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

fn stored_batch(changes: &ChangeBatch) -> Result<RecordBatch> {
    let rows = changes.rows();
    let Some(weights) = changes.weights() else {
        return Ok(rows.clone());
    };
    let mut columns: Vec<ArrayRef> = rows.columns().to_vec();
    columns.push(Arc::new(weights.clone()));
    let schema = Arc::new(stored_schema(&rows.schema(), true));
    Ok(RecordBatch::try_new(schema, columns)?)
}

fn write_options() -> IpcWriteOptions {
    IpcWriteOptions::try_new(16, false, MetadataVersion::V5)
        .expect("an alignment of sixteen bytes is allowed")
}

/// FNV-1a, 64 bit, as for state tables: stable over versions and machines.
fn schema_hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Payload of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// number of commits before it
    pub commit: u64,
    /// bytes of its segment that were on disk when it was written
    pub synced_bytes: u64,
    /// segment and offset of each of its frames, in order
    pub frames: Vec<(u32, u64)>,
    /// what the writer wanted to find again
    pub marker: Option<String>,
}

/// Appends a commit frame.
pub fn push_commit(out: &mut Vec<u8>, transaction: u64, commit: &Commit) {
    push_frame(out, header_of(FrameKind::Commit, transaction), |out| {
        out.extend_from_slice(&commit.commit.to_le_bytes());
        out.extend_from_slice(&commit.synced_bytes.to_le_bytes());
        out.extend_from_slice(&(commit.frames.len() as u32).to_le_bytes());
        for (segment, offset) in &commit.frames {
            out.extend_from_slice(&segment.to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
        }
        let marker = commit.marker.as_deref().unwrap_or_default();
        out.extend_from_slice(&(marker.len() as u32).to_le_bytes());
        out.extend_from_slice(marker.as_bytes());
    });
}

/// Reads the payload of a commit frame.
pub fn decode_commit(payload: &[u8]) -> Option<Commit> {
    let count = u32_at(payload.get(..20)?, 16) as usize;
    let list_end = 20 + count.checked_mul(12)?;
    let frames = payload
        .get(20..list_end)?
        .chunks_exact(12)
        .map(|entry| (u32_at(entry, 0), u64_at(entry, 4)))
        .collect();
    let marker_start = list_end + 4;
    let marker_bytes = u32_at(payload.get(list_end..marker_start)?, 0) as usize;
    let marker = payload.get(marker_start..marker_start + marker_bytes)?;
    Some(Commit {
        commit: u64_at(payload, 0),
        synced_bytes: u64_at(payload, 8),
        frames,
        marker: match marker {
            [] => None,
            bytes => Some(String::from_utf8(bytes.to_vec()).ok()?),
        },
    })
}

/// Appends a frame that ends a relation.
pub fn push_forget(out: &mut Vec<u8>, relation: u32) {
    let mut header = header_of(FrameKind::Forget, 0);
    header.relation = relation;
    push_frame(out, header, |_| {});
}

/// Appends a frame that names segments deleted on purpose.
pub fn push_reclaimed(out: &mut Vec<u8>, segments: &[u32]) {
    push_frame(out, header_of(FrameKind::Reclaimed, 0), |out| {
        for segment in segments {
            out.extend_from_slice(&segment.to_le_bytes());
        }
    });
}

/// Reads the payload of a reclaimed frame.
pub fn decode_reclaimed(payload: &[u8]) -> Vec<u32> {
    payload.chunks_exact(4).map(|b| u32_at(b, 0)).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
