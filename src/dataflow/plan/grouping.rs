//! Translation of GROUPING SETS, ROLLUP and CUBE: each row once for every set, then one
//! aggregation.
//!
//! ```text
//!            ┌─► (row, a, b,    id 0) ─┐
//!   input ───┼─► (row, a, NULL, id 1) ─┼─► aggregate by a, b, id ─┐
//!            │                                                    ├─► union
//!            └─► aggregate of all ─► (NULL, NULL, id 3, …) ───────┘   the empty set
//! ```
//!
//! The empty set has a row even over no rows, as an aggregation without GROUP BY has.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::logical_expr::{Aggregate, EmptyRelation, Expr, GroupingSet, LogicalPlan, lit};

use super::translate::{Place, Translator};
use crate::error::{Error, Result};

/// Names of columns that no relation can have.
const GROUP_COLUMN: &str = "group column";

impl Translator<'_> {
    pub(super) fn grouping_sets(
        &mut self,
        aggregate: &Aggregate,
        set: &GroupingSet,
    ) -> Result<usize> {
        let groups: Vec<Expr> = set.distinct_expr().into_iter().cloned().collect();
        let sets = sets_of(set);
        let ids = ids_of(&groups, &sets);
        let id_field = aggregate.schema.field(groups.len());
        let input = self.node(&aggregate.input, Place::Below)?;
        let input_schema = aggregate.input.schema();
        let expanded_schema = expanded_schema(aggregate, &groups)?;
        let mut expanded = Vec::new();
        let mut alone = Vec::new();
        for (set, id) in sets.iter().zip(ids) {
            let id = ScalarValue::UInt64(Some(id)).cast_to(id_field.data_type())?;
            if set.is_empty() {
                alone.push(self.global_set(aggregate, input, &groups, id)?);
                continue;
            }
            let mut columns: Vec<Expr> = input_schema
                .columns()
                .into_iter()
                .map(Expr::Column)
                .collect();
            for (index, group) in groups.iter().enumerate() {
                let place = input_schema.fields().len() + index;
                let null = ScalarValue::try_from(expanded_schema.field(place).data_type())?;
                columns.push(match set.contains(group) {
                    true => group.clone(),
                    false => lit(null),
                });
            }
            columns.push(lit(id));
            expanded.push(self.project(input, &columns, input_schema, &expanded_schema)?);
        }
        let mut results = Vec::new();
        if !expanded.is_empty() {
            let rows = match expanded.as_slice() {
                [one] => *one,
                _ => self.union_of(expanded, &expanded_schema),
            };
            let by: Vec<Expr> = (0..=groups.len()).map(group_column).collect();
            let plain = over(aggregate, expanded_schema, by)?;
            results.push(self.aggregate_over(rows, &plain, Place::Below)?);
        }
        results.extend(alone);
        match results.as_slice() {
            [one] => Ok(*one),
            _ => Ok(self.union_of(results, &aggregate.schema)),
        }
    }

    /// The empty set: one group of all rows, with NULL for every group column.
    fn global_set(
        &mut self,
        aggregate: &Aggregate,
        input: usize,
        groups: &[Expr],
        id: ScalarValue,
    ) -> Result<usize> {
        let calls = groups.len() + 1;
        let fields = (calls..aggregate.schema.fields().len()).map(|index| {
            let (qualifier, field) = aggregate.schema.qualified_field(index);
            (qualifier.cloned(), field.clone())
        });
        let schema =
            DFSchema::new_with_metadata(fields.collect(), aggregate.schema.metadata().clone())?;
        let mut columns = Vec::new();
        for index in 0..groups.len() {
            columns.push(lit(ScalarValue::try_from(
                aggregate.schema.field(index).data_type(),
            )?));
        }
        columns.push(lit(id));
        columns.extend(schema.columns().into_iter().map(Expr::Column));
        let node = if aggregate.aggr_expr.is_empty() {
            let one = LogicalPlan::EmptyRelation(EmptyRelation {
                produce_one_row: true,
                schema: Arc::new(DFSchema::empty()),
            });
            self.node(&one, Place::Below)?
        } else {
            let global = Aggregate::try_new_with_schema(
                aggregate.input.clone(),
                Vec::new(),
                aggregate.aggr_expr.clone(),
                Arc::new(schema.clone()),
            )?;
            self.aggregate_over(input, &global, Place::Below)?
        };
        self.project(node, &columns, &schema, &aggregate.schema)
    }
}

fn group_column(index: usize) -> Expr {
    Expr::Column(Column::new_unqualified(format!("{GROUP_COLUMN} {index}")))
}

/// The input's columns, the group columns, the set's id.
fn expanded_schema(aggregate: &Aggregate, groups: &[Expr]) -> Result<DFSchema> {
    let input = aggregate.input.schema();
    let mut fields: Vec<_> = input
        .iter()
        .map(|(qualifier, field)| (qualifier.cloned(), field.clone()))
        .collect();
    for index in 0..=groups.len() {
        let like: &Field = aggregate.schema.field(index);
        let data_type: DataType = like.data_type().clone();
        let name = format!("{GROUP_COLUMN} {index}");
        fields.push((None, Arc::new(Field::new(name, data_type, true))));
    }
    Ok(DFSchema::new_with_metadata(
        fields,
        input.metadata().clone(),
    )?)
}

/// The aggregation over rows of another schema, which holds the columns of its input.
fn over(aggregate: &Aggregate, schema: DFSchema, by: Vec<Expr>) -> Result<Aggregate> {
    let input = LogicalPlan::EmptyRelation(EmptyRelation {
        produce_one_row: false,
        schema: Arc::new(schema),
    });
    Ok(Aggregate::try_new_with_schema(
        Arc::new(input),
        by,
        aggregate.aggr_expr.clone(),
        aggregate.schema.clone(),
    )?)
}

/// The sets, each a list of expressions.
fn sets_of(set: &GroupingSet) -> Vec<Vec<Expr>> {
    match set {
        GroupingSet::GroupingSets(sets) => sets.clone(),
        GroupingSet::Rollup(expressions) => (0..=expressions.len())
            .rev()
            .map(|length| expressions[..length].to_vec())
            .collect(),
        GroupingSet::Cube(expressions) => (0..1_usize << expressions.len())
            .map(|mask| {
                let chosen = expressions.iter().enumerate();
                chosen
                    .filter(|(index, _)| mask & (1 << index) == 0)
                    .map(|(_, expression)| expression.clone())
                    .collect()
            })
            .collect(),
    }
}

/// DataFusion's number of each set: a bit per group column that is left out, the last column
/// lowest, and above them how often the same set came before.
fn ids_of(groups: &[Expr], sets: &[Vec<Expr>]) -> Vec<u64> {
    let mut ids: Vec<u64> = Vec::with_capacity(sets.len());
    for set in sets {
        let mask = groups.iter().fold(0, |mask, group| {
            (mask << 1) | u64::from(!set.contains(group))
        });
        let low = (1_u64 << groups.len()) - 1;
        let before = ids.iter().filter(|id| **id & low == mask).count() as u64;
        ids.push(mask | before << groups.len());
    }
    ids
}

/// A grouping set stands alone in GROUP BY once a plan is analyzed.
pub(super) fn grouping_set(aggregate: &Aggregate) -> Result<Option<&GroupingSet>> {
    match aggregate.group_expr.as_slice() {
        [Expr::GroupingSet(set)] => Ok(Some(set)),
        groups if groups.iter().any(|e| matches!(e, Expr::GroupingSet(_))) => {
            Err(Error::internal("a grouping set beside other groups"))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::col;

    #[test]
    fn ids_tell_left_out_columns_and_repeated_sets() {
        let (a, b) = (col("a"), col("b"));
        let groups = [a.clone(), b.clone()];
        let cube = sets_of(&GroupingSet::Cube(groups.to_vec()));
        assert_eq!(ids_of(&groups, &cube), [0b00, 0b10, 0b01, 0b11]);
        let rollup = sets_of(&GroupingSet::Rollup(groups.to_vec()));
        assert_eq!(ids_of(&groups, &rollup), [0b00, 0b01, 0b11]);
        let twice = vec![vec![a.clone()], vec![a, b], vec![col("a")]];
        assert_eq!(ids_of(&groups, &twice), [0b001, 0b000, 0b101]);
    }
}
