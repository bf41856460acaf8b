//! Walks over made-up stacks: each rule and each way a stack may end.

use lightfoot_unwind::{
    Arch, CfaKind, Frozen, FrozenMapping, Outcome, Registers, Row, Rule, Saved, State, Stats, Table, Walked,
    replay,
};

const STACK: u64 = 0x7f00_0000_0000;
const CODE: u64 = 0x55_0000_0000;
const JIT: u64 = 0x66_0000_0000;

/// One rule for each 16 bytes of code, from CODE on; CODE + 0x1000 on belongs to a file without rows, JIT to none.
fn frozen(arch: Arch, rules: &[Rule], stack: &[u64]) -> Frozen {
    let mut table = Table {
        arch,
        rules: vec![Rule::NONE],
        rows: vec![],
        text: vec![],
        build_id: vec![],
        stats: Stats::default(),
    };
    for (index, rule) in rules.iter().enumerate() {
        table.rules.push(*rule);
        table.rows.push(Row { offset: 16 * index as u32, rule: index as u16 + 1 });
    }
    table.rows.push(Row { offset: 16 * rules.len() as u32, rule: 0 });
    let mapping = |start: u64, state, is_file| FrozenMapping {
        start,
        end: start + 0x1000,
        file_offset: 0,
        is_file,
        state,
        table: 0,
        path: String::new(),
    };
    let mut registers = Registers { ip: CODE + 4, general: [0; 32] };
    registers.general[usize::from(arch.sp())] = STACK;
    Frozen {
        arch,
        registers,
        frames_max: 100,
        memory: vec![(STACK, stack.iter().flat_map(|word| word.to_le_bytes()).collect())],
        mappings: vec![
            mapping(CODE, State::Ready, true),
            mapping(CODE + 0x1000, State::Nothing, true),
            mapping(CODE + 0x2000, State::NotYet, true),
            mapping(JIT, State::Nothing, false),
        ],
        tables: vec![table],
        found: Walked { frames: vec![], outcome: Outcome::Complete },
    }
}

/// Code with rule `index`, as a return address.
fn code(index: u64) -> u64 {
    CODE + 16 * index + 5
}

fn sp(cfa_offset: i32) -> Rule {
    Rule {
        cfa: CfaKind::Sp,
        cfa_offset,
        ra: Saved::AtCfa,
        ra_offset: -8,
        bx: Saved::Undefined,
        ..Rule::default()
    }
}

fn check(frozen: &Frozen, frames: &[u64], outcome: Outcome) {
    let walked = replay(frozen);
    let found: Vec<u64> = walked.frames.iter().map(|frame| frame.address).collect();
    assert_eq!((found.as_slice(), walked.outcome), (frames, outcome), "{found:x?}");
}

#[test]
fn by_the_stack_pointer_to_the_outermost_frame() {
    let stack = frozen(Arch::X86_64, &[sp(8), sp(24), Rule::STOP], &[code(1), 0, 0, code(2)]);
    check(&stack, &[CODE + 4, code(1), code(2)], Outcome::Complete);
    // A return address of 0 ends a stack, too.
    let stack = frozen(Arch::X86_64, &[sp(8), sp(24)], &[code(1), 0, 0, 0]);
    check(&stack, &[CODE + 4, code(1)], Outcome::Complete);
}

#[test]
fn frame_pointers_and_rows_take_turns() {
    // Leaf by rows, which save fp; JIT code; a file without rows; rows again, by fp.
    let leaf = Rule { fp: Saved::AtCfa, fp_offset: -16, ..sp(16) };
    let by_fp = Rule { cfa: CfaKind::Fp, cfa_offset: 16, fp: Saved::AtCfa, fp_offset: -16, ..sp(0) };
    let at = |word: u64| STACK + 8 * word;
    let words = [
        at(3),
        JIT + 9,
        77, // leaf's caller
        at(6),
        CODE + 0x1009,
        77, // JIT code's caller
        at(9),
        code(1),
        77, // the file's caller
        0,
        code(2),
    ];
    let stack = frozen(Arch::X86_64, &[leaf, by_fp, Rule::STOP], &words);
    check(&stack, &[CODE + 4, JIT + 9, CODE + 0x1009, code(1), code(2)], Outcome::Complete);
    // The frame pointer was never one: it leads to what is no code.
    let mut stack = frozen(Arch::X86_64, &[leaf], &[at(2), CODE + 0x1009, 1, 2]);
    check(&stack, &[CODE + 4, CODE + 0x1009], Outcome::NoRows);
    // JIT code is expected to keep them.
    stack = frozen(Arch::X86_64, &[leaf], &[at(2), JIT + 9, 1, 2]);
    check(&stack, &[CODE + 4, JIT + 9], Outcome::NotMapped);
    stack = frozen(Arch::X86_64, &[leaf], &[at(0), JIT + 9]);
    check(&stack, &[CODE + 4, JIT + 9], Outcome::FramePointerBroken);
    // A frame pointer of 0 is where such a stack begins.
    stack = frozen(Arch::X86_64, &[leaf], &[0, JIT + 9]);
    check(&stack, &[CODE + 4, JIT + 9], Outcome::Complete);
}

#[test]
fn each_way_to_end_early() {
    let ends = |rules: &[Rule], words: &[u64], frames: usize, outcome: Outcome| {
        let walked = replay(&frozen(Arch::X86_64, rules, words));
        assert_eq!((walked.frames.len(), walked.outcome), (frames, outcome), "{rules:?}");
    };
    ends(&[sp(8)], &[], 1, Outcome::Unreadable);
    ends(&[sp(8)], &[0x1234], 1, Outcome::NotMapped);
    ends(&[sp(8)], &[CODE + 0x2005], 2, Outcome::NoRowsYet);
    ends(&[Rule::UNSUPPORTED], &[], 1, Outcome::UnsupportedRule);
    ends(&[sp(0)], &[], 1, Outcome::NotGrowing);
    ends(&[sp(-8)], &[], 1, Outcome::NotGrowing);
    ends(&[Rule { cfa: CfaKind::Fp, ..sp(16) }], &[], 1, Outcome::NotGrowing);
    // A register that only the leaf has, and one that its callee gave up.
    let by_r10 = Rule { cfa: CfaKind::Register, cfa_register: 10, ..sp(8) };
    ends(&[sp(8), by_r10], &[code(1)], 2, Outcome::RegisterUnknown);
    let gives_up = Rule { fp: Saved::Undefined, ..sp(8) };
    let by_fp = Rule { cfa: CfaKind::Fp, ..sp(16) };
    ends(&[gives_up, by_fp], &[code(1)], 2, Outcome::RegisterUnknown);
    let by_bx = Rule { cfa: CfaKind::Bx, ..sp(16) };
    ends(&[sp(8), by_bx], &[code(1)], 2, Outcome::RegisterUnknown);
    // Too deep.
    let words = vec![code(0); 200];
    ends(&[sp(8)], &words, 100, Outcome::Truncated);
    // The leaf has jumped into nowhere.
    let mut lost = frozen(Arch::X86_64, &[], &[]);
    lost.registers.ip = 16;
    check(&lost, &[16], Outcome::NotMapped);
}

#[test]
fn registers_and_memory_that_lead_to_the_frame() {
    let at = |word: u64| STACK + 8 * word;
    let by_r10 = Rule { cfa: CfaKind::Register, cfa_register: 10, ..sp(16) };
    let mut stack = frozen(Arch::X86_64, &[by_r10, Rule::STOP], &[0, 0, 0, code(1)]);
    stack.registers.general[10] = at(2);
    check(&stack, &[CODE + 4, code(1)], Outcome::Complete);
    // rbx, which the leaf saved.
    let saves = Rule { bx: Saved::AtCfa, bx_offset: -16, ..sp(16) };
    let by_bx = Rule { cfa: CfaKind::Bx, ..sp(8) };
    let stack = frozen(Arch::X86_64, &[saves, by_bx, Rule::STOP], &[at(4), code(1), 0, 0, code(2)]);
    check(&stack, &[CODE + 4, code(1), code(2)], Outcome::Complete);
    // The word at sp + 8, plus 8.
    let deref = Rule { cfa: CfaKind::DerefSp, cfa_register: 8, ..sp(8) };
    let stack = frozen(Arch::X86_64, &[deref, Rule::STOP], &[0, at(3), 0, code(1)]);
    check(&stack, &[CODE + 4, code(1)], Outcome::Complete);
    // GCC's aligned stack: the CFA is the word below fp, the caller's fp the word at fp, and that one is used, too.
    let aligned = Rule { cfa: CfaKind::DerefFp, fp: Saved::AtFp, ..sp(-8) };
    let by_fp = Rule { cfa: CfaKind::Fp, ..sp(16) };
    let mut stack =
        frozen(Arch::X86_64, &[aligned, by_fp, Rule::STOP], &[0, at(5), at(7), 0, code(1), 0, 0, 0, code(2)]);
    stack.registers.general[6] = at(2);
    check(&stack, &[CODE + 4, code(1), code(2)], Outcome::Complete);
}

#[test]
fn who_makes_a_thread_has_a_caller_and_the_thread_has_none() {
    let clone = Rule { cfa: CfaKind::Clone, ..sp(8) };
    let mut stack = frozen(Arch::X86_64, &[clone, Rule::STOP], &[code(1)]);
    stack.registers.general[0] = -38i64 as u64;
    check(&stack, &[CODE + 4, code(1)], Outcome::Complete);
    stack.registers.general[0] = 0;
    check(&stack, &[CODE + 4], Outcome::Complete);
    // The child's first function returns to here.
    let stack = frozen(Arch::X86_64, &[sp(8), clone, Rule::STOP], &[code(1), code(2)]);
    check(&stack, &[CODE + 4, code(1)], Outcome::Complete);
    let mut stack = frozen(Arch::Arm64, &[Rule { ra: Saved::Same, ra_offset: 0, ..clone }, Rule::STOP], &[]);
    stack.registers.general[30] = code(1);
    check(&stack, &[CODE + 4], Outcome::Complete);
    stack.registers.general[0] = 17;
    check(&stack, &[CODE + 4, code(1)], Outcome::Complete);
}

#[test]
fn a_return_address_in_a_register_counts_at_the_leaf_alone() {
    // vfork has popped it into rdi (5): the caller's stack pointer is its own.
    let popped = Rule { ra: Saved::InRegister, ra_offset: 5, ..sp(0) };
    let mut stack = frozen(Arch::X86_64, &[popped, sp(16), Rule::STOP], &[0, code(2)]);
    stack.registers.general[5] = code(1);
    check(&stack, &[CODE + 4, code(1), code(2)], Outcome::Complete);
    let stack = frozen(Arch::X86_64, &[sp(8), popped], &[code(1)]);
    check(&stack, &[CODE + 4, code(1)], Outcome::NotGrowing);
    let later = Rule { cfa_offset: 8, ..popped };
    let stack = frozen(Arch::X86_64, &[sp(8), later], &[code(1)]);
    check(&stack, &[CODE + 4, code(1)], Outcome::RegisterUnknown);
}

#[test]
fn plt_entries_before_and_after_their_push() {
    let plt = Rule { cfa: CfaKind::Plt, ..sp(11) };
    for (into, words) in
        [(0, vec![code(1)]), (10, vec![code(1)]), (11, vec![0, code(1)]), (15, vec![0, code(1)])]
    {
        let mut stack = frozen(Arch::X86_64, &[plt, Rule::STOP], &words);
        stack.registers.ip = CODE + into;
        check(&stack, &[CODE + into, code(1)], Outcome::Complete);
    }
}

#[test]
fn a_signal_on_another_stack() {
    // The handler's caller is the return from a signal: its frame holds all registers, of a stack below.
    let mut words = vec![code(1)];
    words.extend([0; 5]);
    // r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip
    let mut context = [0; 17];
    context[2] = STACK - 0x1000 + 16; // r10
    context[15] = STACK - 0x1000;
    context[16] = CODE + 32;
    words.extend(context);
    let by_r10 = Rule { cfa: CfaKind::Register, cfa_register: 10, ..sp(8) };
    let mut stack = frozen(Arch::X86_64, &[sp(8), Rule::SIGNAL, by_r10, Rule::STOP], &words);
    let below: Vec<u8> = [0, 0, code(3)].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
    stack.memory.push((STACK - 0x1000, below));
    // What was interrupted is exact: it is the first byte of its rule's code.
    check(&stack, &[CODE + 4, code(1), CODE + 32, code(3)], Outcome::Complete);
    assert_eq!(replay(&stack).frames.map_exact(), [true, false, true, false]);
}

trait Exact {
    fn map_exact(&self) -> Vec<bool>;
}

impl Exact for Vec<lightfoot_unwind::Frame> {
    fn map_exact(&self) -> Vec<bool> {
        self.iter().map(|frame| frame.exact).collect()
    }
}

#[test]
fn a_stack_switch_may_lead_down_and_nothing_else_may() {
    for (rule, outcome) in
        [(Rule::STACK_SWITCH, Outcome::Complete), (Rule::FRAME_POINTER, Outcome::FramePointerBroken)]
    {
        let mut stack = frozen(Arch::X86_64, &[rule, Rule::STOP], &[]);
        let below: Vec<u8> = [0, code(1)].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        stack.memory.push((STACK - 0x1000, below));
        stack.registers.general[6] = STACK - 0x1000;
        assert_eq!(replay(&stack).outcome, outcome);
    }
}

#[test]
fn arm64_leaves_and_signed_return_addresses() {
    let leaf = Rule { ra: Saved::Same, ra_offset: 0, ..sp(0) };
    let framed = Rule { fp: Saved::AtCfa, fp_offset: -16, ..sp(16) };
    let signed = code(2) | 0x5a << 55;
    let mut stack = frozen(Arch::Arm64, &[leaf, framed, Rule::STOP], &[0, signed]);
    stack.registers.general[30] = code(1) | 0x3b << 55;
    check(&stack, &[CODE + 4, code(1), code(2)], Outcome::Complete);
    // The link register is the leaf's alone, and a frame of no size cannot call.
    let stack = frozen(Arch::Arm64, &[framed, leaf], &[0, code(1)]);
    check(&stack, &[CODE + 4, code(1)], Outcome::NotGrowing);
    let sized = Rule { cfa_offset: 16, ..leaf };
    let stack = frozen(Arch::Arm64, &[framed, sized], &[0, code(1)]);
    check(&stack, &[CODE + 4, code(1)], Outcome::RegisterUnknown);
    // A signal: 312 bytes up to the registers x0 to x30, sp, pc.
    let mut words = vec![0, code(1)];
    words.extend([0; 39]);
    let mut context = [0; 33];
    context[30] = code(3);
    context[31] = STACK;
    context[32] = CODE + 32;
    words.extend(context);
    let stack = frozen(Arch::Arm64, &[framed, Rule::SIGNAL, leaf, Rule::STOP], &words);
    check(&stack, &[CODE + 4, code(1), CODE + 32, code(3)], Outcome::Complete);
}
