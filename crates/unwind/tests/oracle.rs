//! The crate's own interpreter against gimli's, row by row, over what this machine runs.

use gimli::{
    BaseAddresses, CfaRule, DebugFrame, EhFrame, EndianSlice, EvaluationResult, LittleEndian, Register,
    RegisterRule, UnwindContext, UnwindSection,
};
use lightfoot_unwind::{CfaKind, Options, Rule, Saved, Table};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Objects of this machine that exist, this test itself (a Rust program), and what LIGHTFOOT_UNWIND_OBJECTS names (paths, colons between).
fn objects() -> Vec<PathBuf> {
    let candidates = [
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "/lib64/ld-linux-x86-64.so.2",
        "/usr/lib/x86_64-linux-gnu/libm.so.6",
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/lib/x86_64-linux-gnu/libcrypto.so.3",
        "/usr/lib/x86_64-linux-gnu/libgcc_s.so.1",
        "/bin/bash",
        "/usr/bin/ld",
        "/usr/aarch64-linux-gnu/lib/libc.so.6",
        "/usr/aarch64-linux-gnu/lib/libstdc++.so.6",
    ];
    let mut found: Vec<PathBuf> = candidates.iter().map(PathBuf::from).filter(|path| path.exists()).collect();
    let more = std::env::var("LIGHTFOOT_UNWIND_OBJECTS").unwrap_or_default();
    found.extend(more.split(':').filter(|path| !path.is_empty()).map(PathBuf::from));
    found.push(std::env::current_exe().expect("the test's own path"));
    found
}

/// The sections and segments that gimli needs, found independently of the crate: by hand from the section headers.
struct Sections<'a> {
    eh_frame: &'a [u8],
    eh_frame_address: u64,
    debug_frame: Vec<u8>,
    /// (address, file offset, size) of executable segments.
    text: Vec<(u64, u64, u64)>,
    arm64: bool,
    entry: u64,
}

fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    bytes[at..at + width].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn sections(bytes: &[u8]) -> Sections<'_> {
    let headers = number(bytes, 40, 8) as usize;
    let names = headers + 64 * number(bytes, 62, 2) as usize;
    let names = number(bytes, names + 24, 8) as usize;
    let mut sections = Sections {
        eh_frame: &[],
        eh_frame_address: 0,
        debug_frame: vec![],
        text: vec![],
        arm64: number(bytes, 18, 2) == 183,
        entry: number(bytes, 24, 8),
    };
    for index in 0..number(bytes, 60, 2) as usize {
        let header = headers + 64 * index;
        let name = &bytes[names + number(bytes, header, 4) as usize..];
        let (offset, size) = (number(bytes, header + 24, 8) as usize, number(bytes, header + 32, 8) as usize);
        if name.starts_with(b".eh_frame\0") {
            sections.eh_frame = &bytes[offset..offset + size];
            sections.eh_frame_address = number(bytes, header + 16, 8);
        } else if name.starts_with(b".debug_frame\0") {
            sections.debug_frame = bytes[offset..offset + size].to_vec();
            if number(bytes, header + 8, 8) & 0x800 != 0 {
                let mut packed = flate2::read::ZlibDecoder::new(&bytes[offset + 24..offset + size]);
                sections.debug_frame.clear();
                packed.read_to_end(&mut sections.debug_frame).unwrap();
            }
        }
    }
    let programs = number(bytes, 32, 8) as usize;
    for index in 0..number(bytes, 56, 2) as usize {
        let header = programs + 56 * index;
        if number(bytes, header, 4) == 1 && number(bytes, header + 4, 4) & 1 != 0 {
            sections.text.push((
                number(bytes, header + 16, 8),
                number(bytes, header + 8, 8),
                number(bytes, header + 32, 8),
            ));
        }
    }
    sections
}

/// What gimli's row says about the CFA and the three registers, evaluated with made-up registers and a made-up memory, so that
/// expressions are compared by what they compute and not by how they are written.
fn memory(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

#[derive(Clone, Copy)]
struct Registers {
    ip: u64,
    values: [u64; 32],
}

fn evaluate(
    expression: gimli::Expression<gimli::EndianSlice<'_, LittleEndian>>,
    registers: &Registers,
) -> u64 {
    let encoding = gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 4 };
    let mut evaluation = expression.evaluation(encoding);
    let mut result = evaluation.evaluate().unwrap();
    loop {
        result = match result {
            EvaluationResult::Complete => break,
            EvaluationResult::RequiresRegister { register, .. } => {
                let value =
                    if register.0 == 16 { registers.ip } else { registers.values[register.0 as usize] };
                evaluation.resume_with_register(gimli::Value::Generic(value)).unwrap()
            }
            EvaluationResult::RequiresMemory { address, .. } => {
                evaluation.resume_with_memory(gimli::Value::Generic(memory(address))).unwrap()
            }
            other => panic!("{other:?}"),
        };
    }
    match evaluation.result()[0].location {
        gimli::Location::Address { address } => address,
        other => panic!("{other:?}"),
    }
}

/// (CFA, place of the return address, place of the frame pointer): `None` for a register that is unchanged.
#[derive(Debug, PartialEq, Clone, Copy)]
enum Place {
    Same,
    Undefined,
    At(u64),
    InRegister(u16),
    Other,
}

fn compare(
    path: &Path,
    ours: &Rule,
    registers: &Registers,
    theirs: (u64, Place, Option<Place>, Place),
    at: u64,
) {
    let (cfa, ra, fp, bx) = theirs;
    let (sp_value, fp_value) = if registers.values[31] != 0 {
        (registers.values[31], registers.values[29])
    } else {
        (registers.values[7], registers.values[6])
    };
    let add = |value: u64| value.wrapping_add_signed(i64::from(ours.cfa_offset));
    let our_cfa = match ours.cfa {
        CfaKind::Sp => add(sp_value),
        CfaKind::Fp => add(fp_value),
        CfaKind::Bx => add(registers.values[3]),
        CfaKind::Register => add(registers.values[usize::from(ours.cfa_register)]),
        CfaKind::DerefSp => memory(add(sp_value)).wrapping_add(u64::from(ours.cfa_register)),
        CfaKind::DerefFp => memory(add(fp_value)).wrapping_add(u64::from(ours.cfa_register)),
        CfaKind::Plt => sp_value + if registers.ip & 15 >= ours.cfa_offset as u64 { 16 } else { 8 },
        other => panic!("{path:?} {at:#x}: {other:?}"),
    };
    assert_eq!(our_cfa, cfa, "{path:?} {at:#x}: CFA, {ours:?}");
    let place = |saved: Saved, offset: i16| match saved {
        Saved::Same => Place::Same,
        Saved::Undefined => Place::Undefined,
        Saved::AtCfa => Place::At(cfa.wrapping_add_signed(i64::from(offset))),
        Saved::AtFp => Place::At(fp_value.wrapping_add_signed(i64::from(offset))),
        Saved::InRegister => Place::InRegister(offset as u16),
    };
    assert_eq!(place(ours.ra, ours.ra_offset), ra, "{path:?} {at:#x}: return address, {ours:?}");
    if let Some(fp) = fp {
        let ours_fp = place(ours.fp, ours.fp_offset);
        let unknown = fp == Place::Other && ours_fp == Place::Undefined;
        assert!(ours_fp == fp || unknown, "{path:?} {at:#x}: {ours:?}, {fp:?}");
    }
    if ours.bx != Saved::Undefined {
        assert_eq!(place(ours.bx, ours.bx_offset), bx, "{path:?} {at:#x}: rbx, {ours:?}");
    }
}

#[test]
fn gimli_says_the_same_about_every_function() {
    for path in objects() {
        let bytes = std::fs::read(&path).unwrap();
        let table = Table::build(&bytes.as_slice(), &Options::default()).unwrap();
        let sections = sections(&bytes);
        assert!(!sections.eh_frame.is_empty(), "{path:?}");
        let section = EhFrame::new(sections.eh_frame, LittleEndian);
        let (rows, unsupported) = against_gimli(&path, &table, &sections, &section, false);
        assert!(rows > 100, "{path:?}: only {rows} rows");
        // The crate gives up only on what no compiler writes: setcontext and the like.
        assert!(unsupported <= 8 + rows / 1000, "{path:?}: {unsupported} of {rows} rows unsupported");
    }
}

/// Go's linker writes both tables from the same source: the compiler's distances of the stack pointer.
#[test]
fn go_says_the_same_in_both_of_its_tables() {
    if Command::new("go").arg("version").output().is_err() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("hello.go");
    std::fs::write(&program, "package main\nimport \"fmt\"\nfunc main() { fmt.Println(\"x\") }\n").unwrap();
    for (cpu, mode) in [("amd64", "exe"), ("amd64", "pie"), ("arm64", "exe")] {
        let binary = folder.path().join(format!("{cpu}-{mode}"));
        let build = Command::new("go")
            .args(["build", "-buildmode", mode, "-o"])
            .args([&binary, &program])
            .envs([("GOARCH", cpu), ("GOOS", "linux"), ("CGO_ENABLED", "0"), ("GO111MODULE", "off")])
            .output()
            .unwrap();
        assert!(build.status.success(), "{}", String::from_utf8_lossy(&build.stderr));
        let bytes = std::fs::read(&binary).unwrap();
        let table = Table::build(&bytes.as_slice(), &Options::default()).unwrap();
        assert!(table.stats.go_functions > 1000 && table.stats.malformed == 0, "{:?}", table.stats);
        let sections = sections(&bytes);
        let mut section = DebugFrame::new(&sections.debug_frame, LittleEndian);
        section.set_address_size(8);
        let (rows, special) = against_gimli(&binary, &table, &sections, &section, true);
        assert!(rows > 10_000 && special * 100 < rows, "{binary:?}: {special} of {rows}");
    }
}

trait Nops {
    fn all_nops(self) -> bool;
}

impl Nops for gimli::CallFrameInstructionIter<'_, EndianSlice<'_, LittleEndian>> {
    fn all_nops(mut self) -> bool {
        while let Ok(Some(instruction)) = self.next() {
            if instruction != gimli::CallFrameInstruction::Nop {
                return false;
            }
        }
        true
    }
}

/// Compares the first and the last instruction of every row. For Go only the CFA and the return address: its DWARF says nothing about
/// frame pointers. Returns the number of instructions, and how many of them the crate had no ordinary rule for.
fn against_gimli<'a, S>(
    path: &Path,
    table: &Table,
    sections: &Sections<'_>,
    section: &S,
    go: bool,
) -> (u64, u64)
where
    S: UnwindSection<EndianSlice<'a, LittleEndian>>,
    S::Offset: gimli::UnwindOffset<usize>,
{
    let bases = BaseAddresses::default().set_eh_frame(sections.eh_frame_address);
    let mut context = UnwindContext::new();
    let mut entries = section.entries(&bases);
    let (mut rows, mut without) = (0, 0);
    let mut registers = Registers { ip: 0, values: [0; 32] };
    for (index, value) in registers.values.iter_mut().enumerate() {
        *value = 0x1000_0000 * (index as u64 + 1);
    }
    if !sections.arm64 {
        registers.values[31] = 0;
    }
    let (fp, ra) = if sections.arm64 { (29, 30) } else { (6, 16) };
    while let Some(entry) = entries.next().unwrap() {
        let gimli::CieOrFde::Fde(fde) = entry else { continue };
        let fde = fde.parse(S::cie_from_offset).unwrap();
        let in_text = |address: u64| {
            let found = sections.text.iter().find(|t| (t.0..t.0 + t.2).contains(&address));
            found.map(|t| address - t.0 + t.1)
        };
        if in_text(fde.initial_address()).is_none() || sections.entry == fde.initial_address() {
            continue;
        }
        let mut theirs = fde.rows(section, &bases, &mut context).unwrap();
        while let Some(row) = theirs.next_row().unwrap() {
            if row.start_address() == row.end_address() {
                continue;
            }
            for address in [row.start_address(), row.end_address() - 1] {
                rows += 1;
                registers.ip = address;
                let ours = table.rule_at(in_text(address).unwrap());
                if fde.is_signal_trampoline() {
                    assert_eq!(ours, Rule::SIGNAL, "{path:?} {address:#x}");
                    continue;
                }
                if row.register(Register(ra)) == Some(RegisterRule::Undefined) {
                    if go && ours != Rule::STOP {
                        // Go's own traceback ends at its signal handler; ours goes on to what was interrupted.
                        without += 1;
                        continue;
                    }
                    assert_eq!(ours, Rule::STOP, "{path:?} {address:#x}");
                    continue;
                }
                if ours == Rule::UNSUPPORTED
                    || go && matches!(ours.cfa, CfaKind::Stop | CfaKind::Signal | CfaKind::FramePointer)
                {
                    without += 1;
                    continue;
                }
                let cfa = match row.cfa() {
                    CfaRule::RegisterAndOffset { register, offset } => {
                        registers.values[register.0 as usize].wrapping_add_signed(*offset)
                    }
                    CfaRule::Expression(expression) => evaluate(expression.get(section).unwrap(), &registers),
                };
                let place = |register: u16| match row.register(Register(register)) {
                    None | Some(RegisterRule::SameValue) => Place::Same,
                    Some(RegisterRule::Undefined) => Place::Undefined,
                    Some(RegisterRule::Offset(offset)) => Place::At(cfa.wrapping_add_signed(offset)),
                    Some(RegisterRule::Expression(expression)) => {
                        Place::At(evaluate(expression.get(section).unwrap(), &registers))
                    }
                    Some(RegisterRule::Register(holder)) => Place::InRegister(holder.0),
                    _ => Place::Other,
                };
                let says_nothing = fde.instructions(section, &bases).all_nops();
                let pushed = ours.cfa == CfaKind::Sp && ours.cfa_offset > 8;
                if says_nothing && (pushed || ours == Rule::STOP) && !sections.arm64 {
                    // GMP's assembly pushes registers and does not say so; makecontext's stacks begin in a function that does not.
                    without += 1;
                    continue;
                }
                let fp = if go { None } else { Some(place(fp)) };
                compare(path, &ours, &registers, (cfa, place(ra), fp, place(3)), address);
            }
        }
    }
    (rows, without)
}
