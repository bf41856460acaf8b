//! Hand-written functions that do not say what they do: GMP's assembly, of which glibc's `printf` and `strtod` have a part, saves registers;
//! `__start_context`, to which a function on a stack made by glibc's `makecontext` returns, has no caller. Their unwind information is that
//! of a function that leaves the stack alone. What a compiler makes never looks so.

use crate::builder::Builder;
use crate::bytes::{ReadAt, exact};
use crate::{CfaKind, Rule, Saved};

/// Code of such functions is read, so there is a bound; libgmp has 40 KiB of them.
const BYTES_MAX: u64 = 1 << 20;
/// `mov %rbx, %rsp`: who begins by giving up the stack has no caller on it.
const GIVE_UP_STACK: [u8; 3] = [0x48, 0x89, 0xdc];
const FUNCTION_BYTES_MAX: u32 = 16 << 10;
/// Callee-saved registers: System V ABI, figure 3.4.
const PUSHED_MAX: usize = 6;

/// Rows for functions whose only rule is that of a function's first instruction, but that begin with pushes. After
/// [`Builder::settle`].
pub(crate) fn mend(builder: &mut Builder, data: &dyn ReadAt) {
    let bare = |rule: &Rule| {
        rule.cfa == CfaKind::Sp && rule.cfa_offset == 8 && rule.fp == Saved::Same && rule.ra == Saved::AtCfa
    };
    let mut window = crate::bytes::Window::with_capacity(data, u64::MAX, 64 << 10);
    let mut left = BYTES_MAX;
    for (start, end) in builder.with_one_rule(bare) {
        // Three bytes of each: most functions without a frame end here.
        let Some(&head) = window.get(start.into(), 3).and_then(|bytes| bytes.first_chunk::<3>()) else {
            continue;
        };
        if head == GIVE_UP_STACK {
            builder.replace(start, end, Rule::STOP);
            continue;
        }
        let bytes = end - start;
        if push(&head).is_none() || bytes > FUNCTION_BYTES_MAX {
            continue;
        }
        let Some(rest) = left.checked_sub(bytes.into()) else { return };
        left = rest;
        let Some(code) = exact(data, start.into(), bytes.into(), BYTES_MAX) else { continue };
        if let Some(rows) = rows(&code, builder.rule_at(start)) {
            builder.refine(start, &rows);
        }
    }
}

/// The register that the first instruction pushes, if it is one that a function must save, and the instruction's length.
fn push(code: &[u8]) -> Option<(u8, usize)> {
    match *code {
        [byte @ (0x53 | 0x55), ..] => Some((byte - 0x50, 1)),
        [0x41, byte @ 0x54..=0x57, ..] => Some((byte - 0x50 + 8, 2)),
        _ => None,
    }
}

/// Number of rbp in instructions; DWARF numbers rbp 6 and rsp 7, instructions 5 and 4.
const RBP: u8 = 5;

/// Bytes into the function, and rule; `None` if it does not end by taking the same registers back.
fn rows(code: &[u8], bare: Rule) -> Option<Vec<(u32, Rule)>> {
    let mut pushed: Vec<u8> = Vec::new();
    let mut list = vec![(0, bare)];
    let mut rule = bare;
    let mut at = 0;
    while let Some((register, length)) = push(&code[at..]).filter(|_| pushed.len() < PUSHED_MAX) {
        at += length;
        pushed.push(register);
        rule.cfa_offset += 8;
        if register == RBP {
            rule.fp = Saved::AtCfa;
            rule.fp_offset = -(rule.cfa_offset as i16);
        }
        list.push((at as u32, rule));
    }
    let full = rule;
    let epilogue: Vec<u8> = pushed
        .iter()
        .rev()
        .flat_map(|&register| match register {
            0..=7 => vec![0x58 + register],
            _ => vec![0x41, 0x58 + register - 8],
        })
        .chain([0xc3])
        .collect();
    let mut ends = 0;
    while let Some(found) = code[at..].windows(epilogue.len()).position(|bytes| bytes == epilogue) {
        ends += 1;
        at += found;
        let mut rule = full;
        for &register in pushed.iter().rev() {
            at += if register < 8 { 1 } else { 2 };
            rule.cfa_offset -= 8;
            if register == RBP {
                (rule.fp, rule.fp_offset) = (bare.fp, bare.fp_offset);
            }
            list.push((at as u32, rule));
        }
        at += 1;
        if at < code.len() {
            list.push((at as u32, full));
        }
    }
    (ends > 0).then_some(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare() -> Rule {
        Rule { cfa: CfaKind::Sp, cfa_offset: 8, ra: Saved::AtCfa, ra_offset: -8, ..Rule::default() }
    }

    #[test]
    fn pushes_are_followed_and_taken_back() {
        // push rbx; push rbp; push r12; nop; pop r12; pop rbp; pop rbx; ret; nop
        let code =
            [0x53, 0x55, 0x41, 0x54, 0x90, 0x41, 0x5c, 0x5d, 0x5b, 0xc3, 0x90, 0x41, 0x5c, 0x5d, 0x5b, 0xc3];
        let rows = rows(&code, bare()).unwrap();
        let told: Vec<(u32, i32, Saved, i16)> =
            rows.iter().map(|(at, rule)| (*at, rule.cfa_offset, rule.fp, rule.fp_offset)).collect();
        let (same, saved) = (Saved::Same, Saved::AtCfa);
        assert_eq!(
            told,
            [
                (0, 8, same, 0),
                (1, 16, same, 0),
                (2, 24, saved, -24),
                (4, 32, saved, -24),
                (7, 24, saved, -24),
                (8, 16, same, 0),
                (9, 8, same, 0),
                (10, 32, saved, -24),
                (13, 24, saved, -24),
                (14, 16, same, 0),
                (15, 8, same, 0),
            ]
        );
    }

    #[test]
    fn what_does_not_take_them_back_is_left_alone() {
        assert_eq!(rows(&[0x53, 0x55, 0x90, 0x5b, 0x5d, 0xc3], bare()), None);
        assert_eq!(rows(&[0x53], bare()), None);
        assert_eq!(push(&[0x41]), None);
        assert_eq!(push(&[0x50]), None);
    }
}
