//! `ssdkit serve` and `bench nbd:` from outside.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A server that is listening.
struct Server {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Server {
    fn start(drive: &str, address: &str) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ssdkit"))
            .args(["serve", drive, "--nbd", address, "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        out.read_line(&mut ready).unwrap();
        let ready: Value = serde_json::from_str(&ready).unwrap();
        assert_eq!(ready["size_bytes"], 16 << 20);
        Server { child, out }
    }

    /// Asks it to stop; gives its last words.
    fn stop(mut self, signal: Signal) -> Value {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        serde_json::from_str(&rest).unwrap()
    }
}

/// Runs `bench` and gives its report.
fn bench(line: &str) -> Value {
    let out = Command::new(env!("CARGO_BIN_EXE_ssdkit"))
        .arg("bench")
        .args(line.split_whitespace())
        .arg("--json")
        .output()
        .unwrap();
    assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn a_served_drive_keeps_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ssd.sock");
    let at = path.to_str().unwrap();
    let server = Server::start("mem:null,size=16M", at);
    let report = bench(&format!("nbd:{at} --rw randrw --qd 8 --ios 3k --verify --flush-every 50"));
    assert_eq!((&report["ios"], &report["errors"]), (&3000.into(), &0.into()));
    assert!(report["seconds"].as_f64().unwrap() > 0.0);
    assert!(report["write_amplification"].is_null(), "the server does not tell");
    let last = server.stop(Signal::TERM);
    assert_eq!(last["faults"], 0);
    assert!(last["user_blocks"].as_u64().unwrap() > 1000);
    assert!(!path.exists(), "the socket is removed");
}

#[test]
fn an_interrupt_ends_it_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ssd.sock");
    let server = Server::start("mem:znand,size=16M", path.to_str().unwrap());
    assert_eq!(server.stop(Signal::INT)["connections"], 0);
    assert!(!path.exists());
}

#[test]
fn what_cannot_be_served_is_refused() {
    for (drive, at, code, words) in [
        ("mem:ref,size=16M,store=checksum", "/tmp/never.sock", 2, "store=memory"),
        ("mem:ref,size=16M,store=none", "/tmp/never.sock", 2, "store=memory"),
        ("nbd:/tmp/x", "/tmp/never.sock", 2, "served already"),
        ("mem:ref,size=16M", "/no/such/folder/ssd.sock", 1, "cannot listen"),
    ] {
        let out = Command::new(env!("CARGO_BIN_EXE_ssdkit"))
            .args(["serve", drive, "--nbd", at])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(code), "{drive}: {text}");
        assert!(text.contains(words), "{drive}: {text}");
    }
}

/// The line of the page that serves keys does so, with a socket of its own.
#[test]
fn keys_are_served_to_redis_clients() {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    let page = include_str!("../../../docs/commands/serve.md");
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix("    ssdkit serve mem:znand,size=1G --redis "));
    let options = line.expect("an example").strip_prefix("127.0.0.1:6379 ").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("redis.sock");
    for pages in ["batched", "log", "in-place"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ssdkit"))
            .args(["serve", "mem:znand,size=64M", "--json", "--pages", pages, "--redis"])
            .arg(&path)
            .args(options.split_whitespace())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        out.read_line(&mut ready).unwrap();
        let ready: Value = serde_json::from_str(&ready).unwrap();
        assert_eq!(ready["serving"], path.to_str().unwrap());
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"SET a 1\r\nINCR a\r\nQUIT\r\n").unwrap();
        let mut replies = String::new();
        client.read_to_string(&mut replies).unwrap();
        assert_eq!(replies, "+OK\r\n:2\r\n+OK\r\n");
        let last = Server { child, out }.stop(Signal::TERM);
        assert_eq!((&last["commands"], &last["connections"]), (&3.into(), &1.into()));
        assert!(!path.exists());
    }
}
