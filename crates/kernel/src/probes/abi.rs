//! The mirror of `bpf/probes.h`. Sizes are asserted on both sides.

use std::mem::size_of;

/// `enum lf_probe_flag`.
pub(super) mod flag {
    pub const GATE: u32 = 1 << 0;
    pub const FILTER: u32 = 1 << 1;
    pub const COOKIE: u32 = 1 << 2;
    pub const ATOMIC: u32 = 1 << 3;
    pub const COMPAT: u32 = 1 << 4;
}

/// `struct lf_probe_config`.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub(super) struct Config {
    pub flags: u32,
    pub pid: u32,
    pub slots: u32,
    pub wakeup_bytes: u32,
    pub pidns_inode: u32,
    pub reserved: u32,
}
const _: () = assert!(size_of::<Config>() == 24);
impl crate::tables::Plain for Config {}

/// `LF_PROBE_SLOT`: the constant that stands where a program's slot belongs.
pub(super) const SLOT: i32 = 0x5107_5107;
/// `LF_SYSCALLS`.
pub(super) const SYSCALLS: u32 = 1024;

/// `struct lf_probe_row`, in words.
pub(super) mod row {
    pub const RECORDED: usize = 0;
    pub const WEIGHED: usize = 1;
    pub const FILTERED: usize = 2;
    pub const THROTTLED: usize = 3;
    pub const LOST: usize = 4;
    pub const CUT: usize = 5;
    /// `struct lf_probe_cpu`, the last row of each CPU.
    pub const PASSED: usize = 0;
    pub const BYTES: usize = 64;
}

/// `struct lf_probe_event`: what [`Body::Event`](lightfoot_model::Body::Event) sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Event {
    /// CLOCK_MONOTONIC, in ns.
    pub time_ns: u64,
    /// Process, as this process knows it.
    pub pid: u32,
    /// Thread, in the initial pid namespace.
    pub tid: u32,
    /// The probe's slot.
    pub slot: u32,
    /// N of 1-in-N; 1 without throttling.
    pub weight: u32,
    /// Where it fired.
    pub cpu: u32,
    reserved: u32,
    /// Name of the thread, NUL-terminated.
    pub comm: [u8; 16],
    unused: [u64; 2],
}
const _: () = assert!(size_of::<Event>() == 64);

impl Event {
    /// Reads one ring entry; `None` if it is not of this size.
    pub(super) fn parse(bytes: &[u8]) -> Option<Event> {
        let bytes: &[u8; size_of::<Event>()] = bytes.try_into().ok()?;
        let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Some(Event {
            time_ns: u64::from_ne_bytes(bytes[..8].try_into().ok()?),
            pid: word(8),
            tid: word(12),
            slot: word(16),
            weight: word(20),
            cpu: word(24),
            reserved: 0,
            comm: bytes[32..48].try_into().ok()?,
            unused: [0; 2],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_were_written() {
        let mut bytes = [0u8; 64];
        bytes[..8].copy_from_slice(&7u64.to_ne_bytes());
        for (at, value) in [(8, 1u32), (12, 2), (16, 3), (20, 4), (24, 5)] {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        bytes[32..35].copy_from_slice(b"abc");
        let event = Event::parse(&bytes).unwrap();
        assert_eq!((event.time_ns, event.pid, event.tid), (7, 1, 2));
        assert_eq!((event.slot, event.weight, event.cpu), (3, 4, 5));
        assert_eq!(&event.comm[..4], b"abc\0");
        assert!(Event::parse(&bytes[..63]).is_none());
    }
}
