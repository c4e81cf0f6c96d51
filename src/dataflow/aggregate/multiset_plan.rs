//! Calls that no column can hold: which rows are kept for them, and what is derived from these.
//!
//! Absent: how they are kept ([`super::multiset`]), and calls that columns hold ([`super::plan`]).

use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::row::RowConverter;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

use super::columns::ColumnKind;
use super::plan::{
    AggregatePlan, ArgumentForm, CountSource, Mask, OutputKind, extreme_order, index_of,
    row_converter,
};
use super::{AggregateCall, AggregateRequest};
use crate::error::Result;
use crate::state::TableId;

/// What is derived from a multiset.
#[derive(Debug)]
pub enum MultisetKind {
    /// Number of different rows, into an integer column.
    Distinct,
    /// The same of rows that never go away, for several calls over them that differ by their filters: in the
    /// place of a weight stands the set of the calls that have seen the row, so that it is read once for all
    /// of them and written only when another call sees it.
    Seen,
    /// First row, into a bytes column.
    First,
    /// DataFusion's accumulator over all rows, its result into a bytes column.
    Recompute {
        /// The aggregate.
        expression: Arc<AggregateFunctionExpr>,
        /// Order columns before the arguments in a row.
        order_columns: usize,
        /// Each row once, however often it is there.
        distinct: bool,
        /// Encodes the result.
        result: RowConverter,
    },
}

/// A call that is derived from a multiset.
#[derive(Debug, Clone, Copy)]
pub struct MultisetCall {
    /// Which input rows it takes.
    pub mask: usize,
    /// Column of the group that holds what is derived.
    pub column: usize,
}

/// Calls of one multiset of kind [`MultisetKind::Seen`]: its weights are signed.
const SEEN_CALLS_MAX: usize = 63;

/// (group, row) → weight.
#[derive(Debug)]
pub struct MultisetPlan {
    /// What is derived.
    pub kind: MultisetKind,
    /// Its state table.
    pub table: TableId,
    /// Expressions of a row: order first, then arguments.
    pub expressions: Vec<Arc<dyn PhysicalExpr>>,
    /// Encodes rows.
    pub converter: RowConverter,
    /// The calls: one, but of kind [`MultisetKind::Seen`].
    pub calls: Vec<MultisetCall>,
}

impl AggregatePlan {
    /// The output of a call that is derived from a multiset.
    pub(super) fn multiset(
        &mut self,
        request: &AggregateRequest,
        call: &AggregateCall,
        index: usize,
        data_type: &DataType,
    ) -> Result<OutputKind> {
        let schema = &request.input_schema;
        let name = call.expr.fun().name();
        let filter = call.filter.as_ref().map(|f| index_of(&mut self.filters, f));
        let mut mask = Mask {
            filter,
            ..Mask::default()
        };
        let mut expressions = Vec::new();
        let mut fields = Vec::new();
        let is_extreme = matches!(name, "min" | "max") && call.arguments.len() == 1;
        let is_distinct_count = name == "count" && call.distinct;
        if !is_extreme && !is_distinct_count {
            for order in call.expr.order_bys() {
                fields.push((order.expr.data_type(schema)?, order.options));
                expressions.push(Arc::clone(&order.expr));
            }
        }
        let order_columns = expressions.len();
        for argument in &call.arguments {
            let options = if is_extreme {
                extreme_order(name == "max")
            } else {
                SortOptions::default()
            };
            fields.push((argument.data_type(schema)?, options));
            expressions.push(Arc::clone(argument));
            if is_extreme || is_distinct_count {
                mask.arguments
                    .push(self.argument(argument, ArgumentForm::Presence)?);
            }
        }
        let column = self.columns.len();
        let (kind, output) = if is_distinct_count {
            self.columns.push(ColumnKind::Integer);
            let output = OutputKind::Count(CountSource::Column(column));
            if request.append_only_input {
                let mask = self.mask(mask);
                let call = MultisetCall { mask, column };
                self.see(request, index, call, expressions, fields)?;
                return Ok(output);
            }
            (MultisetKind::Distinct, output)
        } else if is_extreme {
            self.columns.push(ColumnKind::Bytes);
            let converter = row_converter(fields.clone())?;
            (
                MultisetKind::First,
                OutputKind::Stored {
                    value: column,
                    converter,
                },
            )
        } else {
            self.columns.push(ColumnKind::Bytes);
            let result = || row_converter(vec![(data_type.clone(), SortOptions::default())]);
            let kind = MultisetKind::Recompute {
                expression: Arc::clone(&call.expr),
                order_columns,
                distinct: call.distinct,
                result: result()?,
            };
            (
                kind,
                OutputKind::Stored {
                    value: column,
                    converter: result()?,
                },
            )
        };
        let mask = self.mask(mask);
        self.multisets.push(MultisetPlan {
            kind,
            table: TableId::from_name(&format!("{}/rows_{index}", request.name)),
            expressions,
            converter: row_converter(fields)?,
            calls: vec![MultisetCall { mask, column }],
        });
        Ok(output)
    }

    /// Adds a call to the multiset of the rows that it counts.
    fn see(
        &mut self,
        request: &AggregateRequest,
        index: usize,
        call: MultisetCall,
        expressions: Vec<Arc<dyn PhysicalExpr>>,
        fields: Vec<(DataType, SortOptions)>,
    ) -> Result<()> {
        let known = self.multisets.iter_mut().find(|known| {
            matches!(known.kind, MultisetKind::Seen)
                && known.calls.len() < SEEN_CALLS_MAX
                && known.expressions == expressions
        });
        if let Some(known) = known {
            known.calls.push(call);
            return Ok(());
        }
        self.multisets.push(MultisetPlan {
            kind: MultisetKind::Seen,
            table: TableId::from_name(&format!("{}/seen_{index}", request.name)),
            expressions,
            converter: row_converter(fields)?,
            calls: vec![call],
        });
        Ok(())
    }

    /// The columns of the calls of each multiset of kind [`MultisetKind::Seen`].
    pub fn seen(&self) -> Vec<Vec<usize>> {
        let seen = self.multisets.iter();
        let seen = seen.filter(|plan| matches!(plan.kind, MultisetKind::Seen));
        seen.map(|plan| plan.calls.iter().map(|call| call.column).collect())
            .collect()
    }
}
