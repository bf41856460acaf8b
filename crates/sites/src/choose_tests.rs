//! Hand-assembled functions; what each piece of code is stands beside it.

use super::*;
use Instruction::{Jump, Push, SingleStepped};

const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
const PUSH_RBX: &[u8] = &[0x53];
const SUB_RSP_24: &[u8] = &[0x48, 0x83, 0xec, 0x18];
const MOV_RBX_RDI: &[u8] = &[0x48, 0x89, 0xfb];
const MOV_RDI_RSI: &[u8] = &[0x48, 0x89, 0xf7];
const XOR_EAX_EAX: &[u8] = &[0x31, 0xc0];
const ADD_EAX_1: &[u8] = &[0x83, 0xc0, 0x01];
const TEST_AL_AL: &[u8] = &[0x84, 0xc0];
const TEST_RDI_RDI: &[u8] = &[0x48, 0x85, 0xff];
const JE_2: &[u8] = &[0x74, 0x02];
const NOP5: &[u8] = &[0x0f, 0x1f, 0x44, 0x00, 0x00];
const NOP10: &[u8] = &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
const RET: &[u8] = &[0xc3];
const CALL_0: &[u8] = &[0xe8, 0, 0, 0, 0];
/// mov [rsp - 8], rdi
const STORE_RED_ZONE: &[u8] = &[0x48, 0x89, 0x7c, 0x24, 0xf8];
/// mov [rsp + 8], rdi
const STORE_ABOVE: &[u8] = &[0x48, 0x89, 0x7c, 0x24, 0x08];
/// mov [rdi], rsi
const STORE_ARGUMENT: &[u8] = &[0x48, 0x89, 0x37];
/// mov rax, [rdi]
const LOAD_ARGUMENT: &[u8] = &[0x48, 0x8b, 0x07];
/// mov rax, fs:[0x28]
const LOAD_CANARY: &[u8] = &[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0];
const PXOR_XMM0: &[u8] = &[0x66, 0x0f, 0xef, 0xc0];
const PXOR_XMM8: &[u8] = &[0x66, 0x45, 0x0f, 0xef, 0xc0];
const SYSCALL: &[u8] = &[0x0f, 0x05];
const AND_RSP: &[u8] = &[0x48, 0x83, 0xe4, 0xf0];
/// cmp rsp, [r14 + 16]
const GO_STACK_CHECK: &[u8] = &[0x49, 0x3b, 0x66, 0x10];

const ADDRESS: u64 = 0x1000;
const ENTRY: Needs = Needs { arguments: true, return_address: false };
const RETURN: Needs = Needs { arguments: false, return_address: true };

fn joined(pieces: &[&[u8]]) -> Vec<u8> {
    pieces.concat()
}

fn code(bytes: &[u8]) -> Code<'_> {
    Code { arch: Arch::X86_64, bytes, address: ADDRESS, file_offset: 0x1000, go: false, nop5: Nop5::Call }
}

/// Offset and class of the first candidate; `None` if the first byte stays.
fn moved(needs: Needs, pieces: &[&[u8]]) -> Option<(u64, Instruction)> {
    let bytes = joined(pieces);
    offer(&code(&bytes), needs).candidates.first().map(|candidate| (candidate.offset, candidate.class))
}

#[test]
fn what_may_be_passed() {
    let check = |pieces: &[&[u8]], expected| assert_eq!(moved(ENTRY, pieces), expected, "{pieces:02x?}");
    check(&[PUSH_RBX], None); // cheap as it is
    check(&[ENDBR64, PUSH_RBX], Some((4, Push)));
    check(&[ENDBR64, NOP5], Some((4, Instruction::Nop5)));
    check(&[ENDBR64, SUB_RSP_24, PUSH_RBX], Some((8, Push)));
    check(&[ENDBR64, SUB_RSP_24, CALL_0], Some((8, Jump)));
    check(&[SUB_RSP_24, MOV_RBX_RDI, TEST_RDI_RDI, JE_2], Some((10, Jump)));
    check(&[SUB_RSP_24, LOAD_CANARY, STORE_ABOVE, XOR_EAX_EAX, PUSH_RBX], Some((20, Push)));
    check(&[PXOR_XMM8, PUSH_RBX], Some((5, Push)));
    check(&[TEST_AL_AL, JE_2], Some((2, Jump)));
    check(&[XOR_EAX_EAX, ADD_EAX_1, PUSH_RBX], Some((5, Push))); // rax carried nothing
}

#[test]
fn what_may_not_be_passed() {
    let check = |pieces: &[&[u8]], end: &str| {
        let bytes = joined(pieces);
        let offer = offer(&code(&bytes), ENTRY);
        assert_eq!(offer.candidates, [], "{pieces:02x?}");
        assert!(offer.end.contains(end), "{}", offer.end);
    };
    check(&[ENDBR64, MOV_RDI_RSI, PUSH_RBX], "mov at +4 writes rdi");
    check(&[ENDBR64, PXOR_XMM0, PUSH_RBX], "writes zmm0");
    check(&[ENDBR64, ADD_EAX_1, PUSH_RBX], "a part of rax");
    check(&[ENDBR64, STORE_ARGUMENT, PUSH_RBX], "writes memory outside");
    check(&[ENDBR64, STORE_ABOVE, PUSH_RBX], "writes memory outside"); // the caller's frame
    check(&[ENDBR64, RET], "branches");
    check(&[ENDBR64, SYSCALL, PUSH_RBX], "branches");
    check(&[ENDBR64, AND_RSP, PUSH_RBX], "stack pointer");
    check(&[ENDBR64, &[0x06]], "could not be decoded");
    check(&[TEST_RDI_RDI; 9], "first 8 instructions");
}

#[test]
fn what_is_said_of_a_place() {
    let bytes = joined(&[ENDBR64, SUB_RSP_24, LOAD_ARGUMENT, PUSH_RBX]);
    let offer = offer(&code(&bytes), ENTRY);
    let expected = Candidate {
        offset: 11,
        class: Push,
        passed: "endbr64, sub, mov".into(),
        stack_lower: 24,
        after_read: true,
    };
    assert_eq!(offer.candidates, [expected]);
}

#[test]
fn the_probe_of_a_return_needs_the_return_address_and_nothing_else() {
    assert_eq!(moved(RETURN, &[ENDBR64, MOV_RDI_RSI, PUSH_RBX]), Some((7, Push)));
    assert_eq!(moved(RETURN, &[ENDBR64, SUB_RSP_24, PUSH_RBX]), None);
}

#[test]
fn who_reads_no_arguments_passes_what_changes_them() {
    let needs = Needs { arguments: false, return_address: false };
    assert_eq!(
        moved(needs, &[ENDBR64, MOV_RDI_RSI, STORE_ARGUMENT, STORE_ABOVE, PUSH_RBX]),
        Some((15, Push))
    );
    assert_eq!(moved(needs, &[ENDBR64, RET]), None);
    // mov [rsp], rdi: the return address
    assert_eq!(moved(RETURN, &[ENDBR64, &[0x48, 0x89, 0x3c, 0x24], PUSH_RBX]), None);
    assert_eq!(moved(RETURN, &[ENDBR64, STORE_ABOVE, PUSH_RBX]), Some((9, Push)));
}

#[test]
fn a_refused_first_byte_moves_even_to_what_is_single_stepped() {
    assert_eq!(moved(ENTRY, &[NOP10, TEST_RDI_RDI, RET]), Some((10, SingleStepped)));
    let bytes = joined(&[NOP10, TEST_RDI_RDI, PUSH_RBX]);
    let classes: Vec<Instruction> = offer(&code(&bytes), ENTRY).candidates.iter().map(|c| c.class).collect();
    assert_eq!(classes, [SingleStepped, Push]);
}

#[test]
fn no_nop5_where_data_lies_below_the_stack_pointer() {
    assert_eq!(moved(ENTRY, &[ENDBR64, STORE_RED_ZONE, NOP5, PUSH_RBX]), Some((14, Push)));
    let bytes = joined(&[ENDBR64, STORE_RED_ZONE, NOP5, PUSH_RBX]);
    let older = Code { nop5: Nop5::Trap, ..code(&bytes) };
    assert_eq!(offer(&older, ENTRY).candidates[0].offset, 9, "where a nop5 is emulated it does no harm");
}

#[test]
fn go_passes_arguments_elsewhere_and_checks_its_stack_first() {
    let bytes = joined(&[GO_STACK_CHECK, &[0x76, 0x02], PUSH_RBX]);
    let go = Code { go: true, ..code(&bytes) };
    let candidate = offer(&go, ENTRY).candidates.remove(0);
    assert_eq!((candidate.offset, candidate.class, candidate.after_read), (4, Jump, false));
    let bytes = joined(&[XOR_EAX_EAX, PUSH_RBX]);
    assert_eq!(offer(&Code { go: true, ..code(&bytes) }, ENTRY).candidates, []);
}

#[test]
fn arm64_stays_at_the_first_instruction() {
    let bytes = joined(&[&0xd503_245f_u32.to_le_bytes(), &0xd503_201f_u32.to_le_bytes()]);
    let offer = offer(&Code { arch: Arch::Arm64, ..code(&bytes) }, ENTRY);
    assert!(offer.first.is_ok() && offer.candidates.is_empty());
}

fn lowest(bytes: &[u8], data: &[(u64, Vec<u8>)]) -> (u64, bool) {
    let read = |address: u64, length: u64| {
        let (start, bytes) =
            data.iter().find(|(start, bytes)| (*start..start + bytes.len() as u64).contains(&address))?;
        let at = (address - start) as usize;
        Some(bytes[at..bytes.len().min(at + length as usize)].to_vec())
    };
    let targets = targets(&code(bytes), 0, &read);
    (targets.lowest, targets.unknown.is_some())
}

#[test]
fn loops_back_to_the_first_instructions() {
    // jmp to +0 is harmless, to +4 it is not.
    assert_eq!(lowest(&joined(&[ENDBR64, PUSH_RBX, &[0xeb, 0xf9]]), &[]), (u64::MAX, false));
    assert_eq!(lowest(&joined(&[ENDBR64, PUSH_RBX, &[0xeb, 0xfd]]), &[]), (4, false));
    assert_eq!(lowest(&joined(&[ENDBR64, PUSH_RBX, &[0x0f, 0x84, 0xf9, 0xff, 0xff, 0xff]]), &[]), (4, false));
    assert_eq!(lowest(&joined(&[ENDBR64, PUSH_RBX, RET]), &[]), (u64::MAX, false));
}

#[test]
fn jump_tables_are_read() {
    // lea rdx, [rip + table]; movsxd rax, [rdx + rdi * 4]; add rax, rdx; notrack jmp rax
    let table = 0x2000_u64;
    let mut bytes = joined(&[ENDBR64, PUSH_RBX]);
    let next = ADDRESS + bytes.len() as u64 + 7;
    bytes.extend([0x48, 0x8d, 0x15]);
    bytes.extend(((table - next) as u32).to_le_bytes());
    bytes.extend([0x48, 0x63, 0x04, 0xba, 0x48, 0x01, 0xd0, 0x3e, 0xff, 0xe0]);
    bytes.extend(RET);
    let entries = |offsets: &[u64]| -> Vec<u8> {
        let distances = offsets.iter().map(|offset| (ADDRESS + offset).wrapping_sub(table) as i32);
        distances.flat_map(i32::to_le_bytes).collect()
    };
    let last = bytes.len() as u64 - 1;
    assert_eq!(lowest(&bytes, &[(table, entries(&[last, 5, last]))]), (5, false));
    assert_eq!(lowest(&bytes, &[(table, entries(&[last, last]))]).0, last);
    assert_eq!(lowest(&bytes, &[]), (u64::MAX, true), "a table that cannot be read");
    // jmp [table + rax * 8]
    let mut bytes = joined(&[ENDBR64, PUSH_RBX, &[0xff, 0x24, 0xc5]]);
    bytes.extend((table as u32).to_le_bytes());
    let addresses: Vec<u8> =
        [ADDRESS + 4, 0].iter().flat_map(|address: &u64| address.to_le_bytes()).collect();
    assert_eq!(lowest(&bytes, &[(table, addresses)]), (4, false));
    // jmp [rax + 16]: a call through a table of methods, at the end
    assert_eq!(lowest(&joined(&[ENDBR64, &[0xff, 0x60, 0x10]]), &[]), (u64::MAX, false));
}

#[test]
fn returns_are_found() {
    assert_eq!(returns(&code(&joined(&[PUSH_RBX, RET, NOP5, &[0xc2, 0x08, 0x00]]))), [1, 7]);
    assert_eq!(returns(&code(&joined(&[PUSH_RBX, &[0xeb, 0xfe]]))), Vec::<u64>::new());
}

#[test]
fn leaf_functions_keep_data_below_the_stack_pointer() {
    let red_zone = |pieces: &[&[u8]]| uses_red_zone(&code(&joined(pieces)));
    assert!(red_zone(&[STORE_RED_ZONE, NOP5, RET]));
    assert!(!red_zone(&[STORE_RED_ZONE, NOP5, CALL_0, RET]), "who calls keeps nothing there");
    assert!(!red_zone(&[STORE_ABOVE, NOP5, RET]));
    // push rbp; mov rbp, rsp; mov [rbp - 8], rdi
    let framed: &[u8] = &[0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0x7d, 0xf8];
    assert!(red_zone(&[framed, NOP5, RET]));
    assert!(!red_zone(&[&framed[..4], SUB_RSP_24, &framed[4..], NOP5, RET]));
}

#[test]
fn a_nop5_behind_endbr64_is_still_the_entry() {
    let bytes = joined(&[ENDBR64, NOP5, STORE_RED_ZONE, NOP5]);
    assert!(still_at_entry(&code(&bytes), 4));
    assert!(!still_at_entry(&code(&bytes), 14));
}
