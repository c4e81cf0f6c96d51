//! Deliveries, repeated deliveries, and modes.

use std::sync::Arc;

use datafusion::arrow::array::{Int64Array, StringArray};
use parking_lot::Mutex;

use super::*;
use crate::catalog::definition::{OptionValue, Options};
use crate::connectors::settings::SecretLookup;
use crate::connectors::{Delivery, Sink};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Utf8, true),
    ]))
}

fn change(rows: &[(Option<i64>, Option<&str>, i64)]) -> ChangeBatch {
    let k: Int64Array = rows.iter().map(|r| r.0).collect();
    let v: StringArray = rows.iter().map(|r| r.1).collect();
    let batch = RecordBatch::try_new(schema(), vec![Arc::new(k), Arc::new(v)]).unwrap();
    if rows.iter().all(|r| r.2 == 1) {
        return ChangeBatch::inserts(batch);
    }
    let weights: Int64Array = rows.iter().map(|r| Some(r.2)).collect();
    ChangeBatch::weighted(batch, weights)
}

fn delivery(batch_id: u64, replayed: bool) -> Delivery {
    Delivery {
        pipeline_id: uuid::Uuid::nil(),
        batch_id,
        replayed,
    }
}

fn options(list: &[(&str, &str)]) -> Options {
    list.iter()
        .map(|(k, v)| ((*k).to_owned(), OptionValue::Text((*v).to_owned())))
        .collect()
}

fn input(append_only: Option<bool>, key: &[usize]) -> SinkInput {
    SinkInput {
        schema: schema(),
        append_only,
        key: key.to_vec(),
    }
}

fn open(list: &[(&str, &str)], input: SinkInput) -> Result<FilesSink> {
    let lookup: SecretLookup = Arc::new(|_| None);
    let options = options(list);
    FilesSink::open("k\"1", &Settings::new("k\"1", &options, &lookup), input)
}

fn files_in(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_file_per_batch_and_the_same_again() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("new/out");
    let location = target.to_str().unwrap();
    let sink = open(
        &[
            ("location", location),
            ("format", "csv"),
            ("header", "true"),
        ],
        input(None, &[]),
    )
    .unwrap();
    let rows = [
        change(&[(Some(1), Some("a,b"), 2), (None, Some(""), 1)]),
        change(&[(Some(2), None, 1)]),
    ];
    let receipt = sink.deliver(&delivery(7, false), &rows).await.unwrap();
    assert_eq!(receipt.rows, 4);
    sink.deliver(&delivery(8, false), &[change(&[])])
        .await
        .unwrap();
    let again = sink.deliver(&delivery(7, true), &rows).await.unwrap();
    assert_eq!(again, receipt);
    let name = format!("k_1-{}-000000000007.csv", uuid::Uuid::nil());
    assert_eq!(files_in(&target), std::slice::from_ref(&name));
    let text = std::fs::read_to_string(target.join(name)).unwrap();
    // Run again without what it had, as far as that goes: only its own delivery is gone.
    sink.deliver(&delivery(6, true), &[]).await.unwrap();
    assert_eq!(files_in(&target).len(), 1);
    sink.deliver(&delivery(7, true), &[change(&[])])
        .await
        .unwrap();
    assert!(files_in(&target).is_empty());
    assert_eq!(text, "k,v\n1,\"a,b\"\n1,\"a,b\"\n,\"\"\n2,\n");
    assert_eq!(receipt.bytes, text.len() as u64);
}

#[tokio::test]
async fn append_refuses_deletes_and_changelog_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let location = folder.path().to_str().unwrap();
    let rows = [change(&[
        (Some(1), Some("old"), -1),
        (Some(1), Some("new"), 1),
        (Some(3), None, -1),
    ])];
    let base = [("location", location), ("format", "json")];
    let error = open(
        &[base[0], base[1], ("mode", "append")],
        input(Some(false), &[]),
    )
    .unwrap_err();
    assert!(error.hint_text().unwrap().contains("changelog"));
    let sink = open(&base, input(None, &[])).unwrap();
    let error = sink.deliver(&delivery(1, false), &rows).await.unwrap_err();
    assert_eq!(error.sqlstate(), sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert!(files_in(folder.path()).is_empty());

    let sink = open(&base, input(Some(false), &[0])).unwrap();
    sink.deliver(&delivery(2, false), &rows).await.unwrap();
    let names = files_in(folder.path());
    let text = std::fs::read_to_string(folder.path().join(&names[0])).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            r#"{"batch_id":2,"change_kind":"update_before","k":1,"v":"old"}"#,
            r#"{"batch_id":2,"change_kind":"update_after","k":1,"v":"new"}"#,
            r#"{"batch_id":2,"change_kind":"delete","k":3,"v":null}"#,
        ]
    );
    let error = open(&[base[0], base[1], ("mode", "complete")], input(None, &[])).unwrap_err();
    assert_eq!(error.sqlstate(), sqlstate::FEATURE_NOT_SUPPORTED);
}

#[test]
fn mistakes_are_refused_at_creation() {
    assert!(
        open(&[("format", "json")], input(None, &[]))
            .unwrap_err()
            .primary()
            .contains("location")
    );
    assert!(
        open(
            &[("location", "out/*"), ("format", "json")],
            input(None, &[])
        )
        .is_err()
    );
    assert!(open(&[("location", "out"), ("format", "text")], input(None, &[])).is_err());
    let named = SinkInput::from(Arc::new(Schema::new(vec![Field::new(
        "batch_id",
        DataType::Int64,
        true,
    )])) as SchemaRef);
    let error = open(&[("location", "out"), ("mode", "changelog")], named).unwrap_err();
    assert_eq!(error.sqlstate(), sqlstate::DUPLICATE_COLUMN);
}

#[tokio::test]
async fn an_object_store_gets_the_same_file() {
    // The store's in-memory form knows no rename, like the real ones.
    let sink = open(
        &[("location", "memory:///out"), ("format", "json")],
        input(Some(true), &[]),
    )
    .unwrap();
    let rows = [change(&[(Some(1), Some("a"), 1)])];
    let receipt = sink.deliver(&delivery(1, false), &rows).await.unwrap();
    assert_eq!(receipt.rows, 1);
    assert_eq!(
        sink.deliver(&delivery(1, true), &rows).await.unwrap(),
        receipt
    );
}

#[tokio::test]
async fn console_and_blackhole() {
    let out: Arc<Mutex<Vec<u8>>> = Arc::default();
    let lookup: SecretLookup = Arc::new(|_| None);
    let options = options(&[("num_rows", "2")]);
    let settings = Settings::new("c", &options, &lookup);
    let sink = ConsoleSink::open("c", &settings, input(None, &[0]), out.clone()).unwrap();
    let rows = [change(&[
        (Some(1), Some("a"), -1),
        (Some(1), Some("b"), 1),
        (Some(2), None, 1),
    ])];
    sink.deliver(&delivery(3, true), &rows).await.unwrap();
    sink.deliver(&delivery(4, false), &[]).await.unwrap();
    let text = String::from_utf8(out.lock().clone()).unwrap();
    assert!(
        text.starts_with("-- sink c, batch 3: 3 changes (replayed)\n"),
        "{text}"
    );
    assert!(
        text.contains("| update_before | 1 | a |") && text.contains("| update_after  | 1 | b |"),
        "{text}"
    );
    assert!(text.ends_with("-- and 1 more\n"));

    let sink = BlackholeSink::new("b");
    sink.deliver(&delivery(1, false), &rows).await.unwrap();
    assert_eq!(sink.rows(), 3);
}
