//! Time zones: their names, and moments on their clocks (PostgreSQL 15 documentation, section
//! 8.5.3 and appendix B.4).
//!
//! A wall clock that is turned back shows some times twice: these are read as of after the change.
//! Times that it never shows are read by the clock of before the change. Absent: POSIX
//! specifications of summer time (`CET-1CEST,M3.5.0`), and abbreviations (`CET`) other than those that are names.

use chrono::{LocalResult, NaiveDateTime, Offset, TimeZone, Utc};
use chrono_tz::OffsetName;
use datafusion::arrow::array::timezone::Tz;

/// Microseconds in an hour.
const HOUR_US: i64 = 3_600_000_000;

/// Hours that clocks jump ahead: by summer time, or over a day at the date line.
const JUMPS_HOURS: [i64; 3] = [1, 2, 25];

/// Whether a zone's clocks show UTC.
pub(crate) fn is_utc(name: &str) -> bool {
    let names = ["UTC", "GMT", "Etc/UTC", "Etc/GMT", "Z", "Zulu"];
    names.iter().any(|utc| name.eq_ignore_ascii_case(utc))
}

/// The name of a zone as it is kept: in the letters of the IANA database however it was written, or
/// a specification (`<+02>-02`) as it is. `None`: there is none.
pub(crate) fn canonical_name(text: &str) -> Option<String> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("z") {
        return Some("UTC".to_owned());
    }
    let named = chrono_tz::TZ_VARIANTS
        .iter()
        .find(|zone| zone.name().eq_ignore_ascii_case(text));
    if let Some(zone) = named {
        return Some(zone.name().to_owned());
    }
    posix_offset_s(text).map(|_| text.to_owned())
}

/// A zone by name or specification.
pub(crate) fn parse(name: &str) -> Option<Tz> {
    let name = name.trim();
    if let Some(west_s) = posix_offset_s(name) {
        return format!("{:+03}:{:02}", -west_s / 3600, west_s.abs() / 60 % 60)
            .parse()
            .ok();
    }
    // Names are nearly always written as they are kept.
    match name.parse() {
        Ok(zone) => Some(zone),
        Err(_) => canonical_name(name)?.parse().ok(),
    }
}

/// Seconds west of Greenwich of a POSIX specification without summer time: `<+02>-02`, `GMT-2`,
/// `-05:30`. What is in front of the sign is only what the zone is called.
fn posix_offset_s(text: &str) -> Option<i64> {
    let bare = match text.strip_prefix('<') {
        Some(rest) => rest.split_once('>')?.1,
        None => text.trim_start_matches(|c: char| c.is_ascii_alphabetic()),
    };
    let (sign, digits) = match bare.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, bare.strip_prefix('+').unwrap_or(bare)),
    };
    let (hours, minutes) = digits.split_once(':').unwrap_or((digits, "0"));
    let number = |text: &str, max: i64| {
        let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        let value = is_number.then(|| text.parse::<i64>().ok())??;
        (value <= max).then_some(value)
    };
    Some(sign * (number(hours, 24)? * 3600 + number(minutes, 59)? * 60))
}

/// What a POSIX specification calls its zone; nothing, in `-05:30`.
fn posix_name(text: &str) -> &str {
    match text.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        Some((name, _)) => name,
        None => text.trim_end_matches(|c: char| !c.is_ascii_alphabetic()),
    }
}

/// The specification of a zone that is some minutes ahead of UTC, as PostgreSQL writes it.
pub(crate) fn of_offset(minutes: i64) -> String {
    let shown = |minutes: i64| offset_text(minutes * 60);
    format!("<{}>{}", shown(minutes), shown(-minutes))
}

/// Seconds that a zone's clock is ahead of UTC at a moment.
pub(crate) fn offset_s(time_us: i64, zone: Tz) -> i64 {
    let Some(time) = moment(time_us) else {
        return 0;
    };
    i64::from(zone.offset_from_utc_datetime(&time).fix().local_minus_utc())
}

/// What a zone's clock shows at a moment, in microseconds; `None`: out of range.
pub(crate) fn local_time(time_us: i64, zone: Tz) -> Option<i64> {
    time_us.checked_add(offset_s(time_us, zone) * 1_000_000)
}

/// The moment at which a zone's clock shows a time, in microseconds since 1970; `None`: out of range.
pub(crate) fn universal_time(wall_us: i64, zone: Tz) -> Option<i64> {
    // Beyond chrono's range a zone's rules mean nothing.
    let offset_s = offset_of_wall_s(wall_us, zone).unwrap_or(0);
    wall_us.checked_sub(offset_s * 1_000_000)
}

fn offset_of_wall_s(wall_us: i64, zone: Tz) -> Option<i64> {
    let wall = moment(wall_us)?;
    let of = |offset: <Tz as TimeZone>::Offset| i64::from(offset.fix().local_minus_utc());
    match zone.offset_from_local_datetime(&wall) {
        LocalResult::Single(offset) | LocalResult::Ambiguous(_, offset) => Some(of(offset)),
        LocalResult::None => JUMPS_HOURS.iter().find_map(|hours| {
            let before = moment(wall_us.checked_sub(hours * HOUR_US)?)?;
            zone.offset_from_local_datetime(&before).latest().map(of)
        }),
    }
}

/// How far the clocks of a zone were ever set back at once, or will be by what is known, in
/// microseconds.
pub(crate) fn longest_set_back_us(zone: Tz) -> i64 {
    const FROM_US: i64 = -4_102_444_800_000_000; // 1840
    const TO_US: i64 = 4_102_444_800_000_000; // 2100
    const STEP_US: i64 = 12 * HOUR_US;
    let mut longest_s = 0;
    let mut before_s = offset_s(FROM_US, zone);
    for step in 1..=(TO_US - FROM_US) / STEP_US {
        let after_s = offset_s(FROM_US + step * STEP_US, zone);
        longest_s = longest_s.max(before_s - after_s);
        before_s = after_s;
    }
    longest_s * 1_000_000
}

/// How a zone is called at a moment: `CEST`, or `+0530` where it has no name.
pub(crate) fn abbreviation(name: &str, time_us: i64) -> String {
    let named = name.parse::<chrono_tz::Tz>().ok().zip(moment(time_us));
    let Some((zone, time)) = named else {
        return posix_name(name).to_owned();
    };
    let offset = zone.offset_from_utc_datetime(&time);
    match offset.abbreviation() {
        Some(abbreviation) => abbreviation.to_owned(),
        None => offset_text(i64::from(offset.fix().local_minus_utc())).replace(':', ""),
    }
}

/// `+02`, `-03:30`
pub(crate) fn offset_text(offset_s: i64) -> String {
    let sign = if offset_s < 0 { '-' } else { '+' };
    let (hours, minutes) = (offset_s.abs() / 3600, offset_s.abs() / 60 % 60);
    match minutes {
        0 => format!("{sign}{hours:02}"),
        _ => format!("{sign}{hours:02}:{minutes:02}"),
    }
}

fn moment(time_us: i64) -> Option<NaiveDateTime> {
    Some(Utc.timestamp_micros(time_us).single()?.naive_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(text: &str) -> i64 {
        let time = NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M").unwrap();
        time.and_utc().timestamp_micros()
    }

    /// What PostgreSQL 15 gives for `text::timestamptz AT TIME ZONE 'UTC'` in the zone.
    #[test]
    fn wall_clocks_that_are_changed() {
        for (zone, wall, universal) in [
            ("Europe/Berlin", "2025-06-15 12:00", "2025-06-15 10:00"),
            // twice on the clock: after the change
            ("Europe/Berlin", "2024-10-27 02:30", "2024-10-27 01:30"),
            // never on the clock: as of before the change
            ("Europe/Berlin", "2024-03-31 02:30", "2024-03-31 01:30"),
            (
                "Australia/Lord_Howe",
                "2024-10-06 02:15",
                "2024-10-05 15:45",
            ),
            ("Pacific/Apia", "2011-12-30 12:00", "2011-12-30 22:00"),
            // what POSIX writes counts westwards
            ("-05:30", "2024-01-01 00:00", "2023-12-31 18:30"),
            ("<+02>-02", "2024-01-01 00:00", "2023-12-31 22:00"),
            ("GMT-2", "2024-01-01 00:00", "2023-12-31 22:00"),
        ] {
            let found = universal_time(us(wall), parse(zone).unwrap());
            assert_eq!(found, Some(us(universal)), "{wall} in {zone}");
        }
    }

    #[test]
    fn clocks_that_are_set_back() {
        let hours = |name: &str| longest_set_back_us(parse(name).unwrap()) / HOUR_US;
        assert_eq!(hours("GMT-2"), 0);
        assert_eq!(hours("Europe/Berlin"), 1);
        assert_eq!(hours("Pacific/Kwajalein"), 23);
    }

    #[test]
    fn names() {
        assert_eq!(
            canonical_name("europe/BERLIN").as_deref(),
            Some("Europe/Berlin")
        );
        assert_eq!(canonical_name(" utc ").as_deref(), Some("UTC"));
        assert_eq!(canonical_name("-03:30").as_deref(), Some("-03:30"));
        assert_eq!(canonical_name("Mars/Olympus"), None);
        assert_eq!(
            abbreviation("Europe/Berlin", us("2025-06-15 10:00")),
            "CEST"
        );
        assert_eq!(
            abbreviation("America/Sao_Paulo", us("2025-06-15 10:00")),
            "-03"
        );
        assert_eq!(abbreviation("<+05:30>-05:30", 0), "+05:30");
        assert_eq!(abbreviation("GMT-2", 0), "GMT");
        assert_eq!(abbreviation("-05:30", 0), "");
        assert_eq!(of_offset(-210), "<-03:30>+03:30");
    }
}
