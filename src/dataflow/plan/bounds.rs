//! Operators whose state grows for as long as an append-only input does.
//!
//! State over inserts only shrinks when a watermark frees it. What has no more entries than the
//! query says (one group, the first n rows) does not grow either; what reads rows that are deleted
//! again keeps as much as these are. Pure: a plan in, facts out; words are the session's.

use std::collections::BTreeSet;

use super::{NodeKind, PlanNode, ViewPlan};

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
        let bound = bound_of(&node.kind)?;
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
