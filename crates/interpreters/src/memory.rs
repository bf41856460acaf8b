//! Memory of other processes, behind a seam: what is read there may be anything, and may be gone.

/// Reads memory of processes.
pub trait Memory {
    /// Fills `into` from `address` in process `pid`. `false` if not all of it could be read; `into` is then worthless.
    fn read(&self, pid: u32, address: u64, into: &mut [u8]) -> bool;
}

/// A process for as long as it runs one program. Pids are used again, and `execve` replaces all memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Process {
    /// Process id in lightfoot's own pid namespace.
    pub pid: u32,
    /// When it started, in ns since boot.
    pub start_ns: u64,
    /// Programs that it has executed (`task_struct::self_exec_id`).
    pub exec_id: u64,
}

/// Little-endian numbers in memory of one process.
pub(crate) struct Reader<'a> {
    pub memory: &'a dyn Memory,
    pub pid: u32,
}

impl Reader<'_> {
    pub fn array<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.memory.read(self.pid, address, &mut bytes).then_some(bytes)
    }

    pub fn u64(&self, address: u64) -> Option<u64> {
        self.array(address).map(u64::from_le_bytes)
    }

    /// `length` bytes; `None` if there are more than `limit`, or they are not all there.
    pub fn bytes(&self, address: u64, length: u64, limit: usize) -> Option<Vec<u8>> {
        let length = usize::try_from(length).ok().filter(|&length| length <= limit)?;
        address.checked_add(length as u64)?;
        let mut bytes = vec![0; length];
        self.memory.read(self.pid, address, &mut bytes).then_some(bytes)
    }
}

/// The little-endian number at `at`; 0 behind the end.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().map(u64::from_le_bytes).unwrap_or_default()
}

/// As [`u64_at`], of 4 bytes.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().map(u32::from_le_bytes).unwrap_or_default()
}
