//! Intervals by the templates of [`super::format`]: `to_char(interval '15h 2m', 'HH24:MI')`. Each field is the
//! interval's own, so that hours go on past 24; what only a day of the calendar has is refused, as in PostgreSQL.

use datafusion::arrow::datatypes::IntervalMonthDayNano;

use super::format::{Case, Field, Template, What, half_day, with_ordinal};
use crate::error::{Error, Result, sqlstate};

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// The fields of an interval, each with its sign.
struct Fields {
    years: i64,
    months: i64,
    days: i64,
    hours: i64,
    minutes: i64,
    seconds: i64,
    micros: i64,
}

impl Fields {
    fn new(interval: IntervalMonthDayNano) -> Self {
        let seconds = interval.nanoseconds / NANOS_PER_SECOND;
        Self {
            years: i64::from(interval.months / 12),
            months: i64::from(interval.months % 12),
            days: i64::from(interval.days),
            hours: seconds / 3600,
            minutes: seconds / 60 % 60,
            seconds: seconds % 60,
            micros: interval.nanoseconds % NANOS_PER_SECOND / 1000,
        }
    }

    /// Days of which a month has thirty.
    fn all_days(&self) -> i64 {
        (self.years * 12 + self.months) * 30 + self.days
    }

    fn text(&self, field: Field, case: Case, fill: bool) -> Result<String> {
        // A minus takes a place of its own.
        let number = |value: i64, width: usize| match fill {
            true => value.to_string(),
            false => format!("{value:0width$}", width = width + usize::from(value < 0)),
        };
        Ok(match field {
            Field::Year(4) => number(self.years, 4),
            Field::Year(digits) => {
                let power = 10i64.pow(u32::try_from(digits).unwrap_or(1));
                number(self.years % power, digits)
            }
            Field::YearComma => format!("{},{:03}", self.years / 1000, self.years % 1000),
            Field::Month => number(self.months, 2),
            Field::Day => number(self.days, 2),
            Field::DayOfYear => number(self.all_days(), 3),
            Field::WeekOfMonth => number((self.days - 1) / 7 + 1, 1),
            Field::WeekOfYear => number((self.all_days() - 1) / 7 + 1, 2),
            Field::Century => number(self.years / 100, 2),
            Field::Quarter if self.months == 0 => String::new(),
            Field::Quarter => number((self.months - 1) / 3 + 1, 1),
            Field::Hour24 => number(self.hours, 2),
            Field::Hour12 => match self.hours % 12 {
                0 => number(12, 2),
                hour => number(hour, 2),
            },
            Field::Minute => number(self.minutes, 2),
            Field::Second => number(self.seconds, 2),
            Field::Fraction(digits) => {
                let micros = format!("{:06}", self.micros.abs());
                let sign = if self.micros < 0 { "-" } else { "" };
                format!("{sign}{}", &micros[..digits])
            }
            Field::SecondOfDay => {
                (self.hours * 3600 + self.minutes * 60 + self.seconds).to_string()
            }
            Field::HalfDay => half_day(self.hours.rem_euclid(24), ["AM", "PM"], case),
            Field::HalfDayDots => half_day(self.hours.rem_euclid(24), ["A.M.", "P.M."], case),
            Field::IsoYear
            | Field::MonthName
            | Field::MonthNameAlone
            | Field::MonthShort
            | Field::DayName
            | Field::DayNameAlone
            | Field::JulianDay
            | Field::DayShort
            | Field::DayOfWeek
            | Field::IsoDayOfWeek
            | Field::IsoWeek
            | Field::Zone
            | Field::Offset => {
                return Err(Error::new(
                    sqlstate::INVALID_DATETIME,
                    "invalid format specification for an interval value",
                )
                .hint("Intervals are not tied to specific calendar dates."));
            }
        })
    }
}

impl Template {
    /// Writes an interval. Errors: 22007 a field that only a day of the calendar has.
    pub(super) fn format_interval(&self, interval: IntervalMonthDayNano) -> Result<String> {
        let fields = Fields::new(interval);
        let mut out = String::new();
        for piece in self.pieces() {
            match &piece.what {
                What::Literal(text) => out.push_str(text),
                What::Field(field, case) => {
                    let text = fields.text(*field, *case, piece.fill)?;
                    out.push_str(&with_ordinal(text, piece.ordinal));
                }
            }
        }
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_the_intervals_own() {
        let text = |template: &str, months: i32, days: i32, seconds: i64| {
            let interval = IntervalMonthDayNano::new(months, days, seconds * NANOS_PER_SECOND);
            Template::parse(template).format_interval(interval)
        };
        let hours = 3600;
        assert_eq!(text("HH24:MI:SS", 0, 0, 54_132).unwrap(), "15:02:12");
        assert_eq!(text("HH24", 0, 0, 100 * hours).unwrap(), "100");
        assert_eq!(text("HH24:MI", 0, 0, -2 * hours).unwrap(), "-02:00");
        assert_eq!(text("YYYY-MM", 14, 0, 0).unwrap(), "0001-02");
        assert_eq!(text("HH12 AM", 0, 0, 15 * hours).unwrap(), "03 PM");
        assert_eq!(text("Day", 0, 1, 0).unwrap_err().sqlstate(), "22007");
    }
}
