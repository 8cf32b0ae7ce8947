//! Drives of targets of pblk and of rules, from outside: in a file that is served and killed,
//! each with an export of its own, and with rules that are named by their target.

use std::path::Path;

use port::BlockOp;
use serde_json::Value;

use crate::common::{self, ask, run};
use crate::tenants::{client, listed, refused, serve};

/// A set of which all blocks are one application's.
const MINE: &str = "set mine application 0 lba 0..4K units 0..4\n\
                    rule all priority 0 when op != idle then pass\n";

/// Name and kind of each target, and its set.
fn told(list: &Value) -> Vec<String> {
    let text = |one: &Value| one.as_str().unwrap_or("-").to_string();
    let targets = list["targets"].as_array().unwrap().iter();
    let told = targets.map(|one| [text(&one["name"]), text(&one["target"]), text(&one["set"])]);
    told.map(|all| all.join(" ")).collect()
}

fn set_of(at: &Path, target: &str) -> String {
    let list = common::json(at, &format!("rules list ./control.sock --target {target}"));
    list["set"].as_str().unwrap().to_string()
}

/// What each target has in a block, written and read through its export.
fn write(at: &Path, export: &str, byte: u8) {
    let mut client = client(at, export);
    assert_eq!(ask(&mut client, BlockOp::Write, 8192, 4096, &[byte; 4096]).0, 0, "{export}");
    assert_eq!(ask(&mut client, BlockOp::Flush, 0, 0, &[]).0, 0, "{export}");
}

fn read(at: &Path, export: &str) -> u8 {
    let (code, data) = ask(&mut client(at, export), BlockOp::Read, 8192, 4096, &[]);
    assert!(code == 0 && data.iter().all(|&byte| byte == data[0]), "{export}");
    data[0]
}

#[test]
fn a_drive_file_keeps_targets_of_both_kinds() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("mine.rules"), MINE).unwrap();
    let create = "create a.ssd --profile ref --size 64M pages=16 groups=2 units=4/4 \
                  target=pblk/rules rules=latency:2";
    assert!(run(at, create).status.success());
    let served = serve(at, "a.ssd");
    assert_eq!(told(&listed(at)), ["target0 pblk -", "target1 rules latency"]);
    // The only one of rules need not be named.
    assert_eq!(common::json(at, "rules list ./control.sock")["set"], "latency");
    let made = "target create ./control.sock mine --units 4 --rules ./mine.rules";
    assert_eq!(common::json(at, made)["set"], "mine");
    for (n, export) in ["target0", "target1", "mine"].into_iter().enumerate() {
        write(at, export, n as u8 + 1);
    }
    for (line, why) in [
        ("rules list ./control.sock", "say of which target: --target NAME, one of mine, target1"),
        ("rules list ./control.sock --target target0", "no target target0 that is made of rules"),
        ("rules counters ./control.sock --target none", "take one of mine, target1"),
        ("target create ./control.sock b --units 2 --rules latency:3", "units (2)"),
    ] {
        let (code, said) = refused(at, line);
        assert!(code == Some(1) && said.contains(why), "{said}");
    }
    let (code, said) = refused(at, "target create ./control.sock b --units 2 --rules speed");
    assert!(code == Some(2) && said.contains("minimal, latency"), "{said}");
    // Another set for one is none for the other.
    std::fs::write(at.join("more.rules"), MINE.replace("set mine", "set more")).unwrap();
    let install = "rules install ./control.sock ./more.rules --target mine";
    assert_eq!(common::json(at, install)["number"], 1);
    write(at, "mine", 9);
    assert_eq!((set_of(at, "mine"), set_of(at, "target1")), ("more".into(), "latency".into()));
    let counters = common::json(at, "rules counters ./control.sock --target mine");
    assert!(counters["rules"][0]["matched"].as_u64().unwrap() > 0, "{counters}");
    drop(served);
    let info = String::from_utf8(run(at, "info a.ssd").stdout).unwrap();
    assert!(info.contains("; pblk\n") && info.contains("rules: the set latency"), "{info}");
    let json = common::json(at, "info a.ssd");
    assert_eq!(json["drive"]["target"], "pblk/rules/rules", "{json}");
    let served = serve(at, "a.ssd");
    assert_eq!(told(&listed(at))[2], "mine rules mine");
    assert_eq!(["target0", "target1", "mine"].map(|export| read(at, export)), [1, 2, 9]);
    // What goes takes its rules along, and what comes has no older one's.
    assert!(run(at, "target remove ./control.sock mine").status.success());
    assert_eq!(common::json(at, "rules list ./control.sock")["set"], "latency");
    assert!(run(at, "target create ./control.sock mine --units 4").status.success());
    assert_eq!(read(at, "mine"), 0);
    assert!(run(at, "target remove ./control.sock target1").status.success());
    let (_, said) = refused(at, "rules list ./control.sock");
    assert!(said.contains("none of its targets is made of rules"), "{said}");
    served.stop();
    assert!(run(at, "info a.ssd").status.success());
}

/// Why its requests took what they took is refused by name, as of all drives of several.
#[test]
fn what_cannot_be_told_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let line = "explain mem:ref,size=64M,pages=16,target=pblk/rules --rw randread --ios 10";
    let (code, said) = refused(at, line);
    assert!(code == Some(2) && said.contains("its targets share a device"), "{said}");
}
