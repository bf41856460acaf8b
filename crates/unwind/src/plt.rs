//! Code that linkers put together and some leave without unwind information: jumps into other objects (LLVM's linker), and the functions
//! `_init` and `_fini` of shared objects.

use crate::builder::Builder;
use crate::bytes::{ReadAt, array, exact};
use crate::elf::{Elf, Section};
use crate::{Arch, CfaKind, Rule, Saved};

/// Rules for sections of which nothing is known yet.
pub(crate) fn functions(builder: &mut Builder, elf: &Elf, data: &dyn ReadAt) {
    for section in elf.sections.iter().filter(|section| !section.absent) {
        let lazy = match section.name.as_str() {
            ".init" | ".fini" if elf.arch == Arch::X86_64 => {
                start_and_end(builder, elf, data, section);
                continue;
            }
            ".plt" => true,
            ".plt.got" | ".plt.sec" | ".iplt" => false,
            _ => continue,
        };
        let Some(segment) = elf.code_segment(section.address) else { continue };
        let start = section.address.wrapping_sub(segment.bias());
        let Some(end) = start.checked_add(section.size) else { continue };
        builder.function(start, end, |rows| match elf.arch {
            Arch::X86_64 if lazy => {
                // The first entry pushes 8 bytes (6 bytes of code) above the 8 that each other entry has pushed.
                rows.push(0, at_sp(16));
                rows.push(6, at_sp(24));
                // An entry with endbr64 first pushes after 9 bytes, one with a jump of 6 bytes first after 11.
                let marked = array::<4>(data, start + 16) == Some([0xf3, 0x0f, 0x1e, 0xfa]);
                let plt = Rule { cfa: CfaKind::Plt, ..at_sp(if marked { 9 } else { 11 }) };
                rows.push(16, plt);
            }
            Arch::X86_64 => rows.push(0, at_sp(8)),
            Arch::Arm64 if lazy => {
                // The first entry begins with `stp x16, x30, [sp, #-16]!`, after `bti c` if there is one; 32 bytes.
                let marked = array::<4>(data, start) == Some([0x5f, 0x24, 0x03, 0xd5]);
                rows.push(0, in_link_register());
                rows.push(
                    if marked { 8 } else { 4 },
                    Rule { cfa_offset: 16, ra: Saved::AtCfa, ra_offset: -8, ..in_link_register() },
                );
                rows.push(32, in_link_register());
            }
            Arch::Arm64 => rows.push(0, in_link_register()),
        });
    }
}

/// `_init` and `_fini`: glibc's crti.o begins them with `sub $8, %rsp`, crtn.o ends them with `add $8, %rsp; ret`.
fn start_and_end(builder: &mut Builder, elf: &Elf, data: &dyn ReadAt, section: &Section) {
    const BYTES_MAX: u64 = 4096;
    const ENTER: [u8; 4] = [0x48, 0x83, 0xec, 0x08];
    const LEAVE: [u8; 5] = [0x48, 0x83, 0xc4, 0x08, 0xc3];
    let Some(segment) = elf.code_segment(section.address) else { return };
    let start = section.address.wrapping_sub(segment.bias());
    let Some(code) = exact(data, start, section.size, BYTES_MAX) else { return };
    let entered = code.windows(ENTER.len()).take(8).position(|bytes| bytes == ENTER);
    let left = code.windows(LEAVE.len()).rposition(|bytes| bytes == LEAVE);
    if let (Some(entered), Some(left)) = (entered, left) {
        builder.function(start, start + section.size, |rows| {
            rows.push(0, at_sp(8));
            rows.push((entered + ENTER.len()) as u64, at_sp(16));
            rows.push((left + LEAVE.len() - 1) as u64, at_sp(8));
        });
    }
}

fn at_sp(cfa_offset: i32) -> Rule {
    Rule {
        cfa: CfaKind::Sp,
        cfa_offset,
        ra: Saved::AtCfa,
        ra_offset: -8,
        bx: Saved::Undefined,
        ..Rule::default()
    }
}

fn in_link_register() -> Rule {
    Rule { cfa: CfaKind::Sp, bx: Saved::Undefined, ..Rule::default() }
}
