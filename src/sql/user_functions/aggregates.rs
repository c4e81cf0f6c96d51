//! Aggregates in SQL, as the planner and the operators know them.
//!
//! ```text
//!   rows of a group, ordered ──► state = transition(state, arguments) … ──► last(state)
//! ```
//! The transition function is no part of the query's plan: it is compiled by itself and applied row
//! by row. So an aggregate runs wherever DataFusion's aggregates do, and in a materialized view the
//! rows of a group are kept and the touched groups folded again. Absent: windows, whose frames would
//! be folded in another order.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, SchemaRef};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::sql::sqlparser::ast::{Expr, Function, Ident, ObjectName, VisitMut, VisitorMut};

use super::calls::{Visible, own_name};
use super::distance;
use super::fold::Fold;
use crate::catalog::function::{FunctionDefinition, FunctionResult, bare_type};
use crate::error::{Error, Result, sqlstate};
use crate::types::SqlType;

/// A function, compiled over a batch of its arguments.
#[derive(Debug, Clone)]
pub(crate) struct Step {
    /// what it computes
    pub expression: Arc<dyn PhysicalExpr>,
    /// its arguments
    pub schema: SchemaRef,
    /// a NULL argument gives NULL without a call
    pub is_strict: bool,
}

/// An aggregate whose functions are compiled.
#[derive(Debug)]
pub(crate) struct PlannedAggregate {
    /// what the user created
    pub definition: Arc<FunctionDefinition>,
    /// state and arguments to state
    pub transition: Step,
    /// state to result
    pub last: Option<Step>,
    /// the state of no rows
    pub initial: ScalarValue,
    /// whether the functions' values change by themselves
    pub volatility: Volatility,
    /// the functions that it calls, at any depth
    pub calls: Vec<Arc<FunctionDefinition>>,
}

/// All aggregates of one name.
#[derive(Debug)]
struct Aggregates {
    name: String,
    signature: Signature,
    overloads: Vec<Arc<PlannedAggregate>>,
}

/// The aggregates of one name for the planner.
pub(crate) fn aggregate(name: &str, overloads: Vec<Arc<PlannedAggregate>>) -> AggregateUDF {
    let volatilities = overloads.iter().map(|overload| overload.volatility);
    let volatility = volatilities.max().unwrap_or(Volatility::Immutable);
    AggregateUDF::new_from_impl(Aggregates {
        name: name.to_owned(),
        signature: Signature::user_defined(volatility),
        overloads,
    })
}

/// The aggregates that a tree calls, by name; their calls get the name that the planner knows.
pub(crate) fn mark_aggregates(
    tree: &mut impl VisitMut,
    visible: &Visible,
) -> Result<BTreeSet<String>> {
    let mut marking = Marking {
        visible,
        called: BTreeSet::new(),
    };
    if visible.is_empty() {
        return Ok(marking.called);
    }
    match tree.visit(&mut marking) {
        ControlFlow::Continue(()) => Ok(marking.called),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Marking<'a> {
    visible: &'a Visible,
    called: BTreeSet<String>,
}

impl VisitorMut for Marking<'_> {
    type Break = Error;

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Error> {
        let Expr::Function(function) = expression else {
            return ControlFlow::Continue(());
        };
        let Some(name) = own_name(&function.name).filter(|n| self.visible.contains_key(n)) else {
            return ControlFlow::Continue(());
        };
        if let Some(error) = refused_clause(&name, function) {
            return ControlFlow::Break(error);
        }
        function.name = ObjectName::from(vec![Ident::with_quote('"', name.clone())]);
        self.called.insert(name);
        ControlFlow::Continue(())
    }
}

fn refused_clause(name: &str, function: &Function) -> Option<Error> {
    if function.over.is_some() {
        let error = format!("aggregate {name} cannot be used as a window function");
        return Some(
            Error::unsupported(error)
                .hint("Group by what the window is partitioned by, and join the result."),
        );
    }
    if !function.within_group.is_empty() {
        return Some(Error::new(
            sqlstate::WRONG_OBJECT_TYPE,
            format!("{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP"),
        ));
    }
    None
}

impl Aggregates {
    /// The aggregate that arguments of these types mean.
    fn chosen(&self, types: &[DataType]) -> Result<&Arc<PlannedAggregate>> {
        let costs = self.overloads.iter().filter_map(|overload| {
            let parameters = &overload.definition.parameters;
            let costs = parameters.iter().zip(types);
            let costs = costs.map(|(parameter, given)| cost(given, &parameter.sql_type));
            let is_called = parameters.len() == types.len();
            Some((costs.sum::<Option<u32>>().filter(|_| is_called)?, overload))
        });
        let mut costs: Vec<_> = costs.collect();
        costs.sort_by_key(|(cost, _)| *cost);
        match costs.as_slice() {
            [] => Err(self.undefined(types)),
            [(first, _), (second, _), ..] if first == second => Err(Error::new(
                sqlstate::AMBIGUOUS_FUNCTION,
                format!("function {} is not unique", self.call_text(types)),
            )
            .hint("You might need to add explicit type casts.")),
            [(_, chosen), ..] => Ok(chosen),
        }
    }

    fn call_text(&self, types: &[DataType]) -> String {
        let name = |t: &DataType| {
            SqlType::from_arrow(t).map_or_else(|| "unknown".to_owned(), |t| bare_type(&t))
        };
        let types: Vec<String> = types.iter().map(name).collect();
        format!("{}({})", self.name, types.join(", "))
    }

    fn undefined(&self, types: &[DataType]) -> Error {
        Error::new(
            sqlstate::UNDEFINED_FUNCTION,
            format!("function {} does not exist", self.call_text(types)),
        )
        .hint("No aggregate matches the given name and argument types. You might need to add explicit type casts.")
    }
}

/// How far an argument is from a parameter; `None` if it cannot be meant.
fn cost(given: &DataType, parameter: &SqlType) -> Option<u32> {
    /// From here on only a literal is converted, which is none any more here.
    const LITERALS: u32 = 10;
    if *given == parameter.to_arrow() {
        return Some(0);
    }
    let field: FieldRef = Arc::new(Field::new("argument", given.clone(), true));
    distance(&field, parameter).filter(|cost| *cost < LITERALS)
}

/// What an aggregate gives.
fn result_of(definition: &FunctionDefinition) -> Result<&SqlType> {
    match &definition.result {
        FunctionResult::Value(sql_type) => Ok(sql_type),
        _ => Err(Error::internal("an aggregate gives one value")),
    }
}

impl PartialEq for Aggregates {
    fn eq(&self, other: &Self) -> bool {
        let definitions = |a: &Self| -> Vec<Arc<FunctionDefinition>> {
            a.overloads
                .iter()
                .flat_map(|o| std::iter::once(&o.definition).chain(&o.calls))
                .cloned()
                .collect()
        };
        self.name == other.name && definitions(self) == definitions(other)
    }
}

impl Eq for Aggregates {}

impl Hash for Aggregates {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl AggregateUDFImpl for Aggregates {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> DataFusionResult<DataType> {
        Ok(result_of(&self.chosen(types)?.definition)?.to_arrow())
    }

    fn return_field(&self, arguments: &[FieldRef]) -> DataFusionResult<FieldRef> {
        let types: Vec<DataType> = arguments.iter().map(|f| f.data_type().clone()).collect();
        let result = result_of(&self.chosen(&types)?.definition)?;
        Ok(Arc::new(result.to_field(&self.name, true)))
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        let chosen = self.chosen(types)?;
        let parameters = chosen.definition.parameters.iter();
        Ok(parameters.map(|p| p.sql_type.to_arrow()).collect())
    }

    fn accumulator(
        &self,
        arguments: AccumulatorArgs<'_>,
    ) -> DataFusionResult<Box<dyn Accumulator>> {
        let fields = arguments.expr_fields.iter();
        let types: Vec<DataType> = fields.map(|f| f.data_type().clone()).collect();
        let chosen = Arc::clone(self.chosen(&types)?);
        Ok(Box::new(Fold::try_new(chosen, types, &arguments)?))
    }

    /// All rows: a fold can neither be begun in two places nor joined.
    fn state_fields(&self, arguments: StateFieldsArgs<'_>) -> DataFusionResult<Vec<FieldRef>> {
        let fields = arguments
            .input_fields
            .iter()
            .chain(arguments.ordering_fields);
        let fields = fields.enumerate().map(|(index, field)| {
            let name = format!("{} rows {index}", arguments.name);
            let items = Field::new_list_field(field.data_type().clone(), true);
            Arc::new(Field::new(name, DataType::List(Arc::new(items)), true))
        });
        Ok(fields.collect())
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        // The fold puts its rows in order by itself.
        AggregateOrderSensitivity::Beneficial
    }

    fn with_beneficial_ordering(
        self: Arc<Self>,
        _is_ordered: bool,
    ) -> DataFusionResult<Option<Arc<dyn AggregateUDFImpl>>> {
        Ok(Some(self))
    }
}
