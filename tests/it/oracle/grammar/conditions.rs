//! Conditions: of WHERE, ON, HAVING, FILTER and CASE.

use super::{Column, Grammar, Kind};

impl Grammar<'_> {
    /// A condition without subqueries.
    pub(super) fn condition(&mut self, scope: &[Column], depth: u32) -> String {
        if depth == 0 {
            return self.comparison(scope, 0);
        }
        match self.random.below(10) {
            0 => format!(
                "({} AND {})",
                self.condition(scope, depth - 1),
                self.condition(scope, depth - 1)
            ),
            1 | 2 => format!(
                "({} OR {})",
                self.condition(scope, depth - 1),
                self.condition(scope, depth - 1)
            ),
            3 => format!("NOT ({})", self.condition(scope, depth - 1)),
            4 => format!(
                "({}) IS {}",
                self.condition(scope, depth - 1),
                self.pick(&["TRUE", "NOT TRUE", "UNKNOWN", "NOT FALSE"])
            ),
            _ => self.comparison(scope, depth),
        }
    }

    /// A condition of WHERE: it may hold subqueries.
    pub(super) fn filter(&mut self, scope: &[Column], depth: u32) -> String {
        if depth == 0 || self.chance(70) {
            return self.condition(scope, 1);
        }
        let subquery = self.subquery_condition(scope, depth - 1);
        match self.random.below(4) {
            0 => format!("{subquery} AND {}", self.condition(scope, 1)),
            1 => format!("({subquery} OR {})", self.condition(scope, 1)),
            _ => subquery,
        }
    }

    fn comparison(&mut self, scope: &[Column], depth: u32) -> String {
        let kind = match self.random.below(4) {
            0 => self.kind(),
            _ => self.kind_in(scope),
        };
        let one = self.scalar(scope, kind, depth);
        match self.random.below(9) {
            0 => format!("{one} IS {}NULL", self.pick(&["", "NOT "])),
            1 => format!(
                "{one} IS {}DISTINCT FROM {}",
                self.pick(&["", "NOT "]),
                self.scalar(scope, kind, 0)
            ),
            2 => format!(
                "{one} {}BETWEEN {} AND {}",
                self.pick(&["", "NOT "]),
                self.scalar(scope, kind, 0),
                self.scalar(scope, kind, 0)
            ),
            3 => self.in_list(scope, kind, &one),
            4 if kind == Kind::Text => format!(
                "{one} {} {}",
                self.pick(&["LIKE", "NOT LIKE", "ILIKE", "~"]),
                self.pick(&["'a%'", "'%b'", "'_'", "'A'"])
            ),
            4 if kind == Kind::Boolean => one,
            _ => format!(
                "{one} {} {}",
                self.pick(&["=", "<>", "<", "<=", ">", ">="]),
                self.scalar(scope, kind, depth.min(1))
            ),
        }
    }

    fn in_list(&mut self, scope: &[Column], kind: Kind, one: &str) -> String {
        let mut items: Vec<String> = (0..1 + self.random.below(3))
            .map(|_| self.literal(kind))
            .collect();
        if self.chance(20) {
            items.push("NULL".to_owned());
        }
        if self.chance(20) {
            items.push(self.scalar(scope, kind, 0));
        }
        format!(
            "{one} {}IN ({})",
            self.pick(&["", "NOT "]),
            items.join(", ")
        )
    }

    /// A condition between two relations; `equal` if it holds an equality of columns of both.
    pub(super) fn join_condition(&mut self, left: &[Column], right: &[Column]) -> String {
        let both: Vec<Column> = left.iter().chain(right).cloned().collect();
        let equality = self.equality(left, right);
        match (equality, self.random.below(10)) {
            (Some(equality), 0..=5) => equality,
            (Some(equality), 6 | 7) => format!("{equality} AND {}", self.condition(&both, 1)),
            (Some(equality), 8) => match self.equality(left, right) {
                Some(other) => format!("{equality} AND {other}"),
                None => equality,
            },
            _ => self.range_condition(left, right),
        }
    }

    fn equality(&mut self, left: &[Column], right: &[Column]) -> Option<String> {
        let kinds = [Kind::Integer, Kind::Integer, Kind::Integer, Kind::Text];
        let kind = *self.random.pick(&kinds);
        let (one, other) = (self.column(left, kind)?, self.column(right, kind)?);
        Some(match self.random.below(8) {
            0 => format!("{one} IS NOT DISTINCT FROM {other}"),
            1 if kind == Kind::Integer => format!("{one} = {other} + 1"),
            2 => format!("{other} = {one}"),
            _ => format!("{one} = {other}"),
        })
    }

    fn range_condition(&mut self, left: &[Column], right: &[Column]) -> String {
        let (Some(one), Some(other)) = (
            self.column(left, Kind::Integer),
            self.column(right, Kind::Integer),
        ) else {
            return self.pick(&["true", "1 = 1"]).to_owned();
        };
        match self.random.below(4) {
            0 => format!("{one} < {other}"),
            1 => format!("{other} BETWEEN {one} - 2 AND {one} + 1"),
            2 => format!("{one} > {other} AND {one} <= {other} + 3"),
            _ => {
                let both: Vec<Column> = left.iter().chain(right).cloned().collect();
                format!("({one} = {other} OR {})", self.condition(&both, 0))
            }
        }
    }
}
