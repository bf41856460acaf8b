//! The few DWARF expressions that compilers and linkers really write into unwind information, recognised as what they mean.

use crate::Arch;
use crate::bytes::Cursor;

/// What an expression for the CFA says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CfaExpression {
    /// GNU ld's for lazy PLT entries: `sp + 8 + ((ip & 15) >= first ? 8 : 0)`.
    Plt { first: i32 },
    /// The word at register + offset, plus a small number: GCC's functions that align their stack, and OpenSSL's assembly
    /// (`.cfi_cfa_expression %rsp+152,deref,+8`).
    Deref { register: u16, offset: i64, plus: u8 },
    /// Register + offset, written as an expression.
    Plain { register: u16, offset: i64 },
}

const DEREF: u8 = 0x06;
const AND: u8 = 0x1a;
const PLUS: u8 = 0x22;
const PLUS_UCONST: u8 = 0x23;
const SHL: u8 = 0x24;
const GE: u8 = 0x2a;
const LIT0: u8 = 0x30;
const BREG0: u8 = 0x70;
const BREG31: u8 = 0x8f;

/// Recognises an expression for the CFA.
pub(crate) fn cfa(expression: &[u8], arch: Arch) -> Option<CfaExpression> {
    if arch == Arch::X86_64
        && let Some(first) = plt(expression)
    {
        return Some(CfaExpression::Plt { first });
    }
    let mut at = Cursor::new(expression);
    let (register, offset) = register_and_offset(&mut at)?;
    if at.is_at_end() {
        return Some(CfaExpression::Plain { register, offset });
    }
    if at.u8()? != DEREF {
        return None;
    }
    let plus = if at.is_at_end() {
        0
    } else {
        (at.u8()? == PLUS_UCONST).then_some(())?;
        u8::try_from(at.uleb()?).ok()?
    };
    at.is_at_end().then_some(CfaExpression::Deref { register, offset, plus })
}

/// Recognises an expression for the place where a register is saved: register + offset.
pub(crate) fn place(expression: &[u8]) -> Option<(u16, i64)> {
    let mut at = Cursor::new(expression);
    let place = register_and_offset(&mut at)?;
    at.is_at_end().then_some(place)
}

fn register_and_offset(at: &mut Cursor<'_>) -> Option<(u16, i64)> {
    let operation = at.u8()?;
    if !(BREG0..=BREG31).contains(&operation) {
        return None;
    }
    let mut offset = at.sleb()?;
    let mut ahead = *at;
    if ahead.u8() == Some(PLUS_UCONST) {
        offset = offset.checked_add_unsigned(ahead.uleb()?)?;
        *at = ahead;
    }
    Some((u16::from(operation - BREG0), offset))
}

/// `elf_x86_64_eh_frame_plt` in binutils, bfd/elf64-x86-64.c: breg7 8, breg16 0, lit15, and, lit11, ge, lit3, shl, plus. The constant
/// (11 after a push of 5 bytes behind a jump of 6; 9 with endbr64 first) is the linker's.
fn plt(expression: &[u8]) -> Option<i32> {
    let &[breg7, 8, breg16, 0, lit15, AND, first, GE, lit3, SHL, PLUS] = expression else { return None };
    let shape = breg7 == BREG0 + 7 && breg16 == BREG0 + 16 && lit15 == LIT0 + 15 && lit3 == LIT0 + 3;
    (shape && (LIT0..=LIT0 + 15).contains(&first)).then(|| i32::from(first - LIT0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compilers_and_linkers_write() {
        let ld = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
        assert_eq!(cfa(&ld, Arch::X86_64), Some(CfaExpression::Plt { first: 11 }));
        assert_eq!(cfa(&ld, Arch::Arm64), None);
        let drap = [0x76, 0x78, 0x06];
        assert_eq!(cfa(&drap, Arch::X86_64), Some(CfaExpression::Deref { register: 6, offset: -8, plus: 0 }));
        let openssl = [0x77, 0x98, 0x01, 0x06, 0x23, 0x08];
        assert_eq!(
            cfa(&openssl, Arch::X86_64),
            Some(CfaExpression::Deref { register: 7, offset: 152, plus: 8 })
        );
        assert_eq!(place(&[0x76, 0x68]), Some((6, -24)));
        assert_eq!(place(&[0x76, 0x68, 0x06]), None);
        assert_eq!(
            cfa(&[0x77, 0x08, 0x23, 0x10], Arch::X86_64),
            Some(CfaExpression::Plain { register: 7, offset: 24 })
        );
        for length in 0..ld.len() {
            assert_eq!(plt(&ld[..length]), None);
        }
    }
}
