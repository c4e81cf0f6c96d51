//! Translation of what works on rows in order: LIMIT, row numbers with a bound, window functions.

use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{
    BinaryExpr, Expr, FetchType, Filter, Limit, LogicalPlan, Operator, Projection, SkipType,
    SortExpr, Window, WindowFunctionDefinition,
};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_planner::create_window_expr;

use super::event_time::{self, EventTime};
use super::translate::{Place, Properties, Translator, column_index, list};
use super::{NodeKind, aggregate};
use crate::dataflow::aggregate::EventTimeGroup;
use crate::dataflow::ordered::OrderedSpec;
use crate::dataflow::session::{SessionColumn, SessionSpec};
use crate::dataflow::top::{Numbering, TopSpec};
use crate::dataflow::window::{WindowSpec, reach};
use crate::error::{Error, Result};
use crate::sql::sessions::{SESSION_END, SESSION_START};

/// The rows of a LIMIT.
#[derive(Clone, Copy)]
struct Cut {
    skip: u64,
    fetch: Option<u64>,
}

impl Cut {
    fn words(self) -> String {
        let limit = self.fetch.map(|fetch| format!("limit {fetch}"));
        let offset = (self.skip > 0).then(|| format!("offset {}", self.skip));
        let parts: Vec<String> = limit.into_iter().chain(offset).collect();
        parts.join(" ")
    }
}

impl Translator<'_> {
    /// LIMIT and OFFSET with the ORDER BY below them. Rows that tie there are ordered by all their
    /// columns, so that the same rows remain whatever order they came in.
    pub(super) fn limit(&mut self, limit: &Limit) -> Result<usize> {
        let (SkipType::Literal(skip), FetchType::Literal(fetch)) =
            (limit.get_skip_type()?, limit.get_fetch_type()?)
        else {
            return Err(Error::unsupported(
                "LIMIT and OFFSET of a materialized view must be constants",
            ));
        };
        let cut = Cut {
            skip: skip as u64,
            fetch: fetch.map(|fetch| fetch as u64),
        };
        self.cut(&limit.input, cut)
    }

    fn cut(&mut self, plan: &LogicalPlan, cut: Cut) -> Result<usize> {
        match plan {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => {
                let input = self.node(&sort.input, Place::Below)?;
                self.first_rows(input, sort.input.schema(), &sort.expr, cut)
            }
            LogicalPlan::SubqueryAlias(alias) if is_ordered(plan) => self.cut(&alias.input, cut),
            LogicalPlan::Projection(projection) if is_ordered(plan) => {
                let input = self.cut(&projection.input, cut)?;
                let schema = projection.input.schema();
                self.project(input, &projection.expr, schema, &projection.schema)
            }
            _ => {
                let input = self.node(plan, Place::Below)?;
                self.first_rows(input, plan.schema(), &[], cut)
            }
        }
    }

    /// The first rows of all.
    fn first_rows(
        &mut self,
        input: usize,
        schema: &DFSchema,
        order: &[SortExpr],
        cut: Cut,
    ) -> Result<usize> {
        let rows = self.ordered_spec(input, schema, &[], order)?;
        let below = &self.nodes[input];
        let properties = Properties {
            append_only: false,
            key: match cut.fetch {
                Some(1) => Some(Vec::new()),
                _ => below.key.clone(),
            },
            // A new row may push an old one out, whatever its time.
            event_time: Vec::new(),
        };
        let spec = TopSpec {
            detail: detail("", order, &cut.words()),
            rows,
            numbering: Numbering::Rows,
            skip: cut.skip,
            fetch: cut.fetch,
            append_only_input: below.append_only,
            schema: below.schema.clone(),
        };
        let detail = spec.detail.clone();
        let kind = NodeKind::Top(Box::new(spec));
        Ok(self.add(kind, vec![input], schema, detail, properties))
    }

    /// A filter that keeps the first rows of each partition by their number or rank: only these
    /// are computed. `None` when it is something else.
    pub(super) fn first_of_partitions(&mut self, filter: &Filter) -> Result<Option<usize>> {
        let LogicalPlan::Window(window) = filter.input.as_ref() else {
            return Ok(None);
        };
        let [function] = window.window_expr.as_slice() else {
            return Ok(None);
        };
        let call = call_of(function)?;
        let numbering = match &call.fun {
            WindowFunctionDefinition::WindowUDF(udf) => match udf.name() {
                "row_number" => Numbering::RowNumber,
                "rank" => Numbering::Rank,
                "dense_rank" => Numbering::DenseRank,
                _ => return Ok(None),
            },
            WindowFunctionDefinition::AggregateUDF(_) => return Ok(None),
        };
        let number = window.schema.fields().len() - 1;
        let conditions = split_conjunction(&filter.predicate);
        let bound_of = |condition: &Expr| upper_bound(condition, number, &window.schema);
        let Some(fetch) = conditions.iter().filter_map(|c| bound_of(c)).min() else {
            return Ok(None);
        };
        // No number is below 1, so that to be 1 is to be at most 1.
        let is_said = |condition: &Expr| match bound_of(condition) {
            Some(bound) => !is_equality(condition) || (bound, fetch) == (1, 1),
            None => false,
        };
        let is_all = conditions.iter().all(|condition| is_said(condition));
        let input = self.node(&window.input, Place::Below)?;
        let schema = window.input.schema();
        let (partition, order) = (&call.params.partition_by, &call.params.order_by);
        let rows = self.ordered_spec(input, schema, partition, order)?;
        let below = &self.nodes[input];
        let group: Option<Vec<usize>> = partition
            .iter()
            .map(|expression| column_index(expression, schema))
            .collect();
        // A rank may be shared; a number is not.
        let key = match (&below.key, group, numbering) {
            (None, Some(mut group), Numbering::RowNumber) => {
                if fetch > 1 {
                    group.push(number);
                }
                Some(group)
            }
            (_, Some(group), Numbering::RowNumber) if fetch == 1 => Some(group),
            (key, _, _) => key.clone(),
        };
        let spec = TopSpec {
            detail: detail(
                &list(partition),
                order,
                &format!("{} <= {fetch}", call.fun.name()),
            ),
            rows,
            numbering,
            skip: 0,
            fetch: Some(fetch),
            append_only_input: below.append_only,
            schema: self.relaxed(window.schema.inner()),
        };
        let properties = Properties {
            append_only: false,
            key,
            event_time: kept_times(&below.event_time, partition, schema),
        };
        let detail = spec.detail.clone();
        let kind = NodeKind::Top(Box::new(spec));
        let node = self.add(kind, vec![input], &window.schema, detail, properties);
        if is_all {
            // The condition says no more than the operator does.
            return Ok(Some(node));
        }
        Ok(Some(self.filter(
            node,
            &filter.predicate,
            &window.schema,
        )?))
    }

    /// Window functions: an operator for each PARTITION BY and ORDER BY that they have.
    pub(super) fn window(&mut self, window: &Window) -> Result<usize> {
        let input = self.node(&window.input, Place::Below)?;
        let schema = window.input.schema();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (index, function) in window.window_expr.iter().enumerate() {
            let call = call_of(function)?;
            let mut of_same = None;
            for group in &mut groups {
                let other = call_of(&window.window_expr[group[0]])?;
                if other.params.partition_by == call.params.partition_by
                    && other.params.order_by == call.params.order_by
                {
                    of_same = Some(group);
                    break;
                }
            }
            match of_same {
                Some(group) => group.push(index),
                None => groups.push(vec![index]),
            }
        }
        let columns = schema.fields().len();
        let mut node = input;
        let mut so_far: Vec<usize> = (0..columns).collect();
        for group in &groups {
            so_far.extend(group.iter().map(|index| columns + index));
            let output = picked(&window.schema, &so_far)?;
            node = self.window_of(node, window, group, &output)?;
        }
        if so_far.windows(2).all(|pair| pair[0] < pair[1]) {
            return Ok(node);
        }
        let output = picked(&window.schema, &so_far)?;
        let in_order: Vec<Expr> = window
            .schema
            .columns()
            .into_iter()
            .map(Expr::Column)
            .collect();
        self.project(node, &in_order, &output, &window.schema)
    }

    /// The functions of one PARTITION BY and ORDER BY, over a node that has the window's input
    /// columns first.
    fn window_of(
        &mut self,
        input: usize,
        window: &Window,
        functions: &[usize],
        output: &DFSchema,
    ) -> Result<usize> {
        if let Some(node) = self.sessions(input, window, functions, output)? {
            return Ok(node);
        }
        let schema = window.input.schema();
        let first = call_of(&window.window_expr[functions[0]])?;
        let (partition, order) = (&first.params.partition_by, &first.params.order_by);
        let mut rows = self.ordered_spec(input, schema, partition, order)?;
        let context = PhysicalPlanningContext::default();
        let mut physical = Vec::with_capacity(functions.len());
        let mut reach = reach::Reach::NONE;
        for index in functions {
            let function = &window.window_expr[*index];
            let props = self.request.state.execution_props();
            physical.push(create_window_expr(function, schema, props, &context)?);
            let place = schema.fields().len() + index;
            let data_type = window.schema.field(place).data_type();
            reach = reach.and(reach::of(call_of(function)?, data_type));
        }
        let below = &self.nodes[input];
        if reach.rows().is_some() && rows.event_time.is_none() && below.append_only {
            rows.order_closes_after = order
                .first()
                .filter(|sort| sort.asc)
                .and_then(|sort| event_time::of_expression(&sort.expr, schema, &below.event_time))
                .filter(|time| !time.list)
                .map(|time| time.closes_after);
        }
        let mut event_time = kept_times(&below.event_time, partition, schema);
        let looks_back = matches!(reach.after, reach::After::Rows(0) | reach::After::Peers);
        if let Some(sort) = order.first().filter(|sort| sort.asc && looks_back)
            && let Some(column) = column_index(&sort.expr, schema)
        {
            // Only rows at or after a changed one change.
            event_time[column] = below.event_time[column];
        }
        let properties = Properties {
            append_only: false,
            key: below.key.clone(),
            event_time,
        };
        let words: Vec<Expr> = functions
            .iter()
            .map(|index| window.window_expr[*index].clone())
            .collect();
        let spec = WindowSpec {
            detail: list(&words),
            rows,
            functions: physical,
            reach,
            schema: self.relaxed(output.inner()),
        };
        let detail = spec.detail.clone();
        let kind = NodeKind::Window(Box::new(spec));
        Ok(self.add(kind, vec![input], output, detail, properties))
    }

    /// Functions that are all bounds of sessions of one time and gap; `None` when they are others.
    fn sessions(
        &mut self,
        input: usize,
        window: &Window,
        functions: &[usize],
        output: &DFSchema,
    ) -> Result<Option<usize>> {
        let schema = window.input.schema();
        let first = call_of(&window.window_expr[functions[0]])?;
        let (arguments, order) = (&first.params.args, &first.params.order_by);
        let ([time, gap], [sort]) = (arguments.as_slice(), order.as_slice()) else {
            return Ok(None);
        };
        let mut columns = Vec::with_capacity(functions.len());
        for index in functions {
            let call = call_of(&window.window_expr[*index])?;
            columns.push(match call.fun.name() {
                SESSION_START => SessionColumn::Start,
                SESSION_END => SessionColumn::End,
                _ => return Ok(None),
            });
            if call.params.args != *arguments {
                return Ok(None);
            }
        }
        let Some(gap) = event_time::size_of(gap).filter(|_| sort.asc && sort.expr == *time) else {
            return Ok(None);
        };
        let partition = &first.params.partition_by;
        let below = &self.nodes[input];
        let lineage = event_time::of_expression(time, schema, &below.event_time);
        // Rows go out and back as long as their session can change, whatever their own time; it is
        // the session's end that closes.
        let closes_end = lineage
            .filter(|time| !time.list)
            .and_then(|time| time.closes_after.checked_add(gap));
        let spec = SessionSpec {
            detail: detail(&list(partition), order, &format!("gap {}", arguments[1])),
            rows: OrderedSpec {
                event_time: None,
                order_closes_after: closes_end,
                ..self.ordered_spec(input, schema, partition, order)?
            },
            gap,
            columns,
            schema: self.relaxed(output.inner()),
        };
        let mut event_time = vec![None; below.schema.fields().len()];
        event_time.extend(spec.columns.iter().map(|column| match column {
            SessionColumn::Start => None,
            SessionColumn::End => Some(EventTime {
                closes_after: closes_end?,
                window: true,
                list: false,
            }),
        }));
        let properties = Properties {
            append_only: false,
            key: below.key.clone(),
            event_time,
        };
        let detail = spec.detail.clone();
        let kind = NodeKind::Session(Box::new(spec));
        Ok(Some(self.add(
            kind,
            vec![input],
            output,
            detail,
            properties,
        )))
    }

    /// How the rows of a node are grouped and ordered. A group column of event time comes first.
    fn ordered_spec(
        &self,
        input: usize,
        schema: &DFSchema,
        partition: &[Expr],
        order: &[SortExpr],
    ) -> Result<OrderedSpec> {
        let below = &self.nodes[input];
        let mut group: Vec<Arc<dyn PhysicalExpr>> = partition
            .iter()
            .map(|expression| self.expression(expression, schema))
            .collect::<Result<_>>()?;
        let mut lineage: Vec<Option<EventTime>> = Vec::with_capacity(group.len());
        for (expression, physical) in partition.iter().zip(&group) {
            let data_type = physical.data_type(&below.schema)?;
            lineage.push(
                event_time::of_expression(expression, schema, &below.event_time)
                    .filter(|time| !time.list && event_time::is_followed(&data_type)),
            );
        }
        let event_time = aggregate::event_time_group(&lineage).map(|time| {
            group.swap(0, time.group_index);
            EventTimeGroup {
                group_index: 0,
                ..time
            }
        });
        let order = order
            .iter()
            .map(|sort| {
                Ok(PhysicalSortExpr {
                    expr: self.expression(&sort.expr, schema)?,
                    options: SortOptions {
                        descending: !sort.asc,
                        nulls_first: sort.nulls_first,
                    },
                })
            })
            .collect::<Result<_>>()?;
        Ok(OrderedSpec {
            input: below.schema.clone(),
            group,
            order,
            event_time,
            order_closes_after: None,
        })
    }
}

/// The window function that an expression of a window node is.
fn call_of(expression: &Expr) -> Result<&WindowFunction> {
    match expression {
        Expr::WindowFunction(call) => Ok(call),
        Expr::Alias(alias) => call_of(&alias.expr),
        other => Err(Error::internal(format!("{other} is no window function"))),
    }
}

/// The event times that all rows of a partition share: a change touches no row of another time.
/// The other columns may have any time in a row that a change of its partition sends back.
fn kept_times(
    below: &[Option<EventTime>],
    partition: &[Expr],
    schema: &DFSchema,
) -> Vec<Option<EventTime>> {
    let mut kept = vec![None; below.len()];
    for column in partition.iter().filter_map(|e| column_index(e, schema)) {
        kept[column] = below[column];
    }
    kept
}

/// Only projections and aliases stand between the plan and an ORDER BY.
fn is_ordered(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Sort(sort) => sort.fetch.is_none(),
        LogicalPlan::Projection(projection) => is_ordered(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => is_ordered(&alias.input),
        _ => false,
    }
}

/// The columns at these places.
fn picked(schema: &DFSchema, places: &[usize]) -> Result<DFSchema> {
    let fields = places.iter().map(|place| {
        let (qualifier, field) = schema.qualified_field(*place);
        (qualifier.cloned(), field.clone())
    });
    Ok(DFSchema::new_with_metadata(
        fields.collect(),
        schema.metadata().clone(),
    )?)
}

/// The same plan with the filter next to the window functions that it filters by, where only a
/// choice of columns stands between them; `None`: nothing does.
pub(super) fn beside_window(filter: &Filter) -> Result<Option<LogicalPlan>> {
    let LogicalPlan::Projection(projection) = filter.input.as_ref() else {
        return Ok(None);
    };
    let is_choice = projection.expr.iter().all(|e| matches!(e, Expr::Column(_)));
    if !is_choice || !matches!(projection.input.as_ref(), LogicalPlan::Window(_)) {
        return Ok(None);
    }
    let filter = Filter::try_new(filter.predicate.clone(), Arc::clone(&projection.input))?;
    let filter = Arc::new(LogicalPlan::Filter(filter));
    let chosen = Projection::try_new(projection.expr.clone(), filter)?;
    Ok(Some(LogicalPlan::Projection(chosen)))
}

/// The largest value of column `number` that a condition lets through.
fn upper_bound(condition: &Expr, number: usize, schema: &DFSchema) -> Option<u64> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else {
        return None;
    };
    let is_number = |e: &Expr| {
        let e = match e {
            Expr::Cast(cast) => &cast.expr,
            other => other,
        };
        column_index(e, schema) == Some(number)
    };
    let (op, bound) = if is_number(left) {
        (*op, constant(right)?)
    } else if is_number(right) {
        (op.swap()?, constant(left)?)
    } else {
        return None;
    };
    match op {
        Operator::LtEq | Operator::Eq => Some(bound),
        Operator::Lt => Some(bound.saturating_sub(1)),
        _ => None,
    }
}

fn is_equality(condition: &Expr) -> bool {
    matches!(condition, Expr::BinaryExpr(comparison) if comparison.op == Operator::Eq)
}

/// A whole number that is not below zero, whatever its type.
fn constant(expression: &Expr) -> Option<u64> {
    let Expr::Literal(value, _) = expression else {
        return None;
    };
    let number = value.cast_to(&DataType::UInt64).ok()?;
    let same = number.cast_to(&value.data_type()).ok()? == *value;
    match number {
        ScalarValue::UInt64(number) if same => number,
        _ => None,
    }
}

fn detail(partition: &str, order: &[SortExpr], last: &str) -> String {
    let mut parts = Vec::new();
    if !partition.is_empty() {
        parts.push(format!("partition by {partition}"));
    }
    if !order.is_empty() {
        let order: Vec<String> = order.iter().map(ToString::to_string).collect();
        parts.push(format!("order by {}", order.join(", ")));
    }
    parts.push(last.to_owned());
    parts.join(" ")
}
