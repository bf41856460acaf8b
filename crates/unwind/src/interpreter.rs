//! The call frame instructions of DWARF: what they make of a function is a list of places where the rule changes.
//!
//! Source: DWARF 5, section 6.4.2; GNU extensions as in binutils' `readelf -wF` and GCC's `unwind-dw2.c`.

use crate::Arch;
use crate::bytes::Cursor;
use crate::expression::{self, CfaExpression};
use crate::rule::{CfaKind, Rule, Saved};

/// States kept by `DW_CFA_remember_state`. Real code nests one or two deep.
const REMEMBERED_MAX: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cfa {
    Unset,
    Register { register: u16, offset: i64 },
    Expression(CfaExpression),
    Unknown,
}

/// Where a register of the caller is, as DWARF sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Same,
    Undefined,
    AtCfa(i64),
    AtRegister { register: u16, offset: i64 },
    InRegister(u16),
    Unknown,
}

/// One row of a function, unfinished: where everything is from some instruction on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct State {
    cfa: Cfa,
    ra: Place,
    fp: Place,
    bx: Place,
    /// The caller's stack pointer is not the CFA.
    sp_elsewhere: bool,
}

impl State {
    fn new() -> State {
        State { cfa: Cfa::Unset, ra: Place::Same, fp: Place::Same, bx: Place::Same, sp_elsewhere: false }
    }
}

/// What one common information entry says to all of its functions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Common {
    pub arch: Arch,
    pub code_alignment: u64,
    pub data_alignment: i64,
    pub ra_register: u64,
    pub signal_frame: bool,
    /// After the entry's own instructions.
    pub initial: State,
    /// rbx is followed, too.
    pub track_bx: bool,
    /// How addresses are written in `DW_CFA_set_loc`: number of bytes, 0 if that cannot be told.
    pub address_bytes: u8,
}

impl Common {
    pub fn new(arch: Arch, code_alignment: u64, data_alignment: i64, ra_register: u64) -> Common {
        Common {
            arch,
            code_alignment,
            data_alignment,
            ra_register,
            signal_frame: false,
            initial: State::new(),
            track_bx: false,
            address_bytes: 0,
        }
    }

    /// Runs the entry's own instructions. `None` if they are damaged.
    pub fn run_initial(&mut self, instructions: &[u8]) -> Option<()> {
        let copy = *self;
        let mut machine = Machine::new(&copy, 0);
        machine.run(instructions, u64::MAX, &mut |_, _| {})?;
        self.initial = machine.state;
        Some(())
    }

    /// Runs a function's instructions; `row` is called with the address where a state begins, in ascending order, and the state.
    /// `None` if they are damaged: the rows before are good, the rest of the function is then [`Rule::UNSUPPORTED`].
    pub fn run(
        &self,
        instructions: &[u8],
        start: u64,
        end: u64,
        row: &mut dyn FnMut(u64, &State),
    ) -> Option<()> {
        let mut machine = Machine::new(self, start);
        let result = machine.run(instructions, end, row);
        if result.is_none() {
            // Whatever the damaged instruction wanted to say.
            machine.state = State { cfa: Cfa::Unknown, ..State::new() };
        }
        if machine.address < end {
            row(machine.address, &machine.state);
        }
        result
    }

    /// The rule that a state means.
    pub fn rule(&self, state: &State) -> Rule {
        if self.signal_frame {
            return Rule::SIGNAL;
        }
        if state.ra == Place::Undefined {
            return Rule::STOP;
        }
        self.express(state).unwrap_or(Rule::UNSUPPORTED)
    }

    fn express(&self, state: &State) -> Option<Rule> {
        let (sp, fp) = (self.arch.sp(), self.arch.fp());
        let (cfa, cfa_register, offset) = match state.cfa {
            Cfa::Register { register, offset }
            | Cfa::Expression(CfaExpression::Plain { register, offset }) => match register {
                r if r == sp => (CfaKind::Sp, 0, offset),
                r if r == fp => (CfaKind::Fp, 0, offset),
                r if self.arch == Arch::X86_64 && r == BX => (CfaKind::Bx, 0, offset),
                // Only the general-purpose registers are known at the leaf.
                r if r < self.arch.registers() => (CfaKind::Register, r as u8, offset),
                _ => return None,
            },
            Cfa::Expression(CfaExpression::Deref { register, offset, plus }) if register == sp => {
                (CfaKind::DerefSp, plus, offset)
            }
            Cfa::Expression(CfaExpression::Deref { register, offset, plus }) if register == fp => {
                (CfaKind::DerefFp, plus, offset)
            }
            Cfa::Expression(CfaExpression::Plt { first }) => (CfaKind::Plt, 0, i64::from(first)),
            _ => return None,
        };
        if state.sp_elsewhere || self.ra_register != u64::from(self.arch.ra()) {
            return None;
        }
        let (ra, ra_offset) = match state.ra {
            Place::AtCfa(offset) => (Saved::AtCfa, i16::try_from(offset).ok()?),
            Place::Same if self.arch == Arch::Arm64 => (Saved::Same, 0),
            Place::InRegister(register) if register < self.arch.registers() => {
                (Saved::InRegister, register as i16)
            }
            _ => return None,
        };
        let saved = |place: Place| match place {
            Place::Same => (Saved::Same, 0),
            Place::AtCfa(offset) => {
                i16::try_from(offset).map_or((Saved::Undefined, 0), |offset| (Saved::AtCfa, offset))
            }
            Place::AtRegister { register, offset } if register == fp => {
                i16::try_from(offset).map_or((Saved::Undefined, 0), |offset| (Saved::AtFp, offset))
            }
            _ => (Saved::Undefined, 0),
        };
        let (fp, fp_offset) = saved(state.fp);
        let (bx, bx_offset) = if self.track_bx { saved(state.bx) } else { (Saved::Undefined, 0) };
        let cfa_offset = i32::try_from(offset).ok()?;
        Some(Rule { cfa, cfa_register, ra, fp, bx, flags: 0, ra_offset, cfa_offset, fp_offset, bx_offset })
    }
}

/// DWARF number of rbx.
const BX: u16 = 3;

struct Machine<'a> {
    common: &'a Common,
    state: State,
    address: u64,
    remembered: Vec<State>,
}

impl<'a> Machine<'a> {
    fn new(common: &'a Common, address: u64) -> Self {
        Machine { common, state: common.initial, address, remembered: Vec::new() }
    }

    fn run(&mut self, instructions: &[u8], end: u64, row: &mut dyn FnMut(u64, &State)) -> Option<()> {
        let mut at = Cursor::new(instructions);
        while !at.is_at_end() && self.address < end {
            self.step(&mut at, row)?;
        }
        Some(())
    }

    #[inline]
    fn advance(&mut self, delta: u64, row: &mut dyn FnMut(u64, &State)) -> Option<()> {
        if delta != 0 {
            let next = self.address.checked_add(delta.checked_mul(self.common.code_alignment)?)?;
            row(self.address, &self.state);
            self.address = next;
        }
        Some(())
    }

    #[inline]
    fn set(&mut self, register: u64, place: Place) {
        let arch = self.common.arch;
        if register == self.common.ra_register {
            self.state.ra = place;
        } else if register == u64::from(arch.fp()) {
            self.state.fp = place;
        } else if register == u64::from(BX) {
            self.state.bx = place;
        } else if register == u64::from(arch.sp()) {
            self.state.sp_elsewhere = !matches!(place, Place::Same | Place::Undefined);
        }
    }

    fn restore(&mut self, register: u64) {
        let (arch, initial) = (self.common.arch, &self.common.initial);
        if register == self.common.ra_register {
            self.state.ra = initial.ra;
        } else if register == u64::from(arch.fp()) {
            self.state.fp = initial.fp;
        } else if register == u64::from(BX) {
            self.state.bx = initial.bx;
        } else if register == u64::from(arch.sp()) {
            self.state.sp_elsewhere = initial.sp_elsewhere;
        }
    }

    fn factored(&self, offset: i64) -> Option<i64> {
        offset.checked_mul(self.common.data_alignment)
    }

    fn unsigned_factored(&self, offset: u64) -> Option<i64> {
        self.factored(i64::try_from(offset).ok()?)
    }

    fn expression<'b>(at: &mut Cursor<'b>) -> Option<&'b [u8]> {
        let length = at.uleb()?;
        at.take(usize::try_from(length).ok()?)
    }

    fn set_cfa_register(&mut self, register: u64) {
        let register = u16::try_from(register).unwrap_or(u16::MAX);
        self.state.cfa = match self.state.cfa {
            Cfa::Register { offset, .. } => Cfa::Register { register, offset },
            _ => Cfa::Unknown,
        };
    }

    fn set_cfa_offset(&mut self, offset: i64) {
        self.state.cfa = match self.state.cfa {
            Cfa::Register { register, .. } => Cfa::Register { register, offset },
            _ => Cfa::Unknown,
        };
    }

    fn step(&mut self, at: &mut Cursor<'_>, row: &mut dyn FnMut(u64, &State)) -> Option<()> {
        let operation = at.u8()?;
        let low = u64::from(operation & 0x3f);
        match operation >> 6 {
            1 => return self.advance(low, row),
            2 => {
                let offset = at.uleb()?;
                let offset = self.unsigned_factored(offset)?;
                self.set(low, Place::AtCfa(offset));
                return Some(());
            }
            3 => {
                self.restore(low);
                return Some(());
            }
            _ => {}
        }
        match operation {
            // nop
            0x00 => {}
            // set_loc
            0x01 => {
                let address = match self.common.address_bytes {
                    8 => at.u64()?,
                    4 => u64::from(at.u32()?),
                    _ => return None,
                };
                let delta = address.checked_sub(self.address)?;
                if delta != 0 {
                    row(self.address, &self.state);
                    self.address = address;
                }
            }
            // advance_loc1, 2, 4, MIPS_advance_loc8
            0x02 => return self.advance(u64::from(at.u8()?), row),
            0x03 => return self.advance(u64::from(at.u16()?), row),
            0x04 => return self.advance(u64::from(at.u32()?), row),
            0x1d => return self.advance(at.u64()?, row),
            // offset_extended
            0x05 => {
                let (register, offset) = (at.uleb()?, at.uleb()?);
                let offset = self.unsigned_factored(offset)?;
                self.set(register, Place::AtCfa(offset));
            }
            // restore_extended
            0x06 => {
                let register = at.uleb()?;
                self.restore(register);
            }
            // undefined
            0x07 => {
                let register = at.uleb()?;
                self.set(register, Place::Undefined);
            }
            // same_value
            0x08 => {
                let register = at.uleb()?;
                self.set(register, Place::Same);
            }
            // register
            0x09 => {
                let (register, holder) = (at.uleb()?, at.uleb()?);
                self.set(register, u16::try_from(holder).map_or(Place::Unknown, Place::InRegister));
            }
            // remember_state
            0x0a => {
                if self.remembered.len() == REMEMBERED_MAX {
                    return None;
                }
                self.remembered.push(self.state);
            }
            // restore_state
            0x0b => self.state = self.remembered.pop()?,
            // def_cfa
            0x0c => {
                let (register, offset) = (at.uleb()?, i64::try_from(at.uleb()?).ok()?);
                self.state.cfa =
                    Cfa::Register { register: u16::try_from(register).unwrap_or(u16::MAX), offset };
            }
            // def_cfa_register
            0x0d => {
                let register = at.uleb()?;
                self.set_cfa_register(register);
            }
            // def_cfa_offset
            0x0e => {
                let offset = i64::try_from(at.uleb()?).ok()?;
                self.set_cfa_offset(offset);
            }
            // def_cfa_expression
            0x0f => {
                let expression = Self::expression(at)?;
                self.state.cfa =
                    expression::cfa(expression, self.common.arch).map_or(Cfa::Unknown, Cfa::Expression);
            }
            // expression
            0x10 => {
                let register = at.uleb()?;
                let place = expression::place(Self::expression(at)?);
                let place =
                    place.map_or(Place::Unknown, |(register, offset)| Place::AtRegister { register, offset });
                self.set(register, place);
            }
            // offset_extended_sf
            0x11 => {
                let (register, offset) = (at.uleb()?, at.sleb()?);
                let offset = self.factored(offset)?;
                self.set(register, Place::AtCfa(offset));
            }
            // def_cfa_sf
            0x12 => {
                let (register, offset) = (at.uleb()?, at.sleb()?);
                let offset = self.factored(offset)?;
                self.state.cfa =
                    Cfa::Register { register: u16::try_from(register).unwrap_or(u16::MAX), offset };
            }
            // def_cfa_offset_sf
            0x13 => {
                let offset = at.sleb()?;
                let offset = self.factored(offset)?;
                self.set_cfa_offset(offset);
            }
            // val_offset
            0x14 => {
                let (register, offset) = (at.uleb()?, at.uleb()?);
                self.set_value(register, self.unsigned_factored(offset)?);
            }
            // val_offset_sf
            0x15 => {
                let (register, offset) = (at.uleb()?, at.sleb()?);
                self.set_value(register, self.factored(offset)?);
            }
            // val_expression
            0x16 => {
                let register = at.uleb()?;
                Self::expression(at)?;
                self.set(register, Place::Unknown);
            }
            // AARCH64_set_ra_state, AARCH64_negate_ra_state_with_pc, GNU_window_save = AARCH64_negate_ra_state: whether the return
            // address is signed. A walker masks the signature off in any case.
            0x2b if self.common.arch == Arch::Arm64 => {
                at.uleb()?;
                at.sleb()?;
            }
            0x2c | 0x2d if self.common.arch == Arch::Arm64 => {}
            // GNU_args_size
            0x2e => {
                at.uleb()?;
            }
            // GNU_negative_offset_extended
            0x2f => {
                let (register, offset) = (at.uleb()?, at.uleb()?);
                let offset = self.unsigned_factored(offset)?.checked_neg()?;
                self.set(register, Place::AtCfa(offset));
            }
            _ => return None,
        }
        Some(())
    }

    /// A register whose value is the CFA + `offset`: only the stack pointer, which is the CFA anyway, can be told.
    fn set_value(&mut self, register: u64, offset: i64) {
        let is_cfa = register == u64::from(self.common.arch.sp()) && offset == 0;
        self.set(register, if is_cfa { Place::Same } else { Place::Unknown });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of a function at 0..100 as (address, rule), with the common entry that GCC writes.
    fn rows(arch: Arch, instructions: &[u8]) -> Vec<(u64, Rule)> {
        let mut common = match arch {
            Arch::X86_64 => Common::new(arch, 1, -8, 16),
            Arch::Arm64 => Common::new(arch, 4, -8, 30),
        };
        common.track_bx = true;
        // def_cfa sp, 8 and the return address at CFA - 8; on arm64 def_cfa sp, 0.
        let initial: &[u8] = if arch == Arch::X86_64 { &[0x0c, 7, 8, 0x90, 1] } else { &[0x0c, 31, 0] };
        common.run_initial(initial).unwrap();
        let mut rows = vec![];
        common.run(instructions, 0, 100, &mut |address, state| rows.push((address, common.rule(state))));
        rows
    }

    fn entry() -> Rule {
        Rule { cfa: CfaKind::Sp, cfa_offset: 8, ra: Saved::AtCfa, ra_offset: -8, ..Rule::default() }
    }

    #[test]
    fn a_frame_pointer_is_set_up_and_taken_down() {
        // advance 1; def_cfa_offset 16; offset rbp, 16; advance 3; def_cfa_register rbp; advance 40; def_cfa rsp, 8
        let found = rows(Arch::X86_64, &[0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x68, 0x0c, 7, 8]);
        let pushed = Rule { cfa_offset: 16, fp: Saved::AtCfa, fp_offset: -16, ..entry() };
        let framed = Rule { cfa: CfaKind::Fp, ..pushed };
        let left = Rule { cfa: CfaKind::Sp, cfa_offset: 8, ..framed };
        assert_eq!(found, [(0, entry()), (1, pushed), (4, framed), (44, left)]);
    }

    #[test]
    fn states_are_remembered_and_registers_restored() {
        // remember; advance 2; def_cfa_offset 64; offset_extended rbx, 3; advance 2; restore_extended rbx; advance 2; restore_state
        let found = rows(Arch::X86_64, &[0x0a, 0x42, 0x0e, 64, 0x05, 3, 3, 0x42, 0x06, 3, 0x42, 0x0b]);
        let large = Rule { cfa_offset: 64, ..entry() };
        let saved = Rule { bx: Saved::AtCfa, bx_offset: -24, ..large };
        assert_eq!(found, [(0, entry()), (2, saved), (4, large), (6, entry())]);
    }

    #[test]
    fn the_outermost_frame_and_what_rules_cannot_say() {
        // undefined rip
        assert_eq!(rows(Arch::X86_64, &[0x07, 16]), [(0, Rule::STOP)]);
        // register rip, rdi; def_cfa_offset 0: vfork pops its return address
        let popped = Rule { cfa_offset: 0, ra: Saved::InRegister, ra_offset: 5, ..entry() };
        assert_eq!(rows(Arch::X86_64, &[0x09, 16, 5, 0x0e, 0]), [(0, popped)]);
        // register rip, xmm0
        assert_eq!(rows(Arch::X86_64, &[0x09, 16, 17]), [(0, Rule::UNSUPPORTED)]);
        // def_cfa xmm0, 8
        assert_eq!(rows(Arch::X86_64, &[0x0c, 17, 8]), [(0, Rule::UNSUPPORTED)]);
        // val_offset rsp, 1: the caller's stack pointer is not the CFA; val_offset rsp, 0: it is.
        assert_eq!(rows(Arch::X86_64, &[0x14, 7, 1]), [(0, Rule::UNSUPPORTED)]);
        assert_eq!(rows(Arch::X86_64, &[0x14, 7, 0]), [(0, entry())]);
        // def_cfa r10, 0: known at the leaf
        let r10 = Rule { cfa: CfaKind::Register, cfa_register: 10, cfa_offset: 0, ..entry() };
        assert_eq!(rows(Arch::X86_64, &[0x0c, 10, 0]), [(0, r10)]);
        // An offset of 40,000 words does not fit: the register is given up, the frame is not.
        let far = Rule { fp: Saved::Undefined, ..entry() };
        assert_eq!(rows(Arch::X86_64, &[0x86, 0xc0, 0xb8, 2]), [(0, far)]);
    }

    #[test]
    fn every_way_to_advance() {
        let found = rows(
            Arch::X86_64,
            &[
                0x02, 10, 0x0e, 16, 0x03, 10, 0, 0x0e, 24, 0x04, 10, 0, 0, 0, 0x13, 0x7c, 0x1d, 10, 0, 0, 0,
                0, 0, 0, 0, 0x12, 7, 0x7b,
            ],
        );
        let at = |address: u64, cfa_offset: i32| (address, Rule { cfa_offset, ..entry() });
        assert_eq!(found, [at(0, 8), at(10, 16), at(20, 24), at(30, 32), at(40, 40)]);
    }

    #[test]
    fn arm64_signs_its_return_address_and_saves_it_later() {
        // negate_ra_state; advance 1 (x 4); def_cfa_offset 32; offset x29, 4; offset x30, 3; advance 1; def_cfa_register x29
        let found = rows(Arch::Arm64, &[0x2d, 0x41, 0x0e, 32, 0x9d, 4, 0x9e, 3, 0x41, 0x0d, 29]);
        let leaf = Rule { cfa: CfaKind::Sp, ..Rule::default() };
        let saved = Rule {
            cfa_offset: 32,
            ra: Saved::AtCfa,
            ra_offset: -24,
            fp: Saved::AtCfa,
            fp_offset: -32,
            ..leaf
        };
        assert_eq!(found, [(0, leaf), (4, saved), (8, Rule { cfa: CfaKind::Fp, ..saved })]);
    }

    #[test]
    fn rows_before_a_damaged_instruction_are_kept() {
        // A number cut short, a state that was never remembered, an unknown operation, a length past the end, an advance past the
        // end of all addresses.
        let far = [0x41, 0x1d, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
        for bad in [&[0x41, 0x0e][..], &[0x41, 0x0b], &[0x41, 0x3f], &[0x41, 0x0f, 0xff, 1], &far] {
            assert_eq!(rows(Arch::X86_64, bad), [(0, entry()), (1, Rule::UNSUPPORTED)], "{bad:x?}");
        }
        // More states than are kept.
        assert_eq!(rows(Arch::X86_64, &[0x0a; 100]), [(0, Rule::UNSUPPORTED)]);
    }
}
