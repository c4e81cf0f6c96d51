//! From the conditions of a query to the keys that it reads.
//!
//! ```text
//!   conditions ─► of each key column: intervals of its encoded bytes    (conditions.rs)
//!              ─► of the key: single keys, ranges, or nothing to go by  (keys.rs)
//!              ─► of several orders of the same rows: the best one      (choice.rs)
//! ```
//! All of it is pure. Rows beyond those that the conditions keep may be read, since the conditions
//! stay in the plan; none that they keep is left out. So a condition that is not understood only
//! reads more. Absent: costs; an equality is taken to be worth more than a range, whatever is stored.

#[cfg(test)]
mod answers;
mod choice;
mod conditions;
mod encoding;
mod intervals;
mod keys;
#[cfg(test)]
mod tests;

pub(super) use choice::Orders;
pub(super) use encoding::is_ordered;
