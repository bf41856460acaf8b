//! The parts of the command line that need no privilege.

use lightfoot_tests::Lightfoot;
use serde_json::Value;

#[test]
fn help_and_version_go_to_stdout() {
    for arguments in [
        "--help",
        "-h",
        "help",
        "profile --help",
        "profile -h",
        "system-info --help",
        "weigh --help",
        "--version",
        "-V",
    ] {
        let run = Lightfoot::new(arguments).run();
        assert_eq!(run.code, Some(0), "{arguments}: {}", run.stderr);
        assert!(!run.stdout.is_empty() && run.stderr.is_empty(), "{arguments}");
    }
}

/// Every documented option of `profile` is in its help.
#[test]
fn help_names_every_option() {
    let run = Lightfoot::new("profile --help").run();
    let help = String::from_utf8_lossy(&run.stdout).into_owned();
    for option in [
        "--pid",
        "-p",
        "-a",
        "--cgroup",
        "-d",
        "-F",
        "-o",
        "-f",
        "--no-kernel",
        "pprof",
        "speedscope",
        "firefox",
        "folded",
    ] {
        assert!(help.contains(option), "{option} is not in the help");
    }
}

#[test]
fn no_arguments_is_wrong_usage() {
    let run = Lightfoot::new("").run();
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stdout.is_empty() && !run.stderr.is_empty());
}

/// What works here and what does not, with what it costs the user: for root and for nobody alike.
#[test]
fn system_info() {
    let run = Lightfoot::new("system-info -f json").run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let json: Value = serde_json::from_slice(&run.stdout).expect("JSON");
    assert!(
        json["schema"].as_str().is_some_and(|schema| schema.starts_with("lightfoot.system-info/")),
        "{}",
        json["schema"]
    );
    let run = Lightfoot::new("system-info").run();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(!run.stdout.is_empty());
}
