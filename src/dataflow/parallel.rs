//! Work on many keys, spread over the cores.
//!
//! A batch's changes lie in the order of their keys. They are cut into stretches of keys, about as
//! many as there are threads and of about as many entries; each is worked on by itself, and the
//! results come back in the order of the keys. The state is kept by key alone and does not know of
//! the cut: answers are the same for any number of threads, which may differ from run to run.
//! (Aggregates have shards instead, since each keeps resident groups of its own.)

use std::ops::Range;

use rayon::prelude::*;

use crate::error::Result;

/// Entries below which handing work to other threads costs more than it saves. Tests have few.
const PARALLEL_ENTRIES_MIN: usize = if cfg!(test) { 4 } else { 4096 };
/// More parts than this find no cores.
const PARTS_MAX: usize = 16;

/// Does `work` on stretches of `groups`, which are consecutive ranges of entries; the results, or the
/// first error, in the order of the groups.
pub fn over_parts<T: Send>(
    groups: &[Range<usize>],
    work: impl Fn(&[Range<usize>]) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let entries = groups.iter().map(Range::len).sum();
    let parts = parts_of(entries, rayon::current_num_threads());
    if parts == 1 {
        return Ok(vec![work(groups)?]);
    }
    let results: Vec<Result<T>> = cut(groups, entries, parts)
        .into_par_iter()
        .map(&work)
        .collect();
    results.into_iter().collect()
}

fn parts_of(entries: usize, threads: usize) -> usize {
    match entries < PARALLEL_ENTRIES_MIN {
        true => 1,
        false => threads.clamp(1, PARTS_MAX),
    }
}

/// At most `parts` stretches, each closed by the group that brings it to its share of the entries.
fn cut(groups: &[Range<usize>], entries: usize, parts: usize) -> Vec<&[Range<usize>]> {
    let share = entries.div_ceil(parts).max(1);
    let mut all = Vec::with_capacity(parts);
    let (mut start, mut gathered) = (0, 0);
    for (index, group) in groups.iter().enumerate() {
        gathered += group.len();
        if gathered >= share || index + 1 == groups.len() {
            all.push(&groups[start..=index]);
            (start, gathered) = (index + 1, 0);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn parts_are_all_groups_in_order() {
        for (lengths, parts) in [
            (vec![], 3),
            (vec![5], 4),
            (vec![1; 10], 3),
            (vec![100, 1, 1, 1], 2),
            (vec![1, 1, 1, 100], 4),
        ] {
            let mut end = 0;
            let groups: Vec<Range<usize>> = lengths
                .iter()
                .map(|length| {
                    end += length;
                    end - length..end
                })
                .collect();
            let cut = cut(&groups, end, parts);
            assert!(cut.len() <= parts && cut.iter().all(|part| !part.is_empty()));
            assert_eq!(cut.concat(), groups);
        }
    }

    #[test]
    fn the_first_error_in_order_comes_back() {
        let groups: Vec<Range<usize>> = (0..100).map(|n| n..n + 1).collect();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build();
        pool.unwrap().install(|| {
            let firsts = over_parts(&groups, |part| Ok(part[0].start)).unwrap();
            assert_eq!(firsts, [0, 25, 50, 75]);
            let failing = |part: &[Range<usize>]| match part[0].start {
                0 => Ok(()),
                start => Err(Error::internal(format!("part {start}"))),
            };
            let error = over_parts(&groups, failing).unwrap_err();
            assert!(error.to_string().contains("part 25"), "{error}");
        });
    }
}
