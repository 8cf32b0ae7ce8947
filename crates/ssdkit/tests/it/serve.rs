//! `ssdkit serve` and `bench nbd:` from outside.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{Served, json, run, ssdkit, told};

/// A drive of 16 MiB that is served.
fn serve(drive: &str, address: &str) -> Served {
    serve_by(ssdkit(""), drive, address)
}

/// By a command that runs the program.
fn serve_by(mut command: Command, drive: &str, address: &str) -> Served {
    let served = Served::start(command.args(["serve", drive, "--nbd", address, "--json"]));
    assert_eq!(served.ready["size_bytes"], 16 << 20);
    served
}

/// Runs `bench` and gives its report.
fn bench(line: &str) -> Value {
    json(Path::new("."), &format!("bench {line}"))
}

#[test]
fn a_served_drive_keeps_what_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ssd.sock");
    let at = path.to_str().unwrap();
    let server = serve("mem:null,size=16M", at);
    let line = format!("nbd:{at} --rw randrw --qd 8 --ios 3k --verify --flush-every 50 --destroy");
    let report = bench(&line);
    assert_eq!((&report["ios"], &report["errors"]), (&3000.into(), &0.into()));
    assert!(report["seconds"].as_f64().unwrap() > 0.0);
    for key in ["write_amplification", "gc", "erases"] {
        assert!(report[key].is_null(), "the server does not tell {key}");
    }
    assert!(report["series"][0]["free_chunks"].is_null());
    let last = server.stop();
    assert_eq!(last["faults"], 0);
    assert!(last["user_blocks"].as_u64().unwrap() > 1000);
    assert!(!path.exists(), "the socket is removed");
}

/// What it did not write itself a verification calls wrong; then it says what to
/// do about it.
#[test]
fn verifying_a_used_drive_says_why_it_fails() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ssd.sock");
    let at = path.to_str().unwrap();
    let server = serve("mem:null,size=16M", at);
    let line = |more: &str| format!("nbd:{at} --rw randrw --ios 4k --verify --destroy {more}");
    bench(&line(""));
    let (code, text) = told(&run(dir.path(), &format!("bench {}", line(""))));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("used before") && text.contains("--precondition seq"), "{text}");
    bench(&line("--precondition seq"));
    server.stop();
}

#[test]
fn an_interrupt_ends_it_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ssd.sock");
    let server = serve("mem:znand,size=16M", path.to_str().unwrap());
    assert_eq!(server.stop_by(Signal::INT)["connections"], 0);
    assert!(!path.exists());
}

/// Who runs it passes on what it was told itself: two signals in a moment are one.
#[test]
fn who_is_told_twice_ends_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve("mem:znand,size=16M", dir.path().join("ssd.sock").to_str().unwrap());
    kill_process(server.pid(), Signal::TERM).unwrap();
    server.stop_by(Signal::INT);
}

/// Who closes the terminal stops it as Ctrl-C does, however many tell it; unless
/// it was started to outlive the terminal.
#[test]
fn a_hangup_ends_it_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ssd.sock");
    let at = path.to_str().unwrap();
    // Also where the tests themselves were started with hangups ignored.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_ssdkit")]);
    let server = serve_by(command, "mem:znand,size=16M", at);
    kill_process(server.pid(), Signal::HUP).unwrap();
    assert_eq!(server.stop_by(Signal::HUP)["connections"], 0);
    assert!(!path.exists());
    let mut command = Command::new("nohup");
    command.arg(env!("CARGO_BIN_EXE_ssdkit"));
    let server = serve_by(command, "mem:znand,size=16M", at);
    kill_process(server.pid(), Signal::HUP).unwrap();
    bench(&format!("nbd:{at} --rw randread --ios 100"));
    assert_eq!(server.stop()["connections"], 1);
}

#[test]
fn what_cannot_be_served_is_refused() {
    for (drive, at, exit, words) in [
        ("mem:ref,size=16M,store=checksum", "/tmp/never.sock", 2, "store=memory"),
        ("mem:ref,size=16M,store=none", "/tmp/never.sock", 2, "store=memory"),
        ("nbd:/tmp/x", "/tmp/never.sock", 2, "served already"),
        ("mem:ref,size=16M", "/no/such/folder/ssd.sock", 1, "cannot listen"),
        ("mem:ref,size=16M", "localhost:6379:1", 2, "no address to listen at"),
    ] {
        let (code, text) = told(&ssdkit(&format!("serve {drive} --nbd {at}")).output().unwrap());
        assert_eq!(code, Some(exit), "{drive}: {text}");
        assert!(text.contains(words), "{drive}: {text}");
    }
}

/// A drive that is too small for the pages that were asked for is refused with
/// the size that would do, which does.
#[test]
fn a_drive_too_small_for_its_pages_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.sock");
    for (pages, size) in [("log", "21 MiB"), ("in-place", "16.5 MiB")] {
        let line = |size: &str| {
            let path = path.display();
            ssdkit(&format!("serve mem:znand,size={size} --redis {path} --pages {pages}"))
        };
        let (code, text) = told(&line("16M").output().unwrap());
        assert_eq!(code, Some(2), "{pages}: {text}");
        assert!(text.contains(&format!("--pages {pages} needs {size}")), "{pages}: {text}");
        let mut child = line("21M").stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        assert!(child.wait().unwrap().success() && said.contains("new keys"), "{said}");
    }
}

/// The line of the page that serves keys does so, with a socket of its own.
#[test]
fn keys_are_served_to_redis_clients() {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    let page = include_str!("../../../../docs/commands/serve.md");
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix("    ssdkit serve mem:znand,size=1G --redis "));
    let options = line.expect("an example").strip_prefix("127.0.0.1:6379 ").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("redis.sock");
    for pages in ["batched", "log", "in-place"] {
        let at = path.display();
        let line =
            format!("serve mem:znand,size=64M --json --pages {pages} --redis {at} {options}");
        let server = Served::start(&mut ssdkit(&line));
        assert_eq!(server.ready["serving"], path.to_str().unwrap());
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"SET a 1\r\nINCR a\r\nQUIT\r\n").unwrap();
        let mut replies = String::new();
        client.read_to_string(&mut replies).unwrap();
        assert_eq!(replies, "+OK\r\n:2\r\n+OK\r\n");
        let last = server.stop();
        assert_eq!((&last["commands"], &last["connections"]), (&3.into(), &1.into()));
        assert!(!path.exists());
    }
}

/// Without file descriptors for more clients, those that are there go on, the
/// operator is told once, and newcomers find room when others have left.
#[test]
fn running_out_of_descriptors_is_told_and_survived() {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    let dir = tempfile::tempdir().unwrap();
    for (front, greets) in [("--redis", false), ("--nbd", true)] {
        let path = dir.path().join(front);
        let mut command = Command::new("sh");
        command
            .args(["-c", "ulimit -n 40; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_ssdkit")])
            .args(["serve", "mem:null,size=64M", "--json", front])
            .arg(&path);
        let server = Served::start(command.stderr(Stdio::piped()));
        let connect = || {
            let sock = UnixStream::connect(&path).unwrap();
            sock.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            sock
        };
        // A client that has a place is answered.
        let works = |sock: &mut UnixStream| {
            let mut answer = [0; 7];
            if greets {
                sock.read(&mut answer).unwrap_or(0) > 0
            } else {
                sock.write_all(b"PING\r\n").is_ok() && sock.read(&mut answer).unwrap_or(0) == 7
            }
        };
        let mut first = connect();
        assert!(works(&mut first));
        let mut all: Vec<UnixStream> = (0..60).map(|_| connect()).collect();
        let seated = all.iter_mut().map(works).filter(|&works| works).count();
        assert!((1..60).contains(&seated), "{seated} found room");
        assert!(greets || works(&mut first));
        drop(all);
        let start = Instant::now();
        while !works(&mut connect()) {
            assert!(start.elapsed() < Duration::from_secs(60), "nobody finds room any more");
        }
        let (code, text, last) = server.end(Signal::TERM);
        let last: Value = serde_json::from_str(&last).unwrap();
        assert!(code == Some(0) && last["refused"].as_u64() > Some(0), "{last}");
        assert_eq!(text.matches("file descriptors").count(), 1, "{text}");
    }
}

/// Against a server that says nothing a bench ends when its time is over.
#[test]
fn a_silent_server_is_given_up() {
    use std::os::unix::net::UnixListener;
    use std::time::{Duration, Instant};

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ssd.sock");
    let _listener = UnixListener::bind(&path).unwrap();
    let start = Instant::now();
    let line = format!("bench nbd:{} --rw randread --max-time 100ms", path.display());
    let (code, text) = told(&run(dir.path(), &line));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("stopped before the server had said"), "{text}");
    assert!(start.elapsed() < Duration::from_secs(9), "it was not its own patience");
}

/// What a bench tells of a drive a server tells of it, too.
#[test]
fn a_server_tells_of_power_energy_and_errors() {
    let dir = tempfile::tempdir().unwrap();
    let drive = "mem:tlc,size=16M,groups=1,pus=2,pages=48,energy=true,sleep_after=1s,wake_time=1ms";
    let last = serve(drive, dir.path().join("sock").to_str().unwrap()).stop();
    assert!(last["energy"]["joules"].as_f64().unwrap() > 0.0, "{last}");
    assert!(last["power"]["asleep_seconds"].is_number(), "{last}");
    assert!(last["flash_errors"].is_null(), "nothing went wrong: {last}");
}
