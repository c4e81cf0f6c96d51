//! LISTEN and NOTIFY: what a transaction says, and the mailbox of each session that listens.
//!
//! ```text
//!  NOTIFY, pg_notify(), LISTEN ──► Outbox (per session) ──COMMIT──► Mailbox of every listener ──► wire
//!  streaming_events rows ───────────────────────────────────────────┘
//! ```
//!
//! What a transaction notifies and listens to counts from its commit on, as in PostgreSQL; the same
//! channel and payload twice in a transaction is once. A mailbox is bounded: a session that does not
//! take what it asked for is ended, and keeps nobody else from notifying. Absent: sockets, and any
//! trace on disk; a notification is for those who listen now.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::error::{Error, Result, sqlstate};

/// Channel of the rows of `streaming_events`.
pub const EVENTS_CHANNEL: &str = "streaming_events";
/// Payloads are shorter than this.
pub const PAYLOAD_MAX_BYTES: usize = 8_000;
/// Channel names are shorter than this.
const CHANNEL_MAX_BYTES: usize = 64;
/// Bytes of notifications that wait for one session.
const MAILBOX_MAX_BYTES: usize = 8 << 20;
/// What a waiting notification takes beside its texts.
const NOTIFICATION_BYTES: usize = 64;

/// One notification on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// process id of the session that sent it; 0: the server
    pub pid: i32,
    /// channel
    pub channel: String,
    /// payload, often empty
    pub payload: String,
}

/// What a session said about channels in its transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChannelAction {
    /// `LISTEN`
    Listen(String),
    /// `UNLISTEN`; `None`: all
    Unlisten(Option<String>),
    /// `NOTIFY channel, payload`
    Notify(String, String),
}

/// What the open transaction said so far; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Outbox(Arc<Mutex<Vec<ChannelAction>>>);

impl Outbox {
    /// Adds to the transaction; a notification that is there already is not added again.
    pub fn say(&self, action: ChannelAction) {
        let mut actions = self.0.lock();
        if matches!(action, ChannelAction::Notify(..)) && actions.contains(&action) {
            return;
        }
        actions.push(action);
    }

    /// `NOTIFY`, after PostgreSQL's checks (22023).
    pub fn notify(&self, channel: &str, payload: &str) -> Result<()> {
        let refused = if channel.is_empty() {
            "channel name cannot be empty"
        } else if channel.len() >= CHANNEL_MAX_BYTES {
            "channel name too long"
        } else if payload.len() >= PAYLOAD_MAX_BYTES {
            "payload string too long"
        } else {
            self.say(ChannelAction::Notify(
                channel.to_owned(),
                payload.to_owned(),
            ));
            return Ok(());
        };
        Err(Error::new(sqlstate::INVALID_PARAMETER_VALUE, refused))
    }

    /// How much was said, for a savepoint.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// True: the transaction said nothing.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Back to what was said at a savepoint, or (0) at the beginning.
    pub fn truncate(&self, len: usize) {
        self.0.lock().truncate(len);
    }

    /// Everything, for a commit.
    pub fn take(&self) -> Vec<ChannelAction> {
        std::mem::take(&mut *self.0.lock())
    }
}

#[derive(Debug, Default)]
struct Waiting {
    channels: BTreeSet<String>,
    notifications: VecDeque<Arc<Notification>>,
    bytes: usize,
    is_full: bool,
}

/// What one session listens to, and what waits for it.
#[derive(Debug, Default)]
pub struct Mailbox {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

impl Mailbox {
    /// Begins to listen.
    pub fn listen(&self, channel: &str) {
        self.waiting.lock().channels.insert(channel.to_owned());
    }

    /// Stops to listen; `None`: to anything. What has arrived is still delivered.
    pub fn unlisten(&self, channel: Option<&str>) {
        let mut waiting = self.waiting.lock();
        match channel {
            Some(channel) => {
                waiting.channels.remove(channel);
            }
            None => waiting.channels.clear(),
        }
    }

    /// The channels, in order.
    pub fn channels(&self) -> Vec<String> {
        self.waiting.lock().channels.iter().cloned().collect()
    }

    /// Puts a notification in, if the session listens to its channel.
    pub fn deliver(&self, notification: &Arc<Notification>) {
        let mut waiting = self.waiting.lock();
        if waiting.is_full || !waiting.channels.contains(&notification.channel) {
            return;
        }
        let bytes = NOTIFICATION_BYTES + notification.channel.len() + notification.payload.len();
        if waiting.bytes + bytes > MAILBOX_MAX_BYTES {
            waiting.is_full = true;
        } else {
            waiting.bytes += bytes;
            waiting.notifications.push_back(notification.clone());
        }
        drop(waiting);
        self.arrived.notify_one();
    }

    /// What waits, the oldest first; 53400 once the session left too much lie.
    pub fn take(&self) -> Result<Vec<Arc<Notification>>> {
        let mut waiting = self.waiting.lock();
        if waiting.is_full {
            return Err(Error::new(
                sqlstate::CONFIGURATION_LIMIT_EXCEEDED,
                "terminating connection because it does not take its notifications",
            )
            .detail(format!(
                "More than {} MiB of notifications wait for it.",
                MAILBOX_MAX_BYTES >> 20
            ))
            .hint("Do not leave transactions open in a session that listens."));
        }
        waiting.bytes = 0;
        Ok(waiting.notifications.drain(..).collect())
    }

    /// Resolves when something has come since the last call.
    pub async fn arrived(&self) {
        self.arrived.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notification(channel: &str, payload: &str) -> Arc<Notification> {
        Arc::new(Notification {
            pid: 7,
            channel: channel.to_owned(),
            payload: payload.to_owned(),
        })
    }

    #[test]
    fn an_outbox_folds_duplicates_and_goes_back_to_a_savepoint() {
        let outbox = Outbox::default();
        for payload in ["a", "b", "a"] {
            outbox.notify("jobs", payload).unwrap();
        }
        assert_eq!(outbox.len(), 2);
        outbox.notify("jobs", "c").unwrap();
        outbox.truncate(2);
        let said = outbox.take();
        let notify = |payload: &str| ChannelAction::Notify("jobs".to_owned(), payload.to_owned());
        assert_eq!(said, [notify("a"), notify("b")]);
        assert!(outbox.is_empty());
    }

    #[test]
    fn limits_are_postgres_ones() {
        let outbox = Outbox::default();
        outbox.notify(&"c".repeat(63), &"p".repeat(7_999)).unwrap();
        for (channel, payload, told) in [
            ("", "", "channel name cannot be empty"),
            (&*"c".repeat(64), "", "channel name too long"),
            ("c", &*"p".repeat(8_000), "payload string too long"),
        ] {
            let error = outbox.notify(channel, payload).unwrap_err();
            assert_eq!((error.sqlstate(), error.primary()), ("22023", told));
        }
    }

    #[test]
    fn a_mailbox_takes_what_it_listens_to() {
        let mailbox = Mailbox::default();
        mailbox.deliver(&notification("jobs", "too early"));
        mailbox.listen("jobs");
        mailbox.deliver(&notification("jobs", "1"));
        mailbox.deliver(&notification("other", "2"));
        mailbox.unlisten(None);
        mailbox.deliver(&notification("jobs", "3"));
        let taken = mailbox.take().unwrap();
        assert_eq!(taken, [notification("jobs", "1")]);
        assert!(mailbox.take().unwrap().is_empty());
    }

    #[test]
    fn a_full_mailbox_is_an_error_and_holds_no_more() {
        let mailbox = Mailbox::default();
        mailbox.listen("jobs");
        let large = notification("jobs", &"x".repeat(7_000));
        for _ in 0..2_000 {
            mailbox.deliver(&large);
        }
        assert_eq!(mailbox.take().unwrap_err().sqlstate(), "53400");
        assert!(mailbox.waiting.lock().bytes <= MAILBOX_MAX_BYTES);
    }
}
