//! What stands under a uprobe, and what the kernel makes of it.
//!
//! Source: `arch/x86/kernel/uprobes.c` of Linux 6.18 (`uprobe_init_insn`, `can_optimize`, `branch_setup_xol_ops`, `push_setup_xol_ops`), and
//! `arch/arm64/kernel/probes/decode-insn.c`. The kernel looks at an instruction only when a process maps the file: attaching to one that it
//! rejects succeeds, and the probe never fires. That is why we look first.

use crate::capabilities::Nop5;
use iced_x86::{Decoder, DecoderOptions};
use lightfoot_model::Instruction;
use lightfoot_unwind::Arch;

/// Bytes in the longest x86 instruction.
pub const LONGEST: usize = 15;
const PAGE: u64 = 4096;

/// An instruction and its class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decoded {
    /// What the kernel does with it under a uprobe.
    pub class: Instruction,
    /// Bytes.
    pub length: usize,
}

/// Why no probe may stand on an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The bytes are no instruction.
    #[error("there is no instruction that could be decoded")]
    Undecodable,
    /// The kernel rejects the prefix, silently for programs that start later.
    #[error("the kernel takes no instruction with the prefix {0:#04x}: the probe would never fire")]
    Prefix(u8),
    /// The kernel rejects the opcode, silently for programs that start later.
    #[error("the kernel takes no instruction with the opcode {0:#04x}: the probe would never fire")]
    Opcode(u8),
    /// The kernel looks at one byte of the opcode, takes the instruction for a jump or a nop, and leaves it out. Measured on 6.18 with
    /// `vpor`, `vmovd`, `vmovq` (EVEX) and `xchg` of r8 with rax: the program gets wrong results.
    #[error(
        "the kernel takes this instruction (opcode {0:#04x}) for a jump or nop and would leave it out: the program would compute something else"
    )]
    LeftOut(u8),
    /// The kernel does not come back from where it executes it, or leaves the trace flag behind. Measured on 6.18: `syscall`, `vcmpps` (its
    /// opcode byte is that of `ret`), `vfnmadd132sd` (that of `popf`), `pushf` with `popf` later: a segmentation fault, a trap.
    #[error("an instruction with the opcode {0:#04x} does not survive a uprobe: the program would crash")]
    Crash(u8),
    /// Not at a multiple of four.
    #[error("instructions of arm64 stand at multiples of four")]
    Unaligned,
}

/// Decodes and classes the instruction at the start of `code`; `file_offset` decides whether it crosses a page.
///
/// # Errors
/// Why no probe may stand there.
pub fn classify(arch: Arch, code: &[u8], file_offset: u64, nop5: Nop5) -> Result<Decoded, Refusal> {
    match arch {
        Arch::X86_64 => x86_64(code, file_offset, nop5),
        _ => arm64(code, file_offset),
    }
}

/// Opcodes that may be executed out of line in 64-bit mode (`good_insns_64`): sixteen a row, the first in the lowest bit. 0x0f stands for all
/// opcodes of two and three bytes.
const GOOD: [u16; 16] = [
    0xbf3f, // 00
    0x3f3f, // 10
    0x7f7f, // 20
    0x7f7f, // 30
    0xffff, // 40
    0xffff, // 50
    0x0ff8, // 60
    0xffff, // 70
    0xfffb, // 80
    0xfbff, // 90
    0xffff, // a0
    0xffff, // b0
    0x0fff, // c0
    0xff8f, // d0
    0x0b0f, // e0
    0xf3ed, // f0
];

/// The nops that the kernel uses itself (`x86_nops`), by length; it emulates these and no others of more than one byte.
const NOPS: [&[u8]; 9] = [
    &[0x90],
    &[0x66, 0x90],
    &[0x0f, 0x1f, 0x00],
    &[0x0f, 0x1f, 0x40, 0x00],
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
    &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
    &[0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
];

/// The bytes of an x86 instruction as the kernel's decoder splits them.
struct Encoding<'a> {
    prefixes: &'a [u8],
    rex: Option<u8>,
    /// VEX or EVEX. The kernel's opcode is then the byte behind it.
    vector: bool,
    opcode: u8,
    /// What follows the opcode.
    rest: &'a [u8],
}

impl<'a> Encoding<'a> {
    fn new(code: &'a [u8]) -> Option<Encoding<'a>> {
        let legacy = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
        let prefixes = code.iter().take_while(|byte| legacy(byte)).count();
        let (prefixes, mut code) = code.split_at(prefixes);
        let rex = code.first().copied().filter(|byte| byte & 0xf0 == 0x40);
        if rex.is_some() {
            code = &code[1..];
        }
        let skipped = match code.first()? {
            0xc5 => 2,
            0xc4 => 3,
            0x62 => 4,
            _ => 0,
        };
        let (opcode, rest) = code.get(skipped..)?.split_first()?;
        Some(Encoding { prefixes, rex, vector: skipped > 0, opcode: *opcode, rest })
    }
}

fn x86_64(code: &[u8], file_offset: u64, nop5: Nop5) -> Result<Decoded, Refusal> {
    let code = &code[..code.len().min(LONGEST)];
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let length = decoder.decode().len();
    if decoder.last_error() != iced_x86::DecoderError::None || length == 0 {
        return Err(Refusal::Undecodable);
    }
    let bytes = &code[..length];
    let encoding = Encoding::new(bytes).ok_or(Refusal::Undecodable)?;
    if let Some(prefix) =
        encoding.prefixes.iter().find(|byte| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0xf0))
    {
        return Err(Refusal::Prefix(*prefix));
    }
    let (opcode, modrm) = (encoding.opcode, encoding.rest.first().copied().unwrap_or(0));
    // The kernel does not know XOP, which begins like `pop` of memory.
    let xop = opcode == 0x8f && modrm & 0x38 != 0;
    // mov to ss holds exceptions back for one instruction.
    let masking = opcode == 0x8e && modrm & 0x38 == 0x10;
    if GOOD[usize::from(opcode >> 4)] >> (opcode & 0xf) & 1 == 0 || masking || xop {
        return Err(Refusal::Opcode(opcode));
    }
    if encoding.vector {
        if matches!(opcode, 0x70..=0x7f | 0x90 | 0xe8 | 0xe9 | 0xeb) {
            return Err(Refusal::LeftOut(opcode));
        }
        if matches!(opcode, 0x9d | 0xc2 | 0xc3 | 0xca | 0xcb) {
            return Err(Refusal::Crash(opcode));
        }
    } else if opcode == 0x9c {
        return Err(Refusal::Crash(opcode));
    } else if opcode == 0x0f && matches!(modrm, 0x05 | 0x34) {
        // syscall and sysenter pass the kernel's own check.
        return Err(Refusal::Crash(modrm));
    }
    // xchg of r8 with rax has the opcode of nop.
    if opcode == 0x90 && encoding.rex.is_some_and(|rex| rex & 1 != 0) {
        return Err(Refusal::LeftOut(opcode));
    }
    let decoded = |class| Ok(Decoded { class, length });
    if !encoding.vector {
        let long_nop =
            opcode == 0x0f && modrm == 0x1f && encoding.rest.get(1).is_some_and(|modrm| modrm & 0x38 == 0);
        let same_page = PAGE - file_offset % PAGE >= 5;
        if nop5 == Nop5::Call && length == 5 && (opcode == 0x90 || long_nop) && same_page {
            return decoded(Instruction::Nop5);
        }
        if opcode == 0x90 || NOPS.get(length - 1) == Some(&bytes) {
            return decoded(Instruction::Nop);
        }
        let jump = matches!(opcode, 0x70..=0x7f | 0xe8 | 0xe9 | 0xeb)
            || opcode == 0x0f && matches!(modrm, 0x80..=0x8f);
        if jump {
            return if encoding.prefixes.contains(&0x66) {
                Err(Refusal::Prefix(0x66))
            } else {
                decoded(Instruction::Jump)
            };
        }
        if matches!(opcode, 0x50..=0x57) && (length == 1 || length == 2 && encoding.rex == Some(0x41)) {
            return decoded(Instruction::Push);
        }
    }
    decoded(Instruction::SingleStepped)
}

fn arm64(code: &[u8], file_offset: u64) -> Result<Decoded, Refusal> {
    let word = u32::from_le_bytes(*code.first_chunk().ok_or(Refusal::Undecodable)?);
    if !file_offset.is_multiple_of(4) {
        return Err(Refusal::Unaligned);
    }
    let is = |mask: u32, value: u32| word & mask == value;
    let hint = is(0xffff_f01f, 0xd503_201f);
    // xpaclri, pac*, aut*, bti*, nop
    let good_hint = matches!(word >> 5 & 0x7f, 0 | 7 | 8 | 10 | 12 | 14 | 24..=31 | 32 | 34 | 36 | 38);
    let exception = is(0xff00_0000, 0xd400_0000);
    let return_from_exception = is(0xffff_f3ff, 0xd69f_03e0) || is(0xffff_fbff, 0xd69f_0bff);
    let writes_system = is(0xfff8_f01f, 0xd500_401f) || is(0xfff0_0000, 0xd510_0000);
    let exclusive = is(0x3f80_0000, 0x0800_0000);
    if exception || return_from_exception || writes_system || exclusive || hint && !good_hint {
        return Err(Refusal::Opcode((word >> 24) as u8));
    }
    let branch = is(0x7c00_0000, 0x1400_0000)
        || is(0xff00_0010, 0x5400_0000)
        || is(0x7c00_0000, 0x3400_0000)
        || is(0xff9f_fc1f, 0xd61f_0000);
    // Addresses and loads relative to the instruction are emulated like jumps.
    let relative =
        is(0x1f00_0000, 0x1000_0000) || is(0xbf00_0000, 0x1800_0000) || is(0xff00_0000, 0x9800_0000);
    let class = match () {
        () if word == 0xd503_201f => Instruction::Nop,
        () if branch || relative => Instruction::Jump,
        () => Instruction::SingleStepped,
    };
    Ok(Decoded { class, length: 4 })
}

/// Whether the instruction repeats itself (`rep movsb`): a uprobe on it fires at each repetition. Measured on 6.18.
pub fn repeats(arch: Arch, code: &[u8]) -> bool {
    let string = |opcode| matches!(opcode, 0xa4..=0xa7 | 0xaa..=0xaf);
    arch == Arch::X86_64
        && Encoding::new(code).is_some_and(|encoding| {
            !encoding.vector
                && string(encoding.opcode)
                && encoding.prefixes.iter().any(|byte| matches!(byte, 0xf2 | 0xf3))
        })
}

/// Offsets of the instructions of a function that starts with `code`, as far as they can be decoded.
pub fn starts(arch: Arch, code: &[u8]) -> Vec<u64> {
    if arch != Arch::X86_64 {
        return (0..code.len() as u64 / 4).map(|index| index * 4).collect();
    }
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut starts = Vec::new();
    while decoder.can_decode() {
        let at = decoder.position() as u64;
        if decoder.decode().is_invalid() {
            break;
        }
        starts.push(at);
    }
    starts
}

/// Whether `offset` is the start of an instruction of a function that starts with `code`, by decoding all before it.
pub fn is_start(arch: Arch, code: &[u8], offset: u64) -> bool {
    if arch != Arch::X86_64 {
        return offset.is_multiple_of(4);
    }
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    while (decoder.position() as u64) < offset && decoder.can_decode() {
        if decoder.decode().is_invalid() {
            return false;
        }
    }
    decoder.position() as u64 == offset
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(code: &[u8]) -> Result<Instruction, Refusal> {
        classify(Arch::X86_64, code, 0, Nop5::Call).map(|decoded| decoded.class)
    }

    #[test]
    fn classes_of_x86_64() {
        use Instruction::*;
        let table: [(&[u8], Instruction); 30] = [
            (&[0x0f, 0x1f, 0x44, 0x00, 0x00], Nop5),
            (&[0x66, 0x0f, 0x1f, 0x40, 0x00], Nop5),
            (&[0x66, 0x66, 0x66, 0x66, 0x90], Nop5),
            (&[0x90], Nop),
            (&[0x66, 0x90], Nop),
            (&[0xf3, 0x90], Nop), // pause
            (&[0x0f, 0x1f, 0x00], Nop),
            (&[0x0f, 0x1f, 0x40, 0x00], Nop),
            (&[0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], Nop),
            (&[0x0f, 0x1f, 0xc0], SingleStepped), // a nop, but not one of the kernel's
            (&[0x55], Push),
            (&[0x41, 0x57], Push),
            (&[0x40, 0x55], SingleStepped), // push with a REX that the kernel does not expect
            (&[0x66, 0x55], SingleStepped),
            (&[0x6a, 0x01], SingleStepped),             // push of a constant
            (&[0xff, 0x35, 0, 0, 0, 0], SingleStepped), // push of memory
            (&[0xeb, 0x05], Jump),
            (&[0xe9, 0, 0, 0, 0], Jump),
            (&[0xe8, 0, 0, 0, 0], Jump),
            (&[0x74, 0x05], Jump),
            (&[0x0f, 0x84, 0, 0, 0, 0], Jump),
            (&[0xf2, 0xe9, 0, 0, 0, 0], Jump), // bnd jmp
            (&[0xe3, 0x05], SingleStepped),    // jrcxz
            (&[0xff, 0xe0], SingleStepped),
            (&[0xf3, 0x0f, 0x1e, 0xfa], SingleStepped), // endbr64
            (&[0x48, 0x83, 0xec, 0x08], SingleStepped), // sub
            (&[0x48, 0x89, 0xe5], SingleStepped),       // mov
            (&[0xc3], SingleStepped),
            (&[0xc5, 0xf8, 0x57, 0xc0], SingleStepped), // vxorps: the kernel's opcode is that of push, its length is not
            (&[0x66, 0x0f, 0xeb, 0xc1], SingleStepped), // por, without VEX
        ];
        for (code, expected) in table {
            assert_eq!(class(code), Ok(expected), "{code:02x?}");
        }
    }

    #[test]
    fn what_the_kernel_rejects_or_mistakes() {
        use Refusal::*;
        let table: [(&[u8], Refusal); 21] = [
            (&[0x0f, 0x05], Crash(0x05)),
            (&[0x0f, 0x34], Crash(0x34)),
            (&[0x9c], Crash(0x9c)),                                         // pushf
            (&[0xc5, 0xf0, 0xc2, 0xc1, 0x00], Crash(0xc2)),                 // vcmpps
            (&[0xc4, 0xe2, 0xf1, 0x9d, 0xca], Crash(0x9d)),                 // vfnmadd132sd
            (&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], Prefix(0x2e)), // the usual nop of ten bytes
            (&[0x3e, 0xff, 0xe0], Prefix(0x3e)),                            // notrack jmp
            (&[0xf0, 0x48, 0xff, 0x07], Prefix(0xf0)),                      // lock inc
            (&[0x66, 0xe9, 0, 0, 0, 0], Prefix(0x66)),
            (&[0xcc], Opcode(0xcc)),
            (&[0xf4], Opcode(0xf4)),
            (&[0xcd, 0x80], Opcode(0xcd)),
            (&[0x8e, 0xd0], Opcode(0x8e)), // mov ss
            (&[0x06], Undecodable),
            (&[0xff, 0xff], Undecodable),
            (&[0x48], Undecodable),
            (&[], Undecodable),
            (&[0xc5, 0xf1, 0xeb, 0xc2], LeftOut(0xeb)), // vpor, taken for jmp
            (&[0xc5, 0xf9, 0x7e, 0xc0], LeftOut(0x7e)), // vmovd, taken for jle
            (&[0xc5, 0xf8, 0x90, 0xc1], LeftOut(0x90)), // kmovw, taken for nop
            (&[0x49, 0x90], LeftOut(0x90)),             // xchg r8, rax, taken for nop
        ];
        for (code, expected) in table {
            assert_eq!(class(code), Err(expected), "{code:02x?}");
        }
    }

    #[test]
    fn repeated_instructions() {
        assert!(repeats(Arch::X86_64, &[0xf3, 0xa4])); // rep movsb
        assert!(repeats(Arch::X86_64, &[0xf3, 0x48, 0xab])); // rep stosq
        assert!(!repeats(Arch::X86_64, &[0xa4]));
        assert!(!repeats(Arch::X86_64, &[0xf3, 0xc3])); // rep ret
        assert!(!repeats(Arch::X86_64, &[]));
    }

    #[test]
    fn a_nop5_depends_on_page_and_kernel() {
        let nop5 = [0x0f, 0x1f, 0x44, 0x00, 0x00];
        let at = |offset, kernel| classify(Arch::X86_64, &nop5, offset, kernel).unwrap().class;
        assert_eq!(at(4091, Nop5::Call), Instruction::Nop5);
        assert_eq!(at(4092, Nop5::Call), Instruction::Nop, "crosses a page");
        assert_eq!(at(0, Nop5::Trap), Instruction::Nop);
    }

    #[test]
    fn classes_of_arm64() {
        let class = |word: u32| {
            classify(Arch::Arm64, &word.to_le_bytes(), 0, Nop5::Trap).map(|decoded| decoded.class)
        };
        assert_eq!(class(0xd503_201f), Ok(Instruction::Nop));
        assert_eq!(class(0x1400_0001), Ok(Instruction::Jump)); // b
        assert_eq!(class(0x9400_0001), Ok(Instruction::Jump)); // bl
        assert_eq!(class(0xb400_0040), Ok(Instruction::Jump)); // cbz
        assert_eq!(class(0x3600_0040), Ok(Instruction::Jump)); // tbz
        assert_eq!(class(0xd65f_03c0), Ok(Instruction::Jump)); // ret
        assert_eq!(class(0x9000_0000), Ok(Instruction::Jump)); // adrp
        assert_eq!(class(0xd503_233f), Ok(Instruction::SingleStepped)); // paciasp
        assert_eq!(class(0xd503_245f), Ok(Instruction::SingleStepped)); // bti c
        assert_eq!(class(0xa9be_7bfd), Ok(Instruction::SingleStepped)); // stp
        assert_eq!(class(0xd400_0001), Err(Refusal::Opcode(0xd4))); // svc
        assert_eq!(class(0xd503_205f), Err(Refusal::Opcode(0xd5))); // wfe
        assert_eq!(class(0xc85f_7c00), Err(Refusal::Opcode(0xc8))); // ldxr
        assert_eq!(classify(Arch::Arm64, &[0; 4], 2, Nop5::Trap), Err(Refusal::Unaligned));
    }

    #[test]
    fn starts_of_instructions() {
        let code = [0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5];
        let all: Vec<u64> = (0..=8).filter(|&offset| is_start(Arch::X86_64, &code, offset)).collect();
        assert_eq!(all, [0, 4, 5, 8]);
        assert_eq!(starts(Arch::X86_64, &code), [0, 4, 5]);
        assert_eq!(starts(Arch::X86_64, &[0x55, 0x06, 0x55]), [0], "ends at what is no instruction");
        assert_eq!(starts(Arch::Arm64, &code), [0, 4]);
    }
}
