//! What values a parameter takes, and how each is written back.

use super::known::Known;
use crate::error::{Error, Result, sqlstate};
use crate::values::zones;

/// Time units in milliseconds.
pub(super) const TIME_UNITS_MS: &[(&str, f64)] = &[
    ("us", 0.001),
    ("ms", 1.0),
    ("min", 60_000.0),
    ("s", 1000.0),
    ("h", 3_600_000.0),
    ("d", 86_400_000.0),
];

/// Memory units in kilobytes.
pub(super) const MEMORY_UNITS_KB: &[(&str, f64)] = &[
    ("kB", 1.0),
    ("MB", 1024.0),
    ("GB", 1024.0 * 1024.0),
    ("TB", 1024.0 * 1024.0 * 1024.0),
    ("B", 1.0 / 1024.0),
];

/// The kinds of parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// on or off
    Bool,
    /// from, to
    Integer(i64, i64),
    /// any number
    Real,
    /// any text
    Text,
    /// one of these
    Enum(&'static [&'static str]),
    /// a time; a bare number is milliseconds
    TimeMs,
    /// an amount of memory; a bare number is kilobytes
    MemoryKb,
    /// a time zone's name or offset
    TimeZone,
    /// `ISO, MDY` and its like: the output style is always ISO
    DateStyle,
    /// UTF8 under any of its names
    Encoding,
}

impl Kind {
    pub fn vartype(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::Integer(..) | Self::TimeMs | Self::MemoryKb => "integer",
            Self::Real => "real",
            Self::Enum(_) => "enum",
            Self::Text | Self::TimeZone | Self::DateStyle | Self::Encoding => "string",
        }
    }

    pub fn unit(self) -> Option<&'static str> {
        match self {
            Self::TimeMs => Some("ms"),
            Self::MemoryKb => Some("kB"),
            _ => None,
        }
    }

    /// The value as it is kept and shown, or PostgreSQL's error (22023).
    pub fn normalize(self, known: &Known, value: &str) -> Result<String> {
        let invalid = || {
            Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!(
                    "invalid value for parameter \"{}\": \"{value}\"",
                    known.name
                ),
            )
        };
        let trimmed = value.trim();
        match self {
            Self::Bool => parse_bool(trimmed)
                .map(|on| if on { "on" } else { "off" }.to_owned())
                .ok_or_else(|| {
                    Error::new(
                        sqlstate::INVALID_PARAMETER_VALUE,
                        format!("parameter \"{}\" requires a Boolean value", known.name),
                    )
                }),
            Self::Integer(least, most) => {
                let number: i64 = trimmed.parse().map_err(|_| invalid())?;
                if number < least || number > most {
                    return Err(Error::new(
                        sqlstate::INVALID_PARAMETER_VALUE,
                        format!(
                            "{number} is outside the valid range for parameter \"{}\" ({least} .. {most})",
                            known.name
                        ),
                    ));
                }
                Ok(number.to_string())
            }
            Self::Real => {
                let number: f64 = trimmed.parse().map_err(|_| invalid())?;
                Ok(number.to_string())
            }
            Self::Text => Ok(value.to_owned()),
            Self::Enum(allowed) => allowed
                .iter()
                .find(|a| a.eq_ignore_ascii_case(trimmed))
                .map(|a| (*a).to_owned())
                .ok_or_else(|| {
                    invalid().hint(format!("Available values: {}.", allowed.join(", ")))
                }),
            Self::TimeMs => {
                let ms = parse_with_unit(trimmed, "ms", TIME_UNITS_MS)
                    .ok_or_else(|| invalid().hint("Valid units are us, ms, s, min, h and d."))?;
                if ms < 0.0 {
                    return Err(invalid());
                }
                Ok(shown_with_unit(ms, TIME_UNITS_MS, "ms"))
            }
            Self::MemoryKb => {
                let kb = parse_with_unit(trimmed, "kB", MEMORY_UNITS_KB)
                    .ok_or_else(|| invalid().hint("Valid units are B, kB, MB, GB and TB."))?;
                Ok(shown_with_unit(kb, MEMORY_UNITS_KB, "kB"))
            }
            Self::TimeZone => time_zone(trimmed).ok_or_else(invalid),
            Self::DateStyle => date_style(trimmed).ok_or_else(invalid),
            Self::Encoding => {
                let plain: String = trimmed
                    .chars()
                    .filter(char::is_ascii_alphanumeric)
                    .collect::<String>()
                    .to_lowercase();
                match plain.as_str() {
                    "utf8" | "unicode" => Ok("UTF8".to_owned()),
                    _ => Err(invalid().hint("Text is UTF8 here; set client_encoding to 'UTF8'.")),
                }
            }
        }
    }
}

pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text.to_lowercase().as_str() {
        "on" | "true" | "yes" | "1" | "t" | "y" => Some(true),
        "off" | "false" | "no" | "0" | "f" | "n" | "of" => Some(false),
        _ => None,
    }
}

/// A number with an optional unit, in the unit `bare`.
pub(super) fn parse_with_unit(text: &str, bare: &str, units: &[(&str, f64)]) -> Option<f64> {
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let number: f64 = text[..split].trim().parse().ok()?;
    let unit = text[split..].trim();
    let unit = if unit.is_empty() { bare } else { unit };
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    Some(number * factor)
}

/// As PostgreSQL's SHOW writes it: the largest unit that divides it, and a bare zero.
fn shown_with_unit(value: f64, units: &[(&str, f64)], bare: &str) -> String {
    let value = value.round();
    if value == 0.0 {
        return "0".to_owned();
    }
    let mut best = (bare, 1.0);
    for (name, factor) in units {
        if *factor > best.1 && value % factor == 0.0 {
            best = (name, *factor);
        }
    }
    format!("{}{}", value / best.1, best.0)
}

fn time_zone(text: &str) -> Option<String> {
    let text = text.trim_matches('\'');
    if matches!(text.to_lowercase().as_str(), "local" | "default") {
        return Some("UTC".to_owned());
    }
    // A bare number is hours east of Greenwich.
    match text.parse::<f64>() {
        Ok(hours) if hours.abs() <= 15.0 => Some(zones::of_offset((hours * 60.0).round() as i64)),
        Ok(_) => None,
        Err(_) => zones::canonical_name(text),
    }
}

fn date_style(text: &str) -> Option<String> {
    let mut order = "MDY";
    for part in text.split(',') {
        match part.trim().to_lowercase().as_str() {
            "iso" | "default" | "" => {}
            "mdy" | "us" | "noneuro" | "noneuropean" => order = "MDY",
            "dmy" | "euro" | "european" => order = "DMY",
            "ymd" => order = "YMD",
            // Other output styles would need another writer; drivers refuse them anyway.
            _ => return None,
        }
    }
    Some(format!("ISO, {order}"))
}
