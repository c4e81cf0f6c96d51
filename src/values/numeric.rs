//! Numbers with a decimal point: text, and PostgreSQL's base-10000 binary form.
//!
//! Both forms are made from the unscaled digits and the scale, so that 128 and 256 bit decimals
//! share the code. Binary layout (`numeric_send` in PostgreSQL's `numeric.c`): number of base-10000
//! digits, weight of the first, sign (0, 0x4000, 0xC000 NaN, 0xD000/0xF000 infinities), digits
//! after the point, then the digits. NaN and infinity have no Arrow form and are refused.

use bytes::{BufMut, BytesMut};

use crate::error::{Error, Result, sqlstate};

const NEGATIVE: u16 = 0x4000;

/// A number as sign and decimal digits: `digits` × 10^-`scale`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decimal<'a> {
    /// below zero
    pub negative: bool,
    /// decimal digits of the absolute unscaled value, no leading zeros except `0`
    pub digits: &'a str,
    /// digits after the point; negative: zeros before it
    pub scale: i32,
}

impl<'a> Decimal<'a> {
    /// From the unscaled value as Rust writes it.
    pub fn new(unscaled: &'a str, scale: i32) -> Self {
        let (negative, digits) = match unscaled.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, unscaled),
        };
        Self {
            negative,
            digits,
            scale,
        }
    }

    /// Appends `-12.50`.
    pub fn write_text(&self, out: &mut BytesMut) {
        if self.negative {
            out.put_u8(b'-');
        }
        let digits = self.digits.as_bytes();
        if self.scale <= 0 {
            out.put_slice(digits);
            if digits != b"0" {
                out.put_bytes(b'0', self.scale.unsigned_abs() as usize);
            }
            return;
        }
        let scale = self.scale as usize;
        if digits.len() > scale {
            let (whole, fraction) = digits.split_at(digits.len() - scale);
            out.put_slice(whole);
            out.put_u8(b'.');
            out.put_slice(fraction);
        } else {
            out.put_slice(b"0.");
            out.put_bytes(b'0', scale - digits.len());
            out.put_slice(digits);
        }
    }

    /// Appends the binary form.
    pub fn write_binary(&self, out: &mut BytesMut) {
        let display_scale = self.scale.max(0);
        // Decimal exponent of the last digit, aligned down to a multiple of four.
        let exponent = -self.scale;
        let padding = exponent.rem_euclid(4) as usize;
        let lowest_weight = exponent.div_euclid(4);
        let mut aligned = Vec::with_capacity(self.digits.len() + 8);
        aligned.extend_from_slice(self.digits.as_bytes());
        aligned.extend(std::iter::repeat_n(b'0', padding));
        let lead = (4 - aligned.len() % 4) % 4;
        aligned.splice(0..0, std::iter::repeat_n(b'0', lead));
        let mut groups: Vec<i16> = aligned
            .chunks(4)
            .map(|chunk| chunk.iter().fold(0, |n, c| n * 10 + i16::from(c - b'0')))
            .collect();
        let mut weight = lowest_weight + groups.len() as i32 - 1;
        let zeros = groups.iter().take_while(|group| **group == 0).count();
        groups.drain(..zeros);
        weight -= zeros as i32;
        while groups.last() == Some(&0) {
            groups.pop();
        }
        if groups.is_empty() {
            weight = 0;
        }
        out.put_i16(groups.len() as i16);
        out.put_i16(weight as i16);
        out.put_u16(if self.negative && !groups.is_empty() {
            NEGATIVE
        } else {
            0
        });
        out.put_i16(display_scale as i16);
        for group in groups {
            out.put_i16(group);
        }
    }
}

/// Digits before and after the point of an unsigned decimal number such as `12`, `.5` or `1.25e-3`,
/// written without an exponent and without leading zeros; `None` for what is no such number, and
/// where the exponent is beyond `exponent_max`.
pub(crate) fn plain_digits(text: &str, exponent_max: u32) -> Option<(String, String)> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let is_number = is_digits(whole)
        && is_digits(fraction)
        && mantissa.len() > usize::from(mantissa.contains('.'));
    if !is_number || exponent.unsigned_abs() > exponent_max {
        return None;
    }
    let shift = exponent.unsigned_abs() as usize;
    let (whole, fraction) = match exponent >= 0 {
        true => {
            let (moved, rest) = fraction.split_at(shift.min(fraction.len()));
            let zeros = "0".repeat(shift - moved.len());
            (format!("{whole}{moved}{zeros}"), rest.to_owned())
        }
        false => {
            let (rest, moved) = whole.split_at(whole.len().saturating_sub(shift));
            let zeros = "0".repeat(shift - moved.len());
            (rest.to_owned(), format!("{zeros}{moved}{fraction}"))
        }
    };
    Some((whole.trim_start_matches('0').to_owned(), fraction))
}

/// Reads a number in text form into the unscaled value of `numeric(precision, scale)`.
pub(crate) fn parse_text(text: &str, precision: u8, scale: i8) -> Result<i128> {
    let invalid = || {
        Error::new(
            sqlstate::INVALID_TEXT,
            format!("invalid input syntax for type numeric: \"{text}\""),
        )
    };
    let trimmed = text.trim();
    let (negative, unsigned) = match trimmed.as_bytes().first() {
        Some(b'-') => (true, &trimmed[1..]),
        Some(b'+') => (false, &trimmed[1..]),
        _ => (false, trimmed),
    };
    if ["nan", "infinity", "inf"]
        .iter()
        .any(|word| unsigned.eq_ignore_ascii_case(word))
    {
        return Err(not_finite());
    }
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => {
            let exponent: i32 = unsigned[at + 1..].parse().map_err(|_| invalid())?;
            (&unsigned[..at], exponent)
        }
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) || whole.len() + fraction.len() == 0 {
        return Err(invalid());
    }
    let digits: Vec<u8> = whole
        .bytes()
        .chain(fraction.bytes())
        .map(|b| b - b'0')
        .collect();
    let point = whole.len() as i64 + i64::from(exponent);
    rescale(negative, &digits, point, precision, scale)
}

/// Reads the binary form into the unscaled value of `numeric(precision, scale)`.
pub(crate) fn parse_binary(bytes: &[u8], precision: u8, scale: i8) -> Result<i128> {
    let invalid = || Error::new(sqlstate::INVALID_BINARY, "invalid numeric value");
    let word = |at: usize| -> Result<u16> {
        let pair = bytes.get(at * 2..at * 2 + 2).ok_or_else(invalid)?;
        Ok(u16::from_be_bytes([pair[0], pair[1]]))
    };
    let (count, weight, sign) = (usize::from(word(0)?), word(1)? as i16, word(2)?);
    match sign {
        0 | NEGATIVE => {}
        0xC000 | 0xD000 | 0xF000 => return Err(not_finite()),
        _ => return Err(invalid()),
    }
    if bytes.len() != 8 + count * 2 {
        return Err(invalid());
    }
    let mut digits = Vec::with_capacity(count * 4);
    for i in 0..count {
        let group = word(4 + i)?;
        if group > 9999 {
            return Err(invalid());
        }
        digits.extend([1000, 100, 10, 1].map(|unit| (group / unit % 10) as u8));
    }
    let point = (i64::from(weight) + 1) * 4;
    rescale(sign == NEGATIVE, &digits, point, precision, scale)
}

/// The unscaled value at `scale` of 0.d₁d₂… × 10^`point`, rounded half away from zero.
fn rescale(negative: bool, digits: &[u8], point: i64, precision: u8, scale: i8) -> Result<i128> {
    let overflow = || {
        Error::new(sqlstate::NUMERIC_OUT_OF_RANGE, "numeric field overflow").detail(format!(
            "A field with precision {precision}, scale {scale} must round to an absolute value less than 10^{}.",
            i32::from(precision) - i32::from(scale)
        ))
    };
    let kept = point + i64::from(scale);
    let limit = 10i128.pow(u32::from(precision.min(38)));
    let mut value: i128 = 0;
    for at in 0..kept.max(0) {
        let digit = usize::try_from(at).ok().and_then(|at| digits.get(at));
        if value == 0 && digit.is_none() {
            // Only zeros are left, before any other digit: the value is zero.
            break;
        }
        value = value
            .checked_mul(10)
            .and_then(|v| v.checked_add(i128::from(digit.copied().unwrap_or(0))))
            .filter(|v| *v < limit)
            .ok_or_else(overflow)?;
    }
    let first_dropped = usize::try_from(kept).ok().and_then(|at| digits.get(at));
    if first_dropped.is_some_and(|digit| *digit >= 5) {
        value += 1;
        if value >= limit {
            return Err(overflow());
        }
    }
    Ok(if negative { -value } else { value })
}

fn not_finite() -> Error {
    Error::new(
        sqlstate::NUMERIC_OUT_OF_RANGE,
        "numeric values must be finite",
    )
    .hint("Use DOUBLE PRECISION for NaN and infinity.")
}
