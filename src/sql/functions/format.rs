//! PostgreSQL's templates of dates and times (`YYYY-MM-DD HH24:MI:SS`), both ways.
//! Source of the meaning: PostgreSQL 15 documentation, section 9.8 "Data Type Formatting
//! Functions". Not here: Roman months and era markers; Julian days and time zone names on input.

use chrono::{Datelike, NaiveDate, NaiveDateTime, Timelike};

use crate::error::{Error, Result, sqlstate};

/// One piece of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) what: What,
    /// `FM`: no padding.
    pub(super) fill: bool,
    /// `TH` or `th` behind it.
    pub(super) ordinal: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Field(Field, Case),
    Literal(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    Upper,
    Capital,
    Lower,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Year(usize),
    YearComma,
    IsoYear,
    Month,
    MonthName,
    /// without blanks behind it
    MonthNameAlone,
    MonthShort,
    Day,
    DayName,
    /// without blanks behind it
    DayNameAlone,
    DayShort,
    DayOfYear,
    /// days since 4714-11-24 BC
    JulianDay,
    DayOfWeek,
    IsoDayOfWeek,
    WeekOfMonth,
    WeekOfYear,
    IsoWeek,
    Century,
    Quarter,
    Hour24,
    Hour12,
    Minute,
    Second,
    Fraction(usize),
    SecondOfDay,
    HalfDay,
    HalfDayDots,
    Zone,
    Offset,
}

/// Julian days of the day before the first of year 1.
const JULIAN_DAYS_BEFORE_CE: i64 = 1_721_425;

/// Keywords, the longer of two with the same beginning first.
const KEYWORDS: &[(&str, Field)] = &[
    ("Y,YYY", Field::YearComma),
    ("IYYY", Field::IsoYear),
    ("YYYY", Field::Year(4)),
    ("YYY", Field::Year(3)),
    ("YY", Field::Year(2)),
    ("Y", Field::Year(1)),
    // Names of months and days in the session's language, which is English.
    ("TMMONTH", Field::MonthNameAlone),
    ("TMMON", Field::MonthShort),
    ("TMDAY", Field::DayNameAlone),
    ("TMDY", Field::DayShort),
    ("MONTH", Field::MonthName),
    ("MON", Field::MonthShort),
    ("MM", Field::Month),
    ("MI", Field::Minute),
    ("MS", Field::Fraction(3)),
    ("DAY", Field::DayName),
    ("DDD", Field::DayOfYear),
    ("DD", Field::Day),
    ("DY", Field::DayShort),
    ("D", Field::DayOfWeek),
    ("HH24", Field::Hour24),
    ("HH12", Field::Hour12),
    ("HH", Field::Hour12),
    ("SSSSS", Field::SecondOfDay),
    ("SSSS", Field::SecondOfDay),
    ("SS", Field::Second),
    ("US", Field::Fraction(6)),
    ("FF1", Field::Fraction(1)),
    ("FF2", Field::Fraction(2)),
    ("FF3", Field::Fraction(3)),
    ("FF4", Field::Fraction(4)),
    ("FF5", Field::Fraction(5)),
    ("FF6", Field::Fraction(6)),
    ("A.M.", Field::HalfDayDots),
    ("P.M.", Field::HalfDayDots),
    ("AM", Field::HalfDay),
    ("PM", Field::HalfDay),
    ("IW", Field::IsoWeek),
    ("ID", Field::IsoDayOfWeek),
    ("WW", Field::WeekOfYear),
    ("W", Field::WeekOfMonth),
    ("CC", Field::Century),
    ("J", Field::JulianDay),
    ("Q", Field::Quarter),
    ("TZ", Field::Zone),
    ("OF", Field::Offset),
];

/// What is told of the clock that shows a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clock {
    /// `TZ`: its zone's name at that time
    pub zone: String,
    /// `OF`: how far it is ahead of UTC
    pub offset: String,
}

impl Clock {
    /// One that shows UTC.
    pub fn utc() -> Self {
        Self {
            zone: "UTC".to_owned(),
            offset: "+00".to_owned(),
        }
    }
}

/// A template, read once and used for many rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

impl Template {
    /// Reads a template; what is no keyword stands for itself.
    pub fn parse(template: &str) -> Self {
        let mut pieces: Vec<Piece> = Vec::new();
        let mut rest = template;
        let mut fill = false;
        while let Some(first) = rest.chars().next() {
            if let Some(tail) = rest.strip_prefix("FM").or_else(|| rest.strip_prefix("fm")) {
                fill = true;
                rest = tail;
                continue;
            }
            if let Some((field, case, tail)) = keyword(rest) {
                let (ordinal, tail) = ordinal(tail);
                pieces.push(Piece {
                    what: What::Field(field, case),
                    fill,
                    ordinal,
                });
                fill = false;
                rest = tail;
                continue;
            }
            let (literal, tail) = if first == '"' {
                let inner = &rest[1..];
                let end = inner.find('"').unwrap_or(inner.len());
                (&inner[..end], inner.get(end + 1..).unwrap_or(""))
            } else {
                rest.split_at(first.len_utf8())
            };
            pieces.push(Piece {
                what: What::Literal(literal.to_owned()),
                fill: false,
                ordinal: None,
            });
            rest = tail;
        }
        Self(pieces)
    }

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// Writes a time, and the clock that shows it; a time without zone has none.
    pub fn format(&self, time: NaiveDateTime, clock: Option<&Clock>) -> String {
        let mut out = String::new();
        for piece in &self.0 {
            match &piece.what {
                What::Literal(text) => out.push_str(text),
                What::Field(field, case) => {
                    let text = field_text(*field, *case, piece.fill, time, clock);
                    out.push_str(&with_ordinal(text, piece.ordinal));
                }
            }
        }
        out
    }

    /// Reads a time by the template. Errors: 22007 with PostgreSQL's words.
    pub fn read(&self, text: &str) -> Result<NaiveDateTime> {
        let mut parts = Parts::default();
        let mut rest = text.trim_start();
        for (at, piece) in self.0.iter().enumerate() {
            match &piece.what {
                What::Literal(literal) => rest = skip_literal(rest, literal),
                What::Field(field, _) => {
                    // Digits that belong to a field end where the next field's begin, if nothing
                    // stands between them.
                    let next_is_field =
                        matches!(self.0.get(at + 1), Some(p) if matches!(p.what, What::Field(..)));
                    rest = parts.read(*field, rest.trim_start(), next_is_field, text)?;
                }
            }
        }
        parts.finish(text)
    }
}

fn keyword(text: &str) -> Option<(Field, Case, &str)> {
    let (word, field) = KEYWORDS.iter().find(|(word, _)| {
        text.get(..word.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(word))
    })?;
    let (head, tail) = text.split_at(word.len());
    let letters = head.strip_prefix("TM").unwrap_or(head);
    let mut letters = letters.chars();
    let case = match (letters.next(), letters.next()) {
        (Some(a), _) if a.is_lowercase() => Case::Lower,
        (Some(_), Some(b)) if b.is_lowercase() => Case::Capital,
        _ => Case::Upper,
    };
    Some((*field, case, tail))
}

fn ordinal(text: &str) -> (Option<bool>, &str) {
    if let Some(tail) = text.strip_prefix("TH") {
        (Some(true), tail)
    } else if let Some(tail) = text.strip_prefix("th") {
        (Some(false), tail)
    } else {
        (None, text)
    }
}

fn ordinal_suffix(number: &str) -> &'static str {
    let digits = number.trim();
    let teen = digits.len() > 1 && digits[..digits.len() - 1].ends_with('1');
    match digits.chars().last() {
        Some('1') if !teen => "st",
        Some('2') if !teen => "nd",
        Some('3') if !teen => "rd",
        _ => "th",
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

fn in_case(name: &str, case: Case) -> String {
    match case {
        Case::Upper => name.to_uppercase(),
        Case::Capital => name.to_owned(),
        Case::Lower => name.to_lowercase(),
    }
}

fn field_text(
    field: Field,
    case: Case,
    fill: bool,
    time: NaiveDateTime,
    clock: Option<&Clock>,
) -> String {
    let number = |value: i64, width: usize| {
        if fill {
            value.to_string()
        } else {
            format!("{value:0width$}")
        }
    };
    let name = |name: &str, padded: bool| {
        let text = in_case(name, case);
        if fill || !padded {
            text
        } else {
            format!("{text:<9}")
        }
    };
    let year = i64::from(time.year());
    let hour = i64::from(time.hour());
    let month_name = MONTHS[time.month0() as usize];
    let day_name = DAYS[time.weekday().num_days_from_sunday() as usize];
    match field {
        Field::Year(4) => number(year, 4),
        Field::Year(digits) => {
            let power = 10i64.pow(u32::try_from(digits).unwrap_or(1));
            number(year.rem_euclid(power), digits)
        }
        Field::YearComma => format!("{},{:03}", year / 1000, year.rem_euclid(1000)),
        Field::IsoYear => number(i64::from(time.iso_week().year()), 4),
        Field::Month => number(i64::from(time.month()), 2),
        Field::MonthName => name(month_name, true),
        Field::MonthNameAlone => name(month_name, false),
        Field::MonthShort => name(&month_name[..3], false),
        Field::Day => number(i64::from(time.day()), 2),
        Field::DayName => name(day_name, true),
        Field::DayNameAlone => name(day_name, false),
        Field::DayShort => name(&day_name[..3], false),
        Field::DayOfYear => number(i64::from(time.ordinal()), 3),
        Field::JulianDay => {
            (i64::from(time.date().num_days_from_ce()) + JULIAN_DAYS_BEFORE_CE).to_string()
        }
        Field::DayOfWeek => (time.weekday().num_days_from_sunday() + 1).to_string(),
        Field::IsoDayOfWeek => time.weekday().number_from_monday().to_string(),
        Field::WeekOfMonth => ((time.day() - 1) / 7 + 1).to_string(),
        Field::WeekOfYear => number(i64::from((time.ordinal() - 1) / 7 + 1), 2),
        Field::IsoWeek => number(i64::from(time.iso_week().week()), 2),
        Field::Century => number((year + 99).div_euclid(100), 2),
        Field::Quarter => (time.month0() / 3 + 1).to_string(),
        Field::Hour24 => number(hour, 2),
        Field::Hour12 => number((hour + 11) % 12 + 1, 2),
        Field::Minute => number(i64::from(time.minute()), 2),
        Field::Second => number(i64::from(time.second()), 2),
        Field::Fraction(digits) => {
            let micros = format!("{:06}", time.nanosecond() / 1_000 % 1_000_000);
            micros[..digits].to_owned()
        }
        Field::SecondOfDay => time.num_seconds_from_midnight().to_string(),
        Field::HalfDay => half_day(hour, ["AM", "PM"], case),
        Field::HalfDayDots => half_day(hour, ["A.M.", "P.M."], case),
        Field::Zone => {
            let zone = clock.map_or("", |clock| clock.zone.as_str());
            match case {
                Case::Lower => zone.to_lowercase(),
                _ => zone.to_owned(),
            }
        }
        Field::Offset => clock.map_or_else(|| "+00".to_owned(), |clock| clock.offset.clone()),
    }
}

/// A number with `TH` or `th` behind it.
pub(super) fn with_ordinal(mut text: String, ordinal: Option<bool>) -> String {
    let suffix = ordinal.map(|upper| (upper, ordinal_suffix(&text)));
    match suffix {
        Some((true, suffix)) => text.push_str(&suffix.to_uppercase()),
        Some((false, suffix)) => text.push_str(suffix),
        None => {}
    }
    text
}

pub(super) fn half_day(hour: i64, names: [&str; 2], case: Case) -> String {
    let name = names[usize::from(hour >= 12)];
    match case {
        Case::Lower => name.to_lowercase(),
        _ => name.to_owned(),
    }
}

/// A separator in the template skips one character of the text that is no letter or digit.
fn skip_literal<'a>(text: &'a str, literal: &str) -> &'a str {
    let mut rest = text;
    for wanted in literal.chars() {
        let Some(found) = rest.chars().next() else {
            return rest;
        };
        if found == wanted || (!wanted.is_alphanumeric() && !found.is_alphanumeric()) {
            rest = &rest[found.len_utf8()..];
        }
    }
    rest
}

/// What was read so far.
#[derive(Debug, Default)]
struct Parts {
    year: Option<i32>,
    month: Option<u32>,
    day: Option<u32>,
    day_of_year: Option<u32>,
    hour: u32,
    hour_is_12: bool,
    afternoon: Option<bool>,
    minute: u32,
    second: u32,
    microsecond: u32,
}

impl Parts {
    fn read<'a>(
        &mut self,
        field: Field,
        rest: &'a str,
        next_is_field: bool,
        whole: &str,
    ) -> Result<&'a str> {
        let digits = |wide: usize| if next_is_field { wide } else { wide.max(9) };
        match field {
            Field::Year(width) => {
                let (value, tail) = number(rest, digits(width), whole)?;
                let value = i32::try_from(value).unwrap_or(i32::MAX);
                // Two digits mean 1970 to 2069, as in PostgreSQL.
                self.year = Some(match width {
                    4 => value,
                    _ if value < 70 => value + 2000,
                    _ if value < 100 => value + 1900,
                    _ => value,
                });
                Ok(tail)
            }
            Field::Month => take(&mut self.month, rest, 2, whole),
            Field::Day => take(&mut self.day, rest, 2, whole),
            Field::DayOfYear => take(&mut self.day_of_year, rest, 3, whole),
            Field::Hour24 => self.take_number(rest, 2, whole, |p, n| p.hour = n),
            Field::Hour12 => self.take_number(rest, 2, whole, |p, n| {
                p.hour = n;
                p.hour_is_12 = true;
            }),
            Field::Minute => self.take_number(rest, 2, whole, |p, n| p.minute = n),
            Field::Second => self.take_number(rest, 2, whole, |p, n| p.second = n),
            Field::Fraction(width) => {
                let found = rest.bytes().take_while(u8::is_ascii_digit).count();
                let used = found.min(if next_is_field { width } else { 6 });
                let (value, _) = number(rest, used.max(1), whole)?;
                let scale = 10u32.pow(u32::try_from(6 - used.min(6)).unwrap_or(0));
                self.microsecond = value * scale;
                Ok(&rest[if next_is_field { used } else { found }..])
            }
            Field::MonthName | Field::MonthNameAlone | Field::MonthShort => {
                let at = name_index(rest, &MONTHS).ok_or_else(|| bad_value(rest, "MON"))?;
                self.month = u32::try_from(at.0 + 1).ok();
                Ok(&rest[at.1..])
            }
            Field::DayName | Field::DayNameAlone | Field::DayShort => {
                let at = name_index(rest, &DAYS).ok_or_else(|| bad_value(rest, "DAY"))?;
                Ok(&rest[at.1..])
            }
            Field::HalfDay | Field::HalfDayDots => {
                let length = if field == Field::HalfDay { 2 } else { 4 };
                let head = rest.get(..length).unwrap_or(rest).to_ascii_uppercase();
                self.afternoon = match head.chars().next() {
                    Some('A') => Some(false),
                    Some('P') => Some(true),
                    _ => return Err(bad_value(rest, "AM")),
                };
                Ok(rest.get(length..).unwrap_or(""))
            }
            _ => Err(Error::unsupported(
                "this template has a field that can be written and not read",
            )),
        }
    }

    fn take_number<'a>(
        &mut self,
        rest: &'a str,
        width: usize,
        whole: &str,
        set: impl FnOnce(&mut Self, u32),
    ) -> Result<&'a str> {
        let (value, tail) = number(rest, width, whole)?;
        set(self, value);
        Ok(tail)
    }

    fn finish(mut self, text: &str) -> Result<NaiveDateTime> {
        if self.hour_is_12 && !(1..=12).contains(&self.hour) {
            return Err(Error::new(
                sqlstate::INVALID_DATETIME,
                format!("hour \"{}\" is invalid for the 12-hour clock", self.hour),
            ));
        }
        match self.afternoon {
            Some(true) if self.hour < 12 => self.hour += 12,
            Some(false) if self.hour == 12 => self.hour = 0,
            _ => {}
        }
        let year = self.year.unwrap_or(1);
        let date = match self.day_of_year {
            Some(day) => NaiveDate::from_yo_opt(year, day),
            None => NaiveDate::from_ymd_opt(year, self.month.unwrap_or(1), self.day.unwrap_or(1)),
        };
        date.and_then(|d| {
            d.and_hms_micro_opt(self.hour, self.minute, self.second, self.microsecond)
        })
        .ok_or_else(|| {
            Error::new(
                sqlstate::DATETIME_OVERFLOW,
                format!("date/time field value out of range: \"{text}\""),
            )
        })
    }
}

fn take<'a>(target: &mut Option<u32>, rest: &'a str, width: usize, whole: &str) -> Result<&'a str> {
    let (value, tail) = number(rest, width, whole)?;
    *target = Some(value);
    Ok(tail)
}

fn number<'a>(text: &'a str, width: usize, whole: &str) -> Result<(u32, &'a str)> {
    let digits = text
        .bytes()
        .take(width)
        .take_while(u8::is_ascii_digit)
        .count();
    text[..digits]
        .parse()
        .map(|value| (value, &text[digits..]))
        .map_err(|_| bad_value(if text.is_empty() { whole } else { text }, "number"))
}

fn name_index(text: &str, names: &[&str]) -> Option<(usize, usize)> {
    let starts = |name: &str| {
        text.get(..name.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(name))
    };
    let full = names
        .iter()
        .position(|n| starts(n))
        .map(|i| (i, names[i].len()));
    full.or_else(|| names.iter().position(|n| starts(&n[..3])).map(|i| (i, 3)))
}

fn bad_value(text: &str, field: &str) -> Error {
    let shown: String = text.chars().take(20).collect();
    Error::new(
        sqlstate::INVALID_DATETIME,
        format!("invalid value \"{shown}\" for \"{field}\""),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> NaiveDateTime {
        NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f").unwrap()
    }

    #[test]
    fn writing() {
        let at = time("2026-03-02 15:04:05.0678");
        for (template, expected) in [
            ("YYYY-MM-DD", "2026-03-02"),
            ("YYYY-MM-DD HH24:MI:SS.US", "2026-03-02 15:04:05.067800"),
            ("HH12:MI am, HH PM", "03:04 pm, 03 PM"),
            (
                "Day|FMDay|DY|mon|Month|FMMONTH",
                "Monday   |Monday|MON|mar|March    |MARCH",
            ),
            ("FMDDth FMMM DDD Q WW IW ID D", "2nd 3 061 1 09 10 1 2"),
            ("\"at \"HH24\"h\"", "at 15h"),
            ("YY Y,YYY IYYY CC MS", "26 2,026 2026 21 067"),
            ("TZ OF", "UTC +00"),
            ("TMMonth|TMDay|J", "March|Monday|2461102"),
        ] {
            assert_eq!(
                Template::parse(template).format(at, Some(&Clock::utc())),
                expected,
                "{template}"
            );
        }
    }

    #[test]
    fn reading() {
        for (text, template, expected) in [
            (
                "2026-03-02 15:04:05.0678",
                "YYYY-MM-DD HH24:MI:SS.US",
                "2026-03-02 15:04:05.0678",
            ),
            ("20260302150405", "YYYYMMDDHH24MISS", "2026-03-02 15:04:05"),
            (
                "2 Mar 2026 3 pm",
                "DD Mon YYYY HH12 am",
                "2026-03-02 15:00:00",
            ),
            ("12/31/69", "MM/DD/YY", "2069-12-31 00:00:00"),
            ("2026 061", "YYYY DDD", "2026-03-02 00:00:00"),
        ] {
            assert_eq!(
                Template::parse(template).read(text).unwrap(),
                time(expected),
                "{text}"
            );
        }
        for (text, template, state) in [
            ("2026-13-01", "YYYY-MM-DD", "22008"),
            ("abc", "YYYY", "22007"),
            ("13 am", "HH12 am", "22007"),
            ("", "YYYY", "22007"),
        ] {
            let e = Template::parse(template).read(text).unwrap_err();
            assert_eq!(e.sqlstate(), state, "{text}");
        }
    }
}
