//! From aggregate calls to cells: what is kept per group, what is computed from it.
//!
//! ```text
//!   call            cells (shared when equal)          output
//!   sum(v)      ─►  sum of v, count of v            ─► sum, NULL when the count is 0
//!   avg(v)      ─►  the same two                    ─► sum / count
//!   count(*)    ─►  none: the group's row count     ─► row count
//!   count(DISTINCT v) [FILTER …] of what only grows  ─►  which of the calls have seen v, per group and v
//!   count(DISTINCT v), min(v) under deletes, array_agg(v), …  ─►  a multiset of v per group
//! ```
//!
//! A cell that is linear takes negative weights; the others are chosen only when the input is
//! append-only. What fits none of them is recomputed from its multiset by DataFusion's own
//! accumulator, so that any aggregate that DataFusion runs has a right answer here.

use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{CastExpr, Literal};

use super::columns::ColumnKind;
use super::keys::is_integer_like;
use super::multiset_plan::MultisetPlan;
use super::{AggregateCall, AggregateRequest};
use crate::error::{Error, Result};

/// How an argument's values are needed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ArgumentForm {
    /// Only which are null.
    Presence,
    /// As 64-bit integers, 128-bit when unsigned or decimal.
    Integer,
    /// As floats.
    Float,
    /// As booleans.
    Boolean,
    /// As arrow-row bytes; `descending` turns the order round.
    Encoded {
        /// Largest first.
        descending: bool,
    },
}

/// An argument expression, evaluated once per batch however many calls use it.
#[derive(Debug)]
pub struct Argument {
    /// Expression over the input.
    pub expression: Arc<dyn PhysicalExpr>,
    /// How its values are needed.
    pub form: ArgumentForm,
    /// Of [`ArgumentForm::Encoded`].
    pub converter: Option<RowConverter>,
}

/// Which rows a cell takes: those where all arguments are not null, the filter is true and the
/// boolean argument, if one is named, has the value.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Mask {
    /// Arguments that must not be null.
    pub arguments: Vec<usize>,
    /// Index of a filter.
    pub filter: Option<usize>,
    /// A boolean argument that must have this value.
    pub truth: Option<(usize, bool)>,
}

impl Mask {
    fn takes_all(&self) -> bool {
        *self == Self::default()
    }
}

/// What a cell does with the rows it takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CellKind {
    /// Adds weights.
    Count,
    /// Adds weight × integer.
    Sum,
    /// Adds floats; append-only.
    SumFloat,
    /// Smallest or largest integer; append-only.
    ExtremeInteger {
        /// Largest.
        maximum: bool,
    },
    /// Smallest or largest float by total order; append-only.
    ExtremeFloat {
        /// Largest.
        maximum: bool,
    },
    /// Smallest bytes; append-only.
    ExtremeBytes,
    /// Count, mean and sum of squared distances (Welford 1962); append-only.
    Moments,
}

/// A part of a group's state with its update rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Update rule.
    pub kind: CellKind,
    /// Index of its argument; unused by `Count`.
    pub argument: usize,
    /// Index of its mask.
    pub mask: usize,
    /// Its first column.
    pub column: usize,
}

/// Where a count is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CountSource {
    /// The group's row count.
    Rows,
    /// A column.
    Column(usize),
}

/// How an output column is computed from state columns.
#[derive(Debug)]
pub enum OutputKind {
    /// The count.
    Count(CountSource),
    /// Integer or decimal sum, checked against the type; NULL over nothing.
    Sum { sum: usize, count: CountSource },
    /// Float sum; NULL over nothing.
    SumFloat { sum: usize, count: CountSource },
    /// Floats' average.
    AverageFloat { sum: usize, count: CountSource },
    /// Integers' or decimals' average: `sum × multiplier / count`, cut.
    AverageDecimal {
        sum: usize,
        count: CountSource,
        multiplier: i128,
    },
    /// Integer-like or decimal extreme.
    ExtremeInteger { value: usize, count: CountSource },
    /// Float extreme.
    ExtremeFloat { value: usize, count: CountSource },
    /// `bool_and` is false when a false is there, `bool_or` true when a true is: one value decides.
    Boolean {
        decisive: CountSource,
        decisive_value: bool,
        count: CountSource,
    },
    /// Variance from moments (first of three columns).
    Variance {
        moments: usize,
        population: bool,
        root: bool,
    },
    /// A stored arrow-row value.
    Stored {
        value: usize,
        converter: RowConverter,
    },
}

/// An output column.
#[derive(Debug)]
pub struct Output {
    /// How.
    pub kind: OutputKind,
    /// Type.
    pub data_type: DataType,
}

/// The compiled request.
#[derive(Debug, Default)]
pub struct AggregatePlan {
    /// Arguments of cells.
    pub arguments: Vec<Argument>,
    /// `FILTER` conditions.
    pub filters: Vec<Arc<dyn PhysicalExpr>>,
    /// Masks.
    pub masks: Vec<Mask>,
    /// Cells.
    pub cells: Vec<Cell>,
    /// Multisets.
    pub multisets: Vec<MultisetPlan>,
    /// State columns.
    pub columns: Vec<ColumnKind>,
    /// Output columns after the group columns.
    pub outputs: Vec<Output>,
}

impl AggregatePlan {
    /// The masks under which an argument is looked at.
    pub fn masks_of(&self, argument: usize) -> impl Iterator<Item = usize> {
        let of_cells = self.cells.iter().filter(move |c| c.argument == argument);
        let of_masks = self.masks.iter().enumerate().filter(move |(_, mask)| {
            let of_truth = mask.truth.is_some_and(|(named, _)| named == argument);
            of_truth || mask.arguments.contains(&argument)
        });
        of_cells
            .map(|cell| cell.mask)
            .chain(of_masks.map(|(index, _)| index))
    }

    /// Compiles a request; SQLSTATE 0A000 when a value that must be stored has no row form.
    pub fn try_new(request: &AggregateRequest) -> Result<Self> {
        let mut plan = Self::default();
        for (index, call) in request.aggregates.iter().enumerate() {
            let data_type = request
                .output_schema
                .field(request.group.len() + index)
                .data_type()
                .clone();
            let kind = match plan.columnar(request, call, &data_type)? {
                Some(kind) => kind,
                None => plan.multiset(request, call, index, &data_type)?,
            };
            plan.outputs.push(Output { kind, data_type });
        }
        Ok(plan)
    }

    /// Every call is kept in columns alone.
    pub fn is_columnar(&self) -> bool {
        self.multisets.is_empty()
    }

    /// The output of a call that needs no multiset; `None` when it does.
    fn columnar(
        &mut self,
        request: &AggregateRequest,
        call: &AggregateCall,
        data_type: &DataType,
    ) -> Result<Option<OutputKind>> {
        let name = call.expr.fun().name();
        let schema = &request.input_schema;
        let filter = call.filter.as_ref().map(|f| index_of(&mut self.filters, f));
        if call.distinct && !matches!(name, "min" | "max" | "bool_and" | "bool_or") {
            return Ok(None);
        }
        if name == "count" {
            return Ok(Some(OutputKind::Count(self.count(
                &call.arguments,
                filter,
                schema,
            )?)));
        }
        let [argument] = call.arguments.as_slice() else {
            return Ok(None);
        };
        let argument_type = argument.data_type(schema)?;
        let append_only = request.append_only_input;
        Ok(match name {
            "sum" if is_linear_sum(&argument_type, data_type) => {
                let (sum, count) = self.sum(argument, filter, schema)?;
                Some(OutputKind::Sum { sum, count })
            }
            "sum" if append_only && *data_type == DataType::Float64 => {
                let (sum, count) = self.float_sum(argument, filter, schema)?;
                Some(OutputKind::SumFloat { sum, count })
            }
            "avg" => self.average(argument, &argument_type, data_type, filter, request)?,
            "min" | "max" if append_only => {
                Some(self.extreme(argument, &argument_type, name == "max", filter, schema)?)
            }
            "bool_and" | "bool_or" => {
                let decisive_value = name == "bool_or";
                let count = self.count(&call.arguments, filter, schema)?;
                let value = self.argument(argument, ArgumentForm::Boolean)?;
                let mask = Mask {
                    arguments: vec![value],
                    filter,
                    truth: Some((value, decisive_value)),
                };
                let decisive = CountSource::Column(self.cell(CellKind::Count, 0, mask));
                Some(OutputKind::Boolean {
                    decisive,
                    decisive_value,
                    count,
                })
            }
            "var" | "var_pop" | "stddev" | "stddev_pop" if append_only => {
                let moments =
                    self.argument_cell(CellKind::Moments, argument, ArgumentForm::Float, filter)?;
                Some(OutputKind::Variance {
                    moments,
                    population: name.ends_with("_pop"),
                    root: name.starts_with("stddev"),
                })
            }
            _ => None,
        })
    }

    fn average(
        &mut self,
        argument: &Arc<dyn PhysicalExpr>,
        argument_type: &DataType,
        data_type: &DataType,
        filter: Option<usize>,
        request: &AggregateRequest,
    ) -> Result<Option<OutputKind>> {
        let schema = &request.input_schema;
        if let (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) =
            (argument_type, data_type)
        {
            // avg(int) and avg(numeric) are of a cast that adds digits. What is under the cast has
            // the same sum in narrower numbers, which sum() of it shares.
            let (argument, from) = match argument.downcast_ref::<CastExpr>() {
                Some(cast) => match cast.expr().data_type(schema)? {
                    DataType::Decimal128(_, inner) if inner <= *from => (cast.expr(), inner),
                    inner if is_number(&inner) => (cast.expr(), 0),
                    _ => (argument, *from),
                },
                None => (argument, *from),
            };
            let digits = u32::try_from(i32::from(*to) - i32::from(from)).ok();
            let Some(multiplier) = digits.and_then(|d| 10i128.checked_pow(d)) else {
                return Ok(None);
            };
            let (sum, count) = self.sum(argument, filter, schema)?;
            return Ok(Some(OutputKind::AverageDecimal {
                sum,
                count,
                multiplier,
            }));
        }
        if *data_type != DataType::Float64 {
            return Ok(None);
        }
        if !request.append_only_input || !argument_type.is_floating() {
            return Ok(None);
        }
        let (sum, count) = self.float_sum(argument, filter, schema)?;
        Ok(Some(OutputKind::AverageFloat { sum, count }))
    }

    fn extreme(
        &mut self,
        argument: &Arc<dyn PhysicalExpr>,
        argument_type: &DataType,
        maximum: bool,
        filter: Option<usize>,
        schema: &Schema,
    ) -> Result<OutputKind> {
        let is_wide = matches!(argument_type, DataType::UInt64 | DataType::Decimal128(_, _));
        if is_wide || is_integer_like(argument_type) {
            let kind = CellKind::ExtremeInteger { maximum };
            let value = self.argument_cell(kind, argument, ArgumentForm::Integer, filter)?;
            let count = self.count(std::slice::from_ref(argument), filter, schema)?;
            return Ok(OutputKind::ExtremeInteger { value, count });
        }
        if matches!(argument_type, DataType::Float32 | DataType::Float64) {
            let kind = CellKind::ExtremeFloat { maximum };
            let value = self.argument_cell(kind, argument, ArgumentForm::Float, filter)?;
            let count = self.count(std::slice::from_ref(argument), filter, schema)?;
            return Ok(OutputKind::ExtremeFloat { value, count });
        }
        let options = extreme_order(maximum);
        let converter = row_converter(vec![(argument_type.clone(), options)])?;
        let form = ArgumentForm::Encoded {
            descending: maximum,
        };
        let index = self.argument(argument, form)?;
        if self.arguments[index].converter.is_none() {
            self.arguments[index].converter =
                Some(row_converter(vec![(argument_type.clone(), options)])?);
        }
        let value = self.argument_cell(CellKind::ExtremeBytes, argument, form, filter)?;
        Ok(OutputKind::Stored { value, converter })
    }

    /// A count of rows where no argument is null.
    fn count(
        &mut self,
        arguments: &[Arc<dyn PhysicalExpr>],
        filter: Option<usize>,
        schema: &Schema,
    ) -> Result<CountSource> {
        let mut mask = Mask {
            filter,
            ..Mask::default()
        };
        for argument in arguments {
            let never_null = match argument.downcast_ref::<Literal>() {
                Some(literal) => !literal.value().is_null(),
                None => !argument.nullable(schema)?,
            };
            if !never_null {
                mask.arguments
                    .push(self.argument(argument, ArgumentForm::Presence)?);
            }
        }
        if mask.takes_all() {
            return Ok(CountSource::Rows);
        }
        Ok(CountSource::Column(self.cell(CellKind::Count, 0, mask)))
    }

    fn sum(
        &mut self,
        argument: &Arc<dyn PhysicalExpr>,
        filter: Option<usize>,
        schema: &Schema,
    ) -> Result<(usize, CountSource)> {
        let sum = self.argument_cell(CellKind::Sum, argument, ArgumentForm::Integer, filter)?;
        Ok((
            sum,
            self.count(std::slice::from_ref(argument), filter, schema)?,
        ))
    }

    fn float_sum(
        &mut self,
        argument: &Arc<dyn PhysicalExpr>,
        filter: Option<usize>,
        schema: &Schema,
    ) -> Result<(usize, CountSource)> {
        let sum = self.argument_cell(CellKind::SumFloat, argument, ArgumentForm::Float, filter)?;
        Ok((
            sum,
            self.count(std::slice::from_ref(argument), filter, schema)?,
        ))
    }

    fn argument_cell(
        &mut self,
        kind: CellKind,
        argument: &Arc<dyn PhysicalExpr>,
        form: ArgumentForm,
        filter: Option<usize>,
    ) -> Result<usize> {
        let argument = self.argument(argument, form)?;
        let mask = Mask {
            arguments: vec![argument],
            filter,
            truth: None,
        };
        Ok(self.cell(kind, argument, mask))
    }

    /// First column of a cell, which is added when no equal one is there.
    fn cell(&mut self, kind: CellKind, argument: usize, mask: Mask) -> usize {
        let mask = self.mask(mask);
        let known = |c: &&Cell| c.kind == kind && c.argument == argument && c.mask == mask;
        if let Some(cell) = self.cells.iter().find(known) {
            return cell.column;
        }
        let column = self.columns.len();
        match kind {
            CellKind::Count => self.columns.push(ColumnKind::Integer),
            CellKind::Sum => self.columns.push(ColumnKind::Wide(0)),
            CellKind::SumFloat => self.columns.push(ColumnKind::Float(0.0)),
            CellKind::ExtremeInteger { maximum } => {
                self.columns.push(ColumnKind::Wide(if maximum {
                    i128::MIN
                } else {
                    i128::MAX
                }));
            }
            CellKind::ExtremeFloat { maximum } => {
                // The first and the last number of the total order: NaNs with all bits set.
                let last = f64::from_bits(u64::MAX >> 1);
                self.columns
                    .push(ColumnKind::Float(if maximum { -last } else { last }));
            }
            CellKind::ExtremeBytes => self.columns.push(ColumnKind::Bytes),
            CellKind::Moments => self.columns.extend([ColumnKind::Float(0.0); 3]),
        }
        self.cells.push(Cell {
            kind,
            argument,
            mask,
            column,
        });
        column
    }

    pub(super) fn mask(&mut self, mask: Mask) -> usize {
        if let Some(index) = self.masks.iter().position(|m| *m == mask) {
            return index;
        }
        self.masks.push(mask);
        self.masks.len() - 1
    }

    pub(super) fn argument(
        &mut self,
        expression: &Arc<dyn PhysicalExpr>,
        form: ArgumentForm,
    ) -> Result<usize> {
        let known = |a: &Argument| *a.expression == **expression && a.form == form;
        if let Some(index) = self.arguments.iter().position(known) {
            return Ok(index);
        }
        self.arguments.push(Argument {
            expression: Arc::clone(expression),
            form,
            converter: None,
        });
        Ok(self.arguments.len() - 1)
    }
}

/// Ascending or descending; nulls never get in.
pub(super) fn extreme_order(maximum: bool) -> SortOptions {
    SortOptions {
        descending: maximum,
        nulls_first: true,
    }
}

pub(super) fn row_converter(fields: Vec<(DataType, SortOptions)>) -> Result<RowConverter> {
    let fields: Vec<_> = fields
        .into_iter()
        .map(|(t, options)| SortField::new_with_options(t, options))
        .collect();
    if !RowConverter::supports_fields(&fields) {
        return Err(Error::unsupported(
            "cannot keep an aggregate over values of this type",
        ));
    }
    Ok(RowConverter::new(fields)?)
}

pub(super) fn index_of(
    list: &mut Vec<Arc<dyn PhysicalExpr>>,
    item: &Arc<dyn PhysicalExpr>,
) -> usize {
    if let Some(index) = list.iter().position(|e| **e == **item) {
        return index;
    }
    list.push(Arc::clone(item));
    list.len() - 1
}

fn is_number(data_type: &DataType) -> bool {
    use DataType::*;
    matches!(
        data_type,
        Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64
    )
}

/// Sums that stay exact under deletes.
fn is_linear_sum(argument: &DataType, result: &DataType) -> bool {
    match result {
        DataType::Int64 | DataType::UInt64 => is_number(argument),
        DataType::Decimal128(_, to) => {
            matches!(argument, DataType::Decimal128(_, from) if from == to)
        }
        _ => false,
    }
}
