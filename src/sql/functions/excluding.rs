//! Window functions over frames without some of their rows (`EXCLUDE …`). The frame is the engine's;
//! what is left of it is gone through for every row anew, as PostgreSQL does, so that a frame of n
//! rows costs n per row.

use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::filter;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema};
use datafusion::common::utils::compare_rows;
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::function::{
    AccumulatorArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs,
};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, PartitionEvaluator, Signature, Volatility, WindowUDF, WindowUDFImpl,
};
use datafusion::physical_expr::PhysicalExpr;

use super::types_of;
use crate::error::{Error, Result, sqlstate};
use crate::sql::exclusions::Exclusion;

/// What is computed of the rows that are left.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Over {
    /// An aggregate; the last argument is the condition of FILTER, if `is_filtered`.
    Aggregate {
        /// the aggregate
        function: Arc<AggregateUDF>,
        /// `agg(…) FILTER (WHERE …)`
        is_filtered: bool,
    },
    /// `first_value`
    First,
    /// `last_value`
    Last,
    /// `nth_value`
    Nth,
}

/// A function over what an exclusion leaves of its frame.
pub(crate) fn excluding(over: Over, exclusion: Exclusion) -> Arc<WindowUDF> {
    let function = match &over {
        Over::Aggregate { function, .. } => function.name(),
        Over::First => "first_value",
        Over::Last => "last_value",
        Over::Nth => "nth_value",
    };
    Arc::new(WindowUDF::new_from_impl(Excluding {
        name: format!("{function} exclude {}", exclusion.words()),
        over,
        exclusion,
        signature: Signature::user_defined(Volatility::Immutable),
    }))
}

#[derive(Debug)]
struct Excluding {
    name: String,
    over: Over,
    exclusion: Exclusion,
    signature: Signature,
}

impl PartialEq for Excluding {
    fn eq(&self, other: &Self) -> bool {
        self.over == other.over && self.exclusion == other.exclusion
    }
}

impl Eq for Excluding {}

impl Hash for Excluding {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.over.hash(state);
        self.exclusion.hash(state);
    }
}

impl WindowUDFImpl for Excluding {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let Over::Aggregate {
            function,
            is_filtered,
        } = &self.over
        else {
            return Ok(types.to_vec());
        };
        let (arguments, condition) = types.split_at(types.len() - usize::from(*is_filtered));
        let fields: Vec<FieldRef> = arguments
            .iter()
            .map(|t| Arc::new(Field::new("", t.clone(), true)))
            .collect();
        let mut coerced = types_of(&fields_with_udf(&fields, function.as_ref())?);
        coerced.extend_from_slice(condition);
        Ok(coerced)
    }

    fn field(&self, args: WindowUDFFieldArgs) -> DataFusionResult<FieldRef> {
        let fields = args.input_fields();
        let field = match &self.over {
            Over::Aggregate {
                function,
                is_filtered,
            } => {
                let arguments = &fields[..fields.len() - usize::from(*is_filtered)];
                function.return_field(arguments)?
            }
            _ => {
                let value = fields.first();
                Arc::clone(value.ok_or_else(|| super::no_function(&self.name, &[]))?)
            }
        };
        let named = field.as_ref().clone().with_name(args.name());
        Ok(Arc::new(named.with_nullable(true)))
    }

    fn partition_evaluator(
        &self,
        args: PartitionEvaluatorArgs,
    ) -> DataFusionResult<Box<dyn PartitionEvaluator>> {
        let aggregate = match &self.over {
            Over::Aggregate {
                function,
                is_filtered,
            } => {
                let fields = args.input_fields().to_vec();
                let arguments = fields.len() - usize::from(*is_filtered);
                Some(Aggregate {
                    return_field: function.return_field(&fields[..arguments])?,
                    function: Arc::clone(function),
                    is_filtered: *is_filtered,
                    schema: Schema::new(fields.clone()),
                    expressions: args.input_exprs().to_vec(),
                    fields,
                })
            }
            _ => None,
        };
        Ok(Box::new(Evaluator {
            over: self.over.clone(),
            exclusion: self.exclusion,
            ignores_nulls: args.ignore_nulls(),
            arguments: args.input_fields().len(),
            aggregate,
            row: 0,
            peers: 0..0,
        }))
    }
}

#[derive(Debug)]
struct Aggregate {
    function: Arc<AggregateUDF>,
    is_filtered: bool,
    return_field: FieldRef,
    schema: Schema,
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    fields: Vec<FieldRef>,
}

impl Aggregate {
    fn accumulator(&self) -> DataFusionResult<Box<dyn Accumulator>> {
        let arguments = self.fields.len() - usize::from(self.is_filtered);
        self.function.accumulator(AccumulatorArgs {
            return_field: Arc::clone(&self.return_field),
            schema: &self.schema,
            ignore_nulls: false,
            order_bys: &[],
            is_reversed: false,
            name: self.function.name(),
            is_distinct: false,
            exprs: &self.expressions[..arguments],
            expr_fields: &self.fields[..arguments],
        })
    }

    fn of(&self, values: &[ArrayRef], parts: &[Range<usize>]) -> DataFusionResult<ScalarValue> {
        let mut accumulator = self.accumulator()?;
        let arguments = self.fields.len() - usize::from(self.is_filtered);
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let slice = |array: &ArrayRef| array.slice(part.start, part.len());
            let mut columns: Vec<ArrayRef> = values[..arguments].iter().map(slice).collect();
            if self.is_filtered {
                let condition = slice(&values[arguments]);
                for column in &mut columns {
                    *column = filter(column, condition.as_boolean())?;
                }
            }
            accumulator.update_batch(&columns)?;
        }
        accumulator.evaluate()
    }
}

/// Of one partition, row by row from its first one.
#[derive(Debug)]
struct Evaluator {
    over: Over,
    exclusion: Exclusion,
    ignores_nulls: bool,
    arguments: usize,
    aggregate: Option<Aggregate>,
    row: usize,
    /// Rows that tie with the current one, itself among them.
    peers: Range<usize>,
}

impl Evaluator {
    /// Moves the peers to those of the current row. Without ORDER BY all rows are peers.
    fn find_peers(&mut self, order: &[ArrayRef]) -> DataFusionResult<()> {
        if self.peers.contains(&self.row) {
            return Ok(());
        }
        let Some(rows) = order.first().map(|column| column.len()) else {
            self.peers = 0..usize::MAX;
            return Ok(());
        };
        let values_at = |row: usize| datafusion::common::utils::get_row_at_idx(order, row);
        let options = vec![Default::default(); order.len()];
        let current = values_at(self.row)?;
        let mut end = self.row + 1;
        while end < rows && compare_rows(&current, &values_at(end)?, &options)?.is_eq() {
            end += 1;
        }
        self.peers = self.row..end;
        Ok(())
    }

    /// What is left of a frame, in at most three parts.
    fn parts(&self, frame: &Range<usize>) -> Vec<Range<usize>> {
        let cut =
            |from: usize, to: usize| from.max(frame.start)..to.min(frame.end).max(frame.start);
        let (row, peers) = (self.row, &self.peers);
        let parts = match self.exclusion {
            Exclusion::None => vec![frame.clone()],
            Exclusion::CurrentRow => vec![cut(0, row), cut(row + 1, usize::MAX)],
            Exclusion::Group => vec![cut(0, peers.start), cut(peers.end, usize::MAX)],
            Exclusion::Ties => {
                let own = cut(row, row + 1);
                vec![cut(0, peers.start), own, cut(peers.end, usize::MAX)]
            }
        };
        parts.into_iter().filter(|part| !part.is_empty()).collect()
    }

    fn chosen(&self, values: &[ArrayRef], parts: &[Range<usize>]) -> Result<Option<usize>> {
        let is_seen = |row: &usize| !self.ignores_nulls || values[0].is_valid(*row);
        let mut rows = parts.iter().cloned().flatten().filter(is_seen);
        Ok(match &self.over {
            Over::First => rows.next(),
            Over::Last => rows.next_back(),
            _ => {
                let nth = values.get(1).and_then(|n| {
                    let n = datafusion::arrow::compute::cast(n, &DataType::Int64).ok()?;
                    let n = n.as_primitive::<Int64Type>();
                    n.is_valid(self.row).then(|| n.value(self.row))
                });
                match nth.map(usize::try_from) {
                    None => None,
                    Some(Ok(n)) if n > 0 => rows.nth(n - 1),
                    Some(_) => {
                        return Err(Error::new(
                            sqlstate::INVALID_ARGUMENT_FOR_NTH_VALUE,
                            "argument of nth_value must be greater than zero",
                        ));
                    }
                }
            }
        })
    }
}

impl PartitionEvaluator for Evaluator {
    fn uses_window_frame(&self) -> bool {
        true
    }

    /// The arguments, then the columns of ORDER BY.
    fn evaluate(
        &mut self,
        values: &[ArrayRef],
        range: &Range<usize>,
    ) -> DataFusionResult<ScalarValue> {
        let (arguments, order) = values.split_at(self.arguments);
        self.find_peers(order)?;
        let parts = self.parts(range);
        let value = match &self.aggregate {
            Some(aggregate) => aggregate.of(arguments, &parts)?,
            None => match self.chosen(arguments, &parts)? {
                Some(row) => ScalarValue::try_from_array(&arguments[0], row)?,
                None => ScalarValue::try_from(arguments[0].data_type())?,
            },
        };
        self.row += 1;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_frame() {
        let mut evaluator = Evaluator {
            over: Over::First,
            exclusion: Exclusion::None,
            ignores_nulls: false,
            arguments: 1,
            aggregate: None,
            row: 3,
            peers: 2..5,
        };
        for (exclusion, frame, expected) in [
            (Exclusion::None, 1..6, &[(1, 6)][..]),
            (Exclusion::CurrentRow, 1..6, &[(1, 3), (4, 6)]),
            (Exclusion::CurrentRow, 4..6, &[(4, 6)]),
            (Exclusion::Group, 1..6, &[(1, 2), (5, 6)]),
            (Exclusion::Group, 2..4, &[]),
            (Exclusion::Ties, 1..6, &[(1, 2), (3, 4), (5, 6)]),
            (Exclusion::Ties, 4..5, &[]),
        ] {
            evaluator.exclusion = exclusion;
            let parts = evaluator.parts(&frame);
            let parts: Vec<_> = parts.iter().map(|part| (part.start, part.end)).collect();
            assert_eq!(parts, expected, "{exclusion:?} {frame:?}");
        }
    }
}
