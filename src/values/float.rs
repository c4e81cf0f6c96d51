//! Floating point numbers in PostgreSQL's text form.
//!
//! The digits are the shortest that read back as the same number (Rust's own are too). PostgreSQL
//! writes them with an exponent of at least two digits where the decimal exponent is below -4 or
//! at least 15 (`double precision`) or 6 (`real`).
//!
//! There are many NaNs, and to SQL they are one value, which the engine compares and groups by its
//! bits. So what takes a number in or computes one gives the same NaN always ([`one_nan`]).

use std::fmt::{LowerExp, Write};
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};

use crate::error::{Error, Result, sqlstate};

/// Numbers with one and the same NaN; all else as it is.
pub(crate) fn one_nan(numbers: ArrayRef) -> ArrayRef {
    match numbers.data_type() {
        DataType::Float32 => {
            let floats = numbers.as_primitive::<Float32Type>();
            match floats
                .values()
                .iter()
                .fold(false, |found, v| found | v.is_nan())
            {
                true => Arc::new(floats.unary::<_, Float32Type>(real)),
                false => numbers,
            }
        }
        DataType::Float64 => {
            let floats = numbers.as_primitive::<Float64Type>();
            match floats
                .values()
                .iter()
                .fold(false, |found, v| found | v.is_nan())
            {
                true => Arc::new(floats.unary::<_, Float64Type>(double)),
                false => numbers,
            }
        }
        _ => numbers,
    }
}

/// A number, or the one NaN.
pub(crate) fn double(value: f64) -> f64 {
    match value.is_nan() {
        true => f64::NAN,
        false => value,
    }
}

/// As [`double`].
pub(crate) fn real(value: f32) -> f32 {
    match value.is_nan() {
        true => f32::NAN,
        false => value,
    }
}

/// Appends a `double precision`.
pub(crate) fn write_double(value: f64, out: &mut BytesMut) {
    match special(value) {
        Some(text) => out.put_slice(text.as_bytes()),
        None => write_shortest(value, 15, out),
    }
}

/// Appends a `real`.
pub(crate) fn write_real(value: f32, out: &mut BytesMut) {
    match special(f64::from(value)) {
        Some(text) => out.put_slice(text.as_bytes()),
        None => write_shortest(value, 6, out),
    }
}

fn special(value: f64) -> Option<&'static str> {
    match value {
        v if v.is_nan() => Some("NaN"),
        f64::INFINITY => Some("Infinity"),
        f64::NEG_INFINITY => Some("-Infinity"),
        _ => None,
    }
}

fn write_shortest(value: impl LowerExp, plain_digits: i32, out: &mut BytesMut) {
    // `-1.2345e-7`: sign, one digit, the others, exponent.
    let mut buffer = String::with_capacity(32);
    // Writing to a String cannot fail.
    write!(buffer, "{value:e}").expect("a String takes all that is written");
    let (mantissa, exponent) = buffer.split_once('e').expect("LowerExp writes an exponent");
    let exponent: i32 = exponent.parse().expect("LowerExp writes a number after e");
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    out.put_slice(sign.as_bytes());
    let (first, rest) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if !(-4..plain_digits).contains(&exponent) {
        out.put_slice(mantissa.as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "e{sign}{:02}", exponent.abs()).expect("the buffer grows");
    } else if exponent < 0 {
        out.put_slice(b"0.");
        out.put_bytes(b'0', (-exponent - 1) as usize);
        out.put_slice(first.as_bytes());
        out.put_slice(rest.as_bytes());
    } else {
        let whole = exponent as usize;
        out.put_slice(first.as_bytes());
        out.put_slice(&rest.as_bytes()[..rest.len().min(whole)]);
        out.put_bytes(b'0', whole.saturating_sub(rest.len()));
        if rest.len() > whole {
            out.put_u8(b'.');
            out.put_slice(&rest.as_bytes()[whole..]);
        }
    }
}

/// Reads a `double precision`.
pub(crate) fn parse_double(text: &str) -> Result<f64> {
    parse(text, "double precision", f64::is_infinite)
}

/// Reads a `real`.
pub(crate) fn parse_real(text: &str) -> Result<f32> {
    parse(text, "real", f32::is_infinite)
}

fn parse<T: std::str::FromStr + Copy>(
    text: &str,
    type_name: &str,
    is_infinite: fn(T) -> bool,
) -> Result<T> {
    let trimmed = text.trim();
    let value: T = trimmed.parse().map_err(|_| {
        Error::new(
            sqlstate::INVALID_TEXT,
            format!("invalid input syntax for type {type_name}: \"{text}\""),
        )
    })?;
    let said_infinity = trimmed
        .trim_start_matches(['+', '-'])
        .starts_with(['i', 'I']);
    match is_infinite(value) && !said_infinity {
        true => Err(Error::new(
            sqlstate::NUMERIC_OUT_OF_RANGE,
            format!("\"{trimmed}\" is out of range for type {type_name}"),
        )),
        false => Ok(value),
    }
}
