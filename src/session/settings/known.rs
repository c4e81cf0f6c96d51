//! The table of parameters: name, default, kind, context, whether it is reported.
//!
//! Names, defaults and contexts are PostgreSQL 15's (its documentation, chapter 20), because
//! drivers and tools read and set them; the last group is our own.

use super::values::Kind;
use crate::catalog::pg_catalog::SERVER_VERSION;

/// A parameter.
#[derive(Debug)]
pub(super) struct Known {
    pub name: &'static str,
    pub default: &'static str,
    pub kind: Kind,
    pub context: &'static str,
    /// A ParameterStatus tells the client of every change.
    pub reported: bool,
    pub description: &'static str,
}

const BIG: i64 = i32::MAX as i64;
/// In PostgreSQL's words.
pub(crate) const ISOLATION_LEVELS: &[&str] = &[
    "serializable",
    "repeatable read",
    "read committed",
    "read uncommitted",
];
const ISOLATION: Kind = Kind::Enum(ISOLATION_LEVELS);
const MESSAGES: Kind = Kind::Enum(&[
    "debug5", "debug4", "debug3", "debug2", "debug1", "debug", "log", "notice", "warning", "error",
]);

const fn user(
    name: &'static str,
    default: &'static str,
    kind: Kind,
    description: &'static str,
) -> Known {
    Known {
        name,
        default,
        kind,
        context: "user",
        reported: false,
        description,
    }
}

const fn reported(
    name: &'static str,
    default: &'static str,
    kind: Kind,
    description: &'static str,
) -> Known {
    Known {
        reported: true,
        ..user(name, default, kind, description)
    }
}

const fn fixed(
    name: &'static str,
    default: &'static str,
    kind: Kind,
    description: &'static str,
) -> Known {
    Known {
        context: "internal",
        ..user(name, default, kind, description)
    }
}

const fn fixed_reported(
    name: &'static str,
    default: &'static str,
    kind: Kind,
    description: &'static str,
) -> Known {
    Known {
        reported: true,
        ..fixed(name, default, kind, description)
    }
}

/// All parameters.
pub(super) static KNOWN: &[Known] = &[
    reported(
        "application_name",
        "",
        Kind::Text,
        "Name of the application, for lists of sessions.",
    ),
    reported(
        "client_encoding",
        "UTF8",
        Kind::Encoding,
        "Encoding of text to and from the client.",
    ),
    reported(
        "DateStyle",
        "ISO, MDY",
        Kind::DateStyle,
        "How dates are read and written.",
    ),
    reported(
        "default_transaction_read_only",
        "off",
        Kind::Bool,
        "New transactions may only read.",
    ),
    fixed_reported(
        "in_hot_standby",
        "off",
        Kind::Bool,
        "The server is a standby.",
    ),
    fixed_reported(
        "integer_datetimes",
        "on",
        Kind::Bool,
        "Times are sent as integers.",
    ),
    reported(
        "IntervalStyle",
        "postgres",
        Kind::Enum(&["postgres", "postgres_verbose", "sql_standard", "iso_8601"]),
        "How intervals are written.",
    ),
    fixed_reported(
        "is_superuser",
        "on",
        Kind::Bool,
        "The user may do everything.",
    ),
    reported(
        "search_path",
        "\"$user\", public",
        Kind::Text,
        "Schemas that bare names are looked up in.",
    ),
    fixed_reported(
        "server_encoding",
        "UTF8",
        Kind::Text,
        "Encoding of text in the database.",
    ),
    fixed_reported(
        "server_version",
        SERVER_VERSION,
        Kind::Text,
        "PostgreSQL version that the server answers like, and its own.",
    ),
    reported(
        "session_authorization",
        "tidemill",
        Kind::Text,
        "User of the session.",
    ),
    reported(
        "standard_conforming_strings",
        "on",
        Kind::Enum(&["on"]),
        "A backslash in '…' is a plain character.",
    ),
    reported(
        "TimeZone",
        "UTC",
        Kind::TimeZone,
        "Zone that times with a zone are shown in.",
    ),
    fixed(
        "server_version_num",
        "150000",
        Kind::Integer(0, BIG),
        "Version as a number.",
    ),
    fixed(
        "block_size",
        "8192",
        Kind::Integer(0, BIG),
        "Size of a disk block.",
    ),
    fixed(
        "data_checksums",
        "on",
        Kind::Bool,
        "Stored data carries checksums.",
    ),
    fixed(
        "max_function_args",
        "100",
        Kind::Integer(0, BIG),
        "Most arguments of a function.",
    ),
    fixed(
        "max_identifier_length",
        "63",
        Kind::Integer(0, BIG),
        "Longest name.",
    ),
    fixed(
        "max_index_keys",
        "32",
        Kind::Integer(0, BIG),
        "Most columns of a key.",
    ),
    fixed("lc_collate", "C.UTF-8", Kind::Text, "Order of text."),
    fixed("lc_ctype", "C.UTF-8", Kind::Text, "Classes of characters."),
    fixed(
        "max_connections",
        "1000",
        Kind::Integer(1, BIG),
        "Most sessions at once.",
    ),
    fixed("wal_level", "logical", Kind::Text, "What the log holds."),
    fixed("ssl", "off", Kind::Bool, "Connections may be encrypted."),
    user(
        "array_nulls",
        "on",
        Kind::Bool,
        "NULL in an array's text means null.",
    ),
    user(
        "backslash_quote",
        "safe_encoding",
        Kind::Text,
        "Backslash before a quote in text.",
    ),
    user(
        "bytea_output",
        "hex",
        Kind::Enum(&["hex", "escape"]),
        "How bytes are written as text.",
    ),
    user(
        "check_function_bodies",
        "on",
        Kind::Bool,
        "Bodies of functions are checked.",
    ),
    user(
        "client_min_messages",
        "notice",
        MESSAGES,
        "Least severe message that is sent.",
    ),
    user(
        "constraint_exclusion",
        "partition",
        Kind::Text,
        "Accepted; has no effect.",
    ),
    user(
        "cursor_tuple_fraction",
        "0.1",
        Kind::Real,
        "Accepted; has no effect.",
    ),
    user(
        "default_statistics_target",
        "100",
        Kind::Integer(1, 10_000),
        "Accepted; has no effect.",
    ),
    user(
        "default_table_access_method",
        "heap",
        Kind::Text,
        "Accepted; has no effect.",
    ),
    user(
        "default_tablespace",
        "",
        Kind::Text,
        "Accepted; has no effect.",
    ),
    user(
        "default_text_search_config",
        "pg_catalog.simple",
        Kind::Text,
        "Accepted; has no effect.",
    ),
    user(
        "default_transaction_deferrable",
        "off",
        Kind::Bool,
        "Accepted; has no effect.",
    ),
    user(
        "default_transaction_isolation",
        "read committed",
        ISOLATION,
        "Isolation of new transactions.",
    ),
    user(
        "effective_cache_size",
        "4GB",
        Kind::MemoryKb,
        "Accepted; has no effect.",
    ),
    user(
        "enable_hashjoin",
        "on",
        Kind::Bool,
        "Accepted; has no effect.",
    ),
    user(
        "enable_mergejoin",
        "on",
        Kind::Bool,
        "Accepted; has no effect.",
    ),
    user(
        "enable_nestloop",
        "on",
        Kind::Bool,
        "Accepted; has no effect.",
    ),
    user(
        "enable_seqscan",
        "on",
        Kind::Bool,
        "Accepted; has no effect.",
    ),
    user(
        "extra_float_digits",
        "1",
        Kind::Integer(-15, 3),
        "Digits of floating-point numbers.",
    ),
    user(
        "force_parallel_mode",
        "off",
        Kind::Text,
        "Accepted; has no effect.",
    ),
    user("geqo", "on", Kind::Bool, "Accepted; has no effect."),
    user(
        "gin_fuzzy_search_limit",
        "0",
        Kind::Integer(0, BIG),
        "Accepted; has no effect.",
    ),
    user(
        "idle_in_transaction_session_timeout",
        "0",
        Kind::TimeMs,
        "How long an open transaction may do nothing; 0: for ever.",
    ),
    user(
        "idle_session_timeout",
        "0",
        Kind::TimeMs,
        "How long a session may do nothing; 0: for ever.",
    ),
    user("jit", "off", Kind::Bool, "Accepted; has no effect."),
    user(
        "lc_messages",
        "C.UTF-8",
        Kind::Text,
        "Language of messages.",
    ),
    user(
        "lc_monetary",
        "C.UTF-8",
        Kind::Text,
        "Form of amounts of money.",
    ),
    user("lc_numeric", "C.UTF-8", Kind::Text, "Form of numbers."),
    user("lc_time", "C.UTF-8", Kind::Text, "Form of times."),
    user(
        "lock_timeout",
        "0",
        Kind::TimeMs,
        "How long to wait for a lock; 0: for ever.",
    ),
    user(
        "log_min_messages",
        "warning",
        MESSAGES,
        "Accepted; has no effect.",
    ),
    user(
        "log_statement",
        "none",
        Kind::Text,
        "Accepted; has no effect.",
    ),
    user(
        "maintenance_work_mem",
        "64MB",
        Kind::MemoryKb,
        "Accepted; has no effect.",
    ),
    user(
        "max_parallel_workers_per_gather",
        "2",
        Kind::Integer(0, 1024),
        "Accepted; has no effect.",
    ),
    user(
        "password_encryption",
        "scram-sha-256",
        Kind::Text,
        "How passwords are kept.",
    ),
    user(
        "quote_all_identifiers",
        "off",
        Kind::Bool,
        "Every name is written in quotes.",
    ),
    user(
        "random_page_cost",
        "4",
        Kind::Real,
        "Accepted; has no effect.",
    ),
    user("role", "none", Kind::Text, "Role in use."),
    user("row_security", "on", Kind::Bool, "Accepted; has no effect."),
    user(
        "session_replication_role",
        "origin",
        Kind::Text,
        "Accepted; has no effect.",
    ),
    user(
        "statement_timeout",
        "0",
        Kind::TimeMs,
        "Longest time of a statement; 0: no limit.",
    ),
    user(
        "synchronize_seqscans",
        "on",
        Kind::Bool,
        "Accepted; has no effect.",
    ),
    user(
        "synchronous_commit",
        "on",
        Kind::Enum(&["local", "remote_write", "remote_apply", "on", "off"]),
        "A commit is always on disk when it is answered.",
    ),
    user(
        "temp_tablespaces",
        "",
        Kind::Text,
        "Accepted; has no effect.",
    ),
    user(
        "timezone_abbreviations",
        "Default",
        Kind::Text,
        "Accepted; has no effect.",
    ),
    user(
        "transaction_deferrable",
        "off",
        Kind::Bool,
        "Accepted; has no effect.",
    ),
    user(
        "transaction_isolation",
        "read committed",
        ISOLATION,
        "Isolation of this transaction.",
    ),
    user(
        "transaction_read_only",
        "off",
        Kind::Bool,
        "This transaction may only read.",
    ),
    user(
        "vacuum_cost_delay",
        "0",
        Kind::TimeMs,
        "Accepted; has no effect.",
    ),
    user(
        "work_mem",
        "4MB",
        Kind::MemoryKb,
        "Accepted; has no effect.",
    ),
    user(
        "xmlbinary",
        "base64",
        Kind::Text,
        "Accepted; has no effect.",
    ),
    user(
        "xmloption",
        "content",
        Kind::Text,
        "Accepted; has no effect.",
    ),
    user(
        "tidemill.fetch_timeout",
        "1s",
        Kind::TimeMs,
        "How long FETCH from a SUBSCRIBE cursor waits for the first row.",
    ),
];
