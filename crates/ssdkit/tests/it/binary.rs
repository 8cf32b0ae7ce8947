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

/// What has no place to go is an error as any other output, also where the parser prints it.
#[test]
fn help_into_a_full_output_says_so() {
    for args in [&["--help"][..], &["--version"], &["bench", "--help"], &["profiles"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ssdkit"));
        let out = command.args(args).stdout(full).stderr(Stdio::piped()).output().unwrap();
        let text = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(1), "{args:?}: {text}");
        assert!(text.starts_with("ssdkit: cannot write the output: No space left"), "{text}");
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
            && text.contains("bench, explain, replay, fio, test, sweep, compare, serve, run, top"),
        "{text}"
    );
}

/// A sweep is the Python package's: what it needs is told before, and it is given all that
/// was asked for.
#[test]
fn a_sweep_is_given_to_python() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    std::fs::write(path("sweep.toml"), "[base]\ndrive = \"mem:tlc\"\n").unwrap();
    std::fs::write(path("other.toml"), "[grid]\nqd = [1]\n").unwrap();
    let script = |name: &str, text: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(path(name), format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(path(name), PermissionsExt::from_mode(0o755)).unwrap();
    };
    script("none", "exit 1");
    script("python", "if [ \"$1\" = -c ]; then exit 0; fi; echo \"$@\"; exit 7");
    let run = |python: &str, args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ssdkit"));
        command.arg("sweep").args(args).env("SSDKIT_PYTHON", path(python));
        let out = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (out.status.code(), text(out.stdout), text(out.stderr))
    };
    let sweep = path("sweep.toml");
    for (python, file, says) in [
        ("python", &path("no.toml"), "no.toml: No such file"),
        ("python", &path("other.toml"), "no [base]"),
        ("none", &sweep, "has no package ssdkit: pip install"),
        ("missing", &sweep, "missing: No such file"),
    ] {
        let (code, out, errors) = run(python, &[file]);
        assert!(code == Some(2) && out.is_empty() && errors.contains(says), "{errors}");
    }
    let (code, out, _) = run("python", &[&sweep, "--out", "rows", "--workers", "2", "--json"]);
    let expected = "-m ssdkit.sweep_command --out=rows --workers=2 --json --";
    assert_eq!((code, out), (Some(7), format!("{expected} {sweep}\n")));
}
