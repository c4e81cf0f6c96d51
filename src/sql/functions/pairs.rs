//! Aggregates over pairs of numbers: `corr`, `covar_*` and `regr_*`, by PostgreSQL's way of adding
//! up (Youngs and Cramer), so that infinities and NaN give what they give there.
//!
//! In a window whose frame moves nothing is taken off: what is in the frame is added up anew, since
//! an infinity would never leave.

use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{Result as DataFusionResult, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};

use crate::error::{Error, Result, sqlstate};
use crate::values::float::double;

/// What is made of the sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Outcome {
    Correlation,
    Covariance { of_sample: bool },
    AverageX,
    AverageY,
    Count,
    Intercept,
    R2,
    Slope,
    SumXx,
    SumXy,
    SumYy,
}

/// The aggregates, under PostgreSQL's names; the first argument is y.
pub(super) fn aggregates() -> Vec<Arc<AggregateUDF>> {
    use Outcome::{
        AverageX, AverageY, Correlation, Count, Covariance, Intercept, R2, Slope, SumXx, SumXy,
        SumYy,
    };
    [
        ("corr", Correlation),
        ("covar_pop", Covariance { of_sample: false }),
        ("covar_samp", Covariance { of_sample: true }),
        ("regr_avgx", AverageX),
        ("regr_avgy", AverageY),
        ("regr_count", Count),
        ("regr_intercept", Intercept),
        ("regr_r2", R2),
        ("regr_slope", Slope),
        ("regr_sxx", SumXx),
        ("regr_sxy", SumXy),
        ("regr_syy", SumYy),
    ]
    .into_iter()
    .map(|(name, outcome)| {
        Arc::new(AggregateUDF::new_from_impl(Pairs {
            name,
            outcome,
            signature: Signature::exact(
                vec![DataType::Float64, DataType::Float64],
                Volatility::Immutable,
            ),
        }))
    })
    .collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Pairs {
    name: &'static str,
    outcome: Outcome,
    signature: Signature,
}

impl AggregateUDFImpl for Pairs {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DataFusionResult<DataType> {
        Ok(match self.outcome {
            Outcome::Count => DataType::Int64,
            _ => DataType::Float64,
        })
    }

    fn accumulator(&self, _: AccumulatorArgs) -> DataFusionResult<Box<dyn Accumulator>> {
        Ok(Box::new(Total {
            outcome: self.outcome,
            sums: Sums::default(),
        }))
    }

    fn create_sliding_accumulator(
        &self,
        _: AccumulatorArgs,
    ) -> DataFusionResult<Box<dyn Accumulator>> {
        Ok(Box::new(Frame {
            outcome: self.outcome,
            pairs: VecDeque::new(),
        }))
    }

    fn state_fields(&self, _: StateFieldsArgs) -> DataFusionResult<Vec<FieldRef>> {
        let names = ["n", "sx", "sxx", "sy", "syy", "sxy"];
        let field = |name| Arc::new(Field::new(name, DataType::Float64, false));
        Ok(names.map(field).to_vec())
    }
}

/// Number of pairs, sums, and sums of squared distances from the means.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sums {
    n: f64,
    x: f64,
    xx: f64,
    y: f64,
    yy: f64,
    xy: f64,
}

fn overflow() -> Error {
    Error::new(
        sqlstate::NUMERIC_OUT_OF_RANGE,
        "value out of range: overflow",
    )
}

impl Sums {
    /// Errors: 22003 finite values whose sums are not.
    fn add(&mut self, y: f64, x: f64) -> Result<()> {
        let before = *self;
        self.n += 1.0;
        self.x += x;
        self.y += y;
        if before.n == 0.0 {
            if !x.is_finite() {
                (self.xx, self.xy) = (f64::NAN, f64::NAN);
            }
            if !y.is_finite() {
                (self.yy, self.xy) = (f64::NAN, f64::NAN);
            }
            return Ok(());
        }
        let from_x = x * self.n - self.x;
        let from_y = y * self.n - self.y;
        let scale = 1.0 / (self.n * before.n);
        self.xx += from_x * from_x * scale;
        self.yy += from_y * from_y * scale;
        self.xy += from_x * from_y * scale;
        let of_x = !before.x.is_infinite() && !x.is_infinite();
        let of_y = !before.y.is_infinite() && !y.is_infinite();
        self.checked(of_x, of_y)
    }

    /// What another total of the same group holds. Errors: as [`Self::add`].
    fn merge(&mut self, other: Self) -> Result<()> {
        if other.n == 0.0 {
            return Ok(());
        }
        if self.n == 0.0 {
            *self = other;
            return Ok(());
        }
        let (one, n) = (*self, self.n + other.n);
        let of_x = one.x / one.n - other.x / other.n;
        let of_y = one.y / one.n - other.y / other.n;
        let weight = one.n * other.n / n;
        *self = Self {
            n,
            x: one.x + other.x,
            xx: one.xx + other.xx + weight * of_x * of_x,
            y: one.y + other.y,
            yy: one.yy + other.yy + weight * of_y * of_y,
            xy: one.xy + other.xy + weight * of_x * of_y,
        };
        let finite = |one: f64, other: f64| !one.is_infinite() && !other.is_infinite();
        self.checked(finite(one.x, other.x), finite(one.y, other.y))
    }

    fn checked(&mut self, x_was_finite: bool, y_was_finite: bool) -> Result<()> {
        let of_x = self.x.is_infinite() || self.xx.is_infinite();
        let of_y = self.y.is_infinite() || self.yy.is_infinite();
        let of_both = self.xy.is_infinite() && x_was_finite && y_was_finite;
        if of_x && x_was_finite || of_y && y_was_finite || of_both {
            return Err(overflow());
        }
        for sum in [&mut self.xx, &mut self.yy, &mut self.xy] {
            if sum.is_infinite() {
                *sum = f64::NAN;
            }
        }
        Ok(())
    }

    fn outcome(self, outcome: Outcome) -> ScalarValue {
        if outcome == Outcome::Count {
            return ScalarValue::Int64(Some(self.n as i64));
        }
        let least = match outcome {
            Outcome::Covariance { of_sample: true } => 2.0,
            _ => 1.0,
        };
        let value = (self.n >= least).then(|| self.value(outcome)).flatten();
        ScalarValue::Float64(value.map(double))
    }

    fn value(self, outcome: Outcome) -> Option<f64> {
        Some(match outcome {
            Outcome::Count => self.n,
            Outcome::SumXx => self.xx,
            Outcome::SumYy => self.yy,
            Outcome::SumXy => self.xy,
            Outcome::AverageX => self.x / self.n,
            Outcome::AverageY => self.y / self.n,
            Outcome::Covariance { of_sample: false } => self.xy / self.n,
            Outcome::Covariance { of_sample: true } => self.xy / (self.n - 1.0),
            Outcome::Correlation if self.xx == 0.0 || self.yy == 0.0 => return None,
            Outcome::Correlation => self.xy / (self.xx * self.yy).sqrt(),
            Outcome::R2 | Outcome::Slope | Outcome::Intercept if self.xx == 0.0 => return None,
            Outcome::R2 if self.yy == 0.0 => 1.0,
            Outcome::R2 => self.xy * self.xy / (self.xx * self.yy),
            Outcome::Slope => self.xy / self.xx,
            Outcome::Intercept => (self.y - self.x * self.xy / self.xx) / self.n,
        })
    }
}

/// Pairs without a NULL, y and x.
fn pairs(values: &[ArrayRef]) -> impl Iterator<Item = (f64, f64)> + '_ {
    let ys = values[0].as_primitive::<Float64Type>();
    let xs = values[1].as_primitive::<Float64Type>();
    ys.iter().zip(xs).filter_map(|(y, x)| y.zip(x))
}

#[derive(Debug)]
struct Total {
    outcome: Outcome,
    sums: Sums,
}

impl Accumulator for Total {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        for (y, x) in pairs(values) {
            self.sums.add(y, x)?;
        }
        Ok(())
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        Ok(self.sums.outcome(self.outcome))
    }

    fn size(&self) -> usize {
        size_of_val(self)
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        let Sums {
            n,
            x,
            xx,
            y,
            yy,
            xy,
        } = self.sums;
        let sums = [n, x, xx, y, yy, xy];
        Ok(sums.map(|sum| ScalarValue::Float64(Some(sum))).to_vec())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DataFusionResult<()> {
        let rows = states.first().map_or(0, |column| column.len());
        for row in 0..rows {
            let sum = |column: usize| states[column].as_primitive::<Float64Type>().value(row);
            self.sums.merge(Sums {
                n: sum(0),
                x: sum(1),
                xx: sum(2),
                y: sum(3),
                yy: sum(4),
                xy: sum(5),
            })?;
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Frame {
    outcome: Outcome,
    /// Every row's pair, none where a part of it is NULL.
    pairs: VecDeque<Option<(f64, f64)>>,
}

impl Accumulator for Frame {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        let ys = values[0].as_primitive::<Float64Type>();
        let xs = values[1].as_primitive::<Float64Type>();
        self.pairs.extend(ys.iter().zip(xs).map(|(y, x)| y.zip(x)));
        Ok(())
    }

    /// Rows leave a frame in the order in which they came.
    fn retract_batch(&mut self, values: &[ArrayRef]) -> DataFusionResult<()> {
        self.pairs.drain(..values[0].len());
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> DataFusionResult<ScalarValue> {
        let mut sums = Sums::default();
        for (y, x) in self.pairs.iter().flatten() {
            sums.add(*y, *x)?;
        }
        Ok(sums.outcome(self.outcome))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.pairs.len() * size_of::<Option<(f64, f64)>>()
    }

    fn state(&mut self) -> DataFusionResult<Vec<ScalarValue>> {
        Err(Error::internal("a window frame's aggregate has no states to merge").into())
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> DataFusionResult<()> {
        Err(Error::internal("a window frame's aggregate has no states to merge").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(pairs: &[(f64, f64)]) -> Sums {
        let mut sums = Sums::default();
        for (y, x) in pairs {
            sums.add(*y, *x).unwrap();
        }
        sums
    }

    /// Values of PostgreSQL 15.
    #[test]
    fn as_in_postgres() {
        let value = |pairs: &[(f64, f64)], outcome| sums(pairs).outcome(outcome);
        let float = |value| ScalarValue::Float64(Some(value));
        let three = [(2.0, 1.0), (3.0, 2.0), (7.0, 3.0)];
        assert_eq!(value(&three, Outcome::Slope), float(2.5));
        assert_eq!(value(&three, Outcome::Intercept), float(-1.0));
        assert_eq!(value(&three, Outcome::R2), float(0.8928571428571429));
        let level = [(2.0, 1.0), (2.0, 2.0)];
        assert_eq!(value(&level, Outcome::R2), float(1.0));
        assert!(value(&level, Outcome::Correlation).is_null());
        let infinite = [(2.0, 1.0), (f64::INFINITY, 2.0), (4.0, 3.0)];
        assert_eq!(value(&infinite, Outcome::AverageY), float(f64::INFINITY));
        assert_eq!(value(&infinite, Outcome::SumXx), float(2.0));
        match value(&infinite, Outcome::Correlation) {
            ScalarValue::Float64(Some(value)) => assert!(value.is_nan()),
            other => panic!("{other}"),
        }
        assert!(Sums::default().outcome(Outcome::SumXy).is_null());
    }

    #[test]
    fn totals_merge() {
        let all = [(2.0, 1.0), (3.0, 2.0), (7.0, 3.0), (1.0, 5.0)];
        let mut one = sums(&all[..1]);
        one.merge(sums(&all[1..])).unwrap();
        one.merge(Sums::default()).unwrap();
        let whole = sums(&all);
        assert_eq!((one.n, one.x, one.y), (whole.n, whole.x, whole.y));
        assert!((one.xy - whole.xy).abs() < 1e-9 && (one.yy - whole.yy).abs() < 1e-9);
    }
}
