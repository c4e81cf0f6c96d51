//! Integers in stored values: zigzag and LEB128, so that the small ones that counts, sums and
//! weights mostly are take a byte or two. In keys: eight bytes that compare as the numbers do, as
//! times must.

use crate::error::{Error, Result};

/// Appends a signed integer: zigzag, then LEB128.
pub fn write_signed(value: i128, out: &mut Vec<u8>) {
    match i64::try_from(value) {
        // Nearly all: 64-bit arithmetic. The zigzag of an i64 is the same number in both widths.
        Ok(small) => {
            let mut rest = ((small << 1) ^ (small >> 63)) as u64;
            let mut bytes = [0; 10];
            let mut length = 0;
            while rest >= 0x80 {
                bytes[length] = rest as u8 | 0x80;
                rest >>= 7;
                length += 1;
            }
            bytes[length] = rest as u8;
            // All ten and then fewer: a copy of a known size is one or two instructions.
            out.extend_from_slice(&bytes);
            out.truncate(out.len() - bytes.len() + length + 1);
        }
        Err(_) => write_unsigned(((value << 1) ^ (value >> 127)) as u128, out),
    }
}

/// Appends an unsigned integer as LEB128.
pub fn write_unsigned(mut rest: u128, out: &mut Vec<u8>) {
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Reads what [`write_signed`] wrote and moves `input` past it.
pub fn read_signed(input: &mut &[u8]) -> Result<i128> {
    let zigzag = read_unsigned(input)?;
    Ok((zigzag >> 1) as i128 ^ -((zigzag & 1) as i128))
}

/// As [`read_signed`], for a number that was written from 64 bits.
pub fn read_integer(input: &mut &[u8]) -> Result<i64> {
    i64::try_from(read_signed(input)?).map_err(|_| truncated())
}

/// Reads what [`write_unsigned`] wrote and moves `input` past it.
pub fn read_unsigned(input: &mut &[u8]) -> Result<u128> {
    let mut value = 0u128;
    for (index, byte) in input.iter().enumerate() {
        if index >= 19 {
            break;
        }
        value |= u128::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            *input = &input[index + 1..];
            return Ok(value);
        }
    }
    Err(truncated())
}

/// An integer in bytes that compare as the numbers do: big endian, the sign turned round.
pub fn sortable_bytes(value: i64) -> [u8; 8] {
    ((value as u64) ^ (1 << 63)).to_be_bytes()
}

/// The integer of the [`sortable_bytes`] that `bytes` begin with.
pub fn read_sortable(bytes: &[u8]) -> Result<i64> {
    let head = bytes.first_chunk::<8>().ok_or_else(truncated)?;
    Ok((u64::from_be_bytes(*head) ^ (1 << 63)) as i64)
}

/// A stored value ended early or is malformed.
pub fn truncated() -> Error {
    Error::damaged("a state entry is cut short or malformed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sortable_bytes_compare_as_their_numbers() {
        let numbers = [i64::MIN, -2, -1, 0, 1, 255, 256, i64::MAX];
        let bytes = numbers.map(sortable_bytes);
        assert!(bytes.is_sorted_by(|a, b| a < b));
        assert_eq!(bytes.map(|bytes| read_sortable(&bytes).unwrap()), numbers);
        assert!(read_sortable(&bytes[0][..7]).is_err());
    }

    #[test]
    fn numbers_survive_their_stored_form() {
        let values = [
            0,
            1,
            -1,
            63,
            64,
            -64,
            -65,
            i64::MAX.into(),
            i64::MIN.into(),
            i128::MAX,
            i128::MIN,
        ];
        for value in values {
            let mut bytes = Vec::new();
            write_signed(value, &mut bytes);
            let mut input = bytes.as_slice();
            assert_eq!(read_signed(&mut input).unwrap(), value);
            assert!(input.is_empty());
            for cut in 0..bytes.len() {
                assert!(read_signed(&mut &bytes[..cut]).is_err());
            }
        }
    }
}
