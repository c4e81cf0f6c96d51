//! Window calls with frames of rows, ranges and groups, and what they exclude.

use super::{Column, Grammar, Kind, all_names};

/// Frames over an order that is total.
const ROWS: [&str; 8] = [
    "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "ROWS 3 PRECEDING",
    "ROWS BETWEEN 3 PRECEDING AND 2 PRECEDING",
    "ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING",
];
/// Frames that take equal rows together.
const PEERS: [&str; 7] = [
    "",
    "GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "GROUPS BETWEEN 2 PRECEDING AND CURRENT ROW",
    "GROUPS UNBOUNDED PRECEDING",
    "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "RANGE UNBOUNDED PRECEDING",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
];
/// Frames by distance, over one number.
const DISTANCES: [&str; 4] = [
    "RANGE BETWEEN 1 PRECEDING AND 2 FOLLOWING",
    "RANGE BETWEEN 3 PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING",
    "RANGE BETWEEN 2 FOLLOWING AND 4 FOLLOWING",
];

impl Grammar<'_> {
    /// A window call and its kind.
    pub(super) fn window(&mut self, scope: &[Column]) -> (String, Kind) {
        let partition = self.partition(scope);
        match self.random.below(6) {
            0 => self.by_place(scope, &partition),
            1 => self.by_rank(scope, &partition),
            2 => {
                let (call, kind) = self.framed_call(scope);
                let order = self.total_order(scope);
                let frame = self.frame(&ROWS);
                (
                    format!("({call} OVER ({partition}{order} {frame})){}", cast(kind)),
                    kind,
                )
            }
            3 => {
                let (call, kind) = self.framed_call(scope);
                let order = self.partial_order(scope);
                let frame = self.frame(&PEERS);
                (
                    format!("({call} OVER ({partition}{order} {frame})){}", cast(kind)),
                    kind,
                )
            }
            4 => {
                let (call, kind) = self.framed_call(scope);
                let Some(number) = self.column(scope, Kind::Integer) else {
                    return (format!("({call} OVER ({partition})){}", cast(kind)), kind);
                };
                let direction = self.pick(&["", " DESC", " NULLS FIRST"]);
                let frame = self.frame(&DISTANCES);
                (
                    format!(
                        "({call} OVER ({partition}ORDER BY {number}{direction} {frame})){}",
                        cast(kind)
                    ),
                    kind,
                )
            }
            _ => {
                let (call, kind) = self.framed_call(scope);
                (format!("({call} OVER ({partition})){}", cast(kind)), kind)
            }
        }
    }

    /// A frame, sometimes without some of its rows.
    fn frame(&mut self, frames: &[&'static str]) -> String {
        let frame = self.pick(frames);
        if frame.is_empty() || !self.chance(30) {
            return frame.to_owned();
        }
        let left_out = self.pick(&["CURRENT ROW", "GROUP", "TIES", "NO OTHERS"]);
        format!("{frame} EXCLUDE {left_out}")
    }

    fn partition(&mut self, scope: &[Column]) -> String {
        match self.random.below(4) {
            0 => String::new(),
            1 => {
                let (one, other) = (
                    self.scalar(scope, Kind::Integer, 1),
                    self.scalar(scope, Kind::Text, 0),
                );
                format!("PARTITION BY {one}, {other} ")
            }
            _ => {
                let kind = self.kind_in(scope);
                format!("PARTITION BY {} ", self.scalar(scope, kind, 0))
            }
        }
    }

    /// By all columns in scope, some of them downwards.
    pub(super) fn total_order(&mut self, scope: &[Column]) -> String {
        let mut names = all_names(scope);
        if names.is_empty() {
            return "ORDER BY 1".to_owned();
        }
        let turn = self.random.below(names.len() as u64) as usize;
        names.rotate_left(turn);
        for name in &mut names {
            name.push_str(self.pick(&["", "", " DESC", " NULLS FIRST", " DESC NULLS LAST"]));
        }
        format!("ORDER BY {}", names.join(", "))
    }

    fn partial_order(&mut self, scope: &[Column]) -> String {
        let kind = self.kind_in(scope);
        let one = self.scalar(scope, kind, 0);
        format!(
            "ORDER BY {one}{}",
            self.pick(&["", " DESC", " NULLS FIRST", " DESC NULLS LAST"])
        )
    }

    /// Functions of a row's place in a total order.
    fn by_place(&mut self, scope: &[Column], partition: &str) -> (String, Kind) {
        let order = self.total_order(scope);
        let number = self.scalar(scope, Kind::Integer, 0);
        let text = self.scalar(scope, Kind::Text, 0);
        let (call, kind) = match self.random.below(10) {
            0..=2 => ("row_number()".to_owned(), Kind::Integer),
            3 => (format!("lag({number})"), Kind::Integer),
            4 => (format!("lead({text}, 2)"), Kind::Text),
            5 => (format!("lag({number}, 1, -1::bigint)"), Kind::Integer),
            6 => (format!("first_value({text})"), Kind::Text),
            7 => (format!("last_value({number})"), Kind::Integer),
            8 => (format!("nth_value({number}, 2)"), Kind::Integer),
            _ => ("ntile(3)::bigint".to_owned(), Kind::Integer),
        };
        let (call, cast) = match call.strip_suffix("::bigint") {
            Some(call) => (call.to_owned(), "::bigint"),
            None => (call, ""),
        };
        (format!("({call} OVER ({partition}{order})){cast}"), kind)
    }

    /// Functions that equal rows share.
    fn by_rank(&mut self, scope: &[Column], partition: &str) -> (String, Kind) {
        let order = self.partial_order(scope);
        let (call, kind) = *self.random.pick(&[
            ("rank()", Kind::Integer),
            ("dense_rank()", Kind::Integer),
            ("percent_rank()", Kind::Double),
            ("cume_dist()", Kind::Double),
        ]);
        (format!("{call} OVER ({partition}{order})"), kind)
    }

    /// An aggregate whose value does not depend on the order of its rows.
    fn framed_call(&mut self, scope: &[Column]) -> (String, Kind) {
        let number = self.scalar(scope, Kind::Integer, 1);
        let (call, kind) = match self.random.below(9) {
            0 => ("count(*)".to_owned(), Kind::Integer),
            1 => (format!("count({number})"), Kind::Integer),
            2 => (format!("sum({number})"), Kind::Integer),
            3 => (format!("min({number})"), Kind::Integer),
            4 => (
                format!("max({})", self.scalar(scope, Kind::Text, 0)),
                Kind::Text,
            ),
            5 => (format!("avg({number})"), Kind::Double),
            6 => (
                format!("sum({})", self.scalar(scope, Kind::Numeric, 0)),
                Kind::Numeric,
            ),
            7 => (
                format!("bool_or({})", self.condition(scope, 0)),
                Kind::Boolean,
            ),
            _ => (format!("stddev_pop({number})"), Kind::Double),
        };
        match self.chance(15) {
            true => (
                format!("{call} FILTER (WHERE {})", self.condition(scope, 0)),
                kind,
            ),
            false => (call, kind),
        }
    }
}

/// PostgreSQL's sums and averages of integers are numeric.
fn cast(kind: Kind) -> &'static str {
    match kind {
        Kind::Integer => "::bigint",
        Kind::Double => "::double precision",
        _ => "",
    }
}
