//! Drills: faults on a copy, while production runs on.

use super::sources::Files;
use super::{Pair, error_of};
use crate::harness::run;

const FAULTS: [&str; 10] = [
    "missing_commit",
    "corrupt_offsets",
    "corrupt_metadata",
    "corrupt_state",
    "lost_state",
    "full_reset",
    "source_outage",
    "kill",
    "out_of_memory",
    "schema_change",
];

#[test]
fn every_drill_passes_and_touches_nothing() {
    run(async {
        let mut pair = Pair::start().await;
        // Runs may still be merged until then.
        pair.server.execute("STOP PIPELINE v").await;
        let before = files(&pair.checkpoint());
        let rows = pair.server.rows("RUN RECOVERY DRILL ON v").await;
        let faults: Vec<&str> = rows.iter().map(|row| row[1].as_str()).collect();
        assert_eq!(faults, FAULTS);
        for row in &rows {
            assert_eq!(row[2], "passed", "{row:?}");
            assert!(row[6].parse::<u64>().expect("a count") >= 5, "{row:?}");
        }
        let run = |fault: &str| {
            let row = rows.iter().find(|row| row[1] == fault);
            row.expect("the fault")[4].clone()
        };
        assert_eq!(run("corrupt_metadata"), "REPAIR CHECKPOINT OF v;");
        assert_eq!(run("lost_state"), "REBUILD STATE OF v;");
        assert_eq!(run("full_reset"), "REBUILD STATE OF v;");
        assert_eq!(run("schema_change"), "REBUILD STATE OF v;");
        assert_eq!(files(&pair.checkpoint()), before, "production is untouched");
        pair.server.execute("START PIPELINE v").await;
        let told = "SELECT fault, verdict FROM streaming_recovery_drills WHERE pipeline = 'v'";
        assert_eq!(pair.server.rows(told).await.len(), FAULTS.len());
        // While it runs, by the name of a view.
        let one = "RUN RECOVERY DRILL ON MATERIALIZED VIEW v WITH (fault = 'lost_state, kill')";
        let rows = pair.server.rows(one).await;
        assert!(rows.iter().all(|row| row[2] == "passed"), "{rows:?}");
        let client = pair.server.connect().await;
        let error = error_of(&client, "RUN RECOVERY DRILL ON v WITH (fault = 'flood')").await;
        assert_eq!(error.code().code(), "22023");
        let left = std::fs::read_dir(pair.server.data_dir().join("verification"));
        assert_eq!(left.map_or(0, Iterator::count), 0, "the copies are gone");
        pair.assert_equal_twin().await;
    });
}

/// Rows from files, and a sink: nothing is delivered by a drill.
#[test]
fn a_pipeline_with_a_sink_is_drilled() {
    run(async {
        let files = Files::start().await;
        let before = files.delivered();
        for row in files.server.rows("RUN RECOVERY DRILL ON out").await {
            assert_eq!(row[2], "passed", "{row:?}");
        }
        assert_eq!(files.delivered(), before);
        files.write(5);
        files.wait_for_rows(18).await;
    });
}

/// Names and contents of all files but the lease.
fn files(folder: &std::path::Path) -> std::collections::BTreeMap<std::path::PathBuf, Vec<u8>> {
    let mut found = std::collections::BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if !path
                .file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with("lease"))
            {
                let bytes = std::fs::read(&path).expect("a file");
                found.insert(path, bytes);
            }
        }
    }
    found
}
