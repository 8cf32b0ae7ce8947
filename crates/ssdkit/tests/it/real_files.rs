//! Files of the host that are measured: those that are no drive are not told as one.

use std::fs;

use crate::common::{run, ssdkit, told};

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
