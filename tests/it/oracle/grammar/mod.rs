//! Queries from a seed: a grammar in which every form can hold every other.
//!
//! ```text
//! query     ->  select | set operation | WITH … query | top of a query        queries.rs
//! select    ->  plain | grouped | windows, over a relation                    selects.rs
//! relation  ->  table | view | query | join | function of rows | time window  relations.rs
//! scalar, condition  ->  over the columns in scope, subqueries too            scalars.rs, conditions.rs
//! ```
//!
//! Every query has one right answer: orders that show are total, running sums of doubles aside,
//! which compare by their first digits. Nothing fails on a value: divisors are not zero, and
//! numbers stay small.

mod aggregates;
mod conditions;
mod queries;
mod relations;
mod scalars;
mod selects;
mod subqueries;
mod times;
mod windows;

use crate::random::Random;

/// Tables and streams that the grammar's queries read. What `c` holds is never changed, so that a
/// row that met it as it was then meets it as it is now.
pub const DEFINITIONS: &str = "
CREATE TABLE a (id BIGINT PRIMARY KEY, k BIGINT, v BIGINT, t TEXT);
CREATE TABLE b (id BIGINT PRIMARY KEY, k BIGINT, w NUMERIC(10,2), t TEXT);
CREATE STREAM s (k BIGINT, v BIGINT, t TEXT);
CREATE TABLE o (id BIGINT PRIMARY KEY, k BIGINT, d DOUBLE PRECISION, f BOOLEAN, y DATE, z TIMESTAMP, l BIGINT[]);
CREATE STREAM e (k BIGINT, z TIMESTAMP, v BIGINT);
CREATE TABLE c (id BIGINT PRIMARY KEY, r NUMERIC(10,2));
INSERT INTO c VALUES (0, 1.5), (1, 0.25), (2, NULL), (3, 7), (5, 2);";

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Integer,
    Numeric,
    Double,
    Text,
    Boolean,
    Date,
    Timestamp,
    /// Of those that are equal there is one text.
    Interval,
    /// Arrays: they are ordered, compared and counted, and nothing else.
    Array,
}

/// Kinds that an expression is made for.
const KINDS: [Kind; 11] = [
    Kind::Integer,
    Kind::Integer,
    Kind::Integer,
    Kind::Text,
    Kind::Text,
    Kind::Numeric,
    Kind::Boolean,
    Kind::Date,
    Kind::Double,
    Kind::Interval,
    Kind::Timestamp,
];

/// A column as an expression names it.
#[derive(Debug, Clone)]
pub struct Column {
    pub name: String,
    pub kind: Kind,
}

impl Column {
    fn new(name: impl Into<String>, kind: Kind) -> Self {
        Self {
            name: name.into(),
            kind,
        }
    }
}

/// A query with the columns it gives.
#[derive(Debug, Clone)]
pub struct Query {
    pub sql: String,
    pub columns: Vec<Column>,
    /// PostgreSQL knows it.
    pub standard: bool,
}

/// A relation of FROM, with the columns that it adds to the scope.
#[derive(Debug, Clone)]
struct Relation {
    sql: String,
    columns: Vec<Column>,
    is_join: bool,
}

impl Relation {
    fn one(sql: String, columns: Vec<Column>) -> Self {
        Self {
            sql,
            columns,
            is_join: false,
        }
    }

    fn join(sql: String, columns: Vec<Column>) -> Self {
        Self {
            sql,
            columns,
            is_join: true,
        }
    }

    /// As it stands on the right of another join.
    fn bracketed(&self) -> String {
        match self.is_join {
            true => format!("({})", self.sql),
            false => self.sql.clone(),
        }
    }
}

/// Makes queries. What one has made stays in the count of names, so that no alias comes twice.
pub struct Grammar<'r> {
    random: &'r mut Random,
    names: usize,
    standard_only: bool,
    standard: bool,
    /// A table of thousands of rows: a query names it once, so that answers stay small.
    large: Option<&'static str>,
    large_taken: bool,
    /// Views and common table expressions that FROM may name.
    named: Vec<(String, Vec<Column>)>,
    /// Columns of the queries around this one.
    outer: Vec<Column>,
    /// Subqueries may look at the rows around them; not in ON, where it is refused.
    correlate: bool,
}

impl<'r> Grammar<'r> {
    pub fn new(random: &'r mut Random, standard_only: bool, large: Option<&'static str>) -> Self {
        Self {
            random,
            names: 0,
            standard_only,
            standard: true,
            large,
            large_taken: false,
            named: Vec::new(),
            outer: Vec::new(),
            correlate: true,
        }
    }

    /// A view that FROM may name.
    pub fn add_view(&mut self, name: &str, columns: &[Column]) {
        let columns = columns.iter().enumerate();
        let columns = columns.map(|(i, c)| Column::new(format!("c{i}"), c.kind));
        self.named.push((name.to_owned(), columns.collect()));
    }

    /// A query whose columns are `c0`, `c1`, ….
    pub fn query(&mut self) -> Query {
        self.standard = true;
        self.large_taken = false;
        let depth = 1 + self.random.below(3) as u32;
        let (sql, columns) = self.query_of(None, depth);
        Query {
            sql,
            columns,
            standard: self.standard,
        }
    }

    fn alias(&mut self) -> String {
        self.names += 1;
        format!("r{}", self.names)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random.chance(percent)
    }

    fn pick<'a>(&mut self, items: &[&'a str]) -> &'a str {
        items[self.random.below(items.len() as u64) as usize]
    }

    fn kind(&mut self) -> Kind {
        *self.random.pick(&KINDS)
    }

    /// A kind that the scope has, most of the time.
    fn kind_in(&mut self, scope: &[Column]) -> Kind {
        if scope.is_empty() || self.chance(15) {
            return self.kind();
        }
        match self.random.pick(scope).kind {
            Kind::Array => self.kind(),
            kind => kind,
        }
    }

    /// A column of the kind, if there is one.
    fn column(&mut self, scope: &[Column], kind: Kind) -> Option<String> {
        let fitting: Vec<&Column> = scope.iter().filter(|c| c.kind == kind).collect();
        if fitting.is_empty() {
            return None;
        }
        Some(self.random.pick(&fitting).name.clone())
    }
}

/// Names of all columns, so that an order by them is total up to equal rows.
fn all_names(scope: &[Column]) -> Vec<String> {
    scope.iter().map(|c| c.name.clone()).collect()
}
