//! Probes that a program was compiled with (USDT): the notes in `.note.stapsdt`.
//! Source: SystemTap wiki, "UserSpaceProbeImplementation"; operands as GNU as writes them.

use crate::elf::{Elf, u32_at, u64_at};
use lightfoot_unwind::{Arch, ReadAt};

/// Bytes of notes looked at.
const NOTES_BYTES: u64 = 16 << 20;
/// Arguments of one probe looked at. `<sys/sdt.h>` has at most twelve.
const ARGUMENTS_MAX: usize = 16;

/// A place of a USDT probe: one probe may have several.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// Who offers it, `ruby`.
    pub provider: String,
    /// What it is called, `gc__mark__begin`.
    pub name: String,
    /// Address of the nop, as the linker gave it.
    pub address: u64,
    /// Address of the semaphore, a 16-bit counter; `None` if the probe has none.
    pub semaphore: Option<u64>,
    /// Where the arguments are; `Err` with the text of one that is not understood.
    pub arguments: Vec<Result<Argument, String>>,
}

/// Where an argument of a USDT probe is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Argument {
    /// Bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Whether it is signed.
    pub signed: bool,
    /// A floating-point number.
    pub float: bool,
    /// Where.
    pub operand: Operand,
}

/// An operand of assembly language.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operand {
    /// The value itself.
    Constant(i64),
    /// A register, by its name without `%`.
    Register(String),
    /// What lies in memory at base + index x scale + displacement.
    Memory {
        /// Register; none for an absolute address.
        base: Option<String>,
        /// Register.
        index: Option<String>,
        /// 1, 2, 4 or 8.
        scale: u8,
        /// Bytes.
        displacement: i64,
        /// Symbol that the displacement counts from, as it was left in the text.
        symbol: Option<String>,
    },
}

/// All notes of a file, in its order.
pub fn notes(elf: &Elf, data: &dyn ReadAt) -> Vec<Note> {
    let Some(section) = elf.section(".note.stapsdt") else { return Vec::new() };
    let Some(bytes) = section.bytes(data, NOTES_BYTES) else { return Vec::new() };
    let base = elf.section(".stapsdt.base").map_or(0, |section| section.address);
    parse(&bytes, base, elf.arch())
}

/// The notes in the bytes of a section; `base` is the address of `.stapsdt.base` now, which differs from the one in the note if the file
/// was prelinked. 0: unknown.
pub fn parse(mut bytes: &[u8], base: u64, arch: Arch) -> Vec<Note> {
    let mut notes = Vec::new();
    while bytes.len() >= 12 {
        let (name_size, size, kind) =
            (u32_at(bytes, 0) as usize, u32_at(bytes, 4) as usize, u32_at(bytes, 8));
        let content_at = name_size.checked_next_multiple_of(4).and_then(|padded| padded.checked_add(12));
        let end = content_at.and_then(|at| at.checked_add(size.checked_next_multiple_of(4)?));
        let (Some(content_at), Some(end)) = (content_at, end) else { break };
        let (Some(owner), Some(content)) =
            (bytes.get(12..content_at), bytes.get(content_at..).and_then(|rest| rest.get(..size)))
        else {
            break;
        };
        if kind == 3 && owner.starts_with(b"stapsdt\0") {
            notes.extend(note(content, base, arch));
        }
        bytes = bytes.get(end..).unwrap_or_default();
    }
    notes
}

fn note(content: &[u8], base: u64, arch: Arch) -> Option<Note> {
    let (address, note_base, semaphore) = (u64_at(content, 0), u64_at(content, 8), u64_at(content, 16));
    let mut texts = content.get(24..)?.split(|&byte| byte == 0);
    let mut text = || std::str::from_utf8(texts.next()?).ok();
    let (provider, name, arguments) = (text()?, text()?, text().unwrap_or_default());
    let plain = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
    if !plain(provider) || !plain(name) {
        return None;
    }
    let moved = if base == 0 || note_base == 0 { 0 } else { base.wrapping_sub(note_base) };
    Some(Note {
        provider: provider.to_owned(),
        name: name.to_owned(),
        address: address.wrapping_add(moved),
        semaphore: (semaphore != 0).then(|| semaphore.wrapping_add(moved)),
        arguments: self::arguments(arguments, arch),
    })
}

/// The arguments in a note: `-4@%edi 8@16(%rsp)`.
pub fn arguments(text: &str, arch: Arch) -> Vec<Result<Argument, String>> {
    // On arm64 an operand has spaces: `8@[sp, 16]`.
    let mut pieces: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match pieces.last_mut() {
            Some(last) if last.contains('[') && !last.contains(']') => last.push_str(word),
            _ => pieces.push(word.to_owned()),
        }
    }
    pieces.truncate(ARGUMENTS_MAX);
    pieces.into_iter().map(|piece| argument(&piece, arch).ok_or(piece)).collect()
}

fn argument(piece: &str, arch: Arch) -> Option<Argument> {
    // Without a size (old assemblers): the register's.
    let (size, operand) = piece.split_once('@').unwrap_or(("", piece));
    let operand = match arch {
        Arch::X86_64 => x86_64(operand)?,
        _ => arm64(operand)?,
    };
    let float = size.ends_with('f');
    let number: i8 = if size.is_empty() { 8 } else { size.trim_end_matches('f').parse().ok()? };
    let size = number.unsigned_abs();
    matches!(size, 1 | 2 | 4 | 8).then_some(Argument { size, signed: number < 0, float, operand })
}

/// `$-5`, `%rdi`, `-8(%rbp)`, `(%rdi,%rsi,8)`, `table(%rip)`, `%fs:16`.
fn x86_64(text: &str) -> Option<Operand> {
    if let Some(constant) = text.strip_prefix('$') {
        return Some(Operand::Constant(number(constant)?));
    }
    if let Some(name) = text.strip_prefix('%').filter(|name| !name.contains(['(', ':'])) {
        return register(name).map(Operand::Register);
    }
    let (displacement, registers) = match text.split_once('(') {
        Some((displacement, registers)) => (displacement, registers.strip_suffix(')')?),
        None => (text, ""),
    };
    let (symbol, displacement) = displacement_of(displacement)?;
    let mut parts = registers.split(',').map(str::trim);
    let mut part = || match parts.next() {
        None | Some("") => Some(None),
        Some(name) => register(name.strip_prefix('%')?).map(Some),
    };
    let (base, index) = (part()?, part()?);
    let scale = match parts.next() {
        None | Some("") => 1,
        Some(scale) => scale.parse().ok().filter(|scale| matches!(scale, 1 | 2 | 4 | 8))?,
    };
    if parts.next().is_some() || registers.is_empty() && symbol.is_none() && text.is_empty() {
        return None;
    }
    Some(Operand::Memory { base, index, scale, displacement, symbol })
}

/// `-5`, `x0`, `[x0]`, `[sp,16]`, `[x0,x1]`, `[x0,x1,lsl 3]`, `[x0,#8]`.
fn arm64(text: &str) -> Option<Operand> {
    let Some(inner) = text.strip_prefix('[') else {
        let text = text.strip_prefix('#').unwrap_or(text);
        return number(text).map(Operand::Constant).or_else(|| register(text).map(Operand::Register));
    };
    let mut parts = inner.strip_suffix(']')?.split(',').map(str::trim);
    let base = Some(register(parts.next()?)?);
    let (mut index, mut scale, mut displacement) = (None, 1, 0);
    if let Some(second) = parts.next() {
        match number(second.strip_prefix('#').unwrap_or(second)) {
            Some(number) => displacement = number,
            None => index = Some(register(second)?),
        }
    }
    if let Some(shift) = parts.next() {
        let bits: u32 = shift.strip_prefix("lsl")?.trim().trim_start_matches('#').parse().ok()?;
        scale = 1_u8.checked_shl(bits).filter(|scale| matches!(scale, 1 | 2 | 4 | 8))?;
        index.as_ref()?;
    }
    parts.next().is_none().then_some(Operand::Memory { base, index, scale, displacement, symbol: None })
}

fn register(name: &str) -> Option<String> {
    let fine = !name.is_empty() && name.len() <= 8 && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    (fine && name.starts_with(|c: char| c.is_ascii_alphabetic())).then(|| name.to_owned())
}

/// Sums as compilers leave them: `-8`, `16+4`, `table+8`, `table`.
fn displacement_of(text: &str) -> Option<(Option<String>, i64)> {
    let (mut symbol, mut sum) = (None, 0_i64);
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest
            .char_indices()
            .skip(1)
            .find(|(_, c)| matches!(c, '+' | '-'))
            .map_or(rest.len(), |(at, _)| at);
        let (term, after) = rest.split_at(end);
        let bare = term.strip_prefix('+').unwrap_or(term);
        match number(bare) {
            Some(number) => sum = sum.checked_add(number)?,
            None if symbol.is_none() && is_symbol(bare) => symbol = Some(bare.to_owned()),
            None => return None,
        }
        rest = after;
    }
    Some((symbol, sum))
}

fn is_symbol(text: &str) -> bool {
    let fine = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '$' | '@');
    text.starts_with(|c: char| c.is_alphabetic() || matches!(c, '_' | '.')) && text.chars().all(fine)
}

fn number(text: &str) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    // Constants above the greatest signed number are written unsigned.
    let value = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => digits.parse().ok()?,
    } as i64;
    Some(if negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(base: &str, index: &str, scale: u8, displacement: i64, symbol: &str) -> Operand {
        let name = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        Operand::Memory { base: name(base), index: name(index), scale, displacement, symbol: name(symbol) }
    }

    fn check(arch: Arch, text: &str, size: u8, signed: bool, operand: Operand) {
        let expected = vec![Ok(Argument { size, signed, float: false, operand })];
        assert_eq!(arguments(text, arch), expected, "{text}");
    }

    #[test]
    fn operands_of_x86_64() {
        let x86 = |text, size, signed, operand| check(Arch::X86_64, text, size, signed, operand);
        x86("-4@$5", 4, true, Operand::Constant(5));
        x86("-4@$-5", 4, true, Operand::Constant(-5));
        x86("8@$0xffffffffffffffff", 8, false, Operand::Constant(-1));
        x86("8@%rdi", 8, false, Operand::Register("rdi".into()));
        x86("-4@%eax", 4, true, Operand::Register("eax".into()));
        x86("1@%r15b", 1, false, Operand::Register("r15b".into()));
        x86("8@(%rsp)", 8, false, memory("rsp", "", 1, 0, ""));
        x86("8@-8(%rbp)", 8, false, memory("rbp", "", 1, -8, ""));
        x86("8@16+4(%rbp)", 8, false, memory("rbp", "", 1, 20, ""));
        x86("2@(%rdi,%rsi)", 2, false, memory("rdi", "rsi", 1, 0, ""));
        x86("4@8(%rdi,%rsi,4)", 4, false, memory("rdi", "rsi", 4, 8, ""));
        x86("8@-0x10(,%rax,8)", 8, false, memory("", "rax", 8, -16, ""));
        x86("-4@global+4(%rip)", 4, true, memory("rip", "", 1, 4, "global"));
        x86("8@global(%rip)", 8, false, memory("rip", "", 1, 0, "global"));
        x86("%rdi", 8, false, Operand::Register("rdi".into()));
    }

    #[test]
    fn operands_of_arm64() {
        let arm = |text, size, signed, operand| check(Arch::Arm64, text, size, signed, operand);
        arm("-4@-5", 4, true, Operand::Constant(-5));
        arm("8@x0", 8, false, Operand::Register("x0".into()));
        arm("4@wzr", 4, false, Operand::Register("wzr".into()));
        arm("8@[x1]", 8, false, memory("x1", "", 1, 0, ""));
        arm("-4@[sp, 60]", 4, true, memory("sp", "", 1, 60, ""));
        arm("8@[x1,-8]", 8, false, memory("x1", "", 1, -8, ""));
        arm("8@[x1,#24]", 8, false, memory("x1", "", 1, 24, ""));
        arm("8@[x1, x2]", 8, false, memory("x1", "x2", 1, 0, ""));
        arm("4@[x1, x2, lsl 3]", 4, false, memory("x1", "x2", 8, 0, ""));
    }

    #[test]
    fn several_arguments_and_those_that_are_not_understood() {
        let several = arguments("8@%rdi -4@$1 8@%fs:16 3@%rax 8@(%rdi,%rsi,3) 8f@%xmm0", Arch::X86_64);
        let understood: Vec<bool> = several.iter().map(Result::is_ok).collect();
        assert_eq!(understood, [true, true, false, false, false, true]);
        assert_eq!(several[2], Err("8@%fs:16".to_owned()));
        assert!(several[5].as_ref().is_ok_and(|argument| argument.float));
        let on_arm: Vec<bool> =
            arguments("8@[sp, 16] -4@x2", Arch::Arm64).iter().map(Result::is_ok).collect();
        assert_eq!(on_arm, [true, true]);
        for odd in [
            "",
            "8@",
            "8@%",
            "@",
            "8@(",
            "8@)",
            "8@$",
            "-@%rax",
            "8@[",
            "8@[]",
            "8@[x0",
            "8@(%rdi,%rsi,%rax,%rbx)",
        ] {
            for arch in [Arch::X86_64, Arch::Arm64] {
                assert!(arguments(odd, arch).iter().all(Result::is_err), "{odd}");
            }
        }
    }

    /// A note as the assembler writes it.
    pub(crate) fn note_bytes(address: u64, base: u64, semaphore: u64, texts: &[u8]) -> Vec<u8> {
        let mut content: Vec<u8> =
            [address, base, semaphore].iter().flat_map(|number| number.to_le_bytes()).collect();
        content.extend(texts);
        let mut note: Vec<u8> =
            [8, content.len() as u32, 3].iter().flat_map(|number| number.to_le_bytes()).collect();
        note.extend(b"stapsdt\0");
        note.extend(&content);
        note.resize(note.len().next_multiple_of(4), 0);
        note
    }

    #[test]
    fn notes_in_order_and_moved_with_their_base() {
        let mut bytes = note_bytes(0x1010, 0x2000, 0, b"ruby\0gc__mark__begin\0\0");
        bytes.extend([4, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0]);
        bytes.extend(b"GNU\0abcd");
        bytes.extend(note_bytes(0x1020, 0x2000, 0x3000, b"ruby\0raise\08@%rax -4@$7\0"));
        let notes = parse(&bytes, 0x2100, Arch::X86_64);
        assert_eq!(notes.len(), 2);
        assert_eq!(
            (notes[0].name.as_str(), notes[0].address, notes[0].semaphore),
            ("gc__mark__begin", 0x1110, None)
        );
        assert_eq!(
            (notes[1].address, notes[1].semaphore, notes[1].arguments.len()),
            (0x1120, Some(0x3100), 2)
        );
        for length in 0..bytes.len() - 8 {
            assert!(parse(&bytes[..length], 0, Arch::X86_64).len() < 2);
        }
    }
}
