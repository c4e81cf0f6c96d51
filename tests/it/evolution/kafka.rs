//! The modes over a real Kafka.

use super::{WITHIN, added, columns_of, counted, wait_for_failure, wait_for_rows};
use crate::harness::{Server, run};
use crate::kafka::Broker;

async fn create(server: &Server, broker: &Broker, mode: &str) {
    server
        .execute(&format!(
            "CREATE STREAM f (k BIGINT, v BIGINT, o BIGINT METADATA FROM 'offset')
               WITH (connector = 'kafka', brokers = '{}', topic = '{mode}', format = 'json', schema_evolution = '{mode}');
             CREATE MATERIALIZED VIEW kept WITH (trigger = '20 milliseconds') AS SELECT * FROM f",
            broker.address()
        ))
        .await;
}

#[test]
fn messages_with_new_fields_stop_are_rescued_or_give_columns() {
    let Some(broker) = Broker::start() else {
        return;
    };
    run(async {
        let first = [r#"{"k": 1, "v": 1}"#, r#"{"k": 2, "v": 2, "o": 7}"#];
        let then = [
            r#"{"k": 3, "x": 5}"#,
            r#"{"k": 4, "v": "no", "x": 5.5}"#,
            r#"{"k": 5}"#,
        ];
        let messages = |of: &'static [&'static str]| of.iter().map(|m| (1, (*m).to_owned()));
        for mode in ["fail", "add_new_columns", "rescue"] {
            broker.create_topic(mode, 2).await;
            broker.produce(mode, messages(first.to_vec().leak()));
            let mut server = Server::start();
            create(&server, &broker, mode).await;
            wait_for_rows(&server, "kept", 2).await;
            broker.produce(mode, messages(then.to_vec().leak()));
            match mode {
                "fail" => {
                    let (error, hint) = wait_for_failure(&server, "kept").await;
                    assert!(
                        error.contains("field \"x\" in topic fail partition 1 offset 2"),
                        "{error}"
                    );
                    server.kill();
                    server.restart();
                    wait_for_failure(&server, "kept").await;
                    let alter = hint.split_inclusive(';').next().expect("a statement");
                    server.execute(alter).await;
                    wait_for_rows(&server, "kept", 4).await;
                }
                "rescue" => {
                    wait_for_rows(&server, "kept", 5).await;
                    assert_eq!(
                        server.rows("SELECT _rescued_data FROM f WHERE _rescued_data IS NOT NULL ORDER BY k").await,
                        [[r#"{"o": 7}"#], [r#"{"x": 5}"#], [r#"{"v": "no", "x": 5.5}"#]]
                    );
                    server.execute("FLUSH").await;
                    assert_eq!(counted(&server, "kept", "num_rows_rescued").await, "3");
                }
                _ => {
                    wait_for_rows(&server, "kept", 4).await;
                    server.kill();
                    server.restart();
                    assert_eq!(added(&server, "f").await, ["x"]);
                }
            }
            if mode != "rescue" {
                assert_eq!(
                    columns_of(&server, "f").await,
                    ["k bigint", "v bigint", "o bigint", "x bigint"]
                );
                server
                    .execute("CREATE MATERIALIZED VIEW wide AS SELECT k, x FROM f")
                    .await;
                wait_for_rows(&server, "wide", 4).await;
                let value = "SELECT x::text FROM wide WHERE k = 3";
                server.wait_for_value(value, "5", WITHIN).await;
                assert_eq!(counted(&server, "kept", "num_dead_letter_rows").await, "1");
            }
        }
    });
}
