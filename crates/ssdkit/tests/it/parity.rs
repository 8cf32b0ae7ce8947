//! Drives with parity, through the binary: what they are, that they live
//! through the loss of chunks and units, and what is refused.

use crate::common::{json, number, run};

/// Eight units; those of the first are addresses below 0x8000.
const KEYS: &str = "groups=4 pus=2 parity=8";

#[test]
fn a_drive_file_with_parity_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let made = json(at, &format!("create a.ssd --profile tlc --size 64M {KEYS}"));
    let (raw, parity) = (number(&made["raw_bytes"]), number(&made["drive"]["parity"]["bytes"]));
    assert_eq!((number(&made["size_bytes"]), parity * 8), (64 << 20, raw));
    let work = "bench ssd:a.ssd --qd 16 --ios 20k --verify --precondition seq --destroy";
    let first = json(at, &format!("{work} --rw randrw"));
    let wa = first["parity"]["write_amplification"].as_f64().unwrap();
    assert!(first["errors"] == 0 && (8.0 / 7.0..3.0).contains(&wa), "{first}");
    // A program fails; what was in its chunk goes elsewhere.
    let failing = json(at, &format!("{work} --rw randrw --fault below:write,count=1,from=2000"));
    assert_eq!((&failing["errors"], &failing["failed_requests"]), (&0.into(), &0.into()));
    // Found again, and a unit's reads fail: all of complete stripes is there.
    let lost = "--fault below:read,ppa=0-0x8000";
    let read = json(at, &format!("bench ssd:a.ssd --rw read --ios 16k {lost}"));
    let (rebuilt, gone) = (&read["parity"]["rebuilt_blocks"], &read["parity"]["lost_blocks"]);
    assert!(number(rebuilt) > 1000 && number(gone) < 100, "{read}");
    assert!(number(&read["failed_requests"]) <= number(gone), "{read}");
    // It goes on to be written meanwhile, and nothing is ever wrong.
    let on = json(at, &format!("{work} --rw randrw {lost}"));
    assert!(on["errors"] == 0 && number(&on["parity"]["rebuilt_blocks"]) > 100, "{on}");
    let info = json(at, "info a.ssd");
    assert_eq!((&info["clean"], &info["drive"]["parity"]["width"]), (&true.into(), &8.into()));
    assert!(info["parity"]["write_amplification"].as_f64() > Some(8.0 / 7.0), "{info}");
    assert_eq!(json(at, "bench ssd:a.ssd --rw read --ios 16k")["errors"], 0);
}

#[test]
fn none_is_as_if_nobody_had_asked() {
    let dir = tempfile::tempdir().unwrap();
    let hash = |key: &str| {
        let line = format!("bench mem:tlc,size=32M,groups=4,pus=2{key} --rw randrw --ios 10k");
        json(dir.path(), &line)
    };
    let (unset, none) = (hash(""), hash(",parity=0"));
    assert_eq!(unset["state_hash"], none["state_hash"]);
    assert!(none.get("parity").is_none() && none["drive"].get("parity").is_none());
    assert_ne!(hash(",parity=4")["state_hash"], none["state_hash"]);
}

#[test]
fn what_does_not_fit_is_said() {
    let dir = tempfile::tempdir().unwrap();
    for (line, says) in [
        ("bench mem:tlc,parity=5 --rw read", "a width that divides 32"),
        ("bench mem:tlc,parity=65 --rw read", "0 for none, or 3 to 64"),
        ("bench mem:tlc,parity=8,size=64M,unreadable=4 --rw read", "unreadable must be 0"),
        ("create a.ssd --profile tlc --size 64M parity=7", "a width that divides 32"),
    ] {
        let out = run(dir.path(), line);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{line}: {text}");
        assert!(text.contains(says) && out.stdout.is_empty(), "{line}: {text}");
    }
}
