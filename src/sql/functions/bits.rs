//! Bits and bytes of a `bytea`: `get_bit`, `set_bit`, `set_byte`, `bit_count` (PostgreSQL 15 documentation, section
//! 9.5). Bits of a byte count from its lowest one. `get_byte` is in [`super::bytes`].

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::ScalarUDF;

use super::plain::{bytes, form, plain, whole};
use crate::error::{Error, Result, sqlstate};

pub(super) fn functions() -> Vec<Arc<ScalarUDF>> {
    vec![
        plain("get_bit", &[form!([Bytea, BigInt] -> Integer, bit_at)]),
        plain(
            "set_bit",
            &[form!([Bytea, BigInt, Integer] -> Bytea, with_bit)],
        ),
        plain(
            "set_byte",
            &[form!([Bytea, Integer, Integer] -> Bytea, with_byte)],
        ),
        plain(
            "bit_count",
            &[form!([Bytea] -> BigInt, |a| {
                let ones = bytes(&a[0])?.iter().map(|byte| i64::from(byte.count_ones()));
                Ok(ScalarValue::Int64(Some(ones.sum())))
            })],
        ),
    ]
}

/// A place among so many. Errors: 2202E one that there is not.
pub(super) fn place(at: i64, count: usize) -> Result<usize> {
    let place = usize::try_from(at).ok().filter(|at| *at < count);
    place.ok_or_else(|| {
        Error::new(
            sqlstate::ARRAY_SUBSCRIPT_ERROR,
            format!("index {at} out of valid range, 0..{}", count as i64 - 1),
        )
    })
}

fn bit_at(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let given = bytes(&arguments[0])?;
    let at = place(whole(&arguments[1])?, given.len() * 8)?;
    let bit = given[at / 8] >> (at % 8) & 1;
    Ok(ScalarValue::Int32(Some(i32::from(bit))))
}

fn with_bit(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let mut changed = bytes(&arguments[0])?.to_vec();
    let at = place(whole(&arguments[1])?, changed.len() * 8)?;
    let mask = 1u8 << (at % 8);
    match whole(&arguments[2])? {
        0 => changed[at / 8] &= !mask,
        1 => changed[at / 8] |= mask,
        _ => {
            return Err(Error::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                "new bit must be 0 or 1",
            ));
        }
    }
    Ok(ScalarValue::Binary(Some(changed)))
}

fn with_byte(arguments: &[ScalarValue]) -> Result<ScalarValue> {
    let mut changed = bytes(&arguments[0])?.to_vec();
    let at = place(whole(&arguments[1])?, changed.len())?;
    // PostgreSQL keeps the lowest eight bits of any number.
    changed[at] = (whole(&arguments[2])? & 0xff) as u8;
    Ok(ScalarValue::Binary(Some(changed)))
}
