//! Sets of the values of one key column, as intervals of their encoded bytes.
//!
//! Encoded values are free of prefixes and compare as the values do. So a value is the interval of
//! all bytes that begin with it, and all the set arithmetic is on bytes.

use crate::state::key_range::after_prefix;

/// Bytes `lower <= b < upper`; no upper bound: all from `lower` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    pub lower: Vec<u8>,
    pub upper: Option<Vec<u8>>,
    /// It is one value: `lower`.
    pub is_value: bool,
}

impl Interval {
    /// What begins with the encoding of a value.
    pub fn value(encoded: Vec<u8>) -> Self {
        Self {
            upper: after_prefix(&encoded),
            lower: encoded,
            is_value: true,
        }
    }

    /// Values between two bounds.
    pub fn between(lower: Vec<u8>, upper: Option<Vec<u8>>) -> Self {
        Self {
            lower,
            upper,
            is_value: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.upper
            .as_ref()
            .is_some_and(|upper| *upper <= self.lower)
    }

    fn intersection(&self, other: &Self) -> Self {
        let upper = match (&self.upper, &other.upper) {
            (Some(a), Some(b)) => Some(a.min(b).clone()),
            (a, b) => a.clone().or_else(|| b.clone()),
        };
        Self {
            lower: self.lower.clone().max(other.lower.clone()),
            upper,
            is_value: self.is_value || other.is_value,
        }
    }

    /// Bounds lie between values only, so that what meets a value holds it whole.
    fn meets(&self, next: &Self) -> bool {
        let Some(upper) = &self.upper else {
            return true;
        };
        *upper > next.lower || (*upper == next.lower && !self.is_value && !next.is_value)
    }
}

/// Intervals, ascending and apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intervals(Vec<Interval>);

impl Intervals {
    /// No value.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// One interval.
    pub fn one(interval: Interval) -> Self {
        Self::union([Self(vec![interval])])
    }

    /// The intervals.
    pub fn as_slice(&self) -> &[Interval] {
        &self.0
    }

    /// All of them are single values.
    pub fn are_values(&self) -> bool {
        self.0.iter().all(|interval| interval.is_value)
    }

    /// What is in any of the sets.
    pub fn union(sets: impl IntoIterator<Item = Self>) -> Self {
        let mut all: Vec<Interval> = sets.into_iter().flat_map(|set| set.0).collect();
        all.retain(|interval| !interval.is_empty());
        all.sort_by(|a, b| (&a.lower, a.is_value).cmp(&(&b.lower, b.is_value)));
        let mut apart: Vec<Interval> = Vec::with_capacity(all.len());
        for interval in all {
            match apart.last_mut() {
                Some(last) if last.meets(&interval) => {
                    last.is_value &= interval.is_value && last.lower == interval.lower;
                    last.upper = match (last.upper.take(), interval.upper) {
                        (Some(a), Some(b)) => Some(a.max(b)),
                        _ => None,
                    };
                }
                _ => apart.push(interval),
            }
        }
        Self(apart)
    }

    /// What is in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut common = Vec::new();
        while let (Some(left), Some(right)) = (a.peek(), b.peek()) {
            let both = left.intersection(right);
            if !both.is_empty() {
                common.push(both);
            }
            let left_ends_first = match (&left.upper, &right.upper) {
                (Some(left), Some(right)) => left <= right,
                (left, _) => left.is_some(),
            };
            match left_ends_first {
                true => a.next(),
                false => b.next(),
            };
        }
        Self(common)
    }

    /// The least interval that holds all.
    pub fn hull(&self) -> Self {
        match (self.0.first(), self.0.last()) {
            (Some(first), Some(last)) => Self(vec![Interval {
                lower: first.lower.clone(),
                upper: last.upper.clone(),
                is_value: self.0.len() == 1 && first.is_value,
            }]),
            _ => Self::none(),
        }
    }
}
