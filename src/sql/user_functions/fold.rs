//! The accumulator of an aggregate in SQL: gathers a group's rows, puts them in order, folds them.
//!
//! The order is that of `ORDER BY` within the call, and where that leaves it open, or without one,
//! that of the arguments' values, NULL first. So the result hangs on the rows alone, and not on
//! threads, shards or batches.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::UInt32Array;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::compute::{concat, take};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::row::{RowConverter, Rows, SortField};
use datafusion::common::utils::SingleRowListArrayBuilder;
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::Accumulator;
use datafusion::logical_expr::function::AccumulatorArgs;

use super::aggregates::{PlannedAggregate, Step};

/// Rows that have come and those that were folded are the same at the end only.
#[derive(Debug)]
pub(super) struct Fold {
    aggregate: Arc<PlannedAggregate>,
    arguments: usize,
    types: Vec<DataType>,
    /// Of the order's columns, then of the arguments'.
    order: RowConverter,
    is_distinct: bool,
    /// Per column, arguments first: what came.
    columns: Vec<Vec<ArrayRef>>,
}

impl Fold {
    pub fn try_new(
        aggregate: Arc<PlannedAggregate>,
        arguments: Vec<DataType>,
        call: &AccumulatorArgs<'_>,
    ) -> DataFusionResult<Self> {
        let mut types = arguments.clone();
        let mut fields = Vec::new();
        for order in call.order_bys {
            let data_type = order.expr.data_type(call.schema)?;
            fields.push(SortField::new_with_options(
                data_type.clone(),
                order.options,
            ));
            types.push(data_type);
        }
        fields.extend(arguments.iter().cloned().map(SortField::new));
        Ok(Self {
            aggregate,
            arguments: arguments.len(),
            columns: vec![Vec::new(); types.len()],
            types,
            order: RowConverter::new(fields)?,
            is_distinct: call.is_distinct,
        })
    }

    /// All rows that came, column by column.
    fn gathered(&self) -> DataFusionResult<Vec<ArrayRef>> {
        let column = |(parts, data_type): (&Vec<ArrayRef>, &DataType)| {
            let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
            match parts.is_empty() {
                true => Ok(datafusion::arrow::array::new_empty_array(data_type)),
                false => Ok(concat(&parts)?),
            }
        };
        self.columns.iter().zip(&self.types).map(column).collect()
    }

    /// The arguments in the order in which they are folded.
    fn ordered(&self) -> DataFusionResult<Vec<ArrayRef>> {
        let mut columns = self.gathered()?;
        let by = columns.split_off(self.arguments);
        let keys: Vec<ArrayRef> = by.into_iter().chain(columns.iter().cloned()).collect();
        let keys = self.order.convert_columns(&keys)?;
        let mut order: Vec<u32> = (0..keys.num_rows() as u32).collect();
        order.sort_by(|a, b| keys.row(*a as usize).cmp(&keys.row(*b as usize)));
        if self.is_distinct {
            self.keep_distinct(&columns, &mut order)?;
        }
        let order = UInt32Array::from(order);
        let columns = columns.iter().map(|c| Ok(take(c, &order, None)?));
        columns.collect()
    }

    fn keep_distinct(&self, columns: &[ArrayRef], order: &mut Vec<u32>) -> DataFusionResult<()> {
        let fields = columns
            .iter()
            .map(|c| SortField::new(c.data_type().clone()));
        let rows: Rows = RowConverter::new(fields.collect())?.convert_columns(columns)?;
        let mut seen = HashSet::new();
        order.retain(|row| seen.insert(rows.row(*row as usize).data().to_vec()));
        Ok(())
    }

    fn folded(&self) -> DataFusionResult<ScalarValue> {
        let rows = self.ordered()?;
        let count = rows.first().map_or(0, |column| column.len());
        let step = &self.aggregate.transition;
        let mut state = self.aggregate.initial.to_array()?;
        let mut takes_first = step.is_strict && state.is_null(0);
        for row in 0..count {
            let arguments: Vec<ArrayRef> = rows.iter().map(|c| c.slice(row, 1)).collect();
            let has_null = arguments.iter().any(|argument| argument.is_null(0));
            if step.is_strict && has_null {
                continue;
            }
            if takes_first {
                // As in PostgreSQL: the first value is the state, and no call is made.
                state = Arc::clone(&arguments[0]);
                takes_first = false;
                continue;
            }
            if step.is_strict && state.is_null(0) {
                break;
            }
            let mut columns = vec![state];
            columns.extend(arguments);
            state = step.apply(columns)?;
        }
        let result = match &self.aggregate.last {
            None => state,
            Some(last) if last.is_strict && state.is_null(0) => {
                return ScalarValue::try_from(last.expression.data_type(&last.schema)?);
            }
            Some(last) => last.apply(vec![state])?,
        };
        ScalarValue::try_from_array(&result, 0)
    }
}

impl Step {
    /// One value from one row.
    fn apply(&self, columns: Vec<ArrayRef>) -> DataFusionResult<ArrayRef> {
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let schema = Arc::clone(&self.schema);
        let row = RecordBatch::try_new_with_options(schema, columns, &options)?;
        self.expression.evaluate(&row)?.into_array(1)
    }
}

impl Accumulator for Fold {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        for (column, values) in self.columns.iter_mut().zip(values) {
            column.push(Arc::clone(values));
        }
        Ok(())
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        self.folded()
    }

    fn size(&self) -> usize {
        let parts = self.columns.iter().flatten();
        size_of::<Self>()
            + parts
                .map(|part| part.get_array_memory_size())
                .sum::<usize>()
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        let columns = self.gathered()?.into_iter();
        let list = |column| SingleRowListArrayBuilder::new(column).build_list_scalar();
        Ok(columns.map(list).collect())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        for (column, lists) in self.columns.iter_mut().zip(states) {
            column.extend(lists.as_list::<i32>().iter().flatten());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::Int64Array;
    use datafusion::arrow::compute::SortOptions;
    use datafusion::arrow::datatypes::{Field, Schema};
    use datafusion::logical_expr::{Operator, Volatility};
    use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};
    use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};

    use super::*;
    use crate::catalog::function::{
        AggregateBody, FunctionBody, FunctionDefinition, FunctionResult, FunctionVolatility,
    };
    use crate::types::SqlType;

    /// `state * 10 + x`: the order of the rows can be read off the result.
    fn digits(is_strict: bool, initial: Option<i64>) -> Arc<PlannedAggregate> {
        let column = |name, at| Arc::new(Column::new(name, at)) as Arc<dyn PhysicalExpr>;
        let ten = Arc::new(Literal::new(ScalarValue::from(10i64)));
        let tens = Arc::new(BinaryExpr::new(column("state", 0), Operator::Multiply, ten));
        let expression = Arc::new(BinaryExpr::new(tens, Operator::Plus, column("x", 1)));
        let fields = ["state", "x"].map(|name| Field::new(name, DataType::Int64, true));
        let body = AggregateBody {
            transition: "next".to_owned(),
            state: SqlType::BigInt,
            initial: None,
            last: None,
        };
        Arc::new(PlannedAggregate {
            definition: Arc::new(FunctionDefinition {
                name: "digits".to_owned(),
                oid: 1,
                created_at_us: 0,
                parameters: Vec::new(),
                result: FunctionResult::Value(SqlType::BigInt),
                volatility: FunctionVolatility::Immutable,
                is_strict: false,
                body: FunctionBody::Aggregate(body),
            }),
            transition: Step {
                expression,
                schema: Arc::new(Schema::new(fields.to_vec())),
                is_strict,
            },
            last: None,
            initial: ScalarValue::Int64(initial),
            volatility: Volatility::Immutable,
            calls: Vec::new(),
        })
    }

    /// A fold of the first column, by the second one from the largest on if `is_ordered`.
    fn fold(aggregate: &Arc<PlannedAggregate>, is_ordered: bool, is_distinct: bool) -> Fold {
        let schema = Schema::new(
            ["x", "by"]
                .map(|name| Field::new(name, DataType::Int64, true))
                .to_vec(),
        );
        let options = SortOptions {
            descending: true,
            nulls_first: false,
        };
        let by = PhysicalSortExpr::new(Arc::new(Column::new("by", 1)), options);
        let orders = if is_ordered { vec![by] } else { Vec::new() };
        let call = AccumulatorArgs {
            return_field: Arc::new(Field::new("digits", DataType::Int64, true)),
            schema: &schema,
            ignore_nulls: false,
            order_bys: &orders,
            is_reversed: false,
            name: "digits",
            is_distinct,
            exprs: &[],
            expr_fields: &[],
        };
        Fold::try_new(Arc::clone(aggregate), vec![DataType::Int64], &call).unwrap()
    }

    fn column(values: &[Option<i64>]) -> ArrayRef {
        Arc::new(Int64Array::from(values.to_vec()))
    }

    fn value(fold: &mut Fold) -> Option<i64> {
        match fold.evaluate().unwrap() {
            ScalarValue::Int64(value) => value,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_result_hangs_on_the_rows_alone() {
        let aggregate = digits(true, Some(0));
        let rows = [3, 1, 2, 1].map(Some);
        let by = [10, 20, 20, 5].map(Some);
        for (is_ordered, wanted) in [(false, 1123), (true, 1231)] {
            let given = |rows: &[Option<i64>], by: &[Option<i64>]| match is_ordered {
                true => vec![column(rows), column(by)],
                false => vec![column(rows)],
            };
            for cut in 0..=rows.len() {
                let mut first = fold(&aggregate, is_ordered, false);
                let mut second = fold(&aggregate, is_ordered, false);
                second
                    .update_batch(&given(&rows[..cut], &by[..cut]))
                    .unwrap();
                first
                    .update_batch(&given(&rows[cut..], &by[cut..]))
                    .unwrap();
                let states = second.state().unwrap();
                let states = states.iter().map(|s| s.to_array().unwrap());
                first.merge_batch(&states.collect::<Vec<_>>()).unwrap();
                assert_eq!(value(&mut first), Some(wanted), "cut at {cut}");
                // It may be asked again.
                assert_eq!(value(&mut first), Some(wanted));
            }
        }
        let mut distinct = fold(&aggregate, false, true);
        distinct.update_batch(&[column(&rows)]).unwrap();
        assert_eq!(value(&mut distinct), Some(123));
    }

    #[test]
    fn strict_functions_see_no_null() {
        let rows = [None, Some(4), None, Some(2)];
        for (is_strict, initial, wanted) in [
            (true, Some(0), Some(24)),
            // The first value is the state.
            (true, None, Some(24)),
            (false, Some(0), None),
        ] {
            let mut fold = fold(&digits(is_strict, initial), false, false);
            assert_eq!(value(&mut fold), initial);
            fold.update_batch(&[column(&rows)]).unwrap();
            assert_eq!(value(&mut fold), wanted);
        }
    }
}
