//! Who has which part of a map's numbers.

/// Ranges of numbers below a bound that are given away and come back. First fit.
#[derive(Debug)]
pub(crate) struct Ranges {
    /// (start, length), ascending, never adjacent, never empty.
    free: Vec<(u32, u32)>,
}

impl Ranges {
    /// Numbers from `start` up to `end`, all free.
    pub fn new(start: u32, end: u32) -> Ranges {
        Ranges { free: if start < end { vec![(start, end - start)] } else { vec![] } }
    }

    /// The start of `length` free numbers, now taken; `None` if there are not so many in one piece. No numbers are always there.
    pub fn take(&mut self, length: u32) -> Option<u32> {
        if length == 0 {
            return Some(0);
        }
        let at = self.free.iter().position(|&(_, free)| free >= length)?;
        let (start, free) = self.free[at];
        if free == length {
            self.free.remove(at);
        } else {
            self.free[at] = (start + length, free - length);
        }
        Some(start)
    }

    /// Gives back what was taken.
    pub fn give_back(&mut self, start: u32, length: u32) {
        if length == 0 {
            return;
        }
        let at = self.free.partition_point(|&(free, _)| free < start);
        self.free.insert(at, (start, length));
        if let Some(&(next, next_length)) = self.free.get(at + 1)
            && start + length == next
        {
            self.free[at].1 += next_length;
            self.free.remove(at + 1);
        }
        if let Some(before) = at.checked_sub(1)
            && self.free[before].0 + self.free[before].1 == start
        {
            self.free[before].1 += self.free[at].1;
            self.free.remove(at);
        }
    }

    /// How many numbers are free.
    pub fn free(&self) -> u32 {
        self.free.iter().map(|&(_, length)| length).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_whole_again() {
        let mut ranges = Ranges::new(1, 11);
        let (a, b, c) = (ranges.take(3).unwrap(), ranges.take(3).unwrap(), ranges.take(4).unwrap());
        assert_eq!((a, b, c), (1, 4, 7));
        assert_eq!((ranges.take(1), ranges.take(0), ranges.free()), (None, Some(0), 0));
        ranges.give_back(a, 3);
        ranges.give_back(c, 4);
        assert_eq!((ranges.take(5), ranges.free()), (None, 7), "not in one piece");
        ranges.give_back(b, 3);
        assert_eq!(ranges.take(10), Some(1));
    }

    #[test]
    fn any_order_of_returns_ends_whole() {
        for seed in 0..100u32 {
            let mut ranges = Ranges::new(0, 64);
            let mut taken: Vec<u32> = (0..16).map(|_| ranges.take(4).unwrap()).collect();
            let mut next = seed;
            while !taken.is_empty() {
                next = next.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                ranges.give_back(taken.swap_remove((next >> 8) as usize % taken.len()), 4);
            }
            assert_eq!(ranges.take(64), Some(0));
        }
    }
}
