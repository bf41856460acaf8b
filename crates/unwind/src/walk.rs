//! The walk through a stack, in user space: the reference for `bpf/walk.h`. Both apply the same rules in the same order and end with the
//! same outcomes.

use crate::{Arch, CfaKind, Rule, Saved};

/// How a stack ended.
pub use lightfoot_model::StackOutcome as Outcome;

/// One frame of a stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Frame {
    /// Address at run time.
    pub address: u64,
    /// The instruction itself (the leaf, or what a signal interrupted). Otherwise a return address: it is looked up one byte before, in
    /// the call.
    pub exact: bool,
}

/// A stack, leaf first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Walked {
    /// Leaf first.
    pub frames: Vec<Frame>,
    /// How it ended, at the last frame.
    pub outcome: Outcome,
}

/// All registers of a thread at the leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// By DWARF number: 16 on x86-64 (7 is rsp, 6 rbp), 32 on arm64 (31 is sp, 29 the frame pointer, 30 the link register).
    pub general: [u64; 32],
}

/// The memory of the thread's process.
pub trait Memory {
    /// The little-endian word at an address; `None` if it cannot be read.
    fn word(&self, address: u64) -> Option<u64>;
}

/// What is known about some code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Knowledge {
    /// The rule of its object's rows; [`Rule::NONE`] if they say nothing about this code.
    Rule(Rule),
    /// Its object is not prepared yet.
    NotYet,
    /// It has no object, or the object has no table.
    Nothing,
}

/// What lies at an address of an executable mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code {
    /// Whether a file is mapped: false for code made at run time and for the vDSO.
    pub is_file: bool,
    /// What is known about it.
    pub knowledge: Knowledge,
}

/// An address that no mapping was found for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoMapping {
    /// It lies in no executable mapping.
    NotMapped,
    /// The list of mappings could not be read.
    Unreadable,
}

/// The executable mappings of the thread's process.
pub trait Mappings {
    /// The code at an address.
    ///
    /// # Errors
    /// There is none, or that cannot be told.
    fn find(&self, address: u64) -> Result<Code, NoMapping>;
}

/// Walks a stack of at most `frames_max` frames.
pub fn walk(
    arch: Arch,
    registers: &Registers,
    memory: &dyn Memory,
    mappings: &dyn Mappings,
    frames_max: usize,
) -> Walked {
    walk_noting(arch, registers, memory, mappings, frames_max, &mut |_| {})
}

/// One step of a walk: a frame, before its caller is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// The frame.
    pub frame: Frame,
    /// Its stack pointer.
    pub sp: u64,
    /// Its frame pointer, if that is known.
    pub fp: Option<u64>,
    /// The rule for its code; [`Rule::NONE`] if there is none.
    pub rule: Rule,
}

/// As [`walk`]; `note` is called for each frame that lies in a mapping.
pub fn walk_noting(
    arch: Arch,
    registers: &Registers,
    memory: &dyn Memory,
    mappings: &dyn Mappings,
    frames_max: usize,
    note: &mut dyn FnMut(Step),
) -> Walked {
    let general = |number: u16| registers.general[usize::from(number & 31)];
    let mut walker = Walker {
        arch,
        memory,
        ip: registers.ip,
        sp: general(arch.sp()),
        fp: general(arch.fp()),
        bx: registers.general[BX],
        general: registers.general,
        exact: true,
        all_registers: true,
        fp_known: true,
        bx_known: true,
        started: false,
        guessed: false,
    };
    let mut frames = Vec::new();
    loop {
        match walker.frame(mappings, &mut frames, frames_max, note) {
            Ok(()) => walker.started = true,
            Err(outcome) => return Walked { frames, outcome },
        }
    }
}

/// DWARF number of rbx.
const BX: usize = 3;
/// DWARF number of x0.
const ARM64_X0: usize = 0;

struct Walker<'a> {
    arch: Arch,
    memory: &'a dyn Memory,
    ip: u64,
    sp: u64,
    fp: u64,
    bx: u64,
    general: [u64; 32],
    /// `ip` is an instruction, not a return address.
    exact: bool,
    /// `general` holds.
    all_registers: bool,
    fp_known: bool,
    bx_known: bool,
    /// At least one caller was found.
    started: bool,
    /// `ip` was found through a frame pointer that perhaps is none.
    guessed: bool,
}

impl Walker<'_> {
    /// Keeps the frame and goes to its caller, or tells how the stack ends.
    fn frame(
        &mut self,
        mappings: &dyn Mappings,
        frames: &mut Vec<Frame>,
        frames_max: usize,
        note: &mut dyn FnMut(Step),
    ) -> Result<(), Outcome> {
        let lookup = self.ip.wrapping_sub(u64::from(!self.exact));
        let frame = Frame { address: self.ip, exact: self.exact };
        let code = match mappings.find(lookup) {
            Ok(code) => code,
            Err(missing) => {
                // An address that is no code's is no frame, but for the leaf: the program may have jumped there.
                if !self.started && frames.len() < frames_max {
                    frames.push(frame);
                }
                return Err(match missing {
                    _ if self.guessed => Outcome::NoRows,
                    NoMapping::Unreadable => Outcome::NoMappingFound,
                    NoMapping::NotMapped => Outcome::NotMapped,
                });
            }
        };
        self.guessed = false;
        let rule = match code.knowledge {
            Knowledge::Rule(rule) => rule,
            Knowledge::NotYet | Knowledge::Nothing => Rule::NONE,
        };
        if frames.len() >= frames_max {
            return Err(Outcome::Truncated);
        }
        frames.push(frame);
        note(Step { frame, sp: self.sp, fp: self.fp_known.then_some(self.fp), rule });
        match code.knowledge {
            _ if rule.cfa != CfaKind::None => self.apply(&rule, lookup),
            Knowledge::NotYet => Err(Outcome::NoRowsYet),
            _ if code.is_file => {
                // Code that its file says nothing about: perhaps it keeps frame pointers. What comes next will tell.
                self.follow_frame_pointer(Outcome::NoRows, false)?;
                self.guessed = true;
                Ok(())
            }
            _ => self.follow_frame_pointer(Outcome::FramePointerBroken, false),
        }
    }

    fn word(&self, address: u64) -> Result<u64, Outcome> {
        self.memory.word(address).ok_or(Outcome::Unreadable)
    }

    /// The caller by the frame record at the frame pointer. `failed`: how the stack ends if there is no such record. A caller on another
    /// stack may lie below.
    fn follow_frame_pointer(&mut self, failed: Outcome, switches_stacks: bool) -> Result<(), Outcome> {
        // A frame pointer of zero marks the outermost frame (System V ABI 3.4.1); a leaf may use the register for something else.
        if self.fp == 0 {
            return Err(if failed == Outcome::NoRows && self.exact { failed } else { Outcome::Complete });
        }
        if !self.fp_known || (self.fp < self.sp && !switches_stacks) || self.fp & 7 != 0 {
            return Err(failed);
        }
        let record = (self.memory.word(self.fp), self.memory.word(self.fp.wrapping_add(8)));
        let (Some(fp), Some(ip)) = record else { return Err(failed) };
        self.sp = self.fp.wrapping_add(16);
        self.fp = fp;
        self.ip = self.address(ip);
        self.exact = false;
        self.all_registers = false;
        self.bx_known = false;
        if self.ip == 0 { Err(Outcome::Complete) } else { Ok(()) }
    }

    /// A return address without the signature that arm64's pointer authentication puts into its upper bits.
    fn address(&self, ip: u64) -> u64 {
        if self.arch == Arch::Arm64 { ip & ((1 << 52) - 1) } else { ip }
    }

    fn known_fp(&self) -> Result<u64, Outcome> {
        if self.fp_known { Ok(self.fp) } else { Err(Outcome::RegisterUnknown) }
    }

    fn apply(&mut self, rule: &Rule, lookup: u64) -> Result<(), Outcome> {
        let offset = i64::from(rule.cfa_offset);
        let cfa = match rule.cfa {
            CfaKind::Sp => self.sp.wrapping_add_signed(offset),
            CfaKind::Fp => self.known_fp()?.wrapping_add_signed(offset),
            CfaKind::DerefSp => {
                self.word(self.sp.wrapping_add_signed(offset))?.wrapping_add(rule.cfa_register.into())
            }
            CfaKind::DerefFp => self
                .word(self.known_fp()?.wrapping_add_signed(offset))?
                .wrapping_add(rule.cfa_register.into()),
            CfaKind::Plt => {
                let pushed = (lookup & 15) as i64 >= offset;
                self.sp.wrapping_add(if pushed { 16 } else { 8 })
            }
            CfaKind::Bx if self.bx_known => self.bx.wrapping_add_signed(offset),
            CfaKind::Register if self.all_registers => {
                self.general[usize::from(rule.cfa_register & 31)].wrapping_add_signed(offset)
            }
            CfaKind::Bx | CfaKind::Register => return Err(Outcome::RegisterUnknown),
            CfaKind::Signal => return self.leave_signal(),
            CfaKind::FramePointer => {
                return self.follow_frame_pointer(Outcome::FramePointerBroken, rule.cfa_register != 0);
            }
            CfaKind::Stop => return Err(Outcome::Complete),
            CfaKind::Clone => {
                // The system call's result is 0 in the child. A return address here is that of the child's first function.
                let result = if self.arch == Arch::X86_64 { 0 } else { ARM64_X0 };
                if !self.all_registers || self.general[result] == 0 {
                    return Err(Outcome::Complete);
                }
                self.sp.wrapping_add_signed(offset)
            }
            CfaKind::None | CfaKind::Unsupported => return Err(Outcome::UnsupportedRule),
        };
        // A callee's CFA is its caller's stack pointer. x86-64 pushes return addresses, so it has always grown, unless the return address
        // is popped into a register; on arm64 a leaf need not have a frame.
        let may_stay = (self.arch == Arch::Arm64 || rule.ra == Saved::InRegister) && self.all_registers;
        if cfa < self.sp || (cfa == self.sp && !may_stay) {
            return Err(Outcome::NotGrowing);
        }
        let place = |saved: Saved, offset: i16| match saved {
            Saved::AtCfa => Some(cfa.wrapping_add_signed(offset.into())),
            Saved::AtFp => Some(self.fp.wrapping_add_signed(offset.into())),
            Saved::Same | Saved::Undefined | Saved::InRegister => None,
        };
        let ip = match rule.ra {
            Saved::AtCfa => self.word(cfa.wrapping_add_signed(rule.ra_offset.into()))?,
            Saved::Same if self.arch == Arch::Arm64 && self.all_registers => {
                self.general[usize::from(self.arch.ra())]
            }
            // The kernel side keeps no other registers on arm64.
            Saved::InRegister if self.arch == Arch::X86_64 && self.all_registers => {
                self.general[(rule.ra_offset & 15) as usize]
            }
            _ => return Err(Outcome::RegisterUnknown),
        };
        let fp = place(rule.fp, rule.fp_offset).map(|at| self.word(at)).transpose()?;
        let bx = place(rule.bx, rule.bx_offset).map(|at| self.word(at)).transpose()?;
        self.fp_known = match rule.fp {
            Saved::AtCfa => true,
            // The place itself depends on the frame pointer.
            Saved::Same | Saved::AtFp => self.fp_known,
            Saved::Undefined | Saved::InRegister => false,
        };
        self.bx_known = match rule.bx {
            Saved::AtCfa => true,
            Saved::Same => self.bx_known,
            Saved::AtFp => self.bx_known && self.fp_known,
            Saved::Undefined | Saved::InRegister => false,
        };
        self.fp = fp.unwrap_or(self.fp);
        self.bx = bx.unwrap_or(self.bx);
        self.ip = self.address(ip);
        self.sp = cfa;
        self.exact = false;
        self.all_registers = false;
        if self.ip == 0 { Err(Outcome::Complete) } else { Ok(()) }
    }

    /// The kernel's signal frame: everything that was interrupted is on the stack.
    fn leave_signal(&mut self) -> Result<(), Outcome> {
        // Behind the return address that the handler has popped. x86-64: uc_flags, uc_link and uc_stack (40 bytes), then sigcontext.
        // arm64: siginfo (128), ucontext up to uc_mcontext (176), fault_address (8). Source: arch/*/include/uapi/asm/sigcontext.h.
        let (at, words) = if self.arch == Arch::X86_64 { (40, 17) } else { (312, 33) };
        let mut saved = [0; 33];
        for (index, word) in saved[..words].iter_mut().enumerate() {
            *word = self.word(self.sp.wrapping_add(at + 8 * index as u64))?;
        }
        match self.arch {
            Arch::X86_64 => {
                // r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip; DWARF's order is rax rdx rcx rbx rsi rdi rbp rsp r8 to r15.
                let order = [13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7];
                for (number, index) in order.into_iter().enumerate() {
                    self.general[number] = saved[index];
                }
                self.ip = saved[16];
            }
            Arch::Arm64 => {
                self.general.copy_from_slice(&saved[..32]);
                self.ip = saved[32];
            }
        }
        self.sp = self.general[usize::from(self.arch.sp() & 31)];
        self.fp = self.general[usize::from(self.arch.fp() & 31)];
        self.bx = self.general[BX];
        self.exact = true;
        self.all_registers = true;
        self.fp_known = true;
        self.bx_known = true;
        Ok(())
    }
}
