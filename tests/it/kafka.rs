//! A real Kafka broker (KRaft, one node): exact offsets, kills of the server, the broker away and back.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};

use crate::harness::{Server, run};
use crate::tools::{Process, free_port, is_there, tools_dir, wait_for_port};

pub(crate) struct Broker {
    dir: tempfile::TempDir,
    jars: PathBuf,
    port: u16,
    /// The door that asks for a password.
    secured_port: u16,
    process: Option<Process>,
}

impl Broker {
    /// A running broker; `None`: it cannot be had here.
    pub(crate) fn start() -> Option<Self> {
        let jars = tools_dir().join("kafka/jars");
        if !is_there(&jars, "Kafka") {
            return None;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let (port, controller, secured_port) = (free_port(), free_port(), free_port());
        let properties = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SECURED://127.0.0.1:{secured_port}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port},SECURED://127.0.0.1:{secured_port}\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURED:SASL_PLAINTEXT\n\
             listener.name.secured.sasl.enabled.mechanisms=PLAIN\n\
             listener.name.secured.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_reader=\"right\";\n\
             offsets.topic.replication.factor=1\nlog.dirs={}\n",
            dir.path().join("log").display()
        );
        std::fs::write(dir.path().join("server.properties"), properties).expect("written");
        let mut broker = Self {
            dir,
            jars,
            port,
            secured_port,
            process: None,
        };
        let status = broker
            .java("kafka.tools.StorageTool")
            .args(["format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c"])
            .arg(broker.dir.path().join("server.properties"))
            .stdout(std::process::Stdio::null())
            .status()
            .expect("java runs");
        assert!(status.success(), "formatting Kafka's storage: {status}");
        broker.restart();
        Some(broker)
    }

    fn java(&self, class: &str) -> Command {
        let mut command = Command::new("java");
        command
            .arg("-Xmx512m")
            .arg("-cp")
            .arg(self.jars.join("*"))
            .arg(class);
        command
    }

    pub(super) fn restart(&mut self) {
        let mut command = self.java("kafka.Kafka");
        command.arg(self.dir.path().join("server.properties"));
        self.process = Some(Process::spawn(&mut command));
        wait_for_port(self.port, Duration::from_secs(60));
    }

    pub(super) fn stop(&mut self) {
        self.process = None;
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Of the door that asks for the password `right` of `reader`.
    pub(super) fn secured_address(&self) -> String {
        format!("127.0.0.1:{}", self.secured_port)
    }

    /// It holds its connections and answers nothing.
    pub(super) fn pause(&self) {
        self.signal(libc::SIGSTOP);
    }

    /// It answers again.
    pub(super) fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&self, signal: libc::c_int) {
        self.process.as_ref().expect("it runs").signal(signal);
    }

    fn admin(&self) -> AdminClient<DefaultClientContext> {
        ClientConfig::new()
            .set("bootstrap.servers", self.address())
            .create()
            .expect("a client")
    }

    /// Deletes a topic and makes one of the same name.
    pub(super) async fn recreate_topic(&self, topic: &str, partitions: i32) {
        self.delete_topic(topic).await;
        self.create_topic(topic, partitions).await;
    }

    pub(super) async fn delete_topic(&self, topic: &str) {
        let gone = self
            .admin()
            .delete_topics(&[topic], &AdminOptions::new())
            .await
            .expect("an answer");
        gone.into_iter().for_each(|r| {
            r.expect("the topic is deleted");
        });
        // The broker lets go of the name a moment later.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    pub(super) async fn add_partitions(&self, topic: &str, partitions: usize) {
        let more = NewPartitions::new(topic, partitions);
        let added = self
            .admin()
            .create_partitions([&more], &AdminOptions::new())
            .await
            .expect("an answer");
        added.into_iter().for_each(|r| {
            r.expect("partitions are added");
        });
    }

    /// The offset that a partition's next message gets.
    pub(super) async fn end(&self, topic: &str, partition: i32) -> i64 {
        let (topic, config) = (topic.to_owned(), self.address());
        tokio::task::spawn_blocking(move || {
            let consumer: BaseConsumer = ClientConfig::new()
                .set("bootstrap.servers", config)
                .create()
                .expect("a consumer");
            let marks = consumer.fetch_watermarks(&topic, partition, Duration::from_secs(30));
            marks.expect("watermarks").1
        })
        .await
        .expect("an answer")
    }

    /// Deletes what lies before an offset of partition 0, as retention does.
    pub(super) async fn delete_before(&self, topic: &str, offset: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, 0, Offset::Offset(offset))
            .expect("an offset");
        self.admin()
            .delete_records(&list, &AdminOptions::new())
            .await
            .expect("records are deleted");
    }

    pub(super) async fn create_topic(&self, topic: &str, partitions: i32) {
        let admin = self.admin();
        let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
        let made = admin
            .create_topics([&new], &AdminOptions::new())
            .await
            .expect("an answer");
        made.into_iter().for_each(|r| {
            r.expect("the topic is created");
        });
    }

    pub(super) fn produce(&self, topic: &str, messages: impl Iterator<Item = (i32, String)>) {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", self.address())
            .create()
            .expect("a producer");
        for (partition, payload) in messages {
            let record = BaseRecord::<(), str>::to(topic)
                .partition(partition)
                .payload(&payload);
            producer.send(record).expect("queued");
        }
        producer.flush(Duration::from_secs(30)).expect("delivered");
    }
}

#[test]
fn kafka_is_read_exactly_once_through_kills_and_an_outage() {
    let Some(mut broker) = Broker::start() else {
        return;
    };
    run(async {
        broker.create_topic("events.clicks", 3).await;
        let message = |i: i64| {
            (
                (i % 3) as i32,
                format!("{{\"user_id\": {}, \"amount\": {i}}}", i % 10),
            )
        };
        broker.produce("events.clicks", (0..3000).map(message));
        let mut server = Server::start();
        server
            .execute(&format!(
                "CREATE STREAM clicks (user_id BIGINT NOT NULL, amount BIGINT,
                   p INTEGER METADATA FROM 'partition', o BIGINT METADATA FROM 'offset')
                 WITH (connector = 'kafka', brokers = '{}', topic = 'events.clicks', format = 'json',
                       starting_offsets = 'earliest', max_offsets_per_trigger = 500);
                 CREATE MATERIALIZED VIEW per_user WITH (trigger = '10 milliseconds') AS
                   SELECT user_id, count(*) AS n, sum(amount) AS total FROM clicks GROUP BY user_id;
                 CREATE MATERIALIZED VIEW places WITH (trigger = '10 milliseconds') AS
                   SELECT p, count(*) AS n, count(DISTINCT o) AS offsets, max(o) AS last FROM clicks GROUP BY p",
                broker.address()
            ))
            .await;
        let within = Duration::from_secs(60);
        let n = "SELECT coalesce(sum(n), 0)::bigint FROM per_user";
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            server.kill();
            server.restart();
        }
        server.wait_for_value(n, "3000", within).await;
        // The broker goes away: the view stays readable, the status says what is wrong.
        broker.stop();
        server
            .wait_for_value(
                "SELECT count(*) FROM streaming_queries WHERE stream_name = 'per_user' AND status = 'waiting for source'",
                "1",
                within,
            )
            .await;
        assert_eq!(server.value(n).await, "3000");
        broker.restart();
        broker.produce("events.clicks", std::iter::once((0, "poison".to_owned())));
        broker.produce("events.clicks", (3000..6000).map(message));
        server.wait_for_value(n, "6000", within).await;
        assert_eq!(
            server
                .value("SELECT sum(total)::bigint FROM per_user")
                .await,
            (0..6000i64).sum::<i64>().to_string()
        );
        server.execute("FLUSH").await;
        assert_eq!(
            server
                .rows("SELECT p, n, offsets, last FROM places ORDER BY p")
                .await,
            [
                ["0", "2000", "2000", "2000"],
                ["1", "2000", "2000", "1999"],
                ["2", "2000", "2000", "1999"]
            ]
        );
        let dead = server.rows("SELECT DISTINCT error IS NOT NULL FROM streaming_dead_letters WHERE stream_name = 'clicks'").await;
        assert_eq!(dead, [["t"]]);
    });
}

#[test]
fn lost_records_and_recreated_topics_stop_a_view_or_are_told() {
    let Some(broker) = Broker::start() else {
        return;
    };
    run(async {
        let message = |i: i64| (0, format!("{{\"k\": {i}}}"));
        let server = Server::start();
        for (name, option) in [("strict", ""), ("lenient", ", fail_on_data_loss = false")] {
            broker.create_topic(name, 1).await;
            broker.produce(name, (0..100).map(message));
            server
                .execute(&format!(
                    "CREATE STREAM {name} (k BIGINT) WITH (connector = 'kafka', brokers = '{}', topic = '{name}',
                       format = 'json', starting_offsets = 'earliest'{option});
                     CREATE MATERIALIZED VIEW {name}_rows AS SELECT count(*) AS n, max(k) AS last FROM {name}",
                    broker.address()
                ))
                .await;
        }
        let within = Duration::from_secs(60);
        let rows = |name: &str| format!("SELECT n || ' ' || last FROM {name}_rows");
        let status = "SELECT status FROM streaming_queries WHERE stream_name = 'strict_rows'";
        for name in ["strict", "lenient"] {
            server.wait_for_value(&rows(name), "100 99", within).await;
            server
                .execute(&format!("STOP MATERIALIZED VIEW {name}_rows"))
                .await;
            broker.produce(name, (100..300).map(message));
            broker.delete_before(name, 250).await;
            server
                .execute(&format!("START MATERIALIZED VIEW {name}_rows"))
                .await;
        }
        server
            .wait_for_value(&rows("lenient"), "150 299", within)
            .await;
        server.wait_for_value(status, "failed", within).await;
        assert_eq!(server.value(&rows("strict")).await, "100 99");
        server
            .execute("ALTER STREAM strict SET (fail_on_data_loss = false)")
            .await;
        server
            .wait_for_value(&rows("strict"), "150 299", within)
            .await;
        let gaps =
            "SELECT stream_name, partition, from_position, to_position, num_rows, accepted_by
                    FROM streaming_data_gaps WHERE to_position = '250' ORDER BY 1";
        let accepted = "fail_on_data_loss = false";
        assert_eq!(
            server.rows(gaps).await,
            [
                ["lenient", "lenient/0", "100", "250", "150", accepted],
                ["strict", "strict/0", "100", "250", "150", accepted]
            ]
        );
        // Another topic of the same name, longer than the old one: its offsets mean other rows.
        server
            .execute("ALTER STREAM strict SET (fail_on_data_loss = true)")
            .await;
        for name in ["strict", "lenient"] {
            broker.recreate_topic(name, 1).await;
            broker.produce(name, (1000..1400).map(message));
        }
        server
            .wait_for_value(&rows("lenient"), "550 1399", within)
            .await;
        server.wait_for_value(status, "failed", within).await;
        assert_eq!(server.value(&rows("strict")).await, "150 299");
        let told = server
            .value("SELECT count(*) > 0 FROM streaming_data_gaps WHERE stream_name = 'lenient' AND cause LIKE '%created again%'")
            .await;
        assert_eq!(told, "t");
    });
}

#[test]
fn an_unreachable_broker_is_told_and_harms_no_other_view() {
    run(async {
        let server = Server::start();
        let port = free_port();
        server
            .execute(&format!(
                "CREATE STREAM far (a BIGINT) WITH (connector = 'kafka', brokers = '127.0.0.1:{port}', topic = 't', format = 'json');
                 CREATE STREAM near (a BIGINT);
                 CREATE MATERIALIZED VIEW near_count AS SELECT count(*) AS n FROM near;
                 INSERT INTO near VALUES (1), (2)"
            ))
            .await;
        // Creating the view may have to wait for the broker; it must not hold anything else up.
        let client = server.connect().await;
        let create = client
            .batch_execute("CREATE MATERIALIZED VIEW far_count AS SELECT count(*) AS n FROM far");
        tokio::time::timeout(Duration::from_secs(20), create)
            .await
            .expect("an answer in time")
            .ok();
        server
            .wait_for_value("SELECT n FROM near_count", "2", Duration::from_secs(5))
            .await;
    });
}
