//! What `--mem` is made of: everything that grows gets its bound at the start, so that the sum stays below the limit.
//!
//! The limit counts resident memory of the process and BPF maps together. Maps are sized when they are loaded and cannot grow; what the process holds
//! (stacks seen, processes, names) is bounded by the numbers here. During the run the governor compares with what is measured and asks for
//! memory to be given back ([`crate::governor::Controls::evict_bytes`]): a bound on numbers is not yet one on bytes.

use std::fmt;

/// Rows of one bank: 65,536 of 4 bytes, and the page that an array begins with (`memlock`: 266,240).
pub const ROW_BANK_BYTES: u64 = 260 * 1024;
/// One code page of 64 KiB: which bank and where in it.
pub const PAGE_SLOT_BYTES: u64 = 8;
/// One unwind rule.
pub const RULE_SLOT_BYTES: u64 = 16;
/// One stack counted in the kernel: an element of a preallocated hash (48 + key 8 + value 16) and its bucket (16). Source: `struct htab_elem`,
/// `struct bucket` in kernel/bpf/hashtab.c; with values of 8 bytes 80 per slot were measured in `memlock`.
pub const STACK_SLOT_BYTES: u64 = 88;
/// The same stack in user space: 30 frames of 16 bytes, its thread, its place in a table.
const STACK_KEPT_BYTES: u64 = 640;
/// One object: in the kernel as a stack slot with a larger key and value (`memlock`: 120.3); in user space its path, segments and state.
const OBJECT_BYTES: u64 = 121;
const OBJECT_KEPT_BYTES: u64 = 512;
/// The process before it knows anything: 6.7 MB were measured while sampling, nearly all of it pages of the program's own file.
const PROCESS_BASE_BYTES: u64 = 8 * MIB;
/// For each CPU: scratch memory, cache of rules and of segments for three contexts (35 KB each), counters, off-CPU sums and the comparison
/// of clocks.
const PER_CPU_BYTES: u64 = 128 * 1024;
/// Small maps: processes followed, tree nodes, interpreters, settings.
const SMALL_MAPS_BYTES: u64 = MIB;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * 1024;
/// A row while its table is made: 8 bytes before merging, 8 after it, and its share of the function.
const TABLE_ROW_BYTES: u64 = 20;
/// Code pages to each bank of rows: between what was seen in node (110) and sparse code.
const PAGES_PER_BANK: u64 = 512;
/// Rules are named by 16 bits.
const RULES_MAX: u64 = 65_536;

/// How memory is shared out. All of it together is [`MemoryPlan::total_bytes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The ring between kernel and user space, in bytes: a power of two.
    pub ring_bytes: u64,
    /// Distinct stacks counted in the kernel and kept in user space.
    pub stack_slots: u32,
    /// Banks of unwind rows, [`ROW_BANK_BYTES`] each.
    pub row_banks: u32,
    /// Code pages of all objects, [`PAGE_SLOT_BYTES`] each.
    pub page_slots: u32,
    /// Distinct unwind rules, [`RULE_SLOT_BYTES`] each.
    pub rule_slots: u32,
    /// Objects known at a time.
    pub objects: u32,
    /// For the table of processes and mappings, in bytes.
    pub process_bytes: u64,
    /// For walks that wait for an unwind table, with a copy of their stacks, in bytes.
    pub deferred_bytes: u64,
    /// For symbol tables and names while names are found, in bytes. Until then the same memory is for the unwind table that is being made.
    pub symbol_bytes: u64,
    /// What does not depend on the limit: the program itself and what each CPU needs, in bytes.
    pub fixed_bytes: u64,
}

/// The limit does not hold the least that is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSmall {
    /// The least limit that works on this machine, in bytes.
    pub least_bytes: u64,
}

impl fmt::Display for TooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at least {}M are needed on this machine", self.least_bytes.div_ceil(MIB))
    }
}

impl std::error::Error for TooSmall {}

impl MemoryPlan {
    /// The plan without a limit: at most 32 MB of maps on machines of up to 32 CPUs, at most 40 MB of resident memory.
    pub fn standard(cpus: u32) -> MemoryPlan {
        MemoryPlan {
            ring_bytes: MIB,
            stack_slots: 16_384,
            row_banks: 78,
            page_slots: 78 * PAGES_PER_BANK as u32,
            rule_slots: 32_768,
            objects: 4_096,
            process_bytes: 4 * MIB,
            deferred_bytes: 4 * MIB,
            symbol_bytes: 10 * MIB,
            fixed_bytes: fixed_bytes(cpus),
        }
    }

    /// The plan for at most `limit_bytes` on a machine with `cpus` CPUs. A smaller limit never gives more of anything.
    ///
    /// # Errors
    /// [`TooSmall`] with the least limit that works.
    pub fn for_limit(limit_bytes: u64, cpus: u32) -> Result<MemoryPlan, TooSmall> {
        let mut plan = MemoryPlan {
            ring_bytes: 64 * KIB,
            stack_slots: 1_024,
            row_banks: 4,
            page_slots: 4 * PAGES_PER_BANK as u32,
            rule_slots: 4_096,
            objects: 256,
            process_bytes: 512 * KIB,
            deferred_bytes: 256 * KIB,
            symbol_bytes: 2 * MIB,
            fixed_bytes: fixed_bytes(cpus),
        };
        let least_bytes = plan.total_bytes();
        let Some(rest) = limit_bytes.checked_sub(least_bytes) else { return Err(TooSmall { least_bytes }) };
        let percent = |part: u64| rest / 100 * part;
        let slots = |bytes: u64, each: u64, max: u64| (bytes / each).min(max) as u32;
        plan.ring_bytes = (plan.ring_bytes + percent(4)).min(16 * MIB);
        plan.ring_bytes = 1 << plan.ring_bytes.ilog2();
        plan.stack_slots += slots(percent(22), STACK_SLOT_BYTES + STACK_KEPT_BYTES, 1 << 20);
        plan.objects += slots(percent(4), OBJECT_BYTES + OBJECT_KEPT_BYTES, 1 << 16);
        plan.process_bytes += percent(5).min(64 * MIB);
        plan.deferred_bytes += percent(4).min(16 * MIB);
        plan.symbol_bytes += percent(24).min(256 * MIB);
        plan.rule_slots += slots(percent(1), RULE_SLOT_BYTES, RULES_MAX - u64::from(plan.rule_slots));
        let banks = slots(percent(36), ROW_BANK_BYTES + PAGES_PER_BANK * PAGE_SLOT_BYTES, 1 << 13);
        plan.row_banks += banks;
        plan.page_slots += banks * PAGES_PER_BANK as u32;
        Ok(plan)
    }

    /// Rows of one unwind table while it is made, before equal neighbours are merged.
    pub fn table_rows(&self) -> u32 {
        u32::try_from(self.symbol_bytes / TABLE_ROW_BYTES).unwrap_or(u32::MAX)
    }

    /// BPF maps and event buffers when full, in bytes.
    pub fn map_bytes(&self) -> u64 {
        self.ring_bytes
            + u64::from(self.stack_slots) * STACK_SLOT_BYTES
            + u64::from(self.row_banks) * ROW_BANK_BYTES
            + u64::from(self.page_slots) * PAGE_SLOT_BYTES
            + u64::from(self.rule_slots) * RULE_SLOT_BYTES
            + u64::from(self.objects) * OBJECT_BYTES
            + (self.fixed_bytes - PROCESS_BASE_BYTES)
    }

    /// Resident memory of the process when everything is full, in bytes. Maps that the process maps into its own memory are not counted twice.
    pub fn resident_bytes(&self) -> u64 {
        PROCESS_BASE_BYTES
            + u64::from(self.stack_slots) * STACK_KEPT_BYTES
            + u64::from(self.objects) * OBJECT_KEPT_BYTES
            + self.process_bytes
            + self.deferred_bytes
            + self.symbol_bytes
    }

    /// Both, in bytes.
    pub fn total_bytes(&self) -> u64 {
        self.map_bytes() + self.resident_bytes()
    }
}

fn fixed_bytes(cpus: u32) -> u64 {
    PROCESS_BASE_BYTES + SMALL_MAPS_BYTES + u64::from(cpus.max(1)) * PER_CPU_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_plan_keeps_what_is_promised() {
        for cpus in [1, 2, 8, 32] {
            let plan = MemoryPlan::standard(cpus);
            assert!(plan.map_bytes() <= 32_000_000, "{cpus}: {} {plan:?}", plan.map_bytes());
            assert!(plan.resident_bytes() <= 40_000_000, "{}", plan.resident_bytes());
        }
    }

    #[test]
    fn every_limit_holds_and_more_is_never_less() {
        for cpus in [1u32, 2, 64, 512] {
            let least = MemoryPlan::for_limit(0, cpus).unwrap_err().least_bytes;
            assert!(MemoryPlan::for_limit(least - 1, cpus).is_err());
            let mut before = MemoryPlan::for_limit(least, cpus).unwrap();
            for step in 0..4_000u64 {
                let limit = least + step * step * 3_331;
                let plan = MemoryPlan::for_limit(limit, cpus).unwrap();
                assert!(plan.total_bytes() <= limit, "{limit}: {plan:?}");
                assert!(plan.ring_bytes.is_power_of_two() && plan.rule_slots <= 65_536);
                let numbers = |p: &MemoryPlan| {
                    let small = [p.stack_slots, p.row_banks, p.page_slots, p.rule_slots, p.objects];
                    small.map(u64::from).into_iter().chain([
                        p.ring_bytes,
                        p.process_bytes,
                        p.deferred_bytes,
                        p.symbol_bytes,
                    ])
                };
                assert!(numbers(&before).zip(numbers(&plan)).all(|(a, b)| a <= b), "{before:?} {plan:?}");
                before = plan;
            }
        }
        let huge = MemoryPlan::for_limit(u64::MAX, 2).unwrap();
        assert!(huge.total_bytes() < 8 << 30, "{huge:?}");
    }

    #[test]
    fn most_of_a_limit_is_used() {
        let plan = MemoryPlan::for_limit(64 << 20, 2).unwrap();
        assert!(plan.total_bytes() > (64 << 20) * 85 / 100, "{}", plan.total_bytes());
        assert!(plan.row_banks >= 60, "{plan:?}");
    }

    #[test]
    fn too_small_says_what_would_do() {
        let error = MemoryPlan::for_limit(1 << 20, 2).unwrap_err();
        let least = error.to_string();
        let mib: u64 = least.split(|c: char| !c.is_ascii_digit()).find_map(|n| n.parse().ok()).unwrap();
        assert!(MemoryPlan::for_limit(mib << 20, 2).is_ok(), "{least}");
        assert!(mib <= 20, "{least}");
    }
}
