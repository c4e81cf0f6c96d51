//! Sides of a view's joins that keep the same input under the same key: kept once.
//!
//! ```text
//!   orders ──► join_0 (left)  owns   "…/join_0/left": (customer, row) -> weight
//!      └─────► join_1 (right) reads  what join_0 keeps
//! ```
//!
//! The first join in the order of the nodes owns the rows, since it is also the first to finish.
//! A side takes part if nothing of it depends on the join that it is in: its rows never go out by
//! themselves, no watermark frees them, and no totals by key are kept of them. Absent: sharing
//! between views, which come and go, and are filled, each by itself.

use std::sync::Arc;

use datafusion::physical_expr::PhysicalExpr;

use super::{NodeKind, PlanNode};
use crate::dataflow::join::{Arranged, JoinSpec};

/// A side of a join: node and port.
type Side = (usize, usize);

/// Makes equal sides share their rows.
pub(super) fn share_sides(nodes: &mut [PlanNode]) {
    let mut groups: Vec<Vec<Side>> = Vec::new();
    for (node, plan) in nodes.iter().enumerate() {
        let NodeKind::Join(spec) = &plan.kind else {
            continue;
        };
        for port in (0..2).filter(|port| spec.can_share(*port)) {
            let like = groups
                .iter()
                .position(|group| is_same(nodes, group[0], (node, port)));
            match like {
                Some(group) => groups[group].push((node, port)),
                None => groups.push(vec![(node, port)]),
            }
        }
    }
    for sides in groups.into_iter().filter(|sides| sides.len() > 1) {
        let owner = sides[0];
        let name = format!("{}/{}", nodes[owner.0].name, JoinSpec::SIDES[owner.1]);
        for side in sides {
            if let NodeKind::Join(spec) = &mut nodes[side.0].kind {
                spec.arranged[side.1] = Some(Arranged {
                    name: name.clone(),
                    is_owner: side == owner,
                });
            }
        }
    }
}

/// Both keep the same rows under the same keys.
fn is_same(nodes: &[PlanNode], one: Side, other: Side) -> bool {
    let of = |side: Side| match &nodes[side.0].kind {
        NodeKind::Join(spec) => Some((nodes[side.0].inputs[side.1], spec)),
        _ => None,
    };
    let (Some((input, spec)), Some((other_input, other_spec))) = (of(one), of(other)) else {
        return false;
    };
    input == other_input
        && spec.null_equals_null == other_spec.null_equals_null
        && spec.key_types == other_spec.key_types
        && spec.side_rows[one.1] == other_spec.side_rows[other.1]
        && are_equal(&spec.keys[one.1], &other_spec.keys[other.1])
}

fn are_equal(one: &[Arc<dyn PhysicalExpr>], other: &[Arc<dyn PhysicalExpr>]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(a, b)| a.eq(b))
}
