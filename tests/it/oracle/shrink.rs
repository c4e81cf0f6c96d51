//! A failing case, cut down: fewer views, fewer steps, fewer statements, while it still fails.

use std::time::{Duration, Instant};

use super::bench::{Bench, Failure};
use super::case::{Case, Step};

/// How long a failing case is cut.
const TIME_MAX: Duration = Duration::from_secs(90);

/// The smallest case found that fails in the same query, and how it fails.
pub async fn shrink(bench: &mut Bench, case: Case, failure: Failure) -> (Case, Failure) {
    let until = Instant::now() + TIME_MAX;
    let (mut best, mut why) = (case, failure);
    let mut part = pieces(&best).div_ceil(2);
    while part > 0 {
        let mut first = 0;
        while first < pieces(&best) {
            if Instant::now() > until {
                return (best, why);
            }
            let smaller = without(&best, first, part);
            let failures = bench.run(&smaller).await;
            match failures.into_iter().find(|other| same(&why, other)) {
                Some(other) => (best, why) = (smaller, other),
                None => first += part,
            }
        }
        part /= 2;
    }
    (best, why)
}

fn same(one: &Failure, other: &Failure) -> bool {
    match (&one.view, &other.view) {
        (Some(one), Some(other)) => one.select == other.select,
        (None, None) => one.text.lines().nth(1) == other.text.lines().nth(1),
        _ => false,
    }
}

/// Steps and statements, each of which may be left out.
fn pieces(case: &Case) -> usize {
    case.steps.iter().map(pieces_of).sum()
}

fn pieces_of(step: &Step) -> usize {
    match step {
        Step::Change { statements, .. } => statements.len(),
        Step::Ask(views) => views.len(),
        Step::Create(_) | Step::Restart { .. } => 1,
    }
}

/// The case without `count` pieces from `first` on.
fn without(case: &Case, first: usize, count: usize) -> Case {
    let gone = first..first + count;
    let mut place = 0;
    let mut keep = || {
        place += 1;
        !gone.contains(&(place - 1))
    };
    let mut steps = Vec::new();
    for step in &case.steps {
        match step {
            Step::Change { statements, cut } => {
                let mut statements = statements.clone();
                statements.retain(|_| keep());
                if !statements.is_empty() {
                    steps.push(Step::Change {
                        statements,
                        cut: *cut,
                    });
                }
            }
            Step::Ask(views) => {
                let mut views = views.clone();
                views.retain(|_| keep());
                if !views.is_empty() {
                    steps.push(Step::Ask(views));
                }
            }
            step => {
                if keep() {
                    steps.push(step.clone());
                }
            }
        }
    }
    Case { steps }
}

#[test]
fn pieces_are_left_out_one_by_one() {
    let case = Case {
        steps: vec![
            Step::Change {
                statements: vec!["x".to_owned(), "y".to_owned()],
                cut: 1,
            },
            Step::Restart {
                shards: 1,
                memory: "1GiB",
                kill: true,
            },
        ],
    };
    assert_eq!(pieces(&case), 3);
    assert_eq!(pieces(&without(&case, 0, 2)), 1);
    assert_eq!(without(&case, 2, 1).steps.len(), 1);
    assert!(without(&case, 0, 1).script().contains('y'));
}
