//! The fuzz targets' checks over their corpus and fixed mutations of it.

#[path = "../../../fuzz/mutations.rs"]
mod mutations;

#[test]
fn proc_maps() {
    mutations::run("proc_maps", 2000, lightfoot_process::check::proc_maps);
}

#[test]
fn perf_map() {
    mutations::run("perf_map", 2000, lightfoot_process::check::perf_map);
}
