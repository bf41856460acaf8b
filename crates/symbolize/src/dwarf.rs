//! Lines and inlined functions through blazesym.

use crate::names::pretty;
use crate::{Named, NamedFrame};
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Replaces what is known about `addresses` (ELF virtual addresses) by what the debug information in `file` says, where it
/// says something. All of blazesym's state is gone when this returns.
///
/// # Errors
/// A note: nothing was changed.
pub(crate) fn improve(file: &File, addresses: &[u64], named: &mut [Named]) -> Result<(), &'static str> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // blazesym is known to be careful, but its input is foreign: a panic in it must not end the run.
    let result = catch_unwind(AssertUnwindSafe(|| {
        // Separate debug files were looked for already; names are demangled here, with a bound.
        let symbolizer = Symbolizer::builder()
            .enable_auto_reload(false)
            .enable_demangling(false)
            .set_debug_dirs(Some([] as [&Path; 0]))
            .build();
        let source = Source::Elf(Elf::new(path));
        let symbols = symbolizer
            .symbolize(&source, Input::VirtOffset(addresses))
            .map_err(|_| "debug information unreadable")?;
        Ok(symbols
            .iter()
            .map(|symbol| match symbol {
                Symbolized::Sym(symbol) => Some(frames(symbol)),
                Symbolized::Unknown(_) => None,
            })
            .collect::<Vec<_>>())
    }));
    let found = result.map_err(|_| "symbolizer failed")??;
    for (named, frames) in named.iter_mut().zip(found) {
        if let Some(mut frames) = frames {
            // The symbol table's name is kept where there is one: the linker's view of the real function, and the same as
            // in a run without debug information.
            if let Named::Known { frames: symbols } = named
                && let [symbol, ..] = &symbols[..]
            {
                frames[0].name.clone_from(&symbol.name);
                frames.iter_mut().for_each(|frame| frame.address = symbol.address);
            }
            *named = Named::Known { frames };
        }
    }
    Ok(())
}

fn frames(symbol: &Sym<'_>) -> Vec<NamedFrame> {
    let frame = |name: &str, code: Option<&CodeInfo<'_>>, inlined: bool| NamedFrame {
        name: pretty(name.as_bytes()),
        file: code.map(|code| code.to_path().to_string_lossy().into_owned()),
        line: code.and_then(|code| code.line).unwrap_or(0),
        address: symbol.addr,
        inlined,
    };
    let outer = frame(&symbol.name, symbol.code_info.as_deref(), false);
    let inner = symbol.inlined.iter().map(|inner| frame(&inner.name, inner.code_info.as_ref(), true));
    std::iter::once(outer).chain(inner).collect()
}
