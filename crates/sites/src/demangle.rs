//! Names as the source has them: C++ and Rust.

use std::fmt::{self, Write};

/// Longest demangled name: a short mangled name can stand for an endless one.
const BYTES_MAX: usize = 4096;

/// The name as the source has it, with the types of the arguments for C++; `None` if it is not mangled.
pub(crate) fn demangle(mangled: &str) -> Option<String> {
    if !mangled.starts_with("_Z") && !mangled.starts_with("_R") {
        return None;
    }
    let mut name = Bounded(String::new());
    if let Ok(rust) = rustc_demangle::try_demangle(mangled) {
        // The alternate form leaves out the hash.
        return write!(name, "{rust:#}").is_ok().then_some(name.0);
    }
    let symbol = cpp_demangle::Symbol::new(mangled).ok()?;
    let options = cpp_demangle::DemangleOptions::default();
    symbol.structured_demangle(&mut name, &options).is_ok().then_some(name.0)
}

/// A demangled name without its arguments: `ns::f` for `int ns::f<int>(int) const`'s `int ns::f<int>`.
pub(crate) fn without_arguments(name: &str) -> &str {
    let mut rest = name.trim_end();
    loop {
        let shorter =
            [" const", " volatile", " &&", " &", "&&", "&"].iter().find_map(|end| rest.strip_suffix(end));
        match shorter {
            Some(shorter) => rest = shorter.trim_end(),
            None => break,
        }
    }
    if !rest.ends_with(')') {
        return name;
    }
    let mut depth = 0_usize;
    for (at, byte) in rest.bytes().enumerate().rev() {
        match byte {
            b')' => depth += 1,
            b'(' => {
                depth -= 1;
                if depth == 0 {
                    // `(anonymous namespace)` and `operator()` alone are names.
                    return if at == 0 || rest[..at].ends_with("operator") && !rest.ends_with(")()") {
                        name
                    } else {
                        &rest[..at]
                    };
                }
            }
            _ => {}
        }
    }
    name
}

/// Whether a demangled name is the one asked for: whole, without arguments, or also without the type of its result.
pub(crate) fn is_called(demangled: &str, asked: &str) -> bool {
    let plain = without_arguments(demangled);
    demangled == asked
        || plain == asked
        || plain.strip_suffix(asked).is_some_and(|before| before.ends_with(' '))
}

/// Text that stops growing.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > BYTES_MAX {
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
    fn names_of_the_source() {
        assert_eq!(demangle("main"), None);
        assert_eq!(demangle("_ZN4core3fmt5write17h0123456789abcdefE").as_deref(), Some("core::fmt::write"));
        assert_eq!(
            demangle("_ZNSt6vectorIiSaIiEE9push_backEOi").as_deref(),
            Some("std::vector<int, std::allocator<int> >::push_back(int&&)")
        );
        let bomb = format!("_Z1f{}", "St5tupleIJ".repeat(40) + &"S_S_EE".repeat(40));
        assert!(demangle(&bomb).is_none_or(|name| name.len() <= BYTES_MAX));
    }

    #[test]
    fn a_name_without_its_arguments() {
        let check = |name, expected| assert_eq!(without_arguments(name), expected);
        check("ns::f(int, char)", "ns::f");
        check("ns::C::f(void (*)(int)) const", "ns::C::f");
        check("f()::{lambda(int)#1}::operator()(int) const", "f()::{lambda(int)#1}::operator()");
        check("(anonymous namespace)::f()", "(anonymous namespace)::f");
        check("core::fmt::write", "core::fmt::write");
        check("", "");
        check(")", ")");
    }

    #[test]
    fn how_a_function_may_be_called() {
        assert!(is_called("ns::f(int)", "ns::f"));
        assert!(is_called("ns::f(int)", "ns::f(int)"));
        assert!(is_called("int f<int>(int)", "f<int>"));
        assert!(!is_called("ns::f(int)", "f"));
        assert!(!is_called("ns::ff(int)", "ns::f"));
    }
}
