//! Streams of chunks out of blocking readers.
//!
//! Decoding and file reading block, the engine is async: a reader runs on the blocking pool and
//! hands its chunks over a short queue, which is also the back-pressure. Several readers may run
//! ahead at once, but their chunks always come in the order of the readers, so that a range reads
//! the same every time.

use std::collections::VecDeque;

use futures::stream::{BoxStream, StreamExt};
use tokio::sync::mpsc;

use super::SourceChunk;
use crate::error::{Error, Result};

/// Chunks that may wait between a reader and the engine.
const QUEUED_CHUNKS: usize = 3;

/// Rows of a chunk at most.
pub const CHUNK_ROWS: usize = 65_536;

/// Raw bytes of a chunk, about.
pub const CHUNK_BYTES: usize = 8 << 20;

/// Where a reader puts its chunks.
pub struct ChunkSender(mpsc::Sender<Result<SourceChunk>>);

/// The receiver went away: the reader should stop, quietly.
pub struct Abandoned;

impl ChunkSender {
    /// Hands a chunk over, waiting while the queue is full.
    pub fn send(&self, chunk: SourceChunk) -> Result<(), Abandoned> {
        self.0.blocking_send(Ok(chunk)).map_err(|_| Abandoned)
    }

    /// Ends a reader that waits for its input when nobody waits for its chunks any more.
    pub fn check(&self) -> Result<(), Abandoned> {
        if self.0.is_closed() {
            return Err(Abandoned);
        }
        Ok(())
    }
}

/// How a reader ended early.
pub enum Stop {
    /// The receiver went away.
    Abandoned,
    /// Reading failed.
    Failed(Error),
}

impl From<Abandoned> for Stop {
    fn from(_: Abandoned) -> Self {
        Self::Abandoned
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A reader: sends chunks until its input ends.
pub type Reader = Box<dyn FnOnce(&ChunkSender) -> Result<(), Stop> + Send>;

/// A reader at work. Its end is known by its task, not by the queue's end alone, so that a reader
/// that panicked is never mistaken for one that reached the end of its input.
struct Running {
    chunks: mpsc::Receiver<Result<SourceChunk>>,
    task: tokio::task::JoinHandle<()>,
}

fn start(reader: Reader) -> Running {
    let (sender, chunks) = mpsc::channel(QUEUED_CHUNKS);
    let task = tokio::task::spawn_blocking(move || {
        let sender = ChunkSender(sender);
        if let Err(Stop::Failed(error)) = reader(&sender) {
            // A receiver that is gone has no more interest in the error.
            if sender.0.blocking_send(Err(error)).is_err() {
                tracing::debug!("a reader failed after its range was abandoned");
            }
        }
    });
    Running { chunks, task }
}

/// The chunks of one reader. Must be called inside a tokio runtime.
pub fn read_blocking(reader: Reader) -> BoxStream<'static, Result<SourceChunk>> {
    read_in_order(std::iter::once(reader), 1)
}

/// The chunks of many readers, in the readers' order, while up to `parallelism` of them run.
/// The first error ends the stream. Must be polled inside a tokio runtime.
pub fn read_in_order(
    readers: impl Iterator<Item = Reader> + Send + 'static,
    parallelism: usize,
) -> BoxStream<'static, Result<SourceChunk>> {
    struct Progress<I> {
        readers: I,
        running: VecDeque<Running>,
        failed: bool,
    }
    let progress = Progress {
        readers,
        running: VecDeque::new(),
        failed: false,
    };
    futures::stream::unfold(progress, move |mut progress| async move {
        loop {
            if progress.failed {
                return None;
            }
            while progress.running.len() < parallelism.max(1)
                && let Some(reader) = progress.readers.next()
            {
                progress.running.push_back(start(reader));
            }
            let chunk = progress.running.front_mut()?.chunks.recv().await;
            match chunk {
                Some(chunk) => {
                    progress.failed = chunk.is_err();
                    return Some((chunk, progress));
                }
                None => {
                    let ended = progress.running.pop_front()?;
                    if ended.task.await.is_err() {
                        progress.failed = true;
                        let error = Error::internal("a source reader ended unexpectedly");
                        return Some((Err(error), progress));
                    }
                }
            }
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Int64Array, RecordBatch};

    use super::*;
    use crate::dataflow::change::ChangeBatch;

    fn chunk(value: i64) -> SourceChunk {
        let rows = RecordBatch::try_from_iter([(
            "n",
            Arc::new(Int64Array::from(vec![value])) as Arc<dyn datafusion::arrow::array::Array>,
        )])
        .unwrap();
        SourceChunk {
            changes: ChangeBatch::inserts(rows),
            dead_letters: vec![],
            unknown: crate::connectors::evolution::UnknownFields::default(),
            bytes: value as u64,
        }
    }

    #[tokio::test]
    async fn order_is_the_readers_order() {
        let readers = (0..5u64).map(|r| -> Reader {
            Box::new(move |out| {
                for i in 0..(5 - r) {
                    out.send(chunk((r * 10 + i) as i64))?;
                }
                Ok(())
            })
        });
        let bytes: Vec<u64> = read_in_order(readers, 3)
            .map(|c| c.unwrap().bytes)
            .collect()
            .await;
        assert_eq!(
            bytes,
            vec![0, 1, 2, 3, 4, 10, 11, 12, 13, 20, 21, 22, 30, 31, 40]
        );
    }

    #[tokio::test]
    async fn the_first_error_ends_it() {
        let readers: Vec<Reader> = vec![
            Box::new(|out| Ok(out.send(chunk(1))?)),
            Box::new(|_| Err(Error::internal("broken").into())),
            Box::new(|out| Ok(out.send(chunk(2))?)),
        ];
        let all: Vec<_> = read_in_order(readers.into_iter(), 2).collect().await;
        assert_eq!(all.len(), 2);
        assert!(all[1].is_err());
    }

    #[tokio::test]
    async fn a_panic_is_an_error_not_an_end() {
        let readers: Vec<Reader> = vec![Box::new(|out| {
            out.send(chunk(1))?;
            panic!("reader broke")
        })];
        let all: Vec<_> = read_in_order(readers.into_iter(), 1).collect().await;
        assert_eq!(all.len(), 2);
        assert!(all[1].is_err());
    }
}
