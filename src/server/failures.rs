//! Failed log-ins: slowed, counted, told, in bounded memory. Pure: the time is an argument.
//!
//! Who fails is known by address and user name, so that nobody else is slowed. A failure is answered
//! after a pause that doubles with each; while several failures of one client wait for their answers,
//! its further tries are refused unlooked at. So guesses are few however many connections make them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

/// An address and the user name that it gives.
pub(super) type Client = (IpAddr, String);

const PAUSE_FIRST_MS: u64 = 50;
const PAUSE_MAX_MS: u64 = 1_000;
/// Failures of one client that wait for their answers at once.
const WAITING_MAX: u32 = 8;
/// Clients remembered; the oldest is forgotten for a new one.
const CLIENTS_MAX: usize = 4_096;
/// A client that did not fail for so long begins anew.
const FORGET_AFTER_US: i64 = 600_000_000;
/// Of one client, an event tells in this time once.
const EVENT_EVERY_US: i64 = 60_000_000;
/// Events of all clients in that time.
const EVENTS_MAX: u32 = 60;
/// Bytes of a user name that are remembered.
const NAME_BYTES_MAX: usize = 64;

#[derive(Debug, Default)]
struct Entry {
    failures: u32,
    waiting: u32,
    last_us: i64,
    told_us: Option<i64>,
    untold: u32,
}

/// What a failure leads to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failed {
    /// before it is answered
    pub pause: Duration,
    /// failures to tell of now, if any
    pub told: Option<u32>,
}

/// All that failed lately.
#[derive(Debug, Default)]
pub(super) struct Failures {
    clients: HashMap<Client, Entry>,
    events: (i64, u32),
}

/// A client's key.
pub(super) fn client(address: IpAddr, user: &str) -> Client {
    let mut end = user.len().min(NAME_BYTES_MAX);
    while !user.is_char_boundary(end) {
        end -= 1;
    }
    (address, user[..end].to_owned())
}

impl Failures {
    /// Whether a try may be looked at.
    pub fn admits(&self, client: &Client) -> bool {
        match self.clients.get(client) {
            Some(entry) => entry.waiting < WAITING_MAX,
            None => true,
        }
    }

    /// A try failed. Each call needs one of [`Self::answered`].
    pub fn failed(&mut self, client: &Client, now_us: i64) -> Failed {
        self.make_room(client, now_us);
        let window = now_us / EVENT_EVERY_US;
        if self.events.0 != window {
            self.events = (window, 0);
        }
        let entry = self.clients.entry(client.clone()).or_default();
        if now_us - entry.last_us > FORGET_AFTER_US {
            entry.failures = 0;
        }
        entry.failures = entry.failures.saturating_add(1);
        entry.waiting += 1;
        entry.untold += 1;
        entry.last_us = now_us;
        let is_due = entry
            .told_us
            .is_none_or(|told| now_us - told >= EVENT_EVERY_US);
        let told = (is_due && self.events.1 < EVENTS_MAX).then(|| {
            self.events.1 += 1;
            entry.told_us = Some(now_us);
            std::mem::take(&mut entry.untold)
        });
        let doubled = PAUSE_FIRST_MS << (entry.failures - 1).min(16);
        Failed {
            pause: Duration::from_millis(doubled.min(PAUSE_MAX_MS)),
            told,
        }
    }

    /// A failure was answered.
    pub fn answered(&mut self, client: &Client) {
        if let Some(entry) = self.clients.get_mut(client) {
            entry.waiting = entry.waiting.saturating_sub(1);
        }
    }

    /// A try succeeded: what failed before was a slip.
    pub fn succeeded(&mut self, client: &Client) {
        if let Some(entry) = self.clients.get_mut(client) {
            entry.failures = 0;
        }
    }

    fn make_room(&mut self, client: &Client, now_us: i64) {
        if self.clients.len() < CLIENTS_MAX || self.clients.contains_key(client) {
            return;
        }
        self.clients
            .retain(|_, e| e.waiting > 0 || now_us - e.last_us <= FORGET_AFTER_US);
        if self.clients.len() >= CLIENTS_MAX {
            let oldest = self
                .clients
                .iter()
                .min_by_key(|(_, e)| (e.waiting, e.last_us));
            if let Some(oldest) = oldest.map(|(client, _)| client.clone()) {
                self.clients.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ada(port: u8) -> Client {
        client(IpAddr::from([10, 0, 0, port]), "ada")
    }

    #[test]
    fn pauses_double_up_to_a_second_and_success_ends_them() {
        let mut failures = Failures::default();
        let mut pauses = Vec::new();
        for at in 0..7 {
            pauses.push(failures.failed(&ada(1), at).pause.as_millis());
            failures.answered(&ada(1));
        }
        assert_eq!(pauses, [50, 100, 200, 400, 800, 1000, 1000]);
        failures.succeeded(&ada(1));
        assert_eq!(failures.failed(&ada(1), 8).pause.as_millis(), 50);
        assert_eq!(failures.failed(&ada(2), 8).pause.as_millis(), 50);
    }

    #[test]
    fn tries_beside_many_waiting_failures_are_not_looked_at() {
        let mut failures = Failures::default();
        for _ in 0..WAITING_MAX {
            assert!(failures.admits(&ada(1)));
            failures.failed(&ada(1), 0);
        }
        assert!(!failures.admits(&ada(1)));
        assert!(failures.admits(&ada(2)));
        failures.answered(&ada(1));
        assert!(failures.admits(&ada(1)));
    }

    #[test]
    fn a_thousand_failures_are_told_in_few_events() {
        let mut failures = Failures::default();
        let mut told = Vec::new();
        for at in 0..1_000 {
            told.extend(failures.failed(&ada(1), at * 100_000).told);
            failures.answered(&ada(1));
        }
        assert_eq!(told, [1, 600]);
    }

    #[test]
    fn memory_is_bounded_whatever_names_are_given() {
        let mut failures = Failures::default();
        let address = IpAddr::from([10, 0, 0, 1]);
        let mut told = 0;
        for n in 0..20_000 {
            let client = client(address, &format!("{n}{}", "x".repeat(1_000)));
            told += u32::from(failures.failed(&client, n).told.is_some());
        }
        assert_eq!(failures.clients.len(), CLIENTS_MAX);
        assert_eq!(told, EVENTS_MAX);
        assert!(
            failures
                .clients
                .keys()
                .all(|(_, name)| name.len() <= NAME_BYTES_MAX)
        );
    }
}
