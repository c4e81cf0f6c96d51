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

    /// Appends the strings of another list.
    pub fn append(&mut self, other: &Self) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| start + end));
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
        let mut items: Vec<Item> = (0..self.len() as u32)
            .map(|index| Item { window: 0, index })
            .collect();
        self.sort(&mut items, 0, 0);
        items.into_iter().map(|item| item.index).collect()
    }

    /// Sorts items whose strings agree in their first `agreed` bytes: by the sixteen bytes behind
    /// what all of them agree in, and those that tie there likewise.
    fn sort(&self, items: &mut [Item], agreed: usize, level: usize) {
        let string = |item: &Item| self.get(item.index as usize);
        if items.len() < WINDOWED_MIN || level == LEVELS_MAX {
            items.sort_unstable_by(|a, b| string(a)[agreed..].cmp(&string(b)[agreed..]));
            return;
        }
        let first = string(&items[0]);
        let mut agreed_to = first.len();
        for item in &items[1..] {
            let other = string(item);
            if !other.starts_with(&first[..agreed_to]) {
                let tail = first[agreed..agreed_to].iter().zip(&other[agreed..]);
                agreed_to = agreed + tail.take_while(|(a, b)| a == b).count();
            }
        }
        for item in items.iter_mut() {
            item.window = window_at(string(item), agreed_to);
        }
        items.sort_unstable_by_key(|item| item.window);
        let end = agreed_to + size_of::<u128>();
        for ties in items.chunk_by_mut(|a, b| a.window == b.window) {
            if ties.len() == 1 {
                continue;
            }
            if ties.iter().any(|item| string(item).len() < end) {
                // What ends within the window ties with what goes on with zeros.
                ties.sort_unstable_by(|a, b| string(a)[agreed_to..].cmp(&string(b)[agreed_to..]));
            } else {
                self.sort(ties, end, level + 1);
            }
        }
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

/// A string that is being sorted.
#[derive(Clone, Copy)]
struct Item {
    /// Sixteen of its bytes, as a number of the same order.
    window: u128,
    index: u32,
}

/// Fewer strings than this are compared as they are.
const WINDOWED_MIN: usize = 24;
/// Strings that agree in more parts than this are compared as they are.
const LEVELS_MAX: usize = 24;

/// The sixteen bytes from `start` on as a number of the same order, zeros behind the end.
fn window_at(bytes: &[u8], start: usize) -> u128 {
    if let Some(window) = bytes[start..].first_chunk() {
        return u128::from_be_bytes(*window);
    }
    let mut window = [0; 16];
    window[..bytes.len() - start].copy_from_slice(&bytes[start..]);
    u128::from_be_bytes(window)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Strings that agree in long parts, end within a window, go on with zeros, and repeat.
    #[test]
    fn strings_are_sorted_as_bytes() {
        let mut state = 7_u64;
        let mut random = |bound: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % bound
        };
        for count in [0, 1, 5, 23, 24, 500, 5000] {
            let mut rows = ByteRows::default();
            for _ in 0..count {
                let mut string = vec![3; 9];
                for _ in 0..random(4) {
                    string.extend(vec![random(2) as u8; random(30) as usize]);
                    string.push(random(3) as u8);
                }
                rows.push(&string, &[]);
            }
            let mut expected: Vec<&[u8]> = rows.iter().collect();
            expected.sort_unstable();
            let order = rows.sorted_indices();
            let sorted: Vec<&[u8]> = order.iter().map(|i| rows.get(*i as usize)).collect();
            assert_eq!(sorted, expected, "{count} strings");
        }
    }

    #[test]
    fn many_levels_of_agreement_end() {
        let mut rows = ByteRows::default();
        for length in (0..2000).rev() {
            rows.push(&vec![1; length], &[2]);
        }
        let order = rows.sorted_indices();
        assert!(
            (1..order.len()).all(|i| rows.get(order[i - 1] as usize) < rows.get(order[i] as usize))
        );
    }
}
