//! Keys of the history store.
//!
//! ```text
//! table byte | name, UTF-8 | 00 | batch id, 8 bytes big endian | rest
//! ```
//!
//! A name holds no zero byte, so a name's rows are one range, ordered by batch. Events have their
//! time where the others have the name: `'e' | microseconds, 8 bytes | object | 00 | kind`.

pub(super) const METRICS: u8 = b'm';
pub(super) const EVENTS: u8 = b'e';
pub(super) const DEAD_LETTERS: u8 = b'd';
pub(super) const LATE_ROWS: u8 = b'l';
pub(super) const EXPECTATIONS: u8 = b'x';
pub(super) const DATA_GAPS: u8 = b'g';

pub(super) const LAST_METRICS: u8 = b'n';
pub(super) const KNOWN_BATCHES: u8 = b'k';
pub(super) const SCHEDULE_RUNS: u8 = b's';

/// Tables whose keys begin with an object's name and a batch.
pub(super) const BATCH_TABLES: [u8; 5] =
    [METRICS, DEAD_LETTERS, LATE_ROWS, EXPECTATIONS, DATA_GAPS];

pub(super) fn metrics(view: &str, batch_id: u64) -> Vec<u8> {
    batch_key(METRICS, view, batch_id, &[])
}

/// A record's origin names it: read again in a replayed batch, it is the same letter. Pipelines that read one
/// stream set its records aside each by itself.
pub(super) fn dead_letter(stream: &str, batch_id: u64, pipeline: &str, origin: &str) -> Vec<u8> {
    let rest = format!("{pipeline}\0{origin}");
    batch_key(DEAD_LETTERS, stream, batch_id, rest.as_bytes())
}

/// Keys of the letters of a batch of a pipeline: from the first (inclusive) to the second (exclusive).
pub(super) fn dead_letters_of(stream: &str, batch_id: u64, pipeline: &str) -> (Vec<u8>, Vec<u8>) {
    let lower = dead_letter(stream, batch_id, pipeline, "");
    let mut upper = lower.clone();
    if let Some(end) = upper.last_mut() {
        *end = 1;
    }
    (lower, upper)
}

/// The newest batch of a pipeline whose metrics are in the store.
pub(super) fn last_metrics(pipeline: &str) -> Vec<u8> {
    range_of(LAST_METRICS, pipeline).0
}

/// When the drills of a schedule last began.
pub(super) fn schedule_run(schedule: &str) -> Vec<u8> {
    range_of(SCHEDULE_RUNS, schedule).0
}

/// The newest batch that a pipeline is known to have committed.
pub(super) fn known_batch(pipeline: &str, pipeline_id: uuid::Uuid) -> Vec<u8> {
    let mut key = range_of(KNOWN_BATCHES, pipeline).0;
    key.extend(pipeline_id.as_bytes());
    key
}

pub(super) fn late_row(view: &str, batch_id: u64, row_number: u64) -> Vec<u8> {
    batch_key(LATE_ROWS, view, batch_id, &row_number.to_be_bytes())
}

/// Pipelines that read one stream count their batches each by itself.
pub(super) fn expectation(stream: &str, batch_id: u64, pipeline: &str, name: &str) -> Vec<u8> {
    let rest = format!("{pipeline}\0{name}");
    batch_key(EXPECTATIONS, stream, batch_id, rest.as_bytes())
}

/// The same part that is missed again, in a replayed batch, is the same gap.
pub(super) fn data_gap(stream: &str, batch_id: u64, pipeline: &str, partition: &str) -> Vec<u8> {
    let rest = format!("{pipeline}\0{partition}");
    batch_key(DATA_GAPS, stream, batch_id, rest.as_bytes())
}

pub(super) fn event(at_us: i64, object: &str, kind: &str) -> Vec<u8> {
    let mut key = vec![EVENTS];
    // The sign bit turned over, so that byte order is time order before 1970 too.
    key.extend((at_us ^ i64::MIN).to_be_bytes());
    key.extend(object.bytes());
    key.push(0);
    key.extend(kind.bytes());
    key
}

/// Keys of a name in a table: from the first (inclusive) to the second (exclusive).
pub(super) fn range_of(table: u8, name: &str) -> (Vec<u8>, Vec<u8>) {
    let mut lower = vec![table];
    lower.extend(name.bytes());
    let mut upper = lower.clone();
    lower.push(0);
    upper.push(1);
    (lower, upper)
}

/// Keys of a whole table.
pub(super) fn range_of_table(table: u8) -> (Vec<u8>, Vec<u8>) {
    (vec![table], vec![table + 1])
}

/// The name in a key of a table by name and batch.
pub(super) fn name_in(key: &[u8]) -> Option<String> {
    let rest = key.get(1..)?;
    let end = rest.iter().position(|b| *b == 0)?;
    String::from_utf8(rest[..end].to_vec()).ok()
}

/// The least key greater than `key`.
pub(super) fn after(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    next.push(0);
    next
}

fn batch_key(table: u8, name: &str, batch_id: u64, rest: &[u8]) -> Vec<u8> {
    assert!(!name.contains('\0'), "a name holds no zero byte");
    let (mut key, _) = range_of(table, name);
    key.extend(batch_id.to_be_bytes());
    key.extend(rest);
    key
}
