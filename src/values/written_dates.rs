//! Dates in words and in other orders than ISO's (PostgreSQL 15 documentation, section 8.5.1 and
//! appendix B), as texts that the ISO scanner reads.
//!
//! ```text
//! January 8, 1999   8 Jan 1999   1999-Jan-08   08-Jan-99   1/18/1999   1999.008   J2451187
//! Mon Jan 8 04:05:06 1999 UTC   →   1999-01-08 04:05:06 UTC
//! ```
//! Numbers alone are month, day and year, PostgreSQL's DateStyle `MDY`. A year of two digits is one
//! from 1970 to 2069. Absent: other orders, and words of the clock, which a scanner must not read.

use super::datetime::{civil_from_days, days_in_month};

/// Julian day of 1970-01-01.
const EPOCH_JULIAN_DAY: i64 = 2_440_588;

/// The months' names.
const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

const DAYS: [&str; 7] = [
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

/// A date whose parts are found one by one.
#[derive(Debug, Default)]
struct Found<'a> {
    year: Option<&'a str>,
    month: Option<u32>,
    day: Option<u32>,
    /// Numbers that stand alone, in their order.
    numbers: Vec<&'a str>,
    /// Times, zones and eras.
    rest: Vec<&'a str>,
}

/// The number of a month from its name or at least three letters of it.
fn month_of(word: &str) -> Option<u32> {
    let word = word.to_ascii_lowercase();
    let word = word.trim_end_matches('.');
    let is_short = word.len() == 3 || word == "sept";
    let found = MONTHS
        .iter()
        .position(|name| *name == word || is_short && name.starts_with(word))?;
    u32::try_from(found + 1).ok()
}

fn is_day_name(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let is_short = word.len() == 3 || ["tues", "wednes", "thur", "thurs"].contains(&word.as_str());
    DAYS.iter()
        .any(|name| *name == word || is_short && name.starts_with(&word))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// A year of one or two digits is short for another.
fn is_whole_year(text: &str) -> bool {
    text.len() > 2
}

impl<'a> Found<'a> {
    /// Takes a date whose parts stand together; `None` where it is no date.
    fn take_parts(&mut self, parts: &[&'a str]) -> Option<()> {
        let number = |text: &str| text.parse::<u32>().ok();
        match parts {
            [year, day] if is_number(year) && is_number(day) && day.len() == 3 => {
                // The day of a year.
                let mut day = number(day)?;
                let whole: i64 = year.parse().ok()?;
                let mut month = 1;
                while month < 12 && day > days_in_month(whole, month) {
                    day -= days_in_month(whole, month);
                    month += 1;
                }
                self.set(year, month, day)
            }
            [a, b, c] => {
                let names = [month_of(a), month_of(b), month_of(c)];
                match names {
                    [None, Some(month), None] if is_whole_year(a) => self.set(a, month, number(c)?),
                    [None, Some(month), None] => self.set(c, month, number(a)?),
                    [Some(month), None, None] => self.set(c, month, number(b)?),
                    [None, None, None] if is_whole_year(a) => self.set(a, number(b)?, number(c)?),
                    [None, None, None] => self.set(c, number(a)?, number(b)?),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    fn set(&mut self, year: &'a str, month: u32, day: u32) -> Option<()> {
        let is_first = self.year.is_none() && self.month.is_none() && self.day.is_none();
        (is_first && is_number(year)).then(|| {
            (self.year, self.month, self.day) = (Some(year), Some(month), Some(day));
        })
    }

    fn take_word(&mut self, word: &'a str) -> Option<()> {
        if let Some(month) = month_of(word) {
            if self.month.replace(month).is_some() {
                return None;
            }
        } else if is_day_name(word) || word.eq_ignore_ascii_case("ad") {
        } else if is_number(word) {
            self.numbers.push(word);
        } else if word.contains(':') || !word.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            self.rest.push(word);
        } else {
            let parts: Vec<&str> = word.split(['-', '/', '.']).collect();
            let begins_date = word.starts_with(|c: char| c.is_ascii_digit())
                || parts.first().is_some_and(|part| month_of(part).is_some());
            match begins_date && parts.len() > 1 {
                true => self.take_parts(&parts)?,
                false => self.rest.push(word),
            }
        }
        Some(())
    }

    /// A month's name and two numbers: the day and the year, or the other way about.
    fn settle(&mut self) -> Option<()> {
        if self.year.is_some() {
            return self.numbers.is_empty().then_some(());
        }
        let (year, day) = match self.numbers.as_slice() {
            [first, second] if is_whole_year(first) => (*first, *second),
            [first, second] => (*second, *first),
            _ => return None,
        };
        self.year = Some(year);
        self.day = Some(day.parse().ok()?);
        Some(())
    }
}

/// The text with its date in ISO's form; `None` where no date is found in it.
pub(super) fn as_iso(text: &str) -> Option<String> {
    if let Some(day) = text
        .trim()
        .strip_prefix(['J', 'j'])
        .filter(|d| is_number(d))
    {
        let (year, month, day) = civil_from_days(day.parse::<i64>().ok()? - EPOCH_JULIAN_DAY);
        return (year > 0).then(|| format!("{year:04}-{month:02}-{day:02}"));
    }
    let mut found = Found::default();
    for word in text.split(|c: char| c.is_whitespace() || c == ',') {
        if !word.is_empty() {
            found.take_word(word)?;
        }
    }
    found.settle()?;
    let (year, month, day) = (found.year?, found.month?, found.day?);
    let is_before_christ = found
        .rest
        .iter()
        .any(|word| word.eq_ignore_ascii_case("bc"));
    let number: i64 = year.parse().ok()?;
    let number = match is_whole_year(year) || is_before_christ {
        true => number,
        false if number < 70 => number + 2000,
        false => number + 1900,
    };
    let mut iso = format!("{number:04}-{month:02}-{day:02}");
    for word in found.rest {
        iso.push(' ');
        iso.push_str(word);
    }
    Some(iso)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_many_forms() {
        for (text, expected) in [
            ("January 8, 1999", "1999-01-08"),
            ("8 Jan 1999", "1999-01-08"),
            ("1999 Jan 8", "1999-01-08"),
            ("1999-Jan-08", "1999-01-08"),
            ("08-Jan-99", "1999-01-08"),
            ("Jan-08-1999", "1999-01-08"),
            ("1/18/1999", "1999-01-18"),
            ("01/02/03", "2003-01-02"),
            ("1999.008", "1999-01-08"),
            ("2000.366", "2000-12-31"),
            ("J2451187", "1999-01-08"),
            ("Sept. 3 69", "2069-09-03"),
            ("Mon Jan 8 04:05:06 1999 UTC", "1999-01-08 04:05:06 UTC"),
            ("1/8/1999 04:05 PM +02", "1999-01-08 04:05 PM +02"),
            ("January 8, 99 BC", "0099-01-08 BC"),
        ] {
            assert_eq!(as_iso(text).as_deref(), Some(expected), "{text}");
        }
        for text in [
            "",
            "January",
            "Jan 8",
            "nonsense",
            "1 2 3",
            "Jan Feb 1 1999",
            "today",
        ] {
            assert_eq!(as_iso(text), None, "{text}");
        }
    }
}
