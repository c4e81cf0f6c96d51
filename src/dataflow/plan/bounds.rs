//! Operators whose state grows for as long as an append-only input does.
//!
//! State over inserts only shrinks when a watermark frees it. What has no more entries than the
//! query says (one group, the first n rows) does not grow either; what reads rows that are deleted
//! again keeps as much as these are. Pure: a plan in, facts out; words are the session's.

use std::collections::BTreeSet;

use super::{NodeKind, PlanNode, ViewPlan};
use crate::dataflow::join::LeftRows;

/// An operator that keeps all that ever came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnboundedState {
    /// Its stable name.
    pub operator: String,
    /// What would bound it.
    pub bound: Bound,
    /// The append-only relations that it reads.
    pub relations: Vec<String>,
}

/// What lets a watermark free an operator's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// a window of event time among the groups
    WindowInGroups,
    /// a condition that bounds how far the event times of the two sides lie apart
    TimesOfBothSides,
    /// rows joined as they come, with the other side as it is then
    OtherSideAsOfTheBatch,
    /// event time among the groups or first in the order
    TimeInGroupsOrOrder,
    /// nothing: the operator keeps its input
    Nothing,
}

impl ViewPlan {
    /// The operators that keep all that ever came, result first.
    pub fn unbounded_states(&self) -> Vec<UnboundedState> {
        let nodes = self.nodes.iter().rev();
        nodes
            .filter_map(|node| self.unbounded_state(node))
            .collect()
    }

    fn unbounded_state(&self, node: &PlanNode) -> Option<UnboundedState> {
        let growing = |port: usize| {
            let input = node.inputs.get(port).copied();
            input.filter(|input| self.nodes[*input].append_only)
        };
        let kept: Vec<usize> = kept_ports(node).into_iter().filter_map(growing).collect();
        let mut bound = bound_of(&node.kind)?;
        if bound == Bound::TimesOfBothSides && growing(0).is_some() && growing(1).is_none() {
            bound = Bound::OtherSideAsOfTheBatch;
        }
        let mut relations = BTreeSet::new();
        for input in kept {
            self.relations_below(input, &mut relations);
        }
        (!relations.is_empty()).then(|| UnboundedState {
            operator: node.name.clone(),
            bound,
            relations: relations.into_iter().collect(),
        })
    }

    fn relations_below(&self, node: usize, found: &mut BTreeSet<String>) {
        if let NodeKind::Input { relation, .. } = &self.nodes[node].kind {
            found.insert(relation.clone());
        }
        for input in &self.nodes[node].inputs {
            self.relations_below(*input, found);
        }
    }
}

/// The inputs of which an operator keeps what no watermark frees.
fn kept_ports(node: &PlanNode) -> Vec<usize> {
    let all = || (0..node.inputs.len()).collect();
    match &node.kind {
        NodeKind::Aggregate(request) if request.event_time.is_some() => Vec::new(),
        // One group; its arguments are kept only where an aggregate needs them all.
        NodeKind::Aggregate(request) if request.group.is_empty() => Vec::new(),
        NodeKind::Join(spec) if spec.left_rows == LeftRows::Passing => vec![1],
        NodeKind::Join(spec) => (0..2)
            .filter(|port| {
                let time = spec.times.as_ref().map(|times| times[*port]);
                time.is_none_or(|time| time.free_after.is_none())
            })
            .collect(),
        NodeKind::Session(spec) if is_freed(&spec.rows) => Vec::new(),
        NodeKind::Window(spec) if is_freed(&spec.rows) => Vec::new(),
        NodeKind::Top(spec) if is_freed(&spec.rows) => Vec::new(),
        // The first rows of one group.
        NodeKind::Top(spec) if spec.rows.group.is_empty() && spec.fetch.is_some() => Vec::new(),
        _ => all(),
    }
}

fn is_freed(rows: &crate::dataflow::ordered::OrderedSpec) -> bool {
    rows.event_time.is_some() || rows.order_closes_after.is_some()
}

/// `None`: the operator keeps no state, or none that grows with its input.
fn bound_of(kind: &NodeKind) -> Option<Bound> {
    match kind {
        NodeKind::Aggregate(_) => Some(Bound::WindowInGroups),
        NodeKind::Join(_) => Some(Bound::TimesOfBothSides),
        NodeKind::Session(_) | NodeKind::Window(_) | NodeKind::Top(_) => {
            Some(Bound::TimeInGroupsOrOrder)
        }
        NodeKind::Distinct
        | NodeKind::NotIn(_)
        | NodeKind::SetOperation(_)
        | NodeKind::Recompute(_) => Some(Bound::Nothing),
        NodeKind::Input { .. }
        | NodeKind::Filter { .. }
        | NodeKind::Project { .. }
        | NodeKind::Unnest { .. }
        | NodeKind::Union
        | NodeKind::SingleRow
        | NodeKind::Temporal(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::definition::EmitMode;
    use crate::dataflow::plan::InputProperties;
    use crate::dataflow::testing::{Harness, kvs_schema};

    fn stream(watermark_column: Option<usize>) -> InputProperties {
        InputProperties {
            schema: kvs_schema(),
            append_only: true,
            watermark_column,
            primary_key: None,
            event_time: Vec::new(),
        }
    }

    fn found(sql: &str) -> Vec<(Bound, String)> {
        let mut harness = Harness::new();
        harness.relation("s", stream(None));
        harness.relation("w", stream(Some(1)));
        harness.relation("x", stream(Some(1)));
        harness.table("t");
        let plan = harness.plan("v", sql, EmitMode::OnUpdate).unwrap();
        let states = plan.unbounded_states().into_iter();
        states.map(|s| (s.bound, s.relations.join(" "))).collect()
    }

    #[test]
    fn operators_that_keep_all_that_ever_came_are_found() {
        for (sql, bound, relations) in [
            (
                "SELECT k, count(*) FROM s GROUP BY k",
                Bound::WindowInGroups,
                "s",
            ),
            (
                "SELECT k, count(*) FROM w GROUP BY k",
                Bound::WindowInGroups,
                "w",
            ),
            ("SELECT DISTINCT k FROM s", Bound::Nothing, "s"),
            (
                "SELECT s.k FROM s JOIN w ON s.k = w.k",
                Bound::TimesOfBothSides,
                "s w",
            ),
            (
                "SELECT s.k FROM s JOIN t ON s.k = t.k",
                Bound::OtherSideAsOfTheBatch,
                "s",
            ),
            (
                "SELECT k, lag(v) OVER (PARTITION BY k ORDER BY s) FROM s",
                Bound::TimeInGroupsOrOrder,
                "s",
            ),
            (
                "SELECT k FROM s EXCEPT SELECT k FROM t",
                Bound::Nothing,
                "s",
            ),
        ] {
            assert_eq!(found(sql), [(bound, relations.to_owned())], "{sql}");
        }
    }

    #[test]
    fn bounded_state_is_told_of_by_nobody() {
        for sql in [
            "SELECT k, v FROM s WHERE v > 3",
            "SELECT count(*) FROM s",
            "SELECT v, count(*) FROM w GROUP BY v",
            "SELECT w.k FROM w JOIN x ON w.k = x.k AND w.v BETWEEN x.v - 5 AND x.v + 5",
            "SELECT k, v FROM s ORDER BY v LIMIT 3",
            "SELECT k, count(*) FROM t GROUP BY k",
            "SELECT t.k FROM t JOIN t u ON t.k = u.k",
        ] {
            assert_eq!(found(sql), [], "{sql}");
        }
    }
}
