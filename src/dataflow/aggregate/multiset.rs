//! Multisets: (group, row) → weight, for what no column can hold.
//!
//! A table's key is the group's key and then the row, both arrow-row bytes, so that a group's rows
//! lie together in the order the aggregate wants. The group key ends itself (no key is the
//! beginning of another), so a group is one key range. Rows' changes gather in memory during the
//! batch; at its end each changed row is read and written once, and what the aggregate says is
//! derived again for groups that changed. Where rows never go away and are only counted, the weight
//! is the set of the calls that have seen the row ([`MultisetKind::Seen`]).

use datafusion::arrow::array::{Array, ArrayRef, BinaryArray, UInt32Array};
use datafusion::arrow::compute::{concat, take};

use super::columns::StateColumn;
use super::keys::binary_from;
use super::multiset_plan::{MultisetKind, MultisetPlan};
use super::shared::Ends;
use crate::dataflow::entries::Entries;
use crate::dataflow::number::{read_integer, write_signed};
use crate::error::{Error, Result};
use crate::state::{EntryKind, StateScan, StateSnapshot};

/// Rows given to an accumulator at once.
const CHUNK_ROWS: usize = 8192;

/// A changed row of a group.
#[derive(Debug)]
pub struct Delta {
    /// Group in its shard; after sorting, its rank among the touched groups.
    pub group: u32,
    /// Row.
    pub row: Box<[u8]>,
    /// Change of its weight; calls that see it.
    pub weight: i64,
}

impl MultisetPlan {
    /// What an input row of a weight is to the multiset; `takes` says of a mask whether it takes the row.
    pub fn delta(&self, takes: impl Fn(usize) -> bool, weight: i64) -> i64 {
        let calls = self.calls.iter().enumerate();
        let taking = calls.filter(|(_, call)| takes(call.mask));
        match self.kind {
            MultisetKind::Seen => taking.fold(0, |seen, (number, _)| seen | 1 << number),
            _ => taking.map(|_| weight).sum(),
        }
    }

    fn combined(&self, one: i64, other: i64) -> i64 {
        match self.kind {
            MultisetKind::Seen => one | other,
            _ => one + other,
        }
    }
}

/// A changed row with its weights before and after.
struct Changed<'a> {
    rank: u32,
    row: &'a [u8],
    before: i64,
    after: i64,
}

/// The touched groups of a shard, by rank in key order.
pub struct TouchedGroups<'a> {
    /// Keys by rank.
    pub keys: &'a BinaryArray,
    /// Group by rank.
    pub groups: &'a [u32],
    /// Which of them need no rows after the batch.
    pub ends: &'a Ends,
}

/// Applies a batch's deltas (their `group` being the rank): writes weights, updates the columns of its calls.
/// Returns by how many the table's rows grew. Nothing is written of groups that the batch closes.
pub fn apply(
    plan: &MultisetPlan,
    mut deltas: Vec<Delta>,
    touched: &TouchedGroups<'_>,
    columns: &mut [StateColumn],
    snapshot: &StateSnapshot,
    entries: &mut Entries,
) -> Result<i64> {
    deltas.sort_unstable_by(|a, b| a.group.cmp(&b.group).then_with(|| a.row.cmp(&b.row)));
    let mut changed = consolidate(plan, &deltas);
    if changed.is_empty() {
        return Ok(0);
    }
    let mut key = Vec::new();
    let keys: Vec<Vec<u8>> = changed
        .iter()
        .map(|c| {
            key.clear();
            key.extend_from_slice(touched.keys.value(c.rank as usize));
            key.extend_from_slice(c.row);
            key.clone()
        })
        .collect();
    read_weights(plan, &keys, &mut changed, snapshot)?;
    let mut growth = 0;
    for (change, key) in changed.iter().zip(&keys) {
        if touched.ends.is_closing(change.rank as usize) || change.after == change.before {
            continue;
        }
        match change.after {
            0 => entries.delete(key),
            after => {
                let kind = EntryKind::of_value(change.before != 0);
                entries.put(kind, key, |out| write_signed(after.into(), out));
            }
        }
        growth += i64::from(change.after != 0) - i64::from(change.before != 0);
    }
    for changes in changed.chunk_by(|a, b| a.rank == b.rank) {
        let rank = changes[0].rank as usize;
        let group = touched.groups[rank] as usize;
        derive(
            plan,
            changes,
            touched.keys.value(rank),
            group,
            columns,
            snapshot,
        )?;
    }
    Ok(growth)
}

fn consolidate<'d>(plan: &MultisetPlan, deltas: &'d [Delta]) -> Vec<Changed<'d>> {
    deltas
        .chunk_by(|a, b| a.group == b.group && a.row == b.row)
        .map(|same| Changed {
            rank: same[0].group,
            row: &same[0].row,
            before: 0,
            after: (same.iter()).fold(0, |all, delta| plan.combined(all, delta.weight)),
        })
        .filter(|changed| changed.after != 0)
        .collect()
}

/// Fills in the weights before, and turns `after` from a change into a weight.
fn read_weights(
    plan: &MultisetPlan,
    keys: &[Vec<u8>],
    changed: &mut [Changed<'_>],
    snapshot: &StateSnapshot,
) -> Result<()> {
    if snapshot.may_hold(plan.table)? {
        let stored = snapshot.get_many(plan.table, &binary_from(keys.iter().map(Vec::as_slice)))?;
        for (index, change) in changed.iter_mut().enumerate() {
            if stored.is_valid(index) {
                change.before = read_integer(&mut stored.value(index))?;
                change.after = plan.combined(change.after, change.before);
            }
        }
    }
    if changed.iter().any(|c| c.after < 0) {
        return Err(Error::damaged(
            "an aggregate was told to delete a row that it does not hold",
        ));
    }
    Ok(())
}

/// Sets a group's element of the calls' columns from its changed rows.
fn derive(
    plan: &MultisetPlan,
    changes: &[Changed<'_>],
    group_key: &[u8],
    group: usize,
    columns: &mut [StateColumn],
    snapshot: &StateSnapshot,
) -> Result<()> {
    let column = &mut columns[plan.calls[0].column];
    match &plan.kind {
        MultisetKind::Distinct => {
            let crossings: i64 = changes
                .iter()
                .map(|c| i64::from(c.after > 0) - i64::from(c.before > 0))
                .sum();
            column.integers_mut()[group] += crossings;
        }
        MultisetKind::Seen => {
            for (number, call) in plan.calls.iter().enumerate() {
                let is_new = |c: &&Changed<'_>| (c.after ^ c.before) >> number & 1 == 1;
                let new_rows = changes.iter().filter(is_new).count();
                columns[call.column].integers_mut()[group] += new_rows as i64;
            }
        }
        MultisetKind::First => {
            let stored = &mut column.bytes_mut()[group];
            let is_gone = |row: &[u8]| {
                changes
                    .binary_search_by(|c| c.row.cmp(row))
                    .is_ok_and(|i| changes[i].after == 0)
            };
            let first_live = changes.iter().find(|c| c.after > 0).map(|c| c.row);
            *stored = match stored.take() {
                None => first_live.map(Into::into),
                // The first one was deleted: the next is wherever the group's next live row is.
                Some(first) if is_gone(&first) => {
                    let mut rows = LiveRows::open(plan, group_key, changes, snapshot)?;
                    rows.next()?.map(|(row, _)| row.into())
                }
                Some(first) => match first_live {
                    Some(row) if *row < *first => Some(row.into()),
                    _ => Some(first),
                },
            };
        }
        MultisetKind::Recompute { .. } => {
            let rows = LiveRows::open(plan, group_key, changes, snapshot)?;
            column.bytes_mut()[group] = Some(recompute(plan, rows)?);
        }
    }
    Ok(())
}

/// What a recomputed call says over no rows, as it is for a group none of whose rows it takes.
pub fn empty_result(plan: &MultisetPlan) -> Result<Option<Box<[u8]>>> {
    let MultisetKind::Recompute {
        expression, result, ..
    } = &plan.kind
    else {
        return Ok(None);
    };
    let array = expression.create_accumulator()?.evaluate()?.to_array()?;
    Ok(Some(result.convert_columns(&[array])?.row(0).data().into()))
}

/// Runs the call's accumulator over a group's rows.
fn recompute(plan: &MultisetPlan, mut rows: LiveRows<'_>) -> Result<Box<[u8]>> {
    let MultisetKind::Recompute {
        expression,
        order_columns,
        distinct,
        result,
    } = &plan.kind
    else {
        unreachable!("only recomputed calls get here");
    };
    let mut accumulator = expression.create_accumulator()?;
    let parser = plan.converter.parser();
    let mut chunk: Vec<Vec<u8>> = Vec::new();
    let mut indexes: Vec<u32> = Vec::new();
    loop {
        let next = rows.next()?;
        let is_end = next.is_none();
        if let Some((row, weight)) = next {
            let copies = if *distinct { 1 } else { weight };
            let index = chunk.len() as u32;
            chunk.push(row.to_vec());
            indexes.extend(std::iter::repeat_n(
                index,
                usize::try_from(copies).unwrap_or(0),
            ));
        }
        if indexes.len() >= CHUNK_ROWS || (is_end && !indexes.is_empty()) {
            let columns = plan
                .converter
                .convert_rows(chunk.iter().map(|row| parser.parse(row)))?;
            let picks = UInt32Array::from(std::mem::take(&mut indexes));
            let columns: Vec<ArrayRef> = columns
                .iter()
                .map(|c| take(c, &picks, None))
                .collect::<std::result::Result<_, _>>()?;
            // An accumulator takes its arguments first, then what it is ordered by.
            let (order, arguments) = columns.split_at(*order_columns);
            let values: Vec<ArrayRef> = arguments.iter().chain(order).cloned().collect();
            accumulator.update_batch(&values)?;
            chunk.clear();
        }
        if is_end {
            break;
        }
    }
    let value = accumulator.evaluate()?.to_array()?;
    let value = concat(&[value.as_ref()])?;
    Ok(result.convert_columns(&[value])?.row(0).data().into())
}

/// A group's rows after the batch, in order: the store's, with the batch's changes over them.
struct LiveRows<'a> {
    scan: Option<StateScan>,
    prefix: usize,
    changes: std::iter::Peekable<std::slice::Iter<'a, Changed<'a>>>,
    row: Vec<u8>,
}

impl<'a> LiveRows<'a> {
    fn open(
        plan: &MultisetPlan,
        group_key: &[u8],
        changes: &'a [Changed<'a>],
        snapshot: &StateSnapshot,
    ) -> Result<Self> {
        let upper = successor(group_key);
        let mut scan = snapshot.scan(plan.table, Some(group_key), upper.as_deref())?;
        let scan = if scan.advance()? { Some(scan) } else { None };
        Ok(Self {
            scan,
            prefix: group_key.len(),
            changes: changes.iter().peekable(),
            row: Vec::new(),
        })
    }

    /// The next row that is there, with its weight.
    fn next(&mut self) -> Result<Option<(&[u8], i64)>> {
        loop {
            let stored = self.scan.as_ref().map(|scan| &scan.key()[self.prefix..]);
            let is_change = match (stored, self.changes.peek()) {
                (None, None) => return Ok(None),
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (Some(stored), Some(change)) => change.row <= stored,
            };
            if is_change {
                let change = self.changes.next().expect("it was just looked at");
                if stored == Some(change.row) {
                    self.step()?;
                }
                if change.after > 0 {
                    self.row.clear();
                    self.row.extend_from_slice(change.row);
                    return Ok(Some((&self.row, change.after)));
                }
                continue;
            }
            let scan = self.scan.as_ref().expect("the scan has an entry");
            self.row.clear();
            self.row.extend_from_slice(&scan.key()[self.prefix..]);
            let weight = read_integer(&mut scan.value())?;
            self.step()?;
            return Ok(Some((&self.row, weight)));
        }
    }

    fn step(&mut self) -> Result<()> {
        if let Some(scan) = &mut self.scan
            && !scan.advance()?
        {
            self.scan = None;
        }
        Ok(())
    }
}

/// Writes deletions of all rows of a group; returns how many. Groups must come in key order.
pub fn delete_group(
    plan: &MultisetPlan,
    group_key: &[u8],
    snapshot: &StateSnapshot,
    entries: &mut Entries,
) -> Result<i64> {
    let upper = successor(group_key);
    let mut scan = snapshot.scan(plan.table, Some(group_key), upper.as_deref())?;
    let mut rows = 0;
    while scan.advance()? {
        entries.delete(scan.key());
        rows += 1;
    }
    Ok(rows)
}

/// The smallest key greater than all that begin with `prefix`; `None`: there is no such key.
pub fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}
