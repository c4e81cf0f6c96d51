//! Parameters: what `$1…` are, and plans with their values in place.
//!
//! A parameter's SQL type goes with its value all the way, since Arrow alone tells neither a uuid
//! from bytes nor jsonb from text. Statements are planned with the known types of their parameters
//! (as `PREPARE name (types)` does); what the client leaves open is inferred from where the
//! parameter stands, by PostgreSQL's rules, and text where nothing tells.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::ops::ControlFlow;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::metadata::{FieldMetadata, ScalarAndMetadata};
use datafusion::common::{ParamValues, ScalarValue};
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast::{self, Visit, VisitMut, Visitor, VisitorMut};

use super::planning::{analyzed, output_schema};
use super::{functions, origins, siblings};
use crate::error::{Error, Result, sqlstate};
use crate::types::SqlType;

/// The value of a parameter, with its type.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameter {
    /// of the type's Arrow type
    pub value: ScalarValue,
    /// type
    pub sql_type: SqlType,
}

impl Parameter {
    /// A value of a type.
    pub fn new(value: ScalarValue, sql_type: SqlType) -> Self {
        Self { value, sql_type }
    }

    /// A value whose Arrow type tells its SQL type; text where there is none.
    pub fn untyped(value: ScalarValue) -> Self {
        let sql_type = SqlType::from_arrow(&value.data_type()).unwrap_or(SqlType::Text);
        Self { value, sql_type }
    }

    /// NULL of a type.
    pub fn null(sql_type: SqlType) -> Result<Self> {
        let value = ScalarValue::try_from(&sql_type.to_arrow())?;
        Ok(Self { value, sql_type })
    }

    fn with_metadata(&self) -> ScalarAndMetadata {
        let field = self.sql_type.to_field("", true);
        let metadata = FieldMetadata::new_from_field(&field);
        ScalarAndMetadata::new(self.value.clone(), Some(metadata))
    }
}

/// A plan whose parameters stand in an order of their own.
#[derive(Debug, Clone)]
pub(super) struct Typed {
    plan: LogicalPlan,
    /// 0-based number in the statement of each of the plan's parameters.
    order: Vec<usize>,
}

impl Typed {
    /// Plans a statement, unoptimized, with the types of its parameters as far as they are known.
    pub async fn plan(
        state: &SessionState,
        mut statement: ast::Statement,
        types: &[Option<SqlType>],
    ) -> Result<Self> {
        let used = placeholders(&statement)?;
        let syntax = |index: usize| types.get(index)?.as_ref().and_then(syntax_of);
        let (known, unknown): (Vec<usize>, Vec<usize>) = used
            .into_iter()
            .map(|number| number - 1)
            .partition(|index| syntax(*index).is_some());
        let data_types: Vec<ast::DataType> = known.iter().filter_map(|i| syntax(*i)).collect();
        let order: Vec<usize> = known.into_iter().chain(unknown).collect();
        renumber(&mut statement, &order);
        let plan = functions::plan(state, statement, data_types).await?.plan;
        Ok(Self { plan, order })
    }

    /// Puts values in the place of the parameters.
    pub fn bind(self, parameters: &[Parameter]) -> Result<LogicalPlan> {
        if self.order.is_empty() {
            return Ok(self.plan);
        }
        let values = self.order.iter().map(|index| {
            let value = parameters.get(*index);
            let value = value.ok_or_else(|| undefined_parameter(format!("${}", index + 1)))?;
            Ok(value.with_metadata())
        });
        let values = values.collect::<Result<Vec<_>>>()?;
        Ok(self.plan.with_param_values(ParamValues::List(values))?)
    }

    /// The plan after a step that keeps its parameters.
    pub fn try_map(self, step: impl FnOnce(LogicalPlan) -> Result<LogicalPlan>) -> Result<Self> {
        let plan = step(self.plan)?;
        Ok(Self { plan, ..self })
    }

    /// What the plan tells of parameters without a type.
    fn infer(&self, types: &mut [Option<SqlType>]) -> Result<()> {
        for (id, field) in self.plan.get_parameter_fields()? {
            let index = parameter_index(&id)?;
            let slot = self.order.get(index).and_then(|at| types.get_mut(*at));
            if let (Some(slot @ None), Some(field)) = (slot, field) {
                *slot = SqlType::from_field(&field);
            }
        }
        Ok(())
    }
}

/// Plans a statement with its parameters' values in place.
pub(super) async fn plan_with_values(
    state: &SessionState,
    statement: ast::Statement,
    parameters: &[Parameter],
) -> Result<LogicalPlan> {
    let types: Vec<Option<SqlType>> = parameters
        .iter()
        .map(|parameter| Some(parameter.sql_type.clone()))
        .collect();
    Typed::plan(state, statement, &types)
        .await?
        .bind(parameters)
}

/// What a query's parameters and columns are. Declared types win over inferred ones.
pub(super) async fn describe_query(
    state: &SessionState,
    statement: ast::Statement,
    declared: &[Option<SqlType>],
) -> Result<(Vec<SqlType>, SchemaRef)> {
    let mut types = slots(&statement, declared)?;
    take_cast_types(&statement, &mut types);
    take_limit_types(&statement, &mut types);
    siblings::take_plain_types(&statement, &mut types);
    let mut probe = statement.clone();
    let sets = set_parameters(&mut probe, &types);
    // What stands beside a parameter tells its type; the rest is told by the statement as it is.
    let mut beside = probe.clone();
    if siblings::compare_siblings(&mut beside, &types)
        && let Ok(typed) = Typed::plan(state, beside, &types).await
    {
        typed.infer(&mut types)?;
    }
    let typed = probed(state, probe, &mut types).await?;
    typed.infer(&mut types)?;
    for index in &sets {
        if let Some(slot) = types.get_mut(*index) {
            let item = slot.take().unwrap_or(SqlType::Text);
            *slot = Some(SqlType::Array(Box::new(item)));
        }
    }
    let types: Vec<SqlType> = texts_for_unknown(&types).into_iter().flatten().collect();
    let nulls = types.iter().cloned().map(Parameter::null);
    let nulls = nulls.collect::<Result<Vec<_>>>()?;
    let plan = match sets.is_empty() {
        true => typed.bind(&nulls)?,
        false => plan_with_values(state, statement, &nulls).await?,
    };
    let columns = output_schema(&analyzed(state, plan.clone())?);
    Ok((types, origins::marked(columns, &plan, state)))
}

/// A place for the type of each parameter that is declared or used, with the declared ones in it.
pub(super) fn slots(
    statement: &ast::Statement,
    declared: &[Option<SqlType>],
) -> Result<Vec<Option<SqlType>>> {
    let used = placeholders(statement)?.into_iter().max();
    let mut types = declared.to_vec();
    types.resize(used.unwrap_or(0).max(declared.len()), None);
    Ok(types)
}

/// Plans a statement some of whose parameters have no type; one that cannot be planned so is tried
/// with what PostgreSQL would choose.
async fn probed(
    state: &SessionState,
    statement: ast::Statement,
    types: &mut Vec<Option<SqlType>>,
) -> Result<Typed> {
    let error = match Typed::plan(state, statement.clone(), types).await {
        Ok(typed) => return Ok(typed),
        Err(error) if types.iter().all(Option::is_some) => return Err(error),
        Err(error) => error,
    };
    // `timestamp + $1`: of what may be added to a time, an interval is preferred.
    let mut guessed = types.clone();
    for index in added_parameters(&statement) {
        if let Some(slot @ None) = guessed.get_mut(index) {
            *slot = Some(SqlType::Interval);
        }
    }
    for guess in [
        guessed.clone(),
        texts_for_unknown(&guessed),
        texts_for_unknown(types),
    ] {
        if let Ok(typed) = Typed::plan(state, statement.clone(), &guess).await {
            *types = guess;
            return Ok(typed);
        }
    }
    Err(error)
}

/// Parameters that stand beside a `+`.
fn added_parameters(statement: &ast::Statement) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let walked = ast::visit_expressions(statement, |expr| {
        if let ast::Expr::BinaryOp {
            left,
            op: ast::BinaryOperator::Plus,
            right,
        } = expr
        {
            found.extend(
                [left, right]
                    .into_iter()
                    .filter_map(|side| placeholder(side)),
            );
        }
        ControlFlow::<()>::Continue(())
    });
    assert!(walked.is_continue(), "the search never stops early");
    found
}

/// Parameters without a type in `x op ANY ($n)`: the statement is made to compare `x` with them, so
/// that planning infers the type of their items.
fn set_parameters(statement: &mut ast::Statement, types: &[Option<SqlType>]) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let walked = ast::visit_expressions_mut(statement, |expr| {
        let (ast::Expr::AnyOp {
            left,
            compare_op,
            right,
            ..
        }
        | ast::Expr::AllOp {
            left,
            compare_op,
            right,
        }) = expr
        else {
            return ControlFlow::<()>::Continue(());
        };
        if let Some(index) = placeholder(right)
            && matches!(types.get(index), Some(None))
        {
            found.insert(index);
            *expr = ast::Expr::BinaryOp {
                left: left.clone(),
                op: compare_op.clone(),
                right: right.clone(),
            };
        }
        ControlFlow::Continue(())
    });
    assert!(walked.is_continue(), "the search never stops early");
    found
}

/// The 0-based number of a parameter that stands alone.
pub(crate) fn placeholder(expr: &ast::Expr) -> Option<usize> {
    match expr {
        ast::Expr::Nested(inner) => placeholder(inner),
        ast::Expr::Value(value) => match &value.value {
            ast::Value::Placeholder(id) => parameter_index(id).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// A parameter that is cast where it stands, as in `$1::bigint`, has that type.
fn take_cast_types(statement: &ast::Statement, types: &mut [Option<SqlType>]) {
    let walked = ast::visit_expressions(statement, |expr| {
        if let ast::Expr::Cast {
            expr, data_type, ..
        } = expr
            && let Some(index) = placeholder(expr)
            && let Some(slot @ None) = types.get_mut(index)
        {
            // Types of the catalog (regclass, …) say nothing of the value: text is taken.
            *slot = crate::sql::data_types::sql_type(data_type).ok();
        }
        ControlFlow::<()>::Continue(())
    });
    assert!(walked.is_continue(), "the search never stops early");
}

/// `LIMIT $1` and `OFFSET $1` count rows.
fn take_limit_types(statement: &ast::Statement, types: &mut [Option<SqlType>]) {
    struct Limits<'a>(&'a mut [Option<SqlType>]);
    impl Visitor for Limits<'_> {
        type Break = ();
        fn pre_visit_query(&mut self, query: &ast::Query) -> ControlFlow<()> {
            let (limit, offset) = match &query.limit_clause {
                Some(ast::LimitClause::LimitOffset { limit, offset, .. }) => {
                    (limit.as_ref(), offset.as_ref().map(|o| &o.value))
                }
                Some(ast::LimitClause::OffsetCommaLimit { offset, limit }) => {
                    (Some(limit), Some(offset))
                }
                None => (None, None),
            };
            let fetch = query.fetch.as_ref().and_then(|f| f.quantity.as_ref());
            for expr in [limit, offset, fetch].into_iter().flatten() {
                if let Some(index) = placeholder(expr)
                    && let Some(slot @ None) = self.0.get_mut(index)
                {
                    *slot = Some(SqlType::BigInt);
                }
            }
            ControlFlow::Continue(())
        }
    }
    let walked = statement.visit(&mut Limits(types));
    assert!(walked.is_continue(), "the search never stops early");
}

fn texts_for_unknown(types: &[Option<SqlType>]) -> Vec<Option<SqlType>> {
    types
        .iter()
        .map(|t| Some(t.clone().unwrap_or(SqlType::Text)))
        .collect()
}

/// Numbers, from 1, of the parameters that a statement uses.
pub(super) fn placeholders(statement: &impl Visit) -> Result<BTreeSet<usize>> {
    struct Finder(BTreeSet<usize>);
    impl Visitor for Finder {
        type Break = Error;
        fn pre_visit_value(&mut self, value: &ast::ValueWithSpan) -> ControlFlow<Error> {
            if let ast::Value::Placeholder(id) = &value.value {
                match parameter_index(id) {
                    Ok(index) => {
                        self.0.insert(index + 1);
                    }
                    Err(error) => return ControlFlow::Break(error),
                }
            }
            ControlFlow::Continue(())
        }
    }
    let mut finder = Finder(BTreeSet::new());
    match statement.visit(&mut finder) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(finder.0),
    }
}

/// Gives parameter `order[n]` the number n; both from 0.
fn renumber(statement: &mut ast::Statement, order: &[usize]) {
    struct Renumber(BTreeMap<String, String>);
    impl VisitorMut for Renumber {
        type Break = ();
        fn pre_visit_value(&mut self, value: &mut ast::ValueWithSpan) -> ControlFlow<()> {
            if let ast::Value::Placeholder(id) = &mut value.value
                && let Some(number) = self.0.get(id)
            {
                id.clone_from(number);
            }
            ControlFlow::Continue(())
        }
    }
    let numbers = order.iter().enumerate();
    let numbers = numbers.map(|(new, old)| (format!("${}", old + 1), format!("${}", new + 1)));
    let walked = statement.visit(&mut Renumber(numbers.collect()));
    assert!(walked.is_continue(), "the renumbering never stops early");
}

/// `$n` to its 0-based index.
pub(super) fn parameter_index(id: &str) -> Result<usize> {
    id.strip_prefix('$')
        .and_then(|digits| digits.parse::<usize>().ok())
        .and_then(|number| number.checked_sub(1))
        .ok_or_else(|| undefined_parameter(id))
}

/// 42P02; `id` as it is written, such as `$1`.
pub(super) fn undefined_parameter(id: impl Display) -> Error {
    Error::new(
        sqlstate::UNDEFINED_PARAMETER,
        format!("there is no parameter {id}"),
    )
}

/// A type as the parser writes it; `None` for one that has no such form.
fn syntax_of(sql_type: &SqlType) -> Option<ast::DataType> {
    use ast::{DataType as T, ExactNumberInfo, TimezoneInfo};
    Some(match sql_type {
        SqlType::Boolean => T::Boolean,
        SqlType::SmallInt => T::SmallInt(None),
        SqlType::Integer => T::Integer(None),
        SqlType::BigInt => T::BigInt(None),
        SqlType::Real => T::Real,
        SqlType::Double => T::DoublePrecision,
        SqlType::Numeric { precision, scale } => T::Numeric(ExactNumberInfo::PrecisionAndScale(
            u64::from(*precision),
            i64::from(*scale),
        )),
        SqlType::Text => T::Text,
        SqlType::Bytea => T::Bytea,
        SqlType::Date => T::Date,
        SqlType::Time => T::Time(None, TimezoneInfo::None),
        SqlType::Timestamp => T::Timestamp(None, TimezoneInfo::None),
        SqlType::TimestampTz => T::Timestamp(None, TimezoneInfo::WithTimeZone),
        SqlType::Interval => T::Interval {
            fields: None,
            precision: None,
        },
        SqlType::Uuid => T::Uuid,
        SqlType::Json => T::JSON,
        SqlType::Jsonb => T::JSONB,
        SqlType::Array(item) => T::Array(ast::ArrayElemTypeDef::SquareBracket(
            Box::new(syntax_of(item)?),
            None,
        )),
        SqlType::Struct(_) => return None,
    })
}

/// Values cast to the types that a statement's description gave.
pub(super) fn cast_values(values: &[ScalarValue], types: &[SqlType]) -> Result<Vec<Parameter>> {
    values
        .iter()
        .zip(types)
        .map(|(value, sql_type)| {
            let wanted = sql_type.to_arrow();
            let value = match value.data_type() == wanted {
                true => value.clone(),
                false => value.cast_to(&wanted)?,
            };
            Ok(Parameter::new(value, sql_type.clone()))
        })
        .collect()
}
