//! `ssdkit run` as a process: what its signals do.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

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
