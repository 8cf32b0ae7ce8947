//! Real storage: random writes to an ordinary file.
//!
//! Guarantees: every write that counts has reached the storage's own interface
//! before it completes: through O_DIRECT, or, where the file system refuses
//! that, through the page cache with an fdatasync each; which one is told. The
//! file is all written before anything is measured, and has no name while it
//! is used, so that nothing is left behind however the process ends.
//!
//! May fail: the directory cannot be written, or has no room.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use port::Buffer;
use rustix::fs::OFlags;

use super::blocking::{Amount, Call, Calls, Sync};
use drive::error::Error;

/// Bytes of one write while the file is made.
const FILL: usize = 1 << 20;
/// File systems in memory, by their magic numbers: tmpfs and ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// A file for random writes.
pub struct Target {
    file: File,
    bytes: u64,
    direct: bool,
    in_memory: bool,
}

impl Target {
    /// A file of `bytes` in `dir`, all written. `bytes` is a multiple of
    /// 1 MiB.
    pub fn create(dir: &Path, bytes: u64) -> Result<Target, Error> {
        let wrong = |what: &str, e: io::Error| {
            let dir = dir.display();
            Error::Failed(format!("cannot {what} a file in {dir}: {e}; give another --dir"))
        };
        let (file, direct) = open(dir).map_err(|e| wrong("make", e))?;
        fill(&file, bytes).map_err(|e| wrong("write", e))?;
        let kind = rustix::fs::fstatfs(&file).map_err(|e| wrong("ask about", e.into()))?;
        let in_memory = IN_MEMORY.contains(&(kind.f_type as u64));
        Ok(Target { file, bytes, direct, in_memory })
    }

    /// How its writes get to the storage.
    pub fn how(&self) -> &'static str {
        if self.direct { "O_DIRECT" } else { "buffered, fdatasync after each write" }
    }

    /// Whether it is in memory after all: no storage at all.
    pub fn in_memory(&self) -> bool {
        self.in_memory
    }

    /// Writes 4 KiB at random places for `time`, by `threads` that each have
    /// one write outstanding. Gives writes a second.
    pub fn random_writes(&self, threads: u32, time: Duration, seed: u64) -> Result<f64, Error> {
        let sync = if self.direct { Sync::Never } else { Sync::EachData };
        let amount = Amount::Time(time);
        let calls = Calls { call: Call::Write(sync), threads, amount, seed };
        Ok(calls.run(&self.file, self.bytes)?.rate)
    }
}

/// A file without a name, and whether it is open for direct writes.
fn open(dir: &Path) -> io::Result<(File, bool)> {
    let path = dir.join(format!("ssdkit-study-{}", std::process::id()));
    let attempt = |flags: OFlags| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).custom_flags(flags.bits() as i32);
        options.open(&path)
    };
    let opened = match attempt(OFlags::DIRECT) {
        Ok(file) => Ok((file, true)),
        Err(e) if e.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
            // Some file systems make the file before they refuse.
            let _ = std::fs::remove_file(&path);
            attempt(OFlags::empty()).map(|file| (file, false))
        }
        Err(e) => Err(e),
    };
    let opened = opened?;
    std::fs::remove_file(&path)?;
    Ok(opened)
}

/// Writes the whole file, and waits until it is on the storage. `bytes` is a multiple of
/// 1 MiB.
pub fn fill(file: &File, bytes: u64) -> io::Result<()> {
    let mut buffer = Buffer::zeroed(FILL).map_err(|_| io::ErrorKind::OutOfMemory)?;
    buffer.bytes_mut().fill(0x5a);
    for at in (0..bytes).step_by(FILL) {
        file.write_all_at(buffer.bytes(), at)?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_writes_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::create(dir.path(), 2 << 20).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let rate = target.random_writes(2, Duration::from_millis(20), 1).unwrap();
        assert!(rate > 0.0);
        let mut block = Buffer::zeroed(2 << 20).unwrap();
        target.file.read_exact_at(block.bytes_mut(), 0).unwrap();
        let changed = block.bytes().chunks(4096).filter(|b| b[0] != 0x5a).count();
        assert!(changed > 0);
        assert!(block.bytes().chunks(4096).all(|b| b.iter().all(|&x| x == b[0])));
    }

    #[test]
    fn who_gets_no_core_in_time_writes_once() {
        let dir = tempfile::tempdir().unwrap();
        let target = Target::create(dir.path(), 1 << 20).unwrap();
        assert!(target.random_writes(2, Duration::ZERO, 1).unwrap() > 0.0);
    }

    #[test]
    fn a_directory_that_is_not_there_is_said() {
        let Err(error) = Target::create(Path::new("/nonexistent/dir"), 1 << 20) else {
            panic!("there is no such directory")
        };
        assert_eq!(error.exit_code(), 1);
        assert!(error.to_string().contains("--dir"), "{error}");
    }
}
