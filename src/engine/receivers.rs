//! The receivers of `socket` streams: they run beside the pipelines, which read what they logged.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::connectors::SocketReceiver;
use crate::error::Error;

/// All receivers of a database, by stream.
#[derive(Default)]
pub(super) struct Receivers(Mutex<HashMap<String, SocketReceiver>>);

impl Receivers {
    pub fn insert(&self, stream: &str, receiver: SocketReceiver) {
        self.0.lock().insert(stream.to_owned(), receiver);
    }

    pub fn contains(&self, stream: &str) -> bool {
        self.0.lock().contains_key(stream)
    }

    /// Commits what a receiver has and ends it.
    pub async fn stop(&self, stream: &str) {
        let receiver = self.0.lock().remove(stream);
        if let Some(receiver) = receiver {
            receiver.stop().await;
        }
    }

    pub async fn stop_all(&self) {
        let receivers: Vec<_> = self.0.lock().drain().map(|(_, r)| r).collect();
        for receiver in receivers {
            receiver.stop().await;
        }
    }

    /// What keeps rows of a stream from coming; `None` for a stream without a receiver too.
    pub fn trouble(&self, stream: &str) -> Option<Error> {
        self.0.lock().get(stream)?.status().trouble()
    }

    /// Lines of a stream that could not be decoded since its receiver started.
    pub fn dead_letters(&self, stream: &str) -> u64 {
        let receivers = self.0.lock();
        receivers
            .get(stream)
            .map_or(0, |receiver| receiver.status().dead_letters)
    }
}
