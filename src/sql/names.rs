//! Identifiers: folding, quoting, reserved words, and the nearest name for hints.
//!
//! PostgreSQL folds what is not quoted to lower case and needs quotes around reserved words; what
//! we print (SHOW CREATE, hints) must be readable again by our own parser.

/// Words that PostgreSQL 15 reserves fully: they name an object only in quotes
/// (PostgreSQL 15 documentation, appendix C, column "reserved").
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "binary",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "group",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "intersect",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "natural",
    "not",
    "notnull",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "outer",
    "overlaps",
    "placing",
    "primary",
    "references",
    "returning",
    "right",
    "select",
    "session_user",
    "similar",
    "some",
    "symmetric",
    "table",
    "tablesample",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "when",
    "where",
    "window",
    "with",
];

/// Whether an unquoted word cannot be a name.
pub fn is_reserved(word: &str) -> bool {
    let folded = fold(word);
    RESERVED.binary_search(&folded.as_str()).is_ok()
}

/// Folds an unquoted identifier as PostgreSQL does: ASCII letters to lower case.
pub fn fold(word: &str) -> String {
    word.to_ascii_lowercase()
}

/// An identifier as it must be written: in quotes only where it needs them.
pub fn quote_identifier(name: &str) -> String {
    let mut characters = name.chars();
    let starts_plain = characters
        .next()
        .is_some_and(|c| c.is_ascii_lowercase() || c == '_');
    let rest_plain =
        characters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '$');
    if starts_plain && rest_plain && !is_reserved(name) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// A text as a string literal.
pub fn quote_literal(text: &str) -> String {
    if text.contains('\\') {
        format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

/// The candidate nearest to `name` by edit distance, if it is near enough to be meant.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = simplify(name);
    let limit = (wanted.chars().count() / 3).max(2);
    candidates
        .into_iter()
        .map(|candidate| (edit_distance(&wanted, &simplify(candidate)), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Case and underscores do not count when people misremember a name.
fn simplify(name: &str) -> String {
    name.chars()
        .filter(|c| *c != '_' && *c != ' ')
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// Levenshtein distance in characters.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_words_are_sorted() {
        assert!(RESERVED.is_sorted());
        assert!(is_reserved("SELECT") && is_reserved("user") && !is_reserved("stream"));
    }

    #[test]
    fn quoting() {
        for (name, written) in [
            ("clicks", "clicks"),
            ("Clicks", "\"Clicks\""),
            ("select", "\"select\""),
            ("a\"b", "\"a\"\"b\""),
            ("1a", "\"1a\""),
            ("", "\"\""),
            ("kafka.x", "\"kafka.x\""),
        ] {
            assert_eq!(quote_identifier(name), written);
        }
        assert_eq!(quote_literal("it's"), "'it''s'");
        assert_eq!(quote_literal("a\\b"), "E'a\\\\b'");
    }

    #[test]
    fn nearest_name() {
        let names = ["max_files_per_trigger", "max_bytes_per_trigger", "topic"];
        assert_eq!(
            nearest("maxFilePerTrigger", names),
            Some("max_files_per_trigger")
        );
        assert_eq!(nearest("topics", names), Some("topic"));
        assert_eq!(nearest("zebra", names), None);
    }
}
