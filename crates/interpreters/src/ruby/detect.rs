//! Recognising CRuby in an ELF file, stripped or not.
//!
//! The loop is `rb_vm_exec`, of which each activation has one frame. Where the name is not exported (3.3 and later) it is the function
//! that both `rb_iseq_eval` and `rb_iseq_eval_main`, which are exported, end with; there must be exactly one.

use std::ops::Range;

use lightfoot_unwind::{Arch, Elf, ReadAt, function_range};

use super::offsets::{
    self, ACCESS, DTV, DTV_ENTRY, SYMBOL_EC, SYMBOL_NAMES, SYMBOL_THREAD_LOCAL, TLS_OFFSET,
};
use super::tls::{self, Place};
use crate::symbols::{self, Symbol, Table};
use crate::{Detected, Interpreter, Language, Layouts, SYMBOLS, Version};

const VERSION: &str = "ruby_version";
const LOOPS: [&str; 2] = ["rb_vm_exec", "vm_exec"];
const ENDS_WITH_LOOP: [&str; 2] = ["rb_iseq_eval", "rb_iseq_eval_main"];
const THREAD_LOCAL: &str = "ruby_current_ec";
const GLOBAL: &str = "ruby_current_execution_context_ptr";
const NAMES: &str = "ruby_global_symbols";
const TO_NAME: &str = "rb_id2str";
/// A larger function is not looked at: these have some hundred bytes.
const MAX_CODE_BYTES: u64 = 16 << 10;

/// Whether an object is CRuby. See [`crate::detect`].
pub fn detect(data: &dyn ReadAt, _path: &str, layouts: &Layouts) -> Detected {
    let wanted = [
        VERSION,
        LOOPS[0],
        LOOPS[1],
        ENDS_WITH_LOOP[0],
        ENDS_WITH_LOOP[1],
        THREAD_LOCAL,
        GLOBAL,
        NAMES,
        TO_NAME,
    ];
    let mut found = symbols::find(data, Table::Dynamic, &wanted);
    // A program that holds the interpreter exports these for extensions.
    if named(&found, VERSION).is_none() || ENDS_WITH_LOOP.iter().all(|name| named(&found, name).is_none()) {
        return Detected::Nothing;
    }
    for symbol in symbols::find(data, Table::Full, &wanted) {
        if !found.contains(&symbol) {
            found.push(symbol);
        }
    }
    match interpreter(data, layouts, &found) {
        Ok(interpreter) => Detected::Interpreter(Box::new(interpreter)),
        Err(reason) => Detected::Unsupported { language: Language::Ruby, reason },
    }
}

fn named<'a>(symbols: &'a [Symbol], name: &str) -> Option<&'a Symbol> {
    symbols.iter().find(|symbol| symbol.name == name)
}

fn interpreter(data: &dyn ReadAt, layouts: &Layouts, found: &[Symbol]) -> Result<Interpreter, String> {
    let elf = Elf::parse(data).map_err(|error| error.to_string())?;
    let version = version(data, &elf, found).ok_or("its version is not to be found")?;
    let layout = layouts.find("ruby", version).ok_or_else(|| {
        format!("the layout of Ruby {version} is not known: cargo xtask interpreter-offsets ruby can tell it")
    })?;
    let mut offsets = offsets::from_layout(layout)?;
    let mut places = [0; SYMBOLS];
    let relative = |address| symbols::relative(&elf, address).ok_or("it has no code");

    if let Some(global) = named(found, GLOBAL) {
        offsets[ACCESS] = offsets::ACCESS_GLOBAL;
        places[SYMBOL_EC] = relative(global.address)?;
    } else {
        let in_block = match named(found, THREAD_LOCAL) {
            Some(symbol) => Some(symbol.address),
            None => in_code(data, &elf, found),
        };
        let in_block = in_block.ok_or("where ruby_current_ec lies is not to be found")?;
        let place =
            tls::place(data, &elf, in_block).ok_or("how ruby_current_ec is reached is not to be found")?;
        // Both words of the thread control block's begin: glibc sysdeps/x86_64/nptl/tls.h, sysdeps/aarch64/nptl/tls.h; musl
        // src/internal/pthread_impl.h.
        let musl = tls::is_musl(data);
        offsets[DTV] = match (elf.arch, musl) {
            (Arch::X86_64, _) => 8,
            (Arch::Arm64, false) => 0,
            (Arch::Arm64, true) => 8u32.wrapping_neg(),
        };
        offsets[DTV_ENTRY] = if musl { 8 } else { 16 };
        let (access, slot, distance) = match place {
            Place::Module { slot } => (offsets::ACCESS_TLS_MODULE, Some(slot), in_block as i64),
            Place::InTable { slot, behind } => (offsets::ACCESS_TP_IN_GOT, Some(slot), behind),
            Place::Fixed { distance } => (offsets::ACCESS_TP_FIXED, None, distance),
        };
        offsets[ACCESS] = access;
        offsets[TLS_OFFSET] =
            i32::try_from(distance).map_err(|_| "its thread-local data is too large")? as u32;
        if let Some(slot) = slot {
            places[SYMBOL_THREAD_LOCAL] = relative(slot)?;
        }
    }
    for (place, address) in places[SYMBOL_NAMES..].iter_mut().zip(names(data, &elf, found)) {
        *place = relative(address)?;
    }
    let loop_code = loop_code(data, &elf, found).ok_or("its loop (rb_vm_exec) is not to be found")?;
    Ok(Interpreter { language: Language::Ruby, version, symbols: places, offsets, loop_code })
}

/// `ruby_version` is a string such as 3.1.2.
fn version(data: &dyn ReadAt, elf: &Elf, found: &[Symbol]) -> Option<Version> {
    let mut bytes = [0; 12];
    symbols::read(data, elf, named(found, VERSION)?.address, &mut bytes)?;
    let text = str::from_utf8(bytes.split(|&byte| byte == 0).next()?).ok()?;
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    let (major, minor, patch) = (numbers.next()??, numbers.next()??, numbers.next()??);
    Some(Version { major, minor, patch })
}

fn loop_code(data: &dyn ReadAt, elf: &Elf, found: &[Symbol]) -> Option<Vec<Range<u64>>> {
    let named =
        LOOPS.iter().filter_map(|name| named(found, name)).find(|symbol| symbol.function && symbol.size > 0);
    let whole = match named {
        Some(symbol) => symbols::code_range(elf, symbol)?,
        None => common_end(data, elf, found)?,
    };
    let mut ranges = crate::python::cold::parts(data, elf, &whole);
    ranges.insert(0, whole);
    Some(ranges)
}

/// Code of a function: file offset of its begin, bytes.
fn code(data: &dyn ReadAt, elf: &Elf, symbol: &Symbol) -> Option<(u64, Vec<u8>)> {
    let range = symbols::code_range(elf, symbol).filter(|range| range.end - range.start <= MAX_CODE_BYTES)?;
    let mut bytes = vec![0; usize::try_from(range.end - range.start).ok()?];
    data.read_at(range.start, &mut bytes)?;
    Some((range.start, bytes))
}

/// The only function that all of [`ENDS_WITH_LOOP`] jump to.
fn common_end(data: &dyn ReadAt, elf: &Elf, found: &[Symbol]) -> Option<Range<u64>> {
    let mut common: Option<Vec<u64>> = None;
    for name in ENDS_WITH_LOOP {
        let (start, bytes) = code(data, elf, named(found, name)?)?;
        let own = start..start + bytes.len() as u64;
        let mut targets: Vec<u64> =
            jumps(elf.arch, start, &bytes).into_iter().filter(|target| !own.contains(target)).collect();
        if let Some(before) = &common {
            targets.retain(|target| before.contains(target));
        }
        targets.sort_unstable();
        targets.dedup();
        common = Some(targets);
    }
    let mut functions = common?.into_iter().filter_map(|target| {
        let range = function_range(data, target).ok().flatten()?;
        (range.start == target).then_some(range)
    });
    let only = functions.next()?;
    functions.next().is_none().then_some(only)
}

/// File offsets that the jumps without condition lead to. Bytes that only look like a jump may be among them.
fn jumps(arch: Arch, start: u64, bytes: &[u8]) -> Vec<u64> {
    match arch {
        Arch::X86_64 => bytes
            .windows(5)
            .enumerate()
            .filter(|(_, bytes)| bytes[0] == 0xe9)
            .map(|(at, bytes)| (start + at as u64 + 5).wrapping_add_signed(i64::from(distance(&bytes[1..]))))
            .collect(),
        Arch::Arm64 => bytes
            .chunks_exact(4)
            .enumerate()
            .map(|(at, word)| (start + at as u64 * 4, distance(word) as u32))
            .filter(|(_, word)| word & 0xfc00_0000 == 0x1400_0000)
            .map(|(at, word)| at.wrapping_add_signed(i64::from((word << 6) as i32 >> 6) * 4))
            .collect(),
    }
}

fn distance(bytes: &[u8]) -> i32 {
    bytes.first_chunk().map_or(0, |bytes| i32::from_le_bytes(*bytes))
}

/// Where `ruby_current_ec` lies in the object's thread-local block, by the code of a function that reads it: x86-64, general or
/// local dynamic model. `lea slot(%rip), %rdi; call __tls_get_addr; mov offset(%rax), ...`, where slot is a relocated word.
fn in_code(data: &dyn ReadAt, elf: &Elf, found: &[Symbol]) -> Option<u64> {
    if elf.arch != Arch::X86_64 {
        return None;
    }
    let mut places = ENDS_WITH_LOOP.iter().map(|name| {
        let (start, bytes) = code(data, elf, named(found, name)?)?;
        let bias = elf.segments.iter().find(|segment| segment.executable)?.bias();
        let slots = tls::modules(data);
        let mut place = None;
        for (at, bytes) in bytes.windows(44).enumerate() {
            if bytes[..3] != [0x48, 0x8d, 0x3d] {
                continue;
            }
            let next = start.wrapping_add(bias).wrapping_add(at as u64 + 7);
            let slot = next.wrapping_add_signed(i64::from(distance(&bytes[3..7])));
            if !slots.contains(&slot) {
                continue;
            }
            // The call may have prefixes, for the linker to have room.
            let call = 7 + bytes[7..].iter().take(4).position(|&byte| byte == 0xe8)?;
            let rest = bytes.get(call + 5..)?;
            // mov disp32(%rax), r64: REX.W 8B, mod 10, rm 000. The linker fills in 32 bits (R_X86_64_DTPOFF32), whatever the distance
            // is; other instructions may have been put in between. Else the call's result is the variable's address.
            let wide = rest
                .windows(7)
                .find(|bytes| matches!(bytes[0], 0x48 | 0x4c) && bytes[1] == 0x8b && bytes[2] & 0xc7 == 0x80);
            let offset = match (wide, rest) {
                (Some(wide), _) => i64::from(distance(&wide[3..])),
                (None, [0x48 | 0x4c, 0x8b, modrm, ..]) if modrm & 0xc7 == 0 => 0,
                _ => return None,
            };
            // The slot's second word is the offset that the call adds.
            let mut second = [0; 8];
            symbols::read(data, elf, slot.wrapping_add(8), &mut second)?;
            let offset = u64::from_le_bytes(second).wrapping_add_signed(offset);
            if place.is_some_and(|place| place != offset) {
                return None;
            }
            place = Some(offset);
        }
        place
    });
    let first = places.next()??;
    places.all(|place| place == Some(first)).then_some(first)
}

/// Where the table of names may be: by its symbol, or what the code of `rb_id2str`, and the function that it hands over to, refers to
/// relative to itself. Which one it is, if any, is seen from what it holds.
fn names(data: &dyn ReadAt, elf: &Elf, found: &[Symbol]) -> Vec<u64> {
    if let Some(symbol) = named(found, NAMES) {
        return vec![symbol.address];
    }
    let Some(symbol) = named(found, TO_NAME) else { return Vec::new() };
    let Some((start, bytes)) = code(data, elf, symbol).filter(|_| elf.arch == Arch::X86_64) else {
        return Vec::new();
    };
    let own = start..start + bytes.len() as u64;
    let mut parts = vec![(start, bytes.clone())];
    let called = bytes
        .windows(5)
        .enumerate()
        .filter(|(_, bytes)| matches!(bytes[0], 0xe8 | 0xe9))
        .map(|(at, bytes)| (start + at as u64 + 5).wrapping_add_signed(i64::from(distance(&bytes[1..]))));
    for target in called.filter(|target| !own.contains(target)).take(4) {
        let Ok(Some(range)) = function_range(data, target) else { continue };
        if range.start != target || range.end - range.start > MAX_CODE_BYTES {
            continue;
        }
        let mut bytes = vec![0; (range.end - range.start) as usize];
        if data.read_at(range.start, &mut bytes).is_some() {
            parts.push((range.start, bytes));
        }
    }
    let mut addresses = Vec::new();
    // The linker's own tables are read-only once the program runs, and lie before the variables.
    let Some(data_start) = tls::variables(data) else { return addresses };
    let Some(bias) = elf.segments.iter().find(|segment| segment.executable).map(|segment| segment.bias())
    else {
        return addresses;
    };
    for (start, bytes) in parts {
        for (at, bytes) in bytes.windows(7).enumerate() {
            // REX.W, opcode, ModRM with mod 00 and rm 101: an operand relative to the next instruction.
            let relative =
                matches!(bytes[0], 0x48 | 0x4c) && matches!(bytes[1], 0x8b | 0x8d) && bytes[2] & 0xc7 == 5;
            if !relative {
                continue;
            }
            let next = start.wrapping_add(bias).wrapping_add(at as u64 + 7);
            let target = next.wrapping_add_signed(i64::from(distance(&bytes[3..7])));
            // `mov` reads the field `ids`, `lea` takes the table itself.
            for table in [target, target.wrapping_sub(16), target.wrapping_sub(8)] {
                if target >= data_start && table % 8 == 0 && !addresses.contains(&table) {
                    addresses.push(table);
                }
            }
        }
    }
    addresses
}
