//! A block device: a loop device, where the tests may make one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::common::{buffered, file, one, open_again, queue, request, run, system};
use blkmq::{Abort, Driver, HardwareQueue};
use port::{BlockOp, Status};
use storage::{OpenError, Storage, StorageOptions};

const MIB: u64 = 1 << 20;

/// A loop device over a file, taken away when it is dropped.
struct Loop {
    path: PathBuf,
    file: PathBuf,
    _dir: tempfile::TempDir,
}

impl Loop {
    /// `None`, said, where none can be made.
    fn new(bytes: u64, sector: u32) -> Option<Loop> {
        let (dir, file) = file(bytes);
        let line = format!("losetup --find --show --sector-size {sector} {}", file.display());
        let path = PathBuf::from(system(&line)?);
        Some(Loop { path, file, _dir: dir })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        system(&format!("losetup --detach {}", self.path.display()));
    }
}

fn refused(path: &Path) -> OpenError {
    Storage::open(path, buffered()).err().expect("it is refused")
}

#[test]
fn all_operations_work_on_a_device() {
    let Some(device) = Loop::new(8 * MIB, 512) else { return };
    for direct in [false, true] {
        let options = StorageOptions { direct, ..StorageOptions::default() };
        let storage = open_again(&device.path, options).unwrap();
        assert_eq!(storage.shape().bytes, 8 * MIB);
        let mut queue = queue(storage);
        let write = |i: u64| request(i, BlockOp::Write, i * 65536, 65536, i as u8 + 1);
        assert!(run(&mut queue, (0..128).map(write).collect()).iter().all(|d| d.status.is_ok()));
        let trim = request(0, BlockOp::Trim, 65536, 65536, 0);
        let mut zeroes = request(1, BlockOp::WriteZeroes, 3 * 65536, 512, 0);
        zeroes.fua = true;
        let flush = request(2, BlockOp::Flush, 0, 0, 0);
        let all = run(&mut queue, vec![trim, zeroes, flush]);
        assert!(all.iter().all(|d| d.status.is_ok()), "{all:?}");
        let all = run(&mut queue, vec![request(0, BlockOp::Read, 0, 8 * MIB, 9)]);
        let bytes = all[0].buffer.bytes();
        for (i, part) in bytes.chunks(65536).enumerate() {
            let (first, rest) = match i {
                1 => (0, 0),
                3 => (0, 4),
                i => (i as u8 + 1, i as u8 + 1),
            };
            assert!(
                part[..512].iter().all(|&b| b == first) && part[512..].iter().all(|&b| b == rest)
            );
        }
    }
}

#[test]
fn large_sectors_are_respected() {
    let Some(device) = Loop::new(MIB, 4096) else { return };
    {
        let mut queue = queue(Storage::open(&device.path, StorageOptions::default()).unwrap());
        for op in [BlockOp::Read, BlockOp::Write, BlockOp::Trim, BlockOp::WriteZeroes] {
            assert_eq!(
                one(&mut queue, request(0, op, 512, 512, 0)),
                Status::INVALID_FIELD,
                "{op:?}"
            );
            assert_eq!(one(&mut queue, request(0, op, 4096, 4096, 3)), Status::SUCCESS, "{op:?}");
        }
    }
    // Through the page cache, small ones are served too: here by writing.
    let mut queue = queue(open_again(&device.path, buffered()).unwrap());
    assert_eq!(one(&mut queue, request(0, BlockOp::Write, 0, 8192, 5)), Status::SUCCESS);
    assert_eq!(one(&mut queue, request(0, BlockOp::Trim, 512, 4096, 0)), Status::SUCCESS);
    assert_eq!(one(&mut queue, request(0, BlockOp::WriteZeroes, 7168, 512, 0)), Status::SUCCESS);
    let read = run(&mut queue, vec![request(0, BlockOp::Read, 0, 8192, 9)]).remove(0);
    let zero = |i: usize| (512..4608).contains(&i) || (7168..7680).contains(&i);
    let good = |(i, &b): (usize, &u8)| b == if zero(i) { 0 } else { 5 };
    assert!(read.buffer.bytes().iter().enumerate().all(good));
}

#[test]
fn a_device_in_use_is_refused() {
    let Some(device) = Loop::new(16 * MIB, 512) else { return };
    let first = Storage::open(&device.path, buffered()).unwrap();
    assert!(matches!(refused(&device.path), OpenError::InUse { .. }));
    drop(first);
    drop(open_again(&device.path, buffered()).unwrap());
    let at = tempfile::tempdir().unwrap();
    let (path, at) = (device.path.display(), at.path().display());
    let Some(_) = system(&format!("mkfs.ext4 -q {path}")) else { return };
    let Some(_) = system(&format!("mount {path} {at}")) else { return };
    let said = refused(&device.path);
    system(&format!("umount {at}")).expect("it was mounted");
    assert!(matches!(said, OpenError::InUse { .. }), "{said}");
    assert!(said.to_string().contains("mounted"));
}

/// A loop device without bytes is as one that was taken out.
#[test]
fn a_device_that_goes_away_is_gone() {
    let Some(device) = Loop::new(MIB, 512) else { return };
    let mut queue = queue(Storage::open(&device.path, StorageOptions::default()).unwrap());
    assert_eq!(one(&mut queue, request(0, BlockOp::Write, 0, 4096, 1)), Status::SUCCESS);
    File::options().write(true).open(&device.file).unwrap().set_len(0).unwrap();
    let Some(_) = system(&format!("losetup --set-capacity {}", device.path.display())) else {
        return;
    };
    assert!(!queue.is_gone());
    let all = run(&mut queue, (0..4).map(|i| request(i, BlockOp::Read, 0, 4096, 1)).collect());
    assert!(all.iter().all(|d| d.status == Status::ABORTED), "{all:?}");
    assert!(queue.is_gone());
    assert!(matches!(queue.abort(1), Abort::Lost), "it has completed");
    assert_eq!(fs::metadata(&device.file).unwrap().len(), 0);
}
