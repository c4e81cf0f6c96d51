//! When runs of the memory tier are merged: a pure decision over their sizes.
//!
//! Newest first, a run is merged into its older neighbours as long as what is newer holds at least
//! half of the neighbour's bytes, once [`MERGE_RUNS_MIN`] runs can go together: batches that each
//! rewrite the same keys would otherwise rewrite all of them twice per batch. A byte is rewritten a
//! logarithmic number of times, and the number of runs stays small.

use std::ops::Range;

/// Runs below this size count as this size: tiny runs are merged at once, in microseconds.
const RUN_BYTES_FLOOR: usize = 64 << 10;

/// Fewer runs than this are left as they are: readers look through a few runs at little cost.
const MERGE_RUNS_MIN: usize = 4;

/// The runs to merge, given their bytes newest first: a prefix of at least
/// [`MERGE_RUNS_MIN`], or nothing.
pub(super) fn plan_merge(newest_first_bytes: &[usize]) -> Option<Range<usize>> {
    let mut newer = 0;
    let mut end = 0;
    for (index, &bytes) in newest_first_bytes.iter().enumerate() {
        let bytes = bytes.max(RUN_BYTES_FLOOR);
        if index > 0 && newer >= bytes / 2 {
            end = index + 1;
        }
        newer += bytes;
    }
    (end >= MERGE_RUNS_MIN).then_some(0..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_equals_and_spares_much_larger_ones() {
        let mib = 1 << 20;
        assert_eq!(plan_merge(&[]), None);
        assert_eq!(plan_merge(&[mib, mib, mib]), None);
        assert_eq!(plan_merge(&[mib, mib, mib, mib]), Some(0..4));
        // The sum of the newer ones counts, also where each alone is small.
        assert_eq!(plan_merge(&[mib, mib, mib, 6 * mib]), Some(0..4));
        assert_eq!(plan_merge(&[mib, mib, mib, 7 * mib]), None);
        assert_eq!(
            plan_merge(&[mib, 3 * mib, 8 * mib, 24 * mib, 100 * mib]),
            Some(0..4)
        );
        assert_eq!(plan_merge(&[10, 10, 10, 10]), Some(0..4));
    }

    #[test]
    fn number_of_runs_stays_small_and_rewriting_logarithmic() {
        let mut runs: Vec<usize> = Vec::new();
        let (mut written, mut rewritten) = (0, 0);
        for batch in 0..20_000usize {
            let bytes = 1_000 + (batch * 7_919) % 50_000;
            written += bytes;
            runs.insert(0, bytes);
            while let Some(range) = plan_merge(&runs) {
                let sum: usize = runs.drain(range).sum();
                rewritten += sum;
                runs.insert(0, sum);
            }
            assert!(runs.len() <= 16, "{} runs", runs.len());
        }
        assert!(rewritten < written * 16, "{rewritten} of {written}");
    }
}
