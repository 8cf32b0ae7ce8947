//! A drive, driven.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use blkmq::{Driver, HardwareQueue};
use port::{BlockDone, BlockOp, BlockReq, Buffer, Port, Ring, Status, Time};
use storage::{OpenError, Storage, StorageOptions, StorageQueue};

/// Buffered: works on every file system.
pub fn buffered() -> StorageOptions {
    StorageOptions { direct: false, ..StorageOptions::default() }
}

/// A file of zeros in a directory that goes with it.
pub fn file(bytes: u64) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive");
    File::create(&path).unwrap().set_len(bytes).unwrap();
    (dir, path)
}

/// Nothing takes that long but what hangs: the disk and the machine may be slow.
pub const LATEST: Duration = Duration::from_secs(300);

/// Opens what was let go just now. The kernel lets the file of a ring go when it
/// finds the time, and a program that another test starts has it until it runs.
pub fn open_again(path: &Path, options: StorageOptions) -> Result<Storage, OpenError> {
    let start = Instant::now();
    loop {
        match Storage::open(path, options.clone()) {
            Err(OpenError::InUse { .. }) if start.elapsed() < LATEST => {
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}

/// Opens; `None`, said, where there is no direct access or too little memory
/// may be locked.
pub fn if_possible(path: &Path, options: StorageOptions) -> Option<Storage> {
    match open_again(path, options) {
        Err(e @ (OpenError::NoDirect { .. } | OpenError::Register { .. })) => {
            skipped(&e.to_string());
            None
        }
        other => Some(other.unwrap()),
    }
}

/// The only queue of a driver.
pub fn queue(storage: Storage) -> StorageQueue {
    storage.open().remove(0)
}

/// A request with a buffer that fits, filled with `fill`.
pub fn request(id: u64, op: BlockOp, offset: u64, len: u64, fill: u8) -> BlockReq {
    let data = matches!(op, BlockOp::Read | BlockOp::Write);
    let mut buffer = Buffer::zeroed(if data { len as usize } else { 0 }).unwrap();
    buffer.bytes_mut().fill(fill);
    BlockReq::new(id, op, offset, len, buffer)
}

/// Submits all, as the queue takes them, and waits for all.
pub fn run(queue: &mut StorageQueue, requests: Vec<BlockReq>) -> Vec<BlockDone> {
    let count = requests.len();
    let (mut cmds, mut done) = (Ring::new(count.max(1)), Ring::new(count.max(1)));
    requests.into_iter().for_each(|r| cmds.put(|| r));
    let (mut all, start) = (Vec::new(), Instant::now());
    while all.len() < count {
        let now = Time(start.elapsed().as_nanos() as u64);
        assert!(start.elapsed() < LATEST, "{} of {count} completed", all.len());
        queue.submit(now, &mut cmds);
        queue.wait(Some(Duration::from_secs(1)));
        queue.advance(now, &mut done);
        all.extend(done.drain());
    }
    assert_eq!(queue.next_event(), None, "nothing is inside any more");
    all
}

/// The status of one request.
pub fn one(queue: &mut StorageQueue, request: BlockReq) -> Status {
    run(queue, vec![request]).remove(0).status
}

/// Runs a program of the system; its output, or `None`, said, when it cannot.
pub fn system(line: &str) -> Option<String> {
    let mut words = line.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output();
    let said = match output {
        Ok(out) if out.status.success() => {
            return Some(String::from_utf8_lossy(&out.stdout).trim().to_string());
        }
        Ok(out) => String::from_utf8_lossy(&out.stderr).trim().to_string(),
        Err(e) => e.to_string(),
    };
    skipped(&format!("{line}: {said}"));
    None
}

/// Says that a part of a test did not run, where its output is not held back:
/// on standard error, past the test's own. Where `NO_SKIPS` is set, it fails.
pub fn skipped(why: &str) {
    assert!(std::env::var_os("NO_SKIPS").is_none(), "it cannot run here: {why}");
    let test = std::thread::current().name().unwrap_or("a test").to_string();
    let _ = writeln!(std::io::stderr(), "SKIPPED, {test}: {why}");
}
