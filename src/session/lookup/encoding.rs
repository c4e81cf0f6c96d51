//! The encoded bytes of a key column's values, and what comparisons with a value leave of them.

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;

use super::intervals::{Interval, Intervals};
use crate::state::key_range::after_prefix;

/// Encodes values of one column as they lie in stored keys.
pub struct ColumnEncoding {
    data_type: DataType,
    descending: bool,
    converter: RowConverter,
    null: Interval,
}

/// A value in the type of a column.
struct Converted {
    value: ScalarValue,
    /// No digit was lost.
    is_exact: bool,
}

impl ColumnEncoding {
    /// The encoding of a column of a type; `None` for types whose values are not looked up by.
    pub fn of(data_type: &DataType, options: SortOptions) -> Option<Self> {
        if !is_ordered(data_type) {
            return None;
        }
        let field = SortField::new_with_options(data_type.clone(), options);
        let mut encoding = Self {
            data_type: data_type.clone(),
            descending: options.descending,
            converter: RowConverter::new(vec![field]).ok()?,
            null: Interval::between(Vec::new(), None),
        };
        let null = ScalarValue::try_from(data_type).ok()?;
        encoding.null = Interval::value(encoding.encode(&null)?);
        Some(encoding)
    }

    /// The column's type.
    pub fn data_type(&self) -> &DataType {
        &self.data_type
    }

    fn encode(&self, value: &ScalarValue) -> Option<Vec<u8>> {
        let rows = self.converter.convert_columns(&[value.to_array().ok()?]);
        Some(rows.ok()?.row(0).data().to_vec())
    }

    /// NULL.
    pub fn null(&self) -> Intervals {
        Intervals::one(self.null.clone())
    }

    /// All values but NULL.
    pub fn not_null(&self) -> Intervals {
        // NULL lies at one end, whichever that is.
        Intervals::union([
            Intervals::one(Interval::between(Vec::new(), Some(self.null.lower.clone()))),
            match self.null.upper.clone() {
                Some(upper) => Intervals::one(Interval::between(upper, None)),
                None => Intervals::none(),
            },
        ])
    }

    /// The values for which `column operator value` holds, and perhaps some more; `None`: nothing is
    /// known of them. `value` may be of another type, in which the comparison is made.
    pub fn compared(&self, operator: Operator, value: &ScalarValue) -> Option<Intervals> {
        if value.is_null() {
            // Neither true nor false of any row.
            return is_comparison(operator).then(Intervals::none);
        }
        let Converted { value, is_exact } = self.converted(value)?;
        if is_nan(&value) {
            return None;
        }
        let (least, greatest) = self.equal_to(&value)?;
        let after = |bytes: &[u8]| after_prefix(bytes);
        let set = match (operator, is_exact) {
            // Of a value that the column cannot have.
            (Operator::Eq, false) => Intervals::none(),
            (Operator::Eq, true) => {
                let values = [least, greatest].map(|bytes| Intervals::one(Interval::value(bytes)));
                Intervals::union(values)
            }
            // A rounded bound is a value next to the bound, and is let in.
            (Operator::Lt, true) if !self.descending && least == greatest => {
                Intervals::one(Interval::between(Vec::new(), Some(least)))
            }
            (Operator::Gt, true) if self.descending && least == greatest => {
                Intervals::one(Interval::between(Vec::new(), Some(least)))
            }
            (Operator::Gt, true) if !self.descending && least == greatest => {
                Intervals::one(Interval::between(after(&greatest)?, None))
            }
            (Operator::Lt, true) if self.descending && least == greatest => {
                Intervals::one(Interval::between(after(&greatest)?, None))
            }
            (Operator::Lt | Operator::LtEq, _) if !self.descending => {
                Intervals::one(Interval::between(Vec::new(), after(&greatest)))
            }
            (Operator::Gt | Operator::GtEq, _) if self.descending => {
                Intervals::one(Interval::between(Vec::new(), after(&greatest)))
            }
            (Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq, _) => {
                Intervals::one(Interval::between(least, None))
            }
            _ => return None,
        };
        Some(set.intersection(&self.not_null()))
    }

    /// The first and the last encoding, in the order of bytes, of what counts as equal to a value:
    /// both zeros of a floating point number do.
    fn equal_to(&self, value: &ScalarValue) -> Option<(Vec<u8>, Vec<u8>)> {
        let zeros = match value {
            ScalarValue::Float64(Some(zero)) if *zero == 0.0 => {
                Some([-0.0, 0.0].map(ScalarValue::from))
            }
            ScalarValue::Float32(Some(zero)) if *zero == 0.0 => {
                Some([-0.0f32, 0.0].map(ScalarValue::from))
            }
            _ => None,
        };
        match zeros {
            None => {
                let encoded = self.encode(value)?;
                Some((encoded.clone(), encoded))
            }
            Some([a, b]) => {
                let (a, b) = (self.encode(&a)?, self.encode(&b)?);
                Some(if a <= b { (a, b) } else { (b, a) })
            }
        }
    }

    fn converted(&self, value: &ScalarValue) -> Option<Converted> {
        let from = value.data_type();
        if from == self.data_type {
            return Some(Converted {
                value: value.clone(),
                is_exact: true,
            });
        }
        let there = value.cast_to(&self.data_type).ok()?;
        let back = there.cast_to(&from).ok()?;
        (!there.is_null()).then(|| Converted {
            is_exact: back == *value,
            value: there,
        })
    }
}

fn is_comparison(operator: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, Lt, LtEq};
    matches!(operator, Eq | Lt | LtEq | Gt | GtEq)
}

fn is_nan(value: &ScalarValue) -> bool {
    match value {
        ScalarValue::Float64(Some(number)) => number.is_nan(),
        ScalarValue::Float32(Some(number)) => number.is_nan(),
        _ => false,
    }
}

/// Types whose values compare as their encodings do.
pub fn is_ordered(data_type: &DataType) -> bool {
    use DataType::{
        Binary, Boolean, Date32, Decimal128, FixedSizeBinary, Float32, Float64, Int8, Int16, Int32,
        Int64, LargeUtf8, Time64, Timestamp, UInt8, UInt16, UInt32, UInt64, Utf8,
    };
    matches!(
        data_type,
        Boolean
            | Int8
            | Int16
            | Int32
            | Int64
            | UInt8
            | UInt16
            | UInt32
            | UInt64
            | Float32
            | Float64
            | Decimal128(_, _)
            | Date32
            | Time64(_)
            | Timestamp(_, _)
            | Utf8
            | LargeUtf8
            | Binary
            | FixedSizeBinary(_)
    )
}

/// Casting to `to` keeps values of type `from` apart and in their order.
pub fn is_widening(from: &DataType, to: &DataType) -> bool {
    use DataType::{
        Date32, Decimal128, Float32, Float64, Int16, Int32, Int64, LargeUtf8, Timestamp, Utf8,
        Utf8View,
    };
    let digits = |integer: &DataType| match integer {
        Int16 => Some(5),
        Int32 => Some(10),
        Int64 => Some(19),
        _ => None,
    };
    match (from, to) {
        (Int16, Int32 | Int64) | (Int32, Int64) | (Float32, Float64) => true,
        (Int16 | Int32, Float64) => true,
        (Utf8, LargeUtf8 | Utf8View) => true,
        (Date32, Timestamp(_, None)) => true,
        (Decimal128(precision, scale), Decimal128(wide, fine)) => {
            let (before, after) = (
                i16::from(*precision) - i16::from(*scale),
                i16::from(*wide) - i16::from(*fine),
            );
            fine >= scale && after >= before
        }
        (integer, Decimal128(precision, scale)) => digits(integer)
            .is_some_and(|digits: i16| i16::from(*precision) - i16::from(*scale) >= digits),
        _ => false,
    }
}
