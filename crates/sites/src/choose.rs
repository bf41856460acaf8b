//! The cheapest instruction of a function that means the same as its first byte.
//!
//! From the first byte on, a handful of instructions is looked at. An instruction is passed only if a probe behind it sees what a probe before
//! it would have seen: the same number of times, with the same arguments. So it may not branch, not write a register that carries an argument,
//! not write memory outside of the function's own frame, and nothing may jump to behind it.

use crate::capabilities::Nop5;
use crate::instruction::{self, Decoded, Refusal};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction as X86, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use lightfoot_model::Instruction;
use lightfoot_unwind::Arch;

/// Instructions looked at.
const HANDFUL: usize = 8;
/// Entries of one jump table that are read.
const TABLE_ENTRIES: u64 = 1024;

/// A function's code.
pub(crate) struct Code<'a> {
    pub arch: Arch,
    pub bytes: &'a [u8],
    /// Address of the first byte, as the linker gave it.
    pub address: u64,
    /// Where the first byte lies in the file.
    pub file_offset: u64,
    /// Go passes arguments in other registers.
    pub go: bool,
    pub nop5: Nop5,
}

/// What a probe needs to find as it is at the first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Needs {
    /// Registers that carry arguments, and the memory that they lead to.
    pub arguments: bool,
    /// The return address at the top of the stack: the kernel takes it from there for the probe of the return.
    pub return_address: bool,
}

/// A place that means the same as the first byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    /// Bytes from the start of the function.
    pub offset: u64,
    pub class: Instruction,
    /// What is passed, in words: `endbr64, sub`.
    pub passed: String,
    /// Bytes that the stack pointer is lower than at the first byte.
    pub stack_lower: u64,
    /// Whether memory is touched before that an argument leads to: a call that faults there is not seen.
    pub after_read: bool,
}

/// What the first instructions offer.
pub(crate) struct Offer {
    /// The first byte itself.
    pub first: Result<Decoded, Refusal>,
    /// Places behind it that are cheap, in order; if the first byte is refused, all that are not.
    pub candidates: Vec<Candidate>,
    /// Why it does not go on.
    pub end: String,
}

/// Looks at the first instructions.
pub(crate) fn offer(code: &Code<'_>, needs: Needs) -> Offer {
    let first = instruction::classify(code.arch, code.bytes, code.file_offset, code.nop5);
    let mut offer = Offer { first, candidates: Vec::new(), end: String::new() };
    let cheap = |class| class != Instruction::SingleStepped;
    if code.arch != Arch::X86_64 {
        offer.end = "on arm64 the first instruction is always taken".to_owned();
        return offer;
    }
    if offer.first.is_ok_and(|first| cheap(first.class)) {
        return offer;
    }
    let mut decoder = Decoder::with_ip(64, code.bytes, code.address, DecoderOptions::NONE);
    let mut walk = Walk::new(code.go, needs);
    let mut passed: Vec<String> = Vec::new();
    for _ in 0..HANDFUL {
        let at = decoder.position();
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            offer.end = "what follows could not be decoded".to_owned();
            return offer;
        }
        if at > 0 {
            let here =
                instruction::classify(code.arch, &code.bytes[at..], code.file_offset + at as u64, code.nop5);
            // The call that replaces a five-byte nop would overwrite what was put below the stack pointer.
            let harmful = here.is_ok_and(|here| here.class == Instruction::Nop5) && walk.red_zone;
            if let Ok(here) = here
                && (cheap(here.class) || offer.first.is_err())
                && !harmful
            {
                offer.candidates.push(Candidate {
                    offset: at as u64,
                    class: here.class,
                    passed: passed.join(", "),
                    stack_lower: walk.lowered,
                    after_read: walk.read,
                });
                if cheap(here.class) {
                    return offer;
                }
            }
        }
        if let Err(why) = walk.pass(&instruction) {
            offer.end = format!("{} at +{at} {why}", name(&instruction));
            return offer;
        }
        passed.push(name(&instruction));
    }
    offer.end = format!("the first {HANDFUL} instructions are all single-stepped");
    offer
}

fn name(instruction: &X86) -> String {
    format!("{:?}", instruction.mnemonic()).to_lowercase()
}

/// What is known of the stack while instructions are passed.
struct Walk {
    go: bool,
    needs: Needs,
    /// Bytes that the stack pointer is lower than at the first byte.
    lowered: u64,
    /// The same of rbp, once it is the frame pointer.
    frame: Option<u64>,
    /// Something was written below the stack pointer.
    red_zone: bool,
    /// Memory was touched that may not be there.
    read: bool,
    /// rax was overwritten before it was read: it carries nothing.
    rax_free: bool,
    factory: InstructionInfoFactory,
}

impl Walk {
    fn new(go: bool, needs: Needs) -> Walk {
        let factory = InstructionInfoFactory::new();
        Walk { go, needs, lowered: 0, frame: None, red_zone: false, read: false, rax_free: false, factory }
    }

    /// Passes an instruction, or says why it may not be passed.
    fn pass(&mut self, instruction: &X86) -> Result<(), String> {
        use Mnemonic::*;
        if instruction.flow_control() != FlowControl::Next {
            return Err("branches".to_owned());
        }
        let known = matches!(
            instruction.mnemonic(),
            Endbr64
                | Nop
                | Push
                | Sub
                | Add
                | And
                | Or
                | Xor
                | Test
                | Cmp
                | Mov
                | Movzx
                | Movsx
                | Movsxd
                | Lea
                | Shl
                | Shr
                | Sar
                | Inc
                | Dec
                | Neg
                | Not
                | Imul
                | Bt
                | Movaps
                | Movups
                | Movapd
                | Movupd
                | Movdqa
                | Movdqu
                | Movq
                | Movd
                | Movhps
                | Movlps
                | Movhpd
                | Movlpd
                | Movss
                | Movsd
                | Pxor
                | Xorps
                | Xorpd
                | Vmovaps
                | Vmovups
                | Vmovdqa
                | Vmovdqu
                | Vpxor
                | Vxorps
                | Sete
                | Setne
                | Cdqe
                | Cdq
        );
        if !known {
            return Err("is not one of those that may be passed".to_owned());
        }
        let info = self.factory.info(instruction);
        let read = |access| {
            matches!(
                access,
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        let written = |access| {
            matches!(
                access,
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        if self.needs.arguments {
            for used in info.used_registers().iter().filter(|used| written(used.access())) {
                let register = used.register().full_register();
                if carries_argument(register, self.go) {
                    return Err(format!(
                        "writes {}, which may carry an argument",
                        format!("{register:?}").to_lowercase()
                    ));
                }
                // al counts the vector arguments of a variadic function; one that overwrites rax before it was read takes none.
                if register == Register::RAX && !self.go && !self.rax_free {
                    let rax_read = info
                        .used_registers()
                        .iter()
                        .any(|used| used.register().full_register() == Register::RAX && read(used.access()));
                    if used.register().size() < 4 || rax_read {
                        return Err("writes a part of rax, which may carry an argument".to_owned());
                    }
                    self.rax_free = true;
                }
            }
        }
        let pushed = match instruction.mnemonic() {
            Push => 8,
            Sub if instruction.op0_register() == Register::RSP && is_immediate(instruction.op_kind(1)) => {
                instruction.immediate(1)
            }
            _ => 0,
        };
        let moves_stack = info
            .used_registers()
            .iter()
            .any(|used| used.register().full_register() == Register::RSP && written(used.access()));
        if moves_stack && (pushed == 0 || pushed > 1 << 30 || instruction.op0_register().size() == 2) {
            return Err("moves the stack pointer by an amount that is not known".to_owned());
        }
        if moves_stack && self.needs.return_address {
            return Err("moves the stack pointer away from the return address".to_owned());
        }
        for memory in info
            .used_memory()
            .iter()
            .filter(|_| instruction.mnemonic() != Push || instruction.op0_kind() == OpKind::Memory)
        {
            if memory.access() == OpAccess::NoMemAccess {
                continue;
            }
            let displacement = memory.displacement() as i64;
            // Bytes above the stack pointer of the first byte.
            let place = match (memory.base(), memory.index()) {
                (Register::RSP, Register::None) => Some(displacement - self.lowered as i64),
                (Register::RBP, Register::None) => self.frame.map(|frame| displacement - frame as i64),
                _ => None,
            };
            let size = memory.memory_size().size() as i64;
            if written(memory.access()) {
                match place {
                    Some(place) if place + size <= 0 => self.red_zone |= place < -(self.lowered as i64),
                    _ if self.needs.arguments => {
                        return Err("writes memory outside of the function's own frame".to_owned());
                    }
                    Some(place) if place < 8 && self.needs.return_address => {
                        return Err("writes the return address".to_owned());
                    }
                    _ => {
                        self.read |=
                            place.is_none() && !always_readable(memory.base(), memory.index(), self.go)
                    }
                }
            } else {
                self.read |= place.is_none() && !always_readable(memory.base(), memory.index(), self.go);
            }
        }
        let sets_frame = instruction.mnemonic() == Mov && instruction.op0_register() == Register::RBP;
        if sets_frame && instruction.op1_register() == Register::RSP {
            self.frame = Some(self.lowered);
        } else if info
            .used_registers()
            .iter()
            .any(|used| used.register().full_register() == Register::RBP && written(used.access()))
        {
            self.frame = None;
        }
        self.lowered += pushed;
        Ok(())
    }
}

fn is_immediate(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Immediate8
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32
            | OpKind::Immediate32to64
    )
}

/// Registers of arguments. System V ABI, AMD64 supplement, 3.2.3; Go: src/cmd/compile/abi-internal.md.
fn carries_argument(register: Register, go: bool) -> bool {
    use Register::*;
    let vector = register.is_zmm() && (register as u32) < ZMM0 as u32 + if go { 15 } else { 8 };
    vector
        || matches!(register, RDI | RSI | RDX | RCX | R8 | R9)
        || go && matches!(register, RAX | RBX | R10 | R11)
}

/// Memory that every thread has: variables of the file, the thread's own block (at fixed places of fs), Go's goroutine.
fn always_readable(base: Register, index: Register, go: bool) -> bool {
    let fixed = index == Register::None && (base == Register::None || go && base == Register::R14);
    fixed || base == Register::RIP
}

/// Where the function's own branches lead within its first bytes.
pub(crate) struct Targets {
    /// The lowest offset above 0 that something jumps to; `u64::MAX` if nothing does.
    pub lowest: u64,
    /// Why it is not known where some jump leads.
    pub unknown: Option<String>,
}

/// The branches of a function, and its jump tables: `read` gives bytes of the file by address, as many
/// as there are. `above`: only targets above this offset count.
pub(crate) fn targets(code: &Code<'_>, above: u64, read: &dyn Fn(u64, u64) -> Option<Vec<u8>>) -> Targets {
    let mut targets = Targets { lowest: u64::MAX, unknown: None };
    let mut note = |address: u64| {
        let offset = address.wrapping_sub(code.address);
        if offset > above && offset < code.bytes.len() as u64 {
            targets.lowest = targets.lowest.min(offset);
        }
    };
    let (mut tables, mut indirect, mut found_table) = (Vec::new(), None, false);
    let mut decoder = Decoder::with_ip(64, code.bytes, code.address, DecoderOptions::NONE);
    let mut damaged = false;
    while decoder.can_decode() {
        let at = decoder.position();
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            // The last instruction is cut where the function's bytes are.
            damaged |= code.bytes.len() - at > instruction::LONGEST;
            continue;
        }
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch
            | FlowControl::Call
            | FlowControl::XbeginXabortXend
                if matches!(
                    instruction.op0_kind(),
                    OpKind::NearBranch64 | OpKind::NearBranch32 | OpKind::NearBranch16
                ) =>
            {
                note(instruction.near_branch_target());
            }
            FlowControl::IndirectBranch => {
                let memory = instruction.op0_kind() == OpKind::Memory;
                if memory
                    && instruction.memory_base() == Register::None
                    && instruction.memory_index() != Register::None
                {
                    // jmp *table(,%rax,8): addresses.
                    let table = instruction.memory_displacement64();
                    if let Some(bytes) = read(table, TABLE_ENTRIES * 8) {
                        let entries = bytes
                            .chunks_exact(8)
                            .map(|entry| u64::from_le_bytes(entry.try_into().unwrap_or_default()));
                        entries
                            .take_while(|&address| {
                                address.wrapping_sub(code.address) < code.bytes.len() as u64
                            })
                            .for_each(&mut note);
                        found_table = true;
                    }
                } else if !memory || instruction.memory_index() != Register::None {
                    indirect = Some(at);
                }
            }
            _ => {
                if instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand() {
                    tables.push(instruction.ip_rel_memory_address());
                }
            }
        }
    }
    if let Some(at) = indirect {
        for table in tables {
            // Distances from the table's start.
            let Some(bytes) = read(table, TABLE_ENTRIES * 4) else { continue };
            let entries =
                bytes.chunks_exact(4).map(|entry| i32::from_le_bytes(entry.try_into().unwrap_or_default()));
            let entries = entries.map(|entry| table.wrapping_add_signed(i64::from(entry)));
            let entries: Vec<u64> = entries
                .take_while(|&address| address.wrapping_sub(code.address) < code.bytes.len() as u64)
                .collect();
            found_table |= !entries.is_empty();
            entries.into_iter().for_each(&mut note);
        }
        if !found_table {
            targets.unknown = Some(format!("it is not known where the jump at +{at} leads"));
        }
    }
    if damaged {
        targets.unknown = Some("a part of the function could not be decoded".to_owned());
    }
    targets
}

/// Where the direct jumps and calls of a piece of code lead.
pub(crate) fn branches(bytes: &[u8], address: u64) -> Vec<u64> {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut targets = Vec::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if instruction.op_count() > 0
            && matches!(
                instruction.op0_kind(),
                OpKind::NearBranch64 | OpKind::NearBranch32 | OpKind::NearBranch16
            )
        {
            targets.push(instruction.near_branch_target());
        }
    }
    targets
}

/// Offsets of a function's return instructions.
pub(crate) fn returns(code: &Code<'_>) -> Vec<u64> {
    if code.arch != Arch::X86_64 {
        let words = code.bytes.chunks_exact(4).enumerate();
        let returns = words.filter(|(_, word)| {
            u32::from_le_bytes((*word).try_into().unwrap_or_default()) & 0xffff_fc1f == 0xd65f_0000
        });
        return returns.map(|(index, _)| index as u64 * 4).collect();
    }
    let mut decoder = Decoder::with_ip(64, code.bytes, code.address, DecoderOptions::NONE);
    let mut returns = Vec::new();
    while decoder.can_decode() {
        let at = decoder.position();
        if decoder.decode().flow_control() == FlowControl::Return {
            returns.push(at as u64);
        }
    }
    returns
}

/// Whether the function keeps data below the stack pointer: one that calls nothing may. The call that Linux 6.18 puts in place of a
/// five-byte nop would overwrite it.
pub(crate) fn uses_red_zone(code: &Code<'_>) -> bool {
    let mut decoder = Decoder::with_ip(64, code.bytes, code.address, DecoderOptions::NONE);
    let (mut below, mut lowers) = (false, false);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            return false;
        }
        lowers |= instruction.mnemonic() == Mnemonic::Sub && instruction.op0_register() == Register::RSP;
        if (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory) {
            let negative = (instruction.memory_displacement64() as i64) < 0;
            let base = instruction.memory_base();
            below |= negative && (base == Register::RSP || base == Register::RBP && !lowers);
        }
    }
    below
}

/// Whether all before `offset` may be passed with nothing written below the stack pointer: then a five-byte nop there is as safe as at the
/// first byte.
pub(crate) fn still_at_entry(code: &Code<'_>, offset: u64) -> bool {
    let needs = Needs { arguments: false, return_address: true };
    let mut walk = Walk::new(code.go, needs);
    let mut decoder = Decoder::with_ip(64, code.bytes, code.address, DecoderOptions::NONE);
    while (decoder.position() as u64) < offset {
        if !decoder.can_decode() || walk.pass(&decoder.decode()).is_err() || walk.red_zone {
            return false;
        }
    }
    true
}

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
