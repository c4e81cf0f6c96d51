//! A sorted immutable run: unique keys in byte order, each with a value or a tombstone.
//!
//! All bytes of all keys lie in one buffer and all values in another, with offsets beside them:
//! building, merging and scanning a run touches memory in order and allocates per run, never per
//! entry. A run may also *drop tables*: it then hides every older entry of those tables, which is
//! how the state of a dropped view goes away, in the checkpoint as in the store.
//!
//! A writer that knows that a key was not there says so. Where such a value and its deletion meet in a
//! merge, both are gone: else every row that comes and goes while it is in memory would leave a
//! trace for the cold tier. Only a run in memory knows this; one that was read from a file does not,
//! since a cold tier may be anywhere between the batches that were merged into it.
//! The file form is in `run_file`. Deliberately absent: compression (values are short) and any
//! index beyond the offsets; a look-up of sorted keys gallops.

use std::cmp::Ordering;
use std::ops::Range;

use super::TableId;

/// Length of the table prefix of every key.
pub(super) const PREFIX_BYTES: usize = 8;

/// What an entry says of its key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EntryKind {
    /// It has this value.
    #[default]
    Value,
    /// It has this value, and before this entry it was not there.
    NewValue,
    /// It is deleted.
    Tombstone,
}

impl EntryKind {
    /// The kind of a value, by whether its key was there before.
    pub fn of_value(was_there: bool) -> Self {
        match was_there {
            true => Self::Value,
            false => Self::NewValue,
        }
    }
}

/// Entries sorted by key; keys unique; `None` value = deleted. Cheap to share behind `Arc`.
#[derive(Debug, Default)]
pub struct Run {
    /// `len + 1` offsets into `keys`, or none at all in an empty run.
    pub(super) key_offsets: Vec<u64>,
    pub(super) keys: Vec<u8>,
    pub(super) value_offsets: Vec<u64>,
    pub(super) values: Vec<u8>,
    pub(super) kinds: Vec<EntryKind>,
    /// Ascending tables whose older entries this run hides.
    pub(super) dropped_tables: Vec<TableId>,
}

/// Builds a run from entries that come in key order.
#[derive(Debug, Default)]
pub struct RunBuilder {
    run: Run,
}

impl RunBuilder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// A builder with room for `entries` entries of `key_bytes` and `value_bytes` in all.
    pub fn with_capacity(entries: usize, key_bytes: usize, value_bytes: usize) -> Self {
        let mut run = Run::default();
        run.reserve(entries, key_bytes, value_bytes);
        Self { run }
    }

    /// Appends an entry; `key` (with its table prefix) must be greater than the last one.
    pub fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        match value {
            Some(value) => self.push_as(EntryKind::Value, key, value),
            None => self.push_as(EntryKind::Tombstone, key, &[]),
        }
    }

    /// As [`Self::push`], by kind; a tombstone's value is empty.
    pub fn push_as(&mut self, kind: EntryKind, key: &[u8], value: &[u8]) {
        debug_assert!(key.len() >= PREFIX_BYTES, "a key begins with its table");
        debug_assert!(
            self.run.is_empty() || self.run.key(self.run.len() - 1) < key,
            "keys ascend"
        );
        let run = &mut self.run;
        run.begin_offsets();
        run.keys.extend_from_slice(key);
        run.key_offsets.push(run.keys.len() as u64);
        run.values.extend_from_slice(value);
        run.value_offsets.push(run.values.len() as u64);
        run.kinds.push(kind);
    }

    /// The finished run.
    pub fn finish(mut self) -> Run {
        self.run.shrink_when_wasteful();
        self.run
    }
}

impl Run {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// No entries (it may still drop tables: see [`Self::changes_nothing`]).
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Neither entries nor dropped tables: applying it has no effect.
    pub fn changes_nothing(&self) -> bool {
        self.is_empty() && self.dropped_tables.is_empty()
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.keys.len() + self.values.len() + 17 * self.len() + 8 * self.dropped_tables.len()
    }

    /// Key `index` with its table prefix.
    pub fn key(&self, index: usize) -> &[u8] {
        &self.keys[self.key_offsets[index] as usize..self.key_offsets[index + 1] as usize]
    }

    /// Value `index`; `None` for a tombstone.
    pub fn value(&self, index: usize) -> Option<&[u8]> {
        (self.kinds[index] != EntryKind::Tombstone).then(|| {
            &self.values[self.value_offsets[index] as usize..self.value_offsets[index + 1] as usize]
        })
    }

    /// All keys of a range of entries one after the other, and all their values.
    pub(super) fn entry_bytes(&self, range: Range<usize>) -> (&[u8], &[u8]) {
        if range.is_empty() {
            return (&[], &[]);
        }
        let of = |offsets: &[u64]| offsets[range.start] as usize..offsets[range.end] as usize;
        (
            &self.keys[of(&self.key_offsets)],
            &self.values[of(&self.value_offsets)],
        )
    }

    /// Tables whose older entries this run hides, ascending. Its own entries are newer than that.
    pub fn dropped_tables(&self) -> &[TableId] {
        &self.dropped_tables
    }

    /// Makes this run hide all older entries of `tables`: the state of dropped views. It holds
    /// for the store and, since the checkpoint keeps runs, over restarts.
    pub fn drop_tables(&mut self, tables: &[TableId]) {
        self.dropped_tables.extend_from_slice(tables);
        self.dropped_tables.sort_unstable();
        self.dropped_tables.dedup();
    }

    /// This run hides older entries of `table`.
    pub fn drops_table(&self, table: TableId) -> bool {
        self.dropped_tables.binary_search(&table).is_ok()
    }

    /// Indices of the entries of a table.
    pub fn table_range(&self, table: TableId) -> Range<usize> {
        let lower = self.lower_bound(0, &table.0.to_be_bytes());
        let upper = match table.0.checked_add(1) {
            Some(next) => self.lower_bound(lower, &next.to_be_bytes()),
            None => self.len(),
        };
        lower..upper
    }

    /// First index at or after `from` whose key is not less than `key`. Gallops from `from`, so
    /// that a batch of ascending keys costs the logarithm of the gaps between them.
    pub fn lower_bound(&self, from: usize, key: &[u8]) -> usize {
        gallop(from, self.len(), |index| self.key(index) < key)
    }

    /// As [`Self::lower_bound`] within `range` of one table, comparing keys without the prefix.
    pub(super) fn lower_bound_in_table(&self, range: &Range<usize>, key: &[u8]) -> usize {
        gallop(range.start, range.end, |index| {
            &self.key(index)[PREFIX_BYTES..] < key
        })
    }

    /// Concatenates runs whose key ranges do not overlap and ascend (one per operator table).
    pub fn concat(runs: Vec<Run>) -> Run {
        let mut parts = runs.into_iter().filter(|run| !run.changes_nothing());
        let Some(mut all) = parts.next() else {
            return Run::default();
        };
        for run in parts {
            all.append(&run);
            all.drop_tables(&run.dropped_tables);
        }
        all
    }

    /// Merges runs, newest first; the newest entry of a key wins. `drop_tombstones` when nothing
    /// older lies below.
    pub fn merge(newest_first: &[&Run], drop_tombstones: bool) -> Run {
        let mut merged = Run::default();
        merged.reserve(
            newest_first.iter().map(|run| run.len()).sum(),
            newest_first.iter().map(|run| run.keys.len()).sum(),
            newest_first.iter().map(|run| run.values.len()).sum(),
        );
        let mut heads = MergeHeads::new(newest_first);
        while let Some(stretch) = heads.next_stretch() {
            let run = newest_first[stretch.age];
            match stretch.overwrites {
                None if drop_tombstones => merged.append_live(run, stretch.range),
                None => merged.append_range(run, stretch.range),
                Some(oldest) => {
                    let kind = overwriting(run.kinds[stretch.range.start], oldest);
                    let Some(kind) =
                        kind.filter(|kind| !(drop_tombstones && *kind == EntryKind::Tombstone))
                    else {
                        continue;
                    };
                    merged.append_range(run, stretch.range);
                    if let Some(last) = merged.kinds.last_mut() {
                        *last = kind;
                    }
                }
            }
        }
        if !drop_tombstones {
            for run in newest_first {
                merged.drop_tables(&run.dropped_tables);
            }
        }
        merged.shrink_when_wasteful();
        merged
    }

    /// Appends all entries of `other`, whose keys must come after the own ones.
    pub fn append(&mut self, other: &Run) {
        debug_assert!(
            self.is_empty() || other.is_empty() || self.key(self.len() - 1) < other.key(0),
            "keys ascend"
        );
        self.append_range(other, 0..other.len());
    }

    /// A copy of a range of entries, without the dropped tables.
    pub fn slice(&self, range: Range<usize>) -> Run {
        let mut part = Run::default();
        part.append_range(self, range);
        part
    }

    fn begin_offsets(&mut self) {
        if self.key_offsets.is_empty() {
            self.key_offsets.push(0);
            self.value_offsets.push(0);
        }
    }

    fn reserve(&mut self, entries: usize, key_bytes: usize, value_bytes: usize) {
        self.key_offsets.reserve(entries + 1);
        self.value_offsets.reserve(entries + 1);
        self.kinds.reserve(entries);
        self.keys.reserve(key_bytes);
        self.values.reserve(value_bytes);
    }

    /// Growing by doubling, or a merge of much overwritten runs, reserved far more than was filled;
    /// what is accounted for is the filled part.
    fn shrink_when_wasteful(&mut self) {
        if self.keys.capacity() / 4 > self.keys.len() / 3
            || self.values.capacity() / 4 > self.values.len() / 3
        {
            self.keys.shrink_to_fit();
            self.values.shrink_to_fit();
            self.key_offsets.shrink_to_fit();
            self.value_offsets.shrink_to_fit();
            self.kinds.shrink_to_fit();
        }
    }

    /// Appends a range of another run's entries, whose keys must come after the own ones.
    pub(super) fn append_range(&mut self, other: &Run, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        self.begin_offsets();
        append_slices(
            (&mut self.key_offsets, &mut self.keys),
            (&other.key_offsets, &other.keys),
            &range,
        );
        append_slices(
            (&mut self.value_offsets, &mut self.values),
            (&other.value_offsets, &other.values),
            &range,
        );
        self.kinds.extend_from_slice(&other.kinds[range]);
    }

    /// As [`Self::append_range`] without the tombstones.
    fn append_live(&mut self, other: &Run, range: Range<usize>) {
        let mut start = range.start;
        for index in range.clone() {
            if other.kinds[index] == EntryKind::Tombstone {
                self.append_range(other, start..index);
                start = index + 1;
            }
        }
        self.append_range(other, start..range.end);
    }
}

fn append_slices(
    (to_offsets, to_bytes): (&mut Vec<u64>, &mut Vec<u8>),
    (from_offsets, from_bytes): (&[u64], &[u8]),
    range: &Range<usize>,
) {
    let (first, last) = (from_offsets[range.start], from_offsets[range.end]);
    let base = to_bytes.len() as u64;
    to_bytes.extend_from_slice(&from_bytes[first as usize..last as usize]);
    to_offsets.extend(
        from_offsets[range.start + 1..=range.end]
            .iter()
            .map(|offset| offset - first + base),
    );
}

/// First index in `from..end` for which `is_before` is false; `is_before` must be true for a
/// prefix only. Doubles its step from `from`, then searches the last step by halves.
fn gallop(from: usize, end: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let mut low = from;
    let mut step = 1;
    let mut high = from;
    while high < end && is_before(high) {
        low = high + 1;
        high = (high + step).min(end);
        step *= 2;
    }
    // Everything before `low` is before; `high` is not (or is the end).
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The heads of a k-way merge.
///
/// Gives stretches instead of entries: as long as one run stays below all others, its entries are
/// copied as a whole, so that concatenation-like merges cost a `memcpy`. Runs are few, so all heads
/// are looked at; most comparisons are of the two numbers that a key begins with.
pub(super) struct MergeHeads<'a> {
    runs: &'a [&'a Run],
    /// Of the runs with entries left, in the order of their age, newest first.
    heads: Vec<Head<'a>>,
    /// Tables dropped by runs newer than run `age`, per run.
    hidden_tables: Vec<Vec<TableId>>,
}

/// Entries of one run that stand in a merge.
pub(super) struct Stretch {
    /// Of the run.
    pub(super) age: usize,
    /// The entries.
    pub(super) range: Range<usize>,
    /// It is one entry, and older runs have some of the same key: the kind of the oldest.
    pub(super) overwrites: Option<EntryKind>,
}

/// What becomes of an entry in a merge with older ones of its key, of which the `oldest` says
/// whether there can be any before them. `None`: nothing, the key came and went.
pub(super) fn overwriting(newest: EntryKind, oldest: EntryKind) -> Option<EntryKind> {
    match (newest, oldest) {
        (EntryKind::Tombstone, EntryKind::NewValue) => None,
        (EntryKind::Tombstone, _) => Some(EntryKind::Tombstone),
        (_, EntryKind::NewValue) => Some(EntryKind::NewValue),
        _ => Some(EntryKind::Value),
    }
}

/// The next entry of a run.
struct Head<'a> {
    age: usize,
    position: usize,
    leading: Leading,
    key: &'a [u8],
}

impl Head<'_> {
    fn compare(&self, other: &Self) -> Ordering {
        let leading = self.leading.cmp(&other.leading);
        leading.then_with(|| self.key.cmp(other.key))
    }
}

impl<'a> MergeHeads<'a> {
    pub(super) fn new(newest_first: &'a [&'a Run]) -> Self {
        let mut hidden: Vec<TableId> = Vec::new();
        let mut hidden_tables = Vec::with_capacity(newest_first.len());
        for run in newest_first {
            hidden_tables.push(hidden.clone());
            hidden.extend_from_slice(&run.dropped_tables);
            hidden.sort_unstable();
        }
        let mut heads = Self {
            runs: newest_first,
            heads: Vec::with_capacity(newest_first.len()),
            hidden_tables,
        };
        for age in 0..newest_first.len() {
            if let Some(head) = heads.head_at(age, 0) {
                heads.heads.push(head);
            }
        }
        heads
    }

    /// The head of run `age` from `position` on, past entries of tables that a newer run dropped.
    fn head_at(&self, age: usize, mut position: usize) -> Option<Head<'a>> {
        let run = self.runs[age];
        while position < run.len() {
            let key = run.key(position);
            let hidden = &self.hidden_tables[age];
            if hidden.is_empty() || hidden.binary_search(&table_of(key)).is_err() {
                return Some(Head {
                    age,
                    position,
                    leading: leading_of(key),
                    key,
                });
            }
            position = run.table_range(table_of(key)).end;
        }
        None
    }

    /// Moves a head on; false when its run is at its end, and the head gone.
    fn move_on(&mut self, index: usize, position: usize) -> bool {
        match self.head_at(self.heads[index].age, position) {
            Some(head) => {
                self.heads[index] = head;
                true
            }
            None => {
                self.heads.remove(index);
                false
            }
        }
    }

    /// The next stretch of entries that stand.
    pub(super) fn next_stretch(&mut self) -> Option<Stretch> {
        let mut first = 0;
        for index in 1..self.heads.len() {
            // Of equal keys the newest stands, and it is met first.
            if self.heads[index].compare(&self.heads[first]).is_lt() {
                first = index;
            }
        }
        let (age, start) = self
            .heads
            .get(first)
            .map(|head| (head.age, head.position))?;
        // Older entries of the same key lose; those before `first` are greater.
        let mut overwrites = None;
        let mut index = first + 1;
        while index < self.heads.len() {
            let other = &self.heads[index];
            let is_same = other.compare(&self.heads[first]).is_eq();
            if is_same {
                overwrites = Some(self.runs[other.age].kinds[other.position]);
            }
            if !is_same || self.move_on(index, self.heads[index].position + 1) {
                index += 1;
            }
        }
        if overwrites.is_some() {
            self.move_on(first, start + 1);
            return Some(Stretch {
                age,
                range: start..start + 1,
                overwrites,
            });
        }
        let run = self.runs[age];
        let others = (0..self.heads.len()).filter(|&index| index != first);
        let other = others.min_by(|&a, &b| self.heads[a].compare(&self.heads[b]));
        let mut end = match other {
            None => run.len(),
            Some(other) => {
                let other = &self.heads[other];
                gallop(start + 1, run.len(), |index| {
                    let key = run.key(index);
                    let leading = leading_of(key).cmp(&other.leading);
                    leading.then_with(|| key.cmp(other.key)).is_lt()
                })
            }
        };
        if let Some(hidden) = self.next_hidden_within(age, start, end) {
            end = hidden;
        }
        self.move_on(first, end);
        Some(Stretch {
            age,
            range: start..end,
            overwrites: None,
        })
    }

    /// Start of the first hidden table within `start..end` of run `age`.
    fn next_hidden_within(&self, age: usize, start: usize, end: usize) -> Option<usize> {
        self.hidden_tables[age]
            .iter()
            .map(|&table| self.runs[age].table_range(table))
            .filter(|range| !range.is_empty() && range.start > start && range.start < end)
            .map(|range| range.start)
            .min()
    }
}

/// What a key begins with, as numbers that compare as its bytes do: its table, and the sixteen bytes
/// behind, shorter ones filled with zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Leading {
    table: u64,
    window: u128,
}

pub(super) fn leading_of(key: &[u8]) -> Leading {
    let (table, rest) = key.split_at(PREFIX_BYTES);
    let window = match rest.first_chunk::<16>() {
        Some(head) => u128::from_be_bytes(*head),
        None => {
            let mut head = [0; 16];
            head[..rest.len()].copy_from_slice(rest);
            u128::from_be_bytes(head)
        }
    };
    Leading {
        table: table_of(table).0,
        window,
    }
}

/// The table of a key.
pub(super) fn table_of(key: &[u8]) -> TableId {
    let mut prefix = [0; PREFIX_BYTES];
    prefix.copy_from_slice(&key[..PREFIX_BYTES]);
    TableId(u64::from_be_bytes(prefix))
}
