//! GROUP BY as the engine takes it.
//!
//! ```text
//! GROUP BY (), HAVING …    →  GROUP BY GROUPING SETS (())
//! GROUP BY ROLLUP (a, a)  →  GROUP BY GROUPING SETS ((a), (a), ())
//! ```
//! The engine refuses a column that one set names twice; PostgreSQL groups by it once, and keeps
//! the sets that become equal.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use datafusion::sql::sqlparser::ast::{Expr, GroupByExpr, Select, SelectItem};

use crate::sql::data_types::last_part;
use crate::sql::functions;

/// More sets than this are left to the engine, which has a limit of its own.
const SETS_MAX: usize = 4096;

type Sets = Vec<Vec<Expr>>;

/// Rewrites a select's groups.
pub(super) fn rewrite(select: &mut Select) {
    let GroupByExpr::Expressions(groups, _) = &mut select.group_by else {
        return;
    };
    no_groups(groups);
    // HAVING without an aggregate in sight is a condition on one group of all rows.
    if groups.is_empty() && select.having.is_some() {
        let calls = |e: &Expr| super::sets::finds_outside_queries(e, may_aggregate);
        let is_plain = select.having.iter().all(|having| !calls(having))
            && select.projection.iter().all(|item| match item {
                SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => !calls(e),
                _ => false,
            });
        if is_plain {
            groups.push(Expr::GroupingSets(vec![vec![]]));
        }
    }
    if let Some(sets) = without_repeats(groups) {
        *groups = vec![Expr::GroupingSets(sets)];
    }
}

/// A call of an aggregate, or of a function that is not built in, which may be one.
fn may_aggregate(expression: &Expr) -> bool {
    static SCALAR: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
        let engine = datafusion::functions::all_default_functions();
        let all = engine.into_iter().chain(functions::all());
        let names = all.flat_map(|f| [&[f.name().to_owned()][..], f.aliases()].concat());
        names.collect()
    });
    match expression {
        Expr::Function(function) => !SCALAR.contains(&last_part(&function.name)),
        _ => false,
    }
}

/// `GROUP BY ()` is one group of all rows; beside other groups it says nothing.
fn no_groups(groups: &mut Vec<Expr>) {
    let is_empty = |group: &Expr| matches!(group, Expr::Tuple(members) if members.is_empty());
    if groups.iter().any(is_empty) {
        groups.retain(|group| !is_empty(group));
        if groups.is_empty() {
            groups.push(Expr::GroupingSets(vec![vec![]]));
        }
    }
}

/// All sets written out, if one of them names something twice.
fn without_repeats(groups: &[Expr]) -> Option<Sets> {
    let is_set = |e: &Expr| matches!(e, Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_));
    if !groups.iter().any(is_set) {
        return None;
    }
    let mut all: Sets = vec![Vec::new()];
    for group in groups {
        let sets = sets_of(group)?;
        if all.len() * sets.len() > SETS_MAX {
            return None;
        }
        let joined = all.iter().flat_map(|one| {
            sets.iter()
                .map(move |other| [&one[..], &other[..]].concat())
        });
        all = joined.collect();
    }
    let mut repeats = false;
    for set in &mut all {
        let mut once: Vec<Expr> = Vec::with_capacity(set.len());
        for member in set.drain(..) {
            match once.contains(&member) {
                true => repeats = true,
                false => once.push(member),
            }
        }
        *set = once;
    }
    repeats.then_some(all)
}

fn sets_of(group: &Expr) -> Option<Sets> {
    Some(match group {
        Expr::Rollup(parts) => (0..=parts.len())
            .rev()
            .map(|count| parts[..count].concat())
            .collect(),
        Expr::Cube(parts) if parts.len() < 12 => (0..1_usize << parts.len())
            .rev()
            .map(|chosen| {
                let parts = parts.iter().enumerate();
                let chosen = parts.filter(|(place, _)| chosen >> place & 1 == 1);
                chosen.flat_map(|(_, part)| part.iter().cloned()).collect()
            })
            .collect(),
        Expr::Cube(_) => return None,
        Expr::GroupingSets(sets) => sets.clone(),
        Expr::Tuple(members) => vec![members.clone()],
        other => vec![vec![other.clone()]],
    })
}
