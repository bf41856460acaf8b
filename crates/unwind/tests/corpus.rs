//! The fuzz targets' checks over their corpus and fixed mutations of it.

#[path = "../../../fuzz/mutations.rs"]
mod mutations;

use lightfoot_unwind::check;

#[test]
fn elf_files() {
    mutations::run("unwind_elf", 2000, check::elf);
}

#[test]
fn call_frame_sections() {
    mutations::run("eh_frame", 5000, check::eh_frame);
}

#[test]
fn go_tables() {
    mutations::run("gopclntab", 5000, check::gopclntab);
}

#[test]
fn cached_tables() {
    mutations::run("unwind_cache", 2000, check::cache);
}

#[test]
fn frozen_walks() {
    mutations::run("frozen_walk", 1000, check::frozen);
}

/// A change of the format must not leave the corpus behind: everything would be refused, and nothing tested.
#[test]
fn the_corpus_is_of_todays_format() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let table = std::fs::read(folder.join("unwind_cache/small")).unwrap();
    assert!(lightfoot_unwind::Table::decode(&table, b"key").is_ok_and(|table| table.rows.len() > 10));
    let walk = std::fs::read(folder.join("frozen_walk/one-object")).unwrap();
    assert!(lightfoot_unwind::Frozen::decode(&walk).is_ok_and(|walk| walk.found.frames.len() > 2));
}
