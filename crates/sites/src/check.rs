//! What must hold for any bytes; called by the fuzz targets and, over their corpus, by plain tests.

use crate::btf::Btf;
use crate::capabilities::Nop5;
use crate::choose::{self, Code, Needs};
use crate::elf::Elf;
use crate::{instruction, usdt};
use lightfoot_model::Instruction;
use lightfoot_unwind::Arch;

/// Functions of one file that are looked at.
const FUNCTIONS: usize = 32;

/// Any bytes as an ELF file: its functions, their instructions, its USDT notes.
///
/// # Panics
/// If a function lies outside of the file, a place outside of its function, or a name could be obeyed by a terminal: that is a bug.
pub fn elf(bytes: &[u8]) {
    notes(bytes);
    let Ok(elf) = Elf::parse(&bytes, Some(&bytes)) else { return };
    assert!(elf.functions().is_sorted_by_key(|function| function.address));
    for note in usdt::notes(&elf, &bytes) {
        assert!(!note.name.is_empty() && !note.name.chars().any(char::is_control));
    }
    for function in elf.functions().iter().take(FUNCTIONS) {
        let name = elf.name(function);
        assert!(!name.is_empty() && !name.chars().any(char::is_control));
        assert!(elf.end(function) >= function.address);
        let offset = elf.offset_of(function.address).unwrap_or_else(|| panic!("{name} is not in the file"));
        assert!(offset < bytes.len() as u64);
        assert!(!elf.names_at(function.address).is_empty());
        if let Some(code) = elf.bytes(&bytes, function) {
            let data = |address: u64, length: u64| {
                let at = usize::try_from(elf.data_offset_of(address)?).ok()?;
                Some(bytes.get(at..)?.iter().copied().take(length as usize).collect())
            };
            for (go, nop5) in [(elf.go, Nop5::Call), (false, Nop5::Trap)] {
                let code = Code {
                    arch: elf.arch(),
                    bytes: &code,
                    address: function.address,
                    file_offset: offset,
                    go,
                    nop5,
                };
                function_code(&code, &data);
            }
        }
    }
}

fn function_code(code: &Code<'_>, data: &dyn Fn(u64, u64) -> Option<Vec<u8>>) {
    for arguments in [false, true] {
        let offer = choose::offer(code, Needs { arguments, return_address: !arguments });
        assert!(offer.candidates.is_sorted_by_key(|candidate| candidate.offset));
        for candidate in &offer.candidates {
            assert!(candidate.offset > 0 && candidate.offset < code.bytes.len() as u64);
            assert!(instruction::is_start(code.arch, code.bytes, candidate.offset));
            let rest = &code.bytes[candidate.offset as usize..];
            let here = instruction::classify(code.arch, rest, code.file_offset + candidate.offset, code.nop5);
            assert_eq!(here.map(|here| here.class), Ok(candidate.class));
            assert!(candidate.class != Instruction::SingleStepped || offer.first.is_err());
            assert!(arguments || candidate.stack_lower == 0, "the return address is not where it was");
        }
    }
    let targets = choose::targets(code, 0, data);
    assert!(targets.lowest == u64::MAX || targets.lowest < code.bytes.len() as u64);
    assert!(choose::returns(code).iter().all(|&offset| offset < code.bytes.len() as u64));
    choose::uses_red_zone(code);
    choose::still_at_entry(code, code.bytes.len() as u64 / 2);
}

/// Any bytes as the content of `.note.stapsdt`.
fn notes(bytes: &[u8]) {
    for arch in [Arch::X86_64, Arch::Arm64] {
        for note in usdt::parse(bytes, 0, arch) {
            for argument in note.arguments.iter().flatten() {
                assert!(matches!(argument.size, 1 | 2 | 4 | 8));
                if let usdt::Operand::Memory { scale, .. } = argument.operand {
                    assert!(matches!(scale, 1 | 2 | 4 | 8));
                }
            }
        }
    }
}

/// Any bytes as the kernel's types.
///
/// # Panics
/// If a type's description is endless: that is a bug.
pub fn btf(bytes: &[u8]) {
    let Some(btf) = Btf::parse(bytes.to_vec()) else { return };
    let ids: Vec<u32> = btf.functions().chain(btf.tracepoints()).map(|(id, _)| id).take(64).collect();
    for prototype in ids.into_iter().filter_map(|id| btf.prototype(id)) {
        assert!(prototype.arguments.len() <= 64);
        assert!(prototype.arguments.iter().all(|(kind, _)| kind.len() <= 1 << 16));
    }
}
