//! What hangs on the session's time zone, under another one than UTC: the analyzer rule that reads
//! and shows `timestamptz` by the clocks of that zone, as PostgreSQL does.
//!
//! ```text
//! t::date, t::timestamp, t::time      →  of timezone(zone, t)
//! d::timestamptz                      →  timezone(zone, d), also where the engine put the cast in
//! date_trunc, to_char, t ± interval   →  the same with the zone (functions::zoned)
//! extract, date_part, age             →  of timezone(zone, t)
//! to_timestamp(text, template)        →  the time that the zone's clocks show
//! to_json(t), jsonb_build_object(…)   →  of the text with the zone's offset
//! ```
//! Casts from and to text know the zone by themselves ([`crate::sql::functions::texts`]). The rule
//! runs when all types are settled, and finds nothing more in a plan that it has been over. A plan
//! has the zones that it was made with in its expressions: a materialized view keeps the zone of the
//! session that created it. Absent: `timestamptz` within arrays and rows that become JSON, frames
//! `RANGE` over days, windows of time (`tumble`, …), which all begin by UTC.

use std::mem::take;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::{ConfigExtension, ConfigOptions};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result as DataFusionResult, ScalarValue, extensions_options};
use datafusion::execution::SessionState;
use datafusion::functions::datetime::now::NowFunc;
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, LogicalPlan, Operator, ScalarUDF, cast, lit,
};
use datafusion::optimizer::AnalyzerRule;

use crate::sql::functions::zoned::{self, Zoned};
use crate::sql::functions::{characters, intervals, times};
use crate::sql::typed_expressions;
use crate::values::zones;

extensions_options! {
    /// What a statement is planned under.
    pub(crate) struct PlanningOptions {
        /// the time zone; as PostgreSQL's `TimeZone`
        pub time_zone: String, default = "UTC".to_owned()
    }
}

impl ConfigExtension for PlanningOptions {
    const PREFIX: &'static str = "tidemill";
}

/// The time zone that statements are planned under.
pub(crate) fn time_zone(options: &ConfigOptions) -> &str {
    options
        .extensions
        .get::<PlanningOptions>()
        .map_or("UTC", |planning| planning.time_zone.as_str())
}

/// A state that plans under a time zone; `None`: UTC.
pub(crate) fn in_time_zone(mut state: SessionState, zone: Option<&str>) -> SessionState {
    let wanted = zone.filter(|zone| !zones::is_utc(zone)).unwrap_or("UTC");
    if time_zone(state.config_options()) != wanted {
        let planning = PlanningOptions {
            time_zone: wanted.to_owned(),
        };
        let options = state.config_mut().options_mut();
        options.extensions.insert(planning);
    }
    state
}

/// JSON of values that are given one by one.
const TO_JSON: [&str; 7] = [
    "to_json",
    "json_item",
    "to_jsonb",
    "json_build_array",
    "jsonb_build_array",
    "json_build_object",
    "jsonb_build_object",
];

/// The rule.
#[derive(Debug, Default)]
pub(crate) struct LocalTimes;

impl AnalyzerRule for LocalTimes {
    fn name(&self) -> &str {
        "local_times"
    }

    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> DataFusionResult<LogicalPlan> {
        let zone = time_zone(options);
        if zones::is_utc(zone) {
            return Ok(plan);
        }
        let now = NowFunc::new_with_config(options);
        let clocks = Clocks {
            zone,
            now: Arc::new(ScalarUDF::new_from_impl(now)),
        };
        plan.transform_up_with_subqueries(|plan| clocks.rewrite_plan(plan))
            .map(|t| t.data)
    }
}

/// The clocks of a time zone.
struct Clocks<'a> {
    zone: &'a str,
    now: Arc<ScalarUDF>,
}

impl Clocks<'_> {
    fn rewrite_plan(&self, plan: LogicalPlan) -> DataFusionResult<Transformed<LogicalPlan>> {
        typed_expressions::rewrite(plan, |e, schema| self.rewrite(e, schema))?
            .map_data(LogicalPlan::recompute_schema)
    }

    fn rewrite(&self, expression: Expr, schema: &DFSchema) -> DataFusionResult<Transformed<Expr>> {
        Ok(match expression {
            Expr::Cast(cast) => self.of_cast(cast, schema),
            Expr::BinaryExpr(operation) => self.of_operation(operation, schema),
            Expr::ScalarFunction(function) => self.of_call(function, schema)?,
            other => Transformed::no(other),
        })
    }

    fn of_cast(&self, cast: Cast, schema: &DFSchema) -> Transformed<Expr> {
        let Cast { expr, field } = cast;
        let to = field.data_type();
        let operand = match expr.get_type(schema) {
            Ok(from) if is_moment(&from) && is_wall(to) => self.wall(*expr),
            Ok(from) if is_wall(&from) && is_moment(to) => self.moment(*expr),
            _ => return Transformed::no(Expr::Cast(Cast { expr, field })),
        };
        let expr = Box::new(operand);
        Transformed::yes(Expr::Cast(Cast { expr, field }))
    }

    fn of_operation(&self, operation: BinaryExpr, schema: &DFSchema) -> Transformed<Expr> {
        let (left, right) = (
            operation.left.get_type(schema),
            operation.right.get_type(schema),
        );
        let (Ok(left), Ok(right)) = (left, right) else {
            return Transformed::no(Expr::BinaryExpr(operation));
        };
        let is_interval = |t: &DataType| matches!(t, DataType::Interval(_));
        let BinaryExpr {
            left: first,
            op,
            right: second,
        } = operation;
        Transformed::yes(match op {
            Operator::Plus if is_moment(&left) && is_interval(&right) => {
                self.later(*first, *second)
            }
            Operator::Plus if is_interval(&left) && is_moment(&right) => {
                self.later(*second, *first)
            }
            Operator::Minus if is_moment(&left) && is_interval(&right) => {
                self.later(*first, Expr::Negative(second))
            }
            _ => {
                return Transformed::no(Expr::BinaryExpr(BinaryExpr::new(first, op, second)));
            }
        })
    }

    fn of_call(
        &self,
        mut function: ScalarFunction,
        schema: &DFSchema,
    ) -> DataFusionResult<Transformed<Expr>> {
        let is_moment = |e: &Expr| e.get_type(schema).is_ok_and(|t| is_moment(&t));
        let of_moment = function.args.iter().any(is_moment);
        let name = function.func.name().to_owned();
        let args = &mut function.args;
        let rewritten = match (name.as_str(), args.len()) {
            ("date_trunc", 2) if of_moment => self.zoned(Zoned::Truncated, take(args)),
            ("to_char", 2) if of_moment => self.zoned(Zoned::Characters, take(args)),
            ("extract_field", 2) if of_moment => self.extracted(function),
            ("age", 2) if of_moment => {
                function.args = take(args).into_iter().map(|a| self.wall(a)).collect();
                Expr::ScalarFunction(function)
            }
            ("generate_series_array", 3) | ("make_timestamptz", 6)
                if of_moment || name == "make_timestamptz" =>
            {
                args.push(self.zone());
                Expr::ScalarFunction(function)
            }
            // The engine's name of what was read would be found again.
            ("to_timestamp", 2) => self.moment(call(characters::read_wall(), take(args))),
            ("current_date" | "current_time", 0) => {
                let now = call(Arc::clone(&self.now), Vec::new());
                let shown = function.func.return_type(&[])?;
                cast(self.wall(now), shown)
            }
            (name, _) if TO_JSON.contains(&name) && of_moment => {
                for argument in args.iter_mut().filter(|a| is_moment(a)) {
                    let moment = cast(take(argument), moment_type());
                    *argument = self.zoned(Zoned::Iso, vec![moment]);
                }
                Expr::ScalarFunction(function)
            }
            _ => return Ok(Transformed::no(Expr::ScalarFunction(function))),
        };
        Ok(Transformed::yes(rewritten))
    }

    /// `extract(field FROM moment)`: the seconds since 1970 are everyone's.
    fn extracted(&self, mut function: ScalarFunction) -> Expr {
        let name = match function.args.first() {
            Some(Expr::Literal(ScalarValue::Utf8(Some(name)), _)) => name.trim().to_lowercase(),
            _ => String::new(),
        };
        let Some(moment) = function.args.pop() else {
            return Expr::ScalarFunction(function);
        };
        let offset_s = |moment| self.zoned(Zoned::Offset, vec![cast(moment, moment_type())]);
        let offset = match name.as_str() {
            "epoch" => {
                function.args.push(moment);
                return Expr::ScalarFunction(function);
            }
            "timezone" => offset_s(moment),
            "timezone_hour" => offset_s(moment) / lit(3600_i64),
            "timezone_minute" => offset_s(moment) / lit(60_i64) % lit(60_i64),
            _ => {
                function.args.push(self.wall(moment));
                return Expr::ScalarFunction(function);
            }
        };
        cast(offset, DataType::Decimal128(24, 0))
    }

    fn zone(&self) -> Expr {
        Expr::Literal(ScalarValue::Utf8(Some(self.zone.to_owned())), None)
    }

    /// What the clocks show at a moment.
    fn wall(&self, moment: Expr) -> Expr {
        let moment = cast(moment, moment_type());
        call(times::time_zone(), vec![self.zone(), moment])
    }

    /// The moment at which the clocks show a time, or the beginning of a day.
    fn moment(&self, wall: Expr) -> Expr {
        let wall = cast(wall, DataType::Timestamp(TimeUnit::Microsecond, None));
        call(times::time_zone(), vec![self.zone(), wall])
    }

    fn later(&self, moment: Expr, interval: Expr) -> Expr {
        let moment = cast(moment, moment_type());
        let interval = cast(interval, intervals::INTERVAL);
        self.zoned(Zoned::Later, vec![moment, interval])
    }

    fn zoned(&self, zoned: Zoned, mut arguments: Vec<Expr>) -> Expr {
        arguments.push(self.zone());
        call(zoned::function(zoned), arguments)
    }
}

fn call(function: Arc<ScalarUDF>, arguments: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments))
}

fn moment_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// `timestamptz`
fn is_moment(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(_, Some(_)))
}

/// What clocks and calendars show.
fn is_wall(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Timestamp(_, None) | DataType::Date32 | DataType::Time64(_)
    )
}
