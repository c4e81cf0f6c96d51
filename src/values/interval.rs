//! Intervals in PostgreSQL's text forms.
//!
//! An interval is months, days and microseconds, which do not convert into each other. Written in
//! IntervalStyle `postgres` (`1 year 2 mons -3 days +04:05:06.7`); read in that style, in the
//! verbose one with units, and as ISO 8601 durations.

use std::fmt::Write;

use bytes::{BufMut, BytesMut};

use super::datetime::write_fraction;
use crate::error::{Error, Result, sqlstate};

const SECOND_US: i64 = 1_000_000;
const HOUR_US: i64 = 3_600 * SECOND_US;

/// An interval's three parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Interval {
    /// months
    pub months: i32,
    /// days
    pub days: i32,
    /// microseconds
    pub us: i64,
}

impl Interval {
    /// Appends the text.
    pub fn write_text(&self, out: &mut BytesMut) {
        let mut empty = true;
        let mut after_negative = false;
        for (count, unit) in [
            (self.months / 12, "year"),
            (self.months % 12, "mon"),
            (self.days, "day"),
        ] {
            if count == 0 {
                continue;
            }
            let space = if empty { "" } else { " " };
            let sign = if after_negative && count > 0 { "+" } else { "" };
            let plural = if count == 1 { "" } else { "s" };
            write!(out, "{space}{sign}{count} {unit}{plural}").expect("the buffer grows");
            empty = false;
            after_negative = count < 0;
        }
        if self.us == 0 && !empty {
            return;
        }
        if !empty {
            out.put_u8(b' ');
        }
        if self.us < 0 {
            out.put_u8(b'-');
        } else if after_negative {
            out.put_u8(b'+');
        }
        let us = self.us.unsigned_abs();
        let seconds = us / SECOND_US as u64;
        write!(
            out,
            "{:02}:{:02}:{:02}",
            seconds / 3_600,
            seconds / 60 % 60,
            seconds % 60
        )
        .expect("the buffer grows");
        write_fraction((us % SECOND_US as u64) as i64, out);
    }

    /// Reads any of the text forms.
    pub fn parse(text: &str) -> Result<Self> {
        let trimmed = text.trim();
        let parsed = match trimmed.strip_prefix(['P', 'p']) {
            Some(duration) => parse_iso(duration),
            None => parse_units(trimmed),
        };
        parsed.ok_or_else(|| {
            Error::new(
                sqlstate::INVALID_DATETIME,
                format!("invalid input syntax for type interval: \"{text}\""),
            )
        })
    }

    /// Adds `count` of a unit; fractions spill into smaller units as in PostgreSQL.
    fn add(&mut self, count: f64, unit: &str) -> Option<()> {
        let unit = unit.to_ascii_lowercase();
        match unit.trim_end_matches('s') {
            "millennium" | "millennia" | "mil" => self.add_months(count * 12_000.0),
            "century" | "centurie" | "c" | "cent" => self.add_months(count * 1_200.0),
            "decade" | "dec" => self.add_months(count * 120.0),
            "year" | "y" | "yr" => self.add_months(count * 12.0),
            "mon" | "month" => self.add_months(count),
            "week" | "w" => self.add_days(count * 7.0),
            "day" | "d" => self.add_days(count),
            "hour" | "h" | "hr" => self.add_us(count * HOUR_US as f64),
            "minute" | "m" | "min" => self.add_us(count * 60e6),
            "second" | "sec" | "" => self.add_us(count * 1e6),
            "millisecond" | "msec" => self.add_us(count * 1e3),
            "microsecond" | "usec" | "u" => self.add_us(count),
            _ => None,
        }
    }

    fn add_months(&mut self, months: f64) -> Option<()> {
        let whole = months.trunc();
        self.months = self.months.checked_add(to_i32(whole)?)?;
        let rest = (months - whole) * 30.0;
        match rest.abs() < 1e-9 {
            true => Some(()),
            false => self.add_days(rest),
        }
    }

    fn add_days(&mut self, days: f64) -> Option<()> {
        let whole = days.trunc();
        self.days = self.days.checked_add(to_i32(whole)?)?;
        self.add_us((days - whole) * 24.0 * HOUR_US as f64)
    }

    fn add_us(&mut self, us: f64) -> Option<()> {
        let us = us.round();
        if us.abs() > i64::MAX as f64 / 2.0 {
            return None;
        }
        self.us = self.us.checked_add(us as i64)?;
        Some(())
    }
}

fn to_i32(number: f64) -> Option<i32> {
    (number.abs() <= f64::from(i32::MAX)).then_some(number as i32)
}

/// `1 year 2 mons -3 days 04:05:06.7 [ago]`, `5 hours`, `@ 1 min`, `90` (seconds).
fn parse_units(text: &str) -> Option<Interval> {
    let mut interval = Interval::default();
    let mut tokens = text.split_whitespace().peekable();
    let mut seen = false;
    let mut ago = false;
    while let Some(token) = tokens.next() {
        if token == "@" && !seen {
            continue;
        }
        if token.eq_ignore_ascii_case("ago") && seen && tokens.peek().is_none() {
            ago = true;
            continue;
        }
        seen = true;
        if token.contains(':') {
            interval.us = interval.us.checked_add(clock_us(token)?)?;
            continue;
        }
        if let Some(months) = year_month(token) {
            interval.months = interval.months.checked_add(months?)?;
            continue;
        }
        let number_end = token
            .find(|c: char| !(c.is_ascii_digit() || matches!(c, '+' | '-' | '.')))
            .unwrap_or(token.len());
        let count: f64 = token[..number_end].parse().ok()?;
        let attached = &token[number_end..];
        let unit = match (attached, tokens.peek()) {
            ("", Some(next)) if next.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                match next.eq_ignore_ascii_case("ago") {
                    true => "second",
                    false => tokens.next()?,
                }
            }
            // `1 02:03:04`
            ("", Some(next)) if next.contains(':') => "day",
            ("", _) => "second",
            (attached, _) => attached,
        };
        let unit = if unit.eq_ignore_ascii_case("ms") {
            "msec"
        } else {
            unit
        };
        interval.add(count, unit)?;
    }
    if ago {
        interval.months = interval.months.checked_neg()?;
        interval.days = interval.days.checked_neg()?;
        interval.us = interval.us.checked_neg()?;
    }
    seen.then_some(interval)
}

/// The SQL standard's `[-]years-months`, in months; the inner `None`: too many, or more than 11.
fn year_month(token: &str) -> Option<Option<i32>> {
    let (negative, unsigned) = match token.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, token.strip_prefix('+').unwrap_or(token)),
    };
    let (years, months) = unsigned.split_once('-')?;
    let are_digits = [years, months]
        .iter()
        .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    if !are_digits {
        return None;
    }
    let total = || -> Option<i32> {
        let years: i32 = years.parse().ok()?;
        let months: i32 = months.parse().ok().filter(|m| *m < 12)?;
        let total = years.checked_mul(12)?.checked_add(months)?;
        Some(if negative { -total } else { total })
    };
    Some(total())
}

/// `[-]hh:mm[:ss[.f]]` in microseconds.
fn clock_us(token: &str) -> Option<i64> {
    let (negative, unsigned) = match token.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, token.strip_prefix('+').unwrap_or(token)),
    };
    let mut parts = unsigned.split(':');
    let hours: i64 = digits(parts.next()?)?;
    let minutes: i64 = digits(parts.next()?)?;
    let seconds: f64 = match parts.next() {
        Some(text) if text.starts_with(|c: char| c.is_ascii_digit()) => text.parse().ok()?,
        Some(_) => return None,
        None => 0.0,
    };
    if parts.next().is_some() || minutes > 59 || seconds >= 61.0 {
        return None;
    }
    let us = hours
        .checked_mul(HOUR_US)?
        .checked_add(minutes * 60 * SECOND_US)?
        .checked_add((seconds * 1e6).round() as i64)?;
    Some(if negative { -us } else { us })
}

fn digits(text: &str) -> Option<i64> {
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// `0001-02-03T04:05:06` behind the P: years, months and days, then a time.
fn parse_iso_alternative(text: &str) -> Option<Interval> {
    let (date, time) = match text.split_once(['T', 't']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let mut interval = Interval::default();
    let fields: Vec<&str> = match date {
        "" => Vec::new(),
        date => date.split('-').collect(),
    };
    if fields.len() > 3 || time.is_none() && fields.len() < 2 {
        return None;
    }
    for (field, unit) in fields.into_iter().zip(["year", "month", "day"]) {
        interval.add(digits(field)? as f64, unit)?;
    }
    if let Some(time) = time {
        interval.us = clock_us(time)?;
    }
    Some(interval)
}

/// `1Y2M3DT4H5M6.7S` behind the P.
fn parse_iso(text: &str) -> Option<Interval> {
    let has_units = text
        .bytes()
        .any(|b| b.is_ascii_alphabetic() && !matches!(b, b'T' | b't'));
    if !has_units {
        return parse_iso_alternative(text);
    }
    let mut interval = Interval::default();
    let mut rest = text;
    let mut in_time = false;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(['T', 't']) {
            in_time = true;
            rest = after;
            continue;
        }
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let count: f64 = rest[..end].parse().ok()?;
        let unit = match (rest.as_bytes()[end].to_ascii_uppercase(), in_time) {
            (b'Y', false) => "year",
            (b'M', false) => "month",
            (b'W', false) => "week",
            (b'D', false) => "day",
            (b'H', true) => "hour",
            (b'M', true) => "minute",
            (b'S', true) => "second",
            _ => return None,
        };
        interval.add(count, unit)?;
        rest = &rest[end + 1..];
    }
    Some(interval)
}
