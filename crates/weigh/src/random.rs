//! Random numbers for shuffling: the same seed gives the same order.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Numbers that follow from `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 to `limit` - 1. The bias of at most `limit` / 2^64 does not matter here.
    pub fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }

    /// From 0 to 1.
    #[cfg(test)]
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Any order of `values` with the same probability.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_order_comes_as_often() {
        let mut random = Random::new(1);
        let mut seen = [0u32; 3];
        for _ in 0..3_000 {
            let mut values = [0, 1, 2];
            random.shuffle(&mut values);
            seen[values.iter().position(|v| *v == 0).unwrap()] += 1;
        }
        assert!(seen.iter().all(|n| (880..1_120).contains(n)), "{seen:?}");
    }
}
