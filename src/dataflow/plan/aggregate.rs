//! Translation of aggregations.

use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{Aggregate, Expr};
use datafusion::physical_expr::aggregate::LoweredAggregateBuilder;

use super::event_time::{self, EventTime};
use super::grouping::grouping_set;
use super::translate::{Place, Properties, Translator, list};
use super::{NodeKind, no_window_to_close};
use crate::catalog::definition::EmitMode;
use crate::dataflow::aggregate::{AggregateCall, AggregateRequest, EventTimeGroup};
use crate::error::Result;

impl Translator<'_> {
    pub(super) fn aggregate(&mut self, aggregate: &Aggregate, place: Place) -> Result<usize> {
        if let Some(set) = grouping_set(aggregate)? {
            return self.grouping_sets(aggregate, set);
        }
        let input = self.node(&aggregate.input, Place::Below)?;
        self.aggregate_over(input, aggregate, place)
    }

    /// An aggregation over a node; of the aggregation's own input only the schema counts.
    pub(super) fn aggregate_over(
        &mut self,
        input: usize,
        aggregate: &Aggregate,
        place: Place,
    ) -> Result<usize> {
        let input_schema = aggregate.input.schema();
        let lineage: Vec<Option<EventTime>> = aggregate
            .group_expr
            .iter()
            .zip(aggregate.schema.fields())
            .map(|(e, field)| {
                event_time::of_expression(e, input_schema, &self.nodes[input].event_time)
                    .filter(|time| !time.list && event_time::is_followed(field.data_type()))
            })
            .collect();
        let event_time = event_time_group(&lineage);
        let emit = match (self.request.emit, place) {
            (EmitMode::OnWindowClose, Place::Outermost) => {
                if event_time.is_none() {
                    return Err(no_window_to_close());
                }
                self.emits_on_close = true;
                EmitMode::OnWindowClose
            }
            _ => EmitMode::OnUpdate,
        };
        if aggregate.aggr_expr.is_empty() && event_time.is_none() {
            let groups = self.project(
                input,
                &aggregate.group_expr,
                input_schema,
                &aggregate.schema,
            )?;
            return Ok(self.distinct(groups, &aggregate.schema));
        }
        let name = self.next_name("aggregate");
        let request = self.aggregate_request(name.clone(), input, aggregate, event_time, emit)?;
        let detail = format!(
            "group by ({}) compute ({})",
            list(&aggregate.group_expr),
            list(&aggregate.aggr_expr)
        );
        let properties = Properties {
            // Without an aggregate a group has nothing that could change.
            append_only: emit == EmitMode::OnWindowClose
                || aggregate.aggr_expr.is_empty() && self.nodes[input].append_only,
            key: Some((0..aggregate.group_expr.len()).collect()),
            event_time: lineage,
        };
        let kind = NodeKind::Aggregate(Box::new(request));
        Ok(self.add_named(
            name,
            kind,
            vec![input],
            &aggregate.schema,
            detail,
            properties,
        ))
    }

    fn aggregate_request(
        &self,
        name: String,
        input: usize,
        aggregate: &Aggregate,
        event_time: Option<EventTimeGroup>,
        emit: EmitMode,
    ) -> Result<AggregateRequest> {
        let input_schema = aggregate.input.schema();
        let group = aggregate
            .group_expr
            .iter()
            .zip(self.relaxed(aggregate.schema.inner()).fields())
            .map(|(e, field)| Ok((self.expression(e, input_schema)?, field.clone())))
            .collect::<Result<Vec<_>>>()?;
        let aggregates = aggregate
            .aggr_expr
            .iter()
            .map(|e| self.aggregate_call(e, aggregate))
            .collect::<Result<Vec<_>>>()?;
        Ok(AggregateRequest {
            name,
            input_schema: self.nodes[input].schema.clone(),
            group,
            aggregates,
            output_schema: self.relaxed(aggregate.schema.inner()),
            append_only_input: self.nodes[input].append_only,
            event_time,
            emit,
        })
    }

    fn aggregate_call(&self, expression: &Expr, aggregate: &Aggregate) -> Result<AggregateCall> {
        let input_schema = aggregate.input.schema();
        let (call, name) = match expression {
            Expr::Alias(alias) => (alias.expr.as_ref(), alias.name.clone()),
            other => (other, other.schema_name().to_string()),
        };
        let context = PhysicalPlanningContext::default();
        let lowered = LoweredAggregateBuilder::new(
            call,
            input_schema,
            input_schema.as_arrow(),
            self.request.state.execution_props(),
            &context,
        )
        .with_name(name)
        .build()?;
        let function = lowered.aggregate;
        Ok(AggregateCall {
            arguments: function.expressions(),
            filter: lowered.filter,
            distinct: function.is_distinct(),
            name: call.to_string(),
            field: function.field(),
            expr: function,
        })
    }
}

/// The group column that carries event time: a window's bound rather than a raw time, since a
/// group of both lives as long as the window.
pub(super) fn event_time_group(lineage: &[Option<EventTime>]) -> Option<EventTimeGroup> {
    let of = |window: bool| {
        lineage
            .iter()
            .enumerate()
            .find_map(|(index, time)| Some((index, time.filter(|t| t.window == window)?)))
    };
    let (group_index, time) = of(true).or_else(|| of(false))?;
    Some(EventTimeGroup {
        group_index,
        end_offset: time.closes_after,
    })
}
