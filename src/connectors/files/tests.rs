//! Folders in, ranges out: replay, going back, bad and changing files.

use std::fs;
use std::path::Path;

use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::Int64Type;

use super::*;
use crate::catalog::definition::{Definition, OptionValue, StreamDefinition};
use crate::clock::{ManualClock, SystemClock};
use crate::error::ErrorKind;
use crate::types::SqlType;

fn column(name: &str, sql_type: SqlType, metadata: Option<&str>) -> ColumnDefinition {
    ColumnDefinition {
        name: name.into(),
        sql_type,
        nullable: true,
        default: None,
        metadata_from: metadata.map(str::to_owned),
        comment: None,
        text_type: None,
    }
}

fn object(options: &[(&str, &str)]) -> CatalogObject {
    let options: Options = options
        .iter()
        .map(|(k, v)| ((*k).to_owned(), OptionValue::Text((*v).to_owned())))
        .collect();
    CatalogObject {
        name: "f".into(),
        oid: 20_000,
        created_at_us: 0,
        comment: None,
        kept_as: None,
        renamed: Default::default(),
        definition: Definition::Stream(StreamDefinition {
            columns: vec![
                column("id", SqlType::BigInt, None),
                column("path", SqlType::Text, Some("file_path")),
                column("name", SqlType::Text, None),
                column("changed", SqlType::TimestampTz, Some("file_modified_at")),
            ],
            watermark: None,
            expectations: vec![],
            connector: Some("files".into()),
            options,
            shape: Default::default(),
        }),
    }
}

struct Fixture {
    folder: tempfile::TempDir,
    log: Arc<MemoryLog>,
    options: Vec<(String, String)>,
    clock: ClockRef,
}

impl Fixture {
    fn new(options: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut all = vec![(
            "location".to_owned(),
            folder.path().to_str().unwrap().to_owned(),
        )];
        all.extend(options.iter().map(|(k, v)| ((*k).into(), (*v).into())));
        Self {
            folder,
            log: Arc::new(MemoryLog::default()),
            options: all,
            clock: SystemClock::shared(),
        }
    }

    /// A file with a modification time, in seconds, that fixes its place in the order.
    fn put(&self, name: &str, content: impl AsRef<[u8]>, modified_s: u64) {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        let time = std::time::UNIX_EPOCH + Duration::from_secs(modified_s);
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(time)
            .unwrap();
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn open(&self) -> FilesSource {
        let options: Vec<(&str, &str)> = self
            .options
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        let object = object(&options);
        let mut environment = ConnectorEnvironment::new(None, self.clock.clone());
        environment.source_log = Some(self.log.clone());
        environment.pipeline = Some("v".into());
        environment.retain_batches = 3;
        let Definition::Stream(stream) = &object.definition else {
            unreachable!()
        };
        FilesSource::open(&object, &stream.options, &environment).unwrap()
    }
}

async fn plan(source: &FilesSource, batch_id: u64, start: &SourceOffset) -> Option<SourceRange> {
    let latest = source.latest_offset().await.unwrap();
    let limits = ReadLimits::default();
    source
        .plan_range(batch_id, start, &latest, &limits)
        .await
        .unwrap()
}

async fn chunks_of(
    source: &FilesSource,
    range: &SourceRange,
    projection: &[usize],
) -> Result<Vec<SourceChunk>> {
    let stream = source.read_range(0, range, projection).await?;
    stream.collect::<Vec<_>>().await.into_iter().collect()
}

async fn ids(source: &FilesSource, range: &SourceRange) -> Vec<i64> {
    chunks_of(source, range, &[0])
        .await
        .unwrap()
        .iter()
        .flat_map(|c| {
            c.changes
                .rows()
                .column(0)
                .as_primitive::<Int64Type>()
                .values()
                .to_vec()
        })
        .collect()
}

#[tokio::test]
async fn files_come_once_in_order_of_time_and_read_again_the_same() {
    let fixture = Fixture::new(&[("format", "json")]);
    fixture.put("b.json", "{\"id\":3}\n{\"id\":4,\"name\":\"x\"}", 200);
    fixture.put("a.json", "\n{\"id\":5}\r\n\n", 200);
    fixture.put("sub/c.json", "{\"id\":1}\n{\"id\":2}\n", 100);
    fixture.put("_SUCCESS", "", 1);
    fixture.put(".hidden.json", "{\"id\":90}", 1);
    fixture.put("d.json.tmp", "{\"id\":91}", 1);
    fixture.put("_temporary/e.json", "{\"id\":92}", 1);
    fixture.put("empty.json", "", 1);
    let source = fixture.open();
    let start = source.initial_offset().await.unwrap();
    let range = plan(&source, 1, &start).await.unwrap();
    assert_eq!(ids(&source, &range).await, [1, 2, 5, 3, 4]);
    assert!(plan(&source, 2, &range.end).await.is_none());
    assert_eq!(source.latest_offset().await.unwrap(), range.end);

    fixture.put("late.json", "{\"id\":6}", 50);
    fixture.put("empty.json", "{\"id\":7}", 60);
    let second = plan(&source, 2, &range.end).await.unwrap();
    assert_eq!(ids(&source, &second).await, [6, 7]);

    // A new process reads the same ranges, and both together.
    let again = fixture.open();
    assert_eq!(ids(&again, &range).await, [1, 2, 5, 3, 4]);
    assert_eq!(ids(&again, &second).await, [6, 7]);
    let both = SourceRange {
        start: range.start.clone(),
        end: second.end.clone(),
    };
    assert_eq!(ids(&again, &both).await, [1, 2, 5, 3, 4, 6, 7]);
    assert!(plan(&again, 3, &second.end).await.is_none());
}

#[tokio::test]
async fn going_back_and_planning_again_loses_and_doubles_nothing() {
    let fixture = Fixture::new(&[("format", "json"), ("max_files_per_trigger", "1")]);
    for i in 1..=4 {
        fixture.put(&format!("{i}.json"), format!("{{\"id\":{i}}}"), i);
    }
    let source = fixture.open();
    let start = source.initial_offset().await.unwrap();
    let first = plan(&source, 1, &start).await.unwrap();
    let second = plan(&source, 2, &first.end).await.unwrap();
    assert_eq!(ids(&source, &second).await, [2]);
    // Batch 2 never committed, and is planned anew after its file went away.
    fs::remove_file(fixture.path().join("2.json")).unwrap();
    let restarted = fixture.open();
    let second = plan(&restarted, 2, &first.end).await.unwrap();
    assert_eq!(ids(&restarted, &second).await, [3]);
    let third = plan(&restarted, 3, &second.end).await.unwrap();
    assert_eq!(ids(&restarted, &third).await, [4]);
    // An entry of a batch that never came to be does not hide its file for ever.
    fixture.put("2.json", "{\"id\":2}", 2);
    let fourth = plan(&restarted, 4, &third.end).await.unwrap();
    assert_eq!(ids(&restarted, &fourth).await, [2]);
    let skipped_batch = plan(&restarted, 6, &third.end).await.unwrap();
    assert_eq!(ids(&fixture.open(), &skipped_batch).await, [2]);
}

#[tokio::test]
async fn bad_lines_and_metadata() {
    let fixture = Fixture::new(&[("format", "json")]);
    fixture.put(
        "a.json",
        "{\"id\":1,\"name\":\"x\"}\n{\"id\":\"no\"}\noops\n{\"id\":2}\n",
        77,
    );
    let source = fixture.open();
    let start = source.initial_offset().await.unwrap();
    let range = plan(&source, 1, &start).await.unwrap();
    let chunks = chunks_of(&source, &range, &[3, 1, 0]).await.unwrap();
    assert_eq!(chunks.len(), 1);
    let origins: Vec<_> = chunks[0]
        .dead_letters
        .iter()
        .map(|l| l.origin.clone())
        .collect();
    let path = fixture.path().join("a.json").to_str().unwrap().to_owned();
    assert_eq!(
        origins,
        [format!("{path} line 2"), format!("{path} line 3")]
    );
    assert_eq!(chunks[0].dead_letters[1].raw, b"oops");
    let rows = chunks[0].changes.rows();
    assert_eq!(rows.column(2).as_primitive::<Int64Type>().values(), &[1, 2]);
    assert_eq!(rows.column(1).as_string::<i32>().value(1), path);
    let changed = rows
        .column(0)
        .as_primitive::<datafusion::arrow::datatypes::TimestampMicrosecondType>();
    assert_eq!(changed.values(), &[77_000_000, 77_000_000]);
    // Rows are counted without their columns; a value that nobody asks for is not parsed.
    let none = chunks_of(&source, &range, &[]).await.unwrap();
    assert_eq!(
        (none[0].changes.num_rows(), none[0].dead_letters.len()),
        (3, 1)
    );
}

#[tokio::test]
async fn csv_with_header_and_a_pattern() {
    let mut fixture = Fixture::new(&[("format", "csv"), ("header", "true")]);
    fixture.options[0].1.push_str("/day-*/*.csv");
    fixture.put("day-1/a.csv", "name,id\n\"x\ny\",1\n,2\nz,three\n", 1);
    fixture.put("day-2/a.csv", "id,name,more\n3,,q\n", 2);
    fixture.put("other/a.csv", "id\n9\n", 3);
    let source = fixture.open();
    let start = source.initial_offset().await.unwrap();
    let range = plan(&source, 1, &start).await.unwrap();
    assert_eq!(ids(&source, &range).await, [1, 2, 3]);
    let chunks = chunks_of(&source, &range, &[2]).await.unwrap();
    assert_eq!(
        chunks[0]
            .changes
            .rows()
            .column(0)
            .as_string::<i32>()
            .value(0),
        "x\ny"
    );
    assert!(chunks[0].dead_letters.is_empty(), "id was not asked for");
    let chunks = chunks_of(&source, &range, &[0]).await.unwrap();
    assert!(chunks[0].dead_letters[0].origin.ends_with("a.csv line 5"));
}

#[tokio::test]
async fn a_planned_file_that_is_gone_stops_or_is_counted() {
    let mut fixture = Fixture::new(&[("format", "json")]);
    fixture.put("a.json", "{\"id\":1}", 1);
    fixture.put("b.json", "{\"id\":2}", 2);
    let source = fixture.open();
    let start = source.initial_offset().await.unwrap();
    let range = plan(&source, 1, &start).await.unwrap();
    fs::remove_file(fixture.path().join("a.json")).unwrap();
    let error = chunks_of(&source, &range, &[0]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(
        error.primary().contains("a.json")
            && error
                .hint_text()
                .unwrap()
                .contains("ALTER STREAM f SET (ignore_missing_files = true);")
    );
    fixture
        .options
        .push(("ignore_missing_files".into(), "true".into()));
    let lenient = fixture.open();
    assert_eq!(ids(&lenient, &range).await, [2]);
    let chunks = chunks_of(&lenient, &range, &[]).await.unwrap();
    assert!(chunks[0].dead_letters[0].error.contains("gone"));
}

#[tokio::test]
async fn a_file_that_grows_is_read_as_planned_and_told() {
    let mut fixture = Fixture::new(&[("format", "json")]);
    fixture.put("a.json", "{\"id\":1}\n", 1);
    let source = fixture.open();
    let start = source.initial_offset().await.unwrap();
    let range = plan(&source, 1, &start).await.unwrap();
    fixture.put("a.json", "{\"id\":1}\n{\"id\":2}\n", 5);
    assert_eq!(ids(&source, &range).await, [1]);
    assert!(
        source.take_notices()[0]
            .text
            .contains("between planning and reading")
    );
    assert!(plan(&source, 2, &range.end).await.is_none());
    let notices = source.take_notices();
    assert_eq!(notices.len(), 1, "told once, though it was seen twice");
    assert!(
        notices[0].text.contains("a.json")
            && notices[0].text.contains("had 9 bytes and has 18 now")
    );
    assert!(plan(&source, 2, &range.end).await.is_none());
    assert!(source.take_notices().is_empty());
    fixture
        .options
        .push(("on_changed_file".into(), "read_again".into()));
    let again = fixture.open();
    let second = plan(&again, 2, &range.end).await.unwrap();
    assert_eq!(ids(&again, &second).await, [1, 2]);
    assert!(plan(&again, 3, &second.end).await.is_none());
    fixture.put("a.json", "{\"id\":3}\n", 9);
    fixture.options.pop();
    fixture
        .options
        .push(("on_changed_file".into(), "fail".into()));
    let strict = fixture.open();
    assert!(
        strict
            .latest_offset()
            .await
            .unwrap_err()
            .primary()
            .contains("a.json")
    );
}

#[tokio::test]
async fn limits_and_age() {
    let mut fixture = Fixture::new(&[
        ("format", "json"),
        ("max_bytes_per_trigger", "17"),
        ("min_file_age", "10 seconds"),
    ]);
    let clock = ManualClock::at(12_000_000);
    fixture.clock = clock.clone();
    for i in 1..=4 {
        fixture.put(&format!("{i}.json"), format!("{{\"id\":{i}}}"), i);
    }
    let source = fixture.open();
    let start = source.initial_offset().await.unwrap();
    let first = plan(&source, 1, &start).await.unwrap();
    assert_eq!(ids(&source, &first).await, [1, 2]);
    assert!(plan(&source, 2, &first.end).await.is_none());
    clock.advance_us(2_000_000);
    let second = plan(&source, 2, &first.end).await.unwrap();
    assert_eq!(ids(&source, &second).await, [3, 4]);
    assert_eq!(source.backlog(&second.end, &second.end).bytes, Some(0));
}

fn parquet_bytes(ids: std::ops::Range<i64>) -> Vec<u8> {
    let array: Arc<dyn Array> = Arc::new(
        ids.map(Some)
            .collect::<datafusion::arrow::array::Int64Array>(),
    );
    let rows = datafusion::arrow::array::RecordBatch::try_from_iter([("id", array)]).unwrap();
    let mut bytes = Vec::new();
    super::super::formats::encode::write_all(&Format::Parquet, &rows.schema(), &[rows], &mut bytes)
        .unwrap();
    bytes
}

#[tokio::test]
async fn parquet_files_and_broken_ones() {
    let mut fixture = Fixture::new(&[("format", "parquet")]);
    let clock = ManualClock::at(10_000_000);
    fixture.clock = clock.clone();
    let whole = parquet_bytes(0..70_000);
    fixture.put("a.parquet", &whole, 1);
    fixture.put("half.parquet", &whole[..whole.len() / 2], 2);
    fixture.put("b.parquet", parquet_bytes(70_000..70_003), 3);
    let source = fixture.open();
    let start = source.initial_offset().await.unwrap();
    let range = plan(&source, 1, &start).await.unwrap();
    assert!(ids(&source, &range).await.into_iter().eq(0..70_003));
    assert!(
        plan(&source, 2, &range.end).await.is_none(),
        "the half file waits"
    );
    clock.advance_us(100_000_000);
    let latest = source.latest_offset().await.unwrap();
    let error = source
        .plan_range(2, &range.end, &latest, &ReadLimits::default())
        .await
        .unwrap_err();
    assert!(error.primary().contains("half.parquet"));
    fixture.options.push(("on_bad_file".into(), "skip".into()));
    let lenient = fixture.open();
    let second = plan(&lenient, 2, &range.end).await.unwrap();
    let chunks = chunks_of(&lenient, &second, &[0]).await.unwrap();
    assert_eq!(
        (chunks[0].changes.num_rows(), chunks[0].dead_letters.len()),
        (0, 1)
    );
    // Marks at both ends, rubbish between.
    let mut rubbish = whole.clone();
    let middle = rubbish.len() - 40;
    rubbish[4..middle].fill(7);
    fixture.put("c.parquet", rubbish, 4);
    let third = plan(&lenient, 3, &second.end).await.unwrap();
    let chunks = chunks_of(&lenient, &third, &[0]).await.unwrap();
    assert!(chunks.iter().any(|c| !c.dead_letters.is_empty()));
}

#[tokio::test]
async fn the_log_is_compacted_and_still_knows_every_file() {
    let fixture = Fixture::new(&[("format", "json")]);
    let source = fixture.open();
    let mut position = source.initial_offset().await.unwrap();
    let mut ranges = Vec::new();
    for batch_id in 1..=120u64 {
        fixture.put(
            &format!("{batch_id}.json"),
            format!("{{\"id\":{batch_id}}}"),
            batch_id,
        );
        let range = plan(&source, batch_id, &position).await.unwrap();
        position = range.end.clone();
        source.acknowledge(batch_id, &position).await.unwrap();
        ranges.push(range);
    }
    assert!(fixture.log.load_all().await.unwrap().len() < 60);
    let again = fixture.open();
    assert!(plan(&again, 121, &position).await.is_none());
    assert_eq!(ids(&again, &ranges[119]).await, [120]);
    assert_eq!(ids(&again, &ranges[117]).await, [118]);
    let all = SourceRange {
        start: ranges[0].start.clone(),
        end: position,
    };
    assert!(ids(&again, &all).await.into_iter().eq(1..=120));
}

#[tokio::test]
async fn a_missing_folder_may_come_back_and_a_damaged_log_may_not() {
    let fixture = Fixture::new(&[("format", "json")]);
    fixture.put("a.json", "{\"id\":1}", 1);
    let source = fixture.open();
    let lost = FilesOffset {
        files_log: Some(9),
        files: 4,
    };
    let latest = source.latest_offset().await.unwrap();
    let error = source
        .plan_range(10, &lost.to_offset(), &latest, &ReadLimits::default())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.primary().contains("\"f\"") && error.primary().contains("batch 9"));
    assert_eq!(
        error.hint_text(),
        Some("Restore a backup of the checkpoint, or read all files again: RESET CHECKPOINT OF v;")
    );
    fs::remove_dir_all(fixture.path()).unwrap();
    let error = source.latest_offset().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transient);
}

#[test]
fn definitions_are_checked_at_creation() {
    let open = |options: &[(&str, &str)]| {
        let object = object(options);
        let environment = ConnectorEnvironment::new(None, SystemClock::shared());
        let Definition::Stream(stream) = &object.definition else {
            unreachable!()
        };
        FilesSource::open(&object, &stream.options, &environment)
    };
    assert!(
        open(&[("format", "json")])
            .err()
            .unwrap()
            .primary()
            .contains("location")
    );
    assert!(
        open(&[("location", "in")])
            .err()
            .unwrap()
            .primary()
            .contains("format")
    );
    assert!(open(&[("location", "in/*.jsonl")]).is_ok());
    assert!(open(&[("location", "in"), ("format", "text")]).is_err());
    assert!(
        open(&[("location", "nope://x/y"), ("format", "json")])
            .err()
            .unwrap()
            .primary()
            .contains("nope://x/y")
    );
}

#[tokio::test]
async fn a_large_file_is_read_in_segments_and_no_line_is_lost_or_doubled() {
    let fixture = Fixture::new(&[("format", "json")]);
    // Lines of all lengths, so that segments end everywhere in them.
    let mut text = String::new();
    let mut id = 0i64;
    while text.len() < 70 << 20 {
        let name = "x".repeat((id as usize * 7919) % 3001);
        text.push_str(&format!("{{\"id\":{id},\"name\":\"{name}\"}}\n"));
        id += 1;
    }
    text.push_str("broken\n");
    let lines = id + 1;
    fixture.put("large.json", &text, 1);
    let source = fixture.open();
    let start = source.initial_offset().await.unwrap();
    let range = plan(&source, 1, &start).await.unwrap();
    assert!(ids(&source, &range).await.into_iter().eq(0..id));
    let chunks = chunks_of(&source, &range, &[]).await.unwrap();
    let letters: Vec<_> = chunks.iter().flat_map(|c| &c.dead_letters).collect();
    assert_eq!(letters.len(), 1);
    assert!(
        letters[0]
            .origin
            .ends_with(&format!("large.json line {lines}")),
        "{}",
        letters[0].origin
    );
    let bytes: u64 = chunks.iter().map(|c| c.bytes).sum();
    assert_eq!(bytes, text.len() as u64);
}

#[tokio::test]
async fn a_line_that_is_being_written_is_waited_for() {
    let mut fixture = Fixture::new(&[("format", "json"), ("bad_file_wait", "3 seconds")]);
    let clock = ManualClock::at(10_000_000);
    fixture.clock = clock.clone();
    fixture.put("a.json", "{\"id\":4}\n{\"id\":5,\"na", 9);
    fixture.put("b.json", "{\"id\":6}", 10);
    let source = fixture.open();
    let start = source.initial_offset().await.unwrap();
    let first = plan(&source, 1, &start).await.unwrap();
    assert_eq!(ids(&source, &first).await, [6], "a closed value is whole");
    fixture.put("a.json", "{\"id\":4}\n{\"id\":5,\"name\":\"e\"}\n", 10);
    let second = plan(&source, 2, &first.end).await.unwrap();
    assert_eq!(ids(&source, &second).await, [4, 5]);
    assert!(source.take_notices().is_empty());

    fixture.put("c.json", "{\"id\":7}\n{\"id\":", 10);
    fixture.put("empty.json", "", 10);
    assert!(plan(&source, 3, &second.end).await.is_none());
    clock.advance_us(3_000_000);
    let latest = source.latest_offset().await.unwrap();
    let limits = ReadLimits::default();
    let planned = source.plan_range(3, &second.end, &latest, &limits).await;
    let error = planned.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.primary().contains("c.json"));
    assert!(
        error
            .hint_text()
            .unwrap()
            .contains("ALTER STREAM f SET (on_bad_file = 'skip');")
    );
    let notices = source.take_notices();
    assert!(notices.len() == 1 && notices[0].text.contains("empty.json"));
    fixture.options.push(("on_bad_file".into(), "skip".into()));
    let lenient = fixture.open();
    let third = plan(&lenient, 3, &second.end).await.unwrap();
    let chunks = chunks_of(&lenient, &third, &[0]).await.unwrap();
    assert_eq!(chunks[0].dead_letters.len(), 1);
    assert_eq!(ids(&lenient, &third).await, [7]);
}

#[tokio::test]
async fn a_csv_file_without_a_last_newline_is_read_when_it_rests() {
    let mut fixture = Fixture::new(&[("format", "csv")]);
    let clock = ManualClock::at(10_000_000);
    fixture.clock = clock.clone();
    fixture.put("a.csv", "1,x\n2,y", 10);
    let source = fixture.open();
    let start = source.initial_offset().await.unwrap();
    assert!(plan(&source, 1, &start).await.is_none());
    clock.advance_us(60_000_000);
    let range = plan(&source, 1, &start).await.unwrap();
    assert_eq!(ids(&source, &range).await, [1, 2]);
}
