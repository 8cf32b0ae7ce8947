//! Things that go wrong on purpose, or on a full disk, through the binary.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::{Served, ask, json, number, run, ssdkit};
use exports::nbd::{Client, ListenAddr};
use port::BlockOp;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A report without what differs from run to run.
fn lasting(mut json: Value) -> Value {
    for key in ["wall_seconds", "cpu", "recovery"] {
        json.as_object_mut().unwrap().remove(key);
    }
    json
}

const WORK: &str = "--rw randrw --qd 16 --ios 20k --verify";

/// How often each rule struck.
fn times(json: &Value) -> Vec<u64> {
    let all = json["injected"].as_array().unwrap();
    all.iter().map(|one| one["times"].as_u64().unwrap()).collect()
}

#[test]
fn faults_are_injected_counted_and_repeat() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let line = format!(
        "bench mem:ref,size=32M {WORK} --fault above:write,probability=0.01 --fault \
         above:read,every=100,delay=5ms;below:write,count=2 --fault medium:bitrot,count=3,from=9"
    );
    let first = json(at, &line);
    let counts = times(&first);
    assert_eq!((&first["errors"], counts[2], counts[3]), (&0.into(), 2, 3), "{first}");
    let writes = first["write"]["ios"].as_u64().unwrap();
    assert!((50..=200).contains(&counts[0]), "{counts:?} of {writes}");
    assert!(first["failed_requests"].as_u64().unwrap() >= counts[0], "{first}");
    assert!(first["read"]["latency_ns"]["max"].as_u64().unwrap() > 5_000_000, "{first}");
    assert_eq!(lasting(json(at, &line)), lasting(first.clone()), "the same seed");
    let other = json(at, &format!("{line} --seed 2"));
    assert_ne!(other["state_hash"], first["state_hash"]);
    // Through the block layer as well.
    let below = json(at, &format!("{line} --cores 2"));
    assert_eq!(times(&below)[2..], [2, 3]);
    // And none without rules.
    let plain = json(at, &format!("bench mem:ref,size=32M {WORK}"));
    assert!(plain.get("injected").is_none() && plain["drive"].get("faults").is_none());
}

/// A drive that program failures made read-only is told of: in reports, of a file, and by
/// a server when it refuses its first write and at its end.
#[test]
fn a_drive_that_failures_made_read_only_is_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let fault = "--fault medium:fail,on=program,probability=0.05";
    let work = "--rw randwrite --qd 8 --ios 20k";
    let told = "too many of its chunks gave way";
    let said = |line: &str| String::from_utf8(run(at, line).stdout).unwrap();
    for (faults, is_told) in [("", false), (fault, true)] {
        let line = format!("bench mem:ref,size=16M,groups=2,pus=2,pages=64 {work} {faults}");
        assert_eq!(json(at, &line).get("read_only").is_some(), is_told);
        assert_eq!(said(&line).contains(&format!("\nread-only   {told}")), is_told);
    }
    json(at, "create a.ssd --profile ref --size 16M groups=2 pus=2 pages=64");
    assert_eq!(json(at, "info a.ssd")["read_only"], false);
    run(at, &format!("bench ./a.ssd {work} {fault}"));
    assert_eq!(json(at, "info a.ssd")["read_only"], true);
    assert!(said("info a.ssd").contains(told));

    let drive = "mem:ref,size=16M,groups=2,pus=2,pages=64";
    let mut command = ssdkit(&format!("serve {drive} --nbd sock --json {fault}"));
    let server = Served::start(command.stderr(Stdio::piped()).current_dir(at));
    let mut client = Client::connect(&ListenAddr::Unix(at.join("sock"))).unwrap();
    let mut errors = 0;
    for i in 0..2000 {
        let at = i % 256 * 65536;
        errors += u32::from(ask(&mut client, BlockOp::Write, at, 65536, &[7; 65536]).0 != 0);
        if errors > 9 {
            break;
        }
    }
    client.close().unwrap();
    let (code, text, last) = server.end(Signal::TERM);
    assert_eq!((errors, code), (10, Some(0)), "{text}");
    assert_eq!(text.matches(told).count(), 1, "{text}");
    assert!(last.contains("\"read_only\":true"), "{last}");
}

/// A drive on which nothing can be made durable any more is still read, where its
/// memory holds a part of the map, too.
#[test]
fn what_waits_for_the_map_of_a_dead_drive_ends() {
    let dir = tempfile::tempdir().unwrap();
    json(dir.path(), "create a.ssd --profile ref --size 256M map_cache=16k");
    let line = "bench ./a.ssd --destroy --rw randrw --ios 4000 --qd 8 --clock virtual --fault \
                below:flush,every=2";
    let out = run(dir.path(), line);
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!errors.contains("stopped with requests inside"), "{errors}");
    assert!(String::from_utf8_lossy(&out.stdout).contains("write amp."), "{errors}");
}

#[test]
fn a_drive_file_takes_them_too() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    json(at, "create a.ssd --profile null --size 16M groups=2 pus=2 pages=64");
    json(at, "bench ./a.ssd --rw write --bs 64k --ios 256 --flush-every 9");
    std::fs::write(at.join("rules"), "# a bad day\nread,every=50\nmedium:bitrot,every=70\n")
        .unwrap();
    for drive in ["ssd:a.ssd", "ssd:a.ssd,copy=yes"] {
        let line = format!("bench {drive} --rw read --ios 2k --faults rules");
        let report = json(at, &line);
        let counts = times(&report);
        assert!(counts[0] == 40 && counts[1] > 20, "{report}");
        let failed = report["failed_requests"].as_u64().unwrap();
        assert!(failed >= 40 + counts[1] / 2 && report["errors"] == 0, "{report}");
    }
    // What was only rotten in memory is whole in the file.
    assert_eq!(json(at, "bench ssd:a.ssd --rw read --ios 4k")["errors"], 0);
}

#[test]
fn a_wrong_rule_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (line, says) in [
        ("bench mem:ref,size=16M --rw read --fault below:raed", "at character 7"),
        ("serve mem:ref,size=16M --nbd sock --fault read,every=0", "at character 6"),
        ("bench mem:ref,size=16M --rw read --fault reset", "write `below:` before it"),
        ("bench mem:ref,size=16M --rw read --faults nothing", "cannot read the rules in nothing"),
        ("bench null: --rw read --fault read", "take mem: or a drive file"),
        ("bench mem:ref,size=16M --rw read --fault read --snapshot s", "without faults"),
    ] {
        let out = run(dir.path(), line);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{line}: {text}");
        assert!(text.contains(says) && out.stdout.is_empty(), "{line}: {text}");
    }
}

#[test]
fn bad_chunks_of_the_factory_are_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let keys = "groups=2 pus=2 pages=16 planes=1 errors=true factory_bad=0.03";
    let bad = |name: &str, seed: u64| {
        json(at, &format!("create {name} --profile tlc --size 64M --seed {seed} {keys}"));
        let info = json(at, &format!("info {name}"));
        assert_eq!((&info["chunks"]["grown_bad"], &info["clean"]), (&0.into(), &true.into()));
        info["chunks"].clone()
    };
    let (a, b) = (bad("a.ssd", 1), bad("b.ssd", 1));
    assert_eq!(a, b);
    let n = a["factory_bad"].as_u64().unwrap();
    let all = a["all"].as_u64().unwrap();
    assert!(n > 0 && n < all / 10, "{a}");
    assert_ne!(bad("c.ssd", 2), a);
    // They stay, and the drive works.
    assert_eq!(json(at, "bench ./a.ssd --rw randwrite --qd 8 --ios 5k --verify")["errors"], 0);
    assert_eq!(json(at, "info a.ssd")["chunks"]["factory_bad"], n);
}

#[test]
fn a_drive_with_bad_chunks_can_be_written_or_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let work = "--rw randwrite --qd 8 --ios 2k --verify";
    for (drive, seed) in [("qlc,size=96M", 1), ("qlc,size=4M", 2), ("tlc,size=64M", 3)] {
        let line = format!("bench mem:{drive},errors=true,store=checksum {work} --seed {seed}");
        let report = json(at, &line);
        assert_eq!(report["errors"], 0);
    }
    json(at, "create a.ssd --profile qlc --size 4M --store checksum errors=true");
    assert_eq!(json(at, &format!("bench ./a.ssd {work}"))["errors"], 0);
    // Errors alone change nothing: only what may be bad from the factory does.
    let bytes = |keys: &str| {
        number(&json(at, &format!("info mem:qlc,size=96M{keys}"))["drive"]["physical_bytes"])
    };
    let (plain, none) = (bytes(""), bytes(",errors=true,factory_bad=0"));
    let bad = bytes(",errors=true,factory_bad=0.3");
    assert!(plain == none && bad > plain, "{plain} {none} {bad}");
    for line in [
        "bench mem:qlc,chunks=1,errors=true,store=none --rw write --ios 9",
        "create b.ssd --profile qlc --store none chunks=1 errors=true",
        "info mem:qlc,chunks=1,errors=true",
    ] {
        let out = run(at, line);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{line}: {text}");
        assert!(text.contains("bad from the factory") && text.contains("name size="), "{text}");
    }
    assert!(!at.join("b.ssd").exists());
    // What it says does work.
    let line = "bench mem:qlc,size=209712K,errors=true,store=none --rw write --ios 9";
    assert_eq!(json(at, line)["errors"], 0);
}

#[test]
fn reads_go_on_while_a_flush_waits_for_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let (at, socket) = (dir.path(), dir.path().join("sock"));
    json(at, "create a.ssd --profile znand --size 16M groups=2 pus=2 pages=64");
    // Half a second at least, in which the reads came.
    let fault = "--fault medium:slow,on=flush,pending=300";
    let line = format!("serve ssd:a.ssd --nbd sock --json {fault}");
    let server = Served::start(ssdkit(&line).current_dir(at));
    let mut client = Client::connect(&ListenAddr::Unix(socket)).unwrap();
    for i in 0..16 {
        assert_eq!(ask(&mut client, BlockOp::Write, i * 4096, 4096, &[i as u8; 4096]).0, 0);
    }
    client.submit(BlockOp::Flush, 0, 0, false, 100, &[]).unwrap();
    for i in 0..8 {
        client.submit(BlockOp::Read, i * 4096, 4096, false, i, &[]).unwrap();
    }
    client.flush_sends().unwrap();
    let mut order = Vec::new();
    while order.len() < 9 {
        client.recv(&mut |id, error, _: &[u8]| order.push((id, error))).unwrap();
    }
    assert_eq!(order[8], (100, 0), "{order:?}");
    assert!(order.iter().all(|one| one.1 == 0));
    client.close().unwrap();
    server.stop();
}

/// A shell in a file system of its own of 8 MiB at `disk`, where that is
/// allowed.
fn on_a_small_disk(at: &Path, script: &str) -> Option<Command> {
    let mount = "mount -t tmpfs -o size=8m none disk";
    let within = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-r", "-m", "sh", "-c", &format!("{mount} && {script}")]).current_dir(at);
        command
    };
    std::fs::create_dir_all(at.join("disk")).unwrap();
    let works = within("true").output().is_ok_and(|out| out.status.success());
    works.then(|| within(script))
}

#[test]
fn a_full_disk_below_a_served_drive() {
    full_disk_below("volatile");
}

#[test]
fn a_full_disk_below_a_protected_cache() {
    full_disk_below("protected");
}

fn full_disk_below(cache: &str) {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let binary = env!("CARGO_BIN_EXE_ssdkit");
    // The ballast makes room afterwards.
    let script = format!(
        "cd disk && head -c 3000000 /dev/zero > ballast && \
         {binary} create a.ssd --profile null --size 16M groups=2 pus=2 pages=64 --cache {cache} > made && \
         {{ {binary} serve ssd:a.ssd --nbd ../sock --json; echo $? > ../code; rm ballast; \
         exec {binary} serve ssd:a.ssd --nbd ../sock --json; }}"
    );
    let Some(mut command) = on_a_small_disk(at, &script) else {
        eprintln!("no file system of one's own here: not tested");
        return;
    };
    let mut server = Served::start(command.stderr(Stdio::piped()));
    let address = ListenAddr::Unix(at.join("sock"));
    let mut client = Client::connect(&address).unwrap();
    let block = |i: u64| vec![1 + (i % 250) as u8; 65536];
    // Until it is full: what was flushed must stay.
    let (mut flushed, mut error) = (0, 0);
    for i in 0..256 {
        error = ask(&mut client, BlockOp::Write, i * 65536, 65536, &block(i)).0;
        if error == 0 {
            error = ask(&mut client, BlockOp::Flush, 0, 0, &[]).0;
        }
        if error != 0 {
            break;
        }
        flushed = i + 1;
    }
    assert_eq!(error, 28, "ENOSPC after {flushed} writes");
    assert!(flushed > 10, "{flushed}");
    // Reads go on, writes do not.
    assert_eq!(ask(&mut client, BlockOp::Write, 0, 4096, &[9; 4096]).0, 28);
    for i in 0..flushed {
        assert_eq!(ask(&mut client, BlockOp::Read, i * 65536, 65536, &[]), (0, block(i)));
    }
    client.close().unwrap();
    // The server is a child of the shell, which goes on when it has ended.
    let server_pid = child_of(&server.child);
    kill_process(server_pid, Signal::TERM).unwrap();
    let line = server.line();
    // With room again it is served again, and all that was flushed is there.
    let mut client = connect_again(&address);
    assert_eq!(std::fs::read_to_string(at.join("code")).unwrap().trim(), "1", "{line}");
    for i in 0..flushed {
        assert_eq!(ask(&mut client, BlockOp::Read, i * 65536, 65536, &[]), (0, block(i)));
    }
    assert_eq!(ask(&mut client, BlockOp::Write, 0, 65536, &block(7)).0, 0);
    assert_eq!(ask(&mut client, BlockOp::Flush, 0, 0, &[]).0, 0);
    client.close().unwrap();
    let (code, text, _) = server.end(Signal::TERM);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("make room on the file system"), "{text}");
    assert!(text.contains("can only be read"), "{text}");
}

/// A program cannot begin on a drive file whose disk is full: the disk is told, too.
#[test]
fn a_full_disk_below_a_program_that_is_to_begin() {
    let dir = tempfile::tempdir().unwrap();
    let binary = env!("CARGO_BIN_EXE_ssdkit");
    let script = format!(
        "cd disk && {binary} create a.ssd --profile tlc --size 64M > made && \
         {{ cat /dev/zero > ballast; {binary} run --drive a.ssd --map ../data -- true; }}"
    );
    let Some(mut command) = on_a_small_disk(dir.path(), &script) else {
        eprintln!("no file system of one's own here: not tested");
        return;
    };
    let out = command.output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    if text.contains("supervisor") {
        eprintln!("LEFT OUT: programs cannot be supervised here: {text}");
        return;
    }
    assert_eq!(out.status.code(), Some(1), "{text}");
    let why = "ssd:a.ssd: the drive file: writing a block: No space left on device";
    assert!(text.contains(why) && text.contains("make room on the file system"), "{text}");
}

/// Runs a command on a drive file whose disk gets full, and on one that is longer than a file
/// may be: neither is told as flash that gives way. False where that cannot be tried here.
fn is_told_of_a_full_disk(at: &Path, line: &str) -> bool {
    let binary = env!("CARGO_BIN_EXE_ssdkit");
    let limit = "ulimit -f 10000;";
    let block = "the drive file: writing a block";
    let state = "the protected cache: writing its state";
    for (limit, cache, doing, why, advice) in [
        ("", "volatile", block, "No space left on device", "make room on the file system"),
        (limit, "volatile", block, "File too large", "raise that"),
        // What is written first lies behind the drive.
        (limit, "protected", state, "File too large", "raise that"),
    ] {
        let script = format!(
            "cd disk && {binary} create a.ssd --profile tlc --size 64M --cache {cache} > made && \
             {{ {limit} {binary} {line}; }}"
        );
        let Some(mut command) = on_a_small_disk(at, &script) else { return false };
        let out = command.output().unwrap();
        let [told, error] =
            [&out.stdout, &out.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        assert_eq!(out.status.code(), Some(1), "{line}: {error}");
        let all = format!("{told}{error}");
        let cause = format!("ssd:./a.ssd: {doing}: {why}");
        assert!(all.contains(&cause) && all.contains(advice), "{line}: {all}");
        let is_of_flash =
            |line: &str| line.contains("programs failed") || line.contains("gave way");
        assert!(!all.lines().any(is_of_flash), "{line}: {all}");
    }
    true
}

#[test]
fn a_full_disk_below_a_drive_file_is_told_as_that() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    std::fs::write(at.join("job.fio"), "[a]\nrw=randwrite\nbs=4k\nsize=64m\n").unwrap();
    let row = |i: u64| format!("{},a,0,Write,{},8192,100\n", 128166372003061629 + i, i * 8192);
    let trace: String = (0..4000).map(row).collect();
    std::fs::write(at.join("trace.csv"), trace).unwrap();
    for line in [
        "bench ./a.ssd --rw randwrite --qd 4 --ios 20k --precondition none",
        "bench ./a.ssd --rw randwrite --ios 100 --precondition seq --json",
        "bench ./a.ssd --rw randwrite --ios 100 --precondition seq --snapshot b.ssd",
        "explain ./a.ssd --rw randwrite --qd 4 --ios 20k --precondition none",
        "replay ../trace.csv ./a.ssd --precondition none",
        "fio ../job.fio --drive ./a.ssd",
        "fio ../job.fio --drive ./a.ssd --json",
        "test iops ./a.ssd --quick",
    ] {
        if !is_told_of_a_full_disk(at, line) {
            eprintln!("no file system of one's own here: not tested");
            return;
        }
    }
}

/// The child of a process that has one.
fn child_of(parent: &Child) -> Pid {
    let id = parent.id();
    let list = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    let child = list.split_whitespace().next().expect("it has a child").parse().unwrap();
    Pid::from_raw(child).unwrap()
}

/// The next server listens soon, or later on a busy machine: five minutes are a
/// server that is not there.
fn connect_again(address: &ListenAddr) -> Client {
    for _ in 0..30_000 {
        if let Ok(client) = Client::connect(address) {
            return client;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("it does not listen again")
}

#[test]
fn a_read_only_file_system_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let binary = env!("CARGO_BIN_EXE_ssdkit");
    let script = format!(
        "cd disk && {binary} create a.ssd --profile null --size 4M groups=1 pus=2 pages=16 > made \
         && mount -o remount,ro none ../disk && ! {binary} serve ssd:a.ssd --nbd ../sock && \
         ! {binary} create b.ssd --profile null --size 4M && {binary} info a.ssd && \
         {binary} bench ssd:a.ssd,copy=yes --rw randwrite --ios 100 > /dev/null"
    );
    let Some(mut command) = on_a_small_disk(at, &script) else {
        eprintln!("no file system of one's own here: not tested");
        return;
    };
    let out = command.output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{text}");
    assert!(text.contains("cannot be written") && text.contains("Read-only file system"), "{text}");
    assert!(!text.contains("panicked"), "{text}");
}
