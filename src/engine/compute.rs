//! The threads that a pipeline's batches are computed on: those that all pipelines share, or, with
//! `state_partitions`, its own.
//!
//! The number may change from batch to batch. State lies by key and does not know of it.

use std::sync::Arc;

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, Result, sqlstate};

/// More threads than this find no cores anywhere.
const THREADS_MAX: usize = 256;

/// A pipeline's own threads.
#[derive(Debug, Default)]
pub(super) struct ComputeThreads {
    own: Option<Arc<ThreadPool>>,
}

impl ComputeThreads {
    /// What the next batch runs on, given the number that is wanted.
    pub fn of(&mut self, wanted: Option<usize>) -> Result<ComputePool> {
        let Some(wanted) = wanted.map(|count| count.clamp(1, THREADS_MAX)) else {
            self.own = None;
            return Ok(ComputePool { own: None });
        };
        let is_there = |own: &Arc<ThreadPool>| own.current_num_threads() == wanted;
        if !self.own.as_ref().is_some_and(is_there) {
            let pool = ThreadPoolBuilder::new()
                .num_threads(wanted)
                .thread_name(|index| format!("tidemill-part-{index}"))
                .build();
            let pool = pool.map_err(|error| {
                Error::transient(
                    sqlstate::OUT_OF_MEMORY,
                    format!("could not start {wanted} threads for a pipeline"),
                )
                .detail(error.to_string())
                .hint("Lower state_partitions.")
            })?;
            self.own = Some(Arc::new(pool));
        }
        Ok(ComputePool {
            own: self.own.clone(),
        })
    }
}

/// The threads of one batch.
#[derive(Debug, Clone)]
pub(super) struct ComputePool {
    own: Option<Arc<ThreadPool>>,
}

impl ComputePool {
    /// Does `work` so that what it spreads is spread over these threads.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match &self.own {
            Some(own) => own.install(work),
            None => work(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_spread_over_as_many_threads_as_are_wanted() {
        let mut threads = ComputeThreads::default();
        let count = |pool: &ComputePool| pool.run(rayon::current_num_threads);
        let shared = rayon::current_num_threads();
        let three = threads.of(Some(3)).unwrap();
        assert_eq!(count(&three), 3);
        assert_eq!(count(&threads.of(Some(1)).unwrap()), 1);
        assert_eq!(count(&threads.of(None).unwrap()), shared);
        assert_eq!(count(&three), 3, "a batch keeps the threads it began with");
    }
}
