//! Options of `WITH (…)` and `SET (…)`: names, meanings, checks.
//!
//! One registry serves the parser (which refuses what it does not know), `SHOW OPTIONS FOR` and
//! whoever reads a value. Names are snake_case; Spark's spellings are taken for the same thing.
//! `kafka.*` passes through to the Kafka library unread. Where an option takes effect is not
//! decided here.

mod registry;

use std::time::Duration;

use crate::catalog::definition::{OptionValue, Options};
use crate::error::{Error, Result, sqlstate};
use crate::sql::statement::ObjectKind;
use crate::sql::{interval, names};
use crate::values::zones;

pub use registry::OPTIONS;

/// A set of things that take options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Targets(u16);

impl Targets {
    /// `connector = 'files'` of a stream
    pub const FILES: Self = Self(1);
    /// `connector = 'socket'`
    pub const SOCKET: Self = Self(1 << 1);
    /// `connector = 'kafka'`
    pub const KAFKA: Self = Self(1 << 2);
    /// `connector = 'generator'`
    pub const GENERATOR: Self = Self(1 << 3);
    /// a stream without connector
    pub const LOG: Self = Self(1 << 4);
    /// `CREATE SINK … connector = 'files'`
    pub const SINK_FILES: Self = Self(1 << 5);
    /// `connector = 'console'`
    pub const SINK_CONSOLE: Self = Self(1 << 6);
    /// `connector = 'blackhole'`
    pub const SINK_BLACKHOLE: Self = Self(1 << 7);
    /// a materialized view
    pub const VIEW: Self = Self(1 << 8);
    /// a pipeline
    pub const PIPELINE: Self = Self(1 << 9);
    /// a table
    pub const TABLE: Self = Self(1 << 10);

    /// Both sets.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the sets share a member.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The target of a stream's options, by its connector.
    pub fn stream(connector: Option<&str>) -> Result<Self> {
        match connector {
            None => Ok(Self::LOG),
            Some(name) => connector_target(name, STREAM_CONNECTORS),
        }
    }

    /// The target of a sink's options, by its connector.
    pub fn sink(connector: &str) -> Result<Self> {
        connector_target(connector, SINK_CONNECTORS)
    }

    /// Everything an object of this kind could be, for `ALTER … SET` before the object is known.
    pub fn of_kind(kind: ObjectKind) -> Self {
        match kind {
            ObjectKind::Stream => union(STREAM_CONNECTORS).or(Self::LOG),
            ObjectKind::Sink => union(SINK_CONNECTORS),
            ObjectKind::MaterializedView => Self::VIEW,
            ObjectKind::Pipeline => Self::PIPELINE,
            ObjectKind::Table => Self::TABLE,
            ObjectKind::View | ObjectKind::Secret | ObjectKind::Index => Self(0),
        }
    }

    fn describe(self) -> &'static str {
        STREAM_CONNECTORS
            .iter()
            .map(|(name, target)| (*target, *name))
            .chain([
                (Self::LOG, "streams without connector"),
                (Self::SINK_FILES, "files (sink)"),
                (Self::SINK_CONSOLE, "console (sink)"),
                (Self::SINK_BLACKHOLE, "blackhole (sink)"),
                (Self::VIEW, "materialized views"),
                (Self::PIPELINE, "pipelines"),
                (Self::TABLE, "tables"),
            ])
            .find(|(target, _)| *target == self)
            .map_or("this kind of object", |(_, name)| name)
    }
}

const STREAM_CONNECTORS: &[(&str, Targets)] = &[
    ("files", Targets::FILES),
    ("generator", Targets::GENERATOR),
    ("kafka", Targets::KAFKA),
    ("socket", Targets::SOCKET),
];

const SINK_CONNECTORS: &[(&str, Targets)] = &[
    ("blackhole", Targets::SINK_BLACKHOLE),
    ("console", Targets::SINK_CONSOLE),
    ("files", Targets::SINK_FILES),
];

const fn union(connectors: &[(&str, Targets)]) -> Targets {
    let mut all = Targets(0);
    let mut i = 0;
    while i < connectors.len() {
        all = all.or(connectors[i].1);
        i += 1;
    }
    all
}

fn connector_target(name: &str, connectors: &[(&str, Targets)]) -> Result<Targets> {
    if let Some((_, target)) = connectors.iter().find(|(n, _)| *n == name) {
        return Ok(*target);
    }
    let all: Vec<&str> = connectors.iter().map(|(n, _)| *n).collect();
    let error = Error::new(
        sqlstate::UNDEFINED_OBJECT,
        format!("connector \"{name}\" does not exist"),
    );
    Err(match names::nearest(name, all.iter().copied()) {
        Some(near) => error.hint(format!("Perhaps you meant connector = '{near}'.")),
        None => error.hint(format!("The connectors are {}.", all.join(", "))),
    })
}

/// What an option's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// any text
    Text,
    /// true or false
    Boolean,
    /// a whole number
    Integer {
        /// smallest allowed
        min: i64,
    },
    /// a whole number, or `auto`
    Count {
        /// smallest allowed
        min: i64,
    },
    /// a number of bytes, such as `10g` or `64 MB`
    Bytes,
    /// a duration, such as `10 seconds`
    Duration,
    /// one of these texts; underscores and spaces are the same
    Enum(&'static [&'static str]),
    /// a time zone's name
    TimeZone,
    /// a duration, `available now` or `continuous`
    Trigger,
}

impl Kind {
    /// How the type is called in `SHOW OPTIONS FOR`.
    pub fn name(self) -> String {
        match self {
            Self::Text => "text".into(),
            Self::Boolean => "boolean".into(),
            Self::Integer { .. } => "integer".into(),
            Self::Count { .. } => "integer | auto".into(),
            Self::Bytes => "bytes".into(),
            Self::Duration => "interval".into(),
            Self::Enum(values) => values.join(" | "),
            Self::TimeZone => "time zone".into(),
            Self::Trigger => "interval | available now | continuous".into(),
        }
    }
}

/// One option.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Canonical name.
    pub name: &'static str,
    /// Other accepted spellings.
    pub aliases: &'static [&'static str],
    /// What takes it.
    pub targets: Targets,
    /// Its type.
    pub kind: Kind,
    /// Default as text; `None`: not set.
    pub default: Option<&'static str>,
    /// One line for people.
    pub doc: &'static str,
}

/// A row of `SHOW OPTIONS FOR`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionRow {
    /// option
    pub name: &'static str,
    /// type
    pub option_type: String,
    /// default
    pub default: Option<&'static str>,
    /// Spark's spellings
    pub also_accepted: String,
    /// what it does
    pub description: &'static str,
}

/// Brings options to canonical names and values; refuses what the target does not have.
///
/// Errors: 42704 for an unknown option or one the target does not take (the HINT names the nearest
/// that it does take), 22023 for a value of the wrong type.
pub fn validate(
    target: Targets,
    options: impl IntoIterator<Item = (String, OptionValue)>,
) -> Result<Options> {
    let mut valid = Options::new();
    for (name, value) in options {
        if target.intersects(Targets::KAFKA) && is_passed_through(&name) {
            insert(&mut valid, name, value)?;
            continue;
        }
        let (name, value) = spark_trigger(name, value);
        let spec = find(&name, target)?;
        let value = match value {
            OptionValue::Text(text) => OptionValue::Text(canonical(spec, &text)?),
            secret => secret,
        };
        insert(&mut valid, spec.name.to_owned(), value)?;
    }
    Ok(valid)
}

/// The canonical name of an option that the target takes, for `RESET (…)`.
pub fn canonical_name(target: Targets, name: &str) -> Result<String> {
    if target.intersects(Targets::KAFKA) && is_passed_through(name) {
        return Ok(name.to_owned());
    }
    find(name, target).map(|spec| spec.name.to_owned())
}

fn insert(options: &mut Options, name: String, value: OptionValue) -> Result<()> {
    if options.contains_key(&name) {
        return Err(Error::new(
            sqlstate::SYNTAX_ERROR,
            format!("option \"{name}\" is given more than once"),
        ));
    }
    options.insert(name, value);
    Ok(())
}

/// `kafka.*` that is not an option of ours under Kafka's name.
fn is_passed_through(name: &str) -> bool {
    (name.starts_with("kafka.") || is_security(name))
        && !OPTIONS
            .iter()
            .any(|o| o.aliases.iter().any(|a| a.eq_ignore_ascii_case(name)))
}

/// What a connection needs and people write without the prefix.
fn is_security(name: &str) -> bool {
    matches!(
        name,
        "username" | "password" | "security_protocol" | "sasl_mechanism"
    )
}

/// Spark's three ways to say when a query runs are one option here.
fn spark_trigger(name: String, value: OptionValue) -> (String, OptionValue) {
    let text = |t: &str| OptionValue::Text(t.to_owned());
    match (name.to_ascii_lowercase().as_str(), &value) {
        ("availablenow" | "once", OptionValue::Text(v)) if parse_boolean(v) == Some(true) => {
            ("trigger".into(), text("available now"))
        }
        ("continuous", OptionValue::Text(_)) => ("trigger".into(), text("continuous")),
        _ => (name, value),
    }
}

fn same_name(a: &str, b: &str) -> bool {
    let plain = |s: &str| {
        s.chars()
            .filter(|c| *c != '_')
            .map(|c| c.to_ascii_lowercase())
            .collect::<String>()
    };
    plain(a) == plain(b)
}

fn find(name: &str, target: Targets) -> Result<&'static Spec> {
    let matches =
        |o: &&Spec| same_name(o.name, name) || o.aliases.iter().any(|a| same_name(a, name));
    let known = OPTIONS.iter().filter(|o| o.targets.intersects(target));
    if let Some(spec) = known.clone().find(matches) {
        return Ok(spec);
    }
    let known_elsewhere = OPTIONS.iter().any(|o| matches(&o));
    let error = Error::new(
        sqlstate::UNDEFINED_OBJECT,
        if known_elsewhere {
            format!("{} has no option \"{name}\"", target.describe())
        } else {
            format!("option \"{name}\" does not exist")
        },
    );
    let near = names::nearest(name, known.clone().map(|o| o.name));
    Err(match near {
        Some(near) => error.hint(format!("Perhaps you meant the option \"{near}\".")),
        None => {
            let names: Vec<&str> = known.map(|o| o.name).collect();
            if names.is_empty() {
                error.hint("It takes no options.")
            } else {
                error.hint(format!("The options are {}.", names.join(", ")))
            }
        }
    })
}

fn invalid(spec_name: &str, text: &str, expected: &str) -> Error {
    Error::new(
        sqlstate::INVALID_PARAMETER_VALUE,
        format!("invalid value for option \"{spec_name}\": \"{text}\""),
    )
    .hint(format!("Expected {expected}."))
}

/// Checks a value and brings it to its canonical text.
fn canonical(spec: &Spec, text: &str) -> Result<String> {
    match spec.kind {
        Kind::Text => Ok(text.to_owned()),
        Kind::Boolean => parse_boolean(text)
            .map(|b| b.to_string())
            .ok_or_else(|| invalid(spec.name, text, "true or false")),
        Kind::Integer { min } => parse_integer(text)
            .filter(|n| *n >= min)
            .map(|n| n.to_string())
            .ok_or_else(|| {
                invalid(
                    spec.name,
                    text,
                    &format!("a whole number of at least {min}"),
                )
            }),
        Kind::Count { min } => parse_count(text)
            .filter(|count| count.is_none_or(|n| n >= min))
            .map(|count| count.map_or_else(|| AUTO.to_owned(), |n| n.to_string()))
            .ok_or_else(|| {
                invalid(
                    spec.name,
                    text,
                    &format!("a whole number of at least {min}, or auto"),
                )
            }),
        Kind::Bytes => parse_bytes(text)
            .map(|_| text.trim().to_owned())
            .ok_or_else(|| {
                invalid(
                    spec.name,
                    text,
                    "a number of bytes, such as '10g' or '64MB'",
                )
            }),
        Kind::Duration => interval::parse_duration(text)
            .map(|_| text.trim().to_owned())
            .ok_or_else(|| invalid(spec.name, text, "a duration, such as '10 seconds'")),
        Kind::Enum(values) => values
            .iter()
            .find(|v| {
                v.replace(' ', "_")
                    .eq_ignore_ascii_case(&text.trim().replace(' ', "_"))
            })
            .map(|v| (*v).to_owned())
            .ok_or_else(|| invalid(spec.name, text, &format!("one of {}", values.join(", ")))),
        Kind::TimeZone => zones::canonical_name(text)
            .ok_or_else(|| invalid(spec.name, text, "a time zone, such as 'Europe/Berlin'")),
        Kind::Trigger => trigger(text).ok_or_else(|| {
            invalid(
                spec.name,
                text,
                "a duration such as '10 seconds', or 'available now', or 'continuous'",
            )
        }),
    }
}

fn trigger(text: &str) -> Option<String> {
    let plain = text.trim().to_ascii_lowercase().replace('_', " ");
    match plain.as_str() {
        "continuous" => Some("continuous".into()),
        "available now" | "availablenow" | "once" => Some("available now".into()),
        _ => interval::parse_duration(text).map(|_| text.trim().to_owned()),
    }
}

fn parse_boolean(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "t" | "y" | "1" => Some(true),
        "false" | "off" | "no" | "f" | "n" | "0" => Some(false),
        _ => None,
    }
}

/// What a count is when the system chooses.
const AUTO: &str = "auto";

fn parse_count(text: &str) -> Option<Option<i64>> {
    match text.trim().eq_ignore_ascii_case(AUTO) {
        true => Some(None),
        false => parse_integer(text).map(Some),
    }
}

fn parse_integer(text: &str) -> Option<i64> {
    text.trim().replace('_', "").parse().ok()
}

/// Bytes of `10g`, `64 MB`, `1GiB`, `1024`: units are powers of 1024, as in Spark and PostgreSQL.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return None,
    };
    let number = number.replace('_', "");
    match number.parse::<u64>() {
        Ok(whole) => whole.checked_mul(1 << shift),
        Err(_) => {
            let value = number.parse::<f64>().ok()? * (1u64 << shift) as f64;
            (value.is_finite() && value >= 0.0).then_some(value as u64)
        }
    }
}

fn text_of<'a>(options: &'a Options, name: &str) -> Result<Option<&'a str>> {
    match options.get(name) {
        None => Ok(None),
        Some(OptionValue::Text(text)) => Ok(Some(text)),
        Some(OptionValue::Secret(_)) => Err(Error::new(
            sqlstate::INVALID_PARAMETER_VALUE,
            format!("option \"{name}\" cannot be a secret"),
        )),
    }
}

fn get<T>(
    options: &Options,
    name: &str,
    expected: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>> {
    match text_of(options, name)? {
        None => Ok(None),
        Some(text) => parse(text)
            .map(Some)
            .ok_or_else(|| invalid(name, text, expected)),
    }
}

/// A text option as it was given.
pub fn text<'a>(options: &'a Options, name: &str) -> Result<Option<&'a str>> {
    text_of(options, name)
}

/// A boolean option; `None` if not given.
pub fn boolean(options: &Options, name: &str) -> Result<Option<bool>> {
    get(options, name, "true or false", parse_boolean)
}

/// A whole number; `None` if not given.
pub fn integer(options: &Options, name: &str) -> Result<Option<i64>> {
    get(options, name, "a whole number", parse_integer)
}

/// A whole number; `None` if not given, or `auto`.
pub fn count(options: &Options, name: &str) -> Result<Option<i64>> {
    let given = get(options, name, "a whole number, or auto", parse_count)?;
    Ok(given.flatten())
}

/// A number of bytes; `None` if not given.
pub fn bytes(options: &Options, name: &str) -> Result<Option<u64>> {
    get(
        options,
        name,
        "a number of bytes, such as '10g'",
        parse_bytes,
    )
}

/// A duration; `None` if not given.
pub fn duration(options: &Options, name: &str) -> Result<Option<Duration>> {
    get(
        options,
        name,
        "a duration, such as '10 seconds'",
        interval::parse_duration,
    )
}

/// When a pipeline runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// a batch every so often
    Every(Duration),
    /// what is there now, then stop
    AvailableNow,
    /// as soon as something comes
    Continuous,
}

/// The `trigger` option; `None` if not given.
pub fn trigger_of(options: &Options) -> Result<Option<Trigger>> {
    get(
        options,
        "trigger",
        "a duration, 'available now' or 'continuous'",
        |text| match trigger(text)?.as_str() {
            "continuous" => Some(Trigger::Continuous),
            "available now" => Some(Trigger::AvailableNow),
            every => interval::parse_duration(every).map(Trigger::Every),
        },
    )
}

/// The options that a connector (`files`, `kafka`, …) or kind of object (`materialized view`,
/// `pipeline`, `stream`, `sink`, …) takes, for `SHOW OPTIONS FOR`. Error 42704 for another name.
pub fn rows_for(name: &str) -> Result<Vec<OptionRow>> {
    let folded = name.trim().to_ascii_lowercase().replace('_', " ");
    let connectors = || STREAM_CONNECTORS.iter().chain(SINK_CONNECTORS);
    let target = match folded.as_str() {
        "materialized view" | "materialized views" | "view" => Targets::VIEW,
        "pipeline" | "pipelines" => Targets::PIPELINE,
        "stream" | "streams" => Targets::of_kind(ObjectKind::Stream),
        "sink" | "sinks" => Targets::of_kind(ObjectKind::Sink),
        "table" | "tables" => Targets::TABLE,
        other => {
            let found = connectors()
                .filter(|(n, _)| *n == other)
                .fold(Targets(0), |all, (_, t)| all.or(*t));
            if found == Targets(0) {
                let kinds = ["materialized view", "pipeline", "stream", "sink", "table"];
                let all = connectors().map(|(n, _)| *n).chain(kinds);
                let error = Error::new(
                    sqlstate::UNDEFINED_OBJECT,
                    format!("there is no connector or kind of object \"{name}\""),
                );
                return Err(match names::nearest(other, all) {
                    Some(near) => error.hint(format!("Perhaps you meant SHOW OPTIONS FOR {near}.")),
                    None => error,
                });
            }
            found
        }
    };
    Ok(OPTIONS
        .iter()
        .filter(|o| o.targets.intersects(target))
        .map(|o| OptionRow {
            name: o.name,
            option_type: o.kind.name(),
            default: o.default,
            also_accepted: o.aliases.join(", "),
            description: o.doc,
        })
        .collect())
}

#[cfg(test)]
mod tests;
