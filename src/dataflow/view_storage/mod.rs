//! stub of view storage, overwritten at merge
use datafusion::arrow::datatypes::SchemaRef;

use super::change::ChangeBatch;
use super::operator::BatchContext;
use crate::error::Result;
use crate::state::{Run, TableId};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ViewLayout {
    Keyed { key: Vec<usize> },
    Bag,
    Append,
}
impl ViewLayout {
    pub fn choose(append_only: bool, key: Option<&[usize]>) -> Self {
        match (append_only, key) {
            (true, _) => Self::Append,
            (_, Some(key)) => Self::Keyed { key: key.to_vec() },
            _ => Self::Bag,
        }
    }
}
pub struct ViewStorage {}
impl ViewStorage {
    pub fn new(_view: &str, _schema: SchemaRef, _layout: ViewLayout) -> Result<Self> {
        Ok(Self {})
    }
    pub fn push(&mut self, _change: &ChangeBatch, _context: &BatchContext) -> Result<()> {
        Ok(())
    }
    pub fn finish(&mut self, _context: &BatchContext) -> Result<Vec<(TableId, Run)>> {
        Ok(Vec::new())
    }
    pub fn committed(&mut self) {}
    pub fn reset(&mut self) {}
}
