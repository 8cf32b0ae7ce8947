//! What can be opened, and what is said when it cannot.

use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{
    LATEST, buffered, file, if_possible, one, open_again, queue, request, run, system,
};
use blkmq::Driver;
use port::{BlockOp, Buffer, Port, Ring, Status, Time};
use storage::{MOST_BYTES, OpenError, Poll, Storage, StorageOptions};

const MIB: u64 = 1 << 20;

fn refused(path: &Path, options: StorageOptions) -> OpenError {
    Storage::open(path, options).err().expect("it is refused")
}

#[test]
fn the_shape_is_the_files() {
    let (_dir, path) = file(MIB + 5000);
    let options = StorageOptions { queues: 3, depth: 7, ..buffered() };
    let storage = Storage::open(&path, options).unwrap();
    let shape = storage.shape();
    assert_eq!((shape.bytes, shape.kept, shape.depth), (MIB + 4096, 4096, 7));
    assert_eq!((storage.queues(), storage.polls()), ([3, 0, 0], false));
    assert_eq!(Driver::open(storage).len(), 3);
}

#[test]
fn what_is_no_drive_is_refused() {
    let (dir, path) = file(4095);
    assert!(matches!(refused(&path, buffered()), OpenError::TooSmall { bytes: 4095, .. }));
    assert!(matches!(
        refused(dir.path(), buffered()),
        OpenError::NotADrive { kind: "a directory", .. }
    ));
    assert!(matches!(refused(&path.join("x"), buffered()), OpenError::Missing { .. }));
    assert!(matches!(refused(&dir.path().join("x"), buffered()), OpenError::Missing { .. }));
    assert!(matches!(
        refused("/dev/zero".as_ref(), buffered()),
        OpenError::NotADrive { kind: "a character device", .. }
    ));
}

#[test]
fn only_one_writes_a_file() {
    let (_dir, path) = file(MIB);
    let first = Storage::open(&path, buffered()).unwrap();
    let second = refused(&path, buffered());
    assert!(matches!(second, OpenError::InUse { .. }));
    assert!(second.to_string().contains("read_only"), "{second}");
    Storage::open(&path, StorageOptions { read_only: true, ..buffered() }).unwrap();
    drop(first);
    let mut queue = queue(open_again(&path, buffered()).unwrap());
    assert_eq!(one(&mut queue, request(0, BlockOp::Write, 0, 4096, 1)), Status::SUCCESS);
    // The lock is in the queues, wherever they are.
    assert!(matches!(refused(&path, buffered()), OpenError::InUse { .. }));
    drop(queue);
    open_again(&path, buffered()).unwrap();
}

/// Dropped with requests inside, it waits for them and lets the file go.
#[test]
fn a_busy_queue_is_dropped_and_opened_again() {
    let (_dir, path) = file(8 * MIB);
    for round in 0..50 {
        let options = StorageOptions { direct: round % 2 == 0, ..StorageOptions::default() };
        let Some(storage) = if_possible(&path, options) else { return };
        let mut queue = queue(storage);
        let mut cmds = Ring::new(64);
        for i in 0..64 {
            let op = [BlockOp::Read, BlockOp::Write, BlockOp::Trim][i as usize % 3];
            cmds.put(|| request(i, op, i * 131_072, 131_072, 1));
        }
        queue.submit(Time::ZERO, &mut cmds);
        assert!(queue.next_event().is_some());
    }
}

#[test]
fn a_program_that_runs_is_not_written() {
    let own = std::env::current_exe().unwrap();
    let said = refused(&own, buffered());
    assert!(matches!(said, OpenError::NoWrite { .. }), "{said}");
    assert!(said.to_string().contains("read_only"));
}

#[test]
fn a_read_only_drive_takes_no_writes() {
    let (_dir, path) = file(MIB);
    let mut queue =
        queue(Storage::open(&path, StorageOptions { read_only: true, ..buffered() }).unwrap());
    for op in [BlockOp::Write, BlockOp::Trim, BlockOp::WriteZeroes] {
        assert_eq!(one(&mut queue, request(0, op, 0, 4096, 1)), Status::READ_ONLY);
    }
    assert_eq!(one(&mut queue, request(0, BlockOp::Read, 0, 4096, 1)), Status::SUCCESS);
    assert_eq!(one(&mut queue, request(0, BlockOp::Flush, 0, 0, 0)), Status::SUCCESS);
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    let (_dir, path) = file(32 * MIB);
    let mut queue = queue(Storage::open(&path, buffered()).unwrap());
    let mut status = |op, offset, len| one(&mut queue, request(0, op, offset, len, 0));
    assert_eq!(status(BlockOp::Read, 100, 512), Status::INVALID_FIELD);
    assert_eq!(status(BlockOp::Write, 0, 100), Status::INVALID_FIELD);
    assert_eq!(status(BlockOp::Read, 32 * MIB, 512), Status::LBA_OUT_OF_RANGE);
    assert_eq!(status(BlockOp::Read, 0, MOST_BYTES + 512), Status::INVALID_FIELD);
    assert_eq!(status(BlockOp::Read, 0, MOST_BYTES), Status::SUCCESS);
    assert_eq!(status(BlockOp::Trim, 0, 32 * MIB), Status::SUCCESS);
}

#[test]
fn memory_that_is_not_aligned_is_refused_when_direct() {
    let (_dir, path) = file(MIB);
    let Some(storage) = if_possible(&path, StorageOptions::default()) else { return };
    let mut queue = queue(storage);
    let mut askew = Buffer::zeroed(8192).unwrap();
    let _ = askew.split_to(1);
    let mut req = request(0, BlockOp::Read, 0, 4096, 0);
    req.buffer = askew.split_to(4096);
    let done = run(&mut queue, vec![req]).remove(0);
    assert_eq!((done.status, done.buffer.len()), (Status::INVALID_FIELD, 4096));
    assert_eq!(one(&mut queue, request(0, BlockOp::Read, 100, 512, 0)), Status::INVALID_FIELD);
    assert_eq!(one(&mut queue, request(0, BlockOp::Read, 4096, 4096, 0)), Status::SUCCESS);
}

#[test]
fn polling_is_there_or_said_not_to_be() {
    let (_dir, path) = file(MIB);
    let with = |poll| StorageOptions { poll_queues: 1, poll, ..StorageOptions::default() };
    let Some(auto) = if_possible(&path, with(Poll::Auto)) else { return };
    let polls = auto.polls();
    assert_eq!(auto.queues(), [1, 0, 1]);
    let mut queues = Driver::open(auto);
    for queue in &mut queues {
        assert_eq!(one(queue, request(0, BlockOp::Write, 0, 4096, 1)), Status::SUCCESS);
        assert_eq!(one(queue, request(0, BlockOp::Flush, 0, 0, 0)), Status::SUCCESS);
    }
    drop(queues);
    match open_again(&path, with(Poll::Iopoll)) {
        Ok(storage) => assert!(polls && storage.polls()),
        Err(OpenError::NoPoll { .. }) => assert!(!polls),
        Err(e) => panic!("{e}"),
    }
}

/// Reads go on while the file is cut short and made longer again.
#[test]
fn a_file_that_shrinks_gives_errors_and_the_queue_goes_on() {
    let (_dir, path) = file(MIB);
    fs::write(&path, vec![7; MIB as usize]).unwrap();
    for direct in [false, true] {
        let options = StorageOptions { depth: 32, direct, ..StorageOptions::default() };
        let Some(storage) = if_possible(&path, options) else { return };
        let (mut queue, stop) = (queue(storage), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let file = File::options().write(true).open(&path).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    for len in [0, 700, 300_000, MIB] {
                        file.set_len(len).unwrap();
                        std::thread::sleep(Duration::from_micros(300));
                    }
                }
                file.set_len(3000).unwrap();
            });
            // The other thread may stand still for all of them, and is let on then.
            let mut seen = [0u32; 2];
            let (mut round, start) = (0, Instant::now());
            while round < 300 || seen.contains(&0) {
                if start.elapsed() > LATEST {
                    stop.store(true, Ordering::Relaxed);
                    panic!("{} read, {} refused", seen[0], seen[1]);
                }
                if round >= 300 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                round += 1;
                let read = |i| request(i, BlockOp::Read, (i * 7 + round) % 32 * 32768, 32768, 1);
                for done in run(&mut queue, (0..32).map(read).collect()) {
                    assert_eq!(done.buffer.len(), 32768);
                    match done.status {
                        Status::SUCCESS => seen[0] += 1,
                        Status::UNRECOVERED_READ => seen[1] += 1,
                        other => panic!("{other}"),
                    }
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        let mut read = |offset| one(&mut queue, request(0, BlockOp::Read, offset, 4096, 1));
        assert_eq!([read(0), read(8192)], [Status::UNRECOVERED_READ; 2]);
        File::options().write(true).open(&path).unwrap().set_len(MIB).unwrap();
        assert_eq!([read(0), read(8192)], [Status::SUCCESS; 2]);
    }
}

/// What is mounted, until it is dropped.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        system(&format!("umount {}", self.0.display()));
    }
}

/// A file system of one MiB, which cannot zero a range but punch a hole.
#[test]
fn a_full_file_system_says_so_and_trims_make_room() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display();
    if system(&format!("mount -t tmpfs -o size=1m none {at}")).is_none() {
        return;
    }
    let _mounted = Mounted(dir.path());
    let path = dir.path().join("drive");
    File::create(&path).unwrap().set_len(8 * MIB).unwrap();
    // Closed before it is unmounted.
    {
        let mut queue = queue(Storage::open(&path, buffered()).unwrap());
        let write = |i: u64| request(i, BlockOp::Write, i * 65536, 65536, 3);
        let full = run(&mut queue, (0..64).map(write).collect());
        let count = |s: Status| full.iter().filter(|d| d.status == s).count();
        let (good, bad) = (count(Status::SUCCESS), count(Status::CAPACITY_EXCEEDED));
        assert!(good > 0 && bad > 0 && good + bad == 64, "{good} good, {bad} bad");
        assert_eq!(one(&mut queue, write(127)), Status::CAPACITY_EXCEEDED);
        assert_eq!(one(&mut queue, request(0, BlockOp::Trim, 0, 8 * MIB, 0)), Status::SUCCESS);
        assert_eq!(one(&mut queue, write(127)), Status::SUCCESS);
        let zeroes = request(0, BlockOp::WriteZeroes, 127 * 65536, 512, 0);
        assert_eq!(one(&mut queue, zeroes), Status::SUCCESS);
        let read = run(&mut queue, vec![request(0, BlockOp::Read, 127 * 65536, 1024, 9)]).remove(0);
        assert_eq!((read.buffer.bytes()[511], read.buffer.bytes()[512]), (0, 3));
    }
}
