//! Drives of targets with blocks and of targets that keep values by key, from outside: both
//! served at once, killed and found again, and targets of keys that come and go.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use port::BlockOp;
use serde_json::json;

use crate::common::{self, ask, run};
use crate::tenants::{client, listed, names, refused, serve_with};

const CREATE: &str = "create a.ssd --profile ref --size 64M pages=16 groups=2 units=4/4 \
                      target=pblk/kv keys=2000";
const KEYS: &[&str] = &["--redis", "./keys.sock"];

/// What is answered to commands, a line each.
fn redis(at: &Path, commands: &str) -> String {
    let mut sock = UnixStream::connect(at.join("keys.sock")).unwrap();
    sock.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    for command in commands.lines().chain(["QUIT"]) {
        let words: Vec<&str> = command.split(' ').collect();
        let mut bytes = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
        sock.write_all(bytes.as_bytes()).unwrap();
    }
    let mut replies = String::new();
    sock.read_to_string(&mut replies).unwrap();
    let replies = replies.strip_suffix("+OK\r\n").unwrap_or_else(|| panic!("{replies}"));
    replies.replace("\r\n", "\n").trim_end().to_string()
}

fn write(at: &Path, place: u64, byte: u8) {
    let mut client = client(at, "target0");
    assert_eq!(ask(&mut client, BlockOp::Write, place, 4096, &[byte; 4096]).0, 0);
    assert_eq!(ask(&mut client, BlockOp::Flush, 0, 0, &[]).0, 0);
}

fn read(at: &Path, place: u64) -> Vec<u8> {
    ask(&mut client(at, ""), BlockOp::Read, place, 4096, &[]).1
}

#[test]
fn blocks_and_keys_of_one_drive_are_served_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    assert!(run(at, CREATE).status.success());
    let info = String::from_utf8(run(at, "info a.ssd").stdout).unwrap();
    assert!(info.contains("kv: up to 2.00 k keys"), "{info}");
    // With and without blocks beside it; the power goes, and then it is stopped well.
    let served = serve_with(at, "a.ssd", KEYS);
    assert_eq!(
        (&served.ready["keys"], &served.ready["redis"]),
        (&"target1".into(), &"./keys.sock".into())
    );
    assert_eq!(client(at, "").size(), 16 << 20, "the keys have no addresses");
    assert_eq!(names(&listed(at)), ["target0", "target1"]);
    let one = &listed(at)["targets"][1];
    assert_eq!((&one["target"], &one["keys"]), (&"kv".into(), &2000.into()));
    for n in 0..40 {
        write(at, n * 4096, n as u8 + 1);
        assert_eq!(
            redis(at, &format!("SET key{n} {n}\nSTRLEN key{n}")),
            format!("+OK\n:{}", n.to_string().len())
        );
    }
    // A long value has rows of its own.
    let long = "x".repeat(400_000);
    assert_eq!(redis(at, &format!("SET long {long}")), "+OK");
    drop(served);
    for round in 0..2 {
        let served = serve_with(at, "a.ssd", KEYS);
        for n in 0..40 {
            assert_eq!(read(at, n * 4096), [n as u8 + 1; 4096]);
        }
        assert_eq!(
            redis(at, "DBSIZE\nGET key7\nSTRLEN long\nEXISTS nobody"),
            ":41\n$1\n7\n:400000\n:0"
        );
        if round == 0 { drop(served) } else { drop(served.stop()) }
    }
}

#[test]
fn targets_of_keys_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    assert!(run(at, CREATE).status.success());
    let served = serve_with(at, "a.ssd", KEYS);
    let made = common::json(at, "target create ./control.sock more --units 4 --keys 500");
    assert_eq!((&made["target"], &made["keys"]), (&"kv".into(), &500.into()));
    for (line, why) in [
        ("create ./control.sock b --units 2 --keys 4G", "fewer keys"),
        ("remove ./control.sock target1", "are served over Redis"),
        ("remove ./control.sock target0", "is the only target"),
    ] {
        let (code, said) = refused(at, &format!("target {line}"));
        assert!(code == Some(1) && said.contains(why), "{line}: {said}");
    }
    assert_eq!(redis(at, "SET a 1"), "+OK");
    drop(served);
    // Each has its keys.
    let both = [KEYS, &["--target", "more"]].concat();
    let served = serve_with(at, "a.ssd", &both);
    assert_eq!(redis(at, "GET a\nSET a 2\nDBSIZE"), "$-1\n+OK\n:1");
    let plain = String::from_utf8(run(at, "target remove ./control.sock target1").stdout).unwrap();
    assert_eq!(plain, "target1: removed, and erased\n");
    served.stop();
    let served = serve_with(at, "a.ssd", KEYS);
    assert_eq!((&served.ready["keys"], redis(at, "GET a").as_str()), (&json!("more"), "$1\n2"));
    assert_eq!(
        common::json(at, "target create ./control.sock --units 2 --keys 300")["name"],
        "target1"
    );
    served.stop();
    let (code, said) = refused(at, "serve a.ssd --redis ./keys.sock");
    assert!(code == Some(2) && said.contains("take --target with one of target1, more"), "{said}");
}

#[test]
fn what_is_not_served_so_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let both = "mem:ref,size=64M,pages=16,groups=2,units=4/4,target=pblk/kv";
    for (line, why) in [
        ("serve mem:ref,size=64M --nbd ./a --redis ./b", "--redis and --nbd together are for"),
        (
            "serve mem:ref,size=64M,target=kv --redis ./b --target kv",
            "--redis and --target together",
        ),
        ("serve mem:ref,size=64M,target=kv --redis ./b --control ./c", "--redis and --control"),
        (&format!("serve {both} --redis ./b --pages log"), "leave --pages out"),
        (&format!("serve {both} --redis ./b --target target0"), "target0 is no target that keeps"),
        (&format!("serve {both},cache=protected --redis ./b"), "protected cache"),
    ] {
        let (code, said) = refused(at, line);
        assert!(code == Some(2) && said.contains(why), "{line}: {said}");
    }
}

/// Where keys lie between blocks a bench is of the blocks that its ranges name, and leaves
/// the others as they are.
#[test]
fn a_bench_is_of_one_target() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let kinds = "--profile ref --size 96M pages=16 groups=2 units=4/8/4 target=pblk/kv/pblk";
    assert!(run(at, &format!("create a.ssd {kinds} keys=100")).status.success());
    let served = serve_with(at, "a.ssd", KEYS);
    write(at, 4096, 7);
    assert_eq!(redis(at, "SET a 1"), "+OK");
    served.stop();
    let last = "bench ./a.ssd --rw randrw --qd 4 --ios 500 --destroy --precondition seq";
    for range in ["", "--range 16M+40M", "--range 24M+8M"] {
        let (code, said) = refused(at, &format!("{last} {range}"));
        assert!(code == Some(2) && said.contains("--range 0M+24M or 72M+24M"), "{range}: {said}");
    }
    common::json(at, &format!("{last} --range 72M+24M --verify"));
    let served = serve_with(at, "a.ssd", KEYS);
    assert_eq!(read(at, 4096), [7; 4096]);
    assert_eq!(redis(at, "GET a"), "$1\n1");
    served.stop();
}
