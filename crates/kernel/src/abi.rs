//! The mirror of `bpf/lightfoot.h`. Sizes and offsets are asserted on both sides.

use std::mem::{offset_of, size_of};

/// Frames kept of one user stack.
pub const MAX_USER_FRAMES: usize = 1024;
/// Frames kept of one kernel stack.
pub const MAX_KERNEL_FRAMES: usize = 127;

/// `enum lf_target`: which tasks the sampling program wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum TargetKind {
    /// Every task but the idle ones.
    All = 0,
    /// Processes in the map `targets`, and their children.
    Processes = 1,
    /// Tasks below a cgroup.
    Cgroup = 2,
}

/// `struct lf_config`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Config {
    /// [`TargetKind`].
    pub target: u32,
    /// 1: kernel stacks are taken.
    pub kernel_frames: u32,
    /// 1: equal stacks are counted in the kernel.
    pub count_in_kernel: u32,
    /// Bytes in the ring that wake user space.
    pub wakeup_bytes: u32,
    /// Inode of user space's own pid namespace; 0 in the initial one.
    pub pidns_inode: u32,
    /// Unused.
    pub reserved: u32,
}

/// `struct lf_counters`: one row per CPU; all in samples unless said. See the header for each field.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Counters {
    pub fired: u64,
    pub recorded: u64,
    pub filtered: u64,
    pub throttled: u64,
    pub lost: u64,
    pub no_scratch: u64,
    pub no_frames: u64,
    pub run_ns: u64,
    pub sent: u64,
    pub sent_bytes: u64,
    pub uncounted: u64,
    pub user_frames: u64,
    pub follow_ns: u64,
    pub unfollowed: u64,
    pub reserved: [u64; 2],
}

impl Counters {
    /// Adds another CPU's row.
    pub fn add(&mut self, other: &Counters) {
        self.fired += other.fired;
        self.recorded += other.recorded;
        self.filtered += other.filtered;
        self.throttled += other.throttled;
        self.lost += other.lost;
        self.no_scratch += other.no_scratch;
        self.no_frames += other.no_frames;
        self.run_ns += other.run_ns;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.uncounted += other.uncounted;
        self.user_frames += other.user_frames;
        self.follow_ns += other.follow_ns;
        self.unfollowed += other.unfollowed;
    }
}

/// `struct lf_record`: the header of one stack in the ring; kernel, then user addresses follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct RecordHeader {
    /// CLOCK_MONOTONIC, ns.
    pub time_ns: u64,
    /// Key in `counts`.
    pub stack: u64,
    /// Start of the process, ns since boot.
    pub process_start_ns: u64,
    /// Start of the thread, ns since boot.
    pub thread_start_ns: u64,
    /// Counts the programs that the process has executed.
    pub exec_id: u64,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Samples that this record itself stands for; 0 if they are in `counts`.
    pub count: u32,
    /// `enum lf_outcome`.
    pub outcome: u32,
    /// Kernel addresses that follow.
    pub kernel_frames: u32,
    /// User addresses that follow those.
    pub user_frames: u32,
    /// Thread name, NUL-terminated.
    pub comm: [u8; 16],
}

const _: () = assert!(size_of::<Config>() == 24);
const _: () = assert!(size_of::<Counters>() == 128 && offset_of!(Counters, user_frames) == 88);
const _: () = assert!(size_of::<RecordHeader>() == 80 && offset_of!(RecordHeader, comm) == 64);

/// One stack as the kernel sent it.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Who, when and how it ended.
    pub header: RecordHeader,
    addresses: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads one ring entry; `None` if it is shorter than it says or says more than the limits allow.
    pub fn parse(bytes: &'a [u8]) -> Option<Record<'a>> {
        let (head, addresses) = bytes.split_at_checked(size_of::<RecordHeader>())?;
        let u64_at = |at: usize| u64::from_ne_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        let u32_at = |at: usize| u32::from_ne_bytes(head[at..at + 4].try_into().expect("4 bytes"));
        let header = RecordHeader {
            time_ns: u64_at(offset_of!(RecordHeader, time_ns)),
            stack: u64_at(offset_of!(RecordHeader, stack)),
            process_start_ns: u64_at(offset_of!(RecordHeader, process_start_ns)),
            thread_start_ns: u64_at(offset_of!(RecordHeader, thread_start_ns)),
            exec_id: u64_at(offset_of!(RecordHeader, exec_id)),
            pid: u32_at(offset_of!(RecordHeader, pid)),
            tid: u32_at(offset_of!(RecordHeader, tid)),
            count: u32_at(offset_of!(RecordHeader, count)),
            outcome: u32_at(offset_of!(RecordHeader, outcome)),
            kernel_frames: u32_at(offset_of!(RecordHeader, kernel_frames)),
            user_frames: u32_at(offset_of!(RecordHeader, user_frames)),
            comm: head[offset_of!(RecordHeader, comm)..].try_into().ok()?,
        };
        let (kernel, user) = (header.kernel_frames as usize, header.user_frames as usize);
        let fits =
            kernel <= MAX_KERNEL_FRAMES && user <= MAX_USER_FRAMES && (kernel + user) * 8 <= addresses.len();
        fits.then_some(Record { header, addresses })
    }

    /// Kernel addresses, leaf first.
    pub fn kernel(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        addresses(&self.addresses[..self.header.kernel_frames as usize * 8])
    }

    /// User addresses, leaf first.
    pub fn user(&self) -> impl ExactSizeIterator<Item = u64> + use<'a> {
        let start = self.header.kernel_frames as usize * 8;
        addresses(&self.addresses[start..start + self.header.user_frames as usize * 8])
    }

    /// Thread name.
    pub fn comm(&self) -> String {
        let end = self.header.comm.iter().position(|&b| b == 0).unwrap_or(self.header.comm.len());
        String::from_utf8_lossy(&self.header.comm[..end]).into_owned()
    }
}

fn addresses(bytes: &[u8]) -> impl ExactSizeIterator<Item = u64> + use<'_> {
    bytes.chunks_exact(8).map(|chunk| u64::from_ne_bytes(chunk.try_into().expect("8 bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(kernel: u32, user: u32, addresses: &[u64]) -> Vec<u8> {
        let mut bytes = vec![0u8; size_of::<RecordHeader>()];
        bytes[offset_of!(RecordHeader, kernel_frames)..][..4].copy_from_slice(&kernel.to_ne_bytes());
        bytes[offset_of!(RecordHeader, user_frames)..][..4].copy_from_slice(&user.to_ne_bytes());
        bytes[offset_of!(RecordHeader, comm)..][..3].copy_from_slice(b"abc");
        bytes.extend(addresses.iter().flat_map(|a| a.to_ne_bytes()));
        bytes
    }

    #[test]
    fn splits_kernel_and_user_addresses() {
        let bytes = bytes(1, 2, &[7, 8, 9]);
        let record = Record::parse(&bytes).unwrap();
        assert_eq!(record.kernel().collect::<Vec<_>>(), [7]);
        assert_eq!(record.user().collect::<Vec<_>>(), [8, 9]);
        assert_eq!(record.comm(), "abc");
    }

    #[test]
    fn refuses_records_that_are_not_what_they_say() {
        assert!(Record::parse(&bytes(1, 2, &[7, 8])).is_none(), "too short");
        assert!(Record::parse(&bytes(u32::MAX, 2, &[7; 9])).is_none(), "over the limit");
        assert!(Record::parse(&[0; 79]).is_none(), "no header");
    }
}
