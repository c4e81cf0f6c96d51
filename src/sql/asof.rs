//! `ASOF JOIN`: each left row with the one right row of its keys that is nearest in time.
//!
//! ```text
//! l ASOF JOIN r MATCH_CONDITION (l.t >= r.t) ON l.k = r.k
//!
//!   rows of both sides, by key in order of time:   r r l r l l
//!   the last right row before each left one:           ╰─┘ ╰─┴─ (NULL where there is none)
//! ```
//! The text is rewritten to a left join whose condition calls `asof_match`; this rule turns that
//! join into a union under a window function, so that an ad-hoc query and a view mean the same
//! and a view computes only the keys again that a batch touches. Among right rows of one time the
//! greatest one is taken.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result as DataFusionResult, ScalarValue};
use datafusion::functions::core::expr_fn::{get_field, named_struct};
use datafusion::functions_window::nth_value::last_value;
use datafusion::logical_expr::expr::NullTreatment;
use datafusion::logical_expr::type_coercion::binary::comparison_coercion;
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprFunctionExt, ExprSchemable, Join, JoinType, LogicalPlan,
    LogicalPlanBuilder, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    SortExpr, Volatility, WindowFrame, WindowFrameBound, WindowFrameUnits, lit, when,
};
use datafusion::optimizer::AnalyzerRule;

use crate::error::{Error, sqlstate};

/// The function that marks the match condition.
pub const MARK: &str = "asof_match";

const SIDE: &str = "asof side";
const ROW: &str = "asof row";
const FOUND: &str = "asof found";

/// The marker; no query runs it.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AsofMatch {
    signature: Signature,
}

/// The marker function.
pub(super) fn function() -> ScalarUDF {
    ScalarUDF::new_from_impl(AsofMatch {
        signature: Signature::exact(vec![DataType::Boolean], Volatility::Immutable),
    })
}

impl ScalarUDFImpl for AsofMatch {
    fn name(&self) -> &str {
        MARK
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        Err(refused("MATCH_CONDITION belongs to an ASOF JOIN").into())
    }
}

fn refused(why: &str) -> Error {
    Error::new(sqlstate::FEATURE_NOT_SUPPORTED, why.to_owned())
        .hint("Write l ASOF JOIN r MATCH_CONDITION (l.time >= r.time) ON l.key = r.key.")
}

/// The rule.
#[derive(Debug, Default)]
pub(crate) struct AsofJoin;

impl AnalyzerRule for AsofJoin {
    fn name(&self) -> &str {
        "asof_join"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Join(join) if is_marked(&join) => Ok(Transformed::yes(nearest(join)?)),
            other => Ok(Transformed::no(other)),
        })
        .map(|t| t.data)
    }
}

fn is_marked(join: &Join) -> bool {
    let is_mark = |e: &Expr| matches!(e, Expr::ScalarFunction(call) if call.name() == MARK);
    join.join_type == JoinType::Left
        && join
            .filter
            .as_ref()
            .is_some_and(|filter| filter.exists(|e| Ok(is_mark(e))).unwrap_or(false))
}

/// What the condition asks for.
struct Conditions {
    /// Pairs of keys, left and right.
    keys: Vec<(Expr, Expr)>,
    /// Times, left and right, and how the left one lies to the right one.
    times: Option<(Expr, Operator, Expr)>,
}

fn conditions(join: &Join) -> DataFusionResult<Conditions> {
    let mut found = Conditions {
        keys: join.on.clone(),
        times: None,
    };
    let sides: (&DFSchema, &DFSchema) = (join.left.schema(), join.right.schema());
    let filter = join.filter.clone();
    for condition in filter.into_iter().flat_map(split_conjunction_owned) {
        match condition {
            Expr::ScalarFunction(call) if call.name() == MARK => {
                let [Expr::BinaryExpr(BinaryExpr { left, op, right })] = call.args.as_slice()
                else {
                    return Err(refused("MATCH_CONDITION must compare two times").into());
                };
                found.times = match sided(left, right, sides) {
                    Some(true) => Some((*left.clone(), *op, *right.clone())),
                    Some(false) => op.swap().map(|op| (*right.clone(), op, *left.clone())),
                    None => None,
                };
            }
            Expr::BinaryExpr(BinaryExpr {
                left,
                op: Operator::Eq,
                right,
            }) if sided(&left, &right, sides).is_some() => {
                found.keys.push(match sided(&left, &right, sides) {
                    Some(true) => (*left, *right),
                    _ => (*right, *left),
                });
            }
            _ => return Err(refused("ON of an ASOF JOIN takes equalities of both sides").into()),
        }
    }
    Ok(found)
}

/// Whether two expressions are of the left and the right side (true), or the other way round.
fn sided(one: &Expr, other: &Expr, sides: (&DFSchema, &DFSchema)) -> Option<bool> {
    let of = |e: &Expr, schema: &DFSchema| {
        let columns = e.column_refs();
        !columns.is_empty() && columns.iter().all(|c| schema.has_column(c))
    };
    if of(one, sides.0) && of(other, sides.1) {
        Some(true)
    } else if of(one, sides.1) && of(other, sides.0) {
        Some(false)
    } else {
        None
    }
}

fn nearest(join: Join) -> DataFusionResult<LogicalPlan> {
    let Conditions { keys, times } = conditions(&join)?;
    let Some((left_time, op, right_time)) = times else {
        return Err(refused("MATCH_CONDITION must compare a time of each side").into());
    };
    // Right rows that the condition admits come before the left row that they tie with.
    let (ascending, right_first) = match op {
        Operator::GtEq => (true, true),
        Operator::Gt => (true, false),
        Operator::LtEq => (false, true),
        Operator::Lt => (false, false),
        _ => return Err(refused("MATCH_CONDITION takes >=, >, <= or <").into()),
    };
    let count = join.left.schema().fields().len();
    let schema = Arc::clone(&join.schema);
    let pairs = keys.into_iter().chain([(left_time, right_time)]).collect();
    let (both, mut partition) = both_sides(join, pairs, right_first)?;
    let time = partition
        .pop()
        .ok_or_else(|| Error::internal("an ASOF JOIN has a time"))?;
    found_rows(both, partition, time, ascending, &schema, count)
}

/// The rows of both sides as one relation, and its columns of the pairs' common values. A right row
/// without one of them matches nothing and is left out.
fn both_sides(
    join: Join,
    pairs: Vec<(Expr, Expr)>,
    right_first: bool,
) -> DataFusionResult<(LogicalPlan, Vec<Expr>)> {
    let (left_schema, right_schema) = (join.left.schema().clone(), join.right.schema().clone());
    let row = named_struct(
        right_schema
            .columns()
            .into_iter()
            .enumerate()
            .flat_map(|(index, column)| [lit(format!("c{index}")), Expr::Column(column)])
            .collect(),
    );
    let row_type = row.get_type(&right_schema)?;
    let mut left_columns = Vec::new();
    let mut right_columns = Vec::new();
    let mut is_present = lit(true);
    let mut common_columns = Vec::with_capacity(pairs.len());
    for (index, (left, right)) in pairs.into_iter().enumerate() {
        let types = (left.get_type(&left_schema)?, right.get_type(&right_schema)?);
        let common = comparison_coercion(&types.0, &types.1)
            .ok_or_else(|| refused("the sides of an ASOF JOIN's condition differ in type"))?;
        let name = format!("asof key {index}");
        is_present = is_present.and(right.clone().is_not_null());
        left_columns.push(left.cast_to(&common, &left_schema)?.alias(name.clone()));
        right_columns.push(right.cast_to(&common, &right_schema)?.alias(name.clone()));
        common_columns.push(Expr::Column(Column::new_unqualified(name)));
    }
    left_columns.push(lit(1_i64).alias(SIDE));
    right_columns.push(lit(if right_first { 0_i64 } else { 2 }).alias(SIDE));
    for (index, (qualifier, field)) in left_schema.iter().enumerate() {
        let name = format!("asof left {index}");
        let column = Expr::Column(Column::from((qualifier, field)));
        left_columns.push(column.alias(name.clone()));
        right_columns.push(lit(ScalarValue::try_from(field.data_type())?).alias(name));
    }
    left_columns.push(lit(ScalarValue::try_from(&row_type)?).alias(ROW));
    right_columns.push(row.alias(ROW));
    let right = LogicalPlanBuilder::from(Arc::unwrap_or_clone(join.right))
        .filter(is_present)?
        .project(right_columns)?
        .build()?;
    let both = LogicalPlanBuilder::from(Arc::unwrap_or_clone(join.left))
        .project(left_columns)?
        .union(right)?
        .build()?;
    Ok((both, common_columns))
}

/// The left rows, each with the last right row before it.
fn found_rows(
    both: LogicalPlan,
    partition: Vec<Expr>,
    time: Expr,
    ascending: bool,
    schema: &DFSchema,
    left_columns: usize,
) -> DataFusionResult<LogicalPlan> {
    let column = |name: &str| Expr::Column(Column::new_unqualified(name));
    let order = vec![
        SortExpr::new(time.clone(), ascending, !ascending),
        SortExpr::new(column(SIDE), true, false),
    ];
    let frame = WindowFrame::new_bounds(
        WindowFrameUnits::Rows,
        WindowFrameBound::Preceding(ScalarValue::UInt64(None)),
        WindowFrameBound::CurrentRow,
    );
    let last = last_value(column(ROW))
        .partition_by(partition)
        .order_by(order)
        .window_frame(frame)
        .null_treatment(NullTreatment::IgnoreNulls)
        .build()?
        .alias(FOUND);
    let found = LogicalPlanBuilder::from(both)
        .window(vec![last])?
        .filter(column(SIDE).eq(lit(1_i64)))?
        .build()?;
    let mut outputs = Vec::with_capacity(schema.fields().len());
    for (index, (qualifier, field)) in schema.iter().enumerate() {
        let value = if index < left_columns {
            column(&format!("asof left {index}"))
        } else {
            let value = get_field(column(FOUND), format!("c{}", index - left_columns));
            let nothing = lit(ScalarValue::try_from(field.data_type())?);
            // A left row without a time matches nothing.
            when(time.clone().is_null(), nothing).otherwise(value)?
        };
        outputs.push(value.alias_qualified(qualifier.cloned(), field.name()));
    }
    LogicalPlanBuilder::from(found).project(outputs)?.build()
}
