//! Names, lines and inlined functions through blazesym.

use crate::{Batch, Named, NamedFrame, ObjectSource, Options};
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Reason, Sym, Symbolized, Symbolizer};
use std::os::fd::AsRawFd;

pub(crate) fn object(source: &ObjectSource<'_>, file_offsets: &[u64], options: &Options) -> Batch {
    let elf = Elf {
        debug_syms: options.debug_info,
        ..Elf::new(format!("/proc/self/fd/{}", source.file.as_raw_fd()))
    };
    let symbolizer = Symbolizer::builder().enable_auto_reload(false).build();
    match symbolizer.symbolize(&Source::Elf(elf), Input::FileOffset(file_offsets)) {
        Ok(symbols) => Batch { named: symbols.iter().map(named).collect(), note: None },
        Err(_) => Batch::unknown(file_offsets.len(), "not an ELF file"),
    }
}

pub(crate) fn named(symbol: &Symbolized<'_>) -> Named {
    match symbol {
        Symbolized::Sym(symbol) => Named::Known { frames: frames(symbol) },
        Symbolized::Unknown(reason) => Named::Unknown {
            reason: match reason {
                Reason::MissingSyms => "no symbol table",
                _ => "address between symbols",
            },
        },
    }
}

fn frames(symbol: &Sym<'_>) -> Vec<NamedFrame> {
    let frame = |name: &str, code: Option<&CodeInfo<'_>>, inlined: bool| NamedFrame {
        name: name.to_owned(),
        file: code.map(|code| code.to_path().to_string_lossy().into_owned()),
        line: code.and_then(|code| code.line).unwrap_or(0),
        address: symbol.addr,
        inlined,
    };
    let outer = frame(&symbol.name, symbol.code_info.as_deref(), false);
    let inner = symbol.inlined.iter().map(|inner| frame(&inner.name, inner.code_info.as_ref(), true));
    std::iter::once(outer).chain(inner).collect()
}
