//! What is counted of programs whose stretches are known, and of real ones.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use speculation::counts::{Counts, Linker, Reason, all};
use speculation::tool::Tool;

fn counted(tool: &Tool, folder: &Path, program: &[&str]) -> Counts {
    let to = folder.join("counts");
    let _ = std::fs::remove_file(&to);
    let program: Vec<OsString> = program.iter().map(OsString::from).collect();
    let status = tool.command(&to, &program).current_dir(folder).status().expect("valgrind runs");
    assert!(status.success(), "{program:?} ended with {status}");
    Counts::parse(&std::fs::read_to_string(&to).expect("it was counted")).expect("it is the tool's")
}

/// Whether all stretches after a call ended so, and have a mean of so many instructions, and
/// those that the calls themselves take.
fn assert_all(counts: &Counts, call: i64, number: u64, reason: Reason, least: u64) {
    let reasons = &counts.programs["program"].calls[&call];
    let cell = &reasons[&reason];
    assert_eq!(cell.count, number, "call {call}: {reasons:?}");
    let mean = cell.mean() as u64;
    assert!((least..least + 120).contains(&mean), "call {call}: {mean} and not {least}");
}

#[test]
fn stretches_are_as_long_as_they_are_and_end_where_they_must() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/program.c");
    let program = folder.path().join("program");
    let build = |how: &str| {
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-w", "-D_GNU_SOURCE", "-pthread", how, "-o"]).arg(&program).arg(source);
        assert!(cc.status().expect("a C compiler").success());
    };
    build("-Wl,-z,now");
    let tool = Tool::build().expect("valgrind and its libraries");
    let counts = counted(&tool, folder.path(), &["./program"]);

    assert_all(&counts, libc::SYS_preadv, 10, Reason::Buffer, 6_000);
    assert_all(&counts, libc::SYS_fsync, 5, Reason::Shared, 14_000);
    assert_all(&counts, libc::SYS_pwritev, 4, Reason::Call(libc::SYS_lseek), 8_000);
    // The first thread's ten, and the second one's, which the first waits for.
    assert_all(&counts, libc::SYS_pwrite64, 10, Reason::Call(libc::SYS_kill), 4_000);
    assert_all(&counts, libc::SYS_pwrite64, 1, Reason::Call(libc::SYS_fdatasync), 100_000);
    // The child's, up to the program that it becomes.
    assert_all(&counts, libc::SYS_pwritev2, 1, Reason::Call(libc::SYS_execve), 1_000);
    assert!(!counts.programs["program"].calls.contains_key(&libc::SYS_write), "a pipe is no file");
    assert!(counts.programs.contains_key("true"));
    assert_eq!(counts.left_out, 0);
    // It reads the C library's header before, which is none of the program's.
    let program = &counts.programs["program"];
    assert!(!program.calls.contains_key(&libc::SYS_read), "{:?}", program.calls);
    assert!(all(&program.linker.calls[&libc::SYS_read]).count >= 1, "{:?}", program.linker);
    assert!((1..program.instructions).contains(&program.linker.instructions));

    let again = counted(&tool, folder.path(), &["./program"]);
    let writes = |counts: &Counts| counts.programs["program"].calls[&libc::SYS_preadv].clone();
    assert_eq!(writes(&counts), writes(&again), "what is counted does not depend on the machine");

    // Without a dynamic linker all is the program's.
    build("-static");
    let whole = counted(&tool, folder.path(), &["./program"]);
    assert_eq!(whole.programs["program"].linker, Linker::default());
    assert_eq!(writes(&counts), writes(&whole));
}

#[test]
fn dd_is_pure_io() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("from"), vec![7; 64 << 10]).expect("a file");
    let tool = Tool::build().expect("valgrind and its libraries");
    let counts = counted(&tool, folder.path(), &["dd", "if=from", "of=to", "bs=4k", "status=none"]);
    let dd = &counts.programs["dd"];
    let writes = all(&dd.calls[&libc::SYS_write]);
    assert_eq!(writes.count, 16);
    assert!((50.0..2_000.0).contains(&writes.median()), "{}", writes.median());
    assert!(all(&dd.linker.calls[&libc::SYS_read]).count >= 1, "{:?}", dd.linker);
    assert_eq!(dd.calls[&libc::SYS_read][&Reason::Call(libc::SYS_write)].count, 16);
}
