//! A transaction's own changes to a table, on top of the committed contents.
//!
//! Each statement that changes rows adds a sorted layer; layers of like size are merged, so that
//! there are few of them and a statement never copies all that came before. Layers are shared:
//! a reader keeps the ones it started with, a savepoint is a list of them.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A change to one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverlayEntry {
    /// committed value when the transaction first wrote the key
    pub before: Option<Vec<u8>>,
    /// value now; `None`: deleted
    pub after: Option<Vec<u8>>,
}

/// Changes by key.
pub type Layer = BTreeMap<Vec<u8>, OverlayEntry>;

/// Bytes that an entry takes beside its key and values, about.
pub const ENTRY_BYTES: usize = 96;

/// All changes to a table, newest layer last.
#[derive(Debug, Clone, Default)]
pub struct Overlay {
    layers: Vec<Arc<Layer>>,
    /// memory of each layer, about
    bytes: Vec<usize>,
}

impl Overlay {
    /// No changes.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// The change to a key.
    pub fn get(&self, key: &[u8]) -> Option<&OverlayEntry> {
        self.layers.iter().rev().find_map(|layer| layer.get(key))
    }

    /// Layers, newest last.
    pub fn layers(&self) -> &[Arc<Layer>] {
        &self.layers
    }

    /// Memory that the changes take, about.
    pub fn bytes(&self) -> usize {
        self.bytes.iter().sum()
    }

    /// Adds a statement's changes. Their `before` must be that of the older layers, if any.
    pub fn push(&mut self, layer: Layer) {
        if layer.is_empty() {
            return;
        }
        self.place(layer);
        while let [.., older, newer] = self.layers.as_slice()
            && newer.len() * 2 >= older.len()
        {
            let newer = self.take_newest();
            let mut merged = self.take_newest();
            merged.extend(newer);
            self.place(merged);
        }
    }

    fn place(&mut self, layer: Layer) {
        self.bytes.push(layer_bytes(&layer));
        self.layers.push(Arc::new(layer));
    }

    fn take_newest(&mut self) -> Layer {
        self.bytes.pop();
        let newest = self.layers.pop().map(Arc::unwrap_or_clone);
        newest.unwrap_or_default()
    }

    /// The same changes where nothing lies under them: what came and went since leaves no trace once
    /// it is in the oldest layer. `before` is how they were then.
    pub fn settled(mut self, before: Option<&Self>) -> Self {
        let [only] = self.layers.as_slice() else {
            return self;
        };
        // Looked through when it was made anew, and not again.
        let known = before.and_then(|before| before.layers.first());
        if known.is_some_and(|known| Arc::ptr_eq(known, only)) {
            return self;
        }
        let mut layer = self.take_newest();
        layer.retain(|_, entry| entry.after.is_some());
        if !layer.is_empty() {
            self.place(layer);
        }
        self
    }

    /// All changes in one layer, without those that change nothing.
    pub fn flatten(self) -> Layer {
        let mut layers = self.layers.into_iter().map(Arc::unwrap_or_clone);
        let mut all = layers.next().unwrap_or_default();
        for layer in layers {
            all.extend(layer);
        }
        all.retain(|_, entry| entry.before != entry.after);
        all
    }
}

fn layer_bytes(layer: &Layer) -> usize {
    layer
        .iter()
        .map(|(key, entry)| {
            let value = |v: &Option<Vec<u8>>| v.as_ref().map_or(0, Vec::len);
            ENTRY_BYTES + key.len() + value(&entry.before) + value(&entry.after)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(before: Option<&str>, after: Option<&str>) -> OverlayEntry {
        OverlayEntry {
            before: before.map(|v| v.as_bytes().to_vec()),
            after: after.map(|v| v.as_bytes().to_vec()),
        }
    }

    #[test]
    fn newer_layers_win_and_nothing_is_left_of_what_cancels_out() {
        let mut overlay = Overlay::default();
        overlay.push((0..8).map(|i| (vec![i], entry(None, Some("a")))).collect());
        let saved = overlay.clone();
        overlay.push([(vec![1], entry(None, None))].into());
        overlay.push([(vec![2], entry(None, Some("b")))].into());
        assert_eq!(overlay.get(&[1]), Some(&entry(None, None)));
        assert_eq!(saved.get(&[1]), Some(&entry(None, Some("a"))));
        let flat = overlay.flatten();
        assert_eq!(flat.len(), 7);
        assert_eq!(flat[&vec![2u8]], entry(None, Some("b")));
    }

    #[test]
    fn what_came_and_went_leaves_no_trace_where_nothing_lies_under_it() {
        let mut overlay = Overlay::default();
        overlay.push((0..8).map(|i| (vec![i], entry(None, Some("a")))).collect());
        let before = overlay.clone().settled(None);
        assert_eq!(before.bytes(), 8 * (ENTRY_BYTES + 2));
        // A few deletions lie above; they are dropped with what they delete once there are many.
        let mut few = before.clone();
        few.push([(vec![3], entry(None, None))].into());
        let few = few.settled(Some(&before));
        assert_eq!(
            (few.layers().len(), few.get(&[3])),
            (2, Some(&entry(None, None)))
        );
        let mut all = few.clone();
        all.push((0..8).map(|i| (vec![i], entry(None, None))).collect());
        let all = all.settled(Some(&few));
        assert!(all.is_empty());
        assert_eq!(all.bytes(), 0);
    }

    #[test]
    fn many_statements_leave_few_layers() {
        let mut overlay = Overlay::default();
        for i in 0..1000_u32 {
            let key = i.to_be_bytes().to_vec();
            overlay.push([(key, entry(None, Some("x")))].into());
        }
        assert!(overlay.layers().len() <= 11, "{}", overlay.layers().len());
        assert_eq!(overlay.flatten().len(), 1000);
    }
}
