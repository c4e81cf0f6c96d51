//! Random numbers by position: the same seed, stream and row give the same number, in any order.
//!
//! SplitMix64's finaliser over a counter (Steele, Lea, Flood, "Fast splittable pseudorandom number
//! generators", 2014). No state, so any range of rows can be made again without the rows before.

use std::sync::OnceLock;

/// A stream of numbers, one per row.
#[derive(Debug, Clone, Copy)]
pub struct Stream(u64);

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

#[inline]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Stream {
    /// The stream called `name` under `seed`.
    pub fn new(seed: u64, name: &str) -> Self {
        let mut state = mix(seed.wrapping_add(GOLDEN));
        for byte in name.bytes() {
            state = mix(state ^ u64::from(byte)).wrapping_add(GOLDEN);
        }
        Self(state)
    }

    /// 64 random bits of a row.
    #[inline]
    pub fn bits(self, row: u64) -> u64 {
        mix(self.0.wrapping_add(row.wrapping_mul(GOLDEN)))
    }

    /// A number below `bound` (at least 1) of a row.
    #[inline]
    pub fn below(self, row: u64, bound: u64) -> u64 {
        scale(self.bits(row), bound)
    }
}

/// Maps 64 random bits to `0..bound` without a division.
#[inline]
pub fn scale(bits: u64, bound: u64) -> u64 {
    ((u128::from(bits) * u128::from(bound.max(1))) >> 64) as u64
}

/// Bytes of the pool of letters.
const POOL_BYTES: usize = 1 << 16;

/// A pool of random lower-case letters; a string is a slice of it, so that making one is a copy.
pub fn letters() -> &'static [u8] {
    static POOL: OnceLock<Vec<u8>> = OnceLock::new();
    POOL.get_or_init(|| {
        let stream = Stream::new(0, "letters");
        (0..POOL_BYTES as u64)
            .map(|i| b'a' + stream.below(i, 26) as u8)
            .collect()
    })
}

/// `length` letters chosen by `bits`.
#[inline]
pub fn letters_slice(bits: u64, length: usize) -> &'static [u8] {
    let pool = letters();
    let start = (bits as usize) & (POOL_BYTES / 2 - 1);
    &pool[start..start + length.min(POOL_BYTES / 2)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let (a, b) = (Stream::new(1, "a"), Stream::new(1, "b"));
        assert_eq!(a.bits(7), Stream::new(1, "a").bits(7));
        assert_ne!(a.bits(7), b.bits(7));
        assert_ne!(a.bits(7), Stream::new(2, "a").bits(7));
    }

    #[test]
    fn numbers_are_spread_evenly() {
        let stream = Stream::new(3, "spread");
        let mut counts = [0u32; 10];
        for row in 0..100_000 {
            counts[stream.below(row, 10) as usize] += 1;
        }
        assert!(
            counts.iter().all(|c| (9_500..10_500).contains(c)),
            "{counts:?}"
        );
    }
}
