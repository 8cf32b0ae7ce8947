//! Files of the host that are measured: those that are no drive are not told as one.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{all, json, run, ssdkit, told};

const MIB: u64 = 1 << 20;

/// A folder on a drive; none where the tests' folder lies in memory, whose files are void.
fn folder() -> Option<TempDir> {
    let dir = tempfile::tempdir().unwrap();
    (!is_in_memory(dir.path())).then_some(dir)
}

fn is_in_memory(at: &Path) -> bool {
    rustix::fs::statfs(at).is_ok_and(|about| about.f_type as u32 == 0x0102_1994)
}

/// A file of 64 MiB, of which so many at the front were written.
fn sparse(at: &Path, written: u64) {
    let file = File::create(at).unwrap();
    file.set_len(64 * MIB).unwrap();
    file.write_all_at(&vec![7; (written * MIB) as usize], 0).unwrap();
}

fn void(json: &Value) -> &str {
    json["void"].as_str().unwrap_or_default()
}

/// A file that was left would be one with something on it for the run that is corrected.
#[test]
fn a_file_that_is_made_for_a_run_that_is_refused_goes_again() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    fs::write(at.join("a.fio"), "[a]\nfilename=./new\nsize=1m\nrw=randread\nbs=2m\n").unwrap();
    fs::write(at.join("b.fio"), "[a]\nfilename=./new\nsize=256m\nrw=randread\n").unwrap();
    let new = "bench file:new,size=64M,direct=no";
    for line in [
        format!("{new},depth=99999 --rw randrw"),
        format!("{new} --rw randrw --range 65M"),
        format!("{new} --rw randwrite --ios 10 --trace no/dir"),
        "fio a.fio".into(),
        // Stopped while it is preconditioned.
        "bench file:new,size=256M,direct=no --rw randread --max-time 1ms".into(),
        "fio b.fio --max-time 1ms".into(),
    ] {
        let (code, text) = told(&run(at, &line));
        assert!(code == Some(1) || code == Some(2), "{line}: {text}");
        assert!(!at.join("new").exists(), "{line}: {text}");
    }
    // What was there stays.
    sparse(&at.join("new"), 0);
    assert_ne!(told(&run(at, "bench file:new,direct=no --rw randrw --range 65M")).0, Some(0));
    assert!(at.join("new").exists());
}

/// Nothing is on it that could be lost.
#[test]
fn a_file_of_holes_is_a_new_drive() {
    let Some(dir) = folder() else { return };
    let at = dir.path();
    sparse(&at.join("disk"), 0);
    let read_only = json(at, "bench ./disk,direct=no,read_only=yes --rw randread --ios 100");
    assert!(void(&read_only).starts_with("100 % of what is read"), "{read_only}");
    let read = json(at, "bench ./disk,direct=no --rw randread --ios 100");
    assert_eq!((void(&read), &read["workload"]["precondition"]), ("", &"seq".into()));
    assert!(fs::metadata(at.join("disk")).unwrap().blocks() * 512 >= 64 * MIB);
    // Now something is.
    let (code, text) = told(&run(at, "bench ./disk,direct=no --rw randwrite --ios 100"));
    assert!(code == Some(2) && text.contains("add --destroy"), "{text}");
    for name in ["disk", "other"] {
        sparse(&at.join(name), 0);
        let line = format!("bench file:{name},size=64M,direct=no --rw randwrite --ios 100");
        assert_eq!(json(at, &line)["new_drive"], true);
    }
    sparse(&at.join("disk"), 0);
    fs::write(at.join("a.fio"), "[a]\nfilename=./disk\nrw=randread\nnumber_ios=100\n").unwrap();
    let fio = &json(at, "fio a.fio")["ssdkit"];
    assert_eq!((&fio["preconditioned"], &fio["void"]), (&true.into(), &Value::Array(vec![])));
}

/// What is outside is somebody's.
#[test]
fn only_what_is_used_is_written_before() {
    let Some(dir) = folder() else { return };
    let at = dir.path();
    let old = vec![7; MIB as usize];
    let bench =
        "bench ./disk,direct=no --destroy --rw randread --ios 100 --range 512+300k --bs 512";
    let fio = "[a]\nfilename=./disk\noffset=512\nsize=300k\nbs=512\nrw=randread\nnumber_ios=100\n";
    fs::write(at.join("a.fio"), fio).unwrap();
    for line in [bench, "fio a.fio --destroy"] {
        fs::write(at.join("disk"), &old).unwrap();
        json(at, &format!("{line} --precondition seq"));
        let new = fs::read(at.join("disk")).unwrap();
        let (from, to) = (512, 512 + (300 << 10));
        assert_eq!((&new[..from], &new[to..]), (&old[..from], &old[to..]), "{line}");
        assert!(new[from..to].iter().all(|&byte| byte != 7), "{line}");
    }
    fs::write(at.join("disk"), &old).unwrap();
    let steady = bench.replace("randread", "randwrite") + " --precondition steady";
    let (code, text) = told(&run(at, &steady));
    assert!(code == Some(2) && text.contains("outside --range"), "{text}");
    assert_eq!(fs::read(at.join("disk")).unwrap(), old);
    json(at, &format!("{bench} --precondition whole"));
    assert!(fs::read(at.join("disk")).unwrap().iter().all(|&byte| byte != 7));
}

/// Where the rest of a new drive is empty, writes cost less: that is said.
#[test]
fn an_empty_rest_is_told() {
    let at = std::env::temp_dir();
    let warned = |rest: &str| {
        let line = format!("bench mem:tlc,size=64M,store=none --ios 1k --range 16M {rest}");
        json(&at, &line)["warnings"].to_string().contains("--precondition whole")
    };
    assert!(warned("--rw randrw"));
    assert!(!warned("--rw randread"));
    assert!(!warned("--rw randrw --precondition whole"));
    let both = "--rw randread --time 20ms --job rw=write,range=16M+48M";
    let line = format!("bench mem:tlc,size=64M,store=none --range 16M {both}");
    assert!(!json(&at, &line)["warnings"].to_string().contains("whole"));
}

#[test]
fn reads_of_holes_are_void() {
    let Some(dir) = folder() else { return };
    let at = dir.path();
    sparse(&at.join("disk"), 16);
    let bench = |rest: &str| json(at, &format!("bench ./disk,direct=no {rest} --ios 100"));
    let read = bench("--rw randread");
    assert!(void(&read).starts_with("75 % of what is read"), "{read}");
    assert!(void(&read).contains("--precondition seq --destroy"), "{read}");
    assert_eq!(read["workload"]["precondition"], "none");
    assert_eq!(void(&bench("--rw randread --range 16M")), "");
    assert!(void(&bench("--rw randread --range 15M+2M")).starts_with("50 %"));
    assert_eq!(void(&bench("--rw randwrite --destroy --range 16M")), "");
    let (text, _, _) = all(at, "bench ./disk,direct=no --rw randread --ios 100");
    assert!(text.lines().any(|l| l.contains("VOID") && l.contains("% of what")), "{text}");
    // A job that reads what one before it wrote does not.
    let job = "direct=0\nfilename=./disk\nsize=1m\noffset=32m\nbs=64k\n";
    let text =
        format!("[a]\n{job}rw=read\n[b]\n{job}rw=write\nstonewall\n[c]\n{job}rw=read\nstonewall\n");
    fs::write(at.join("a.fio"), text).unwrap();
    let fio = &json(at, "fio a.fio --destroy")["ssdkit"];
    let voids = fio["void"].as_array().unwrap();
    assert!(voids.len() == 1 && voids[0]["jobname"] == "a", "{fio}");
    assert!(voids[0]["why"].as_str().unwrap().starts_with("100 % of what is read"), "{fio}");
    // Preconditioned it has none, until it is trimmed.
    assert_eq!(void(&bench("--rw randread --precondition seq --destroy")), "");
    assert_eq!(void(&bench("--rw randread")), "");
    json(at, "bench ./disk,direct=no --rw trim --bs 1M --ios 16 --destroy");
    assert!(void(&bench("--rw randread")).contains("holes"));
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
        assert!(code == Some(2) && text.contains(&format!("[a] ends at {end} B of")), "{text}");
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
