//! One unwind rule: how the caller's registers follow from those of a frame.

/// How the canonical frame address (CFA: the stack pointer right after return) is found. Numbers are those of
/// `bpf/lightfoot.h`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
#[repr(u8)]
pub enum CfaKind {
    /// Nothing is known about this code.
    #[default]
    None = 0,
    /// Stack pointer + `cfa_offset`.
    Sp = 1,
    /// Frame pointer + `cfa_offset`.
    Fp = 2,
    /// DWARF register `cfa_register` + `cfa_offset`: only where every register is known (the leaf, or below a signal frame).
    Register = 3,
    /// The word at stack pointer + `cfa_offset`, plus `cfa_register` (a number of bytes here).
    DerefSp = 4,
    /// The word at frame pointer + `cfa_offset`, plus `cfa_register` (a number of bytes here).
    DerefFp = 5,
    /// x86-64 PLT: stack pointer + 8, and 8 more from byte `cfa_offset` of each 16-byte entry on.
    Plt = 6,
    /// The kernel's signal frame: every register of the interrupted code is in the saved context.
    Signal = 7,
    /// Caller by frame pointer: instruction pointer at fp + 8, its frame pointer at fp, its stack pointer fp + 16. `cfa_register` 1: the code
    /// switches stacks, so the caller's may lie below this one ([`Rule::STACK_SWITCH`]).
    FramePointer = 8,
    /// x86-64 rbx + `cfa_offset`.
    Bx = 9,
    /// The outermost frame: the stack is complete here.
    Stop = 10,
    /// There is information that these rules cannot express.
    Unsupported = 11,
    /// Around the system call that makes a thread or process: in the child (its result register is 0) and behind a call the outermost
    /// frame, in the parent stack pointer + `cfa_offset`.
    Clone = 12,
}

impl CfaKind {
    /// Every kind in numeric order.
    pub const ALL: [CfaKind; 13] = [
        CfaKind::None,
        CfaKind::Sp,
        CfaKind::Fp,
        CfaKind::Register,
        CfaKind::DerefSp,
        CfaKind::DerefFp,
        CfaKind::Plt,
        CfaKind::Signal,
        CfaKind::FramePointer,
        CfaKind::Bx,
        CfaKind::Stop,
        CfaKind::Unsupported,
        CfaKind::Clone,
    ];
}

/// Where the caller's value of a register is. Numbers are those of `bpf/lightfoot.h`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
#[repr(u8)]
pub enum Saved {
    /// Still in the register itself.
    #[default]
    Same = 0,
    /// In memory at CFA + the rule's offset.
    AtCfa = 1,
    /// Unknown from here on.
    Undefined = 2,
    /// In memory at this frame's frame pointer + the rule's offset: what GCC writes for functions that align their stack, where
    /// the distance to the CFA is not constant.
    AtFp = 3,
    /// In the register whose DWARF number is the rule's offset, where every register is known: only for the return address (`vfork`).
    InRegister = 4,
}

impl Saved {
    /// Every place in numeric order.
    pub const ALL: [Saved; 5] = [Saved::Same, Saved::AtCfa, Saved::Undefined, Saved::AtFp, Saved::InRegister];
}

/// How a caller's registers follow from those of a frame. 16 bytes, the same in the kernel (`struct lf_rule`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, PartialOrd, Ord)]
#[repr(C)]
pub struct Rule {
    /// What the CFA is computed from.
    pub cfa: CfaKind,
    /// DWARF number for [`CfaKind::Register`], bytes to add for [`CfaKind::DerefSp`] and [`CfaKind::DerefFp`], 1 for a
    /// [`CfaKind::FramePointer`] that leads to another stack; otherwise 0.
    pub cfa_register: u8,
    /// The return address: [`Saved::AtCfa`], [`Saved::InRegister`], or on arm64 [`Saved::Same`] where it is still in the link register.
    pub ra: Saved,
    /// The frame pointer (rbp, x29).
    pub fp: Saved,
    /// rbx; [`Saved::Undefined`] but in objects where some CFA depends on it.
    pub bx: Saved,
    /// [`Rule::INTERPRETER`] or 0.
    pub flags: u8,
    /// Bytes from the CFA; a register's number with [`Saved::InRegister`].
    pub ra_offset: i16,
    /// Bytes; see [`CfaKind`].
    pub cfa_offset: i32,
    /// Bytes from the CFA or, for [`Saved::AtFp`], from the frame pointer.
    pub fp_offset: i16,
    /// Bytes, as `fp_offset`.
    pub bx_offset: i16,
}

impl Rule {
    /// Size in the kernel, and of [`Rule::to_bytes`].
    pub const BYTES: usize = 16;
    /// Flag: this code is the loop of a language's interpreter.
    pub const INTERPRETER: u8 = 1;
    /// Nothing is known. Always rule 0 of a table.
    pub const NONE: Rule = Rule::only(CfaKind::None);
    /// The outermost frame.
    pub const STOP: Rule = Rule::only(CfaKind::Stop);
    /// The kernel's signal frame.
    pub const SIGNAL: Rule = Rule::only(CfaKind::Signal);
    /// Information that rules cannot express.
    pub const UNSUPPORTED: Rule = Rule::only(CfaKind::Unsupported);
    /// Caller by frame pointer.
    pub const FRAME_POINTER: Rule = Rule::only(CfaKind::FramePointer);
    /// Caller by frame pointer, on another stack.
    pub const STACK_SWITCH: Rule = Rule { cfa_register: 1, ..Rule::FRAME_POINTER };

    const fn only(cfa: CfaKind) -> Rule {
        Rule {
            cfa,
            cfa_register: 0,
            ra: Saved::Undefined,
            fp: Saved::Undefined,
            bx: Saved::Undefined,
            flags: 0,
            ra_offset: 0,
            cfa_offset: 0,
            fp_offset: 0,
            bx_offset: 0,
        }
    }

    /// The bytes of `struct lf_rule`, numbers little-endian.
    #[inline]
    pub fn to_bytes(&self) -> [u8; Rule::BYTES] {
        let [r0, r1] = self.ra_offset.to_le_bytes();
        let [c0, c1, c2, c3] = self.cfa_offset.to_le_bytes();
        let [f0, f1] = self.fp_offset.to_le_bytes();
        let [b0, b1] = self.bx_offset.to_le_bytes();
        let (cfa, ra, fp, bx) = (self.cfa as u8, self.ra as u8, self.fp as u8, self.bx as u8);
        [cfa, self.cfa_register, ra, fp, bx, self.flags, r0, r1, c0, c1, c2, c3, f0, f1, b0, b1]
    }

    /// The rule that [`Rule::to_bytes`] wrote; `None` if a field has a number that means nothing.
    pub fn from_bytes(bytes: &[u8; Rule::BYTES]) -> Option<Rule> {
        let saved = |at: usize| Saved::ALL.get(usize::from(bytes[at])).copied();
        let i16_at = |at: usize| i16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Some(Rule {
            cfa: CfaKind::ALL.get(usize::from(bytes[0])).copied()?,
            cfa_register: bytes[1],
            ra: saved(2)?,
            fp: saved(3)?,
            bx: saved(4)?,
            flags: bytes[5],
            ra_offset: i16_at(6),
            cfa_offset: i32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            fp_offset: i16_at(12),
            bx_offset: i16_at(14),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bytes_and_back() {
        assert_eq!(size_of::<Rule>(), Rule::BYTES);
        let rule = Rule {
            cfa: CfaKind::DerefFp,
            cfa_register: 10,
            ra: Saved::AtCfa,
            fp: Saved::AtFp,
            bx: Saved::Same,
            flags: Rule::INTERPRETER,
            ra_offset: -8,
            cfa_offset: -70_000,
            fp_offset: -16,
            bx_offset: 300,
        };
        assert_eq!(
            rule.to_bytes(),
            [5, 10, 1, 3, 0, 1, 0xf8, 0xff, 0x90, 0xee, 0xfe, 0xff, 0xf0, 0xff, 0x2c, 1]
        );
        assert_eq!(Rule::from_bytes(&rule.to_bytes()), Some(rule));
        for (number, kind) in CfaKind::ALL.into_iter().enumerate() {
            assert_eq!(number, kind as usize);
        }
        let mut bytes = rule.to_bytes();
        bytes[0] = CfaKind::ALL.len() as u8;
        assert_eq!(Rule::from_bytes(&bytes), None);
        bytes[..5].copy_from_slice(&[1, 0, 1, 5, 0]);
        assert_eq!(Rule::from_bytes(&bytes), None);
    }
}
