//! One file, or one segment of a large file of lines, to chunks.
//!
//! Segments let several cores decode one file. A line belongs to the segment that it starts in, so
//! a segment begins behind its first newline and ends with the line that crosses its end. Where
//! segments lie depends on the planned size alone.

use std::cell::{Cell, RefCell};
use std::io::{self, Read};
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, StringArray, TimestampMicrosecondArray, new_null_array};
use datafusion::arrow::datatypes::DataType;

use super::location::{FileEntry, Location, OpenFile};
use super::plan::{OnBadFile, OnChangedFile, PlannedFile};
use super::told::{ReadFiles, SegmentRead};
use crate::connectors::chunks::{CHUNK_BYTES, CHUNK_ROWS, ChunkSender, Reader, Stop};
use crate::connectors::evolution::{RESCUED_METADATA, UnknownFields};
use crate::connectors::formats::letter::with_header;
use crate::connectors::formats::lines::{RECORD_BYTES_MAX, RecordEnd, RecordReader};
use crate::connectors::formats::parquet::{ParquetChunks, Wanted};
use crate::connectors::formats::{Format, FormatOptions, Layout, RecordDecoder, dead_letter};
use crate::connectors::replayed::{Letters, PassedOver};
use crate::connectors::telling::{Names, Notices};
use crate::connectors::{DataGap, DeadLetter, SourceChunk};
use crate::dataflow::change::ChangeBatch;
use crate::error::{Error, ErrorKind, Result, sqlstate};

/// How files are read.
#[derive(Debug, Clone)]
pub struct ReadPolicy {
    /// Names for hints.
    pub(in crate::connectors) names: Names,
    /// Where trouble with a file is told.
    pub(in crate::connectors) notices: Notices,
    /// Where what reading came to is told.
    pub(in crate::connectors) read_files: ReadFiles,
    /// Format of the files.
    pub format: FormatOptions,
    /// Records that went through by themselves.
    pub replayed: Option<Arc<Letters>>,
    /// A planned file that is gone is counted as lost instead of stopping the batch.
    pub ignore_missing_files: bool,
    /// What an unreadable file does.
    pub on_bad_file: OnBadFile,
    /// What a file that changed after it was planned does.
    pub on_changed_file: OnChangedFile,
}

/// The option under which an unreadable file is gone on without.
const SKIPPED_BY: &str = "on_bad_file = 'skip'";

/// Bytes of a segment.
const SEGMENT_BYTES: u64 = 16 << 20;

/// Parts of a planned file that are read on their own: byte ranges, in order.
pub fn segments(file: &PlannedFile, location: &Location, format: &Format) -> Vec<Range<u64>> {
    let size = file.entry.size;
    // CSV lines may hold quoted newlines, Parquet has no lines, and an object store is read in
    // pieces that a cut inside a line would fetch twice.
    let divisible = matches!(format, Format::Json | Format::Text)
        && matches!(location, Location::Local { .. })
        && file.skipped.is_none();
    if !divisible || size < 2 * SEGMENT_BYTES {
        return std::iter::once(0..size).collect();
    }
    let count = size / SEGMENT_BYTES;
    (0..count)
        .map(|i| {
            let end = if i + 1 == count {
                size
            } else {
                (i + 1) * SEGMENT_BYTES
            };
            i * SEGMENT_BYTES..end
        })
        .collect()
}

/// Reads one segment of a planned file.
pub struct FileTask {
    /// Where files are.
    pub location: Location,
    /// How they are read.
    pub policy: ReadPolicy,
    /// The columns wanted.
    pub layout: Arc<Layout>,
    /// Which file.
    pub file: PlannedFile,
    /// Which bytes of it.
    pub segment: Range<u64>,
    /// What was sent of it so far.
    pub sent: Cell<(u64, u64)>,
    /// Why the rest of it is gone on without.
    pub aside: RefCell<Option<String>>,
}

impl FileTask {
    /// The reader for the blocking pool.
    pub fn into_reader(self) -> Reader {
        Box::new(move |out| {
            let done = self.run(out);
            let (rows, dead_letters) = self.sent.get();
            let error = match &done {
                Err(Stop::Failed(e)) => Some(e.primary().to_owned()),
                _ => self.aside.take(),
            };
            let read = SegmentRead {
                rows,
                dead_letters,
                error,
            };
            let files = &self.policy.read_files;
            files.was_read(&self.file.entry.path, self.segment.start, read);
            done
        })
    }

    fn run(&self, out: &ChunkSender) -> Result<(), Stop> {
        let path = &self.file.entry.path;
        if let Some(reason) = &self.file.skipped {
            let text = format!("file \"{path}\" is skipped: {reason}");
            self.policy.notices.tell_gap(text, self.gap(SKIPPED_BY));
            return self.set_aside(out, reason.clone());
        }
        match self.read(out) {
            Err(Stop::Failed(e)) if e.sqlstate() == sqlstate::UNDEFINED_FILE => {
                if !self.policy.ignore_missing_files {
                    return Err(Stop::Failed(e));
                }
                if self.segment.start > 0 {
                    return Ok(());
                }
                let text = format!(
                    "file \"{path}\" of a planned batch is gone: its {} bytes are lost",
                    self.file.entry.size
                );
                let gap = self.gap("ignore_missing_files = true");
                self.policy.notices.tell_gap(text, gap);
                let reason = format!("file is gone; it had {} bytes", self.file.entry.size);
                self.set_aside(out, reason)
            }
            Err(Stop::Failed(e))
                if e.kind() == ErrorKind::Damaged && self.policy.on_bad_file == OnBadFile::Skip =>
            {
                let text = format!(
                    "file \"{path}\" is skipped, because it cannot be read: {}",
                    e.primary()
                );
                self.policy.notices.tell_gap(text, self.gap(SKIPPED_BY));
                self.set_aside(out, e.primary().to_owned())
            }
            other => other,
        }
    }

    /// The whole file, as a part of the source that is gone on without.
    fn gap(&self, accepted_by: &'static str) -> DataGap {
        DataGap {
            partition: self.file.entry.path.clone(),
            bytes: Some(self.file.entry.size),
            accepted_by,
            ..DataGap::default()
        }
    }

    /// The whole file, or what is left of it, as one dead letter.
    fn set_aside(&self, out: &ChunkSender, reason: String) -> Result<(), Stop> {
        self.aside.replace(Some(reason.clone()));
        let letter = dead_letter(self.file.entry.path.clone(), &[], reason);
        self.send(out, DecodedRows::default(), vec![letter], 0)
    }

    fn read(&self, out: &ChunkSender) -> Result<(), Stop> {
        let entry = &self.file.entry;
        let file = self
            .location
            .open(entry)
            .map_err(|e| io_error(&self.policy.names, entry, &e))?;
        let size = file
            .size()
            .map_err(|e| io_error(&self.policy.names, entry, &e))?;
        if size != entry.size {
            if self.policy.on_changed_file == OnChangedFile::Fail {
                return Err(changed_file(&self.policy.names, &entry.path).into());
            }
            if self.segment.start == 0 {
                self.policy.notices.tell(format!(
                    "file \"{}\" changed between planning and reading: {} bytes were planned, \
                     and it has {size} now",
                    entry.path, entry.size
                ));
            }
        }
        match &self.policy.format.format {
            Format::Parquet => self.read_parquet(file, out),
            _ => self.read_records(&file, out),
        }
    }

    fn read_parquet(&self, file: OpenFile, out: &ChunkSender) -> Result<(), Stop> {
        let path = &self.file.entry.path;
        let layout = &self.layout;
        let wanted = Wanted {
            payload: &layout.payload,
            projection: &layout.payload_projection,
            other_names: &self.policy.format.other_names,
            evolution: self.policy.format.evolution,
            taken_names: &self.policy.format.taken_names,
            passed_over: self.passed_over("row")?,
        };
        let mut pieces = ParquetChunks::open(file, path, wanted).map_err(|e| self.or_skip(e))?;
        while let Some(piece) = pieces.next_piece().map_err(|e| self.or_skip(e))? {
            let decoded = DecodedRows {
                arrays: piece.arrays,
                rows: piece.rows,
                rescued: Some(piece.rescued),
                unknown: piece.unknown,
            };
            self.send(out, decoded, piece.dead_letters, piece.bytes)?;
        }
        Ok(())
    }

    fn read_records(&self, file: &OpenFile, out: &ChunkSender) -> Result<(), Stop> {
        let entry = &self.file.entry;
        let format = &self.policy.format;
        let layout = &self.layout;
        let mut decoder = RecordDecoder::new(format, &layout.payload, &layout.payload_projection)?;
        let (end, mut header) = match &format.format {
            Format::Csv(style) => (RecordEnd::NewlineOutside(style.quote), style.header),
            _ => (RecordEnd::Newline, false),
        };
        // A file that grew since it was planned is read to the planned size: the same rows again.
        // A later segment starts one byte early: its first newline ends the line before it.
        let mut at = self.segment.start.saturating_sub(1);
        let mut records = RecordReader::new(file.reader(at).take(entry.size - at), end);
        let mut first = self.segment.start == 0;
        if !first {
            let before = records
                .next_record()
                .map_err(|e| io_error(&self.policy.names, entry, &e))?;
            at += before.map_or(0, |record| record.length as u64);
        }
        if let Some(watch) = decoder.watch() {
            watch.of_file(&entry.path);
        }
        let keeps_blank_lines = matches!(format.format, Format::Text | Format::Raw);
        let mut letters: Vec<DeadLetter> = Vec::new();
        let mut names: Vec<u8> = Vec::new();
        let mut lines_before = None;
        let passed_over = self.passed_over("line")?;
        if !passed_over.is_empty() {
            lines_before = Some(self.lines_before(file)?);
        }
        let mut bytes = 0u64;
        while at < self.segment.end
            && let Some(record) = records
                .next_record()
                .map_err(|e| io_error(&self.policy.names, entry, &e))?
        {
            at += record.length as u64;
            bytes += record.length as u64;
            let mut line = record.bytes;
            if std::mem::replace(&mut first, false) {
                line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
            }
            if !keeps_blank_lines && line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            if std::mem::replace(&mut header, false) {
                self.read_header(&mut decoder, line)?;
                names = line.to_vec();
                continue;
            }
            let as_letter = |line: &[u8]| match names.is_empty() {
                true => line.to_vec(),
                false => with_header(&names, line),
            };
            let number = lines_before.unwrap_or(0) + record.line;
            if passed_over.has(number) && passed_over.holds(number, &as_letter(line)) {
                continue;
            }
            let pushed = if record.overlong {
                Err(format!(
                    "record is longer than {} MiB",
                    RECORD_BYTES_MAX >> 20
                ))
            } else {
                decoder.push(line)
            };
            let wants_origin = decoder.watch().is_some_and(|watch| watch.wants_origin());
            if pushed.is_err() || wants_origin {
                let before = match lines_before {
                    Some(lines) => lines,
                    None => *lines_before.insert(self.lines_before(file)?),
                };
                let origin = format!("{} line {}", entry.path, before + record.line);
                match (pushed, decoder.watch()) {
                    (Err(reason), _) => letters.push(dead_letter(origin, &as_letter(line), reason)),
                    (Ok(()), Some(watch)) => watch.place(&origin),
                    (Ok(()), None) => {}
                }
            }
            let full = decoder.rows() >= CHUNK_ROWS || letters.len() >= CHUNK_ROWS / 64;
            if full || bytes >= CHUNK_BYTES as u64 {
                let decoded = DecodedRows::take(&mut decoder);
                self.send(out, decoded, std::mem::take(&mut letters), bytes)?;
                bytes = 0;
            }
        }
        if decoder.rows() > 0 || !letters.is_empty() || bytes > 0 {
            self.send(out, DecodedRows::take(&mut decoder), letters, bytes)?;
        }
        Ok(())
    }

    fn read_header(&self, decoder: &mut RecordDecoder, line: &[u8]) -> Result<()> {
        let RecordDecoder::Csv(csv) = decoder else {
            return Ok(());
        };
        csv.header(line).map_err(|reason| {
            let path = &self.file.entry.path;
            self.or_skip(
                Error::damaged(format!("cannot read the header of \"{path}\""))
                    .detail(format!("{reason}.")),
            )
        })
    }

    /// What to do about a file that cannot be read.
    fn or_skip(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::Damaged => error.hint(format!(
                "Replace the file, or go on without it: {}",
                self.policy.names.alter_stream("on_bad_file = 'skip'")
            )),
            _ => error,
        }
    }

    /// Records of the file that went through by themselves; `kind` is what they are counted as.
    fn passed_over(&self, kind: &str) -> Result<PassedOver> {
        match &self.policy.replayed {
            Some(letters) => letters.at(&format!("{} {kind}", self.file.entry.path)),
            None => Ok(PassedOver::default()),
        }
    }

    /// Lines before the first that this segment's reader counts; read only to name a bad one.
    fn lines_before(&self, file: &OpenFile) -> Result<u64, Stop> {
        let entry = &self.file.entry;
        let mut before = file.reader(0).take(self.segment.start.saturating_sub(1));
        let mut buffer = vec![0u8; 1 << 20];
        let mut lines = 0;
        loop {
            let read = before
                .read(&mut buffer)
                .map_err(|e| io_error(&self.policy.names, entry, &e))?;
            if read == 0 {
                return Ok(lines);
            }
            lines += buffer[..read].iter().filter(|b| **b == b'\n').count() as u64;
        }
    }

    fn send(
        &self,
        out: &ChunkSender,
        decoded: DecodedRows,
        dead_letters: Vec<DeadLetter>,
        bytes: u64,
    ) -> Result<(), Stop> {
        let DecodedRows {
            mut arrays,
            rows,
            rescued,
            unknown,
        } = decoded;
        let (rows_before, letters_before) = self.sent.get();
        let letters = letters_before + dead_letters.len() as u64;
        self.sent.set((rows_before + rows as u64, letters));
        if rows == 0 {
            arrays = self.empty_payload();
        }
        let entry = &self.file.entry;
        let batch = self.layout.assemble(&arrays, rows, |name| match name {
            RESCUED_METADATA => Ok(rescued
                .clone()
                .unwrap_or_else(|| new_null_array(&DataType::Utf8, rows))),
            "file_path" => Ok(Arc::new(StringArray::from_iter_values(
                std::iter::repeat_n(entry.path.as_str(), rows),
            ))),
            _ => Ok(Arc::new(
                TimestampMicrosecondArray::from_value(entry.modified_at_us, rows)
                    .with_timezone("UTC"),
            )),
        })?;
        let changes = ChangeBatch::inserts(batch);
        Ok(out.send(SourceChunk {
            changes,
            dead_letters,
            unknown,
            bytes,
        })?)
    }

    fn empty_payload(&self) -> Vec<ArrayRef> {
        let layout = &self.layout;
        layout
            .payload_projection
            .iter()
            .map(|&i| datafusion::arrow::array::new_empty_array(layout.payload[i].data_type()))
            .collect()
    }
}

/// Rows of a part of a file.
#[derive(Default)]
struct DecodedRows {
    arrays: Vec<ArrayRef>,
    rows: usize,
    rescued: Option<ArrayRef>,
    unknown: UnknownFields,
}

impl DecodedRows {
    /// What a decoder has by now.
    fn take(decoder: &mut RecordDecoder) -> Self {
        let rows = decoder.rows();
        let arrays = decoder.finish();
        let (rescued, unknown) = match decoder.watch() {
            Some(watch) => (Some(watch.finish()), watch.take_unknown()),
            None => (None, UnknownFields::default()),
        };
        Self {
            arrays,
            rows,
            rescued,
            unknown,
        }
    }
}

/// The error for a file that changed where that is not allowed.
pub(in crate::connectors) fn changed_file(names: &Names, path: &str) -> Error {
    Error::damaged(format!("file \"{path}\" changed after it was read")).hint(format!(
        "Put the old file back, or go on with what was read: {}",
        names.alter_stream("on_changed_file = 'warn'")
    ))
}

fn io_error(names: &Names, entry: &FileEntry, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::NotFound {
        return Error::with_kind(
            ErrorKind::Damaged,
            sqlstate::UNDEFINED_FILE,
            format!("file \"{}\" of a planned batch is gone", entry.path),
        )
        .detail(format!("It had {} bytes when it was planned.", entry.size))
        .hint(format!(
            "Put the file back, or accept the loss: {}",
            names.alter_stream("ignore_missing_files = true")
        ));
    }
    unreadable(entry, error)
}

/// The error for a file that is there and could not be read; it may go away.
pub fn unreadable(entry: &FileEntry, error: &io::Error) -> Error {
    Error::transient(
        sqlstate::IO_ERROR,
        format!("could not read file \"{}\"", entry.path),
    )
    .detail(format!("The cause is: {error}."))
}
