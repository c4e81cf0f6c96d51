//! Translation of joins.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::common::{DFSchema, JoinType, NullEquality};
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, ExprSchemable, Join, LogicalPlan};
use datafusion::physical_expr::PhysicalExpr;

use super::event_time::EventTime;
use super::join_time::{lineage_of_pairs, side_times};
use super::prepare::calls;
use super::translate::{Place, Properties, Translator, column_index};
use super::{NodeKind, PlanNode};
use crate::dataflow::join::{JoinSpec, LeftRows, SideRows};
use crate::dataflow::not_in::NotInSpec;
use crate::error::{Error, Result, sqlstate};
use crate::sql::temporal_join;

impl Translator<'_> {
    pub(super) fn join(&mut self, plan: &LogicalPlan, join: &Join) -> Result<usize> {
        if join.null_aware {
            return match self.not_in(join)? {
                Some(node) => Ok(node),
                None => self.recompute_node(plan),
            };
        }
        let left = self.node(&join.left, Place::Below)?;
        let right = self.node(&join.right, Place::Below)?;
        let marked = unmarked(join)?;
        let left_rows = match &marked {
            Some(join) => self.passing(join, left, right)?,
            None => LeftRows::Kept,
        };
        let join = marked.as_ref().unwrap_or(join);
        let (left_schema, right_schema) = (join.left.schema(), join.right.schema());
        let mut keys = [Vec::new(), Vec::new()];
        let mut key_types = Vec::new();
        for on in &join.on {
            let (key_type, [left_key, right_key]) = self.comparable(join, on)?;
            keys[0].push(left_key);
            keys[1].push(right_key);
            key_types.push(key_type);
        }
        let pair_schema = left_schema.join(right_schema)?;
        let condition = match &join.filter {
            Some(filter) => Some(self.expression(filter, &pair_schema)?),
            None => None,
        };
        let inputs = [
            self.nodes[left].schema.clone(),
            self.nodes[right].schema.clone(),
        ];
        let (left_columns, right_columns) = (inputs[0].fields().len(), inputs[1].fields().len());
        let fields = inputs
            .iter()
            .flat_map(|schema| schema.fields().iter().cloned());
        let pair_schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let mut detail = detail(join);
        let times = match left_rows {
            LeftRows::Kept => side_times(join, &self.nodes[left], &self.nodes[right]),
            LeftRows::Passing => {
                detail.push_str(" as of the batch that takes the left row in");
                None
            }
        };
        let spec = JoinSpec {
            join_type: join.join_type,
            detail: detail.clone(),
            keys,
            key_types,
            null_equals_null: join.null_equality == NullEquality::NullEqualsNull,
            condition,
            left_rows,
            side_rows: match left_rows {
                LeftRows::Kept => [left, right].map(|node| side_rows(&self.nodes[node])),
                LeftRows::Passing => [SideRows::Any; 2],
            },
            arranged: [None, None],
            times,
            inputs,
            pair_schema,
            schema: self.relaxed(join.schema.inner()),
        };
        let mut properties = self.join_properties(join, left, right);
        if left_rows == LeftRows::Passing {
            properties.append_only = true;
            properties
                .event_time
                .iter_mut()
                .skip(left_columns)
                .for_each(|time| *time = None);
        }
        if let Some([left_time, right_time]) = times
            && properties.event_time.len() == left_columns + right_columns
        {
            for (column, time) in [
                (left_time.column, left_time),
                (left_columns + right_time.column, right_time),
            ] {
                let lineage = &mut properties.event_time[column];
                *lineage = lineage.map(|own| lineage_of_pairs(own, time));
            }
        }
        if self.is_single_row(left) || self.is_single_row(right) {
            // Another value sends back all rows, whatever their time.
            properties.event_time = Vec::new();
        }
        let kind = NodeKind::Join(Box::new(spec));
        Ok(self.add(kind, vec![left, right], &join.schema, detail, properties))
    }

    /// A join as of the batch; 0A000 where one side or the kind of join does not allow it.
    fn passing(&self, join: &Join, left: usize, right: usize) -> Result<LeftRows> {
        let refused = |why: &str| Error::unsupported(why.to_owned());
        // An inner join of whose right side nothing is used may have become a semi join.
        let keeps_left = [JoinType::Inner, JoinType::Left, JoinType::LeftSemi];
        if !keeps_left.contains(&join.join_type) {
            return Err(refused(
                "FOR SYSTEM_TIME AS OF takes an inner or a left join",
            ));
        }
        if !self.nodes[left].append_only {
            return Err(refused(
                "FOR SYSTEM_TIME AS OF needs a left side that is append-only",
            )
            .detail("A row that is changed or deleted later would have been joined with rows that are no longer known.")
            .hint("Join a stream, or leave out FOR SYSTEM_TIME AS OF."));
        }
        if self.nodes[right].append_only {
            return Err(refused(
                "FOR SYSTEM_TIME AS OF needs a right side whose rows are replaced, such as a table",
            )
            .hint("Write s ASOF JOIN r MATCH_CONDITION (s.time >= r.time) ON s.key = r.key to find the row of a stream that was the newest at a time."));
        }
        Ok(LeftRows::Passing)
    }

    /// The keys of `left = right` over the rows of either side, and their common type; 42804 where
    /// they have none.
    fn comparable(
        &self,
        join: &Join,
        (left, right): &(Expr, Expr),
    ) -> Result<(DataType, [Arc<dyn PhysicalExpr>; 2])> {
        let (left_schema, right_schema) = (join.left.schema(), join.right.schema());
        let (left_type, right_type) = (left.get_type(left_schema)?, right.get_type(right_schema)?);
        let common = comparison_coercion(&left_type, &right_type).ok_or_else(|| {
            Error::new(
                sqlstate::DATATYPE_MISMATCH,
                format!("cannot join on {left} = {right}: their types differ"),
            )
        })?;
        let key = |key: &Expr, schema: &DFSchema| {
            self.expression(&key.clone().cast_to(&common, schema)?, schema)
        };
        let keys = [key(left, left_schema)?, key(right, right_schema)?];
        Ok((common, keys))
    }

    /// A node gives the value of a subquery.
    fn is_single_row(&self, node: usize) -> bool {
        let node = &self.nodes[node];
        match node.kind {
            NodeKind::SingleRow => true,
            NodeKind::Project { .. } | NodeKind::Filter { .. } => {
                self.is_single_row(node.inputs[0])
            }
            _ => false,
        }
    }

    /// NOT IN with NULLs; `None` when it is more than that.
    fn not_in(&mut self, join: &Join) -> Result<Option<usize>> {
        let [on] = join.on.as_slice() else {
            return Ok(None);
        };
        if join.join_type != JoinType::LeftAnti || join.filter.is_some() {
            return Ok(None);
        }
        let left = self.node(&join.left, Place::Below)?;
        let right = self.node(&join.right, Place::Below)?;
        let (key_type, keys) = self.comparable(join, on)?;
        let spec = NotInSpec {
            detail: format!("{} not in {}", on.0, on.1),
            keys,
            key_type,
            schema: self.relaxed(join.schema.inner()),
        };
        let detail = spec.detail.clone();
        let properties = self.join_properties(join, left, right);
        let kind = NodeKind::NotIn(Box::new(spec));
        Ok(Some(self.add(
            kind,
            vec![left, right],
            &join.schema,
            detail,
            properties,
        )))
    }

    fn join_properties(&self, join: &Join, left: usize, right: usize) -> Properties {
        let (left, right) = (&self.nodes[left], &self.nodes[right]);
        let left_columns = left.schema.fields().len();
        let one_sided = |side: &PlanNode, marked: bool| Properties {
            append_only: false,
            key: side.key.clone(),
            event_time: side
                .event_time
                .iter()
                .copied()
                .chain(marked.then_some(None))
                .collect::<Vec<Option<EventTime>>>(),
        };
        match join.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti => one_sided(left, false),
            JoinType::LeftMark => one_sided(left, true),
            JoinType::RightSemi | JoinType::RightAnti => one_sided(right, false),
            JoinType::RightMark => one_sided(right, true),
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
                let shift = |key: &[usize]| key.iter().map(|i| i + left_columns).collect();
                let key = match (&left.key, &right.key) {
                    (Some(l), Some(r)) => {
                        let right_is_single = covers(join, r, 1);
                        let left_is_single = covers(join, l, 0);
                        let keeps_left = matches!(join.join_type, JoinType::Inner | JoinType::Left);
                        let keeps_right =
                            matches!(join.join_type, JoinType::Inner | JoinType::Right);
                        if right_is_single && keeps_left {
                            Some(l.clone())
                        } else if left_is_single && keeps_right {
                            Some(shift(r))
                        } else if join.join_type == JoinType::Full {
                            // Two rows padded on the same side may agree in the NULLs and, with
                            // nullable keys, in the rest.
                            None
                        } else {
                            let mut key = l.clone();
                            key.extend(shift(r) as Vec<usize>);
                            Some(key)
                        }
                    }
                    _ => None,
                };
                Properties {
                    append_only: join.join_type == JoinType::Inner
                        && left.append_only
                        && right.append_only,
                    key,
                    event_time: [left.event_time.clone(), right.event_time.clone()].concat(),
                }
            }
        }
    }
}

/// What the plan knows of the rows of a side.
fn side_rows(node: &PlanNode) -> SideRows {
    match (node.append_only, &node.key) {
        (false, _) => SideRows::Any,
        (true, None) => SideRows::Repeating,
        (true, Some(_)) => SideRows::Distinct,
    }
}

/// A join without the mark of `FOR SYSTEM_TIME AS OF`; `None` for one that is not marked.
fn unmarked(join: &Join) -> Result<Option<Join>> {
    let Some(filter) = &join.filter else {
        return Ok(None);
    };
    if !calls(filter, &[temporal_join::MARK])? {
        return Ok(None);
    }
    let mut unmarked = join.clone();
    unmarked.filter = without_mark(filter.clone())?;
    Ok(Some(unmarked))
}

/// The rest of a condition that holds the mark; `None` if there is none.
pub(super) fn without_mark(condition: Expr) -> Result<Option<Expr>> {
    if !calls(&condition, &[temporal_join::MARK])? {
        return Ok(Some(condition));
    }
    let is_mark =
        |e: &Expr| matches!(e, Expr::ScalarFunction(call) if call.name() == temporal_join::MARK);
    let rest = split_conjunction_owned(condition).into_iter();
    Ok(conjunction(rest.filter(|part| !is_mark(part))))
}

/// Every key column of a side is one of the join's keys: a row of the other side then meets one
/// row of it at most.
fn covers(join: &Join, key: &[usize], side: usize) -> bool {
    let joined: BTreeSet<usize> = join
        .on
        .iter()
        .filter_map(|(left, right)| {
            if side == 0 {
                column_index(left, join.left.schema())
            } else {
                column_index(right, join.right.schema())
            }
        })
        .collect();
    key.iter().all(|column| joined.contains(column))
}

fn detail(join: &Join) -> String {
    let mut conditions: Vec<String> = join
        .on
        .iter()
        .map(|(left, right)| format!("{left} = {right}"))
        .collect();
    conditions.extend(join.filter.iter().map(Expr::to_string));
    let kind = match join.join_type {
        JoinType::Inner if conditions.is_empty() => "cross",
        JoinType::Inner => "inner",
        JoinType::Left => "left",
        JoinType::Right => "right",
        JoinType::Full => "full",
        JoinType::LeftSemi | JoinType::RightSemi => "semi",
        JoinType::LeftAnti | JoinType::RightAnti => "anti",
        JoinType::LeftMark | JoinType::RightMark => "mark",
    };
    if conditions.is_empty() {
        return kind.to_owned();
    }
    let nulls = match join.null_equality {
        NullEquality::NullEqualsNull => " (NULL equals NULL)",
        NullEquality::NullEqualsNothing => "",
    };
    format!("{kind} on {}{nulls}", conditions.join(" and "))
}
