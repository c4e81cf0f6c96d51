//! Functions of one double that PostgreSQL refuses outside of their range, where the engine's give
//! NaN; and the trigonometric ones of degrees.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, Float64Array};
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::common::Result as DataFusionResult;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::{arrays, no_function, result, udf};
use crate::error::{Error, Result, sqlstate};

/// A function and the arguments that it takes.
struct Function {
    name: &'static str,
    compute: fn(f64) -> f64,
    takes: fn(f64) -> bool,
}

const FUNCTIONS: [Function; 15] = [
    function("acos", f64::acos, is_cosine),
    function("asin", f64::asin, is_cosine),
    function("acosh", f64::acosh, |x| x >= 1.0),
    function("atanh", f64::atanh, is_cosine),
    function("cos", f64::cos, f64::is_finite),
    function("cot", |x| 1.0 / x.tan(), f64::is_finite),
    function("sin", f64::sin, f64::is_finite),
    function("tan", f64::tan, f64::is_finite),
    function("acosd", |x| whole_degrees(x.acos().to_degrees()), is_cosine),
    function("asind", |x| whole_degrees(x.asin().to_degrees()), is_cosine),
    function("atand", |x| whole_degrees(x.atan().to_degrees()), |_| true),
    function(
        "cosd",
        |x| sine_of_degrees(90.0 - x.abs() % 360.0),
        f64::is_finite,
    ),
    function("cotd", |x| cosine(x) / sine_of_degrees(x), f64::is_finite),
    function("sind", sine_of_degrees, f64::is_finite),
    function("tand", |x| sine_of_degrees(x) / cosine(x), f64::is_finite),
];

const fn function(name: &'static str, compute: fn(f64) -> f64, takes: fn(f64) -> bool) -> Function {
    Function {
        name,
        compute,
        takes,
    }
}

fn is_cosine(x: f64) -> bool {
    (-1.0..=1.0).contains(&x)
}

fn cosine(x: f64) -> f64 {
    sine_of_degrees(90.0 - x.abs() % 360.0)
}

/// Whole degrees where the angle is one but for the last digits.
pub(super) fn whole_degrees(degrees: f64) -> f64 {
    let whole = degrees.round();
    if (degrees - whole).abs() < 1e-13 * whole.abs().max(1.0) {
        whole
    } else {
        degrees
    }
}

/// Exact at multiples of 30 degrees, where the value has one digit.
fn sine_of_degrees(degrees: f64) -> f64 {
    let turned = degrees % 360.0;
    let (sign, turned) = if turned < 0.0 {
        (-1.0, -turned)
    } else {
        (1.0, turned)
    };
    let (sign, turned) = if turned > 180.0 {
        (-sign, turned - 180.0)
    } else {
        (sign, turned)
    };
    let first = if turned > 90.0 {
        180.0 - turned
    } else {
        turned
    };
    let value = if first == 0.0 {
        return 0.0;
    } else if first == 30.0 {
        0.5
    } else if first == 90.0 {
        1.0
    } else {
        first.to_radians().sin()
    };
    sign * value
}

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    FUNCTIONS
        .iter()
        .map(|function| {
            udf(OfAngle {
                function,
                signature: Signature::user_defined(Volatility::Immutable),
            })
        })
        .collect()
}

struct OfAngle {
    function: &'static Function,
    signature: Signature,
}

impl std::fmt::Debug for OfAngle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.function.name)
    }
}

impl PartialEq for OfAngle {
    fn eq(&self, other: &Self) -> bool {
        self.function.name == other.function.name
    }
}

impl Eq for OfAngle {}

impl Hash for OfAngle {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.name.hash(state);
    }
}

impl OfAngle {
    fn of(&self, x: f64) -> Result<f64> {
        if x.is_nan() || (self.function.takes)(x) {
            return Ok((self.function.compute)(x));
        }
        Err(Error::new(
            sqlstate::NUMERIC_OUT_OF_RANGE,
            "input is out of range",
        ))
    }
}

impl ScalarUDFImpl for OfAngle {
    fn name(&self) -> &str {
        self.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> DataFusionResult<Vec<DataType>> {
        match types {
            [given] if given.is_numeric() || given.is_null() || *given == DataType::Utf8 => {
                Ok(vec![DataType::Float64])
            }
            _ => Err(no_function(self.name(), types).into()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(DataType::Float64)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> DataFusionResult<ColumnarValue> {
        let (columns, constant) = arrays(&args)?;
        let values = columns[0].as_primitive::<Float64Type>().iter();
        let computed = values
            .map(|value| value.map(|value| self.of(value)).transpose())
            .collect::<Result<Float64Array>>()?;
        result(Arc::new(computed), constant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees() {
        for (degrees, sine) in [
            (30.0, 0.5),
            (90.0, 1.0),
            (150.0, 0.5),
            (180.0, 0.0),
            (-30.0, -0.5),
            (330.0, -0.5),
            (750.0, 0.5),
        ] {
            assert_eq!(sine_of_degrees(degrees), sine, "{degrees}");
        }
        assert_eq!(cosine(60.0), 0.5);
        assert_eq!(cosine(-120.0), -0.5);
        assert_eq!(whole_degrees(0.5_f64.acos().to_degrees()), 60.0);
    }
}
