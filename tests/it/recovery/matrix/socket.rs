//! Faults of a socket: nobody listens, connections that are cut, lines that are no records.

use super::bench::{Bench, InputFault};
use super::feed::{Feed, FeedKind, Written};

const JSON: FeedKind = FeedKind::Socket(Written::Json);

pub(super) fn faults() -> Vec<InputFault> {
    vec![
        InputFault::new("socket: nobody listens at the start", JSON, |b| {
            Box::pin(async move {
                b.wait_each(STATUS, "waiting for source").await;
                come_back(b);
                b.send().await;
            })
        })
        .away(),
        InputFault::new("socket: cut in the middle of a line", JSON, |b| {
            Box::pin(async move {
                let rows = b.rows(2);
                let bytes = Feed::lines(&rows, Written::Json);
                b.feed.transmit(&bytes[..bytes.len() - 30]);
                b.expect(&rows[..5]).await;
                b.wait_equal().await;
                b.feed.hang_up();
                b.wait_told("waiting for source", "").await;
                come_back(b);
                // Its sender says the line again.
                b.deliver(&rows[5..]).await;
            })
        })
        .of_the_few(),
        InputFault::new("socket: away while the database was down", JSON, |b| {
            Box::pin(async move {
                b.server.terminate();
                b.feed.hang_up();
                b.server.restart();
                b.wait_told("waiting for source", "").await;
                come_back(b);
                b.send().await;
            })
        }),
        InputFault::new("socket: killed while it receives", JSON, |b| {
            Box::pin(async move {
                b.send().await;
                b.server.kill();
                b.feed.hang_up();
                b.server.restart();
                come_back(b);
                b.send().await;
            })
        }),
        InputFault::new(
            "socket: lines mended by an option",
            FeedKind::Socket(Written::Csv),
            |b| {
                Box::pin(async move {
                    let rows = b.rows(2);
                    let text = String::from_utf8(Feed::lines(&rows, Written::Csv)).expect("a text");
                    let text = text.replace(",,\n", ",n/a,n/a\n");
                    b.feed.transmit(text.as_bytes());
                    let letters = "SELECT count(*) FROM streaming_dead_letters WHERE stream_name = '{stream}'";
                    b.wait_each(letters, "2").await;
                    b.say("ALTER STREAM {stream} SET (null_value = 'n/a');")
                        .await;
                    b.say("REPLAY DEAD LETTERS OF {stream};").await;
                    b.expect(&rows).await;
                    b.wait_equal().await;
                    b.say("ALTER STREAM {stream} RESET (null_value);").await;
                    // Another option is another connection.
                    b.feed.hang_up();
                    come_back(b);
                    b.send().await;
                })
            },
        ),
    ]
}

const STATUS: &str = "SELECT status FROM streaming_queries WHERE stream_name = '{view}'";

fn come_back(b: &mut Bench) {
    b.feed.listen();
    b.feed.accept();
}
