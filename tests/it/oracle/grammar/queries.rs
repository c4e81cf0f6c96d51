//! What is made of SELECTs: set operations, WITH, tops, first rows of groups, recursion.

use super::selects::outputs;
use super::{Column, Grammar, Kind, all_names};

const SET_OPERATIONS: [&str; 6] = [
    "UNION ALL",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "EXCEPT ALL",
    "INTERSECT ALL",
];

impl Grammar<'_> {
    /// A query whose columns are `c0`, `c1`, …, of the kinds if they are given.
    pub(super) fn query_of(&mut self, kinds: Option<&[Kind]>, depth: u32) -> (String, Vec<Column>) {
        if depth == 0 {
            return self.select_of(kinds, 0);
        }
        let below = depth - 1;
        match self.random.below(16) {
            0 | 1 => self.set_operation(kinds, below),
            2 | 3 => self.with(kinds, below),
            4 | 5 => self.top(kinds, below),
            6 => self.first_of_groups(kinds, below),
            7 => self.numbered(kinds, below),
            8 => self.distinct(kinds, below),
            9 if kinds.is_none() => self.recursive(),
            _ => self.select_of(kinds, depth),
        }
    }

    fn set_operation(&mut self, kinds: Option<&[Kind]>, depth: u32) -> (String, Vec<Column>) {
        let kinds = self.kinds(kinds);
        let mut sql = self.select_of(Some(&kinds), depth).0;
        for _ in 0..1 + self.random.below(2) {
            let (other, _) = self.select_of(Some(&kinds), depth);
            let word = self.pick(&SET_OPERATIONS);
            sql = match self.chance(30) {
                true => format!("({other}) {word} ({sql})"),
                false => format!("({sql}) {word} {other}"),
            };
        }
        (sql, outputs(&kinds))
    }

    /// A common table expression that the query names, often twice.
    fn with(&mut self, kinds: Option<&[Kind]>, depth: u32) -> (String, Vec<Column>) {
        let before = std::mem::take(&mut self.outer);
        let (inner, columns) = self.query_of(None, depth);
        self.outer = before;
        let name = format!("w{}", self.alias());
        let materialized = self.pick(&["", "", "MATERIALIZED ", "NOT MATERIALIZED "]);
        let count = self.named.len();
        // Named three times, so that FROM picks it most of the time.
        for _ in 0..3 {
            self.named.push((name.clone(), columns.clone()));
        }
        let (outer, columns) = self.select_of(kinds, depth.max(1));
        self.named.truncate(count);
        (
            format!("WITH {name} AS {materialized}({inner}) {outer}"),
            columns,
        )
    }

    /// ORDER BY all columns, LIMIT and OFFSET.
    fn top(&mut self, kinds: Option<&[Kind]>, depth: u32) -> (String, Vec<Column>) {
        let (inner, columns) = self.select_of(kinds, depth);
        let order = self.order_of_all(&columns);
        let limit = match self.random.below(5) {
            0 => format!("OFFSET {}", 1 + self.random.below(3)),
            1 => format!(
                "LIMIT {} OFFSET {}",
                1 + self.random.below(4),
                self.random.below(3)
            ),
            2 => format!("FETCH FIRST {} ROWS ONLY", 1 + self.random.below(3)),
            _ => format!("LIMIT {}", self.random.below(6)),
        };
        (format!("{inner} {order} {limit}"), columns)
    }

    fn order_of_all(&mut self, columns: &[Column]) -> String {
        let mut names = all_names(columns);
        let turn = self.random.below(names.len() as u64) as usize;
        names.rotate_left(turn);
        for name in &mut names {
            name.push_str(self.pick(&["", "", " DESC", " NULLS FIRST", " DESC NULLS LAST"]));
        }
        format!("ORDER BY {}", names.join(", "))
    }

    fn first_of_groups(&mut self, kinds: Option<&[Kind]>, depth: u32) -> (String, Vec<Column>) {
        let (inner, columns) = self.select_of(kinds, depth);
        let alias = self.alias();
        let mut order = all_names(&columns);
        order[0].push_str(self.pick(&["", " DESC"]));
        (
            format!(
                "SELECT DISTINCT ON (c0) * FROM ({inner}) AS {alias} ORDER BY {}",
                order.join(", ")
            ),
            columns,
        )
    }

    /// The first rows of each group by a number of theirs.
    fn numbered(&mut self, kinds: Option<&[Kind]>, depth: u32) -> (String, Vec<Column>) {
        let (inner, columns) = self.select_of(kinds, depth);
        let (one, two) = (self.alias(), self.alias());
        let list = all_names(&columns).join(", ");
        let number = match self.random.below(3) {
            0 => {
                let order = self.total_order(&columns);
                format!("row_number() OVER (PARTITION BY c0 {order})")
            }
            1 => format!(
                "{} OVER (PARTITION BY c0 ORDER BY c{} DESC)",
                self.pick(&["rank()", "dense_rank()"]),
                columns.len() - 1
            ),
            _ => format!("row_number() OVER ({})", self.total_order(&columns)),
        };
        let condition = self.pick(&["n <= 2", "n < 2", "n = 1", "n <= 3", "n = 2", "n > 1"]);
        (
            format!(
                "SELECT {list} FROM (SELECT {one}.*, {number} AS n FROM ({inner}) AS {one}) AS {two} WHERE {condition}"
            ),
            columns,
        )
    }

    fn distinct(&mut self, kinds: Option<&[Kind]>, depth: u32) -> (String, Vec<Column>) {
        let (inner, columns) = self.select_of(kinds, depth);
        let alias = self.alias();
        (
            format!("SELECT DISTINCT * FROM ({inner}) AS {alias}"),
            columns,
        )
    }

    /// Recursion over the keys of tables: it ends because its numbers grow to a bound.
    fn recursive(&mut self) -> (String, Vec<Column>) {
        let name = format!("w{}", self.alias());
        let all = self.pick(&["", " ALL"]);
        let start = self.pick(&["id < 3", "v = 2", "k IS NULL OR k = 1"]);
        let step = self.pick(&[
            "JOIN a ON a.id = p.c0 + 1",
            "JOIN a ON a.k = p.c0 AND a.id < 9",
            "JOIN b ON b.id = p.c0",
        ]);
        let next = if step.contains("JOIN b") {
            "b.k"
        } else {
            "a.v"
        };
        let columns = vec![
            Column::new("c0", Kind::Integer),
            Column::new("c1", Kind::Integer),
        ];
        let tail = self.pick(&["c0, c1", "c0, max(c1) AS c1", "c0, count(*) AS c1"]);
        let group = if tail.contains('(') {
            " GROUP BY c0"
        } else {
            ""
        };
        (
            format!(
                "WITH RECURSIVE {name}(c0, c1) AS (SELECT id, 0::bigint FROM a WHERE {start} UNION{all} \
                 SELECT {next}, p.c1 + 1 FROM {name} AS p {step} WHERE p.c1 < 3) SELECT {tail} FROM {name}{group}"
            ),
            columns,
        )
    }
}
