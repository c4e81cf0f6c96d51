//! Tests of the history store.

use super::*;
use crate::clock::ManualClock;

const DAY_US: i64 = 24 * 3600 * 1_000_000;

fn row(view: &str, batch_id: u64, started_at_us: i64) -> MetricsRow {
    MetricsRow {
        stream_name: view.to_owned(),
        pipeline: "p".to_owned(),
        batch_id,
        batch_started_at: started_at_us,
        num_input_rows: batch_id * 10,
        ..MetricsRow::default()
    }
}

fn named(name: &str, limit: Option<usize>) -> HistoryFilter {
    HistoryFilter {
        name: Some(name.to_owned()),
        limit,
    }
}

#[test]
fn metrics_are_idempotent_ordered_and_apart_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let history = History::open(dir.path(), ManualClock::at(0)).unwrap();
    // Batch 256 sorts after 3 only if the key is big endian; "v" is a prefix of "v2".
    let rows: Vec<_> = [3, 256, 1].map(|b| row("v", b, 5)).to_vec();
    history.record_metrics(&rows).unwrap();
    history.record_metrics(&[row("v2", 9, 5)]).unwrap();
    let json: Vec<_> = rows
        .iter()
        .map(|r| serde_json::to_value(r).unwrap())
        .collect();
    history.record_metrics_json(&json).unwrap();
    let batches = |rows: Vec<MetricsRow>| -> Vec<u64> { rows.iter().map(|r| r.batch_id).collect() };
    let read = |filter: &HistoryFilter| batches(history.metrics(filter).unwrap());
    assert_eq!(read(&named("v", None)), [1, 3, 256]);
    assert_eq!(read(&named("v", Some(2))), [3, 256]);
    assert_eq!(read(&HistoryFilter::default()), [1, 3, 256, 9]);
    history.forget("v").unwrap();
    assert_eq!(read(&HistoryFilter::default()), [9]);
}

#[test]
fn retention_deletes_what_is_older_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let history = History::open(dir.path(), ManualClock::at(10 * DAY_US)).unwrap();
    let rows: Vec<_> = (0..10)
        .map(|day| row("v", day, day as i64 * DAY_US))
        .collect();
    history.record_metrics(&rows).unwrap();
    history
        .record_metrics(&[row("gone", 0, 4 * DAY_US)])
        .unwrap();
    let days = |name: &str| if name == "gone" { 1 } else { 7 };
    history.apply_retention(|name| days(name) * DAY_US).unwrap();
    let left = history.metrics(&HistoryFilter::default()).unwrap();
    let left: Vec<_> = left
        .iter()
        .map(|r| (r.stream_name.as_str(), r.batch_id))
        .collect();
    assert_eq!(left, (3..10).map(|b| ("v", b)).collect::<Vec<_>>());
}

#[test]
fn events_are_ordered_by_time_and_filtered_by_object() {
    let dir = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(300);
    let history = History::open(dir.path(), clock.clone()).unwrap();
    history
        .record_event("started", "a", Some(1), serde_json::json!({"x": 1}))
        .unwrap();
    clock.advance_us(-100);
    history
        .record_event("created", "a", None, serde_json::Value::Null)
        .unwrap();
    history
        .record_event("created", "b", None, serde_json::Value::Null)
        .unwrap();
    let kinds: Vec<_> = history
        .events(&named("a", None))
        .unwrap()
        .into_iter()
        .map(|e| e.kind)
        .collect();
    assert_eq!(kinds, ["created", "started"]);
    assert_eq!(
        history.events(&named("a", Some(1))).unwrap()[0].kind,
        "started"
    );
}

#[test]
fn batch_numbers_belong_to_a_pipeline_and_its_identity() {
    let dir = tempfile::tempdir().unwrap();
    let history = History::open(dir.path(), ManualClock::at(0)).unwrap();
    let (old, new) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
    history.put_known_batch("p", old, 300).unwrap();
    history.put_last_metrics_batch("p", 7).unwrap();
    history.put_last_metrics_batch("p2", 9).unwrap();
    assert_eq!(history.known_batch("p", old).unwrap(), Some(300));
    assert_eq!(history.known_batch("p", new).unwrap(), None);
    history.forget_pipeline("p").unwrap();
    assert_eq!(history.known_batch("p", old).unwrap(), None);
    assert_eq!(history.last_metrics_batch("p").unwrap(), None);
    assert_eq!(history.last_metrics_batch("p2").unwrap(), Some(9));
}

#[test]
fn the_engines_json_becomes_exact_milliseconds() {
    let value = serde_json::json!({
        "stream_name": "v", "pipeline": "p", "batch_id": 4, "batch_started_at": 17,
        "add_batch_ms": "1234.005", "num_input_rows": 3, "watermark_at": null, "replayed": true,
    });
    let row: MetricsRow = serde_json::from_value(value).unwrap();
    assert_eq!(row.add_batch_ms.us, 1_234_005);
    assert_eq!(
        serde_json::to_value(&row).unwrap()["add_batch_ms"],
        "1234.005"
    );
    let bad = serde_json::json!({ "add_batch_ms": "12.5" });
    assert!(serde_json::from_value::<MetricsRow>(bad).is_err());
}

#[test]
fn a_damaged_store_is_set_aside_and_told_of() {
    let data = tempfile::tempdir().unwrap();
    let dir = data.path().join("history");
    let damages: [fn(&Path); 3] = [
        |dir| std::fs::remove_file(dir.join("CURRENT")).unwrap(),
        |dir| std::fs::write(dir.join("CURRENT"), "MANIFEST-999999\n").unwrap(),
        |dir| {
            for file in std::fs::read_dir(dir).unwrap() {
                let path = file.unwrap().path();
                if path.to_string_lossy().contains("MANIFEST") {
                    let mut bytes = std::fs::read(&path).unwrap();
                    bytes[9] ^= 0x40;
                    std::fs::write(&path, bytes).unwrap();
                }
            }
        },
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let history = History::open(&dir, ManualClock::at(0)).unwrap();
        history.record_metrics(&[row("v", 1, 5)]).unwrap();
        drop(history);
        damage(&dir);
        // The same time again and again: the names must differ all the same.
        let history = History::open(&dir, ManualClock::at(0)).unwrap();
        let events = history.events(&named("history", None)).unwrap();
        assert_eq!(events.len(), 1, "damage {number}");
        let aside = events[0].detail["set_aside"].as_str().unwrap();
        assert!(
            aside.contains("history.damaged-19700101T000000Z"),
            "{aside}"
        );
        assert!(Path::new(aside).is_dir(), "{aside}");
        assert!(history.metrics(&named("v", None)).unwrap().is_empty());
    }
    assert_eq!(std::fs::read_dir(data.path()).unwrap().count(), 4);
}
