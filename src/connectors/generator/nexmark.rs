//! `kind = 'nexmark'`: the auction site's persons, auctions and bids, column by column.
//!
//! The event model is Nexmark's (Tucker, Tufte, Papadimos, Maier, "NEXMark: a benchmark for
//! queries over data streams", 2002) with the parameters that stream processors compare by: of
//! every 50 events 1 is a person, 3 are auctions, 46 are bids; 1 of 2 bids goes to a hot auction,
//! 3 of 4 bids come from a hot bidder, 3 of 4 auctions from a hot seller; some 100 auctions are
//! open at a time. Event n happens at `start_time` + n / `event_rate`.
//!
//! A stream shows one kind of event. Row k of a kind is always the same event of the whole
//! sequence, so three streams with equal options are one consistent site. Columns are filled by
//! name; `date_time` and `expires` as BIGINT are milliseconds.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, Int64Array, StringArray, StringBuilder, TimestampMicrosecondArray,
};
use datafusion::arrow::buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef};

use super::Timeline;
use super::random::{Stream, letters_slice, scale};
use crate::error::{Error, Result, sqlstate};

const EVENTS_PER_EPOCH: u64 = 50;
const PERSONS_PER_EPOCH: u64 = 1;
const AUCTIONS_PER_EPOCH: u64 = 3;
const BIDS_PER_EPOCH: u64 = 46;
const FIRST_ID: u64 = 1_000;
const FIRST_CATEGORY: u64 = 10;
const CATEGORIES: u64 = 5;
const HOT_BLOCK: u64 = 100;
const AUCTIONS_IN_FLIGHT: u64 = 100;
const AUCTION_ID_LEAD: u64 = 10;
const ACTIVE_PERSONS: u64 = 1_000;
const PERSON_ID_LEAD: u64 = 10;
const CHANNELS: u64 = 10_000;

/// The kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// someone joins
    Person,
    /// something is put up for sale
    Auction,
    /// someone bids
    Bid,
}

impl Event {
    /// How many events of this kind are among the first `events`.
    pub fn count_among(self, events: u64) -> u64 {
        let (epoch, rest) = (events / EVENTS_PER_EPOCH, events % EVENTS_PER_EPOCH);
        let (first, per_epoch) = self.place();
        epoch * per_epoch + rest.saturating_sub(first).min(per_epoch)
    }

    /// The event that row `row` of this kind is.
    #[inline]
    pub(super) fn number(self, row: u64) -> u64 {
        let (first, per_epoch) = self.place();
        row / per_epoch * EVENTS_PER_EPOCH + first + row % per_epoch
    }

    /// Place of its first event in an epoch, and how many there are.
    fn place(self) -> (u64, u64) {
        match self {
            Self::Person => (0, PERSONS_PER_EPOCH),
            Self::Auction => (PERSONS_PER_EPOCH, AUCTIONS_PER_EPOCH),
            Self::Bid => (PERSONS_PER_EPOCH + AUCTIONS_PER_EPOCH, BIDS_PER_EPOCH),
        }
    }

    /// Columns it has.
    pub fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Person => &[
                "id",
                "name",
                "email_address",
                "credit_card",
                "city",
                "state",
                "date_time",
                "extra",
            ],
            Self::Auction => &[
                "id",
                "item_name",
                "description",
                "initial_bid",
                "reserve",
                "date_time",
                "expires",
                "seller",
                "category",
                "extra",
            ],
            Self::Bid => &[
                "auction",
                "bidder",
                "price",
                "channel",
                "url",
                "date_time",
                "extra",
            ],
        }
    }
}

/// The site.
#[derive(Debug, Clone)]
pub struct Nexmark {
    /// Seed of all that is random.
    pub seed: u64,
    /// Which events.
    pub event: Event,
    /// When each event happens.
    pub timeline: Timeline,
}

/// Persons that exist when event `number` happens: the last one's place in the order.
#[inline]
fn last_person(number: u64) -> u64 {
    number / EVENTS_PER_EPOCH
}

/// The last auction that exists when event `number` happens.
#[inline]
fn last_auction(number: u64) -> u64 {
    let (epoch, place) = (number / EVENTS_PER_EPOCH, number % EVENTS_PER_EPOCH);
    if place < PERSONS_PER_EPOCH {
        // A person opens the epoch: its auctions are still to come.
        return (epoch * AUCTIONS_PER_EPOCH).saturating_sub(1);
    }
    epoch * AUCTIONS_PER_EPOCH + (place - PERSONS_PER_EPOCH).min(AUCTIONS_PER_EPOCH - 1)
}

/// One of the persons around now, from 64 random bits.
#[inline]
fn some_person(number: u64, bits: u64) -> u64 {
    let persons = last_person(number) + 1;
    let active = persons.min(ACTIVE_PERSONS);
    persons - active + scale(bits, active + PERSON_ID_LEAD)
}

/// One of the auctions that are open around now, or are about to open.
#[inline]
fn some_auction(number: u64, bits: u64) -> u64 {
    let last = last_auction(number);
    let first = last.saturating_sub(AUCTIONS_IN_FLIGHT);
    first + scale(bits, last - first + 1 + AUCTION_ID_LEAD)
}

/// Prices spread over six orders of magnitude, in cents.
#[inline]
fn price(table: &[i64], bits: u64) -> i64 {
    table[scale(bits, table.len() as u64) as usize]
}

/// The price curve in steps fine enough not to be seen: 100 × 10^(6u) for u in 0..1.
fn prices() -> &'static [i64] {
    static PRICES: std::sync::OnceLock<Vec<i64>> = std::sync::OnceLock::new();
    PRICES.get_or_init(|| {
        const STEPS: u32 = 1 << 16;
        (0..STEPS)
            .map(|i| (100.0 * 10f64.powf(6.0 * f64::from(i) / f64::from(STEPS))).round() as i64)
            .collect()
    })
}

impl Nexmark {
    /// Values of one column in rows `first..first + rows`.
    pub fn column(&self, field: &FieldRef, first: u64, rows: usize) -> Result<ArrayRef> {
        let array = match self.event {
            Event::Person => self.person(field, first, rows),
            Event::Auction => self.auction(field, first, rows),
            Event::Bid => self.bid(field, first, rows),
        }
        .ok_or_else(|| self.unknown_column(field.name()))?;
        if array.data_type() == field.data_type() {
            return Ok(array);
        }
        let filled = cast(&array, field.data_type()).ok();
        filled.filter(|cast| cast.null_count() == 0).ok_or_else(|| {
            Error::new(
                sqlstate::DATATYPE_MISMATCH,
                format!(
                    "the generator cannot fill column \"{}\" of this type",
                    field.name()
                ),
            )
            .hint(
                "Declare numbers as BIGINT, texts as TEXT, times as BIGINT (milliseconds) or \
                 TIMESTAMP.",
            )
        })
    }

    fn unknown_column(&self, name: &str) -> Error {
        Error::new(
            sqlstate::INVALID_OBJECT_DEFINITION,
            format!("nexmark events of this kind have no column \"{name}\""),
        )
        .hint(format!(
            "Use columns of {}.",
            self.event.columns().join(", ")
        ))
    }

    fn stream(&self, name: &str) -> Stream {
        // One namespace per kind, so that equal column names do not repeat each other.
        let kind = match self.event {
            Event::Person => "person",
            Event::Auction => "auction",
            Event::Bid => "bid",
        };
        Stream::new(self.seed, &format!("{kind}.{name}"))
    }

    fn numbers(
        &self,
        first: u64,
        rows: usize,
        value: impl Fn(u64, u64) -> i64,
    ) -> Option<ArrayRef> {
        let event = self.event;
        Some(Arc::new(Int64Array::from_iter_values(
            (first..first + rows as u64).map(|row| value(row, event.number(row))),
        )))
    }

    /// Event times: milliseconds for integers, microseconds for timestamps.
    fn times(
        &self,
        field: &FieldRef,
        first: u64,
        rows: usize,
        at_us: impl Fn(u64, u64) -> i64,
    ) -> Option<ArrayRef> {
        let event = self.event;
        let times = (first..first + rows as u64).map(|row| at_us(row, event.number(row)));
        if field.data_type().is_integer() {
            let ms = times.map(|us| us.div_euclid(1_000));
            return Some(Arc::new(Int64Array::from_iter_values(ms)));
        }
        let times = TimestampMicrosecondArray::from_iter_values(times);
        Some(match field.data_type() {
            DataType::Timestamp(_, Some(zone)) => Arc::new(times.with_timezone(zone.clone())),
            _ => Arc::new(times),
        })
    }

    fn bid(&self, field: &FieldRef, first: u64, rows: usize) -> Option<ArrayRef> {
        let name = field.name().as_str();
        let random = self.stream(name);
        match name {
            "auction" => self.numbers(first, rows, |row, number| {
                let bits = random.bits(row);
                // The lowest bit decides hot or not, the others choose: 1 of 2 is hot.
                let auction = if bits & 1 == 1 {
                    last_auction(number) / HOT_BLOCK * HOT_BLOCK
                } else {
                    some_auction(number, bits & !1)
                };
                (FIRST_ID + auction) as i64
            }),
            "bidder" => self.numbers(first, rows, |row, number| {
                let bits = random.bits(row);
                let person = if bits & 3 != 0 {
                    last_person(number) / HOT_BLOCK * HOT_BLOCK + 1
                } else {
                    some_person(number, bits & !3)
                };
                (FIRST_ID + person) as i64
            }),
            "price" => {
                let table = prices();
                self.numbers(first, rows, |row, _| price(table, random.bits(row)))
            }
            "date_time" => self.times(field, first, rows, |_, number| self.timeline.at_us(number)),
            "channel" => Some(self.channels(first, rows)),
            "url" => Some(self.urls(first, rows)),
            "extra" => Some(self.texts(random, first, rows, 40, 60)),
            _ => None,
        }
    }

    /// 1 of 2 bids comes through one of four well-known channels.
    fn channels(&self, first: u64, rows: usize) -> ArrayRef {
        const HOT: [&str; 4] = ["Google", "Facebook", "Baidu", "Apple"];
        let random = self.stream("channel");
        let mut texts = Texts::new(rows, 14);
        for row in first..first + rows as u64 {
            let bits = random.bits(row);
            if bits & 1 == 1 {
                texts.push(HOT[(bits >> 1 & 3) as usize].as_bytes());
            } else {
                texts.push(b"channel-");
                texts.push_number(scale(bits & !1, CHANNELS));
            }
            texts.end();
        }
        texts.finish()
    }

    /// A link whose `channel_id` belongs to the bid's channel.
    fn urls(&self, first: u64, rows: usize) -> ArrayRef {
        let (random, channel) = (self.stream("url"), self.stream("channel"));
        let mut texts = Texts::new(rows, 80);
        for row in first..first + rows as u64 {
            let bits = random.bits(row);
            texts.push(b"https://www.nexmark.com/");
            for part in 0..3 {
                texts.push(letters_slice(bits >> (part * 15), 5));
                texts.push(b"/");
            }
            texts.push(b"item.htm?query=1");
            let channel_bits = channel.bits(row);
            if channel_bits & 1 == 0 {
                texts.push(b"&channel_id=");
                texts.push_number(scale(channel_bits & !1, CHANNELS));
            }
            texts.end();
        }
        texts.finish()
    }

    fn auction(&self, field: &FieldRef, first: u64, rows: usize) -> Option<ArrayRef> {
        let name = field.name().as_str();
        let random = self.stream(name);
        match name {
            "id" => self.numbers(first, rows, |row, _| (FIRST_ID + row) as i64),
            "seller" => self.numbers(first, rows, |row, number| {
                let bits = random.bits(row);
                let person = if bits & 3 != 0 {
                    last_person(number) / HOT_BLOCK * HOT_BLOCK
                } else {
                    some_person(number, bits & !3)
                };
                (FIRST_ID + person) as i64
            }),
            "category" => self.numbers(first, rows, |row, _| {
                (FIRST_CATEGORY + random.below(row, CATEGORIES)) as i64
            }),
            "initial_bid" | "reserve" => {
                let (initial, above) = (self.stream("initial_bid"), self.stream("reserve"));
                let (table, reserve) = (prices(), name == "reserve");
                self.numbers(first, rows, |row, _| {
                    let start = price(table, initial.bits(row));
                    start
                        + if reserve {
                            price(table, above.bits(row))
                        } else {
                            0
                        }
                })
            }
            "date_time" => self.times(field, first, rows, |_, number| self.timeline.at_us(number)),
            "expires" => self.times(field, first, rows, |row, number| {
                // So long that about AUCTIONS_IN_FLIGHT auctions are open at a time.
                let events = AUCTIONS_IN_FLIGHT * EVENTS_PER_EPOCH / AUCTIONS_PER_EPOCH;
                let now = self.timeline.at_us(number);
                let horizon_ms = (self.timeline.at_us(number + events) - now).max(0) as u64 / 1_000;
                let open_ms = 1 + random.below(row, (horizon_ms * 2).max(1));
                now + open_ms as i64 * 1_000
            }),
            "item_name" => Some(self.texts(random, first, rows, 10, 20)),
            "description" => Some(self.texts(random, first, rows, 50, 100)),
            "extra" => Some(self.texts(random, first, rows, 150, 250)),
            _ => None,
        }
    }

    fn person(&self, field: &FieldRef, first: u64, rows: usize) -> Option<ArrayRef> {
        const FIRST_NAMES: [&str; 11] = [
            "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter",
            "Walter",
        ];
        const LAST_NAMES: [&str; 9] = [
            "Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris",
        ];
        const CITIES: [&str; 10] = [
            "Phoenix",
            "Los Angeles",
            "San Francisco",
            "Boise",
            "Portland",
            "Bend",
            "Redmond",
            "Seattle",
            "Kent",
            "Cheyenne",
        ];
        const STATES: [&str; 6] = ["AZ", "CA", "ID", "OR", "WA", "WY"];
        let name = field.name().as_str();
        let random = self.stream(name);
        let pick = |words: &'static [&'static str]| {
            let text = (first..first + rows as u64)
                .map(|row| words[random.below(row, words.len() as u64) as usize]);
            Some(Arc::new(StringArray::from_iter_values(text)) as ArrayRef)
        };
        match name {
            "id" => self.numbers(first, rows, |row, _| (FIRST_ID + row) as i64),
            "city" => pick(&CITIES),
            "state" => pick(&STATES),
            "name" => {
                let names = (first..first + rows as u64).map(|row| {
                    let (given, family) = (random.bits(row) >> 32, random.bits(row) << 32);
                    let given = FIRST_NAMES[scale(given << 32, 11) as usize];
                    format!("{given} {}", LAST_NAMES[scale(family, 9) as usize])
                });
                Some(Arc::new(StringArray::from_iter_values(names)))
            }
            "email_address" => {
                let mut texts = Texts::new(rows, 18);
                for row in first..first + rows as u64 {
                    let bits = random.bits(row);
                    texts.push(letters_slice(bits, 7));
                    texts.push(b"@");
                    texts.push(letters_slice(bits >> 20, 5));
                    texts.push(b".com");
                    texts.end();
                }
                Some(texts.finish())
            }
            "credit_card" => {
                let mut cards = StringBuilder::with_capacity(rows, rows * 19);
                for row in first..first + rows as u64 {
                    let bits = random.bits(row);
                    let four = |shift: u32| scale(bits << shift & (0xFFFF << 48), 10_000);
                    cards.append_value(format!(
                        "{:04} {:04} {:04} {:04}",
                        four(0),
                        four(16),
                        four(32),
                        four(48)
                    ));
                }
                Some(Arc::new(cards.finish()))
            }
            "date_time" => self.times(field, first, rows, |_, number| self.timeline.at_us(number)),
            "extra" => Some(self.texts(random, first, rows, 60, 140)),
            _ => None,
        }
    }

    /// Letters, between `shortest` and `longest` of them.
    fn texts(
        &self,
        random: Stream,
        first: u64,
        rows: usize,
        shortest: usize,
        longest: usize,
    ) -> ArrayRef {
        let mut texts = Texts::new(rows, longest);
        let spread = (longest - shortest + 1) as u64;
        for row in first..first + rows as u64 {
            let bits = random.bits(row);
            let length = shortest + scale(bits, spread) as usize;
            texts.push(letters_slice(bits, length));
            texts.end();
        }
        texts.finish()
    }
}

/// A text column under construction, ASCII only.
struct Texts {
    offsets: Vec<i32>,
    bytes: Vec<u8>,
}

impl Texts {
    fn new(rows: usize, bytes_per_row: usize) -> Self {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        Self {
            offsets,
            bytes: Vec::with_capacity(rows * bytes_per_row),
        }
    }

    #[inline]
    fn push(&mut self, ascii: &[u8]) {
        debug_assert!(ascii.is_ascii());
        self.bytes.extend_from_slice(ascii);
    }

    #[inline]
    fn push_number(&mut self, mut number: u64) {
        let mut digits = [0u8; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.bytes.extend_from_slice(&digits[at..]);
    }

    #[inline]
    fn end(&mut self) {
        self.offsets.push(self.bytes.len() as i32);
    }

    fn finish(self) -> ArrayRef {
        let offsets = OffsetBuffer::new(ScalarBuffer::from(self.offsets));
        let bytes = Buffer::from_vec(self.bytes);
        // SAFETY: only ASCII is pushed, and offsets grow within the bytes.
        Arc::new(unsafe { StringArray::new_unchecked(offsets, bytes, None) })
    }
}
