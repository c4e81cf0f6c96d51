//! Filling one run from several threads: each writes the entries of its key range in place, so that
//! no part is copied into the whole afterwards. What must be known before is how much each writes.

use super::run::{EntryKind, PREFIX_BYTES, Run};

/// What a part of a run holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunSizes {
    /// Entries.
    pub entries: usize,
    /// Bytes of all keys with their table prefix.
    pub key_bytes: usize,
    /// Bytes of all values.
    pub value_bytes: usize,
}

/// The place in a run where one thread writes its entries, beside others that write theirs.
#[derive(Debug)]
pub struct RunRoom<'a> {
    keys: &'a mut [u8],
    key_offsets: &'a mut [u64],
    values: &'a mut [u8],
    value_offsets: &'a mut [u64],
    kinds: &'a mut [EntryKind],
    /// Where the next key and the next value begin in the run.
    next: (u64, u64),
    filled: RunSizes,
}

impl RunRoom<'_> {
    /// Writes the next entry; its key must be greater than the last one. A tombstone's value is empty.
    pub fn push(&mut self, table: [u8; PREFIX_BYTES], kind: EntryKind, key: &[u8], value: &[u8]) {
        let filled = &mut self.filled;
        let end = filled.key_bytes + PREFIX_BYTES + key.len();
        let to = &mut self.keys[filled.key_bytes..end];
        to[..PREFIX_BYTES].copy_from_slice(&table);
        to[PREFIX_BYTES..].copy_from_slice(key);
        filled.key_bytes = end;
        self.kinds[filled.entries] = kind;
        let end = filled.value_bytes + value.len();
        self.values[filled.value_bytes..end].copy_from_slice(value);
        filled.value_bytes = end;
        self.key_offsets[filled.entries] = self.next.0 + filled.key_bytes as u64;
        self.value_offsets[filled.entries] = self.next.1 + filled.value_bytes as u64;
        filled.entries += 1;
    }
}

impl Run {
    /// A run in parts that `fill` writes, each to its end: for threads that each know which entries
    /// theirs are. The keys ascend within a part and from part to part.
    pub fn filled(sizes: &[RunSizes], fill: impl FnOnce(Vec<RunRoom<'_>>)) -> Run {
        let sum = |of: fn(&RunSizes) -> usize| sizes.iter().map(of).sum::<usize>();
        let entries = sum(|s| s.entries);
        if entries == 0 {
            return Run::default();
        }
        let mut run = Run {
            key_offsets: vec![0; entries + 1],
            keys: vec![0; sum(|s| s.key_bytes)],
            value_offsets: vec![0; entries + 1],
            values: vec![0; sum(|s| s.value_bytes)],
            kinds: vec![EntryKind::default(); entries],
            dropped_tables: Vec::new(),
        };
        let mut next = (0, 0);
        let mut keys = run.keys.as_mut_slice();
        let mut key_offsets = &mut run.key_offsets[1..];
        let mut values = run.values.as_mut_slice();
        let mut value_offsets = &mut run.value_offsets[1..];
        let mut kinds = run.kinds.as_mut_slice();
        let mut rooms = Vec::with_capacity(sizes.len());
        for size in sizes {
            rooms.push(RunRoom {
                keys: split_off(&mut keys, size.key_bytes),
                key_offsets: split_off(&mut key_offsets, size.entries),
                values: split_off(&mut values, size.value_bytes),
                value_offsets: split_off(&mut value_offsets, size.entries),
                kinds: split_off(&mut kinds, size.entries),
                next,
                filled: RunSizes::default(),
            });
            next.0 += size.key_bytes as u64;
            next.1 += size.value_bytes as u64;
        }
        fill(rooms);
        debug_assert!(
            run.key_offsets.last() == Some(&next.0) && run.value_offsets.last() == Some(&next.1),
            "every part is written to its end"
        );
        debug_assert!(
            (1..run.len()).all(|index| run.key(index - 1) < run.key(index)),
            "keys ascend"
        );
        run
    }
}

fn split_off<'a, T>(rest: &mut &'a mut [T], length: usize) -> &'a mut [T] {
    let (head, tail) = std::mem::take(rest).split_at_mut(length);
    *rest = tail;
    head
}
