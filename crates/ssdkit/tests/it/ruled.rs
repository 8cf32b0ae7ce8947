//! Drives made of rules from outside: their names, their files, and the socket at which a
//! served one tells its rules.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Served, json, run, ssdkit};

const SMALL: &str = "mem:ref,size=64M,pages=16,groups=2,target=rules";

/// A template that is printed is taken by the checker, and by a drive.
#[test]
fn what_is_printed_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for name in ["minimal", "latency", "throughput", "longevity"] {
        let line = format!("rules template {name} --applications 3 --size 64M --units 16");
        let text = run(at, &line).stdout;
        std::fs::write(at.join("mine.rules"), text).unwrap();
        assert!(run(at, "rules check mine.rules").status.success(), "{name}");
        let bench = format!(
            "bench {SMALL},store=checksum,rules=mine.rules --rw randrw --qd 4 --time 100ms \
             --verify"
        );
        let report = json(at, &bench);
        assert_eq!(report["failed_requests"], 0, "{name}: {report}");
    }
    let few = run(at, "rules template latency --applications 9 --size 64M --units 8");
    assert_eq!(few.status.code(), Some(2));
}

/// A set that is wrong is told with line, column and caret.
#[test]
fn a_wrong_set_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let text = "set a application 0 lba 0..4K\nrule x priority 0 when op == wriet then pass\n";
    std::fs::write(folder.path().join("bad.rules"), text).unwrap();
    for line in [
        format!("bench {SMALL},rules=bad.rules --rw randread"),
        format!("info {SMALL},rules=bad.rules"),
        "create a.ssd --profile ref --size 64M target=rules rules=bad.rules".into(),
    ] {
        let out = run(folder.path(), &line);
        let told = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{line}: {told}");
        assert!(told.contains("bad.rules:2:30: error: "), "{line}: {told}");
        assert!(told.contains("^^^^^"), "{line}: {told}");
    }
}

/// A drive file keeps its set: it is opened without the text's file.
#[test]
fn a_drive_file_keeps_its_rules() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let text = run(at, "rules template longevity --size 64M --units 64").stdout;
    std::fs::write(at.join("mine.rules"), text).unwrap();
    let create = "create a.ssd --profile ref --size 64M pages=16 target=rules rules=mine.rules";
    assert!(run(at, create).status.success());
    std::fs::remove_file(at.join("mine.rules")).unwrap();
    let bench = "bench a.ssd --rw randwrite --ios 5000 --verify --destroy --precondition seq";
    assert_eq!(json(at, bench)["failed_requests"], 0);
    let info = json(at, "info a.ssd");
    assert!(info.to_string().contains("longevity"), "{info}");
    assert!(run(at, "snapshot a.ssd b.ssd").status.success());
    let again = "bench b.ssd --rw randread --time 10ms";
    assert_eq!(json(at, again)["failed_requests"], 0);
}

/// A drive made of rules that is served, with its control socket.
fn serve(at: &Path) -> Served {
    let with = "--nbd ./drive.sock --control ./control.sock";
    let served = serve_with(at, &format!("{SMALL},rules=throughput:2"), with);
    assert!(served.ready.to_string().contains("control.sock"), "{}", served.ready);
    served
}

/// A drive, served in this way.
fn serve_with(at: &Path, drive: &str, with: &str) -> Served {
    Served::start(ssdkit(&format!("serve {drive} --json {with}")).current_dir(at))
}

fn count(counters: &Value, rule: &str) -> u64 {
    let rules = counters["rules"].as_array().unwrap();
    let one = rules.iter().find(|one| one["rule"] == rule).unwrap_or_else(|| panic!("{counters}"));
    one["matched"].as_u64().unwrap()
}

/// A served drive tells its rules and counts them; another set decides from then on.
#[test]
fn rules_are_installed_while_it_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let _served = serve(at);
    let mode = std::fs::metadata(at.join("control.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let listed = json(at, "rules list ./control.sock");
    assert_eq!((&listed["set"], &listed["number"]), (&"throughput".into(), &0.into()));
    let plain = run(at, "rules list ./control.sock").stdout;
    assert_eq!(String::from_utf8(plain).unwrap(), listed["text"].as_str().unwrap());
    let bench = "bench nbd:./drive.sock --rw randwrite --ios 500 --destroy --json";
    assert!(run(at, bench).status.success());
    let before = json(at, "rules counters ./control.sock");
    assert!(count(&before, "write") >= 500, "{before}");
    // Others decide, and what has the same name goes on.
    let text = listed["text"].as_str().unwrap().replace("op == write", "op == write and lba > 9");
    let text = format!("{text}\nrule none priority 0\n  when op == write\n  then refuse\n");
    std::fs::write(at.join("mine.rules"), text.replace("set throughput", "set mine")).unwrap();
    let installed = json(at, "rules install ./control.sock mine.rules");
    assert_eq!((&installed["set"], &installed["number"]), (&"mine".into(), &1.into()));
    // It comes into use with the next request, and is told before that.
    assert_eq!(json(at, "rules list ./control.sock")["set"], "mine");
    let waits = json(at, "rules counters ./control.sock");
    assert_eq!((&waits["set"], &waits["next"]["set"]), (&"throughput".into(), &"mine".into()));
    let first = "bench nbd:./drive.sock --rw write --ios 20 --destroy --json";
    let report: Value = serde_json::from_slice(&run(at, first).stdout).unwrap();
    assert_eq!(report["failed_requests"], 10, "{report}");
    let after = json(at, "rules counters ./control.sock");
    assert_eq!(count(&after, "none"), 10);
    assert_eq!(count(&after, "write"), count(&before, "write") + 10);
    // What asks for more than it has is refused by its line, and the set goes on.
    let more = listed["text"].as_str().unwrap().replace("units 0..16", "units 0..17");
    std::fs::write(at.join("more.rules"), more).unwrap();
    let refused = run(at, "rules install ./control.sock more.rules");
    let told = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    assert!(told.contains("more.rules:3:1: error: the set asks for the units"), "{told}");
    let big = "set big application 0 lba 0..8K\nmap m[64M] of 0..2\n\
               rule x priority 0 when op != idle then pass\n";
    std::fs::write(at.join("big.rules"), big).unwrap();
    let refused = run(at, "rules install ./control.sock big.rules");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("big.rules:2:5"));
    assert_eq!(json(at, "rules list ./control.sock")["set"], "mine");
}

/// Whatever is sent to the socket, the drive and others are served on.
#[test]
fn a_hostile_client_hurts_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let _served = serve(at);
    let socket = at.join("control.sock");
    let long = [&b"SSDCNTRL\x01\0\0\0"[..], &u32::MAX.to_le_bytes()].concat();
    let nested = format!("{{\"ask\":{}", "[".repeat(100_000));
    let nested =
        [&b"SSDCNTRL\x01\0\0\0"[..], &(nested.len() as u32).to_le_bytes(), nested.as_bytes()]
            .concat();
    // Thousands of problems, each with a name of millions of characters.
    let rules = "rule r priority 0 when always then pass ".repeat(4000);
    let wrong = serde_json::json!({
        "ask": "install", "name": "n".repeat(3 << 20), "text": format!("set a {rules}")
    });
    let wrong = wrong.to_string();
    let wrong =
        [b"SSDCNTRL\x01\0\0\0", &(wrong.len() as u32).to_le_bytes()[..], wrong.as_bytes()].concat();
    let mut client = UnixStream::connect(&socket).unwrap();
    client.write_all(&wrong).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert!((1000..200_000).contains(&answer.len()), "{} bytes", answer.len());
    for said in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 64], &long, &nested, b"SSDCNTRL\x02\0\0\0\0\0\0\0"]
    {
        let mut client = UnixStream::connect(&socket).unwrap();
        let _ = client.write_all(said);
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).to_string();
        assert!(answer.is_empty() || answer.contains("error"), "{answer}");
    }
    // Silent ones, as many as are heard at once and more; the drive goes on meanwhile.
    let silent: Vec<_> = (0..20).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let bench = "bench nbd:./drive.sock --rw randwrite --ios 500 --destroy --json";
    assert!(run(at, bench).status.success());
    drop(silent);
    let until = Instant::now() + Duration::from_secs(30);
    while !run(at, "rules list ./control.sock --json").status.success() {
        assert!(Instant::now() < until, "it is heard again");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Where there are no rules, or nobody answers, that is said.
#[test]
fn what_cannot_be_asked_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let line = "serve mem:ref,size=64M --nbd ./d.sock --control ./r.sock";
    let out = run(at, line);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("has neither rules nor several targets"));
    assert!(!at.join("r.sock").exists());
    for path in ["127.0.0.1:9999", "8080"] {
        let line = format!("serve {SMALL} --nbd ./d.sock --control {path}");
        let out = run(at, &line);
        assert_eq!(out.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&out.stderr).contains("no port: write ./"));
    }
    let out = run(at, "rules list ./r.sock");
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("nobody answers"));
}

/// The cache that comes with the program before a drive that another process serves: what was
/// written is read, much of it from the cache; a slow drive that goes away fails requests and
/// does not hold the server up.
#[test]
fn a_cache_before_a_served_drive() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let set = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rules/cache.rules");
    std::fs::copy(set, at.join("cache.rules")).unwrap();
    let fast = "mem:znand,size=16M,groups=2,pus=2,pages=16,target=rules,rules=cache.rules,remote=";
    let uri = "nbd+unix:///?socket=./slow.sock";
    let alone = run(at, &format!("serve {fast}{uri} --nbd ./drive.sock"));
    assert_eq!(alone.status.code(), Some(1), "nobody serves it yet");
    assert!(String::from_utf8_lossy(&alone.stderr).contains("is a server running there?"));
    let slow = serve_with(at, "mem:tlc,size=64M,pages=16", "--nbd ./slow.sock");
    let with = "--nbd ./drive.sock --control ./control.sock";
    let cache = serve_with(at, &format!("{fast}{uri}"), with);
    assert_eq!(cache.ready["size_bytes"], 64 << 20, "{}", cache.ready);
    let bench = "bench nbd:./drive.sock --rw randrw --read-percent 90 --qd 8 --range 0+1M --ios 6000 \
                 --verify --destroy";
    let report = json(at, bench);
    assert_eq!(report["failed_requests"], 0, "{report}");
    let counters = json(at, "rules counters ./control.sock");
    assert!(count(&counters, "hit") > 500, "{counters}");
    let virtual_time = run(at, &format!("bench {fast}{uri} --rw randread"));
    assert_eq!(virtual_time.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&virtual_time.stderr).contains("answers in real time"));
    slow.stop();
    let report = run(at, "bench nbd:./drive.sock --rw randwrite --ios 20 --destroy --json");
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!(report["failed_requests"], 20, "{report}");
    assert!(run(at, "rules list ./control.sock --json").status.success());
}
