//! The files source and sink over real folders, through kills.

use std::time::Duration;

use crate::harness::{Server, rows, run};

#[test]
fn new_files_are_taken_once_bad_lines_are_kept_aside_and_the_sink_is_whole() {
    run(async {
        let mut server = Server::start();
        let dir = server.dir().join("in");
        std::fs::create_dir(&dir).expect("a folder");
        let write = |name: &str, text: &str| {
            let temporary = dir.join(format!(".{name}.tmp"));
            std::fs::write(&temporary, text).expect("written");
            std::fs::rename(temporary, dir.join(name)).expect("renamed");
        };
        write("a.json", "{\"id\": 1, \"v\": 10}\n{\"id\": 2, \"v\": 20}\n");
        server
            .execute(
                "CREATE STREAM f (id BIGINT, v BIGINT, file TEXT METADATA FROM 'file_path')
                   WITH (connector = 'files', location = 'in', format = 'json', max_files_per_trigger = 1);
                 CREATE MATERIALIZED VIEW sums WITH (trigger = '20 milliseconds') AS SELECT count(*) AS n, sum(v) AS total FROM f;
                 CREATE MATERIALIZED VIEW kept WITH (trigger = '20 milliseconds') AS SELECT id, v FROM f WHERE v > 5;
                 CREATE SINK out FROM kept WITH (connector = 'files', location = 'out', format = 'csv', mode = 'append')",
            )
            .await;
        let within = Duration::from_secs(10);
        server
            .wait_for_value("SELECT n FROM sums", "2", within)
            .await;
        write(
            "b.json",
            "{\"id\": 3, \"v\": 30}\nnot json\n{\"id\": 9, \"v\": \"x\"}\n{\"id\": 4, \"v\": null}",
        );
        write("c.json", "");
        server
            .wait_for_value("SELECT n FROM sums", "4", within)
            .await;
        assert_ne!(
            server
                .value("SELECT count(*) FROM streaming_dead_letters WHERE stream_name = 'f'")
                .await,
            "0"
        );
        for i in 0..10 {
            write(
                &format!("d{i}.json"),
                &format!("{{\"id\": {}, \"v\": {}}}\n", 10 + i, 100 + i),
            );
            if i % 3 == 0 {
                server.kill();
                server.restart();
            }
        }
        server
            .wait_for_value("SELECT n FROM sums", "14", within)
            .await;
        assert_eq!(
            server.value("SELECT total FROM sums").await,
            (60 + 1045).to_string()
        );
        server
            .wait_for_value("SELECT count(*) FROM kept", "13", within)
            .await;
        server.execute("FLUSH").await;
        let mut delivered: Vec<String> = Vec::new();
        for file in std::fs::read_dir(server.dir().join("out")).expect("the sink's folder") {
            let path = file.expect("readable").path();
            if path.extension().is_some_and(|e| e == "csv") {
                let text = std::fs::read_to_string(path).expect("readable");
                delivered.extend(
                    text.lines()
                        .filter(|l| !l.starts_with("id"))
                        .map(str::to_owned),
                );
            }
        }
        delivered.sort();
        let client = server.connect().await;
        let mut kept: Vec<String> = rows(&client, "SELECT id, v FROM kept")
            .await
            .expect("readable")
            .iter()
            .map(|r| r.join(","))
            .collect();
        kept.sort();
        assert_eq!(delivered, kept);
    });
}
