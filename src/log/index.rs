//! Which frames hold which relation's committed rows; in memory, rebuilt at open.
//!
//! An entry is 32 bytes a frame. Row and byte counts are running sums, so that the size of any
//! range is two binary searches. Nothing here does I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::LogPosition;

/// Where a frame lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameLocation {
    /// segment number
    pub segment: u32,
    /// offset of its header in the segment
    pub offset: u64,
    /// header and payload, in bytes
    pub bytes: u32,
    /// rows
    pub rows: u32,
    /// oid
    pub relation: u32,
}

/// A committed frame of a relation.
#[derive(Debug, Clone, Copy)]
pub struct IndexEntry {
    /// commit it belongs to
    pub commit: LogPosition,
    /// segment number
    pub segment: u32,
    /// offset of its header; segments are far smaller than four gigabytes
    pub offset: u32,
    rows_through: u64,
    bytes_through: u64,
}

/// All committed frames.
#[derive(Debug, Default)]
pub struct Index {
    end: LogPosition,
    relations: HashMap<u32, Vec<IndexEntry>>,
    segments: BTreeMap<u32, SegmentUse>,
    reclaimed: BTreeSet<u32>,
    markers: HashMap<String, u32>,
    newest_marker_segment: Option<u32>,
    open_transactions: HashMap<u64, u32>,
}

/// What a segment still holds.
#[derive(Debug, Default)]
struct SegmentUse {
    live: HashSet<u32>,
    dead: HashSet<u32>,
    forgets: HashSet<u32>,
}

impl Index {
    /// Position after the last commit.
    pub fn end(&self) -> LogPosition {
        self.end
    }

    /// Sets the position at which the oldest segment begins.
    pub fn start_at(&mut self, position: LogPosition) {
        self.end = self.end.max(position);
    }

    /// Makes a segment known.
    pub fn add_segment(&mut self, segment: u32) {
        self.segments.entry(segment).or_default();
    }

    /// Adds the frames of commit `self.end()`, in order; its own frame lies in `segment`.
    pub fn commit(&mut self, frames: &[FrameLocation], segment: u32, marker: Option<&str>) {
        let commit = self.end;
        for frame in frames {
            let entries = self.relations.entry(frame.relation).or_default();
            let (rows, bytes) = entries
                .last()
                .map_or((0, 0), |e| (e.rows_through, e.bytes_through));
            entries.push(IndexEntry {
                commit,
                segment: frame.segment,
                offset: u32::try_from(frame.offset).expect("a segment is below four gigabytes"),
                rows_through: rows + u64::from(frame.rows),
                bytes_through: bytes + u64::from(frame.bytes),
            });
            self.hold(frame.segment, frame.relation);
            // Frames elsewhere are nothing without the commit: it must stay as long as they do.
            self.hold(segment, frame.relation);
        }
        if let Some(marker) = marker {
            self.markers.insert(marker.to_owned(), segment);
            self.newest_marker_segment = Some(segment);
        }
        self.end += 1;
    }

    fn hold(&mut self, segment: u32, relation: u32) {
        self.segments
            .entry(segment)
            .or_default()
            .live
            .insert(relation);
    }

    /// A commit with this marker is in the log.
    pub fn has_marker(&self, marker: &str) -> bool {
        self.markers.contains_key(marker)
    }

    /// Position after the last commit of a relation; 0 if it has none.
    pub fn end_of(&self, relation: u32) -> LogPosition {
        self.entries(relation).last().map_or(0, |e| e.commit + 1)
    }

    /// Rows and bytes of commits `from..to`.
    pub fn size_between(&self, relation: u32, from: LogPosition, to: LogPosition) -> (u64, u64) {
        let entries = self.entries(relation);
        let (first, last) = (first_at(entries, from), first_at(entries, to));
        if first >= last {
            return (0, 0);
        }
        let through = &entries[last - 1];
        let before = match first {
            0 => (0, 0),
            _ => (
                entries[first - 1].rows_through,
                entries[first - 1].bytes_through,
            ),
        };
        (
            through.rows_through - before.0,
            through.bytes_through - before.1,
        )
    }

    /// See [`super::DurableLog::cut`].
    pub fn cut(
        &self,
        relation: u32,
        from: LogPosition,
        limit: LogPosition,
        max_rows: u64,
    ) -> LogPosition {
        let entries = self.entries(relation);
        let (first, last) = (first_at(entries, from), first_at(entries, limit));
        if first >= last {
            return limit;
        }
        let before = match first {
            0 => 0,
            _ => entries[first - 1].rows_through,
        };
        let fitting = entries[first..last].partition_point(|e| e.rows_through - before <= max_rows);
        if first + fitting == last {
            return limit;
        }
        // The entry that is too much ends the range before its whole commit, unless that commit
        // is the first one.
        let beyond = entries[first + fitting].commit;
        if beyond == entries[first].commit {
            beyond + 1
        } else {
            beyond
        }
    }

    /// The entry number `at` of a relation, if it lies before `to`.
    pub fn entry(&self, relation: u32, at: usize, to: LogPosition) -> Option<IndexEntry> {
        self.entries(relation)
            .get(at)
            .filter(|e| e.commit < to)
            .copied()
    }

    /// Number of the first entry of a relation at or after commit `from`.
    pub fn seek(&self, relation: u32, from: LogPosition) -> usize {
        first_at(self.entries(relation), from)
    }

    /// A transaction wrote frames from `segment` on without having committed.
    pub fn open_transaction(&mut self, transaction: u64, segment: u32) {
        self.open_transactions.entry(transaction).or_insert(segment);
    }

    /// It committed or was given up.
    pub fn close_transaction(&mut self, transaction: u64) {
        self.open_transactions.remove(&transaction);
    }

    /// Drops a relation's frames; `segment` holds the frame that says so.
    pub fn forget(&mut self, relation: u32, segment: u32) {
        self.relations.remove(&relation);
        for usage in self.segments.values_mut() {
            if usage.live.remove(&relation) {
                usage.dead.insert(relation);
            }
        }
        self.add_segment(segment);
        if let Some(usage) = self.segments.get_mut(&segment) {
            usage.forgets.insert(relation);
        }
    }

    /// Segments were deleted on purpose.
    pub fn add_reclaimed(&mut self, segments: impl IntoIterator<Item = u32>) {
        for segment in segments {
            self.reclaimed.insert(segment);
            self.segments.remove(&segment);
            self.markers.retain(|_, s| *s != segment);
        }
    }

    /// Segments deleted on purpose, all of them.
    pub fn reclaimed(&self) -> &BTreeSet<u32> {
        &self.reclaimed
    }

    /// Segments before `active` that nothing needs: no live frame, no unfinished transaction, not
    /// the newest marker, and no word about a dropped relation whose frames an older segment holds.
    pub fn reclaimable(&self, active: u32) -> Vec<u32> {
        let oldest_open = self.open_transactions.values().min().copied();
        let limit = oldest_open.map_or(active, |s| s.min(active));
        let mut dead_before: HashSet<u32> = HashSet::new();
        let mut result = Vec::new();
        for (segment, usage) in self.segments.range(..limit) {
            let needed = !usage.live.is_empty()
                || self.newest_marker_segment == Some(*segment)
                || usage.forgets.iter().any(|r| dead_before.contains(r));
            if needed {
                dead_before.extend(&usage.dead);
            } else {
                result.push(*segment);
            }
        }
        result
    }

    fn entries(&self, relation: u32) -> &[IndexEntry] {
        self.relations.get(&relation).map_or(&[], Vec::as_slice)
    }
}

fn first_at(entries: &[IndexEntry], position: LogPosition) -> usize {
    entries.partition_point(|e| e.commit < position)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(relation: u32, segment: u32, rows: u32) -> FrameLocation {
        FrameLocation {
            segment,
            offset: 48,
            bytes: rows * 10,
            rows,
            relation,
        }
    }

    fn sample() -> Index {
        let mut index = Index::default();
        index.commit(&[frame(1, 1, 5), frame(1, 1, 5)], 1, None);
        index.commit(&[frame(2, 1, 7)], 1, None);
        index.commit(&[frame(1, 1, 3), frame(2, 1, 1)], 1, Some("m"));
        index.commit(&[frame(1, 2, 100)], 2, None);
        index
    }

    #[test]
    fn sizes_and_ends() {
        let index = sample();
        assert_eq!(index.end(), 4);
        assert_eq!(index.end_of(1), 4);
        assert_eq!(index.end_of(2), 3);
        assert_eq!(index.end_of(3), 0);
        assert_eq!(index.size_between(1, 0, 4), (113, 1130));
        assert_eq!(index.size_between(1, 1, 3), (3, 30));
        assert_eq!(index.size_between(1, 1, 2), (0, 0));
        assert!(index.has_marker("m") && !index.has_marker("n"));
    }

    #[test]
    fn cut_keeps_commits_whole_and_moves_on() {
        let index = sample();
        assert_eq!(index.cut(1, 0, 4, 1), 1, "at least one commit");
        assert_eq!(
            index.cut(1, 0, 4, 10),
            2,
            "up to the next commit of the relation"
        );
        assert_eq!(index.cut(1, 0, 4, 13), 3);
        assert_eq!(index.cut(1, 0, 4, 12), 2, "a commit is never split");
        assert_eq!(index.cut(1, 0, 4, 1000), 4);
        assert_eq!(index.cut(1, 3, 4, 10), 4);
        assert_eq!(index.cut(3, 0, 4, 10), 4, "nothing there: all the way");
    }

    #[test]
    fn reclaims_only_what_nothing_needs() {
        let mut index = sample();
        index.forget(1, 3);
        assert!(index.reclaimable(4).contains(&2));
        assert!(!index.reclaimable(4).contains(&1), "relation 2 lives there");
        assert!(
            !index.reclaimable(4).contains(&3),
            "segment 1 still holds relation 1's frames"
        );
        index.open_transaction(9, 2);
        assert!(index.reclaimable(4).is_empty());
        index.close_transaction(9);
        index.forget(2, 3);
        assert_eq!(
            index.reclaimable(4),
            vec![2],
            "segment 1 has the newest marker"
        );
    }

    #[test]
    fn a_commit_stays_as_long_as_its_frames_elsewhere() {
        let mut index = Index::default();
        index.commit(&[frame(1, 1, 5), frame(2, 2, 5)], 2, None);
        index.forget(2, 3);
        assert!(
            index.reclaimable(4).is_empty(),
            "segment 2 has the commit of segment 1"
        );
        index.forget(1, 3);
        assert_eq!(index.reclaimable(4), vec![1, 2, 3]);
    }
}
