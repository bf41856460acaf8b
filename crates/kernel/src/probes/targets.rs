//! Functions of our own to put probes on: one for each class of instruction, and the places they have in our executable.
//!
//! They are written in assembly, so that what stands at their first byte is what is said, whatever optimises or strips the program. Each
//! returns at once.

use lightfoot_model::Instruction;
use lightfoot_sites::Place;
use std::arch::global_asm;
use std::path::PathBuf;
use std::sync::OnceLock;

/// A function to put a probe on.
#[derive(Clone, Debug)]
pub struct Target {
    /// Class of its first instruction.
    pub instruction: Instruction,
    /// The instruction itself, for example `push`, `endbr64`.
    pub name: &'static str,
    /// Calls it.
    pub call: extern "C" fn(),
    /// Its first byte.
    pub place: Place,
}

// 64 bytes each: no instruction crosses a line or a page, and each call costs the same.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .text.lightfoot_targets,\"ax\",@progbits",
    ".balign 64",
    ".globl lightfoot_target_nop5",
    "lightfoot_target_nop5: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
    "ret",
    ".balign 64",
    ".globl lightfoot_target_nop",
    "lightfoot_target_nop: nop",
    "ret",
    ".balign 64",
    ".globl lightfoot_target_push",
    "lightfoot_target_push: push rbp",
    "pop rbp",
    "ret",
    ".balign 64",
    ".globl lightfoot_target_jump",
    "lightfoot_target_jump: jmp 2f",
    "2: ret",
    ".balign 64",
    ".globl lightfoot_target_mov",
    "lightfoot_target_mov: mov rax, rdi",
    "ret",
    ".balign 64",
    ".globl lightfoot_target_sub",
    "lightfoot_target_sub: sub rsp, 8",
    "add rsp, 8",
    "ret",
    ".balign 64",
    ".globl lightfoot_target_endbr64",
    "lightfoot_target_endbr64: endbr64",
    "ret",
    ".balign 64",
    ".popsection",
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    safe fn lightfoot_target_nop5();
    safe fn lightfoot_target_nop();
    safe fn lightfoot_target_push();
    safe fn lightfoot_target_jump();
    safe fn lightfoot_target_mov();
    safe fn lightfoot_target_sub();
    safe fn lightfoot_target_endbr64();
}

#[cfg(target_arch = "x86_64")]
const FUNCTIONS: [(Instruction, &str, extern "C" fn()); 7] = [
    (Instruction::Nop5, "nop5", lightfoot_target_nop5),
    (Instruction::Nop, "nop", lightfoot_target_nop),
    (Instruction::Push, "push", lightfoot_target_push),
    (Instruction::Jump, "jmp", lightfoot_target_jump),
    (Instruction::SingleStepped, "mov", lightfoot_target_mov),
    (Instruction::SingleStepped, "sub", lightfoot_target_sub),
    (Instruction::SingleStepped, "endbr64", lightfoot_target_endbr64),
];

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .text.lightfoot_targets,\"ax\",@progbits",
    ".balign 64",
    ".globl lightfoot_target_nop",
    "lightfoot_target_nop: nop",
    "ret",
    ".balign 64",
    ".globl lightfoot_target_jump",
    "lightfoot_target_jump: b 2f",
    "2: ret",
    ".balign 64",
    ".globl lightfoot_target_mov",
    "lightfoot_target_mov: mov x9, x0",
    "ret",
    ".balign 64",
    ".popsection",
);

#[cfg(target_arch = "aarch64")]
unsafe extern "C" {
    safe fn lightfoot_target_nop();
    safe fn lightfoot_target_jump();
    safe fn lightfoot_target_mov();
}

#[cfg(target_arch = "aarch64")]
const FUNCTIONS: [(Instruction, &str, extern "C" fn()); 3] = [
    (Instruction::Nop, "nop", lightfoot_target_nop),
    (Instruction::Jump, "b", lightfoot_target_jump),
    (Instruction::SingleStepped, "mov", lightfoot_target_mov),
];

impl Target {
    /// Calls it so many times, in a tight loop.
    pub fn run(&self, calls: u64) {
        for _ in 0..calls {
            (self.call)();
        }
    }
}

// A stack of frame pointers with a loop at its end: what compilers make of Rust keeps no frame pointers, and a walk would end at once.
#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .text.lightfoot_deep,\"ax\",@progbits",
    ".balign 64",
    // (frames, function, calls)
    "lightfoot_deep: push rbp",
    "mov rbp, rsp",
    "push rbx",
    "push r12",
    "test rdi, rdi",
    "jz 2f",
    "dec rdi",
    "call lightfoot_deep",
    "jmp 4f",
    "2: mov rbx, rdx",
    "mov r12, rsi",
    "3: test rbx, rbx",
    "jz 4f",
    "call r12",
    "dec rbx",
    "jmp 3b",
    "4: pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    ".balign 64",
    "lightfoot_getppid: mov eax, 110",
    "syscall",
    "ret",
    ".popsection",
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    safe fn lightfoot_deep(frames: u64, function: extern "C" fn(), calls: u64);
    safe fn lightfoot_getppid();
}

/// Calls a target so many times, or `getppid` for `None`, at the end of a stack of so many frames more than it is called with, which a walk by frame
/// pointers finds. Without such a stack where nobody has written one in assembly.
pub fn run_deep(target: Option<&Target>, frames: u32, calls: u64) {
    #[cfg(target_arch = "x86_64")]
    lightfoot_deep(frames.into(), target.map_or(lightfoot_getppid, |target| target.call), calls);
    #[cfg(not(target_arch = "x86_64"))]
    match target {
        Some(target) => target.run(calls),
        None => getppid(calls),
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = frames;
}

/// All of them, cheapest class first. Empty if `/proc/self/maps` does not say where our code lies in its file.
pub fn all() -> &'static [Target] {
    static TARGETS: OnceLock<Vec<Target>> = OnceLock::new();
    TARGETS.get_or_init(|| {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let target = |(instruction, name, call): (Instruction, &'static str, extern "C" fn())| {
            let offset = file_offset(&maps, call as usize as u64)?;
            let place = Place::User { file: PathBuf::from("/proc/self/exe"), offset, semaphore: None };
            Some(Target { instruction, name, call, place })
        };
        FUNCTIONS.into_iter().filter_map(target).collect()
    })
}

/// The first target of a class.
pub fn of(instruction: Instruction) -> Option<&'static Target> {
    all().iter().find(|target| target.instruction == instruction)
}

/// Makes so many cheap system calls: `getppid`, straight into the kernel.
pub fn getppid(calls: u64) {
    for _ in 0..calls {
        // SAFETY: takes nothing and cannot fail.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
}

/// Gives the calling thread so many times the name that it has: each passes the tracepoint `task:task_rename`.
pub fn rename(calls: u64) {
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes 16 bytes at most, a NUL among them, and reads as many.
    unsafe {
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        for _ in 0..calls {
            libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        }
    }
}

/// Offset in its file of the byte at `address`, from lines like `55d0c0a00000-55d0c0b00000 r-xp 00010000 fe:00 1234  /bin/x`.
fn file_offset(maps: &str, address: u64) -> Option<u64> {
    maps.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let (range, _, offset) = (words.next()?, words.next()?, words.next()?);
        let (start, end) = range.split_once('-')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = (hex(start)?, hex(end)?);
        (start..end).contains(&address).then_some(())?;
        Some(address - start + hex(offset)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn each_target_begins_with_what_it_says() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(all().len(), FUNCTIONS.len());
        for target in all() {
            (target.call)();
            target.run(3);
            let Place::User { offset, .. } = &target.place else { panic!("{:?}", target.place) };
            let mut bytes = [0u8; 5];
            file.read_exact_at(&mut bytes, *offset).unwrap();
            let expected: &[u8] = match target.name {
                "nop5" => &[0x0f, 0x1f, 0x44, 0, 0],
                "push" => &[0x55],
                "endbr64" => &[0xf3, 0x0f, 0x1e, 0xfa],
                "sub" => &[0x48, 0x83, 0xec, 8],
                "jmp" => &[0xeb, 0],
                "mov" if cfg!(target_arch = "x86_64") => &[0x48, 0x89, 0xf8],
                "nop" if cfg!(target_arch = "x86_64") => &[0x90],
                "nop" => &[0x1f, 0x20, 0x03, 0xd5],
                _ => continue,
            };
            assert!(bytes.starts_with(expected), "{}: {bytes:x?}", target.name);
        }
    }

    #[test]
    fn offsets_are_counted_from_the_start_of_the_file() {
        let maps = "1000-3000 r--p 00000000 fe:00 7 /x\n3000-5000 r-xp 00001800 fe:00 7 /x\n";
        assert_eq!(file_offset(maps, 0x3010), Some(0x1810));
        assert_eq!(file_offset(maps, 0x5000), None);
    }
}
