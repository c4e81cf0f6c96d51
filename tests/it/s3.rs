//! Checkpoints on object stores: restart with the local state gone, never a fresh start, and one
//! writer at a time. On S3 here; `azure.rs` does the same on Azure.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use tidemill::checkpoint::{
    Checkpoint, CheckpointLocation, CommitEntry, Expectation, Identity, OffsetEntry, PendingState,
    Resume, ResumePoint,
};
use tidemill::clock::{ClockRef, ManualClock};
use tidemill::connectors::{SourceOffset, SourceRange};
use tidemill::error::{ErrorKind, Result};
use tidemill::state::{Run, RunBuilder};

use crate::harness::{Server, rows, run};
use crate::tools::{Process, free_port, is_there, tools_dir, wait_for_port};

/// A running S3 server with a bucket `tidemill`, and its address; `None`: it cannot be had here.
pub(super) fn start_store() -> Option<(Process, String)> {
    let moto = tools_dir().join("python/bin/moto_server");
    if !is_there(&moto, "the S3 server (moto)") {
        return None;
    }
    let port = free_port();
    let store =
        Process::spawn(Command::new(moto).args(["-H", "127.0.0.1", "-p", &port.to_string()]));
    wait_for_port(port, Duration::from_secs(60));
    let endpoint = format!("http://127.0.0.1:{port}");
    let created = Command::new("curl")
        .args(["-s", "-f", "-X", "PUT", &format!("{endpoint}/tidemill")])
        .status()
        .expect("curl runs");
    assert!(created.success(), "the bucket is created");
    Some((store, endpoint))
}

/// What the library needs to know of the store.
pub(super) fn store_options(endpoint: &str) -> BTreeMap<String, String> {
    let options = [
        ("aws_endpoint_url", endpoint),
        ("aws_access_key_id", "test"),
        ("aws_secret_access_key", "test"),
        ("aws_region", "us-east-1"),
        ("aws_allow_http", "true"),
    ];
    options.map(|(k, v)| (k.to_owned(), v.to_owned())).into()
}

/// How a server finds the store.
pub(super) fn environment(endpoint: &str) -> [(&str, &str); 5] {
    [
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ALLOW_HTTP", "true"),
    ]
}

#[test]
fn a_checkpoint_on_s3_restores_an_emptied_local_state() {
    if let Some((_store, endpoint)) = start_store() {
        restores_an_emptied_local_state("s3://tidemill", &environment(&endpoint));
    }
}

pub(super) fn restores_an_emptied_local_state(base: &str, environment: &[(&str, &str)]) {
    run(async {
        let mut server = Server::start_with(&[], environment);
        server
            .execute(&format!(
                "CREATE STREAM s (k BIGINT, v BIGINT);
                 CREATE MATERIALIZED VIEW sums WITH (checkpoint_location = '{base}/sums') AS
                   SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k"
            ))
            .await;
        for i in 0..5 {
            server
                .execute(&format!(
                    "INSERT INTO s SELECT i % 100, i FROM generate_series({}, {}) AS g(i); FLUSH",
                    i * 1000,
                    i * 1000 + 999
                ))
                .await;
        }
        let client = server.connect().await;
        let mut before = rows(&client, "SELECT * FROM sums").await.expect("readable");
        before.sort();
        assert_eq!(before.len(), 100);
        drop(client);
        server.kill();
        std::fs::remove_dir_all(server.data_dir().join("pipelines"))
            .expect("the local state is deleted");
        server.restart();
        server.wait_for_value("SELECT count(*) FROM streaming_queries WHERE status IN ('running', 'waiting for data', 'waiting for trigger')", "1", Duration::from_secs(30)).await;
        let client = server.connect().await;
        let mut after = rows(&client, "SELECT * FROM sums").await.expect("readable");
        after.sort();
        assert_eq!(before, after);
        server.execute("INSERT INTO s VALUES (7, 1); FLUSH").await;
        assert_eq!(server.value("SELECT n FROM sums WHERE k = 7").await, "51");
    });
}

/// The statements of recovery on a store: damage made by its own requests, mended, equal to the rows.
#[test]
fn a_checkpoint_on_s3_is_mended_reset_and_restored() {
    if let Some((_store, endpoint)) = start_store() {
        is_mended_reset_and_restored(
            "s3://tidemill",
            &environment(&endpoint),
            &store_options(&endpoint),
        );
    }
}

pub(super) fn is_mended_reset_and_restored(
    base: &str,
    environment: &[(&str, &str)],
    options: &BTreeMap<String, String>,
) {
    run(async {
        let mut server = Server::start_with(&[], environment);
        server
            .execute(&format!(
                "CREATE STREAM s (k BIGINT, v BIGINT); INSERT INTO s VALUES (1, 1);
                 CREATE MATERIALIZED VIEW sums WITH (checkpoint_location = '{base}/mended') AS
                   SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k"
            ))
            .await;
        for i in 0..5 {
            let sql = format!("INSERT INTO s VALUES ({i}, {i}), (7, {i}); FLUSH");
            server.execute(&sql).await;
        }
        let expected = server
            .rows("SELECT k, count(*), sum(v) FROM s GROUP BY k ORDER BY k")
            .await;
        let view = "SELECT * FROM sums ORDER BY k";
        assert_eq!(server.rows(view).await, expected);
        let backup = format!("BACKUP CHECKPOINT OF sums TO '{base}/backup'");
        assert_eq!(server.rows(&backup).await[0][1], format!("{base}/backup"));
        let restore = format!("RESTORE CHECKPOINT OF sums FROM '{base}/backup'");
        for (lost, statement) in [
            ("metadata", "REPAIR CHECKPOINT OF sums"),
            ("state/0.manifest", "REBUILD STATE OF sums"),
            ("commits/2", "REPAIR CHECKPOINT OF sums"),
            ("metadata", "RESET CHECKPOINT OF sums FROM EARLIEST"),
            ("metadata", restore.as_str()),
        ] {
            server.terminate();
            CheckpointLocation::store(&format!("{base}/mended"), options)
                .expect("a store")
                .delete(&[lost.to_owned()])
                .await
                .expect("deleted");
            server.restart();
            assert!(
                !server.rows(statement).await.is_empty(),
                "{lost}: {statement}"
            );
            server.execute("FLUSH").await;
            assert_eq!(server.rows(view).await, expected, "{lost}: {statement}");
            for row in server.rows("DIAGNOSE CHECKPOINT OF sums").await {
                assert_eq!(row[6], "NULL", "{lost}: {statement}: {row:?}");
            }
        }
    });
}

/// A pipeline's checkpoint on the store, without the pipeline.
struct Place {
    location: String,
    options: BTreeMap<String, String>,
    clock: ClockRef,
}

impl Place {
    async fn open(&self, catalog_batch: Option<u64>) -> Result<(Checkpoint, Resume)> {
        let identity = Identity {
            pipeline_id: uuid::Uuid::from_u128(7),
            pipeline_name: "p".to_owned(),
            fingerprint: "f".to_owned(),
        };
        let expectation = Expectation {
            catalog_batch,
            cold_batch: None,
        };
        let clock = self.clock.clone();
        CheckpointLocation::open(&self.location, identity, expectation, clock, &self.options).await
    }
}

fn run_of_keys(keys: impl IntoIterator<Item = u64>, value: Option<&[u8]>) -> Run {
    let mut builder = RunBuilder::new();
    for key in keys {
        builder.push(&[1u64.to_be_bytes(), key.to_be_bytes()].concat(), value);
    }
    builder.finish()
}

fn planned(batch_id: u64) -> OffsetEntry {
    let range = SourceRange {
        start: SourceOffset(batch_id.into()),
        end: SourceOffset((batch_id + 1).into()),
    };
    OffsetEntry {
        batch_id,
        batch_at_us: 0,
        watermarks_us: BTreeMap::new(),
        watermark: None,
        view_watermarks: BTreeMap::new(),
        settings: BTreeMap::new(),
        sources: BTreeMap::from([("s".to_owned(), range)]),
    }
}

async fn commit(checkpoint: &Checkpoint, batch_id: u64, run: &Run) -> Result<()> {
    let offsets = planned(batch_id);
    checkpoint.write_offsets(&offsets).await?;
    let ends = offsets
        .sources
        .iter()
        .map(|(s, r)| (s.clone(), r.end.clone()));
    let entry = CommitEntry {
        batch_id,
        next_watermarks_us: BTreeMap::new(),
        watermark: None,
        closed_until: None,
        view_watermarks: BTreeMap::new(),
        event_time_max_us: BTreeMap::new(),
        source_offsets: ends.collect(),
        initial_offsets: BTreeMap::new(),
        sinks: BTreeSet::new(),
        views: BTreeMap::new(),
        metrics: Vec::new(),
    };
    let state = PendingState::encode(batch_id, run);
    checkpoint.commit_batch(Some(&state), &entry).await
}

/// Keys of the state at a batch.
async fn keys_at(checkpoint: &Checkpoint, batch_id: u64) -> BTreeSet<Vec<u8>> {
    let mut loader = checkpoint.load_runs_after(None, batch_id);
    let mut keys = BTreeSet::new();
    while let Some(loaded) = loader.next().await.expect("the run can be read") {
        for index in 0..loaded.run.len() {
            let key = loaded.run.key(index).to_vec();
            match loaded.run.value(index) {
                Some(_) => keys.insert(key),
                None => keys.remove(&key),
            };
        }
    }
    keys
}

fn point(resume: Resume) -> ResumePoint {
    match resume {
        Resume::At(point) => *point,
        Resume::Fresh => panic!("there were batches"),
    }
}

#[test]
fn a_checkpoint_on_s3_is_fenced_retained_and_resumed() {
    if let Some((_store, endpoint)) = start_store() {
        is_fenced_retained_and_resumed("s3://tidemill", store_options(&endpoint));
    }
}

pub(super) fn is_fenced_retained_and_resumed(base: &str, options: BTreeMap<String, String>) {
    let clock = ManualClock::at(1_000_000);
    let place = Place {
        location: format!("{base}/fencing"),
        options,
        clock: clock.clone(),
    };
    run(async {
        let (first, resume) = place.open(None).await.expect("it opens");
        assert_eq!(resume, Resume::Fresh);
        for batch_id in 0..25 {
            let changes = run_of_keys([batch_id, 100], Some(b"v"));
            commit(&first, batch_id, &changes)
                .await
                .expect("it commits");
            first.retain(4, None, || false).await.expect("it forgets");
        }
        first
            .write_offsets(&planned(25))
            .await
            .expect("it is planned");
        let error = place.open(Some(24)).await.expect_err("it is in use");
        assert_eq!(error.sqlstate(), "55006");
        clock.advance_us(31_000_000);
        let (second, resume) = place.open(Some(24)).await.expect("the lease has run out");
        let resumed = point(resume);
        assert_eq!(resumed.last_commit.expect("a commit").batch_id, 24);
        assert_eq!(resumed.replay, [planned(25)]);
        assert_eq!(keys_at(&second, 24).await.len(), 26);
        let fenced = commit(&first, 25, &Run::default()).await;
        assert_eq!(fenced.expect_err("it is fenced").kind(), ErrorKind::Fenced);
        let changes = run_of_keys([7], None);
        commit(&second, 25, &changes).await.expect("it commits");
        second.renew_lease().await.expect("it is ours");
        drop(second);
        let (third, _) = place.open(Some(25)).await.expect("its holder is gone");
        assert_eq!(keys_at(&third, 25).await.len(), 25);
        assert!(third.stats().files < 40, "{:?}", third.stats());
        third.archive().await.expect("it is archived");
        let (_, resume) = place.open(None).await.expect("it is empty");
        assert_eq!(resume, Resume::Fresh);
    });
}
