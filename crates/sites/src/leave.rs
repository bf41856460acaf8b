//! Where a call ends: the cheapest instructions that each call passes once, with its value already in its register.
//!
//! A return instruction is single-stepped. Shortly before it there is often a jump that is emulated: the check of the stack protector, which
//! jumps only to a call that never returns. Between it and the return instruction nothing may come in from elsewhere and nothing may write
//! the register of the value.

use crate::capabilities::Nop5;
use crate::elf::Elf;
use crate::instruction;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction as X86, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};
use lightfoot_model::Instruction;
use lightfoot_unwind::Arch;
use std::collections::BTreeSet;
use std::path::Path;

/// Instructions before a return instruction that are looked at.
const HANDFUL: usize = 16;

/// As [`ends`], of a function in a file, by its symbol. Offsets are those in the file.
///
/// # Errors
/// As [`ends`]; or what is wrong with the file.
pub fn ends_in(file: &Path, symbol: &str, nop5: Nop5) -> Result<Vec<End>, String> {
    let data = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let data = data.as_slice();
    let elf = Elf::parse(&data, None)?;
    if elf.arch() != Arch::X86_64 {
        return Err("this is known of x86-64 only".into());
    }
    let function = elf.functions().iter().find(|function| elf.name(function) == symbol && !function.chooser);
    let function = function.ok_or_else(|| format!("{} has no function {symbol}", file.display()))?;
    let code = elf.bytes(&data, function).zip(elf.offset_of(function.address));
    let (code, offset) = code.ok_or_else(|| format!("the code of {symbol} is not in {}", file.display()))?;
    let ends = ends(&code, offset, nop5)?;
    Ok(ends.into_iter().map(|end| End { offset: offset + end.offset, ..end }).collect())
}

/// An instruction that calls end at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// Bytes from the start of the function ([`ends_in`]: of the file).
    pub offset: u64,
    /// What the kernel does with it.
    pub class: Instruction,
}

/// Where calls of an x86-64 function that returns an integer or a pointer end. `code` is all of it, `file_offset` where it begins in its
/// file. Not for Go.
///
/// # Errors
/// Why it is not known, in a few words: then only the kernel can see calls end, by their return address.
pub fn ends(code: &[u8], file_offset: u64, nop5: Nop5) -> Result<Vec<End>, String> {
    let function = Function::decode(code)?;
    let mut ends = Vec::new();
    for (at, instruction) in function.instructions.iter().enumerate() {
        if instruction.flow_control() == FlowControl::Return {
            ends.push(function.before(at, code, file_offset, nop5)?);
        }
    }
    if ends.is_empty() { Err("it has no return instruction".into()) } else { Ok(ends) }
}

struct Function {
    instructions: Vec<X86>,
    /// Offsets that something of the function jumps to.
    targets: BTreeSet<u64>,
}

impl Function {
    fn decode(code: &[u8]) -> Result<Function, String> {
        let instructions: Vec<X86> =
            Decoder::with_ip(64, code, 0, DecoderOptions::NONE).into_iter().collect();
        let mut targets = BTreeSet::new();
        for instruction in &instructions {
            if instruction.is_invalid() {
                return Err(format!("what stands at +{} could not be decoded", instruction.ip()));
            }
            match instruction.flow_control() {
                FlowControl::IndirectBranch => {
                    return Err(format!("it is not known where the jump at +{} leads", instruction.ip()));
                }
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    let target = instruction.near_branch_target();
                    let inside =
                        matches!(instruction.op0_kind(), OpKind::NearBranch64) && target < code.len() as u64;
                    if !inside {
                        return Err(format!("the jump at +{} leaves it, too", instruction.ip()));
                    }
                    targets.insert(target);
                }
                _ => {}
            }
        }
        // Jumps into the middle of what was decoded: then it was decoded wrongly.
        match targets.iter().find(|&&target| instructions.binary_search_by_key(&target, X86::ip).is_err()) {
            Some(target) => Err(format!("something jumps into the instruction at +{target}")),
            None => Ok(Function { instructions, targets }),
        }
    }

    /// The cheapest instruction at the end of the straight line that leads to the return instruction with this index.
    fn before(&self, at: usize, code: &[u8], file_offset: u64, nop5: Nop5) -> Result<End, String> {
        let end = |instruction: &X86| -> Result<End, String> {
            let offset = instruction.ip();
            let decoded =
                instruction::classify(Arch::X86_64, &code[offset as usize..], file_offset + offset, nop5);
            decoded.map(|decoded| End { offset, class: decoded.class }).map_err(|refusal| refusal.to_string())
        };
        let mut factory = InstructionInfoFactory::new();
        for index in (at.saturating_sub(HANDFUL)..at).rev() {
            if self.targets.contains(&self.instructions[index + 1].ip()) {
                break;
            }
            let instruction = &self.instructions[index];
            let straight = match instruction.flow_control() {
                FlowControl::Next => true,
                FlowControl::ConditionalBranch => self.never_returns(instruction.near_branch_target()),
                _ => false,
            };
            if !straight {
                break;
            }
            // A call that Linux 6.18 puts in place of a five-byte nop writes below the stack pointer, where a value may lie.
            if let Ok(end) = end(instruction)
                && !matches!(end.class, Instruction::SingleStepped | Instruction::Nop5)
            {
                return Ok(end);
            }
            let written = |access| {
                !matches!(
                    access,
                    OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess
                )
            };
            let used = factory.info(instruction).used_registers();
            if used
                .iter()
                .any(|used| used.register().full_register() == Register::RAX && written(used.access()))
            {
                break;
            }
        }
        end(&self.instructions[at])
    }

    /// Whether what stands at this offset leads straight to a call with nothing of the function behind it: such a call cannot return.
    fn never_returns(&self, offset: u64) -> bool {
        let Ok(first) = self.instructions.binary_search_by_key(&offset, X86::ip) else { return false };
        let mut rest = self.instructions[first..]
            .iter()
            .skip_while(|instruction| instruction.flow_control() == FlowControl::Next);
        let calls = rest.next().is_some_and(|instruction| instruction.flow_control() == FlowControl::Call);
        calls && rest.all(|instruction| matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `SSL_write` of Debian 12, OpenSSL 3.0.19, without what sets the error.
    const PROTECTED: &[u8] = &[
        0x48, 0x83, 0xec, 0x18, //                         00 sub    $0x18,%rsp
        0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0, //    04 mov    %fs:0x28,%rax
        0x48, 0x89, 0x44, 0x24, 0x08, //                   0d mov    %rax,0x8(%rsp)
        0x31, 0xc0, //                                     12 xor    %eax,%eax
        0x85, 0xd2, //                                     14 test   %edx,%edx
        0x78, 0x2f, //                                     16 js     47
        0x48, 0x89, 0xe1, //                               18 mov    %rsp,%rcx
        0x48, 0x63, 0xd2, //                               1b movslq %edx,%rdx
        0xe8, 0xfd, 0xfb, 0xff, 0xff, //                   1e call   ...
        0x85, 0xc0, //                                     23 test   %eax,%eax
        0x7e, 0x03, //                                     25 jle    2a
        0x8b, 0x04, 0x24, //                               27 mov    (%rsp),%eax
        0x48, 0x8b, 0x54, 0x24, 0x08, //                   2a mov    0x8(%rsp),%rdx
        0x64, 0x48, 0x2b, 0x14, 0x25, 0x28, 0, 0, 0, //    2f sub    %fs:0x28,%rdx
        0x75, 0x14, //                                     38 jne    4e
        0x48, 0x83, 0xc4, 0x18, //                         3a add    $0x18,%rsp
        0x31, 0xd2, //                                     3e xor    %edx,%edx
        0x31, 0xc9, //                                     40 xor    %ecx,%ecx
        0x31, 0xf6, //                                     42 xor    %esi,%esi
        0x31, 0xff, //                                     44 xor    %edi,%edi
        0xc3, //                                           46 ret
        0xb8, 0xff, 0xff, 0xff, 0xff, //                   47 mov    $-1,%eax
        0xeb, 0xdc, //                                     4c jmp    2a
        0xe8, 0, 0, 0, 0, //                               4e call   __stack_chk_fail
    ];

    #[track_caller]
    fn check(code: &[u8], expected: &[(u64, Instruction)]) {
        let ends = ends(code, 0, Nop5::Call).unwrap();
        assert_eq!(ends.iter().map(|end| (end.offset, end.class)).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_stack_protectors_check_stands_for_the_return() {
        check(PROTECTED, &[(0x38, Instruction::Jump)]);
    }

    #[test]
    fn a_jump_that_comes_back_is_none() {
        // The same with a return instruction behind the call: it may come back.
        let mut code = PROTECTED.to_vec();
        code.push(0xc3);
        check(&code, &[(0x46, Instruction::SingleStepped), (0x53, Instruction::SingleStepped)]);
    }

    #[test]
    fn nothing_comes_in_between() {
        // The error path joins behind the check: its calls would be missed.
        let mut code = PROTECTED.to_vec();
        code[0x4d] = (0x3ai8 - 0x4e) as u8;
        check(&code, &[(0x46, Instruction::SingleStepped)]);
    }

    #[test]
    fn the_value_is_there_already() {
        // call; jne to the end; mov $1,%eax; ret; call that never returns
        let code = [0xe8, 0, 0, 0, 0, 0x75, 0x06, 0xb8, 1, 0, 0, 0, 0xc3, 0xe8, 0, 0, 0, 0];
        check(&code, &[(12, Instruction::SingleStepped)]);
        // The same with the value of the call.
        let code = [0xe8, 0, 0, 0, 0, 0x75, 0x03, 0x31, 0xd2, 0xc3, 0xe8, 0, 0, 0, 0];
        check(&code, &[(5, Instruction::Jump)]);
    }

    #[test]
    fn several_ways_out() {
        // test; je; ret; nop; xor; ret
        let code = [0x85, 0xff, 0x74, 0x01, 0xc3, 0x90, 0x31, 0xd2, 0xc3];
        check(&code, &[(4, Instruction::SingleStepped), (5, Instruction::Nop)]);
    }

    #[test]
    fn what_cannot_be_known() {
        for (code, why) in [
            (&[0xff, 0xe0][..], "not known where"),
            (&[0xe9, 0, 1, 0, 0], "leaves it"),
            (&[0x74, 0x7f, 0xc3], "leaves it"),
            (&[0x0f, 0x0b], "no return"),
            (&[0x06], "decoded"),
            (&[0x74, 0x01, 0xb8, 1, 0, 0, 0, 0xc3], "into the instruction"),
        ] {
            let said = ends(code, 0, Nop5::Call).unwrap_err();
            assert!(said.contains(why), "{code:02x?}: {said}");
        }
    }
}
