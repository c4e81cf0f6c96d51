//! Columns of accumulator state: one vector per accumulator part, one element per group.
//!
//! Columns rather than one struct per group, so that an update loop touches only what it changes
//! and a whole batch of groups is finished with vector operations. A group's entry in the state
//! store is its row count and then every column's element, in plan order: integers as zigzag
//! LEB128 (counts and sums are mostly small), floats as 8 bytes little endian, bytes with their
//! length before them. Absent: what the numbers mean ([`super::cells`], [`super::output`]).

use crate::dataflow::number::{
    read_integer, read_signed, read_unsigned, truncated, write_signed, write_unsigned,
};
use crate::error::Result;

/// Type and starting value of a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ColumnKind {
    /// 64-bit integer, starting at 0.
    Integer,
    /// 128-bit integer with its starting value.
    Wide(i128),
    /// Float with its starting value.
    Float(f64),
    /// Optional bytes, starting absent.
    Bytes,
}

/// The elements of a column.
#[derive(Debug)]
pub enum StateColumn {
    /// 64-bit integers.
    Integer(Vec<i64>),
    /// 128-bit integers.
    Wide(Vec<i128>),
    /// Floats.
    Float(Vec<f64>),
    /// Optional bytes.
    Bytes(Vec<Option<Box<[u8]>>>),
}

impl StateColumn {
    /// An empty column.
    pub fn new(kind: ColumnKind) -> Self {
        match kind {
            ColumnKind::Integer => Self::Integer(Vec::new()),
            ColumnKind::Wide(_) => Self::Wide(Vec::new()),
            ColumnKind::Float(_) => Self::Float(Vec::new()),
            ColumnKind::Bytes => Self::Bytes(Vec::new()),
        }
    }

    /// Grows to `len` elements with the starting value.
    pub fn grow(&mut self, len: usize, kind: ColumnKind) {
        match (self, kind) {
            (Self::Integer(v), ColumnKind::Integer) => v.resize(len, 0),
            (Self::Wide(v), ColumnKind::Wide(initial)) => v.resize(len, initial),
            (Self::Float(v), ColumnKind::Float(initial)) => v.resize(len, initial),
            (Self::Bytes(v), ColumnKind::Bytes) => v.resize(len, None),
            _ => unreachable!("a column is grown with the kind it was made with"),
        }
    }

    /// Sets one element back to the starting value.
    pub fn reset(&mut self, index: usize, kind: ColumnKind) {
        match (self, kind) {
            (Self::Integer(v), ColumnKind::Integer) => v[index] = 0,
            (Self::Wide(v), ColumnKind::Wide(initial)) => v[index] = initial,
            (Self::Float(v), ColumnKind::Float(initial)) => v[index] = initial,
            (Self::Bytes(v), ColumnKind::Bytes) => v[index] = None,
            _ => unreachable!("a column is reset with the kind it was made with"),
        }
    }

    /// Appends copies of `source`'s elements at `indexes`.
    pub fn extend_from(&mut self, source: &Self, indexes: &[u32]) {
        match (self, source) {
            (Self::Integer(to), Self::Integer(from)) => {
                to.extend(indexes.iter().map(|&i| from[i as usize]));
            }
            (Self::Wide(to), Self::Wide(from)) => {
                to.extend(indexes.iter().map(|&i| from[i as usize]));
            }
            (Self::Float(to), Self::Float(from)) => {
                to.extend(indexes.iter().map(|&i| from[i as usize]));
            }
            (Self::Bytes(to), Self::Bytes(from)) => {
                to.extend(indexes.iter().map(|&i| from[i as usize].clone()));
            }
            _ => unreachable!("columns of one plan position have one kind"),
        }
    }

    /// Element `index` is not what element `other_index` of `other` is; floats by their bits.
    pub fn differs(&self, index: usize, other: &Self, other_index: usize) -> bool {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => a[index] != b[other_index],
            (Self::Wide(a), Self::Wide(b)) => a[index] != b[other_index],
            (Self::Float(a), Self::Float(b)) => a[index].to_bits() != b[other_index].to_bits(),
            (Self::Bytes(a), Self::Bytes(b)) => a[index] != b[other_index],
            _ => unreachable!("columns of one plan position have one kind"),
        }
    }

    /// Forgets all elements, keeping the allocation.
    pub fn clear(&mut self) {
        match self {
            Self::Integer(v) => v.clear(),
            Self::Wide(v) => v.clear(),
            Self::Float(v) => v.clear(),
            Self::Bytes(v) => v.clear(),
        }
    }

    /// Bytes held.
    pub fn size_bytes(&self) -> usize {
        match self {
            Self::Integer(v) => v.capacity() * 8,
            Self::Wide(v) => v.capacity() * 16,
            Self::Float(v) => v.capacity() * 8,
            Self::Bytes(v) => {
                v.capacity() * 16 + v.iter().flatten().map(|b| b.len() + 16).sum::<usize>()
            }
        }
    }

    /// Appends element `index` in its stored form.
    pub fn encode(&self, index: usize, out: &mut Vec<u8>) {
        match self {
            Self::Integer(v) => write_signed(v[index].into(), out),
            Self::Wide(v) => write_signed(v[index], out),
            Self::Float(v) => out.extend_from_slice(&v[index].to_le_bytes()),
            Self::Bytes(v) => match &v[index] {
                None => write_unsigned(0, out),
                Some(bytes) => {
                    write_unsigned(bytes.len() as u128 + 1, out);
                    out.extend_from_slice(bytes);
                }
            },
        }
    }

    /// Reads element `index` from its stored form and moves `input` past it.
    pub fn decode(&mut self, index: usize, input: &mut &[u8]) -> Result<()> {
        match self {
            Self::Integer(v) => v[index] = read_integer(input)?,
            Self::Wide(v) => v[index] = read_signed(input)?,
            Self::Float(v) => {
                let (head, tail) = input.split_first_chunk::<8>().ok_or_else(truncated)?;
                v[index] = f64::from_le_bytes(*head);
                *input = tail;
            }
            Self::Bytes(v) => {
                let length = read_unsigned(input)?;
                v[index] = if length == 0 {
                    None
                } else {
                    let length = usize::try_from(length - 1).map_err(|_| truncated())?;
                    let (head, tail) = input.split_at_checked(length).ok_or_else(truncated)?;
                    *input = tail;
                    Some(head.into())
                };
            }
        }
        Ok(())
    }

    /// The integers of an integer column.
    pub fn integers(&self) -> &[i64] {
        match self {
            Self::Integer(v) => v,
            _ => unreachable!("the plan reads an integer column here"),
        }
    }

    /// The integers of an integer column, to change.
    pub fn integers_mut(&mut self) -> &mut [i64] {
        match self {
            Self::Integer(v) => v,
            _ => unreachable!("the plan changes an integer column here"),
        }
    }

    /// The numbers of a wide column.
    pub fn wides(&self) -> &[i128] {
        match self {
            Self::Wide(v) => v,
            _ => unreachable!("the plan reads a wide column here"),
        }
    }

    /// The numbers of a wide column, to change.
    pub fn wides_mut(&mut self) -> &mut [i128] {
        match self {
            Self::Wide(v) => v,
            _ => unreachable!("the plan changes a wide column here"),
        }
    }

    /// The numbers of a float column.
    pub fn floats(&self) -> &[f64] {
        match self {
            Self::Float(v) => v,
            _ => unreachable!("the plan reads a float column here"),
        }
    }

    /// The numbers of a float column, to change.
    pub fn floats_mut(&mut self) -> &mut [f64] {
        match self {
            Self::Float(v) => v,
            _ => unreachable!("the plan changes a float column here"),
        }
    }

    /// The elements of a bytes column.
    pub fn bytes(&self) -> &[Option<Box<[u8]>>] {
        match self {
            Self::Bytes(v) => v,
            _ => unreachable!("the plan reads a bytes column here"),
        }
    }

    /// The elements of a bytes column, to change.
    pub fn bytes_mut(&mut self) -> &mut [Option<Box<[u8]>>] {
        match self {
            Self::Bytes(v) => v,
            _ => unreachable!("the plan changes a bytes column here"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_and_empty_bytes_differ() {
        let mut column =
            StateColumn::Bytes(vec![None, Some(Box::default()), Some(Box::from(*b"ab"))]);
        let mut bytes = Vec::new();
        (0..3).for_each(|i| column.encode(i, &mut bytes));
        let before = column.bytes().to_vec();
        let mut input = bytes.as_slice();
        for i in 0..3 {
            column.reset(i, ColumnKind::Bytes);
            column.decode(i, &mut input).unwrap();
        }
        assert_eq!(column.bytes(), before);
    }
}
