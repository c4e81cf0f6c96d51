//! PostgreSQL's templates of numbers (`FM999,990.00`), for `to_char`.
//! Source: PostgreSQL 15 documentation, table 9.30. Not here: Roman numerals, `V`, `EEEE`,
//! currency and ordinal suffixes.

use crate::error::{Error, Result};

/// A template, read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberTemplate {
    places: Vec<Place>,
    integer_digits: usize,
    fraction_digits: usize,
    fill: bool,
    sign: Sign,
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// a minus, or a space, before the first digit
    Plain,
    /// `S` at the beginning
    Before,
    /// `S` at the end
    After,
    /// `MI` at the end
    MinusAfter,
    /// `PR`: angle brackets
    Brackets,
}

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
    /// Reads a template. Errors: 0A000 for the forms that are not here.
    pub fn parse(template: &str) -> Result<Self> {
        let mut read = Self {
            places: Vec::new(),
            integer_digits: 0,
            fraction_digits: 0,
            fill: false,
            sign: Sign::Plain,
        };
        let upper = template.to_ascii_uppercase();
        let mut rest = upper.as_str();
        let mut after_point = false;
        while let Some(first) = rest.chars().next() {
            let two = rest.get(..2).unwrap_or("");
            let mut length = first.len_utf8();
            match (two, first) {
                ("FM", _) => {
                    read.fill = true;
                    length = 2;
                }
                ("MI", _) => {
                    read.sign = Sign::MinusAfter;
                    length = 2;
                }
                ("PR", _) => {
                    read.sign = Sign::Brackets;
                    length = 2;
                }
                ("RN" | "TH" | "EE" | "PL" | "SG", _) | (_, 'V' | 'L') => {
                    return Err(Error::unsupported(format!(
                        "to_char with the number template \"{template}\" is not supported"
                    )));
                }
                (_, '9' | '0') => {
                    read.places.push(Place::Digit { zero: first == '0' });
                    if after_point {
                        read.fraction_digits += 1;
                    } else {
                        read.integer_digits += 1;
                    }
                }
                (_, '.' | 'D') => {
                    after_point = true;
                    read.places.push(Place::Point);
                }
                (_, ',' | 'G') => read.places.push(Place::Group),
                (_, 'S') => {
                    read.sign = if read.places.is_empty() {
                        Sign::Before
                    } else {
                        Sign::After
                    };
                }
                _ => read.places.push(Place::Literal(first)),
            }
            rest = &rest[length..];
        }
        Ok(read)
    }

    /// Writes a number given as decimal text; `#` where it does not fit.
    pub fn format(&self, number: &str) -> String {
        let negative = number.starts_with('-');
        let (whole, fraction) = rounded(number.trim_start_matches('-'), self.fraction_digits);
        let is_zero = whole.bytes().chain(fraction.bytes()).all(|b| b == b'0');
        let negative = negative && !is_zero;
        let body = if whole.len() > self.integer_digits && whole != "0" {
            self.overflowed()
        } else {
            self.digits(&whole, &fraction)
        };
        self.signed(body, negative)
    }

    fn overflowed(&self) -> String {
        self.places
            .iter()
            .map(|place| match place {
                Place::Digit { .. } => '#',
                Place::Point => '.',
                Place::Group => ',',
                Place::Literal(c) => *c,
            })
            .collect()
    }

    fn digits(&self, whole: &str, fraction: &str) -> String {
        let whole = if whole == "0" { "" } else { whole };
        let leading = self.integer_digits - whole.len();
        let mut whole_digits = whole.chars();
        let mut fraction_digits = fraction.chars();
        let (mut index, mut started, mut after_point) = (0, false, false);
        let mut out = String::new();
        // FM takes trailing zeros of the fraction off, except where the template says 0.
        let mut keep = 0;
        for place in &self.places {
            match place {
                Place::Digit { zero } if !after_point => {
                    started |= *zero || index >= leading;
                    let digit = if index < leading {
                        '0'
                    } else {
                        whole_digits.next().unwrap_or('0')
                    };
                    out.push(if started { digit } else { ' ' });
                    index += 1;
                }
                Place::Digit { zero } => {
                    let digit = fraction_digits.next().unwrap_or('0');
                    out.push(digit);
                    if *zero || digit != '0' {
                        keep = out.len();
                    }
                }
                Place::Point => {
                    after_point = true;
                    out.push('.');
                    keep = out.len();
                }
                Place::Group => out.push(if started { ',' } else { ' ' }),
                Place::Literal(c) => out.push(*c),
            }
        }
        if self.fill {
            if after_point {
                out.truncate(keep);
            }
            out = out.trim_start().to_owned();
        }
        out
    }

    fn signed(&self, body: String, negative: bool) -> String {
        let before_digits = |sign: &str, body: &str| {
            let blanks = body.len() - body.trim_start().len();
            format!("{}{sign}{}", &body[..blanks], &body[blanks..])
        };
        match self.sign {
            Sign::Plain if negative => before_digits("-", &body),
            Sign::Plain if self.fill => body,
            Sign::Plain => format!(" {body}"),
            Sign::Before => before_digits(if negative { "-" } else { "+" }, &body),
            Sign::After => format!("{body}{}", if negative { '-' } else { '+' }),
            Sign::MinusAfter if negative => format!("{body}-"),
            Sign::MinusAfter if self.fill => body,
            Sign::MinusAfter => format!("{body} "),
            Sign::Brackets if negative => {
                format!("{}>", before_digits("<", &body))
            }
            Sign::Brackets if self.fill => body,
            Sign::Brackets => format!(" {body} "),
        }
    }
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
        ] {
            let template = NumberTemplate::parse(template).unwrap();
            assert_eq!(template.format(number), expected, "{number} {template:?}");
        }
        assert!(NumberTemplate::parse("RN").is_err());
        assert_eq!(decimal_text(-5, 2), "-0.05");
        assert_eq!(decimal_text(1234, 0), "1234");
    }
}
