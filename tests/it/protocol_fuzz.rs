//! The wire under arbitrary clients: random and mutated sequences of messages against a running server.
//!
//! Whatever a client sends, the server answers in whole messages, ends the connection once the client
//! has ended its side, panics nowhere, keeps no session, and serves others meanwhile. A seed that
//! failed is tried again as `soak.rs` says.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::harness::{Server, run};
use crate::random::Random;
use crate::soak;

/// How long the server may take to end a connection whose client said all it had to say.
const END_WITHIN: Duration = Duration::from_secs(30);
const MESSAGES_MAX: u64 = 40;
/// What the process may keep of all these connections.
const GROWTH_MAX_BYTES: u64 = 256 << 20;

const STATEMENTS: &[&str] = &[
    "",
    ";",
    "SELECT 1",
    "SELECT 1; SELECT 'two'; SELECT 1/0; SELECT 3",
    "SELECT $1::int + 1, $2::text",
    "SELECT $1, $3",
    "SELECT * FROM fuzz WHERE id = $1",
    "INSERT INTO fuzz VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING *",
    "INSERT INTO fuzz SELECT g, 'x' FROM generate_series(1, 50) g ON CONFLICT DO NOTHING",
    "DELETE FROM fuzz",
    "UPDATE fuzz SET t = t || 'y' WHERE id < 10",
    "SELECT g, repeat('x', 200) FROM generate_series(1, 2000) g",
    "SELECT pg_sleep(0.01)",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT a",
    "ROLLBACK TO a",
    "RELEASE a",
    "COPY fuzz FROM STDIN",
    "COPY fuzz FROM STDIN (FORMAT csv)",
    "COPY fuzz FROM STDIN (FORMAT binary)",
    "COPY fuzz TO STDOUT",
    "COPY (SELECT g FROM generate_series(1, 500) g) TO STDOUT (FORMAT binary)",
    "DECLARE c SCROLL CURSOR FOR SELECT g FROM generate_series(1, 100) g",
    "DECLARE h CURSOR WITH HOLD FOR SELECT * FROM fuzz",
    "FETCH 5 FROM c",
    "FETCH BACKWARD 2 FROM c",
    "MOVE LAST FROM c",
    "FETCH ALL FROM p1",
    "CLOSE ALL",
    "PREPARE s1 AS SELECT $1::int",
    "EXECUTE s1(4)",
    "DEALLOCATE ALL",
    "DISCARD ALL",
    "LISTEN fuzz",
    "NOTIFY fuzz, 'payload'",
    "UNLISTEN *",
    "SET statement_timeout = '50ms'",
    "RESET ALL",
    "SHOW ALL",
    "selec",
    "SELECT 'unclosed",
    "SELECT \"",
    "EXPLAIN SELECT * FROM fuzz",
    "SELECT pg_advisory_lock(1)",
    "SELECT pg_advisory_unlock_all()",
];
const NAMES: &[&str] = &["", "p1", "s1", "c", "nothing"];

/// A message of a type, its length in front.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend((body.len() as i32 + 4).to_be_bytes());
    bytes.extend(body);
    bytes
}

fn text(body: &mut Vec<u8>, value: impl AsRef<str>) {
    body.extend(value.as_ref().as_bytes());
    body.push(0);
}

/// A message of the protocol, sensible more often than not.
fn sensible(random: &mut Random) -> Vec<u8> {
    let mut body = Vec::new();
    match random.below(14) {
        0..3 => {
            text(&mut body, random.pick(STATEMENTS));
            message(b'Q', &body)
        }
        3 | 4 => {
            text(&mut body, random.pick(NAMES));
            text(&mut body, random.pick(STATEMENTS));
            let types = random.below(3);
            body.extend((types as i16).to_be_bytes());
            for _ in 0..types {
                body.extend(random.pick(&[0i32, 23, 25, 1700, 1016, 9999]).to_be_bytes());
            }
            message(b'P', &body)
        }
        5 | 6 => message(b'B', &bind(random)),
        7 => {
            body.push(*random.pick(b"SPX"));
            text(&mut body, random.pick(NAMES));
            message(*random.pick(b"DC"), &body)
        }
        8 | 9 => {
            text(&mut body, random.pick(NAMES));
            body.extend(random.pick(&[0i32, 1, 7, -1, i32::MAX]).to_be_bytes());
            message(b'E', &body)
        }
        10 => message(*random.pick(b"HS"), &body),
        11 => message(b'S', &body),
        12 => {
            let rows: &[&[u8]] = &[
                b"1\tx\n",
                b"2,y\n",
                b"bad\tz\n",
                b"\\.\n",
                b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\xff\xff",
                b"\xff\xfe\n",
                b"3\t",
            ];
            body.extend(*random.pick(rows));
            message(b'd', &body)
        }
        _ => match random.below(4) {
            0 => message(b'c', &body),
            1 => {
                text(&mut body, "no more");
                message(b'f', &body)
            }
            2 => message(b'F', &[0; 9]),
            _ => message(b'p', b"secret\0"),
        },
    }
}

fn bind(random: &mut Random) -> Vec<u8> {
    let mut body = Vec::new();
    text(&mut body, random.pick(NAMES));
    text(&mut body, random.pick(NAMES));
    let formats = random.below(3);
    body.extend((formats as i16).to_be_bytes());
    for _ in 0..formats {
        body.extend(random.pick(&[0i16, 1, 2]).to_be_bytes());
    }
    let parameters = random.below(4);
    body.extend((parameters as i16).to_be_bytes());
    for _ in 0..parameters {
        let values: &[&[u8]] = &[b"1", b"\0\0\0\x01", b"text", b"", b"\xff\0"];
        let value = *random.pick(values);
        match random.chance(20) {
            true => body.extend((-1i32).to_be_bytes()),
            false => {
                body.extend((value.len() as i32).to_be_bytes());
                body.extend(value);
            }
        }
    }
    body.extend(1i16.to_be_bytes());
    body.extend(random.pick(&[0i16, 1, 3]).to_be_bytes());
    body
}

/// A message with something wrong in it: bytes, its length, its end.
fn mutated(random: &mut Random) -> Vec<u8> {
    let mut bytes = sensible(random);
    match random.below(5) {
        0 => {
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
        }
        1 => {
            let length = *random.pick(&[0i32, 3, 4, 5, 100, 70_000, -1, i32::MAX]);
            bytes[1..5].copy_from_slice(&length.to_be_bytes());
        }
        2 => bytes.truncate(random.below(bytes.len() as u64) as usize),
        3 => {
            let noise = random.below(64);
            bytes.extend((0..noise).map(|_| random.next() as u8));
        }
        _ => bytes[0] = random.next() as u8,
    }
    bytes
}

fn startup(random: &mut Random) -> Vec<u8> {
    let mut body = Vec::new();
    let version = match random.chance(90) {
        true => 3 << 16,
        false => *random.pick(&[3 << 16 | 2, 2 << 16, 80_877_103, 80_877_104, 0, -1]),
    };
    body.extend(i32::to_be_bytes(version));
    for (name, value) in [("user", "tidemill"), ("database", "tidemill")] {
        text(&mut body, name);
        text(&mut body, value);
    }
    body.push(0);
    if random.chance(5) {
        body.truncate(random.below(body.len() as u64) as usize);
    }
    let mut packet = (body.len() as i32 + 4).to_be_bytes().to_vec();
    packet.extend(body);
    packet
}

/// One client; what the server sent.
fn client(address: &str, random: &mut Random) -> Vec<u8> {
    let mut socket = TcpStream::connect(address).expect("the server listens");
    socket
        .set_read_timeout(Some(END_WITHIN))
        .expect("a time-out");
    socket
        .set_write_timeout(Some(END_WITHIN))
        .expect("a time-out");
    let mut said = startup(random);
    let broken = random.chance(50);
    for _ in 0..random.below(MESSAGES_MAX) {
        said.extend(match broken && random.chance(10) {
            true => mutated(random),
            false => sensible(random),
        });
    }
    if random.chance(30) {
        said.extend(message(b'X', &[]));
    }
    let mut reader = socket.try_clone().expect("a second handle");
    let answers = std::thread::spawn(move || {
        let mut answers = Vec::new();
        match reader.read_to_end(&mut answers) {
            Ok(_) => Ok(answers),
            // The server closed while something was on its way to it.
            Err(e) if e.kind() == ErrorKind::ConnectionReset => Ok(answers),
            Err(e) => Err(e),
        }
    });
    // A server that has ended the connection takes no more; that is its right.
    if socket.write_all(&said).is_ok() {
        socket.shutdown(Shutdown::Write).ok();
    }
    answers
        .join()
        .expect("the reader ends")
        .unwrap_or_else(|e| panic!("the connection was not ended: {e}"))
}

/// Every message of the server is whole, and of a type that there is.
fn check_messages(mut answers: &[u8]) {
    while let Some(kind) = answers.first() {
        // The answer to a request for encryption is one byte.
        if *kind == b'N' && answers.get(1).is_none_or(|next| *next != 0) {
            answers = &answers[1..];
            continue;
        }
        assert!(
            b"RSKZTDCEINnt123sAGHWdcvV".contains(kind),
            "message type {kind}"
        );
        let Some(length) = answers.get(1..5) else {
            return;
        };
        let length = i32::from_be_bytes(length.try_into().expect("four bytes"));
        assert!(length >= 4, "length {length} of message type {kind}");
        // What a reset cut off is no fault.
        let Some(rest) = answers.get(1 + length as usize..) else {
            return;
        };
        answers = rest;
    }
}

#[test]
fn no_client_harms_the_server() {
    let usual = 0..60;
    run(async {
        let server = Server::start();
        server
            .execute("CREATE TABLE fuzz (id BIGINT PRIMARY KEY, t TEXT)")
            .await;
        let address = server.address().to_owned();
        let mut settled = None;
        for (tried, seed) in soak::seeds(usual.clone()).enumerate() {
            let _seed = soak::tried(seed, &usual);
            let mut random = Random::new(seed + 1);
            let address = address.clone();
            let clients = (0..3).map(|_| {
                let (address, mut random) = (address.clone(), Random::new(random.next()));
                tokio::task::spawn_blocking(move || check_messages(&client(&address, &mut random)))
            });
            for client in clients.collect::<Vec<_>>() {
                client.await.expect("the client is served");
            }
            assert!(!server.log().contains("panicked"), "{}", server.log());
            let alone = "SELECT count(*) FROM pg_stat_activity";
            server.wait_for_value(alone, "1", END_WITHIN).await;
            // The first ones fill caches.
            if tried == 20 {
                settled = Some(server.resident_bytes());
            }
        }
        if let Some(settled) = settled {
            let now = server.resident_bytes();
            assert!(
                now < settled + GROWTH_MAX_BYTES,
                "{settled} bytes became {now}"
            );
        }
    });
}
