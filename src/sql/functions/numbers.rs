//! PostgreSQL's templates of numbers (`FM999,990.00`), for `to_char`.
//! Source: PostgreSQL 15 documentation, table 9.30. The currency symbol is a blank, as in the
//! locale C.

use super::format::with_ordinal;
use crate::error::{Error, Result, sqlstate};

/// A template, read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberTemplate {
    places: Vec<Place>,
    integer_digits: usize,
    fraction_digits: usize,
    /// Digits behind `V`: the number is shown times as many tens.
    shifted_digits: usize,
    fill: bool,
    sign: Sign,
    form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Digits,
    /// `EEEE`
    Scientific,
    /// `RN`, or `rn` for small letters
    Roman {
        is_upper: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// `9`, or `0`, which is shown when it is leading
    Digit {
        zero: bool,
    },
    Point,
    Group,
    Literal(char),
    /// `MI`: a minus, or a blank
    Minus,
    /// `PL`: a plus, or a blank
    Plus,
    /// `SG`: either
    Either,
    /// `TH`, or `th` for small letters
    Ordinal {
        is_upper: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// a minus, or a space, before the first digit
    Plain,
    /// `S` at the beginning
    Before,
    /// `S` at the end
    After,
    /// `MI`, `SG`: where the template has it
    InPlace,
    /// `PR`: angle brackets
    Brackets,
}

/// Characters that a Roman number is filled up to.
const ROMAN_WIDTH: usize = 15;

/// A decimal number's text from its unscaled value.
pub(super) fn decimal_text(unscaled: i128, scale: usize) -> String {
    let digits = format!("{:0>width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if unscaled < 0 { "-" } else { "" };
    if scale == 0 {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{fraction}")
    }
}

impl NumberTemplate {
    /// Reads a template; what is no keyword, and what is in double quotes, stands for itself.
    /// Errors: 42601 a second point, `EEEE` beside a sign.
    pub fn parse(template: &str) -> Result<Self> {
        let mut read = Self {
            places: Vec::new(),
            integer_digits: 0,
            fraction_digits: 0,
            shifted_digits: 0,
            fill: false,
            sign: Sign::Plain,
            form: Form::Digits,
        };
        let mut rest = template;
        let mut after = After::Nothing;
        while let Some(first) = rest.chars().next() {
            let length = match first {
                '"' => {
                    let inner = &rest[1..];
                    let end = inner.find('"').unwrap_or(inner.len());
                    read.places.extend(inner[..end].chars().map(Place::Literal));
                    (end + 2).min(rest.len())
                }
                _ => match read.keyword(rest) {
                    Some(length) => length,
                    None => {
                        read.character(first, &mut after)?;
                        first.len_utf8()
                    }
                },
            };
            rest = &rest[length..];
        }
        if read.form == Form::Scientific && read.sign != Sign::Plain {
            return Err(refused("\"EEEE\" is incompatible with other formats"));
        }
        Ok(read)
    }

    /// Reads a keyword of several letters, and says how long it is.
    fn keyword(&mut self, text: &str) -> Option<usize> {
        let is = |word: &str| {
            text.get(..word.len())
                .is_some_and(|head| head.eq_ignore_ascii_case(word))
        };
        let is_upper = text.starts_with(|c: char| c.is_ascii_uppercase());
        if is("EEEE") {
            self.form = Form::Scientific;
            return Some(4);
        }
        if is("FM") {
            self.fill = true;
        } else if is("MI") {
            self.sign = Sign::InPlace;
            self.places.push(Place::Minus);
        } else if is("SG") {
            self.sign = Sign::InPlace;
            self.places.push(Place::Either);
        } else if is("PL") {
            self.places.push(Place::Plus);
        } else if is("PR") {
            self.sign = Sign::Brackets;
        } else if is("TH") {
            self.places.push(Place::Ordinal { is_upper });
        } else if is("RN") {
            self.form = Form::Roman { is_upper };
        } else {
            return None;
        }
        Some(2)
    }

    fn character(&mut self, character: char, after: &mut After) -> Result<()> {
        match character.to_ascii_uppercase() {
            '9' | '0' => {
                let zero = character == '0';
                self.places.push(Place::Digit { zero });
                match after {
                    After::Nothing => self.integer_digits += 1,
                    After::Point => self.fraction_digits += 1,
                    After::Shift => {
                        self.integer_digits += 1;
                        self.shifted_digits += 1;
                    }
                }
            }
            '.' | 'D' => {
                if *after != After::Nothing {
                    return Err(refused("multiple decimal points"));
                }
                *after = After::Point;
                self.places.push(Place::Point);
            }
            ',' | 'G' => self.places.push(Place::Group),
            'L' => self.places.push(Place::Literal(' ')),
            'V' => *after = After::Shift,
            'S' => {
                let is_first = !self.places.iter().any(|p| matches!(p, Place::Digit { .. }));
                self.sign = if is_first { Sign::Before } else { Sign::After };
            }
            _ => self.places.push(Place::Literal(character)),
        }
        Ok(())
    }

    /// Writes a number given as decimal text; `#` where it does not fit.
    pub fn format(&self, number: &str) -> String {
        let negative = number.starts_with('-');
        let unsigned = number.trim_start_matches('-');
        match self.form {
            Form::Roman { is_upper } => return self.roman(negative, unsigned, is_upper),
            Form::Scientific => return self.scientific(negative, unsigned),
            Form::Digits => {}
        }
        let (whole, fraction) = rounded(
            &shifted(unsigned, self.shifted_digits),
            self.fraction_digits,
        );
        let is_zero = whole.bytes().chain(fraction.bytes()).all(|b| b == b'0');
        self.digits(&whole, &fraction, negative && !is_zero)
    }

    fn roman(&self, negative: bool, unsigned: &str, is_upper: bool) -> String {
        let whole = rounded(unsigned, 0).0.parse::<u32>().ok();
        let Some(number) = whole.filter(|n| (1..4000).contains(n) && !negative) else {
            return "#".repeat(ROMAN_WIDTH);
        };
        let text = roman(number);
        let text = if is_upper { text } else { text.to_lowercase() };
        match self.fill {
            true => text,
            false => format!("{text:>ROMAN_WIDTH$}"),
        }
    }

    fn scientific(&self, negative: bool, unsigned: &str) -> String {
        let sign = if negative { "-" } else { " " };
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let digits = format!("{whole}{fraction}");
        let first = digits.bytes().position(|digit| digit != b'0');
        // Of zero the exponent is zero, too.
        let first = first.unwrap_or(whole.len().saturating_sub(1));
        let mut exponent = whole.len() as i64 - 1 - first as i64;
        let (head, tail) = digits[first..].split_at(1.min(digits.len() - first));
        let (mut head, mut tail) = rounded(&format!("{head}.{tail}"), self.fraction_digits);
        if head.len() > 1 {
            // 9.99 was rounded to 10.0.
            exponent += 1;
            tail.insert_str(0, &head.split_off(1));
            tail.truncate(self.fraction_digits);
        }
        let point = if tail.is_empty() { "" } else { "." };
        let direction = if exponent < 0 { '-' } else { '+' };
        format!("{sign}{head}{point}{tail}e{direction}{:02}", exponent.abs())
    }

    /// What stands before the first digit.
    fn leading_sign(&self, negative: bool) -> &'static str {
        match (self.sign, negative) {
            (Sign::Plain, true) => "-",
            (Sign::Plain | Sign::Brackets, false) if self.fill => "",
            (Sign::Plain | Sign::Brackets, false) => " ",
            (Sign::Before, true) => "-",
            (Sign::Before, false) => "+",
            (Sign::Brackets, true) => "<",
            (Sign::After | Sign::InPlace, _) => "",
        }
    }

    fn trailing_sign(&self, negative: bool) -> &'static str {
        match (self.sign, negative) {
            (Sign::After, true) => "-",
            (Sign::After, false) => "+",
            (Sign::Brackets, true) => ">",
            (Sign::Brackets, false) if !self.fill => " ",
            _ => "",
        }
    }

    /// Digits of the fraction that are shown: `FM` takes zeros off the end, but those that the
    /// template says.
    fn shown_fraction(&self, fraction: &str) -> usize {
        if !self.fill {
            return fraction.len();
        }
        let behind = self.places.iter().skip_while(|p| **p != Place::Point);
        let digits = behind.filter(|p| matches!(p, Place::Digit { .. }));
        let zeros = digits.map(|p| matches!(p, Place::Digit { zero: true }));
        let kept = zeros
            .zip(fraction.bytes())
            .map(|(zero, digit)| zero || digit != b'0');
        let kept: Vec<bool> = kept.collect();
        kept.iter().rposition(|kept| *kept).map_or(0, |at| at + 1)
    }

    fn digits(&self, whole: &str, fraction: &str, negative: bool) -> String {
        let is_over = whole.len() > self.integer_digits && whole != "0";
        // Before a fraction a zero is not shown, unless the template says so.
        let whole = match whole {
            "0" if self.fraction_digits > 0 => "",
            digits => digits,
        };
        let leading = self.integer_digits.saturating_sub(whole.len());
        let shown = self.shown_fraction(fraction);
        let mut whole_digits = whole.chars();
        let mut fraction_digits = fraction.chars().enumerate();
        let (mut index, mut started, mut after_point) = (0, false, false);
        let mut out = String::new();
        // Where the first digit is, which the sign goes before.
        let mut first_digit = None;
        for place in &self.places {
            match place {
                Place::Digit { zero } if !after_point => {
                    started |= *zero || index >= leading;
                    let digit = match index < leading {
                        true => '0',
                        false => whole_digits.next().unwrap_or('0'),
                    };
                    if started {
                        first_digit.get_or_insert(out.len());
                        out.push(if is_over { '#' } else { digit });
                    } else if !self.fill {
                        out.push(' ');
                    }
                    index += 1;
                }
                Place::Digit { .. } => {
                    if let Some((at, digit)) = fraction_digits.next()
                        && at < shown
                    {
                        out.push(if is_over { '#' } else { digit });
                    }
                }
                Place::Point => {
                    after_point = true;
                    first_digit.get_or_insert(out.len());
                    out.push('.');
                }
                Place::Group if started => out.push(','),
                Place::Group if self.fill => {}
                Place::Group => out.push(' '),
                Place::Literal(c) => out.push(*c),
                Place::Either => out.push(if negative { '-' } else { '+' }),
                Place::Minus if negative => out.push('-'),
                Place::Plus if !negative => out.push('+'),
                Place::Minus | Place::Plus if self.fill => {}
                Place::Minus | Place::Plus => out.push(' '),
                Place::Ordinal { is_upper } => {
                    if !negative && !is_over && self.fraction_digits == 0 {
                        let number = if whole.is_empty() { "0" } else { whole };
                        let with = with_ordinal(number.to_owned(), Some(*is_upper));
                        out.push_str(&with[number.len()..]);
                    }
                }
            }
        }
        let at = first_digit.unwrap_or(out.len());
        out.insert_str(at, self.leading_sign(negative));
        out.push_str(self.trailing_sign(negative));
        out
    }
}

/// What was read last of those that change what a digit stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Nothing,
    Point,
    /// `V`
    Shift,
}

fn refused(primary: &str) -> Error {
    Error::new(sqlstate::SYNTAX_ERROR, primary)
}

/// A positive decimal text times so many tens.
fn shifted(number: &str, tens: usize) -> String {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let moved: String = fraction
        .chars()
        .chain(std::iter::repeat('0'))
        .take(tens)
        .collect();
    let rest = fraction.get(tens..).unwrap_or("");
    format!("{whole}{moved}.{rest}")
}

/// A number from 1 to 3999.
fn roman(number: u32) -> String {
    const LETTERS: [(u32, &str); 13] = [
        (1000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    let mut rest = number;
    let mut out = String::new();
    for (value, letters) in LETTERS {
        while rest >= value {
            out.push_str(letters);
            rest -= value;
        }
    }
    out
}

/// Whole and fractional digits of a positive decimal text, rounded half up.
fn rounded(number: &str, fraction_digits: usize) -> (String, String) {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut digits: Vec<u8> = whole.bytes().collect();
    let mut kept: Vec<u8> = fraction.bytes().take(fraction_digits).collect();
    kept.resize(fraction_digits, b'0');
    let round_up = fraction
        .as_bytes()
        .get(fraction_digits)
        .is_some_and(|d| *d >= b'5');
    digits.extend(kept);
    if round_up {
        let mut carried = true;
        for digit in digits.iter_mut().rev() {
            if *digit == b'9' {
                *digit = b'0';
            } else {
                *digit += 1;
                carried = false;
                break;
            }
        }
        if carried {
            digits.insert(0, b'1');
        }
    }
    let text: String = digits.into_iter().map(char::from).collect();
    let (whole, fraction) = text.split_at(text.len() - fraction_digits);
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    (whole.to_owned(), fraction.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates() {
        for (number, template, expected) in [
            ("1234.5", "9,999.99", " 1,234.50"),
            ("-1234.567", "9,999.99", "-1,234.57"),
            ("12", "9999", "   12"),
            ("-12", "9999", "  -12"),
            ("12", "FM9999", "12"),
            ("12", "0000", " 0012"),
            ("0.5", "FM990.00", "0.50"),
            ("0.5", "FM999.99", ".5"),
            ("12345", "999", " ###"),
            ("0.996", "9.99", " 1.00"),
            ("-5", "S99", " -5"),
            ("5", "99S", " 5+"),
            ("-5", "99MI", " 5-"),
            ("-5", "99PR", " <5>"),
            ("1000000", "FM9G999G999", "1,000,000"),
            ("-485", "999MI", "485-"),
            ("485", "999MI", "485 "),
            ("485", "FM999MI", "485"),
            ("485", "SG999", "+485"),
            ("-485", "S999", "-485"),
            ("485", "PL999", "+ 485"),
            ("485", "L999", "  485"),
            ("485", "RN", "        CDLXXXV"),
            ("5.2", "FMRN", "V"),
            ("-1", "rn", "###############"),
            ("482", "999th", " 482nd"),
            ("11", "99TH", " 11TH"),
            ("485", "\"Good number:\"999", "Good number: 485"),
            ("485.8", "\"Pre:\"999\" Post:\" .999", "Pre: 485 Post: .800"),
            ("12", "99V999", " 12000"),
            ("12.45", "99V9", " 125"),
            ("0.00012", "9.99EEEE", " 1.20e-04"),
            ("-1234.5", "9.999EEEE", "-1.235e+03"),
            ("9.99", "9.9EEEE", " 1.0e+01"),
            ("0", "9.9EEEE", " 0.0e+00"),
            ("1234567", "9,999", " #,###"),
            ("5", "$999", "$   5"),
            ("0", "9", " 0"),
            ("-1", "9", "-1"),
            ("12", "9990999.9", "    0012.0"),
            ("-0.1", "99.99", "  -.10"),
        ] {
            let template = NumberTemplate::parse(template).unwrap();
            assert_eq!(template.format(number), expected, "{number} {template:?}");
        }
        assert!(NumberTemplate::parse("9.9.9").is_err());
        assert_eq!(decimal_text(-5, 2), "-0.05");
        assert_eq!(decimal_text(1234, 0), "1234");
    }
}
