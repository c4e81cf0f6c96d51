//! Dates and times: ISO text as PostgreSQL writes and reads it; other forms of dates become that first
//! (`written_dates`).
//!
//! Values are days or microseconds since 1970, as Arrow holds them; the calendar is the proleptic
//! Gregorian one (algorithms after H. Hinnant, "chrono-compatible low-level date algorithms").
//! A time zone is needed for `timestamptz` only. Absent: `infinity`, and words such as `today`.

use std::fmt::Write;

use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::timezone::Tz;

use super::{written_dates, zones};
use crate::error::{Error, Result, sqlstate};

/// Microseconds of a day.
pub(crate) const DAY_US: i64 = 86_400_000_000;
/// Days from 1970-01-01 to 2000-01-01, where PostgreSQL's binary forms start.
pub(crate) const PG_EPOCH_DAYS: i64 = 10_957;
/// The same in microseconds.
pub(crate) const PG_EPOCH_US: i64 = PG_EPOCH_DAYS * DAY_US;

/// Year, month and day of a day since 1970-01-01; year 0 is 1 BC.
pub(super) fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * shifted_month + 2) / 5 + 1) as u32;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as u32, day)
}

fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted_month = i64::from((month + 9) % 12);
    let day_of_year = (153 * shifted_month + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

pub(super) fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn put(out: &mut BytesMut, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments).expect("the buffer grows");
}

/// Appends the date without its era; true: before year 1.
fn write_civil(days: i64, out: &mut BytesMut) -> bool {
    let (year, month, day) = civil_from_days(days);
    let before_christ = year <= 0;
    let year = if before_christ { 1 - year } else { year };
    put(out, format_args!("{year:04}-{month:02}-{day:02}"));
    before_christ
}

/// Appends `2026-11-29`, or `0044-03-15 BC`.
pub(crate) fn write_date(days: i64, out: &mut BytesMut) {
    if write_civil(days, out) {
        out.put_slice(b" BC");
    }
}

/// Appends `08:05:00.25`.
pub(crate) fn write_time(us: i64, out: &mut BytesMut) {
    let seconds = us / 1_000_000;
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    put(
        out,
        format_args!("{hours:02}:{minutes:02}:{:02}", seconds % 60),
    );
    write_fraction(us % 1_000_000, out);
}

/// Appends the fraction of a second without trailing zeros.
pub(crate) fn write_fraction(us: i64, out: &mut BytesMut) {
    if us == 0 {
        return;
    }
    put(out, format_args!(".{us:06}"));
    while out.last() == Some(&b'0') {
        out.truncate(out.len() - 1);
    }
}

/// Appends `2026-11-29 08:05:00`.
pub(crate) fn write_timestamp(us: i64, out: &mut BytesMut) {
    let before_christ = write_civil(us.div_euclid(DAY_US), out);
    out.put_u8(b' ');
    write_time(us.rem_euclid(DAY_US), out);
    if before_christ {
        out.put_slice(b" BC");
    }
}

/// Appends `2026-11-29 09:05:00+01` in the zone (`None`: UTC).
pub(crate) fn write_timestamptz(us: i64, zone: Option<Tz>, out: &mut BytesMut) {
    let offset_seconds = zone.map_or(0, |zone| zones::offset_s(us, zone));
    let local_us = us.saturating_add(offset_seconds * 1_000_000);
    let before_christ = write_civil(local_us.div_euclid(DAY_US), out);
    out.put_u8(b' ');
    write_time(local_us.rem_euclid(DAY_US), out);
    out.put_u8(if offset_seconds < 0 { b'-' } else { b'+' });
    let offset = offset_seconds.abs();
    put(out, format_args!("{:02}", offset / 3_600));
    if offset % 3_600 != 0 {
        put(out, format_args!(":{:02}", offset / 60 % 60));
    }
    if offset % 60 != 0 {
        put(out, format_args!(":{:02}", offset % 60));
    }
    if before_christ {
        out.put_slice(b" BC");
    }
}

/// Reads a `date` into days since 1970.
pub(crate) fn parse_date(text: &str) -> Result<i32> {
    let fail = |why| refuse(why, "date", text);
    let (days, rest) = scan_moment(text).map_err(fail)?;
    if rest.zone.is_some() && rest.time_us.is_none() {
        return Err(fail(Bad::Syntax));
    }
    i32::try_from(days).map_err(|_| fail(Bad::Range))
}

/// Reads a `time` into microseconds of the day.
pub(crate) fn parse_time(text: &str) -> Result<i64> {
    let fail = |why| refuse(why, "time", text);
    if text.trim().eq_ignore_ascii_case("allballs") {
        return Ok(0);
    }
    let mut scanner = Scanner::new(text);
    let us = scanner.time().map_err(fail)?;
    // A zone after a time without time zone is allowed and ignored, as in PostgreSQL.
    scanner.zone().map_err(fail)?;
    scanner.end().map_err(fail)?;
    Ok(us)
}

/// Reads a `timestamp` into microseconds since 1970; a zone in the text is ignored.
pub(crate) fn parse_timestamp(text: &str) -> Result<i64> {
    let fail = |why| refuse(why, "timestamp", text);
    let (days, rest) = scan_moment(text).map_err(fail)?;
    moment_us(days, rest.time_us.unwrap_or(0)).ok_or_else(|| fail(Bad::Range))
}

/// Reads a `timestamptz` into microseconds since 1970, UTC. Without a zone in the text it is a
/// local time of `zone` (`None`: UTC).
pub(crate) fn parse_timestamptz(text: &str, zone: Option<Tz>) -> Result<i64> {
    let fail = |why| refuse(why, "timestamp with time zone", text);
    let (days, rest) = scan_moment(text).map_err(fail)?;
    let local_us = moment_us(days, rest.time_us.unwrap_or(0)).ok_or_else(|| fail(Bad::Range))?;
    let universal_us = match (rest.zone, zone) {
        (Some(Zone::Offset(seconds)), _) => local_us.checked_sub(seconds * 1_000_000),
        (Some(Zone::Named(zone)), _) | (None, Some(zone)) => zones::universal_time(local_us, zone),
        (None, None) => Some(local_us),
    };
    universal_us.ok_or_else(|| fail(Bad::Range))
}

fn moment_us(days: i64, time_us: i64) -> Option<i64> {
    days.checked_mul(DAY_US)?.checked_add(time_us)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bad {
    Syntax,
    Range,
}

fn refuse(why: Bad, type_name: &str, text: &str) -> Error {
    match why {
        Bad::Syntax => Error::new(
            sqlstate::INVALID_DATETIME,
            format!("invalid input syntax for type {type_name}: \"{text}\""),
        ),
        Bad::Range => Error::new(
            sqlstate::DATETIME_OVERFLOW,
            format!("date/time field value out of range: \"{text}\""),
        ),
    }
}

enum Zone {
    Offset(i64),
    Named(Tz),
}

struct Rest {
    time_us: Option<i64>,
    zone: Option<Zone>,
}

/// `date [T] [time] [zone] [BC]`, in days since 1970.
fn scan_moment(text: &str) -> std::result::Result<(i64, Rest), Bad> {
    if text.trim().eq_ignore_ascii_case("epoch") {
        let rest = Rest {
            time_us: None,
            zone: Some(Zone::Offset(0)),
        };
        return Ok((
            0,
            Rest {
                time_us: Some(0),
                ..rest
            },
        ));
    }
    match scan_iso(text) {
        Err(Bad::Syntax) => {
            let iso = written_dates::as_iso(text).ok_or(Bad::Syntax)?;
            scan_iso(&iso)
        }
        scanned => scanned,
    }
}

fn scan_iso(text: &str) -> std::result::Result<(i64, Rest), Bad> {
    let mut scanner = Scanner::new(text);
    let (mut year, month, day) = scanner.date()?;
    let mut rest = Rest {
        time_us: None,
        zone: None,
    };
    let mut before_christ = scanner.era();
    if !before_christ && scanner.time_follows() {
        rest.time_us = Some(scanner.time()?);
        before_christ = scanner.era();
    }
    if !before_christ {
        rest.zone = scanner.zone()?;
        before_christ = scanner.era();
    }
    scanner.end()?;
    if before_christ {
        year = 1 - year;
    } else if year == 0 {
        return Err(Bad::Range);
    }
    if !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return Err(Bad::Range);
    }
    Ok((days_from_civil(year, month, day), rest))
}

struct Scanner<'a> {
    rest: &'a str,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.trim() }
    }

    fn digits(&mut self, least: usize, most: usize) -> std::result::Result<i64, Bad> {
        let count = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        if count < least || count > most {
            return Err(Bad::Syntax);
        }
        let (digits, rest) = self.rest.split_at(count);
        self.rest = rest;
        digits.parse().map_err(|_| Bad::Range)
    }

    fn take(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn date(&mut self) -> std::result::Result<(i64, u32, u32), Bad> {
        let run = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        if run == 8 {
            // 20261129
            let number = self.digits(8, 8)?;
            let (month, day) = (number / 100 % 100, number % 100);
            return Ok((number / 10_000, month as u32, day as u32));
        }
        let year = self.digits(3, 7)?;
        let separator = ['-', '/', '.']
            .into_iter()
            .find(|c| self.rest.starts_with(*c))
            .ok_or(Bad::Syntax)?;
        self.take(separator);
        let month = self.digits(1, 2)?;
        if !self.take(separator) {
            return Err(Bad::Syntax);
        }
        let day = self.digits(1, 2)?;
        Ok((year, month as u32, day as u32))
    }

    fn time_follows(&mut self) -> bool {
        let rest = self.rest.trim_start();
        let rest = rest.strip_prefix(['T', 't']).unwrap_or(rest);
        let follows = rest.starts_with(|c: char| c.is_ascii_digit());
        if follows {
            self.rest = rest;
        }
        follows
    }

    /// `04:05:06.7`, `04:05 PM`, `040506.7`, `0405`
    fn time(&mut self) -> std::result::Result<i64, Bad> {
        let run = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let (mut hours, minutes, seconds, has_seconds) = match run {
            4 | 6 => {
                let number = self.digits(run, run)?;
                let number = if run == 4 { number * 100 } else { number };
                (number / 10_000, number / 100 % 100, number % 100, run == 6)
            }
            _ => {
                let hours = self.digits(1, 2)?;
                if !self.take(':') {
                    return Err(Bad::Syntax);
                }
                let minutes = self.digits(1, 2)?;
                let has_seconds = self.take(':');
                let seconds = if has_seconds { self.digits(1, 2)? } else { 0 };
                (hours, minutes, seconds, has_seconds)
            }
        };
        let mut fraction = 0;
        if has_seconds && self.rest.starts_with(['.', ',']) {
            self.rest = &self.rest[1..];
            fraction = self.fraction()?;
        }
        if let Some(afternoon) = self.meridiem() {
            if !(1..=12).contains(&hours) {
                return Err(Bad::Range);
            }
            hours = hours % 12 + if afternoon { 12 } else { 0 };
        }
        let us = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + fraction;
        match hours <= 24 && minutes <= 59 && seconds <= 60 && us <= DAY_US {
            true => Ok(us),
            false => Err(Bad::Range),
        }
    }

    /// Microseconds of the digits behind the point, rounded.
    fn fraction(&mut self) -> std::result::Result<i64, Bad> {
        let count = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.rest.split_at(count);
        self.rest = rest;
        let mut us = 0;
        for at in 0..6 {
            us = us * 10 + digits.as_bytes().get(at).map_or(0, |b| i64::from(b - b'0'));
        }
        let round_up = digits.as_bytes().get(6).is_some_and(|b| *b >= b'5');
        Ok(us + i64::from(round_up))
    }

    fn meridiem(&mut self) -> Option<bool> {
        let rest = self.rest.trim_start();
        let word = rest.get(..2)?;
        if rest[2..].starts_with(|c: char| c.is_ascii_alphabetic()) {
            // A zone's name, such as America/New_York.
            return None;
        }
        let afternoon = match word {
            w if w.eq_ignore_ascii_case("am") => false,
            w if w.eq_ignore_ascii_case("pm") => true,
            _ => return None,
        };
        self.rest = &rest[2..];
        Some(afternoon)
    }

    fn era(&mut self) -> bool {
        let rest = self.rest.trim_start();
        let found = rest.get(..2).is_some_and(|w| w.eq_ignore_ascii_case("bc"));
        if found {
            self.rest = &rest[2..];
        }
        found
    }

    fn zone(&mut self) -> std::result::Result<Option<Zone>, Bad> {
        self.rest = self.rest.trim_start();
        let Some(first) = self.rest.chars().next() else {
            return Ok(None);
        };
        if first == '+' || first == '-' {
            self.rest = &self.rest[1..];
            return self.offset(first == '-').map(Some);
        }
        if !first.is_ascii_alphabetic() {
            return Ok(None);
        }
        let length = self
            .rest
            .find(|c: char| c.is_whitespace())
            .unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(length);
        if name.eq_ignore_ascii_case("bc") {
            return Ok(None);
        }
        self.rest = rest;
        if ["z", "utc", "gmt", "zulu"]
            .iter()
            .any(|z| name.eq_ignore_ascii_case(z))
        {
            return Ok(Some(Zone::Offset(0)));
        }
        let zone = zones::parse(name).ok_or(Bad::Syntax)?;
        Ok(Some(Zone::Named(zone)))
    }

    /// `hh`, `hhmm`, `hh:mm` or `hh:mm:ss` behind the sign.
    fn offset(&mut self, west: bool) -> std::result::Result<Zone, Bad> {
        let run = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let (hours, mut minutes, mut seconds) = match run {
            4 => {
                let number = self.digits(4, 4)?;
                (number / 100, number % 100, 0)
            }
            _ => (self.digits(1, 2)?, 0, 0),
        };
        if run != 4 && self.take(':') {
            minutes = self.digits(1, 2)?;
            if self.take(':') {
                seconds = self.digits(1, 2)?;
            }
        }
        if hours > 15 || minutes > 59 || seconds > 59 {
            return Err(Bad::Range);
        }
        let total = (hours * 60 + minutes) * 60 + seconds;
        Ok(Zone::Offset(if west { -total } else { total }))
    }

    fn end(&self) -> std::result::Result<(), Bad> {
        match self.rest.trim().is_empty() {
            true => Ok(()),
            false => Err(Bad::Syntax),
        }
    }
}
