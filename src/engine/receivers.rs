//! The receivers of `socket` streams: they run beside the pipelines, which read what they logged.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::connectors::SocketReceiver;
use crate::error::Error;

/// Lines that a receiver counted, which no batch's rows tell of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ReceiverCounts {
    /// They could not be decoded.
    pub dead_letters: u64,
    /// They have fields that no column takes.
    pub unknown_field_rows: u64,
}

impl ReceiverCounts {
    /// What came since; a receiver that was started again counts from zero.
    pub fn since(self, told: Self) -> Self {
        let since = |now: u64, told: u64| now.checked_sub(told).unwrap_or(now);
        Self {
            dead_letters: since(self.dead_letters, told.dead_letters),
            unknown_field_rows: since(self.unknown_field_rows, told.unknown_field_rows),
        }
    }
}

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

    /// What was counted of a stream since its receiver started.
    pub fn counts(&self, stream: &str) -> ReceiverCounts {
        let receivers = self.0.lock();
        let status = receivers.get(stream).map(SocketReceiver::status);
        status.map_or_else(ReceiverCounts::default, |status| ReceiverCounts {
            dead_letters: status.dead_letters,
            unknown_field_rows: status.unknown_field_rows,
        })
    }
}
