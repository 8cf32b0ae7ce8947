//! Files of the host that are measured: those that are no drive are not told as one.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::{all, json, run, ssdkit, told};

fn is_in_memory(at: &Path) -> bool {
    rustix::fs::statfs(at).is_ok_and(|about| about.f_type as u32 == 0x0102_1994)
}

fn void(json: &Value) -> &str {
    json["void"].as_str().unwrap_or_default()
}

/// Of one in memory nothing is told, past the page cache or not.
#[test]
fn a_file_in_memory_is_no_drive() {
    let shared = Path::new("/dev/shm");
    if !is_in_memory(shared) {
        return;
    }
    let dir = tempfile::tempdir_in(shared).unwrap();
    let at = dir.path();
    fs::write(at.join("disk"), vec![7; 16 << 20]).unwrap();
    let line = "bench ./disk,direct=no --rw randread --ios 20k";
    let report = json(at, line);
    assert!(void(&report).starts_with("the file lies in memory"), "{report}");
    fs::write(at.join("a.json"), report.to_string()).unwrap();
    let (text, errors, code) = all(at, "compare a.json a.json");
    assert!(code == Some(0) && text.contains("void: the file lies in memory"), "{text}{errors}");
    assert!(text.contains("through the system's page cache"), "{text}");
    // Not each kernel has direct access there.
    let out = run(at, "bench ./disk --rw randread --ios 100 --json");
    if out.status.success() {
        let json: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert!(void(&json).starts_with("the file lies in memory"), "{json}");
    }
    fs::write(at.join("a.fio"), "[a]\nfilename=./disk\nrw=randread\nsize=1m\n").unwrap();
    let fio = &json(at, "fio a.fio")["ssdkit"]["void"];
    assert!(fio[0]["why"].as_str().unwrap().starts_with("the file lies in memory"), "{fio}");
    let (text, _, code) = all(at, "test iops ./disk,direct=no --quick --destroy");
    assert!(code == Some(1) && text.starts_with("VOID: the file lies in memory"), "{text}");
}

#[test]
fn a_file_that_would_be_no_drive_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    for (size, end) in [("size=1", 1), ("size=4097", 4097), ("size=4k\noffset=512", 4608)] {
        fs::write(at.join("a.fio"), format!("[a]\nfilename=./new\nrw=write\n{size}\n")).unwrap();
        let (code, text) = told(&run(at, "fio a.fio"));
        assert!(code == Some(2) && text.contains(&format!("[a] ends at byte {end}")), "{text}");
        assert!(text.contains("a.fio:1") && !at.join("new").exists(), "{text}");
    }
}

/// At a pipe that nobody reads opening would never end.
#[test]
fn results_go_to_a_file_or_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let (pipe, mode) = (at.join("pipe"), rustix::fs::Mode::from_raw_mode(0o600));
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    fs::write(at.join("a.fio"), "[a]\nrw=write\nsize=64k\n").unwrap();
    for output in ["pipe", ".", "/dev/full"] {
        let line = format!("fio a.fio --drive mem:ref,size=16M --output {output}");
        let mut waits = std::process::Command::new("timeout");
        let out = waits.arg("100").arg(ssdkit("").get_program()).args(line.split(' '));
        let (code, text) = told(&out.current_dir(at).output().unwrap());
        assert!(
            code == Some(2) && text.contains(&format!("--output {output}: it is no file")),
            "{text}"
        );
    }
}
