//! Byte strings end to end: many short keys or rows without an allocation each.

/// Byte strings end to end.
#[derive(Debug, Default, Clone)]
pub struct ByteRows {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl ByteRows {
    /// Number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// No strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// String `index`.
    pub fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    /// Appends `head` and `tail` as one string.
    pub fn push(&mut self, head: &[u8], tail: &[u8]) {
        self.bytes.extend_from_slice(head);
        self.bytes.extend_from_slice(tail);
        self.ends.push(self.bytes.len());
    }

    /// All strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// The strings of two ascending lists, ascending, equal ones once.
    pub fn merged(&self, other: &Self) -> Self {
        let mut all = Self::default();
        let (mut l, mut r) = (0, 0);
        while l < self.len() || r < other.len() {
            let take_left = r == other.len() || (l < self.len() && self.get(l) <= other.get(r));
            let next = if take_left { self.get(l) } else { other.get(r) };
            all.push(next, &[]);
            l += usize::from(l < self.len() && self.get(l) == next);
            r += usize::from(r < other.len() && other.get(r) == next);
        }
        all
    }

    /// Indices in ascending order of the strings.
    pub fn sorted_indices(&self) -> Vec<u32> {
        let mut order: Vec<(u64, u32)> = (0..self.len())
            .map(|index| (leading_bytes(self.get(index)), index as u32))
            .collect();
        order.sort_unstable_by(|a, b| {
            a.0.cmp(&b.0)
                .then_with(|| self.get(a.1 as usize).cmp(self.get(b.1 as usize)))
        });
        order.into_iter().map(|(_, index)| index).collect()
    }

    /// Bytes of all strings together.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes allocated.
    pub fn bytes_held(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }
}

/// The first eight bytes as a number of the same order; most comparisons end there.
fn leading_bytes(bytes: &[u8]) -> u64 {
    let mut leading = [0; 8];
    let count = bytes.len().min(8);
    leading[..count].copy_from_slice(&bytes[..count]);
    u64::from_be_bytes(leading)
}
