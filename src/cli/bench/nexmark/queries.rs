//! The queries of `bench/nexmark.sql` and the streams that they read; for the measurements and, by
//! the same file, for the tests.

/// A query of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Query {
    /// `q0` to `q22`.
    pub name: &'static str,
    /// What it asks, in words.
    pub asks: &'static str,
    /// A `SELECT`.
    pub select: &'static str,
}

const FILE: &str = include_str!("../../../../bench/nexmark.sql");

/// Of 50 events so many are of each kind; with the columns of their streams.
pub const STREAMS: [(&str, u64, &str); 3] = [
    (
        "person",
        1,
        "id BIGINT, name TEXT, email_address TEXT, credit_card TEXT, city TEXT, state TEXT, date_time TIMESTAMP, extra TEXT",
    ),
    (
        "auction",
        3,
        "id BIGINT, item_name TEXT, description TEXT, initial_bid BIGINT, reserve BIGINT, date_time TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT, extra TEXT",
    ),
    (
        "bid",
        46,
        "auction BIGINT, bidder BIGINT, price BIGINT, channel TEXT, url TEXT, date_time TIMESTAMP, extra TEXT",
    ),
];

/// Events of all kinds that the shares of [`STREAMS`] are of.
pub const EVENTS_PER_EPOCH: u64 = 50;

/// The table that q13 joins with.
pub const SIDE_INPUT: &str = "CREATE TABLE side_input (key BIGINT PRIMARY KEY, value TEXT);
    INSERT INTO side_input SELECT i, 'value ' || i FROM generate_series(0, 9999) AS g(i);";

/// All queries, in the order of their numbers.
pub fn queries() -> Vec<Query> {
    FILE.split("\n-- ").filter_map(query).collect()
}

/// A section of the file: name and words in one line, then the query. The file's own heading has
/// none.
fn query(section: &'static str) -> Option<Query> {
    let (head, select) = section.split_once('\n')?;
    let (name, asks) = head.split_once(": ")?;
    name.strip_prefix('q')?.parse::<u32>().ok()?;
    Some(Query {
        name,
        asks,
        select: select.trim().trim_end_matches(';'),
    })
}

impl Query {
    /// It reads the stream.
    pub fn reads(&self, stream: &str) -> bool {
        let mut words = self
            .select
            .split(|c: char| !c.is_alphanumeric() && c != '_');
        let mut after_from = false;
        words.any(|word| {
            let is_read = after_from && word == stream;
            after_from =
                matches!(word, "FROM" | "JOIN" | "TUMBLE" | "HOP") || after_from && word.is_empty();
            is_read
        })
    }
}

/// The statements that create the three streams: `events` of all kinds, in batches of
/// `events_per_batch`, with further generator options.
pub fn streams(events: u64, events_per_batch: u64, options: &str) -> String {
    let stream = |(name, share, columns): &(&str, u64, &str)| {
        let rows_per_batch = (events_per_batch * share / EVENTS_PER_EPOCH).max(1);
        format!(
            "CREATE STREAM {name} ({columns}, WATERMARK FOR date_time AS date_time - INTERVAL '4 seconds') \
             WITH (connector = 'generator', kind = 'nexmark', event = '{name}', rows = {events}, \
             max_offsets_per_trigger = {rows_per_batch}{options});"
        )
    };
    STREAMS.iter().map(stream).collect()
}
