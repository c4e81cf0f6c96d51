//! stub of the aggregate part, overwritten at merge
use std::sync::Arc;

use datafusion::arrow::datatypes::{FieldRef, SchemaRef};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;

use super::change::ChangeBatch;
use super::operator::*;
use crate::catalog::definition::EmitMode;
use crate::error::Result;

#[derive(Debug, Clone)]
pub struct AggregateCall {
    pub expr: Arc<AggregateFunctionExpr>,
    pub arguments: Vec<Arc<dyn PhysicalExpr>>,
    pub filter: Option<Arc<dyn PhysicalExpr>>,
    pub distinct: bool,
    pub name: String,
    pub field: FieldRef,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventTimeGroup {
    pub group_index: usize,
    pub end_offset: i64,
}
#[derive(Debug, Clone)]
pub struct AggregateRequest {
    pub name: String,
    pub input_schema: SchemaRef,
    pub group: Vec<(Arc<dyn PhysicalExpr>, FieldRef)>,
    pub aggregates: Vec<AggregateCall>,
    pub output_schema: SchemaRef,
    pub append_only_input: bool,
    pub event_time: Option<EventTimeGroup>,
    pub emit: EmitMode,
}
pub struct AggregateOperator {}
impl AggregateOperator {
    pub fn try_new(_request: AggregateRequest) -> Result<Self> {
        Ok(Self {})
    }
}
impl Operator for AggregateOperator {
    fn describe(&self) -> OperatorDescription {
        unimplemented!()
    }
    fn push(&mut self, _: usize, _: ChangeBatch, _: &BatchContext, _: &mut Vec<ChangeBatch>) -> Result<()> {
        unimplemented!()
    }
    fn finish(&mut self, _: &BatchContext, _: &mut Vec<ChangeBatch>) -> Result<()> {
        unimplemented!()
    }
    fn statistics(&self) -> OperatorStatistics {
        unimplemented!()
    }
}
