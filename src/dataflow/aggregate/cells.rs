//! Update rules of the cells: tight loops over (row, group) pairs.

use datafusion::arrow::buffer::NullBuffer;

use super::columns::StateColumn;
use super::input::{ArgumentValues, BatchInput};
use super::plan::{Cell, CellKind};
use crate::error::{Error, Result, sqlstate};

/// Adds `rows` (with the group of each in `groups`) to a cell's columns.
pub fn update(
    cell: &Cell,
    columns: &mut [StateColumn],
    input: &BatchInput,
    rows: &[u32],
    groups: &[u32],
) -> Result<()> {
    let mask = input.masks[cell.mask].as_ref();
    let take = Take {
        rows,
        groups,
        mask,
        weights: input.weights.as_deref(),
    };
    let column = &mut columns[cell.column];
    match (cell.kind, input.arguments.get(cell.argument)) {
        (CellKind::Count, _) => count(column.integers_mut(), take),
        (CellKind::Sum, Some(ArgumentValues::Integer(values))) => {
            sum(column.wides_mut(), take, |row| values[row].into())
        }
        (CellKind::Sum, Some(ArgumentValues::Wide(values))) => {
            sum(column.wides_mut(), take, |row| values[row])
        }
        (CellKind::SumFloat, Some(ArgumentValues::Float(values))) => {
            let sums = column.floats_mut();
            take.each(|row, group, weight| sums[group] += values[row] * weight as f64);
            Ok(())
        }
        (CellKind::ExtremeInteger { maximum }, Some(ArgumentValues::Integer(values))) => {
            extreme(column.wides_mut(), take, maximum, |row| values[row].into());
            Ok(())
        }
        (CellKind::ExtremeInteger { maximum }, Some(ArgumentValues::Wide(values))) => {
            extreme(column.wides_mut(), take, maximum, |row| values[row]);
            Ok(())
        }
        (CellKind::ExtremeFloat { maximum }, Some(ArgumentValues::Float(values))) => {
            let best = column.floats_mut();
            take.each(|row, group, _| {
                let order = values[row].total_cmp(&best[group]);
                if if maximum {
                    order.is_gt()
                } else {
                    order.is_lt()
                } {
                    best[group] = values[row];
                }
            });
            Ok(())
        }
        (CellKind::ExtremeBytes, Some(ArgumentValues::Encoded(values))) => {
            let best = column.bytes_mut();
            take.each(|row, group, _| {
                let value = values.row(row);
                if best[group].as_deref().is_none_or(|b| value.data() < b) {
                    best[group] = Some(value.data().into());
                }
            });
            Ok(())
        }
        (CellKind::Moments, Some(ArgumentValues::Float(values))) => {
            let [counts, means, squares] = &mut columns[cell.column..cell.column + 3] else {
                unreachable!("moments have three columns");
            };
            let moments = (
                counts.floats_mut(),
                means.floats_mut(),
                squares.floats_mut(),
            );
            add_moments(moments, take, values);
            Ok(())
        }
        _ => Err(Error::internal(
            "an aggregate's argument has another form than its cell needs",
        )),
    }
}

/// The rows that a cell takes.
#[derive(Clone, Copy)]
struct Take<'a> {
    rows: &'a [u32],
    groups: &'a [u32],
    mask: Option<&'a NullBuffer>,
    weights: Option<&'a [i64]>,
}

impl Take<'_> {
    /// Calls `f(row, group, weight)`; one loop for each case, so that the common one has no test.
    #[inline(always)]
    fn each(self, mut f: impl FnMut(usize, usize, i64)) {
        let pairs = self
            .rows
            .iter()
            .zip(self.groups)
            .map(|(&r, &g)| (r as usize, g as usize));
        match (self.mask, self.weights) {
            (None, None) => pairs.for_each(|(row, group)| f(row, group, 1)),
            (None, Some(weights)) => pairs.for_each(|(row, group)| f(row, group, weights[row])),
            (Some(mask), None) => pairs.for_each(|(row, group)| {
                if mask.is_valid(row) {
                    f(row, group, 1);
                }
            }),
            (Some(mask), Some(weights)) => pairs.for_each(|(row, group)| {
                if mask.is_valid(row) {
                    f(row, group, weights[row]);
                }
            }),
        }
    }
}

fn count(counts: &mut [i64], take: Take<'_>) -> Result<()> {
    let mut overflow = false;
    take.each(|_, group, weight| {
        let (sum, carried) = counts[group].overflowing_add(weight);
        counts[group] = sum;
        overflow |= carried;
    });
    check(overflow)
}

/// Adds the row counts of groups.
pub fn count_rows(
    counts: &mut [i64],
    rows: &[u32],
    groups: &[u32],
    weights: Option<&[i64]>,
) -> Result<()> {
    count(
        counts,
        Take {
            rows,
            groups,
            mask: None,
            weights,
        },
    )
}

#[inline(always)]
fn sum(sums: &mut [i128], take: Take<'_>, value: impl Fn(usize) -> i128) -> Result<()> {
    let mut overflow = false;
    if take.weights.is_none() {
        take.each(|row, group, _| {
            let (sum, carried) = sums[group].overflowing_add(value(row));
            sums[group] = sum;
            overflow |= carried;
        });
    } else {
        take.each(|row, group, weight| {
            let (product, large) = value(row).overflowing_mul(weight.into());
            let (sum, carried) = sums[group].overflowing_add(product);
            sums[group] = sum;
            overflow |= large | carried;
        });
    }
    check(overflow)
}

#[inline(always)]
fn extreme(best: &mut [i128], take: Take<'_>, maximum: bool, value: impl Fn(usize) -> i128) {
    if maximum {
        take.each(|row, group, _| best[group] = best[group].max(value(row)));
    } else {
        take.each(|row, group, _| best[group] = best[group].min(value(row)));
    }
}

fn add_moments(
    (counts, means, squares): (&mut [f64], &mut [f64], &mut [f64]),
    take: Take<'_>,
    values: &[f64],
) {
    take.each(|row, group, weight| {
        // Welford's update for `weight` equal values at once.
        let weight = weight as f64;
        let count = counts[group] + weight;
        let distance = values[row] - means[group];
        let mean = means[group] + distance * weight / count;
        squares[group] += weight * distance * (values[row] - mean);
        means[group] = mean;
        counts[group] = count;
    });
}

fn check(overflow: bool) -> Result<()> {
    if overflow {
        return Err(Error::new(
            sqlstate::NUMERIC_OUT_OF_RANGE,
            "numeric value out of range in an aggregate",
        ));
    }
    Ok(())
}
