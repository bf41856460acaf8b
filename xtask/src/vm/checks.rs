//! Checks that need more than a shell: they look at the files that a guest test left in `$OUT`.
use super::report::{Outcome, TestRun};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;

/// Applies the check of this test, if it has one, to a run that passed so far. A check returns what it found, in a line.
pub fn judge(name: &str, mut run: TestRun) -> TestRun {
    let check: fn(&BTreeMap<String, Vec<u8>>) -> Result<String> = match name {
        "profile" => profile,
        "weigh" => weigh,
        _ => return run,
    };
    if run.outcome == Outcome::Passed {
        match check(&run.files) {
            Ok(found) => run.found = found,
            Err(error) => run.outcome = Outcome::Failed(format!("{error:#}")),
        }
    }
    run
}

/// Samples of the program below which its shares say nothing.
const SAMPLES: u64 = 100;

/// How far, in points, the share `expected` of `samples` may be off: 4.5 standard deviations of a binomial (less than one
/// false alarm in 100,000), plus one point for what the program does besides its work.
fn tolerance(expected: f64, samples: u64) -> f64 {
    let p = expected / 100.0;
    450.0 * (p * (1.0 - p) / samples as f64).sqrt() + 1.0
}

/// `profile.json`: the identity holds, the known split is found, kernel frames have names.
fn profile(files: &BTreeMap<String, Vec<u8>>) -> Result<String> {
    let bytes = files.get("profile.json").context("the test left no profile.json")?;
    let json: Value = serde_json::from_slice(bytes).context("profile.json is not JSON")?;
    identity(&json["accounting"])?;
    let stacks = json["stacks"].as_array().context("no `stacks`")?;
    let stacks: Vec<Stack> = stacks.iter().map(|stack| read_stack(&json, stack)).collect::<Result<_>>()?;

    let split: Vec<&Stack> = stacks.iter().filter(|stack| stack.comm.starts_with("split")).collect();
    let total: u64 = split.iter().map(|stack| stack.weight_ns).sum();
    let samples: u64 = split.iter().map(|stack| stack.count).sum();
    ensure!(samples >= SAMPLES, "{samples} samples of the program `split` are too few to judge its shares");
    let mut found = Vec::new();
    for (function, expected) in [("work_70", 70.0), ("work_20", 20.0), ("work_10", 10.0)] {
        let weight: u64 =
            split.iter().filter(|s| s.frames.iter().any(|f| f.name == function)).map(|s| s.weight_ns).sum();
        let share = weight as f64 * 100.0 / total as f64;
        let allowed = tolerance(expected, samples);
        ensure!(
            (share - expected).abs() <= allowed,
            "{function} has {share:.1} % of the program, expected {expected} %, off by at most {allowed:.1} points with {samples} samples"
        );
        found.push(format!("{share:.1}"));
    }
    let kernel = stacks.iter().flat_map(|stack| &stack.frames).filter(|frame| frame.kind == "kernel");
    let (named, unnamed): (Vec<&Frame>, Vec<&Frame>) = kernel.partition(|frame| !frame.name.starts_with('['));
    ensure!(!named.is_empty(), "no kernel frame has a name");
    ensure!(
        unnamed.len() * 10 <= named.len(),
        "{} of {} kernel frames have no name",
        unnamed.len(),
        unnamed.len() + named.len()
    );
    let kernel = named.len();
    Ok(format!(
        "split {} %, {} samples, {kernel} kernel frames named",
        found.join("/"),
        json["accounting"]["recorded"]
    ))
}

/// `fired = recorded + filtered + throttled + lost + failed`, and something was recorded.
fn identity(accounting: &Value) -> Result<()> {
    let field = |name: &str| accounting[name].as_u64().with_context(|| format!("no `accounting.{name}`"));
    let fired = field("fired")?;
    let mut sum = 0;
    for name in ["recorded", "filtered", "throttled", "lost", "failed"] {
        sum += field(name)?;
    }
    ensure!(fired == sum, "accounting does not balance: fired {fired}, accounted for {sum}");
    ensure!(field("recorded")? > 0, "nothing was recorded");
    Ok(())
}

/// `weigh.json`: each kind of kernel probe is available and costs more than none, and a program that does more costs no less.
fn weigh(files: &BTreeMap<String, Vec<u8>>) -> Result<String> {
    let bytes = files.get("weigh.json").context("the test left no weigh.json")?;
    let json: Value = serde_json::from_slice(bytes).context("weigh.json is not JSON")?;
    ensure!(json["schema"] == "lightfoot.weigh/1", "the schema is {}", json["schema"]);
    let rows = json["rows"].as_array().context("no `rows`")?;
    let cost = |probe: &str, program: &str| -> Result<f64> {
        let row = rows.iter().find(|row| row["probe"] == probe && row["program"] == program);
        let row = row.with_context(|| format!("no row {probe} {program}"))?;
        ensure!(row["available"] == true, "{probe} {program} is not available: {}", row["why"]);
        let ns = row["overhead_ns"].as_f64().with_context(|| format!("no figure: {row}"))?;
        ensure!(ns > 0.0, "{probe} {program} costs {ns} ns");
        Ok(ns)
    };
    let mut found = Vec::new();
    for probe in [
        "kprobe",
        "kretprobe",
        "kprobe_multi",
        "kretprobe_multi",
        "kprobe_session",
        "fentry",
        "fexit",
        "tp_btf",
    ] {
        let (empty, complex) = (cost(probe, "empty")?, cost(probe, "complex")?);
        ensure!(complex >= empty, "{probe}: complex costs {complex} ns, empty {empty} ns");
        found.push(format!("{probe} {empty:.0}/{complex:.0}"));
    }
    Ok(format!("ns empty/complex: {}", found.join(", ")))
}

struct Frame {
    name: String,
    kind: String,
}

struct Stack {
    comm: String,
    weight_ns: u64,
    count: u64,
    frames: Vec<Frame>,
}

/// One entry of `stacks`; its `frame_ids` are indices into the top-level `frames`.
fn read_stack(json: &Value, stack: &Value) -> Result<Stack> {
    let mut frames = Vec::new();
    for id in stack["frame_ids"].as_array().context("a stack has no `frame_ids`")? {
        let frame = id
            .as_u64()
            .and_then(|id| json["frames"].get(id as usize))
            .context("a frame id is out of range")?;
        let text =
            |key: &str| frame[key].as_str().with_context(|| format!("a frame has no `{key}`: {frame}"));
        frames.push(Frame { name: text("name")?.to_owned(), kind: text("kind")?.to_owned() });
    }
    let number = |key: &str| stack[key].as_u64().with_context(|| format!("a stack has no `{key}`"));
    let comm = stack["comm"].as_str().unwrap_or_default().to_owned();
    Ok(Stack { comm, weight_ns: number("weight_ns")?, count: number("count")?, frames })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(recorded: u64, share_70: u64) -> Vec<u8> {
        let frame = |name: &str, kind: &str| format!(r#"{{"name":"{name}","kind":"{kind}"}}"#);
        let stack = |comm: &str, ids: &str, weight: u64| {
            format!(r#"{{"comm":"{comm}","weight_ns":{weight},"count":{weight},"frame_ids":[{ids}]}}"#)
        };
        let functions = [
            ("main", "native"),
            ("work_70", "native"),
            ("work_20", "native"),
            ("work_10", "native"),
            ("vfs_read", "kernel"),
        ];
        format!(
            r#"{{"accounting":{{"fired":10,"recorded":{recorded},"filtered":1,"throttled":0,"lost":0,"failed":0}},
            "frames":[{}],"stacks":[{}]}}"#,
            functions.map(|(name, kind)| frame(name, kind)).join(","),
            [stack("split-0", "0,1", share_70), stack("split", "0,2", 200), stack("split", "0,3", 100), stack("dd", "4", 5)].join(","),
        )
        .into_bytes()
    }

    fn check(json: Vec<u8>) -> Result<String> {
        profile(&BTreeMap::from([("profile.json".to_owned(), json)]))
    }

    #[test]
    fn a_ladder_needs_every_kind_and_right_signs() {
        let ladder = |fexit_complex: f64, fentry_available: bool| {
            let mut rows = Vec::new();
            for probe in [
                "kprobe",
                "kretprobe",
                "kprobe_multi",
                "kretprobe_multi",
                "kprobe_session",
                "fentry",
                "fexit",
                "tp_btf",
            ] {
                for (program, ns) in [("empty", 100.0), ("complex", 300.0)] {
                    let ns = if (probe, program) == ("fexit", "complex") { fexit_complex } else { ns };
                    let available = probe != "fentry" || fentry_available;
                    rows.push(serde_json::json!({
                        "probe": probe, "program": program, "available": available, "overhead_ns": ns, "why": null
                    }));
                }
            }
            let json = serde_json::json!({"schema": "lightfoot.weigh/1", "rows": rows});
            weigh(&BTreeMap::from([("weigh.json".to_owned(), json.to_string().into_bytes())]))
        };
        assert!(ladder(300.0, true).unwrap().contains("fexit 100/300"));
        assert!(ladder(90.0, true).unwrap_err().to_string().contains("fexit"));
        assert!(ladder(-1.0, true).is_err());
        assert!(ladder(300.0, false).unwrap_err().to_string().contains("fentry empty is not available"));
        assert!(weigh(&BTreeMap::new()).is_err());
    }

    #[test]
    fn a_known_split_is_accepted_and_a_wrong_one_is_not() {
        assert!(check(json(9, 700)).unwrap().starts_with("split 70.0/20.0/10.0 %"));
        assert!(check(json(8, 700)).unwrap_err().to_string().contains("balance"));
        assert!(check(json(9, 350)).unwrap_err().to_string().contains("work_70"));
    }
}
