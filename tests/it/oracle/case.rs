//! A case: what is done to a database, in steps, so that a failing one can be cut down.

use super::changes::{change, many_rows};
use super::grammar::{Column, Grammar};
use crate::random::Random;

/// A query that is kept as a view, or only asked.
#[derive(Debug, Clone)]
pub struct View {
    pub name: String,
    pub select: String,
    /// PostgreSQL knows the query.
    pub standard: bool,
}

/// One thing that is done; after each, everything is compared.
#[derive(Debug, Clone)]
pub enum Step {
    Create(View),
    /// Statements, so many of them in a transaction and a batch of its own.
    Change {
        statements: Vec<String>,
        cut: usize,
    },
    /// Another process with other threads and memory; after a kill or a clean end.
    Restart {
        shards: u32,
        memory: &'static str,
        kill: bool,
    },
    /// Queries that no view keeps.
    Ask(Vec<View>),
}

#[derive(Debug, Clone)]
pub struct Case {
    pub steps: Vec<Step>,
}

/// What a case is made of.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub views: usize,
    pub changes: usize,
    pub asked: usize,
    pub restarts: bool,
    pub standard_only: bool,
    /// A table that has thousands of rows.
    pub large: Option<&'static str>,
}

/// The cuts of invariant 10: a statement at a time, a few, all.
const CUTS: [usize; 4] = [1, 3, 7, usize::MAX];

impl Case {
    pub fn new(seed: u64, shape: Shape) -> Self {
        let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let mut made = Vec::new();
        let mut steps = Vec::new();
        for place in 0..shape.changes {
            let due = match place {
                0 => shape.views / 2,
                1 | 3 => shape.views / 4,
                _ => 0,
            };
            for _ in 0..due {
                let (view, columns) = view(&mut random, &made, shape);
                made.push((view.clone(), columns));
                steps.push(Step::Create(view));
            }
            steps.push(changes(&mut random, place, shape.large));
            if shape.restarts && (place == 2 || place == 4) {
                steps.push(Step::Restart {
                    shards: *random.pick(&[1, 2, 8]),
                    memory: random.pick::<&str>(&["16MiB", "1GiB"]),
                    kill: random.chance(50),
                });
            }
        }
        let asked: Vec<View> = (0..shape.asked)
            .map(|_| view(&mut random, &made, shape).0)
            .collect();
        if !asked.is_empty() {
            steps.push(Step::Ask(asked));
        }
        Self { steps }
    }

    /// The case as SQL, for whoever reads that it failed.
    pub fn script(&self) -> String {
        let mut script = String::new();
        for step in &self.steps {
            match step {
                Step::Create(view) => script.push_str(&format!(
                    "CREATE MATERIALIZED VIEW {} AS {};\n",
                    view.name, view.select
                )),
                Step::Change { statements, cut } => {
                    for group in statements.chunks(*cut) {
                        script.push_str(&format!("BEGIN; {}; COMMIT; FLUSH;\n", group.join("; ")));
                    }
                }
                Step::Restart {
                    shards,
                    memory,
                    kill,
                } => script.push_str(&format!(
                    "-- restart with {shards} threads, {memory}{}\n",
                    if *kill { ", after a kill" } else { "" }
                )),
                Step::Ask(views) => {
                    for view in views {
                        script.push_str(&format!("{};\n", view.select));
                    }
                }
            }
        }
        script
    }
}

fn view(random: &mut Random, made: &[(View, Vec<Column>)], shape: Shape) -> (View, Vec<Column>) {
    let mut grammar = Grammar::new(random, shape.standard_only, shape.large);
    for (view, columns) in made {
        // What is built on a view that PostgreSQL does not know is not known to it either.
        if view.standard {
            grammar.add_view(&view.name, columns);
        }
    }
    let query = grammar.query();
    let view = View {
        name: format!("v{}", made.len()),
        select: query.sql,
        standard: query.standard,
    };
    (view, query.columns)
}

fn changes(random: &mut Random, place: usize, large: Option<&str>) -> Step {
    let count = if place == 0 { 14 } else { 1 + random.below(6) };
    let mut statements: Vec<String> = (0..count).map(|_| change(random)).collect();
    if let Some(table) = large
        && random.chance(60)
    {
        let many = many_rows(random, table);
        statements.insert(random.below(count) as usize, many);
    }
    Step::Change {
        statements,
        cut: *random.pick(&CUTS),
    }
}

/// Batches of thousands of rows under views that grow with their groups only.
pub fn many(seed: u64) -> Case {
    const VIEWS: [&str; 8] = [
        "SELECT k, count(*) AS c0, sum(v)::bigint AS c1, min(t) AS c2, max(v) AS c3 FROM s GROUP BY k",
        "SELECT v, t, count(*) AS c0, count(DISTINCT k) AS c1 FROM s GROUP BY v, t",
        "SELECT DISTINCT v, t FROM s",
        "SELECT k, t, count(*) AS c0, avg(v)::double precision AS c1 FROM s GROUP BY ROLLUP (k, t)",
        "SELECT k, v, t FROM s ORDER BY v DESC NULLS LAST, k, t LIMIT 20",
        "SELECT k, v, n FROM (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v, t) AS n FROM s) AS q WHERE n <= 2",
        "SELECT x.k, y.w, count(*) AS c0 FROM s AS x LEFT JOIN b AS y ON x.k = y.id GROUP BY x.k, y.w",
        "SELECT c0, count(*) AS c1 FROM (SELECT k, count(*) AS c0 FROM s GROUP BY k) AS q GROUP BY c0",
    ];
    let mut random = Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut steps = Vec::new();
    for (number, select) in VIEWS.iter().enumerate() {
        steps.push(Step::Create(View {
            name: format!("v{number}"),
            select: (*select).to_owned(),
            standard: true,
        }));
        if number == 4 {
            steps.push(changes(&mut random, 0, None));
        }
        if number >= 4 {
            let mut statements = vec![many_rows(&mut random, "s")];
            statements.push(change(&mut random));
            steps.push(Step::Change {
                statements,
                cut: *random.pick(&[1, 2]),
            });
        }
        if number == 5 || number == 6 {
            steps.push(Step::Restart {
                shards: *random.pick(&[1, 2, 8]),
                memory: random.pick::<&str>(&["16MiB", "1GiB"]),
                kill: number == 5,
            });
        }
    }
    Case { steps }
}
