//! Unwind debt: which object lost how many stacks, why, and what would help.

use crate::library::Library;
use crate::stacks::{Stacks, file_key};
use lightfoot_kernel::abi::{VDSO_DEVICE, interpreter_outcome};
use lightfoot_model::{Debt, StackOutcome};
use lightfoot_process::Processes;
use std::collections::BTreeMap;

/// The debt of a run, most samples first.
pub(crate) fn debt(stacks: &Stacks, library: &Library, processes: &Processes) -> Vec<Debt> {
    let mut by_place: BTreeMap<(String, StackOutcome, String), (u64, u64)> = BTreeMap::new();
    for stack in stacks.iter().filter(|s| s.outcome != StackOutcome::Complete && s.count > 0) {
        let (object, detail) = match stack.ended_in {
            None => (String::new(), String::new()),
            Some(key) if key.inode == 0 && key.device == VDSO_DEVICE => ("[vdso]".into(), String::new()),
            Some(key) if key.inode == 0 => ("[jit]".into(), String::new()),
            Some(key) => {
                let object = processes.object_of(&file_key(&key));
                let path = object.map(|id| processes.objects()[id.0 as usize].path().display().to_string());
                let why = match stack.outcome {
                    StackOutcome::NoRows => library.why_without(&key).unwrap_or_default(),
                    _ => "",
                };
                (path.unwrap_or_default(), why.to_string())
            }
        };
        let entry = by_place.entry((object, stack.outcome, detail)).or_default();
        entry.0 += stack.count;
        entry.1 += stack.weight_ns;
    }
    let mut debt: Vec<Debt> = by_place
        .into_iter()
        .map(|((object, outcome, detail), (count, weight_ns))| Debt {
            object,
            outcome,
            count,
            weight_ns,
            detail,
            remedy: outcome.remedy(),
        })
        .collect();
    debt.sort_by_key(|row| std::cmp::Reverse(row.count));
    debt
}

/// Samples whose interpreter frames are missing or cut, and why: one sentence, if there are any. Their native frames are no debt.
pub(crate) fn interpreter_debt(stacks: &Stacks) -> Option<String> {
    let mut by_reason: BTreeMap<&str, u64> = BTreeMap::new();
    for stack in stacks.iter().filter(|s| s.interpreter_outcome != interpreter_outcome::FINE) {
        let reason = match stack.interpreter_outcome {
            interpreter_outcome::NO_THREAD => "the interpreter's state of the thread was not found",
            interpreter_outcome::UNREADABLE => "the interpreter's memory could not be read",
            interpreter_outcome::TOO_MANY => "there were more frames than are kept",
            interpreter_outcome::INCONSISTENT => "the interpreter was caught in the middle of a change",
            interpreter_outcome::NOT_YET => "the interpreter was being prepared",
            _ => "for a reason that this version does not know",
        };
        *by_reason.entry(reason).or_default() += stack.count;
    }
    by_reason.retain(|_, count| *count > 0);
    let reasons: Vec<String> = by_reason.iter().map(|(why, count)| format!("{why} ({count})")).collect();
    let all: u64 = by_reason.values().sum();
    (all > 0)
        .then(|| format!("in {all} samples frames of Python or Ruby are missing: {}", reasons.join(", ")))
}
