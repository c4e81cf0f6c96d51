//! Text to values: what PostgreSQL's input functions accept, quickly.
//!
//! Pure functions that answer `None` for text they refuse. Timestamps take the common
//! `YYYY-MM-DD hh:mm:ss[.fraction][zone]` on a fast path and leave rarer forms to Arrow's parser.

use chrono::Utc;
use datafusion::arrow::array::types::{Date32Type, IntervalMonthDayNano};
use datafusion::arrow::compute::kernels::cast_utils::{
    Parser, parse_interval_month_day_nano, string_to_datetime, string_to_time_nanoseconds,
};

use super::column::Refusal;
use crate::types::SqlType;

/// What a bare number in a timestamp column counts, from 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EpochUnit {
    /// By size: below 10^11 seconds, below 10^14 milliseconds, below 10^17 microseconds, else
    /// nanoseconds; right for all times from 1973 to 5138.
    #[default]
    Auto,
    /// seconds, with a fraction if there is one
    Seconds,
    /// milliseconds
    Milliseconds,
    /// microseconds
    Microseconds,
    /// nanoseconds
    Nanoseconds,
}

/// The dead letter's line for text that a type refuses.
pub fn refusal(sql_type: &SqlType, text: &str) -> Refusal {
    let mut shown: String = text.chars().take(100).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    format!("invalid input syntax for type {sql_type}: \"{shown}\"")
}

/// Bytes as UTF-8.
pub fn utf8(raw: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(raw).map_err(|e| {
        format!(
            "invalid byte sequence for encoding \"UTF8\" at byte {}",
            e.valid_up_to()
        )
    })
}

/// `t`, `true`, `yes`, `on`, `1` and their opposites, without regard to case.
pub fn boolean(text: &str) -> Option<bool> {
    let text = text.trim();
    let is = |words: &[&str]| words.iter().any(|w| w.eq_ignore_ascii_case(text));
    if is(&["true", "t", "yes", "y", "on", "1"]) {
        Some(true)
    } else if is(&["false", "f", "no", "n", "off", "0"]) {
        Some(false)
    } else {
        None
    }
}

/// A whole number that fits `T`. A fraction or exponent is fine as long as nothing is lost.
pub fn integer<T: TryFrom<i64>>(text: &str) -> Option<T> {
    let value = match plain_integer(text.as_bytes()) {
        Some(value) => value,
        None => {
            let text = text.trim();
            match text.parse::<i64>() {
                Ok(value) => value,
                Err(_) => integral_float(text)?,
            }
        }
    };
    T::try_from(value).ok()
}

/// Up to 18 digits with a sign: no overflow is possible, so no checks are needed.
fn plain_integer(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut value = 0i64;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    Some(if negative { -value } else { value })
}

/// `1e3` and `2.0` are whole; `1.5` is not, and neither is what a double cannot hold exactly.
fn integral_float(text: &str) -> Option<i64> {
    if !text.bytes().any(|b| matches!(b, b'.' | b'e' | b'E')) {
        return None;
    }
    let value: f64 = text.parse().ok()?;
    (value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0).then_some(value as i64)
}

/// A decimal in units of 10^-scale, rounded half away from zero at the last digit as PostgreSQL
/// rounds; `None` when it does not fit. (Arrow's parser cuts instead of rounding.)
pub fn decimal(text: &str, precision: u8, scale: i8) -> Option<i128> {
    let text = text.trim();
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], unsigned[at + 1..].parse::<i32>().ok()?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // Digits that stay: those before the point, moved by exponent and scale.
    let point = i64::try_from(whole.len()).ok()? + i64::from(exponent) + i64::from(scale);
    let mut value = 0i128;
    let mut round_up = false;
    let mut place = 0i64;
    for byte in whole.bytes().chain(fraction.bytes()) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        if place < point {
            value = value.checked_mul(10)?.checked_add(i128::from(digit))?;
        } else if place == point {
            round_up = digit >= 5;
        }
        place += 1;
    }
    while place < point && value != 0 {
        value = value.checked_mul(10)?;
        place += 1;
    }
    value += i128::from(round_up);
    let fits = value < 10i128.checked_pow(u32::from(precision))?;
    fits.then_some(if negative { -value } else { value })
}

/// Days since the epoch.
pub fn date(text: &str) -> Option<i32> {
    let bytes = text.trim().as_bytes();
    if bytes.len() == 10 && bytes[4] == b'-' && bytes[7] == b'-' {
        return days_from_text(bytes).and_then(|d| i32::try_from(d).ok());
    }
    Date32Type::parse(text.trim())
}

/// Microseconds since midnight.
pub fn time_us(text: &str) -> Option<i64> {
    string_to_time_nanoseconds(text.trim())
        .ok()
        .map(|ns| ns / 1_000)
}

/// PostgreSQL's interval input.
pub fn interval(text: &str) -> Option<IntervalMonthDayNano> {
    parse_interval_month_day_nano(text.trim()).ok()
}

/// `\x` and hexadecimal digits, or any other text as its bytes.
pub fn bytea(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let Some(digits) = text.strip_prefix("\\x") else {
        out.extend_from_slice(text.as_bytes());
        return Some(());
    };
    let digits = digits.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    for pair in digits.chunks_exact(2) {
        let high = (pair[0] as char).to_digit(16)?;
        let low = (pair[1] as char).to_digit(16)?;
        out.push((high * 16 + low) as u8);
    }
    Some(())
}

/// Microseconds since the epoch. Text with a zone is converted to UTC; text without is UTC; a
/// bare number is epoch time.
pub fn timestamp_us(text: &str, epoch: EpochUnit) -> Option<i64> {
    let text = text.trim();
    if let Some(value) = common_timestamp(text.as_bytes()) {
        return Some(value);
    }
    if let Ok(time) = string_to_datetime(&Utc, text) {
        return Some(time.timestamp_micros());
    }
    epoch_us(text, epoch)
}

/// A number of epoch time in microseconds.
pub fn epoch_us(number: &str, unit: EpochUnit) -> Option<i64> {
    if let Some(value) = plain_integer(number.as_bytes()).or_else(|| number.parse().ok()) {
        return match resolve(unit, value.unsigned_abs() as f64) {
            EpochUnit::Seconds => value.checked_mul(1_000_000),
            EpochUnit::Milliseconds => value.checked_mul(1_000),
            EpochUnit::Microseconds => Some(value),
            _ => Some(value.div_euclid(1_000)),
        };
    }
    let value: f64 = number.parse().ok()?;
    let scale = match resolve(unit, value.abs()) {
        EpochUnit::Seconds => 1e6,
        EpochUnit::Milliseconds => 1e3,
        EpochUnit::Microseconds => 1.0,
        _ => 1e-3,
    };
    let us = (value * scale).round();
    (us.is_finite() && us.abs() < 9.2e18).then_some(us as i64)
}

fn resolve(unit: EpochUnit, size: f64) -> EpochUnit {
    match unit {
        EpochUnit::Auto if size < 1e11 => EpochUnit::Seconds,
        EpochUnit::Auto if size < 1e14 => EpochUnit::Milliseconds,
        EpochUnit::Auto if size < 1e17 => EpochUnit::Microseconds,
        EpochUnit::Auto => EpochUnit::Nanoseconds,
        given => given,
    }
}

/// `YYYY-MM-DD{T| }hh:mm:ss[.f…][Z|±hh[:]mm|±hh]`; anything else is `None`, not an error.
fn common_timestamp(b: &[u8]) -> Option<i64> {
    if b.len() < 19 || !matches!(b[10], b'T' | b' ' | b't') || b[13] != b':' || b[16] != b':' {
        return None;
    }
    let days = days_from_text(&b[..10])?;
    let (hour, minute, second) = (two(b, 11)?, two(b, 14)?, two(b, 17)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut at = 19;
    let mut fraction_us = 0i64;
    if b.get(at) == Some(&b'.') {
        at += 1;
        let digits = b[at..].iter().take_while(|c| c.is_ascii_digit()).count();
        if digits == 0 {
            return None;
        }
        for place in 0..6 {
            let digit = if place < digits {
                b[at + place] - b'0'
            } else {
                0
            };
            fraction_us = fraction_us * 10 + i64::from(digit);
        }
        at += digits;
    }
    let zone_seconds = zone(&b[at..])?;
    let seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - zone_seconds;
    seconds.checked_mul(1_000_000)?.checked_add(fraction_us)
}

/// Seconds east of UTC.
fn zone(b: &[u8]) -> Option<i64> {
    let sign = match b.first() {
        None => return Some(0),
        Some(b'Z' | b'z') if b.len() == 1 => return Some(0),
        Some(b'+') => 1,
        Some(b'-') => -1,
        Some(_) => return None,
    };
    let minutes = match b.len() {
        3 => 0,
        5 => two(b, 3)?,
        6 if b[3] == b':' => two(b, 4)?,
        _ => return None,
    };
    let hours = two(b, 1)?;
    (hours <= 15 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60))
}

fn two(b: &[u8], at: usize) -> Option<i64> {
    let (tens, ones) = (b[at].wrapping_sub(b'0'), b[at + 1].wrapping_sub(b'0'));
    (tens <= 9 && ones <= 9).then(|| i64::from(tens) * 10 + i64::from(ones))
}

/// Days since the epoch of `YYYY-MM-DD`.
fn days_from_text(b: &[u8]) -> Option<i64> {
    if b[4] != b'-' || b[7] != b'-' {
        return None;
    }
    let year = two(b, 0)? * 100 + two(b, 2)?;
    let (month, day) = (two(b, 5)?, two(b, 8)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return None,
    };
    if day < 1 || day > last {
        return None;
    }
    // Count from March, so that the leap day is the last day of the counted year.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400);
    Some(days + (153 * m + 2) / 5 + day - 1 - 719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_in_all_forms() {
        let at = |text| timestamp_us(text, EpochUnit::Auto);
        assert_eq!(at("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(at("2024-02-29 12:34:56.789"), Some(1_709_210_096_789_000));
        assert_eq!(
            at("2024-02-29T12:34:56.1234567+02:00"),
            Some(1_709_202_896_123_456)
        );
        assert_eq!(at("1969-12-31T23:59:59.5Z"), Some(-500_000));
        assert_eq!(at("2024-02-29"), Some(1_709_164_800_000_000));
        assert_eq!(at("1709210096"), Some(1_709_210_096_000_000));
        assert_eq!(at("1709210096789"), Some(1_709_210_096_789_000));
        assert_eq!(at("1709210096789123"), Some(1_709_210_096_789_123));
        assert_eq!(at("1709210096789123456"), Some(1_709_210_096_789_123));
        assert_eq!(at("1709210096.5"), Some(1_709_210_096_500_000));
        assert_eq!(at("2023-02-29T00:00:00Z"), None);
        assert_eq!(at("2024-02-29T24:00:01Z"), None);
        assert_eq!(at("yesterday"), None);
        assert_eq!(epoch_us("5", EpochUnit::Milliseconds), Some(5_000));
    }

    #[test]
    fn the_fast_path_agrees_with_chrono() {
        for day in (-800_000i64..800_000).step_by(37) {
            let Some(time) = chrono::DateTime::from_timestamp(day * 86_400 + 3_661, 0) else {
                continue;
            };
            let text = time.format("%Y-%m-%dT%H:%M:%SZ").to_string();
            if text.len() == 20 {
                assert_eq!(
                    timestamp_us(&text, EpochUnit::Auto),
                    Some(time.timestamp_micros()),
                    "{text}"
                );
            }
        }
    }

    #[test]
    fn integers_lose_nothing() {
        assert_eq!(integer::<i64>("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(integer::<i64>("9223372036854775808"), None);
        assert_eq!(integer::<i64>("1e3"), Some(1000));
        assert_eq!(integer::<i64>("2.0"), Some(2));
        assert_eq!(integer::<i64>("1.5"), None);
        assert_eq!(integer::<i64>(" 42 "), Some(42));
        assert_eq!(integer::<i16>("40000"), None);
        assert_eq!(integer::<i64>("-"), None);
        assert_eq!(integer::<i64>(""), None);
    }

    #[test]
    fn bytes_and_decimals() {
        let mut out = vec![];
        assert_eq!(bytea("\\x00fF", &mut out), Some(()));
        assert_eq!(out, [0, 255]);
        assert_eq!(bytea("\\x0", &mut out), None);
        assert_eq!(decimal("12.345", 10, 2), Some(1235));
        assert_eq!(decimal("123456789", 5, 0), None);
        let all = [
            ("12.344", Some(1234)),
            ("-12.345", Some(-1235)),
            ("1e3", Some(100_000)),
            ("12345e-4", Some(123)),
            (".5", Some(50)),
            ("5.", Some(500)),
            ("+0.004", Some(0)),
            ("0.005", Some(1)),
            ("0.0049999", Some(0)),
            ("99999999.994", Some(9_999_999_999)),
            ("99999999.995", None),
            ("0e999999", Some(0)),
            ("1e999999", None),
            ("", None),
            (".", None),
            ("-", None),
            ("1x", None),
            ("1.2.3", None),
        ];
        for (text, value) in all {
            assert_eq!(decimal(text, 10, 2), value, "{text}");
        }
        assert_eq!(decimal("1250", 5, -2), Some(13));
    }
}
