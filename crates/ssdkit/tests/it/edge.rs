//! The program where the system gives it no thread: it says so and ends, or serves
//! whom it can.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Runs a line where there is room for so many threads: each asks for 1 GiB of
/// address space. Gives its exit code and what it says; one that hangs is ended.
fn with_threads(folder: &Path, threads: u64, line: &str) -> (Option<i32>, String) {
    let binary = env!("CARGO_BIN_EXE_ssdkit");
    let kib = (threads << 20) + (700 << 10);
    let line = format!("ulimit -v {kib}; ulimit -c 0; exec timeout -k 5 60 {binary} {line}");
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(folder).env("RUST_MIN_STACK", "1073741824");
    let out = command.output().unwrap();
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

#[test]
fn where_threads_end_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for (threads, line) in [
        (0, "study blkmq --quick"),
        (1, "study blkmq --quick"),
        (1, "serve mem:null,size=16M --nbd ssd.sock"),
    ] {
        let (code, said) = with_threads(folder.path(), threads, line);
        assert_eq!(code, Some(1), "{threads}: {line}: {said}");
        assert!(said.contains("the system gives no thread"), "{threads}: {line}: {said}");
    }
    assert!(!folder.path().join("ssd.sock").exists());
}

/// Clients for whom there is no thread are turned away, and the operator is told
/// once. Threads are counted by user, so this needs one of its own.
#[test]
fn clients_without_a_thread_are_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ssd.sock");
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let user = (100_000 + std::process::id()).to_string();
    let as_user = |limit: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &user, "--clear-groups", "bash", "-c"]);
        command.arg(format!("{limit}; exec \"$@\""));
        command.args(["bash", env!("CARGO_BIN_EXE_ssdkit")]);
        command
    };
    let may = as_user("true").arg("--version").output();
    if !may.is_ok_and(|out| out.status.success()) {
        return;
    }
    // The program, and its threads for signals, for the drive, and for one client.
    let mut child = as_user("ulimit -u 4")
        .args(["serve", "mem:null,size=16M", "--nbd"])
        .arg(&path)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    let greeted = || {
        let mut sock = UnixStream::connect(&path).unwrap();
        (sock.read(&mut [0; 18]).unwrap_or(0) > 0, sock)
    };
    let all = [(); 4].map(|()| greeted());
    assert_eq!(all.each_ref().map(|(greeted, _)| *greeted), [true, false, false, false]);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    let out = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(0), "{text}");
    assert_eq!(text.matches("no more threads for clients").count(), 1, "{text}");
}
