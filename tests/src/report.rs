//! The JSON of a profile, as its reader sees it (schema `lightfoot.profile/1`).

use serde_json::Value;
use std::collections::BTreeMap;

/// `fired = recorded + filtered + throttled + lost + failed`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accounting {
    /// Times the program ran.
    pub fired: u64,
    /// Samples in the profile.
    pub recorded: u64,
    /// Not asked for.
    pub filtered: u64,
    /// Held back for the budget.
    pub throttled: u64,
    /// No room.
    pub lost: u64,
    /// Not possible.
    pub failed: u64,
    /// `failed` by reason.
    pub reasons: BTreeMap<String, u64>,
}

/// Equal stacks of one thread.
#[derive(Clone, Debug)]
pub struct Stack {
    /// Names, root first.
    pub frames: Vec<String>,
    /// Rows of the frame table, same order.
    pub frame_ids: Vec<usize>,
    /// CPU time that the samples stand for, in ns.
    pub weight_ns: u64,
    /// Number of samples.
    pub count: u64,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Thread name.
    pub comm: String,
    /// How the walk ended.
    pub outcome: String,
}

impl Stack {
    /// Whether a function is anywhere in the stack.
    pub fn through(&self, name: &str) -> bool {
        self.frames.iter().any(|frame| frame == name)
    }
}

/// How a stack can end (`model::StackOutcome`).
const OUTCOMES: [&str; 11] = [
    "complete",
    "truncated",
    "frame_pointer_broken",
    "unreadable",
    "not_mapped",
    "no_rows_yet",
    "no_rows",
    "unsupported_rule",
    "not_growing",
    "register_unknown",
    "no_mapping_found",
];

/// A parsed profile.
#[derive(Clone, Debug)]
pub struct Report {
    /// All of it, for fields that have no accessor.
    pub json: Value,
    /// The outcome of every firing.
    pub accounting: Accounting,
    /// Stacks.
    pub stacks: Vec<Stack>,
}

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("{field} is not a whole number: {}", value[field]))
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_else(|| panic!("{field} is not a string: {}", value[field])).to_string()
}

impl Report {
    /// Reads a profile and checks what holds for every one: schema, identity, sums.
    ///
    /// # Panics
    /// If anything of it does not hold.
    #[track_caller]
    pub fn parse(bytes: &[u8]) -> Report {
        let json: Value = serde_json::from_slice(bytes).unwrap_or_else(|e| {
            panic!("{e} in {:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(400)]))
        });
        assert_eq!(json["schema"], "lightfoot.profile/1");
        let a = &json["accounting"];
        let accounting = Accounting {
            fired: number(a, "fired"),
            recorded: number(a, "recorded"),
            filtered: number(a, "filtered"),
            throttled: number(a, "throttled"),
            lost: number(a, "lost"),
            failed: number(a, "failed"),
            reasons: a["reasons"]
                .as_object()
                .expect("reasons")
                .iter()
                .map(|(reason, count)| (reason.clone(), count.as_u64().expect("count of a reason")))
                .collect(),
        };
        let stacks = json["stacks"]
            .as_array()
            .expect("stacks")
            .iter()
            .map(|s| Stack {
                frames: s["frames"]
                    .as_array()
                    .expect("frames")
                    .iter()
                    .map(|frame| frame.as_str().expect("frame name").to_string())
                    .collect(),
                frame_ids: s["frame_ids"]
                    .as_array()
                    .expect("frame_ids")
                    .iter()
                    .map(|id| id.as_u64().expect("frame id") as usize)
                    .collect(),
                weight_ns: number(s, "weight_ns"),
                count: number(s, "count"),
                pid: number(s, "pid") as u32,
                tid: number(s, "tid") as u32,
                comm: text(s, "comm"),
                outcome: text(s, "outcome"),
            })
            .collect();
        let report = Report { json, accounting, stacks };
        report.check();
        report
    }

    #[track_caller]
    fn check(&self) {
        let a = &self.accounting;
        assert_eq!(a.fired, a.recorded + a.filtered + a.throttled + a.lost + a.failed, "the identity: {a:?}");
        assert_eq!(a.failed, a.reasons.values().sum::<u64>(), "each failure has a reason: {a:?}");
        assert_eq!(a.recorded, self.count(|_| true), "recorded samples are in the stacks");
        let frames = self.json["frames"].as_array().expect("frames");
        for stack in &self.stacks {
            assert_eq!(stack.frames.len(), stack.frame_ids.len());
            for (name, &id) in stack.frames.iter().zip(&stack.frame_ids) {
                assert_eq!(Some(name.as_str()), frames[id]["name"].as_str(), "frame {id}");
            }
            assert!(OUTCOMES.contains(&stack.outcome.as_str()), "outcome {}", stack.outcome);
        }
        for frame in frames {
            if frame["kind"] == "unknown" {
                assert_ne!(text(frame, "note"), "", "a frame without a name says why: {frame}");
                assert!(
                    text(frame, "name").starts_with('['),
                    "a frame without a name is [file+0xoffset]: {frame}"
                );
            }
        }
        let cost = &self.json["cost"];
        assert_eq!(
            number(cost, "total_ns"),
            number(cost, "interrupt_ns") + number(cost, "bpf_ns") + number(cost, "user_ns"),
            "the cost is the sum of its parts"
        );
        assert!(
            number(cost, "peak_rss_bytes") > 0
                && number(cost, "bpf_map_bytes") > 0
                && number(cost, "user_ns") > 0
        );
    }

    /// Samples of the stacks that `which` selects.
    pub fn count(&self, which: impl Fn(&Stack) -> bool) -> u64 {
        self.stacks.iter().filter(|stack| which(stack)).map(|stack| stack.count).sum()
    }

    /// Samples with a function anywhere in their stack.
    pub fn through(&self, name: &str) -> u64 {
        self.count(|stack| stack.through(name))
    }

    /// Share of function `name` among the samples of all of `names`.
    pub fn share(&self, name: &str, names: &[&str]) -> f64 {
        let all = self.count(|stack| names.iter().any(|n| stack.through(n)));
        self.through(name) as f64 / all.max(1) as f64
    }

    /// The row of the frame table with this name that most samples go through.
    pub fn frame(&self, name: &str) -> Option<&Value> {
        let frames = self.json["frames"].as_array()?;
        (0..frames.len())
            .filter(|&id| frames[id]["name"] == name)
            .max_by_key(|id| self.count(|stack| stack.frame_ids.contains(id)))
            .map(|id| &frames[id])
    }

    /// Kind of the frame at `position` of `stack`.
    pub fn kind(&self, stack: &Stack, position: usize) -> &str {
        self.json["frames"][stack.frame_ids[position]]["kind"].as_str().unwrap_or("")
    }

    /// Frames of interpreters in all samples: those with a name, and those whose process was gone before it was read.
    pub fn interpreted_frames(&self) -> (u64, u64) {
        let table = &self.json["frames"];
        let count = |which: &dyn Fn(&Value) -> bool| -> u64 {
            let of = |stack: &Stack| stack.frame_ids.iter().filter(|id| which(&table[**id])).count() as u64;
            self.stacks.iter().map(|stack| stack.count * of(stack)).sum()
        };
        let named = count(&|frame| frame["kind"] == "python" || frame["kind"] == "ruby");
        let gone =
            count(&|frame| frame["note"].as_str().is_some_and(|note| note.contains("gone before its name")));
        (named, gone)
    }

    /// A whole number in `cost`.
    pub fn cost(&self, field: &str) -> u64 {
        number(&self.json["cost"], field)
    }

    /// What the heaviest stacks look like, for messages. Names only of the processes that `which` selects.
    pub fn heaviest(&self, which: impl Fn(&Stack) -> bool) -> String {
        let mut stacks: Vec<&Stack> = self.stacks.iter().filter(|stack| which(stack)).collect();
        stacks.sort_by_key(|stack| std::cmp::Reverse(stack.count));
        let lines = stacks.iter().take(8).map(|stack| {
            let frames = &stack.frames[stack.frames.len().saturating_sub(12)..];
            format!("{:6} {} {} [{}]\n", stack.count, stack.comm, frames.join(";"), stack.outcome)
        });
        lines.collect()
    }
}
