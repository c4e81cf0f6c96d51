//! Our scalar functions: windows, checked arithmetic, and PostgreSQL functions that DataFusion
//! does not have or means otherwise. All are pure functions of their arguments, so a view may use
//! them; what needs a catalog or a session (`to_regclass_oid`, `current_user`, …) is registered by
//! whoever has those.

mod ages;
mod angles;
pub mod arithmetic;
mod array_or_empty;
pub(crate) mod averages;
mod beside;
mod bits;
mod bytes;
pub(crate) mod casts;
pub mod characters;
pub(crate) mod common_type;
pub(crate) mod excluding;
mod extract;
mod float_arithmetic;
mod float_totals;
pub mod format;
mod format_intervals;
mod formatted;
mod interval_totals;
pub(crate) mod intervals;
pub(crate) mod json;
mod json_build;
mod json_pairs;
pub(crate) mod json_texts;
mod jsonb_scalars;
pub(crate) mod kept;
mod made_times;
mod maths;
pub mod numbers;
pub(crate) mod numerics;
pub(crate) mod only_value;
mod option_lists;
mod ordered_sets;
mod pairs;
pub mod patterns;
mod plain;
pub(crate) mod quantified_patterns;
mod regex_groups;
mod regex_searches;
mod regexes;
pub(crate) mod rounding;
pub(crate) mod self_sorted;
pub mod sized;
mod sliding;
pub(crate) mod sums;
pub(crate) mod texts;
pub mod times;
mod to_number;
mod trimmed_arrays;
mod truncation;
mod unicode;
pub mod uuids;
pub mod version;
mod whole_numerics;
pub mod windows;
pub(crate) mod zoned;

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, FieldRef};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
};

use crate::error::{Error, sqlstate};

/// All functions that every session has.
pub fn all() -> Vec<Arc<ScalarUDF>> {
    let mut functions = windows::functions();
    functions.extend(patterns::functions());
    functions.extend(times::functions());
    functions.extend(uuids::functions());
    functions.extend(characters::functions());
    functions.extend(version::functions());
    functions.extend(sized::functions());
    functions.push(rounding::round());
    functions.push(to_number::to_number());
    functions.push(trimmed_arrays::trim_array());
    functions.extend(whole_numerics::functions());
    functions.push(numerics::to_bare_numeric());
    functions.push(array_or_empty::array_or_empty());
    functions.push(extract::extract());
    functions.push(formatted::format());
    functions.extend(quantified_patterns::functions());
    functions.extend(ages::functions());
    functions.extend(angles::functions());
    functions.push(truncation::date_trunc());
    functions.extend(common_type::functions());
    functions.extend(made_times::functions());
    functions.extend(bits::functions());
    functions.extend(bytes::functions());
    functions.extend(json::functions());
    functions.extend(json_build::functions());
    functions.extend(json_pairs::functions());
    functions.extend(json_texts::functions());
    functions.extend(maths::functions());
    functions.extend(option_lists::functions());
    functions.extend(ordered_sets::functions());
    functions.extend(regexes::functions());
    functions.extend(regex_searches::functions());
    functions.extend(unicode::functions());
    functions.extend(zoned::functions());
    functions
}

/// Aggregates in the place of the engine's.
pub(crate) fn aggregates() -> Vec<Arc<AggregateUDF>> {
    let mut aggregates = sliding::aggregates();
    aggregates.extend(pairs::aggregates());
    aggregates.extend([
        sums::sum(),
        averages::avg(),
        self_sorted::string_agg(),
        self_sorted::array_agg(),
    ]);
    aggregates
}

fn udf(function: impl ScalarUDFImpl + 'static) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::new_from_impl(function))
}

/// The arguments as arrays of one length, for functions that go row by row; the flag says whether
/// all were constants, so that the result may be one too.
pub(crate) fn arrays(args: &ScalarFunctionArgs) -> DataFusionResult<(Vec<ArrayRef>, bool)> {
    let constant = args
        .args
        .iter()
        .all(|a| matches!(a, ColumnarValue::Scalar(_)));
    let rows = if constant { 1 } else { args.number_rows };
    let arrays = args
        .args
        .iter()
        .map(|a| a.to_array(rows))
        .collect::<DataFusionResult<Vec<_>>>()?;
    Ok((arrays, constant))
}

/// An array, or its only value when the arguments were constants.
pub(crate) fn result(array: ArrayRef, constant: bool) -> DataFusionResult<ColumnarValue> {
    if constant {
        let scalar = datafusion::common::ScalarValue::try_from_array(&array, 0)?;
        Ok(ColumnarValue::Scalar(scalar))
    } else {
        Ok(ColumnarValue::Array(array))
    }
}

fn types_of(fields: &[FieldRef]) -> Vec<DataType> {
    fields.iter().map(|f| f.data_type().clone()).collect()
}

fn numeric_overflow() -> Error {
    Error::new(
        sqlstate::NUMERIC_OUT_OF_RANGE,
        "value overflows numeric format",
    )
    .detail(format!(
        "A numeric has at most {DECIMAL128_MAX_PRECISION} digits."
    ))
}

/// `function f(bigint, text) does not exist`.
fn no_function(name: &str, types: &[DataType]) -> Error {
    let types: Vec<String> = types.iter().map(crate::error::mapping::type_name).collect();
    Error::new(
        sqlstate::UNDEFINED_FUNCTION,
        format!("function {name}({}) does not exist", types.join(", ")),
    )
    .hint("No function matches the given name and argument types. You might need to add explicit type casts.")
}
