//! The fuzz targets' checks over their corpus and fixed mutations of it.

#[path = "../../../fuzz/mutations.rs"]
mod mutations;

#[test]
fn kallsyms() {
    mutations::run("kallsyms", 2000, lightfoot_symbolize::check::kallsyms);
}

#[test]
fn elf_symbols() {
    mutations::run("elf_symbols", 5000, lightfoot_symbolize::check::elf_symbols);
}

#[test]
fn debug_info() {
    mutations::run("debug_info", 1500, lightfoot_symbolize::check::debug_info);
}
