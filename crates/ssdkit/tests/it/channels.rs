//! `ssdkit serve --channel` and `bench channel:` from outside.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Served, json, run, ssdkit, told};

/// A server that is listening.
fn started(line: &str) -> Served {
    Served::start(&mut ssdkit(&format!("serve {line} --json")))
}

/// Runs a bench and gives its report.
fn bench(line: &str) -> Value {
    json(Path::new("."), &format!("bench {line}"))
}

/// The error of a command that is refused.
fn refused(line: &str) -> String {
    let (code, text) = told(&run(Path::new("."), line));
    assert_ne!(code, Some(0), "{line}");
    text
}

fn at(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().unwrap().to_string()
}

#[test]
fn a_drive_is_served_by_channels_and_over_nbd_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let (channel, nbd) = (at(dir.path(), "channel"), at(dir.path(), "nbd"));
    let server = started(&format!("mem:null,size=16M --channel {channel} --nbd {nbd}"));
    assert_eq!(server.ready["channel"], format!("channel:{channel}"));
    assert_eq!(server.ready["size_bytes"], 16 << 20);
    for linger in ["", ",linger=0ns"] {
        let report = bench(&format!(
            "channel:{channel}{linger} --rw randrw --qd 8 --ios 3k --verify --flush-every 50 \
             --precondition seq --destroy"
        ));
        assert_eq!((&report["ios"], &report["errors"]), (&3000.into(), &0.into()));
    }
    bench(&format!(
        "channel:{channel} --rw randread --qd 64 --bssplit 512/30:4k/40:64k/30 --ios 2k"
    ));
    bench(&format!("nbd:{nbd} --rw randread --ios 1k"));
    let text = refused(&format!("bench channel:{channel} --rw randwrite --ios 1"));
    assert!(text.contains("--destroy"), "{text}");
    let text = refused(&format!("bench channel:{channel} --rw randread --rate 1k --time 1s"));
    assert!(text.contains("--rate is not for channel: drives"), "{text}");
    let last = server.stop();
    assert_eq!((&last["faults"], &last["refused"]), (&0.into(), &0.into()));
    assert_eq!(last["connections"], 4);
    assert!(!Path::new(&channel).exists() && !Path::new(&nbd).exists());
}

/// What no other front serves: its clients are told that it keeps nothing.
#[test]
fn a_drive_that_keeps_nothing_is_served_by_a_channel_alone() {
    let dir = tempfile::tempdir().unwrap();
    let channel = at(dir.path(), "channel");
    for store in ["none", "checksum"] {
        let drive = format!("mem:null,size=16M,store={store}");
        let server = started(&format!("{drive} --channel {channel} --linger 10us"));
        let report = bench(&format!("channel:{channel} --rw randread --qd 32 --ios 20k"));
        assert_eq!((&report["ios"], &report["errors"]), (&20_000.into(), &0.into()));
        if store == "checksum" {
            bench(&format!("channel:{channel} --rw randrw --ios 2k --verify --destroy"));
        }
        server.stop();
        let nbd = at(dir.path(), "nbd");
        let text = refused(&format!("serve {drive} --channel {channel} --nbd {nbd}"));
        assert!(text.contains("keeps no data to serve"), "{text}");
    }
    assert!(refused("bench channel:/no/such --rw randread").contains("serve --channel"));
    assert!(refused("serve channel:/a --channel /b").contains("served already"));
}

/// A client that is killed leaves its server as it was; a server that is killed is
/// noticed by its client.
#[test]
fn who_is_killed_is_noticed_by_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let channel = at(dir.path(), "channel");
    let server = started(&format!("mem:znand,size=16M --channel {channel}"));
    let client = |time| {
        let how = "--rw randwrite --qd 16 --destroy --json";
        let mut command = ssdkit(&format!("bench channel:{channel} {how} --time {time}"));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut killed = client("60s");
    std::thread::sleep(Duration::from_millis(300));
    killed.kill().unwrap();
    killed.wait().unwrap();
    bench(&format!("channel:{channel} --rw randrw --ios 2k --verify --precondition seq --destroy"));
    let start = Instant::now();
    let left = client("60s");
    std::thread::sleep(Duration::from_millis(500));
    drop(server);
    let out = left.wait_with_output().unwrap();
    assert!(start.elapsed() < Duration::from_secs(40), "long before its time");
    let text = String::from_utf8_lossy(&out.stderr);
    assert!(text.contains("the server is gone") || text.contains("cannot connect"), "{text}");
    assert_eq!(out.status.code(), Some(1), "{text}");
}

/// The examples of docs/channels.md, in order, in a folder of their own.
#[test]
fn examples_do_what_they_say() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/channels.md");
    let page = std::fs::read_to_string(page).unwrap();
    let below = page.split_once("\nExamples:").unwrap().1;
    let dir = tempfile::tempdir().unwrap();
    let lines = below.lines().filter_map(|line| line.strip_prefix("    ssdkit "));
    let lines: Vec<String> = lines.map(|line| line.replace("/tmp", &at(dir.path(), ""))).collect();
    assert!(lines.len() >= 5, "{lines:?}");
    let mut servers = Vec::new();
    for line in lines {
        match line.split_once(' ').unwrap() {
            ("serve", rest) => servers.push(started(rest)),
            ("bench", rest) => assert_eq!(bench(rest)["errors"], 0),
            other => panic!("{other:?}"),
        }
    }
    assert!(servers.into_iter().all(|server| server.stop()["faults"] == 0));
}
