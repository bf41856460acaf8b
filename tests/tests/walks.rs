//! The walk in the kernel takes the same way whichever loop carries it.

use lightfoot_tests::{Lightfoot, Report, privileged};

/// Stacks from the program's entry down to the function that burns, and the share of samples that took them.
fn look(options: &str, command: &str, arguments: &str, through: &str) -> (Vec<String>, f64) {
    let report: Report = Lightfoot::new(&format!("profile -F 499 --no-kernel {options}"))
        .command(command, arguments)
        .report(0);
    let n = report.through(through);
    assert!(n > 100, "{options} {command}: {n} samples");
    let mut stacks: Vec<(u64, Vec<String>)> = report
        .stacks
        .iter()
        .filter(|stack| stack.through(through) && stack.outcome == "complete")
        .map(|stack| {
            let end = stack.frames.iter().position(|frame| frame == through).expect("it goes through it");
            (stack.count, stack.frames[..=end].to_vec())
        })
        .collect();
    let whole: u64 = stacks.iter().map(|(count, _)| count).sum();
    stacks.sort();
    (stacks.pop().expect("a stack").1, whole as f64 / n as f64)
}

/// `bpf_loop` (Linux 5.17) and plain loops over functions that are verified by themselves (older kernels): the same stacks.
#[test]
fn plain_loops_find_the_same_stacks() {
    let Some(_turn) = privileged("plain_loops_find_the_same_stacks") else { return };
    for (command, arguments, through) in
        [("deep", "300 --seconds 2", "deep_leaf"), ("nofp", "--seconds 2", "nofp_hot")]
    {
        let (by_loop, whole_by_loop) = look("", command, arguments, through);
        let (plainly, whole_plainly) = look("--plain-loops", command, arguments, through);
        assert_eq!(by_loop, plainly, "{command}");
        assert!(by_loop.len() > 3 && by_loop[0] == "_start", "{by_loop:?}");
        assert!(whole_by_loop > 0.99 && whole_plainly > 0.99, "{command}: {whole_by_loop} {whole_plainly}");
    }
}
