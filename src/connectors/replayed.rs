//! Records that were set aside and go through again: `REPLAY DEAD LETTERS`.
//!
//! ```text
//!   the database's log, letters of stream s: (pipeline, origin, bytes)
//!        │ those of this pipeline
//!        ├──► decoded behind what the source gives: rows
//!        └──► passed over where the source gives the record itself
//! ```
//!
//! A letter goes to the pipeline that set it aside, since another one may have decoded the same record by then.
//! How far a pipeline has come in the letters is a member of its position, so that the offset log fixes them as
//! it fixes all else, and batches that run again give the same. And where a batch reads the record itself once
//! more, it is passed over, whether it can be decoded by then or not: so each record is one row at most.
//! What still cannot be decoded is a dead letter again.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::{
    Array, AsArray, BinaryArray, RecordBatch, StringArray, new_null_array,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use futures::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use uuid::Uuid;

use super::chunks::{self, CHUNK_ROWS, ChunkSender, Stop};
use super::evolution::{RESCUED_METADATA, UnknownFields};
use super::formats::letter::LetterDecoder;
use super::formats::watch::Watch;
use super::formats::{FormatOptions, Layout, dead_letter};
use super::{
    Backlog, DeadLetter, ReadLimits, Source, SourceChunk, SourceLog, SourceOffset, SourceRange,
    SourceRef, StartAt,
};
use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, Result};
use crate::log::{DurableLog, LogPosition};

/// The member of a position that says how far the letters were taken in: no name of a topic.
const MEMBER: &str = "dead letters";
/// Marks the relation of a stream's letters in the log; identifiers of objects do not come so far.
const LETTERS_BIT: u32 = 1 << 31;

/// The relation of the log that holds the replayed letters of a stream.
pub fn letters_relation(stream_oid: u32) -> u32 {
    stream_oid | LETTERS_BIT
}

/// A letter that goes through again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayedLetter {
    /// The pipeline that set it aside; nil where the receiver of the stream did.
    pub pipeline_id: Uuid,
    /// Where from, with its number at the end.
    pub origin: String,
    /// The record.
    pub raw: Vec<u8>,
}

/// Letters as rows of the log.
pub fn letters_batch(letters: &[ReplayedLetter]) -> Result<RecordBatch> {
    let field = |name: &str, data_type| Field::new(name, data_type, false);
    let schema = Schema::new(vec![
        field("pipeline_id", DataType::Utf8),
        field("origin", DataType::Utf8),
        field("raw", DataType::Binary),
    ]);
    let ids = letters
        .iter()
        .map(|letter| Some(letter.pipeline_id.to_string()));
    let origins = letters.iter().map(|letter| Some(letter.origin.as_str()));
    let raws = letters.iter().map(|letter| Some(letter.raw.as_slice()));
    Ok(RecordBatch::try_new(
        Arc::new(schema),
        vec![
            Arc::new(ids.collect::<StringArray>()),
            Arc::new(origins.collect::<StringArray>()),
            Arc::new(raws.collect::<BinaryArray>()),
        ],
    )?)
}

/// An origin without its number, and the number: `topic t partition 3 offset` and 42, `a.json line` and 7,
/// `b.parquet row` and 3.
pub fn numbered(origin: &str) -> Option<(&str, u64)> {
    let (place, number) = origin.rsplit_once(' ')?;
    let is_record = [" line", " offset", " row"]
        .iter()
        .any(|kind| place.ends_with(kind));
    Some((place, number.parse().ok()?)).filter(|_| is_record)
}

/// Records of one place that are passed over: the checksum of each by its number.
#[derive(Debug, Clone, Default)]
pub struct PassedOver(Arc<HashMap<u64, u32>>);

impl PassedOver {
    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// There was a record of this number; it may be another by now.
    pub fn has(&self, number: u64) -> bool {
        self.0.contains_key(&number)
    }

    /// The record of this number, if it is still the one that was set aside.
    pub fn holds(&self, number: u64, raw: &[u8]) -> bool {
        let known = self.0.get(&number);
        known.is_some_and(|checksum| *checksum == crc32c::crc32c(raw))
    }
}

/// What a pipeline has been given again of a stream.
pub struct Letters {
    log: Arc<DurableLog>,
    relation: u32,
    pipeline_id: Uuid,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    until: LogPosition,
    places: HashMap<String, PassedOver>,
}

impl std::fmt::Debug for Letters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Letters").finish_non_exhaustive()
    }
}

impl Letters {
    /// Those of a stream for a pipeline.
    pub fn new(log: Arc<DurableLog>, stream_oid: u32, pipeline_id: Uuid) -> Self {
        Self {
            log,
            relation: letters_relation(stream_oid),
            pipeline_id,
            known: Mutex::default(),
        }
    }

    /// Records of a place that went through again, up to now.
    pub fn at(&self, place: &str) -> Result<PassedOver> {
        let end = self.log.end_of(self.relation);
        let mut known = self.known.lock();
        if known.until < end {
            for letter in self.between(known.until, end) {
                let letter = letter?;
                if let Some((place, number)) = numbered(&letter.origin) {
                    let passed = known.places.entry(place.to_owned()).or_default();
                    let checksum = crc32c::crc32c(&letter.raw);
                    Arc::make_mut(&mut passed.0).insert(number, checksum);
                }
            }
            known.until = end;
        }
        Ok(known.places.get(place).cloned().unwrap_or_default())
    }

    /// It went through again already.
    pub fn holds(&self, origin: &str, raw: &[u8]) -> Result<bool> {
        match numbered(origin) {
            Some((place, number)) => Ok(self.at(place)?.holds(number, raw)),
            None => Ok(false),
        }
    }

    /// Letters of this pipeline in commits `from..to`.
    fn between(
        &self,
        from: LogPosition,
        to: LogPosition,
    ) -> impl Iterator<Item = Result<ReplayedLetter>> + use<> {
        let pipeline_id = self.pipeline_id;
        let entries = self.log.read(self.relation, from, to);
        entries.flat_map(
            move |entry| match entry.and_then(|e| letters_of(e.changes.rows())) {
                Ok(mut letters) => {
                    letters.retain(|letter| letter.pipeline_id == pipeline_id);
                    letters.into_iter().map(Ok).collect()
                }
                Err(error) => vec![Err(error)],
            },
        )
    }
}

fn letters_of(rows: &RecordBatch) -> Result<Vec<ReplayedLetter>> {
    let column = |index: usize| rows.columns().get(index);
    let (Some(ids), Some(origins), Some(raws)) = (
        column(0).and_then(|c| c.as_string_opt::<i32>()),
        column(1).and_then(|c| c.as_string_opt::<i32>()),
        column(2).and_then(|c| c.as_binary_opt::<i32>()),
    ) else {
        return Err(Error::damaged(
            "the letters of a stream cannot be read from the log",
        ));
    };
    let letter = |row: usize| {
        Ok(ReplayedLetter {
            pipeline_id: ids
                .value(row)
                .parse()
                .map_err(|_| Error::damaged("a letter in the log names no pipeline"))?,
            origin: origins.value(row).to_owned(),
            raw: raws.value(row).to_vec(),
        })
    };
    (0..ids.len()).map(letter).collect()
}

/// How a stream's records are decoded one by one.
#[derive(Debug, Clone)]
pub struct LetterFormat {
    /// The format of the payload.
    pub format: FormatOptions,
    /// The source's columns.
    pub schema: SchemaRef,
    /// Which columns are filled from metadata, which a letter does not have.
    pub metadata: Vec<Option<String>>,
}

impl LetterFormat {
    /// Decodes letters; what cannot be is a dead letter again. With what no column takes of the rows.
    pub fn decode(
        &self,
        letters: &[ReplayedLetter],
        projection: &[usize],
    ) -> Result<(RecordBatch, Vec<DeadLetter>, UnknownFields)> {
        let layout = Layout::new(&self.schema, &self.metadata, projection);
        let mut decoder = LetterDecoder::new(&self.format, &layout)?;
        let mut refused = Vec::new();
        for letter in letters {
            match (decoder.push(&letter.raw), decoder.watch()) {
                (Err(reason), _) => {
                    refused.push(dead_letter(letter.origin.clone(), &letter.raw, reason));
                }
                (Ok(()), Some(watch)) if watch.wants_origin() => watch.place(&letter.origin),
                (Ok(()), _) => {}
            }
        }
        let rows = decoder.rows();
        let arrays = decoder.finish();
        let watch = decoder.watch();
        let unknown = watch.map(Watch::take_unknown).unwrap_or_default();
        let rescued = decoder.watch().map(Watch::finish);
        let rows = layout.assemble(&arrays, rows, |name| match &rescued {
            Some(rescued) if name == RESCUED_METADATA => Ok(rescued.clone()),
            _ => Ok(new_null_array(&DataType::Null, rows)),
        })?;
        Ok((rows, refused, unknown))
    }
}

/// A source, and behind it the letters that its pipeline was given again.
pub struct ReplayedSource {
    source: SourceRef,
    letters: Arc<Letters>,
    format: LetterFormat,
}

impl ReplayedSource {
    /// Letters behind a source whose positions are JSON objects.
    pub fn over(source: SourceRef, letters: Arc<Letters>, format: LetterFormat) -> SourceRef {
        Arc::new(Self {
            source,
            letters,
            format,
        })
    }

    fn end(&self) -> LogPosition {
        self.letters.log.end_of(self.letters.relation)
    }
}

/// The source's own position, and how far the letters were taken in.
fn parted(offset: &SourceOffset) -> (SourceOffset, LogPosition) {
    let mut own = offset.0.clone();
    let at = own.as_object_mut().and_then(|o| o.shift_remove(MEMBER));
    let at = at.and_then(|at| at.as_u64()).unwrap_or(0);
    (SourceOffset(own), at)
}

/// A position of both; where no letter was ever replayed it is the source's own.
fn joined(own: SourceOffset, at: LogPosition) -> SourceOffset {
    let mut own = own;
    if at > 0
        && let Some(members) = own.0.as_object_mut()
    {
        members.insert(MEMBER.to_owned(), at.into());
    }
    own
}

#[async_trait]
impl Source for ReplayedSource {
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
        let (own, at) = parted(position);
        self.letters.log.require(at)?;
        self.source.check_position(&own).await
    }

    async fn initial_offset(&self) -> Result<SourceOffset> {
        self.source.initial_offset().await
    }

    /// Only whoever begins with what comes next begins behind the letters: the others read the source from
    /// where it passes these records over.
    async fn position_at(&self, batch_id: u64, at: &StartAt) -> Result<SourceOffset> {
        let (at, letters) = match at {
            StartAt::Latest => (StartAt::Latest, self.end()),
            StartAt::Offsets(offset) => {
                let (own, letters) = parted(&SourceOffset(offset.clone()));
                self.letters.log.require(letters)?;
                (StartAt::Offsets(own.0), letters)
            }
            other => (other.clone(), 0),
        };
        let own = self.source.position_at(batch_id, &at).await?;
        Ok(joined(own, letters))
    }

    async fn taken_in(&self, position: &SourceOffset) -> Result<Option<u64>> {
        let (own, at) = parted(position);
        let taken_in = self.source.taken_in(&own).await?;
        Ok(taken_in.map(|taken_in| taken_in ^ at.rotate_left(32)))
    }

    async fn take_over(
        &self,
        batch_id: u64,
        position: &SourceOffset,
        theirs: &dyn SourceLog,
    ) -> Result<SourceOffset> {
        let (own, at) = parted(position);
        let own = self.source.take_over(batch_id, &own, theirs).await?;
        Ok(joined(own, at))
    }

    async fn check_range(&self, range: &SourceRange) -> Result<()> {
        let (end, at) = parted(&range.end);
        self.letters.log.require(at)?;
        let start = parted(&range.start).0;
        self.source.check_range(&SourceRange { start, end }).await
    }

    async fn latest_offset(&self) -> Result<SourceOffset> {
        let own = self.source.latest_offset().await?;
        Ok(joined(own, self.end()))
    }

    async fn plan_range(
        &self,
        batch_id: u64,
        start: &SourceOffset,
        latest: &SourceOffset,
        limits: &ReadLimits,
    ) -> Result<Option<SourceRange>> {
        let ((own_start, from), (own_latest, to)) = (parted(start), parted(latest));
        let planned = self
            .source
            .plan_range(batch_id, &own_start, &own_latest, limits)
            .await?;
        if planned.is_none() && to <= from {
            return Ok(None);
        }
        // Where records are lost a range begins elsewhere than it was asked to.
        let own = planned.unwrap_or_else(|| SourceRange {
            start: own_start.clone(),
            end: own_start,
        });
        Ok(Some(SourceRange {
            start: joined(own.start, from),
            end: joined(own.end, from.max(to)),
        }))
    }

    fn backlog(&self, from: &SourceOffset, latest: &SourceOffset) -> Backlog {
        let ((own_from, from), (own_latest, to)) = (parted(from), parted(latest));
        let own = self.source.backlog(&own_from, &own_latest);
        let (rows, bytes) = match to > from {
            true => self
                .letters
                .log
                .size_between(self.letters.relation, from, to),
            false => (0, 0),
        };
        Backlog {
            rows: own.rows.map(|own| own + rows),
            bytes: own.bytes.map(|own| own + bytes),
        }
    }

    async fn read_range(
        &self,
        batch_id: u64,
        range: &SourceRange,
        projection: &[usize],
    ) -> Result<BoxStream<'static, Result<SourceChunk>>> {
        let ((start, from), (end, to)) = (parted(&range.start), parted(&range.end));
        let own = match start == end {
            true => stream::empty().boxed(),
            false => {
                let range = SourceRange { start, end };
                self.source.read_range(batch_id, &range, projection).await?
            }
        };
        if to <= from {
            return Ok(own);
        }
        self.letters.log.require(to)?;
        let (letters, format) = (Arc::clone(&self.letters), self.format.clone());
        let projection = projection.to_vec();
        let again = chunks::read_blocking(Box::new(move |out| {
            send_letters(&letters, (from, to), &format, &projection, out)
        }));
        Ok(own.chain(again).boxed())
    }

    async fn acknowledge(&self, batch_id: u64, offset: &SourceOffset) -> Result<()> {
        self.source.acknowledge(batch_id, &parted(offset).0).await
    }

    async fn wait_for_data(&self, from: &SourceOffset) {
        let (own, at) = parted(from);
        tokio::select! {
            () = self.source.wait_for_data(&own) => {}
            () = self.letters.log.wait_beyond(self.letters.relation, at) => {}
        }
    }
}

fn send_letters(
    letters: &Letters,
    (from, to): (LogPosition, LogPosition),
    format: &LetterFormat,
    projection: &[usize],
    out: &ChunkSender,
) -> Result<(), Stop> {
    let mut all = letters.between(from, to).peekable();
    while all.peek().is_some() {
        let some: Vec<ReplayedLetter> = all.by_ref().take(CHUNK_ROWS).collect::<Result<_>>()?;
        let (rows, dead_letters, unknown) = format.decode(&some, projection)?;
        out.send(SourceChunk {
            changes: ChangeBatch::inserts(rows),
            dead_letters,
            unknown,
            bytes: some.iter().map(|letter| letter.raw.len() as u64).sum(),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn positions_have_a_member_only_where_letters_were_replayed() {
        let own = SourceOffset(json!({"files_log": 3, "files": 4}));
        assert_eq!(joined(own.clone(), 0), own);
        let both = joined(own.clone(), 7);
        assert_eq!(parted(&both), (own.clone(), 7));
        assert_eq!(parted(&own), (own, 0));
        assert_eq!(crate::connectors::logged_at(&both), Some(3));
    }

    #[test]
    fn only_an_origin_with_the_number_of_a_record_is_one() {
        let of = |origin| numbered(origin);
        assert_eq!(of("in/a b.json line 7"), Some(("in/a b.json line", 7)));
        assert_eq!(
            of("topic t partition 3 offset 42"),
            Some(("topic t partition 3 offset", 42))
        );
        assert_eq!(of("in/b.parquet row 3"), Some(("in/b.parquet row", 3)));
        assert_eq!(of("topic t partition 3 offsets 4 to 9"), None);
        assert_eq!(of("a 7"), None);
    }

    #[tokio::test]
    async fn letters_come_back_from_the_log_for_their_pipeline_alone() {
        let folder = tempfile::tempdir().unwrap();
        let log = DurableLog::open(folder.path()).unwrap();
        let letter = |pipeline: u128, line: u64| ReplayedLetter {
            pipeline_id: Uuid::from_u128(pipeline),
            origin: format!("f.json line {line}"),
            raw: vec![b'x'; line as usize],
        };
        let all = [letter(1, 3), letter(2, 4), letter(1, 5)];
        let mut transaction = log.begin();
        let rows = ChangeBatch::inserts(letters_batch(&all).unwrap());
        transaction
            .append(letters_relation(9), &rows)
            .await
            .unwrap();
        let end = transaction.commit().await.unwrap();
        let letters = Letters::new(Arc::clone(&log), 9, Uuid::from_u128(1));
        let mine: Vec<_> = letters.between(0, end).collect::<Result<_>>().unwrap();
        assert_eq!(mine, [letter(1, 3), letter(1, 5)]);
        assert!(letters.holds("f.json line 3", b"xxx").unwrap());
        // Another record by now, another pipeline's, one that never was.
        assert!(!letters.holds("f.json line 3", b"xxy").unwrap());
        assert!(!letters.holds("f.json line 4", b"xxxx").unwrap());
        assert!(letters.at("g.json line").unwrap().is_empty());
    }
}
