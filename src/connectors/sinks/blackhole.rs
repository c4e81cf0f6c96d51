//! A sink that only counts: for benchmarks, and to see what a view would deliver.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use crate::connectors::{Delivery, Sink, SinkReceipt};
use crate::dataflow::change::ChangeBatch;
use crate::error::Result;

/// The sink.
#[derive(Debug)]
pub struct BlackholeSink {
    name: String,
    rows: AtomicU64,
}

impl BlackholeSink {
    /// A sink that has counted nothing.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            rows: AtomicU64::new(0),
        }
    }

    /// Changes delivered since it was opened, replayed ones again.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Sink for BlackholeSink {
    fn description(&self) -> String {
        format!("blackhole {}", self.name)
    }

    async fn deliver(&self, _delivery: &Delivery, changes: &[ChangeBatch]) -> Result<SinkReceipt> {
        let rows: usize = changes.iter().map(ChangeBatch::num_rows).sum();
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        Ok(SinkReceipt {
            rows: rows as u64,
            bytes: 0,
        })
    }
}
