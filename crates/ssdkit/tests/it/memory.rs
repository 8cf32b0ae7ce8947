//! Memory is asked for before it is taken: what a drive needs is what it takes,
//! what does not fit is refused, and where memory ends is an error.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use exports::nbd::{Client, ListenAddr};
use port::BlockOp;
use rustix::process::{Pid, Signal, kill_process};
use ssdkit::drive::DriveSpec;
use ssdkit::drive::memory::Needs;

use crate::common::{Served, ask, run, ssdkit, told};

fn needs(name: &str) -> Needs {
    let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
    Needs::of(&spec.resolve().unwrap())
}

/// A drive that is served.
fn serve(at: &Path, name: &str) -> Served {
    Served::start(ssdkit(&format!("serve {name} --nbd ./memory.sock --json")).current_dir(at))
}

/// Bytes of memory of one that has done nothing.
fn resident(at: &Path, name: &str) -> u64 {
    let served = serve(at, name);
    let bytes = served.resident();
    served.stop();
    bytes
}

#[test]
fn tables_take_what_is_said_before() {
    let folder = tempfile::tempdir().unwrap();
    let small = "mem:null,size=4M,groups=1,pus=1,pages=16";
    let little = resident(folder.path(), small);
    for name in [
        // Many chunks, many units, wide rows in many units, and parity over them.
        "mem:null,groups=4,pus=4,chunks=60000,pages=1,planes=1,page=4k",
        "mem:null,groups=64,pus=64,chunks=30,pages=8,planes=1,page=4k",
        "mem:null,groups=16,pus=16,chunks=30,pages=8,planes=8,page=16k,slc_cache=1m,slc_program=1us",
        "mem:null,groups=16,pus=16,chunks=30,pages=8,planes=1,page=4k,parity=4",
    ] {
        let said = needs(name).tables;
        let took = resident(folder.path(), name) - little;
        // Less: room for rows is taken when they are first gathered.
        assert!(took <= said + said / 10, "{name}: took {took} of {said}");
    }
    // Where it is all chunks, it is what they take.
    let name = "mem:null,groups=1,pus=2,chunks=400000,pages=1,planes=1,page=4k";
    let (said, took) = (needs(name).tables, resident(folder.path(), name) - little);
    assert!(took <= said + said / 10 && took >= said / 2, "took {took} of {said}");
}

/// However often all of a drive is written, it takes what its chunks hold: not
/// all its flash, of which much is free.
#[test]
fn a_drive_that_is_written_takes_what_is_said_before() {
    let folder = tempfile::tempdir().unwrap();
    let name = "mem:null,size=96M,groups=4,pus=2,pages=64";
    let little = resident(folder.path(), "mem:null,size=4M,groups=1,pus=1,pages=16");
    let server = serve(folder.path(), name);
    let load = "bench nbd:memory.sock --rw randwrite --qd 32 --bs 4k --ios 75k --destroy";
    let out = run(folder.path(), load);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let (said, took) = (needs(name), server.resident() - little);
    assert!(took <= said.total() + said.total() / 20, "took {took} of {}", said.total());
    assert!(said.blocks >= 96 << 20, "{said:?}");
    let Ok(DriveSpec::Memory(spec)) = name.parse() else { panic!("{name}") };
    let flash = spec.resolve().unwrap().geometry.blocks() * 4096;
    assert!(said.total() * 10 < flash * 9, "{} of {flash} bytes of flash", said.total());
}

#[test]
fn what_does_not_fit_is_refused_before_it_is_built() {
    let folder = tempfile::tempdir().unwrap();
    let huge = "mem:ref,store=none,groups=256,pus=256,chunks=16000000,pages=1";
    for line in [
        format!("bench {huge} --rw randread --ios 10"),
        format!("info {huge}"),
        format!("serve {huge},store=memory --nbd n.sock").replace("store=none,", ""),
        "bench mem:tlc,size=100T --rw randread --ios 1 --precondition seq".into(),
        "bench mem:tlc,size=100T --rw randread --ios 1 --clock real".into(),
        "create c.ssd --profile ref --store none groups=256 pus=256 chunks=16000000 pages=1".into(),
        "ycsb mem:znand --workload A --records 2000M --ops 1".into(),
        "serve mem:znand,size=16M --nbd n.sock --client-memory 999T".into(),
        "serve mem:znand,size=64M --redis n.sock --client-memory 999T".into(),
    ] {
        let (code, said) = told(&run(folder.path(), &line));
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(said.contains("of memory") && said.contains("are free"), "{line}: {said}");
    }
}

/// Runs a line with so much address space: its exit code, and what it says.
fn limited(folder: &Path, mib: u64, line: &str) -> (Option<i32>, String) {
    let binary = env!("CARGO_BIN_EXE_ssdkit");
    let limited = format!("ulimit -v {}; ulimit -c 0; exec {binary} {line}", mib << 10);
    told(&Command::new("sh").args(["-c", &limited]).current_dir(folder).output().unwrap())
}

#[test]
fn queues_that_do_not_fit_are_refused_before_they_are_made() {
    let folder = tempfile::tempdir().unwrap();
    for (mib, line) in [
        (2048, "bench null:hw_queue_depth=65535 --rw randread --ios 9 --cores 1024"),
        (64, "bench null:hw_queue_depth=10000,submit_queues=64 --rw randread --ios 9 --cores 64"),
        (
            4096,
            "bench mem:znand,size=64M --rw randread --ios 9 --dispatch hosted:1024 \
             --dispatch-depth 65535",
        ),
    ] {
        let (code, said) = limited(folder.path(), mib, line);
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(said.contains("the queues need ") && said.contains("are free"), "{line}: {said}");
    }
}

#[test]
fn where_memory_ends_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for line in [
        "bench mem:tlc,size=64M --rw randwrite --qd 32 --ios 100 --precondition seq",
        "bench mem:null,groups=4,pus=4,chunks=20000,pages=1,planes=1,page=4k --rw randread --ios 9",
        "bench mem:ref,size=64M --rw randwrite --bs 1M --qd 64 --ios 100 --verify",
        "bench null:hw_queue_depth=1000,submit_queues=4 --rw randread --qd 64 --ios 100",
        "bench null:hw_queue_depth=10000,submit_queues=64 --rw randread --qd 64 --ios 100",
        "bench null:hw_queue_depth=65535 --rw randread --qd 64 --ios 100 --merge full",
        "bench mem:znand,size=64M --rw randread --ios 9 --dispatch hosted:64 --dispatch-depth 9999",
        "bench mem:znand,size=64M --rw randrw --ios 100 --dispatch hosted:4 --cores 1",
        "ycsb mem:ref --workload A --records 1k --ops 1k",
    ] {
        for mib in [32, 64, 128, 256, 512, 1024] {
            let (code, said) = limited(folder.path(), mib, line);
            let ended = matches!(code, Some(0..=2));
            assert!(ended && !said.contains("panicked"), "{mib} MiB, {line}: {said}");
        }
    }
}

/// However little address space there is, a drive of many parts runs or is refused, as
/// is one that loses what it wrote.
#[test]
fn where_memory_ends_parts_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (from, drive) in [
        (56, "mem:tlc,size=64M,shards=8"),
        (60, "mem:tlc,size=64M,shards=8,cache=protected"),
        (36, "mem:tlc,size=64M --fault medium:torn,every=9"),
    ] {
        let mut runs = false;
        for mib in (from..from + 72).step_by(2) {
            let line = format!("bench {drive} --rw randwrite --ios 1k");
            let (code, said) = limited(folder.path(), mib, &line);
            let ended = matches!(code, Some(0..=2));
            assert!(ended && !said.contains("panicked"), "{mib} MiB, {line}: {said}");
            runs |= code == Some(0);
        }
        assert!(runs, "{drive}");
    }
}

/// However little address space there is, a key-value store runs or is refused.
#[test]
fn where_memory_ends_a_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for store in ["batched", "log", "in-place"] {
        let line = format!(
            "ycsb mem:znand,size=64M --workload A --records 1k --ops 1k --pages {store} --verify"
        );
        let mut runs = false;
        // With less there is no room for the program itself, and to say so.
        let program = (20..80).find(|&mib| limited(folder.path(), mib, "--version").0 == Some(0));
        for mib in program.unwrap() + 4..80 {
            let (code, said) = limited(folder.path(), mib, &line);
            assert!(matches!(code, Some(0 | 2)), "{mib} MiB, {line}: {code:?}, {said}");
            runs |= code == Some(0);
        }
        assert!(runs, "{line}");
    }
}

/// However little address space there is, a server of keys serves or says why
/// not.
#[test]
fn where_memory_ends_a_server_of_keys_says_so() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.sock");
    let mut served = 0;
    for limit in (80_000..400_000).step_by(600) {
        let mut child = Command::new("sh")
            .args(["-c", "ulimit -v $0; exec \"$@\"", &limit.to_string()])
            .args([env!("CARGO_BIN_EXE_ssdkit"), "serve", "mem:null,size=16M", "--redis"])
            .arg(&path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
        let answer = UnixStream::connect(&path).and_then(|mut client| {
            client.write_all(b"PING\r\n")?;
            client.read_exact(&mut [0; 7])
        });
        let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        let out = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr);
        let (code, answered) = (out.status.code(), answer.is_ok());
        // Refused for want of memory for its tables (2), or of what serving takes (1).
        let says_so = if answered { code == Some(0) } else { matches!(code, Some(1 | 2)) };
        assert!(says_so, "{limit} KiB: {code:?}, {text}");
        assert_eq!(text.starts_with("ssdkit: "), !answered, "{limit} KiB: {text}");
        served += u32::from(answered);
        if served == 3 {
            return;
        }
    }
    panic!("it never serves");
}

/// A server with little address space, at a socket in `folder`.
fn served_with(folder: &Path, kib: u64, how: &str) -> Child {
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -v $0; ulimit -c 0; exec \"$@\"", &kib.to_string()])
        .args([env!("CARGO_BIN_EXE_ssdkit"), "serve", "mem:null,size=16M", how])
        .arg(folder.join("few.sock"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    child
}

/// Ends it; gives what it said. It must not have ended by itself.
fn end(child: Child) -> String {
    let _ = kill_process(Pid::from_child(&child), Signal::TERM);
    let out = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(0), "{text}");
    text
}

/// Clients of a server of keys that want more memory than the system has are refused
/// or closed; the others are served.
#[test]
fn who_wants_more_than_there_is_is_closed() {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    let folder = tempfile::tempdir().unwrap();
    let child = served_with(folder.path(), 400_000, "--redis");
    let connect = || {
        let sock = UnixStream::connect(folder.path().join("few.sock")).unwrap();
        sock.set_write_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
        sock
    };
    let mut client = connect();
    let mut ask = |command: &[u8], reply: &[u8]| {
        let mut got = vec![0; reply.len()];
        client.write_all(command).and_then(|()| client.read_exact(&mut got)).unwrap();
        assert_eq!(got, reply);
    };
    let value = format!("HSET h f {}\r\n", "x".repeat(60_000));
    ask(value.as_bytes(), b":1\r\n");
    let half = [&b"*2\r\n$3\r\nGET\r\n$1048576\r\n"[..], &vec![b'x'; 1 << 20]].concat();
    let long = format!("HMGET h{}\r\n", " f".repeat(1000));
    let many = [&b"*16384\r\n"[..], &b"$1\r\nx\r\n".repeat(16_383)].concat();
    let mut others = Vec::new();
    for n in 0..600 {
        let mut sock = connect();
        // It may be closed meanwhile.
        let _ = sock.write_all([&half, long.as_bytes(), &many][n % 3]);
        others.push(sock);
        ask(b"PING\r\n", b"+PONG\r\n");
    }
    drop(others);
    ask(b"SET a 1\r\n", b"+OK\r\n");
    let said = end(child);
    assert!(said.contains("no more memory for clients"), "{said}");
}

/// A client of a drive that wants more memory than the system has is told so, and is
/// served on: other clients that hold it may stay as long as they like.
#[test]
fn who_asks_for_more_than_there_is_is_told() {
    const ENOMEM: u32 = 12;
    let folder = tempfile::tempdir().unwrap();
    let address = ListenAddr::Unix(folder.path().join("few.sock"));
    let mut scarce = 0;
    for limit in (10_000..400_000).step_by(1000) {
        let child = served_with(folder.path(), limit, "--nbd");
        let Ok(mut client) = Client::connect(&address) else {
            // It did not begin, or turns clients away.
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
            let _ = child.wait_with_output();
            continue;
        };
        let long = vec![7; 8 << 20];
        assert_eq!(ask(&mut client, BlockOp::Write, 0, 8 << 20, &long).0, ENOMEM, "{limit} KiB");
        assert_eq!(ask(&mut client, BlockOp::Write, 4096, 4096, &long[..4096]).0, 0);
        assert_eq!(ask(&mut client, BlockOp::Read, 0, 8 << 20, &[]).0, ENOMEM);
        let (error, data) = ask(&mut client, BlockOp::Read, 0, 8192, &[]);
        if error == ENOMEM && scarce < 4 {
            // So little is left that even this is too much; with 1 MiB more it is not.
            scarce += 1;
            end(child);
            continue;
        }
        assert_eq!((error, &data[..4096], &data[4096..]), (0, &[0; 4096][..], &long[..4096]));
        client.close().unwrap();
        let said = end(child);
        assert!(said.contains("no more memory for what clients ask for"), "{said}");
        return;
    }
    panic!("it never serves");
}
