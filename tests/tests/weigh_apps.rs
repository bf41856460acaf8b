//! `lightfoot weigh --app`: a real server under load, without probes and with them. What is counted adds up, and nothing stays.

use lightfoot_tests::{Lightfoot, Privileged, out_of_reach, privileged, wait_for};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

/// The turn, if the programs are here.
fn turn(name: &str) -> Option<Privileged> {
    let turn = privileged(name)?;
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin:/usr/local/sbin";
    let missing: Vec<&str> = ["nginx", "wrk", "openssl"]
        .into_iter()
        .filter(|program| !path.split(':').any(|folder| Path::new(folder).join(program).exists()))
        .collect();
    if missing.is_empty() {
        return Some(turn);
    }
    out_of_reach(name, &format!("not installed: {}", missing.join(", ")));
    None
}

/// A folder for temporary files that is empty again after the run. Everybody may enter it: the server runs as nobody.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("temporary folder");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("chmod");
    folder
}

#[track_caller]
fn assert_empty(folder: &Path) {
    let left: Vec<_> =
        std::fs::read_dir(folder).expect("folder").flatten().map(|entry| entry.file_name()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// Runs and reads the JSON.
#[track_caller]
fn weigh(arguments: &str) -> Value {
    let folder = folder();
    let run = Lightfoot::new(arguments)
        .args(&["--quick", "-f", "json"])
        .env("TMPDIR", &folder.path().display().to_string())
        .run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    run.assert_was_watched();
    assert_empty(folder.path());
    serde_json::from_slice(&run.stdout).expect("JSON")
}

/// The row of a variant.
#[track_caller]
fn row<'a>(report: &'a Value, variant: &str) -> &'a Value {
    let rows = report["rows"].as_array().expect("rows");
    let row = rows.iter().find(|row| row["variant"] == variant);
    let row = row.unwrap_or_else(|| panic!("{variant} is not in {rows:?}"));
    assert_eq!(row["available"], true, "{variant}: {}", row["why"]);
    row
}

#[track_caller]
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

#[test]
fn calls_of_openssl_are_seen_wherever_the_probes_stand() {
    let Some(_turn) = turn("calls_of_openssl_are_seen_wherever_the_probes_stand") else { return };
    let report = weigh("weigh --app tls --sizes 1K --connections 8");
    assert_eq!((&report["schema"], &report["app"]), (&"lightfoot.weigh-app/1".into(), &"tls".into()));
    let none = row(&report, "none");
    assert!(none["drop_percent"].is_null() && number(&none["seen"]["fired"]) == 0, "{none}");
    for variant in ["naive", "chosen"] {
        let row = row(&report, variant);
        let (seen, requests) = (&row["seen"], number(&row["requests"]));
        assert!(number(&row["blocks"]) >= 3 && requests > 0, "{row}");
        assert!(
            row["drop_percent"]["value"].is_number() && row["added_ns_per_request"]["ci95"].is_array(),
            "{row}"
        );
        // Each event that was sent has come, and none was lost.
        assert_eq!(number(&seen["sent"]), number(&seen["received"]), "{row}");
        assert_eq!(number(&seen["counted"]), number(&seen["sent"]) + number(&seen["lost"]), "{row}");
        // The server counts a request when it begins. Those of a block were answered before the probes went, but for at most one of each
        // connection; each answer of 1 KB is one call of SSL_write.
        let begun = 8 * number(&row["blocks"]);
        let writes = number(&seen["writes"]);
        assert!(writes + begun >= requests, "{row}");
        let bytes = number(&seen["bytes_written"]);
        assert!(bytes >= writes * 1024 && bytes < writes * 2048, "{row}");
        // A read for each request. Single perf events come and go one after the other: then reads and writes are not seen for the same time.
        let reads = number(&seen["counted"]) - writes;
        assert!(reads > 0 && (variant == "naive" || reads + begun >= writes), "{row}");
        // Each call is an entry and an end.
        assert!(number(&seen["fired"]) >= 2 * number(&seen["counted"]), "{row}");
    }
}

#[test]
fn system_calls_are_told_apart_in_the_kernel_and_in_user_space() {
    let Some(_turn) = turn("system_calls_are_told_apart_in_the_kernel_and_in_user_space") else { return };
    let report = weigh("weigh --app syscount --connections 8");
    assert_eq!(report["app"], "syscount");
    for variant in ["traced", "traced_perf"] {
        let row = row(&report, variant);
        let (seen, begun) = (&row["seen"], 8 * number(&row["blocks"]));
        // At least a read and a write for each request.
        assert!(number(&seen["counted"]) + 2 * begun >= 2 * number(&row["requests"]), "{row}");
        assert_eq!(number(&seen["fired"]), number(&seen["counted"]) + number(&seen["filtered"]), "{row}");
    }
    for variant in ["other_kernel", "other_perf"] {
        let seen = &row(&report, variant)["seen"];
        assert_eq!(number(&seen["counted"]), 0, "the other process sleeps: {seen}");
        assert!(number(&seen["filtered"]) > 0 && number(&seen["sent"]) == 0, "{seen}");
    }
    let seen = &row(&report, "other_user")["seen"];
    assert!(number(&seen["received"]) > 0, "{seen}");
    assert_eq!(number(&seen["sent"]), number(&seen["received"]), "{seen}");
    assert_eq!(number(&seen["dropped"]), number(&seen["received"]), "{seen}");
    assert_eq!(number(&seen["lost"]), 0, "{seen}");
    let calls = report["calls"].as_array().expect("calls");
    assert_eq!(calls.len(), 4);
    for row in calls {
        assert!(row["available"] == true && row["added_ns"]["value"].is_number(), "{row}");
    }
    assert!(number(&calls[1]["probes"]) > 300, "all entries: {}", calls[1]);
}

#[test]
fn a_table_says_what_was_done() {
    let Some(_turn) = turn("a_table_says_what_was_done") else { return };
    let run = Lightfoot::new("weigh --app tls --sizes 4K --quick").run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let said = String::from_utf8(run.stdout).expect("text");
    for word in ["4 KB", "  none", "  naive", "  chosen", "SSL_write", "nginx/", "wrk ", "3 rounds only"] {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
}

/// Whoever asks it to end finds no server, no load and no folder afterwards.
#[test]
fn an_early_end_leaves_nothing() {
    let Some(_turn) = turn("an_early_end_leaves_nothing") else { return };
    let folder = folder();
    let mut running = Lightfoot::new("weigh --app tls --sizes 1K --time 60s -f json")
        .env("TMPDIR", &folder.path().display().to_string())
        .spawn();
    running.attached();
    running.signal(libc::SIGINT);
    let run = running.wait(); // fails if a process or an object is left
    // Whether a round was complete by then is chance.
    assert!(matches!(run.code, Some(3 | 1)), "{:?} {}", run.code, run.stderr);
    assert_empty(folder.path());
}

/// Killed outright: the server and the load end with it, and so do its probes. Only the folder stays.
#[test]
fn sigkill_leaves_no_process() {
    let Some(_turn) = turn("sigkill_leaves_no_process") else { return };
    let folder = folder();
    let mut running = Lightfoot::new("weigh --app syscount --time 60s")
        .env("TMPDIR", &folder.path().display().to_string())
        .spawn();
    running.attached();
    let children = || children_of(running.pid());
    assert!(
        wait_for(Duration::from_secs(20), || children().len() >= 3),
        "server, load and the other: {:?}",
        children()
    );
    let started = children();
    running.signal(libc::SIGKILL);
    let gone = |pid: &u32| !Path::new(&format!("/proc/{pid}")).exists();
    assert!(wait_for(Duration::from_secs(20), || started.iter().all(gone)), "{started:?}");
    let run = running.wait();
    assert_eq!(run.signal, Some(libc::SIGKILL));
}

fn children_of(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn missing_programs_are_named_with_their_packages() {
    let Some(_turn) = privileged("missing_programs_are_named_with_their_packages") else { return };
    let nothing = tempfile::tempdir().expect("temporary folder");
    for app in ["tls", "syscount"] {
        let run = Lightfoot::new(&format!("weigh --app {app} --quick"))
            .env("PATH", &nothing.path().display().to_string())
            .run();
        run.assert_fails(4, &["apt-get install", "wrk"]);
    }
}

#[test]
fn wrong_words() {
    for (arguments, words) in [
        ("weigh --app redis", &["--app", "tls"][..]),
        ("weigh --app tls --sizes 0", &["--sizes", "16K"]),
        ("weigh --app tls --sizes 1G", &["--sizes"]),
        ("weigh --app tls --time 1d", &["--time"]),
        ("weigh --app tls --time 2h", &["--time", "1h"]),
        ("weigh --app tls --time 10s --quick", &["--quick"]),
        ("weigh --sizes 1K", &["--app"]),
        ("weigh --app tls --connections 0", &["--connections"]),
        ("weigh --app tls uprobe:/bin/sh:main", &["--app"]),
        ("weigh --app tls -o /tmp/x.html", &[".svg"]),
    ] {
        Lightfoot::new(arguments).run().assert_fails(2, words);
    }
}
