//! Names as people know them.

pub(crate) use lightfoot_process::perf_map::printable;
use std::cmp::Ordering;
use std::fmt::{self, Write};

/// Longest demangled name, in bytes: a short mangled name can stand for an endless one.
const PRETTY_BYTES: usize = 4096;

/// Demangles Rust and C++ names and replaces what a terminal would obey. Names that cannot be demangled stay as they are.
pub(crate) fn pretty(mangled: &[u8]) -> String {
    let name = std::str::from_utf8(mangled).ok().and_then(demangle).filter(|name| !name.is_empty());
    printable(name.as_deref().map_or(mangled, str::as_bytes), PRETTY_BYTES)
}

/// Orders names of one function: fewer leading underscores first, then the shorter, then by the alphabet.
pub(crate) fn plainer(a: &[u8], b: &[u8]) -> Ordering {
    let key = |name: &[u8]| (name.iter().take_while(|&&byte| byte == b'_').count(), name.len());
    key(a).cmp(&key(b)).then_with(|| a.cmp(b))
}

fn demangle(mangled: &str) -> Option<String> {
    if !mangled.starts_with("_Z") && !mangled.starts_with("_R") {
        return None;
    }
    let mut pretty = Bounded(String::new());
    if let Ok(name) = rustc_demangle::try_demangle(mangled) {
        // The alternate form leaves out the hash.
        return write!(pretty, "{name:#}").is_ok().then_some(pretty.0);
    }
    let symbol = cpp_demangle::Symbol::new(mangled).ok()?;
    symbol
        .structured_demangle(&mut pretty, &cpp_demangle::DemangleOptions::default())
        .is_ok()
        .then_some(pretty.0)
}

/// Text that stops growing.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > PRETTY_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_and_cpp_names() {
        let check = |mangled: &str, expected: &str| assert_eq!(pretty(mangled.as_bytes()), expected);
        check("main", "main");
        check("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write");
        check("_RNvCs1234_7mycrate3foo", "mycrate::foo");
        check(
            "_ZNSt6vectorIiSaIiEE9push_backEOi",
            "std::vector<int, std::allocator<int> >::push_back(int&&)",
        );
        check("_Znonsense", "_Znonsense");
        check("evil\x1b[2J", "evil\u{fffd}[2J");
    }

    #[test]
    fn names_that_grow_without_end_stay_mangled() {
        // Each tuple doubles the one before.
        let bomb = format!("_Z1f{}", "St5tupleIJ".repeat(40) + &"S_S_EE".repeat(40));
        assert!(pretty(bomb.as_bytes()).len() <= PRETTY_BYTES);
    }
}
