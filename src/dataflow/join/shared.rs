//! Rows of a side that other sides of the same view read too.
//!
//! The owner settles its rows when it finishes, and leaves what it settled for the others, which
//! finish later; what was there before lies in the store, under the owner's table.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Join, JoinSpec, LeftRows, Side, output_of};
use crate::dataflow::bag::SettledRows;

/// The rows of a side are shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arranged {
    /// Stable name of the owner's rows.
    pub name: String,
    /// This side keeps them; the others read.
    pub is_owner: bool,
}

/// What an owner settled in the batch.
type Settled = Arc<Mutex<Arc<SettledRows>>>;

/// The shared rows of the operators that are built for one view.
#[derive(Debug, Default)]
pub struct Arrangements {
    settled: HashMap<String, Settled>,
}

/// How a side has its rows.
#[derive(Debug, Default)]
pub(super) enum Sharing {
    /// For itself.
    #[default]
    Own,
    /// It keeps them for others too.
    Lends(Settled),
    /// Another keeps them.
    Borrows(Settled),
}

impl Sharing {
    pub(super) fn borrows(&self) -> bool {
        matches!(self, Self::Borrows(_))
    }

    /// Leaves what was settled to those that borrow.
    pub(super) fn lend(&self, settled: &Arc<SettledRows>) {
        if let Self::Lends(place) = self {
            *place.lock() = Arc::clone(settled);
        }
    }

    /// The batch is over.
    pub(super) fn end(&self) {
        self.lend(&Arc::default());
    }
}

impl JoinSpec {
    /// The words of the sides in stable names.
    pub const SIDES: [&'static str; 2] = ["left", "right"];

    /// Nothing of a side's rows depends on what this join does with them.
    pub fn can_share(&self, port: usize) -> bool {
        let (_, alone) = output_of(self.join_type);
        let keeps_totals = alone[1 - port].goes_out() && self.condition.is_none();
        self.left_rows == LeftRows::Kept
            && self.times.is_none()
            && !alone[port].goes_out()
            && !keeps_totals
    }
}

impl Join {
    /// Takes part in the sharing that its specification tells of.
    #[must_use]
    pub fn sharing(mut self, arrangements: &mut Arrangements) -> Self {
        for (side, arranged) in self.sides.iter_mut().zip(&self.spec.arranged) {
            let Some(arranged) = arranged else { continue };
            let settled = arrangements.settled.entry(arranged.name.clone());
            let settled = Arc::clone(settled.or_default());
            side.sharing = match arranged.is_owner {
                true => Sharing::Lends(settled),
                false => Sharing::Borrows(settled),
            };
        }
        self
    }

    /// What is kept, for people.
    pub(super) fn kept(&self) -> String {
        if self.spec.left_rows == LeftRows::Passing {
            return "(key, row) -> weight of the right side".to_owned();
        }
        let mut words = "(key, row) -> weight per side".to_owned();
        for (port, arranged) in self.spec.arranged.iter().enumerate() {
            if let Some(arranged) = arranged.as_ref().filter(|arranged| !arranged.is_owner) {
                let owner = arranged.name.rsplit('/').nth(1).unwrap_or_default();
                let side = JoinSpec::SIDES[port];
                words.push_str(&format!("; the {side} side's are kept by {owner}"));
            }
        }
        words
    }
}

impl Side {
    /// The batch is over, or given up.
    pub(super) fn end(&mut self) {
        self.sharing.end();
        if self.sharing.borrows() {
            self.rows.adopt(&Arc::default());
        }
    }

    /// The rows that another side settled in this batch; `None`: it has its own.
    pub(super) fn borrowed(&mut self) -> Option<Arc<SettledRows>> {
        match &self.sharing {
            Sharing::Borrows(place) => {
                let settled = Arc::clone(&place.lock());
                self.rows.adopt(&settled);
                Some(settled)
            }
            _ => None,
        }
    }
}
