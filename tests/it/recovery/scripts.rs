//! The scripts of `sql/recovery` run as they stand, and leave the view as it was.

use super::Pair;
use crate::harness::{describe, run};

#[test]
fn the_scripts_run_as_they_stand() {
    run(async {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("sql/recovery");
        let mut scripts: Vec<_> = std::fs::read_dir(folder)
            .expect("the scripts")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        scripts.sort();
        assert!(scripts.len() >= 5, "{scripts:?}");
        for script in scripts {
            let text = std::fs::read_to_string(&script).expect("a script");
            let name = script.display().to_string();
            let mut pair = Pair::start().await;
            let client = pair.server.connect().await;
            // One by one: none of them may run inside the block that a text of several makes.
            for statement in text.split(";\n").flat_map(|part| part.split(";  ")) {
                let lines = statement
                    .lines()
                    .filter(|line| !line.trim_start().starts_with("--"));
                let statement = lines.collect::<Vec<_>>().join("\n");
                if statement.trim().is_empty() {
                    continue;
                }
                let answer = client.simple_query(&statement).await;
                answer.unwrap_or_else(|e| panic!("{name}: {statement}: {}", describe(&e)));
            }
            pair.assert_equal_twin().await;
            let failed = "SELECT count(*) FROM streaming_recovery_drills WHERE verdict <> 'passed'";
            assert_eq!(pair.server.value(failed).await, "0");
        }
    });
}
