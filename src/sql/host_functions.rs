//! Functions that a program which embeds the database brings along, in Rust.
//!
//! They are given at open ([`crate::DatabaseOptions::functions`]), since a view over one is planned
//! again whenever the database is opened, and are then called as built-in functions are. A function
//! that is not deterministic is refused in a materialized view, as `random()` is. They compute whole
//! columns, as the engine's own functions do.
//!
//! Absent: the catalog. What a function does is the program's, so that nothing of it is kept; the
//! same data opened without it gives 42883 where it is called.

use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, new_empty_array};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, ReturnFieldArgs,
    ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use crate::error::{Error, Result, sqlstate};
use crate::types::SqlType;

/// Whether the same arguments give the same result, always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Determinism {
    /// They do, so that a view can take back what it computed once.
    Deterministic,
    /// They do not; the function is refused in materialized views.
    Volatile,
}

/// A function of the values of a row.
pub trait ScalarFunction: Debug + Send + Sync {
    /// Its name in SQL, in lower case.
    fn name(&self) -> &str;

    /// Types of its arguments; others are cast as an engine's function casts them.
    fn parameters(&self) -> Vec<SqlType>;

    /// Type of its result.
    fn result(&self) -> SqlType;

    /// Deterministic, unless it says otherwise.
    fn determinism(&self) -> Determinism {
        Determinism::Deterministic
    }

    /// The results for some rows: an array of `rows` values of the result's type, of an array of
    /// `rows` values for each argument. NULLs are passed on. An error of class 22 is that of a row,
    /// which the view's `on_row_error` decides about; the database finds the row.
    fn compute(&self, arguments: &[ArrayRef], rows: usize) -> Result<ArrayRef>;
}

/// A function of the rows of a group.
pub trait AggregateFunction: Debug + Send + Sync {
    /// Its name in SQL, in lower case.
    fn name(&self) -> &str;

    /// Types of its arguments, one at least.
    fn parameters(&self) -> Vec<SqlType>;

    /// Type of its result.
    fn result(&self) -> SqlType;

    /// Deterministic, unless it says otherwise.
    fn determinism(&self) -> Determinism {
        Determinism::Deterministic
    }

    /// The result for a group: an array of one value, of arrays of the group's rows, of which there
    /// may be none. The rows come in no order that means anything, and a view computes a group anew
    /// whenever a row of it comes or goes.
    fn compute(&self, arguments: &[ArrayRef]) -> Result<ArrayRef>;
}

/// A function of an embedding program.
#[derive(Debug, Clone)]
pub enum HostFunction {
    /// of a row
    Scalar(Arc<dyn ScalarFunction>),
    /// of a group
    Aggregate(Arc<dyn AggregateFunction>),
}

impl HostFunction {
    /// Its name in SQL.
    pub fn name(&self) -> &str {
        match self {
            Self::Scalar(function) => function.name(),
            Self::Aggregate(function) => function.name(),
        }
    }
}

/// Host functions as the engine calls them.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostFunctions {
    /// of rows
    pub scalars: Vec<Arc<ScalarUDF>>,
    /// of groups
    pub aggregates: Vec<Arc<AggregateUDF>>,
}

impl HostFunctions {
    /// Errors: 42723 a name that is taken, 42602 one that SQL does not say without quotes.
    pub fn new(functions: &[HostFunction], is_taken: impl Fn(&str) -> bool) -> Result<Self> {
        let mut all = Self::default();
        for (at, function) in functions.iter().enumerate() {
            let name = function.name();
            check_name(name)?;
            if is_taken(name) || functions[..at].iter().any(|other| other.name() == name) {
                return Err(Error::new(
                    sqlstate::DUPLICATE_FUNCTION,
                    format!("function \"{name}\" already exists"),
                )
                .hint("Give the function another name."));
            }
            match function {
                HostFunction::Scalar(function) => {
                    all.scalars.push(Arc::new(ScalarUDF::new_from_impl(Scalar {
                        signature: signature(&function.parameters(), function.determinism()),
                        function: Arc::clone(function),
                    })));
                }
                HostFunction::Aggregate(function) => {
                    let aggregate = AggregateUDF::new_from_impl(Aggregate {
                        signature: signature(&function.parameters(), function.determinism()),
                        function: Arc::clone(function),
                    });
                    all.aggregates.push(Arc::new(aggregate));
                }
            }
        }
        Ok(all)
    }
}

fn check_name(name: &str) -> Result<()> {
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if begins && name.bytes().all(is_plain) {
        return Ok(());
    }
    Err(Error::new(
        sqlstate::INVALID_NAME,
        format!("invalid name of a function: \"{name}\""),
    )
    .hint("Use lower-case letters, digits and underscores."))
}

fn signature(parameters: &[SqlType], determinism: Determinism) -> Signature {
    let volatility = match determinism {
        Determinism::Deterministic => Volatility::Immutable,
        Determinism::Volatile => Volatility::Volatile,
    };
    match parameters {
        [] => Signature::nullary(volatility),
        _ => Signature::exact(
            parameters.iter().map(SqlType::to_arrow).collect(),
            volatility,
        ),
    }
}

/// What a function gave, if it is what it said.
fn checked(name: &str, array: ArrayRef, wanted: &DataType, rows: usize) -> Result<ArrayRef> {
    if array.data_type() == wanted && array.len() == rows {
        return Ok(array);
    }
    let said = |data_type: &DataType| crate::error::mapping::type_name(data_type);
    Err(Error::new(
        sqlstate::DATATYPE_MISMATCH,
        format!("function {name} gave what it does not say that it gives"),
    )
    .detail(format!(
        "{} values of type {}, not {rows} of type {}.",
        array.len(),
        said(array.data_type()),
        said(wanted)
    )))
}

#[derive(Debug)]
struct Scalar {
    function: Arc<dyn ScalarFunction>,
    signature: Signature,
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.function.name() == other.function.name()
    }
}

impl Eq for Scalar {}

impl Hash for Scalar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name().hash(state);
    }
}

impl ScalarUDFImpl for Scalar {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(self.function.result().to_arrow())
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs) -> DataFusionResult<FieldRef> {
        Ok(Arc::new(self.function.result().to_field(self.name(), true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let rows = args.number_rows;
        let arguments = ColumnarValue::values_to_arrays(&args.args)?;
        let arguments = match arguments.iter().all(|a| a.len() == rows) {
            true => arguments,
            // Constants alone have the length of one.
            false => {
                let whole = args.args.iter().map(|a| a.to_array(rows));
                whole.collect::<DataFusionResult<Vec<_>>>()?
            }
        };
        let array = self.function.compute(&arguments, rows)?;
        let wanted = self.function.result().to_arrow();
        Ok(ColumnarValue::Array(checked(
            self.name(),
            array,
            &wanted,
            rows,
        )?))
    }
}

#[derive(Debug)]
struct Aggregate {
    function: Arc<dyn AggregateFunction>,
    signature: Signature,
}

impl PartialEq for Aggregate {
    fn eq(&self, other: &Self) -> bool {
        self.function.name() == other.function.name()
    }
}

impl Eq for Aggregate {}

impl Hash for Aggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name().hash(state);
    }
}

impl AggregateUDFImpl for Aggregate {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(self.function.result().to_arrow())
    }

    fn return_field(&self, _: &[FieldRef]) -> DataFusionResult<FieldRef> {
        Ok(Arc::new(self.function.result().to_field(self.name(), true)))
    }

    fn accumulator(&self, _: AccumulatorArgs) -> DataFusionResult<Box<dyn Accumulator>> {
        Ok(Box::new(Rows {
            types: self.types(),
            function: Arc::clone(&self.function),
            batches: Vec::new(),
        }))
    }

    /// The rows themselves, each argument as a list.
    fn state_fields(&self, _: StateFieldsArgs) -> DataFusionResult<Vec<FieldRef>> {
        let types = self.types().into_iter().enumerate();
        Ok(types
            .map(|(at, data_type)| {
                let item = Arc::new(Field::new("item", data_type, true));
                let list = DataType::List(item);
                Arc::new(Field::new(format!("argument {at}"), list, true))
            })
            .collect())
    }
}

impl Aggregate {
    fn types(&self) -> Vec<DataType> {
        let parameters = self.function.parameters();
        parameters.iter().map(SqlType::to_arrow).collect()
    }
}

/// The rows of a group.
#[derive(Debug)]
struct Rows {
    function: Arc<dyn AggregateFunction>,
    types: Vec<DataType>,
    batches: Vec<Vec<ArrayRef>>,
}

impl Rows {
    fn columns(&self) -> DataFusionResult<Vec<ArrayRef>> {
        let types = self.types.iter().enumerate();
        types
            .map(|(at, data_type)| {
                let parts: Vec<&dyn Array> = self.batches.iter().map(|b| b[at].as_ref()).collect();
                match parts.is_empty() {
                    true => Ok(new_empty_array(data_type)),
                    false => Ok(concat(&parts)?),
                }
            })
            .collect()
    }
}

impl Accumulator for Rows {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.batches.push(values.to_vec());
        Ok(())
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        let array = self.function.compute(&self.columns()?)?;
        let wanted = self.function.result().to_arrow();
        let array = checked(self.function.name(), array, &wanted, 1)?;
        ScalarValue::try_from_array(&array, 0)
    }

    fn size(&self) -> usize {
        let arrays = self.batches.iter().flatten();
        size_of_val(self) + arrays.map(|a| a.get_array_memory_size()).sum::<usize>()
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        let columns = self.columns()?.into_iter();
        Ok(columns
            .map(|column| {
                let list = datafusion::common::utils::SingleRowListArrayBuilder::new(column);
                list.build_list_scalar()
            })
            .collect())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        let rows = states.first().map_or(0, |column| column.len());
        for row in 0..rows {
            let columns = states.iter().map(|column| {
                let list = datafusion::common::cast::as_list_array(column)?;
                Ok(list.value(row))
            });
            self.batches.push(columns.collect::<DataFusionResult<_>>()?);
        }
        Ok(())
    }
}
