//! The kernel's symbols, `/proc/kallsyms`, by streaming: one line `ADDRESS TYPE NAME [MODULE]` each. Source of the format:
//! `s_show` in the kernel's `kernel/kallsyms.c`.

use crate::names::{plainer, pretty};
use crate::symbols::Symbol;
use lightfoot_process::for_each_line;
use std::cmp::Ordering;
use std::io::Read;
use std::ops::ControlFlow;

/// Reason if the kernel shows every address as 0.
pub(crate) const HIDDEN: &str = "kernel hides addresses (kptr_restrict)";
/// Longest name kept, in bytes. The kernel's own limit is 512.
const NAME_BYTES: usize = 1024;
/// Bytes read at most: ten times what a distribution's kernel has.
const BYTES_MAX: u64 = 128 << 20;

/// One line of `/proc/kallsyms`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Line<'a> {
    /// Address; 0 if the kernel hides it.
    pub address: u64,
    /// Type letter as `nm` has it, for example `t`: function, `T`: global function.
    pub kind: u8,
    /// Name.
    pub name: &'a [u8],
    /// Module, without brackets; empty for the kernel itself.
    pub module: &'a [u8],
}

/// Parses one line. Never panics.
pub fn parse_line(line: &[u8]) -> Option<Line<'_>> {
    let mut fields = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|field| !field.is_empty());
    let address = hex(fields.next()?)?;
    let &[kind] = fields.next()? else { return None };
    let name = fields.next()?;
    let module = fields.next().and_then(|module| module.strip_prefix(b"[")?.strip_suffix(b"]"));
    Some(Line { address, kind, name, module: module.unwrap_or_default() })
}

fn hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |number, &digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            b'A'..=b'F' => digit - b'A' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(value))
    })
}

/// The symbol with the highest address in the gap before one of the addresses asked for, the address itself included.
#[derive(Clone, Default)]
struct Gap {
    start: u64,
    /// 0: no function.
    rank: u8,
    name: Vec<u8>,
    module: Vec<u8>,
}

/// Finds the functions that `addresses` (any order) lie in, in one pass. Returns the distinct addresses, sorted, each with
/// its symbol; names of modules are `name [module]`. Memory is proportional to the addresses.
///
/// A kernel symbol has no size: it reaches to the next symbol of any type.
pub fn find(reader: &mut dyn Read, addresses: &[u64]) -> Vec<(u64, Result<Symbol, &'static str>)> {
    let mut sorted = addresses.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut gaps = vec![Gap::default(); sorted.len()];
    let mut visible = false;
    let read = for_each_line(reader, BYTES_MAX, &mut |line| {
        let Some(Line { address: start, kind, name, module }) = parse_line(line) else {
            return ControlFlow::Continue(());
        };
        visible |= start != 0;
        let at = sorted.partition_point(|&address| address < start);
        if let Some(gap) = gaps.get_mut(at)
            && start >= gap.start
        {
            let rank = match kind {
                b'T' => 3,
                b'W' | b'w' => 2,
                b't' => 1,
                _ => 0,
            };
            let better = || (rank, plainer(&gap.name, name)) > (gap.rank, Ordering::Equal);
            if start > gap.start || gap.name.is_empty() || better() {
                (gap.start, gap.rank) = (start, rank);
                gap.name.clear();
                gap.name.extend_from_slice(&name[..name.len().min(NAME_BYTES)]);
                gap.module.clear();
                gap.module.extend_from_slice(&module[..module.len().min(NAME_BYTES)]);
            }
        }
        ControlFlow::Continue(())
    });
    let missing = match (read, visible) {
        (Err(_), _) => "kernel symbols unreadable",
        (Ok(_), false) => HIDDEN,
        (Ok(_), true) => "address between symbols",
    };
    let mut last: Option<&Gap> = None;
    let found = sorted.iter().zip(&gaps).map(|(&address, gap)| {
        last = Some(gap).filter(|gap| !gap.name.is_empty()).or(last);
        let symbol = last.filter(|gap| gap.rank > 0 && gap.start != 0).map(|gap| {
            let mut name = pretty(&gap.name);
            if !gap.module.is_empty() {
                name = format!("{name} [{}]", pretty(&gap.module));
            }
            Symbol { name, start: gap.start }
        });
        (address, symbol.ok_or(missing))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"ffffffff81000000 T _stext\n\
        ffffffff81000000 T start_of_it\n\
        ffffffff81000000 t __local\n\
        ffffffff81000100 t middle\n\
        ffffffff81000180 D data\n\
        junk line\n\
        ffffffffc0001000 t in_module\t[ext4]\n\
        ffffffffc0002000 t bpf_prog_1234_x\t[bpf]\n\
        ffffffff81000140 W weak";

    #[test]
    fn nearest_function_before_the_address() {
        let addresses = [
            0xffff_ffff_c000_2010,
            0xffff_ffff_8100_0001,
            0xffff_ffff_8100_0120,
            0xffff_ffff_8100_0150,
            0xffff_ffff_8100_0190,
            0xffff_ffff_c000_1fff,
            0x1000,
        ];
        let found = find(&mut &*TEXT, &addresses);
        let names: Vec<_> = found.into_iter().map(|(_, symbol)| symbol.map(|symbol| symbol.name)).collect();
        assert_eq!(
            names,
            [
                Err("address between symbols"),
                Ok("start_of_it".into()),
                Ok("middle".into()),
                Ok("weak".into()),
                Err("address between symbols"),
                Ok("in_module [ext4]".into()),
                Ok("bpf_prog_1234_x [bpf]".into()),
            ]
        );
    }

    #[test]
    fn hidden_addresses_are_a_reason() {
        let found =
            find(&mut &b"0000000000000000 T _stext\n0000000000000000 t x\n"[..], &[0xffff_ffff_8100_0000]);
        assert_eq!(found, [(0xffff_ffff_8100_0000, Err(HIDDEN))]);
    }
}
