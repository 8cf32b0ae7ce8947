//! The binary from outside: output, and exit codes.

use std::io::Write;
use std::process::{Command, Output, Stdio};

fn ssdkit(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ssdkit")).args(args).output().unwrap()
}

/// Exit code and standard error.
fn failure(args: &[&str]) -> (Option<i32>, String) {
    let out = ssdkit(args);
    assert!(out.stdout.is_empty(), "{args:?} printed a result");
    (out.status.code(), String::from_utf8(out.stderr).unwrap())
}

/// What is printed by a command that must succeed.
fn stdout(args: &[&str]) -> String {
    let out = ssdkit(args);
    assert_eq!(out.status.code(), Some(0), "{args:?}");
    String::from_utf8(out.stdout).unwrap()
}

#[test]
fn a_printed_profile_makes_the_same_drive() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    let printed = ssdkit(&["profiles", "mem:tlc,size=1G"]);
    assert_eq!(printed.status.code(), Some(0));
    std::fs::write(&path, &printed.stdout).unwrap();
    let again = ssdkit(&["profiles", path.to_str().unwrap()]);
    assert_eq!(again.stdout, printed.stdout);
}

#[test]
fn the_impossible_is_exit_code_2() {
    let (code, text) = failure(&["profiles", "mem:ref,size=8G,chunks=3"]);
    assert_eq!(code, Some(2));
    assert!(text.contains("needs 80 chunks"), "{text}");
    assert_eq!(failure(&["profiles", "--shop"]).0, Some(2));
    assert_eq!(failure(&["bench", "mem:ref", "--rw", "sideways"]).0, Some(2));
}

#[test]
fn help_and_version_are_no_errors() {
    for args in [&["--help"][..], &["--version"], &["bench", "--help"]] {
        let out = ssdkit(args);
        assert_eq!(out.status.code(), Some(0), "{args:?}");
        assert!(out.stderr.is_empty() && !out.stdout.is_empty(), "{args:?}");
    }
}

/// Who says no subcommand is told which there are, all of them.
#[test]
fn help_of_commands_with_others_in_them_is_whole() {
    for (command, last) in [("speculate", "strategies"), ("target", "remove"), ("rules", "explain")]
    {
        let (code, text) = failure(&[command]);
        let help = stdout(&[command, "--help"]);
        let commands = help.split("Commands:").nth(1).and_then(|it| it.split("\n\n").next());
        let commands = commands.expect("it has some").lines().filter_map(|line| {
            line.strip_prefix("  ").filter(|it| !it.starts_with(' '))?.split_whitespace().next()
        });
        let commands: Vec<&str> = commands.collect();
        assert!(code == Some(2) && commands.contains(&last), "{commands:?}: {text}");
        for name in commands {
            assert!(text.contains(&format!("  {name}")), "{command} {name}: {text}");
        }
        assert!(!text.contains('…'), "{text}");
    }
}

/// What a shell completes is a script that it takes, and knows the options.
#[test]
fn shells_take_what_they_are_to_complete() {
    let script = stdout(&["completions", "bash"]);
    let mut bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
    bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(bash.wait().unwrap().success());
    assert!(script.contains("--read-percent") && script.contains("_ssdkit"), "{script}");
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(stdout(&["completions", shell]).contains("steady-rounds"), "{shell}");
    }
}

#[test]
fn manual_pages_say_what_help_does() {
    let all = stdout(&["man"]);
    assert!(all.contains(".TH ssdkit 1") && all.contains("ssdkit\\-bench"), "{all}");
    let bench = stdout(&["man", "bench"]);
    assert!(bench.contains("ssdkit\\-bench") && bench.contains("precondition"), "{bench}");
    let (code, text) = failure(&["man", "benhc"]);
    assert!(
        code == Some(2)
            && text.contains("bench, explain, replay, fio, test, compare, serve, run, top"),
        "{text}"
    );
}
