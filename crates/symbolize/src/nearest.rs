//! The nearest symbols for a fixed set of addresses, from symbols that stream by in any order. Memory is proportional to
//! the addresses, not to the symbols; the time for one symbol is one binary search, also if symbols overlap.

/// A symbol that may cover an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    pub start: u64,
    /// First address behind the symbol; `start` if its size is not known.
    pub end: u64,
    /// Higher is better among symbols of the same start.
    pub rank: u8,
    /// Which table the names are in.
    pub table: u8,
    /// Section that the symbol belongs to.
    pub section: u16,
    /// Where the names of this symbol and of others of the same range and rank are; `None` behind the last.
    pub names: [Option<u64>; 3],
}

/// What is known about the gap before one address: symbols that start behind the address before and not behind this one.
#[derive(Clone, Copy, Default, Debug)]
struct Gap {
    /// The symbol with the highest start.
    last: Option<Candidate>,
    /// Of those that cover the address, the one with the highest start.
    near: Option<Candidate>,
    /// Of those that cover the address, the one with the highest end.
    far: Option<Candidate>,
}

/// The search.
#[derive(Debug)]
pub(crate) struct Nearest {
    addresses: Vec<u64>,
    gaps: Vec<Gap>,
}

impl Nearest {
    /// A search for these addresses, in any order.
    pub fn new(mut addresses: Vec<u64>) -> Nearest {
        addresses.sort_unstable();
        addresses.dedup();
        let gaps = vec![Gap::default(); addresses.len()];
        Nearest { addresses, gaps }
    }

    /// Takes note of a symbol.
    pub fn add(&mut self, symbol: Candidate) {
        let at = self.addresses.partition_point(|&address| address < symbol.start);
        let Some(&address) = self.addresses.get(at) else { return };
        let gap = &mut self.gaps[at];
        keep(&mut gap.last, symbol, |new, old| new.start > old.start);
        if symbol.end > address {
            keep(&mut gap.near, symbol, |new, old| new.start > old.start);
            if gap.far.is_none_or(|far| symbol.end > far.end) {
                gap.far = Some(symbol);
            }
        }
    }

    /// Each address, in rising order, with the symbol that covers it; failing that, with the nearest symbol before it if
    /// that has no size (`true` in the result).
    pub fn finish(self) -> Vec<(u64, Option<(Candidate, bool)>)> {
        let (mut before, mut far, mut last) = (None::<Candidate>, None::<Candidate>, None::<Candidate>);
        let mut found = Vec::with_capacity(self.addresses.len());
        for (&address, gap) in self.addresses.iter().zip(&self.gaps) {
            last = gap.last.or(last);
            if let Some(new) = gap.far
                && far.is_none_or(|far| new.end > far.end)
            {
                far = Some(new);
            }
            let covers = |symbol: &Candidate| address < symbol.end;
            let covering = gap.near.or(before.filter(covers)).or(far.filter(covers));
            before = covering.or(before);
            let unsized_label = || last.filter(|label| label.end == label.start).map(|label| (label, true));
            found.push((address, covering.map(|symbol| (symbol, false)).or_else(unsized_label)));
        }
        found
    }
}

/// Keeps the better of two symbols in `slot`; of two with the same start the one that has a size, then the higher rank; of
/// two that are equal in all, both names.
fn keep(slot: &mut Option<Candidate>, new: Candidate, better: impl Fn(&Candidate, &Candidate) -> bool) {
    let Some(old) = slot else {
        *slot = Some(new);
        return;
    };
    if new.start != old.start {
        if better(&new, old) {
            *slot = Some(new);
        }
        return;
    }
    let quality = |symbol: &Candidate| (symbol.end > symbol.start, symbol.rank);
    if quality(&new) > quality(old) {
        *slot = Some(new);
    } else if quality(&new) == quality(old)
        && new.end == old.end
        && new.table == old.table
        && let Some(free) = old.names.iter_mut().find(|name| name.is_none())
    {
        *free = new.names[0];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(start: u64, end: u64, name: u64) -> Candidate {
        Candidate { start, end, rank: 1, table: 0, section: 0, names: [Some(name), None, None] }
    }

    fn check(symbols: &[(u64, u64)], addresses: &[u64], expected: &[Option<u64>]) {
        for reversed in [false, true] {
            let mut search = Nearest::new(addresses.to_vec());
            let mut symbols: Vec<_> = symbols.iter().enumerate().collect();
            if reversed {
                symbols.reverse();
            }
            for (name, &(start, end)) in symbols {
                search.add(symbol(start, end, name as u64));
            }
            let found = search.finish();
            let names: Vec<_> = found
                .iter()
                .map(|(_, found)| found.as_ref().and_then(|(symbol, _)| symbol.names[0]))
                .collect();
            assert_eq!(names, expected, "{symbols:?}", symbols = addresses);
        }
    }

    #[test]
    fn sized_symbols_cover_only_their_range() {
        let symbols = [(10, 20), (20, 30), (40, 50)];
        check(
            &symbols,
            &[9, 10, 19, 20, 29, 30, 39, 40, 50],
            &[None, Some(0), Some(0), Some(1), Some(1), None, None, Some(2), None],
        );
    }

    #[test]
    fn inner_symbols_hide_outer_ones_only_where_they_are() {
        check(&[(10, 100), (20, 30)], &[15, 25, 35, 99], &[Some(0), Some(1), Some(0), Some(0)]);
    }

    #[test]
    fn a_symbol_without_size_reaches_to_the_next_symbol() {
        check(
            &[(10, 10), (20, 25), (30, 30)],
            &[12, 19, 22, 27, 35],
            &[Some(0), Some(0), Some(1), None, Some(2)],
        );
    }
}
