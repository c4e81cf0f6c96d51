//! `tidemill checkpoint`: the same without a server.

use std::path::Path;
use std::process::{Command, Output};

use super::{Pair, archived, newest};
use crate::harness::run;

fn tool(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidemill"))
        .arg("checkpoint")
        .args(arguments)
        .output()
        .expect("the tool runs")
}

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn a_checkpoint_is_told_mended_and_restored_without_a_server() {
    run(async {
        let mut pair = Pair::start().await;
        let checkpoint = pair.checkpoint();
        let location = checkpoint.to_str().expect("a path").to_owned();
        // A pipeline that runs is looked at, and not touched.
        let told = tool(&["diagnose", &location]);
        assert!(told.status.success(), "{}", said(&told));
        let refused = tool(&["repair", &location]);
        assert!(said(&refused).contains("55006"), "{}", said(&refused));
        pair.server.terminate();
        std::fs::remove_file(checkpoint.join("metadata")).expect("removed");
        std::fs::write(checkpoint.join("offsets/4"), "").expect("written");
        let told = tool(&["diagnose", &location]);
        assert!(!told.status.success(), "{}", said(&told));
        assert!(
            said(&told).contains("REPAIR CHECKPOINT OF v;"),
            "{}",
            said(&told)
        );
        let dry = tool(&["repair", "--dry-run", &location]);
        assert!(said(&dry).contains("written anew"), "{}", said(&dry));
        assert!(!checkpoint.join("metadata").exists());
        let mended = tool(&["repair", &location]);
        assert!(mended.status.success(), "{}", said(&mended));
        assert!(tool(&["diagnose", &location]).status.success());
        let copy = checkpoint.with_file_name("copy");
        let copy = copy.to_str().expect("a path");
        let backup = tool(&["backup", &location, copy]);
        assert!(backup.status.success(), "{}", said(&backup));
        pair.server.restart();
        pair.assert_equal_twin().await;
        pair.server.terminate();
        // Lost, and put back: it is older than the catalog knows, and accepted by the statement named.
        std::fs::remove_dir_all(&checkpoint).expect("removed");
        let restored = tool(&["restore", &location, copy]);
        assert!(restored.status.success(), "{}", said(&restored));
        pair.server.restart();
        let run = super::follow::follow(&pair.server, "v", "restored offline").await;
        assert!(run[0].starts_with("RESTORE CHECKPOINT OF v"), "{run:?}");
        pair.assert_equal_twin().await;
        pair.server.terminate();
        let last = newest(&checkpoint.join("commits"));
        let reset = tool(&["reset", &location]);
        assert!(reset.status.success(), "{}", said(&reset));
        assert_eq!(archived(&checkpoint, &format!("commits/{last}")), 1);
        pair.server.restart();
        pair.assert_equal_twin().await;
        let nothing = tool(&["diagnose", "/nowhere/at/all"]);
        assert!(!nothing.status.success());
        assert!(!Path::new("/nowhere").exists());
    });
}
