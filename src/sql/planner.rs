//! Operators whose meaning hangs on the operands' types: the planner asks here before it looks for
//! a common type.
//!
//! - `uuid = '…'`: the text is read as a uuid ([`crate::sql::text_constants`])
//! - `interval * number`, `interval / number`; intervals are compared by their length
//! - `numeric / numeric`, and products of many digits; a numeric beside a float is a float
//! - `date ± interval` is a timestamp, `timestamp - timestamp` an interval with days
//! - `jsonb @> jsonb`, `jsonb || jsonb`, `jsonb - name`, `json #> path`, `array && array`
//! - aggregates over casts, whose names do not tell one cast from another
//! - places of `int2vector` and `oidvector` count from 0
//! - `jsonb[name or place]` is `jsonb -> …`
//! - `(array_agg(x))[i]`, of which the engine makes an aggregate that takes literal places only

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{
    ExprPlanner, PlannerResult, RawAggregateExpr, RawBinaryExpr, RawFieldAccessExpr, RawWindowExpr,
};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, GetFieldAccess, Operator, ScalarUDF, cast, lit,
};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use crate::sql::exclusions;
use crate::sql::functions::{casts, common_type, intervals, json, json_texts, numerics};
use crate::sql::text_constants::{
    as_value_of, dates_as_moments, is_text_constant, settle_array, with_case_settled,
};
use crate::types::{SqlType, TYPE_KEY};

/// The hook.
#[derive(Debug)]
pub(crate) struct OperatorPlanner {
    interval_times: Arc<ScalarUDF>,
    interval_length: Arc<ScalarUDF>,
    timestamp_difference: Arc<ScalarUDF>,
    divide: Arc<ScalarUDF>,
    multiply: Arc<ScalarUDF>,
    named_cast: Arc<ScalarUDF>,
    make_array: Arc<ScalarUDF>,
    jsonb: JsonbOperators,
}

impl OperatorPlanner {
    /// Makes the hook with the functions that it puts in.
    pub fn new() -> Self {
        Self {
            interval_times: intervals::interval_times(),
            interval_length: intervals::interval_length(),
            timestamp_difference: intervals::timestamp_difference(),
            divide: numerics::divide(),
            multiply: numerics::multiply(),
            named_cast: casts::named_cast(),
            make_array: common_type::make_array(),
            jsonb: JsonbOperators::default(),
        }
    }

    /// Comparisons.
    fn compared(&self, raw: Typed, op: BinaryOperator) -> RawBinaryExpr {
        let Typed {
            left,
            right,
            left_type,
            right_type,
        } = raw.with_floats();
        if left_type == SqlType::Interval && right_type == SqlType::Interval {
            let length = |interval| call(&self.interval_length, vec![interval]);
            return RawBinaryExpr {
                op,
                left: length(left),
                right: length(right),
            };
        }
        RawBinaryExpr { op, left, right }
    }

    /// Arithmetic that is not the engine's.
    fn computed(
        &self,
        raw: Typed,
        op: BinaryOperator,
    ) -> DataFusionResult<PlannerResult<RawBinaryExpr>> {
        use SqlType::{Date, Interval, Timestamp, TimestampTz};
        let Typed {
            left,
            right,
            left_type,
            right_type,
        } = raw.with_floats();
        let planned = match (&op, &left_type, &right_type) {
            (BinaryOperator::Multiply, Interval, number) if number.is_number() => {
                let factor = cast(right, DataType::Float64);
                call(&self.interval_times, vec![left, factor])
            }
            (BinaryOperator::Multiply, number, Interval) if number.is_number() => {
                let factor = cast(left, DataType::Float64);
                call(&self.interval_times, vec![right, factor])
            }
            (BinaryOperator::Divide, Interval, number) if number.is_number() => {
                let one = Expr::Literal(ScalarValue::Float64(Some(1.0)), None);
                let inverse = one / cast(right, DataType::Float64);
                call(&self.interval_times, vec![left, inverse])
            }
            (BinaryOperator::Plus, Date, Interval) => {
                binary(as_type(left, &Timestamp), Operator::Plus, right)
            }
            (BinaryOperator::Plus, Interval, Date) => {
                binary(left, Operator::Plus, as_type(right, &Timestamp))
            }
            (BinaryOperator::Minus, Date, Interval) => {
                binary(as_type(left, &Timestamp), Operator::Minus, right)
            }
            (
                BinaryOperator::Minus,
                Timestamp | TimestampTz | Date,
                Timestamp | TimestampTz | Date,
            ) if (&left_type, &right_type) != (&Date, &Date) => {
                let with_zone = left_type == TimestampTz || right_type == TimestampTz;
                let wanted = if with_zone { TimestampTz } else { Timestamp };
                let operands = vec![as_type(left, &wanted), as_type(right, &wanted)];
                call(&self.timestamp_difference, operands)
            }
            // Days, which the engine counts as a bigint.
            (BinaryOperator::Minus, Date, Date) => {
                cast(binary(left, Operator::Minus, right), DataType::Int32)
            }
            (BinaryOperator::Divide | BinaryOperator::Multiply, _, _) => {
                match self.of_numerics(&op, (&left, &left_type), (&right, &right_type)) {
                    Some(planned) => planned,
                    None => return original(op, left, right),
                }
            }
            _ => return original(op, left, right),
        };
        Ok(PlannerResult::Planned(planned))
    }

    /// Quotients and long products with at least one numeric, the other a numeric or whole.
    fn of_numerics(
        &self,
        op: &BinaryOperator,
        (left, left_type): (&Expr, &SqlType),
        (right, right_type): (&Expr, &SqlType),
    ) -> Option<Expr> {
        let scale_of = |t: &SqlType| match t {
            SqlType::Numeric { scale, .. } => Some(*scale),
            SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => Some(0),
            _ => None,
        };
        let is_numeric = |t: &SqlType| matches!(t, SqlType::Numeric { .. });
        let (left_scale, right_scale) = (scale_of(left_type)?, scale_of(right_type)?);
        if !is_numeric(left_type) && !is_numeric(right_type) {
            return None;
        }
        let function = match op {
            BinaryOperator::Divide => &self.divide,
            _ if numerics::needs_multiply(left_scale, right_scale) => &self.multiply,
            _ => return None,
        };
        let as_numeric = |operand: &Expr, t: &SqlType| match is_numeric(t) {
            true => operand.clone(),
            false => cast(operand.clone(), DataType::Decimal128(20, 0)),
        };
        Some(call(
            function,
            vec![as_numeric(left, left_type), as_numeric(right, right_type)],
        ))
    }

    /// Arguments that hold a cast keep it in their name.
    fn named(&self, arguments: Vec<Expr>) -> DataFusionResult<Vec<Expr>> {
        arguments
            .into_iter()
            .map(|argument| {
                let has_cast = argument.exists(|e| Ok(matches!(e, Expr::Cast(_))))?;
                Ok(match has_cast && !casts::is_named(&argument) {
                    true => call(&self.named_cast, vec![argument]),
                    false => argument,
                })
            })
            .collect()
    }
}

/// Functions in the place of jsonb's operators.
#[derive(Debug)]
struct JsonbOperators {
    contains: Arc<ScalarUDF>,
    concat: Arc<ScalarUDF>,
    without: Arc<ScalarUDF>,
    without_path: Arc<ScalarUDF>,
    has_name: Arc<ScalarUDF>,
    has_any: Arc<ScalarUDF>,
    has_all: Arc<ScalarUDF>,
    jsonb_member: Arc<ScalarUDF>,
    json_member: Arc<ScalarUDF>,
    path_value: Arc<ScalarUDF>,
    path_text: Arc<ScalarUDF>,
    json_path_value: Arc<ScalarUDF>,
    json_path_text: Arc<ScalarUDF>,
}

impl Default for JsonbOperators {
    fn default() -> Self {
        Self {
            contains: json::contains(),
            concat: json::concat(),
            without: json::without(),
            without_path: json::without_path(),
            has_name: json::has_name(),
            has_any: json::has_any(),
            has_all: json::has_all(),
            jsonb_member: json::jsonb_member(),
            json_member: json_texts::member(),
            path_value: json::path_value(),
            path_text: json::path_text(),
            json_path_value: json_texts::path_value(),
            json_path_text: json_texts::path_text(),
        }
    }
}

impl JsonbOperators {
    fn of(&self, op: &BinaryOperator, left: &SqlType, right: &SqlType) -> Option<&Arc<ScalarUDF>> {
        let is_json = |t: &SqlType| matches!(t, SqlType::Json | SqlType::Jsonb);
        let is_jsonb = |t: &SqlType| *t == SqlType::Jsonb;
        if !is_json(left) && !is_json(right) {
            return None;
        }
        match op {
            BinaryOperator::AtArrow | BinaryOperator::ArrowAt => Some(&self.contains),
            BinaryOperator::StringConcat if is_jsonb(left) || is_jsonb(right) => Some(&self.concat),
            BinaryOperator::Minus => Some(&self.without),
            BinaryOperator::HashMinus => Some(&self.without_path),
            // The engine's says that NULL has no members.
            BinaryOperator::Question => Some(&self.has_name),
            BinaryOperator::QuestionPipe => Some(&self.has_any),
            BinaryOperator::QuestionAnd => Some(&self.has_all),
            // The engine's gives a union of types, which no function takes.
            BinaryOperator::Arrow if is_jsonb(left) => Some(&self.jsonb_member),
            BinaryOperator::Arrow if is_json(left) => Some(&self.json_member),
            BinaryOperator::HashArrow if is_jsonb(left) => Some(&self.path_value),
            BinaryOperator::HashArrow => Some(&self.json_path_value),
            BinaryOperator::HashLongArrow if is_jsonb(left) => Some(&self.path_text),
            BinaryOperator::HashLongArrow => Some(&self.json_path_text),
            _ => None,
        }
    }
}

/// Two operands and their types.
struct Typed {
    left: Expr,
    right: Expr,
    left_type: SqlType,
    right_type: SqlType,
}

impl Typed {
    /// A text constant beside a value of another type is of that type.
    fn with_constants(mut self) -> Self {
        if is_text_constant(&self.right) && !is_text_constant(&self.left) {
            let wanted = self.left_type.clone();
            (self.right, self.right_type) = read_as(self.right, &wanted);
        } else if is_text_constant(&self.left) && !is_text_constant(&self.right) {
            let wanted = self.right_type.clone();
            (self.left, self.left_type) = read_as(self.left, &wanted);
        }
        self
    }

    /// As [`Self::with_constants`], of what is added or taken off: beside a time, what is added is an
    /// interval and what is taken off another time.
    fn with_operands(mut self, op: &BinaryOperator) -> Self {
        use SqlType::{Date, Interval, Timestamp, TimestampTz};
        let beside = |other: &SqlType| match (op, other) {
            (BinaryOperator::Plus, Timestamp | TimestampTz) => Some(Interval),
            (BinaryOperator::Minus, Timestamp | TimestampTz | Date) => Some(other.clone()),
            _ => None,
        };
        if let (true, Some(wanted)) = (is_text_constant(&self.right), beside(&self.left_type)) {
            self.right = cast(self.right, wanted.to_arrow());
            self.right_type = wanted;
        } else if let (true, Some(wanted)) =
            (is_text_constant(&self.left), beside(&self.right_type))
        {
            self.left = cast(self.left, wanted.to_arrow());
            self.left_type = wanted;
        }
        self.with_constants()
    }

    /// A date beside a moment as the moment at which it begins.
    fn with_moments(mut self, schema: &DFSchema) -> Self {
        dates_as_moments([&mut self.left, &mut self.right], schema);
        self
    }

    /// A numeric beside a float as a double precision.
    fn with_floats(mut self) -> Self {
        let is_float = |t: &SqlType| matches!(t, SqlType::Real | SqlType::Double);
        let is_numeric = |t: &SqlType| matches!(t, SqlType::Numeric { .. });
        if is_float(&self.left_type) && is_numeric(&self.right_type) {
            self.right = cast(self.right, DataType::Float64);
            self.right_type = SqlType::Double;
        } else if is_numeric(&self.left_type) && is_float(&self.right_type) {
            self.left = cast(self.left, DataType::Float64);
            self.left_type = SqlType::Double;
        }
        self
    }
}

/// A text constant as a value of a type, and the type that it then has.
fn read_as(constant: Expr, wanted: &SqlType) -> (Expr, SqlType) {
    let read = as_value_of(constant, wanted);
    let found = match &read {
        Expr::Cast(cast) => SqlType::from_field(&cast.field),
        Expr::ScalarFunction(_) => Some(wanted.clone()),
        _ => None,
    };
    (read, found.unwrap_or(SqlType::Text))
}

/// Aggregates that give the same in every order; asked for one, the engine wants their input sorted.
const WITHOUT_ORDER: [&str; 10] = [
    "avg", "bit_and", "bit_or", "bit_xor", "bool_and", "bool_or", "count", "max", "min", "sum",
];

/// An order that changes nothing goes, and distinct elements come in their own, as PostgreSQL sorts
/// them to find the distinct ones.
fn settle_order(aggregate: &mut RawAggregateExpr) {
    let name = aggregate.func.name();
    if !aggregate.distinct {
        if WITHOUT_ORDER.contains(&name) {
            aggregate.order_by.clear();
        }
        return;
    }
    let is_row = |e: &Expr| matches!(e, Expr::ScalarFunction(f) if f.func.name() == "named_struct");
    if matches!(name, "array_agg" | "string_agg")
        && aggregate.order_by.is_empty()
        && let Some(element) = aggregate.args.first()
        && !is_row(element)
    {
        aggregate.order_by = vec![element.clone().sort(true, false)];
    }
}

fn call(function: &Arc<ScalarUDF>, arguments: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), arguments))
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

fn as_type(operand: Expr, sql_type: &SqlType) -> Expr {
    cast(operand, sql_type.to_arrow())
}

fn original(
    op: BinaryOperator,
    left: Expr,
    right: Expr,
) -> DataFusionResult<PlannerResult<RawBinaryExpr>> {
    Ok(PlannerResult::Original(RawBinaryExpr { op, left, right }))
}

fn sql_type_of(expression: &Expr, schema: &DFSchema) -> Option<SqlType> {
    let (_, field) = expression.to_field(schema).ok()?;
    match field.data_type() {
        DataType::Null => None,
        _ => SqlType::from_field(&field),
    }
}

/// `int2vector` and `oidvector` of the catalog, whose places count from 0.
fn is_vector(expression: &Expr, schema: &DFSchema) -> bool {
    let Ok((_, field)) = expression.to_field(schema) else {
        return false;
    };
    let named = field.metadata().get(TYPE_KEY).map(String::as_str);
    matches!(named, Some("int2vector" | "oidvector"))
}

impl ExprPlanner for OperatorPlanner {
    fn plan_binary_op(
        &self,
        expression: RawBinaryExpr,
        schema: &DFSchema,
    ) -> DataFusionResult<PlannerResult<RawBinaryExpr>> {
        let RawBinaryExpr { op, left, right } = expression;
        let (left, right) = (
            with_case_settled(left, schema)?,
            with_case_settled(right, schema)?,
        );
        let types = (sql_type_of(&left, schema), sql_type_of(&right, schema));
        let (Some(left_type), Some(right_type)) = types else {
            return original(op, left, right);
        };
        let typed = Typed {
            left,
            right,
            left_type,
            right_type,
        };
        if let Some(function) = self.jsonb.of(&op, &typed.left_type, &typed.right_type) {
            let operands = match op {
                BinaryOperator::ArrowAt => vec![typed.right, typed.left],
                _ => vec![typed.left, typed.right],
            };
            return Ok(PlannerResult::Planned(call(function, operands)));
        }
        let is_json = matches!(typed.left_type, SqlType::Json | SqlType::Jsonb);
        if is_json && op == BinaryOperator::LongArrow && typed.right_type == SqlType::Integer {
            // The engine's takes a place as a bigint only.
            return original(op, typed.left, cast(typed.right, DataType::Int64));
        }
        match op {
            BinaryOperator::Eq
            | BinaryOperator::NotEq
            | BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq => Ok(PlannerResult::Original(
                self.compared(typed.with_constants().with_moments(schema), op),
            )),
            BinaryOperator::Plus
            | BinaryOperator::Minus
            | BinaryOperator::Multiply
            | BinaryOperator::Divide
            | BinaryOperator::Modulo => self.computed(typed.with_operands(&op), op),
            BinaryOperator::And | BinaryOperator::Or | BinaryOperator::Spaceship => {
                let typed = typed.with_constants();
                original(op, typed.left, typed.right)
            }
            BinaryOperator::AtArrow | BinaryOperator::ArrowAt => {
                let typed = typed.with_constants();
                original(op, typed.left, typed.right)
            }
            BinaryOperator::PGOverlap => {
                let typed = typed.with_constants();
                let operands = vec![typed.left, typed.right];
                Ok(PlannerResult::Planned(call(
                    &datafusion::functions_nested::array_has::array_has_any_udf(),
                    operands,
                )))
            }
            _ => original(op, typed.left, typed.right),
        }
    }

    fn plan_aggregate(
        &self,
        mut aggregate: RawAggregateExpr,
    ) -> DataFusionResult<PlannerResult<RawAggregateExpr>> {
        // What GROUPING looks for are the groups as they are called.
        if aggregate.func.name() != "grouping" {
            aggregate.args = self.named(aggregate.args)?;
        }
        settle_order(&mut aggregate);
        Ok(PlannerResult::Original(aggregate))
    }

    fn plan_array_literal(
        &self,
        mut elements: Vec<Expr>,
        schema: &DFSchema,
    ) -> DataFusionResult<PlannerResult<Vec<Expr>>> {
        settle_array(&mut elements, schema)?;
        Ok(PlannerResult::Planned(call(&self.make_array, elements)))
    }

    fn plan_field_access(
        &self,
        access: RawFieldAccessExpr,
        schema: &DFSchema,
    ) -> DataFusionResult<PlannerResult<RawFieldAccessExpr>> {
        if sql_type_of(&access.expr, schema) == Some(SqlType::Jsonb) {
            let key = match &access.field_access {
                GetFieldAccess::ListIndex { key } => Some(key.as_ref().clone()),
                GetFieldAccess::NamedStructField { name } => {
                    Some(Expr::Literal(name.clone(), None))
                }
                GetFieldAccess::ListRange { .. } => None,
            };
            if let Some(key) = key {
                let member = &self.jsonb.jsonb_member;
                return Ok(PlannerResult::Planned(call(member, vec![access.expr, key])));
            }
        }
        let is_aggregate = matches!(&access.expr, Expr::AggregateFunction(_));
        let is_vector = is_vector(&access.expr, schema);
        match access.field_access {
            GetFieldAccess::ListIndex { key } if is_vector => {
                let element = datafusion::functions_nested::expr_fn::array_element;
                let place = binary(cast(*key, DataType::Int64), Operator::Plus, lit(1i64));
                Ok(PlannerResult::Planned(element(access.expr, place)))
            }
            GetFieldAccess::ListIndex { key } if is_aggregate => {
                let element = datafusion::functions_nested::expr_fn::array_element;
                Ok(PlannerResult::Planned(element(access.expr, *key)))
            }
            field_access => Ok(PlannerResult::Original(RawFieldAccessExpr {
                expr: access.expr,
                field_access,
            })),
        }
    }

    fn plan_window(
        &self,
        mut window: RawWindowExpr,
    ) -> DataFusionResult<PlannerResult<RawWindowExpr>> {
        window.args = self.named(window.args)?;
        Ok(exclusions::planned(window))
    }
}
