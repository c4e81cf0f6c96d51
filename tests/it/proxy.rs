//! A proxy in front of an object store that spoils requests: cuts answers off, delays, sends twice, throttles, refuses.
//!
//! It reads whole requests and whole answers of HTTP/1.1, so that a fault falls on one request: an answer that is cut
//! off leaves a request that was carried out. Absent: TLS, bodies in chunks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What is done to requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// nothing
    None,
    /// no connection comes about
    Down,
    /// one request in so many is carried out, and its answer cut off
    CutsAnswers(u64),
    /// one request in so many never arrives
    CutsRequests(u64),
    /// one request in so many is carried out twice; the second answer is given
    Repeats(u64),
    /// one request in so many is refused with this status
    Refuses(u64, u16),
    /// every answer comes so much later
    Delays(Duration),
    /// so many bytes a second, of what is sent and of what is answered
    Throttles(u64),
}

struct Shared {
    target: u16,
    trouble: Mutex<Trouble>,
    requests: AtomicU64,
    troubled: AtomicU64,
    ended: AtomicBool,
}

/// A running proxy; it ends with its handle.
pub struct Proxy {
    shared: Arc<Shared>,
    /// Where it listens.
    pub endpoint: String,
}

impl Proxy {
    /// A proxy in front of a loopback port.
    pub async fn start(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            target,
            trouble: Mutex::new(Trouble::None),
            requests: AtomicU64::new(0),
            troubled: AtomicU64::new(0),
            ended: AtomicBool::new(false),
        });
        let kept = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if kept.ended.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&kept);
                tokio::spawn(async move {
                    // A connection that breaks is what this is for.
                    serve(&shared, client).await.ok();
                });
            }
        });
        Self {
            shared,
            endpoint: format!("http://127.0.0.1:{port}"),
        }
    }

    /// From now on this happens.
    pub fn set(&self, trouble: Trouble) {
        *self.shared.trouble.lock() = trouble;
    }

    /// Requests so far, and those that something happened to.
    pub fn counts(&self) -> (u64, u64) {
        let read = |count: &AtomicU64| count.load(Ordering::SeqCst);
        (read(&self.shared.requests), read(&self.shared.troubled))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
    }
}

/// Carries out the requests of one connection; an error cuts it off.
async fn serve(shared: &Shared, mut client: TcpStream) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    while let Some(request) = message(&mut client, &mut buffer).await? {
        let number = shared.requests.fetch_add(1, Ordering::SeqCst) + 1;
        let trouble = *shared.trouble.lock();
        let falls_on = |every: u64| number.is_multiple_of(every);
        let spoilt = || shared.troubled.fetch_add(1, Ordering::SeqCst);
        let cut = || std::io::Error::other("cut off");
        match trouble {
            Trouble::Down => {
                spoilt();
                return Err(cut());
            }
            Trouble::CutsRequests(every) if falls_on(every) => {
                spoilt();
                return Err(cut());
            }
            Trouble::Refuses(every, status) if falls_on(every) => {
                spoilt();
                let head = format!(
                    "HTTP/1.1 {status} Refused\r\nContent-Length: 0\r\nRetry-After: 0\r\n\r\n"
                );
                client.write_all(head.as_bytes()).await?;
                continue;
            }
            Trouble::Throttles(rate) => pause(request.len(), rate).await,
            _ => {}
        }
        let mut answer = ask(shared.target, &request).await?;
        match trouble {
            Trouble::Repeats(every) if falls_on(every) => {
                spoilt();
                answer = ask(shared.target, &request).await?;
            }
            Trouble::CutsAnswers(every) if falls_on(every) => {
                spoilt();
                client.write_all(&answer[..answer.len() / 2]).await?;
                return Err(cut());
            }
            Trouble::Delays(time) => {
                spoilt();
                tokio::time::sleep(time).await;
            }
            Trouble::Throttles(rate) => {
                spoilt();
                pause(answer.len(), rate).await;
            }
            _ => {}
        }
        client.write_all(&answer).await?;
    }
    Ok(())
}

async fn pause(bytes: usize, rate: u64) {
    let time = Duration::from_secs_f64(bytes as f64 / rate as f64);
    tokio::time::sleep(time).await;
}

/// Sends a request on a connection of its own.
async fn ask(port: u16, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut store = TcpStream::connect(("127.0.0.1", port)).await?;
    store.write_all(request).await?;
    // An answer to HEAD has the length of a body that does not come.
    let is_head = request.starts_with(b"HEAD");
    let mut buffer = Vec::new();
    let answer = match is_head {
        true => head(&mut store, &mut buffer)
            .await?
            .map(|end| buffer.drain(..end).collect()),
        false => message(&mut store, &mut buffer).await?,
    };
    answer.ok_or_else(|| std::io::Error::other("no answer"))
}

/// Reads as far as the end of a head; where it is. `None`: nothing more comes.
async fn head(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<Option<usize>> {
    loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            return Ok(Some(end + 4));
        }
        if stream.read_buf(buffer).await? == 0 {
            return match buffer.is_empty() {
                true => Ok(None),
                false => Err(std::io::Error::other("half a head")),
            };
        }
    }
}

/// A request or an answer with its body.
async fn message(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> std::io::Result<Option<Vec<u8>>> {
    let Some(end) = head(stream, buffer).await? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
    let is_chunked = text.contains("transfer-encoding: chunked");
    let length = text
        .lines()
        .find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.map_or(0, |length| length.trim().parse().expect("a length"));
    let is_done = |buffer: &[u8]| match is_chunked {
        true => buffer.ends_with(b"0\r\n\r\n"),
        false => buffer.len() >= end + length,
    };
    while !is_done(buffer) {
        if stream.read_buf(buffer).await? == 0 {
            return Err(std::io::Error::other("half a body"));
        }
    }
    let whole = if is_chunked {
        buffer.len()
    } else {
        end + length
    };
    Ok(Some(buffer.drain(..whole).collect()))
}
