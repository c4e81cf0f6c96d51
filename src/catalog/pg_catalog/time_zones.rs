//! `pg_timezone_names` and `pg_timezone_abbrevs`: the zones that `SET timezone` takes, as they are now.
//!
//! The abbreviations are those of PostgreSQL 15's file `Default`, with the offsets that it gives them in 2026. Absent:
//! the copies of all names below `posix/` that some systems have.

use chrono::{DateTime, Offset, TimeZone};
use chrono_tz::{OffsetComponents, OffsetName, TZ_VARIANTS};

use super::relation::{Datum, Row, row};

const SECOND_US: i64 = 1_000_000;

/// Abbreviation, seconds east of Greenwich, and `d` for summer time.
const ABBREVIATIONS: &str = "\
    ACDT 37800 d; ACSST 37800 d; ACST 34200; ACT -18000; ACWST 31500; ADT -10800 d; AEDT 39600 d; AESST \
    39600 d; AEST 36000; AFT 16200; AKDT -28800 d; AKST -32400; ALMST 25200 d; ALMT 21600; AMST 14400; \
    AMT -14400; ANAST 43200; ANAT 43200; ARST -10800; ART -10800; AST -14400; AWSST 32400 d; AWST 28800; \
    AZOST 0 d; AZOT -3600; AZST 14400; AZT 14400; BDST 7200 d; BDT 21600; BNT 28800; BORT 28800; BOT \
    -14400; BRA -10800; BRST -7200 d; BRT -10800; BST 3600 d; BTT 21600; CADT 37800 d; CAST 34200; CCT \
    28800; CDT -18000 d; CEST 7200 d; CET 3600; CETDST 7200 d; CHADT 49500 d; CHAST 45900; CHUT 36000; \
    CKT -36000; CLST -10800 d; CLT -10800 d; COT -18000; CST -21600; CXT 25200; DAVT 25200; DDUT 36000; \
    EASST -18000 d; EAST -18000 d; EAT 10800; EDT -14400 d; EEST 10800 d; EET 7200; EETDST 10800 d; EGST \
    0 d; EGT -3600; EST -18000; FET 10800; FJST 46800 d; FJT 43200; FKST -10800; FKT -10800; FNST -3600 \
    d; FNT -7200; GALT -21600; GAMT -32400; GEST 14400; GET 14400; GFT -10800; GILT 43200; GMT 0; GYT \
    -14400; HKT 28800; HST -36000; ICT 25200; IDT 10800 d; IOT 21600; IRKST 28800; IRKT 28800; IRT \
    12600; IST 7200; JAYT 32400; JST 32400; KDT 36000 d; KGST 21600 d; KGT 21600; KOST 39600; KRAST \
    25200; KRAT 25200; KST 32400; LHDT 39600 d; LHST 37800; LIGT 36000; LINT 50400; LKT 19800; MAGST \
    39600; MAGT 39600; MART -34200; MAWT 18000; MDT -21600 d; MEST 7200 d; MESZ 7200 d; MET 3600; METDST \
    7200 d; MEZ 3600; MHT 43200; MMT 23400; MPT 36000; MSD 14400 d; MSK 10800; MST -25200; MUST 18000 d; \
    MUT 14400; MVT 18000; MYT 28800; NDT -9000 d; NFT -12600; NOVST 25200; NOVT 25200; NPT 20700; NST \
    -12600; NUT -39600; NZDT 46800 d; NZST 43200; NZT 43200; OMSST 21600; OMST 21600; PDT -25200 d; PET \
    -18000; PETST 43200; PETT 43200; PGT 36000; PHT 28800; PKST 21600 d; PKT 18000; PMDT -7200 d; PMST \
    -10800; PONT 39600; PST -28800; PWT 32400; PYST -10800 d; PYT -10800; RET 14400; SADT 37800 d; SAST \
    7200; SCT 14400; SGT 28800; TAHT -36000; TFT 18000; TJT 18000; TKT 46800; TMT 18000; TOT 46800; TRUT \
    36000; TVT 43200; UCT 0; ULAST 32400 d; ULAT 28800; UT 0; UTC 0; UYST -7200 d; UYT -10800; UZST \
    21600 d; UZT 18000; VET -14400; VLAST 36000; VLAT 36000; VOLT 10800; VUT 39600; WADT 28800 d; WAKT \
    43200; WAST 25200; WAT 3600; WDT 32400 d; WET 0; WETDST 3600 d; WFT 43200; WGST -7200 d; WGT -10800; \
    XJT 21600; YAKST 32400; YAKT 32400; YAPT 36000; YEKST 21600 d; YEKT 18000; Z 0; ZULU 0";

/// All zones, as their clocks are at a moment.
pub(super) fn names(now_us: i64) -> Vec<Row> {
    let now = DateTime::from_timestamp_micros(now_us).unwrap_or_default();
    let zones = TZ_VARIANTS.iter().map(|zone| {
        let offset = zone.offset_from_utc_datetime(&now.naive_utc());
        let seconds = i64::from(offset.fix().local_minus_utc());
        row! {
            name: zone.name(),
            abbrev: offset.abbreviation().map_or_else(|| in_digits(seconds), str::to_owned),
            utc_offset: Datum::Interval(seconds * SECOND_US),
            is_dst: !offset.dst_offset().is_zero(),
        }
    });
    zones.collect()
}

/// What a zone without an abbreviation is called: `+11`, `-0330`.
fn in_digits(seconds: i64) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.abs() / 60;
    match minutes % 60 {
        0 => format!("{sign}{:02}", minutes / 60),
        rest => format!("{sign}{:02}{rest:02}", minutes / 60),
    }
}

/// All abbreviations.
pub(super) fn abbreviations() -> Vec<Row> {
    let all = ABBREVIATIONS.split("; ").filter_map(|abbreviation| {
        let mut words = abbreviation.split(' ');
        let (name, seconds) = (words.next()?, words.next()?);
        Some(row! {
            abbrev: name,
            utc_offset: Datum::Interval(seconds.parse::<i64>().ok()? * SECOND_US),
            is_dst: words.next().is_some(),
        })
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2024-07-01 12:00 UTC.
    const SUMMER_US: i64 = 1_719_835_200 * SECOND_US;

    #[track_caller]
    fn check(rows: &[Row], key: &'static str, name: &str, expected: (Option<&str>, i64, bool)) {
        let is_it = |row: &&Row| row[key] == Datum::from(name);
        let row = rows.iter().find(is_it).expect("a row");
        if let Some(abbreviation) = expected.0 {
            assert_eq!(row["abbrev"], Datum::from(abbreviation), "{name}");
        }
        assert_eq!(
            row["utc_offset"],
            Datum::Interval(expected.1 * SECOND_US),
            "{name}"
        );
        assert_eq!(row["is_dst"], Datum::Bool(expected.2), "{name}");
    }

    #[test]
    fn zones_are_as_their_clocks_are() {
        let summer = names(SUMMER_US);
        check(&summer, "name", "Europe/Berlin", (Some("CEST"), 7200, true));
        check(&summer, "name", "Asia/Kolkata", (Some("IST"), 19800, false));
        check(
            &summer,
            "name",
            "Pacific/Noumea",
            (Some("+11"), 39600, false),
        );
        let winter = names(SUMMER_US - 180 * 86_400 * SECOND_US);
        check(&winter, "name", "Europe/Berlin", (Some("CET"), 3600, false));
        check(
            &winter,
            "name",
            "America/St_Johns",
            (Some("NST"), -12600, false),
        );
    }

    #[test]
    fn abbreviations_are_those_of_postgresql() {
        let all = abbreviations();
        assert_eq!(all.len(), 195);
        check(&all, "abbrev", "PST", (None, -28800, false));
        check(&all, "abbrev", "CHADT", (None, 49500, true));
        check(&all, "abbrev", "ZULU", (None, 0, false));
    }
}
