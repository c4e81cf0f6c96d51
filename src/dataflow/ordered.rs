//! Rows by group and order in state: what top-N, window functions and sessions stand on.
//!
//! ```text
//!   key of an entry:   group │ order │ row │ lengths of group and order
//!                      └ bytes that compare as the values do ┘
//! ```
//!
//! The rows of a group lie together in the order that its ORDER BY asks for; rows that tie there
//! are ordered by all their columns, so that an answer never hangs on the order of arrival. Where
//! the group holds event time, that column's bytes come first: all groups that a watermark closes
//! are then one range, which is deleted without an index of ends.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type, SchemaRef};
use datafusion::arrow::row::{RowConverter, SortField};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};

use super::aggregate::EventTimeGroup;
use super::bag::{Bag, SettledRows};
use super::change::ChangeBatch;
use super::number::{read_sortable, sortable_bytes};
use super::operator::{BatchContext, Retention};
use super::row_errors::RowErrors;
use super::rows::{KeyCodec, RowCodec, comparable_floats};
use crate::error::Result;

/// How rows are grouped and ordered.
#[derive(Debug, Clone)]
pub struct OrderedSpec {
    /// Input rows.
    pub input: SchemaRef,
    /// PARTITION BY; empty: all rows are one group.
    pub group: Vec<Arc<dyn PhysicalExpr>>,
    /// ORDER BY within a group.
    pub order: Vec<PhysicalSortExpr>,
    /// What a watermark closes: the first of `group`; `None`: nothing.
    pub event_time: Option<EventTimeGroup>,
    /// The first of `order` is an event time, ascending; added to a time it gives the watermark at
    /// which rows of it are late. `None`: the order follows no watermark.
    pub order_closes_after: Option<i64>,
}

/// An entry's bytes, told apart.
#[derive(Debug, Clone, Copy)]
pub struct EntryParts<'a> {
    /// The group's key.
    pub group: &'a [u8],
    /// The order key.
    pub order: &'a [u8],
    /// The row, as [`OrderedEncoding::codec`] encodes it.
    pub row: &'a [u8],
}

/// Rows as entries: group, order and row in bytes.
#[derive(Debug)]
pub struct OrderedEncoding {
    spec: OrderedSpec,
    /// The expressions of group and order.
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    groups: KeyCodec,
    order: Option<RowConverter>,
    codec: RowCodec,
    /// Rows on which one of them cannot be computed.
    pub errors: RowErrors,
}

/// The entries, kept in the state store.
#[derive(Debug)]
pub struct OrderedRows {
    /// How rows become entries.
    pub encoding: OrderedEncoding,
    /// The entries with their weights.
    pub bag: Bag,
}

impl OrderedEncoding {
    /// An encoding; 0A000 for a type whose values have no order.
    pub fn new(spec: OrderedSpec) -> Result<Self> {
        let type_of = |e: &Arc<dyn PhysicalExpr>| e.data_type(&spec.input);
        let types = spec
            .group
            .iter()
            .map(type_of)
            .collect::<Result<Vec<_>, _>>()?;
        let fields = spec
            .order
            .iter()
            .map(|sort| {
                Ok(SortField::new_with_options(
                    type_of(&sort.expr)?,
                    sort.options,
                ))
            })
            .collect::<Result<Vec<_>>>()?;
        let order = spec.order.iter().map(|sort| &sort.expr);
        Ok(Self {
            expressions: spec.group.iter().chain(order).cloned().collect(),
            errors: RowErrors::default(),
            groups: KeyCodec::new(types)?,
            order: match fields.is_empty() {
                true => None,
                false => Some(RowConverter::new(fields)?),
            },
            codec: RowCodec::new(spec.input.clone())?,
            spec,
        })
    }

    /// Encodes and decodes rows.
    pub fn codec(&self) -> &RowCodec {
        &self.codec
    }

    /// Calls `take` with group, rest of the entry and weight of each row of a change; the number
    /// of rows that were late, and so left out.
    pub fn each(
        &mut self,
        change: &ChangeBatch,
        context: &BatchContext,
        mut take: impl FnMut(&[u8], &[u8], i64),
    ) -> Result<u64> {
        let (change, mut groups) = self.errors.evaluate(&self.expressions, change.clone())?;
        let orders = groups.split_off(self.spec.group.len());
        let late = self.late_rows(&groups, &orders, context)?;
        let groups = self.groups.encode(&groups)?;
        let rows = self.codec.encode(change.rows())?;
        let orders = match &self.order {
            None => None,
            Some(converter) => {
                let columns: Vec<ArrayRef> = orders.iter().map(comparable_floats).collect();
                Some(converter.convert_columns(&columns)?)
            }
        };
        let mut dropped = 0;
        let mut tail = Vec::new();
        for index in 0..change.num_rows() {
            if late.as_ref().is_some_and(|late| late.value(index)) {
                dropped += change.weight(index).unsigned_abs();
                continue;
            }
            let order = orders.as_ref().map(|orders| orders.row(index));
            let order = order.as_ref().map_or(&[][..], |order| order.data());
            tail.clear();
            tail.extend_from_slice(order);
            tail.extend_from_slice(rows.row(index));
            push_length(groups.row(index).len(), &mut tail);
            push_length(order.len(), &mut tail);
            take(groups.row(index), &tail, change.weight(index));
        }
        Ok(dropped)
    }

    /// Rows of groups that the watermark has closed, or behind it in the order; `None`: it closes
    /// none.
    fn late_rows(
        &self,
        groups: &[ArrayRef],
        orders: &[ArrayRef],
        context: &BatchContext,
    ) -> Result<Option<BooleanArray>> {
        let Some(watermark) = context.watermark else {
            return Ok(None);
        };
        let behind = |times: &ArrayRef, offset: i64| -> Result<BooleanArray> {
            let values = cast(times, &DataType::Int64)?;
            let values = values.as_primitive::<Int64Type>().iter();
            Ok(values
                .map(|value| Some(value.is_some_and(|v| v.saturating_add(offset) <= watermark)))
                .collect())
        };
        if let Some(time) = self.spec.event_time {
            return Ok(Some(behind(&groups[time.group_index], time.end_offset)?));
        }
        if let Some(offset) = self.spec.order_closes_after {
            return Ok(Some(behind(&orders[0], offset)?));
        }
        Ok(None)
    }

    /// The latest time in the order that the watermark has closed.
    pub fn order_closed_to(&self, context: &BatchContext) -> Option<i64> {
        let offset = self.spec.order_closes_after?;
        Some(context.watermark?.saturating_sub(offset))
    }

    /// The groups that the watermark has closed lie from the first key to below the second.
    pub fn closed_range(&self, context: &BatchContext) -> Option<(Vec<u8>, Vec<u8>)> {
        let (time, watermark) = (self.spec.event_time?, context.watermark?);
        assert_eq!(time.group_index, 0, "the closing column leads the key");
        let above = watermark.saturating_sub(time.end_offset).checked_add(1)?;
        // arrow-row: a value is 1 and its sortable bytes; NULL, which never closes, is 0.
        Some((vec![1], [&[1], &sortable_bytes(above)[..]].concat()))
    }

    /// When state is freed.
    pub fn retention(&self) -> Retention {
        match self.spec.event_time {
            Some(_) => {
                Retention::by_time("freed when the watermark closes the window of the group")
            }
            None if self.spec.order_closes_after.is_some() => Retention::by_time(
                "freed behind the watermark, but for the rows that later ones look back to",
            ),
            None => Retention::by_input("kept while the row is in the input"),
        }
    }
}

impl OrderedRows {
    /// Rows kept under a stable name.
    pub fn new(name: &str, spec: OrderedSpec) -> Result<Self> {
        Ok(Self {
            encoding: OrderedEncoding::new(spec)?,
            bag: Bag::new(&format!("{name}/rows")),
        })
    }

    /// Takes a change; the number of rows that were late, and so left out.
    pub fn push(&mut self, change: &ChangeBatch, context: &BatchContext) -> Result<u64> {
        let bag = &mut self.bag;
        self.encoding.each(change, context, |group, tail, weight| {
            bag.add(group, tail, weight);
        })
    }

    /// Takes the groups that the watermark has closed out of the state. They were answered for,
    /// and no row of theirs can come any more. Before settling.
    pub fn forget_closed(&mut self, context: &BatchContext) -> Result<()> {
        let Some((lower, upper)) = self.encoding.closed_range(context) else {
            return Ok(());
        };
        let snapshot = &context.snapshot;
        let mut closed = self.bag.read_due(snapshot, &lower, &upper)?;
        while closed.advance()? {
            self.bag.add(closed.row(), &[], -closed.weight());
        }
        Ok(())
    }

    /// The settled entries of each group that is still open.
    pub fn changed_groups(&self, context: &BatchContext) -> Vec<Range<usize>> {
        let changes = self.bag.settled();
        let mut groups = group_ranges(changes);
        if let Some((lower, upper)) = self.encoding.closed_range(context) {
            groups.retain(|range| {
                let key = changes.key(range.start);
                key < &lower[..] || key >= &upper[..]
            });
        }
        groups
    }
}

/// Appends a length so that it can be read from the end: base 128, the lowest digit last.
fn push_length(length: usize, out: &mut Vec<u8>) {
    let start = out.len();
    let mut rest = length;
    loop {
        let more = rest >= 0x80;
        out.push((rest & 0x7f) as u8 | if more { 0x80 } else { 0 });
        rest >>= 7;
        if !more {
            break;
        }
    }
    out[start..].reverse();
}

/// Takes a length off the end.
fn pop_length(bytes: &mut &[u8]) -> usize {
    let (mut length, mut shift) = (0, 0);
    while let Some((last, rest)) = bytes.split_last() {
        *bytes = rest;
        length |= usize::from(last & 0x7f) << shift;
        shift += 7;
        if last & 0x80 == 0 {
            break;
        }
    }
    length
}

/// Tells a whole entry apart.
pub fn parts(entry: &[u8]) -> EntryParts<'_> {
    let mut rest = entry;
    let order_len = pop_length(&mut rest);
    let group_len = pop_length(&mut rest);
    let (group, rest) = rest.split_at(group_len);
    let (order, row) = rest.split_at(order_len);
    EntryParts { group, order, row }
}

/// Tells an entry apart that was read without its group's bytes.
pub fn tail_parts(tail: &[u8]) -> EntryParts<'_> {
    let mut rest = tail;
    let order_len = pop_length(&mut rest);
    pop_length(&mut rest);
    let (order, row) = rest.split_at(order_len);
    EntryParts {
        group: &[],
        order,
        row,
    }
}

/// The time that an order key of one integer or timestamp begins with (arrow-row: 1 and its
/// sortable bytes); `None`: NULL.
pub fn leading_time(order: &[u8]) -> Option<i64> {
    read_sortable(order.strip_prefix(&[1])?).ok()
}

/// The entries of each group, consecutive since the group's bytes come first.
fn group_ranges(changes: &SettledRows) -> Vec<Range<usize>> {
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for index in 0..changes.len() {
        match ranges.last_mut() {
            Some(last)
                if parts(changes.key(last.start)).group == parts(changes.key(index)).group =>
            {
                last.end = index + 1;
            }
            _ => ranges.push(index..index + 1),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_fall_apart_again() {
        for (group, order) in [(0, 0), (1, 127), (128, 3), (20_000, 129)] {
            let mut entry = vec![7; group];
            entry.extend(vec![8; order]);
            entry.extend(b"row");
            push_length(group, &mut entry);
            push_length(order, &mut entry);
            let parts = parts(&entry);
            assert_eq!((parts.group.len(), parts.order.len()), (group, order));
            assert_eq!(parts.row, b"row");
        }
    }
}
