//! Subqueries as values, as conditions and in FROM: of their own, or over the rows around them.

use super::{Column, Grammar, Kind, Relation, all_names};

impl Grammar<'_> {
    /// Makes something within a query whose rows are in scope.
    fn inside<T>(&mut self, scope: &[Column], make: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.outer.clone();
        if self.correlate && self.chance(60) {
            self.outer.extend(scope.iter().cloned());
        } else {
            self.outer.clear();
        }
        let made = make(self);
        self.outer = before;
        made
    }

    /// A relation and a WHERE clause over it.
    fn filtered(&mut self, depth: u32) -> (Relation, String) {
        let relation = self.relation(depth.min(1));
        let mut conditions = Vec::new();
        // What makes a subquery correlated most of the time: an equality with the rows around.
        let outer = self.outer.clone();
        if let (Some(one), Some(other)) = (
            self.column(&relation.columns, Kind::Integer),
            self.column(&outer, Kind::Integer),
        ) {
            let comparison = self.pick(&["=", "=", "=", "=", "<", ">=", "<>"]);
            conditions.push(format!("{one} {comparison} {other}"));
        }
        if self.chance(50) || conditions.is_empty() {
            conditions.push(self.filter(&relation.columns, depth));
        }
        (relation, conditions.join(" AND "))
    }

    /// One value: of an aggregate, of the first row, or of no relation at all.
    pub(super) fn scalar_subquery(&mut self, scope: &[Column], kind: Kind, depth: u32) -> String {
        let depth = depth.saturating_sub(1);
        self.inside(scope, |grammar| match grammar.random.below(6) {
            0 => format!("(SELECT {})", grammar.scalar(&[], kind, depth)),
            1 => {
                let (relation, condition) = grammar.filtered(depth);
                let value = grammar.scalar(&relation.columns, kind, 0);
                let order = all_names(&relation.columns).join(", ");
                format!(
                    "(SELECT {value} FROM {} WHERE {condition} ORDER BY {order} LIMIT 1)",
                    relation.sql
                )
            }
            _ => {
                let (relation, condition) = grammar.filtered(depth);
                let value = grammar.aggregate_of(&relation.columns, kind);
                format!("(SELECT {value} FROM {} WHERE {condition})", relation.sql)
            }
        })
    }

    /// EXISTS, IN, quantified comparisons, and comparisons with a value.
    pub(super) fn subquery_condition(&mut self, scope: &[Column], depth: u32) -> String {
        let kind = *self
            .random
            .pick(&[Kind::Integer, Kind::Integer, Kind::Text]);
        match self.random.below(9) {
            0..=2 => {
                let query = self.inside(scope, |grammar| {
                    let (relation, condition) = grammar.filtered(depth);
                    let value = grammar.pick(&["1", "*", "NULL"]);
                    format!("SELECT {value} FROM {} WHERE {condition}", relation.sql)
                });
                format!("{}EXISTS ({query})", self.pick(&["", "NOT "]))
            }
            3 => {
                let one = self.scalar(scope, kind, 0);
                let other = self.scalar_subquery(scope, kind, depth);
                format!("{one} {} {other}", self.pick(&["=", "<", ">", "<>"]))
            }
            4 => {
                let (one, other) = (
                    self.scalar(scope, Kind::Integer, 0),
                    self.scalar(scope, Kind::Text, 0),
                );
                // Rows compared with those of a query over the rows around it are refused.
                let before = std::mem::replace(&mut self.correlate, false);
                let query = self.list(scope, &[Kind::Integer, Kind::Text], depth);
                self.correlate = before;
                format!("({one}, {other}) {}IN ({query})", self.pick(&["", "NOT "]))
            }
            5 => {
                let one = self.scalar(scope, kind, 0);
                let query = self.list(scope, &[kind], depth);
                format!(
                    "{one} {} ({query})",
                    self.pick(&["= ANY", "> ALL", "< ANY", "<> ALL", ">= SOME"])
                )
            }
            _ => {
                let one = self.scalar(scope, kind, 0);
                let query = self.list(scope, &[kind], depth);
                format!("{one} {}IN ({query})", self.pick(&["", "NOT "]))
            }
        }
    }

    /// A query for IN: values of the kinds.
    fn list(&mut self, scope: &[Column], kinds: &[Kind], depth: u32) -> String {
        self.inside(scope, |grammar| {
            if depth > 0 && grammar.chance(15) {
                return grammar.query_of(Some(kinds), 1).0;
            }
            let (relation, condition) = grammar.filtered(depth);
            let values: Vec<String> = kinds
                .iter()
                .map(|kind| grammar.scalar(&relation.columns, *kind, 0))
                .collect();
            format!(
                "SELECT {} FROM {} WHERE {condition}",
                values.join(", "),
                relation.sql
            )
        })
    }

    /// A query over the columns of the relations left of it.
    pub(super) fn lateral(&mut self, left: &[Column], depth: u32) -> Relation {
        let before = self.outer.clone();
        self.outer = left.to_vec();
        let (sql, columns) = if self.chance(40) {
            let (relation, condition) = self.filtered(depth);
            let value = self.scalar(&relation.columns, Kind::Integer, 1);
            let order = all_names(&relation.columns).join(", ");
            let top = match self.random.below(3) {
                0 => format!(" ORDER BY {order} LIMIT {}", 1 + self.random.below(2)),
                _ => String::new(),
            };
            (
                format!(
                    "SELECT {value} AS c0 FROM {} WHERE {condition}{top}",
                    relation.sql
                ),
                vec![Column::new("c0", Kind::Integer)],
            )
        } else {
            self.select_of(None, depth)
        };
        self.outer = before;
        let alias = self.alias();
        Relation::one(
            format!("LATERAL ({sql}) AS {alias}"),
            qualified(&alias, &columns),
        )
    }
}

/// Columns `c0`, `c1`, … of a relation with an alias.
pub(super) fn qualified(alias: &str, columns: &[Column]) -> Vec<Column> {
    columns
        .iter()
        .map(|c| Column::new(format!("{alias}.{}", c.name), c.kind))
        .collect()
}
