//! Reading one connector's options by their canonical names.
//!
//! The `sql` module has already refused unknown names; here values become numbers, durations and
//! choices, and a bad value becomes an error that names the object and the option. A `SECRET name`
//! is looked up at the moment of use and never put into an error.

use std::sync::Arc;
use std::time::Duration;

use crate::catalog::definition::{OptionValue, Options};
use crate::error::{Error, Result, sqlstate};

/// Looks up a secret's value by name.
pub type SecretLookup = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Options of one object, typed on demand.
pub struct Settings<'a> {
    object: &'a str,
    options: &'a Options,
    secrets: &'a SecretLookup,
}

impl<'a> Settings<'a> {
    /// Options of the object called `object`.
    pub fn new(object: &'a str, options: &'a Options, secrets: &'a SecretLookup) -> Self {
        Self {
            object,
            options,
            secrets,
        }
    }

    /// The value as text, a secret resolved.
    pub fn text(&self, name: &str) -> Result<Option<String>> {
        match self.options.get(name) {
            None => Ok(None),
            Some(OptionValue::Text(text)) => Ok(Some(text.clone())),
            Some(OptionValue::Secret(secret)) => match (self.secrets)(secret) {
                Some(value) => Ok(Some(value)),
                None => Err(Error::new(
                    sqlstate::UNDEFINED_OBJECT,
                    format!("secret \"{secret}\" does not exist"),
                )
                .detail(format!(
                    "Option \"{name}\" of \"{}\" refers to it.",
                    self.object
                ))
                .hint(format!("CREATE SECRET {secret} AS '…';"))),
            },
        }
    }

    /// The value as text; absent is an error.
    pub fn required(&self, name: &str) -> Result<String> {
        self.text(name)?.ok_or_else(|| {
            Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                format!("\"{}\" needs option \"{name}\"", self.object),
            )
            .hint(format!("Add {name} = '…' to its WITH list."))
        })
    }

    /// A count.
    pub fn count(&self, name: &str) -> Result<Option<u64>> {
        self.parsed(name, "a whole number of 0 or more", |text| {
            text.trim().replace('_', "").parse().ok()
        })
    }

    /// `true`/`false`, `on`/`off`, `yes`/`no`, `1`/`0`.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>> {
        self.parsed(name, "true or false", |text| {
            match text.trim().to_ascii_lowercase().as_str() {
                "true" | "on" | "yes" | "1" | "t" => Some(true),
                "false" | "off" | "no" | "0" | "f" => Some(false),
                _ => None,
            }
        })
    }

    /// `10 seconds`, `250ms`, `1 hour`; a bare number is seconds.
    pub fn duration(&self, name: &str) -> Result<Option<Duration>> {
        self.parsed(name, "a duration such as '10 seconds'", parse_duration)
    }

    /// `128MB`, `1GiB`, `64k`; a bare number is bytes. Units are powers of 1024.
    pub fn bytes(&self, name: &str) -> Result<Option<u64>> {
        self.parsed(name, "a size such as '128MB'", parse_bytes)
    }

    /// One of a fixed set of words, without regard to case; spaces count as underscores.
    pub fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<Option<T>> {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        self.parsed(name, &format!("one of {}", words.join(", ")), |text| {
            choices
                .iter()
                .find(|(word, _)| word.eq_ignore_ascii_case(&text.trim().replace(' ', "_")))
                .map(|(_, value)| *value)
        })
    }

    /// A single byte, such as a delimiter; `\t` is a tab.
    pub fn single_byte(&self, name: &str) -> Result<Option<u8>> {
        self.parsed(name, "one ASCII character", |text| match text.as_bytes() {
            [byte] if byte.is_ascii() => Some(*byte),
            b"\\t" => Some(b'\t'),
            _ => None,
        })
    }

    /// Refuses options that are known elsewhere, but not built here: better than no effect.
    pub fn refuse_unsupported(&self, names: &[&str]) -> Result<()> {
        match names.iter().find(|name| self.options.contains_key(**name)) {
            None => Ok(()),
            Some(name) => Err(Error::unsupported(format!(
                "option \"{name}\" of \"{}\" is not supported",
                self.object
            ))),
        }
    }

    /// All options whose names start with `prefix`, without it.
    pub fn with_prefix(&self, prefix: &str) -> Result<Vec<(String, String)>> {
        let mut found = Vec::new();
        for name in self.options.keys() {
            if let Some(rest) = name.strip_prefix(prefix)
                && let Some(value) = self.text(name)?
            {
                found.push((rest.to_owned(), value));
            }
        }
        Ok(found)
    }

    /// A value that `parse` accepts, or an error that says what was expected.
    pub fn parsed<T>(
        &self,
        name: &str,
        expected: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        match parse(&text) {
            Some(value) => Ok(Some(value)),
            None => Err(self.invalid(name, expected)),
        }
    }

    /// The error for an option whose value is of the wrong form.
    pub fn invalid(&self, name: &str, expected: &str) -> Error {
        let error = Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("invalid value for option \"{name}\" of \"{}\"", self.object),
        );
        match self.options.get(name) {
            Some(OptionValue::Text(text)) => {
                error.detail(format!("Expected {expected}, got '{text}'."))
            }
            _ => error.detail(format!("Expected {expected}.")),
        }
    }
}

/// Splits `12.5 ms` into its number and its unit.
fn number_and_unit(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(text.len());
    let number: f64 = text[..end].replace('_', "").parse().ok()?;
    (number.is_finite() && number >= 0.0).then(|| (number, text[end..].trim().to_ascii_lowercase()))
}

/// A duration in words; see [`Settings::duration`].
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(text)?;
    let seconds = match unit.as_str() {
        "us" | "microsecond" | "microseconds" => 1e-6,
        "ms" | "millisecond" | "milliseconds" => 1e-3,
        "" | "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hour" | "hours" => 3600.0,
        "d" | "day" | "days" => 86_400.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * seconds).ok()
}

/// A size in words; see [`Settings::bytes`].
pub fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(text)?;
    let scale: u64 = match unit.as_str() {
        "" | "b" | "byte" | "bytes" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    Some((number * scale as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_secrets() -> SecretLookup {
        Arc::new(|name| (name == "known").then(|| "s3cr3t".to_owned()))
    }

    #[test]
    fn durations_and_sizes() {
        assert_eq!(parse_duration("10 seconds"), Some(Duration::from_secs(10)));
        assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(parse_duration("2"), Some(Duration::from_secs(2)));
        assert_eq!(parse_duration("2 fortnights"), None);
        assert_eq!(parse_duration("-1s"), None);
        assert_eq!(parse_bytes("128MB"), Some(128 << 20));
        assert_eq!(parse_bytes("10"), Some(10));
        assert_eq!(parse_bytes("1.5 KiB"), Some(1536));
        assert_eq!(parse_bytes("ten"), None);
    }

    #[test]
    fn secrets_are_resolved_and_never_shown() {
        let mut options = Options::new();
        options.insert("password".into(), OptionValue::Secret("known".into()));
        options.insert("rows".into(), OptionValue::Secret("known".into()));
        options.insert("key".into(), OptionValue::Secret("unknown".into()));
        let lookup = no_secrets();
        let settings = Settings::new("s", &options, &lookup);
        assert_eq!(
            settings.text("password").unwrap().as_deref(),
            Some("s3cr3t")
        );
        assert!(
            !settings
                .count("rows")
                .unwrap_err()
                .to_string()
                .contains("s3cr3t")
        );
        let error = settings.text("key").unwrap_err();
        assert_eq!(error.sqlstate(), sqlstate::UNDEFINED_OBJECT);
    }

    #[test]
    fn bad_values_name_object_option_and_expectation() {
        let mut options = Options::new();
        options.insert("rows".into(), OptionValue::Text("many".into()));
        let lookup = no_secrets();
        let error = Settings::new("clicks", &options, &lookup)
            .count("rows")
            .unwrap_err();
        assert!(error.primary().contains("\"rows\" of \"clicks\""));
        assert!(error.detail_text().unwrap().contains("'many'"));
    }
}
