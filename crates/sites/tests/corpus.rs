//! The fuzz targets' checks over their corpus and fixed mutations of it.

#[path = "../../../fuzz/mutations.rs"]
mod mutations;

#[test]
fn probe_elf() {
    mutations::run("probe_elf", 3000, lightfoot_sites::check::elf);
}

#[test]
fn btf() {
    mutations::run("btf", 3000, lightfoot_sites::check::btf);
}
