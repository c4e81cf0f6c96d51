//! What PostgreSQL does not have: time windows, sessions, as-of joins.

use super::subqueries::qualified;
use super::{Column, Grammar, Kind, Relation};

impl Grammar<'_> {
    /// A stream in windows of time or number.
    pub(super) fn time_relation(&mut self) -> Relation {
        self.standard = false;
        let alias = self.alias();
        let bounds = [
            Column::new("window_start", Kind::Timestamp),
            Column::new("window_end", Kind::Timestamp),
        ];
        let events = [
            Column::new("k", Kind::Integer),
            Column::new("z", Kind::Timestamp),
            Column::new("v", Kind::Integer),
        ];
        let columns = qualified(&alias, &[&events[..], &bounds[..]].concat());
        match self.random.below(4) {
            0 => Relation::one(
                format!("TUMBLE(e, z, INTERVAL '2 minutes') AS {alias}"),
                columns,
            ),
            1 => Relation::one(
                format!("HOP(e, z, INTERVAL '1 minute', INTERVAL '3 minutes') AS {alias}"),
                columns,
            ),
            2 => {
                let key = self.pick(&["", ", k"]);
                Relation::one(
                    format!("SESSION(e, z, INTERVAL '40 seconds'{key}) AS {alias}"),
                    columns,
                )
            }
            _ => self.grouped_windows(&alias),
        }
    }

    /// Spark's windows as group keys.
    fn grouped_windows(&mut self, alias: &str) -> Relation {
        let window = self.pick(&[
            "window(z, '2 minutes')",
            "window(z, '3 minutes', '1 minute')",
            "session_window(z, '40 seconds')",
        ]);
        let name = window.split('(').next().expect("a call");
        let columns = [
            Column::new("c0", Kind::Integer),
            Column::new("c1", Kind::Timestamp),
            Column::new("c2", Kind::Integer),
            Column::new("c3", Kind::Integer),
        ];
        Relation::one(
            format!(
                "(SELECT k AS c0, {name}.start AS c1, count(*) AS c2, max(v) AS c3 FROM e GROUP BY {window}, k) AS {alias}"
            ),
            qualified(alias, &columns),
        )
    }

    /// Rows of a stream with what a table says when they come, which it always says.
    pub(super) fn system_time_join(&mut self) -> Relation {
        self.standard = false;
        let alias = self.alias();
        let word = self.pick(&["JOIN", "LEFT JOIN"]);
        let more = self.pick(&["", "", " AND y.r > x.v", " AND x.v <> 3"]);
        let columns = [
            Column::new("k", Kind::Integer),
            Column::new("z", Kind::Timestamp),
            Column::new("v", Kind::Integer),
            Column::new("r", Kind::Numeric),
        ];
        Relation::one(
            format!(
                "(SELECT x.k, x.z, x.v, y.r FROM e x {word} c FOR SYSTEM_TIME AS OF x.z AS y \
                 ON x.k = y.id{more}) AS {alias}"
            ),
            qualified(&alias, &columns),
        )
    }

    /// Each row with the last one of the other side that was not later.
    pub(super) fn asof_join(&mut self) -> Relation {
        self.standard = false;
        let alias = self.alias();
        let comparison = self.pick(&[">=", ">"]);
        let columns = [
            Column::new("k", Kind::Integer),
            Column::new("z", Kind::Timestamp),
            Column::new("k2", Kind::Integer),
            Column::new("z2", Kind::Timestamp),
        ];
        // The right side has one row per key and time, so that there is one right answer.
        Relation::one(
            format!(
                "(SELECT x.k, x.z, y.k AS k2, y.z AS z2 FROM e x ASOF JOIN (SELECT DISTINCT k, z FROM o) y \
                 MATCH_CONDITION (x.z {comparison} y.z) ON x.k = y.k) AS {alias}"
            ),
            qualified(&alias, &columns),
        )
    }
}
