//! How the kernel maps memory: what the BPF side needs to read the memory of a task that is not running.
//!
//! The kernel maps all memory in one piece, at an address that is random and that no file tells on a kernel without
//! `CONFIG_KALLSYMS_ALL`. It is found by trying, see `bpf/remote.bpf.c`.

use crate::sampler::{map, put};
use crate::tables::{Plain, plain_bytes};
use crate::{Error, Kind, Result};
use libbpf_rs::{MapCore, MapFlags, ObjectBuilder, ProgramInput};
use std::fs;

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/remote.bpf.o"));

/// `struct paging`: where and how the kernel maps memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Paging {
    /// Address at which physical address 0 is mapped.
    pub page_offset: u64,
    /// Bits of a page table entry that are a physical address.
    pub physical_mask: u64,
    /// Levels of page tables: 4 or 5.
    pub levels: u32,
    reserved: u32,
}

/// `struct lf_guess`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Guess {
    paging: Paging,
    address: u64,
    number: u64,
    first: u64,
}
const _: () = assert!(size_of::<Guess>() == 48);
impl Plain for Guess {}

/// Guesses tried in one call: `GUESSES` in `bpf/remote.bpf.c`.
const BATCH: u64 = 64;
/// Lowest guess, in GiB below the page tables: more memory than any machine has.
const GUESSES_MAX: u64 = 1 << 16;

/// Finds out how the kernel maps memory, by reading a number of ours through page tables. Takes some 20 ms of CPU.
///
/// # Errors
/// [`Kind::Unsupported`] with the reason; otherwise what libbpf says.
pub fn find() -> Result<Paging> {
    if cfg!(not(target_arch = "x86_64")) {
        let why = "the memory of threads that do not run can be read on x86-64 only";
        return Err(Error::new(Kind::Unsupported, why));
    }
    let object = ObjectBuilder::default().open_memory(OBJECT).and_then(|open| open.load()).map_err(|e| {
        Error::libbpf("cannot load the program that finds out how memory is mapped", e, String::new())
    })?;
    let programs: Vec<_> = object.progs_mut().collect();
    let program = programs.first().ok_or_else(|| Error::new(Kind::Other, "the BPF object has no program"))?;
    // A number that no other memory has: the time and where it lies.
    let number = Box::new(crate::os::monotonic_ns().wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let address = (&raw const *number) as u64;
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let physical_mask = physical_mask(&cpuinfo);
    let highest = memory_gib(&fs::read_to_string("/proc/iomem").unwrap_or_default());
    for first in (0..highest.unwrap_or(GUESSES_MAX)).step_by(BATCH as usize) {
        for levels in [4, 5] {
            let paging = Paging { page_offset: 0, physical_mask, levels, reserved: 0 };
            let guess = Guess { paging, address, number: *number, first };
            put(&object, "guesses", &0u32.to_ne_bytes(), plain_bytes(&guess))?;
            program
                .test_run(ProgramInput::default())
                .map_err(|e| Error::libbpf("cannot find out how memory is mapped", e, String::new()))?;
            let answer = map(&object, "guesses")?
                .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
                .map_err(|e| Error::libbpf("cannot read a BPF map", e, String::new()))?;
            let page_offset = answer.and_then(|a| Some(u64::from_ne_bytes(a.get(..8)?.try_into().ok()?)));
            // Read again, so that the compiler keeps it where it is.
            if std::hint::black_box(*number) == guess.number
                && let Some(page_offset) = page_offset.filter(|&found| found != 0)
            {
                return Ok(Paging { page_offset, ..paging });
            }
        }
    }
    Err(Error::new(
        Kind::Unsupported,
        "memory of threads that do not run cannot be read: the kernel maps memory in a way that lightfoot does not know",
    ))
}

/// Bits of a page table entry that are a physical address. The kernel takes the bit that marks encrypted memory out of the size
/// that it tells. Source: `address sizes` in `/proc/cpuinfo`; 46 bits, which every x86-64 server has had, if it does not say.
fn physical_mask(cpuinfo: &str) -> u64 {
    let bits = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("address sizes"))
        .and_then(|line| line.trim_start_matches([' ', '\t', ':']).split(' ').next()?.parse().ok())
        .filter(|bits| (32..=52).contains(bits))
        .unwrap_or(46);
    (1 << bits) - 1
}

/// End of memory in GiB, rounded up. Source: `/proc/iomem`, which shows addresses only to the privileged.
fn memory_gib(iomem: &str) -> Option<u64> {
    let ram = iomem.lines().filter(|line| line.ends_with(" : System RAM"));
    let ends = ram
        .filter_map(|line| u64::from_str_radix(line.split(" : ").next()?.split('-').nth(1)?.trim(), 16).ok());
    ends.max().filter(|&end| end > 0).map(|end| (end >> 30) + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let text = "flags\t\t: fpu\naddress sizes\t: 48 bits physical, 48 bits virtual\npower management:\n";
        assert_eq!(physical_mask(text), (1 << 48) - 1);
        for odd in ["", "address sizes\t: many", "address sizes\t: 99 bits physical", "address sizes"] {
            assert_eq!(physical_mask(odd), (1 << 46) - 1, "{odd}");
        }
        let text = "00000000-00000fff : Reserved\n00001000-0009fbff : System RAM\n100000000-27fffffff : System RAM\n";
        assert_eq!(memory_gib(text), Some(11));
        assert_eq!(memory_gib("00000000-00000000 : System RAM\n"), None, "hidden");
    }
}
