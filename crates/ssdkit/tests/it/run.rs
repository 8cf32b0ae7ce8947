//! `ssdkit run` as a process: what its signals do.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common;

/// A stripe of three has a row of parity for two of data, and figures of what the flash took
/// have it in them.
#[test]
fn parity_is_in_what_the_flash_took() {
    let place = tempfile::tempdir().unwrap();
    let script = "for n in 1 2 3 4 5 6 7 8; do head -c 1M /dev/zero > data/$n; sync data/$n; done";
    let drive = "mem:tlc,groups=1,pus=3,size=64M,parity=3";
    let out = Command::new(env!("CARGO_BIN_EXE_ssdkit"))
        .args(["run", "--drive", drive, "--map", "data", "--json", "--", "sh", "-c", script])
        .current_dir(place.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    if said.contains("supervisor") {
        eprintln!("LEFT OUT: programs cannot be supervised here: {said}");
        return;
    }
    let json: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    let amplification = json["write_amplification"].as_f64().unwrap();
    assert!(amplification > 1.45, "{json}");
}

/// A signal is the program's, also where a drive file has threads of its own at work; then all
/// that the program wrote is on the drive.
#[test]
fn a_signal_is_for_the_program() {
    let place = tempfile::tempdir().unwrap();
    let ssdkit = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ssdkit"));
        command.args(args).current_dir(place.path());
        command
    };
    let made = ssdkit(&["create", "d.ssd", "--profile", "tlc", "--size", "64M"]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let script = "trap 'echo got > data/got; exit 5' TERM; echo a > data/a; touch ready
        while :; do sleep 0.05; done";
    let run = ["run", "--drive", "d.ssd", "--map", "data", "--", "sh", "-c", script];
    let mut child = ssdkit(&run).stderr(Stdio::piped()).spawn().unwrap();
    while !place.path().join("ready").exists() {
        if child.try_wait().unwrap().is_some() {
            let out = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(said.contains("supervisor"), "{said}");
            eprintln!("LEFT OUT: programs cannot be supervised here: {said}");
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(5), "{said}");
    assert!(said.contains("ended after"), "{said}");
    fs::remove_dir_all(place.path().join("data")).unwrap();
    let run = ["run", "--drive", "d.ssd", "--map", "data", "--", "cat", "data/a", "data/got"];
    let out = ssdkit(&run).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "a\ngot\n", "{out:?}");
}

/// A program has one supervisor: inside another run that is told, and not the kernel.
#[test]
fn a_run_inside_a_run_is_told_why_it_cannot_be() {
    let place = tempfile::tempdir().unwrap();
    let run = |name: &str| format!("run --drive mem:tlc,size=64M --map {name} --");
    let inner = format!("{} {} true", env!("CARGO_BIN_EXE_ssdkit"), run("b"));
    let line = format!("{} {inner}", run("a"));
    let out = common::run(place.path(), &line);
    let said = String::from_utf8_lossy(&out.stderr);
    if said.contains("the supervisor may") || said.contains("this kernel cannot") {
        assert!(!said.contains("ended after"), "{said}");
        eprintln!("LEFT OUT: programs cannot be supervised here: {said}");
        return;
    }
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("another supervisor has the system calls"), "{said}");
}

/// What is to be mapped is a folder, or not there yet.
#[test]
fn what_is_no_folder_is_not_mapped() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("file"), "text").unwrap();
    for map in ["/dev/null", "file"] {
        let line = format!("run --drive mem:tlc,size=64M --map {map} -- true");
        let out = common::run(place.path(), &line);
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("{map} is no folder: ")), "{said}");
    }
}

/// The page's faults: each is told to the program, once, and in the summary.
#[test]
fn faults_are_told_as_the_page_says() {
    let place = tempfile::tempdir().unwrap();
    let page = include_str!("../../../../docs/commands/run.md");
    let lines = page.split_once("and one of the journal:\n\n").unwrap().1;
    let lines: Vec<&str> = lines.lines().map_while(|line| line.strip_prefix("    ")).collect();
    let binary = env!("CARGO_BIN_EXE_ssdkit");
    let run = |line: &str| {
        let line = line.replacen("ssdkit", binary, 1).replace(" --fault", " --json --fault");
        Command::new("sh").args(["-c", &line]).current_dir(place.path()).output().unwrap()
    };
    let [create, write, read, data, gone, journal] = lines[..] else { panic!("{lines:?}") };
    assert!(run(create).status.success());
    let out = run(write);
    let said = String::from_utf8_lossy(&out.stderr);
    if said.contains("supervisor") {
        eprintln!("LEFT OUT: programs cannot be supervised here: {said}");
        return;
    }
    assert!(out.status.success(), "{said}");
    let told = |line: &str| {
        let out = run(line);
        let said = format!("\n{}", String::from_utf8_lossy(&out.stderr));
        let json = said.find("\n{").unwrap_or_else(|| panic!("{line}: {said}"));
        let (words, json) = (said[..json].to_owned(), &said[json..]);
        let json: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(json["injected"][0]["times"], 1, "{line}: {said}");
        (words, json["errors_told"].as_u64().unwrap())
    };
    let (words, count) = told(read);
    assert!(words.contains("f: Input/output error") && count >= 1, "{words}");
    // One that is not `permanent` is asked again.
    let (words, count) = told(&read.replace(",permanent", ""));
    assert!(words.is_empty() && count == 0, "{words}");
    let (words, count) = told(data);
    assert!(words.contains("struck/a") && !words.contains("struck/b"), "{words}");
    assert_eq!(count, 1, "{words}");
    assert!(run(gone).status.success());
    let (words, count) = told(journal);
    assert!(words.contains("struck/c") && words.contains("Read-only file system"), "{words}");
    assert!(count >= 2, "{words}");
    // Under another name the drive has nothing, and says what it has.
    let out = run("ssdkit run --drive struck.ssd --map other -- true");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && said.contains("it has struck"), "{said}");
}
