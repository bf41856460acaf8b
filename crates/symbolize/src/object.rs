//! Names in one object.

use crate::elf::Elf;
use crate::frame_index::function_starts;
use crate::symbols;
use crate::{Batch, Named, ObjectSource, Options, debug_file, dwarf, plt};

/// Names for `file_offsets`: from the debug information where it is there and small enough, else from the symbol tables.
pub(crate) fn object(source: &ObjectSource<'_>, file_offsets: &[u64], options: &Options) -> Batch {
    let elf = match Elf::parse(source.file) {
        Ok(elf) => elf,
        Err(reason) => return Batch::unknown(file_offsets.len(), reason),
    };
    let debug_file = debug_file::find(&elf, source.display_path);
    let debug_elf = debug_file.as_ref().and_then(|file| Elf::parse(file).ok());
    let with_debug_info = [(Some(&elf), Some(source.file)), (debug_elf.as_ref(), debug_file.as_ref())]
        .into_iter()
        .find_map(|(elf, file)| elf.filter(|elf| options.debug_info && dwarf::present(elf)).zip(file));
    let shared_file = with_debug_info.and_then(|(elf, file)| debug_file::find_shared(elf, file));
    let shared_elf = shared_file.as_ref().and_then(|file| Elf::parse(file).ok());
    names(&elf, debug_elf.as_ref(), shared_elf.as_ref(), file_offsets, options)
}

/// Names for `file_offsets` in an object, its separate debug file, and what that shares with others.
pub(crate) fn names(
    elf: &Elf<'_>,
    debug_elf: Option<&Elf<'_>>,
    shared_elf: Option<&Elf<'_>>,
    file_offsets: &[u64],
    options: &Options,
) -> Batch {
    let virtual_addresses: Vec<Option<u64>> =
        file_offsets.iter().map(|&offset| elf.address_of(offset)).collect();
    let mut addresses: Vec<u64> = virtual_addresses.iter().copied().flatten().collect();
    addresses.sort_unstable();
    addresses.dedup();

    let files: Vec<&Elf<'_>> = [Some(elf), debug_elf].into_iter().flatten().collect();
    let mut named: Vec<Named> = symbols::find(&files, &addresses)
        .into_iter()
        .zip(&addresses)
        .map(|(symbol, &address)| symbol.or_else(|reason| plt::find(elf, address).ok_or(reason)).into())
        .collect();

    let mut note = None;
    if options.debug_info
        && let Some(elf) = files.iter().find(|elf| dwarf::present(elf))
    {
        note = dwarf::improve(elf, shared_elf, &addresses, &mut named, options).err();
    }

    let of_offset = |address: &Option<u64>| match address.map(|address| addresses.binary_search(&address)) {
        Some(Ok(at)) => named[at].clone(),
        _ => Named::Unknown { reason: symbols::NOT_LOADED },
    };
    let named: Vec<Named> = virtual_addresses.iter().map(of_offset).collect();
    let function_starts = starts_of_unnamed(elf, file_offsets, &virtual_addresses, &named);
    Batch { named, function_starts, note }
}

/// See [`Batch::function_starts`].
fn starts_of_unnamed(
    elf: &Elf<'_>,
    file_offsets: &[u64],
    virtual_addresses: &[Option<u64>],
    named: &[Named],
) -> Vec<Option<u64>> {
    let unnamed: Vec<usize> = (0..named.len())
        .filter(|&at| matches!(named[at], Named::Unknown { .. }) && virtual_addresses[at].is_some())
        .collect();
    if unnamed.is_empty() {
        return Vec::new();
    }
    let addresses: Vec<u64> = unnamed.iter().filter_map(|&at| virtual_addresses[at]).collect();
    let mut starts = vec![None; named.len()];
    for ((&at, &address), start) in unnamed.iter().zip(&addresses).zip(function_starts(elf, &addresses)) {
        // Within a section address and file offset run in parallel.
        starts[at] = start.and_then(|start| file_offsets[at].checked_sub(address - start));
    }
    starts
}
