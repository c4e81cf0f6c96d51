//! What FROM holds: tables, views, queries, joins of all kinds, functions of rows.

use super::subqueries::qualified;
use super::{Column, Grammar, Kind, Relation};

const TABLES: [(&str, &[(&str, Kind)]); 5] = [
    (
        "a",
        &[
            ("id", Kind::Integer),
            ("k", Kind::Integer),
            ("v", Kind::Integer),
            ("t", Kind::Text),
        ],
    ),
    (
        "b",
        &[
            ("id", Kind::Integer),
            ("k", Kind::Integer),
            ("w", Kind::Numeric),
            ("t", Kind::Text),
        ],
    ),
    (
        "s",
        &[
            ("k", Kind::Integer),
            ("v", Kind::Integer),
            ("t", Kind::Text),
        ],
    ),
    (
        "o",
        &[
            ("id", Kind::Integer),
            ("k", Kind::Integer),
            ("d", Kind::Double),
            ("f", Kind::Boolean),
            ("y", Kind::Date),
            ("z", Kind::Timestamp),
            ("l", Kind::Array),
        ],
    ),
    (
        "e",
        &[
            ("k", Kind::Integer),
            ("z", Kind::Timestamp),
            ("v", Kind::Integer),
        ],
    ),
];

impl Grammar<'_> {
    /// A relation; with depth it may be a join or a query.
    pub(super) fn relation(&mut self, depth: u32) -> Relation {
        match self.random.below(20) {
            0..=7 if depth > 0 => self.join(depth),
            8 if depth > 0 => self.many_way_join(),
            9..=11 if depth > 0 => self.derived(depth - 1),
            12 => self.rows_of_no_table(),
            13 if !self.standard_only => self.time_relation(),
            _ => self.table(),
        }
    }

    /// A table, a stream, or what has a name in the query or the database.
    pub(super) fn table(&mut self) -> Relation {
        let alias = self.alias();
        if !self.named.is_empty() && !self.large_taken && self.chance(35) {
            let (name, columns) = self.random.pick(&self.named).clone();
            return Relation::one(format!("{name} AS {alias}"), qualified(&alias, &columns));
        }
        let fitting: Vec<_> = TABLES
            .iter()
            .filter(|(name, _)| self.has_room_for(name))
            .collect();
        let (name, columns) = **self.random.pick(&fitting);
        self.large_taken |= self.large == Some(name);
        let columns: Vec<Column> = columns.iter().map(|(n, k)| Column::new(*n, *k)).collect();
        Relation::one(format!("{name} AS {alias}"), qualified(&alias, &columns))
    }

    /// The query may name the table, once more if it did.
    fn has_room_for(&self, name: &str) -> bool {
        !self.large_taken || self.large != Some(name)
    }

    fn derived(&mut self, depth: u32) -> Relation {
        let before = std::mem::take(&mut self.outer);
        let (sql, columns) = self.query_of(None, depth);
        self.outer = before;
        let alias = self.alias();
        Relation::one(format!("({sql}) AS {alias}"), qualified(&alias, &columns))
    }

    /// VALUES, series, arrays as rows.
    fn rows_of_no_table(&mut self) -> Relation {
        let alias = self.alias();
        let integer = |name: &str| Column::new(format!("{alias}.{name}"), Kind::Integer);
        match self.random.below(4) {
            0 => Relation::one(
                format!("(VALUES (1, 'a'), (2, NULL), (NULL, 'b'), (3, '')) AS {alias}(m, u)"),
                vec![integer("m"), Column::new(format!("{alias}.u"), Kind::Text)],
            ),
            1 => Relation::one(
                format!(
                    "generate_series(0, {}) AS {alias}(m)",
                    1 + self.random.below(5)
                ),
                vec![integer("m")],
            ),
            2 => Relation::one(
                format!("unnest(ARRAY[3, NULL, 1]) WITH ORDINALITY AS {alias}(m, n)"),
                vec![integer("m"), integer("n")],
            ),
            _ => Relation::one(
                format!("unnest(ARRAY[1, 2, 2, 5]) AS {alias}(m)"),
                vec![integer("m")],
            ),
        }
    }

    fn join(&mut self, depth: u32) -> Relation {
        let left = self.relation(depth - 1);
        match self.random.below(12) {
            0 => self.join_lateral(left, depth - 1),
            1 => self.join_rows(left),
            2 => self.join_using(),
            3 => {
                let right = self.table();
                let columns = [left.columns, right.columns].concat();
                Relation::join(format!("{} CROSS JOIN {}", left.sql, right.sql), columns)
            }
            4 if !self.standard_only && self.chance(50) => self.asof_join(),
            4 if !self.standard_only => self.system_time_join(),
            _ => {
                let right = self.relation(depth - 1);
                self.correlate = false;
                let condition = self.join_condition(&left.columns, &right.columns);
                self.correlate = true;
                let word = self.pick(&["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
                // PostgreSQL has no FULL JOIN over a condition that it can neither hash nor sort.
                let word = match word == "FULL JOIN" && !mergeable(&condition) {
                    true => "LEFT JOIN",
                    false => word,
                };
                let sql = format!("{} {word} {} ON {condition}", left.sql, right.bracketed());
                Relation::join(sql, [left.columns, right.columns].concat())
            }
        }
    }

    fn join_lateral(&mut self, left: Relation, depth: u32) -> Relation {
        let right = self.lateral(&left.columns, depth);
        let columns = [left.columns, right.columns].concat();
        let sql = match self.random.below(3) {
            0 => format!("{} CROSS JOIN {}", left.sql, right.sql),
            1 => format!("{} LEFT JOIN {} ON true", left.sql, right.sql),
            _ => format!("{} JOIN {} ON true", left.sql, right.sql),
        };
        Relation::join(sql, columns)
    }

    /// Functions of rows over the columns left of them.
    fn join_rows(&mut self, left: Relation) -> Relation {
        let alias = self.alias();
        let integer = |name: &str| Column::new(format!("{alias}.{name}"), Kind::Integer);
        let array = self.column(&left.columns, Kind::Array);
        let number = self.column(&left.columns, Kind::Integer);
        let (function, added) = match (array, number) {
            (Some(array), _) if self.chance(60) => (
                format!("unnest({array}) WITH ORDINALITY AS {alias}(m, n)"),
                vec![integer("m"), integer("n")],
            ),
            (Some(array), _) => (format!("unnest({array}) AS {alias}(m)"), vec![integer("m")]),
            (None, Some(number)) => (
                format!("generate_series(1, {number} % 4) AS {alias}(m)"),
                vec![integer("m")],
            ),
            (None, None) => (
                format!("generate_series(1, 2) AS {alias}(m)"),
                vec![integer("m")],
            ),
        };
        let word = self.pick(&["CROSS JOIN LATERAL", "CROSS JOIN"]);
        Relation::join(
            format!("{} {word} {function}", left.sql),
            [left.columns, added].concat(),
        )
    }

    /// USING and NATURAL: the shared columns appear once, without a relation's name.
    fn join_using(&mut self) -> Relation {
        let word = self.pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]);
        let (one, other, shared, rest): (_, _, _, &[(&str, Kind)]) = match self.random.below(3) {
            0 if self.large.is_none() => (
                "a",
                "b",
                "id",
                &[("v", Kind::Integer), ("w", Kind::Numeric)],
            ),
            1 if self.large.is_none() => ("s", "a", "k, t", &[("id", Kind::Integer)]),
            _ => ("e", "o", "k", &[("f", Kind::Boolean), ("v", Kind::Integer)]),
        };
        let mut columns: Vec<Column> = rest.iter().map(|(n, k)| Column::new(*n, *k)).collect();
        for name in shared.split(", ") {
            let kind = if name == "t" {
                Kind::Text
            } else {
                Kind::Integer
            };
            columns.push(Column::new(name, kind));
        }
        let join = match self.random.below(3) {
            0 if shared == "k, t" => {
                format!("{one} NATURAL {word} (SELECT id, k, t FROM {other}) q")
            }
            _ => format!("{one} {word} {other} USING ({shared})"),
        };
        // The merged columns may have a name of their own.
        let (join, merged) = match join.ends_with(')') && !join.contains("NATURAL") {
            true if self.chance(40) => (format!("{join} AS u"), "u."),
            _ => (join, ""),
        };
        let names = columns.iter().map(|column| {
            let is_merged = shared.split(", ").any(|name| name == column.name);
            format!("{}{}", if is_merged { merged } else { "" }, column.name)
        });
        // A query around it, so that the bare names meet no other relation's.
        let list = names.collect::<Vec<_>>().join(", ");
        let alias = self.alias();
        Relation::one(
            format!("(SELECT {list} FROM {join}) AS {alias}"),
            qualified(&alias, &columns),
        )
    }

    /// Four or five tables, each bound to one before it.
    fn many_way_join(&mut self) -> Relation {
        let mut whole = self.table();
        for _ in 0..3 + self.random.below(2) {
            let next = self.table();
            let one = self.column(&whole.columns, Kind::Integer);
            let other = next.columns.iter().find(|c| c.kind == Kind::Integer);
            let (Some(one), Some(other)) = (one, other) else {
                continue;
            };
            let word = self.pick(&["JOIN", "JOIN", "LEFT JOIN"]);
            let sql = format!(
                "{} {word} {} ON {one} = {}",
                whole.sql, next.sql, other.name
            );
            whole = Relation::join(sql, [whole.columns, next.columns.clone()].concat());
        }
        whole
    }
}

/// One plain equality of two columns.
fn mergeable(condition: &str) -> bool {
    let words: Vec<&str> = condition.split_whitespace().collect();
    words.len() == 3 && words[1] == "="
}
