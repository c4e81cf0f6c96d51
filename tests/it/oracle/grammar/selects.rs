//! One SELECT: plain, grouped, or with windows.

use super::{Column, Grammar, Kind, Relation};

impl Grammar<'_> {
    /// A SELECT whose columns are `c0`, `c1`, …, of the kinds if they are given.
    pub(super) fn select_of(
        &mut self,
        kinds: Option<&[Kind]>,
        depth: u32,
    ) -> (String, Vec<Column>) {
        let relation = self.from(depth);
        let kinds = match kinds {
            Some(kinds) => kinds.to_vec(),
            None => (0..1 + self.random.below(4))
                .map(|_| self.kind_in(&relation.columns))
                .collect(),
        };
        let condition = match self.chance(50) {
            true => format!(" WHERE {}", self.filter(&relation.columns, depth)),
            false => String::new(),
        };
        let tail = format!("FROM {}{condition}", relation.sql);
        let scope = &relation.columns;
        let sql = match self.random.below(10) {
            0..=3 => self.grouped(&kinds, scope, &tail),
            4 | 5 => self.windowed(&kinds, scope, &tail),
            _ => {
                let depth = depth.min(2);
                let values = kinds.iter().map(|kind| self.scalar(scope, *kind, depth));
                let list = named(values.collect());
                format!("SELECT {list} {tail}")
            }
        };
        (sql, outputs(&kinds))
    }

    /// The kinds asked for, or some.
    pub(super) fn kinds(&mut self, kinds: Option<&[Kind]>) -> Vec<Kind> {
        match kinds {
            Some(kinds) => kinds.to_vec(),
            None => (0..1 + self.random.below(4)).map(|_| self.kind()).collect(),
        }
    }

    /// The relation of FROM: one, or two with a comma between.
    fn from(&mut self, depth: u32) -> Relation {
        let left = self.relation(depth);
        if depth == 0 || !self.chance(12) {
            return left;
        }
        let right = match self.chance(50) {
            true => self.lateral(&left.columns, depth - 1),
            false => self.table(),
        };
        Relation::one(
            format!("{}, {}", left.sql, right.sql),
            [left.columns, right.columns].concat(),
        )
    }

    fn windowed(&mut self, kinds: &[Kind], scope: &[Column], tail: &str) -> String {
        let mut values = Vec::new();
        for kind in kinds {
            let fitting = (0..6).find_map(|_| {
                let (call, of) = self.window(scope);
                (of == *kind).then_some(call)
            });
            values.push(match fitting {
                Some(call) => call,
                None => self.scalar(scope, *kind, 0),
            });
        }
        format!("SELECT {} {tail}", named(values))
    }

    fn grouped(&mut self, kinds: &[Kind], scope: &[Column], tail: &str) -> String {
        let keys: Vec<Column> = (0..self.random.below(4))
            .map(|_| self.group_key(scope))
            .collect();
        let group_by = self.group_by(&keys);
        // What may stand in the select list: the keys and calls, as if they were columns.
        let mut groups = keys.clone();
        if group_by.contains('(') && !keys.is_empty() && self.chance(30) {
            let name = format!("grouping({})::bigint", keys[0].name);
            groups.push(Column::new(name, Kind::Integer));
        }
        for kind in kinds.iter().chain(&[Kind::Integer]) {
            let call = self.aggregate_of(scope, *kind);
            groups.push(Column::new(call, *kind));
        }
        let before = std::mem::replace(&mut self.correlate, false);
        let mut values = Vec::new();
        for kind in kinds {
            let window = self.chance(8).then(|| self.window(&groups));
            values.push(match window {
                Some((call, of)) if of == *kind => call,
                _ => {
                    let depth = self.random.below(2) as u32;
                    self.scalar(&groups, *kind, depth)
                }
            });
        }
        let having = match self.random.below(5) {
            0 => format!(" HAVING {}", self.filter(&groups, 1)),
            1 => " HAVING count(*) > 1".to_owned(),
            _ => String::new(),
        };
        self.correlate = before;
        format!("SELECT {} {tail}{group_by}{having}", named(values))
    }

    fn group_key(&mut self, scope: &[Column]) -> Column {
        let kind = self.kind_in(scope);
        let name = match self.column(scope, kind) {
            Some(name) if self.chance(75) => name,
            _ => {
                let before = std::mem::take(&mut self.outer);
                let name = self.key_expression(scope, kind);
                self.outer = before;
                name
            }
        };
        Column::new(name, kind)
    }

    fn key_expression(&mut self, scope: &[Column], kind: Kind) -> String {
        match (kind, self.column(scope, kind)) {
            (Kind::Integer, Some(name)) => format!("({name} % {})", 2 + self.random.below(3)),
            (Kind::Text, Some(name)) => format!("upper({name})"),
            (_, Some(name)) => name,
            (_, None) => match self.column(scope, Kind::Integer) {
                Some(name) => {
                    format!("(CASE WHEN {name} > 3 THEN {} END)", self.literal(kind))
                }
                None => self.literal(kind),
            },
        }
    }

    fn group_by(&mut self, keys: &[Column]) -> String {
        let names: Vec<&str> = keys.iter().map(|k| k.name.as_str()).collect();
        let list = names.join(", ");
        if names.is_empty() {
            return self.pick(&["", "", " GROUP BY ()"]).to_owned();
        }
        match self.random.below(8) {
            0 => format!(" GROUP BY ROLLUP ({list})"),
            1 => format!(" GROUP BY CUBE ({list})"),
            2 => {
                let sets: Vec<String> = names.iter().map(|n| format!("({n})")).collect();
                format!(
                    " GROUP BY GROUPING SETS ({}, ({list}), ())",
                    sets.join(", ")
                )
            }
            3 if names.len() > 1 => {
                format!(" GROUP BY {}, ROLLUP ({})", names[0], names[1..].join(", "))
            }
            _ => format!(" GROUP BY {list}"),
        }
    }
}

/// Values as the columns `c0`, `c1`, ….
pub(super) fn named(values: Vec<String>) -> String {
    let values = values.iter().enumerate();
    let values: Vec<String> = values
        .map(|(i, value)| format!("{value} AS c{i}"))
        .collect();
    values.join(", ")
}

/// The columns that [`named`] gives.
pub(super) fn outputs(kinds: &[Kind]) -> Vec<Column> {
    let kinds = kinds.iter().enumerate();
    kinds
        .map(|(i, kind)| Column::new(format!("c{i}"), *kind))
        .collect()
}
