//! Libraries' words to a user's: prefixes, type names, case and full stops.

use datafusion::arrow::datatypes::{DataType, TimeUnit};

use super::type_name;

/// Prefixes that say which library an error came from.
const PREFIXES: &[&str] = &[
    "Error during planning: ",
    "Execution error: ",
    "This feature is not implemented: ",
    "Internal error: ",
    "External error: ",
    "External: ",
    "Arrow error: ",
    "Arrow: ",
    "Parquet error: ",
    "Object Store error: ",
    "Schema error: ",
    "Optimizer rule ",
    "IO error: ",
    "Io error: ",
    "Cast error: ",
    "Parser error: ",
    "Compute error: ",
    "Csv error: ",
    "Json error: ",
    "Invalid argument error: ",
    "Not yet implemented: ",
    "Generic ",
];

/// Text between two marks.
pub(super) fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    Some(rest.split_once(after).map_or(rest, |(inner, _)| inner))
}

/// A library's text as a primary line: no prefix, no type names, lower case, no full stop, and one
/// line.
pub(super) fn plain(text: &str) -> String {
    let mut text = text.trim();
    while let Some(rest) = PREFIXES.iter().find_map(|p| text.strip_prefix(p)) {
        text = rest.trim_start();
    }
    let text = text.split("\n\nbacktrace:").next().unwrap_or(text);
    let line = text
        .lines()
        .next()
        .unwrap_or("")
        .trim()
        .trim_end_matches('.');
    let line = words_to_sql(line);
    let mut characters = line.chars();
    match characters.next() {
        // An acronym or a name in capitals stays as it is.
        Some(first)
            if first.is_uppercase()
                && characters
                    .clone()
                    .next()
                    .is_some_and(|c| c.is_lowercase() || c == ' ') =>
        {
            first.to_lowercase().chain(characters).collect()
        }
        Some(_) => line,
        None => "unknown error".to_owned(),
    }
}

/// A library's text as a sentence for DETAIL.
pub(super) fn sentence(text: &str) -> String {
    let line = plain(text);
    let mut characters = line.chars();
    match characters.next() {
        Some(first) => {
            let line: String = first.to_uppercase().chain(characters).collect();
            format!("{line}.")
        }
        None => line,
    }
}

/// Replaces the engine's type names by SQL's within a text.
pub(super) fn words_to_sql(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .unwrap_or(rest.len());
        if end == 0 {
            let first = rest.chars().next().map_or(1, char::len_utf8);
            out.push_str(&rest[..first]);
            rest = &rest[first..];
            continue;
        }
        let (word, after) = rest.split_at(end);
        // A type may have arguments: Timestamp(Microsecond, None), List(Int64).
        let arguments = after
            .starts_with('(')
            .then(|| closing(after))
            .flatten()
            .map_or("", |at| &after[..=at]);
        match sql_word(word, arguments) {
            Some(name) => {
                out.push_str(&name);
                rest = &after[arguments.len()..];
            }
            None => {
                out.push_str(word);
                rest = after;
            }
        }
    }
    out
}

/// Index of the parenthesis that closes the one at the start.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

fn sql_word(word: &str, arguments: &str) -> Option<String> {
    let inner = arguments
        .strip_prefix('(')
        .and_then(|a| a.strip_suffix(')'))
        .unwrap_or("");
    let name = |data_type: DataType| Some(type_name(&data_type));
    match word {
        "Int8" | "Int16" | "UInt8" => name(DataType::Int16),
        "Int32" | "UInt16" => name(DataType::Int32),
        "Int64" | "UInt32" => name(DataType::Int64),
        "UInt64" => Some("numeric".into()),
        "Float16" | "Float32" => name(DataType::Float32),
        "Float64" => name(DataType::Float64),
        "Boolean" => name(DataType::Boolean),
        "Utf8" | "LargeUtf8" | "Utf8View" => name(DataType::Utf8),
        "Binary" | "LargeBinary" | "BinaryView" | "FixedSizeBinary" => name(DataType::Binary),
        "Date32" | "Date64" => name(DataType::Date32),
        "Time32" | "Time64" => name(DataType::Time64(TimeUnit::Microsecond)),
        "Timestamp" if inner.is_empty() => Some("timestamp".into()),
        "Timestamp" => {
            let has_zone = inner.contains('"') || inner.contains("Some");
            let zone = has_zone.then(|| "UTC".into());
            name(DataType::Timestamp(TimeUnit::Microsecond, zone))
        }
        "Interval" | "Duration" => Some("interval".into()),
        "Null" if arguments.is_empty() => Some("unknown".into()),
        "Decimal32" | "Decimal64" | "Decimal128" | "Decimal256" => Some(if inner.is_empty() {
            "numeric".into()
        } else {
            format!("numeric({})", inner.replace(' ', ""))
        }),
        "List" | "LargeList" | "FixedSizeList" => {
            let item = words_to_sql(inner.split(',').next().unwrap_or("").trim());
            Some(format!("{item}[]"))
        }
        "Struct" => Some("struct".into()),
        _ => None,
    }
}
